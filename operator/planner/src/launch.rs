//! From a machine to come to a [`Launch`]: ranked types, requirements as the NodeClaim will carry them, labels with values.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;

use crate::compile::types::NOT_FOR_SALE;
use crate::intern::Key;
use crate::plan::{Exclusion, Launch, LaunchReason, PlacedDevices, PodRef};
use crate::resources::MicroUsd;
use crate::snapshot::{CapacityType, Operator, Pod, Requirement};
use crate::solver::{Claim, Solver, distinct_values};

/// Says on a NodeClaim whether `minValues` had to be lowered.
const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";

/// Names on a NodeClaim the drivers that have to publish devices before its node is initialised.
const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";

/// What a price filter leaves of a claim's types and capacity types.
#[derive(Clone, Debug)]
pub(crate) struct Narrowed {
    pub(crate) types: FixedBitSet,
    pub(crate) capacity_type: Option<CapacityType>,
    /// How many types the launch carries at most.
    pub(crate) at_most: usize,
}

impl Narrowed {
    /// All types of a claim.
    pub(crate) fn nothing(solver: &Solver<'_, '_>, claim: &Claim) -> Self {
        let at_most = solver.problem.policy.max_instance_types;
        Self { types: claim.types.clone(), capacity_type: None, at_most }
    }
}

/// A pod's reference.
pub(crate) fn pod_ref(pod: &Pod) -> PodRef {
    PodRef { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}

/// The prices of a claim's types when only some capacity types may be bought.
pub(crate) fn prices(
    solver: &Solver<'_, '_>,
    claim: &Claim,
    capacity_type: Option<CapacityType>,
) -> Vec<i64> {
    let cell = &solver.cells[claim.cell];
    let Some(capacity_type) = capacity_type else { return cell.prices.clone() };
    let table = &solver.problem.catalogs[solver.problem.templates[cell.template].catalog];
    (0..table.len())
        .map(|kind| {
            cell.markets
                .ones()
                .filter(|&market| table.markets[market].capacity_type == capacity_type)
                .map(|market| table.prices(kind)[market])
                .min()
                .unwrap_or(NOT_FOR_SALE)
        })
        .collect()
}

/// A NodeClaim for a machine to come. An error when the types that it may carry at most are too few for `minValues`.
pub(crate) fn launch(
    solver: &Solver<'_, '_>,
    claim: &Claim,
    narrowed: &Narrowed,
    reason: LaunchReason,
    seed: u64,
) -> Result<Launch, Exclusion> {
    let problem = solver.problem;
    let symbols = &problem.symbols;
    let cell = &solver.cells[claim.cell];
    let template = &problem.templates[cell.template];
    let table = &problem.catalogs[template.catalog];
    let pool = &problem.snapshot.node_pools[template.pool];

    let pinned = narrowed.capacity_type.map(|_| prices(solver, claim, narrowed.capacity_type));
    let prices = pinned.as_ref().unwrap_or(&cell.prices);
    let mut ranked: Vec<usize> = if pinned.is_none() {
        cell.ranked(&narrowed.types).collect()
    } else {
        crate::cells::by_price(&narrowed.types, prices)
    };
    ranked.retain(|&kind| prices[kind] != NOT_FOR_SALE);
    ranked.truncate(narrowed.at_most.max(needed(solver, claim, narrowed, &ranked)));
    let mut types = FixedBitSet::with_capacity(table.len());
    types.extend(ranked.iter().copied());

    let mut min_values: BTreeMap<Key, u32> = claim.relaxed.iter().copied().collect();
    for (key, set) in cell.requirements.iter() {
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

    let capacity_types = capacity_types(solver, claim, narrowed, &ranked);
    let min_values_of = |key: Key| {
        let asked = cell.requirements.get(key).and_then(crate::requirements::ValueSet::min_values);
        // The API knows no minimum of zero.
        min_values.get(&key).copied().or(asked).filter(|&values| values > 0)
    };
    let names = |mut list: Vec<String>| {
        list.sort_unstable();
        list
    };
    let mut requirements: Vec<Requirement> = cell
        .requirements
        .iter()
        .filter(|&(key, _)| !problem.is_simulation_only(key))
        .filter(|&(key, _)| key != problem.keys.instance_type && key != problem.keys.capacity_type)
        .flat_map(|(key, set)| set.clone().with_min_values(min_values_of(key)).to_api(key, symbols))
        .collect();
    let chosen: Vec<String> = ranked.iter().map(|&kind| table.names[kind].clone()).collect();
    let capacity_type_names = capacity_types.iter().map(|kind| kind.as_str().to_owned()).collect();
    for (key, values) in [
        (problem.keys.instance_type, chosen.clone()),
        (problem.keys.capacity_type, capacity_type_names),
    ] {
        requirements.push(Requirement {
            key: symbols.key_name(key).to_owned(),
            operator: Operator::In,
            values: names(values),
            min_values: min_values_of(key),
        });
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));

    let mut labels = pool.template.labels.clone();
    labels.insert(crate::compile::label::NODE_POOL.to_owned(), pool.name.clone());
    for (key, set) in cell.requirements.iter() {
        let name = symbols.key_name(key);
        if problem.is_well_known(key)
            || problem.is_simulation_only(key)
            || problem.is_restricted(name)
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
            // Any integer will do; the seed keeps pods of different plans from being told apart by it.
            _ => set.any_integer(i64::try_from(seed % 1_000_000).unwrap_or(0), symbols).to_string(),
        };
        labels.entry(name.to_owned()).or_insert(value);
    }

    let mut annotations = pool.template.annotations.clone();
    let relaxed = if min_values.is_empty() { "false" } else { "true" };
    annotations.insert(MIN_VALUES_RELAXED.to_owned(), relaxed.to_owned());

    let mut requests = claim.used.clone();
    crate::compile::add_times(&mut requests, &template.overheads.least(&types), 1);
    let (mut pods, mut buffer_pods) = (Vec::new(), Vec::new());
    for pod in claim.pods.iter().map(|&pod| &problem.snapshot.pods[pod]) {
        if pod.buffer.is_some() { &mut buffer_pods } else { &mut pods }.push(pod_ref(pod));
    }
    pods.sort_unstable();
    buffer_pods.sort_unstable();
    let mut devices = Vec::new();
    if let Some(state) = &solver.devices {
        devices = state.on_launch(problem, &claim.pods, template.catalog, &ranked);
        let drivers = drivers(&devices);
        if !drivers.is_empty() {
            annotations.insert(REQUESTED_DRA_DRIVERS.to_owned(), drivers);
        }
    }
    Ok(Launch {
        node_pool: pool.name.clone(),
        node_pool_uid: pool.uid.clone(),
        labels,
        annotations,
        requirements,
        price: MicroUsd(ranked.first().map_or(0, |&kind| prices[kind])),
        instance_types: chosen,
        capacity_types,
        requests: problem.columns.amounts(&requests),
        taints: pool.template.taints.clone(),
        startup_taints: pool.template.startup_taints.clone(),
        node_class: pool.template.node_class.clone(),
        expire_after: pool.template.expire_after.clone(),
        termination_grace_period: pool.template.termination_grace_period.clone(),
        pods,
        buffer_pods,
        devices,
        reason,
    })
}

/// The drivers whose devices the machine itself brings, as a list with commas.
fn drivers(devices: &[PlacedDevices]) -> String {
    let claims = devices.iter().flat_map(|placed| &placed.claims);
    let chosen = claims.flat_map(|claim| &claim.devices).filter(|device| device.template);
    let drivers: BTreeSet<&str> = chosen.map(|device| device.driver.as_str()).collect();
    drivers.into_iter().collect::<Vec<_>>().join(",")
}

/// How many types it takes to have all `minValues`, as far as they can be had.
fn needed(solver: &Solver<'_, '_>, claim: &Claim, narrowed: &Narrowed, ranked: &[usize]) -> usize {
    let lacks = |n: usize| {
        let mut types = FixedBitSet::with_capacity(narrowed.types.len());
        types.extend(ranked[..n].iter().copied());
        solver.lacking_values(claim.cell, &types).is_some()
    };
    let asked = solver.cells[claim.cell].requirements.has_min_values();
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
fn capacity_types(
    solver: &Solver<'_, '_>,
    claim: &Claim,
    narrowed: &Narrowed,
    ranked: &[usize],
) -> Vec<CapacityType> {
    if let Some(pinned) = narrowed.capacity_type {
        return vec![pinned];
    }
    let cell = &solver.cells[claim.cell];
    let table = &solver.problem.catalogs[solver.problem.templates[cell.template].catalog];
    let mut kinds: Vec<_> = cell
        .markets
        .ones()
        .filter(|&market| ranked.iter().any(|&kind| table.prices(kind)[market] != NOT_FOR_SALE))
        .map(|market| table.markets[market].capacity_type)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}
