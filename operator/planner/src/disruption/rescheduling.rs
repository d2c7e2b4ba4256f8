//! Places for the pods of nodes that would go, tried on the state that all candidates share and
//! taken back when it comes to nothing.

use super::Pass;
use super::candidates::Node;
use crate::demands::Demand;
use crate::demands::demands_of;
use crate::launch::{LaunchFilter, launch_of, pod_ref};
use crate::pack::{Strategy, pack};
use crate::plan::{Launch, LaunchReason, StayReason};
use crate::snapshot::{DisruptionReason, NodePhase};
use crate::solver::PlacedPod;

/// Where the pods of candidates go.
#[derive(Debug)]
pub(super) struct Moves {
    /// Pods and machines from this index of [`crate::solver::Solver::placed`] on.
    pub(super) from: usize,
    /// How many machines have to be launched; they are in [`crate::solver::Solver::claims`].
    pub(super) new_machines: usize,
    /// What was left of limits before.
    pub(super) limits: Option<crate::limits::Limits>,
    /// Mark of the topology counts.
    counts: usize,
    /// Devices before.
    devices: Option<Box<crate::devices::State>>,
}

/// How to look for places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    strategy: Strategy,
    /// Whether nodes whose pods have only just settled are left alone.
    guard: bool,
    /// The most that a new machine may cost, this price excluded; 0 allows none, and then the
    /// places have to be on machines that exist.
    below: Option<i64>,
    /// Whether pods that must not be evicted now get places, too.
    held: bool,
}

impl Search {
    pub(super) const DRIFT: Self =
        Self { strategy: Strategy::Cheapest, guard: false, below: None, held: false };

    /// A sick node goes in the end, whatever its pods say.
    pub(super) const REPAIR: Self = Self { held: true, ..Self::DRIFT };

    /// For consolidation: at most one machine that costs less than `price`.
    pub(super) fn cheaper_than(price: i64) -> Self {
        Self { strategy: Strategy::Fill, guard: true, below: Some(price), held: false }
    }
}

impl Pass<'_, '_> {
    /// Tries to move the pods of nodes that would go. On failure nothing has changed.
    pub(super) fn try_rescheduling(
        &mut self,
        nodes: &[&Node],
        search: Search,
    ) -> Result<Moves, StayReason> {
        let problem = self.problem;
        let snapshot = problem.tables.snapshot;
        let pods = nodes
            .iter()
            .flat_map(|node| node.pods.iter().copied())
            .filter(|&pod| search.held || snapshot.pods[pod].is_currently_reschedulable());
        let (mut demands, rejected) = demands_of(problem, pods);
        if let Some((pod, _)) = rejected.first() {
            return Err(StayReason::PodsDontFit(pod_ref(&snapshot.pods[*pod])));
        }
        // What one command does for a rule another can't rely on, nor may it undo it.
        let rules = &problem.rules;
        let touches = |demand: &Demand| rules.of(demand.shape).any(|group| self.touched[group]);
        if demands.iter().any(touches) {
            return Err(StayReason::Later);
        }
        let mut moves = self.begin(nodes);
        match self.place(&mut demands, search, moves.from) {
            Ok(()) => {
                moves.new_machines = self.solver.claims.len();
                Ok(moves)
            }
            Err(stay) => {
                self.take_back(nodes, moves);
                Err(stay)
            }
        }
    }

    /// Takes nodes out, to be put back by [`Self::take_back`].
    pub(super) fn begin(&mut self, nodes: &[&Node]) -> Moves {
        let from = self.solver.placed.len();
        let templates = 0..self.problem.tables.templates.len();
        let limited = templates.into_iter().any(|template| self.solver.limits.any(template));
        let limits = limited.then(|| self.solver.limits.clone());
        let counts = self.solver.counts.mark();
        for node in nodes {
            self.close(node);
            if limited {
                self.solver.limits.credit(&self.problem.tables, node.index);
            }
        }
        let devices = self.release_devices(nodes);
        Moves { from, new_machines: 0, limits, counts, devices }
    }

    /// Frees the devices of the pods of nodes that would go, and answers what was before.
    pub(super) fn release_devices(
        &mut self,
        nodes: &[&Node],
    ) -> Option<Box<crate::devices::State>> {
        let problem = self.problem;
        let (left, table) = self.solver.devices.as_mut().zip(problem.devices.as_deref())?;
        let before = left.clone();
        let pods = nodes.iter().flat_map(|node| problem.tables.pods_on[node.index].iter().copied());
        left.release(&problem.tables, table, pods);
        Some(before)
    }

    /// Moves a node's pods, to as many new machines as it takes.
    pub(super) fn move_or_replace(
        &mut self,
        node: &Node,
        search: Search,
        reason: DisruptionReason,
    ) -> Result<(Moves, Vec<Launch>), StayReason> {
        let moves = self.try_rescheduling(&[node], search)?;
        let mut launches = Vec::new();
        for claim in &self.solver.claims {
            let filter = LaunchFilter::all(&self.solver, claim);
            let reason = LaunchReason::Replacement(reason);
            let Ok(launch) = launch_of(&self.solver, claim, &filter, reason) else {
                let pod = pod_ref(&self.problem.tables.snapshot.pods[claim.pods[0]]);
                self.take_back(&[node], moves);
                return Err(StayReason::PodsDontFit(pod));
            };
            launches.push(launch);
        }
        Ok((moves, launches))
    }

    fn place(
        &mut self,
        demands: &mut [Demand],
        search: Search,
        from: usize,
    ) -> Result<(), StayReason> {
        let problem = self.problem;
        let snapshot = problem.tables.snapshot;
        let plain = demands.iter().all(|demand| {
            let class = problem.tables.shapes[demand.shape].class;
            !problem.rules.concern(demand.shape)
                && problem.tables.classes[class].variants.len() == 1
        });
        let (settling, sick) = (&self.settling, &self.sick);
        let open = |machine: usize| !(sick[machine] || search.guard && settling[machine]);
        if plain {
            for demand in demands.iter_mut() {
                self.solver.place_on_machines(demand, open);
            }
        }
        let left = demands.iter().any(|demand| demand.left() > 0);
        if left && let (true, Some(price)) = (plain, search.below) {
            self.could_be_cheaper(demands, price)?;
        }
        if left {
            let (settling, sick) = (&self.settling, &self.sick);
            let open = |machine: usize| !(sick[machine] || search.guard && settling[machine]);
            // A single attempt is short; whoever asks for many looks at `cancel` in between.
            pack(&mut self.solver, demands, search.strategy, &open, &());
        }
        if let Some(demand) = demands.iter().find(|demand| demand.left() > 0) {
            return Err(StayReason::PodsDontFit(pod_ref(&snapshot.pods[demand.pods[demand.next]])));
        }
        if search.below == Some(0) && !self.solver.claims.is_empty() {
            return Err(StayReason::NothingCheaper);
        }
        let waits = self.solver.placed[from..]
            .iter()
            .find(|it| snapshot.nodes[it.machine].phase != NodePhase::Initialized);
        match waits {
            Some(&PlacedPod { pod, .. }) => {
                Err(StayReason::WaitsForMachine(pod_ref(&snapshot.pods[pod])))
            }
            None => Ok(()),
        }
    }

    /// A quick look whether one machine below a price could hold what found no place, before any
    /// machine is put together.
    fn could_be_cheaper(&mut self, demands: &[Demand], price: i64) -> Result<(), StayReason> {
        let mut need = vec![0; self.problem.tables.columns.len()];
        for demand in demands.iter().filter(|demand| demand.left() > 0) {
            if !self.is_launchable(demand) {
                let pod = &self.problem.tables.snapshot.pods[demand.pods[demand.next]];
                return Err(StayReason::PodsDontFit(pod_ref(pod)));
            }
            let requests = &self.problem.tables.shapes[demand.shape].requests;
            crate::tables::add_times(&mut need, requests, demand.left());
        }
        match self.price_floor.holding(&need) {
            None => Err(StayReason::NeedsSeveralReplacements),
            Some(cheapest) if cheapest >= price => Err(StayReason::NothingCheaper),
            Some(_) => Ok(()),
        }
    }

    fn is_launchable(&mut self, demand: &Demand) -> bool {
        if let Some(&known) = self.launchable.get(&demand.shape) {
            return known;
        }
        let found = self.solver.launch_option(demand).is_some();
        self.launchable.insert(demand.shape, found);
        found
    }

    pub(super) fn take_back(&mut self, nodes: &[&Node], moves: Moves) {
        self.solver.undo(moves.from);
        self.solver.claims.clear();
        if let Some(limits) = moves.limits {
            self.solver.limits = limits;
        }
        self.solver.counts.rewind(&self.problem.rules, moves.counts);
        self.solver.devices = moves.devices;
        for node in nodes {
            self.solver.reopen(node.index);
        }
    }
}
