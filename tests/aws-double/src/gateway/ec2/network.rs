//! Subnets, security groups and VPCs: moto's, with AWS's filters and pages, free addresses less
//! those of our instances, and refusal to delete what is in use.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::super::aws_state::AwsState;
use super::super::filters::{page, select, tag_filter};
use super::super::instance::State;
use super::super::moto_client::MotoClient;
use super::super::request::{AwsRequest, Params};
use super::super::response::{AwsError, AwsResponse};
use super::super::xml::Element;
use super::list_answer;

/// AWS keeps the first four addresses and the last of each subnet.
pub(super) const RESERVED_ADDRESSES: u32 = 5;

/// A subnet, as launches need it.
#[derive(Clone, Debug)]
pub(super) struct Subnet {
    pub(super) id: String,
    pub(super) zone: String,
    pub(super) vpc_id: String,
    pub(super) network: Ipv4Addr,
    pub(super) prefix: u8,
    pub(super) is_default: bool,
}

impl Subnet {
    /// Addresses in it that instances can have, lowest first.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + Clone + use<> {
        let first = u32::from(self.network);
        let size = 1_u32 << (32 - u32::from(self.prefix.clamp(16, 28)));
        (4..size - 1).map(move |offset| Ipv4Addr::from(first + offset))
    }
}

/// A security group, as launches need it.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) vpc_id: String,
}

/// The network now.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    pub(super) subnets: BTreeMap<String, Subnet>,
    pub(super) groups: BTreeMap<String, Group>,
}

impl Network {
    pub(super) async fn read(moto: &MotoClient) -> Result<Self, AwsError> {
        let (subnets, groups) = futures::try_join!(
            moto.query("ec2", "DescribeSubnets", []),
            moto.query("ec2", "DescribeSecurityGroups", [])
        )?;
        let subnets = subnets
            .items("subnetSet")
            .iter()
            .filter_map(subnet)
            .map(|subnet| (subnet.id.clone(), subnet))
            .collect();
        let groups = groups
            .items("securityGroupInfo")
            .iter()
            .filter_map(|item| {
                let group = Group {
                    name: item.get("groupName")?.to_owned(),
                    vpc_id: item.get("vpcId")?.to_owned(),
                };
                Some((item.get("groupId")?.to_owned(), group))
            })
            .collect();
        Ok(Self { subnets, groups })
    }
}

fn subnet(item: &Element) -> Option<Subnet> {
    let (network, prefix) = item.get("cidrBlock")?.split_once('/')?;
    Some(Subnet {
        id: item.get("subnetId")?.to_owned(),
        zone: item.get("availabilityZone")?.to_owned(),
        vpc_id: item.get("vpcId")?.to_owned(),
        network: network.parse().ok()?,
        prefix: prefix.parse().ok()?,
        is_default: item.get("defaultForAz") == Some("true"),
    })
}

pub(super) async fn subnets(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let (mut items, next) = listed(request, aws_state, "subnetSet").await?;
    for item in &mut items {
        let Some(subnet) = subnet(item) else { continue };
        let foreign = aws_state.instances().foreign_addresses();
        let mut in_use = aws_state.instances().addresses(&subnet.id);
        in_use.extend(subnet.addresses().filter(|address| foreign.contains(address)));
        let in_use = u32::try_from(in_use.len()).unwrap_or(u32::MAX);
        let free = (1_u32 << (32 - u32::from(subnet.prefix)))
            .saturating_sub(RESERVED_ADDRESSES)
            .saturating_sub(in_use);
        item.set("availableIpAddressCount", free.to_string());
    }
    Ok(list_answer(
        request,
        "subnetSet",
        items.into_iter().map(|item| item.children).collect(),
        next,
    ))
}

pub(super) async fn list(
    request: &AwsRequest,
    aws_state: &AwsState,
    set: &str,
) -> Result<AwsResponse, AwsError> {
    let (items, next) = listed(request, aws_state, set).await?;
    Ok(list_answer(request, set, items.into_iter().map(|item| item.children).collect(), next))
}

/// Everything that moto lists for this call, with tag filters and pages applied here: moto joins
/// several keys of `tag-key` with "and", and knows no pages.
async fn listed(
    request: &AwsRequest,
    aws_state: &AwsState,
    set: &str,
) -> Result<(Vec<Element>, Option<String>), AwsError> {
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for (name, values) in request.params.filters() {
        if name.starts_with("tag:") || name == "tag-key" || name == "tag-value" {
            &mut ours
        } else {
            &mut theirs
        }
        .push((name, values));
    }
    let mut params = Params::of(request.params.iter().filter(|(name, _)| {
        !name.starts_with("Filter.")
            && !name.starts_with("X-Amz-")
            && !matches!(*name, "MaxResults" | "NextToken")
    }));
    for (index, (name, values)) in theirs.iter().enumerate() {
        params.set(format!("Filter.{}.Name", index + 1), name);
        for (value_index, value) in values.iter().enumerate() {
            params.set(format!("Filter.{}.Value.{}", index + 1, value_index + 1), value);
        }
    }
    let mut answer = aws_state.moto().query_params("ec2", &request.action, &params).await?;
    let items =
        answer.child_mut(set).map(|list| std::mem::take(&mut list.children)).unwrap_or_default();
    let id_field = match set {
        "subnetSet" => "subnetId",
        "vpcSet" => "vpcId",
        _ => "groupId",
    };
    let kept = select(items, &ours, |item, name, values| {
        let id = item.get(id_field).unwrap_or_default();
        let tags = aws_state.consistency().visible_tags(id, item.tags());
        tag_filter(name, values, &tags)
    })?;
    page(kept, &request.params, (5, 1000), None)
}

/// Deletes a subnet or a security group unless an instance uses it; moto would delete it.
pub(super) async fn delete(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let all = aws_state.instances().all();
    let mut present = all.values().filter(|instance| instance.state != State::Terminated);
    if let Some(id) = request.params.get("GroupId")
        && present
            .clone()
            .any(|instance| instance.security_groups.iter().any(|(group, _)| group == id))
    {
        return Err(AwsError::new(
            "DependencyViolation",
            format!("resource {id} has a dependent object"),
        ));
    }
    if let Some(id) = request.params.get("SubnetId")
        && present.any(|instance| instance.subnet_id == id)
    {
        return Err(AwsError::new(
            "DependencyViolation",
            format!("The subnet '{id}' has dependencies and cannot be deleted."),
        ));
    }
    aws_state.moto().forward(request).await
}
