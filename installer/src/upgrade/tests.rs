//! Plans in stages: what both versions need is there as long as both run, and a crash at any step
//! is no matter.

use tenon_iam_policies::cover::gaps;
use tenon_iam_policies::{Document, Statement};
use tenon_installer_core::apply::is_runnable;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::ownership::SPEC_HASH;
use tenon_installer_core::plan::{Plan, diff, text};
use tenon_installer_core::testing::{carry_out, complete, desired, ids, perform};

use super::*;

const SECONDS: u64 = 60;
const POLICY: &str = "KarpenterControllerResourceDiscoveryPolicy";

fn newer() -> Desired {
    desired("deploy:\n  version: 0.1.1\n")
}

/// The version before: it needed something that the new one does not, and lacked something that it
/// does; and it had a rule.
fn before() -> (Desired, Actual) {
    let mut old = desired("");
    let role = old.controller_role.spec.as_mut().expect("ours");
    let document = role.inline.get_mut(POLICY).expect("it is one of the six");
    document.statements.remove(0);
    document.statements.push(Statement::allow("AllowOldReads", ["ec2:DescribeVpcs"]));
    let mut actual = complete(&old);
    let rule = actual.rules.values().next().cloned().expect("a rule");
    actual.rules.insert("tenon-prod-old".to_owned(), rule);
    // The same in the cluster: a rule that is gone from a role, and a role that is gone.
    let role = cluster_role(&old);
    let live = actual.objects.get_mut(&role.key()).expect("it is there");
    live["rules"].as_array_mut().expect("rules").push(old_rule());
    live["metadata"]["annotations"][SPEC_HASH] = "before".into();
    let mut gone = role.clone();
    gone.name = "old".to_owned();
    gone.body["metadata"]["name"] = "old".into();
    actual.objects.insert(gone.key(), gone.body.clone());
    actual.labelled = vec![role.clone(), gone];
    (old, actual)
}

fn cluster_role(desired: &Desired) -> &Object {
    desired.operator.iter().find(|it| it.resource.kind == "ClusterRole").expect("there is one")
}

fn old_rule() -> serde_json::Value {
    serde_json::json!({"apiGroups": ["old.example.com"], "resources": ["things"], "verbs": ["get"]})
}

/// Whether the live role grants all these rules.
fn grants(actual: &Actual, role: &Object, rules: &[serde_json::Value]) -> bool {
    let live = actual.objects.get(&role.key()).and_then(|live| live["rules"].as_array());
    live.is_some_and(|live| rules.iter().all(|rule| live.contains(rule)))
}

fn plan(to: &Desired, actual: &Actual) -> Plan {
    let plan = diff(to, actual).expect("nothing is in the way");
    let plan = staged(plan, to, actual, SECONDS).expect("small roles");
    assert!(is_runnable(&plan), "{:?}", ids(&plan));
    plan
}

fn granted(actual: &Actual, desired: &Desired) -> Vec<Document> {
    let role = &actual.roles[&desired.controller_role.name];
    stages::documents(role).into_values().collect()
}

fn image(object: &Object, actual: &Actual) -> String {
    let live = actual.objects.get(&object.key());
    let image =
        live.and_then(|live| live.pointer("/spec/template/spec/containers/0/image")?.as_str());
    image.unwrap_or_default().to_owned()
}

/// Whether nothing that the version needs is denied.
fn suffices(actual: &Actual, desired: &Desired) -> bool {
    let granted = granted(actual, desired);
    let needed = desired.controller_role.spec.iter().flat_map(|role| role.inline.values());
    needed.into_iter().all(|document| gaps(&granted, document).is_empty())
}

#[test]
fn an_upgrade_has_stages() {
    let (_, actual) = before();
    let mut to = newer();
    to.rule_names.push("tenon-prod-old".to_owned());
    insta::assert_snapshot!(text::plan_text(&plan(&to, &actual)));
}

#[test]
fn the_same_version_needs_no_stages() {
    let to = desired("");
    assert_eq!(plan(&to, &complete(&to)), Plan::default());
    // Another number of pods is no other version.
    let more = desired("deploy:\n  replicas: 3\n");
    let plan = plan(&more, &complete(&to));
    assert_eq!(
        ids(&plan),
        ["Deployment/kube-system/karpenter", "rollout", "helm-release"],
        "no canary"
    );
}

#[test]
fn killed_after_any_step_both_versions_may_do_what_they_need_and_it_ends_the_same() {
    let (old, start) = before();
    let to = newer();
    let whole = {
        let mut actual = start.clone();
        carry_out(&plan(&to, &actual), &to, &mut actual);
        actual
    };
    assert_eq!(image(to.deployment().expect("one"), &whole), "tenon-operator:0.1.1");
    let all = plan(&to, &start).steps.len();
    for killed_after in 0..all {
        let mut actual = start.clone();
        // As it goes on: each run ends after this many steps at most.
        let mut runs = 0;
        loop {
            let plan = plan(&to, &actual);
            if plan.steps.is_empty() {
                break;
            }
            for step in plan.steps.iter().take(killed_after + 1) {
                perform(&step.action, &to, &mut actual);
                let rolled = step.id == "rollout"
                    || image(to.deployment().expect("one"), &actual).ends_with("0.1.1");
                let role = cluster_role(&to);
                let old_role = actual.objects.keys().any(|key| key.name == "old");
                assert!(
                    rolled || old_role && grants(&actual, role, &[old_rule()]),
                    "after {} the old version lacks a rule",
                    step.id
                );
                assert!(
                    rolled || suffices(&actual, &old),
                    "after {} the old version lacks something",
                    step.id
                );
                let tried = actual.objects.contains_key(&to.canary().expect("one").key());
                assert!(
                    !tried && !rolled || suffices(&actual, &to),
                    "after {} the new version lacks something",
                    step.id
                );
            }
            runs += 1;
            assert!(runs < 40, "it never ends: {:?}", ids(&plan));
        }
        // Releases are counted by number: each run that comes so far writes one only.
        assert_eq!(actual, whole, "killed after {killed_after} steps");
        assert!(!suffices(&actual, &old), "what only the old version needed is gone");
        assert!(!grants(&actual, cluster_role(&to), &[old_rule()]));
        assert!(!actual.objects.keys().any(|key| key.name == "old"));
    }
}

#[test]
fn a_canary_that_was_left_is_seen_and_removed_by_any_command() {
    let desired = desired("");
    let mut actual = complete(&desired);
    let canary = desired.canary().expect("there is a Deployment");
    actual.objects.insert(canary.key(), canary.body.clone());
    assert_eq!(ids(&diff(&desired, &actual).expect("ours")), ["canary-goes"]);
    actual.objects.get_mut(&canary.key()).expect("there")["metadata"]["labels"] =
        serde_json::json!({});
    assert_eq!(ids(&diff(&desired, &actual).expect("left alone")), [""; 0]);
}

#[test]
fn a_role_that_can_t_hold_both_is_refused() {
    let (_, mut actual) = before();
    let to = newer();
    let role = actual.roles.get_mut(&to.controller_role.name).expect("ours");
    let actions = (0..300).map(|n| format!("ec2:DescribeSomething{n}")).collect::<Vec<_>>();
    let large = Document::new([Statement::allow("Large", actions.iter().map(String::as_str))]);
    role.inline.insert("Old".to_owned(), large.to_json());
    let plan = diff(&to, &actual).expect("nothing is in the way");
    let reasons = staged(plan, &to, &actual, SECONDS).expect_err("too large");
    assert!(reasons[0].contains("both versions"), "{reasons:?}");
}
