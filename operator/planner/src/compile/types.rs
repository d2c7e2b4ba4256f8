//! Instance types as tables, and the ones that each NodePool can launch.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::fitting::Fitting;
use super::volumes::UNLIMITED;
use super::{Columns, Problem, fits};
use crate::compile::daemons::{Daemons, Overheads};
use crate::intern::{Key, Symbols};
use crate::label;
use crate::requirements::{Requirements, ValueSet};
use crate::snapshot::{CapacityType, Catalog, Snapshot};

/// The price of types without an available offering; no other type has it.
pub(crate) const NOT_FOR_SALE: i64 = i64::MAX;

/// A market: a zone, a capacity type, and the other labels in which offerings differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Market {
    pub(crate) capacity_type: CapacityType,
    pub(crate) requirements: Requirements,
}

/// The instance types of one catalog.
#[derive(Debug)]
pub(crate) struct TypeTable {
    /// By type, sorted.
    pub(crate) names: Vec<String>,
    pub(crate) requirements: Vec<Requirements>,
    pub(crate) markets: Vec<Market>,
    /// By type and market: micro-dollars per hour, or [`NOT_FOR_SALE`].
    prices: Vec<i64>,
    /// By type and column.
    capacity: Vec<i64>,
    allocatable: Vec<i64>,
    width: usize,
    /// Every key that a type or an offering defines: well-known by definition.
    pub(crate) keys: IndexSet<Key, FxBuildHasher>,
}

impl TypeTable {
    pub(crate) fn new(catalog: &Catalog, columns: &Columns, symbols: &mut Symbols) -> Self {
        let mut markets: IndexSet<Market, FxBuildHasher> = IndexSet::default();
        let mut table = Self {
            names: Vec::new(),
            requirements: Vec::new(),
            markets: Vec::new(),
            prices: Vec::new(),
            capacity: Vec::new(),
            allocatable: Vec::new(),
            width: columns.len(),
            keys: IndexSet::default(),
        };
        let mut offers = Vec::new();
        // Most offerings differ in nothing but zone and capacity type.
        let mut usual: FxHashMap<(&str, CapacityType), usize> = FxHashMap::default();
        let (zone, capacity_type) = (symbols.key(label::ZONE), symbols.key(label::CAPACITY_TYPE));
        let instance_type = symbols.key(label::INSTANCE_TYPE);
        for (index, kind) in catalog.instance_types.iter().enumerate() {
            let mut requirements = Requirements::new(&kind.requirements, symbols);
            if requirements.get(instance_type).is_none() {
                let name = symbols.value(&kind.name);
                requirements.add(instance_type, ValueSet::one_of([name]), symbols);
            }
            table.keys.extend(requirements.iter().map(|(key, _)| key));
            table.requirements.push(requirements);
            table.names.push(kind.name.clone());
            table.capacity.extend(columns.row(&kind.capacity));
            let mut allocatable = columns.row(&kind.allocatable());
            for (column, driver) in columns.drivers() {
                let limit = kind.volume_limits.get(driver);
                allocatable[column] = limit.map_or(UNLIMITED, |&limit| i64::from(limit));
            }
            table.allocatable.extend(allocatable);
            for offering in &kind.offerings {
                let plain = offering.requirements.is_empty();
                let place = (offering.zone.as_str(), offering.capacity_type);
                let known = usual.get(&place).copied().filter(|_| plain);
                let market = known.unwrap_or_else(|| {
                    let mut requirements = Requirements::new(&offering.requirements, symbols);
                    for (key, value) in [
                        (zone, offering.zone.as_str()),
                        (capacity_type, offering.capacity_type.as_str()),
                    ] {
                        let value = symbols.value(value);
                        requirements.add(key, ValueSet::one_of([value]), symbols);
                    }
                    table.keys.extend(requirements.iter().map(|(key, _)| key));
                    let market = Market { capacity_type: offering.capacity_type, requirements };
                    markets.insert_full(market).0
                });
                if plain {
                    usual.insert(place, market);
                }
                if offering.is_launchable() {
                    offers.push((index, market, offering.price.0));
                }
            }
        }
        table.markets = markets.into_iter().collect();
        table.prices = vec![NOT_FOR_SALE; table.names.len() * table.markets.len()];
        for (index, market, price) in offers {
            let spec = &mut table.prices[index * table.markets.len() + market];
            *spec = price.min(*spec);
        }
        table
    }

    /// Whether some types have a label, and others don't, wherever they are bought.
    pub(crate) fn has_partly(&self, key: Key) -> bool {
        if !self.keys.contains(&key)
            || self.markets.iter().all(|market| market.requirements.get(key).is_some())
        {
            return false;
        }
        let has = |of_type: &Requirements| of_type.get(key).is_some_and(|it| !it.admits_absence());
        let mut types = self.requirements.iter().map(has);
        let first = types.next();
        types.any(|has| Some(has) != first)
    }

    /// The number of types.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Prices of a type by market.
    pub(crate) fn prices(&self, kind: usize) -> &[i64] {
        let n = self.markets.len();
        &self.prices[kind * n..(kind + 1) * n]
    }

    /// Capacity of the type.
    pub(crate) fn capacity(&self, kind: usize) -> &[i64] {
        &self.capacity[kind * self.width..(kind + 1) * self.width]
    }

    /// Allocatable of the type.
    pub(crate) fn allocatable(&self, kind: usize) -> &[i64] {
        &self.allocatable[kind * self.width..(kind + 1) * self.width]
    }

    /// The part of a set on labels of types or offerings.
    pub(crate) fn about(&self, requirements: &Requirements) -> Requirements {
        requirements.only(|key| self.keys.contains(&key))
    }

    /// The index of a type.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|probe| probe.as_str().cmp(name)).ok()
    }
}

/// A NodePool, compiled: its requirements and the types that it can launch.
#[derive(Debug)]
pub(crate) struct Template {
    /// Index into [`Snapshot::node_pools`].
    pub(crate) pool: usize,
    /// Index into [`Problem::catalogs`].
    pub(crate) catalog: usize,
    /// Requirements of the pool, its labels, and the two labels of machines that are up.
    pub(crate) requirements: Requirements,
    kit: Arc<Kit>,
}

impl std::ops::Deref for Template {
    type Target = Kit;

    fn deref(&self) -> &Kit {
        &self.kit
    }
}

/// The part that templates share if they differ only in labels that no instance type has.
#[derive(Debug)]
pub(crate) struct Kit {
    /// Unique per kit: key of what is cached for it.
    pub(crate) id: usize,
    /// Types that meet the requirements, have an offering that does, and hold their own daemons.
    pub(crate) types: FixedBitSet,
    /// By type and column: room for pods, whose number the policy limits.
    net: Vec<i64>,
    width: usize,
    /// Which types hold an amount next to their daemons.
    pub(crate) fitting: Fitting,
    /// Daemons per group of types.
    pub(crate) overheads: Overheads,
}

/// The kits of a snapshot: by catalog, what is asked of its types, and daemons. `None` where no
/// type is left.
pub(crate) type Kits = FxHashMap<(usize, Requirements, Overheads), Option<Arc<Kit>>>;

/// The requirements of every NodePool that could launch, the heaviest pool first, or why it can't.
pub(crate) fn template_requirements(
    snapshot: &Snapshot,
    symbols: &mut Symbols,
) -> Vec<(usize, Result<Requirements, String>)> {
    let mut order: Vec<usize> = (0..snapshot.node_pools.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&snapshot.node_pools[a], &snapshot.node_pools[b]);
        b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name))
    });
    order
        .into_iter()
        .filter(|&index| snapshot.node_pools[index].replicas.is_none())
        .map(|index| {
            let pool = &snapshot.node_pools[index];
            let mut requirements = Requirements::new(&pool.template.requirements, symbols);
            let labels = Requirements::from_labels(&pool.template.labels, symbols);
            requirements.extend(&labels, symbols);
            for (key, value) in [
                (label::NODE_POOL, pool.name.as_str()),
                (label::REGISTERED, "true"),
                (label::INITIALIZED, "true"),
            ] {
                let (key, value) = (symbols.key(key), symbols.value(value));
                requirements.add(key, ValueSet::one_of([value]), symbols);
            }
            (index, pool.not_ready.clone().map_or(Ok(requirements), Err))
        })
        .collect()
}

impl Template {
    pub(crate) fn new(
        problem: &Problem<'_>,
        pool: usize,
        requirements: Requirements,
        daemons: &Daemons,
        kits: &mut Kits,
    ) -> Result<Self, String> {
        if let Some((key, _)) = requirements.iter().find(|(_, set)| set.is_contradiction()) {
            let key = problem.symbols.key_name(key);
            return Err(format!("its labels and requirements leave no value for {key}"));
        }
        let catalog = problem.snapshot.node_pools[pool]
            .catalog
            .ok_or("the instance types of its NodeClass are not known yet")?
            .0 as usize;
        let table = &problem.catalogs[catalog];
        let taints = &problem.snapshot.node_pools[pool].template.taints;
        let overheads = daemons.overheads(problem, &requirements, taints, table);
        let id = kits.len();
        let key = (catalog, table.about(&requirements), overheads);
        let kit = kits.entry(key).or_insert_with_key(|(_, about, overheads)| {
            Kit::new(problem, catalog, id, about, overheads).map(Arc::new)
        });
        let kit = kit
            .clone()
            .ok_or("none of its instance types meets its requirements and is available")?;
        Ok(Self { pool, catalog, requirements, kit })
    }
}

impl Kit {
    fn new(
        problem: &Problem<'_>,
        catalog: usize,
        id: usize,
        requirements: &Requirements,
        overheads: &Overheads,
    ) -> Option<Self> {
        let table = &problem.catalogs[catalog];
        let on_sale = markets_meeting(problem, catalog, requirements);
        let width = problem.columns.len();
        let mut net = Vec::with_capacity(table.len() * width);
        let mut types = FixedBitSet::with_capacity(table.len());
        let nothing = vec![0; width];
        let pods = problem.columns.index("pods");
        let most_pods = pods.zip(problem.policy.most_pods(problem.snapshot));
        for kind in 0..table.len() {
            let overhead = overheads.of(kind);
            net.extend(
                table.allocatable(kind).iter().zip(overhead).map(|(have, less)| have - less),
            );
            if let Some((column, most)) = most_pods {
                let left = &mut net[kind * width + column];
                *left = most.min(*left);
            }
            let room = &net[kind * width..];
            let sold = on_sale.ones().any(|market| table.prices(kind)[market] != NOT_FOR_SALE);
            if sold
                && fits(&nothing, room)
                && table.requirements[kind].intersects(requirements, &problem.symbols).is_ok()
            {
                types.insert(kind);
            }
        }
        if types.is_clear() {
            return None;
        }
        let fitting = Fitting::new(&types, &net, width);
        Some(Self { id, types, net, width, fitting, overheads: overheads.clone() })
    }

    /// Room for pods on a machine of a type, next to its daemons.
    pub(crate) fn net(&self, kind: usize) -> &[i64] {
        &self.net[kind * self.width..(kind + 1) * self.width]
    }
}

/// The markets of a catalog that meet a set.
pub(crate) fn markets_meeting(
    problem: &Problem<'_>,
    catalog: usize,
    requirements: &Requirements,
) -> FixedBitSet {
    let markets = &problem.catalogs[catalog].markets;
    let mut meeting = FixedBitSet::with_capacity(markets.len());
    for (index, market) in markets.iter().enumerate() {
        meeting.set(index, market.requirements.intersects(requirements, &problem.symbols).is_ok());
    }
    meeting
}

/// `metadata.name` of the template's pool.
pub(crate) fn pool_name<'p>(problem: &'p Problem<'_>, template: &Template) -> &'p str {
    &problem.snapshot.node_pools[template.pool].name
}
