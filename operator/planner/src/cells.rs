//! Cells: a NodePool's template narrowed by the requirements of the pods that share a machine.
//!
//! A machine to come is in one cell at a time and moves to a narrower one with each pod that asks for more. Cells are interned: the instance types that
//! meet a set of requirements, and what each costs then, are worked out once however many machines and pods arrive at it.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use k8s_openapi::api::core::v1::Taint;
use rustc_hash::FxHashMap;

use crate::compile::taints::untolerated;
use crate::compile::types::{NOT_FOR_SALE, markets_meeting};
use crate::compile::variants::Variant;
use crate::compile::{Problem, shapes::ClassId};
use crate::intern::{Key, Value};
use crate::plan::Exclusion;
use crate::reasons::no_type;
use crate::requirements::{Requirements, ValueSet};
use crate::topology::cell_values;

/// Index of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CellId(u32);

/// A template, narrowed.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) template: usize,
    pub(crate) requirements: Requirements,
    stock: Arc<Stock>,
}

impl std::ops::Deref for Cell {
    type Target = Stock;

    fn deref(&self) -> &Stock {
        &self.stock
    }
}

/// What can be bought in a cell. Cells that differ only in labels which no instance type has share it.
#[derive(Clone, Debug)]
pub(crate) struct Stock {
    /// Types that meet the requirements and are on sale so.
    pub(crate) types: FixedBitSet,
    pub(crate) markets: FixedBitSet,
    /// By type: the cheapest offering that meets the requirements.
    pub(crate) prices: Vec<i64>,
    /// Types that no other type beats in price and every resource; by index.
    pub(crate) frontier: Vec<usize>,
    /// The types, the cheapest first.
    by_price: Vec<usize>,
}

/// A pod can't be in a cell, or a cell can't be narrowed. [`Cells::why_not`] says why: most that ask whether it can don't want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shut;

/// All cells that were needed so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    list: Vec<Arc<Cell>>,
    /// By template.
    bases: Vec<Option<CellId>>,
    index: FxHashMap<(usize, Requirements), CellId>,
    /// By what templates share ([`crate::compile::types::Kit`]), with requirements about labels that types have.
    stocks: FxHashMap<(usize, Requirements), Option<Arc<Stock>>>,
    joins: FxHashMap<(CellId, ClassId, usize), Option<CellId>>,
    domains: FxHashMap<(CellId, Key, Value), Option<CellId>>,
    values: FxHashMap<(CellId, Key), Vec<Value>>,
    places: FxHashMap<(CellId, usize), i64>,
    /// By catalog, class and term of what the class requires: the types that meet it.
    meeting: FxHashMap<(usize, ClassId, usize), Arc<FixedBitSet>>,
}

impl std::ops::Index<CellId> for Cells {
    type Output = Cell;

    fn index(&self, id: CellId) -> &Cell {
        &self.list[id.0 as usize]
    }
}

impl Cells {
    /// The cell of a template on which nothing runs yet.
    pub(crate) fn base(&mut self, problem: &Problem<'_>, template: usize) -> CellId {
        if let Some(&Some(known)) = self.bases.get(template) {
            return known;
        }
        let compiled = &problem.templates[template];
        let base = self
            .intern(problem, template, compiled.requirements.clone(), &compiled.types)
            .expect("templates without types are left out when the snapshot is compiled");
        self.bases.resize(problem.templates.len(), None);
        self.bases[template] = Some(base);
        base
    }

    /// The cell in which a machine is once a pod of a class has come.
    pub(crate) fn join(
        &mut self,
        problem: &Problem<'_>,
        cell: CellId,
        class: ClassId,
        variant: usize,
    ) -> Result<CellId, Shut> {
        if let Some(known) = self.joins.get(&(cell, class, variant)) {
            return known.ok_or(Shut);
        }
        let compiled = &problem.classes[class];
        let wanted = compiled.variants.at(variant, &problem.symbols);
        // There may be as many NodePools as pods. What is seen at a glance is not remembered.
        self.glance(problem, cell, class, &wanted).map_err(|_| Shut)?;
        let found = self.narrow(problem, cell, &wanted.requirements);
        self.joins.insert((cell, class, variant), found.ok());
        found
    }

    /// The same.
    pub(crate) fn joined(
        &mut self,
        problem: &Problem<'_>,
        cell: CellId,
        class: ClassId,
        variant: usize,
    ) -> Option<CellId> {
        self.join(problem, cell, class, variant).ok()
    }

    /// The first thing that keeps a pod of a class off a cell.
    pub(crate) fn why_not(
        &self,
        problem: &Problem<'_>,
        id: CellId,
        class: ClassId,
        variant: usize,
    ) -> Exclusion {
        let wanted = problem.classes[class].variants.at(variant, &problem.symbols);
        let cell = &self[id];
        let symbols = &problem.symbols;
        match self.glance(problem, id, class, &wanted) {
            Err(Glance::Taint(taint)) => Exclusion::Taint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.clone(),
            },
            Err(Glance::Key(key)) => Exclusion::Requirement {
                key: symbols.key_name(key).to_owned(),
                pod: wanted
                    .requirements
                    .get(key)
                    .map(|set| set.describe(symbols))
                    .unwrap_or_default(),
                pool: cell
                    .requirements
                    .get(key)
                    .map_or_else(|| "not defined".to_owned(), |set| set.describe(symbols)),
            },
            Ok(()) => {
                let mut requirements = cell.requirements.clone();
                requirements.extend(&wanted.requirements, symbols);
                let catalog = problem.templates[cell.template].catalog;
                let markets = markets_meeting(problem, catalog, &requirements);
                no_type(problem, cell.template, &requirements, &markets, &cell.types)
            }
        }
    }

    /// What keeps a pod off a cell, as far as taints and labels tell.
    fn glance<'p>(
        &self,
        problem: &'p Problem<'_>,
        id: CellId,
        class: ClassId,
        wanted: &Variant<'_>,
    ) -> Result<(), Glance<'p>> {
        let class = &problem.classes[class];
        let pool = problem.templates[self[id].template].pool;
        let taints = &problem.snapshot.node_pools[pool].template.taints;
        if let Some(taint) = untolerated(taints, &class.tolerations, wanted.preferred_taints) {
            return Err(Glance::Taint(taint));
        }
        self.compatible(problem, id, &wanted.requirements).map_err(Glance::Key)
    }

    /// Whether a cell may meet `wanted`; else the key that it can't meet.
    fn compatible(
        &self,
        problem: &Problem<'_>,
        id: CellId,
        wanted: &Requirements,
    ) -> Result<(), Key> {
        let cell = &self[id];
        let symbols = &problem.symbols;
        let defined = &problem.templates[cell.template].requirements;
        let well_known = |key| problem.is_well_known(key);
        // What the pool itself defines decides whether a label will be there: that another pod can do without it does not define it.
        defined
            .compatible(wanted, well_known, symbols)
            .and_then(|()| cell.requirements.compatible(wanted, well_known, symbols))
    }

    /// The cell that also meets `wanted`.
    pub(crate) fn narrow(
        &mut self,
        problem: &Problem<'_>,
        id: CellId,
        wanted: &Requirements,
    ) -> Result<CellId, Shut> {
        if wanted.is_empty() {
            return Ok(id);
        }
        self.compatible(problem, id, wanted).map_err(|_| Shut)?;
        let cell = &self[id];
        let mut requirements = cell.requirements.clone();
        requirements.extend(wanted, &problem.symbols);
        let (template, stock) = (cell.template, Arc::clone(&cell.stock));
        self.intern(problem, template, requirements, &stock.types).ok_or(Shut)
    }

    /// The cell in which a label has one value, if there is any machine in it.
    pub(crate) fn at(
        &mut self,
        problem: &Problem<'_>,
        cell: CellId,
        key: Key,
        value: Value,
    ) -> Option<CellId> {
        if let Some(&known) = self.domains.get(&(cell, key, value)) {
            return known;
        }
        let mut wanted = Requirements::default();
        wanted.add(key, ValueSet::one_of([value]), &problem.symbols);
        let found = self.narrow(problem, cell, &wanted).ok();
        self.domains.insert((cell, key, value), found);
        found
    }

    /// What a place for a pod of a shape costs in a cell, in micro-dollars: its dominant share of the type where that is cheapest.
    pub(crate) fn place_price(&mut self, problem: &Problem<'_>, cell: CellId, shape: usize) -> i64 {
        if let Some(&known) = self.places.get(&(cell, shape)) {
            return known;
        }
        let price = share_price(problem, &self[cell], &problem.shapes[shape].requests, 0.0);
        self.places.insert((cell, shape), price);
        price
    }

    /// The values of a label that machines of a cell can have, sorted.
    pub(crate) fn values(&mut self, problem: &Problem<'_>, cell: CellId, key: Key) -> &[Value] {
        if !self.values.contains_key(&(cell, key)) {
            let values = cell_values(problem, self, cell, key);
            self.values.insert((cell, key), values);
        }
        &self.values[&(cell, key)]
    }

    /// Whether machines of a cell have a label.
    pub(crate) fn has_values(&self, problem: &Problem<'_>, cell: CellId, key: Key) -> bool {
        match self.values.get(&(cell, key)) {
            Some(known) => !known.is_empty(),
            None => !cell_values(problem, self, cell, key).is_empty(),
        }
    }

    /// The types of a catalog that meet one of the terms of what a class requires.
    pub(crate) fn meeting(
        &mut self,
        problem: &Problem<'_>,
        catalog: usize,
        class: ClassId,
        term: usize,
    ) -> &FixedBitSet {
        self.meeting.entry((catalog, class, term)).or_insert_with(|| {
            let (table, symbols) = (&problem.catalogs[catalog], &problem.symbols);
            let required = &problem.classes[class].required[term];
            let meets =
                |&kind: &usize| table.requirements[kind].intersects(required, symbols).is_ok();
            Arc::new((0..table.len()).filter(meets).collect())
        })
    }

    fn intern(
        &mut self,
        problem: &Problem<'_>,
        template: usize,
        requirements: Requirements,
        candidates: &FixedBitSet,
    ) -> Option<CellId> {
        let key = (template, requirements);
        if let Some(&known) = self.index.get(&key) {
            return Some(known);
        }
        // What can't be had is remembered by whoever asked.
        let stock = self.stock(problem, template, &key.1, candidates)?;
        let id = CellId(u32::try_from(self.list.len()).expect("cells are fewer than pods"));
        self.list.push(Arc::new(Cell { template, requirements: key.1.clone(), stock }));
        self.index.insert(key, id);
        Some(id)
    }

    fn stock(
        &mut self,
        problem: &Problem<'_>,
        template: usize,
        requirements: &Requirements,
        candidates: &FixedBitSet,
    ) -> Option<Arc<Stock>> {
        let compiled = &problem.templates[template];
        let about = problem.catalogs[compiled.catalog].about(requirements);
        let made = self.stocks.entry((compiled.id, about)).or_insert_with_key(|(_, about)| {
            Stock::new(problem, template, about, candidates).map(Arc::new)
        });
        made.clone()
    }
}

/// What is seen of a pod and a cell at a glance.
enum Glance<'p> {
    Taint(&'p Taint),
    Key(Key),
}

impl Stock {
    fn new(
        problem: &Problem<'_>,
        template: usize,
        requirements: &Requirements,
        candidates: &FixedBitSet,
    ) -> Option<Self> {
        let compiled = &problem.templates[template];
        let table = &problem.catalogs[compiled.catalog];
        let markets = markets_meeting(problem, compiled.catalog, requirements);
        let mut prices = vec![NOT_FOR_SALE; table.len()];
        let mut types = FixedBitSet::with_capacity(table.len());
        for kind in candidates.ones() {
            if table.requirements[kind].intersects(requirements, &problem.symbols).is_err() {
                continue;
            }
            let on_sale = markets.ones().map(|market| table.prices(kind)[market]).min();
            prices[kind] = on_sale.unwrap_or(NOT_FOR_SALE);
            types.set(kind, prices[kind] != NOT_FOR_SALE);
        }
        if types.is_clear() {
            return None;
        }
        let by_price = by_price(&types, &prices);
        let frontier = frontier(problem, template, &by_price);
        Some(Self { types, markets, prices, frontier, by_price })
    }

    /// The cheapest of some of its types.
    pub(crate) fn cheapest(&self, types: &FixedBitSet) -> Option<usize> {
        self.ranked(types).next()
    }

    /// Those of its types that are in a set, the cheapest first.
    pub(crate) fn ranked<'s>(&'s self, types: &'s FixedBitSet) -> impl Iterator<Item = usize> + 's {
        self.by_price.iter().copied().filter(|&kind| types[kind])
    }
}

/// What a request costs in a cell, in micro-dollars: its dominant share of the type where that is cheapest, and at least so much of a machine.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "an estimate; hourly prices are far below 2^53 millionths"
)]
pub(crate) fn share_price(
    problem: &Problem<'_>,
    cell: &Cell,
    requests: &[i64],
    at_least: f64,
) -> i64 {
    let template = &problem.templates[cell.template];
    let price = |&kind: &usize| {
        let shares = requests.iter().zip(template.net(kind)).filter(|(want, _)| **want > 0);
        let shares = shares.map(|(&want, &have)| want as f64 / have.max(1) as f64);
        let share = shares.fold(0.0, f64::max);
        let each = cell.prices[kind].saturating_add(problem.policy.node_price.0) as f64;
        (share <= 1.0).then_some(each * share.max(at_least))
    };
    let least = cell.frontier.iter().filter_map(price).fold(f64::INFINITY, f64::min);
    if least.is_finite() { least.ceil() as i64 } else { i64::MAX }
}

/// Types, the cheapest first.
pub(crate) fn by_price(types: &FixedBitSet, prices: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = types.ones().collect();
    order.sort_by_key(|&kind| (prices[kind], kind));
    order
}

/// The types that are worth considering, of types the cheapest first: a type that costs no less than another and has no more of anything never is.
pub(crate) fn frontier(problem: &Problem<'_>, template: usize, by_price: &[usize]) -> Vec<usize> {
    let compiled = &problem.templates[template];
    let mut best: Vec<usize> = Vec::new();
    for &kind in by_price {
        let net = compiled.net(kind);
        // The dearer ones are larger, so that they come closer to it.
        let beaten = best
            .iter()
            .rev()
            .any(|&other| compiled.net(other).iter().zip(net).all(|(have, want)| have >= want));
        if !beaten {
            best.push(kind);
        }
    }
    best.sort_unstable();
    best
}
