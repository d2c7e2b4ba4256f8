//! Whether nodes may go because their pods can run for less: what the documentation of Karpenter's
//! consolidation says, as far as a plan tells.
//!
//! Which time it is and which feature gates are on a plan does not say, so of these nothing is
//! asked.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::places::offers;
use crate::plan::{Command, Launch, Method, Plan, PodRef};
use crate::resources::MicroUsd;
use crate::snapshot::{
    CapacityType, ConsolidationPolicy, Node, NodePool, Placement, Pod, Snapshot,
};

/// How many types a single spot node is replaced with at least.
const SPOT_TO_SPOT_TYPES: usize = 15;

/// What a move has to save of its NodePool's price for what it disrupts of its pods (k = 2), with
/// what rounding may lose.
const BALANCED: f64 = 0.5 - 1e-6;

pub(super) fn check_consolidation(
    snapshot: &Snapshot,
    plan: &Plan,
    found: &mut BTreeSet<Violation>,
) {
    for command in plan.commands.iter().filter(|command| command.method == Method::Emptiness) {
        for node in command.candidates.iter().filter_map(|it| node_of(snapshot, &it.node)) {
            if let Some(why) = is_not_at_rest(snapshot, node) {
                found.insert(must_stay(node, why));
            }
        }
    }
    let methods = [Method::SingleNodeConsolidation, Method::MultiNodeConsolidation];
    if !plan.commands.iter().any(|command| methods.contains(&command.method)) {
        return;
    }
    let mut fleet = Fleet::new(snapshot);
    for command in &plan.commands {
        if !methods.contains(&command.method) {
            fleet.carry_out(command);
            continue;
        }
        let indices: BTreeSet<usize> =
            command.candidates.iter().filter_map(|it| fleet.node(&it.node)).collect();
        let nodes: Vec<&Node> = indices.iter().map(|&index| &snapshot.nodes[index]).collect();
        for node in &nodes {
            let keeps = pool_of(snapshot, node).and_then(keeps_nodes_with_pods);
            if let Some(why) = keeps.or_else(|| is_not_at_rest(snapshot, node)) {
                found.insert(must_stay(node, why));
            }
        }
        let Some(first) = nodes.first() else { continue };
        let price: i64 = nodes.iter().map(|node| node.price.unwrap_or_default().0).sum();
        match &command.replacements[..] {
            [] => {}
            [launch] => {
                if !is_cheaper(snapshot, launch, price) || !is_other(snapshot, launch, &nodes) {
                    found.insert(Violation::SavesNothing(first.key.clone()));
                }
                if let Some(why) = spot_to_spot(launch, &nodes) {
                    found.insert(must_stay(first, why));
                }
            }
            _ => drop(found.insert(must_stay(first, "several machines would replace it"))),
        }
        let after: i64 = command.replacements.iter().map(|launch| launch.price.0).sum();
        if let Some(node) = fleet.disrupts_too_much(&indices, price - after) {
            found.insert(must_stay(node, "it saves too little for what it disrupts (Balanced)"));
        }
        if let Some(node) = fleet.has_just_settled(command) {
            found.insert(must_stay(first, &format!("the pods of {} have just settled", node.key)));
        }
        fleet.carry_out(command);
    }
}

fn must_stay(node: &Node, reason: &str) -> Violation {
    Violation::MustStay { node: node.key.clone(), reason: reason.to_owned() }
}

fn pool_of<'s>(snapshot: &'s Snapshot, node: &Node) -> Option<&'s NodePool> {
    let name = node.claim.as_ref()?.node_pool.as_ref()?;
    snapshot.node_pools.iter().find(|pool| pool.name == *name)
}

/// Why no node of a pool goes as long as it has pods.
fn keeps_nodes_with_pods(pool: &NodePool) -> Option<&'static str> {
    let disruption = &pool.disruption;
    if pool.replicas.is_some() {
        Some("its NodePool is static")
    } else if disruption.consolidate_after.is_none() {
        Some("its NodePool says consolidateAfter: Never")
    } else {
        let empty = disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty;
        empty.then_some("its NodePool says WhenEmpty")
    }
}

/// Why a node does not go for having few pods or none, whatever its pool's policy: its pods have
/// changed within `consolidateAfter`, or nothing ever passes that.
fn is_not_at_rest(snapshot: &Snapshot, node: &Node) -> Option<&'static str> {
    let never = pool_of(snapshot, node).is_some_and(|it| it.disruption.consolidate_after.is_none());
    let changed = node.claim.as_ref().is_some_and(|claim| claim.consolidatable.is_none());
    (never || changed).then_some("it is not consolidatable")
}

fn node_of<'s>(snapshot: &'s Snapshot, key: &str) -> Option<&'s Node> {
    snapshot.nodes.iter().find(|node| node.key == key)
}

/// What a launch comes to cost at worst with a type. Nothing when it is not on sale.
fn worst_price(snapshot: &Snapshot, launch: &Launch, name: &str) -> Option<i64> {
    let pool = snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool)?;
    let kinds = &snapshot.catalogs[pool.catalog?.0 as usize].instance_types;
    let kind = kinds.iter().find(|kind| kind.name == name)?;
    offers(launch, kind).map(|offer| offer.price.0).max()
}

/// Whether a replacement costs less than the nodes, whatever it becomes.
fn is_cheaper(snapshot: &Snapshot, launch: &Launch, price: i64) -> bool {
    let mut worst = launch.instance_types.iter().map(|kind| worst_price(snapshot, launch, kind));
    worst.all(|worst| worst.is_none_or(|worst| worst < price))
}

/// Whether several nodes become something else than one of them, which could stay.
fn is_other(snapshot: &Snapshot, launch: &Launch, nodes: &[&Node]) -> bool {
    let own = nodes.iter().filter(|node| {
        let kind = node.labels.get("node.kubernetes.io/instance-type");
        kind.is_some_and(|kind| launch.instance_types.contains(kind))
    });
    let least = own.filter_map(|node| node.price).map(|price| price.0).min();
    match least {
        Some(least) if nodes.len() > 1 => is_cheaper(snapshot, launch, least),
        _ => true,
    }
}

/// What is wrong when spot nodes are replaced by a machine that may be a spot machine.
fn spot_to_spot(launch: &Launch, nodes: &[&Node]) -> Option<&'static str> {
    let is_spot = |node: &&Node| {
        node.labels.get("karpenter.sh/capacity-type").map(String::as_str) == Some("spot")
    };
    if !nodes.iter().all(is_spot) || !launch.capacity_types.contains(&CapacityType::Spot) {
        return None;
    }
    if launch.capacity_types != [CapacityType::Spot] {
        return Some("a spot node may be replaced by a more expensive on-demand node");
    }
    let few = nodes.len() == 1 && launch.instance_types.len() < SPOT_TO_SPOT_TYPES;
    few.then_some("a spot node is replaced with fewer than 15 types to choose from")
}

/// What is asked of nodes again and again.
struct Fleet<'s> {
    snapshot: &'s Snapshot,
    by_key: BTreeMap<&'s str, usize>,
    /// By node: what it costs to empty it of the pods that certainly have to move, and of all but
    /// those of DaemonSets.
    disruption: Vec<(f64, f64)>,
    /// By NodePool with the policy Balanced: the price of its nodes, and what it costs to empty all
    /// of them, once the commands so far have been carried out.
    balanced: BTreeMap<&'s str, (f64, f64)>,
    /// What it costs to evict a pod, by uid.
    pods: BTreeMap<&'s str, f64>,
}

impl<'s> Fleet<'s> {
    fn new(snapshot: &'s Snapshot) -> Self {
        let by_key = snapshot.nodes.iter().enumerate();
        let by_key = by_key.map(|(index, node)| (node.key.as_str(), index)).collect();
        let mut disruption = vec![(1.0, 1.0); snapshot.nodes.len()];
        for pod in snapshot.pods.iter().filter(|pod| !pod.daemon) {
            let Placement::Bound(node) = pod.placement else { continue };
            let cost = eviction_cost(pod);
            let (certain, all) = &mut disruption[node.0 as usize];
            *certain += if pod.mirror || pod.terminating { 0.0 } else { cost };
            *all += cost;
        }
        let mut balanced: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (node, (_, disruption)) in snapshot.nodes.iter().zip(&disruption) {
            if let Some(pool) = balanced_pool(snapshot, node) {
                let total = balanced.entry(pool).or_default();
                total.0 += price(node);
                total.1 += disruption;
            }
        }
        let pods = snapshot.pods.iter().filter(|_| !balanced.is_empty());
        let pods = pods.map(|pod| (&*pod.uid, eviction_cost(pod))).collect();
        Self { snapshot, by_key, disruption, balanced, pods }
    }

    /// Notes in what way a command changes NodePools with the policy Balanced.
    fn carry_out(&mut self, command: &Command) {
        if self.balanced.is_empty() || command.is_reboot() {
            return;
        }
        let snapshot = self.snapshot;
        let mut changes: Vec<(&str, f64, f64)> = Vec::new();
        for index in command.candidates.iter().filter_map(|it| self.node(&it.node)) {
            let pool = balanced_pool(snapshot, &snapshot.nodes[index]);
            let (price, cost) = (price(&snapshot.nodes[index]), self.disruption[index].1);
            changes.extend(pool.map(|pool| (pool, -price, -cost)));
        }
        let cost = |pod: &PodRef| self.pods.get(&*pod.uid).copied().unwrap_or_default();
        for nomination in &command.nominations {
            let node = self.node(&nomination.node).map(|index| &snapshot.nodes[index]);
            let pool = node.and_then(|node| balanced_pool(snapshot, node));
            changes.extend(pool.map(|pool| (pool, 0.0, cost(&nomination.pod))));
        }
        let later = command.terminate_first.as_ref().and_then(|first| first.launch.as_ref());
        for launch in command.replacements.iter().chain(later) {
            let moved: f64 = launch.pods.iter().map(cost).sum();
            changes.push((launch.node_pool.as_str(), launch.price.as_usd(), 1.0 + moved));
        }
        for (pool, price, cost) in changes {
            if let Some(total) = self.balanced.get_mut(pool) {
                *total = (total.0 + price, total.1 + cost);
            }
        }
    }

    fn node(&self, key: &str) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// A node of a pool with the policy Balanced that does not approve of a move. All pods that the
    /// pool's nodes have count as disruption of the whole, whoever may evict them.
    fn disrupts_too_much(&self, nodes: &BTreeSet<usize>, savings: i64) -> Option<&'s Node> {
        let all: f64 = nodes.iter().map(|&node| price(&self.snapshot.nodes[node])).sum();
        let mut pools: BTreeMap<&str, (f64, f64, &'s Node)> = BTreeMap::new();
        for &index in nodes {
            let node = &self.snapshot.nodes[index];
            if let Some(pool) = balanced_pool(self.snapshot, node) {
                let of_pool = pools.entry(pool).or_insert((0.0, 0.0, node));
                of_pool.0 += price(node);
                of_pool.1 += self.disruption[index].0;
            }
        }
        let savings = MicroUsd(savings).as_usd();
        pools.into_iter().find_map(|(name, (own, disrupted, node))| {
            let (total, total_disruption) = self.balanced[name];
            let weighable = all > 0.0 && total > 0.0 && savings > 0.0;
            let saved = savings * own / all / total;
            let score = saved / (disrupted / total_disruption);
            (!weighable || score < BALANCED).then_some(node)
        })
    }

    /// A node that gets pods though its own have not been at rest for as long as its pool's
    /// `consolidateAfter`.
    fn has_just_settled(&self, command: &Command) -> Option<&'s Node> {
        let receivers = command.nominations.iter().filter_map(|it| self.node(&it.node));
        let mut nodes = receivers.map(|index| &self.snapshot.nodes[index]);
        nodes.find(|node| {
            let pool = pool_of(self.snapshot, node);
            let after = pool.and_then(|pool| pool.disruption.consolidate_after);
            let settling = node.claim.as_ref().is_some_and(|claim| claim.consolidatable.is_none());
            settling && after.is_some_and(|after| after.is_positive())
        })
    }
}

fn price(node: &Node) -> f64 {
    node.price.unwrap_or_default().as_usd()
}

/// The name of a node's pool, if it has the policy Balanced.
fn balanced_pool<'s>(snapshot: &'s Snapshot, node: &Node) -> Option<&'s str> {
    let pool = pool_of(snapshot, node)?;
    let balanced = pool.disruption.consolidation_policy == ConsolidationPolicy::Balanced;
    balanced.then_some(pool.name.as_str())
}

/// What it costs to evict a pod: 1, more or less by its deletion cost and priority, at most 10.
fn eviction_cost(pod: &Pod) -> f64 {
    let deletion = f64::from(pod.deletion_cost) / f64::from(1 << 27);
    let priority = f64::from(pod.priority) / f64::from(1 << 25);
    (1.0 + deletion + priority).clamp(0.0, 10.0)
}
