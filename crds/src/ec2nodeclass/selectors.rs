//! What an EC2NodeClass selects: images, subnets, security groups, capacity reservations and a
//! placement group.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::AmiFamily;
use crate::text_enum::text_enum;

/// Selects subnets. All tags of a term must match; the value `*` matches every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubnetSelectorTerm {
    /// ID of the subnet.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Tags of the subnets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Selects security groups. All tags of a term must match; the value `*` matches every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecurityGroupSelectorTerm {
    /// ID of the security group.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Group name (not the `Name` tag); EC2's wildcards are allowed.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags of the security groups.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Selects capacity reservations. All tags of a term must match; the value `*` matches every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservationSelectorTerm {
    /// ID of the capacity reservation.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Instances that can use the reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_match_criteria: Option<InstanceMatchCriteria>,
    /// AWS account that owns the reservation.
    #[serde(
        default,
        rename = "ownerID",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub owner_id: Option<String>,
    /// Tags of the capacity reservations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

text_enum! {
    /// Which instances a capacity reservation admits.
    pub enum InstanceMatchCriteria {
        /// Every instance that matches.
        Open = "open",
        /// Only instances that name the reservation.
        Targeted = "targeted",
    }
}

/// Selects images. All tags of a term must match; the value `*` matches every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmiSelectorTerm {
    /// An AMI family and a version of its EKS images, such as `al2023@latest` or
    /// `bottlerocket@v1.20.4`.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// ID of the image.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the image (not the `Name` tag); EC2's wildcards are allowed.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// AWS account that owns the image, or `self` or `amazon`.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name or ARN of an SSM parameter that holds the ID of the image.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
    /// Tags of the images.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Selects a placement group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlacementGroupSelector {
    /// ID of the placement group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the placement group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An AMI family and a version of its images, as `amiSelectorTerms[].alias` names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The part before the `@`.
    pub family: AmiFamily,
    /// `latest`, or a version in the family's own notation.
    pub version: String,
}

impl AmiSelectorTerm {
    /// The alias, if the term has one that names a known family.
    pub(super) fn parsed_alias(&self) -> Option<Alias> {
        let (family, version) = self.alias.as_deref()?.split_once('@')?;
        let family = match family {
            "al2" => AmiFamily::Al2,
            "al2023" => AmiFamily::Al2023,
            "bottlerocket" => AmiFamily::Bottlerocket,
            "windows2019" => AmiFamily::Windows2019,
            "windows2022" => AmiFamily::Windows2022,
            "windows2025" => AmiFamily::Windows2025,
            _ => return None,
        };
        Some(Alias { family, version: version.to_owned() })
    }
}

/// Selectors treat an empty text as absent, although the schema accepts it.
fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}
