//! How often the conditions of objects change, how long they last, and how long objects take to go, under the names of Karpenter's status controllers.

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tenon_crds::Condition;

use super::{Buckets, Families};

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
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::NodeClaim, Self::NodePool, Self::Node, Self::CapacityBuffer];

    /// As part of the names of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeClaim => "nodeclaim",
            Self::NodePool => "nodepool",
            Self::Node => "node",
            Self::CapacityBuffer => "capacitybuffer",
        }
    }
}

/// A condition as metrics tell it.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Its type.
    pub type_: &'a str,
    /// Its status.
    pub status: &'a str,
    /// Its reason.
    pub reason: &'a str,
    /// Since when it has its status.
    pub since: Option<Timestamp>,
}

impl<'a> From<&'a Condition> for Told<'a> {
    fn from(condition: &'a Condition) -> Self {
        Told {
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
    durations: Family<Labels, Histogram, Buckets>,
    transitions: Family<Labels, Counter>,
    ends: Family<Labels, Histogram, Buckets>,
}

impl Transitions {
    pub(super) fn new(registry: &Mutex<Families>) -> Self {
        let histograms = || Family::new_with_constructor(Buckets(BUCKETS));
        let kinds = Kind::ALL.map(|kind| {
            let (durations, transitions, ends) = (histograms(), Family::default(), histograms());
            let (mut registry, name) = (registry.lock(), kind.as_str());
            registry.register(
                &format!("operator_{name}_status_condition_transition_seconds"),
                "",
                "For how long a condition had a status that it has no longer",
                durations.clone(),
            );
            registry.register(
                &format!("operator_{name}_status_condition_transitions"),
                "_total",
                "How often a condition came to have a status",
                transitions.clone(),
            );
            // Nothing holds up the end of a CapacityBuffer.
            if kind != Kind::CapacityBuffer {
                registry.register(
                    &format!("operator_{name}_termination_duration_seconds"),
                    "",
                    "From the deletion of an object until it is gone",
                    ends.clone(),
                );
            }
            OfKind { durations, transitions, ends }
        });
        Self { kinds }
    }

    /// Takes in how the conditions of an object have changed, which belongs where `placed` says.
    pub fn changed(&self, kind: Kind, placed: &Labels, before: &[Told<'_>], after: &[Told<'_>]) {
        let OfKind { durations, transitions, .. } = &self.kinds[kind as usize];
        for now in after {
            let was = before.iter().find(|was| was.type_ == now.type_);
            if was.is_some_and(|was| was.status == now.status) {
                continue;
            }
            let labels = [("type", now.type_), ("status", now.status), ("reason", now.reason)];
            transitions.get_or_create(&labelled(&labels, placed)).inc();
            let Some((was, (from, to))) =
                was.and_then(|was| Some((was, was.since.zip(now.since)?)))
            else {
                continue;
            };
            let labels = [("type", was.type_), ("status", was.status)];
            let seconds = to.duration_since(from).as_secs_f64().max(0.0);
            durations.get_or_create(&labelled(&labels, placed)).observe(seconds);
        }
    }

    /// An object is gone, so long after its deletion.
    pub fn ended(&self, kind: Kind, placed: &Labels, seconds: f64) {
        self.kinds[kind as usize].ends.get_or_create(placed).observe(seconds);
    }
}

fn labelled(own: &[(&str, &str)], placed: &Labels) -> Labels {
    let own = own.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    own.chain(placed.iter().cloned()).collect()
}
