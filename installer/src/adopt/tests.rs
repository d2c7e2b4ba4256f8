//! Karpenter taken over and given back, as plans.

mod carried;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tenon_iam_policies::Partition;
use tenon_iam_policies::controller::controller_policies;
use tenon_iam_policies::{Document, Features, Scope};
use tenon_installer_core::apply::is_runnable;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::kubernetes::aws_auth;
use tenon_installer_core::kubernetes::correction::{Correction, Pause};
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::observe::state::{
    AccessEntryState, AssociationState, ProviderState, QueueState, RoleState, RuleState,
};
use tenon_installer_core::ownership::{ADOPTED_BY, REPLICAS, Tags};
use tenon_installer_core::plan::{Action, Op, Plan, Step, diff, text};
use tenon_installer_core::settings::config::Config;
use tenon_installer_core::testing::{complete, facts, ids, settings, untouched};

use super::karpenter::Operator;
use super::{Karpenter, POLICY, fit, settings as derived, steps};

const SECONDS: u64 = 60;
const ROLE: &str = "arn:aws:iam::111122223333:role/prod-karpenter";

/// As Karpenter's documentation lays it out, with a role of before v1.7.
fn karpenter() -> Karpenter {
    let env = |name: &str, value: &str| json!({"name": name, "value": value});
    let live = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "karpenter", "namespace": "kube-system"},
        "spec": {"replicas": 2, "template": {"spec": {
            "serviceAccountName": "karpenter",
            "tolerations": [{"key": "critical", "operator": "Exists"}],
            "containers": [{
                "image": "public.ecr.aws/karpenter/controller:1.6.2",
                "env": [
                    env("KARPENTER_SERVICE", "karpenter"),
                    env("CLUSTER_NAME", "prod"),
                    env("INTERRUPTION_QUEUE", "prod"),
                    env("BATCH_MAX_DURATION", "20s"),
                    env("VM_MEMORY_OVERHEAD_PERCENT", "0.05"),
                    env("ISOLATED_VPC", "true"),
                    env("FEATURE_GATES", "SpotToSpotConsolidation=true,NodeRepair=false,Gone=true"),
                ],
            }],
        }}},
    });
    let scope = Scope {
        partition: Partition::Aws,
        region: "eu-central-1".to_owned(),
        account: "111122223333".to_owned(),
        cluster: "prod".to_owned(),
        queue: Some("prod".to_owned()),
        node_roles: vec!["arn:aws:iam::111122223333:role/KarpenterNodeRole-prod".to_owned()],
        features: Features::upstream(),
    };
    let policies = controller_policies(&scope).into_iter().map(|policy| {
        let mut document = policy.document;
        let newer = ["AllowUnscopedInstanceProfileListAction"];
        document.statements.retain(|one| !newer.contains(&one.sid.as_deref().unwrap_or_default()));
        (format!("{}-prod", policy.part.name()), document)
    });
    let role = |name: &str| RoleState {
        arn: format!("arn:aws:iam::111122223333:role/{name}"),
        ..RoleState::default()
    };
    Karpenter {
        operator: Operator::of(live).expect("it is Karpenter"),
        role: ("prod-karpenter".to_owned(), role("prod-karpenter")),
        granted: policies.collect(),
        association: Some(AssociationState { role_arn: ROLE.to_owned(), ..Default::default() }),
        node_roles: [("KarpenterNodeRole-prod".to_owned(), role("KarpenterNodeRole-prod"))].into(),
        has_access_entry: true,
        queue: Some(("prod".to_owned(), QueueState::default())),
        rules: [("Karpenter-prod-Spot".to_owned(), RuleState::default())].into(),
        host_ports: BTreeSet::new(),
    }
}

/// What should be there beside it, and the cluster as it is.
fn beside(found: &Karpenter) -> (Desired, Actual) {
    let mut config = Config::default();
    config.cluster.name = Some("prod".to_owned());
    config.cluster.region = Some("eu-central-1".to_owned());
    let text = derived::adopted(config, found).to_yaml();
    let text = text.split_once("cluster:").map(|(_, rest)| rest).expect("it names the cluster");
    let text = text.lines().skip_while(|line| line.is_empty() || line.starts_with(' '));
    let settings = settings(&text.collect::<Vec<_>>().join("\n"));
    let mut facts = facts();
    facts.node_role_arn = found.node_roles.values().next().map(|role| role.arn.clone());
    let mut actual = untouched();
    actual.association.clone_from(&found.association);
    let entry =
        AccessEntryState { arn: "arn:entry".into(), kind: "EC2_LINUX".into(), tags: Tags::new() };
    actual.access_entry = found.has_access_entry.then_some(entry);
    let mapped = found.node_roles.values().next().filter(|_| !found.has_access_entry);
    actual.aws_auth = mapped.and_then(|role| {
        let mapping = aws_auth::Mapping::of_nodes(&role.arn);
        aws_auth::with(None, &mapping, "somebody").expect("there is none")
    });
    let audiences = vec!["sts.amazonaws.com".to_owned()];
    let by_irsa = found.association.is_none();
    actual.provider = by_irsa.then(|| ProviderState { audiences, tags: Tags::new() });
    actual.queue = found.queue.as_ref().map(|(_, state)| state.clone());
    (Desired::new(&settings, &facts).expect("fit"), actual)
}

fn adoption(found: &Karpenter, desired: &Desired, actual: &Actual) -> Plan {
    let plan = diff(desired, actual).expect("nothing is in the way");
    let plan = steps::adopt(plan, found, desired, SECONDS);
    assert!(is_runnable(&plan), "{:?}", ids(&plan));
    plan
}

/// Both as they are when the plan was carried out.
fn handed_over(found: &Karpenter, desired: &Desired) -> (Karpenter, Actual) {
    let mut after = found.clone();
    let id = &desired.installation.id;
    let tag = |tags: &mut Tags| drop(tags.insert(ADOPTED_BY.to_owned(), id.clone()));
    tag(&mut after.role.1.tags);
    after.node_roles.values_mut().for_each(|role| tag(&mut role.tags));
    after.queue.iter_mut().for_each(|(_, queue)| tag(&mut queue.tags));
    after.rules.values_mut().for_each(|rule| tag(&mut rule.tags));
    if let Some(document) = steps::lacking(found, desired) {
        after.role.1.inline.insert(POLICY.to_owned(), document.to_json());
        after.granted.insert(POLICY.to_owned(), document);
    }
    let mut live = after.operator.live.body.clone();
    live["spec"]["replicas"] = 0.into();
    live["metadata"]["annotations"] = json!({(REPLICAS): "2", (ADOPTED_BY): id});
    after.operator = Operator::of(live).expect("it is Karpenter");
    let (_, before) = beside(found);
    let mut actual = complete(desired);
    (actual.association, actual.access_entry) = (before.association, before.access_entry);
    (actual.queue, actual.aws_auth) = (before.queue, before.aws_auth);
    actual.provider = before.provider;
    (after, actual)
}

#[test]
fn options_and_roles_of_karpenter_become_settings() {
    let mut config = Config::default();
    config.cluster.name = Some("prod".to_owned());
    config.deploy.image = Some("mirror/tenon-operator".to_owned());
    config.deploy.values.insert("logLevel".to_owned(), "debug".into());
    let config = derived::adopted(config, &karpenter());
    insta::assert_snapshot!(config.to_yaml());
    let again = derived::adopted(config.clone(), &karpenter());
    assert_eq!(again, config, "a second look changes nothing");
}

#[test]
fn an_adoption_marks_adds_and_hands_over() {
    let found = karpenter();
    let (desired, actual) = beside(&found);
    let plan = adoption(&found, &desired, &actual);
    insta::assert_snapshot!(text::plan_text(&plan));
    let touches = |step: &Step| {
        ["NodePool", "EC2NodeClass", "NodeClaim", "CustomResourceDefinition"]
            .contains(&step.kind.as_str())
            || step.op == Op::Delete
    };
    assert!(!plan.steps.iter().any(touches));
}

#[test]
fn what_is_handed_over_needs_nothing_and_the_way_back_leaves_no_mark() {
    let found = karpenter();
    let (desired, _) = beside(&found);
    let (after, actual) = handed_over(&found, &desired);
    assert_eq!(ids(&adoption(&after, &desired, &actual)), [""; 0]);
    let back = steps::undo(&after, &desired, &actual, SECONDS);
    assert!(is_runnable(&back), "{:?}", ids(&back));
    insta::assert_snapshot!(text::plan_text(&back));
    // Where nothing was adopted there is nothing to undo.
    let (_, untouched) = beside(&found);
    assert_eq!(ids(&steps::undo(&found, &desired, &untouched, SECONDS)), [""; 0]);
}

/// Flux applies Karpenter, and does this when its replicas change.
fn by_flux(karpenter: &mut Karpenter, correction: Correction) {
    let mut live = karpenter.operator.live.body.clone();
    live["metadata"]["labels"] = json!({
        "helm.toolkit.fluxcd.io/name": "karpenter",
        "helm.toolkit.fluxcd.io/namespace": "infra",
    });
    let mut operator = Operator::of(live).expect("it is Karpenter");
    operator.in_git.as_mut().expect("it is in git").1 = correction;
    karpenter.operator = operator;
}

fn pause() -> Pause {
    Pause { on: "kubectl pause it".to_owned(), off: "kubectl resume it".to_owned() }
}

#[test]
fn what_to_change_in_git_is_a_warning_there_and_back() {
    let in_git = |plan: &Plan| -> Vec<String> {
        let of_git = plan.warnings.iter().filter(|warning| warning.contains("in git"));
        of_git.cloned().collect()
    };
    let mut found = karpenter();
    let (desired, actual) = beside(&found);
    assert_eq!(in_git(&adoption(&found, &desired, &actual)), [""; 0]);
    let is_managed =
        "Deployment kube-system/karpenter is managed by Flux, which can reset its replicas";
    let values = "in spec.values of HelmRelease infra/karpenter in git";
    let there = format!("{is_managed}: after the adoption, set them to 0 {values}");
    by_flux(&mut found, Correction::OnChange);
    assert_eq!(in_git(&adoption(&found, &desired, &actual)), [there.as_str()]);
    assert_eq!(fit::against_adoption(&found, &desired), [""; 0]);
    by_flux(&mut found, Correction::Paused(pause()));
    let resumed = format!("{there}, and resume Flux with `kubectl resume it`");
    assert_eq!(in_git(&adoption(&found, &desired, &actual)), [resumed]);
    assert_eq!(fit::against_adoption(&found, &desired), [""; 0]);
    by_flux(&mut found, Correction::Unknown);
    let unknown = "if HelmRelease infra/karpenter is self-healing, which can't be seen from here, \
                   pause it first; after the adoption";
    let unknown = there.replace("after the adoption", unknown);
    assert_eq!(in_git(&adoption(&found, &desired, &actual)), [unknown]);
    assert_eq!(fit::against_adoption(&found, &desired), [""; 0]);
    by_flux(&mut found, Correction::OnChange);
    let (after, actual) = handed_over(&found, &desired);
    assert_eq!(in_git(&adoption(&after, &desired, &actual)), [""; 0], "there is nothing to do");
    let back = steps::undo(&after, &desired, &actual, SECONDS);
    let and_back = format!("{is_managed}: before the return, set them to 2 {values}");
    assert_eq!(in_git(&back), [and_back]);
}

#[test]
fn nothing_is_changed_while_git_would_start_karpenter_again_or_keep_it_stopped() {
    let mut found = karpenter();
    let (desired, _) = beside(&found);
    by_flux(&mut found, Correction::Restores(pause()));
    assert_eq!(
        fit::against_adoption(&found, &desired),
        [
            "Flux restores the replicas of Deployment kube-system/karpenter, so Karpenter would start \
          again: pause Flux with `kubectl pause it`, run this command again, set the replicas to 0 \
          in spec.values of HelmRelease infra/karpenter in git, and resume Flux with `kubectl \
          resume it`"
        ]
    );
    // Git has 0 already, and the marks are still missing.
    found.operator.live.body["spec"]["replicas"] = 0.into();
    assert_eq!(fit::against_adoption(&found, &desired), [""; 0]);

    let (mut after, actual) = handed_over(&found, &desired);
    by_flux(&mut after, Correction::Restores(pause()));
    assert_eq!(fit::against_adoption(&after, &desired), [""; 0], "it is done");
    assert_eq!(
        fit::against_return(&after, &desired, &actual),
        ["Flux restores the replicas of Deployment kube-system/karpenter: set them to 2 in \
          spec.values of HelmRelease infra/karpenter in git, wait until Karpenter's pods are \
          ready, and run this command again"]
    );
    // Git has them again.
    after.operator.live.body["spec"]["replicas"] = 2.into();
    assert_eq!(fit::against_return(&after, &desired, &actual), [""; 0]);
}

#[test]
fn a_role_that_has_everything_gets_no_policy() {
    let mut found = karpenter();
    let all = Document::new([tenon_iam_policies::Statement::allow("All", ["*"])]);
    found.granted = BTreeMap::from([("All".to_owned(), all)]);
    let (desired, actual) = beside(&found);
    assert_eq!(steps::lacking(&found, &desired), None);
    let plan = adoption(&found, &desired, &actual);
    assert!(!ids(&plan).contains(&"adopted-role-policy"));
}

#[test]
fn an_uninstall_takes_every_mark_off_and_gives_the_replicas_back() {
    let found = karpenter();
    let (desired, _) = beside(&found);
    let (after, _) = handed_over(&found, &desired);
    let steps = steps::leave(&after, &desired.installation.id);
    let plan = Plan { steps, warnings: Vec::new() };
    assert!(is_runnable(&plan), "{:?}", ids(&plan));
    insta::assert_snapshot!(text::plan_text(&plan));
    let Some(Action::ForgetHandOver { replicas, .. }) = plan.steps.last().map(|it| &it.action)
    else {
        panic!("the Deployment is last: {:?}", ids(&plan))
    };
    assert_eq!(*replicas, Some(2));
    // What another installation adopted, and what nobody did, is left alone.
    assert_eq!(steps::leave(&after, "00000000"), []);
    assert_eq!(steps::leave(&found, &desired.installation.id), []);
}

/// As `eksctl` lays it out: IRSA, a stack's generated names, nodes let in by `aws-auth`.
fn by_eksctl() -> Karpenter {
    let mut found = karpenter();
    let name = "eksctl-prod-iamservice-role";
    let tags = [("alpha.eksctl.io/cluster-name".to_owned(), "prod".to_owned())];
    found.role.0 = name.to_owned();
    found.role.1.arn = format!("arn:aws:iam::111122223333:role/{name}");
    found.role.1.tags = tags.into();
    found.association = None;
    found.has_access_entry = false;
    rename_nodes(&mut found, "eksctl-KarpenterNodeRole-prod");
    let rules = ["ScheduledChangeRule-1H2", "SpotInterruptionRule-3J4", "RebalanceRule-5K6"];
    found.rules =
        rules.map(|rule| (format!("eksctl-prod-karpenter-{rule}"), RuleState::default())).into();
    found
}

/// As the Terraform module for EKS lays it out: Pod Identity, names with a date, a queue with a
/// prefix, an access entry.
fn by_terraform() -> Karpenter {
    let mut found = karpenter();
    let name = "KarpenterController-20260101000000000100000001";
    found.role.0 = name.to_owned();
    found.role.1.arn = format!("arn:aws:iam::111122223333:role/{name}");
    rename_nodes(&mut found, "Karpenter-prod-20260101000000000200000002");
    found.association.get_or_insert_default().role_arn.clone_from(&found.role.1.arn);
    found.queue = Some(("Karpenter-prod".to_owned(), QueueState::default()));
    found.operator.options.set("INTERRUPTION_QUEUE", "Karpenter-prod");
    let rules = ["HealthEvent", "SpotInterrupt", "InstanceRebalance", "InstanceStateChange"];
    found.rules = rules
        .map(|rule| (format!("Karpenter{rule}-20260101000000000300000003"), RuleState::default()))
        .into();
    found
}

fn rename_nodes(found: &mut Karpenter, name: &str) {
    let arn = format!("arn:aws:iam::111122223333:role/{name}");
    found.node_roles = [(name.to_owned(), RoleState { arn, ..RoleState::default() })].into();
}

#[test]
fn each_tool_s_layout_is_used_as_it_is_and_given_back_as_it_was() {
    let mut plans = Vec::new();
    for found in [karpenter(), by_eksctl(), by_terraform()] {
        let layout = found.layout("prod").in_words();
        let (desired, actual) = beside(&found);
        let plan = adoption(&found, &desired, &actual);
        let aws = |step: &&Step| !step.needs.iter().all(|need| need.action == "patch");
        let aws = plan.steps.iter().filter(aws).cloned().collect();
        let shown = text::plan_text(&Plan { steps: aws, warnings: Vec::new() });
        plans.push(format!("made by {layout}\n{shown}"));
        assert!(!plan.steps.iter().any(|step| step.op == Op::Delete), "{layout}");
        let makes = |step: &Step| {
            step.op == Op::Create && !step.needs.iter().all(|need| need.action == "patch")
        };
        let made = plan.steps.iter().filter(|step| makes(step)).map(|step| step.id.as_str());
        assert_eq!(made.collect::<Vec<_>>(), ["helm-release"], "{layout}: nothing is made in AWS");
        let (after, actual) = handed_over(&found, &desired);
        assert_eq!(ids(&adoption(&after, &desired, &actual)), [""; 0], "{layout}");
        let back = steps::undo(&after, &desired, &actual, SECONDS);
        assert!(is_runnable(&back), "{layout}: {:?}", ids(&back));
        let released =
            back.steps.iter().filter(|step| matches!(step.action, Action::Release { .. }));
        assert_eq!(released.count(), 3 + found.rules.len(), "{layout}: every mark goes");
    }
    insta::assert_snapshot!(plans.join("\n\n"));
}
