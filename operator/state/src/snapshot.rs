//! From the state to the planner's input: one immutable value, with everything derived that
//! upstream derives when it is asked.

mod buffers;
mod claims;
mod machines;
pub mod overlay;
mod pool;
mod repair;
mod requirement;
mod shape_table;
mod spread;
mod virtual_pods;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_crds::{NodePool, labels, selector};
use tenon_planner::snapshot as plan;
use tenon_planner::snapshot::{NodeClassRef, NodeId};

use crate::change::ObjectKey;
use crate::cluster::{Cluster, annotation};
use crate::pod::{Owner, Pod};
use crate::{volumes, wire};
use claims::Claims;
pub use machines::is_ephemeral;
pub use requirement::requirements;
use shape_table::{ShapeTable, Volumes};

/// Lets pods wait as they do in the cluster that can't get to the machine that they are expected on
/// any more. `expected` are pods, as indices, and how they wait.
fn release(snapshot: &mut plan::Snapshot, expected: &[(usize, plan::Placement)]) {
    let pods: Vec<usize> = expected.iter().map(|&(pod, _)| pod).collect();
    for pod in tenon_planner::out_of_reach(snapshot, &pods) {
        if let Ok(at) = expected.binary_search_by_key(&pod, |&(pod, _)| pod) {
            snapshot.pods[pod].placement = expected[at].1;
        }
    }
}

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
        let mut shapes = ShapeTable::new(spread::Defaults::of(self));
        let mounts = volumes::Mounts::of(self);
        let mut pod_budgets = PodBudgets::default();
        // Pods that are expected on a machine, and how they wait for it.
        let mut expected = Vec::new();
        let mut pods: Vec<plan::Pod> = self
            .pods
            .iter()
            .enumerate()
            .map(|(number, (key, pod))| {
                let mut planned =
                    self.pod_in(key, pod, &by_name, (&mut shapes, &mut pod_budgets, &mounts), now);
                if let Some(machine) = self.expected_on(key, now) {
                    let index = machines.binary_search_by_key(&machine, |machine| machine.key);
                    if let Ok(index) = index {
                        expected.push((number, planned.placement));
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
        let mut snapshot = plan::Snapshot {
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
        };
        release(&mut snapshot, &expected);
        snapshot
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
                Err(error) => (volumes::Topology::new(), Some(error.to_string())),
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
        if pod.protection.is_active(now) && !self.ends_soon(pod, now) {
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
        let is_held = matches!(eviction, plan::Eviction::FullyBlockedByPdb(_));
        if is_held && self.ends_soon(pod, now) {
            return (plan::Eviction::Allowed, None);
        }
        (eviction, None)
    }

    /// Whether the pod will be deleted in the next minutes whatever protects it, because the drain
    /// of its node has a deadline: it needs another place now.
    fn ends_soon(&self, pod: &Pod, now: Timestamp) -> bool {
        /// Longer than the notice of a spot interruption, which is two minutes.
        const SOON: SignedDuration = SignedDuration::from_mins(3);
        let node = pod.node.as_deref().and_then(|name| self.node(name));
        let claim = node.and_then(|node| self.claim_of(node));
        let deadline = claim
            .filter(|claim| claim.metadata.deletion_timestamp.is_some())
            .and_then(|claim| annotation(claim, labels::TERMINATION_TIMESTAMP)?.parse().ok());
        deadline.is_some_and(|deadline: Timestamp| now.duration_until(deadline) <= SOON)
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

/// The id of what is at this place of a list.
fn id(index: usize) -> u32 {
    u32::try_from(index).expect("etcd does not hold 2^32 objects")
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
