//! What the operator would do with changed NodePools, compared with what it would do without the
//! change: two simulations of the same objects. Only reads.
//!
//! What the operator's drift controller would find is part of the answer: NodeClaims whose NodePool
//! has another hash or requirements that they no longer meet are drifted in the second simulation.

mod text;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use tenon_crds::conditions::{Condition, READY, nodeclaim};
use tenon_crds::labels::{self, LabelRules};
use tenon_crds::{ConditionStatus, NodeClaim, NodePool, hash, validation};
use tenon_planner::Snapshot;
use tenon_planner::snapshot::CapacityType;
use tenon_state::change::{Change, Object};
use tenon_state::cluster::Cluster;

use super::catalogs::Given;
use super::error::SimulateError;
use super::expand::name;
use super::input::{Input, Read};
use super::options::{Loops, Options};
use super::outcome::{Launch, Outcome, Totals};
use super::parts::PodName;
use super::problem::{Problem, TYPED};
use super::{Gathered, Simulation, SpotPrices, gather, read};

/// The version of the format.
const SCHEMA: &str = "tenon.sh/what-if/v1alpha1";

/// How many pods without a place are named.
const NAMED: usize = 50;

/// How many removals are listed.
const REMOVALS: usize = 200;

/// What would happen without a change and with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// With the NodePools as they are.
    pub before: Side,
    /// With those that were given.
    pub after: Side,
    /// NodeClaims that drift because of the change, by NodePool.
    pub drift: Vec<Drift>,
    /// What a person should know about the changed input.
    pub warnings: Vec<String>,
    /// What was assumed about instance types and prices.
    pub notes: Vec<String>,
}

/// One of the two simulations.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    /// Figures, as in the report of `tenon simulate`.
    pub totals: Totals,
    /// Number of machines that would be launched, without replacements.
    pub launched: usize,
    /// Number of nodes that would be removed.
    pub removed: usize,
    /// Number of pods that stay pending.
    pub unschedulable: usize,
    /// Launches of the same type of one NodePool together, the most first.
    pub launches: Vec<Launches>,
    /// Nodes that would be removed; only the first of very many.
    pub disruptions: Vec<Removal>,
    /// Pods that stay pending with the change only; the first of very many.
    pub newly_unschedulable: Vec<PodName>,
}

/// Launches of the same type of one NodePool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Launches {
    /// The NodePool.
    pub node_pool: String,
    /// The cheapest type that holds the pods.
    pub instance_type: Option<String>,
    /// How it may be bought.
    pub capacity_types: Vec<CapacityType>,
    /// USD per hour of one.
    pub price_per_hour: f64,
    /// How many.
    pub nodes: usize,
    /// For how many pods together.
    pub pods: usize,
}

/// Nodes that would be removed together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// The operator's name for the reason.
    pub reason: String,
    /// NodeClaims, or Nodes without one.
    pub nodes: Vec<String>,
    /// The cheapest types of what replaces them.
    pub replacements: Vec<String>,
    /// USD per hour.
    pub savings_per_hour: f64,
}

/// NodeClaims of a NodePool that drift.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// The NodePool.
    pub node_pool: String,
    /// How many of its NodeClaims.
    pub node_claims: usize,
    /// The operator's name for the reason.
    pub reason: &'static str,
}

/// Simulates twice: with the objects as they are, and with the NodePools of `manifests` in place of
/// those with the same name; both at the same prices of spot instances, if they are given.
///
/// # Errors
/// When the manifests are not NodePools that the API server and the operator would accept, and
/// whenever [`super::read()`] fails; a saved snapshot has no NodePools to change.
pub async fn what_if(
    options: Options,
    client: Option<&Client>,
    manifests: &str,
    spot: Option<&SpotPrices>,
) -> Result<WhatIf, SimulateError> {
    let Gathered::Objects(input) = gather(&options, client, &|_| ()).await? else {
        return Err(SimulateError::SnapshotUnchangeable);
    };
    let rules = Given::read(&options.catalog)?.rules(&input.pools);
    let pools = node_pools(manifests, &rules)?;
    let mut changed = (*input).clone();
    let Input { pools: known, claims, .. } = &mut changed;
    let drift =
        pools.into_iter().flat_map(|pool| replace((known, claims), pool, &rules, options.now));
    let drift = drift.collect();
    let simulation = |input, options| {
        let mut simulation = Simulation::new(input, options)?;
        if let Some(prices) = spot {
            simulation.price_spot(prices);
        }
        Ok::<_, SimulateError>(simulation)
    };
    let mut before = simulation(*input, options.clone())?;
    let mut after = simulation(changed, options)?;
    let found = WhatIf::new(&before.outcome(Loops::Both), after.outcome(Loops::Both), drift);
    Ok(WhatIf { notes: after.notes().to_vec(), ..found })
}

/// The same for a cluster that is in memory; `snapshot` makes the planner's input of it, and of a
/// copy with the other NodePools.
///
/// # Errors
/// When the manifests are not NodePools that the API server and the operator would accept.
pub fn what_if_of(
    cluster: &Cluster,
    snapshot: &dyn Fn(&Cluster) -> Snapshot,
    options: &Options,
    manifests: &str,
) -> Result<WhatIf, SimulateError> {
    let rules = cluster.rules();
    let pools = node_pools(manifests, rules)?;
    let given: BTreeSet<String> = pools.iter().map(|pool| name(&pool.metadata)).collect();
    let mut known: Vec<NodePool> = cluster.pools().map(|pool| (**pool).clone()).collect();
    let mut claims: Vec<NodeClaim> = cluster.claims().map(|claim| (**claim).clone()).collect();
    let now = options.now;
    let replaced =
        pools.into_iter().flat_map(|pool| replace((&mut known, &mut claims), pool, rules, now));
    let drift: Vec<Drift> = replaced.collect();
    let mut changed = cluster.clone();
    // Without a version they are newer than what is known.
    for mut pool in known.into_iter().filter(|pool| given.contains(&name(&pool.metadata))) {
        pool.metadata.resource_version = None;
        changed.apply(Change::Applied(Object::NodePool(Box::new(pool))));
    }
    let pools_with_drift: BTreeSet<&str> = drift.iter().map(|it| it.node_pool.as_str()).collect();
    for mut claim in claims {
        let of = claim.metadata.labels.as_ref().and_then(|labels| labels.get(labels::NODEPOOL));
        if of.is_some_and(|pool| pools_with_drift.contains(pool.as_str())) {
            claim.metadata.resource_version = None;
            changed.apply(Change::Applied(Object::NodeClaim(Box::new(claim))));
        }
    }
    let outcome = |cluster: &Cluster| {
        Simulation::of(cluster, snapshot(cluster), options.clone()).outcome(Loops::Both)
    };
    Ok(WhatIf::new(&outcome(cluster), outcome(&changed), drift))
}

/// A NodePool without what the API server and the operator write, in YAML.
pub(super) fn manifest(pool: &NodePool) -> Option<String> {
    let mut value = serde_json::to_value(pool).ok()?;
    let object = value.as_object_mut()?;
    object.remove("status");
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels" | "annotations"));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(|it| it.as_object_mut()) {
        annotations.retain(|key, _| {
            let written = [labels::NODEPOOL_HASH, labels::NODEPOOL_HASH_VERSION];
            !written.contains(&key.as_str())
                && key != "kubectl.kubernetes.io/last-applied-configuration"
        });
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    serde_saphyr::to_string(&value).ok()
}

/// The NodePools of a text, which has nothing else in it, as the API server would accept them.
fn node_pools(manifests: &str, rules: &LabelRules) -> Result<Vec<NodePool>, SimulateError> {
    let mut pools = Vec::new();
    let mut problems = Vec::new();
    let problem = |object: String, path: String, message: String| Problem {
        file: TYPED.into(),
        document: (1, None),
        line: 1,
        object,
        path,
        message,
    };
    for object in read::manifests(manifests)? {
        let Read::Object(Object::NodePool(pool)) = object else {
            let message = "this is no NodePool; allowed: NodePools of karpenter.sh/v1";
            problems.push(problem(String::new(), String::new(), message.to_owned()));
            continue;
        };
        let named = format!("NodePool {}", name(&pool.metadata));
        if pool.metadata.name.is_none() {
            let message = "missing; allowed: the name of a NodePool, or a new one";
            problems.push(problem(named.clone(), "metadata.name".to_owned(), message.to_owned()));
        }
        let wrong = validation::node_pool(&pool.spec, rules);
        problems.extend(
            wrong.into_iter().map(|it| problem(named.clone(), it.path, it.problem.to_string())),
        );
        pools.push(*pool);
    }
    if pools.is_empty() && problems.is_empty() {
        let message = "there is no NodePool in it; allowed: NodePools of karpenter.sh/v1";
        problems.push(problem(String::new(), String::new(), message.to_owned()));
    }
    if problems.is_empty() { Ok(pools) } else { Err(SimulateError::Manifests { problems }) }
}

/// Puts a NodePool in the place of the one with its name, and marks NodeClaims that drift.
fn replace(
    (pools, claims): (&mut Vec<NodePool>, &mut [NodeClaim]),
    mut pool: NodePool,
    rules: &LabelRules,
    now: Timestamp,
) -> Vec<Drift> {
    // The last one of a name counts.
    let found = pools.iter().rposition(|it| it.metadata.name == pool.metadata.name);
    let Some(at) = found else {
        pool.status = None;
        pools.push(pool);
        return Vec::new();
    };
    let before = &pools[at];
    pool.metadata.uid.clone_from(&before.metadata.uid);
    pool.metadata.creation_timestamp.clone_from(&before.metadata.creation_timestamp);
    pool.status.clone_from(&before.status);
    // It was validated. Another NodeClass is not known to be unready; what else keeps the NodePool
    // from being ready, the change does not mend.
    let same_class =
        before.spec.template.spec.node_class_ref == pool.spec.template.spec.node_class_ref;
    if let Some(status) = &mut pool.status
        && (!same_class || is_invalid(before, rules))
    {
        status.conditions.retain(|condition| condition.type_ != READY);
    }
    let hash_differs = hash::node_pool(&before.spec) != hash::node_pool(&pool.spec);
    let mut drifted = BTreeMap::new();
    for claim in claims {
        let meets = |pool: &NodePool| meets(claim, pool, rules);
        // One that met them before: what did not is no consequence of the change.
        let reason = match hash_differs {
            _ if !is_launched_by(claim, &pool) => continue,
            true => "NodePoolDrifted",
            false if meets(before) && !meets(&pool) => "RequirementsDrifted",
            false => continue,
        };
        if mark(claim, reason, now) {
            *drifted.entry(reason).or_insert(0) += 1;
        }
    }
    let node_pool = name(&pool.metadata);
    pools[at] = pool;
    let drifted = drifted.into_iter();
    drifted
        .map(|(reason, node_claims)| Drift { node_pool: node_pool.clone(), node_claims, reason })
        .collect()
}

fn is_invalid(pool: &NodePool, rules: &LabelRules) -> bool {
    !validation::node_pool(&pool.spec, rules).is_empty()
}

/// Whether a NodeClaim is of this NodePool, and there is a machine that could differ.
fn is_launched_by(claim: &NodeClaim, pool: &NodePool) -> bool {
    let of = claim.metadata.labels.as_ref().and_then(|labels| labels.get(labels::NODEPOOL));
    of.is_some() && of == pool.metadata.name.as_ref() && claim.provider_id().is_some()
}

/// Whether the labels of a NodeClaim meet the requirements of a NodePool, as the operator's drift
/// controller asks.
fn meets(claim: &NodeClaim, pool: &NodePool, rules: &LabelRules) -> bool {
    let empty = BTreeMap::new();
    let labels = claim.metadata.labels.as_ref().unwrap_or(&empty);
    pool.spec.template.spec.requirements.iter().all(|requirement| {
        let value = labels.get(rules.normalize(&requirement.key)).map(String::as_str);
        requirement.operator.admits(&requirement.values, value)
    })
}

/// Marks a NodeClaim as drifted; false if it was already.
fn mark(claim: &mut NodeClaim, reason: &str, now: Timestamp) -> bool {
    let conditions = &mut claim.status.get_or_insert_default().conditions;
    let is_drifted =
        |it: &Condition| it.type_ == nodeclaim::DRIFTED && it.status == ConditionStatus::True;
    if conditions.iter().any(is_drifted) {
        return false;
    }
    conditions.retain(|condition| condition.type_ != nodeclaim::DRIFTED);
    conditions.push(Condition {
        type_: nodeclaim::DRIFTED.to_owned(),
        status: ConditionStatus::True,
        reason: reason.to_owned(),
        message: String::new(),
        last_transition_time: tenon_crds::Timestamp(now),
        observed_generation: None,
    });
    true
}

fn pod_name(namespace: &str, name: &str) -> PodName {
    PodName { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn waiting(outcome: &Outcome) -> BTreeSet<PodName> {
    outcome.unschedulable.iter().map(|it| pod_name(&it.namespace, &it.name)).collect()
}

impl WhatIf {
    fn new(before: &Outcome, after: Outcome, drift: Vec<Drift>) -> Self {
        let waiting = waiting(before);
        let new = after.unschedulable.iter().map(|it| pod_name(&it.namespace, &it.name));
        let new = new.filter(|pod| !waiting.contains(pod)).take(NAMED).collect();
        Self {
            schema: SCHEMA,
            before: Side::new(before, Vec::new()),
            after: Side::new(&after, new),
            drift,
            warnings: after.warnings,
            notes: Vec::new(),
        }
    }
}

impl Side {
    fn new(outcome: &Outcome, newly_unschedulable: Vec<PodName>) -> Self {
        let removals = outcome.disruptions.iter().take(REMOVALS).map(|it| Removal {
            reason: format!("{:?}", it.reason),
            nodes: it.nodes.clone(),
            replacements: it.replacements.iter().map(cheapest).collect(),
            savings_per_hour: it.savings_per_hour,
        });
        Self {
            totals: outcome.totals.clone(),
            launched: outcome.launches.len(),
            removed: outcome.disruptions.iter().map(|it| it.nodes.len()).sum(),
            unschedulable: outcome.unschedulable.len(),
            launches: launches(&outcome.launches),
            disruptions: removals.collect(),
            newly_unschedulable,
        }
    }
}

fn cheapest(launch: &Launch) -> String {
    launch.instance_types.first().map_or_else(|| "a node".to_owned(), |kind| kind.name.clone())
}

fn launches(all: &[Launch]) -> Vec<Launches> {
    let mut alike: BTreeMap<(&str, Option<&str>), Launches> = BTreeMap::new();
    for launch in all {
        let kind = launch.instance_types.first().map(|kind| kind.name.as_str());
        let entry = alike.entry((&launch.node_pool, kind)).or_insert_with(|| Launches {
            node_pool: launch.node_pool.clone(),
            instance_type: kind.map(str::to_owned),
            capacity_types: launch.capacity_types.clone(),
            price_per_hour: launch.price_per_hour,
            nodes: 0,
            pods: 0,
        });
        entry.nodes += 1;
        entry.pods += launch.pods.len();
    }
    let mut launches: Vec<Launches> = alike.into_values().collect();
    launches.sort_by_key(|it| std::cmp::Reverse(it.nodes));
    launches
}
