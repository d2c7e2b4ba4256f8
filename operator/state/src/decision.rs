//! Decisions of the operator as it serves them and `tenon` reads them: the JSON of the decision
//! ledger (`docs/src/design/ledger.md`).
//!
//! Readers accept what they do not know: another version of the operator may have it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Path of the endpoint, and the non-resource URL that callers need `get` on.
pub const PATH: &str = "/decisions";

/// Port of the endpoint on the loopback address of the operator's pod, unless another is set.
pub const PORT: u16 = 8085;

/// The variable of the operator's container that sets another port.
pub const PORT_VARIABLE: &str = "DECISIONS_PORT";

/// Audience of tokens that are good for nothing but reading decisions.
pub const AUDIENCE: &str = "tenon-decisions";

/// The version of the format. Raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// The most decisions in one answer.
pub const MOST: usize = 1000;

/// The longest that a request may wait for a change, in seconds.
pub const LONGEST_WAIT: u64 = 55;

/// What is answered to a question for decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decisions {
    /// [`VERSION`].
    pub version: u32,
    /// Identity of the replica that answers. Numbers start again with another one.
    pub leader: String,
    /// When it began to lead, and its ledger.
    pub since: Option<Timestamp>,
    /// What to ask for next: every change up to this one is in this answer or an earlier one.
    pub revision: u64,
    /// The number of decisions that gave way to newer ones.
    pub dropped: u64,
    /// Others follow after `revision`.
    pub more: bool,
    /// Without `after` in the order of `seq`, else of `revision`.
    pub decisions: Vec<Decision>,
}

/// A decision and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Decision {
    /// Numbers decisions, from 1.
    pub seq: u64,
    /// Numbers changes of all decisions: the last one of this decision.
    pub revision: u64,
    /// When it was made.
    pub time: Timestamp,
    /// What it is about.
    pub kind: Kind,
    /// What is done.
    pub action: Action,
    /// Why.
    pub reason: String,
    /// What was not done instead, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<String>,
    /// The NodePools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_pools: Vec<String>,
    /// The NodeClaims that are launched or go.
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub node_claims: Names,
    /// Their Nodes.
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub nodes: Names,
    /// NodeClaims that replace them.
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub replacements: Names,
    /// Pods that are launched for or have to move, as `namespace/name`.
    #[serde(skip_serializing_if = "Names::is_empty")]
    pub pods: Names,
    /// The price, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// How often it was made: more than once only for refusals and launches that fail.
    pub count: u64,
    /// What became of it.
    pub result: Outcome,
}

/// What a decision is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Capacity for pods, or for `spec.replicas`.
    Launch,
    /// Nodes that are empty or cost too much.
    Consolidation,
    /// A node that differs from its NodePool or NodeClass.
    Drift,
    /// A node whose time is over.
    Expiration,
    /// AWS takes an instance back, stops it or announces that.
    Interruption,
    /// An unhealthy node.
    Repair,
    /// Surplus nodes of static NodePools, NodeClaims without an instance.
    Cleanup,
    /// A node that must not be disrupted.
    Refusal,
    /// One that this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl Kind {
    /// All that this version knows.
    pub const ALL: [Self; 8] = [
        Self::Launch,
        Self::Consolidation,
        Self::Drift,
        Self::Expiration,
        Self::Interruption,
        Self::Repair,
        Self::Cleanup,
        Self::Refusal,
    ];

    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Consolidation => "consolidation",
            Self::Drift => "drift",
            Self::Expiration => "expiration",
            Self::Interruption => "interruption",
            Self::Repair => "repair",
            Self::Cleanup => "cleanup",
            Self::Refusal => "refusal",
            Self::Other => "other",
        }
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// A NodeClaim is created.
    Launch,
    /// NodeClaims are deleted.
    Delete,
    /// NodeClaims are deleted when others that replace them are initialized.
    Replace,
    /// NodeClaims are deleted to make room for what replaces them.
    TerminateFirst,
    /// An instance is rebooted.
    Reboot,
    /// Nothing yet: it is announced.
    Notice,
    /// Nothing: the node stays.
    Stay,
    /// One that this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

/// Names of objects: how many there are, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Names {
    /// How many.
    pub count: usize,
    /// The first of them.
    pub names: Vec<String>,
}

impl Names {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Prices in USD per hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// Of the nodes that go.
    pub before: f64,
    /// Of what is launched: its cheapest offering.
    pub after: f64,
}

/// What became of a decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Outcome {
    /// How far it is.
    pub state: State,
    /// Since when.
    pub at: Timestamp,
    /// Seconds from the decision until then.
    pub seconds: f64,
    /// What there is to say about it, such as what was launched or why it failed.
    pub message: String,
}

/// How far a decision is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It is being carried out.
    #[default]
    Pending,
    /// The instance exists; its node has not joined.
    Launched,
    /// The node is initialized; or what was to go is gone.
    Done,
    /// It could not be carried out.
    Failed,
    /// It was rolled back, or no longer valid.
    Abandoned,
    /// There was nothing to carry out.
    Refused,
    /// One that this version does not know.
    #[serde(other)]
    Other,
}

impl State {
    /// Whether nothing more will become of it.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Launched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_accepts_what_another_version_says() {
        let read: Decisions = serde_json::from_str(
            r#"{"version": 2, "new": 1, "decisions": [{"seq": 1, "kind": "migration", "action": "launch", "result": {"state": "thought"}}]}"#,
        )
        .unwrap();
        let decision = &read.decisions[0];
        assert_eq!((decision.kind, decision.action), (Kind::Other, Action::Launch));
        assert_eq!(decision.result.state, State::Other);
    }

    #[test]
    fn kinds_are_written_as_they_are_filtered_by() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
