//! From objects to the planner's Snapshot, by the same way as in the operator.

use std::collections::BTreeSet;

use tenon_crds::labels;
use tenon_planner::Snapshot;
use tenon_planner::snapshot::NodeClassRef;
use tenon_state::change::{Change, Kind, Object};
use tenon_state::cluster::Cluster;
use tenon_state::node_class::{EC2, KWOK, NodeClassKind};

use super::buffers;
use super::catalogs::{Catalogs, Given, refers_to};
use super::complete::complete;
use super::error::SimulateError;
use super::input::Input;
use super::observed::Observed;
use super::options::Options;
use super::words::counted;

/// The kinds of NodeClasses that Tenon serves.
const KINDS: &[NodeClassKind] = &[EC2, KWOK];

/// What is planned on.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The planner's input.
    pub(super) snapshot: Snapshot,
    /// What only explanations use.
    pub(super) observed: Observed,
    /// What was taken for want of something better.
    pub(super) notes: Vec<String>,
    /// What a person should know about the input.
    pub(super) warnings: Vec<String>,
}

/// Builds the Snapshot of these objects.
pub(super) fn prepare(mut input: Input, options: &Options) -> Result<Prepared, SimulateError> {
    let Options { catalog, feature_gates, scheduler_config, ignore_dra_requests, .. } = options;
    let now = options.now;
    let given = Given::read(catalog)?;
    let rules = given.rules(&input.pools);
    let is_spread = !scheduler_config.default_constraints.is_empty();
    complete(&mut input, &rules, now, is_spread);
    let observed = Observed::new(&input, now);
    let mut warnings = warnings(&input);
    let catalogs = Catalogs::new(&input, &given, catalog);
    warnings.extend(catalogs.warnings.iter().cloned());
    let mut cluster = Cluster::new(KINDS, rules);
    if !ignore_dra_requests {
        cluster.plan_for_claims();
    }
    if feature_gates.is_on("PodDeletionCostManagement") {
        cluster.manage_deletion_costs();
    }
    // Those of files always count.
    cluster.expect(Kind::CapacityBuffer);
    cluster.spread_by(scheduler_config);
    for object in objects(input) {
        cluster.apply(Change::Applied(object));
    }
    warnings.extend(buffers::warnings(&cluster));
    let snapshot = cluster.snapshot(&|class: &NodeClassRef| catalogs.of(class), now);
    Ok(Prepared { snapshot, observed, notes: catalogs.notes, warnings })
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
                "NodePool {} is excluded: it references a {}/{}; allowed: {}",
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
            match unclaimed {
                1 => "1 Node of a NodePool has".to_owned(),
                n => format!("{} of NodePools have", counted(n, "Node")),
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
