//! Machines to come by spec and by what they still hold, so that a pod is only compared with those
//! that may take it.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::strategy::Strategy;
use crate::machine_specs::SpecId;
use crate::room_index::{Query, RoomIndex, first};
use crate::solver::Solver;

/// See the module. It follows [`Solver::claims`].
#[derive(Debug)]
pub(crate) struct Bins {
    strategy: Strategy,
    room_index: RoomIndex,
    /// What the claims still hold, row by row: their target type, with [`Strategy::Fill`] the
    /// largest of their types.
    rows: Vec<i64>,
    width: usize,
    /// By claim, its place in `specs`.
    slots: Vec<usize>,
    specs: Vec<Slot>,
    /// Those of them that have claims.
    live: FixedBitSet,
    by_spec: FxHashMap<SpecId, usize>,
}

/// The claims of a spec.
#[derive(Debug)]
struct Slot {
    spec: SpecId,
    claims: FixedBitSet,
    n: usize,
    /// None of them comes before this one.
    first: usize,
}

impl Bins {
    /// For the claims that a solver has.
    pub(crate) fn new(solver: &Solver<'_, '_>, strategy: Strategy) -> Self {
        let width = solver.problem.tables.columns.len();
        let shapes = solver.problem.tables.shapes.iter().map(|shape| &shape.requests[..]);
        let mut bins = Self {
            strategy,
            room_index: RoomIndex::new(shapes, width),
            rows: Vec::new(),
            width,
            slots: Vec::new(),
            specs: Vec::new(),
            live: FixedBitSet::new(),
            by_spec: FxHashMap::default(),
        };
        bins.sync(solver);
        bins
    }

    /// Adds the claims that came since.
    pub(super) fn sync(&mut self, solver: &Solver<'_, '_>) {
        for claim in self.slots.len()..solver.claims.len() {
            let row = self.row(solver, claim);
            self.room_index.insert(claim, &row);
            self.rows.extend(row);
            let slot = self.slot(solver.claims[claim].spec);
            self.slots.push(slot);
            self.enter(claim, slot);
        }
    }

    /// Notes that a claim has changed.
    pub(super) fn refresh(&mut self, solver: &Solver<'_, '_>, claim: usize) {
        let row = self.row(solver, claim);
        let known = &mut self.rows[claim * self.width..(claim + 1) * self.width];
        self.room_index.update(claim, known, &row);
        known.copy_from_slice(&row);
        let slot = self.slot(solver.claims[claim].spec);
        if slot != self.slots[claim] {
            self.close(claim);
            self.enter(claim, slot);
            self.slots[claim] = slot;
        }
    }

    fn enter(&mut self, claim: usize, slot: usize) {
        let entered = &mut self.specs[slot];
        entered.first = if entered.n == 0 { claim } else { entered.first.min(claim) };
        entered.n += 1;
        entered.claims.grow_and_insert(claim);
        self.live.grow_and_insert(slot);
    }

    /// Leaves a claim out from now on.
    pub(super) fn close(&mut self, claim: usize) {
        let slot = self.slots[claim];
        let left = &mut self.specs[slot];
        if !left.claims.contains(claim) {
            return;
        }
        left.n -= 1;
        if left.n > 0 {
            left.claims.set(claim, false);
        } else {
            // There may be as many specs without claims as pods.
            left.claims = FixedBitSet::new();
            self.live.set(slot, false);
        }
    }

    /// Takes out of all claims the types that no longer hold their pods.
    pub(super) fn narrow(&mut self, solver: &mut Solver<'_, '_>) {
        solver.narrow_claims();
        // They may aim at smaller types now.
        self.sync(solver);
        for claim in 0..self.slots.len() {
            self.refresh(solver, claim);
        }
    }

    /// How many specs there are; they keep their number.
    pub(super) fn n_specs(&self) -> usize {
        self.specs.len()
    }

    /// A spec by its number.
    pub(super) fn spec(&self, slot: usize) -> SpecId {
        self.specs[slot].spec
    }

    /// The number of the spec of a claim.
    pub(super) fn slot_of(&self, claim: usize) -> usize {
        self.slots[claim]
    }

    /// The specs with claims, by their numbers.
    pub(super) fn live(&self) -> impl Iterator<Item = usize> {
        self.live.ones()
    }

    /// What a claim still holds.
    pub(super) fn room(&self, claim: usize) -> &[i64] {
        &self.rows[claim * self.width..(claim + 1) * self.width]
    }

    /// What selects the claims that may hold a request.
    pub(super) fn query(&self, request: &[i64]) -> Query {
        self.room_index.query(request)
    }

    /// The next claim of a spec that may hold a request and is not closed.
    pub(super) fn next(
        &self,
        query: &Query,
        slot: usize,
        closed: &FixedBitSet,
        from: usize,
    ) -> Option<usize> {
        let mut sets = self.room_index.sets(query);
        // The set of the spec is the smallest.
        sets[0] = &self.specs[slot].claims;
        first(&sets, &[closed], from.max(self.specs[slot].first))
    }

    /// The claims of a spec that [`Self::next`] passed over before it found one.
    pub(super) fn passed_over(
        &self,
        slot: usize,
        from: usize,
        found: Option<usize>,
    ) -> impl Iterator<Item = usize> {
        let slot = &self.specs[slot];
        let claims = from.max(slot.first)..found.unwrap_or(self.slots.len());
        claims.filter(|&claim| slot.claims.contains(claim))
    }

    fn slot(&mut self, spec: SpecId) -> usize {
        let next = self.specs.len();
        let slot = *self.by_spec.entry(spec).or_insert(next);
        if slot == next {
            self.specs.push(Slot { spec, claims: FixedBitSet::new(), n: 0, first: 0 });
        }
        slot
    }

    fn row(&self, solver: &Solver<'_, '_>, claim: usize) -> Vec<i64> {
        let claim = &solver.claims[claim];
        let template = &solver.problem.tables.templates[solver.specs[claim.spec].template];
        match self.strategy {
            Strategy::Cheapest | Strategy::Columns | Strategy::Plain => {
                super::load::rest(template.net(claim.target), &claim.used)
            }
            Strategy::Fill => (0..self.width)
                .map(|column| template.fitting.most(&claim.types, column) - claim.used[column])
                .collect(),
        }
    }
}
