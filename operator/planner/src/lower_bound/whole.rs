//! What whole pods take of a machine.
//!
//! A pod of just over half a machine leaves room that no second one fits into. Pieces of pods don't
//! show that; counts do. Let a pod take the share `s` of a machine's processors or memory, and
//! count as the largest integer below `(k + 1) s`. Pods that fit have shares of at most 1 together,
//! so their counts are less than `k + 1` together and, as integers, at most `k`. A count over `k`
//! is thus a share of something that a machine has once, for every `k`: with `k = 1` of two pods of
//! more than half a machine each takes all of it, with `k = 2` of three pods of more than a third
//! each takes half.
//!
//! The same holds for a machine that exists, whatever its size: its pods count together no more
//! than one pod that fills it.

use crate::dual::{Item, Kind};

/// So many counts of each resource of a type have a part of its price.
pub(super) const COUNTS: usize = 4;

/// The counts that are looked at are over up to so many.
const MOST: u8 = 15;

/// What is counted on a type: for processors and memory, over how many. Zero where there is nothing
/// to count.
pub(super) type Over = [[u8; COUNTS]; 2];

/// What a pod with a request counts where there is so much, as a share of what all pods may.
pub(super) fn counted(over: u8, request: f64, room: f64) -> f64 {
    if over == 0 {
        return 0.0;
    }
    let over = f64::from(over);
    // Amounts are integers, and far fewer than 2^49 bytes, so that nothing is rounded upwards.
    (((over + 1.0) * request - 1.0) / room).floor().max(0.0) / over
}

/// The counts of each type that add most to what its pods take.
pub(super) fn counts(kinds: &[Kind], items: &[Item]) -> Vec<Over> {
    let mut on: Vec<Vec<&Item>> = vec![Vec::new(); kinds.len()];
    for item in items {
        for &kind in &item.kinds {
            on[kind].push(item);
        }
    }
    let of = |(kind, items): (&Kind, &Vec<&Item>)| [0, 1].map(|at| best(kind.room[at], items, at));
    kinds.iter().zip(&on).map(of).collect()
}

fn best(room: f64, items: &[&Item], at: usize) -> [u8; COUNTS] {
    let all = |over: u8| -> f64 {
        items.iter().map(|item| item.pods * counted(over, item.requests[at], room)).sum()
    };
    let mut ranked: Vec<(f64, u8)> = (1..=MOST).map(|over| (all(over), over)).collect();
    ranked.retain(|&(counted, _)| counted > 0.0);
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut best = [0; COUNTS];
    for (to, (_, over)) in best.iter_mut().zip(ranked) {
        *to = over;
    }
    best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pods_that_fit_never_count_more_than_a_machine(
            pods in prop::collection::vec(1..400_u32, 1..12),
            spare in 0..3_u32,
            over in 0..=MOST,
        ) {
            let room = f64::from(pods.iter().sum::<u32>() + spare);
            let together: f64 = pods.iter().map(|&pod| counted(over, f64::from(pod), room)).sum();
            prop_assert!(together <= 1.0 + 1e-12, "{together}");
        }

        #[test]
        fn pods_on_a_machine_never_count_more_than_one_that_fills_it(
            pods in prop::collection::vec(1..400_u32, 1..12),
            room in 1..9_000_u32,
            over in 1..=MOST,
        ) {
            let count = |pod: u32| counted(over, f64::from(pod), f64::from(room));
            let together: f64 = pods.iter().map(|&pod| count(pod)).sum();
            prop_assert!(together <= count(pods.iter().sum()) + 1e-12, "{together}");
        }
    }

    #[test]
    fn a_pod_of_more_than_half_a_machine_takes_all_of_it() {
        let counts = [50.0, 51.0, 100.0].map(|request| counted(1, request, 100.0));
        assert_eq!(counts.map(f64::to_bits), [0.0, 1.0, 1.0].map(f64::to_bits));
        assert!((counted(2, 34.0, 100.0) - 0.5).abs() < 1e-12);
    }
}
