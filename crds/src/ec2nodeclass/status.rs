//! What the selectors of an EC2NodeClass found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InstanceMatchCriteria;
use crate::conditions::Condition;
use crate::requirement::Requirement;
use crate::text_enum::text_enum;
use crate::timestamp::Timestamp;

/// Observed state of the EC2NodeClass: resources that match its selectors, and conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassStatus {
    /// Images that match the selectors, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,
    /// Capacity reservations, by ID.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// Conditions; all but `Ready` feed `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Instance profile of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Security groups, by ID.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,
    /// Subnets, those with the most free addresses first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
}

/// A subnet that matches a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subnet {
    /// ID of the resource.
    pub id: String,
    /// Availability zone.
    pub zone: String,
    /// ID of the availability zone.
    #[serde(default, rename = "zoneID", skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
}

/// A security group that matches a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecurityGroup {
    /// ID of the resource.
    pub id: String,
    /// Group name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An image, and the nodes that can use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ami {
    /// Whether the owner has deprecated the image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// ID of the resource.
    pub id: String,
    /// Name of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Requirements on the nodes that can use the image.
    pub requirements: Vec<Requirement>,
}

/// A capacity reservation that matches a selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// Availability zone.
    pub availability_zone: String,
    /// End of the reservation; absent means that it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    /// ID of the resource.
    pub id: String,
    /// Instances that can use the reservation.
    pub instance_match_criteria: InstanceMatchCriteria,
    /// Instance type of the reservation.
    pub instance_type: String,
    /// Whether EC2 can reclaim the capacity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interruptible: bool,
    /// AWS account that owns the reservation.
    #[serde(rename = "ownerID")]
    pub owner_id: String,
    /// Type of the reservation.
    #[serde(default)]
    pub reservation_type: ReservationType,
    /// State of the reservation: active, or expiring.
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
