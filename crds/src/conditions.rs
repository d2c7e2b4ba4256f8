//! Status conditions: their form, and how the conditions of one object change together.
//!
//! Most kinds have a root condition (`Ready`) that sums up its dependent conditions; independent
//! conditions stand for themselves. [`Conditions`] is a pure view on the list of one object: it
//! keeps the root, the times, the observed generations and the order in step, exactly as Karpenter
//! does, so that objects look the same whoever reconciles them.

use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;
use crate::timestamp::Timestamp;

text_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// Not known (yet).
        Unknown = "Unknown",
    }
}

/// Condition of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Time of the last change of `status`.
    pub last_transition_time: Timestamp,
    /// Message for users.
    #[serde(default)]
    pub message: String,
    /// The `metadata.generation` for which the condition was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Reason in CamelCase, for programs.
    #[serde(default)]
    pub reason: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
}

/// The condition that sums up the others.
pub const READY: &str = "Ready";

/// Types of conditions of NodePools.
pub mod nodepool {
    /// The pool makes sense.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// Its NodeClass exists and is ready.
    pub const NODE_CLASS_READY: &str = "NodeClassReady";
    /// Nodes of the pool register (independent).
    pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
    /// Plans are made with the pool (independent; Karpenter does not have it).
    pub const PLANNING_ACTIVE: &str = "PlanningActive";
    /// What `Ready` depends on.
    pub const TYPES: super::ConditionTypes = super::ConditionTypes {
        root: Some(super::READY),
        dependents: &[VALIDATION_SUCCEEDED, NODE_CLASS_READY],
    };
}

/// Types of conditions of NodeClaims.
pub mod nodeclaim {
    /// The instance is launched.
    pub const LAUNCHED: &str = "Launched";
    /// The node has joined and carries its labels and taints.
    pub const REGISTERED: &str = "Registered";
    /// The node is ready for pods.
    pub const INITIALIZED: &str = "Initialized";
    /// The node may be considered for consolidation (independent).
    pub const CONSOLIDATABLE: &str = "Consolidatable";
    /// The node no longer matches its NodePool or NodeClass (independent).
    pub const DRIFTED: &str = "Drifted";
    /// The node is drained (independent).
    pub const DRAINED: &str = "Drained";
    /// The node's volumes are detached (independent).
    pub const VOLUMES_DETACHED: &str = "VolumesDetached";
    /// The instance is being terminated (independent).
    pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
    /// The node has what its NodeClaim promised (independent).
    pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
    /// Why the node is being disrupted (independent).
    pub const DISRUPTION_REASON: &str = "DisruptionReason";
    /// The node is being rebooted (independent).
    pub const REBOOTING: &str = "Rebooting";
    /// What `Ready` depends on.
    pub const TYPES: super::ConditionTypes = super::ConditionTypes {
        root: Some(super::READY),
        dependents: &[LAUNCHED, REGISTERED, INITIALIZED],
    };
}

/// Types of conditions of NodeOverlays.
pub mod nodeoverlay {
    /// The overlay means something, and no other of the same weight says something about the same.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// What `Ready` depends on.
    pub const TYPES: super::ConditionTypes =
        super::ConditionTypes { root: Some(super::READY), dependents: &[VALIDATION_SUCCEEDED] };
}

/// Types of conditions of CapacityBuffers. Each stands for itself.
pub mod capacitybuffer {
    /// What the pods look like and how many there are is known.
    pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
    /// There is room for all pods.
    pub const PROVISIONING: &str = "Provisioning";
    /// ResourceQuotas leave less than the buffer asks for.
    pub const LIMITED_BY_QUOTAS: &str = "LimitedByQuotas";
    /// No condition sums up the others.
    pub const TYPES: super::ConditionTypes = super::ConditionTypes { root: None, dependents: &[] };
}

/// Types of conditions of EC2NodeClasses.
pub mod ec2nodeclass {
    /// Images were found.
    pub const AMIS_READY: &str = "AMIsReady";
    /// Subnets were found.
    pub const SUBNETS_READY: &str = "SubnetsReady";
    /// Security groups were found.
    pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
    /// The instance profile exists.
    pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
    /// AWS would accept a launch.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// The placement group exists, or none is asked for.
    pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
    /// Capacity reservations were looked up.
    pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
    /// What `Ready` depends on, when capacity reservations are used.
    pub const TYPES: super::ConditionTypes = super::ConditionTypes {
        root: Some(super::READY),
        dependents: &[
            AMIS_READY,
            SUBNETS_READY,
            SECURITY_GROUPS_READY,
            INSTANCE_PROFILE_READY,
            VALIDATION_SUCCEEDED,
            PLACEMENT_GROUP_READY,
            CAPACITY_RESERVATIONS_READY,
        ],
    };
}

/// Which conditions sum up to which root. Every other type is independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionTypes {
    /// The condition that sums up the dependents; none where every condition stands for itself.
    pub root: Option<&'static str>,
    /// The conditions that it depends on.
    pub dependents: &'static [&'static str],
}

impl ConditionTypes {
    fn is_normal(&self, type_: &str) -> bool {
        self.root == Some(type_) || self.dependents.contains(&type_)
    }
}

/// What conditions need to know about their object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Whether the object is being deleted.
    pub deleting: bool,
}

impl Subject {
    /// Reads the object's metadata. An object that was never stored counts as created in 1970.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            generation: meta.generation.unwrap_or(0),
            created: meta.creation_timestamp.as_ref().map(Timestamp::from).unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

/// A condition that cannot be taken away because every object of the kind has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("condition {type_} is always present and cannot be cleared; set it to Unknown instead")]
pub struct NotClearable {
    /// `type` of the condition.
    pub type_: String,
}

/// The conditions of one object at one moment.
///
/// Dependents must be set again on every reconcile, even if nothing changed: a dependent that was
/// observed at an older generation makes the root Unknown.
#[derive(Debug)]
pub struct Conditions<'o> {
    types: ConditionTypes,
    list: &'o mut Vec<Condition>,
    subject: Subject,
    now: Timestamp,
}

impl<'o> Conditions<'o> {
    /// Looks at the conditions of an object. The root and the dependents that are missing are added
    /// as Unknown.
    pub fn new(
        types: ConditionTypes,
        list: &'o mut Vec<Condition>,
        subject: Subject,
        now: impl Into<Timestamp>,
    ) -> Self {
        // Whole seconds, because that is what will be read back.
        let now = Timestamp::from_second(now.into().0.as_second());
        let mut conditions = Self { types, list, subject, now };
        for type_ in types.root.into_iter().chain(types.dependents.iter().copied()) {
            if conditions.get(type_).is_none() {
                conditions.set_unknown(
                    type_,
                    "AwaitingReconciliation",
                    "object is awaiting reconciliation",
                );
            }
        }
        conditions
    }

    /// The condition, if it was ever set.
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        self.list.iter().find(|condition| condition.type_ == type_)
    }

    /// The status; Unknown if it was never set.
    pub fn status(&self, type_: &str) -> ConditionStatus {
        self.get(type_).map_or(ConditionStatus::Unknown, |condition| condition.status)
    }

    /// Status of the condition: `True`, `False` or `Unknown`.
    pub fn is_true(&self, type_: &str) -> bool {
        self.status(type_) == ConditionStatus::True
    }

    /// The root condition, if objects of this kind have one.
    pub fn root(&self) -> Option<&Condition> {
        self.get(self.types.root?)
    }

    /// Sets a condition to True, with its type as the reason. Says whether anything changed.
    pub fn set_true(&mut self, type_: &str) -> bool {
        self.set(type_, ConditionStatus::True, type_, "")
    }

    /// Sets a condition to True. Says whether anything changed.
    pub fn set_true_because(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.set(type_, ConditionStatus::True, reason, message)
    }

    /// Sets a condition to False. Says whether anything changed.
    pub fn set_false(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.set(type_, ConditionStatus::False, reason, message)
    }

    /// Sets a condition to Unknown. Says whether anything changed.
    pub fn set_unknown(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.set(type_, ConditionStatus::Unknown, reason, message)
    }

    /// Takes an independent condition away. Says whether it was there.
    pub fn clear(&mut self, type_: &str) -> Result<bool, NotClearable> {
        if self.types.is_normal(type_) {
            return Err(NotClearable { type_: type_.to_owned() });
        }
        if self.get(type_).is_none() {
            return Ok(false);
        }
        self.list.retain(|condition| condition.type_ != type_);
        self.list.sort_by(|a, b| a.type_.cmp(&b.type_));
        Ok(true)
    }

    fn set(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str) -> bool {
        let modified = self.store(type_, status, reason, message);
        if let Some(root) = self.types.root.filter(|root| modified && *root != type_) {
            self.recompute_root(root);
        }
        modified
    }

    fn store(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str) -> bool {
        let stored = self.list.iter().position(|condition| condition.type_ == type_);
        let last_transition_time = match stored.map(|index| &self.list[index]) {
            Some(condition) if condition.status == status => condition.last_transition_time,
            Some(_) => self.now,
            // Conditions that every object has began when the object did.
            None if self.types.is_normal(type_) => self.subject.created,
            None => self.now,
        };
        let condition = Condition {
            last_transition_time,
            message: message.to_owned(),
            observed_generation: Some(self.subject.generation),
            reason: reason.to_owned(),
            status,
            type_: type_.to_owned(),
        };
        if let Some(index) = stored {
            if self.list[index] == condition {
                return false;
            }
            self.list.remove(index);
        }
        if self.subject.deleting {
            // Nothing else will reconcile them any more.
            for other in self.list.iter_mut() {
                other.observed_generation = Some(self.subject.generation);
            }
        }
        self.list.push(condition);
        let root = self.types.root;
        self.list.sort_by_key(|condition| {
            (root == Some(condition.type_.as_str()), condition.last_transition_time)
        });
        true
    }

    fn recompute_root(&mut self, root: &'static str) {
        let generation = Some(self.subject.generation);
        let mut unhealthy: Vec<&Condition> = self
            .list
            .iter()
            .filter(|condition| self.types.dependents.contains(&condition.type_.as_str()))
            .filter(|condition| {
                condition.status != ConditionStatus::True
                    || condition.observed_generation != generation
            })
            .collect();
        if unhealthy.is_empty() {
            self.store(root, ConditionStatus::True, root, "");
            return;
        }
        unhealthy.sort_by_key(|condition| std::cmp::Reverse(condition.last_transition_time));
        // A False of an older generation proves nothing about this one.
        let proven = unhealthy.iter().any(|condition| {
            condition.status == ConditionStatus::False
                && condition.observed_generation == generation
        });
        let message: Vec<String> = unhealthy
            .iter()
            .map(|condition| format!("{}={}", condition.type_, condition.status))
            .collect();
        let message = message.join(", ");
        let (status, reason) = if proven {
            (ConditionStatus::False, "UnhealthyDependents")
        } else {
            (ConditionStatus::Unknown, "ReconcilingDependents")
        };
        self.store(root, status, reason, &message);
    }
}

#[cfg(test)]
mod tests;
