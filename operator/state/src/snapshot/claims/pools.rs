//! What drivers have published, by pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSliceSpec};
use tenon_crds::labels::LabelRules;
use tenon_planner::snapshot as plan;
use tenon_planner::snapshot::{PoolState, Reach};

use super::kinds::Kinds;
use super::{millis, terms};
use crate::cluster::DeviceObjects;
use crate::wire::ResourceSlice;

/// The newest generation of every pool, by driver and name.
pub(super) fn published(
    objects: &DeviceObjects,
    kinds: &mut Kinds<'_>,
    rules: &LabelRules,
) -> Vec<plan::DevicePool> {
    let mut pools: BTreeMap<(&str, &str), Vec<&Arc<ResourceSlice>>> = BTreeMap::new();
    for slice in objects.slices.values() {
        pools.entry((&slice.spec.driver, &slice.spec.pool.name)).or_default().push(slice);
    }
    pools
        .into_iter()
        .map(|((driver, name), slices)| {
            let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
            let slices: Vec<&ResourceSliceSpec> = slices
                .iter()
                .map(|slice| &slice.spec)
                .filter(|spec| Some(spec.pool.generation) == newest)
                .collect();
            let mut parts: Vec<plan::DeviceSlice> = Vec::new();
            for spec in &slices {
                for device in spec.devices.iter().flatten() {
                    let reach = reach(spec, device, rules);
                    let listed =
                        plan::Device { name: device.name.clone(), kind: kinds.of(driver, device) };
                    match parts.last_mut().filter(|part| part.reach == reach) {
                        Some(part) => part.devices.push(listed),
                        None => parts.push(plan::DeviceSlice { reach, devices: vec![listed] }),
                    }
                }
            }
            let sets = slices.iter().flat_map(|spec| spec.shared_counters.iter().flatten());
            plan::DevicePool {
                driver: driver.to_owned(),
                name: name.to_owned(),
                state: state(&slices),
                counters: sets.map(counters).collect(),
                slices: parts,
            }
        })
        .collect()
}

fn counters(set: &CounterSet) -> (String, BTreeMap<String, i64>) {
    let counters = set.counters.iter();
    let counters = counters.map(|(name, counter)| (name.clone(), millis(&counter.value)));
    (set.name.clone(), counters.collect())
}

/// Whether all slices are there, and don't contradict each other.
fn state(slices: &[&ResourceSliceSpec]) -> PoolState {
    let expected = slices.first().map_or(0, |spec| spec.pool.resource_slice_count);
    if i64::try_from(slices.len()).is_ok_and(|there| there != expected) {
        return PoolState::Incomplete;
    }
    let devices = slices.iter().flat_map(|spec| spec.devices.iter().flatten());
    let sets = slices.iter().flat_map(|spec| spec.shared_counters.iter().flatten());
    twice("device", devices.map(|device| &device.name))
        .or_else(|| twice("counter set", sets.map(|set| &set.name)))
        .unwrap_or_default()
}

fn twice<'n>(what: &str, mut names: impl Iterator<Item = &'n String>) -> Option<PoolState> {
    let mut known = BTreeSet::new();
    let name = names.find(|&name| !known.insert(name))?;
    Some(PoolState::Invalid(format!("{what} {name} is listed twice")))
}

/// From where a device can be reached: its slice says so, or with `perDeviceNodeSelection` the
/// device itself.
fn reach(spec: &ResourceSliceSpec, device: &Device, rules: &LabelRules) -> Reach {
    let own = spec.per_device_node_selection == Some(true);
    let (node, selector) = if own {
        (&device.node_name, &device.node_selector)
    } else {
        (&spec.node_name, &spec.node_selector)
    };
    if let Some(node) = node.as_ref().filter(|node| !node.is_empty()) {
        return Reach::Node(node.clone());
    }
    let Some(selector) = selector else { return Reach::Everywhere };
    // The API admits exactly one term.
    let terms = terms(selector, rules);
    match terms.iter().find_map(|term| term.name.clone()) {
        Some(name) => Reach::Node(name),
        None => Reach::Nodes(terms.into_iter().flat_map(|term| term.requirements).collect()),
    }
}
