//! What an administrator chose about planning, apart from the objects in the cluster.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::plan::Method;
use crate::resources::MicroUsd;
use crate::snapshot::Snapshot;

/// Options of the planner. Defaults are Karpenter's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent options, as administrators have them"
)]
#[serde(remote = "Self", rename_all = "camelCase", default)]
pub struct Policy {
    /// `--min-values-policy`: what to do when `minValues` can't be met.
    pub min_values: MinValuesPolicy,
    /// `--preference-policy`: whether preferences count.
    pub preferences: PreferencePolicy,
    /// Feature gate SpotToSpotConsolidation.
    pub spot_to_spot: bool,
    /// Feature gate TerminateFirstDrift: a drifted node whose replacement only finds room once it has gone, goes first.
    pub terminate_first_drift: bool,
    /// Feature gate TerminateFirstRepair: the same for sick nodes.
    pub terminate_first_repair: bool,
    /// How many instance types a launch carries at most: the cheapest ones that hold its pods. Providers try no more than this at once; what is not
    /// available is left out of the next plan.
    pub max_instance_types: usize,
    /// What a further machine is taken to cost per hour beyond its price, when the planner weighs few large machines against many small ones.
    pub node_price: MicroUsd,
    /// The largest share of the cluster's pods that one machine to come is planned for, in per cent, so that no single machine takes too much with it when
    /// it fails. Daemons' pods don't count; one pod is always planned for. Machines that exist keep what they have and are filled up as ever. 100 sets no
    /// limit, as in Karpenter; 0 and more than 100 are no shares ([`Policy::validate`]).
    pub largest_share: u8,
    /// What consolidation has to save per hour for each pod that it evicts, so that nothing is moved for next to nothing. In units of an ordinary pod: one
    /// with a `pod-deletion-cost` or a priority counts for more or less. 0 takes every saving, as Karpenter does.
    pub eviction_price: MicroUsd,
    /// What share of their NodePools' nodes is few, in per cent, so that a scale-in does not end in ever smaller waves: where room is short, so that of the
    /// nodes that consolidation would take only few can go, they stay unless there is room for pods like theirs that need twice as much as few nodes have. 0 takes
    /// every node that can go, as Karpenter does; at most 100. Nothing is held back in a cluster so small that one node is more than that share,
    /// where all nodes go that could, or of nodes with a quarter of their CPU and memory left.
    pub few_nodes: u8,
    /// Whether kube-scheduler is told which node each pod was planned for, so that pods go where the plan has them. Where it is not, provisioning
    /// launches machines that hold the pods however kube-scheduler deals them out, as far as that is cheaper than to launch more for those left over.
    #[serde(skip_serializing_if = "is_true")]
    pub nominations: bool,
    /// Where a disruption pass that was cut short stopped ([`crate::plan::Report::resume`]): the next one begins there, so that every node has its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
}

/// A place in a disruption pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// The method that had more nodes to look at.
    pub method: Method,
    /// [`crate::snapshot::Node::key`] of the first of them. It need not exist any more.
    pub node: String,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            min_values: MinValuesPolicy::Strict,
            preferences: PreferencePolicy::Respect,
            spot_to_spot: false,
            terminate_first_drift: false,
            terminate_first_repair: false,
            max_instance_types: 60,
            // A tenth of the cheapest machine on sale: breaks ties towards fewer machines and never outweighs a real difference in price.
            node_price: MicroUsd(500),
            largest_share: 100,
            // Seven cents a month: an eviction costs some seconds of a restart.
            eviction_price: MicroUsd(100),
            // One of 50 nodes, two of 100.
            few_nodes: 2,
            nominations: true,
            resume: None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_true(value: &bool) -> bool {
    *value
}

/// What is wrong with a [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// No share of anything.
    #[error(
        "largestShare is {0}: use 1 to 100, per cent of the cluster's pods (100 sets no limit)"
    )]
    LargestShare(u8),
    /// More than all nodes.
    #[error("fewNodes is {0}: use 0 to 100, per cent of the nodes (0 holds nothing back)")]
    FewNodes(u8),
    /// Launches would have no types.
    #[error(
        "maxInstanceTypes is 0: a launch needs at least one type, Karpenter's AWS provider takes 60"
    )]
    NoInstanceTypes,
    /// What is a cost would be a gain.
    #[error("{field} is negative: use 0 or more dollars per hour")]
    Negative {
        /// `nodePrice` or `evictionPrice`.
        field: &'static str,
    },
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, to)
    }
}

/// Only what makes sense as a whole is read ([`Policy::validate`]).
impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let policy = Self::deserialize(from)?;
        policy.validate().map_err(serde::de::Error::custom)?;
        Ok(policy)
    }
}

impl Policy {
    /// Whether all values make sense; the error is the first that does not.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if !(1..=100).contains(&self.largest_share) {
            return Err(PolicyError::LargestShare(self.largest_share));
        }
        if self.few_nodes > 100 {
            return Err(PolicyError::FewNodes(self.few_nodes));
        }
        if self.max_instance_types == 0 {
            return Err(PolicyError::NoInstanceTypes);
        }
        for (field, price) in
            [("nodePrice", self.node_price), ("evictionPrice", self.eviction_price)]
        {
            if price.0 < 0 {
                return Err(PolicyError::Negative { field });
            }
        }
        Ok(())
    }

    /// How many pods a machine to come takes at most; nothing when there is no such limit. Pods are only counted when it matters.
    pub(crate) fn most_pods(&self, snapshot: &Snapshot) -> Option<i64> {
        if self.largest_share >= 100 {
            return None;
        }
        let pods = snapshot.pods.iter().filter(|pod| !pod.daemon && !pod.mirror).count();
        let most = (pods * usize::from(self.largest_share)).div_ceil(100).max(1);
        Some(i64::try_from(most).unwrap_or(i64::MAX))
    }
}

/// `--min-values-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MinValuesPolicy {
    /// A launch that can't meet `minValues` does not happen.
    Strict,
    /// `minValues` is lowered to what can be met.
    BestEffort,
}

/// `--preference-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreferencePolicy {
    /// Preferences are requirements that may be dropped one by one.
    Respect,
    /// Preferences are ignored.
    Ignore,
}
