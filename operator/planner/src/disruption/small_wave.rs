//! When little can still be done because room is short, nothing is done.
//!
//! After a scale-in each wave of evictions leaves gaps into which a node or two of a hundred would
//! fit, and so does the next one. What such a wave saves is a hundredth of the price; it evicts
//! pods, and takes the room that the next pod would have had. So where room decides how many nodes
//! go, and those are few of many, they go only if there is room for many more pods like theirs. A
//! node that can go where no other one wants to is no such case, nor is one that is emptier than
//! most, nor any in a small cluster.

use std::collections::BTreeSet;

use super::Pass;
use super::candidates::Node;
use crate::solver::Solver;

/// Where few nodes go there has to be room for so many times what few nodes hold.
const TIMES: u64 = 2;

/// A node with so much of its CPU and memory left, in millionths of each, is worth its evictions in
/// any case: half of one, or a quarter of both.
const EMPTY: u64 = 500_000;

/// What [`Pass::size`] is for all CPU and memory together.
const EVERYTHING: u64 = 2_000_000_000;

/// How many nodes are few, and what they have to leave room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallWave {
    nodes: usize,
    /// In the units of [`Pass::size`].
    room_for: u64,
}

impl SmallWave {
    /// Of the NodePools that some nodes belong to.
    pub(super) fn new<'n>(pass: &Pass<'_, '_>, nodes: impl Iterator<Item = &'n Node>) -> Self {
        let snapshot = pass.problem.tables.snapshot;
        let pools: BTreeSet<&str> =
            nodes.map(|node| snapshot.node_pools[node.pool].name.as_str()).collect();
        let claims = snapshot.nodes.iter().filter_map(|node| node.claim.as_ref());
        let pool = claims.filter_map(|claim| claim.node_pool.as_deref());
        let all = pool.filter(|pool| pools.contains(pool)).count();
        let few = all * usize::from(pass.problem.tables.policy.few_nodes);
        let one = EVERYTHING / (snapshot.nodes.len() as u64).max(1);
        Self { nodes: few / 100, room_for: TIMES * few as u64 * one / 100 }
    }

    /// For how much there has to be room when so many nodes go; for no more than their pods where
    /// it is 0.
    pub(super) fn room_for(self, going: usize) -> u64 {
        if (1..=self.nodes).contains(&going) { self.room_for } else { 0 }
    }
}

/// Whether a node has as little left as others.
pub(super) fn is_well_filled(pass: &Pass<'_, '_>, node: &Node) -> bool {
    left_of(&pass.solver, node.index) < EMPTY
}

/// What share of its CPU and memory, the first two columns, a machine that exists has left, in
/// millionths of each.
pub(super) fn left_of(solver: &Solver<'_, '_>, machine: usize) -> u64 {
    let problem = solver.problem;
    let room = solver.room_of(machine);
    let all = &problem.tables.snapshot.nodes[machine].allocatable;
    share(room[0], all.cpu) + share(room[1], all.memory)
}

/// A share in millionths.
pub(super) fn share(left: i64, all: i64) -> u64 {
    parts(left, all, 1_000_000)
}

/// An amount as a number of so many parts of `all`, rounded down. Two such numbers have a sum.
pub(super) fn parts(amount: i64, all: i64, parts: i64) -> u64 {
    let (amount, all) = (amount.max(0), all.max(1));
    // Nearly always; a division of 128 bits takes ten times as long.
    if let Some(product) = amount.checked_mul(parts) {
        return (product / all).unsigned_abs();
    }
    let quotient = i128::from(amount) * i128::from(parts) / i128::from(all);
    u64::try_from(quotient).map_or(u64::MAX / 2, |parts| parts.min(u64::MAX / 2))
}
