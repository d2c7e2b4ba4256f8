//! From what was found out about an EC2NodeClass to its status. Pure.

use jiff::Timestamp;
use tenon_crds::conditions::{self, Conditions, Subject, ec2nodeclass as types};
use tenon_crds::ec2nodeclass::{Ami, CapacityReservation, SecurityGroup, Subnet};
use tenon_crds::{EC2NodeClass, EC2NodeClassStatus};

/// What was found out about one part of a class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Resolved<T> {
    /// This.
    Some(T),
    /// The selector matches nothing, or can't match: reason and message of the condition.
    Nothing {
        /// Reason of the condition.
        reason: &'static str,
        message: String,
    },
    /// A call failed: what was known before stays.
    Failed,
}

impl<T> Resolved<T> {
    /// Whether what was looked for does not exist.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing { .. })
    }
}

/// What was found out about a class, before validation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolution {
    /// Images.
    pub amis: Resolved<Vec<Ami>>,
    /// Capacity reservations. None is no fault of the class.
    pub capacity_reservations: Resolved<Vec<CapacityReservation>>,
    /// Subnets.
    pub subnets: Resolved<Vec<Subnet>>,
    /// Security groups.
    pub security_groups: Resolved<Vec<SecurityGroup>>,
    pub instance_profile: Resolved<String>,
    /// Whether the placement group exists, or none is asked for.
    pub placement_group: Resolved<()>,
}

/// Verdict of the validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// AWS would launch.
    Valid,
    /// It would not.
    Invalid {
        /// Reason of the condition.
        reason: &'static str,
        message: String,
    },
    /// Can't be told yet.
    Unknown {
        /// Reason of the condition.
        reason: &'static str,
        message: String,
    },
    /// A call failed: what was known before stays.
    Failed,
}

/// Message of a validation that waits.
const AWAITING: &str = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution";

/// The status with what was found.
pub(crate) fn resolved(
    class: &EC2NodeClass,
    resolution: Resolution,
    now: Timestamp,
) -> EC2NodeClassStatus {
    let Resolution {
        amis,
        capacity_reservations,
        subnets,
        security_groups,
        instance_profile,
        placement_group,
    } = resolution;
    let mut status = class.status.clone().unwrap_or_default();
    let mut list = std::mem::take(&mut status.conditions);
    let mut conditions =
        Conditions::new(types::TYPES, &mut list, Subject::of(&class.metadata), now);
    set(&mut conditions, types::AMIS_READY, amis, &mut status.amis);
    set(
        &mut conditions,
        types::CAPACITY_RESERVATIONS_READY,
        capacity_reservations,
        &mut status.capacity_reservations,
    );
    set(&mut conditions, types::PLACEMENT_GROUP_READY, placement_group, &mut ());
    set(&mut conditions, types::SUBNETS_READY, subnets, &mut status.subnets);
    set(
        &mut conditions,
        types::SECURITY_GROUPS_READY,
        security_groups,
        &mut status.security_groups,
    );
    match instance_profile {
        Resolved::Some(name) => {
            status.instance_profile = Some(name);
            conditions.set_true(types::INSTANCE_PROFILE_READY);
        }
        Resolved::Nothing { reason, message } => {
            conditions.set_false(types::INSTANCE_PROFILE_READY, reason, &message);
        }
        Resolved::Failed => {}
    }
    status.conditions = list;
    status
}

fn set<T: Default>(
    conditions: &mut Conditions<'_>,
    condition: &'static str,
    found: Resolved<T>,
    value: &mut T,
) {
    match found {
        Resolved::Some(found) => {
            *value = found;
            conditions.set_true(condition);
        }
        Resolved::Nothing { reason, message } => {
            *value = T::default();
            conditions.set_false(condition, reason, &message);
        }
        Resolved::Failed => {}
    }
}

/// Whether validation has what it needs, and if not, its verdict.
pub(crate) fn dependencies(status: &EC2NodeClassStatus) -> Option<Verdict> {
    const NEEDED: [&str; 4] = [
        types::AMIS_READY,
        types::INSTANCE_PROFILE_READY,
        types::SECURITY_GROUPS_READY,
        types::SUBNETS_READY,
    ];
    let statuses = || {
        NEEDED.map(|needed| {
            status
                .conditions
                .iter()
                .find(|condition| condition.type_ == needed)
                .map_or(tenon_crds::ConditionStatus::Unknown, |condition| condition.status)
        })
    };
    let (reason, message) = ("DependenciesNotReady", AWAITING.to_owned());
    if statuses().contains(&tenon_crds::ConditionStatus::False) {
        Some(Verdict::Invalid { reason, message })
    } else if statuses().contains(&tenon_crds::ConditionStatus::Unknown) {
        Some(Verdict::Unknown { reason, message })
    } else {
        None
    }
}

/// The status with the verdict.
pub(crate) fn validated(
    class: &EC2NodeClass,
    mut status: EC2NodeClassStatus,
    verdict: &Verdict,
    now: Timestamp,
) -> EC2NodeClassStatus {
    let mut list = std::mem::take(&mut status.conditions);
    let mut conditions =
        Conditions::new(types::TYPES, &mut list, Subject::of(&class.metadata), now);
    match verdict {
        Verdict::Valid => {
            conditions.set_true(types::VALIDATION_SUCCEEDED);
        }
        Verdict::Invalid { reason, message } => {
            conditions.set_false(types::VALIDATION_SUCCEEDED, reason, message);
        }
        Verdict::Unknown { reason, message } => {
            conditions.set_unknown(types::VALIDATION_SUCCEEDED, reason, message);
        }
        Verdict::Failed => {}
    }
    status.conditions = list;
    status
}

/// The fields that make the stored status this one when they are merged into it; nothing when it
/// is.
pub(crate) fn patch(
    class: &EC2NodeClass,
    status: &EC2NodeClassStatus,
) -> Option<serde_json::Value> {
    if class.status.as_ref() == Some(status) {
        return None;
    }
    let mut value =
        serde_json::to_value(status).expect("a status is made of plain structs with text keys");
    // What is empty is left out when written; in a merge patch it has to be said.
    for key in ["amis", "capacityReservations", "instanceProfile", "securityGroups", "subnets"] {
        if value.get(key).is_none() {
            value[key] = serde_json::Value::Null;
        }
    }
    Some(value)
}

/// Root condition of a class.
pub(crate) fn ready(class: &EC2NodeClass) -> Option<&tenon_crds::Condition> {
    class.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == conditions::READY)
}

#[cfg(test)]
mod tests;
