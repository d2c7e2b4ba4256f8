//! One step of consolidation: nodes go when their pods fit on the others, or on one cheaper
//! machine.

use std::collections::BTreeMap;

use super::Pass;
use super::candidates::{Node, by_savings};
use super::replacement::cheaper;
use super::rescheduling::{Moves, Search};
use crate::Cancel;
use crate::plan::{Launch, Method, StayReason};
use crate::snapshot::DisruptionReason;

/// How many more nodes a pass that is cut short still tries of those that are known to have
/// something to gain, so that every pass gets something done.
const LAST_TRIES: usize = 16;

/// What is to become of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// It goes, and nothing comes.
    Delete,
    /// It goes, and one cheaper machine may come.
    Replace,
}

/// Whether to go on.
pub(super) struct Patience<'c> {
    cancel: &'c dyn Cancel,
    tries: usize,
}

impl<'c> Patience<'c> {
    pub(super) fn new(cancel: &'c dyn Cancel) -> Self {
        Self { cancel, tries: LAST_TRIES }
    }

    pub(super) fn is_over(&mut self) -> bool {
        if self.cancel.is_cancelled() {
            self.tries = self.tries.saturating_sub(1);
        }
        self.tries == 0
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// For another attempt at the same nodes.
    pub(super) fn afresh(&self) -> Self {
        Self::new(self.cancel)
    }
}

/// The most promising first within each pool, and the pools in turn.
pub(super) fn interleaved<'n>(nodes: &[&'n Node]) -> Vec<&'n Node> {
    let mut pools: BTreeMap<usize, Vec<&Node>> = BTreeMap::new();
    for node in by_savings(nodes.iter().copied()) {
        pools.entry(node.pool).or_default().push(node);
    }
    let longest = pools.values().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|turn| pools.values().filter_map(move |pool| pool.get(turn).copied()))
        .collect()
}

/// Does one step: nodes go, and at most one machine comes.
pub(super) fn consolidate(
    pass: &mut Pass<'_, '_>,
    nodes: &[&Node],
    aim: Aim,
) -> Result<(), StayReason> {
    for node in nodes {
        if pass.is_expecting(node) {
            return Err(StayReason::Nominated);
        }
    }
    pass.budgets.allow(pass.problem.tables.snapshot, nodes, DisruptionReason::Underutilized)?;
    let (moves, replacements) = attempt(pass, nodes, aim)?;
    let method = match nodes {
        [_] => Method::SingleNodeConsolidation,
        _ => Method::MultiNodeConsolidation,
    };
    pass.decide(nodes, &moves, replacements, DisruptionReason::Underutilized, method);
    Ok(())
}

/// Moves the pods of nodes and finds what replaces them, if that is worth it. On failure nothing
/// has changed.
pub(super) fn attempt(
    pass: &mut Pass<'_, '_>,
    nodes: &[&Node],
    aim: Aim,
) -> Result<(Moves, Vec<Launch>), StayReason> {
    let price: i64 = nodes.iter().map(|node| node.price.unwrap_or_default().0).sum();
    let below = match aim {
        Aim::Delete => 0,
        Aim::Replace => price - eviction_price(pass, nodes),
    };
    let moves = pass.try_rescheduling(nodes, Search::cheaper_than(below.max(0)))?;
    match launches(pass, nodes, &moves, price) {
        Ok(replacements) => Ok((moves, replacements)),
        Err(stay) => {
            pass.take_back(nodes, moves);
            Err(stay)
        }
    }
}

/// The machine that takes the nodes' place, if they need one.
fn launches(
    pass: &Pass<'_, '_>,
    nodes: &[&Node],
    moves: &Moves,
    price: i64,
) -> Result<Vec<Launch>, StayReason> {
    let replacements = match moves.new_machines {
        0 => Vec::new(),
        1 => vec![cheaper(pass, nodes, &pass.solver.claims[0])?],
        _ => return Err(StayReason::NeedsSeveralReplacements),
    };
    let after: i64 = replacements.iter().map(|launch| launch.price.0).sum();
    let savings = crate::resources::MicroUsd(price - after);
    let priced = nodes.iter().all(|node| node.price.is_some());
    if priced && savings.0 < eviction_price(pass, nodes) {
        return Err(StayReason::SavesTooLittle);
    }
    pass.totals.approve(pass.problem, nodes, savings.as_usd()).map_err(StayReason::ScoresTooLow)?;
    Ok(replacements)
}

/// What moving the pods of nodes has to save per hour.
#[expect(clippy::cast_precision_loss, reason = "prices per hour are far below 2^52 millionths")]
#[expect(clippy::cast_possible_truncation, reason = "a cost per pod of 10 at most")]
pub(super) fn eviction_price(pass: &Pass<'_, '_>, nodes: &[&Node]) -> i64 {
    let cost: f64 = nodes.iter().map(|node| node.eviction_cost()).sum();
    (cost * pass.problem.tables.policy.eviction_price.0 as f64).round() as i64
}
