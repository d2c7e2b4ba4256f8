//! EC2, where moto is not faithful enough: launches, instances, launch templates, images, instance
//! types, prices, and lists with filters and pages.
//!
//! VPCs, subnets, security groups and what else nobody here handles stay in moto; their lists are
//! filtered and paged here.

use super::aws_state::AwsState;
use super::request::{AwsRequest, Params};
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service, signed};
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
mod wish;

/// The EC2 service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ec2;

impl Service for Ec2 {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "ec2"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        answer(request, caller, aws_state).await
    }
}

async fn answer(
    request: &AwsRequest,
    caller: Option<&Principal>,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let principal = signed(caller)?;
    match request.action.as_str() {
        // A dry run of these also says whether the parameters are good.
        "CreateFleet" => return fleet::create(request, principal, aws_state).await,
        "RunInstances" => return launch::run(request, principal, aws_state).await,
        _ if request.is_dry_run() => return Err(dry_run()),
        _ => {}
    }
    match request.action.as_str() {
        "CreateLaunchTemplate" => templates::create(request, principal, aws_state),
        "CreateLaunchTemplateVersion" => templates::create_version(request, aws_state),
        "ModifyLaunchTemplate" => templates::modify(request, aws_state),
        "DeleteLaunchTemplate" => templates::delete(request, aws_state),
        "DescribeLaunchTemplates" => templates::describe(request, aws_state),
        "DescribeLaunchTemplateVersions" => templates::describe_versions(request, aws_state),
        "DescribeInstances" => listed::instances(request, aws_state),
        "DescribeInstanceStatus" => listed::statuses(request, aws_state),
        "DescribeVolumes" => listed::volumes(request, aws_state),
        "DescribeNetworkInterfaces" => listed::interfaces(request, aws_state),
        "DescribeSpotInstanceRequests" => listed::spot_requests(request, aws_state),
        "TerminateInstances" | "StopInstances" | "StartInstances" | "RebootInstances" => {
            states::change(request, principal, aws_state)
        }
        "CreateTags" | "DeleteTags" => tags::change(request, aws_state).await,
        "DescribeTags" => tags::describe(request, aws_state).await,
        "GetEbsDefaultKmsKeyId" => Ok(ebs_key(request)),
        "DescribeImages" => images::describe(request, aws_state),
        "DescribeInstanceTypes" => offers::types(request, aws_state),
        "DescribeInstanceTypeOfferings" => offers::offerings(request, aws_state).await,
        "DescribeSpotPriceHistory" => offers::spot_prices(request, aws_state),
        "DescribeCapacityReservations" => reservations::describe(request, aws_state),
        "CreatePlacementGroup" => placement_groups::create(request, aws_state),
        "DeletePlacementGroup" => placement_groups::delete(request, aws_state),
        "DescribePlacementGroups" => placement_groups::describe(request, aws_state),
        "DescribeSubnets" => network::subnets(request, aws_state).await,
        "DescribeSecurityGroups" => network::list(request, aws_state, "securityGroupInfo").await,
        "DescribeVpcs" => network::list(request, aws_state, "vpcSet").await,
        "DeleteSecurityGroup" | "DeleteSubnet" => network::delete(request, aws_state).await,
        _ if !request.params.list("InstanceId").is_empty()
            || request.params.get("InstanceId").is_some() =>
        {
            // moto knows none of our instances, and would say so.
            Err(AwsError::not_implemented(request))
        }
        _ => aws_state.moto().forward(request).await,
    }
}

/// Launches instances, for another service.
pub(crate) async fn run_instances(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    launch::run(request, principal, aws_state).await
}

/// The answer to a dry run that would have been allowed.
fn dry_run() -> AwsError {
    AwsError::new("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

/// The token by which a repeated request is known; an empty one counts as none.
fn client_token(params: &Params) -> Option<String> {
    params.get("ClientToken").filter(|token| !token.is_empty()).map(str::to_owned)
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
