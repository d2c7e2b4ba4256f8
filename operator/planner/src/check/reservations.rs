//! Whether reservations have as many machines as a plan takes from them.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::places::offers;
use crate::plan::Launch;
use crate::snapshot::{NodePhase, Offering, Operator, Snapshot};

pub(super) fn check_reservations(
    snapshot: &Snapshot,
    launches: &[&Launch],
    found: &mut BTreeSet<Violation>,
) {
    let mut taken: BTreeMap<&str, u32> = BTreeMap::new();
    for node in snapshot.nodes.iter().filter(|node| node.phase == NodePhase::Pending) {
        for need in node.requirements.iter().filter(|need| need.operator == Operator::In) {
            if need.key.ends_with("reservation-id") {
                need.values.iter().for_each(|id| *taken.entry(id).or_default() += 1);
            }
        }
    }
    for launch in launches {
        let pool = snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool);
        let Some(catalog) = pool.and_then(|pool| pool.catalog) else { continue };
        let kinds = &snapshot.catalogs[catalog.0 as usize].instance_types;
        let ids: BTreeSet<&str> = kinds
            .iter()
            .filter(|kind| launch.instance_types.contains(&kind.name))
            .flat_map(|kind| offers(launch, kind))
            .filter_map(Offering::reservation)
            .collect();
        for id in ids {
            *taken.entry(id).or_default() += 1;
        }
    }
    let all = snapshot.catalogs.iter().flat_map(|catalog| &catalog.instance_types);
    for offer in all.flat_map(|kind| &kind.offerings) {
        let Some(id) = offer.reservation() else { continue };
        let by_plan = taken.get(id).copied().unwrap_or(0);
        if by_plan > offer.reservation_capacity.unwrap_or(0) && !launches.is_empty() {
            found.insert(Violation::Reservation(id.to_owned()));
        }
    }
}
