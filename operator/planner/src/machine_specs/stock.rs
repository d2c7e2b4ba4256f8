//! Stock of a spec: the instance types that can be launched, and their prices.
//!
//! Whoever creates pods decides how many specs there are, so what a spec adds is small: a set of
//! types. Prices and their order depend on the markets alone and are shared, the frontier is worked
//! out when somebody asks for it, and specs with which the same can be bought have the same stock.

use std::sync::{Arc, OnceLock};

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::intern::{Key, Symbols};
use crate::requirements::{Requirements, ValueSet, overlap};
use crate::tables::Tables;
use crate::tables::types::{NOT_FOR_SALE, TypeTable};

/// The types of a spec and their prices; specs with equal types and markets share it.
#[derive(Clone, Debug)]
pub(crate) struct Stock {
    /// Types that meet the requirements and have an available offering.
    pub(crate) types: FixedBitSet,
    pub(crate) markets: FixedBitSet,
    list: Arc<PriceList>,
    /// One of its templates; all of them leave the same room for pods.
    template: usize,
    frontier: OnceLock<Vec<usize>>,
}

/// Prices of the types of a kit in some markets.
#[derive(Debug)]
struct PriceList {
    /// By type: the cheapest offering.
    prices: Vec<i64>,
    /// Types that are on sale, the cheapest first.
    by_price: Vec<usize>,
}

/// The values of one label of the types of a catalog.
#[derive(Debug)]
struct Column {
    /// Each set of values that occurs, with the types that have it.
    alike: Vec<(ValueSet, FixedBitSet)>,
}

/// All stocks that were used so far, interned.
#[derive(Clone, Debug, Default)]
pub(super) struct Stocks {
    /// By what templates share ([`crate::tables::templates::Kit`]), with requirements about labels
    /// that types have.
    asked: FxHashMap<(usize, Arc<Requirements>), Option<Arc<Stock>>>,
    /// By the same, with types and markets.
    made: FxHashMap<(usize, FixedBitSet, FixedBitSet), Arc<Stock>>,
    /// By the same, with markets.
    lists: FxHashMap<(usize, FixedBitSet), Arc<PriceList>>,
    /// By catalog.
    columns: FxHashMap<(usize, Key), Arc<Column>>,
}

impl Stocks {
    /// The stock of a template without further requirements.
    pub(super) fn base(&mut self, tables: &Tables<'_>, template: usize) -> Option<Arc<Stock>> {
        let compiled = &tables.templates[template];
        let table = &tables.catalogs[compiled.catalog];
        let mut markets = FixedBitSet::with_capacity(table.markets.len());
        markets.insert_range(..);
        let requirements = &compiled.requirements;
        let keys = requirements.iter().map(|(key, _)| key);
        self.find(tables, template, requirements, keys, (&compiled.types, &markets))
    }

    /// The stock after requirements on some labels were narrowed.
    pub(super) fn narrowed(
        &mut self,
        tables: &Tables<'_>,
        template: usize,
        requirements: &Requirements,
        keys: impl Iterator<Item = Key>,
        of: &Stock,
    ) -> Option<Arc<Stock>> {
        self.find(tables, template, requirements, keys, (&of.types, &of.markets))
    }

    fn find(
        &mut self,
        tables: &Tables<'_>,
        template: usize,
        requirements: &Requirements,
        keys: impl Iterator<Item = Key>,
        among: (&FixedBitSet, &FixedBitSet),
    ) -> Option<Arc<Stock>> {
        let compiled = &tables.templates[template];
        let about = Arc::new(tables.catalogs[compiled.catalog].about(requirements));
        let asked = (compiled.id, about);
        if let Some(known) = self.asked.get(&asked) {
            return known.clone();
        }
        let made = self.make(tables, template, &asked.1, keys, among);
        self.asked.insert(asked, made.clone());
        made
    }

    /// The types of a catalog that meet a set.
    pub(super) fn meeting(
        &mut self,
        tables: &Tables<'_>,
        catalog: usize,
        wanted: &Requirements,
    ) -> FixedBitSet {
        let mut types = FixedBitSet::with_capacity(tables.catalogs[catalog].len());
        types.insert_range(..);
        for (key, set) in wanted.iter() {
            self.column(tables, catalog, key).keep(set, &mut types, &tables.symbols);
        }
        types
    }

    /// The types of a catalog that have a label.
    pub(super) fn labelled(
        &mut self,
        tables: &Tables<'_>,
        catalog: usize,
        key: Key,
    ) -> FixedBitSet {
        let mut types = FixedBitSet::with_capacity(tables.catalogs[catalog].len());
        let alike = &self.column(tables, catalog, key).alike;
        for (_, having) in alike.iter().filter(|(set, _)| !set.admits_absence()) {
            types.union_with(having);
        }
        types
    }

    fn column(&mut self, tables: &Tables<'_>, catalog: usize, key: Key) -> &Column {
        let column = self.columns.entry((catalog, key));
        column.or_insert_with(|| Arc::new(Column::new(&tables.catalogs[catalog], key)))
    }

    fn make(
        &mut self,
        tables: &Tables<'_>,
        template: usize,
        about: &Requirements,
        keys: impl Iterator<Item = Key>,
        (types, markets): (&FixedBitSet, &FixedBitSet),
    ) -> Option<Arc<Stock>> {
        let compiled = &tables.templates[template];
        let (catalog, symbols) = (compiled.catalog, &tables.symbols);
        let table = &tables.catalogs[catalog];
        let (mut types, mut markets) = (types.clone(), markets.clone());
        for (key, wanted) in keys.filter_map(|key| Some((key, about.get(key)?))) {
            self.column(tables, catalog, key).keep(wanted, &mut types, symbols);
            for market in markets.ones().collect::<Vec<_>>() {
                let have = table.markets[market].requirements.get(key);
                if have.is_some_and(|have| !overlap(have, wanted, symbols)) {
                    markets.remove(market);
                }
            }
        }
        let list = (compiled.id, markets);
        let prices =
            Arc::clone(self.lists.entry(list.clone()).or_insert_with_key(|(_, markets)| {
                Arc::new(PriceList::new(table, &compiled.types, markets))
            }));
        let markets = list.1;
        for kind in types.ones().collect::<Vec<_>>() {
            if prices.prices[kind] == NOT_FOR_SALE {
                types.remove(kind);
            }
        }
        if types.is_clear() {
            return None;
        }
        let made = self.made.entry((compiled.id, types, markets));
        let stock = made.or_insert_with_key(|(_, types, markets)| {
            let (types, markets) = (types.clone(), markets.clone());
            let frontier = OnceLock::new();
            Arc::new(Stock { types, markets, list: prices, template, frontier })
        });
        Some(Arc::clone(stock))
    }
}

impl Column {
    fn new(table: &TypeTable, key: Key) -> Self {
        let mut by_set: FxHashMap<&ValueSet, usize> = FxHashMap::default();
        let mut alike: Vec<(ValueSet, FixedBitSet)> = Vec::new();
        for (kind, requirements) in table.requirements.iter().enumerate() {
            let Some(set) = requirements.get(key) else { continue };
            let at = *by_set.entry(set).or_insert(alike.len());
            if at == alike.len() {
                alike.push((set.clone(), FixedBitSet::with_capacity(table.len())));
            }
            alike[at].1.insert(kind);
        }
        Self { alike }
    }

    /// Removes the types that don't meet a requirement on the label.
    fn keep(&self, wanted: &ValueSet, types: &mut FixedBitSet, symbols: &Symbols) {
        for (_, alike) in self.alike.iter().filter(|(have, _)| !overlap(have, wanted, symbols)) {
            types.difference_with(alike);
        }
    }
}

impl PriceList {
    fn new(table: &TypeTable, types: &FixedBitSet, markets: &FixedBitSet) -> Self {
        let mut prices = vec![NOT_FOR_SALE; table.len()];
        for kind in types.ones() {
            let on_sale = markets.ones().map(|market| table.prices(kind)[market]).min();
            prices[kind] = on_sale.unwrap_or(NOT_FOR_SALE);
        }
        let on_sale = types.ones().filter(|&kind| prices[kind] != NOT_FOR_SALE).collect();
        let by_price = by_price(&on_sale, |kind| prices[kind]);
        Self { prices, by_price }
    }
}

impl Stock {
    /// The number of types, unavailable ones included.
    pub(crate) fn n_types(&self) -> usize {
        self.list.prices.len()
    }

    /// The price of a type in its cheapest market, in micro-dollars per hour; [`NOT_FOR_SALE`]
    /// without one.
    pub(crate) fn price(&self, kind: usize) -> i64 {
        if self.types[kind] { self.list.prices[kind] } else { NOT_FOR_SALE }
    }

    /// The same by type.
    pub(crate) fn prices(&self) -> Vec<i64> {
        (0..self.n_types()).map(|kind| self.price(kind)).collect()
    }

    /// Types that no other type beats in price and every resource, by index.
    pub(crate) fn frontier(&self, tables: &Tables<'_>) -> &[usize] {
        self.frontier.get_or_init(|| {
            frontier(tables, self.template, &self.ranked(&self.types).collect::<Vec<_>>())
        })
    }

    /// The cheapest of some of its types.
    pub(crate) fn cheapest(&self, types: &FixedBitSet) -> Option<usize> {
        self.ranked(types).next()
    }

    /// Those of its types that are in a set, the cheapest first.
    pub(crate) fn ranked<'s>(&'s self, types: &'s FixedBitSet) -> impl Iterator<Item = usize> + 's {
        let by_price = self.list.by_price.iter().copied();
        by_price.filter(|&kind| types[kind] && self.types[kind])
    }
}

/// Types, the cheapest first.
pub(crate) fn by_price(types: &FixedBitSet, price: impl Fn(usize) -> i64) -> Vec<usize> {
    let mut order: Vec<usize> = types.ones().collect();
    order.sort_by_key(|&kind| (price(kind), kind));
    order
}

/// The types that are worth considering, of types the cheapest first: a type that costs no less
/// than another and has no more of anything never is.
pub(crate) fn frontier(tables: &Tables<'_>, template: usize, by_price: &[usize]) -> Vec<usize> {
    let compiled = &tables.templates[template];
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
