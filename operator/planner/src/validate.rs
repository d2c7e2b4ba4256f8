//! Parses and validates snapshots and plans: the version of their format, and the invariants that
//! the planner relies on.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::plan::{PLAN_VERSION, Plan};
use crate::repair::RepairPolicyError;
use crate::snapshot::{Placement, SNAPSHOT_VERSION, Snapshot};

/// Why a snapshot or plan in JSON was rejected.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It does not parse, or lacks required fields.
    #[error("not a {what} in JSON: {source}")]
    Json {
        /// `snapshot` or `plan`.
        what: &'static str,
        /// Names line, column and cause.
        source: serde_json::Error,
    },
    /// It was written in another version of the format.
    #[error(
        "the {what} has version {found}, this release reads version {known}: write it again with this release"
    )]
    Version {
        /// `snapshot` or `plan`.
        what: &'static str,
        /// The value of its field `version`.
        found: u32,
        /// The only version that this release reads.
        known: u32,
    },
    /// It breaks invariants of the format; all violations, in the order of the fields.
    #[error("the snapshot is not valid: {}", list(.0))]
    Invalid(Vec<SnapshotError>),
}

fn list(errors: &[SnapshotError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Checks the version first: fields of another version may not parse.
fn read<T: DeserializeOwned>(what: &'static str, known: u32, json: &str) -> Result<T, ReadError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let error = |source| ReadError::Json { what, source };
    let Versioned { version: found } = serde_json::from_str(json).map_err(error)?;
    if found != known {
        return Err(ReadError::Version { what, found, known });
    }
    serde_json::from_str(json).map_err(error)
}

impl Plan {
    /// Parses a plan; its version has to be [`PLAN_VERSION`].
    pub fn from_json(json: &str) -> Result<Self, ReadError> {
        read("plan", PLAN_VERSION, json)
    }
}

/// A violation of an invariant of [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// It was written in another version of the format.
    #[error(
        "the snapshot has version {found}, this planner reads version {SNAPSHOT_VERSION}: write it again with the same release"
    )]
    Version {
        /// The value of its field `version`.
        found: u32,
    },
    /// A list is not sorted by its key, or has a key twice.
    #[error("{list} is not sorted by its key, or has a duplicate, at {at}")]
    Order {
        /// The field of the snapshot, as in JSON.
        list: &'static str,
        /// The first key that is not greater than its predecessor.
        at: String,
    },
    /// An index points past its list.
    #[error("{owner} refers to {list}[{index}], which does not exist")]
    Index {
        /// The object with the reference, by kind and name.
        owner: String,
        /// The field of the snapshot, as in JSON.
        list: &'static str,
        /// From 0; it is not less than the length of the list.
        index: u32,
    },
    /// A repair policy, or the set of them, is not valid.
    #[error(transparent)]
    Repair(#[from] RepairPolicyError),
    /// An amount that has to be at least zero.
    #[error("{owner} has a negative amount of {resource}")]
    Negative {
        /// The object with the amount: its kind and name, or the index of a shape.
        owner: String,
        /// Kubernetes' name of the resource.
        resource: String,
    },
}

impl Snapshot {
    /// Parses a snapshot and validates it; its version has to be [`SNAPSHOT_VERSION`].
    pub fn from_json(json: &str) -> Result<Self, ReadError> {
        let snapshot: Self = read("snapshot", SNAPSHOT_VERSION, json)?;
        snapshot.validate().map_err(ReadError::Invalid)?;
        Ok(snapshot)
    }

    /// Checks the invariants and returns all violations, in the order of the fields.
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
            if let Some(budget) = pod.pod_budget {
                index(&mut errors, owner, "podBudgets", budget, self.pod_budgets.len());
            }
            if let Placement::Bound(node) = pod.placement {
                index(&mut errors, owner, "nodes", node.0, self.nodes.len());
            }
        }
        for (number, shape) in self.shapes.iter().enumerate() {
            not_negative(&mut errors, || format!("shapes[{number}]"), &shape.requests);
        }
        for set in &self.daemon_sets {
            let owner = || format!("DaemonSet {}/{}", set.namespace, set.name);
            not_negative(&mut errors, owner, &set.shape.requests);
        }
        self.validate_devices(&mut errors);
        if !self.repair_policies.is_empty() {
            let wrong = crate::repair::validate(&self.repair_policies).err().unwrap_or_default();
            errors.extend(wrong.into_iter().map(SnapshotError::from));
        }
        // The heaviest first, of equal weights the last name first.
        let overlays = self.overlays.iter();
        let keys = overlays.map(|it| (std::cmp::Reverse(it.weight), std::cmp::Reverse(&it.name)));
        for (pair, overlay) in keys.clone().zip(keys.skip(1)).zip(self.overlays.iter().skip(1)) {
            if pair.0 >= pair.1 {
                let at = overlay.name.clone();
                errors.push(SnapshotError::Order { list: "overlays", at });
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

impl Snapshot {
    fn validate_devices(&self, errors: &mut Vec<SnapshotError>) {
        let none = crate::snapshot::Devices::default();
        let devices = self.devices.as_deref().unwrap_or(&none);
        let named = |a: &str, b: &str| format!("{a}\0{b}");
        sorted(errors, "devices.pools", devices.pools.iter().map(|it| named(&it.driver, &it.name)));
        let claims = devices.claims.iter();
        sorted(errors, "devices.claims", claims.map(|it| named(&it.namespace, &it.name)));
        let slices = devices.pools.iter().flat_map(|pool| &pool.slices);
        let published = slices.flat_map(|slice| &slice.devices).map(|device| device.kind);
        let types = self.catalogs.iter().flat_map(|catalog| &catalog.instance_types);
        let templates = types.flat_map(|kind| &kind.devices).flat_map(|it| &it.devices);
        let requests = devices.specs.iter().flat_map(|spec| &spec.requests);
        let asks = requests.flat_map(|request| &request.alternatives);
        let kinds = published.chain(templates.map(|device| device.kind));
        for kind in kinds.chain(asks.flat_map(|ask| ask.kinds.iter().copied())) {
            let owner = || "a device or a request".to_owned();
            index(errors, owner, "devices.kinds", kind, devices.kinds.len());
        }
        for claim in &devices.claims {
            let owner = || format!("ResourceClaim {}/{}", claim.namespace, claim.name);
            index(errors, owner, "devices.specs", claim.spec, devices.specs.len());
        }
        for (number, shape) in self.shapes.iter().enumerate() {
            for &spec in &shape.device_claims {
                let owner = || format!("shapes[{number}]");
                index(errors, owner, "devices.specs", spec, devices.specs.len());
            }
        }
        for pod in &self.pods {
            for &claim in &pod.claims {
                let owner = || format!("Pod {}/{}", pod.namespace, pod.name);
                index(errors, owner, "devices.claims", claim, devices.claims.len());
            }
        }
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

fn not_negative(
    errors: &mut Vec<SnapshotError>,
    owner: impl Fn() -> String,
    amounts: &crate::resources::Resources,
) {
    let negative = amounts.iter().filter(|&(_, amount)| amount < 0);
    errors.extend(negative.map(|(resource, _)| SnapshotError::Negative {
        owner: owner(),
        resource: resource.to_owned(),
    }));
}
