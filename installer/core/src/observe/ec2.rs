//! What EC2 holds: the network that nodes are to use, and what the operator made. All that the
//! installer asks EC2, for a plan and for the checks, it asks here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use aws_sdk_ec2::types::{
    AttributeBooleanValue, AvailabilityZone, Filter, Image, Instance, LocationType, RouteTable,
    SecurityGroup, Subnet, VpcAttributeName, VpcEndpoint,
};
use tenon_iam_policies::Scope;

use crate::aws::{Aws, AwsError, Calling, IfThere, all};
use crate::clock;
use crate::ownership::{DISCOVERY_MARK, Tags};

/// The tag of what belongs to a node: the name of its NodePool.
pub const NODE_POOL_TAG: &str = "karpenter.sh/nodepool";
const CLUSTER_NAME_TAG: &str = "eks:eks-cluster-name";

fn filter(name: impl Into<String>, value: &str) -> Filter {
    Filter::builder().name(name).values(value).build()
}

/// What the cluster's operator made carries this tag.
pub fn of_cluster(scope: &Scope) -> Filter {
    owned(&scope.cluster_tag())
}

fn owned(cluster_tag: &str) -> Filter {
    filter(format!("tag:{cluster_tag}"), "owned")
}

/// Which instances are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that are not terminated.
    Alive,
    /// Also those that were terminated in the last hour, as long as EC2 lists them.
    All,
}

/// Ids of the instances that NodePools of this cluster launched and that are not terminated.
pub async fn instances(aws: &Aws, scope: &Scope) -> Result<Vec<String>, AwsError> {
    let found = node_instances(aws, &scope.cluster_tag(), Which::Alive).await?;
    Ok(found.into_iter().filter_map(|instance| instance.instance_id).collect())
}

/// The same with all that EC2 says of them.
pub async fn node_instances(
    aws: &Aws,
    cluster_tag: &str,
    which: Which,
) -> Result<Vec<Instance>, AwsError> {
    let pool = filter("tag-key", NODE_POOL_TAG);
    let mut call = aws.ec2.describe_instances().filters(owned(cluster_tag)).filters(pool);
    if which == Which::Alive {
        let states = ["pending", "running", "stopping", "stopped", "shutting-down"];
        let states = Some(states.map(str::to_owned).to_vec());
        call =
            call.filters(Filter::builder().name("instance-state-name").set_values(states).build());
    }
    let pages = call.into_paginator().items().send();
    let reservations = all(pages).await.calling("ec2:DescribeInstances", "*")?;
    Ok(reservations
        .into_iter()
        .flat_map(|reservation| reservation.instances.unwrap_or_default())
        .collect())
}

/// Which of these instances exist and have not begun to terminate.
pub async fn alive(aws: &Aws, ids: &BTreeSet<&str>) -> Result<BTreeSet<String>, AwsError> {
    // As many as a filter takes.
    const AT_ONCE: usize = 200;
    let mut alive = BTreeSet::new();
    let ids = ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    for ids in ids.chunks(AT_ONCE) {
        let states = ["pending", "running", "stopping", "stopped"].map(str::to_owned).to_vec();
        let of = |name: &str, values: Vec<String>| {
            Filter::builder().name(name).set_values(Some(values)).build()
        };
        let call = aws.ec2.describe_instances().filters(of("instance-id", ids.to_vec()));
        let pages = call.filters(of("instance-state-name", states)).into_paginator().items().send();
        let found = all(pages).await.calling("ec2:DescribeInstances", "*")?;
        let instances = found.into_iter().flat_map(|one| one.instances.unwrap_or_default());
        alive.extend(instances.filter_map(|instance| instance.instance_id));
    }
    Ok(alive)
}

/// In which states EC2 lists an instance: in none, if it does not know it.
pub async fn instance_states(aws: &Aws, id: &str) -> Result<Vec<String>, AwsError> {
    let call = aws.ec2.describe_instances().instance_ids(id).send().await;
    let found = call.calling("ec2:DescribeInstances", id).if_there()?;
    Ok(found
        .and_then(|found| found.reservations)
        .unwrap_or_default()
        .into_iter()
        .flat_map(|reservation| reservation.instances.unwrap_or_default())
        .filter_map(|instance| instance.state.and_then(|state| state.name))
        .map(|state| state.as_str().to_owned())
        .collect())
}

/// Launch templates that the operator made for this cluster: they carry both of its tags.
pub async fn launch_templates(aws: &Aws, scope: &Scope) -> Result<Vec<String>, AwsError> {
    let name = filter(format!("tag:{CLUSTER_NAME_TAG}"), &scope.cluster);
    let pages = aws
        .ec2
        .describe_launch_templates()
        .filters(of_cluster(scope))
        .filters(name)
        .max_results(200)
        .into_paginator()
        .items()
        .send();
    let templates = all(pages).await.calling("ec2:DescribeLaunchTemplates", "*")?;
    Ok(templates.into_iter().filter_map(|template| template.launch_template_id).collect())
}

/// How many launch templates the account has, whoever made them.
pub async fn launch_templates_of_account(aws: &Aws) -> Result<usize, AwsError> {
    let pages = aws.ec2.describe_launch_templates().into_paginator().items().send();
    let found = all(pages).await;
    Ok(found.calling("ec2:DescribeLaunchTemplates", "*")?.len())
}

/// Tags of subnets and security groups by id; what does not exist is an error of EC2's.
pub async fn network(aws: &Aws, ids: &[String]) -> Result<Vec<(String, Tags)>, AwsError> {
    let (groups, subnets): (Vec<_>, Vec<_>) =
        ids.iter().cloned().partition(|id| id.starts_with("sg-"));
    let (subnets, groups) = tokio::try_join!(
        self::subnets(aws, Selection::Ids(subnets)),
        security_groups(aws, Selection::Ids(groups))
    )?;
    Ok(subnets.into_iter().map(subnet_tags).chain(groups.into_iter().map(group_tags)).collect())
}

/// Ids of the subnets and security groups whose discovery tag an installation set.
pub async fn marked(aws: &Aws, install_id: &str) -> Result<Vec<String>, AwsError> {
    let mark = || Selection::With(filter(format!("tag:{DISCOVERY_MARK}"), install_id));
    let (subnets, groups) = tokio::try_join!(subnets(aws, mark()), security_groups(aws, mark()))?;
    let subnets = subnets.into_iter().filter_map(|subnet| subnet.subnet_id);
    Ok(subnets.chain(groups.into_iter().filter_map(|group| group.group_id)).collect())
}

fn ec2_tags(tags: Option<Vec<aws_sdk_ec2::types::Tag>>) -> Tags {
    tags.unwrap_or_default()
        .into_iter()
        .map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()))
        .collect()
}

fn subnet_tags(subnet: Subnet) -> (String, Tags) {
    (subnet.subnet_id.unwrap_or_default(), ec2_tags(subnet.tags))
}

fn group_tags(group: SecurityGroup) -> (String, Tags) {
    (group.group_id.unwrap_or_default(), ec2_tags(group.tags))
}

/// Which subnets or security groups are read.
#[derive(Debug, Clone)]
pub enum Selection {
    /// These; one that does not exist is an error of EC2's, and no id asks for nothing.
    Ids(Vec<String>),
    /// All that a filter lets through.
    With(Filter),
}

/// A selection as a call takes it.
struct Asked {
    ids: Option<Vec<String>>,
    filters: Option<Vec<Filter>>,
    /// The same in words.
    what: String,
}

impl Selection {
    /// What is asked for, unless it is nothing.
    fn asked(self) -> Option<Asked> {
        match self {
            Self::Ids(ids) if ids.is_empty() => None,
            Self::Ids(ids) => {
                let what = ids.join(", ");
                Some(Asked { ids: Some(ids), filters: None, what })
            }
            Self::With(filter) => {
                let filters = Some(vec![filter]);
                Some(Asked { ids: None, filters, what: "*".to_owned() })
            }
        }
    }
}

/// What an instance type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeSize {
    /// vCPUs.
    pub cpu: i64,
    /// Memory in MiB.
    pub memory_mib: i64,
}

/// What instance types have, by name; one that EC2 does not know in this region is not among them.
pub async fn type_sizes(
    aws: &Aws,
    types: &BTreeSet<String>,
) -> Result<BTreeMap<String, TypeSize>, AwsError> {
    if types.is_empty() {
        return Ok(BTreeMap::new());
    }
    // By a filter: an unknown type would be an error otherwise.
    let named = Filter::builder().name("instance-type");
    let named = named.set_values(Some(types.iter().cloned().collect())).build();
    let pages = aws.ec2.describe_instance_types().filters(named).into_paginator().items().send();
    let found = all(pages).await.calling("ec2:DescribeInstanceTypes", "*")?;
    let sizes = found.into_iter().filter_map(|kind| {
        let size = TypeSize {
            cpu: kind.v_cpu_info?.default_v_cpus?.into(),
            memory_mib: kind.memory_info?.size_in_mib?,
        };
        Some((kind.instance_type?.as_str().to_owned(), size))
    });
    Ok(sizes.collect())
}

/// Subnets.
pub async fn subnets(aws: &Aws, which: Selection) -> Result<Vec<Subnet>, AwsError> {
    let Some(Asked { ids, filters, what }) = which.asked() else { return Ok(Vec::new()) };
    let call = aws.ec2.describe_subnets().set_subnet_ids(ids).set_filters(filters);
    let found = all(call.into_paginator().items().send()).await;
    found.calling("ec2:DescribeSubnets", what)
}

/// Security groups.
pub async fn security_groups(aws: &Aws, which: Selection) -> Result<Vec<SecurityGroup>, AwsError> {
    let Some(Asked { ids, filters, what }) = which.asked() else { return Ok(Vec::new()) };
    let call = aws.ec2.describe_security_groups().set_group_ids(ids).set_filters(filters);
    let found = all(call.into_paginator().items().send()).await;
    found.calling("ec2:DescribeSecurityGroups", what)
}

/// Route tables of a VPC.
pub async fn route_tables(aws: &Aws, vpc: &str) -> Result<Vec<RouteTable>, AwsError> {
    let call = aws.ec2.describe_route_tables().filters(filter("vpc-id", vpc));
    let found = all(call.into_paginator().items().send()).await;
    found.calling("ec2:DescribeRouteTables", "*")
}

/// Zones that the account may use.
pub async fn zones(aws: &Aws) -> Result<Vec<AvailabilityZone>, AwsError> {
    let call = aws.ec2.describe_availability_zones().all_availability_zones(false).send().await;
    let found = call.calling("ec2:DescribeAvailabilityZones", "*")?;
    Ok(found.availability_zones.unwrap_or_default())
}

/// Endpoints in a VPC for services of AWS.
pub async fn endpoints(aws: &Aws, vpc: &str) -> Result<Vec<VpcEndpoint>, AwsError> {
    let call = aws.ec2.describe_vpc_endpoints().filters(filter("vpc-id", vpc));
    let found = all(call.into_paginator().items().send()).await;
    found.calling("ec2:DescribeVpcEndpoints", "*")
}

/// Whether instances of a VPC resolve names (`enableDnsSupport`) or have names
/// (`enableDnsHostnames`), if EC2 says it.
pub async fn vpc_attribute(
    aws: &Aws,
    vpc: &str,
    attribute: VpcAttributeName,
) -> Result<Option<bool>, AwsError> {
    let is_support = attribute == VpcAttributeName::EnableDnsSupport;
    let call = aws.ec2.describe_vpc_attribute().vpc_id(vpc).attribute(attribute).send().await;
    let found = call.calling("ec2:DescribeVpcAttribute", vpc)?;
    let value = if is_support { found.enable_dns_support() } else { found.enable_dns_hostnames() };
    Ok(value.and_then(AttributeBooleanValue::value))
}

/// How many instance types with such names each zone offers.
pub async fn offerings(aws: &Aws, types: &[&str]) -> Result<BTreeMap<String, usize>, AwsError> {
    let names = types.iter().map(|name| (*name).to_owned()).collect();
    let types = Filter::builder().name("instance-type").set_values(Some(names)).build();
    let call = aws
        .ec2
        .describe_instance_type_offerings()
        .location_type(LocationType::AvailabilityZone)
        .filters(types);
    let found = all(call.into_paginator().items().send()).await;
    let mut per_zone = BTreeMap::new();
    for offering in found.calling("ec2:DescribeInstanceTypeOfferings", "*")? {
        *per_zone.entry(offering.location.unwrap_or_default()).or_insert(0) += 1;
    }
    Ok(per_zone)
}

/// The most values that EC2 takes in a filter.
const FILTER_VALUES: usize = 200;

/// What a spot instance of each of some types costs per hour now, in USD, by type and zone; `None`
/// for all types.
pub async fn spot_prices(
    aws: &Aws,
    types: Option<Vec<String>>,
) -> Result<BTreeMap<(String, String), f64>, AwsError> {
    if types.as_ref().is_some_and(Vec::is_empty) {
        return Ok(BTreeMap::new());
    }
    let filter = types
        .filter(|types| types.len() <= FILTER_VALUES)
        .map(|types| vec![Filter::builder().name("instance-type").set_values(Some(types)).build()]);
    let call = aws
        .ec2
        .describe_spot_price_history()
        // Only the price of each type and zone that holds now.
        .start_time(SystemTime::from(clock::now()).into())
        .product_descriptions("Linux/UNIX")
        .set_filters(filter);
    let found = all(call.into_paginator().items().send()).await;
    let prices =
        found.calling("ec2:DescribeSpotPriceHistory", "*")?.into_iter().filter_map(|one| {
            let price = one.spot_price()?.parse().ok()?;
            let kind = one.instance_type()?.as_str().to_owned();
            Some(((kind, one.availability_zone?), price))
        });
    Ok(prices.collect())
}

/// Images by id.
pub async fn images(aws: &Aws, ids: Vec<String>) -> Result<Vec<Image>, AwsError> {
    let what = ids.join(", ");
    let call = aws.ec2.describe_images().set_image_ids(Some(ids)).send().await;
    Ok(call.calling("ec2:DescribeImages", what)?.images.unwrap_or_default())
}

/// The newest image of an account (or `self`) whose name matches, if there is one.
pub async fn newest_image(aws: &Aws, owner: &str, name: &str) -> Result<Option<Image>, AwsError> {
    let call = aws.ec2.describe_images().owners(owner).filters(filter("name", name));
    let found = all(call.into_paginator().items().send()).await;
    let found = found.calling("ec2:DescribeImages", name)?;
    Ok(found.into_iter().max_by(|a, b| a.creation_date.cmp(&b.creation_date)))
}

/// Names of all instance types of the region.
pub async fn type_names(aws: &Aws) -> Result<Vec<String>, AwsError> {
    let pages = aws.ec2.describe_instance_types().into_paginator().items().send();
    let found = all(pages).await.calling("ec2:DescribeInstanceTypes", "*")?;
    let names = found.into_iter().filter_map(|kind| Some(kind.instance_type?.as_str().to_owned()));
    Ok(names.collect())
}

/// Keys by which snapshots are encrypted.
pub async fn keys_of_snapshots(aws: &Aws, ids: Vec<String>) -> Result<Vec<String>, AwsError> {
    let what = ids.join(", ");
    let call = aws.ec2.describe_snapshots().set_snapshot_ids(Some(ids)).send().await;
    let found = call.calling("ec2:DescribeSnapshots", what)?.snapshots.unwrap_or_default();
    Ok(found.into_iter().filter_map(|snapshot| snapshot.kms_key_id).collect())
}

/// The key by which EBS encrypts every new volume of the account, if it does.
pub async fn default_volume_key(aws: &Aws) -> Result<Option<String>, AwsError> {
    let call = aws.ec2.get_ebs_encryption_by_default().send().await;
    let found = call.calling("ec2:GetEbsEncryptionByDefault", "*")?;
    if found.ebs_encryption_by_default() != Some(true) {
        return Ok(None);
    }
    let call = aws.ec2.get_ebs_default_kms_key_id().send().await;
    Ok(call.calling("ec2:GetEbsDefaultKmsKeyId", "*")?.kms_key_id)
}
