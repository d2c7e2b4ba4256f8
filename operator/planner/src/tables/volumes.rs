//! Volumes that machines can still attach, as columns of amounts: one per CSI driver that pods use.

use std::collections::BTreeSet;

use super::Tables;
use super::columns::UNLIMITED;
use super::daemons::Daemons;
use super::machines::promised_types;
use crate::label;
use crate::snapshot::NodePhase;

/// Sets the columns of volumes in a machine's row: its limit less what is attached, where shared
/// volumes count once, less what daemons still attach.
pub(super) fn fill_room(tables: &Tables<'_>, daemons: &Daemons, machine: usize, row: &mut [i64]) {
    if tables.columns.drivers().next().is_none() {
        return;
    }
    let to_come = daemons.still_to_come(tables, machine);
    for (column, driver) in tables.columns.drivers() {
        let mut own = 0;
        let mut shared = BTreeSet::new();
        for &pod in &tables.pods_on[machine] {
            let shape = &tables.snapshot.shapes[tables.snapshot.pods[pod].shape.0 as usize];
            own += shape.volumes.get(driver).copied().map_or(0, i64::from);
            let of_driver = shape.shared_volumes.iter().filter(|volume| volume.driver == driver);
            shared.extend(of_driver.map(|volume| (&shape.namespace, &volume.claim)));
        }
        let attached = own + i64::try_from(shared.len()).unwrap_or(UNLIMITED);
        // A machine that has too many already still takes pods without volumes.
        row[column] = (limit(tables, machine, column, driver) - attached - to_come[column]).max(0);
    }
}

/// The number of volumes of a driver that a machine can attach: from its CSINode, otherwise from
/// its instance type, or the minimum of the types that it may become.
fn limit(tables: &Tables<'_>, machine: usize, column: usize, driver: &str) -> i64 {
    let node = &tables.snapshot.nodes[machine];
    if let Some(published) = node.volume_limits.get(driver) {
        return published.map_or(UNLIMITED, i64::from);
    }
    let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_ref());
    let pool = pool.and_then(|pool| tables.snapshot.node_pools.iter().find(|p| p.name == *pool));
    let Some(catalog) = pool.and_then(|pool| pool.catalog) else { return UNLIMITED };
    let table = &tables.catalogs[catalog.0 as usize];
    if node.phase == NodePhase::Pending {
        let types = promised_types(tables, machine, catalog.0 as usize);
        let least = types.ones().map(|kind| table.allocatable(kind)[column]).min();
        return least.unwrap_or(UNLIMITED);
    }
    let kind = node.labels.get(label::INSTANCE_TYPE).and_then(|name| table.find(name));
    kind.map_or(UNLIMITED, |kind| table.allocatable(kind)[column])
}
