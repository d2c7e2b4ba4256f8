//! EC2: which resources a call reads, makes, tags and passes on.

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, Resolver, Tags};
use crate::gateway::request::Params;
use crate::gateway::response::AwsError;
use crate::gateway::templates::Template;

/// What an action creates, as the resource type in ARNs and tag specifications.
const CREATES: [(&str, &str); 10] = [
    ("CreateVpc", "vpc"),
    ("CreateSubnet", "subnet"),
    ("CreateSecurityGroup", "security-group"),
    ("CreateInternetGateway", "internet-gateway"),
    ("CreateRouteTable", "route-table"),
    ("CreateVolume", "volume"),
    ("CreateSnapshot", "snapshot"),
    ("CreateVpcEndpoint", "vpc-endpoint"),
    ("CreatePlacementGroup", "placement-group"),
    ("CreateCapacityReservation", "capacity-reservation"),
];

pub(super) async fn checks(resolver: &Resolver<'_>) -> Result<Vec<Check>, AwsError> {
    let request = resolver.request;
    let params = &request.params;
    match request.action.as_str() {
        action if action.starts_with("Describe") || action.starts_with("Get") => {
            Ok(vec![resolver.own("*")])
        }
        "RunInstances" => {
            let mut launch = Launch::default();
            launch.read(params);
            if !params.structure("LaunchTemplate").is_empty() {
                launch.template(resolver, &params.structure("LaunchTemplate"));
            }
            for (kind, key, value) in request.request_tags() {
                launch.tags.entry(kind).or_default().insert(key, value);
            }
            launch.checks(resolver).await
        }
        "CreateFleet" => create_fleet(resolver).await,
        "CreateLaunchTemplate" => {
            let tags = tags_for(resolver, "launch-template");
            let arn = resolver.arn("ec2", "launch-template/*");
            Ok(created(resolver, "ec2:CreateLaunchTemplate", &arn, &tags, "CreateLaunchTemplate"))
        }
        "DeleteLaunchTemplate"
        | "CreateLaunchTemplateVersion"
        | "DeleteLaunchTemplateVersions"
        | "ModifyLaunchTemplate" => {
            // What does not exist has no tags to look at; EC2 then says so instead of refusing.
            let template = resolver.aws_state.templates().named_by(params).ok();
            Ok(template
                .iter()
                .map(|template| on_template(resolver, &request.iam_action(), template))
                .collect())
        }
        "TerminateInstances" | "StopInstances" | "StartInstances" | "RebootInstances" => {
            existing(resolver, &params.list("InstanceId")).await
        }
        "ModifyInstanceMetadataOptions" | "ModifyInstanceAttribute" => {
            existing(resolver, &params.get("InstanceId").into_iter().collect::<Vec<_>>()).await
        }
        "CreateTags" | "DeleteTags" => {
            let tags = params.tags("Tag");
            let checks = existing(resolver, &params.list("ResourceId")).await?;
            Ok(checks
                .into_iter()
                .map(|check| check.tagging(tags.iter().map(|(key, value)| (key, value))))
                .collect())
        }
        "DeleteSubnet" => {
            existing(resolver, &params.get("SubnetId").into_iter().collect::<Vec<_>>()).await
        }
        "DeleteVpc" => {
            existing(resolver, &params.get("VpcId").into_iter().collect::<Vec<_>>()).await
        }
        "DeleteVolume" => {
            existing(resolver, &params.get("VolumeId").into_iter().collect::<Vec<_>>()).await
        }
        "DeleteNetworkInterface" => {
            existing(resolver, &params.get("NetworkInterfaceId").into_iter().collect::<Vec<_>>())
                .await
        }
        "DeleteSecurityGroup"
        | "AuthorizeSecurityGroupIngress"
        | "AuthorizeSecurityGroupEgress"
        | "RevokeSecurityGroupIngress" => {
            existing(resolver, &params.get("GroupId").into_iter().collect::<Vec<_>>()).await
        }
        action => match CREATES.iter().find(|(creates, _)| *creates == action) {
            Some((_, kind)) => {
                let tags = tags_for(resolver, kind);
                let arn = resolver.arn("ec2", &format!("{kind}/*"));
                Ok(created(resolver, &request.iam_action(), &arn, &tags, action))
            }
            None => Ok(vec![resolver.own("*")]),
        },
    }
}

async fn create_fleet(resolver: &Resolver<'_>) -> Result<Vec<Check>, AwsError> {
    let request = resolver.request;
    let spot =
        request.params.get("TargetCapacitySpecification.DefaultTargetCapacityType") == Some("spot");
    let mut launch = Launch { spot, ..Launch::default() };
    let mut templates = Vec::new();
    for config in request.params.structs("LaunchTemplateConfigs") {
        templates
            .extend(launch.template(resolver, &config.structure("LaunchTemplateSpecification")));
        for overrides in config.structs("Overrides") {
            launch.read(&overrides);
        }
    }
    for (kind, key, value) in request.request_tags() {
        launch.tags.entry(kind).or_default().insert(key, value);
    }
    let fleet_tags = launch.tags.remove("fleet").unwrap_or_default();
    let fleet = resolver.arn("ec2", "fleet/*");
    let mut checks = created(resolver, "ec2:CreateFleet", &fleet, &fleet_tags, "CreateFleet");
    checks.extend(
        templates.iter().map(|template| on_template(resolver, "ec2:CreateFleet", template)),
    );
    checks.extend(launch.checks(resolver).await?);
    Ok(checks)
}

/// All that a launch touches, put together from the call, its launch templates and overrides.
#[derive(Default)]
struct Launch {
    images: BTreeSet<String>,
    snapshots: BTreeSet<String>,
    subnets: BTreeSet<String>,
    groups: BTreeSet<String>,
    key_pairs: BTreeSet<String>,
    placement_groups: BTreeSet<String>,
    reservations: BTreeSet<String>,
    profiles: BTreeSet<String>,
    templates: Vec<Template>,
    instance_types: BTreeSet<String>,
    spot: bool,
    /// Tags by the type of resource that is made.
    tags: BTreeMap<String, Tags>,
}

impl Launch {
    /// Reads launch parameters: those of RunInstances, of a template's data, or of a fleet's
    /// override, which share their names.
    fn read(&mut self, params: &Params) {
        let own = |value: &str| value.to_owned();
        self.images.extend(params.get("ImageId").map(own));
        self.subnets.extend(params.get("SubnetId").map(own));
        self.groups.extend(params.list("SecurityGroupId").into_iter().map(own));
        self.key_pairs.extend(params.get("KeyName").map(own));
        self.instance_types.extend(params.get("InstanceType").map(own));
        self.placement_groups
            .extend(params.get("Placement.GroupId").or(params.get("Placement.GroupName")).map(own));
        let reservation =
            "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
        self.reservations.extend(params.get(reservation).map(own));
        for device in params.structs("BlockDeviceMapping") {
            self.snapshots.extend(device.get("Ebs.SnapshotId").map(own));
        }
        for interface in params.structs("NetworkInterface") {
            self.subnets.extend(interface.get("SubnetId").map(own));
            self.groups.extend(interface.list("SecurityGroupId").into_iter().map(own));
        }
        self.profiles.extend(params.get("IamInstanceProfile.Name").map(own));
        let of_arn = |arn: &str| arn.rsplit('/').next().map(own);
        self.profiles.extend(params.get("IamInstanceProfile.Arn").and_then(of_arn));
        self.spot |= params.get("InstanceMarketOptions.MarketType") == Some("spot");
    }

    /// Reads the launch template that `params` names; `None` when there is no such template or
    /// version, which EC2 says itself.
    fn template(&mut self, resolver: &Resolver<'_>, params: &Params) -> Option<Template> {
        let template = resolver.aws_state.templates().named_by(params).ok()?;
        let (_, data) = template.version(params.get("Version")).ok()?;
        self.read(data);
        for spec in data.structs("TagSpecification") {
            let kind = spec.get("ResourceType").unwrap_or_default().to_owned();
            self.tags.entry(kind).or_default().extend(spec.tags("Tag"));
        }
        self.templates.push(template.clone());
        Some(template)
    }

    async fn checks(&self, resolver: &Resolver<'_>) -> Result<Vec<Check>, AwsError> {
        const RUN: &str = "ec2:RunInstances";
        let with_types = |mut check: Check| {
            for instance_type in &self.instance_types {
                check.context.add("ec2:InstanceType", instance_type);
            }
            check
        };
        let mut checks = Vec::new();
        for image in &self.images {
            let tags = resolver.aws_state.ec2_tags(image).unwrap_or_default();
            checks.push(resolver.check(RUN, public(resolver, "image", image)).tagged(tags));
        }
        for snapshot in &self.snapshots {
            checks.push(resolver.check(RUN, public(resolver, "snapshot", snapshot)));
        }
        checks.extend(on_network(resolver, RUN, "subnet", &self.subnets).await?);
        checks.extend(on_network(resolver, RUN, "security-group", &self.groups).await?);
        checks.extend(self.templates.iter().map(|template| on_template(resolver, RUN, template)));
        for (kind, names) in [
            ("key-pair", &self.key_pairs),
            ("placement-group", &self.placement_groups),
            ("capacity-reservation", &self.reservations),
        ] {
            checks.extend(
                names.iter().map(|name| {
                    resolver.check(RUN, resolver.arn("ec2", &format!("{kind}/{name}")))
                }),
            );
        }
        let market = if self.spot { "spot" } else { "on-demand" };
        let none = Tags::new();
        for kind in ["instance", "volume", "network-interface", "spot-instances-request"] {
            if kind == "spot-instances-request" && !self.spot {
                continue;
            }
            let arn = resolver.arn("ec2", &format!("{kind}/*"));
            let tags = self.tags.get(kind).unwrap_or(&none);
            let made = created(resolver, RUN, &arn, tags, "RunInstances");
            checks.extend(
                made.into_iter()
                    .map(|check| with_types(check.with("ec2:InstanceMarketType", market))),
            );
        }
        for profile in &self.profiles {
            let profile = resolver.policies.instance_profile(profile, resolver.aws_state).await?;
            if let Some(role) = profile.and_then(|profile| profile.role_arn) {
                checks.push(resolver.pass_role(&role, &resolver.ec2_service()));
            }
        }
        Ok(checks)
    }
}

/// An action that makes something with tags: the action itself, and tagging what it makes.
fn created(
    resolver: &Resolver<'_>,
    action: &str,
    arn: &str,
    tags: &Tags,
    create_action: &str,
) -> Vec<Check> {
    let mut checks = vec![resolver.check(action, arn).tagging(tags)];
    if !tags.is_empty() {
        checks.push(
            resolver
                .check("ec2:CreateTags", arn)
                .tagging(tags)
                .with("ec2:CreateAction", create_action),
        );
    }
    checks
}

fn on_template(resolver: &Resolver<'_>, action: &str, template: &Template) -> Check {
    resolver
        .check(action, resolver.arn("ec2", &format!("launch-template/{}", template.id)))
        .tagged(&template.tags)
}

/// Subnets or security groups, with their tags and VPC, in one question to moto.
async fn on_network(
    resolver: &Resolver<'_>,
    action: &str,
    kind: &str,
    ids: &BTreeSet<String>,
) -> Result<Vec<Check>, AwsError> {
    if ids.is_empty() {
        return Ok(vec![]);
    }
    let (describe, filter, list, id_field) = match kind {
        "subnet" => ("DescribeSubnets", "subnet-id", "subnetSet", "subnetId"),
        _ => ("DescribeSecurityGroups", "group-id", "securityGroupInfo", "groupId"),
    };
    let mut params = vec![("Filter.1.Name".to_owned(), filter.to_owned())];
    params.extend(
        ids.iter()
            .enumerate()
            .map(|(index, id)| (format!("Filter.1.Value.{}", index + 1), id.clone())),
    );
    let params = params.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let answer = resolver.aws_state.moto().query("ec2", describe, params).await?;
    let found = answer.items(list);
    Ok(ids
        .iter()
        .map(|id| {
            let check = resolver.check(action, resolver.arn("ec2", &format!("{kind}/{id}")));
            let Some(item) = found.iter().find(|item| item.get(id_field) == Some(id)) else {
                return check;
            };
            let vpc =
                resolver.arn("ec2", &format!("vpc/{}", item.get("vpcId").unwrap_or_default()));
            check.tagged(item.tags()).with("ec2:Vpc", vpc)
        })
        .collect())
}

/// The call's own action on resources that exist. Those that don't are left out: EC2 says so
/// itself, before it looks at tags that nothing has.
async fn existing(resolver: &Resolver<'_>, ids: &[&str]) -> Result<Vec<Check>, AwsError> {
    let action = resolver.request.iam_action();
    let mut checks = Vec::new();
    for id in ids {
        let kind = kind_of(id);
        match kind {
            "subnet" | "security-group" => {
                checks.extend(
                    on_network(resolver, &action, kind, &BTreeSet::from([(*id).to_owned()]))
                        .await?,
                );
            }
            "instance"
            | "launch-template"
            | "volume"
            | "network-interface"
            | "spot-instances-request"
            | "fleet" => {
                if let Some(tags) = resolver.aws_state.ec2_tags(id) {
                    checks.push(
                        resolver
                            .check(&action, resolver.arn("ec2", &format!("{kind}/{id}")))
                            .tagged(tags),
                    );
                }
            }
            "image" | "snapshot" => {
                let arn = public(resolver, kind, id);
                checks.push(
                    resolver
                        .check(&action, arn)
                        .tagged(resolver.aws_state.ec2_tags(id).unwrap_or_default()),
                );
            }
            _ => {
                let params = [("Filter.1.Name", "resource-id"), ("Filter.1.Value.1", *id)];
                let answer = resolver.aws_state.moto().query("ec2", "DescribeTags", params).await?;
                let tags = answer
                    .items("tagSet")
                    .iter()
                    .filter_map(|tag| Some((tag.get("key")?, tag.get("value")?)));
                checks.push(
                    resolver
                        .check(&action, resolver.arn("ec2", &format!("{kind}/{id}")))
                        .tagged(tags),
                );
            }
        }
    }
    Ok(checks)
}

/// The resource type that an ID belongs to.
fn kind_of(id: &str) -> &str {
    match id.split_once('-').map_or("", |(prefix, _)| prefix) {
        "i" => "instance",
        "lt" => "launch-template",
        "sg" => "security-group",
        "vol" => "volume",
        "eni" => "network-interface",
        "sir" => "spot-instances-request",
        "ami" => "image",
        "snap" => "snapshot",
        "rtb" => "route-table",
        "igw" => "internet-gateway",
        "nat" => "natgateway",
        "vpce" => "vpc-endpoint",
        "cr" => "capacity-reservation",
        "pg" => "placement-group",
        other => other,
    }
}

/// The tags that the call sets on what it makes of one type.
fn tags_for(resolver: &Resolver<'_>, kind: &str) -> Tags {
    let tags = resolver.request.request_tags().into_iter();
    tags.filter(|(of, ..)| of == kind).map(|(_, key, value)| (key, value)).collect()
}

/// ARN of an image or a snapshot, which belong to no account.
fn public(resolver: &Resolver<'_>, kind: &str, id: &str) -> String {
    let (partition, region) = (resolver.aws_state.partition(), &resolver.request.region);
    format!("arn:{partition}:ec2:{region}::{kind}/{id}")
}
