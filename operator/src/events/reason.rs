//! Every reason that an event can have: what dashboards and people search for.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why an event is published, as it is written there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The one that is written so.
            pub fn named(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
            }

            /// As it is written in events.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

reasons! {
    /// On a node: volumes are still attached.
    AwaitingVolumeDetachment,
    /// On a node and its NodeClaim, or on a NodePool for several nodes: the consolidation policy
    /// Balanced approves.
    ConsolidationApproved,
    /// On a node and its NodeClaim: it would be consolidated, if that still holds when it is
    /// checked again.
    ConsolidationCandidate,
    /// On a node and its NodeClaim: what was to be consolidated did not hold when it was checked
    /// again.
    ConsolidationRejected,
    /// On a NodeClaim and its node: its reservation was taken back.
    CapacityReservationInstanceInterrupted,
    /// On a node, its NodeClaim or its NodePool: why it may not be disrupted.
    DisruptionBlocked,
    /// On a NodeClaim: it is launched to replace others.
    DisruptionLaunching,
    /// On a node and its NodeClaim: it goes.
    DisruptionTerminating,
    /// On a NodeClaim: others wait for it to be ready.
    DisruptionWaitingReadiness,
    /// On a pod: deleted, because its node's grace period ends.
    Disrupted,
    /// On a pod: it is not protected from disruption any more.
    DoNotDisruptGracePeriodElapsed,
    /// On a pod: until when it is protected from disruption.
    DoNotDisruptUntil,
    /// On a pod: evicted from a node that goes.
    Evicted,
    /// On a NodeClaim: its node has less than was promised.
    FailedConsistencyCheck,
    /// On a node: what its drain waits for.
    FailedDraining,
    /// On a pod: why no machine can be launched for it.
    FailedScheduling,
    /// On an EC2NodeClass or NodePool: it was changed to what its InstanceGroup of kOps asks for.
    InstanceGroupFollowed,
    /// On an EC2NodeClass: why it does not follow its InstanceGroup of kOps.
    InstanceGroupNotFollowed,
    /// On an EC2NodeClass: its instance profile could not be made.
    InstanceProfileFailed,
    /// On a NodeClaim and its node: the instance stops.
    InstanceStopping,
    /// On a NodeClaim and its node: the instance ends.
    InstanceTerminating,
    /// On a NodeClaim and its node: AWS says that the machine is not healthy, or has plans for it.
    InstanceUnhealthy,
    /// On a NodeClaim and its pods: nothing of what it allows can be had now.
    InsufficientCapacityError,
    /// On any object that is watched: it does not parse and is ignored.
    Invalid,
    /// On a pod: its annotation means nothing.
    InvalidDoNotDisruptAnnotation,
    /// On a NodeClaim: a launch that is tried again, with the reason of its condition.
    LaunchFailed,
    /// On a NodeClaim: its NodeClass is not ready, the NodeClaim is given up.
    NodeClassNotReady,
    /// On a node, its NodeClaim and its NodePool: so many nodes are sick that none is repaired.
    NodeRepairBlocked,
    /// On a pod: where it is expected.
    Nominated,
    /// On a NodePool: no plans are made with it, and why.
    PlanningPaused,
    /// On a NodePool: plans are made with it again.
    PlanningResumed,
    /// On a NodeClaim: its machine was to be rebooted, and is replaced.
    RebootFailed,
    /// On a NodeClaim: its machine has been rebooted, and is not ready yet.
    RebootObserved,
    /// On a NodeClaim and its node: AWS will take the spot instance back.
    SpotInterrupted,
    /// On a NodeClaim and its node: AWS may take the spot instance back.
    SpotRebalanceRecommendation,
    /// On a node and its NodeClaim: when everything on it will be deleted.
    TerminationGracePeriodExpiring,
    /// On a NodeClaim and its node: it goes because of an interruption.
    TerminatingOnInterruption,
    /// On a NodePool: planning with it panics, and it is left out for a while.
    PlanningFailed,
    /// On a node and its NodeClaim: why it can't be consolidated.
    Unconsolidatable,
    /// On a NodeClaim: its node joined without the taint that keeps pods away until it is
    /// registered.
    UnregisteredTaintMissing,
    /// On an EC2NodeClass: which NodeClaims its deletion waits for.
    WaitingOnNodeClaimTermination,
    /// On a NodePool: a zonal shift takes a zone away.
    ZonalShiftActive,
    /// On a NodePool: a zonal shift has ended.
    ZonalShiftCleared,
}

/// Whose turn comes first when there is more to say than the API server is to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Something that was done or that happened: nobody says it a second time.
    Deed,
    /// How things are: whoever found out says so again for as long as it holds.
    State,
}

impl Reason {
    /// What kind of thing it tells.
    pub fn urgency(self) -> Urgency {
        match self {
            Self::AwaitingVolumeDetachment
            | Self::ConsolidationApproved
            | Self::ConsolidationCandidate
            | Self::DisruptionBlocked
            | Self::DisruptionWaitingReadiness
            | Self::DoNotDisruptUntil
            | Self::FailedConsistencyCheck
            | Self::FailedDraining
            | Self::FailedScheduling
            | Self::InstanceGroupNotFollowed
            | Self::InstanceProfileFailed
            | Self::Invalid
            | Self::InvalidDoNotDisruptAnnotation
            | Self::NodeRepairBlocked
            | Self::Nominated
            | Self::PlanningFailed
            | Self::PlanningPaused
            | Self::TerminationGracePeriodExpiring
            | Self::Unconsolidatable
            | Self::WaitingOnNodeClaimTermination => Urgency::State,
            // Better said twice than lost.
            _ => Urgency::Deed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MANUAL: &str = include_str!("../../../docs/src/reference/events.md");

    /// Upstream's reasons: the core's, then the AWS provider's.
    const UPSTREAM: &str = "
        Nominated FailedScheduling NoCompatibleInstanceTypes DisruptionBlocked DisruptionLaunching DisruptionWaitingReadiness
        DisruptionTerminating Unconsolidatable ConsolidationCandidate ConsolidationRejected ConsolidationApproved
        InsufficientCapacityError NodeClassNotReady UnregisteredTaintMissing FailedConsistencyCheck TerminationGracePeriodExpiring
        FailedDraining AwaitingVolumeDetachment Evicted Disrupted NodeRepairBlocked InvalidDoNotDisruptAnnotation DoNotDisruptUntil
        DoNotDisruptGracePeriodElapsed RebootObserved RebootFailed
        WaitingOnNodeClaimTermination SpotInterrupted CapacityReservationInstanceInterrupted SpotRebalanceRecommendation
        InstanceStopping InstanceTerminating InstanceUnhealthy TerminatingOnInterruption ZonalShiftActive ZonalShiftCleared
    ";

    #[test]
    fn every_reason_of_upstream_is_built_or_the_manual_says_why_not() {
        let built: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        let upstream: BTreeSet<&str> = UPSTREAM.split_whitespace().collect();
        let in_manual = |name: &&&str| MANUAL.contains(&format!("`{name}`"));
        let untold: Vec<_> = upstream.difference(&built).filter(|name| !in_manual(name)).collect();
        assert_eq!(untold, Vec::<&&str>::new(), "missing here and in the manual");
        let untold: Vec<_> = built.difference(&upstream).filter(|name| !in_manual(name)).collect();
        assert_eq!(untold, Vec::<&&str>::new(), "ours, and not in the manual");
    }
}
