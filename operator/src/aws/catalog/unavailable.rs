//! Offerings that EC2 could not deliver lately, so that the planner does not ask for them again at
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tenon_planner::snapshot::CapacityType;
use tokio::time::Instant;

/// How long an offering counts as unavailable.
const TTL: Duration = Duration::from_secs(3 * 60);

/// Type, zone, capacity type, and the placement group, or the partition of it, in which it is
/// unavailable; without one it is unavailable everywhere.
type OfferingKey = (String, String, CapacityType, Option<String>);

/// What a lack of capacity in a placement group, or in one partition of it, is remembered under.
pub(crate) fn placement_scope(group: &str, partition: Option<&str>) -> String {
    partition.map_or_else(|| group.to_owned(), |partition| format!("{group}:{partition}"))
}

/// What is unavailable, until when. Every change, the end of an entry too, raises the version:
/// catalogs that were computed before are stale then.
#[derive(Debug, Default)]
pub(crate) struct Unavailable {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    offerings: BTreeMap<OfferingKey, Instant>,
    capacity_types: BTreeMap<CapacityType, Instant>,
    subnets: BTreeMap<String, Instant>,
}

/// What is unavailable at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnavailableNow {
    offerings: BTreeSet<OfferingKey>,
    capacity_types: BTreeSet<CapacityType>,
    subnets: BTreeSet<String>,
}

impl Unavailable {
    /// Marks an offering. What could not be had inside of a placement group says nothing about the
    /// world outside.
    pub(crate) fn mark_offering(
        &self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
        placement_group: Option<&str>,
        reason: &str,
    ) {
        tracing::info!(
            instance_type,
            placement_group,
            zone,
            capacity_type = capacity_type.as_str(),
            reason,
            ttl_seconds = TTL.as_secs(),
            "offering is unavailable"
        );
        self.change(|state, until| {
            let group = placement_group.map(str::to_owned);
            let key = (instance_type.to_owned(), zone.to_owned(), capacity_type, group);
            state.offerings.insert(key, until);
        });
    }

    /// Marks a capacity type everywhere.
    pub(crate) fn mark_capacity_type(&self, capacity_type: CapacityType, reason: &str) {
        tracing::info!(
            capacity_type = capacity_type.as_str(),
            reason,
            ttl_seconds = TTL.as_secs(),
            "capacity type is unavailable"
        );
        self.change(|state, until| {
            state.capacity_types.insert(capacity_type, until);
        });
    }

    /// Marks a subnet.
    pub(crate) fn mark_subnet(&self, subnet: &str) {
        tracing::info!(subnet, ttl_seconds = TTL.as_secs(), "subnet has no free addresses");
        self.change(|state, until| {
            state.subnets.insert(subnet.to_owned(), until);
        });
    }

    /// The version of what is unavailable now.
    pub(crate) fn version(&self) -> u64 {
        let mut state = self.state.lock();
        state.drop_ended();
        state.version
    }

    /// What is unavailable now.
    pub(crate) fn now(&self) -> UnavailableNow {
        let mut state = self.state.lock();
        state.drop_ended();
        UnavailableNow {
            offerings: state.offerings.keys().cloned().collect(),
            capacity_types: state.capacity_types.keys().copied().collect(),
            subnets: state.subnets.keys().cloned().collect(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut State, Instant)) {
        let mut state = self.state.lock();
        state.drop_ended();
        state.version += 1;
        change(&mut state, Instant::now() + TTL);
    }
}

impl State {
    fn drop_ended(&mut self) {
        let now = Instant::now();
        let count =
            |state: &Self| state.offerings.len() + state.capacity_types.len() + state.subnets.len();
        let before = count(self);
        self.offerings.retain(|_, until| *until > now);
        self.capacity_types.retain(|_, until| *until > now);
        self.subnets.retain(|_, until| *until > now);
        if count(self) < before {
            self.version += 1;
        }
    }
}

impl UnavailableNow {
    /// Whether the offering can't be asked for. `subnets` are the NodeClass' subnets in the zone: a
    /// zone is out when all of them are.
    pub(crate) fn contains(
        &self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
        subnets: &[&str],
        placement_group: Option<&str>,
    ) -> bool {
        let marked = |group: Option<&str>| {
            let group = group.map(str::to_owned);
            let key = (instance_type.to_owned(), zone.to_owned(), capacity_type, group);
            self.offerings.contains(&key)
        };
        self.capacity_types.contains(&capacity_type)
            || (!self.offerings.is_empty()
                && (marked(None) || (placement_group.is_some() && marked(placement_group))))
            || (!subnets.is_empty() && subnets.iter().all(|subnet| self.subnets.contains(*subnet)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn offerings_come_back_after_three_minutes_and_change_the_version_then() {
        let unavailable = Unavailable::default();
        let start = unavailable.version();
        unavailable.mark_offering("m5.large", "a", CapacityType::Spot, None, "ICE");
        let marked = unavailable.version();
        assert!(marked > start);
        let now = unavailable.now();
        assert!(now.contains("m5.large", "a", CapacityType::Spot, &[], None));
        assert!(!now.contains("m5.large", "a", CapacityType::OnDemand, &[], None));
        assert!(!now.contains("m5.large", "b", CapacityType::Spot, &[], None));

        tokio::time::advance(Duration::from_secs(120)).await;
        unavailable.mark_offering("m5.large", "a", CapacityType::Spot, None, "again");
        tokio::time::advance(Duration::from_secs(120)).await;
        assert!(unavailable.now().contains("m5.large", "a", CapacityType::Spot, &[], None));
        let marked = unavailable.version();
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(unavailable.version() > marked);
        assert_eq!(unavailable.now(), UnavailableNow::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_zone_is_out_when_all_of_its_subnets_are() {
        let unavailable = Unavailable::default();
        unavailable.mark_subnet("subnet-1");
        let now = unavailable.now();
        let out =
            |subnets: &[&str]| now.contains("m5.large", "a", CapacityType::Spot, subnets, None);
        assert!(out(&["subnet-1"]));
        assert!(!out(&["subnet-1", "subnet-2"]));
        assert!(!out(&[]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_placement_group_lacks_is_there_outside_of_it() {
        let unavailable = Unavailable::default();
        let spot = CapacityType::Spot;
        unavailable.mark_offering("m5.large", "a", spot, Some("pg-1"), "ICE");
        unavailable.mark_offering("m5.large", "b", spot, None, "ICE");
        let now = unavailable.now();
        let out = |zone, group| now.contains("m5.large", zone, spot, &[], group);
        assert_eq!(["a", "b"].map(|zone| out(zone, None)), [false, true]);
        assert_eq!(["a", "b"].map(|zone| out(zone, Some("pg-1"))), [true, true]);
        assert_eq!(["a", "b"].map(|zone| out(zone, Some("pg-2"))), [false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_capacity_type_is_out_everywhere() {
        let unavailable = Unavailable::default();
        unavailable.mark_capacity_type(CapacityType::Spot, "no role");
        assert!(unavailable.now().contains("m5.large", "a", CapacityType::Spot, &["s"], None));
        assert!(!unavailable.now().contains("m5.large", "a", CapacityType::OnDemand, &["s"], None));
    }
}
