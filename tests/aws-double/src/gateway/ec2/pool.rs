//! Whether and where something can be launched: the checks that EC2 makes of launch parameters
//! before it looks for capacity.

use std::collections::{BTreeMap, BTreeSet};

use super::super::amis::Ami;
use super::super::aws_state::AwsState;
use super::super::consistency::Kind;
use super::super::iam::SPOT_ROLE;
use super::super::instance::Profile;
use super::super::prices::CapacityType;
use super::super::request::Params;
use super::super::response::AwsError;
use super::super::xml::Element;
use super::images::devices;
use super::invalid;
use super::network::{Network, Subnet};
use super::placement_groups::{self, Target};
use super::wish::Wish;

/// What several pools of one call have in common; asked for once.
pub(super) struct Facts {
    network: Network,
    profiles: BTreeMap<String, Result<Profile, AwsError>>,
    spot_allowed: bool,
}

impl Facts {
    pub(super) async fn read<'a>(
        aws_state: &AwsState,
        wishes: impl Iterator<Item = &'a Wish> + Clone,
    ) -> Result<Self, AwsError> {
        let network = Network::read(aws_state.moto()).await?;
        let mut profiles = BTreeMap::new();
        let names: BTreeSet<String> =
            wishes.clone().filter_map(|wish| profile_name(&wish.params)).collect();
        for name in names {
            let profile = profile(aws_state, &name).await?;
            profiles.insert(name, profile);
        }
        let mut wishes = wishes;
        let spot_allowed = wishes.all(|wish| wish.capacity_type == CapacityType::OnDemand)
            || aws_state.moto().query("iam", "GetRole", [("RoleName", SPOT_ROLE)]).await.is_ok();
        Ok(Self { network, profiles, spot_allowed })
    }
}

fn profile_name(params: &Params) -> Option<String> {
    let name = params.get("IamInstanceProfile.Name").map(str::to_owned);
    name.or_else(|| {
        params
            .get("IamInstanceProfile.Arn")
            .map(|arn| arn.rsplit('/').next().unwrap_or(arn).to_owned())
    })
}

async fn profile(aws_state: &AwsState, name: &str) -> Result<Result<Profile, AwsError>, AwsError> {
    let unknown = || {
        invalid(format!(
            "Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
        ))
    };
    if !aws_state.consistency().is_visible(Kind::InstanceProfile, name) {
        return Ok(Err(unknown()));
    }
    let answer = match aws_state
        .moto()
        .query("iam", "GetInstanceProfile", [("InstanceProfileName", name)])
        .await
    {
        Ok(answer) => answer,
        Err(error) if error.code == "NoSuchEntity" => return Ok(Err(unknown())),
        Err(error) => return Err(error),
    };
    let Some(found) = answer.at(&["GetInstanceProfileResult", "InstanceProfile"]) else {
        return Ok(Err(unknown()));
    };
    let Some(role) = found.items("Roles").first() else {
        let message = format!(
            "Value ({name}) for parameter iamInstanceProfile.name is invalid. IAM Instance Profile has no associated IAM Roles"
        );
        return Ok(Err(invalid(message)));
    };
    let text = |element: &Element, field: &str| element.get(field).unwrap_or_default().to_owned();
    Ok(Ok(Profile {
        arn: text(found, "Arn"),
        id: text(found, "InstanceProfileId"),
        name: name.to_owned(),
        role_arn: text(role, "Arn"),
    }))
}

/// A pool in which a wish can be launched: every parameter checked.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) instance_type: String,
    pub(super) subnet: Subnet,
    pub(super) image: Image,
    pub(super) groups: Vec<(String, String)>,
    pub(super) profile: Option<Profile>,
    pub(super) placement: Option<Target>,
}

#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) id: String,
    pub(super) architecture: String,
    pub(super) root_device: String,
    /// Device and GiB.
    pub(super) devices: Vec<(String, u32)>,
}

impl Image {
    fn of(ami: &Ami) -> Self {
        Self {
            id: ami.id.clone(),
            architecture: ami.arch.as_str().to_owned(),
            root_device: ami.root_device.to_owned(),
            devices: devices(ami)
                .iter()
                .map(|(device, size)| ((*device).to_owned(), *size))
                .collect(),
        }
    }
}

/// Checks a wish as EC2 does at launch.
pub(super) fn pool(aws_state: &AwsState, facts: &Facts, wish: &Wish) -> Result<Pool, AwsError> {
    let params = &wish.params;
    let type_name = params.get("InstanceType").ok_or_else(|| {
        AwsError::new("MissingParameter", "The request must contain the parameter InstanceType")
    })?;
    let instance_type = aws_state.catalog().get(type_name).ok_or_else(|| {
        AwsError::new(
            "InvalidParameterValue",
            format!("Invalid value '{type_name}' for InstanceType."),
        )
    })?;
    let subnet = subnet(facts, params)?.clone();
    if !aws_state.catalog().is_offered(type_name, &subnet.zone) {
        let message = format!(
            "Your requested instance type ({type_name}) is not supported in your requested Availability Zone ({}). Please retry your request by not specifying an Availability Zone or choosing other zones.",
            subnet.zone
        );
        return Err(AwsError::new("Unsupported", message));
    }
    let image_id = params.get("ImageId").ok_or_else(|| {
        AwsError::new("MissingParameter", "The request must contain the parameter ImageId")
    })?;
    let image =
        aws_state.amis().iter().find(|ami| ami.id == image_id).map(Image::of).ok_or_else(|| {
            if image_id.starts_with("ami-") {
                AwsError::new(
                    "InvalidAMIID.NotFound",
                    format!("The image id '[{image_id}]' does not exist"),
                )
            } else {
                AwsError::new(
                    "InvalidAMIID.Malformed",
                    format!("Invalid id: \"{image_id}\" (expecting \"ami-...\")"),
                )
            }
        })?;
    if !instance_type.architectures.contains(&image.architecture) {
        return Err(invalid(format!(
            "The architecture '{}' of the specified instance type does not match the architecture '{}' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and try again.",
            instance_type.architectures.join(","),
            image.architecture
        )));
    }
    let groups = groups(facts, params, &subnet)?;
    let placement = placement_groups::target(aws_state, params)?;
    let profile = profile_name(params).map(|name| facts.profiles[&name].clone()).transpose()?;
    if wish.capacity_type == CapacityType::Spot && !facts.spot_allowed {
        return Err(AwsError::new(
            "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
            "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
        ));
    }
    Ok(Pool { instance_type: type_name.to_owned(), subnet, image, groups, profile, placement })
}

fn subnet<'a>(facts: &'a Facts, params: &Params) -> Result<&'a Subnet, AwsError> {
    let interfaces = params.structs("NetworkInterface");
    let id = params
        .get("SubnetId")
        .or_else(|| interfaces.iter().find_map(|interface| interface.get("SubnetId")));
    if let Some(id) = id {
        let message = format!("The subnet ID '{id}' does not exist");
        let subnet = facts.network.subnets.get(id);
        return subnet.ok_or_else(|| AwsError::new("InvalidSubnetID.NotFound", message));
    }
    let zone = params.get("AvailabilityZone").or_else(|| params.get("Placement.AvailabilityZone"));
    let mut defaults = facts.network.subnets.values().filter(|subnet| subnet.is_default);
    defaults.find(|subnet| zone.is_none_or(|zone| subnet.zone == zone)).ok_or_else(|| {
        let message = "No subnets found for the default VPC. Please specify a subnet.";
        AwsError::new("MissingInput", message)
    })
}

fn groups(
    facts: &Facts,
    params: &Params,
    subnet: &Subnet,
) -> Result<Vec<(String, String)>, AwsError> {
    let mut ids: Vec<String> =
        params.list("SecurityGroupId").into_iter().map(str::to_owned).collect();
    for interface in params.structs("NetworkInterface") {
        ids.extend(interface.list("SecurityGroupId").into_iter().map(str::to_owned));
    }
    if ids.is_empty() {
        let of_vpc = facts
            .network
            .groups
            .iter()
            .find(|(_, group)| group.vpc_id == subnet.vpc_id && group.name == "default");
        ids.extend(of_vpc.map(|(id, _)| id.clone()));
    }
    let mut groups: Vec<(String, String)> = Vec::new();
    for id in ids {
        let Some(group) = facts.network.groups.get(&id) else {
            return Err(AwsError::new(
                "InvalidGroup.NotFound",
                format!("The security group '{id}' does not exist"),
            ));
        };
        if group.vpc_id != subnet.vpc_id {
            let message = format!(
                "Security group {id} and subnet {} belong to different networks.",
                subnet.id
            );
            return Err(AwsError::new("InvalidParameter", message));
        }
        if !groups.iter().any(|(known, _)| *known == id) {
            groups.push((id, group.name.clone()));
        }
    }
    Ok(groups)
}
