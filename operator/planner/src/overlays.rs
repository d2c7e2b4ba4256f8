//! NodeOverlays: replaces the provider's prices and capacity by an administrator's corrections.
//!
//! An overlay is about the NodePools, instance types and offerings that its requirements admit. Of
//! two overlays that touch the same price or the same resource the heavier one counts; with equal
//! weights the later one is in conflict and is left out whole. Overlays look at NodePools, so a
//! pool that one of them touches gets a catalog of its own.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_crds::labels::{CAPACITY_OVERLAY_APPLIED, PRICE_OVERLAY_APPLIED};

use crate::intern::Symbols;
use crate::label;
use crate::plan::Launch;
use crate::requirements::{Requirements, ValueSet};
use crate::resources::MicroUsd;
use crate::snapshot::{
    Catalog, CatalogId, InstanceType, NodePool, Offering, PriceChange, Snapshot,
};

/// An instance type as one NodePool launches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PoolType {
    /// Index of [`Snapshot::node_pools`].
    pool: usize,
    /// Index of [`Catalog::instance_types`] of the NodePool's catalog.
    instance_type: usize,
}

/// A snapshot with its overlays applied, and the prices and capacities that they changed.
#[derive(Debug)]
pub(crate) struct Overlaid<'a> {
    /// The snapshot without overlays; borrowed if it had none.
    pub(crate) snapshot: Cow<'a, Snapshot>,
    /// NodePool and instance type with a changed price.
    priced: BTreeSet<(String, String)>,
    /// NodePool and instance type with a changed capacity.
    resized: BTreeSet<(String, String)>,
}

impl Overlaid<'_> {
    /// Annotates a launch if overlays set its prices or capacities.
    pub(crate) fn mark(&self, launch: &mut Launch) {
        for (touched, annotation) in
            [(&self.priced, PRICE_OVERLAY_APPLIED), (&self.resized, CAPACITY_OVERLAY_APPLIED)]
        {
            let mut names = launch.instance_types.iter();
            if names.any(|name| touched.contains(&(launch.node_pool.clone(), name.clone()))) {
                launch.annotations.insert(annotation.to_owned(), "true".to_owned());
            }
        }
    }
}

/// The overlays of a snapshot that conflict with another one of equal weight over the same price or
/// resource: their names, each with that of the other, in the order of the snapshot.
pub fn conflicts(snapshot: &Snapshot) -> Vec<(String, String)> {
    Changes::collect(snapshot).conflicts
}

/// The snapshot with its overlays applied, for reports of prices. Plans on both are equal, except
/// for the annotations of launches.
pub fn applied(snapshot: Snapshot) -> Snapshot {
    match apply(&snapshot).snapshot {
        Cow::Owned(after) => after,
        Cow::Borrowed(_) => snapshot,
    }
}

/// The catalog of a NodePool with the overlays applied; `None` without such a pool or catalog.
pub fn catalog(snapshot: &Snapshot, node_pool: &str) -> Option<Arc<Catalog>> {
    let overlaid = apply(snapshot);
    let pool = overlaid.snapshot.node_pools.iter().find(|pool| pool.name == node_pool)?;
    overlaid.snapshot.catalogs.get(pool.catalog?.0 as usize).cloned()
}

/// Applies the overlays.
pub(crate) fn apply(snapshot: &Snapshot) -> Overlaid<'_> {
    let (mut priced, mut resized) = (BTreeSet::new(), BTreeSet::new());
    if snapshot.overlays.is_empty() {
        return Overlaid { snapshot: Cow::Borrowed(snapshot), priced, resized };
    }
    let changes = Changes::collect(snapshot);
    let mut after = snapshot.clone();
    after.overlays.clear();
    for (index, pool) in snapshot.node_pools.iter().enumerate() {
        let Some(id) = pool.catalog else { continue };
        if !changes.touches(index) {
            continue;
        }
        let mut catalog = Catalog::clone(&snapshot.catalogs[id.0 as usize]);
        for (number, kind) in catalog.instance_types.iter_mut().enumerate() {
            let (of_price, of_amount) =
                changes.apply(PoolType { pool: index, instance_type: number }, kind);
            let name = || (pool.name.clone(), kind.name.clone());
            if of_price {
                priced.insert(name());
            }
            if of_amount {
                resized.insert(name());
            }
        }
        reprice(&mut after, pool, &snapshot.catalogs[id.0 as usize], &catalog);
        let own = u32::try_from(after.catalogs.len()).expect("there are few NodePools");
        after.catalogs.push(Arc::new(catalog));
        after.node_pools[index].catalog = Some(CatalogId(own));
    }
    Overlaid { snapshot: Cow::Owned(after), priced, resized }
}

/// Sets the prices of the pool's machines to those of their offerings with the overlays applied.
fn reprice(snapshot: &mut Snapshot, pool: &NodePool, before: &Catalog, after: &Catalog) {
    for node in &mut snapshot.nodes {
        let of_pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_ref());
        if of_pool != Some(&pool.name) {
            continue;
        }
        let price = |catalog: &Catalog| -> Option<MicroUsd> {
            let name = node.labels.get(label::INSTANCE_TYPE)?;
            let zone = node.labels.get(label::ZONE)?;
            let capacity_type = node.labels.get(label::CAPACITY_TYPE)?;
            let kind = catalog.instance_types.iter().find(|kind| kind.name == *name)?;
            let same = |offer: &&Offering| {
                offer.zone == *zone && offer.capacity_type.as_str() == capacity_type
            };
            kind.offerings.iter().filter(same).filter_map(Offering::known_price).min()
        };
        let (old, new) = (price(before), price(after));
        if new != old {
            node.price = new;
        }
    }
}

/// Changes by overlays, by price or resource, with weight and name of the overlay.
#[derive(Debug, Default)]
struct Changes<'s> {
    /// By type and index of the offering.
    prices: BTreeMap<(PoolType, usize), (PriceChange, i32, &'s str)>,
    /// By type and resource.
    amounts: BTreeMap<(PoolType, &'s str), (i64, i32, &'s str)>,
    conflicts: Vec<(String, String)>,
}

impl<'s> Changes<'s> {
    fn collect(snapshot: &'s Snapshot) -> Self {
        let mut changes = Self::default();
        for (overlay, asked) in snapshot.overlays.iter().zip(Self::asked(snapshot)) {
            let Self { prices, amounts, .. } = &changes;
            let prices = asked.offerings.iter().filter_map(|key| prices.get(key));
            let amounts = asked.kinds.iter().flat_map(|&kind| {
                let names = overlay.capacity.keys().map(String::as_str);
                names.filter_map(move |name| amounts.get(&(kind, name)))
            });
            let prices = prices.map(|&(_, weight, name)| (weight, name));
            let amounts = amounts.map(|&(_, weight, name)| (weight, name));
            let rival = prices.chain(amounts).find(|&(weight, _)| weight == overlay.weight);
            if let Some((_, name)) = rival {
                changes.conflicts.push((overlay.name.clone(), name.to_owned()));
                continue;
            }
            let (weight, name) = (overlay.weight, overlay.name.as_str());
            if let Some(change) = overlay.price {
                for key in asked.offerings {
                    changes.prices.entry(key).or_insert((change, weight, name));
                }
            }
            for kind in asked.kinds {
                for (resource, &amount) in &overlay.capacity {
                    let key = (kind, resource.as_str());
                    changes.amounts.entry(key).or_insert((amount, weight, name));
                }
            }
        }
        changes
    }

    /// The types and offerings that each overlay of the snapshot applies to.
    fn asked(snapshot: &Snapshot) -> Vec<Asked> {
        let mut symbols = Symbols::default();
        let wanted: Vec<Requirements> = snapshot
            .overlays
            .iter()
            .map(|overlay| Requirements::new(&overlay.requirements, &mut symbols))
            .collect();
        let mut asked: Vec<Asked> = wanted.iter().map(|_| Asked::default()).collect();
        for (index, pool) in snapshot.node_pools.iter().enumerate() {
            let Some(catalog) = pool.catalog else { continue };
            let catalog = &snapshot.catalogs[catalog.0 as usize];
            for (number, kind) in catalog.instance_types.iter().enumerate() {
                let at = PoolType { pool: index, instance_type: number };
                let have = of_kind(pool, kind, &mut symbols);
                let overlays = snapshot.overlays.iter().zip(&wanted).zip(&mut asked);
                for ((overlay, wanted), asked) in overlays {
                    // Strictly: a label that neither has is not there.
                    if have.compatible(wanted, |_| false, &symbols).is_err() {
                        continue;
                    }
                    asked.kinds.push(at);
                    if overlay.price.is_some() {
                        let offerings = kind.offerings.iter().enumerate();
                        // A price that is not known can't be adjusted.
                        let sets = matches!(overlay.price, Some(PriceChange::Set(_)));
                        let sold = offerings.filter(|(_, it)| {
                            (sets || it.unpriced.is_none()) && sells(wanted, it, &mut symbols)
                        });
                        asked.offerings.extend(sold.map(|(offer, _)| (at, offer)));
                    }
                }
            }
        }
        asked
    }

    fn touches(&self, pool: usize) -> bool {
        let first_of = |pool| PoolType { pool, instance_type: 0 };
        let (first, last) = (first_of(pool), first_of(pool + 1));
        self.prices.range((first, 0)..(last, 0)).next().is_some()
            || self.amounts.range((first, "")..(last, "")).next().is_some()
    }

    /// Changes a type of a pool; returns whether a price and whether an amount changed.
    fn apply(&self, at: PoolType, kind: &mut InstanceType) -> (bool, bool) {
        let next = PoolType { instance_type: at.instance_type + 1, ..at };
        let (mut priced, mut resized) = (false, false);
        for (&(_, offer), (change, ..)) in self.prices.range((at, 0)..(next, 0)) {
            let offering = &mut kind.offerings[offer];
            offering.price = change.apply(offering.price);
            if let Some(available) = offering.unpriced.take() {
                offering.available = available;
            }
            priced = true;
        }
        for (&(_, name), &(amount, ..)) in self.amounts.range((at, "")..(next, "")) {
            kind.capacity.set(name, amount);
            resized = true;
        }
        (priced, resized)
    }
}

/// The type and offerings that an overlay applies to.
#[derive(Debug, Default)]
struct Asked {
    kinds: Vec<PoolType>,
    /// By type and index of the offering; empty if the overlay does not change prices.
    offerings: Vec<(PoolType, usize)>,
}

/// The labels of a type of a pool, as requirements.
fn of_kind(pool: &NodePool, kind: &InstanceType, symbols: &mut Symbols) -> Requirements {
    let mut have = Requirements::new(&kind.requirements, symbols);
    let labels = Requirements::from_labels(&pool.template.labels, symbols);
    have.extend(&labels, symbols);
    for (key, value) in [(label::NODE_POOL, &pool.name), (label::INSTANCE_TYPE, &kind.name)] {
        let (key, value) = (symbols.key(key), symbols.value(value));
        have.add(key, ValueSet::one_of([value]), symbols);
    }
    have
}

/// Whether an overlay that applies to a type applies to one of its offerings.
fn sells(wanted: &Requirements, offering: &Offering, symbols: &mut Symbols) -> bool {
    let mut have = Requirements::new(&offering.requirements, symbols);
    for (key, value) in [
        (label::ZONE, offering.zone.as_str()),
        (label::CAPACITY_TYPE, offering.capacity_type.as_str()),
    ] {
        let (key, value) = (symbols.key(key), symbols.value(value));
        have.add(key, ValueSet::one_of([value]), symbols);
    }
    have.intersects(wanted, symbols).is_ok()
}
