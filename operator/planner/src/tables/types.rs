//! The instance types of catalogs as tables.

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::columns::{Columns, UNLIMITED};
use crate::intern::{Key, Symbols};
use crate::label;
use crate::requirements::{Requirements, ValueSet};
use crate::snapshot::{CapacityType, Catalog};

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
    pub(super) fn new(catalog: &Catalog, columns: &Columns, symbols: &mut Symbols) -> Self {
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
    pub(super) fn allocatable(&self, kind: usize) -> &[i64] {
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
