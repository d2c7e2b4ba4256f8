//! What machines are placed into: subnets, security groups, placement groups.

use super::{Ec2, Filter, filter, filters};
use crate::aws::error::Result;

/// As DescribeSubnets answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    /// ID.
    pub id: String,
    /// Zone.
    pub zone: String,
    /// Zone id.
    pub zone_id: Option<String>,
    /// Free IPv4 addresses.
    pub free_ips: i64,
}

/// As DescribeSecurityGroups answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecurityGroup {
    /// ID.
    pub id: String,
    /// Group name.
    pub name: Option<String>,
}

/// As DescribePlacementGroups answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacementGroup {
    /// ID.
    pub id: String,
    /// `cluster`, `partition` or `spread`.
    pub strategy: String,
    /// How many partitions it has; zero with the other strategies.
    pub partitions: u32,
}

/// Subnets that match all filters.
pub(crate) async fn subnets(ec2: &Ec2, wanted: &[Filter]) -> Result<Vec<Subnet>> {
    const OPERATION: &str = "DescribeSubnets";
    let mut pages = ec2
        .describe_subnets()
        .set_filters(filters(wanted))
        .max_results(500)
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = ec2.page(OPERATION, pages.next()).await {
        let page = page?;
        for subnet in page.subnets() {
            if let (Some(id), Some(zone)) = (&subnet.subnet_id, &subnet.availability_zone) {
                found.push(Subnet {
                    id: id.clone(),
                    zone: zone.clone(),
                    zone_id: subnet.availability_zone_id.clone(),
                    free_ips: subnet.available_ip_address_count.unwrap_or(0).into(),
                });
            }
        }
    }
    Ok(found)
}

/// Security groups that match all filters.
pub(crate) async fn security_groups(ec2: &Ec2, wanted: &[Filter]) -> Result<Vec<SecurityGroup>> {
    const OPERATION: &str = "DescribeSecurityGroups";
    let mut pages = ec2
        .describe_security_groups()
        .set_filters(filters(wanted))
        .max_results(500)
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = ec2.page(OPERATION, pages.next()).await {
        let page = page?;
        for group in page.security_groups() {
            if let Some(id) = &group.group_id {
                found.push(SecurityGroup { id: id.clone(), name: group.group_name.clone() });
            }
        }
    }
    Ok(found)
}

/// What a placement group is looked up by. EC2 has no filter for the ID, and by its ID a group is
/// found that another account shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupKey<'a> {
    /// `pg-…`.
    Id(&'a str),
    /// Name of the placement group.
    Name(&'a str),
}

/// The placement groups with this ID or name that are available.
pub(crate) async fn placement_groups(ec2: &Ec2, key: GroupKey<'_>) -> Result<Vec<PlacementGroup>> {
    let available = [filter("state", ["available"])];
    let asked = ec2.describe_placement_groups().set_filters(filters(&available));
    let sent = match key {
        GroupKey::Id(id) => asked.group_ids(id).send(),
        GroupKey::Name(name) => asked.group_names(name).send(),
    };
    match ec2.call("DescribePlacementGroups", sent).await {
        Ok(answer) => Ok(answer
            .placement_groups()
            .iter()
            .filter_map(|group| {
                let strategy = group.strategy.as_ref().map(|strategy| strategy.as_str().to_owned());
                let partitions = group
                    .partition_count
                    .filter(|_| strategy.as_deref() == Some("partition"))
                    .and_then(|count| u32::try_from(count).ok())
                    .unwrap_or(0);
                Some(PlacementGroup {
                    id: group.group_id.clone()?,
                    strategy: strategy?,
                    partitions,
                })
            })
            .collect()),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
