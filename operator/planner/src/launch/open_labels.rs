//! Values for labels that NodePools leave open: `rack Exists`, `rack NotIn [r1]`, `rank Gt 4`.
//!
//! What a machine to come is told then is of no meaning but that no other machine has it: two
//! machines with one value would be one domain to topology rules, and pods that keep off each other
//! by the label, or are spread by it, would be bound as nobody planned. Rules themselves take such
//! machines to have no value that they could plan for ([`machine_specs`](crate::machine_specs)), so
//! a pod that carries one waits for machines that have the label.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::Launch;
use crate::snapshot::{NodePool, Operator, PodShape, Requirement, Snapshot};

/// The range of start values without bounds.
const BEGINNINGS: i128 = 1 << 30;

/// Gives each launch of a plan unique values for the labels that are left open: none that another
/// machine has or a pod refers to. If bounds leave too few integers, the last launches keep their
/// value.
pub(crate) fn tell_apart<'l>(
    snapshot: &Snapshot,
    launches: impl Iterator<Item = &'l mut Launch>,
    seed: u64,
) {
    let mut known: BTreeMap<String, Values> = BTreeMap::new();
    for launch in launches {
        let pool = snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool);
        let Some(pool) = pool else { continue };
        let open: Vec<_> = open(launch, pool).collect();
        for (key, bounds) in open {
            let values =
                known.entry(key.clone()).or_insert_with(|| Values::new(snapshot, &key, seed));
            if let Some(value) = values.next(bounds) {
                launch.labels.insert(key, value.to_string());
            }
        }
    }
}

/// The labels of a launch with an invented value, with the bounds of that value.
fn open(launch: &Launch, pool: &NodePool) -> impl Iterator<Item = (String, (i64, i64))> {
    let made_up = launch.labels.keys().filter(|&key| !pool.template.labels.contains_key(key));
    made_up.filter_map(|key| {
        let mut about = launch.requirements.iter().filter(|need| need.key == *key).peekable();
        about.peek()?;
        let (mut least, mut most) = (0, i64::MAX);
        for need in about {
            let bound = || need.values.first()?.parse::<i64>().ok();
            match need.operator {
                Operator::In | Operator::DoesNotExist => return None,
                Operator::Exists | Operator::NotIn => {}
                Operator::Gt => least = least.max(bound()?.saturating_add(1)),
                Operator::Gte => least = least.max(bound()?),
                Operator::Lt => most = most.min(bound()?.saturating_sub(1)),
                Operator::Lte => most = most.min(bound()?),
            }
        }
        (least <= most).then(|| (key.clone(), (least, most)))
    })
}

/// The values of one label.
struct Values {
    /// Values that are in use.
    taken: BTreeSet<i64>,
    /// The next candidate, by bounds.
    next: BTreeMap<(i64, i64), i128>,
    seed: u64,
}

impl Values {
    fn new(snapshot: &Snapshot, key: &str, seed: u64) -> Self {
        let shapes = snapshot.shapes.iter().map(|shape| &**shape);
        let daemons = snapshot.daemon_sets.iter().map(|daemon| &*daemon.shape);
        let pools = snapshot.node_pools.iter().flat_map(|pool| &pool.template.requirements);
        let asked = shapes.chain(daemons).flat_map(requirements).chain(pools);
        let asked = asked.filter(|need| need.key == key).flat_map(|need| &need.values);
        let had = snapshot.nodes.iter().filter_map(|node| node.labels.get(key));
        let taken = asked.chain(had).filter_map(|value| value.parse().ok()).collect();
        Self { taken, next: BTreeMap::new(), seed }
    }

    /// An unused value within bounds, if there is one.
    fn next(&mut self, (least, most): (i64, i64)) -> Option<i64> {
        let span = i128::from(most) - i128::from(least) + 1;
        // Plans of one snapshot that are made side by side start far from each other.
        let mixed = i128::from(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 34);
        let next = self.next.entry((least, most)).or_insert(mixed % span.min(BEGINNINGS));
        let tries = span.min(self.taken.len() as i128 + 1);
        for _ in 0..tries {
            let value = i64::try_from(i128::from(least) + *next).ok()?;
            *next = (*next + 1) % span;
            if self.taken.insert(value) {
                return Some(value);
            }
        }
        None
    }
}

/// The label values that a pod refers to. Values that it requires are in the launch's own
/// requirements.
fn requirements(shape: &PodShape) -> impl Iterator<Item = &Requirement> {
    let preferred = shape.preferred_affinity.iter().flat_map(|(_, term)| term);
    let terms = shape.required_affinity.iter().chain(&shape.volume_topology);
    terms.flatten().chain(preferred)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_within_bounds_are_used_up() {
        let mut values = Values { taken: BTreeSet::from([5]), next: BTreeMap::new(), seed: 1 };
        let mut found: Vec<_> = (0..3).map(|_| values.next((4, 6))).collect();
        found.sort_unstable();
        assert_eq!(found, [None, Some(4), Some(6)]);
        assert!(values.next((0, i64::MAX)).is_some());
    }

    #[test]
    fn plans_with_different_seeds_start_apart() {
        let first = |seed| {
            Values { taken: BTreeSet::new(), next: BTreeMap::new(), seed }
                .next((0, i64::MAX))
                .expect("there are many integers")
        };
        let mut firsts: Vec<_> = (0..50).map(first).collect();
        firsts.sort_unstable();
        assert!(firsts.windows(2).all(|pair| pair[1] - pair[0] > 10_000), "{firsts:?}");
    }
}
