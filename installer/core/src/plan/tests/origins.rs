//! Why a field changes: the settings ask for something else than before, or another program changed
//! what was applied.

use serde_json::{Value, json};

use super::*;
use crate::kubernetes::object::Key;
use crate::ownership::SPEC_HASH;

fn deployment(desired: &Desired) -> Key {
    desired.deployment().expect("a Deployment").key()
}

/// The record of who wrote which fields of a Deployment.
fn managed(replicas_by: &str) -> Value {
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let rest = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"controller\"}": {".": {}, "f:name": {}, "f:image": {}},
    }}}}});
    json!([
        {"manager": replicas_by, "operation": "Update", "fieldsV1": replicas},
        {"manager": "helm", "operation": "Apply", "fieldsV1": rest},
    ])
}

/// What becomes of the Deployment: path, before, after, and why.
fn changes_of_deployment(desired: &Desired, actual: &Actual) -> Vec<String> {
    let plan = diff(desired, actual).expect("nothing is in the way");
    let step = plan.steps.iter().find(|step| step.kind == "Deployment").expect("it changes");
    let json = json!(step)["changes"].clone();
    let line = |change: &Value| {
        let of = |key: &str| change[key].to_string().replace('"', "");
        let by = change.get("by").map(|by| format!(" by {by}")).unwrap_or_default();
        format!("{}: {} → {} {}{by}", of("path"), of("before"), of("after"), of("origin"))
    };
    json.as_array().expect("a list").iter().map(line).collect()
}

#[test]
fn what_another_manager_wrote_is_distinguished_from_what_new_settings_ask_for() {
    let (before, after) = (desired(""), desired("deploy:\n  version: 9.9.9\n"));
    let mut actual = complete(&before);
    let live = actual.objects.get_mut(&deployment(&before)).expect("a Deployment");
    live["spec"]["replicas"] = 5.into();
    live["metadata"]["managedFields"] = managed("kubectl");
    let found = changes_of_deployment(&after, &actual);
    let image = "spec.template.spec.containers[name=controller].image";
    assert_eq!(found[0], r#"spec.replicas: 5 → 2 outside by ["kubectl"]"#);
    assert!(found[1].starts_with(image) && found[1].ends_with("settings"), "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");
    // Without the record, the settings are all that is known to have changed.
    actual.objects.get_mut(&deployment(&before)).expect("one")["metadata"]["managedFields"] =
        Value::Null;
    assert!(!changes_of_deployment(&after, &actual).iter().any(|line| line.contains("outside")));
}

#[test]
fn what_another_manager_adds_to_a_list_is_no_difference() {
    let desired = desired("");
    let mut actual = complete(&desired);
    let key = deployment(&desired);
    let live = actual.objects.get_mut(&key).expect("a Deployment");
    let containers = live.pointer_mut("/spec/template/spec/containers").expect("containers");
    let containers = containers.as_array_mut().expect("a list");
    containers.push(json!({"name": "proxy", "image": "x"}));
    let id = |name: &str| format!("k:{{\"name\":\"{name}\"}}");
    let theirs = json!({id("proxy"): {".": {}, "f:name": {}, "f:image": {}}});
    let ours = json!({id("controller"): {".": {}, "f:name": {}, "f:image": {}}});
    let of = |containers: &Value| json!({"f:spec": {"f:template": {"f:spec": {"f:containers": containers}}}});
    live["metadata"]["managedFields"] = json!([
        {"manager": "tenon", "operation": "Apply", "fieldsV1": of(&ours)},
        {"manager": "mesh", "operation": "Update", "fieldsV1": of(&theirs)},
    ]);
    assert_eq!(diff(&desired, &actual).expect("nothing is in the way").steps, []);
    // It is one where it changes what is ours.
    let live = actual.objects.get_mut(&key).expect("a Deployment");
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "another".into();
    let found = changes_of_deployment(&desired, &actual);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("containers[name=controller].image"), "{found:?}");
}

#[test]
fn with_the_settings_that_were_applied_everything_that_differs_is_from_outside() {
    let desired = desired("");
    let mut actual = complete(&desired);
    let live = actual.objects.get_mut(&deployment(&desired)).expect("a Deployment");
    live["spec"]["replicas"] = 5.into();
    assert_eq!(changes_of_deployment(&desired, &actual), ["spec.replicas: 5 → 2 outside"]);
    let plan = diff(&desired, &actual).expect("nothing is in the way");
    assert_eq!(
        plan.outside().as_deref(),
        Some(
            "1 change made outside tenon is overwritten: Deployment kube-system/karpenter \
             (spec.replicas)"
        )
    );
}

#[test]
fn fields_of_helm_are_ours_unless_helm_wrote_the_last_revision() {
    let (before, after) = (desired(""), desired("deploy:\n  replicas: 3\n"));
    let mut actual = complete(&before);
    let live = actual.objects.get_mut(&deployment(&before)).expect("a Deployment");
    live["metadata"]["managedFields"] = managed("helm");
    assert_eq!(changes_of_deployment(&after, &actual), ["spec.replicas: 2 → 3 settings"]);
    actual.releases[0].hash = None;
    let by_helm = changes_of_deployment(&after, &actual);
    assert_eq!(by_helm, [r#"spec.replicas: 2 → 3 outside by ["helm"]"#]);
}

#[test]
fn after_an_interrupted_run_only_kubernetes_knows_what_others_changed() {
    let desired = desired("");
    let mut actual = complete(&desired);
    for role in actual.roles.values_mut() {
        role.inline.clear();
    }
    let live = actual.objects.get_mut(&deployment(&desired)).expect("a Deployment");
    live["spec"]["replicas"] = 5.into();
    let mut plan = diff(&desired, &actual).expect("nothing is in the way");
    let of = |plan: &Plan, kind: &str| {
        let steps = plan.steps.iter().filter(|step| step.kind == kind);
        steps.map(|step| step.outside().len()).sum::<usize>()
    };
    assert!(of(&plan, "IAM role") > 10);
    plan.blame_interruption();
    assert_eq!((of(&plan, "IAM role"), of(&plan, "Deployment")), (0, 1));
}

#[test]
fn a_role_that_was_applied_with_other_settings_changes_because_of_the_new_ones() {
    let (before, after) = (desired("tags:\n  team: a\n"), desired("tags:\n  team: b\n"));
    let plan = diff(&after, &complete(&before)).expect("nothing is in the way");
    assert_eq!(plan.outside(), None);
    let role = plan.steps.iter().find(|step| step.id == "node-role").expect("it changes");
    let changes = json!(role)["changes"].clone();
    let tag = json!({"path": "tags.team", "before": "a", "after": "b", "origin": "settings"});
    assert_eq!(changes, json!([tag]), "the checksum is not listed");
}

#[test]
fn of_a_crd_the_fields_that_it_gains_and_loses_are_listed() {
    let desired = desired("");
    let mut actual = complete(&desired);
    let crd = desired.crds.iter().find(|crd| crd.name == "nodepools.karpenter.sh").expect("it is");
    let live = actual.objects.get_mut(&crd.key()).expect("it is there");
    live["metadata"]["annotations"][SPEC_HASH] = "another".into();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = live.pointer_mut(spec).and_then(Value::as_object_mut).expect("a schema");
    fields.remove("weight");
    fields.insert("ballast".to_owned(), json!({"type": "string", "description": "gone"}));
    let plan = diff(&desired, &actual).expect("nothing is in the way");
    let lines = text::plan_text(&plan);
    assert!(lines.contains("+ spec.versions[name=v1].schema.spec.weight: integer\n"), "{lines}");
    assert!(lines.contains("- spec.versions[name=v1].schema.spec.ballast: string\n"), "{lines}");
    assert!(!lines.contains("outside"), "{lines}");
}

#[test]
fn a_step_that_only_renews_a_checksum_says_so() {
    let desired = desired("");
    let mut actual = complete(&desired);
    let live = actual.objects.get_mut(&deployment(&desired)).expect("a Deployment");
    live["metadata"]["annotations"][SPEC_HASH] = "another".into();
    let plan = diff(&desired, &actual).expect("nothing is in the way");
    assert_eq!(plan.steps[0].reasons, ["only the checksum that tenon keeps there"]);
    assert_eq!(plan.steps[0].changes, []);
}
