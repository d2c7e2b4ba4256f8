//! Options of the planner that an administrator chooses, apart from the objects in the cluster.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::plan::Resume;
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
    /// Feature gate TerminateFirstDrift: a drifted node is terminated before its replacement is
    /// launched if there is no room for both.
    pub terminate_first_drift: bool,
    /// Feature gate TerminateFirstRepair: the same for unhealthy nodes.
    pub terminate_first_repair: bool,
    /// The maximum number of instance types of a launch: the cheapest ones that hold its pods.
    /// Providers try no more at once; unavailable ones are excluded from the next plan.
    pub max_instance_types: usize,
    /// The assumed cost per hour of an additional machine beyond its price: the weight of few large
    /// machines against many small ones.
    pub node_price: MicroUsd,
    /// The largest share of the cluster's pods, in percent, that one new machine is planned for, so
    /// that its loss affects fewer pods. Daemons don't count; one pod is always planned for.
    /// Existing machines are filled as usual. 100 sets no limit, as in Karpenter; 0 and more than
    /// 100 are invalid.
    pub largest_share: u8,
    /// The saving per hour that consolidation requires for each pod that it evicts.
    /// `pod-deletion-cost` and priority weight a pod. 0 accepts every saving, as Karpenter does.
    pub eviction_price: MicroUsd,
    /// The share of their NodePools' nodes, in percent, up to which nodes count as few, so that a
    /// scale-in does not end in ever smaller waves. If lack of room limits a consolidation to few
    /// nodes, they stay unless there is also room for pods like theirs with twice that share of all
    /// CPU and memory. 0 removes every node that can be removed, as Karpenter does; at most 100.
    /// The condition does not apply in a cluster in which one node is more than that share, if all
    /// nodes that could be removed are removed, or to nodes with a quarter of their CPU and memory
    /// free.
    pub few_nodes: u8,
    /// Whether the operator nominates each pod to its planned node, so that kube-scheduler binds it
    /// there. Otherwise provisioning launches machines that hold the pods in whichever way
    /// kube-scheduler distributes them, if that is cheaper than launching more for the pods left
    /// over.
    #[serde(skip_serializing_if = "is_true")]
    pub nominations: bool,
    /// Where a disruption pass that was cut short stopped ([`crate::plan::Report::resume`]): the
    /// next one begins there, so that every node has its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
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
            // A tenth of the cheapest machine on sale: breaks ties towards fewer machines and never
            // outweighs a real difference in price.
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

/// An invalid value in a [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// Outside of 1 to 100.
    #[error("largestShare is {0}: use 1 to 100 percent of the cluster's pods (100 sets no limit)")]
    LargestShare(u8),
    /// More than all nodes.
    #[error("fewNodes is {0}: use 0 to 100 percent of the nodes (0 holds nothing back)")]
    FewNodes(u8),
    /// Launches would carry no types.
    #[error(
        "maxInstanceTypes is 0: a launch needs at least one type, Karpenter's AWS provider takes 60"
    )]
    NoInstanceTypes,
    /// A negative cost would reward what it is meant to limit.
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

    /// The maximum number of pods of a new machine; `None` without a limit, so that pods need not
    /// be counted.
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
