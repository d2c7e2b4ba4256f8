mod model;
mod origins;
mod profiles;

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use tenon_crds::labels::FROZEN;

use super::*;
use crate::apply::is_runnable;
use crate::desired::Desired;
use crate::kubernetes::helm::{self, Revision};
use crate::kubernetes::object::Object;
use crate::observe::actual::Actual;
use crate::observe::state::AccessEntryState;
use crate::ownership::{INSTALL_ID, Tags};
use crate::testing::{complete, desired, facts, ids, settings, untouched};

#[test]
fn an_untouched_cluster_gets_everything() {
    let plan = diff(&desired(""), &untouched()).expect("nothing is in the way");
    insta::assert_snapshot!(text::plan_text(&plan));
    assert!(is_runnable(&plan));
    let deployment =
        plan.steps.iter().find(|step| step.kind == "Deployment").expect("there is a Deployment");
    assert!(
        deployment.depends_on.contains(&"association".to_owned()),
        "pods get their identity when they are admitted"
    );
}

#[test]
fn a_complete_installation_needs_nothing() {
    for extra in [
        "",
        "interruption:\n  enabled: false\n",
        "network:\n  discovery: ids\n",
        "defaults:\n  enabled: false\n",
        "tags:\n  team: x\nidentity:\n  boundary: arn:aws:iam::111122223333:policy/b\n",
        "deploy:\n  namespace: tenon\n  crds: skip\n",
        "identity:\n  mode: irsa\n",
        "deploy:\n  helmRecord: false\n",
        "deploy:\n  operator: skip\n",
        "deploy:\n  host: fargate\n",
        "nodes:\n  authorization: aws-auth\n  instanceProfile: static\n",
        "interruption:\n  kmsKey: arn:aws:kms:eu-central-1:111122223333:key/k\n",
    ] {
        let desired = desired(extra);
        assert_eq!(diff(&desired, &complete(&desired)), Ok(Plan::default()), "{extra}");
    }
}

#[test]
fn an_operator_that_another_tool_deploys_is_no_part_of_the_plan() {
    let (with, without) = (desired(""), desired("deploy:\n  operator: skip\n"));
    let mut actual = untouched();
    let deployment = with.deployment().expect("there is one");
    actual.objects.insert(deployment.key(), serde_json::json!({"metadata": {"name": "of Flux"}}));
    diff(&with, &actual).expect_err("it is in the way");
    let of_aws = diff(&without, &actual).expect("it is not asked for");
    let everything = diff(&with, &untouched()).expect("nothing is in the way");
    let kept = everything.steps.iter().filter(|step| step.is_in_aws());
    let kept = kept.filter(|step| !matches!(step.action, Action::WriteRelease { .. }));
    assert_eq!(ids(&of_aws), kept.map(|step| step.id.as_str()).collect::<Vec<_>>());
    assert!(is_runnable(&of_aws));
}

#[test]
fn each_change_from_outside_is_named_and_repaired() {
    let desired = desired("");
    let change = |change: &dyn Fn(&mut Actual)| {
        let mut actual = complete(&desired);
        change(&mut actual);
        let plan = diff(&desired, &actual).expect("nothing is in the way");
        plan.steps
            .iter()
            .map(|step| {
                let changes = step.changes.iter().map(|change| {
                    let mark = if change.origin == Origin::Settings { " as asked for" } else { "" };
                    format!("\n     {}{mark}", change.path)
                });
                let changes = changes.collect::<String>();
                let reasons = step.reasons.join("; ");
                format!("{} {} ({reasons}){changes}", step.op.sign(), step.id)
            })
            .collect::<Vec<_>>()
            .join("\n   ")
    };
    let node_role = desired.node_role.name.clone();
    let controller_role = desired.controller_role.name.clone();
    let spot = desired.rules[0].name.clone();
    let report = [
        change(&|actual| {
            let role = actual.roles.get_mut(&node_role).expect("role");
            role.attached = ["arn:aws:iam::aws:policy/AdministratorAccess".to_owned()].into();
        }),
        change(&|actual| {
            let role = actual.roles.get_mut(&controller_role).expect("role");
            role.trust = "{}".to_owned();
        }),
        change(&|actual| actual.roles.get_mut(&controller_role).expect("role").inline.clear()),
        change(&|actual| {
            let tags = &mut actual.roles.get_mut(&node_role).expect("role").tags;
            tags.insert("tenon.sh/version".to_owned(), "0.0.1".to_owned());
        }),
        change(&|actual| {
            actual.roles.remove(&node_role);
        }),
        change(&|actual| {
            let association = actual.association.as_mut().expect("association");
            association.role_arn = "arn:other".to_owned();
        }),
        change(&|actual| actual.association = None),
        change(&|actual| {
            let attributes = &mut actual.queue.as_mut().expect("queue").attributes;
            attributes.insert("MessageRetentionPeriod".to_owned(), "60".to_owned());
        }),
        change(&|actual| actual.rules.get_mut(&spot).expect("rule").enabled = false),
        change(&|actual| actual.rules.get_mut(&spot).expect("rule").targets.clear()),
        change(&|actual| {
            actual.network.insert("subnet-b".to_owned(), Tags::new());
        }),
        change(&|actual| {
            let deployment = desired.deployment().expect("a Deployment").key();
            actual.objects.get_mut(&deployment).expect("Deployment")["spec"]["replicas"] = 5.into();
        }),
    ];
    insta::assert_snapshot!(report.join("\n"));
}

#[test]
fn what_is_no_longer_asked_for_is_removed() {
    let before = complete(&desired(""));
    let plan = diff(&desired("interruption:\n  enabled: false\nnetwork:\n  discovery: ids\ndefaults:\n  enabled: false\n"), &before).expect("nothing is in the way");
    insta::assert_snapshot!(text::plan_text(&plan));
    assert!(is_runnable(&plan));
}

#[test]
fn foreign_things_under_our_names_stop_everything() {
    let desired = desired("");
    let mut actual = complete(&desired);
    for role in actual.roles.values_mut() {
        role.tags.clear();
    }
    actual.queue.as_mut().expect("queue").tags.insert(INSTALL_ID.into(), "ffffffff".into());
    actual.association.as_mut().expect("association").tags.clear();
    actual.access_entry.as_mut().expect("entry").tags.clear();
    for rule in actual.rules.values_mut() {
        rule.tags.clear();
    }
    actual.network.insert(
        "subnet-a".to_owned(),
        [("karpenter.sh/discovery".to_owned(), "other".to_owned())].into(),
    );
    for (key, object) in &mut actual.objects {
        if key.kind == "Deployment" || key.kind == "CustomResourceDefinition" {
            object["metadata"]["labels"] =
                serde_json::json!({"app.kubernetes.io/managed-by": "Helm"});
        }
    }
    insta::assert_snapshot!(diff(&desired, &actual).expect_err("refused").join("\n"));
}

#[test]
fn a_discovery_tag_that_was_there_before_is_used_and_never_removed() {
    let with_tags = desired("");
    let mut actual = complete(&with_tags);
    actual.network.insert(
        "subnet-a".to_owned(),
        [("karpenter.sh/discovery".to_owned(), "prod".to_owned())].into(),
    );
    actual.marked.remove("subnet-a");
    assert_eq!(diff(&with_tags, &actual), Ok(Plan::default()));
    let plan =
        diff(&desired("network:\n  discovery: ids\n"), &actual).expect("nothing is in the way");
    assert!(!ids(&plan).contains(&"discovery/subnet-a"), "{:?}", ids(&plan));
    assert!(ids(&plan).contains(&"discovery/subnet-b"));
}

#[test]
fn a_node_pool_of_the_users_is_left_as_it_is() {
    let desired = desired("");
    let mut actual = complete(&desired);
    for (key, object) in &mut actual.objects {
        if key.kind == "NodePool" {
            *object = serde_json::json!({"metadata": {"name": "default"}, "spec": {"weight": 7}});
        }
    }
    let plan = diff(&desired, &actual).expect("nothing is in the way");
    assert!(plan.steps.is_empty());
    assert_eq!(plan.warnings, ["NodePool default exists, and is not changed"]);
}

#[test]
fn a_frozen_node_pool_is_left_frozen() {
    let desired = desired("");
    let mut actual = complete(&desired);
    for (key, object) in &mut actual.objects {
        if key.kind == "NodePool" {
            object["metadata"]["annotations"][FROZEN] = "{}".into();
            object["spec"]["limits"]["cpu"] = "0".into();
        }
    }
    let plan = diff(&desired, &actual).expect("nothing is in the way");
    assert!(plan.steps.is_empty());
    assert_eq!(
        plan.warnings,
        ["NodePool default is paused and stays paused: see `tenon unfreeze`"]
    );
}

#[test]
fn helm_s_own_revision_is_followed_by_one_of_ours_and_the_oldest_go() {
    let desired = desired("");
    let mut actual = complete(&desired);
    let ours = actual.releases[0].clone();
    actual.releases = (1..=12)
        .map(|number| Revision {
            secret: helm::secret_name(number),
            number,
            status: if number == 12 { "deployed" } else { "superseded" }.to_owned(),
            hash: None,
            ..ours.clone()
        })
        .collect();
    let plan = diff(&desired, &actual).expect("nothing is in the way");
    let [step] = plan.steps.as_slice() else { panic!("one step: {:?}", ids(&plan)) };
    let Action::WriteRelease { revision, deployed, old, .. } = &step.action else {
        panic!("{:?}", step.action)
    };
    assert_eq!(*revision, 13);
    assert_eq!(*deployed, [helm::secret_name(12)]);
    assert_eq!(*old, [1, 2, 3].map(helm::secret_name));
}

#[test]
fn each_way_of_identity_and_authorization_leads_to_every_other() {
    let ways = [
        "",
        "identity:\n  mode: irsa\n",
        "deploy:\n  host: fargate\n",
        "nodes:\n  authorization: aws-auth\n",
        "nodes:\n  instanceProfile: static\n",
        "deploy:\n  helmRecord: false\n",
        "interruption:\n  enabled: false\n",
    ];
    for from in ways {
        for to in ways {
            let (from, to) = (desired(from), desired(to));
            let plan = diff(&to, &complete(&from)).expect("nothing is in the way");
            assert!(is_runnable(&plan), "{:#?}", plan.steps);
        }
    }
}

#[test]
fn a_saved_plan_is_applied_as_it_is_or_not_at_all() {
    let settings = settings("");
    let desired = Desired::new(&settings, &facts()).expect("fit");
    let plan = diff(&desired, &untouched()).expect("nothing is in the way");
    let now = jiff::Timestamp::UNIX_EPOCH;
    let target = serde_json::json!({});
    let made = saved::SavedPlan::new(&plan, target, &settings.config, Path::new("/"), now);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("plan.json");
    made.write(&file).expect("written");
    let read = saved::SavedPlan::read(&file).expect("read");
    assert_eq!(read, made);
    read.check(&plan).expect("the same plan");
    let mut moved = untouched();
    let role = complete(&desired).roles.remove(&desired.node_role.name).expect("a role");
    moved.roles.insert(desired.node_role.name.clone(), role);
    let other = diff(&desired, &moved).expect("nothing is in the way");
    let Err(Moved { changes }) = read.check(&other) else { panic!("the account has changed") };
    // What waited for that step is listed as well.
    assert_eq!(changes[0], format!("no longer needed: IAM role {}", desired.node_role.arn));
}

#[test]
fn a_role_of_somebody_else_is_used_and_not_touched() {
    let mut facts = facts();
    facts.node_role_arn = Some("arn:aws:iam::111122223333:role/their-nodes".to_owned());
    let text = "identity:\n  controllerRoleArn: arn:aws:iam::111122223333:role/their-controller\nnodes:\n  roleName: their-nodes\n";
    let desired = Desired::new(&settings(text), &facts).expect("fit");
    let mut actual = untouched();
    let plan = diff(&desired, &actual).expect("nothing is in the way");
    assert!(!ids(&plan).iter().any(|id| id.ends_with("-role")));
    assert!(ids(&plan).contains(&"access-entry"));
    actual.access_entry = Some(AccessEntryState {
        arn: "arn:entry".into(),
        kind: "EC2_LINUX".into(),
        tags: Tags::new(),
    });
    let plan = diff(&desired, &actual).expect("their entry for their role is used");
    assert!(!ids(&plan).contains(&"access-entry"));
}

#[test]
fn nodes_that_may_run_windows_are_authorized_for_kube_proxy() {
    let linux = desired("");
    let windows = desired("nodes:\n  windows: true\n");
    assert_eq!(windows.access_entry().map(|entry| entry.kind), Some("EC2_WINDOWS"));
    let plan = diff(&windows, &complete(&linux)).expect("nothing is in the way");
    let entry = plan.steps.iter().find(|step| step.id == "access-entry").expect("a step");
    let Action::CreateAccessEntry { entry, replace } = &entry.action else { panic!("{entry:?}") };
    assert!(*replace, "EKS can't change the type of an entry");
    assert_eq!(entry.kind, "EC2_WINDOWS");
    let mapped = |extra: &str| {
        let desired = desired(&format!("nodes:\n  authorization: aws-auth\n{extra}"));
        desired.aws_auth().map(|mapping| mapping.groups.clone()).unwrap_or_default()
    };
    let nodes = ["system:bootstrappers", "system:nodes"];
    assert_eq!(mapped(""), nodes);
    assert_eq!(mapped("  windows: true\n"), [nodes[0], nodes[1], "eks:kube-proxy-windows"]);
}

#[test]
fn an_unfit_cluster_is_refused_with_every_reason() {
    let mut facts = facts();
    facts.cluster.status = "CREATING".to_owned();
    facts.cluster.authentication_mode = "CONFIG_MAP".to_owned();
    facts.cluster.subnet_ids.clear();
    facts.cluster.security_group = None;
    let mut settings = settings("nodes:\n  authorization: access-entry\n");
    settings.account_id = Some("999988887777".to_owned());
    insta::assert_snapshot!(Desired::new(&settings, &facts).expect_err("unfit").join("\n"));
}

/// Any subset of what we make, as a kill between any two steps would leave it.
fn partial(desired: &Desired, there: &[bool]) -> Actual {
    let full = complete(desired);
    let mut actual = untouched();
    let mut there = there.iter().copied().cycle();
    let mut is_there = || there.next().unwrap_or(false);
    actual.roles = full.roles.into_iter().filter(|_| is_there()).collect();
    actual.rules = full.rules.into_iter().filter(|_| is_there()).collect();
    actual.objects = full.objects.into_iter().filter(|_| is_there()).collect();
    actual.queue = full.queue.filter(|_| is_there());
    actual.association = full.association.filter(|_| is_there());
    actual.access_entry = full.access_entry.filter(|_| is_there());
    actual.provider = full.provider.filter(|_| is_there());
    actual.aws_auth = full.aws_auth.filter(|_| is_there());
    actual.profile = full.profile.filter(|_| is_there());
    actual.fargate = full.fargate.filter(|_| is_there());
    actual.releases = full.releases.into_iter().filter(|_| is_there()).collect();
    for id in full.marked {
        if is_there() {
            actual.network.insert(id.clone(), desired.discovery_tags.clone());
            actual.marked.insert(id);
        }
    }
    actual
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_partial_installation_is_completed_and_nothing_is_done_twice(there in proptest::collection::vec(any::<bool>(), 50)) {
        let desired = desired("");
        let actual = partial(&desired, &there);
        let plan = diff(&desired, &actual).expect("nothing is in the way");
        prop_assert!(is_runnable(&plan));
        let full = diff(&desired, &untouched()).expect("nothing is in the way");
        let all = ids(&full).into_iter().collect::<BTreeSet<_>>();
        let steps = ids(&plan);
        prop_assert_eq!(steps.iter().collect::<BTreeSet<_>>().len(), steps.len());
        for step in &plan.steps {
            prop_assert!(all.contains(step.id.as_str()));
        }
        for object in desired.objects() {
            if actual.objects.contains_key(&object.key()) && object.resource.kind != "Deployment" {
                let id = step_id(object);
                prop_assert!(!steps.contains(&id.as_str()), "{} is there already", id);
            }
        }
    }
}

#[test]
fn what_earlier_settings_asked_for_goes_once_the_new_pods_are_there_and_crds_stay() {
    let desired = desired("");
    let mut actual = complete(&desired);
    let object = |kind: &str, api: &str, plural: &str, namespace: Option<&str>| {
        let metadata = serde_json::json!({"name": "old", "namespace": namespace});
        let body = serde_json::json!({"apiVersion": api, "kind": kind, "metadata": metadata});
        Object::from_json(body, plural)
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    actual.labelled = desired.operator.iter().chain(&desired.crds).cloned().collect();
    actual.labelled.extend(desired.canary());
    actual.labelled.push(object("ClusterRole", rbac, "clusterroles", None));
    actual.labelled.push(object("Deployment", "apps/v1", "deployments", Some("kube-system")));
    let crd = "apiextensions.k8s.io/v1";
    actual.labelled.push(object(
        "CustomResourceDefinition",
        crd,
        "customresourcedefinitions",
        None,
    ));
    let plan = diff(&desired, &actual).expect("nothing is in the way");
    assert_eq!(ids(&plan), ["old/ClusterRole/old", "old/Deployment/kube-system/old"]);
    actual.labelled.push(object("ServiceAccount", "v1", "serviceaccounts", Some("other")));
    let conflicts = diff(&desired, &actual).expect_err("its association would be left");
    assert!(conflicts[0].contains("tenon uninstall"), "{conflicts:?}");
}
