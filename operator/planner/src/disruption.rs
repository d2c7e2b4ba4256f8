//! Disruption: which nodes go, for what reason, and what replaces them.
//!
//! One pass yields all commands that the budgets allow: empty nodes, drifted ones, and those whose pods run elsewhere or on a cheaper machine. Commands of
//! one plan are independent: a place that one of them takes is gone for the next, and a node that is to receive pods stays.

mod budgets;
mod candidates;
mod consolidation;
mod cost;
mod drift;
mod emptiness;
mod revalidate;

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;
use jiff::Timestamp;

use crate::Cancel;
use crate::compile::Problem;
use crate::launch::pod_ref;
use crate::pack::{Strategy, pack};
use crate::plan::{Candidate, Command, Launch, Method, PLAN_VERSION, Plan, Stay, StayingNode};
use crate::policy::Policy;
use crate::provision::{demands, demands_of, is_currently_reschedulable, nominations};
use crate::resources::MicroUsd;
use crate::snapshot::{DisruptionReason, NodePhase, Snapshot};
use crate::solver::{Demand, Solver};
use budgets::Budgets;
use candidates::Node;

pub use revalidate::revalidate;

/// Plans which nodes to disrupt.
///
/// `cancel` is asked before each node; what is in the plan then is valid, the other nodes were not looked at.
pub fn disrupt(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    seed: u64,
    cancel: &dyn Cancel,
) -> Plan {
    let problem = Problem::new(snapshot, policy);
    let mut pass = Pass::new(&problem, now, seed);
    let nodes = candidates::find(&mut pass);
    emptiness::plan(&mut pass, &nodes);
    drift::plan(&mut pass, &nodes, cancel);
    consolidation::plan(&mut pass, &nodes, cancel);
    pass.into_plan(cancel)
}

/// One disruption pass.
struct Pass<'p, 'a> {
    problem: &'p Problem<'a>,
    solver: Solver<'p, 'a>,
    budgets: Budgets,
    now: Timestamp,
    seed: u64,
    commands: Vec<Command>,
    /// Why nodes stay, by index.
    stays: BTreeMap<usize, Stay>,
    /// Nodes that get pods, from this plan or because pods are waiting for a place.
    receiving: FixedBitSet,
    /// Nodes whose pods have only just settled: nothing is consolidated onto them.
    settling: FixedBitSet,
    /// Topology rules that have to do with pods which a command of this plan moves.
    touched: FixedBitSet,
}

/// Where the pods of candidates go.
struct Moves {
    /// Pods and machines from this index of [`Solver::placed`] on.
    from: usize,
    /// How many machines have to be launched; they are in [`Solver::claims`].
    new_machines: usize,
    /// How things were before.
    saved: Saved,
}

/// What a failed attempt puts back.
struct Saved {
    limits: crate::limits::Limits,
    counts: crate::topology::Counts,
}

impl<'p, 'a> Pass<'p, 'a> {
    fn new(problem: &'p Problem<'a>, now: Timestamp, seed: u64) -> Self {
        let n = problem.snapshot.nodes.len();
        let mut pass = Self {
            problem,
            solver: Solver::new(problem),
            budgets: Budgets::new(problem.snapshot),
            now,
            seed,
            commands: Vec::new(),
            stays: BTreeMap::new(),
            receiving: FixedBitSet::with_capacity(n),
            settling: FixedBitSet::with_capacity(n),
            touched: FixedBitSet::with_capacity(problem.rules.len()),
        };
        pass.mark_settling();
        pass.place_waiting();
        pass
    }

    /// Consolidating onto a node restarts its `consolidateAfter`; until that has passed it takes nothing.
    fn mark_settling(&mut self) {
        for (index, node) in self.problem.snapshot.nodes.iter().enumerate() {
            let Some(claim) = &node.claim else { continue };
            let after = claim.node_pool.as_deref().and_then(|name| {
                let pools = &self.problem.snapshot.node_pools;
                pools.iter().find(|pool| pool.name == name)?.disruption.consolidate_after
            });
            let waits = after.is_some_and(|after| after.is_positive());
            self.settling.set(
                index,
                waits && claim.consolidatable.is_none() && node.phase == NodePhase::Initialized,
            );
        }
    }

    /// Pods that wait for a place come first: what they take is not there for others. What they need beyond is provisioning's business.
    fn place_waiting(&mut self) {
        let (mut waiting, _) = demands(self.problem, |_| true);
        for demand in &mut waiting {
            for (variant, dropped) in crate::ruled::alternatives(self.problem, demand.shape) {
                (demand.variant, demand.dropped) = (variant, dropped);
                self.solver.place_on_machines(demand, |_| true);
            }
        }
        for &(_, machine) in &self.solver.placed {
            self.receiving.insert(machine);
        }
    }

    /// Tries to move the pods of nodes that would go. On failure nothing has changed.
    fn try_moving(
        &mut self,
        nodes: &[&Node],
        strategy: Strategy,
        guard: bool,
        cancel: &dyn Cancel,
    ) -> Result<Moves, Stay> {
        let problem = self.problem;
        let snapshot = problem.snapshot;
        let from = self.solver.placed.len();
        let saved =
            Saved { limits: self.solver.limits.clone(), counts: self.solver.counts.clone() };
        let pods = nodes
            .iter()
            .flat_map(|node| node.pods.iter().copied())
            .filter(|&pod| is_currently_reschedulable(&snapshot.pods[pod]));
        let (mut demands, rejected) = demands_of(problem, pods);
        if let Some((pod, _)) = rejected.first() {
            return Err(Stay::PodsDontFit(pod_ref(&snapshot.pods[*pod])));
        }
        // What one command does for a rule another can't rely on, nor may it undo it.
        let rules = &problem.rules;
        let shape_of = |demand: &Demand| demand.shape;
        if demands
            .iter()
            .map(shape_of)
            .any(|shape| rules.of(shape).any(|group| self.touched[group]))
        {
            return Err(Stay::Later);
        }
        for node in nodes {
            self.close(node);
        }
        let settling = &self.settling;
        let open = |machine: usize| !(guard && settling[machine]);
        let waiting = pack(&mut self.solver, &mut demands, strategy, &open, cancel);
        let unplaced = demands.iter().find(|demand| demand.left() > 0);
        let failure = if let Some(demand) = unplaced {
            let _ = waiting;
            Some(Stay::PodsDontFit(pod_ref(&snapshot.pods[first_left(demand)])))
        } else {
            self.solver.placed[from..]
                .iter()
                .find(|&&(_, machine)| snapshot.nodes[machine].phase != NodePhase::Initialized)
                .map(|&(pod, _)| Stay::WaitsForMachine(pod_ref(&snapshot.pods[pod])))
        };
        let moves = Moves { from, new_machines: self.solver.claims.len(), saved };
        match failure {
            None => Ok(moves),
            Some(stay) => {
                self.take_back(nodes, moves);
                Err(stay)
            }
        }
    }

    fn take_back(&mut self, nodes: &[&Node], moves: Moves) {
        self.solver.undo(moves.from);
        self.solver.claims.clear();
        self.solver.limits = moves.saved.limits;
        self.solver.counts = moves.saved.counts;
        for node in nodes {
            self.solver.closed.set(node.index, false);
        }
    }

    /// Makes moves a command.
    fn decide(
        &mut self,
        nodes: &[&Node],
        from: usize,
        replacements: Vec<Launch>,
        reason: DisruptionReason,
        method: Method,
    ) {
        let snapshot = self.problem.snapshot;
        let placed = &self.solver.placed[from..];
        for &(_, machine) in placed {
            self.receiving.insert(machine);
        }
        let before: MicroUsd = nodes.iter().filter_map(|node| node.price).sum();
        let after: MicroUsd = replacements.iter().map(|launch| launch.price).sum();
        let mut candidates: Vec<_> = nodes.iter().map(|node| self.candidate(node)).collect();
        candidates.sort_by(|a, b| a.node.cmp(&b.node));
        self.commands.push(Command {
            reason,
            method,
            candidates,
            replacements,
            nominations: nominations(snapshot, placed),
            savings: MicroUsd(before.0 - after.0),
        });
        self.solver.claims.clear();
        for node in nodes {
            self.budgets.take(node.pool);
            for &pod in &node.pods {
                let shape = snapshot.pods[pod].shape.0 as usize;
                self.touched.extend(self.problem.rules.of(shape));
            }
            // Another command may be carried out before this one: until then the pods are where they were.
            self.count(node, 1);
        }
    }

    /// Takes a node out: it takes no pods, and its own don't count any more.
    fn close(&mut self, node: &Node) {
        self.solver.closed.insert(node.index);
        self.count(node, -1);
    }

    fn count(&mut self, node: &Node, by: i32) {
        for &pod in &self.problem.pods_on[node.index] {
            let pod = &self.problem.snapshot.pods[pod];
            if !pod.terminating {
                let shape = pod.shape.0 as usize;
                self.solver.counts.add_on_machine(self.problem, shape, node.index, by);
            }
        }
    }

    fn candidate(&self, node: &Node) -> Candidate {
        let snapshot = self.problem.snapshot;
        let source = &snapshot.nodes[node.index];
        let claim = source.claim.as_ref().expect("candidates have a claim");
        let mut pods: Vec<_> = node.pods.iter().map(|&pod| pod_ref(&snapshot.pods[pod])).collect();
        pods.sort_unstable();
        Candidate {
            node: source.key.clone(),
            claim: claim.name.clone(),
            node_pool: snapshot.node_pools[node.pool].name.clone(),
            pods,
            price: node.price,
        }
    }

    /// Whether a command has the node already.
    fn is_going(&self, node: &Node) -> bool {
        self.solver.closed[node.index]
    }

    /// Notes why a node stays; of several reasons the last one counts, that of the method that came closest to disrupting it.
    fn stay(&mut self, node: usize, reason: Stay) {
        self.stays.insert(node, reason);
    }

    fn into_plan(self, cancel: &dyn Cancel) -> Plan {
        let snapshot = self.problem.snapshot;
        let mut plan = Plan { version: PLAN_VERSION, commands: self.commands, ..Plan::default() };
        plan.report.cancelled = cancel.is_cancelled();
        plan.report.nodes = self
            .stays
            .into_iter()
            .filter(|(index, _)| !self.solver.closed[*index])
            .map(|(index, reason)| StayingNode { node: snapshot.nodes[index].key.clone(), reason })
            .collect();
        plan.report.node_pools.clone_from(&self.problem.skipped);
        plan.report.node_pools.sort_by(|a, b| a.name.cmp(&b.name));
        plan
    }
}

fn first_left(demand: &Demand) -> usize {
    demand.pods[demand.next]
}
