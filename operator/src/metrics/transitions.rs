//! How often the conditions of objects change, how long they last, and how long objects take to go,
//! under the names of Karpenter's status controllers.

use std::sync::Arc;

use jiff::Timestamp;
use tenon_crds::Condition;

use super::Registry;
use super::family::{Counter, Family, Histogram};

/// .5·2^k seconds.
const BUCKETS: &[f64] = &[
    0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0,
];

/// Names and values of labels; where an object belongs has names that depend on the provider.
pub type Labels = Vec<(String, String)>;

/// The kinds of objects with conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub enum Kind {
    NodeClaim,
    NodePool,
    Node,
    CapacityBuffer,
    EC2NodeClass,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::NodeClaim, Self::NodePool, Self::Node, Self::CapacityBuffer, Self::EC2NodeClass];

    /// As part of the names of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeClaim => "nodeclaim",
            Self::NodePool => "nodepool",
            Self::Node => "node",
            Self::CapacityBuffer => "capacitybuffer",
            Self::EC2NodeClass => "ec2nodeclass",
        }
    }
}

/// A condition as metrics tell it.
#[derive(Clone, Copy, Debug)]
pub struct ConditionState<'a> {
    /// `type` of the condition.
    pub type_: &'a str,
    /// `status` of the condition.
    pub status: &'a str,
    /// `reason` of the condition.
    pub reason: &'a str,
    /// Since when it has its status.
    pub since: Option<Timestamp>,
}

impl<'a> From<&'a Condition> for ConditionState<'a> {
    fn from(condition: &'a Condition) -> Self {
        ConditionState {
            type_: &condition.type_,
            status: condition.status.as_str(),
            reason: &condition.reason,
            since: Some(condition.last_transition_time.0),
        }
    }
}

/// Metrics of what happens to the conditions of objects. Clones share them.
#[derive(Clone, Debug)]
pub struct Transitions {
    kinds: [OfKind; Kind::ALL.len()],
}

#[derive(Clone, Debug)]
struct OfKind {
    durations: Arc<Family<Labels, Histogram>>,
    transitions: Arc<Family<Labels, Counter>>,
    /// Nothing holds up the end of a CapacityBuffer.
    ends: Option<Arc<Family<Labels, Histogram>>>,
}

impl Transitions {
    pub(super) fn new(registry: &Registry) -> Self {
        let kinds = Kind::ALL.map(|kind| {
            let name = kind.as_str();
            let histograms = |what: &str, help| {
                let name = format!("operator_{name}_{what}");
                registry.family(&name, help, &[], Histogram::new, BUCKETS)
            };
            let transitions = format!("operator_{name}_status_condition_transitions_total");
            OfKind {
                durations: histograms(
                    "status_condition_transition_seconds",
                    "Time for which a condition had its previous status",
                ),
                transitions: registry.family(
                    &transitions,
                    "Number of changes of a condition to a status",
                    &[],
                    |_| Counter::default(),
                    &[],
                ),
                ends: (kind != Kind::CapacityBuffer).then(|| {
                    histograms(
                        "termination_duration_seconds",
                        "Time from the deletion of an object until it is gone",
                    )
                }),
            }
        });
        Self { kinds }
    }

    /// Takes in how the conditions of an object have changed, which belongs where `placed` says.
    pub fn changed(
        &self,
        kind: Kind,
        placed: &Labels,
        before: &[ConditionState<'_>],
        after: &[ConditionState<'_>],
    ) {
        let OfKind { durations, transitions, .. } = &self.kinds[kind as usize];
        for now in after {
            let was = before.iter().find(|was| was.type_ == now.type_);
            if was.is_some_and(|was| was.status == now.status) {
                continue;
            }
            let labels = [("type", now.type_), ("status", now.status), ("reason", now.reason)];
            transitions.update(labelled(&labels, placed), |count| count.0 += 1);
            let Some((was, (from, to))) =
                was.and_then(|was| Some((was, was.since.zip(now.since)?)))
            else {
                continue;
            };
            let labels = [("type", was.type_), ("status", was.status)];
            let seconds = to.duration_since(from).as_secs_f64().max(0.0);
            durations.update(labelled(&labels, placed), |histogram| histogram.observe(seconds));
        }
    }

    /// An object is gone, so long after its deletion.
    pub fn ended(&self, kind: Kind, placed: &Labels, seconds: f64) {
        if let Some(ends) = &self.kinds[kind as usize].ends {
            ends.update(placed.clone(), |histogram| histogram.observe(seconds));
        }
    }
}

fn labelled(own: &[(&str, &str)], placed: &Labels) -> Labels {
    let own = own.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    own.chain(placed.iter().cloned()).collect()
}
