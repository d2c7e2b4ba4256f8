//! Converts a planned machine to a [`Launch`]: ranked types, requirements as the NodeClaim will
//! carry them, labels with values.

mod open_labels;
mod prices;

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use k8s_openapi::api::core::v1::Taint;
use rustc_hash::FxHashMap;

use crate::intern::Key;
use crate::machine_specs::{MachineSpec, SpecId};
use crate::plan::{Exclusion, Launch, LaunchReason, PlacedDevices, PodRef, PriceRange, Shared};
use crate::resources::MicroUsd;
use crate::snapshot::{CapacityType, Operator, Pod, Requirement, Snapshot};
use crate::solver::{Claim, Solver, distinct_values};
use crate::tables::types::NOT_FOR_SALE;
pub(crate) use open_labels::tell_apart;

/// Annotation of a NodeClaim: whether `minValues` had to be lowered.
const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";

/// Annotation of a NodeClaim: the drivers that have to publish devices before its node is
/// initialized.
const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";

/// The types and capacity types of a claim that a price filter admits.
#[derive(Clone, Debug)]
pub(crate) struct LaunchFilter {
    pub(crate) types: FixedBitSet,
    pub(crate) capacity_type: Option<CapacityType>,
    /// Maximum number of types of the launch.
    pub(crate) at_most: usize,
}

impl LaunchFilter {
    /// All types of a claim.
    pub(crate) fn all(solver: &Solver<'_, '_>, claim: &Claim) -> Self {
        let at_most = solver.problem.tables.policy.max_instance_types;
        Self { types: claim.types.clone(), capacity_type: None, at_most }
    }
}

/// A pod's reference.
pub(crate) fn pod_ref(pod: &Pod) -> PodRef {
    PodRef::from(pod)
}

/// The prices of a spec's types when only some capacity types may be bought.
pub(crate) fn prices(
    solver: &Solver<'_, '_>,
    spec: SpecId,
    capacity_type: Option<CapacityType>,
) -> Vec<i64> {
    let spec = &solver.specs[spec];
    let Some(capacity_type) = capacity_type else { return spec.prices() };
    let table =
        &solver.problem.tables.catalogs[solver.problem.tables.templates[spec.template].catalog];
    (0..table.len())
        .map(|kind| {
            spec.markets
                .ones()
                .filter(|&market| table.markets[market].capacity_type == capacity_type)
                .map(|market| table.prices(kind)[market])
                .min()
                .unwrap_or(NOT_FOR_SALE)
        })
        .collect()
}

/// Creates launches. Launches with the same spec and types share their common data.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    drafts: FxHashMap<Choice, Result<Draft, Exclusion>>,
}

/// Key of the shared part of launches: everything but the pods follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Choice {
    spec: SpecId,
    capacity_type: Option<CapacityType>,
    /// The types, the cheapest first.
    ranked: Vec<usize>,
    relaxed: Vec<(Key, u32)>,
}

/// A launch without its pods.
#[derive(Clone, Debug)]
struct Draft {
    labels: Shared<BTreeMap<String, String>>,
    annotations: Shared<BTreeMap<String, String>>,
    requirements: Shared<Vec<Requirement>>,
    instance_types: Shared<Vec<String>>,
    capacity_types: Vec<CapacityType>,
    taints: Shared<Vec<Taint>>,
    startup_taints: Shared<Vec<Taint>>,
    /// Minimum of the daemons' requests over the types.
    overhead: Vec<i64>,
    price: MicroUsd,
    prices: PriceRange,
}

impl Launches {
    /// Possible prices of the launches of a plan, in their order.
    pub(crate) fn price_ranges(&self, snapshot: &Snapshot, launches: &[Launch]) -> Vec<PriceRange> {
        let key = |requirements: &Shared<_>, types: &Shared<_>| {
            (
                Shared::<Vec<Requirement>>::address(requirements),
                Shared::<Vec<String>>::address(types),
            )
        };
        let known: FxHashMap<(usize, usize), PriceRange> = self
            .drafts
            .values()
            .flatten()
            .map(|draft| (key(&draft.requirements, &draft.instance_types), draft.prices))
            .collect();
        let range = |launch: &Launch| {
            let known = known.get(&key(&launch.requirements, &launch.instance_types));
            known.copied().unwrap_or_else(|| prices::range_of(snapshot, launch))
        };
        launches.iter().map(range).collect()
    }

    /// The launch of a planned machine. An error if the maximum number of types is too small for
    /// `minValues`.
    pub(crate) fn make(
        &mut self,
        solver: &Solver<'_, '_>,
        claim: &Claim,
        filter: &LaunchFilter,
        reason: LaunchReason,
    ) -> Result<Launch, Exclusion> {
        let problem = solver.problem;
        let choice = Choice {
            spec: claim.spec,
            capacity_type: filter.capacity_type,
            ranked: ranked(solver, claim, filter),
            relaxed: claim.relaxed.clone(),
        };
        if !self.drafts.contains_key(&choice) {
            let draft = Draft::new(solver, &choice);
            self.drafts.insert(choice.clone(), draft);
        }
        let mut draft = self.drafts[&choice].clone()?;
        let template = &problem.tables.templates[solver.specs[claim.spec].template];
        let pool = &problem.tables.snapshot.node_pools[template.pool];
        let mut requests = claim.used.clone();
        crate::tables::add_times(&mut requests, &draft.overhead, 1);
        let (mut pods, mut buffer_pods) = (Vec::new(), Vec::new());
        for pod in claim.pods.iter().map(|&pod| &problem.tables.snapshot.pods[pod]) {
            if pod.buffer.is_some() { &mut buffer_pods } else { &mut pods }.push(pod_ref(pod));
        }
        pods.sort_unstable();
        buffer_pods.sort_unstable();
        let mut devices = Vec::new();
        if let Some((left, table)) = solver.devices.as_deref().zip(problem.devices.as_deref()) {
            devices = left.on_launch(
                &problem.tables,
                table,
                &claim.pods,
                template.catalog,
                &choice.ranked,
            );
            let drivers = drivers(&devices);
            if !drivers.is_empty() {
                draft.annotations.insert(REQUESTED_DRA_DRIVERS.to_owned(), drivers);
            }
        }
        Ok(Launch {
            node_pool: pool.name.clone(),
            node_pool_uid: pool.uid.clone(),
            labels: draft.labels,
            annotations: draft.annotations,
            requirements: draft.requirements,
            instance_types: draft.instance_types,
            capacity_types: draft.capacity_types,
            requests: problem.tables.columns.amounts(&requests),
            taints: draft.taints,
            startup_taints: draft.startup_taints,
            node_class: pool.template.node_class.clone(),
            expire_after: pool.template.expire_after.clone(),
            termination_grace_period: pool.template.termination_grace_period.clone(),
            pods,
            buffer_pods,
            devices,
            price: draft.price,
            reason,
        })
    }
}

/// One launch by itself, see [`Launches::make`].
pub(crate) fn launch_of(
    solver: &Solver<'_, '_>,
    claim: &Claim,
    filter: &LaunchFilter,
    reason: LaunchReason,
) -> Result<Launch, Exclusion> {
    Launches::default().make(solver, claim, filter, reason)
}

/// The types that a launch carries, the cheapest first.
fn ranked(solver: &Solver<'_, '_>, claim: &Claim, filter: &LaunchFilter) -> Vec<usize> {
    let spec = &solver.specs[claim.spec];
    if filter.capacity_type.is_none() && !spec.requirements.has_min_values() {
        return spec.ranked(&filter.types).take(filter.at_most).collect();
    }
    let mut ranked = match filter.capacity_type {
        None => spec.ranked(&filter.types).collect(),
        Some(_) => {
            let prices = prices(solver, claim.spec, filter.capacity_type);
            let mut ranked = crate::machine_specs::by_price(&filter.types, |kind| prices[kind]);
            ranked.retain(|&kind| prices[kind] != NOT_FOR_SALE);
            ranked
        }
    };
    ranked.truncate(filter.at_most.max(needed(solver, claim, filter, &ranked)));
    ranked
}

impl Draft {
    fn new(solver: &Solver<'_, '_>, choice: &Choice) -> Result<Self, Exclusion> {
        let problem = solver.problem;
        let symbols = &problem.tables.symbols;
        let spec = &solver.specs[choice.spec];
        let template = &problem.tables.templates[spec.template];
        let table = &problem.tables.catalogs[template.catalog];
        let pool = &problem.tables.snapshot.node_pools[template.pool];
        let ranked = &choice.ranked;
        let mut types = FixedBitSet::with_capacity(table.len());
        types.extend(ranked.iter().copied());

        let mut min_values: BTreeMap<Key, u32> = choice.relaxed.iter().copied().collect();
        for (key, set) in spec.requirements.iter() {
            let Some(required) = set.min_values() else { continue };
            let found = distinct_values(problem, table, key, set, &types);
            let required = min_values.get(&key).copied().unwrap_or(required);
            if found < required {
                if solver.is_strict() {
                    return Err(Exclusion::MinValues {
                        key: symbols.key_name(key).to_owned(),
                        required,
                        found,
                    });
                }
                min_values.insert(key, found);
            }
        }

        let capacity_types = capacity_types(solver, choice);
        let instance_types: Vec<String> =
            ranked.iter().map(|&kind| table.names[kind].clone()).collect();
        let requirements =
            requirements(solver, spec, &min_values, &instance_types, &capacity_types);
        let mut annotations = pool.template.annotations.clone();
        let relaxed = if min_values.is_empty() { "false" } else { "true" };
        annotations.insert(MIN_VALUES_RELAXED.to_owned(), relaxed.to_owned());
        let price = match choice.capacity_type {
            None => ranked.first().map_or(0, |&kind| spec.price(kind)),
            pinned => {
                let prices = prices(solver, choice.spec, pinned);
                ranked.first().map_or(0, |&kind| prices[kind])
            }
        };
        Ok(Self {
            labels: Shared::from(labels(solver, spec)),
            annotations: Shared::from(annotations),
            requirements: Shared::from(requirements),
            instance_types: Shared::from(instance_types),
            capacity_types,
            taints: Shared::from(pool.template.taints.clone()),
            startup_taints: Shared::from(pool.template.startup_taints.clone()),
            overhead: template.overheads.least(&types),
            price: MicroUsd(price),
            prices: prices::range_in(solver, choice),
        })
    }
}

/// `spec.requirements`: the spec's, with the chosen types and capacity types; sorted by key.
fn requirements(
    solver: &Solver<'_, '_>,
    spec: &MachineSpec,
    min_values: &BTreeMap<Key, u32>,
    instance_types: &[String],
    capacity_types: &[CapacityType],
) -> Vec<Requirement> {
    let problem = solver.problem;
    let symbols = &problem.tables.symbols;
    let min_values_of = |key: Key| {
        let asked = spec.requirements.get(key).and_then(crate::requirements::ValueSet::min_values);
        // The API knows no minimum of zero.
        min_values.get(&key).copied().or(asked).filter(|&values| values > 0)
    };
    let names = |mut list: Vec<String>| {
        list.sort_unstable();
        list
    };
    let mut requirements: Vec<Requirement> = spec
        .requirements
        .iter()
        .filter(|&(key, _)| !problem.tables.is_simulation_only(key))
        .filter(|&(key, _)| {
            key != problem.tables.keys.instance_type && key != problem.tables.keys.capacity_type
        })
        .flat_map(|(key, set)| set.clone().with_min_values(min_values_of(key)).to_api(key, symbols))
        .collect();
    let capacity_type_names = capacity_types.iter().map(|kind| kind.as_str().to_owned()).collect();
    for (key, values) in [
        (problem.tables.keys.instance_type, instance_types.to_vec()),
        (problem.tables.keys.capacity_type, capacity_type_names),
    ] {
        requirements.push(Requirement {
            key: symbols.key_name(key).to_owned(),
            operator: Operator::In,
            values: names(values),
            min_values: min_values_of(key),
        });
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    requirements
}

/// The pool's labels, with a value for each custom requirement.
fn labels(solver: &Solver<'_, '_>, spec: &MachineSpec) -> BTreeMap<String, String> {
    let problem = solver.problem;
    let symbols = &problem.tables.symbols;
    let template = &problem.tables.templates[spec.template];
    let pool = &problem.tables.snapshot.node_pools[template.pool];
    let mut labels = pool.template.labels.clone();
    labels.insert(crate::label::NODE_POOL.to_owned(), pool.name.clone());
    for (key, set) in spec.requirements.iter() {
        let name = symbols.key_name(key);
        if problem.tables.is_well_known(key)
            || problem.tables.is_simulation_only(key)
            || problem.tables.is_restricted(name)
        {
            continue;
        }
        // A pod that can do without a label does not make one.
        if template.requirements.get(key).is_none() && set.admits_absence() {
            continue;
        }
        let value = match set.operator() {
            Operator::DoesNotExist => continue,
            Operator::In => set.names(symbols).swap_remove(0),
            // Any will do until the plan is made; then each launch gets its own.
            _ => set.any_integer(symbols).to_string(),
        };
        labels.entry(name.to_owned()).or_insert(value);
    }
    labels
}

/// The drivers whose devices the machine will publish, separated by commas.
fn drivers(devices: &[PlacedDevices]) -> String {
    let claims = devices.iter().flat_map(|placed| &placed.claims);
    let chosen = claims.flat_map(|claim| &claim.devices).filter(|device| device.template);
    let drivers: BTreeSet<&str> = chosen.map(|device| device.driver.as_str()).collect();
    drivers.into_iter().collect::<Vec<_>>().join(",")
}

/// The number of types, cheapest first, that satisfies all `minValues` that can be satisfied.
fn needed(
    solver: &Solver<'_, '_>,
    claim: &Claim,
    filter: &LaunchFilter,
    ranked: &[usize],
) -> usize {
    let lacks = |n: usize| {
        let mut types = FixedBitSet::with_capacity(filter.types.len());
        types.extend(ranked[..n].iter().copied());
        solver.lacking_values(claim.spec, &types).is_some()
    };
    let asked = solver.specs[claim.spec].requirements.has_min_values();
    if !asked || lacks(ranked.len()) {
        return 0;
    }
    let (mut lacking, mut enough) = (0, ranked.len());
    while enough - lacking > 1 {
        let middle = usize::midpoint(lacking, enough);
        if lacks(middle) { lacking = middle } else { enough = middle }
    }
    enough
}

/// The capacity types that offerings of the chosen types have, sorted.
fn capacity_types(solver: &Solver<'_, '_>, choice: &Choice) -> Vec<CapacityType> {
    if let Some(pinned) = choice.capacity_type {
        return vec![pinned];
    }
    let spec = &solver.specs[choice.spec];
    let table =
        &solver.problem.tables.catalogs[solver.problem.tables.templates[spec.template].catalog];
    let sold =
        |market| choice.ranked.iter().any(|&kind| table.prices(kind)[market] != NOT_FOR_SALE);
    let mut kinds: Vec<_> = spec
        .markets
        .ones()
        .filter(|&market| sold(market))
        .map(|market| table.markets[market].capacity_type)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}
