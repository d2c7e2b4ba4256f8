//! Cells: a NodePool's template narrowed by the requirements of the pods that share a machine.
//!
//! A machine to come is in one cell at a time and moves to a narrower one with each pod that asks for more. Cells are interned: the instance types that
//! meet a set of requirements, and what each costs then, are worked out once however many machines and pods arrive at it.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::compile::taints::untolerated;
use crate::compile::types::{NOT_FOR_SALE, markets_meeting};
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

/// All cells that were needed so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    list: Vec<Arc<Cell>>,
    index: FxHashMap<(usize, Requirements), Result<CellId, Exclusion>>,
    joins: FxHashMap<(CellId, ClassId, usize), Result<CellId, Exclusion>>,
    domains: FxHashMap<(CellId, Key, Value), Option<CellId>>,
    values: FxHashMap<(CellId, Key), Vec<Value>>,
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
        let compiled = &problem.templates[template];
        self.intern(problem, template, compiled.requirements.clone(), &compiled.types)
            .expect("templates without types are left out when the snapshot is compiled")
    }

    /// The cell in which a machine is once a pod of a class has come, or the first thing that keeps the pod off it.
    pub(crate) fn join(
        &mut self,
        problem: &Problem<'_>,
        cell: CellId,
        class: ClassId,
        variant: usize,
    ) -> Result<CellId, Exclusion> {
        if let Some(known) = self.joins.get(&(cell, class, variant)) {
            return known.clone();
        }
        let result = self.join_anew(problem, cell, class, variant);
        self.joins.insert((cell, class, variant), result.clone());
        result
    }

    /// The same where nobody asks what keeps the pod off.
    pub(crate) fn joined(
        &mut self,
        problem: &Problem<'_>,
        cell: CellId,
        class: ClassId,
        variant: usize,
    ) -> Option<CellId> {
        match self.joins.get(&(cell, class, variant)) {
            Some(known) => known.as_ref().ok().copied(),
            None => self.join(problem, cell, class, variant).ok(),
        }
    }

    fn join_anew(
        &mut self,
        problem: &Problem<'_>,
        id: CellId,
        class: ClassId,
        variant: usize,
    ) -> Result<CellId, Exclusion> {
        let cell = &self[id];
        let class = &problem.classes[class];
        let variant = &class.variants[variant];
        let pool = problem.templates[cell.template].pool;
        let taints = &problem.snapshot.node_pools[pool].template.taints;
        if let Some(taint) = untolerated(taints, &class.tolerations, variant.preferred_taints) {
            return Err(Exclusion::Taint {
                key: taint.key.clone(),
                value: taint.value.clone(),
                effect: taint.effect.clone(),
            });
        }
        self.narrow(problem, id, &variant.requirements)
    }

    /// The cell that also meets `wanted`.
    pub(crate) fn narrow(
        &mut self,
        problem: &Problem<'_>,
        id: CellId,
        wanted: &Requirements,
    ) -> Result<CellId, Exclusion> {
        if wanted.is_empty() {
            return Ok(id);
        }
        let cell = &self[id];
        let symbols = &problem.symbols;
        let defined = &problem.templates[cell.template].requirements;
        let well_known = |key| problem.is_well_known(key);
        // What the pool itself defines decides whether a label will be there: that another pod can do without it does not define it.
        defined
            .compatible(wanted, well_known, symbols)
            .and_then(|()| cell.requirements.compatible(wanted, well_known, symbols))
            .map_err(|key| Exclusion::Requirement {
                key: symbols.key_name(key).to_owned(),
                pod: wanted.get(key).map(|set| set.describe(symbols)).unwrap_or_default(),
                pool: cell
                    .requirements
                    .get(key)
                    .map_or_else(|| "not defined".to_owned(), |set| set.describe(symbols)),
            })?;
        let mut requirements = cell.requirements.clone();
        requirements.extend(wanted, symbols);
        let (template, types) = (cell.template, cell.types.clone());
        self.intern(problem, template, requirements, &types)
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

    fn intern(
        &mut self,
        problem: &Problem<'_>,
        template: usize,
        requirements: Requirements,
        candidates: &FixedBitSet,
    ) -> Result<CellId, Exclusion> {
        let key = (template, requirements);
        if let Some(known) = self.index.get(&key) {
            return known.clone();
        }
        let made = Cell::new(problem, template, &key.1, candidates).map(|cell| {
            self.list.push(Arc::new(cell));
            CellId(u32::try_from(self.list.len() - 1).expect("cells are fewer than pods"))
        });
        self.index.insert(key, made.clone());
        made
    }
}

impl Cell {
    fn new(
        problem: &Problem<'_>,
        template: usize,
        requirements: &Requirements,
        candidates: &FixedBitSet,
    ) -> Result<Self, Exclusion> {
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
            return Err(no_type(problem, template, requirements, &markets, candidates));
        }
        let by_price = by_price(&types, &prices);
        let frontier = frontier(problem, template, &by_price);
        let requirements = requirements.clone();
        Ok(Self { template, requirements, types, markets, prices, frontier, by_price })
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
