//! From objects to the planner's Snapshot, by the same way as in the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use tenon_crds::NodePool;
use tenon_crds::labels::{self, LabelRules};
use tenon_planner::Snapshot;
use tenon_planner::snapshot::{Catalog, InstanceType, NodeClassRef};
use tenon_state::catalog;
use tenon_state::change::{Change, Object};
use tenon_state::cluster::Cluster;
use tenon_state::node_class::{EC2, KWOK, NodeClassKind};

use super::complete::complete;
use super::error::SimulateError;
use super::input::Input;
use crate::errors::ExpectedError;

/// The kinds of NodeClasses that Tenon serves.
const KINDS: &[NodeClassKind] = &[EC2, KWOK];

/// What is planned on.
#[derive(Debug)]
pub(super) struct World {
    /// The planner's input.
    pub(super) snapshot: Snapshot,
    /// What a person should know about the input.
    pub(super) warnings: Vec<String>,
}

/// Builds the Snapshot of these objects. Without a catalog the built-in one is used.
pub(super) fn build(
    mut input: Input,
    catalog: Option<&Path>,
    now: Timestamp,
) -> Result<World, ExpectedError> {
    let mut types = match catalog {
        Some(path) => catalog::read(path).map_err(|error| catalog_failed(path, error))?,
        None => catalog::generate(),
    };
    let on_ec2 = |pool: &NodePool| refers_to(pool, EC2);
    let rules = if input.pools.iter().any(on_ec2) {
        catalog::define_ec2_labels(&mut types);
        LabelRules::aws()
    } else {
        LabelRules::kwok(catalog::offering_keys(&types))
    };
    complete(&mut input, &rules, now);
    let mut warnings = warnings(&input);
    if catalog.is_none() {
        warnings.extend(input.pools.iter().filter(|pool| on_ec2(pool)).map(|pool| {
            format!(
                "NodePool {} refers to an EC2NodeClass, and the built-in catalog has no EC2 instance types: name a file with --catalog",
                pool.metadata.name.as_deref().unwrap_or_default()
            )
        }));
    }
    let catalogs = Catalogs::new(&input, &types);
    let mut cluster = Cluster::new(KINDS, rules);
    for object in objects(input) {
        cluster.apply(Change::Applied(object));
    }
    let snapshot = cluster.snapshot(&|class: &NodeClassRef| catalogs.of(class), now);
    Ok(World { snapshot, warnings })
}

fn catalog_failed(path: &Path, error: catalog::CatalogError) -> ExpectedError {
    match error {
        catalog::CatalogError::Read { source, .. } => {
            ExpectedError::File { operation: "read", path: path.to_owned(), source }
        }
        error => SimulateError::Catalog(error).into(),
    }
}

fn refers_to(pool: &NodePool, kind: NodeClassKind) -> bool {
    let reference = &pool.spec.template.spec.node_class_ref;
    reference.group == kind.group && reference.kind == kind.kind
}

/// What makes the answer different from what somebody may expect.
fn warnings(input: &Input) -> Vec<String> {
    let mut warnings = Vec::new();
    if input.pools.is_empty() {
        warnings.push("there is no NodePool: nothing can be launched".to_owned());
    }
    for pool in &input.pools {
        let reference = &pool.spec.template.spec.node_class_ref;
        if !KINDS.iter().any(|&kind| refers_to(pool, kind)) {
            warnings.push(format!(
                "NodePool {} takes no part: it refers to a {}/{}; allowed: {}",
                pool.metadata.name.as_deref().unwrap_or_default(),
                reference.group,
                reference.kind,
                served()
            ));
        }
    }
    let claimed: BTreeSet<&str> =
        input.claims.iter().filter_map(tenon_crds::NodeClaim::provider_id).collect();
    let unclaimed = input.nodes.iter().filter(|node| {
        node.label(labels::NODEPOOL).is_some()
            && !node.provider_id().is_some_and(|id| claimed.contains(id))
    });
    let unclaimed = unclaimed.count();
    if unclaimed > 0 {
        warnings.push(format!(
            "{} no NodeClaim with the same providerID, and can't be disrupted: add the NodeClaims",
            if unclaimed == 1 {
                "1 Node of a NodePool has".to_owned()
            } else {
                format!("{unclaimed} Nodes of NodePools have")
            }
        ));
    }
    warnings
}

fn served() -> String {
    let names: Vec<String> =
        KINDS.iter().map(|kind| format!("{}/{}", kind.group, kind.kind)).collect();
    names.join(", ")
}

fn objects(input: Input) -> impl Iterator<Item = Object> {
    let Input { pools, claims, nodes, pods, daemon_sets, budgets, others, .. } = input;
    let pools = pools.into_iter().map(|pool| Object::NodePool(Box::new(pool)));
    let claims = claims.into_iter().map(|claim| Object::NodeClaim(Box::new(claim)));
    let nodes = nodes.into_iter().map(|node| Object::Node(Box::new(node)));
    let pods = pods.into_iter().map(|pod| Object::Pod(Box::new(pod)));
    let sets = daemon_sets.into_iter().map(|set| Object::DaemonSet(Box::new(set)));
    let budgets = budgets.into_iter().map(|budget| Object::PodDisruptionBudget(Box::new(budget)));
    pools.chain(claims).chain(nodes).chain(pods).chain(sets).chain(budgets).chain(others)
}

/// The catalog of each NodeClass that a NodePool refers to.
struct Catalogs(BTreeMap<NodeClassRef, Arc<Catalog>>);

impl Catalogs {
    fn new(input: &Input, types: &[InstanceType]) -> Self {
        let catalogs = input.pools.iter().map(|pool| {
            let class = tenon_state::snapshot::class_of(&pool.spec.template.spec.node_class_ref);
            let catalog = Catalog { node_class: class.clone(), instance_types: types.to_vec() };
            (class, Arc::new(catalog))
        });
        Self(catalogs.collect())
    }

    fn of(&self, class: &NodeClassRef) -> Option<Arc<Catalog>> {
        self.0.get(class).map(Arc::clone)
    }
}
