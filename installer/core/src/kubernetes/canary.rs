//! The canary of an upgrade: one pod of the new version beside those of the old one.

use serde_json::{Value, json};

use super::object::Object;

const INSTANCE: &str = "app.kubernetes.io/instance";

/// The canary of the operator's Deployment: the same pod once, under another instance label, so
/// that neither the Service nor the disruption budget nor the anti-affinity of the other pods know
/// it. The same service account and Lease, so it can take over.
pub fn of(deployment: &Object) -> Object {
    let name = format!("{}-canary", deployment.name);
    let instance = format!("{}-canary", instance(&deployment.body).unwrap_or("tenon"));
    let mut template = deployment.body["spec"]["template"].clone();
    template["metadata"]["labels"][INSTANCE] = instance.as_str().into();
    if let Some(pod) = template["spec"].as_object_mut() {
        // Made for several pods; with one they could only keep it from being scheduled.
        pod.remove("topologySpreadConstraints");
        if let Some(affinity) = pod.get_mut("affinity").and_then(Value::as_object_mut) {
            affinity.remove("podAntiAffinity");
        }
    }
    let app = template["metadata"]["labels"]["app.kubernetes.io/name"].clone();
    let body = json!({
        "apiVersion": deployment.resource.api_version,
        "kind": deployment.resource.kind,
        "metadata": {
            "name": name,
            "namespace": deployment.namespace,
            // Not Helm's, which would take it for a part of the release.
            "labels": {
                "app.kubernetes.io/name": app,
                INSTANCE: instance,
                "app.kubernetes.io/managed-by": "tenon",
            },
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": app, INSTANCE: instance}},
            "template": template,
        },
    });
    Object { name, body, ..deployment.clone() }
}

fn instance(deployment: &Value) -> Option<&str> {
    deployment["spec"]["template"]["metadata"]["labels"][INSTANCE].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::operator::objects;
    use crate::kubernetes::release::Release;
    use crate::settings::values::Values;

    #[test]
    fn it_is_the_same_pod_and_none_that_others_select() {
        let release = Release {
            name: "tenon".to_owned(),
            namespace: "kube-system".to_owned(),
            managed_by: "Helm".to_owned(),
        };
        let all = objects(&Values::default(), &release);
        let deployment = all.last().expect("the Deployment is last");
        let canary = of(deployment);
        assert_eq!(canary.key().to_string(), "Deployment kube-system/karpenter-canary");
        let pod = |object: &Object| object.body["spec"]["template"]["spec"].clone();
        for same in ["containers", "serviceAccountName", "tolerations"] {
            assert_eq!(pod(&canary)[same], pod(deployment)[same], "{same}");
        }
        assert!(pod(&canary)["affinity"]["nodeAffinity"].is_object());
        let labels = &canary.body["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels, &canary.body["spec"]["selector"]["matchLabels"]);
        let service = all.iter().find(|object| object.resource.kind == "Service");
        let selector = &service.expect("a Service").body["spec"]["selector"];
        assert_ne!(selector[INSTANCE], labels[INSTANCE]);
        assert_eq!(selector["app.kubernetes.io/name"], labels["app.kubernetes.io/name"]);
    }
}
