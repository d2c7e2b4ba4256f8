//! EC2, where moto is not faithful enough: launches, instances, launch templates, images, instance types, prices, and lists with filters and pages.
//!
//! VPCs, subnets, security groups and what else nobody here handles stay in moto; their lists are filtered and paged here.

use futures::future::BoxFuture;

use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};
use super::world::World;
use super::xml::{Element, render};

mod fleet;
mod images;
mod launch;
mod listed;
mod network;
mod offers;
mod placement_groups;
mod pool;
mod render;
mod reservations;
mod states;
mod tags;
mod template_data;
mod templates;

/// The EC2 service.
#[derive(Clone, Copy, Debug)]
pub struct Ec2;

impl Service for Ec2 {
    fn name(&self) -> &'static str {
        "ec2"
    }

    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "ec2"
    }

    fn call<'a>(
        &'a self,
        request: &'a AwsRequest,
        principal: &'a Principal,
        world: &'a World,
    ) -> BoxFuture<'a, Result<AwsResponse, AwsError>> {
        Box::pin(answer(request, principal, world))
    }
}

async fn answer(
    request: &AwsRequest,
    principal: &Principal,
    world: &World,
) -> Result<AwsResponse, AwsError> {
    match request.action.as_str() {
        // A dry run of these also says whether the parameters are good.
        "CreateFleet" => return fleet::create(request, principal, world).await,
        "RunInstances" => return launch::run(request, principal, world).await,
        _ if request.is_dry_run() => return Err(dry_run()),
        _ => {}
    }
    match request.action.as_str() {
        "CreateLaunchTemplate" => templates::create(request, principal, world),
        "CreateLaunchTemplateVersion" => templates::create_version(request, world),
        "ModifyLaunchTemplate" => templates::modify(request, world),
        "DeleteLaunchTemplate" => templates::delete(request, world),
        "DescribeLaunchTemplates" => templates::describe(request, world),
        "DescribeLaunchTemplateVersions" => templates::describe_versions(request, world),
        "DescribeInstances" => listed::instances(request, world),
        "DescribeInstanceStatus" => listed::statuses(request, world),
        "DescribeVolumes" => listed::volumes(request, world),
        "DescribeNetworkInterfaces" => listed::interfaces(request, world),
        "DescribeSpotInstanceRequests" => listed::spot_requests(request, world),
        "TerminateInstances" | "StopInstances" | "StartInstances" | "RebootInstances" => {
            states::change(request, principal, world)
        }
        "CreateTags" | "DeleteTags" => tags::change(request, world).await,
        "DescribeTags" => tags::describe(request, world).await,
        "GetEbsDefaultKmsKeyId" => Ok(ebs_key(request)),
        "DescribeImages" => images::describe(request, world),
        "DescribeInstanceTypes" => offers::types(request, world),
        "DescribeInstanceTypeOfferings" => offers::offerings(request, world).await,
        "DescribeSpotPriceHistory" => offers::spot_prices(request, world),
        "DescribeCapacityReservations" => reservations::describe(request, world),
        "CreatePlacementGroup" => placement_groups::create(request, world),
        "DeletePlacementGroup" => placement_groups::delete(request, world),
        "DescribePlacementGroups" => placement_groups::describe(request, world),
        "DescribeSubnets" => network::subnets(request, world).await,
        "DescribeSecurityGroups" => network::list(request, world, "securityGroupInfo").await,
        "DescribeVpcs" => network::list(request, world, "vpcSet").await,
        "DeleteSecurityGroup" | "DeleteSubnet" => network::delete(request, world).await,
        _ if !request.params.list("InstanceId").is_empty()
            || request.params.get("InstanceId").is_some() =>
        {
            // moto knows none of our instances, and would say so.
            Err(AwsError::not_implemented(request))
        }
        _ => world.moto().forward(request).await,
    }
}

/// The answer to a dry run that would have been allowed.
fn dry_run() -> AwsError {
    AwsError::new("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

/// The key that EBS uses where nobody has chosen another, which moto does not tell.
fn ebs_key(request: &AwsRequest) -> AwsResponse {
    AwsResponse::ec2(request, &render(&[Element::leaf("kmsKeyId", "alias/aws/ebs")]))
}

fn invalid(message: impl Into<String>) -> AwsError {
    AwsError::new("InvalidParameterValue", message)
}

/// The answer of a list: its items and the token of the next page.
fn list_answer(
    request: &AwsRequest,
    name: &str,
    items: Vec<Vec<Element>>,
    next: Option<String>,
) -> AwsResponse {
    let mut elements = vec![Element::list(name, items)];
    elements.extend(next.map(|token| Element::leaf("nextToken", token)));
    AwsResponse::ec2(request, &render(&elements))
}

/// A time as EC2 writes it: `2026-11-20T10:24:34.000Z`.
fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}
