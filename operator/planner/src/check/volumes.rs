//! Whether machines can attach the volumes of their pods.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::pods::shape;
use crate::snapshot::{Node, NodePhase, PodShape, Snapshot};

/// A machine that exists: only drivers that pods of the plan use are looked at, since it may have
/// too many of others already.
pub(super) fn check_machine(
    snapshot: &Snapshot,
    node: &Node,
    all: &[usize],
    new: &[usize],
    found: &mut BTreeSet<Violation>,
) {
    let mut limits = BTreeMap::new();
    let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_ref());
    let pool = pool.and_then(|name| snapshot.node_pools.iter().find(|pool| pool.name == *name));
    let catalog = pool.and_then(|pool| pool.catalog).map(|id| &snapshot.catalogs[id.0 as usize]);
    let name = node.labels.get("node.kubernetes.io/instance-type");
    if let (Some(catalog), Some(name)) = (catalog, name.filter(|_| node.phase > NodePhase::Pending))
    {
        let kind = catalog.instance_types.iter().find(|kind| kind.name == *name);
        limits.extend(kind.iter().flat_map(|kind| kind.volume_limits.clone()));
    }
    for (driver, limit) in &node.volume_limits {
        match limit {
            Some(limit) => limits.insert(driver.clone(), *limit),
            None => limits.remove(driver),
        };
    }
    let used: BTreeSet<&String> = new
        .iter()
        .map(|&pod| shape(snapshot, pod))
        .flat_map(|shape| {
            shape.volumes.keys().chain(shape.shared_volumes.iter().map(|volume| &volume.driver))
        })
        .collect();
    limits.retain(|driver, _| used.contains(driver));
    let shapes: Vec<_> = all.iter().map(|&pod| shape(snapshot, pod)).collect();
    check(&shapes, &limits, &node.key, found);
}

/// The pods of one machine against its limits.
pub(super) fn check(
    shapes: &[&PodShape],
    limits: &BTreeMap<String, u32>,
    machine: &str,
    found: &mut BTreeSet<Violation>,
) {
    for (driver, &limit) in limits {
        let own: u32 = shapes.iter().filter_map(|shape| shape.volumes.get(driver)).sum();
        let shared: BTreeSet<_> = shapes
            .iter()
            .flat_map(|shape| shape.shared_volumes.iter().map(|volume| (&shape.namespace, volume)))
            .filter(|(_, volume)| volume.driver == *driver)
            .collect();
        if own as usize + shared.len() > limit as usize {
            found
                .insert(Violation::Volumes { machine: machine.to_owned(), driver: driver.clone() });
        }
    }
}
