//! Nodes that are as good as a machine which has to be launched for pods that wait. Provisioning
//! launches it at the same time, so as long as it does no such node goes for being one too many.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use super::candidates::Node;
use crate::demands::{Demand, LaunchOption};
use crate::provision::best;
use crate::solver::Solver;
use crate::tables::{add_times, fits};

/// How many different machines to come are compared with the nodes, the largest first.
const MACHINES: usize = 64;

/// Machines that provisioning will launch.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Indices of [`crate::Snapshot::pods`]: those that they are launched for.
    pub(super) pods: Vec<usize>,
    /// What the pods of one ask for, their shapes, and what it costs at least.
    machines: Vec<(Vec<i64>, Vec<usize>, i64)>,
}

impl Wanted {
    /// For pods that find no place on machines that exist.
    pub(super) fn new(solver: &Solver<'_, '_>, waiting: Vec<Demand>) -> Self {
        let problem = solver.problem;
        let real = |demand: &Demand| demand.left() > 0 && !demand.is_virtual(problem);
        let mut left: Vec<Demand> = waiting.into_iter().filter(real).collect();
        if left.is_empty() {
            return Self::default();
        }
        for demand in &mut left {
            (demand.variant, demand.dropped, demand.launch_option) = (0, 0, LaunchOption::Unknown);
        }
        // As provisioning packs them: machines that pods might share are others than those that
        // they get.
        let trial = best(solver, &left, &()).solver;
        let mut pods = Vec::new();
        let mut machines: BTreeMap<(Vec<i64>, Vec<usize>), i64> = BTreeMap::new();
        for claim in &trial.claims {
            let shape = |&pod: &usize| problem.tables.snapshot.pods[pod].shape.0 as usize;
            let mut shapes: Vec<usize> = claim.pods.iter().map(shape).collect();
            shapes.sort_unstable();
            shapes.dedup();
            let spec = &trial.specs[claim.spec];
            let price = spec.cheapest(&claim.types).map_or(0, |kind| spec.price(kind));
            machines.insert((claim.used.clone(), shapes), price);
            pods.extend_from_slice(&claim.pods);
        }
        let largest = machines.into_iter().rev().take(MACHINES);
        Self {
            pods,
            machines: largest.map(|((used, shapes), price)| (used, shapes, price)).collect(),
        }
    }

    /// By index, the nodes that could be one of the machines once their own pods have left, and
    /// cost no more.
    pub(super) fn held(&self, solver: &mut Solver<'_, '_>, nodes: &[Node]) -> FixedBitSet {
        let problem = solver.problem;
        let mut held = FixedBitSet::with_capacity(problem.tables.snapshot.nodes.len());
        if self.machines.is_empty() {
            return held;
        }
        for node in nodes {
            let mut room = solver.room_of(node.index).to_vec();
            for &pod in &node.pods {
                let shape = problem.tables.snapshot.pods[pod].shape.0 as usize;
                add_times(&mut room, &problem.tables.shapes[shape].requests, 1);
            }
            let price = node.price.unwrap_or_default().0;
            held.set(
                node.index,
                self.machines.iter().any(|(used, shapes, least)| {
                    price <= *least
                        && fits(used, &room)
                        && shapes.iter().all(|&shape| takes(solver, node.index, shape))
                }),
            );
        }
        held
    }
}

/// Whether a machine takes pods of a shape as far as labels, taints and ports go.
fn takes(solver: &mut Solver<'_, '_>, machine: usize, shape: usize) -> bool {
    let problem = solver.problem;
    // What a pod only prefers keeps it from nowhere.
    let mut variants =
        problem.tables.classes[problem.tables.shapes[shape].class].variants.relaxed();
    variants.any(|variant| solver.may_take(machine, shape, variant))
}
