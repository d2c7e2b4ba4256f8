//! Zones where machines cost different amounts, as far as spread constraints have a say in who goes
//! where.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashSet;

use crate::compile::Problem;
use crate::demands::Demand;
use crate::dual::{Deal, Zone};
use crate::intern::{Key, Value};
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::topology::{Counts, Evenly};

/// With more zones, or domains of whatever label pods are spread over, these are left out of the
/// bound.
const ZONES: usize = 64;

/// The zones, or the domains of another label, if pods are spread over them. Otherwise one that
/// stands for all of them.
#[derive(Debug, Default)]
pub(super) struct Zones {
    key: Option<Key>,
    /// Zones where all machines cost the same are alike.
    pub(super) alike: Vec<Vec<Value>>,
    /// By shape: its spread constraint over these zones.
    spread: BTreeMap<usize, Evenly>,
}

/// The part of a demand's pods that are in zones that are alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemInZone {
    /// Index of the zones that are alike.
    pub(super) zone: usize,
    /// Index of the relaxation's items.
    pub(super) item: usize,
}

impl Zones {
    pub(super) fn new(problem: &Problem<'_>, specs: &mut MachineSpecs, demands: &[Demand]) -> Self {
        Self::different(problem, specs, demands)
            .unwrap_or_else(|| Self { alike: vec![Vec::new()], ..Self::default() })
    }

    /// The zones, if they make a difference.
    fn different(
        problem: &Problem<'_>,
        specs: &mut MachineSpecs,
        demands: &[Demand],
    ) -> Option<Self> {
        let mut demanded: BTreeMap<usize, usize> = BTreeMap::new();
        for demand in demands {
            *demanded.entry(demand.shape).or_default() += 1;
        }
        // Rules count the pods of a shape together, whatever claims tell them apart.
        let alone = |shape: usize| demanded.get(&shape) == Some(&1);
        let placed = |shape: usize| demanded.contains_key(&shape);
        let counts = Counts::new(&problem.topology());
        let mut by_key: BTreeMap<Key, (usize, BTreeMap<usize, Evenly>)> = BTreeMap::new();
        for demand in demands.iter().filter(|demand| alone(demand.shape)) {
            let rules = &problem.rules;
            for evenly in rules.evenly(&problem.topology(), specs, &counts, demand.shape, &placed) {
                let (pods, spread) = by_key.entry(evenly.key).or_default();
                if spread.insert(demand.shape, evenly).is_none() {
                    *pods += demand.pods.len();
                }
            }
        }
        let most =
            by_key.into_iter().max_by_key(|&(key, (pods, _))| (pods, std::cmp::Reverse(key)));
        let (key, (_, spread)) = most?;
        let alike = alike(problem, specs, key)?;
        (alike.len() > 1).then_some(Self { key: Some(key), alike, spread })
    }

    /// The spec of a NodePool's machines in zones that are alike.
    pub(super) fn spec(
        &self,
        problem: &Problem<'_>,
        specs: &mut MachineSpecs,
        base: SpecId,
        zone: usize,
    ) -> Option<SpecId> {
        match self.key {
            Some(key) => specs.at(&problem.tables, base, key, *self.alike[zone].first()?),
            None => Some(base),
        }
    }

    /// Adds the types that a spec offers in one of the zones that are alike.
    pub(super) fn add_types(
        &self,
        problem: &Problem<'_>,
        specs: &mut MachineSpecs,
        spec: SpecId,
        zone: usize,
        types: &mut FixedBitSet,
    ) {
        let Some(key) = self.key else {
            types.union_with(&specs[spec].types);
            return;
        };
        for &value in &self.alike[zone] {
            if let Some(there) = specs.at(&problem.tables, spec, key, value) {
                types.union_with(&specs[there].types);
            }
        }
    }

    /// Which of the zones that are alike a machine is in.
    pub(super) fn of_machine(&self, problem: &Problem<'_>, machine: usize) -> Option<usize> {
        let Some(key) = self.key else { return Some(0) };
        let value = problem.domains.of(key, machine)?;
        self.alike.iter().position(|zones| zones.contains(&value))
    }

    /// How a demand's pods are dealt out, from the items that they are in zones that are alike;
    /// `None` where nothing says so.
    pub(super) fn deal(
        &self,
        problem: &Problem<'_>,
        demand: &Demand,
        items: &[ItemInZone],
    ) -> Option<Deal> {
        let key = self.key?;
        let evenly = self.spread.get(&demand.shape)?;
        let with_machines: FxHashSet<Value> = problem
            .tables
            .machines
            .order
            .iter()
            .filter_map(|&machine| problem.domains.of(key, machine))
            .collect();
        let of = |&(value, _): &(Value, u32)| {
            let alike = self.alike.iter().position(|zones| zones.contains(&value));
            let item = items.iter().find(|it| Some(it.zone) == alike);
            match item {
                Some(it) => Zone::Item(it.item),
                None if with_machines.contains(&value) => Zone::Free,
                None => Zone::Closed,
            }
        };
        let zones = evenly.domains.iter().map(of).collect();
        let there: Vec<u32> = evenly.domains.iter().map(|&(_, there)| there).collect();
        Deal::new(demand.pods.len(), zones, &there, evenly.max_skew, evenly.is_short)
    }
}

/// The domains of a label, those together where all machines cost the same. `None` where machines
/// need not have the label, or there are too many.
fn alike(problem: &Problem<'_>, specs: &mut MachineSpecs, key: Key) -> Option<Vec<Vec<Value>>> {
    let bases: Vec<SpecId> = (0..problem.tables.templates.len())
        .map(|template| specs.base(&problem.tables, template))
        .collect();
    let mut values: Vec<Value> = Vec::new();
    for &base in &bases {
        let of_base = specs.values(&problem.tables, base, key);
        if of_base.is_empty() {
            return None;
        }
        values.extend(of_base);
    }
    values.sort_unstable();
    values.dedup();
    if values.len() > ZONES {
        return None;
    }
    let mut by_price: BTreeMap<Vec<Option<Vec<i64>>>, Vec<Value>> = BTreeMap::new();
    for &value in &values {
        let mut prices = |&base: &SpecId| {
            let there = specs.at(&problem.tables, base, key, value)?;
            Some(specs[there].prices())
        };
        by_price.entry(bases.iter().map(&mut prices).collect()).or_default().push(value);
    }
    let mut alike: Vec<Vec<Value>> = by_price.into_values().collect();
    alike.sort_unstable();
    Some(alike)
}
