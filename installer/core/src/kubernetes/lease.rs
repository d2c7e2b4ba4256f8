//! Which Lease an operator's replicas hold in turn, and whether one of its pods holds it now.

use std::fmt;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde_json::Value;

/// The Lease that Karpenter and Tenon hold unless they are told another one.
pub const NAME: &str = "karpenter-leader-election";
/// The variable that names another one.
pub const NAME_VARIABLE: &str = "LEADER_ELECTION_NAME";
/// The variable that names the namespace of the Lease, where it is not the operator's own.
pub const NAMESPACE_VARIABLE: &str = "LEADER_ELECTION_NAMESPACE";
/// The variable that makes an operator work without any Lease.
pub const DISABLED_VARIABLE: &str = "DISABLE_LEADER_ELECTION";

/// Where a Lease is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Namespace in Kubernetes.
    pub namespace: String,
    /// Name in the namespace.
    pub name: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Place {
    /// The Lease of an operator in this namespace that is told no other.
    pub fn usual(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: NAME.to_owned() }
    }

    /// The Lease of a Deployment of Tenon's. Its container's variables are literal where they name
    /// another one than usual.
    pub fn of(deployment: &Value) -> Self {
        let own = deployment.pointer("/metadata/namespace").and_then(Value::as_str);
        let usual = Self::usual(own.unwrap_or_default());
        Self {
            namespace: variable(deployment, NAMESPACE_VARIABLE).unwrap_or(usual.namespace),
            name: variable(deployment, NAME_VARIABLE).unwrap_or(usual.name),
        }
    }
}

/// The literal value of a variable of a Deployment's containers, unless it is empty.
pub fn variable(deployment: &Value, name: &str) -> Option<String> {
    let containers = deployment.pointer("/spec/template/spec/containers")?.as_array()?;
    let mut entries = containers.iter().flat_map(|one| one["env"].as_array().into_iter().flatten());
    let entry = entries.find(|entry| entry["name"] == name)?;
    entry["value"].as_str().filter(|value| !value.is_empty()).map(str::to_owned)
}

/// A holder as it was seen, and when it had last renewed the Lease then: whoever renews it again
/// lives.
#[derive(Debug, Clone, PartialEq)]
pub struct Sighting {
    holder: String,
    renewed: Value,
}

/// What is missing until one of these pods provably leads, or who does.
///
/// The name in the Lease proves nothing: it stays there when its holder dies. So the holder has to
/// be one of the pods, ready, and must have renewed the Lease since `before`, which needs no clock.
///
/// # Errors
/// Why it can't be said yet.
pub fn leader(
    lease: Option<&Lease>,
    pods: &[Pod],
    before: &mut Option<Sighting>,
) -> Result<String, String> {
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    if holder.is_empty() {
        *before = None;
        return Err("it has no holder".to_owned());
    }
    let Some(pod) = pods.iter().find(|pod| holds(&holder, pod)) else {
        *before = None;
        return Err(format!("its holder {holder} is not one of the operator's pods"));
    };
    if pod.metadata.deletion_timestamp.is_some() || !is_ready(pod) {
        *before = None;
        return Err(format!("its holder {holder} is not ready"));
    }
    let renewed = serde_json::to_value(spec.and_then(|spec| spec.renew_time.as_ref()));
    let seen = Sighting { holder: holder.clone(), renewed: renewed.unwrap_or_default() };
    let first = before.get_or_insert_with(|| seen.clone());
    if first.holder != seen.holder {
        *first = seen;
    } else if first.renewed != seen.renewed {
        return Ok(holder);
    }
    Err(format!("its holder {holder} has not renewed it yet"))
}

/// Whether a holder's identity is that of a pod: `<host name>_<unique>`, and the host's name is the
/// pod's, or the node's where the pod uses its network.
pub fn holds(holder: &str, pod: &Pod) -> bool {
    let host = holder.split('_').next().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let by_name = pod.metadata.name.as_deref() == Some(host);
    let on_host = spec.is_some_and(|spec| spec.host_network == Some(true));
    let node = spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    // A node's name is its host's, with or without the domain.
    let is_node = !host.is_empty()
        && (node == host
            || node.split('.').next() == Some(host)
            || host.split('.').next() == Some(node));
    by_name || (on_host && is_node)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(holder: &str, second: u8) -> Lease {
        let renewed = format!("2026-01-01T00:00:{second:02}.000000Z");
        let lease = json!({"spec": {"holderIdentity": holder, "renewTime": renewed}});
        serde_json::from_value(lease).expect("a Lease")
    }

    fn pod(name: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"containers": [], "nodeName": "ip-10-0-0-1.ec2.internal"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .expect("a pod")
    }

    #[test]
    fn the_lease_is_the_one_that_the_deployment_names() {
        let env = |env: Value| {
            Place::of(&json!({
                "metadata": {"namespace": "karpenter"},
                "spec": {"template": {"spec": {"containers": [{"env": env}]}}},
            }))
            .to_string()
        };
        assert_eq!(env(json!([])), "karpenter/karpenter-leader-election");
        let other = json!([
            {"name": "LEADER_ELECTION_NAME", "value": "other"},
            {"name": "LEADER_ELECTION_NAMESPACE", "value": ""},
        ]);
        assert_eq!(env(other), "karpenter/other");
        let elsewhere = json!([{"name": "LEADER_ELECTION_NAMESPACE", "value": "leases"}]);
        assert_eq!(env(elsewhere), "leases/karpenter-leader-election");
    }

    #[test]
    fn only_a_ready_pod_that_renews_the_lease_leads() {
        let pods = [pod("tenon-6d5f7c9b8-x2x9z", "True"), pod("tenon-6d5f7c9b8-aaaaa", "False")];
        let mut seen = None;
        let mut look = |lease: Option<Lease>| leader(lease.as_ref(), &pods, &mut seen);
        assert_eq!(look(None), Err("it has no holder".to_owned()));
        // A pod that died in the moment of the hand-over: the name is right, and nobody is there.
        let dead = look(Some(lease("tenon-6d5f7c9b8-ddddd_1", 1))).expect_err("it is dead");
        assert!(dead.contains("not one of the operator"), "{dead}");
        let other = look(Some(lease("karpenter-6d5f7c9b8-x2x9z_1", 1))).expect_err("another one");
        assert!(other.contains("not one of the operator"), "{other}");
        let sick = look(Some(lease("tenon-6d5f7c9b8-aaaaa_1", 1))).expect_err("it is not ready");
        assert!(sick.contains("not ready"), "{sick}");
        let holder = "tenon-6d5f7c9b8-x2x9z_1";
        let silent = look(Some(lease(holder, 2))).expect_err("it may be dead");
        assert!(silent.contains("not renewed"), "{silent}");
        assert!(look(Some(lease(holder, 2))).is_err());
        // The process was started anew: it has to prove itself as well.
        assert!(look(Some(lease("tenon-6d5f7c9b8-x2x9z_2", 3))).is_err());
        let renewed = look(Some(lease("tenon-6d5f7c9b8-x2x9z_2", 5)));
        assert_eq!(renewed.as_deref(), Ok("tenon-6d5f7c9b8-x2x9z_2"));
    }

    #[test]
    fn on_the_nodes_network_the_node_s_name_is_the_holder_s() {
        let mut pod = pod("tenon-6d5f7c9b8-x2x9z", "True");
        assert!(!holds("ip-10-0-0-1.ec2.internal_1", &pod));
        pod.spec.as_mut().expect("a spec").host_network = Some(true);
        assert!(holds("ip-10-0-0-1.ec2.internal_1", &pod));
        assert!(holds("ip-10-0-0-1_1", &pod));
        assert!(!holds("ip-10-0-0-2.ec2.internal_1", &pod));
        assert!(!holds("", &pod));
    }
}
