//! Instance types, where they are offered and what spot costs: answered from memory, filtered and
//! paged.

use std::fmt::Write as _;

use super::super::aws_state::AwsState;
use super::super::catalog::InstanceType;
use super::super::filters::{any_matches, page, select};
use super::super::request::AwsRequest;
use super::super::response::{AwsError, AwsResponse};
use super::super::xml::{Element, escape};
use super::{invalid, list_answer, time};

pub(super) fn types(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let named = params.list("InstanceType");
    let mut found: Vec<&InstanceType> = aws_state.catalog().iter().collect();
    if !named.is_empty() {
        let unknown: Vec<&str> =
            named.iter().filter(|name| aws_state.catalog().get(name).is_none()).copied().collect();
        if !unknown.is_empty() {
            return Err(AwsError::new(
                "InvalidInstanceType",
                format!(
                    "The following supplied instance types do not exist: [{}]",
                    unknown.join(", ")
                ),
            ));
        }
        found.retain(|found| named.contains(&found.name.as_str()));
    }
    let found = select(found, &params.filters(), |found, name, values| {
        let is = |text: &str| Some(any_matches(values, text));
        let one_of = |texts: &[String]| Some(texts.iter().any(|text| any_matches(values, text)));
        match name {
            "instance-type" => is(&found.name),
            "supported-virtualization-type" => one_of(&found.virtualization),
            "processor-info.supported-architecture" => one_of(&found.architectures),
            "supported-usage-class" => one_of(&found.usage_classes),
            "bare-metal" => is(&found.bare_metal.to_string()),
            "current-generation" => is(&found.current_generation.to_string()),
            "hypervisor" => is(&found.hypervisor),
            "vcpu-info.default-vcpus" => is(&found.vcpus.to_string()),
            "memory-info.size-in-mib" => is(&found.memory_mib.to_string()),
            "instance-storage-supported" => is(&(found.instance_storage_gb > 0).to_string()),
            "network-info.maximum-network-interfaces" => is(&found.max_interfaces.to_string()),
            _ => None,
        }
    })?;
    let (found, next) = page(found, params, (5, 100), Some(100))?;
    let mut inner = String::from("<instanceTypeSet>");
    for found in found {
        inner.push_str(&found.xml);
    }
    inner.push_str("</instanceTypeSet>");
    if let Some(next) = next {
        let _ = write!(inner, "<nextToken>{}</nextToken>", escape(&next));
    }
    Ok(AwsResponse::ec2(request, &inner))
}

pub(super) async fn offerings(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let kind = params.get("LocationType").unwrap_or("region").to_owned();
    let mut zone_ids = Vec::new();
    if kind == "availability-zone-id" {
        let zones = aws_state.moto().query("ec2", "DescribeAvailabilityZones", []).await?;
        zone_ids.extend(zones.items("availabilityZoneInfo").iter().filter_map(|zone| {
            Some((zone.get("zoneName")?.to_owned(), zone.get("zoneId")?.to_owned()))
        }));
    }
    let mut rows: Vec<(&str, String)> = Vec::new();
    for found in aws_state.catalog().iter() {
        let zones = aws_state.catalog().zones(&found.name);
        match kind.as_str() {
            "region" => rows.push((&found.name, aws_state.region().to_owned())),
            "availability-zone" => {
                rows.extend(zones.map(|zone| (found.name.as_str(), zone.to_owned())));
            }
            "availability-zone-id" => rows.extend(zones.filter_map(|zone| {
                let (_, id) = zone_ids.iter().find(|(name, _)| name == zone)?;
                Some((found.name.as_str(), id.clone()))
            })),
            other => {
                return Err(invalid(format!(
                    "Value ({other}) for parameter LocationType is invalid."
                )));
            }
        }
    }
    let rows = select(rows, &params.filters(), |(name, location), filter, values| match filter {
        "instance-type" => Some(any_matches(values, name)),
        "location" => Some(any_matches(values, location)),
        _ => None,
    })?;
    let (rows, next) = page(rows, params, (5, 1000), Some(1000))?;
    let items = rows.into_iter().map(|(name, location)| {
        vec![
            Element::leaf("instanceType", name),
            Element::leaf("locationType", &kind),
            Element::leaf("location", location),
        ]
    });
    Ok(list_answer(request, "instanceTypeOfferingSet", items.collect(), next))
}

pub(super) fn spot_prices(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let named = params.list("InstanceType");
    let zone_wanted = params.get("AvailabilityZone");
    let mut products: Vec<String> =
        params.list("ProductDescription").into_iter().map(str::to_owned).collect();
    for (name, values) in params.filters() {
        if name == "product-description" {
            products.extend(values);
        }
    }
    if products.is_empty() {
        products.push("*".to_owned());
    }
    // A VPC-only region tells its prices under this name only.
    let product = "Linux/UNIX";
    let mut rows = Vec::new();
    if any_matches(&products, product) {
        for found in aws_state.catalog().iter() {
            if !found.usage_classes.iter().any(|class| class == "spot")
                || (!named.is_empty() && !named.contains(&found.name.as_str()))
            {
                continue;
            }
            let zones = aws_state
                .catalog()
                .zones(&found.name)
                .filter(|zone| zone_wanted.is_none_or(|wanted| wanted == *zone));
            rows.extend(zones.map(|zone| (found, zone)));
        }
    }
    let rows = select(rows, &params.filters(), |(found, zone), name, values| match name {
        "instance-type" => Some(any_matches(values, &found.name)),
        "availability-zone" => Some(any_matches(values, zone)),
        "product-description" => Some(true),
        _ => None,
    })?;
    let (rows, next) = page(rows, params, (1, 10_000), Some(1000))?;
    let now = time(aws_state.clock().now());
    let items = rows.into_iter().map(|(found, zone)| {
        vec![
            Element::leaf("instanceType", &found.name),
            Element::leaf("productDescription", product),
            Element::leaf("spotPrice", aws_state.prices().spot(found, zone).to_string()),
            Element::leaf("timestamp", &now),
            Element::leaf("availabilityZone", zone),
        ]
    });
    Ok(list_answer(request, "spotPriceHistorySet", items.collect(), next))
}
