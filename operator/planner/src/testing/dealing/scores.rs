//! kube-scheduler's scores of the nodes that pass its filters.

use std::collections::BTreeMap;

use super::super::mixes::{HOSTNAME, ZONE};
use super::{Machine, Scheduler};
use crate::snapshot::PodShape;

/// What a container without requests counts for: a tenth of a CPU, 200 MB.
const DEFAULTS: [i64; 2] = [100, 200 << 20];

/// The highest score.
const MAX: i64 = 100;

/// The weight of PodTopologySpread.
const SPREAD: i64 = 2;

/// `defaultConstraints`: topology key and skew.
const CONSTRAINTS: [(&str, i64); 2] = [(HOSTNAME, 3), (ZONE, 5)];

/// CPU and memory as LeastAllocated counts them.
pub(super) fn counted(pod: &PodShape) -> [i64; 2] {
    let some = |amount: i64, default: i64| if amount == 0 { default } else { amount };
    [some(pod.requests.cpu, DEFAULTS[0]), some(pod.requests.memory, DEFAULTS[1])]
}

/// By feasible machine, the sum of all plugins.
pub(super) fn score(
    scheduler: Scheduler,
    pod: &PodShape,
    shape: usize,
    feasible: &[usize],
    machines: &[Machine],
) -> Vec<i64> {
    let mut scores: Vec<i64> = feasible
        .iter()
        .map(|&machine| {
            let machine = &machines[machine];
            least_allocated(pod, machine) + balanced(scheduler, pod, machine)
        })
        .collect();
    if scheduler.has_workloads && pod.topology_spread.is_empty() {
        for (score, spread) in scores.iter_mut().zip(spread(shape, feasible, machines)) {
            *score += SPREAD * spread;
        }
    }
    scores
}

fn least_allocated(pod: &PodShape, machine: &Machine) -> i64 {
    let all = [machine.node.allocatable.cpu, machine.node.allocatable.memory];
    let mine = counted(pod);
    let left = |at: usize| match all[at] - machine.counted[at] - mine[at] {
        left if left > 0 => left * MAX / all[at],
        _ => 0,
    };
    i64::midpoint(left(0), left(1))
}

/// BalancedAllocation goes by requests as they are.
fn balanced(scheduler: Scheduler, pod: &PodShape, machine: &Machine) -> i64 {
    if pod.requests.cpu == 0 && pod.requests.memory == 0 {
        return 0;
    }
    let (all, used) = (&machine.node.allocatable, &machine.used);
    let then = level([used.cpu + pod.requests.cpu, used.memory + pod.requests.memory], all);
    if !scheduler.scores_change {
        return then;
    }
    let now = level([used.cpu, used.memory], all);
    MAX / 2 + (MAX / 2 + then - now) / 2
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "as kube-scheduler does it"
)]
fn level(used: [i64; 2], all: &crate::resources::Resources) -> i64 {
    let all = [all.cpu, all.memory];
    let share = |at: usize| (used[at] as f64 / all[at].max(1) as f64).min(1.0);
    ((1.0 - ((share(0) - share(1)) / 2.0).abs()) * MAX as f64) as i64
}

/// PodTopologySpread with its default constraints for the pods of one Deployment.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "as kube-scheduler does it"
)]
fn spread(shape: usize, feasible: &[usize], machines: &[Machine]) -> Vec<i64> {
    let on = |machine: &Machine| machine.pods.get(&shape).copied().unwrap_or(0);
    let zone = |machine: &Machine| machine.node.labels.get(ZONE).cloned();
    let mut zones: BTreeMap<Option<String>, usize> =
        feasible.iter().map(|&it| (zone(&machines[it]), 0)).collect();
    for machine in machines {
        if let Some(count) = zones.get_mut(&zone(machine)) {
            *count += on(machine);
        }
    }
    let weight = |domains: usize| (domains as f64 + 2.0).ln();
    let raw: Vec<i64> = feasible
        .iter()
        .map(|&it| {
            let machine = &machines[it];
            let mut score = 0.0;
            for (key, skew) in CONSTRAINTS {
                let (count, domains) = match key {
                    HOSTNAME => (on(machine), feasible.len()),
                    _ => (zones[&zone(machine)], zones.len()),
                };
                score += count as f64 * weight(domains) + (skew - 1) as f64;
            }
            score.round() as i64
        })
        .collect();
    let (least, most) = (raw.iter().min().copied(), raw.iter().max().copied());
    let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
    let normal = |score: i64| if most == 0 { MAX } else { MAX * (most + least - score) / most };
    raw.into_iter().map(normal).collect()
}
