//! Whether a snapshot keeps the invariants that the planner relies on.

use thiserror::Error;

use crate::snapshot::{Placement, SNAPSHOT_VERSION, Snapshot};

/// What is wrong with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// Another format.
    #[error(
        "the snapshot has version {found}, this planner reads version {SNAPSHOT_VERSION}: write it again with the same release"
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// A list is not sorted by its key, or has a key twice.
    #[error("{list} is not sorted by its key, or has a duplicate, at {at}")]
    Order {
        /// The list.
        list: &'static str,
        /// The key that is out of order.
        at: String,
    },
    /// An index points past its list.
    #[error("{owner} refers to {list}[{index}], which does not exist")]
    Index {
        /// What refers.
        owner: String,
        /// The list.
        list: &'static str,
        /// The index.
        index: u32,
    },
    /// An amount that has to be at least zero.
    #[error("{owner} has a negative amount of {resource}")]
    Negative {
        /// What has it.
        owner: String,
        /// Of what.
        resource: String,
    },
}

impl Snapshot {
    /// Checks the invariants; all that are broken, in the order of the fields.
    pub fn validate(&self) -> Result<(), Vec<SnapshotError>> {
        let mut errors = Vec::new();
        if self.version != SNAPSHOT_VERSION {
            errors.push(SnapshotError::Version { found: self.version });
        }
        sorted(&mut errors, "nodePools", self.node_pools.iter().map(|pool| pool.name.clone()));
        sorted(&mut errors, "nodes", self.nodes.iter().map(|node| node.key.clone()));
        let named = |namespace: &str, name: &str| format!("{namespace}\0{name}");
        sorted(&mut errors, "pods", self.pods.iter().map(|pod| named(&pod.namespace, &pod.name)));
        let daemon_sets = self.daemon_sets.iter();
        sorted(&mut errors, "daemonSets", daemon_sets.map(|set| named(&set.namespace, &set.name)));
        for catalog in &self.catalogs {
            sorted(
                &mut errors,
                "instanceTypes",
                catalog.instance_types.iter().map(|kind| kind.name.clone()),
            );
        }
        for pool in &self.node_pools {
            if let Some(catalog) = pool.catalog {
                let owner = || format!("NodePool {}", pool.name);
                index(&mut errors, owner, "catalogs", catalog.0, self.catalogs.len());
            }
        }
        for pod in &self.pods {
            let owner = || format!("Pod {}/{}", pod.namespace, pod.name);
            index(&mut errors, owner, "shapes", pod.shape.0, self.shapes.len());
            if let Placement::Bound(node) = pod.placement {
                index(&mut errors, owner, "nodes", node.0, self.nodes.len());
            }
        }
        for (number, shape) in self.shapes.iter().enumerate() {
            for (resource, amount) in shape.requests.iter() {
                if amount < 0 {
                    let resource = resource.to_owned();
                    errors.push(SnapshotError::Negative {
                        owner: format!("shapes[{number}]"),
                        resource,
                    });
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

fn sorted(errors: &mut Vec<SnapshotError>, list: &'static str, keys: impl Iterator<Item = String>) {
    let mut last: Option<String> = None;
    for key in keys {
        if last.as_ref().is_some_and(|last| *last >= key) {
            errors.push(SnapshotError::Order { list, at: key.replace('\0', "/") });
        }
        last = Some(key);
    }
}

fn index(
    errors: &mut Vec<SnapshotError>,
    owner: impl Fn() -> String,
    list: &'static str,
    index: u32,
    len: usize,
) {
    if index as usize >= len {
        errors.push(SnapshotError::Index { owner: owner(), list, index });
    }
}
