//! Gauges of the conditions of NodeClaims, NodePools, Nodes and CapacityBuffers, and of how long their end takes, under the names of Karpenter's status
//! controllers.

use jiff::Timestamp;
use kube::core::ObjectMeta;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tenon_crds::{NodeClaim, labels};

use super::{Sample, gauge, pair};
use crate::clock::Clock;
use crate::metrics::transitions::{Kind, Told};
use crate::state::State;
use crate::state::cluster::Cluster;
use crate::watch::wire::Node;

/// The ends of the names of a kind's gauges: that of its conditions, that of their ages, and that of its end.
const ENDINGS: [&str; 3] = [
    "status_condition_count",
    "status_condition_current_status_seconds",
    "termination_current_time_seconds",
];

const HELP: [&str; 3] = [
    "The conditions that an object has",
    "For how long a condition has had its status",
    "For how long an object has been going",
];

/// The names of the gauges, by kind.
pub fn names() -> impl Iterator<Item = [String; 3]> {
    let of_kind = |kind: Kind| ENDINGS.map(|ending| format!("operator_{}_{ending}", kind.as_str()));
    Kind::ALL.into_iter().map(of_kind)
}

/// Computes the gauges.
#[derive(Debug)]
pub struct Conditions {
    state: State,
    clock: Clock,
}

impl Conditions {
    /// Of this state.
    pub fn new(state: State, clock: Clock) -> Self {
        Self { state, clock }
    }
}

impl Collector for Conditions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let kinds = samples(&self.state.read(), self.clock.now());
        for (samples, names) in kinds.iter().zip(names()) {
            for ((name, help), samples) in names.iter().zip(HELP).zip(&samples.0) {
                gauge(&mut encoder, name, help, samples)?;
            }
        }
        Ok(())
    }
}

/// The samples of a kind's gauges.
#[derive(Default)]
struct Samples([Vec<Sample>; 3]);

/// Samples by kind, in the order of [`Kind::ALL`].
fn samples(state: &Cluster, now: Timestamp) -> [Samples; Kind::ALL.len()] {
    let mut kinds: [Samples; Kind::ALL.len()] = std::array::from_fn(|_| Samples::default());
    let [claims, pools, nodes, buffers] = &mut kinds;
    for claim in state.claims() {
        let conditions = claim.status.iter().flat_map(|status| &status.conditions);
        let placed = placed(&claim.metadata, claim);
        claims.add(&claim.metadata, placed, conditions.map(Told::from), now);
    }
    for pool in state.pools() {
        let conditions = pool.status.iter().flat_map(|status| &status.conditions);
        pools.add(&pool.metadata, Vec::new(), conditions.map(Told::from), now);
    }
    for node in state.nodes() {
        let Some(claim) = state.claim_of(node) else { continue };
        let mut placed = placed(&node.metadata, claim);
        let initialized = node.label(labels::INITIALIZED).unwrap_or_default();
        placed.push(pair(&label_name(labels::INITIALIZED), initialized));
        nodes.add(&node.metadata, placed, of_node(node), now);
    }
    for (_, buffer) in state.buffers() {
        let conditions = buffer.status.iter().flat_map(|status| &status.conditions);
        buffers.add(&buffer.metadata, Vec::new(), conditions.map(Told::from), now);
    }
    kinds
}

/// The conditions of a Node.
pub(super) fn of_node(node: &Node) -> impl Iterator<Item = Told<'_>> {
    node.status.conditions.iter().map(|condition| Told {
        type_: &condition.type_,
        status: &condition.status,
        reason: condition.reason.as_deref().unwrap_or_default(),
        since: condition.last_transition_time,
    })
}

impl Samples {
    fn add<'a>(
        &mut self,
        metadata: &ObjectMeta,
        further: Vec<(String, String)>,
        conditions: impl Iterator<Item = Told<'a>>,
        now: Timestamp,
    ) {
        let age = |since: Timestamp| now.duration_since(since).as_secs_f64().max(0.0);
        let mut object = vec![
            pair("name", metadata.name.as_deref().unwrap_or_default()),
            pair("namespace", metadata.namespace.as_deref().unwrap_or_default()),
        ];
        object.extend(further);
        let [counts, ages, ends] = &mut self.0;
        for Told { type_, status, reason, since } in conditions {
            let mut labels = object.clone();
            labels.extend([pair("type", type_), pair("status", status), pair("reason", reason)]);
            if let Some(since) = since {
                ages.push((labels.clone(), age(since)));
            }
            counts.push((labels, 1.0));
        }
        if let Some(deleted) = &metadata.deletion_timestamp {
            ends.push((object, age(deleted.0)));
        }
    }
}

/// Where a NodeClaim or its Node belongs: its NodePool, and its NodeClass by the label of the NodeClass' kind.
fn placed(metadata: &ObjectMeta, claim: &NodeClaim) -> Vec<(String, String)> {
    let of = |key: &str| {
        let value = metadata.labels.as_ref().and_then(|labels| labels.get(key));
        pair(&label_name(key), value.map(String::as_str).unwrap_or_default())
    };
    vec![of(labels::NODEPOOL), of(&claim.spec.node_class_ref.label_key())]
}

/// `karpenter.sh/nodepool` as Prometheus allows it: `karpenter_sh_nodepool`.
pub(super) fn label_name(key: &str) -> String {
    key.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenon_crds::labels::LabelRules;
    use tenon_state::node_class;

    use super::*;
    use crate::metrics::Metrics;
    use crate::state::change::{Change, Object};

    #[tokio::test(start_paused = true)]
    async fn conditions_and_the_end_of_a_nodeclaim_can_be_watched() {
        let mut cluster = Cluster::new(&[node_class::KWOK], LabelRules::core());
        let claim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": "a", "uid": "1", "deletionTimestamp": "2026-11-20T00:30:00Z",
                "labels": {"karpenter.sh/nodepool": "default", "karpenter.kwok.sh/kwoknodeclass": "small",
                    "example.com/of-nodeclass": "no NodeClass"},
            },
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "small"},
                "requirements": [],
            },
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready",
                "message": "", "lastTransitionTime": "2026-11-20T00:00:00Z"}]},
        }));
        cluster.apply(Change::Applied(Object::NodeClaim(Box::new(claim.unwrap()))));
        let (state, _task) = State::new(cluster);
        let metrics = Metrics::new();
        let clock = Clock::anchored("2026-11-20T01:00:00Z".parse().unwrap());
        metrics.collector(Box::new(Conditions::new(state, clock)));
        let text = metrics.encode().unwrap();
        let object = r#"name="a",namespace="",karpenter_sh_nodepool="default",karpenter_kwok_sh_kwoknodeclass="small""#;
        let condition = r#"type="Ready",status="True",reason="Ready""#;
        for line in [
            format!("operator_nodeclaim_status_condition_count{{{object},{condition}}} 1.0"),
            format!(
                "operator_nodeclaim_status_condition_current_status_seconds{{{object},{condition}}} 3600.0"
            ),
            format!("operator_nodeclaim_termination_current_time_seconds{{{object}}} 1800.0"),
        ] {
            assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
        }
    }
}
