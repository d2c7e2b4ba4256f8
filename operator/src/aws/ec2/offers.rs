//! What EC2 offers in the region: types, the zones that have them, and what spot costs.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types as sdk;
use jiff::Timestamp;
use tenon_state::ec2::type_info::TypeInfo;

use super::type_info::from_sdk;
use super::{Ec2, filter, filters};
use crate::aws::error::Result;

/// Instance types that can run Kubernetes nodes.
pub(crate) async fn instance_types(ec2: &Ec2) -> Result<Vec<TypeInfo>> {
    const OPERATION: &str = "DescribeInstanceTypes";
    let wanted = [
        filter("supported-virtualization-type", ["hvm"]),
        filter("processor-info.supported-architecture", ["x86_64", "arm64"]),
    ];
    let mut pages = ec2
        .describe_instance_types()
        .set_filters(filters(&wanted))
        .max_results(100)
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = ec2.page(OPERATION, pages.next()).await {
        let page = page?;
        found.extend(page.instance_types().iter().filter_map(from_sdk));
    }
    Ok(found)
}

/// The zones in which each instance type is offered.
pub(crate) async fn instance_type_zones(ec2: &Ec2) -> Result<BTreeMap<String, BTreeSet<String>>> {
    const OPERATION: &str = "DescribeInstanceTypeOfferings";
    let mut pages = ec2
        .describe_instance_type_offerings()
        .location_type(sdk::LocationType::AvailabilityZone)
        .max_results(1000)
        .into_paginator()
        .send();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(page) = ec2.page(OPERATION, pages.next()).await {
        let page = page?;
        for offering in page.instance_type_offerings() {
            if let (Some(name), Some(zone)) = (&offering.instance_type, &offering.location) {
                found.entry(name.as_str().to_owned()).or_default().insert(zone.clone());
            }
        }
    }
    Ok(found)
}

/// Newest spot price in dollars per hour by instance type and zone.
pub(crate) async fn spot_prices(
    ec2: &Ec2,
    now: Timestamp,
) -> Result<BTreeMap<String, BTreeMap<String, f64>>> {
    const OPERATION: &str = "DescribeSpotPriceHistory";
    let mut pages = ec2
        .describe_spot_price_history()
        .product_descriptions("Linux/UNIX")
        .product_descriptions("Linux/UNIX (Amazon VPC)")
        .start_time(aws_smithy_types::DateTime::from_secs(now.as_second()))
        .max_results(2000)
        .into_paginator()
        .send();
    let mut found: BTreeMap<String, BTreeMap<String, (i64, f64)>> = BTreeMap::new();
    while let Some(page) = ec2.page(OPERATION, pages.next()).await {
        let page = page?;
        for price in page.spot_price_history() {
            let (Some(name), Some(zone), Some(usd)) = (
                &price.instance_type,
                &price.availability_zone,
                price.spot_price.as_deref().and_then(|price| price.parse::<f64>().ok()),
            ) else {
                continue;
            };
            let at = price.timestamp.map_or(0, |at| at.secs());
            let newest = found
                .entry(name.as_str().to_owned())
                .or_default()
                .entry(zone.clone())
                .or_insert((at, usd));
            if at > newest.0 {
                *newest = (at, usd);
            }
        }
    }
    Ok(found
        .into_iter()
        .map(|(name, zones)| {
            (name, zones.into_iter().map(|(zone, (_, usd))| (zone, usd)).collect())
        })
        .collect())
}
