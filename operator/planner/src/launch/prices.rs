//! Possible prices of launches, over all of their offerings.

use rustc_hash::FxHashMap;

use super::Choice;
use crate::intern::Symbols;
use crate::plan::{Launch, PriceRange};
use crate::requirements::Requirements;
use crate::reservations::offered;
use crate::resources::MicroUsd;
use crate::snapshot::{CapacityType, InstanceType, Offering, Snapshot};
use crate::solver::Solver;
use crate::tables::types::NOT_FOR_SALE;

/// The range of a launch in the plan, computed from its requirements. Slow: for launches that
/// changed after their creation.
pub(super) fn range_of(snapshot: &Snapshot, launch: &Launch) -> PriceRange {
    let mut symbols = Symbols::default();
    let kinds = kinds(snapshot, &launch.node_pool);
    let wanted = Requirements::new(&launch.requirements, &mut symbols);
    let mut prices = |kind: &&InstanceType| {
        let admits = |offer: &&Offering| {
            offer.is_launchable()
                && offered(offer, &mut symbols).intersects(&wanted, &symbols).is_ok()
        };
        let offers: Vec<_> = kind.offerings.iter().filter(admits).collect();
        offers.into_iter().map(|offer| (offer.capacity_type, offer.price.0)).collect()
    };
    let kinds = launch.instance_types.iter().filter_map(|name| kinds.get(name.as_str()));
    range(&kinds.map(&mut prices).collect::<Vec<_>>())
}

/// The range of a draft.
pub(super) fn range_in(solver: &Solver<'_, '_>, choice: &Choice) -> PriceRange {
    let spec = &solver.specs[choice.spec];
    let table =
        &solver.problem.tables.catalogs[solver.problem.tables.templates[spec.template].catalog];
    let markets = spec.markets.ones().map(|market| (market, table.markets[market].capacity_type));
    let markets: Vec<(usize, CapacityType)> =
        markets.filter(|(_, it)| choice.capacity_type.is_none_or(|pinned| pinned == *it)).collect();
    let offers = |&kind: &usize| {
        let prices = table.prices(kind);
        let sold = markets.iter().filter(|(market, _)| prices[*market] != NOT_FOR_SALE);
        sold.map(|&(market, capacity_type)| (capacity_type, prices[market])).collect()
    };
    range(&choice.ranked.iter().map(offers).collect::<Vec<_>>())
}

/// The types of a NodePool's catalog by name.
fn kinds<'s>(snapshot: &'s Snapshot, pool: &str) -> FxHashMap<&'s str, &'s InstanceType> {
    let pool = snapshot.node_pools.iter().find(|it| it.name == pool);
    let catalog = pool.and_then(|pool| pool.catalog).map(|id| &snapshot.catalogs[id.0 as usize]);
    let kinds = catalog.map(|catalog| &catalog.instance_types[..]).unwrap_or_default();
    kinds.iter().map(|kind| (kind.name.as_str(), kind)).collect()
}

/// The range over the offerings of some types.
fn range(kinds: &[Vec<(CapacityType, i64)>]) -> PriceRange {
    let first = [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand];
    let sold = |capacity_type| kinds.iter().flatten().any(|&(it, _)| it == capacity_type);
    let Some(bought) = first.into_iter().find(|&it| sold(it)) else { return PriceRange::default() };
    let mut of_bought = kinds.iter().map(|offers| {
        let prices = offers.iter().filter(|(it, _)| *it == bought).map(|&(_, price)| price);
        prices.collect::<Vec<_>>()
    });
    let (mut least, mut dearest) = (Vec::new(), 0);
    for prices in &mut of_bought {
        least.extend(prices.iter().copied().min());
        dearest = prices.into_iter().fold(dearest, i64::max);
    }
    let cheapest = least.iter().copied().min().unwrap_or(0);
    let mean = least.iter().sum::<i64>() / i64::try_from(least.len().max(1)).unwrap_or(1);
    let expected = if bought == CapacityType::Spot { mean } else { cheapest };
    let [cheapest, expected, dearest] = [cheapest, expected, dearest].map(MicroUsd);
    PriceRange { cheapest, expected, dearest }
}
