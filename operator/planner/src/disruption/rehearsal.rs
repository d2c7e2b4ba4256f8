//! Whether pods find a place however kube-scheduler deals them out.
//!
//! A plan says where evicted pods fit; kube-scheduler decides where they go: one by one, each on
//! the machine with the most left. What fits when it is packed tightly may then leave the last pods
//! without a place, and a machine would be launched for them: the cluster would grow again by what
//! was meant to shrink it. So what consolidation would do is rehearsed in that way on a copy of the
//! pass, topology rules included, and only as much of it happens as leaves a place for everybody.
//!
//! Pods come in the order in which the operator evicts them: by [`size_class`], the largest first.
//! Were small ones first, they would take a little of every machine, and the large ones would find
//! none with enough left.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::Pass;
use super::attempt::{Aim, consolidate};
use super::candidates::Node;
use super::small_wave::{is_well_filled, left_of, share};
use crate::arrival_order::shuffle;
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::plan::StayReason;
use crate::resources::Resources;
use crate::solver::{OnMachine, Place, Solver, Wanted, none_left_out, room_for};
use crate::tables::shapes::ClassId;
use crate::tables::{fits, take_times};
use crate::topology::{Counts, Host};

/// How often what is too much is left out and the rest tried once more, times nodes: in small
/// clusters every step is given its chance.
const ROUNDS_TIMES_NODES: usize = 20_000;

/// In how many orders the pods of one size class are dealt out, apart from the one in which the
/// largest come last.
const ORDERS: u64 = 3;

/// For so many pods that move onto machines that exist, room has to be left for one more of the
/// largest,
const PODS_PER_LARGEST: usize = 64;

/// and for so many of them for one more of their median.
const PODS_PER_MEDIAN: usize = 32;

/// Fewer pods need no spare room: there are not many more orders than those that are tried.
const FEW_PODS: usize = 4;

/// A pod that a command evicts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evicted {
    /// Index of [`crate::Snapshot::pods`].
    pub(super) pod: usize,
    /// Only once the command's replacements are there.
    pub(super) late: bool,
}

/// How large a pod is when it comes to who is evicted first: pods of a larger class go before those
/// of a smaller one. Each class is twice as large as the one below it, in millicores and, at four
/// GiB to the core, memory.
pub fn size_class(requests: &Resources) -> u32 {
    /// Bytes that weigh as much as one millicore.
    const BYTES: i64 = (4 << 30) / 1000;
    let weight = requests.cpu.max(0).saturating_add(requests.memory.max(0) / BYTES);
    weight.checked_ilog2().unwrap_or(0)
}

/// One step of a consolidation: nodes that go together.
#[derive(Debug)]
struct Act<'n> {
    nodes: Vec<&'n Node>,
    aim: Aim,
    /// How many pods have been evicted after it, and how many machines have come.
    evicted: usize,
    arrivals: usize,
    /// How many pods have moved onto machines that exist.
    crowding: usize,
    /// For how much there has to be room then ([`super::small_wave`]).
    room_for: u64,
}

/// A machine that a command launches.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) spec: SpecId,
    /// What its pods may use.
    pub(super) room: Vec<i64>,
}

/// A copy of a pass on which steps are tried one after the other.
pub(super) struct Stage<'n, 'p, 'a> {
    pub(super) pass: Pass<'p, 'a>,
    acts: Vec<Act<'n>>,
    /// For how much there has to be room where pods of a well filled node move onto machines that
    /// exist.
    room_for: u64,
}

impl<'n, 'p, 'a> Stage<'n, 'p, 'a> {
    pub(super) fn new(pass: &Pass<'p, 'a>, room_for: u64) -> Self {
        Self { pass: pass.fork(), acts: Vec::new(), room_for }
    }

    /// Adds a step if it works after those before.
    pub(super) fn try_act(&mut self, nodes: &[&'n Node], aim: Aim) -> Result<(), StayReason> {
        let before = self.pass.crowding.len();
        consolidate(&mut self.pass, nodes, aim)?;
        let (evicted, arrivals) = (self.pass.evicted.len(), self.pass.arrivals.len());
        let crowding = self.pass.crowding.len();
        let mut room_for = self.acts.last().map_or(0, |before| before.room_for);
        if crowding > before && nodes.iter().any(|node| is_well_filled(&self.pass, node)) {
            room_for = self.room_for;
        }
        let nodes = nodes.to_vec();
        self.acts.push(Act { nodes, aim, evicted, arrivals, crowding, room_for });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.acts.is_empty()
    }

    /// Does on the real pass as much as leaves a place for everybody, and notes why the other nodes
    /// wait. Answers which ones were too much.
    pub(super) fn perform(mut self, pass: &mut Pass<'p, 'a>) -> FixedBitSet {
        let mut left_out = FixedBitSet::with_capacity(pass.problem.tables.snapshot.nodes.len());
        let hopeful: Vec<&Node> =
            self.acts.iter().flat_map(|act| act.nodes.iter().copied()).collect();
        let nodes = pass.problem.tables.snapshot.nodes.len().max(1);
        let rounds = (ROUNDS_TIMES_NODES / nodes).clamp(4, 64);
        for round in 0..rounds {
            let enough = self.longest();
            let mut acts = std::mem::take(&mut self.acts).into_iter();
            for act in acts.by_ref().take(enough) {
                // From the same state the same step has the same outcome.
                let _ = consolidate(pass, &act.nodes, act.aim);
            }
            // The first one that would be too much is left out; those after it may still do.
            let Some(act) = acts.next() else { break };
            left_out.extend(act.nodes.iter().map(|node| node.index));
            if round + 1 == rounds {
                left_out.extend(acts.flat_map(|act| act.nodes).map(|node| node.index));
                break;
            }
            self = Self::new(pass, self.room_for);
            for act in acts {
                let _ = self.try_act(&act.nodes, act.aim);
            }
        }
        for node in hopeful {
            let held_back = self.room_for > 0;
            pass.stay(
                node.index,
                if held_back { StayReason::SavesTooLittle } else { StayReason::Later },
            );
        }
        left_out
    }

    /// How many of the acts leave a place for everybody.
    fn longest(&mut self) -> usize {
        let (mut enough, mut too_many) = (0, self.acts.len() + 1);
        while too_many - enough > 1 {
            let n = usize::midpoint(enough, too_many);
            if self.all_find_places(n) {
                enough = n;
            } else {
                too_many = n;
            }
        }
        enough
    }

    /// Deals out the pods of the first acts, and of what was decided before: in a few orders, of
    /// which the worst is the one with the largest pods of each class last, when smaller ones have
    /// taken a little of every machine.
    fn all_find_places(&self, acts: usize) -> bool {
        let stage = &self.pass;
        let problem = stage.problem;
        let (before, after) = self.acts.split_at(acts);
        let (evicted, arrivals, crowding, room_for) = before.last().map_or((0, 0, 0, 0), |last| {
            (last.evicted, last.arrivals, last.crowding, last.room_for)
        });
        let mut solver = stage.solver.clone();
        solver.undo_unsorted(stage.waiting);
        for node in after.iter().flat_map(|act| &act.nodes) {
            solver.reopen(node.index);
        }
        if problem.rules.len() > 0 {
            solver.counts = counts_without(stage, solver.closed());
        }
        let mut pods: Vec<Evicted> = stage.evicted[..evicted].to_vec();
        pods.retain(|it| problem.tables.snapshot.pods[it.pod].is_currently_reschedulable());
        let mut shut = stage.settling.clone();
        shut.union_with(&stage.sick);
        let spares = self.spares(&stage.crowding[..crowding], room_for);
        pods.extend(spares.into_iter().map(|pod| Evicted { pod, late: false }));
        let dealt = pods.iter().map(|it| it.pod);
        let start = Deal::new(solver, &shut, &stage.arrivals[..arrivals], dealt);
        (0..=ORDERS).all(|order| {
            match order {
                ORDERS => pods.sort_by_cached_key(|it| (stage.size(it.pod), it.pod)),
                _ => shuffle(&mut pods, order),
            }
            // What is replaced is drained when its replacement is ready, which may be at once or
            // after everything else.
            let waits = order % 2 == 1;
            pods.sort_by_cached_key(|it| (waits && it.late, Reverse(stage.size_class(it.pod))));
            let mut deal = start.clone();
            pods.iter().all(|it| deal.place(it.pod))
        })
    }

    /// For which pods room has to be left when some move onto machines that exist, and in all for
    /// so much.
    fn spares(&self, crowding: &[usize], room_for: u64) -> Vec<usize> {
        let size = |pod: usize| self.pass.size(pod);
        // What kube-scheduler goes by besides is not known here, so that it may come a little
        // worse.
        let largest = crowding.iter().copied().max_by_key(|&pod| (size(pod), pod));
        let n = (crowding.len() + PODS_PER_LARGEST - FEW_PODS) / PODS_PER_LARGEST;
        let mut spares: Vec<usize> = largest.into_iter().cycle().take(n).collect();
        let n = crowding.len() / PODS_PER_MEDIAN;
        if n > 0 {
            let mut pods = crowding.to_vec();
            let (_, &mut median, _) =
                pods.select_nth_unstable_by_key(crowding.len() / 2, |&pod| (size(pod), pod));
            spares.extend(std::iter::repeat_n(median, n));
        }
        let mut room: u64 = crowding.iter().chain(&spares).map(|&pod| size(pod)).sum();
        // Pods that ask for nothing never fill it.
        for pod in
            crowding.iter().copied().cycle().take(self.pass.problem.tables.snapshot.pods.len())
        {
            if room >= room_for {
                break;
            }
            room += size(pod);
            spares.push(pod);
        }
        spares
    }
}

/// How many pods are where before any evicted one has its new place.
fn counts_without(pass: &Pass<'_, '_>, closed: impl Iterator<Item = usize>) -> Counts {
    let problem = pass.problem;
    let mut counts = Counts::clone(&pass.counts);
    for machine in closed {
        for pod in
            problem.tables.pods_on[machine].iter().map(|&pod| &problem.tables.snapshot.pods[pod])
        {
            if !pod.terminating {
                counts.add_on_machine(&problem.topology(), pod.shape.0 as usize, machine, -1);
            }
        }
    }
    counts
}

/// A machine to come as a place for pods that are dealt out.
struct OnArrival<'s, 'p, 'a> {
    solver: &'s mut Solver<'p, 'a>,
    arrival: usize,
    to: &'s Arrival,
    shape: usize,
    variants: Range<usize>,
}

impl Place for OnArrival<'_, '_, '_> {
    fn by_room(&mut self) -> usize {
        let requests = &self.solver.problem.tables.shapes[self.shape].requests;
        usize::from(fits(requests, &self.to.room))
    }

    fn by_hosts(&mut self) -> usize {
        let problem = self.solver.problem;
        let (dropped, _) = problem.rules.preferences(self.shape);
        let host = Host::Claim(self.arrival);
        self.solver.counts.room_on_host(&problem.topology(), self.shape, dropped, host) as usize
    }

    fn by_labels(&mut self) -> usize {
        let Solver { problem, counts, specs, .. } = &mut *self.solver;
        let (tables, topology) = (&problem.tables, &problem.topology());
        let (dropped, _) = problem.rules.preferences(self.shape);
        let class = tables.shapes[self.shape].class;
        let any = &mut |_: &MachineSpecs, _| true;
        usize::from(self.variants.clone().any(|variant| {
            specs.join(tables, self.to.spec, class, variant).is_ok_and(|spec| {
                counts.narrow(topology, specs, self.shape, dropped, spec, any).is_ok()
            })
        }))
    }
}

/// Machines by what they have left.
#[derive(Clone)]
struct Deal<'p, 'a> {
    solver: Solver<'p, 'a>,
    arrivals: Vec<Arrival>,
    /// What arrivals could hold at first.
    sizes: Vec<Vec<i64>>,
    /// By what they take as far as labels and taints go: a bit for each of the classes that are
    /// dealt out. Those with the most left first.
    heaps: Vec<(u64, Heap)>,
    /// By class, its bit; the others are asked of every machine.
    bits: FxHashMap<ClassId, u64>,
    passed_over: Vec<(usize, (u64, Reverse<usize>))>,
}

type Heap = BinaryHeap<(u64, Reverse<usize>)>;

impl<'p, 'a> Deal<'p, 'a> {
    fn new(
        solver: Solver<'p, 'a>,
        shut: &FixedBitSet,
        arrivals: &[Arrival],
        pods: impl Iterator<Item = usize>,
    ) -> Self {
        let problem = solver.problem;
        let sizes = arrivals.iter().map(|arrival| arrival.room.clone()).collect();
        let mut deal = Self {
            solver,
            arrivals: arrivals.to_vec(),
            sizes,
            heaps: Vec::new(),
            bits: FxHashMap::default(),
            passed_over: Vec::new(),
        };
        let mut classes: Vec<ClassId> = Vec::new();
        for pod in pods {
            let class =
                problem.tables.shapes[problem.tables.snapshot.pods[pod].shape.0 as usize].class;
            if classes.len() < 64 && !deal.bits.contains_key(&class) {
                deal.bits.insert(class, 1 << classes.len());
                classes.push(class);
            }
        }
        let machines = problem.tables.machines.order.iter().copied();
        let open = |&machine: &usize| !deal.solver.is_closed(machine) && !shut[machine];
        let all: Vec<usize> = machines
            .filter(open)
            .chain((0..arrivals.len()).map(|arrival| problem.tables.snapshot.nodes.len() + arrival))
            .collect();
        let mut heaps: BTreeMap<u64, Heap> = BTreeMap::new();
        for at in all {
            let mut bits = 0;
            for (bit, &class) in classes.iter().enumerate() {
                bits |= u64::from(deal.suits(at, class)) << bit;
            }
            heaps.entry(bits).or_default().push((deal.share_left(at), Reverse(at)));
        }
        deal.heaps = heaps.into_iter().collect();
        deal
    }

    /// Whether a machine takes a class as far as labels and taints go. Preferences don't keep a pod
    /// from anywhere.
    fn suits(&mut self, at: usize, class: ClassId) -> bool {
        let problem = self.solver.problem;
        let mut variants = problem.tables.classes[class].variants.relaxed();
        match at.checked_sub(problem.tables.snapshot.nodes.len()) {
            None => variants.any(|variant| self.solver.suits(at, class, variant)),
            Some(arrival) => {
                let spec = self.arrivals[arrival].spec;
                variants.any(|variant| {
                    self.solver.specs.join(&problem.tables, spec, class, variant).is_ok()
                })
            }
        }
    }

    /// Puts a pod where most is left.
    fn place(&mut self, pod: usize) -> bool {
        let problem = self.solver.problem;
        let shape = problem.tables.snapshot.pods[pod].shape.0 as usize;
        // Machines that don't take it whatever they have left are not even looked at: there may be
        // many, and emptier than all others.
        let bit = self.bits.get(&problem.tables.shapes[shape].class).copied();
        let mut taker = None;
        let mut passed_over = std::mem::take(&mut self.passed_over);
        while taker.is_none() {
            let open = (0..self.heaps.len())
                .filter(|&heap| bit.is_none_or(|bit| self.heaps[heap].0 & bit != 0));
            let Some(heap) = open.max_by_key(|&heap| self.heaps[heap].1.peek()) else { break };
            let Some(&(_, Reverse(at))) = self.heaps[heap].1.peek() else { break };
            if self.takes(at, shape) {
                taker = Some((heap, at));
            } else {
                passed_over.extend(self.heaps[heap].1.pop().map(|entry| (heap, entry)));
            }
        }
        let Some((heap, at)) = taker else {
            self.put_back(passed_over);
            let left_out = self.left_out(bit);
            none_left_out(left_out.into_iter(), |at| usize::from(self.takes(at, shape)));
            return false;
        };
        let Solver { counts, specs, .. } = &mut self.solver;
        match at.checked_sub(problem.tables.snapshot.nodes.len()) {
            None => {
                counts.add_on_machine(&problem.topology(), shape, at, 1);
                self.solver.occupy_unsorted(at, shape);
            }
            Some(arrival) => {
                let Arrival { spec, room } = &mut self.arrivals[arrival];
                counts.add_on_claim(&problem.topology(), specs, shape, arrival, *spec, 1);
                take_times(room, &problem.tables.shapes[shape].requests, 1);
            }
        }
        let left = self.share_left(at);
        // It is still the first of its heap.
        if let Some(mut first) = self.heaps[heap].1.peek_mut() {
            *first = (left, Reverse(at));
        }
        self.put_back(passed_over);
        true
    }

    /// Puts machines back that had no place for a pod.
    fn put_back(&mut self, mut passed_over: Vec<(usize, (u64, Reverse<usize>))>) {
        for (heap, entry) in passed_over.drain(..) {
            self.heaps[heap].1.push(entry);
        }
        self.passed_over = passed_over;
    }

    /// A machine that exists and that labels and taints leave out, for debug builds.
    fn left_out(&self, bit: Option<u64>) -> Option<usize> {
        let heaps = self.heaps.iter().filter(|(bits, _)| bit.is_some_and(|bit| bits & bit == 0));
        let mut machines = heaps.filter_map(|(_, heap)| Some(heap.peek()?.1.0));
        let exists = |&at: &usize| at < self.solver.problem.tables.snapshot.nodes.len();
        if cfg!(debug_assertions) { machines.find(exists) } else { None }
    }

    fn takes(&mut self, at: usize, shape: usize) -> bool {
        let tables = &self.solver.problem.tables;
        // Preferences don't keep a pod from anywhere.
        let variants = tables.classes[tables.shapes[shape].class].variants.relaxed();
        let room = match at.checked_sub(tables.snapshot.nodes.len()) {
            None => {
                let solver = &mut self.solver;
                let wanted = Wanted::Required { first: variants.start, end: variants.end };
                room_for(&mut OnMachine { solver, machine: at, shape, wanted, pod: None }, 1)
            }
            Some(arrival) => {
                let Self { solver, arrivals, .. } = self;
                let to = &arrivals[arrival];
                room_for(&mut OnArrival { solver, arrival, to, shape, variants }, 1)
            }
        };
        room > 0
    }

    /// What share of its CPU and memory a machine has left, in millionths; what kube-scheduler goes
    /// by when nothing else decides.
    fn share_left(&self, at: usize) -> u64 {
        let problem = self.solver.problem;
        match at.checked_sub(problem.tables.snapshot.nodes.len()) {
            None => left_of(&self.solver, at),
            Some(arrival) => {
                let (room, all) = (&self.arrivals[arrival].room, &self.sizes[arrival]);
                share(room[0], all[0]) + share(room[1], all[1])
            }
        }
    }
}
