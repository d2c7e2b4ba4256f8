//! Disruption: which nodes go, for what reason, and what replaces them.
//!
//! One pass yields all commands that the budgets allow: empty nodes, drifted ones, and those whose
//! pods run elsewhere or on a cheaper machine. Commands of one plan are independent: a place that
//! one of them takes is gone for the next, and a node that is to receive pods stays.

mod attempt;
mod balanced;
mod budgets;
mod candidates;
mod consolidation;
mod cost;
mod deletion_costs;
mod drift;
mod emptiness;
mod evaluation;
mod merging;
mod pod_size;
mod price_floor;
mod rehearsal;
mod removing;
mod repair;
mod replacement;
mod replicas;
mod rescheduling;
mod revalidate;
mod small_wave;
mod static_capacity;
mod terminate_first;
mod wanted;

use std::collections::BTreeMap;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use jiff::Timestamp;
use rustc_hash::FxHashMap;

use crate::Cancel;
use crate::compile::Problem;
use crate::demands::demands;
use crate::launch::{pod_ref, tell_apart};
use crate::plan::{
    Candidate, Command, Launch, Method, PLAN_VERSION, Plan, Resume, StayReason, StayingNode,
};
use crate::policy::Policy;
use crate::provision::nominations;
use crate::reservations::Reservations;
use crate::resources::MicroUsd;
use crate::snapshot::{DisruptionReason, NodePhase, Placement, Snapshot};
use crate::solver::{PlacedPod, Solver};
use crate::topology::Counts;
use balanced::Totals;
use budgets::Budgets;
use candidates::{Node, receivers};
use pod_size::capacity;
use price_floor::PriceFloor;
use rehearsal::{Arrival, Evicted};
use rescheduling::Moves;
use wanted::Wanted;

pub use budgets::{BudgetUse, budget_uses};
pub use deletion_costs::{DeletionCost, PresentCost, deletion_costs};
pub use rehearsal::size_class;
pub use replicas::replicas;
#[cfg(test)]
pub(crate) use revalidate::begun;
pub use revalidate::{revalidate, revalidate_all};

/// Plans which nodes to disrupt.
///
/// `cancel` is asked between nodes. What is in the plan when it says so is valid;
/// [`crate::plan::Report::resume`] then tells where the next pass has to go on ([`Policy::resume`])
/// so that every node has its turn. Each pass looks at one node at least.
pub fn disrupt(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    seed: u64,
    cancel: &dyn Cancel,
) -> Plan {
    let overlaid = crate::overlays::apply(snapshot);
    let snapshot = &*overlaid.snapshot;
    let (problem, candidates) = prepare(snapshot, policy, now);
    let (mut pass, mut nodes) = Pass::new(&problem, candidates, now);
    for (index, stay) in candidates::stays(&pass) {
        pass.stay(index, stay);
    }
    let mut slots = static_capacity::Slots::default();
    let (repair, resume): (Option<&Resume>, Option<&Resume>) = match policy.resume.as_ref() {
        Some(resume) if resume.method == Method::Repair => (Some(resume), None),
        other => (None, other),
    };
    repair::plan(&mut pass, &mut slots, repair, cancel);
    nodes.retain(|node| !pass.is_going(node));
    emptiness::plan(&mut pass, &nodes);
    static_capacity::plan(&mut pass, &mut slots, &nodes);
    // A pass that was cut short goes on with the method that it had come to; the other one had its
    // turn.
    if resume.is_some_and(|resume| resume.method != Method::Drift) {
        consolidation::plan(&mut pass, &nodes, resume, cancel);
        drift::plan(&mut pass, &nodes, None, cancel);
    } else {
        drift::plan(&mut pass, &nodes, resume, cancel);
        consolidation::plan(&mut pass, &nodes, None, cancel);
    }
    let mut plan = pass.into_plan(cancel);
    Reservations::new(snapshot).settle_commands(&mut plan);
    let launches = plan.commands.iter_mut().flat_map(|command| {
        let first = command.terminate_first.as_mut();
        command.replacements.iter_mut().chain(first.and_then(|first| first.launch.as_mut()))
    });
    tell_apart(snapshot, launches, seed);
    let replacements = plan.commands.iter_mut().flat_map(|command| &mut command.replacements);
    replacements.for_each(|launch| overlaid.mark(launch));
    plan
}

/// A compiled snapshot, with machines in the order in which they receive pods, and the nodes that
/// may go.
fn prepare<'a>(
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    now: Timestamp,
) -> (Problem<'a>, Vec<Node>) {
    let mut problem = Problem::new(snapshot, policy);
    let nodes = candidates::find(&problem, now);
    let order = receivers(&problem, &nodes);
    problem.try_in_order(order);
    (problem, nodes)
}

/// One disruption pass.
#[derive(Clone)]
struct Pass<'p, 'a> {
    problem: &'p Problem<'a>,
    solver: Solver<'p, 'a>,
    budgets: Budgets,
    now: Timestamp,
    commands: Vec<Arc<Command>>,
    /// Why nodes stay, by index.
    stays: Arc<BTreeMap<usize, StayReason>>,
    /// Nodes that get pods, from this plan or because pods are waiting for a place.
    receiving: FixedBitSet,
    /// Nodes that keep room for pods to come (CapacityBuffers): nobody misses them when they are
    /// renewed, but they are not there for nothing.
    keeping: FixedBitSet,
    /// Nodes whose pods have only just settled: nothing is consolidated onto them.
    settling: FixedBitSet,
    /// Nodes that are sick beyond what is tolerated: no pod is moved onto them.
    sick: FixedBitSet,
    /// Nodes that are as good as a machine which is launched for pods that wait: none of them is
    /// one too many now.
    held: FixedBitSet,
    /// Why they stay. What repair says about a node says more than what other methods do.
    sick_stays: BTreeMap<usize, StayReason>,
    /// Topology rules by which it matters what happens first, and that have to do with pods which a
    /// command of this plan moves, or which wait for a place: where these will be is only expected.
    touched: FixedBitSet,
    /// Rules by which it matters.
    in_order: FixedBitSet,
    /// How many pods are where before any command, those that were waiting included.
    counts: Arc<Counts>,
    totals: Arc<Totals>,
    price_floor: Arc<PriceFloor>,
    /// What is left in reservations once the commands so far have launched their machines.
    reservations: Reservations<'a>,
    /// The CPU and memory of all machines.
    capacity: (i64, i64),
    /// By shape: whether a machine to come takes it, before any command.
    launchable: FxHashMap<usize, bool>,
    /// How many placements are those of pods that were waiting anyway.
    waiting: usize,
    /// Pods that commands evict.
    evicted: Vec<Evicted>,
    /// Those that consolidation moves onto machines that exist.
    crowding: Vec<usize>,
    /// Machines that commands launch.
    arrivals: Vec<Arrival>,
    /// Where the next pass has to go on.
    resume: Option<Resume>,
}

impl<'p, 'a> Pass<'p, 'a> {
    /// A pass over a snapshot, and the nodes that may go, without those that waiting pods will be
    /// on.
    fn new(problem: &'p Problem<'a>, mut nodes: Vec<Node>, now: Timestamp) -> (Self, Vec<Node>) {
        let n = problem.tables.snapshot.nodes.len();
        let mut solver = Solver::new(problem);
        let price_floor = Arc::new(PriceFloor::new(&mut solver));
        let mut pass = Self {
            problem,
            solver,
            budgets: Budgets::new(problem.tables.snapshot),
            now,
            commands: Vec::new(),
            stays: Arc::default(),
            receiving: FixedBitSet::with_capacity(n),
            keeping: FixedBitSet::with_capacity(n),
            settling: FixedBitSet::with_capacity(n),
            sick: FixedBitSet::with_capacity(n),
            held: FixedBitSet::with_capacity(n),
            sick_stays: BTreeMap::new(),
            touched: FixedBitSet::with_capacity(problem.rules.len()),
            totals: Arc::new(Totals::new(problem, &nodes)),
            in_order: problem.rules.in_order(),
            counts: Arc::default(),
            price_floor,
            reservations: Reservations::new(problem.tables.snapshot),
            capacity: capacity(problem.tables.snapshot),
            launchable: FxHashMap::default(),
            waiting: 0,
            evicted: Vec::new(),
            crowding: Vec::new(),
            arrivals: Vec::new(),
            resume: None,
        };
        pass.mark_settling();
        pass.sick = repair::sick(problem.tables.snapshot, now);
        let wanted = pass.place_waiting();
        pass.counts = Arc::new(pass.solver.counts.clone());
        nodes.retain(|node| !pass.receiving[node.index]);
        pass.held = wanted.held(&mut pass.solver, &nodes);
        (pass, nodes)
    }

    /// For evaluating nodes on another thread: the same state, with nothing planned yet.
    fn fork(&self) -> Self {
        Self { commands: Vec::new(), stays: Arc::default(), ..self.clone() }
    }

    /// Consolidating onto a node restarts its `consolidateAfter`; until that has passed it takes
    /// nothing.
    fn mark_settling(&mut self) {
        let snapshot = self.problem.tables.snapshot;
        let waits: BTreeMap<&str, bool> = snapshot
            .node_pools
            .iter()
            .map(|pool| {
                let after = pool.disruption.consolidate_after;
                (pool.name.as_str(), after.is_some_and(|after| after.is_positive()))
            })
            .collect();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            let Some(claim) = &node.claim else { continue };
            let pool = claim.node_pool.as_deref();
            let waits = pool.is_some_and(|pool| waits.get(pool).copied().unwrap_or_default());
            self.settling.set(
                index,
                waits && claim.consolidatable.is_none() && node.phase == NodePhase::Initialized,
            );
        }
    }

    /// Pods that wait for a place come first: what they take is not there for others. What has to
    /// be launched for them is provisioning's business, but it comes at the same time.
    fn place_waiting(&mut self) -> Wanted {
        let (mut waiting, _) = demands(self.problem, |_| true);
        for demand in &mut waiting {
            for (variant, dropped) in crate::pack::alternatives(self.problem, demand.shape) {
                (demand.variant, demand.dropped) = (variant, dropped);
                self.solver.place_on_machines(demand, |_| true);
            }
        }
        let problem = self.problem;
        let mut settled = Vec::new();
        for &PlacedPod { pod: index, machine } in &self.solver.placed {
            let pod = &problem.tables.snapshot.pods[index];
            let shape = pod.shape.0 as usize;
            if pod.buffer.is_some() {
                // It takes room; but where it would be is not where pods are, and no rule is kept
                // or broken by it.
                self.keeping.insert(machine);
                self.solver.counts.add_on_machine(&problem.topology(), shape, machine, -1);
                continue;
            }
            self.receiving.insert(machine);
            settled.push(index);
        }
        for pod in settled {
            self.leave_to_waiting(pod);
        }
        self.waiting = self.solver.placed.len();
        let wanted = Wanted::new(&self.solver, waiting);
        for &pod in &wanted.pods {
            self.leave_to_waiting(pod);
        }
        wanted
    }

    /// Marks the rules of a pod that waits, for where it will be is only expected. Pods of nodes
    /// that go are on their way in large numbers while nodes are renewed: evenness can wait for
    /// them, nearness can't.
    fn leave_to_waiting(&mut self, pod: usize) {
        let pod = &self.problem.tables.snapshot.pods[pod];
        let rules = &self.problem.rules;
        let leaving = matches!(pod.placement, Placement::Bound(_));
        let unsure =
            |group: &usize| self.in_order[*group] && (!leaving || rules.is_affinity(*group));
        self.touched.extend(rules.of(pod.shape.0 as usize).filter(unsure));
    }

    /// Makes moves a command.
    fn decide(
        &mut self,
        nodes: &[&Node],
        moves: &Moves,
        replacements: Vec<Launch>,
        reason: DisruptionReason,
        method: Method,
    ) {
        let snapshot = self.problem.tables.snapshot;
        let placed = &self.solver.placed[moves.from..];
        for &PlacedPod { machine, .. } in placed {
            self.receiving.insert(machine);
        }
        let nominations = nominations(snapshot, placed);
        let devices = self.solver.devices.as_mut().zip(self.problem.devices.as_deref());
        let devices = match devices {
            Some((left, table)) => {
                left.keep_released();
                let pods = placed.iter().map(|it| it.pod);
                left.on_machines(&self.problem.tables, table, pods)
            }
            None => Vec::new(),
        };
        let before: MicroUsd = nodes.iter().filter_map(|node| node.price).sum();
        let after: MicroUsd = replacements.iter().map(|launch| launch.price).sum();
        let savings = MicroUsd(before.0 - after.0);
        let scores = match reason {
            DisruptionReason::Underutilized => {
                self.totals.scores(self.problem, nodes, savings.as_usd())
            }
            _ => Vec::new(),
        };
        let totals = Arc::make_mut(&mut self.totals);
        for node in nodes {
            totals.leave(snapshot, node.index);
        }
        for &PlacedPod { pod, machine } in placed {
            totals.join(snapshot, machine, pod);
        }
        for (number, launch) in replacements.iter().enumerate() {
            let claim = self.solver.claims.get(number);
            totals.come(snapshot, launch, claim.map_or(&[], |claim| &claim.pods));
        }
        let late = !replacements.is_empty();
        let evicted = nodes.iter().flat_map(|node| node.pods.iter());
        let evicted = evicted.map(|&pod| Evicted { pod, late });
        if reason == DisruptionReason::Underutilized {
            self.crowding.extend(placed.iter().map(|it| it.pod));
        }
        self.evicted.extend(evicted);
        self.note_arrivals(&replacements);
        self.reservations.hold(&replacements);
        let mut candidates: Vec<_> = nodes.iter().map(|node| self.candidate(node)).collect();
        candidates.sort_by(|a, b| a.node.cmp(&b.node));
        self.commands.push(Arc::new(Command {
            replacements,
            nominations,
            devices,
            savings,
            scores,
            ..Command::new(reason, method, candidates)
        }));
        self.solver.claims.clear();
        if let Some(before) = &moves.limits {
            self.solver.limits.at_most(before);
        }
        for node in nodes {
            if self.is_initialized(node) {
                self.budgets.take(node);
            }
            self.touch(node);
            // Another command may be carried out before this one: until then the pods are where
            // they were.
            self.count(node, 1);
        }
    }

    /// Marks the rules of a node's pods by which it matters what happens first.
    fn touch(&mut self, node: &Node) {
        for &pod in &node.pods {
            let shape = self.problem.tables.snapshot.pods[pod].shape.0 as usize;
            let rules = self.problem.rules.of(shape);
            self.touched.extend(rules.filter(|&rule| self.in_order[rule]));
        }
    }

    /// What the machines of [`Solver::claims`] have room for as the cheapest type that they are
    /// launched with.
    fn note_arrivals(&mut self, replacements: &[Launch]) {
        for (claim, launch) in self.solver.claims.iter().zip(replacements) {
            let template = &self.problem.tables.templates[self.solver.specs[claim.spec].template];
            let table = &self.problem.tables.catalogs[template.catalog];
            if let Some(kind) = launch.instance_types.first().and_then(|name| table.find(name)) {
                let room = template.net(kind).to_vec();
                self.arrivals.push(Arrival { spec: claim.spec, room });
            }
        }
    }

    /// Takes a node out: it takes no pods, and its own don't count any more.
    fn close(&mut self, node: &Node) {
        self.solver.close(node.index);
        self.count(node, -1);
    }

    fn count(&mut self, node: &Node, by: i32) {
        if self.problem.rules.len() == 0 {
            return;
        }
        for &pod in &self.problem.tables.pods_on[node.index] {
            let pod = &self.problem.tables.snapshot.pods[pod];
            if !pod.terminating {
                let shape = pod.shape.0 as usize;
                self.solver.counts.add_on_machine(&self.problem.topology(), shape, node.index, by);
            }
        }
    }

    fn candidate(&self, node: &Node) -> Candidate {
        let snapshot = self.problem.tables.snapshot;
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

    /// Whether a node has a use that its own pods don't tell: it gets pods, or keeps room for some.
    fn is_expecting(&self, node: &Node) -> bool {
        self.receiving[node.index] || self.keeping[node.index]
    }

    /// Whether a command has the node already.
    fn is_going(&self, node: &Node) -> bool {
        self.solver.is_closed(node.index)
    }

    /// Whether the node counts for budgets. A sick one may never have come up.
    fn is_initialized(&self, node: &Node) -> bool {
        self.problem.tables.snapshot.nodes[node.index].phase == NodePhase::Initialized
    }

    /// Notes why a sick node stays.
    fn stay_sick(&mut self, node: usize, reason: StayReason) {
        self.sick_stays.insert(node, reason);
    }

    /// Notes why a node stays; of several reasons the last one counts, that of the method that came
    /// closest to disrupting it.
    fn stay(&mut self, node: usize, reason: StayReason) {
        Arc::make_mut(&mut self.stays).insert(node, reason);
    }

    fn into_plan(mut self, cancel: &dyn Cancel) -> Plan {
        let mut stays = Arc::unwrap_or_clone(self.stays);
        stays.append(&mut self.sick_stays);
        let commands = self.commands.into_iter().map(Arc::unwrap_or_clone).collect();
        let snapshot = self.problem.tables.snapshot;
        let mut plan = Plan { version: PLAN_VERSION, commands, ..Plan::default() };
        plan.report.cancelled = self.resume.is_some() || cancel.is_cancelled();
        plan.report.resume = self.resume;
        plan.report.nodes = stays
            .into_iter()
            .filter(|(index, _)| !self.solver.is_closed(*index))
            .map(|(index, reason)| StayingNode { node: snapshot.nodes[index].key.clone(), reason })
            .collect();
        plan.report.node_pools.clone_from(&self.problem.tables.skipped);
        plan.report.node_pools.sort_by(|a, b| a.name.cmp(&b.name));
        plan
    }
}
