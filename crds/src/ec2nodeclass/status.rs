//! What the selectors of an EC2NodeClass found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InstanceMatchCriteria;
use crate::conditions::Condition;
use crate::requirement::Requirement;
use crate::text_enum::text_enum;
use crate::timestamp::Timestamp;

/// What the selectors of an EC2NodeClass found, and its conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// Images, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,
    /// Capacity reservations, by ID.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// Conditions; all but `Ready` feed `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The instance profile that machines get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Security groups, by ID.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,
    /// Subnets, those with the most free addresses first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
}

/// A subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subnet {
    /// ID.
    pub id: String,
    /// Availability zone.
    pub zone: String,
    /// ID of the availability zone.
    #[serde(default, rename = "zoneID", skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
}

/// A security group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecurityGroup {
    /// ID.
    pub id: String,
    /// Group name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An image and the nodes that it fits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ami {
    /// Whether its owner has deprecated it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// ID.
    pub id: String,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which nodes it fits.
    pub requirements: Vec<Requirement>,
}

/// A capacity reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// Availability zone.
    pub availability_zone: String,
    /// When it ends; absent means that it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    /// ID.
    pub id: String,
    /// Which instances it admits.
    pub instance_match_criteria: InstanceMatchCriteria,
    /// Instance type that it holds.
    pub instance_type: String,
    /// Whether EC2 may take it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interruptible: bool,
    /// Account that owns it.
    #[serde(rename = "ownerID")]
    pub owner_id: String,
    /// Kind of reservation.
    #[serde(default)]
    pub reservation_type: ReservationType,
    /// Whether it is about to end.
    #[serde(default)]
    pub state: ReservationState,
}

text_enum! {
    /// Kind of a capacity reservation.
    #[derive(Default)]
    pub enum ReservationType {
        /// An on-demand capacity reservation.
        #[default]
        Default = "default",
        /// A capacity block for ML.
        CapacityBlock = "capacity-block",
    }
}

text_enum! {
    /// Whether a capacity reservation is about to end.
    #[derive(Default)]
    pub enum ReservationState {
        /// It can be used.
        #[default]
        Active = "active",
        /// Its instances are about to be taken away.
        Expiring = "expiring",
    }
}
