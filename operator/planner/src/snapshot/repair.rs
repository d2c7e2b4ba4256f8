//! Health of machines, and the repair policies of their provider.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Conditions and reboots of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    /// Conditions of the Node. Only those matter that have type and status of a policy in
    /// [`super::Snapshot::repair_policies`]; others may be left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// `metadata.creationTimestamp` of the Node. No condition is taken to be older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<Timestamp>,
    /// `karpenter.sh/do-not-repair: "true"` on the Node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub do_not_repair: bool,
    /// Reboots of the machine that the operator remembers.
    #[serde(skip_serializing_if = "Reboots::is_none")]
    pub reboots: Reboots,
}

impl Health {
    pub(super) fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// A condition of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// `type`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `status`: `True`, `False` or `Unknown`.
    pub status: String,
    /// `reason`; empty when there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// `lastTransitionTime`.
    pub since: Timestamp,
}

/// A condition that makes a machine unhealthy, how long it is tolerated, and the remedy. The
/// policies of a provider are one set; [`crate::repair::validate`] checks its invariants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairPolicy {
    /// `type` of the Node's condition.
    pub condition: String,
    /// `status` of the condition that makes a machine unhealthy: `True`, `False` or `Unknown`.
    pub status: String,
    /// A regular expression that some part of the condition's reason has to match. `None` in the
    /// one policy that applies to every condition of which the set has type and status, when no
    /// other policy matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time from the condition's last transition to the repair.
    pub toleration: SignedDuration,
    /// How long draining may take at most; 0 does not wait for pods, `None` leaves it to the
    /// NodeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<SignedDuration>,
    /// 0 to 100; the highest is the most urgent.
    pub priority: i32,
    /// The remedy.
    pub action: RepairAction,
}

/// Remedies for an unhealthy machine, in the order of the disruption that they cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RepairAction {
    /// Reboot the instance; the Node and its NodeClaim stay.
    RebootNode,
    /// Launch a replacement, then delete the machine.
    ReplaceNode,
}

/// Reboots of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reboots {
    /// The NodeClaim's condition Rebooting is True: the machine will be back, counts against
    /// budgets, and is left alone.
    pub in_progress: bool,
    /// When the last one ended: since when Rebooting is False. Tolerations start again at this
    /// time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When reboots of this NodeClaim were decided on, as far as the operator remembers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decided_at: Vec<Timestamp>,
}

impl Reboots {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
