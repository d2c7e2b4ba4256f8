//! Free room and host ports of the machines that exist.

use super::Tables;
use super::columns::take_times;
use super::daemons::Daemons;
use super::machines::PodScan;
use super::volumes;

/// Computes free room and ports: allocatable, less bound pods, less daemons that are still to
/// start.
pub(super) fn fill(tables: &mut Tables<'_>, daemons: &Daemons, scan: &PodScan) {
    let columns = &tables.columns;
    let width = columns.len();
    let with_ports = tables.shapes.iter().any(|shape| !shape.ports.is_empty());
    let mut room = Vec::with_capacity(tables.snapshot.nodes.len() * width);
    let mut ports = Vec::with_capacity(tables.snapshot.nodes.len());
    for (index, node) in tables.snapshot.nodes.iter().enumerate() {
        columns.extend_row(&node.allocatable, &mut room);
        let row = &mut room[index * width..];
        take_times(row, &scan.used[index * width..], 1);
        daemons.take_to_come(tables, index, row);
        volumes::fill_room(tables, daemons, index, row);
        let mut used_ports = Vec::new();
        if with_ports {
            for &pod in &tables.pods_on[index] {
                let shape = &tables.shapes[tables.snapshot.pods[pod].shape.0 as usize];
                used_ports.extend(shape.ports.iter().cloned());
            }
        }
        daemons.reserve_ports(tables, index, &mut used_ports);
        ports.push(used_ports);
    }
    tables.machines.room = room;
    tables.machines.width = width;
    tables.machines.ports = ports;
}
