//! A pod as the state keeps it: its shape, shared with all pods like it, and what differs from pod
//! to pod.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;
use tenon_crds::labels;
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::PodShape;

use crate::change::{Kind, ObjectKey, PodEvent};
use crate::scheduler::DEFAULT_SCHEDULER;
use crate::shape;
use crate::shared::Shared;
use crate::wire::{self, controller, created_at};

/// What ReplicaSets that shrink go by, set by users and by controllers.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The field manager that applies [`DELETION_COST`] for the operator: pods say by it whose value
/// they have.
pub const DELETION_COST_MANAGER: &str = "tenon-pod-deletion-cost";

/// The field manager that nominates Nodes for the operator: pods say by it who has.
pub const NOMINATION_MANAGER: &str = "tenon-nomination";

/// A pod that has not ended.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about the pod")]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// What scheduling sees of it.
    pub shape: Arc<PodShape>,
    /// The Node that it is bound to.
    pub node: Option<Arc<str>>,
    /// kube-scheduler found no place for it, and it preempts nothing.
    pub unschedulable: bool,
    /// It waits for kube-scheduler's first attempt to place it, as far as can be told: not with
    /// resource claims (DRA).
    pub untried: bool,
    /// The Node that it is to be bound to (`status.nominatedNodeName`).
    pub nominated: Option<Nominated>,
    /// Another scheduler than kube-scheduler's default profile places it.
    pub other_scheduler: bool,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// When its deletion was asked for, plus its grace period.
    pub deletion: Option<Timestamp>,
    /// `spec.priority`.
    pub priority: i32,
    /// `karpenter.sh/disruption-cost`; 0 when it does not parse.
    pub disruption_cost: Option<i32>,
    /// `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: DeletionCost,
    /// Who controls it.
    pub owner: Owner,
    /// The workload that controls it, where that says by a selector which pods are like it.
    pub controller: Option<Controller>,
    /// The path of its first owner at the API server, e.g.
    /// `/apis/apps/v1/namespaces/default/replicasets/web`: for metrics.
    pub owner_path: Option<Arc<str>>,
    /// What it may use at most, if there are limits: for metrics.
    pub limits: Option<Box<Resources>>,
    /// Its phase is Pending.
    pub pending: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    /// Its condition Ready is False.
    pub unready: bool,
    /// `karpenter.sh/do-not-disrupt`.
    pub protection: Protection,
    /// Tolerates the taint of nodes that are being disrupted: it is neither evicted nor waited for.
    pub tolerates_disruption: bool,
    /// `priorityClassName` is one of the two of the system.
    pub critical: bool,
    /// `terminationGracePeriodSeconds`.
    pub grace_period: Option<i64>,
    /// Its PersistentVolumeClaims, in its namespace.
    pub volume_claims: Vec<String>,
    /// `matchFields` in its required node affinity.
    pub has_match_fields: bool,
    /// Its resource claims (DRA).
    pub claims: Vec<PodClaim>,
}

/// A resource claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodClaim {
    /// The claim with this name, in the pod's namespace.
    Claim(String),
    /// One that has not been made from its template yet.
    Template {
        /// Its name in the pod.
        name: String,
        /// The template, in the pod's namespace.
        template: String,
    },
    /// None was needed.
    Nothing,
}

/// A Node that is kept for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nominated {
    /// `status.nominatedNodeName` of the pod.
    pub node: Box<str>,
    /// Whether the operator nominated it, and no other component since.
    pub ours: bool,
}

/// Who controls a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A DaemonSet, with this uid.
    DaemonSet(String),
    /// A StatefulSet.
    StatefulSet,
    /// A ReplicaSet.
    ReplicaSet,
    /// A Job.
    Job,
    /// The Node itself: a static pod.
    Node,
    /// Something else, or nobody.
    Other,
}

/// A workload that controls pods and selects them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller {
    /// ReplicaSet, StatefulSet or ReplicationController; or a Deployment, of which `tenon simulate`
    /// makes pods without the ReplicaSet between them.
    pub kind: Kind,
    /// Its name, in the pod's namespace.
    pub name: Box<str>,
}

/// Whose `controller.kubernetes.io/pod-deletion-cost` a pod has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionCost {
    /// None.
    Unset,
    /// One that the operator has applied.
    Ours(i32),
    /// Somebody else's; 0 when it does not parse.
    Given(i32),
}

/// How far `karpenter.sh/do-not-disrupt` protects a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    None,
    /// As long as it lives.
    Always,
    /// From its start for so long; as it has not started yet, for now always.
    For(SignedDuration),
    /// Until then.
    Until(Timestamp),
    /// The annotation's value means nothing.
    Invalid,
}

impl Protection {
    /// Whether it is in force.
    pub fn is_active(self, now: Timestamp) -> bool {
        match self {
            Self::None | Self::Invalid => false,
            Self::Always | Self::For(_) => true,
            Self::Until(end) => now < end,
        }
    }
}

impl Pod {
    /// As the state keeps it. `shape` is shared already, other texts are left to be
    /// ([`Self::share`]). `None` when it has ended.
    pub fn from_wire(pod: &wire::Pod, version: u64, shape: Arc<PodShape>) -> Option<Self> {
        let wire::Pod { metadata, spec, status } = pod;
        let phase = status.phase.as_deref().unwrap_or_default();
        if matches!(phase, "Succeeded" | "Failed") {
            return None;
        }
        let name = metadata.name.clone().unwrap_or_default();
        let node = spec.node_name.as_deref().filter(|node| !node.is_empty()).map(Arc::from);
        let owner = owner(metadata);
        let condition =
            |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
        let refused = condition("PodScheduled")
            .is_some_and(|condition| condition.reason.as_deref() == Some("Unschedulable"));
        let nominated = status.nominated_node_name.as_deref().filter(|name| !name.is_empty());
        let nominated = nominated.map(|node| Nominated {
            node: node.into(),
            ours: manages(metadata, NOMINATION_MANAGER),
        });
        let preempting = nominated.as_ref().is_some_and(|nominated| !nominated.ours);
        let other_scheduler = spec
            .scheduler_name
            .as_deref()
            .is_some_and(|name| !name.is_empty() && name != DEFAULT_SCHEDULER);
        // kube-scheduler does not try a pod whose resource claims are not there, and says nothing
        // of it.
        let untried = node.is_none()
            && !other_scheduler
            && spec.resource_claims.is_empty()
            && condition("PodScheduled").is_none()
            && metadata.deletion_timestamp.is_none();
        let movable = !matches!(owner, Owner::DaemonSet(_) | Owner::Node);
        let annotation =
            |key: &str| metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
        Some(Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            version,
            shape,
            unschedulable: refused && !preempting && node.is_none() && movable,
            untried,
            nominated,
            other_scheduler,
            node,
            created_at: created_at(metadata),
            deletion: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            priority: spec.priority,
            disruption_cost: annotation(labels::DISRUPTION_COST).map(|text| cost(text)),
            deletion_cost: match annotation(DELETION_COST) {
                None => DeletionCost::Unset,
                Some(text) if is_applied_by(metadata, DELETION_COST_MANAGER) => {
                    DeletionCost::Ours(cost(text))
                }
                Some(text) => DeletionCost::Given(cost(text)),
            },
            owner,
            controller: selecting_controller(metadata),
            owner_path: owner_path(metadata),
            limits: Some(shape::limits(spec))
                .filter(|limits| limits.iter().next().is_some())
                .map(Box::new),
            pending: phase == "Pending",
            ready: condition("Ready").is_some_and(|ready| ready.status == "True"),
            unready: condition("Ready").is_some_and(|ready| ready.status == "False"),
            protection: protection(annotation(labels::DO_NOT_DISRUPT), status.start_time),
            tolerates_disruption: tolerates_disruption(spec),
            critical: matches!(
                spec.priority_class_name.as_deref(),
                Some("system-cluster-critical" | "system-node-critical")
            ),
            grace_period: spec.termination_grace_period_seconds,
            volume_claims: volume_claims(&name, spec),
            has_match_fields: shape::has_match_fields(spec),
            claims: spec.resource_claims.iter().map(|claim| pod_claim(claim, status)).collect(),
        })
    }

    /// Takes the texts that other pods have, too, from where they are kept once.
    pub(crate) fn share(&mut self, texts: &mut Shared<str>) {
        for text in [&mut self.node, &mut self.owner_path].into_iter().flatten() {
            texts.share(text);
        }
    }

    /// Owned by a DaemonSet.
    pub fn is_daemon(&self) -> bool {
        matches!(self.owner, Owner::DaemonSet(_))
    }

    /// A static pod.
    pub(crate) fn is_mirror(&self) -> bool {
        self.owner == Owner::Node
    }

    /// Its deletion was asked for.
    pub fn is_terminating(&self) -> bool {
        self.deletion.is_some()
    }

    /// kube-scheduler found no place for it, or has not tried yet; not a pod of a DaemonSet, which
    /// has its place.
    pub(crate) fn awaits_node(&self) -> bool {
        let movable = !self.is_daemon() && !self.is_mirror();
        self.node.is_none()
            && movable
            && !self.is_terminating()
            && (self.unschedulable || self.untried)
    }

    /// A drain has to wait until it is gone: everything but static pods, pods that tolerate the
    /// disruption, and pods that should have ended a minute ago.
    pub fn is_waited_for(&self, now: Timestamp) -> bool {
        const STUCK: SignedDuration = SignedDuration::from_mins(1);
        let stuck = self.deletion.is_some_and(|deletion| now.duration_since(deletion) > STUCK);
        !self.tolerates_disruption && !self.is_mirror() && !stuck
    }

    /// It may be asked to go.
    pub fn is_evictable(&self, now: Timestamp) -> bool {
        !self.is_terminating()
            && !self.tolerates_disruption
            && !self.is_mirror()
            && !self.protection.is_active(now)
    }

    /// What it costs to evict it: what its disruption is said to cost, else its deletion. What the
    /// operator has written itself says nothing about that, and nothing but the former counts while
    /// the operator is to write (`manages_deletion_costs`).
    pub fn eviction_cost(&self, manages_deletion_costs: bool) -> i32 {
        let deletion = match self.deletion_cost {
            DeletionCost::Given(cost) if !manages_deletion_costs => cost,
            _ => 0,
        };
        self.disruption_cost.unwrap_or(deletion)
    }

    /// It has to find a place elsewhere when its node goes.
    pub fn is_reschedulable(&self) -> bool {
        let stays = !self.is_terminating() || self.owner == Owner::StatefulSet;
        stays && !self.is_daemon() && !self.is_mirror()
    }
}

fn owner(metadata: &ObjectMeta) -> Owner {
    // Static pods name their Node as an owner too, as the controller in all releases since 1.17.
    let owners = metadata.owner_references.iter().flatten();
    if owners.into_iter().any(|owner| owner.kind == "Node" && owner.api_version == "v1") {
        return Owner::Node;
    }
    let Some(owner) = controller(metadata) else { return Owner::Other };
    match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("apps/v1", "DaemonSet") => Owner::DaemonSet(owner.uid.clone()),
        ("apps/v1", "StatefulSet") => Owner::StatefulSet,
        ("apps/v1", "ReplicaSet") => Owner::ReplicaSet,
        ("batch/v1", "Job") => Owner::Job,
        _ => Owner::Other,
    }
}

fn selecting_controller(metadata: &ObjectMeta) -> Option<Controller> {
    let owner = controller(metadata)?;
    let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("apps/v1", "ReplicaSet") => Kind::ReplicaSet,
        ("apps/v1", "StatefulSet") => Kind::StatefulSet,
        ("apps/v1", "Deployment") => Kind::Deployment,
        ("v1", "ReplicationController") => Kind::ReplicationController,
        _ => return None,
    };
    Some(Controller { kind, name: owner.name.as_str().into() })
}

fn owner_path(metadata: &ObjectMeta) -> Option<Arc<str>> {
    let owner = metadata.owner_references.as_ref()?.first()?;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let (version, kind, name) = (&owner.api_version, owner.kind.to_lowercase(), &owner.name);
    Some(format!("/apis/{version}/namespaces/{namespace}/{kind}s/{name}").into())
}

fn cost(text: &str) -> i32 {
    text.parse().unwrap_or(0)
}

/// Whether this manager has written something that nobody has written since: then it would not be a
/// manager any more.
fn manages(metadata: &ObjectMeta, manager: &str) -> bool {
    metadata.managed_fields.iter().flatten().any(|it| it.manager.as_deref() == Some(manager))
}

/// Whether this manager has applied something that nobody has set to another value since: then it
/// would not be a manager any more.
fn is_applied_by(metadata: &ObjectMeta, manager: &str) -> bool {
    metadata.managed_fields.iter().flatten().any(|entry| {
        entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
    })
}

fn protection(annotation: Option<&String>, started: Option<Timestamp>) -> Protection {
    let Some(text) = annotation else { return Protection::None };
    if text == "true" {
        return Protection::Always;
    }
    let Ok(duration) = text.parse::<tenon_crds::Duration>() else { return Protection::Invalid };
    let duration = duration.as_signed();
    if !duration.is_positive() {
        return Protection::Invalid;
    }
    started.map_or(Protection::For(duration), |started| {
        Protection::Until(started.checked_add(duration).unwrap_or(Timestamp::MAX))
    })
}

fn tolerates_disruption(spec: &wire::PodSpec) -> bool {
    spec.tolerations.iter().any(|toleration| {
        let exists = toleration.operator.as_deref() == Some("Exists");
        let key = toleration.key.as_deref().unwrap_or_default();
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let same_key = key == labels::DISRUPTED_TAINT || (key.is_empty() && exists);
        let same_value = exists || toleration.value.as_deref().unwrap_or_default().is_empty();
        same_key && same_value && (effect.is_empty() || effect == "NoSchedule")
    })
}

pub(crate) fn pod_claim(claim: &wire::PodResourceClaim, status: &wire::PodStatus) -> PodClaim {
    let wire::PodResourceClaim { name, resource_claim_name, resource_claim_template_name } = claim;
    if let Some(name) = resource_claim_name {
        return PodClaim::Claim(name.clone());
    }
    let made = status.resource_claim_statuses.iter().find(|status| status.name == *name);
    match made.map(|status| &status.resource_claim_name) {
        Some(Some(name)) => PodClaim::Claim(name.clone()),
        Some(None) => PodClaim::Nothing,
        None => PodClaim::Template {
            name: name.clone(),
            template: resource_claim_template_name.clone().unwrap_or_default(),
        },
    }
}

fn volume_claims(pod: &str, spec: &wire::PodSpec) -> Vec<String> {
    spec.volumes
        .iter()
        .filter_map(|volume| {
            let named =
                volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
            named.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{pod}-{}", volume.name)))
        })
        .collect()
}

/// What happened between two versions of a pod; `None` is that it is not there or has ended.
pub fn event(before: Option<&Pod>, after: Option<&Pod>) -> PodEvent {
    let newest = after.or(before);
    let daemon = newest.is_some_and(Pod::is_daemon);
    let moved = match (before, after) {
        (None, None) => false,
        (None, Some(pod)) | (Some(pod), None) => pod.node.is_some(),
        (Some(before), Some(after)) => {
            after.node.is_some()
                && (before.node != after.node || before.is_terminating() != after.is_terminating())
        }
    };
    let both = before.zip(after);
    let bound = both.filter(|(before, after)| before.node.is_none() && after.node.is_some());
    let started = both.filter(|(before, after)| before.pending && !after.pending);
    PodEvent {
        bound: bound.map(|(_, pod)| pod.created_at),
        started: started.map(|(_, pod)| pod.created_at),
        node: newest.and_then(|pod| pod.node.as_deref()).map(str::to_owned),
        as_planned: None,
        provisionable: after.is_some_and(|pod| pod.unschedulable),
        moved: moved && !daemon,
    }
}

/// The key of a pod.
pub fn key(pod: &wire::Pod) -> ObjectKey {
    ObjectKey::new(
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(value: Value) -> Option<Pod> {
        let wire: wire::Pod = serde_json::from_value(value).unwrap();
        Pod::from_wire(&wire, 1, Arc::default())
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers write literals")]
    fn refused(extra: Value) -> Value {
        let mut pod = json!({
            "metadata": {"namespace": "default", "name": "a"},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
            ]},
        });
        json_patch::merge(&mut pod, &extra);
        pod
    }

    #[test]
    fn only_pods_that_the_scheduler_refused_and_that_wait_for_nothing_else_are_provisioned_for() {
        let owned = |api: &str, kind: &str| {
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": api, "kind": kind, "name": "o", "uid": "u", "controller": true},
            ]}})
        };
        for (extra, expected) in [
            (json!({}), true),
            (json!({"spec": {"nodeName": "n"}}), false),
            (json!({"status": {"nominatedNodeName": "n"}}), false),
            (
                json!({
                    "metadata": {"managedFields": [{"manager": "tenon-nomination", "operation": "Apply"}]},
                    "status": {"nominatedNodeName": "n"},
                }),
                true,
            ),
            (
                json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}}),
                false,
            ),
            (json!({"status": {"conditions": []}}), false),
            (owned("apps/v1", "ReplicaSet"), true),
            (owned("apps/v1", "DaemonSet"), false),
            (owned("v1", "Node"), false),
        ] {
            let pod = pod(refused(extra.clone())).unwrap();
            assert_eq!(pod.unschedulable, expected, "{extra}");
        }
    }

    #[test]
    fn a_pod_is_untried_until_the_scheduler_says_something_of_it() {
        let conditions = |list: Value| json!({"status": {"conditions": list}});
        let gated =
            json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
        for (extra, expected) in [
            (json!({}), true),
            (conditions(json!([{"type": "Initialized", "status": "True"}])), true),
            (json!({"spec": {"schedulerName": "other"}}), false),
            (json!({"spec": {"nodeName": "n"}}), false),
            (json!({"spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}}), false),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false),
            (conditions(gated), false),
            (refused(json!({})), false),
        ] {
            assert_eq!(pod(extra.clone()).unwrap().untried, expected, "{extra}");
        }
    }

    #[test]
    fn pods_that_have_ended_are_forgotten() {
        assert_eq!(pod(json!({"status": {"phase": "Succeeded"}})), None);
        assert_eq!(pod(json!({"status": {"phase": "Failed"}})), None);
    }

    #[test]
    fn do_not_disrupt_is_true_or_a_positive_duration() {
        let with = |text: &str| {
            pod(json!({
                "metadata": {"annotations": {"karpenter.sh/do-not-disrupt": text}},
                "status": {"startTime": "2026-01-01T00:00:00Z"},
            }))
            .unwrap()
            .protection
        };
        assert_eq!(with("true"), Protection::Always);
        assert_eq!(with("1h"), Protection::Until("2026-01-01T01:00:00Z".parse().unwrap()));
        for text in ["True", "false", "", "-1h", "0s", "soon"] {
            assert_eq!(with(text), Protection::Invalid, "{text}");
        }
    }

    #[test]
    fn a_bad_disruption_cost_does_not_fall_back_to_the_deletion_cost() {
        for (annotations, expected) in [
            (json!({DELETION_COST: "7"}), 7),
            (json!({"karpenter.sh/disruption-cost": "5", DELETION_COST: "7"}), 5),
            (json!({"karpenter.sh/disruption-cost": "1.5", DELETION_COST: "7"}), 0),
            (json!({DELETION_COST: "1e3"}), 0),
            (json!({DELETION_COST: "99999999999"}), 0),
        ] {
            let pod = pod(json!({"metadata": {"annotations": annotations}})).unwrap();
            assert_eq!(pod.eviction_cost(false), expected, "{annotations}");
        }
    }

    #[test]
    fn a_deletion_cost_that_the_operator_wrote_is_told_from_others_and_costs_no_eviction() {
        let with = |manager: &str, operation: &str| {
            let fields =
                json!({"f:metadata": {"f:annotations": {format!("f:{DELETION_COST}"): {}}}});
            pod(json!({"metadata": {
                "annotations": {DELETION_COST: "-7"},
                "managedFields": [{"manager": manager, "operation": operation, "fieldsV1": fields}],
            }}))
            .unwrap()
        };
        let ours = with(DELETION_COST_MANAGER, "Apply");
        assert_eq!(ours.deletion_cost, DeletionCost::Ours(-7));
        assert_eq!([false, true].map(|managed| ours.eviction_cost(managed)), [0, 0]);
        let given = with("kube-controller-manager", "Update");
        assert_eq!(given.deletion_cost, DeletionCost::Given(-7));
        assert_eq!([false, true].map(|managed| given.eviction_cost(managed)), [-7, 0]);
    }

    #[test]
    fn tolerating_the_disruption_needs_key_effect_and_value() {
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "karpenter.sh/disrupted", "operator": "Exists"}), true),
            (
                json!({"key": "karpenter.sh/disrupted", "operator": "Equal", "effect": "NoSchedule"}),
                true,
            ),
            (json!({"key": "karpenter.sh/disrupted", "operator": "Equal", "value": "x"}), false),
            (
                json!({"key": "karpenter.sh/disrupted", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            let pod = pod(json!({"spec": {"tolerations": [toleration.clone()]}})).unwrap();
            assert_eq!(pod.tolerates_disruption, expected, "{toleration}");
        }
    }

    #[test]
    fn moving_is_coming_going_being_bound_or_starting_to_terminate() {
        let pod = |value| pod(value).unwrap();
        let pending = pod(json!({}));
        let bound = pod(json!({"spec": {"nodeName": "n"}}));
        let terminating = pod(json!({
            "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n"},
        }));
        let changed = pod(json!({"spec": {"nodeName": "n", "priority": 3}}));
        for (before, after, moved) in [
            (None, Some(&pending), false),
            (Some(&pending), Some(&bound), true),
            (Some(&bound), Some(&changed), false),
            (Some(&bound), Some(&terminating), true),
            (Some(&terminating), None, true),
        ] {
            assert_eq!(event(before, after).moved, moved);
        }
    }
}
