//! From the state to the planner's input: one immutable value, with everything derived that
//! upstream derives when it is asked.

mod buffers;
mod claims;
pub mod overlay;
mod pool;
mod repair;
mod requirement;
mod spread;
mod virtual_pods;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use tenon_crds::conditions::nodeclaim as condition;
use tenon_crds::labels;
use tenon_crds::{ConditionStatus, NodeClaim, NodePool};
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot as plan;
use tenon_planner::snapshot::{NodeClassRef, NodeId, NodePhase, ShapeId};

use crate::change::ObjectKey;
use crate::cluster::{self, Cluster, annotation, condition_of, is_true, label};
use crate::pod::{Owner, Pod};
use crate::{resources, selector, volumes, wire};
use claims::Claims;
pub use requirement::requirements;

/// Where a snapshot gets the catalogs from.
pub trait Catalogs {
    /// What can be launched with a NodeClass; `None` while that is unknown.
    fn catalog(&self, class: &NodeClassRef) -> Option<Arc<plan::Catalog>>;
}

impl<F: Fn(&NodeClassRef) -> Option<Arc<plan::Catalog>>> Catalogs for F {
    fn catalog(&self, class: &NodeClassRef) -> Option<Arc<plan::Catalog>> {
        self(class)
    }
}

impl Cluster {
    /// Everything that a decision at this moment may depend on.
    pub fn snapshot(&self, catalogs: &impl Catalogs, now: Timestamp) -> plan::Snapshot {
        self.snapshot_with(catalogs, now, |_| true)
    }

    /// The same with these NodePools only. Those that are left out are as good as deleted: nothing
    /// is launched for them, and their nodes are left alone.
    pub fn snapshot_with(
        &self,
        catalogs: &impl Catalogs,
        now: Timestamp,
        counts: impl Fn(&str) -> bool,
    ) -> plan::Snapshot {
        let pools: Vec<_> =
            self.pools.iter().filter(|(name, _)| counts(name)).map(|(_, pool)| pool).collect();
        let mut catalogs = Self::catalogs(&pools, catalogs);
        let kept = self.kept();
        let claims = Claims::of(self, &kept, &mut catalogs);
        let machines = self.machines();
        let nodes: Vec<plan::Node> =
            machines.iter().map(|machine| self.machine(machine, &catalogs, now)).collect();
        // kube-scheduler knows Nodes by name.
        let by_name: BTreeMap<&str, NodeId> = nodes
            .iter()
            .enumerate()
            .filter_map(|(index, node)| Some((node.name.as_deref()?, NodeId(id(index)))))
            .collect();
        let mut shapes =
            ShapeTable { defaults: spread::Defaults::of(self), ..ShapeTable::default() };
        let mounts = volumes::Mounts::of(self);
        let mut pod_budgets = PodBudgets::default();
        let mut pods: Vec<plan::Pod> = self
            .pods
            .iter()
            .map(|(key, pod)| {
                let mut planned =
                    self.pod_in(key, pod, &by_name, (&mut shapes, &mut pod_budgets, &mounts), now);
                if let Some(machine) = self.expected_on(key, now) {
                    let index = machines.binary_search_by_key(&machine, |machine| machine.key);
                    if let Ok(index) = index {
                        planned.placement = plan::Placement::Bound(NodeId(id(index)));
                    }
                }
                if let Some(claims) = &claims {
                    claims.add_to(key, &mut planned, &mut shapes);
                }
                planned
            })
            .collect();
        self.anticipate(&mut pods);
        buffers::add_pods(&kept, claims.as_ref(), &mut pods, &mut shapes);
        plan::Snapshot {
            version: plan::SNAPSHOT_VERSION,
            node_pools: pools.iter().map(|pool| self.pool_in(pool, &catalogs, now)).collect(),
            catalogs: catalogs.into_values().collect(),
            nodes,
            shapes: shapes.shapes,
            pods,
            daemon_sets: self.daemon_sets_in(),
            namespaces: self.namespaces.clone(),
            overlays: self.overlays_in(),
            devices: claims.map(|claims| Arc::new(claims.devices)),
            pod_budgets: pod_budgets.list,
            repair_policies: self.repair_policies.clone(),
        }
    }

    fn catalogs(
        pools: &[&Arc<NodePool>],
        source: &impl Catalogs,
    ) -> BTreeMap<NodeClassRef, Arc<plan::Catalog>> {
        let mut catalogs = BTreeMap::new();
        for pool in pools {
            let class = class_of(&pool.spec.template.spec.node_class_ref);
            if let Some(catalog) = source.catalog(&class) {
                catalogs.insert(class, catalog);
            }
        }
        catalogs
    }

    /// NodeClaims with their Nodes, and Nodes that belong to no NodeClaim; by key.
    fn machines(&self) -> Vec<Machine<'_>> {
        let mut machines = Vec::new();
        for (name, claim) in &self.claims {
            let node = self.node_of(&claim.object).filter(|node| is_counted(node));
            machines.push(Machine {
                key: name,
                claim: Some(&claim.object),
                node: node.map(AsRef::as_ref),
            });
        }
        for (name, node) in &self.nodes {
            let joined = node.provider_id().is_some_and(|id| self.claims_of(id).next().is_some());
            let unknown = self.is_managed_node(node) && node.provider_id().is_none();
            if !joined && !unknown {
                machines.push(Machine { key: name, claim: None, node: Some(node) });
            }
        }
        machines.sort_by_key(|machine| machine.key);
        // A Node may be called as somebody else's NodeClaim; the NodeClaim, which comes first, is
        // what the operator can act on.
        machines.dedup_by_key(|machine| machine.key);
        machines
    }

    fn machine(
        &self,
        machine: &Machine<'_>,
        catalogs: &BTreeMap<NodeClassRef, Arc<plan::Catalog>>,
        now: Timestamp,
    ) -> plan::Node {
        let &Machine { key, claim, node } = machine;
        let phase = phase(claim.map(AsRef::as_ref), node);
        let node_labels = || node.and_then(|node| node.metadata.labels.clone()).unwrap_or_default();
        let claim_labels =
            || claim.and_then(|claim| claim.metadata.labels.clone()).unwrap_or_default();
        let joined = phase >= NodePhase::Registered;
        let labels = if joined { node_labels() } else { claim_labels() };
        let pending = phase == NodePhase::Pending;
        let (capacity, allocatable) = match (claim, node) {
            (Some(claim), _) if pending => {
                (Resources::default(), resources::from_list(&claim.spec.resources.requests))
            }
            (Some(claim), _) => (self.capacity(claim), self.allocatable(claim)),
            (None, Some(node)) => (
                resources::from_list(&node.status.capacity),
                resources::from_list(&node.status.allocatable),
            ),
            (None, None) => unreachable!("a machine has a NodeClaim or a Node"),
        };
        let deleting = match (claim, node) {
            (Some(claim), _) => self.is_going(claim),
            (None, node) => node.is_some_and(wire::Node::is_deleting),
        };
        // The Node has the NodeClaim's annotations from registration on, and can lose them: what
        // the NodeClaim keeps says nothing about it any more.
        let protection = match claim {
            Some(claim) if !joined => annotation(claim, labels::DO_NOT_DISRUPT),
            _ => node.and_then(|node| node.annotation(labels::DO_NOT_DISRUPT)),
        };
        let class = claim.map(|claim| class_of(&claim.spec.node_class_ref));
        let catalog = class.and_then(|class| catalogs.get(&class));
        plan::Node {
            key: key.to_owned(),
            name: node.map(|node| node.name().to_owned()),
            claim: claim.map(|claim| claim_state(claim)),
            phase,
            taints: taints(claim.map(AsRef::as_ref), node, phase),
            price: catalog.and_then(|catalog| price(catalog, &labels)),
            labels,
            capacity,
            allocatable,
            deleting,
            nominated_until: self.nominated_until(key).max(self.settling_until(key, now)),
            do_not_disrupt: protection == Some("true"),
            refusal: self.refused.get(key).cloned(),
            created_at: claim
                .map(|claim| &claim.metadata)
                .or(node.map(|node| &node.metadata))
                .map_or(Timestamp::UNIX_EPOCH, wire::created_at),
            ready: node.is_some_and(wire::Node::is_ready),
            requirements: claim
                .filter(|_| pending)
                .map(|claim| requirements(&claim.spec.requirements, self.rules()))
                .unwrap_or_default(),
            volume_limits: node
                .and_then(|node| self.volume_limits.get(node.name()).cloned())
                .unwrap_or_default(),
            health: self.health(claim.map(AsRef::as_ref), node),
        }
    }

    fn pod_in<'c>(
        &'c self,
        key: &ObjectKey,
        pod: &'c Pod,
        nodes: &BTreeMap<&str, NodeId>,
        (shapes, pod_budgets, mounts): (
            &mut ShapeTable<'c>,
            &mut PodBudgets<'c>,
            &volumes::Mounts<'_>,
        ),
        now: Timestamp,
    ) -> plan::Pod {
        let mut problem = pod
            .has_match_fields
            .then(|| "node selector term with matchFields is not supported".to_owned());
        let shape = shapes.spread(pod);
        let shape = if pod.volume_claims.is_empty() {
            shapes.shared(&shape)
        } else {
            let claims = &pod.volume_claims;
            let topology = volumes::topology(self, &key.namespace, claims, self.rules());
            let (topology, reason) = match topology {
                Ok(topology) => (topology, None),
                Err(reason) => (volumes::Topology::new(), Some(reason)),
            };
            problem = problem.or(reason);
            let mounted = mounts.mounted(self, &key.namespace, claims);
            shapes.with_volumes(&shape, Volumes { topology, mounted })
        };
        let placement = match &pod.node {
            Some(node) => nodes
                .get(&**node)
                .map_or(plan::Placement::Waiting, |&node| plan::Placement::Bound(node)),
            None if pod.unschedulable => plan::Placement::Unschedulable,
            None => plan::Placement::Waiting,
        };
        let (eviction, budget) = self.eviction(key, pod, now);
        plan::Pod {
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&key.name),
            uid: Arc::clone(&pod.uid),
            shape,
            placement,
            created_at: pod.created_at,
            priority: pod.priority,
            deletion_cost: pod.eviction_cost(self.manages_deletion_costs),
            daemon: pod.is_daemon(),
            mirror: pod.is_mirror(),
            stateful: pod.owner == Owner::StatefulSet,
            owner: match pod.owner {
                Owner::ReplicaSet => plan::Owner::ReplicaSet,
                Owner::Job => plan::Owner::Job,
                _ => plan::Owner::Other,
            },
            terminating: pod.is_terminating(),
            eviction,
            pod_budget: budget.map(|(key, budget)| pod_budgets.id(key, budget)),
            problem,
            ..plan::Pod::default()
        }
    }

    /// While kube-scheduler has a backlog, pods that it has not tried yet wait for a machine, too,
    /// where they are in every respect like one that it found no place for. `pods` are those of the
    /// cluster, in their order.
    ///
    /// It takes kube-scheduler the better part of a minute to try thousands of pods, and to say of
    /// each what is known after the first one. Without a backlog it has said so of all of them
    /// before the batch is complete.
    fn anticipate(&self, pods: &mut [plan::Pod]) {
        if !self.is_backlogged() {
            return;
        }
        let refused: BTreeSet<(u32, i32)> = pods
            .iter()
            .filter(|pod| pod.placement == plan::Placement::Unschedulable)
            .map(|pod| (pod.shape.0, pod.priority))
            .collect();
        for (planned, pod) in pods.iter_mut().zip(self.pods.values()) {
            let waits = planned.placement == plan::Placement::Waiting && pod.awaits_node();
            if waits && refused.contains(&(planned.shape.0, planned.priority)) {
                planned.placement = plan::Placement::Unschedulable;
            }
        }
    }

    /// Whether the pod may be evicted now, and the PodDisruptionBudget that this counts against.
    fn eviction(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        now: Timestamp,
    ) -> (plan::Eviction, Option<(&ObjectKey, &wire::PodDisruptionBudget)>) {
        if pod.protection.is_active(now) {
            return (plan::Eviction::DoNotDisrupt, None);
        }
        if !pod.is_evictable(now) {
            return (plan::Eviction::Allowed, None);
        }
        let in_namespace = ObjectKey::new(Arc::clone(&key.namespace), Arc::default());
        let budgets = self
            .budgets
            .range(in_namespace..)
            .take_while(|(budget, _)| budget.namespace == key.namespace)
            .filter(|(_, budget)| {
                let selected = |s| selector::selects(s, &pod.shape.labels);
                budget.spec.selector.as_ref().is_some_and(selected)
            });
        let budgets: Vec<_> = budgets.collect();
        let eviction = match budgets.as_slice() {
            [] => plan::Eviction::Allowed,
            // The eviction API refuses such pods for ever.
            [(name, _), _, ..] => plan::Eviction::FullyBlockedByPdb(name.name.to_string()),
            [(name, budget)] => {
                let always =
                    budget.spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow");
                if always && pod.unready {
                    plan::Eviction::Allowed
                } else if allows_never(&budget.spec) {
                    plan::Eviction::FullyBlockedByPdb(name.name.to_string())
                } else if budget.status.disruptions_allowed <= 0 {
                    plan::Eviction::BlockedByPdb(name.name.to_string())
                } else {
                    // A pod that is not ready is missing already: its eviction takes nothing from
                    // what the budget allows.
                    let counted =
                        (!pod.unready && pod.node.is_some()).then_some((*name, &***budget));
                    return (plan::Eviction::Allowed, counted);
                }
            }
        };
        (eviction, None)
    }

    /// What new nodes will run: a DaemonSet's newest pod, because admission may have changed it,
    /// with the node affinity of the template, because the DaemonSet controller ties each pod to
    /// its node.
    fn daemon_sets_in(&self) -> Vec<plan::DaemonSet> {
        let mut newest: BTreeMap<&str, &Pod> = BTreeMap::new();
        for pod in self.pods.values() {
            if let Owner::DaemonSet(uid) = &pod.owner
                && !pod.is_terminating()
            {
                let known = newest.entry(uid).or_insert(pod);
                if known.created_at < pod.created_at {
                    *known = pod;
                }
            }
        }
        self.daemon_sets
            .iter()
            .map(|(key, set)| {
                let shape = newest.get(set.uid.as_str()).map(|pod| {
                    let required_affinity = set.shape.required_affinity.clone();
                    Arc::new(plan::PodShape { required_affinity, ..(*pod.shape).clone() })
                });
                let shape = shape.unwrap_or_else(|| Arc::clone(&set.shape));
                let shape = if self.plans_for_claims() { claims::without(shape) } else { shape };
                plan::DaemonSet {
                    namespace: key.namespace.to_string(),
                    name: key.name.to_string(),
                    shape,
                }
            })
            .collect()
    }
}

/// A NodeClaim, a Node, or both.
struct Machine<'a> {
    key: &'a str,
    claim: Option<&'a Arc<NodeClaim>>,
    node: Option<&'a wire::Node>,
}

/// PodDisruptionBudgets that allow evictions, in the order of first use.
#[derive(Default)]
struct PodBudgets<'c> {
    list: Vec<plan::PodBudget>,
    ids: BTreeMap<&'c ObjectKey, u32>,
}

impl<'c> PodBudgets<'c> {
    fn id(&mut self, key: &'c ObjectKey, budget: &wire::PodDisruptionBudget) -> u32 {
        *self.ids.entry(key).or_insert_with(|| {
            self.list.push(plan::PodBudget {
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                allowed: u32::try_from(budget.status.disruptions_allowed).unwrap_or(0),
            });
            id(self.list.len() - 1)
        })
    }
}

/// The shapes of a snapshot, in the order of first use.
#[derive(Default)]
struct ShapeTable<'c> {
    shapes: Vec<Arc<plan::PodShape>>,
    /// Interned shapes are equal exactly when they are the same value.
    ids: BTreeMap<usize, ShapeId>,
    /// What pods get that have no topology spread of their own.
    defaults: spread::Defaults<'c>,
    /// By shape without volumes, and what the volumes add.
    with_volumes: BTreeMap<(usize, Volumes), ShapeId>,
    /// By shape without claims, and what the claims ask for.
    with_claims: BTreeMap<(u32, Vec<u32>), ShapeId>,
}

/// What a pod's volumes add to its shape.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Volumes {
    topology: volumes::Topology,
    mounted: volumes::Mounted,
}

impl<'c> ShapeTable<'c> {
    /// The pod's shape with the topology spread that it gets by default.
    fn spread(&mut self, pod: &'c Pod) -> Arc<plan::PodShape> {
        if pod.is_daemon() || pod.is_mirror() {
            // The node of each is settled from the start: there is nothing to spread.
            return Arc::clone(&pod.shape);
        }
        self.defaults.shape(&pod.shape, pod.controller.as_ref())
    }

    fn shared(&mut self, shape: &Arc<plan::PodShape>) -> ShapeId {
        let address = Arc::as_ptr(shape).addr();
        *self.ids.entry(address).or_insert_with(|| {
            self.shapes.push(Arc::clone(shape));
            ShapeId(id(self.shapes.len() - 1))
        })
    }

    fn with_volumes(&mut self, shape: &Arc<plan::PodShape>, added: Volumes) -> ShapeId {
        if added.topology.is_empty() && added.mounted.is_empty() {
            return self.shared(shape);
        }
        let address = Arc::as_ptr(shape).addr();
        let entry = match self.with_volumes.entry((address, added)) {
            Entry::Occupied(known) => return *known.get(),
            Entry::Vacant(entry) => entry,
        };
        let Volumes { topology, mounted } = &entry.key().1;
        self.shapes.push(Arc::new(plan::PodShape {
            volume_topology: topology.clone(),
            volumes: mounted.own.clone(),
            shared_volumes: mounted.shared.clone(),
            ..(**shape).clone()
        }));
        *entry.insert(ShapeId(id(self.shapes.len() - 1)))
    }
}

fn id(index: usize) -> u32 {
    u32::try_from(index).expect("etcd does not hold 2^32 objects")
}

/// A Node counts as the NodeClaim's only when it carries what scheduling needs; before that the
/// NodeClaim says more.
fn is_counted(node: &wire::Node) -> bool {
    node.label(labels::INITIALIZED).is_some() || node.label(labels::INSTANCE_TYPE).is_some()
}

fn phase(claim: Option<&NodeClaim>, node: Option<&wire::Node>) -> NodePhase {
    let Some(claim) = claim else { return NodePhase::Initialized };
    if claim.provider_id().is_none() {
        return NodePhase::Pending;
    }
    let has = |key| node.is_some_and(|node| node.label(key) == Some("true"));
    match (has(labels::REGISTERED), has(labels::INITIALIZED)) {
        (true, true) => NodePhase::Initialized,
        (true, false) => NodePhase::Registered,
        (false, _) => NodePhase::Launched,
    }
}

/// The taints that scheduling has to respect.
fn taints(claim: Option<&NodeClaim>, node: Option<&wire::Node>, phase: NodePhase) -> Vec<Taint> {
    let startup = claim.map(|claim| claim.spec.startup_taints.as_slice()).unwrap_or_default();
    let passing = |taint: &Taint| {
        is_ephemeral(taint)
            || startup.iter().any(|s| s.key == taint.key && s.effect.as_str() == taint.effect)
    };
    let taints: Vec<Taint> = match (claim, node) {
        (Some(claim), _) if phase < NodePhase::Registered => {
            claim.spec.taints.iter().cloned().map(Taint::from).collect()
        }
        (_, Some(node)) => node.spec.taints.clone(),
        (_, None) => Vec::new(),
    };
    // A reboot's own taint goes with the reboot, and the machine is taken to come back.
    let rebooting = claim.is_some_and(|claim| is_true(claim, condition::REBOOTING));
    let passing =
        |taint: &Taint| passing(taint) || (rebooting && taint.key == labels::REBOOTING_TAINT);
    let starting = claim.is_some() && (phase < NodePhase::Initialized || rebooting);
    taints.into_iter().filter(|taint| !starting || !passing(taint)).collect()
}

/// Taints that a node loses by itself while it starts.
pub fn is_ephemeral(taint: &Taint) -> bool {
    match (taint.key.as_str(), taint.effect.as_str()) {
        ("node.kubernetes.io/not-ready", "NoSchedule" | "NoExecute") => true,
        ("node.kubernetes.io/unreachable", "NoSchedule") => true,
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule") => true,
        (labels::UNREGISTERED_TAINT, "NoExecute") | (labels::NOT_NOMINATED_TAINT, "NoSchedule") => {
            true
        }
        (key, _) => key.starts_with("readiness.k8s.io/"),
    }
}

fn claim_state(claim: &NodeClaim) -> plan::ClaimState {
    let created = wire::created_at(&claim.metadata);
    let expire_after = claim.spec.expire_after.duration().map(tenon_crds::Duration::as_signed);
    let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice());
    let drifted = conditions.unwrap_or_default().iter().find(|condition| {
        condition.type_ == condition::DRIFTED && condition.status == ConditionStatus::True
    });
    let since = |type_| {
        condition_of(claim, type_).filter(|_| is_true(claim, type_)).map(|(_, since)| since)
    };
    plan::ClaimState {
        name: cluster::name(&claim.metadata),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        node_pool: label(claim, labels::NODEPOOL).map(str::to_owned),
        provider_id: claim.provider_id().map(str::to_owned),
        drifted: drifted.map(|drifted| (drifted.reason.clone(), drifted.last_transition_time.0)),
        consolidatable: since(condition::CONSOLIDATABLE),
        expires_at: expire_after.and_then(|after| created.checked_add(after).ok()),
        expire_after,
        has_termination_grace_period: claim.spec.termination_grace_period.is_some(),
        termination_grace_period: claim
            .spec
            .termination_grace_period
            .as_ref()
            .map(tenon_crds::Duration::as_signed),
    }
}

/// The price of the offering that a machine with these labels runs on, whether or not the offering
/// is still available.
fn price(catalog: &plan::Catalog, labels: &BTreeMap<String, String>) -> Option<MicroUsd> {
    let name = labels.get(labels::INSTANCE_TYPE)?;
    let zone = labels.get(labels::ZONE)?;
    let capacity_type = plan::CapacityType::parse(labels.get(labels::CAPACITY_TYPE)?)?;
    let types = &catalog.instance_types;
    let index = types.binary_search_by(|it| it.name.as_str().cmp(name)).ok()?;
    let offerings = types[index].offerings.iter();
    let same = |o: &&plan::Offering| {
        o.zone == *zone
            && o.capacity_type == capacity_type
            && o.reservation().is_none_or(|id| labels.values().any(|value| value == id))
    };
    offerings.filter(same).filter_map(plan::Offering::known_price).min()
}

/// A reference as the planner names it.
pub fn class_of(reference: &tenon_crds::NodeClassReference) -> NodeClassRef {
    let tenon_crds::NodeClassReference { group, kind, name } = reference.clone();
    NodeClassRef { group, kind, name }
}

/// A PodDisruptionBudget that allows no disruption, whatever the state of its pods.
fn allows_never(spec: &wire::PodDisruptionBudgetSpec) -> bool {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::{Int, String};
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(Int(0)), _) => true,
        (Some(String(text)), _) if text == "0%" => true,
        (_, Some(String(text))) if text == "100%" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
