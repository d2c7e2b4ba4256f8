//! The canary of an upgrade: one pod of the new version beside those of the old one.

use serde_json::{Value, json};

use super::object::Object;

const INSTANCE: &str = "app.kubernetes.io/instance";

/// The variables with the ports of the operator, and their defaults.
const PORTS: [(&str, u64); 5] = [
    ("METRICS_PORT", 8080),
    ("HEALTH_PROBE_PORT", 8081),
    ("DEBUG_PORT", 8082),
    ("DECISIONS_PORT", 8085),
    ("DASHBOARD_PORT", 8086),
];

/// How far the canary's ports are from those of the other pods on the network of a node.
const BESIDE: u64 = 1000;

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
        if pod.get("hostNetwork") == Some(&Value::Bool(true)) {
            let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
            containers.into_iter().flatten().for_each(use_other_ports);
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

/// The operator's own are taken, on each node where a pod of it is.
fn use_other_ports(container: &mut Value) {
    let env = container["env"].as_array_mut();
    let Some(env) = env.filter(|env| env.iter().any(|one| one["name"] == PORTS[0].0)) else {
        return;
    };
    for (name, default) in PORTS {
        let own = env.iter().position(|one| one["name"] == name);
        let port = own.and_then(|at| env[at]["value"].as_str()?.parse().ok()).unwrap_or(default);
        // 0 turns a server off.
        let port = if port == 0 { 0 } else { port + BESIDE };
        let variable = json!({"name": name, "value": port.to_string()});
        match own {
            Some(at) => env[at] = variable,
            None => env.push(variable),
        }
    }
    for port in container["ports"].as_array_mut().into_iter().flatten() {
        for field in ["containerPort", "hostPort"] {
            if let Some(number) = port[field].as_u64() {
                port[field] = (number + BESIDE).into();
            }
        }
    }
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

    #[test]
    fn on_the_network_of_a_node_it_has_other_ports() {
        let release = Release {
            name: "tenon".to_owned(),
            namespace: "kube-system".to_owned(),
            managed_by: "Helm".to_owned(),
        };
        let values = json!({"hostNetwork": true, "controller": {"decisions": {"port": 0}}});
        let values = Values::merged(&values).expect("values");
        let canary = of(objects(&values, &release).last().expect("the Deployment is last"));
        let container = &canary.body["spec"]["template"]["spec"]["containers"][0];
        let ports = container["ports"].as_array().expect("ports");
        let numbers = ports.iter().map(|port| port["containerPort"].as_u64());
        assert_eq!(numbers.collect::<Vec<_>>(), [Some(9080), Some(9081)]);
        let env = container["env"].as_array().expect("variables");
        for (name, port) in
            [("METRICS_PORT", "9080"), ("DECISIONS_PORT", "0"), ("DEBUG_PORT", "9082")]
        {
            let of_name = env.iter().filter(|one| one["name"] == name);
            assert_eq!(of_name.map(|one| &one["value"]).collect::<Vec<_>>(), [port], "{name}");
        }
    }
}
