//! The pods that need a place, grouped by shape, in the order of packing.

use std::collections::BTreeMap;

use crate::compile::Problem;
use crate::machine_specs::SpecId;
use crate::plan::Exclusion;
use crate::snapshot::{Placement, Pod};

/// The template and spec in which a demand opens machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchOption {
    /// Not determined yet.
    Unknown,
    /// No template admits it.
    Infeasible,
    /// Of this template, with this spec.
    Feasible(usize, SpecId),
}

/// Pods of one shape that need a place.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) shape: usize,
    /// Indices of [`crate::Snapshot::pods`]; those from `next` on have none yet.
    pub(crate) pods: Vec<usize>,
    pub(crate) next: usize,
    /// The alternative that is being tried.
    pub(crate) variant: usize,
    /// The number of its preferences about other pods that are dropped.
    pub(crate) dropped: usize,
    /// The value of a place for one of them, in micro-dollars: its cost on the types where it is
    /// cheapest. `None` until it is needed.
    pub(crate) value: Option<f64>,
    /// Where it opens machines.
    pub(crate) launch_option: LaunchOption,
}

impl Demand {
    /// The number of pods without a place.
    pub(crate) fn left(&self) -> usize {
        self.pods.len() - self.next
    }

    /// Whether its pods are virtual pods of a CapacityBuffer.
    pub(crate) fn is_virtual(&self, problem: &Problem<'_>) -> bool {
        self.pods.first().is_some_and(|&pod| problem.tables.snapshot.pods[pod].buffer.is_some())
    }

    /// Removes the next pods from those that need a place.
    pub(crate) fn take(&mut self, n: usize) -> &[usize] {
        let from = self.next;
        self.next += n;
        &self.pods[from..self.next]
    }
}

/// Pods that need a place, by shape and in the order of packing, without those that can't be
/// planned for; these with the reason.
pub(crate) fn demands(
    problem: &Problem<'_>,
    wanted: impl Fn(usize) -> bool,
) -> (Vec<Demand>, Vec<(usize, Exclusion)>) {
    let snapshot = problem.tables.snapshot;
    let moves = |pod: &Pod| match pod.placement {
        Placement::Unschedulable => !pod.daemon && !pod.mirror && !pod.terminating,
        Placement::Waiting => false,
        Placement::Bound(_) => pod.is_currently_reschedulable(),
    };
    let pods = problem.tables.restless.iter().copied().filter(|&pod| moves(&snapshot.pods[pod]));
    demands_of(problem, pods.filter(|&index| wanted(index)))
}

/// The same for given pods.
pub(crate) fn demands_of(
    problem: &Problem<'_>,
    pods: impl Iterator<Item = usize>,
) -> (Vec<Demand>, Vec<(usize, Exclusion)>) {
    let snapshot = problem.tables.snapshot;
    // Virtual pods are demands of their own, after those of pods that there are.
    let mut by_shape: BTreeMap<(bool, u32, Vec<u32>), Vec<usize>> = BTreeMap::new();
    let mut rejected = Vec::new();
    for index in pods {
        let pod = &snapshot.pods[index];
        let shape = &problem.tables.shapes[pod.shape.0 as usize];
        if shape.opted_out {
            continue;
        }
        let why = pod.problem.clone().map(Exclusion::Pod);
        let claims = pod.claims.len() == snapshot.shapes[pod.shape.0 as usize].device_claims.len()
            && (problem.devices.is_some() || !shape.has_claims);
        let unknown = || Some(Exclusion::Pod("its resource claims are not there".to_owned()));
        let why = why.or_else(|| if claims { None } else { unknown() });
        match why.or_else(|| shape.problem.clone()) {
            Some(reason) => rejected.push((index, reason)),
            None => {
                // Claims that pods share, or that are allocated, decide where a pod may be: no
                // other pod is like it.
                let devices = problem.devices.as_deref();
                let own = devices.map(|devices| devices.singular_claims(pod)).unwrap_or_default();
                by_shape.entry((pod.buffer.is_some(), pod.shape.0, own)).or_default().push(index);
            }
        }
    }
    let mut demands: Vec<Demand> = by_shape
        .into_iter()
        .map(|((_, shape, _), mut pods)| {
            pods.sort_by_key(|&pod| (snapshot.pods[pod].created_at, &snapshot.pods[pod].uid));
            Demand {
                shape: shape as usize,
                pods,
                next: 0,
                variant: 0,
                dropped: 0,
                value: None,
                launch_option: LaunchOption::Unknown,
            }
        })
        .collect();
    // Karpenter's queue: the largest first, then the oldest.
    demands.sort_by_key(|demand| {
        let requests = &problem.tables.shapes[demand.shape].requests;
        let first = &snapshot.pods[demand.pods[0]];
        let size = std::cmp::Reverse((requests[0], requests[1]));
        (first.buffer.is_some(), size, first.created_at, &first.uid)
    });
    (demands, rejected)
}
