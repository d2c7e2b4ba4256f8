//! Gauges of the conditions of NodeClaims, NodePools, Nodes, CapacityBuffers and NodeClasses, and
//! of how long their end takes, under the names of Karpenter's status controllers.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use kube::core::ObjectMeta;
use tenon_crds::{Condition, NodeClaim, labels};

use super::PAGE;
use crate::clock::Clock;
use crate::metrics::exposition::{Exposed, Exposition, Gone, LabelText, Number, Type};
use crate::metrics::transitions::{ConditionState, Kind};
use crate::state::State;
use crate::state::cluster::Cluster;
use tenon_state::wire::Node;

/// The ends of the names of a kind's gauges: that of its conditions, that of their ages, and that
/// of its end.
const ENDINGS: [&str; 3] = [
    "status_condition_count",
    "status_condition_current_status_seconds",
    "termination_current_time_seconds",
];

const HELP: [&str; 3] = [
    "Conditions of an object",
    "Time since a condition has had its status",
    "Time since the deletion of an object",
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

impl Exposed for Conditions {
    fn expose(&self, out: &mut Exposition<'_>) -> Result<(), Gone> {
        let now = self.clock.now();
        let (claims, pools, nodes, buffers) = {
            let state = self.state.read();
            let claims: Vec<Arc<NodeClaim>> = state.claims().cloned().collect();
            let pools: Vec<_> = state.pools().cloned().collect();
            let nodes: Vec<Arc<Node>> = state.nodes().cloned().collect();
            let buffers: Vec<_> = state.buffers().map(|(_, buffer)| Arc::clone(buffer)).collect();
            (claims, pools, nodes, buffers)
        };
        let walk = |page: &mut dyn FnMut(&Cluster)| page(&self.state.read());
        of_kind(Kind::NodeClaim, &claims, walk, out, |_, claim, writing| {
            writing.place(&claim.metadata, claim);
            let conditions = claim.status.iter().flat_map(|status| &status.conditions);
            writing.object(&claim.metadata, conditions.map(ConditionState::from), now);
        })?;
        of_kind(Kind::NodePool, &pools, walk, out, |_, pool, writing| {
            let conditions = pool.status.iter().flat_map(|status| &status.conditions);
            writing.object(&pool.metadata, conditions.map(ConditionState::from), now);
        })?;
        of_kind(Kind::Node, &nodes, walk, out, |state, node, writing| {
            let Some(claim) = state.claim_of(node) else { return };
            writing.place(&node.metadata, claim);
            let initialized = node.label(labels::INITIALIZED).unwrap_or_default();
            writing.further.push((label_name(labels::INITIALIZED), initialized.to_owned()));
            writing.object(&node.metadata, of_node(node), now);
        })?;
        of_kind(Kind::CapacityBuffer, &buffers, walk, out, |_, buffer, writing| {
            let conditions = buffer.status.iter().flat_map(|status| &status.conditions);
            writing.object(&buffer.metadata, conditions.map(ConditionState::from), now);
        })
    }
}

/// Writes the gauges of NodeClasses, which the state does not have. `conditions` are those of one.
pub(crate) fn of_classes<K: Resource<DynamicType = ()>>(
    kind: Kind,
    classes: &[Arc<K>],
    conditions: impl Fn(&K) -> &[Condition],
    now: Timestamp,
    out: &mut Exposition<'_>,
) -> Result<(), Gone> {
    let walk = |page: &mut dyn FnMut(&())| page(&());
    of_kind(kind, classes, walk, out, |(), class, writing| {
        writing.object(class.meta(), conditions(class).iter().map(ConditionState::from), now);
    })
}

/// Writes the gauges of a kind, page by page: `walk` hands each page what has to be locked for it,
/// `write` writes an object's samples.
fn of_kind<S, K>(
    kind: Kind,
    objects: &[Arc<K>],
    walk: impl Fn(&mut dyn FnMut(&S)),
    out: &mut Exposition<'_>,
    write: impl Fn(&S, &K, &mut Writing<'_, '_>),
) -> Result<(), Gone> {
    for gauge in Gauge::ALL {
        let (ending, help) = (ENDINGS[gauge as usize], HELP[gauge as usize]);
        let name = format!("operator_{}_{ending}", kind.as_str());
        let mut labels = LabelText::default();
        let mut begun = false;
        for page in objects.chunks(PAGE) {
            walk(&mut |state| {
                for object in page {
                    let (name, begun, labels) = (name.as_str(), &mut begun, &mut labels);
                    let further = Vec::new();
                    let out = &mut *out;
                    let mut writing = Writing { gauge, name, help, begun, further, labels, out };
                    write(state, object, &mut writing);
                }
            });
            out.rest()?;
        }
    }
    Ok(())
}

/// The gauges of a kind, in the order of [`ENDINGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gauge {
    Count,
    Age,
    End,
}

impl Gauge {
    const ALL: [Self; 3] = [Self::Count, Self::Age, Self::End];
}

/// A gauge of a kind that is being written, with the labels of the object whose turn it is.
struct Writing<'a, 'sink> {
    gauge: Gauge,
    name: &'a str,
    help: &'static str,
    begun: &'a mut bool,
    further: Vec<(String, String)>,
    labels: &'a mut LabelText,
    out: &'a mut Exposition<'sink>,
}

impl Writing<'_, '_> {
    /// Where a NodeClaim or its Node belongs: its NodePool, and its NodeClass by the label of the
    /// NodeClass' kind.
    fn place(&mut self, metadata: &ObjectMeta, claim: &NodeClaim) {
        for key in [labels::NODEPOOL, &claim.spec.node_class_ref.label_key()] {
            let value = metadata.labels.as_ref().and_then(|labels| labels.get(key));
            self.further.push((label_name(key), value.cloned().unwrap_or_default()));
        }
    }

    fn object<'a>(
        &mut self,
        metadata: &ObjectMeta,
        conditions: impl Iterator<Item = ConditionState<'a>>,
        now: Timestamp,
    ) {
        let age = |since: Timestamp| now.duration_since(since).as_secs_f64().max(0.0);
        self.labels.clear();
        self.labels.push("name", metadata.name.as_deref().unwrap_or_default());
        self.labels.push("namespace", metadata.namespace.as_deref().unwrap_or_default());
        for (name, value) in &self.further {
            self.labels.push(name, value);
        }
        if self.gauge == Gauge::End {
            if let Some(deleted) = &metadata.deletion_timestamp {
                self.add(age(deleted.0));
            }
            return;
        }
        let own = self.labels.len();
        for ConditionState { type_, status, reason, since } in conditions {
            let value = match self.gauge {
                Gauge::Count => Some(1.0),
                _ => since.map(age),
            };
            let Some(value) = value else { continue };
            for (name, value) in [("type", type_), ("status", status), ("reason", reason)] {
                self.labels.push(name, value);
            }
            self.add(value);
            self.labels.truncate(own);
        }
    }

    fn add(&mut self, value: f64) {
        if !std::mem::replace(self.begun, true) {
            self.out.family(self.name, Type::Gauge, self.help);
        }
        self.out.sample(self.name, "", self.labels, Number::Real(value));
    }
}

/// The conditions of a Node.
pub(super) fn of_node(node: &Node) -> impl Iterator<Item = ConditionState<'_>> {
    node.status.conditions.iter().map(|condition| ConditionState {
        type_: &condition.type_,
        status: &condition.status,
        reason: condition.reason.as_deref().unwrap_or_default(),
        since: condition.last_transition_time,
    })
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
        metrics.expose(Arc::new(Conditions::new(state, clock)));
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
