//! Whether a machine still is what its NodeClass asks for. Pure.
//!
//! Empty lists in a NodeClass' status are no drift: a lookup that failed must never replace a
//! fleet.

use std::collections::BTreeSet;

use tenon_crds::labels::{self, aws};
use tenon_crds::{EC2NodeClass, NodeClaim};
use tenon_planner::snapshot::Catalog;

use super::ec2::{Instance, PlacementGroup};
use super::launcher::template::ami_for;

/// Why a machine has drifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drift {
    /// A setting of the NodeClass changed.
    NodeClass,
    /// Another image is the right one now.
    Ami,
    /// Other security groups.
    SecurityGroup,
    /// Its subnet is not selected any more.
    Subnet,
    /// Its capacity reservation is not selected any more.
    CapacityReservation,
    /// Another placement group.
    PlacementGroup,
}

impl Drift {
    /// The reason of the condition.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::NodeClass => "NodeClassDrift",
            Self::Ami => "AMIDrift",
            Self::SecurityGroup => "SecurityGroupDrift",
            Self::Subnet => "SubnetDrift",
            Self::CapacityReservation => "CapacityReservationDrift",
            Self::PlacementGroup => "PlacementGroupDrift",
        }
    }
}

/// Drift can't be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unclear {
    /// The claim has no label with its type, or the type is not in the catalog.
    #[error("the instance type {0:?} is not known")]
    Type(String),
    /// The claim's status has no image.
    #[error("the NodeClaim has no imageID")]
    NoImage,
    /// The status lists nothing of this.
    #[error("no {0} exist in the status of the EC2NodeClass")]
    Empty(&'static str),
}

/// Drift that shows without a look at the instance: settings and image.
pub(super) fn without_instance(
    claim: &NodeClaim,
    class: &EC2NodeClass,
    catalog: &Catalog,
) -> Result<Option<Drift>, Unclear> {
    if hash_differs(claim, class) {
        return Ok(Some(Drift::NodeClass));
    }
    let status = class.status.as_ref();
    let amis = status.map(|status| status.amis.as_slice()).unwrap_or_default();
    if amis.is_empty() {
        return Err(Unclear::Empty("amis"));
    }
    let type_name = label(claim, labels::INSTANCE_TYPE).unwrap_or_default();
    let instance_type = catalog
        .instance_types
        .iter()
        .find(|known| known.name == type_name)
        .ok_or_else(|| Unclear::Type(type_name.to_owned()))?;
    let image = claim
        .status
        .as_ref()
        .and_then(|status| status.image_id.as_deref())
        .filter(|image| !image.is_empty())
        .ok_or(Unclear::NoImage)?;
    let drifted = ami_for(amis, instance_type).is_none_or(|ami| ami.id != image);
    Ok(drifted.then_some(Drift::Ami))
}

/// Drift that shows on the instance: network, reservation, placement.
pub(super) fn of_instance(
    claim: &NodeClaim,
    class: &EC2NodeClass,
    instance: &Instance,
    placement_group: Option<&PlacementGroup>,
) -> Result<Option<Drift>, Unclear> {
    let status = class.status.as_ref().ok_or(Unclear::Empty("subnets"))?;
    if status.security_groups.is_empty() {
        return Err(Unclear::Empty("security groups"));
    }
    if status.subnets.is_empty() {
        return Err(Unclear::Empty("subnets"));
    }
    let groups: BTreeSet<&str> =
        status.security_groups.iter().map(|group| group.id.as_str()).collect();
    let has: BTreeSet<&str> = instance.security_groups.iter().map(String::as_str).collect();
    if groups != has {
        return Ok(Some(Drift::SecurityGroup));
    }
    let subnet = instance.subnet_id.as_deref().unwrap_or_default();
    if !status.subnets.iter().any(|known| known.id == subnet) {
        return Ok(Some(Drift::Subnet));
    }
    if let Some(reservation) = &instance.reservation
        && !status.capacity_reservations.iter().any(|known| known.id == reservation.id)
    {
        return Ok(Some(Drift::CapacityReservation));
    }
    let group = label(claim, aws::PLACEMENT_GROUP_ID);
    // Unknown while the group of the class is looked up; a class without a selector has none for
    // sure.
    let known = class.spec.placement_group_selector.is_none() || placement_group.is_some();
    if known && group != placement_group.map(|group| group.id.as_str()) {
        return Ok(Some(Drift::PlacementGroup));
    }
    Ok(None)
}

/// Only hashes of the same version can be compared.
fn hash_differs(claim: &NodeClaim, class: &EC2NodeClass) -> bool {
    let of = |annotations: Option<&std::collections::BTreeMap<String, String>>| {
        let get = |key: &str| annotations.and_then(|all| all.get(key)).cloned();
        get(aws::EC2NODECLASS_HASH).zip(get(aws::EC2NODECLASS_HASH_VERSION))
    };
    match (of(claim.metadata.annotations.as_ref()), of(class.metadata.annotations.as_ref())) {
        (Some((claim_hash, claim_version)), Some((class_hash, class_version))) => {
            claim_version == class_version && claim_hash != class_hash
        }
        _ => false,
    }
}

fn label<'c>(claim: &'c NodeClaim, key: &str) -> Option<&'c str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests;
