//! Where hosts hold only so many pods of a group: of pods that keep off each other's hosts every
//! machine has one place, like a resource of which it has one unit.

use crate::compile::Problem;
use crate::dual::Item;

/// So many groups are looked at, those with the most pods.
const GROUPS: usize = 64;

/// The places that pods take on hosts.
#[derive(Debug)]
pub(super) struct Places {
    /// By item: groups, and what part of a host's places one pod takes.
    pub(super) items: Vec<Vec<(usize, f64)>>,
    pub(super) groups: usize,
}

impl Places {
    /// The places that the items' pods take, item by item in the order of `shapes`.
    pub(super) fn of(problem: &Problem<'_>, shapes: &[usize], items: &[Item]) -> Self {
        let limits: Vec<_> =
            shapes.iter().map(|&shape| problem.rules.limits_on_hosts(shape)).collect();
        let mut pods = std::collections::BTreeMap::new();
        for (limits, item) in limits.iter().zip(items) {
            for &(group, most) in limits {
                *pods.entry(group).or_insert(0.0) += item.pods / most;
            }
        }
        let mut ranked: Vec<(usize, f64)> = pods.into_iter().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.truncate(GROUPS);
        let known = |group: usize| ranked.iter().position(|&(it, _)| it == group);
        let taken = |limits: Vec<(usize, f64)>| {
            let known = limits.iter().filter_map(|&(it, most)| Some((known(it)?, 1.0 / most)));
            known.collect()
        };
        Self { items: limits.into_iter().map(taken).collect(), groups: ranked.len() }
    }
}
