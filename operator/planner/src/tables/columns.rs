//! Amounts as rows of integers, with one column per resource and one per CSI driver.

use std::collections::BTreeSet;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use crate::resources::Resources;
use crate::snapshot::{PodShape, Snapshot};

/// The amount in the column of a driver without a limit on volumes.
pub(super) const UNLIMITED: i64 = i64::MAX / 4;

/// The first columns.
const BASE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

/// The columns of amounts.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    names: IndexSet<String, FxBuildHasher>,
    /// The first column that counts volumes: one per CSI driver, after all resources.
    volumes: usize,
    /// The drivers of these columns.
    drivers: Vec<String>,
}

impl Columns {
    pub(super) fn collect(snapshot: &Snapshot) -> Self {
        let mut columns = Self::default();
        columns.names.extend(BASE.map(str::to_owned));
        let mut use_all = |amounts: &Resources| {
            for name in amounts.extended.keys() {
                if !columns.names.contains(name) {
                    columns.names.insert(name.clone());
                }
            }
        };
        snapshot.shapes.iter().for_each(|shape| use_all(&shape.requests));
        snapshot.daemon_sets.iter().for_each(|daemon| use_all(&daemon.shape.requests));
        snapshot.nodes.iter().for_each(|node| {
            use_all(&node.allocatable);
            use_all(&node.capacity);
        });
        for catalog in &snapshot.catalogs {
            catalog.instance_types.iter().for_each(|kind| use_all(&kind.capacity));
        }
        for pool in &snapshot.node_pools {
            for name in pool.limits.keys().filter(|name| *name != "nodes") {
                columns.names.insert(name.clone());
            }
        }
        columns.volumes = columns.names.len();
        let all = snapshot.shapes.iter().chain(snapshot.daemon_sets.iter().map(|set| &set.shape));
        let drivers: BTreeSet<&String> = all
            .flat_map(|shape| {
                let shared = shape.shared_volumes.iter().map(|volume| &volume.driver);
                shape.volumes.keys().chain(shared)
            })
            .collect();
        for driver in drivers {
            columns.names.insert(volume_column(driver));
            columns.drivers.push(driver.clone());
        }
        columns
    }

    /// The columns that count volumes, each with its CSI driver.
    pub(super) fn drivers(&self) -> impl Iterator<Item = (usize, &str)> {
        (self.volumes..).zip(self.drivers.iter().map(String::as_str))
    }

    /// The requests of a pod of a shape. A shared volume counts as if the pod were its only user.
    pub(super) fn row_of(&self, shape: &PodShape) -> Vec<i64> {
        let mut row = self.row(&shape.requests);
        for (column, driver) in self.drivers() {
            let own = shape.volumes.get(driver).copied().map_or(0, i64::from);
            row[column] = own + shared_volumes(shape, driver);
        }
        row
    }

    /// The number of columns of a row.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The column of a resource.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.names.get_index_of(name)
    }

    /// The resource of a column, by Kubernetes' name.
    pub(crate) fn name(&self, column: usize) -> &str {
        &self.names[column]
    }

    /// Amounts as a row.
    pub(super) fn row(&self, amounts: &Resources) -> Vec<i64> {
        let mut row = Vec::with_capacity(self.len());
        self.extend_row(amounts, &mut row);
        row
    }

    /// Adds amounts as a row to others.
    pub(crate) fn extend_row(&self, amounts: &Resources, rows: &mut Vec<i64>) {
        let Resources { cpu, memory, ephemeral_storage, pods, extended } = amounts;
        rows.extend([cpu, memory, ephemeral_storage, pods]);
        rows.extend(
            self.names[BASE.len()..].iter().map(|name| extended.get(name).copied().unwrap_or(0)),
        );
    }

    /// A row as amounts.
    pub(crate) fn amounts(&self, row: &[i64]) -> Resources {
        let mut amounts = Resources::default();
        for (name, &amount) in self.names.iter().zip(row).take(self.volumes) {
            if amount != 0 {
                amounts.set(name, amount);
            }
        }
        amounts
    }
}

/// The name of a driver's column, as Kubernetes called it when limits stood in the Node's
/// allocatable amounts.
fn volume_column(driver: &str) -> String {
    format!("attachable-volumes-csi-{driver}")
}

/// The number of volumes that a pod shares with others.
fn shared_volumes(shape: &PodShape, driver: &str) -> i64 {
    let volumes = shape.shared_volumes.iter().filter(|volume| volume.driver == driver);
    i64::try_from(volumes.count()).unwrap_or(UNLIMITED)
}

/// Whether a row of requests fits into a row of room; a row of room with a negative amount takes
/// nothing.
pub(crate) fn fits(requests: &[i64], room: &[i64]) -> bool {
    requests.iter().zip(room).all(|(&want, &have)| want <= have && have >= 0)
}

/// How many times a row of requests fits into a row of room.
pub(crate) fn times(requests: &[i64], room: &[i64]) -> usize {
    let mut times = i64::MAX;
    for (&want, &have) in requests.iter().zip(room) {
        if have < 0 {
            return 0;
        }
        if want > 0 {
            times = times.min(have / want);
        }
    }
    usize::try_from(times).unwrap_or(usize::MAX)
}

/// `row += n × other`.
pub(crate) fn add_times(row: &mut [i64], other: &[i64], n: usize) {
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    for (amount, &more) in row.iter_mut().zip(other) {
        *amount = amount.saturating_add(more.saturating_mul(n));
    }
}

/// `row -= n × other`.
pub(crate) fn take_times(row: &mut [i64], other: &[i64], n: usize) {
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    for (amount, &less) in row.iter_mut().zip(other) {
        *amount = amount.saturating_sub(less.saturating_mul(n));
    }
}
