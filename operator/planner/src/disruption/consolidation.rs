//! Consolidation of single nodes: a node goes when its pods fit on the others, or on one cheaper machine.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use super::candidates::{Node, by_savings};
use super::{Moves, Pass};
use crate::Cancel;
use crate::compile::label;
use crate::compile::types::NOT_FOR_SALE;
use crate::launch::{Narrowed, launch, pod_ref};
use crate::pack::Strategy;
use crate::plan::{Launch, LaunchReason, Method, Stay};
use crate::snapshot::{CapacityType, ConsolidationPolicy, DisruptionReason};
use crate::solver::{Claim, Solver};

/// A spot node is replaced by a spot node only if so many cheaper types are left: with fewer the next interruption is likelier than the saving.
const SPOT_TO_SPOT_TYPES: usize = 15;

/// With the policy Balanced a move has to save at least half of what it disrupts, each as a share of its pool.
const BALANCED_THRESHOLD: f64 = 0.5;

pub(super) fn plan(pass: &mut Pass<'_, '_>, nodes: &[Node], cancel: &dyn Cancel) {
    for node in interleaved(nodes) {
        if cancel.is_cancelled() {
            return;
        }
        if pass.is_going(node) {
            continue;
        }
        if let Err(stay) = consolidate(pass, nodes, node, cancel) {
            pass.stay(node.index, stay);
        }
    }
}

/// The most promising first within each pool, and the pools in turn.
fn interleaved(nodes: &[Node]) -> Vec<&Node> {
    let mut pools: BTreeMap<usize, Vec<&Node>> = BTreeMap::new();
    for node in by_savings(nodes.iter().filter(|node| !node.is_empty())) {
        pools.entry(node.pool).or_default().push(node);
    }
    let longest = pools.values().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|turn| pools.values().filter_map(move |pool| pool.get(turn).copied()))
        .collect()
}

/// Whether a node may go because its pods can run for less.
pub(super) fn permitted(pass: &Pass<'_, '_>, node: &Node) -> Result<(), Stay> {
    let snapshot = pass.problem.snapshot;
    let source = &snapshot.nodes[node.index];
    let claim = source.claim.as_ref().expect("candidates have a claim");
    let pool = &snapshot.node_pools[node.pool];
    if let Some(blocked) = &node.blocked {
        return Err(blocked.clone());
    }
    if pass.receiving[node.index] {
        return Err(Stay::Nominated);
    }
    for key in [label::INSTANCE_TYPE, label::CAPACITY_TYPE, label::ZONE] {
        if !source.labels.contains_key(key) {
            return Err(Stay::MissingLabel(key.to_owned()));
        }
    }
    let due = claim.consolidatable.is_some_and(|since| since <= pass.now);
    if node.is_empty()
        || pool.replicas.is_some()
        || pool.disruption.consolidate_after.is_none()
        || pool.disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty
        || !due
    {
        return Err(Stay::NotConsolidatable);
    }
    Ok(())
}

fn consolidate(
    pass: &mut Pass<'_, '_>,
    nodes: &[Node],
    node: &Node,
    cancel: &dyn Cancel,
) -> Result<(), Stay> {
    permitted(pass, node)?;
    if pass.budgets.available(node.pool, DisruptionReason::Underutilized) == 0 {
        return Err(Stay::Budget(DisruptionReason::Underutilized));
    }
    let moves = pass.try_moving(&[node], Strategy::Fill, true, cancel)?;
    match replacement(pass, nodes, node, &moves) {
        Ok(replacements) => {
            let (reason, method) =
                (DisruptionReason::Underutilized, Method::SingleNodeConsolidation);
            pass.decide(&[node], moves.from, replacements, reason, method);
            Ok(())
        }
        Err(stay) => {
            pass.take_back(&[node], moves);
            Err(stay)
        }
    }
}

/// The machine that takes the node's place, if it needs one.
fn replacement(
    pass: &Pass<'_, '_>,
    nodes: &[Node],
    node: &Node,
    moves: &Moves,
) -> Result<Vec<Launch>, Stay> {
    let replacements = match moves.new_machines {
        0 => Vec::new(),
        1 => vec![cheaper(pass, node, &pass.solver.claims[0])?],
        _ => return Err(Stay::NeedsSeveralReplacements),
    };
    let pool = &pass.problem.snapshot.node_pools[node.pool];
    if pool.disruption.consolidation_policy == ConsolidationPolicy::Balanced {
        let after: f64 = replacements.iter().map(|launch| launch.price.as_usd()).sum();
        if !is_worth_it(pass, nodes, node, node.price.unwrap_or_default().as_usd() - after) {
            return Err(Stay::SavesTooLittle);
        }
    }
    Ok(replacements)
}

fn cheaper(pass: &Pass<'_, '_>, node: &Node, claim: &Claim) -> Result<Launch, Stay> {
    let snapshot = pass.problem.snapshot;
    let price = node.price.unwrap_or_default().0;
    let on_spot = snapshot.nodes[node.index].labels.get(label::CAPACITY_TYPE).map(String::as_str)
        == Some(CapacityType::Spot.as_str());
    let solver = &pass.solver;
    let mut narrowed = Narrowed::nothing(solver, claim);
    if on_spot && allows(solver, claim, CapacityType::Spot) {
        if !pass.problem.policy.spot_to_spot {
            return Err(Stay::SpotToSpot);
        }
        narrowed.types = below(solver, claim, CapacityType::Spot, price);
        narrowed.capacity_type = Some(CapacityType::Spot);
        if narrowed.types.is_clear() {
            return Err(Stay::NothingCheaper);
        }
        if narrowed.types.count_ones(..) < SPOT_TO_SPOT_TYPES {
            return Err(Stay::SpotToSpot);
        }
        narrowed.at_most = SPOT_TO_SPOT_TYPES.max(needed_for_min_values(solver, claim, &narrowed));
    } else {
        // One capacity type is asked for, the first of which a cheaper offering exists: a request that could fall back to a dearer one might
        // replace the node by a dearer machine.
        let found = [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand]
            .into_iter()
            .map(|capacity_type| (capacity_type, below(solver, claim, capacity_type, price)))
            .find(|(_, types)| !types.is_clear());
        let Some((capacity_type, types)) = found else { return Err(Stay::NothingCheaper) };
        (narrowed.types, narrowed.capacity_type) = (types, Some(capacity_type));
    }
    if solver.lacking_values(claim.cell, &narrowed.types).is_some() {
        return Err(Stay::NothingCheaper);
    }
    let reason = LaunchReason::Replacement(DisruptionReason::Underutilized);
    let pods = &claim.pods;
    launch(solver, claim, &narrowed, reason, pass.seed)
        .map_err(|_| Stay::PodsDontFit(pod_ref(&snapshot.pods[pods[0]])))
}

fn allows(solver: &Solver<'_, '_>, claim: &Claim, capacity_type: CapacityType) -> bool {
    crate::launch::prices(solver, claim, Some(capacity_type))
        .iter()
        .any(|&price| price != NOT_FOR_SALE)
}

/// Types of which even the dearest offering of a capacity type costs less than a price; of a type that also has offerings of a capacity type that the
/// provider takes first, these count.
fn below(
    solver: &Solver<'_, '_>,
    claim: &Claim,
    capacity_type: CapacityType,
    price: i64,
) -> FixedBitSet {
    let cell = &solver.cells[claim.cell];
    let table = &solver.problem.catalogs[solver.problem.templates[cell.template].catalog];
    let mut types = claim.types.clone();
    for kind in claim.types.ones() {
        let worst = cell
            .markets
            .ones()
            .filter(|&market| table.markets[market].capacity_type == capacity_type)
            .map(|market| table.prices(kind)[market])
            .filter(|&price| price != NOT_FOR_SALE)
            .max();
        types.set(kind, worst.is_some_and(|worst| worst < price));
    }
    types
}

/// How many of the cheapest types it takes to have all `minValues`.
fn needed_for_min_values(solver: &Solver<'_, '_>, claim: &Claim, narrowed: &Narrowed) -> usize {
    let prices = crate::launch::prices(solver, claim, narrowed.capacity_type);
    let mut ranked: Vec<_> = narrowed.types.ones().collect();
    ranked.sort_by_key(|&kind| (prices[kind], kind));
    let mut types = FixedBitSet::with_capacity(prices.len());
    for (index, &kind) in ranked.iter().enumerate() {
        types.insert(kind);
        if solver.lacking_values(claim.cell, &types).is_none() {
            return index + 1;
        }
    }
    ranked.len()
}

/// Whether a move saves enough for what it disrupts: the shares of the pool's price and of its disruption cost are compared.
#[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
fn is_worth_it(pass: &Pass<'_, '_>, nodes: &[Node], node: &Node, savings: f64) -> bool {
    let snapshot = pass.problem.snapshot;
    let pool = &snapshot.node_pools[node.pool].name;
    let (mut price, mut cost) = (0.0, 0.0);
    for (index, other) in snapshot.nodes.iter().enumerate() {
        if other.claim.as_ref().and_then(|claim| claim.node_pool.as_ref()) != Some(pool) {
            continue;
        }
        price += other.price.unwrap_or_default().0 as f64 / 1e6;
        cost += nodes.iter().find(|node| node.index == index).map_or_else(
            || {
                let pods = pass.problem.pods_on[index].iter().map(|&pod| &snapshot.pods[pod]);
                super::cost::reschedule_cost(pods.filter(|pod| !pod.daemon))
            },
            |node| node.cost,
        );
    }
    let disruption = node.cost / cost;
    price > 0.0 && savings > 0.0 && (savings / price) / disruption >= BALANCED_THRESHOLD
}
