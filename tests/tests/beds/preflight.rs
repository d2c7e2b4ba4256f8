//! The checks against a real API server and the AWS double: nothing is wrong on a healthy bed, and each fault that is made is found and named.

use std::sync::Arc;

use http::Method;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tenon_tests::bed::{Bed, BedConfig, Finished};
use tenon_tests::installed::Installed;

/// A command about the bed's cluster, with its result as JSON.
async fn tenon(bed: &Bed, args: &[&str]) -> (Finished, Value) {
    let mut all = args.to_vec();
    let (cluster, region) = (bed.cluster().to_owned(), bed.region().to_owned());
    all.extend(["--cluster", &cluster, "--region", &region, "-o", "json"]);
    let finished = bed.run_tenon(&all).await.expect("tenon runs");
    let result = serde_json::from_str(&finished.stdout).unwrap_or_default();
    (finished, result)
}

/// How a check came out, and the details.
fn outcome(report: &Value, id: &str) -> (String, String) {
    let groups = report["categories"].as_array().expect("a report");
    let mut lines = groups.iter().flat_map(|group| group["checks"].as_array().expect("checks"));
    let line = lines.find(|line| line["id"] == id).unwrap_or_else(|| panic!("no check {id}"));
    let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    (text("outcome"), text("detail"))
}

/// Checks that failed and are fatal.
fn fatal(report: &Value) -> Vec<String> {
    let groups = report["categories"].as_array().expect("a report");
    let lines = groups.iter().flat_map(|group| group["checks"].as_array().expect("checks"));
    lines
        .filter(|line| line["severity"] == "fatal" && line["outcome"] == "fail")
        .map(|line| format!("{} {}", line["id"], line["detail"]))
        .collect()
}

async fn apply(bed: &Bed, plural: &str, body: &Value) {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, text("/kind"));
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(bed.client(), &resource),
        namespace => Api::namespaced_with(bed.client(), namespace, &resource),
    };
    let params = PatchParams::apply("user").force();
    api.patch(text("/metadata/name"), &params, &Patch::Apply(body)).await.expect("applied");
}

fn cluster_autoscaler() -> Value {
    let labels = json!({"app": "cluster-autoscaler"});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cluster-autoscaler", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{
                    "name": "main",
                    "image": "autoscaling/cluster-autoscaler:v1.34.0",
                }]},
            },
        },
    })
}

/// A webhook that nobody answers. It selects no namespace, so that it is in nobody's way here.
fn webhook() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gone"},
        "webhooks": [{
            "name": "gone.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"no-namespace": "has-this"}},
            "clientConfig": {"service": {"namespace": "default", "name": "gone"}},
            "rules": [{
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }],
        }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_bed_passes_and_every_fault_is_named_with_its_cause() {
    let bed = Arc::new(Bed::start(BedConfig::default()).await.expect("the bed starts"));

    let (finished, report) = tenon(&bed, &["preflight"]).await;
    assert_eq!(finished.code, 0, "{:?}\n{}", fatal(&report), finished.stderr);
    assert!(report["counts"]["passed"].as_u64() > Some(40), "{}", report["counts"]);

    Installed::ensure(&bed, &json!({})).await.expect("installed");
    let (finished, report) = tenon(&bed, &["doctor"]).await;
    assert_eq!(finished.code, 0, "{:?}\n{}", fatal(&report), finished.stderr);
    for id in ["OP-01", "OP-03", "NC-01", "IA-08", "IA-11", "QS-03"] {
        assert_eq!(outcome(&report, id).0, "pass", "{id}: {}", outcome(&report, id).1);
    }
    let (finished, verdict) = tenon(&bed, &["iam", "verify"]).await;
    assert_eq!(finished.code, 0, "{verdict:#}\n{}", finished.stderr);
    assert!(verdict["verdict"]["simulated"].as_u64() > Some(40), "{verdict:#}");

    // Things that happen to clusters.
    apply(&bed, "deployments", &cluster_autoscaler()).await;
    apply(&bed, "validatingwebhookconfigurations", &webhook()).await;
    let aws = bed.aws().expect("AWS").caller();
    let role = format!("tenon-{}-controller", bed.cluster());
    let policy = "KarpenterControllerNodeLifecyclePolicy";
    let named = [("RoleName", role.as_str()), ("PolicyName", policy)];
    aws.query("iam", "DeleteRolePolicy", &named).await.expect("deleted");
    let entries = format!("/clusters/{}/access-entries", bed.cluster());
    let found = aws.rest("eks", Method::GET, &entries, &Value::Null).await.expect("entries");
    let found = found["accessEntries"].as_array().cloned().unwrap_or_default();
    let node_role = found.iter().filter_map(Value::as_str).find(|arn| arn.ends_with("-node"));
    let arn = node_role.expect("the node role's entry").replace(':', "%3A").replace('/', "%2F");
    let entry = format!("{entries}/{arn}");
    aws.rest("eks", Method::DELETE, &entry, &Value::Null).await.expect("deleted");

    let (finished, report) = tenon(&bed, &["doctor"]).await;
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    let faults = [
        ("EX-03", "default/cluster-autoscaler runs"),
        ("CL-14", "gone.example.com"),
        ("IA-11", "ec2:CreateFleet"),
        ("IA-08", "no access entry"),
    ];
    for (id, part) in faults {
        let (outcome, detail) = outcome(&report, id);
        assert_eq!(outcome, "fail", "{id}: {detail}");
        assert!(detail.contains(part), "{id}: {detail}");
    }
    let (finished, verdict) = tenon(&bed, &["iam", "verify", "--no-simulation"]).await;
    assert_eq!(finished.code, 5, "{}", finished.stderr);
    let missing = verdict["verdict"]["missing"].as_array().expect("a list");
    assert!(missing.iter().any(|one| one.as_str().is_some_and(|one| {
        one.contains("AllowScopedDeletion") && one.contains("ec2:TerminateInstances")
    })));

    // What can be left out can be left out, and the rest still counts.
    let (finished, _) = tenon(&bed, &["doctor", "--skip", "IA-11,IA-08"]).await;
    assert_eq!(finished.code, 0, "{}", finished.stderr);

    // The command that the checks name repairs it.
    let (finished, _) = tenon(&bed, &["install", "--yes"]).await;
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let (finished, report) = tenon(&bed, &["doctor"]).await;
    assert_eq!(finished.code, 0, "{:?}\n{}", fatal(&report), finished.stderr);

    let bed = Arc::into_inner(bed).expect("nobody else uses the bed");
    bed.stop().await.expect("the bed stops");
}
