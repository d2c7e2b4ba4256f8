//! What takes the place of nodes that go for money's sake: only machines that are cheaper whatever
//! the provider picks among them.

use fixedbitset::FixedBitSet;

use super::Pass;
use super::candidates::Node;
use crate::label;
use crate::launch::{LaunchFilter, launch_of, pod_ref};
use crate::plan::{Launch, LaunchReason, StayReason};
use crate::snapshot::{CapacityType, DisruptionReason};
use crate::solver::{Claim, Solver};
use crate::tables::types::NOT_FOR_SALE;

/// A spot node is replaced by a spot node only if so many cheaper types are left: with fewer the
/// next interruption is likelier than the saving.
const SPOT_TO_SPOT_TYPES: usize = 15;

/// The machine that replaces nodes: of the types that hold the pods those that cost less than all
/// the nodes together.
pub(super) fn cheaper(
    pass: &Pass<'_, '_>,
    nodes: &[&Node],
    claim: &Claim,
) -> Result<Launch, StayReason> {
    let snapshot = pass.problem.tables.snapshot;
    let price = nodes.iter().map(|node| node.price.unwrap_or_default().0).sum();
    let on_spot = nodes.iter().all(|node| {
        let labels = &snapshot.nodes[node.index].labels;
        labels.get(label::CAPACITY_TYPE).map(String::as_str) == Some(CapacityType::Spot.as_str())
    });
    let solver = &pass.solver;
    let mut filter = LaunchFilter::all(solver, claim);
    if on_spot && allows(solver, claim, CapacityType::Spot) {
        if !pass.problem.tables.policy.spot_to_spot {
            return Err(StayReason::SpotToSpot);
        }
        filter.types = below(solver, claim, CapacityType::Spot, price);
        filter.capacity_type = Some(CapacityType::Spot);
        if filter.types.is_clear() {
            return Err(StayReason::NothingCheaper);
        }
        // Several nodes become fewer, which is worth a narrower choice.
        if let [_] = nodes {
            if filter.types.count_ones(..) < SPOT_TO_SPOT_TYPES {
                return Err(StayReason::SpotToSpot);
            }
            let needed = needed_for_min_values(solver, claim, &filter);
            filter.at_most = SPOT_TO_SPOT_TYPES.max(needed);
        }
        return launched(pass, nodes, claim, filter);
    }
    // One capacity type is asked for, the first of which a cheaper offering exists: a request that
    // could fall back to a dearer one might replace the node by a dearer machine. What other
    // commands hold of a reservation is gone.
    for capacity_type in [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand] {
        filter.types = below(solver, claim, capacity_type, price);
        if filter.types.is_clear() {
            continue;
        }
        filter.capacity_type = Some(capacity_type);
        let launch = launched(pass, nodes, claim, filter.clone())?;
        if capacity_type != CapacityType::Reserved || pass.reservations.allow(&launch) {
            return Ok(launch);
        }
    }
    Err(StayReason::NothingCheaper)
}

/// The machine with what is left of its types.
fn launched(
    pass: &Pass<'_, '_>,
    nodes: &[&Node],
    claim: &Claim,
    mut filter: LaunchFilter,
) -> Result<Launch, StayReason> {
    let solver = &pass.solver;
    if nodes.len() > 1 {
        keep_other_types(pass, nodes, claim, &mut filter);
        if filter.types.is_clear() {
            return Err(StayReason::NothingCheaper);
        }
    }
    if solver.lacking_values(claim.spec, &filter.types).is_some() {
        return Err(StayReason::NothingCheaper);
    }
    let reason = LaunchReason::Replacement(DisruptionReason::Underutilized);
    launch_of(solver, claim, &filter, reason).map_err(|_| {
        StayReason::PodsDontFit(pod_ref(&pass.problem.tables.snapshot.pods[claim.pods[0]]))
    })
}

fn allows(solver: &Solver<'_, '_>, claim: &Claim, capacity_type: CapacityType) -> bool {
    crate::launch::prices(solver, claim.spec, Some(capacity_type))
        .iter()
        .any(|&price| price != NOT_FOR_SALE)
}

/// Types of which even the dearest offering of a capacity type costs less than a price.
fn below(
    solver: &Solver<'_, '_>,
    claim: &Claim,
    capacity_type: CapacityType,
    price: i64,
) -> FixedBitSet {
    let mut types = claim.types.clone();
    for kind in claim.types.ones() {
        let worst = worst_price(solver, claim, capacity_type, kind);
        types.set(kind, worst.is_some_and(|worst| worst < price));
    }
    types
}

/// The dearest offering of a type that a launch with this capacity type could end up with.
fn worst_price(
    solver: &Solver<'_, '_>,
    claim: &Claim,
    capacity_type: CapacityType,
    kind: usize,
) -> Option<i64> {
    let spec = &solver.specs[claim.spec];
    let table =
        &solver.problem.tables.catalogs[solver.problem.tables.templates[spec.template].catalog];
    spec.markets
        .ones()
        .filter(|&market| table.markets[market].capacity_type == capacity_type)
        .map(|market| table.prices(kind)[market])
        .filter(|&price| price != NOT_FOR_SALE)
        .max()
}

/// Several nodes are not replaced by one of their own types, unless it is one of the cheaper ones:
/// keeping that node and removing the others would do the same with fewer evictions. So what
/// remains has to cost less than the cheapest node of a type that could be launched.
fn keep_other_types(
    pass: &Pass<'_, '_>,
    nodes: &[&Node],
    claim: &Claim,
    filter: &mut LaunchFilter,
) {
    let solver = &pass.solver;
    let template = &solver.problem.tables.templates[solver.specs[claim.spec].template];
    let table = &solver.problem.tables.catalogs[template.catalog];
    let present = nodes.iter().filter_map(|node| {
        let labels = &pass.problem.tables.snapshot.nodes[node.index].labels;
        Some((table.find(labels.get(label::INSTANCE_TYPE)?)?, node.price?.0))
    });
    let present: Vec<_> = present.collect();
    let Some(capacity_type) = filter.capacity_type else { return };
    filter_same_type(&present, &mut filter.types, |kind| {
        worst_price(solver, claim, capacity_type, kind)
    });
}

/// The same-type filter: with the types and prices of the nodes that go, and what each type costs
/// at worst.
fn filter_same_type(
    present: &[(usize, i64)],
    types: &mut FixedBitSet,
    worst: impl Fn(usize) -> Option<i64>,
) {
    let own = present.iter().filter(|&&(kind, _)| types[kind]).map(|&(_, price)| price).min();
    let Some(most) = own else { return };
    for kind in types.ones().collect::<Vec<_>>() {
        types.set(kind, worst(kind).is_some_and(|worst| worst < most));
    }
}

/// How many of the cheapest types it takes to have all `minValues`.
fn needed_for_min_values(solver: &Solver<'_, '_>, claim: &Claim, filter: &LaunchFilter) -> usize {
    let prices = crate::launch::prices(solver, claim.spec, filter.capacity_type);
    let mut ranked: Vec<_> = filter.types.ones().collect();
    ranked.sort_by_key(|&kind| (prices[kind], kind));
    let mut types = FixedBitSet::with_capacity(prices.len());
    for (index, &kind) in ranked.iter().enumerate() {
        types.insert(kind);
        if solver.lacking_values(claim.spec, &types).is_none() {
            return index + 1;
        }
    }
    ranked.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appendix A.7: two large at 1.0 and one small at 0.2 go.
    #[test]
    fn several_nodes_are_not_replaced_by_their_own_types() {
        let (nano, small, medium, large) = (0, 1, 2, 3);
        let prices = [100, 200, 500, 1000];
        let present = [(large, 1000), (small, 200), (large, 1000)];
        for (options, left) in [
            (vec![nano, small, medium, large], vec![nano]),
            (vec![medium, large], vec![medium]),
            (vec![small, medium, large], vec![]),
            (vec![nano, medium], vec![nano, medium]),
        ] {
            let mut types = FixedBitSet::with_capacity(4);
            types.extend(options.iter().copied());
            filter_same_type(&present, &mut types, |kind| Some(prices[kind]));
            assert_eq!(types.ones().collect::<Vec<_>>(), left, "{options:?}");
        }
    }
}
