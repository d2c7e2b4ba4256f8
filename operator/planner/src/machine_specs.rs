//! Machine specs: a NodePool's template narrowed by the requirements of the pods that share a
//! machine.
//!
//! A machine to come has one spec at a time and gets a narrower one with each pod that asks
//! for more. Specs are interned: the instance types that meet a set of requirements, and what each
//! costs then, are worked out once however many machines and pods arrive at it.

mod for_rules;
mod marks;
mod reasons;
mod stock;
mod values;

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use k8s_openapi::api::core::v1::Taint;
use rustc_hash::FxHashMap;

use crate::intern::{Key, Value};
use crate::plan::Exclusion;
use crate::requirements::{Requirements, ValueSet};
use crate::tables::Tables;
use crate::tables::shapes::ClassId;
use crate::tables::taints::untolerated;
use crate::tables::templates::markets_meeting;
use crate::tables::variants::Variant;
pub(crate) use for_rules::{ByType, Counted, Expected};
use marks::{Mark, Wanted};
use reasons::no_type;
pub(crate) use reasons::shortage;
use stock::Stocks;
pub(crate) use stock::{Stock, by_price, frontier};
use values::spec_values;

/// The number of specs from which on each owner gets at most [`SPARED`] more. Tenants choose the
/// requirements of their pods, and each pod on a machine may narrow it to another spec: without a
/// limit there would be pods × machines.
pub(crate) const MOST: usize = 16_384;

/// The same limit for the values that specs list, each counted for every spec that lists it: a pod
/// may exclude thousands, and a spec excludes the values of all its pods.
pub(crate) const VALUES: usize = 1 << 22;

/// The number of additional specs of each class or template beyond these limits: its pods get a
/// machine of their own, in a domain that their rules choose.
pub(crate) const SPARED: u32 = 16;

/// The size of the cache of [`MachineSpecs::join`]. Beyond it, as beyond [`MOST`], pods are placed
/// only on machines that they do not narrow.
const JOINS: usize = 1 << 18;

/// The number of alternatives of a pod that are considered for a quick answer to whether some
/// machine may admit it.
const GLANCES: usize = 16;

/// With more classes than this, the planner does not check in advance whether a type meets two of
/// them.
const FEW_CLASSES: usize = 256;

/// Index into the specs of [`MachineSpecs`], in the order of first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SpecId(u32);

/// A template with additional requirements.
#[derive(Clone, Debug)]
pub(crate) struct MachineSpec {
    pub(crate) template: usize,
    pub(crate) requirements: Arc<Requirements>,
    stock: Arc<Stock>,
    owner: Option<Owner>,
}

/// The owner of a spec that is not shared: a template's own pods without requirements, or one
/// class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Template(usize),
    Class(ClassId),
}

impl std::ops::Deref for MachineSpec {
    type Target = Stock;

    fn deref(&self) -> &Stock {
        &self.stock
    }
}

/// The spec can't be narrowed for a pod. [`MachineSpecs::why_not`] computes the reason, which most
/// callers do not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shut;

/// All specs that were used so far, and caches of what is computed for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct MachineSpecs {
    list: Vec<Arc<MachineSpec>>,
    /// What each has, at a glance.
    marks: Vec<Mark>,
    /// By template: the spec without further requirements.
    bases: Vec<Option<SpecId>>,
    /// All of these.
    are_bases: FixedBitSet,
    index: FxHashMap<(usize, Arc<Requirements>), SpecId>,
    stocks: Stocks,
    /// How many values they list.
    n_values: usize,
    /// By owner: specs beyond [`MOST`] and [`VALUES`].
    spared: FxHashMap<Owner, u32>,
    joins: FxHashMap<(SpecId, ClassId, usize), Option<SpecId>>,
    domains: FxHashMap<(SpecId, Key, Value), Option<SpecId>>,
    values: FxHashMap<(SpecId, Key), Vec<Value>>,
    places: FxHashMap<(SpecId, usize), i64>,
    /// By catalog and label.
    labelled: FxHashMap<(usize, Key), Arc<FixedBitSet>>,
    /// By catalog, class and term of what the class requires: the types that meet it.
    meeting: FxHashMap<(usize, ClassId, usize), Arc<FixedBitSet>>,
    /// Cache: which spread constraints count pods on machines of which specs.
    pub(crate) counted: Counted,
    /// Cache: templates of which a machine could be launched for some pod.
    pub(crate) expected: Expected,
}

impl std::ops::Index<SpecId> for MachineSpecs {
    type Output = MachineSpec;

    fn index(&self, id: SpecId) -> &MachineSpec {
        &self.list[id.0 as usize]
    }
}

impl MachineSpecs {
    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// How many values they list.
    #[cfg(test)]
    pub(crate) fn n_values(&self) -> usize {
        self.n_values
    }

    /// The spec of a template's machine without pods.
    pub(crate) fn base(&mut self, tables: &Tables<'_>, template: usize) -> SpecId {
        if let Some(&Some(known)) = self.bases.get(template) {
            return known;
        }
        let stock = self.stocks.base(tables, template);
        let stock =
            stock.expect("templates without types are left out when the snapshot is compiled");
        let requirements = Arc::new(tables.templates[template].requirements.clone());
        let base = self.add((template, requirements), stock, Some(Owner::Template(template)));
        self.bases.resize(tables.templates.len(), None);
        self.bases[template] = Some(base);
        self.are_bases.grow_and_insert(base.0 as usize);
        base
    }

    /// The spec of a machine after a pod of a class was added.
    pub(crate) fn join(
        &mut self,
        tables: &Tables<'_>,
        spec: SpecId,
        class: ClassId,
        variant: usize,
    ) -> Result<SpecId, Shut> {
        if let Some(known) = self.joins.get(&(spec, class, variant)) {
            return known.ok_or(Shut);
        }
        let is_base = self.are_bases.contains(spec.0 as usize);
        if !is_base && (self.are_many() || self.joins.len() >= JOINS) {
            return if self.keeps(tables, spec, class, variant) { Ok(spec) } else { Err(Shut) };
        }
        let compiled = &tables.classes[class];
        let wanted = compiled.variants.at(variant, &tables.symbols);
        // There may be as many NodePools as pods. What is seen at a glance is not remembered.
        self.glance(tables, spec, class, &wanted).map_err(|_| Shut)?;
        let owner = is_base.then_some(Owner::Class(class));
        let found = self.narrow_for(tables, spec, &wanted.requirements, owner);
        self.joins.insert((spec, class, variant), found.ok());
        found
    }

    /// Whether pods of a class leave the spec of a machine unchanged.
    pub(crate) fn keeps(
        &self,
        tables: &Tables<'_>,
        spec: SpecId,
        class: ClassId,
        variant: usize,
    ) -> bool {
        let wanted = tables.classes[class].variants.at(variant, &tables.symbols);
        if !self.marks[spec.0 as usize].may_entail(Wanted::of(&wanted.requirements)) {
            return false;
        }
        let entailed = |(key, set)| {
            let have = self[spec].requirements.get(key);
            have.is_some_and(|have| have.entails(set, &tables.symbols))
        };
        wanted.requirements.iter().all(entailed)
            && self.glance(tables, spec, class, &wanted).is_ok()
    }

    /// Whether a pod of a class narrows a machine of a spec, as far as that can be answered without
    /// creating a spec; `None` if the spec does not admit it.
    pub(crate) fn narrows(
        &mut self,
        tables: &Tables<'_>,
        spec: SpecId,
        class: ClassId,
        variant: usize,
    ) -> Option<bool> {
        if tables.classes.len() <= FEW_CLASSES || self.joins.contains_key(&(spec, class, variant)) {
            return self.join(tables, spec, class, variant).ok().map(|joined| joined != spec);
        }
        if self.keeps(tables, spec, class, variant) {
            return Some(false);
        }
        let wanted = tables.classes[class].variants.at(variant, &tables.symbols);
        let may = !self.is_full(None) && self.glance(tables, spec, class, &wanted).is_ok();
        may.then_some(true)
    }

    /// [`Self::join`] without the reason for a refusal.
    pub(crate) fn joined(
        &mut self,
        tables: &Tables<'_>,
        spec: SpecId,
        class: ClassId,
        variant: usize,
    ) -> Option<SpecId> {
        self.join(tables, spec, class, variant).ok()
    }

    /// A quick check whether a machine of a spec may admit pods of a class. True if they have more
    /// alternatives than are considered.
    pub(crate) fn may_join(&self, tables: &Tables<'_>, spec: SpecId, class: ClassId) -> bool {
        let variants = &tables.classes[class].variants;
        let relaxed = variants.relaxed();
        let is_open = |variant| {
            let wanted = variants.at(variant, &tables.symbols);
            self.glance(tables, spec, class, &wanted).is_ok()
        };
        relaxed.len() > GLANCES || relaxed.into_iter().any(is_open)
    }

    /// The spec of a template's machines that meet one of the terms of what a class requires,
    /// wherever volumes are and whatever taints it tolerates.
    pub(crate) fn requiring(
        &mut self,
        tables: &Tables<'_>,
        template: usize,
        class: ClassId,
        term: usize,
    ) -> Option<SpecId> {
        let base = self.base(tables, template);
        let required = &tables.classes[class].required[term];
        self.narrow_for(tables, base, required, Some(Owner::Class(class))).ok()
    }

    /// The first constraint that excludes a pod of a class from a spec; `None` if only the limit on
    /// specs does.
    pub(crate) fn why_not(
        &self,
        tables: &Tables<'_>,
        id: SpecId,
        class: ClassId,
        variant: usize,
    ) -> Option<Exclusion> {
        let wanted = tables.classes[class].variants.at(variant, &tables.symbols);
        let spec = &self[id];
        let symbols = &tables.symbols;
        Some(match self.glance(tables, id, class, &wanted) {
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
                pool: spec
                    .requirements
                    .get(key)
                    .map_or_else(|| "not defined".to_owned(), |set| set.describe(symbols)),
            },
            Ok(()) if self.is_full(Some(Owner::Class(class))) => return None,
            Ok(()) => {
                let mut requirements = (*spec.requirements).clone();
                requirements.extend(&wanted.requirements, symbols);
                let catalog = tables.templates[spec.template].catalog;
                let markets = markets_meeting(tables, catalog, &requirements);
                no_type(tables, spec.template, &requirements, &markets, &spec.types)
            }
        })
    }

    /// The taint or label that excludes a pod from a spec.
    fn glance<'p>(
        &self,
        tables: &'p Tables<'_>,
        id: SpecId,
        class: ClassId,
        wanted: &Variant<'_>,
    ) -> Result<(), Glance<'p>> {
        let class = &tables.classes[class];
        let pool = tables.templates[self[id].template].pool;
        let taints = &tables.snapshot.node_pools[pool].template.taints;
        if let Some(taint) = untolerated(taints, &class.tolerations, wanted.preferred_taints) {
            return Err(Glance::Taint(taint));
        }
        self.compatible(tables, id, &wanted.requirements).map_err(Glance::Key)
    }

    /// Whether a spec can meet `wanted`; the error is the first key that it can't.
    pub(crate) fn compatible(
        &self,
        tables: &Tables<'_>,
        id: SpecId,
        wanted: &Requirements,
    ) -> Result<(), Key> {
        let spec = &self[id];
        let symbols = &tables.symbols;
        let defined = &tables.templates[spec.template].requirements;
        let well_known = |key| tables.is_well_known(key);
        // What the pool itself defines decides whether a label will be there: that another pod can
        // do without it does not define it.
        defined
            .compatible(wanted, well_known, symbols)
            .and_then(|()| spec.requirements.compatible(wanted, well_known, symbols))
    }

    /// The spec narrowed by `wanted`.
    pub(crate) fn narrow(
        &mut self,
        tables: &Tables<'_>,
        id: SpecId,
        wanted: &Requirements,
    ) -> Result<SpecId, Shut> {
        let owner = self[id].owner;
        self.narrow_for(tables, id, wanted, owner)
    }

    fn narrow_for(
        &mut self,
        tables: &Tables<'_>,
        id: SpecId,
        wanted: &Requirements,
        owner: Option<Owner>,
    ) -> Result<SpecId, Shut> {
        if wanted.is_empty() {
            return Ok(id);
        }
        self.compatible(tables, id, wanted).map_err(|_| Shut)?;
        let spec = &self.list[id.0 as usize];
        let mut requirements = (*spec.requirements).clone();
        requirements.extend(wanted, &tables.symbols);
        let key = (spec.template, Arc::new(requirements));
        if let Some(&known) = self.index.get(&key) {
            return Ok(known);
        }
        if self.is_full(owner) {
            return Err(Shut);
        }
        let keys = wanted.iter().map(|(key, _)| key);
        // What can't be had is remembered by whoever asked.
        let stock = self.stocks.narrowed(tables, key.0, &key.1, keys, &spec.stock).ok_or(Shut)?;
        Ok(self.add(key, stock, owner))
    }

    /// Whether [`MOST`] or [`VALUES`] is reached.
    fn are_many(&self) -> bool {
        self.list.len() >= MOST || self.n_values >= VALUES
    }

    /// Whether an owner may create no more specs.
    fn is_full(&self, owner: Option<Owner>) -> bool {
        let spared = || owner.map_or(SPARED, |owner| self.spared.get(&owner).copied().unwrap_or(0));
        self.are_many() && spared() >= SPARED
    }

    fn add(
        &mut self,
        key: (usize, Arc<Requirements>),
        stock: Arc<Stock>,
        owner: Option<Owner>,
    ) -> SpecId {
        if let Some(owner) = owner.filter(|_| self.are_many()) {
            *self.spared.entry(owner).or_insert(0) += 1;
        }
        let id = SpecId(u32::try_from(self.list.len()).expect("specs are counted"));
        let (template, requirements) = (key.0, Arc::clone(&key.1));
        self.n_values += requirements.n_values();
        self.marks.push(Mark::of(&requirements));
        self.list.push(Arc::new(MachineSpec { template, requirements, stock, owner }));
        self.index.insert(key, id);
        id
    }

    /// The spec narrowed to one value of a label, if any machine meets it.
    pub(crate) fn at(
        &mut self,
        tables: &Tables<'_>,
        spec: SpecId,
        key: Key,
        value: Value,
    ) -> Option<SpecId> {
        if let Some(&known) = self.domains.get(&(spec, key, value)) {
            return known;
        }
        let mut wanted = Requirements::default();
        wanted.add(key, ValueSet::one_of([value]), &tables.symbols);
        let found = self.narrow(tables, spec, &wanted).ok();
        self.domains.insert((spec, key, value), found);
        found
    }

    /// What a place for a pod of a shape costs on a machine of a spec, in micro-dollars: its
    /// dominant share of the type where that is cheapest.
    pub(crate) fn place_price(&mut self, tables: &Tables<'_>, spec: SpecId, shape: usize) -> i64 {
        if let Some(&known) = self.places.get(&(spec, shape)) {
            return known;
        }
        let price = share_price(tables, &self[spec], &tables.shapes[shape].requests, 0.0);
        self.places.insert((spec, shape), price);
        price
    }

    /// The values of a label that machines of a spec can have, sorted.
    pub(crate) fn values(&mut self, tables: &Tables<'_>, spec: SpecId, key: Key) -> &[Value] {
        if !self.values.contains_key(&(spec, key)) {
            let values = spec_values(tables, self, spec, key);
            self.values.insert((spec, key), values);
        }
        &self.values[&(spec, key)]
    }

    /// The types of a catalog that have a label.
    pub(crate) fn labelled(
        &mut self,
        tables: &Tables<'_>,
        catalog: usize,
        key: Key,
    ) -> Arc<FixedBitSet> {
        let stocks = &mut self.stocks;
        let known = self.labelled.entry((catalog, key));
        Arc::clone(known.or_insert_with(|| Arc::new(stocks.labelled(tables, catalog, key))))
    }

    /// Whether a label of machines of a spec has values that are known.
    pub(crate) fn has_values(&self, tables: &Tables<'_>, spec: SpecId, key: Key) -> bool {
        match self.values.get(&(spec, key)) {
            Some(known) => !known.is_empty(),
            None => !spec_values(tables, self, spec, key).is_empty(),
        }
    }

    /// The types of a catalog that meet one of the terms of what a class requires.
    pub(crate) fn meeting(
        &mut self,
        tables: &Tables<'_>,
        catalog: usize,
        class: ClassId,
        term: usize,
    ) -> &FixedBitSet {
        let stocks = &mut self.stocks;
        self.meeting.entry((catalog, class, term)).or_insert_with(|| {
            let required = &tables.classes[class].required[term];
            Arc::new(stocks.meeting(tables, catalog, required))
        })
    }
}

/// Outcome of the quick check of a pod against a spec.
enum Glance<'p> {
    Taint(&'p Taint),
    Key(Key),
}

/// What a request costs on a machine of a spec, in micro-dollars: its dominant share of the type
/// where that is cheapest, and at least so much of a machine.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "an estimate; hourly prices are far below 2^53 millionths"
)]
pub(crate) fn share_price(
    tables: &Tables<'_>,
    spec: &MachineSpec,
    requests: &[i64],
    at_least: f64,
) -> i64 {
    let template = &tables.templates[spec.template];
    let price = |&kind: &usize| {
        let shares = requests.iter().zip(template.net(kind)).filter(|(want, _)| **want > 0);
        let shares = shares.map(|(&want, &have)| want as f64 / have.max(1) as f64);
        let share = shares.fold(0.0, f64::max);
        let each = spec.price(kind).saturating_add(tables.policy.node_price.0) as f64;
        (share <= 1.0).then_some(each * share.max(at_least))
    };
    let least = spec.frontier(tables).iter().filter_map(price).fold(f64::INFINITY, f64::min);
    if least.is_finite() { least.ceil() as i64 } else { i64::MAX }
}
