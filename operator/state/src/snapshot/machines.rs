//! The machines of a snapshot: NodeClaims, Nodes, and what both say of one machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use tenon_crds::conditions::nodeclaim as condition;
use tenon_crds::labels;
use tenon_crds::{ConditionStatus, NodeClaim};
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot as plan;
use tenon_planner::snapshot::{NodeClassRef, NodePhase};

use super::{class_of, requirements};
use crate::cluster::{self, Cluster, annotation, condition_of, is_true, label};
use crate::{resources, wire};

/// A NodeClaim, a Node, or both.
pub(super) struct Machine<'a> {
    pub(super) key: &'a str,
    pub(super) claim: Option<&'a Arc<NodeClaim>>,
    pub(super) node: Option<&'a wire::Node>,
}

impl Cluster {
    /// NodeClaims with their Nodes, and Nodes that belong to no NodeClaim; by key.
    pub(super) fn machines(&self) -> Vec<Machine<'_>> {
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

    pub(super) fn machine(
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
