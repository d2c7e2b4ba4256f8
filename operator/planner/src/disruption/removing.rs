//! Nodes that go without anything coming in their place: which of them go together.
//!
//! How many may go depends on their pods' sizes. kube-scheduler fills the emptiest machines first,
//! so that what is left over is spread evenly and thinly, and a large pod that comes late finds no
//! machine with enough of it. The nodes that save most per disruption have few and large pods, so
//! that going by that alone ends early. So other selections are tried as well, in which nodes with
//! small pods come first, and what saves most in all happens.

use fixedbitset::FixedBitSet;
use rayon::prelude::*;

use super::Pass;
use super::attempt::{Aim, Patience, eviction_price, interleaved};
use super::candidates::Node;
use super::rehearsal::Stage;
use super::small_wave::SmallWave;
use crate::plan::StayReason;

/// How many sizes of pods are tried as the border between nodes that come first and the others.
const BORDERS: usize = 8;

/// Times nodes: in large clusters fewer, so that a pass does not take several times as long.
const BORDERS_TIMES_NODES: usize = 20_000;

/// What comes of removing nodes in a certain order.
struct Attempt<'n, 'p, 'a> {
    pass: Pass<'p, 'a>,
    /// Nodes that go, in that order.
    gone: Vec<&'n Node>,
    /// Nodes that would be too much.
    left_out: FixedBitSet,
    /// What it saves per hour, less what its evictions have to save at least.
    worth: i64,
    /// Whether room was what kept other nodes from going.
    lacks_room: bool,
}

/// Removes as many nodes as leave a place for everybody. Answers which ones would be too much.
pub(super) fn plan(
    pass: &mut Pass<'_, '_>,
    going: &[&Node],
    small_wave: SmallWave,
    patience: &mut Patience<'_>,
) -> FixedBitSet {
    if going.is_empty() {
        return FixedBitSet::with_capacity(pass.problem.tables.snapshot.nodes.len());
    }
    let mut best = Attempt::new(pass, &interleaved(going), 0, patience);
    if best.lacks_room && !patience.is_cancelled() {
        let attempts: Vec<Attempt<'_, '_, '_>> = with_small_pods_first(pass, going)
            .par_iter()
            .map(|order| Attempt::new(pass, order, 0, &mut patience.afresh()))
            .collect();
        for attempt in attempts {
            if attempt.worth > best.worth {
                best = attempt;
            }
        }
    }
    let room_for = small_wave.room_for(best.gone.len());
    if best.lacks_room && room_for > 0 {
        let mut left_out = best.left_out;
        best = Attempt::new(pass, &best.gone, room_for, &mut patience.afresh());
        left_out.union_with(&best.left_out);
        best.left_out = left_out;
    }
    *pass = best.pass;
    best.left_out
}

impl<'n, 'p, 'a> Attempt<'n, 'p, 'a> {
    /// With room left for so much ([`SmallWave::room_for`]).
    fn new(
        pass: &Pass<'p, 'a>,
        order: &[&'n Node],
        room_for: u64,
        patience: &mut Patience<'_>,
    ) -> Self {
        let mut pass = pass.clone();
        let mut stage = Stage::new(&pass, room_for);
        let mut lacks_room = false;
        for &node in order {
            if patience.is_over() {
                break;
            }
            // Of some the room that they counted on went to others.
            if let Err(stay) = stage.try_act(&[node], Aim::Delete) {
                lacks_room |= !matches!(stay, StayReason::Budget(_) | StayReason::PdbUsedUp { .. });
            }
        }
        let left_out = stage.perform(&mut pass);
        lacks_room |= !left_out.is_clear();
        let gone: Vec<&Node> = order.iter().copied().filter(|node| pass.is_going(node)).collect();
        let worth = |node: &Node| node.price.unwrap_or_default().0 - eviction_price(&pass, &[node]);
        let worth = gone.iter().map(|node| worth(node)).sum();
        Self { pass, gone, left_out, worth, lacks_room }
    }
}

/// Orders in which nodes come first whose pods are all below some size.
fn with_small_pods_first<'n>(pass: &Pass<'_, '_>, nodes: &[&'n Node]) -> Vec<Vec<&'n Node>> {
    let largest = |node: &Node| node.pods.iter().map(|&pod| pass.size(pod)).max().unwrap_or(0);
    let mut sizes: Vec<u64> = nodes.iter().map(|node| largest(node)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let most =
        (BORDERS_TIMES_NODES / pass.problem.tables.snapshot.nodes.len().max(1)).clamp(1, BORDERS);
    let step = |border: usize| sizes[sizes.len() * border / (most + 1)];
    let mut borders: Vec<u64> = (1..=most).map(step).collect();
    borders.dedup();
    // That all come first is no order of its own.
    borders.retain(|border| sizes.last() != Some(border));
    let order = |border: u64| {
        let mut order = interleaved(nodes);
        order.sort_by_key(|node| largest(node) > border);
        order
    };
    borders.into_iter().map(order).collect()
}
