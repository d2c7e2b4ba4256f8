//! The state of a plan while it is made: free room on existing machines, and the planned machines.

mod admission;
mod budget;
mod closing;
mod launch_options;
mod opening;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::compile::Problem;
use crate::demands::Demand;
use crate::devices;
use crate::limits::Limits;
use crate::machine_specs::{MachineSpec, MachineSpecs, SpecId};
use crate::plan::Exclusion;
use crate::room_index::{Query, RoomIndex, first};
use crate::tables::shapes::{ClassId, HostPort, Shape, ports_conflict};
use crate::tables::taints::untolerated;
use crate::tables::{add_times, fits, machine_meets, take_times};
use crate::topology::{Counts, Host};
pub(crate) use admission::{
    ANY, OnMachine, Place, Wanted, free, free_ports, none_left_out, room_for,
};
pub(crate) use budget::Budget;
pub(crate) use opening::REASONS;

/// A planned machine.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) spec: SpecId,
    /// Requests of its pods, by column.
    pub(crate) used: Vec<i64>,
    /// Types of the spec that hold them.
    pub(crate) types: FixedBitSet,
    pub(crate) ports: Vec<HostPort>,
    /// Indices of [`crate::Snapshot::pods`].
    pub(crate) pods: Vec<usize>,
    /// Keys whose `minValues` were lowered, and to what.
    pub(crate) relaxed: Vec<(crate::intern::Key, u32)>,
    /// The type that it is assumed to become: one of the cheapest that hold the pods.
    pub(crate) target: usize,
}

/// A pod on a machine that exists: indices of [`crate::Snapshot::pods`] and
/// [`crate::Snapshot::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedPod {
    pub(crate) pod: usize,
    pub(crate) machine: usize,
}

/// Cloned for each strategy and trial; the problem is shared.
#[derive(Clone, Debug)]
pub(crate) struct Solver<'p, 'a> {
    pub(crate) problem: &'p Problem<'a>,
    pub(crate) specs: MachineSpecs,
    pub(crate) limits: Limits,
    /// For topology rules: how many pods are where.
    pub(crate) counts: Counts,
    pub(crate) claims: Vec<Claim>,
    /// Whether some of these were opened for pods without rules and resource claims.
    pub(crate) opens_freely: bool,
    /// Whether these cost hardly more than their pods are worth.
    pub(crate) is_close: bool,
    /// Devices that are left; `None` where claims are not planned for.
    pub(crate) devices: Option<Box<devices::State>>,
    /// The price at which the plan is abandoned, if there is one.
    pub(crate) budget: Option<Budget>,
    /// Pods on machines that exist, in the order in which they were placed.
    pub(crate) placed: Vec<PlacedPod>,
    /// Requests of all pods without a place, if the choice of machines may depend on them;
    /// otherwise empty.
    pub(crate) unplaced: Vec<i64>,
    /// Machines that accept no pods in this simulation, and the positions of those that otherwise
    /// would.
    closed: FixedBitSet,
    closed_at: FixedBitSet,
    room: Vec<i64>,
    /// Machines by room, as positions in [`crate::tables::machines::Machines::order`].
    room_index: RoomIndex,
    ports: Vec<Vec<HostPort>>,
    /// By position.
    meets: FxHashMap<(ClassId, usize), FixedBitSet>,
}

impl<'p, 'a> Solver<'p, 'a> {
    pub(crate) fn new(problem: &'p Problem<'a>) -> Self {
        let machines = &problem.tables.machines;
        let width = machines.width();
        let mut room_index = RoomIndex::default();
        if !machines.order.is_empty() {
            room_index = RoomIndex::new(
                problem.tables.shapes.iter().map(|shape| &shape.requests[..]),
                width,
            );
            for (position, &machine) in machines.order.iter().enumerate() {
                room_index
                    .insert(position, &machines.room()[machine * width..(machine + 1) * width]);
            }
        }
        Self {
            problem,
            specs: MachineSpecs::default(),
            limits: Limits::new(&problem.tables),
            counts: Counts::new(&problem.topology()),
            claims: Vec::new(),
            opens_freely: false,
            is_close: false,
            devices: problem
                .devices
                .as_deref()
                .map(|devices| Box::new(devices::State::new(&problem.tables, devices))),
            budget: None,
            placed: Vec::new(),
            unplaced: Vec::new(),
            closed: FixedBitSet::with_capacity(problem.tables.snapshot.nodes.len()),
            closed_at: FixedBitSet::with_capacity(machines.order.len()),
            room: machines.room().to_vec(),
            room_index,
            ports: machines.ports.clone(),
            meets: FxHashMap::default(),
        }
    }

    /// Places pods of a demand on existing machines, in the machines' order, as far as room and
    /// rules allow, and records them in `placed`.
    pub(crate) fn place_on_machines(&mut self, demand: &mut Demand, open: impl Fn(usize) -> bool) {
        let problem = self.problem;
        let order = &problem.tables.machines.order;
        if order.is_empty() {
            return;
        }
        let shape = &problem.tables.shapes[demand.shape];
        let key = self.meet(shape.class, demand.variant);
        let query = self.room_index.query(&shape.requests);
        let mut closed =
            self.counts.closed_hosts(&problem.topology(), demand.shape, demand.dropped, false);
        loop {
            // Each pod changes which domains its rules open for the next.
            let (specs, counts) = (&mut self.specs, &mut self.counts);
            let domains =
                counts.open_positions(&problem.topology(), specs, demand.shape, demand.dropped);
            let (mut from, mut progress) = (0, false);
            while demand.left() > 0 {
                let candidate = self.candidate(key, &query, domains.as_ref(), &closed, from);
                none_left_out(from..candidate.unwrap_or(order.len()), |position| {
                    self.room_on(order[position], demand, false)
                });
                let Some(position) = candidate else { break };
                from = position + 1;
                let machine = order[position];
                let n = if open(machine) { self.room_on(machine, demand, true) } else { 0 };
                if n > 0 {
                    self.put(machine, demand, n);
                    progress = true;
                    let host = Host::Machine(machine);
                    if self.counts.closes(&problem.topology(), demand.shape, demand.dropped, host) {
                        closed.grow_and_insert(position);
                    }
                    if shape.has_claims {
                        // One at a time: the same machine may have devices for the next.
                        from = position;
                    }
                    if domains.is_some() {
                        break;
                    }
                }
            }
            if !progress || demand.left() == 0 || domains.is_none() {
                return;
            }
        }
    }

    /// The next machine, by position, that may take a pod.
    fn candidate(
        &self,
        key: (ClassId, usize),
        query: &Query,
        domains: Option<&FixedBitSet>,
        closed: &FixedBitSet,
        from: usize,
    ) -> Option<usize> {
        let mut sets = self.room_index.sets(query);
        // All machines are in the first set, so that another can take its place.
        sets[0] = &self.meets[&key];
        sets.extend(domains);
        first(&sets, &[closed, &self.closed_at], from)
    }

    /// Whether a machine but for one may take a pod of a demand: it has room, whatever rules and
    /// host ports say.
    pub(crate) fn may_have_room(&mut self, demand: &Demand, variant: usize, but: usize) -> bool {
        let problem = self.problem;
        let shape = &problem.tables.shapes[demand.shape];
        let key = self.meet(shape.class, variant);
        let query = self.room_index.query(&shape.requests);
        let mut sets = self.room_index.sets(&query);
        sets[0] = &self.meets[&key];
        let order = &problem.tables.machines.order;
        let mut from = 0;
        while let Some(position) = first(&sets, &[&self.closed_at], from) {
            from = position + 1;
            let machine = order[position];
            if machine != but && fits(&shape.requests, self.room_of(machine)) {
                return true;
            }
        }
        drop(sets);
        let others = order.iter().copied().filter(|&machine| machine != but);
        let wanted = Wanted::Alternative { variant, dropped: demand.dropped };
        none_left_out(others, |machine| {
            let (solver, shape) = (&mut *self, demand.shape);
            room_for(&mut OnMachine { solver, machine, shape, wanted, pod: None }, 1)
        });
        false
    }

    /// The number of pods of a demand that a machine admits, with devices for the next pod or
    /// whatever devices it has.
    fn room_on(&mut self, machine: usize, demand: &Demand, with_devices: bool) -> usize {
        let has_claims = self.problem.tables.shapes[demand.shape].has_claims;
        let pod = (has_claims && with_devices).then(|| demand.pods[demand.next]);
        let wanted = Wanted::Alternative { variant: demand.variant, dropped: demand.dropped };
        let (shape, left) = (demand.shape, demand.left());
        room_for(&mut OnMachine { solver: self, machine, shape, wanted, pod }, left)
    }

    /// Whether a machine has devices for the claims of a pod; they are taken when the pod is put
    /// there.
    fn has_devices(&mut self, machine: usize, pod: usize) -> bool {
        let problem = self.problem;
        let devices = self.devices.as_mut().zip(problem.devices.as_deref());
        devices.is_some_and(|(left, table)| left.search(&problem.tables, table, pod, machine))
    }

    /// Puts pods of a demand on a machine.
    fn put(&mut self, machine: usize, demand: &mut Demand, n: usize) {
        self.occupy(machine, demand.shape, n);
        self.take_devices(demand.shape);
        if self.problem.rules.concern(demand.shape) {
            let by = i32::try_from(n).unwrap_or(i32::MAX);
            self.counts.add_on_machine(&self.problem.topology(), demand.shape, machine, by);
        }
        self.placed.extend(demand.take(n).iter().map(|&pod| PlacedPod { pod, machine }));
    }

    /// Takes the devices that [`Self::has_devices`] found for a pod of a shape.
    pub(crate) fn take_devices(&mut self, shape: usize) {
        if self.problem.tables.shapes[shape].has_claims
            && let Some(devices) = &mut self.devices
        {
            devices.take_proposal();
        }
    }

    /// Makes sure that `meets` has an entry.
    fn meet(&mut self, class: ClassId, variant: usize) -> (ClassId, usize) {
        let key = (class, variant);
        if !self.meets.contains_key(&key) {
            let set = self.machines_meeting(class, variant);
            self.meets.insert(key, set);
        }
        key
    }

    /// Whether a machine takes a class as far as labels and taints go.
    pub(crate) fn suits(&mut self, machine: usize, class: ClassId, variant: usize) -> bool {
        let Some(position) = self.problem.tables.machines.position(machine) else { return false };
        let key = self.meet(class, variant);
        self.meets[&key][position]
    }

    /// Whether a machine may take a shape: it does as far as labels, taints and ports go.
    pub(crate) fn may_take(&mut self, machine: usize, shape: usize, variant: usize) -> bool {
        let Some(position) = self.problem.tables.machines.position(machine) else { return false };
        let shape = &self.problem.tables.shapes[shape];
        let key = self.meet(shape.class, variant);
        !self.closed[machine]
            && self.meets[&key][position]
            && (shape.ports.is_empty() || !ports_conflict(&shape.ports, &self.ports[machine]))
    }

    fn machines_meeting(&self, class: ClassId, variant: usize) -> FixedBitSet {
        let problem = self.problem;
        let class = &problem.tables.classes[class];
        let variant = class.variants.at(variant, &problem.tables.symbols);
        let mut set = FixedBitSet::with_capacity(problem.tables.machines.order.len());
        for (position, &machine) in problem.tables.machines.order.iter().enumerate() {
            let taints = &problem.tables.snapshot.nodes[machine].taints;
            let meets = untolerated(taints, &class.tolerations, variant.preferred_taints).is_none()
                && machine_meets(&problem.tables, machine, &variant.requirements);
            set.set(position, meets);
        }
        set
    }

    /// Subtracts requests from the free room of a machine.
    pub(crate) fn occupy(&mut self, machine: usize, shape: usize, n: usize) {
        let shape = &self.problem.tables.shapes[shape];
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        self.change_room(machine, &shape.requests, -n);
        self.ports[machine].extend(shape.ports.iter().cloned());
    }

    /// The same without an update of the index of machines by room, for callers that do not use it.
    pub(crate) fn occupy_unsorted(&mut self, machine: usize, shape: usize) {
        let width = self.problem.tables.machines.width();
        let shape = &self.problem.tables.shapes[shape];
        take_times(&mut self.room[machine * width..(machine + 1) * width], &shape.requests, 1);
        self.ports[machine].extend(shape.ports.iter().cloned());
    }

    /// Undoes the placements after the first `kept`.
    pub(crate) fn undo(&mut self, kept: usize) {
        for placed in self.placed.split_off(kept) {
            self.change_room(placed.machine, &self.shape_of(placed.pod).requests, 1);
            self.release_ports(placed);
        }
    }

    /// The same without the index of machines by room, for callers that do not use it.
    pub(crate) fn undo_unsorted(&mut self, kept: usize) {
        self.room_index = RoomIndex::default();
        let width = self.problem.tables.machines.width();
        for placed in self.placed.split_off(kept) {
            let requests = &self.shape_of(placed.pod).requests;
            let row = &mut self.room[placed.machine * width..(placed.machine + 1) * width];
            add_times(row, requests, 1);
            self.release_ports(placed);
        }
    }

    fn shape_of(&self, pod: usize) -> &'p Shape {
        let tables = &self.problem.tables;
        &tables.shapes[tables.snapshot.pods[pod].shape.0 as usize]
    }

    fn release_ports(&mut self, PlacedPod { pod, machine }: PlacedPod) {
        for port in &self.shape_of(pod).ports {
            if let Some(at) = self.ports[machine].iter().rposition(|used| used == port) {
                self.ports[machine].remove(at);
            }
        }
    }

    /// Keeps the types of a template that hold an amount next to their daemons.
    pub(crate) fn keep_fitting(
        &self,
        types: &mut FixedBitSet,
        template: usize,
        used: &[i64],
        ports: &[HostPort],
    ) {
        keep_fitting(self.problem, types, template, used, ports);
    }

    /// The types of a claim that remain after it gets a narrower spec and gets more pods.
    pub(crate) fn with(
        &self,
        claim: usize,
        spec: SpecId,
        requests: &[i64],
        ports: &[HostPort],
        n: usize,
    ) -> FixedBitSet {
        let claim = &self.claims[claim];
        let mut used = claim.used.clone();
        add_times(&mut used, requests, n);
        let mut types = claim.types.clone();
        types.intersect_with(&self.specs[spec].types);
        self.keep_fitting(&mut types, self.specs[spec].template, &used, ports);
        types
    }

    /// Removes the types that no longer hold the pods from all claims, and sets their targets to
    /// the cheapest.
    pub(crate) fn narrow_claims(&mut self) {
        for index in 0..self.claims.len() {
            let types =
                self.with(index, self.claims[index].spec, &[], &self.claims[index].ports, 0);
            debug_assert!(!types.is_clear(), "a machine to come has a type that holds its pods");
            let claim = &mut self.claims[index];
            if let Some(cheapest) = self.specs[claim.spec].cheapest(&types) {
                claim.target = cheapest;
            }
            claim.types = types;
        }
    }

    /// The resource with the largest shortage if no type of a spec holds a request.
    pub(crate) fn shortage(&self, spec: SpecId, requests: &[i64]) -> Exclusion {
        crate::machine_specs::shortage(&self.problem.tables, &self.specs[spec], requests)
    }

    /// The first key of which a set of types has fewer distinct values than `minValues`, with both
    /// numbers.
    pub(crate) fn lacking_values(
        &self,
        spec: SpecId,
        types: &FixedBitSet,
    ) -> Option<(crate::intern::Key, u32, u32)> {
        lacking_values(self.problem, &self.specs[spec], types)
    }

    pub(crate) fn is_strict(&self) -> bool {
        is_strict(self.problem)
    }

    pub(crate) fn room_of(&self, machine: usize) -> &[i64] {
        let width = self.problem.tables.machines.width();
        &self.room[machine * width..(machine + 1) * width]
    }

    fn change_room(&mut self, machine: usize, requests: &[i64], n: i64) {
        let width = self.problem.tables.machines.width();
        let position = self.problem.tables.machines.position(machine);
        let row = &mut self.room[machine * width..(machine + 1) * width];
        for (column, (amount, &more)) in row.iter_mut().zip(requests).enumerate() {
            let before = *amount;
            *amount = before.saturating_add(more.saturating_mul(n));
            if let Some(position) = position {
                self.room_index.change(position, column, before, *amount);
            }
        }
    }
}

fn is_strict(problem: &Problem<'_>) -> bool {
    problem.tables.policy.min_values == crate::policy::MinValuesPolicy::Strict
}

/// See [`Solver::keep_fitting`].
fn keep_fitting(
    problem: &Problem<'_>,
    types: &mut FixedBitSet,
    template: usize,
    used: &[i64],
    ports: &[HostPort],
) {
    let template = &problem.tables.templates[template];
    template.fitting.keep(types, used);
    if !ports.is_empty() {
        for kind in types.ones().collect::<Vec<_>>() {
            let free = !ports_conflict(ports, template.overheads.ports(kind));
            types.set(kind, free);
        }
    }
}

/// See [`Solver::lacking_values`].
fn lacking_values(
    problem: &Problem<'_>,
    spec: &MachineSpec,
    types: &FixedBitSet,
) -> Option<(crate::intern::Key, u32, u32)> {
    if !spec.requirements.has_min_values() {
        return None;
    }
    let table = &problem.tables.catalogs[problem.tables.templates[spec.template].catalog];
    spec.requirements.iter().find_map(|(key, set)| {
        let required = set.min_values()?;
        let found = distinct_values(problem, table, key, set, types);
        (found < required).then_some((key, required, found))
    })
}

/// Whether a machine of a spec may be launched for a pod of a shape, as far as its size, limits and
/// `minValues` go.
pub(crate) fn holds(
    problem: &Problem<'_>,
    limits: &Limits,
    spec: &MachineSpec,
    shape: usize,
) -> bool {
    let shape = &problem.tables.shapes[shape];
    let mut types = spec.types.clone();
    keep_fitting(problem, &mut types, spec.template, &shape.requests, &shape.ports);
    !types.is_clear()
        && limits.restrict(&problem.tables, spec.template, &mut types).is_ok()
        && !(is_strict(problem) && lacking_values(problem, spec, &types).is_some())
}

/// The number of values of a key that a set admits among types.
pub(crate) fn distinct_values(
    problem: &Problem<'_>,
    table: &crate::tables::types::TypeTable,
    key: crate::intern::Key,
    set: &crate::requirements::ValueSet,
    types: &FixedBitSet,
) -> u32 {
    let mut values: Vec<_> = types
        .ones()
        .filter_map(|kind| table.requirements[kind].get(key)?.listed())
        .flatten()
        .filter(|&&value| set.has(value, &problem.tables.symbols))
        .collect();
    values.sort_unstable();
    values.dedup();
    u32::try_from(values.len()).unwrap_or(u32::MAX)
}
