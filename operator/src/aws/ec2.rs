//! The EC2 calls that the provider makes, one function each: pages are followed, answers become plain values, errors become [`Error`].
//!
//! Everything about the SDK's types for reading is in this file; the rest of the provider sees the structs below. Requests that launch are in
//! [`requests`].

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types as sdk;
use jiff::Timestamp;

use super::catalog::type_info::TypeInfo;
use super::error::{Error, Kind, Result};

pub mod requests;
pub mod send;

/// A filter of a Describe call: name and alternatives.
pub type Filter = (String, Vec<String>);

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// ID.
    pub id: String,
    /// Zone.
    pub zone: String,
    /// Zone id.
    pub zone_id: Option<String>,
    /// Free IPv4 addresses.
    pub free_ips: i64,
}

/// A security group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityGroup {
    /// ID.
    pub id: String,
    /// Group name.
    pub name: Option<String>,
}

/// An image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// ID.
    pub id: String,
    /// Name.
    pub name: String,
    /// EC2's name of the architecture.
    pub architecture: String,
    /// RFC 3339.
    pub created: String,
    /// RFC 3339.
    pub deprecated_at: Option<String>,
}

/// An instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    /// ID.
    pub id: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// State as EC2 names it.
    pub state: String,
    /// Image.
    pub image_id: String,
    /// Launched at.
    pub launched_at: Option<Timestamp>,
    /// Bought as spot.
    pub spot: bool,
    /// Launched into this reservation because it was told to.
    pub reservation_id: Option<String>,
    /// Subnet.
    pub subnet_id: Option<String>,
    /// Security groups.
    pub security_groups: BTreeSet<String>,
    /// Tenancy.
    pub tenancy: Option<String>,
    /// Network interfaces for EFA.
    pub n_efa: usize,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// A launch template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTemplate {
    /// Name.
    pub name: String,
}

/// A placement group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementGroup {
    /// ID.
    pub id: String,
}

fn filters(filters: &[Filter]) -> Option<Vec<sdk::Filter>> {
    (!filters.is_empty()).then(|| {
        filters
            .iter()
            .map(|(name, values)| {
                sdk::Filter::builder().name(name).set_values(Some(values.clone())).build()
            })
            .collect()
    })
}

/// The filters of a tag selector: `*` asks for the key only.
pub fn tag_filters(tags: &BTreeMap<String, String>) -> Vec<Filter> {
    tags.iter()
        .map(|(key, value)| {
            if value == "*" {
                ("tag-key".to_owned(), vec![key.clone()])
            } else {
                (format!("tag:{key}"), vec![value.clone()])
            }
        })
        .collect()
}

/// A filter.
pub fn filter(name: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Filter {
    (name.to_owned(), values.into_iter().map(Into::into).collect())
}

/// Whether the caller may describe instance types: the cheapest proof that credentials and endpoint work.
pub async fn check_access(ec2: &Client) -> Result<()> {
    const OPERATION: &str = "DescribeInstanceTypes";
    match ec2.describe_instance_types().dry_run(true).send().await {
        Ok(_) => Ok(()),
        Err(error) => match Error::from_sdk(OPERATION, &error) {
            error if error.kind == Kind::DryRun => Ok(()),
            error => Err(error),
        },
    }
}

/// Instance types that can run Kubernetes nodes.
pub async fn instance_types(ec2: &Client) -> Result<Vec<TypeInfo>> {
    const OPERATION: &str = "DescribeInstanceTypes";
    let wanted = [
        filter("supported-virtualization-type", ["hvm"]),
        filter("processor-info.supported-architecture", ["x86_64", "arm64"]),
    ];
    let mut found = Vec::new();
    let mut token = None;
    loop {
        let page = ec2
            .describe_instance_types()
            .set_filters(filters(&wanted))
            .max_results(100)
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| Error::from_sdk(OPERATION, &error))?;
        found.extend(page.instance_types().iter().filter_map(TypeInfo::from_sdk));
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(found);
        }
    }
}

/// The zones in which each instance type is offered.
pub async fn instance_type_zones(ec2: &Client) -> Result<BTreeMap<String, BTreeSet<String>>> {
    const OPERATION: &str = "DescribeInstanceTypeOfferings";
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut token = None;
    loop {
        let page = ec2
            .describe_instance_type_offerings()
            .location_type(sdk::LocationType::AvailabilityZone)
            .max_results(1000)
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| Error::from_sdk(OPERATION, &error))?;
        for offering in page.instance_type_offerings() {
            if let (Some(name), Some(zone)) = (&offering.instance_type, &offering.location) {
                found.entry(name.as_str().to_owned()).or_default().insert(zone.clone());
            }
        }
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(found);
        }
    }
}

/// Newest spot price in dollars per hour by instance type and zone.
pub async fn spot_prices(
    ec2: &Client,
    now: Timestamp,
) -> Result<BTreeMap<String, BTreeMap<String, f64>>> {
    const OPERATION: &str = "DescribeSpotPriceHistory";
    let mut found: BTreeMap<String, BTreeMap<String, (i64, f64)>> = BTreeMap::new();
    let mut token = None;
    loop {
        let page = ec2
            .describe_spot_price_history()
            .product_descriptions("Linux/UNIX")
            .product_descriptions("Linux/UNIX (Amazon VPC)")
            .start_time(aws_smithy_types::DateTime::from_secs(now.as_second()))
            .max_results(2000)
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| Error::from_sdk(OPERATION, &error))?;
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
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            break;
        }
    }
    Ok(found
        .into_iter()
        .map(|(name, zones)| {
            (name, zones.into_iter().map(|(zone, (_, usd))| (zone, usd)).collect())
        })
        .collect())
}

/// Subnets that match all filters.
pub async fn subnets(ec2: &Client, wanted: &[Filter]) -> Result<Vec<Subnet>> {
    const OPERATION: &str = "DescribeSubnets";
    let mut found = Vec::new();
    let mut token = None;
    loop {
        let page = ec2
            .describe_subnets()
            .set_filters(filters(wanted))
            .max_results(500)
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| Error::from_sdk(OPERATION, &error))?;
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
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(found);
        }
    }
}

/// Security groups that match all filters.
pub async fn security_groups(ec2: &Client, wanted: &[Filter]) -> Result<Vec<SecurityGroup>> {
    const OPERATION: &str = "DescribeSecurityGroups";
    let mut found = Vec::new();
    let mut token = None;
    loop {
        let page = ec2
            .describe_security_groups()
            .set_filters(filters(wanted))
            .max_results(500)
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| Error::from_sdk(OPERATION, &error))?;
        for group in page.security_groups() {
            if let Some(id) = &group.group_id {
                found.push(SecurityGroup { id: id.clone(), name: group.group_name.clone() });
            }
        }
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(found);
        }
    }
}

/// Available images that match all filters, deprecated ones too.
pub async fn images(ec2: &Client, wanted: &[Filter], owners: &[String]) -> Result<Vec<Image>> {
    const OPERATION: &str = "DescribeImages";
    let mut wanted = wanted.to_vec();
    wanted.push(filter("state", ["available"]));
    let mut found = Vec::new();
    let mut token = None;
    loop {
        let page = ec2
            .describe_images()
            .set_filters(filters(&wanted))
            .set_owners((!owners.is_empty()).then(|| owners.to_vec()))
            .include_deprecated(true)
            .max_results(1000)
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| Error::from_sdk(OPERATION, &error))?;
        for image in page.images() {
            if let Some(id) = &image.image_id {
                found.push(Image {
                    id: id.clone(),
                    name: image.name.clone().unwrap_or_default(),
                    architecture: image
                        .architecture
                        .as_ref()
                        .map_or_else(String::new, |value| value.as_str().to_owned()),
                    created: image.creation_date.clone().unwrap_or_default(),
                    deprecated_at: image.deprecation_time.clone(),
                });
            }
        }
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(found);
        }
    }
}

/// States of instances that still count. `terminated` ones are gone.
const LIVING: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

/// Instances that match, without those that are terminated. `ids` must be unique; with ids the answer is not paged.
pub async fn instances(ec2: &Client, ids: &[String], wanted: &[Filter]) -> Result<Vec<Instance>> {
    const OPERATION: &str = "DescribeInstances";
    let mut wanted = wanted.to_vec();
    wanted.push(filter("instance-state-name", LIVING));
    let mut found = Vec::new();
    let mut token = None;
    loop {
        let page = ec2
            .describe_instances()
            .set_instance_ids((!ids.is_empty()).then(|| ids.to_vec()))
            .set_filters(filters(&wanted))
            .set_max_results(ids.is_empty().then_some(1000))
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| Error::from_sdk(OPERATION, &error))?;
        found.extend(
            page.reservations()
                .iter()
                .flat_map(sdk::Reservation::instances)
                .filter_map(Instance::from_sdk),
        );
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(found);
        }
    }
}

impl Instance {
    fn from_sdk(instance: &sdk::Instance) -> Option<Self> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let reservation_id = instance.capacity_reservation_id.clone().filter(|_| {
            instance
                .capacity_reservation_specification
                .as_ref()
                .and_then(|specification| specification.capacity_reservation_preference.as_ref())
                .is_some_and(|preference| preference.as_str() == "capacity-reservations-only")
        });
        let placement = instance.placement.as_ref();
        Some(Self {
            id: instance.instance_id.clone()?,
            instance_type: instance.instance_type.as_ref()?.as_str().to_owned(),
            zone: placement.and_then(|placement| placement.availability_zone.clone())?,
            state: instance.state.as_ref()?.name.as_ref()?.as_str().to_owned(),
            image_id: text(&instance.image_id),
            launched_at: instance
                .launch_time
                .and_then(|time| Timestamp::from_second(time.secs()).ok()),
            spot: instance.spot_instance_request_id.as_deref().is_some_and(|id| !id.is_empty()),
            reservation_id,
            subnet_id: instance.subnet_id.clone(),
            security_groups: instance
                .security_groups()
                .iter()
                .filter_map(|group| group.group_id.clone())
                .collect(),
            tenancy: placement
                .and_then(|placement| placement.tenancy.as_ref())
                .map(|tenancy| tenancy.as_str().to_owned()),
            n_efa: instance
                .network_interfaces()
                .iter()
                .filter_map(|interface| interface.interface_type.as_deref())
                .filter(|kind| *kind == "efa" || *kind == "efa-only")
                .count(),
            tags: instance.tags().iter().map(|tag| (text(&tag.key), text(&tag.value))).collect(),
        })
    }

    /// On its way out.
    pub fn is_terminating(&self) -> bool {
        self.state == "shutting-down" || self.state == "terminated"
    }
}

/// Starts the termination of instances.
pub async fn terminate(ec2: &Client, ids: &[String]) -> Result<BTreeSet<String>> {
    let answer = ec2
        .terminate_instances()
        .set_instance_ids(Some(ids.to_vec()))
        .send()
        .await
        .map_err(|error| Error::from_sdk("TerminateInstances", &error))?;
    Ok(answer
        .terminating_instances()
        .iter()
        .filter(|change| {
            change
                .current_state
                .as_ref()
                .and_then(|state| state.name.as_ref())
                .is_some_and(|state| matches!(state.as_str(), "shutting-down" | "terminated"))
        })
        .filter_map(|change| change.instance_id.clone())
        .collect())
}

/// Adds tags to an instance.
pub async fn create_tags(ec2: &Client, id: &str, tags: &BTreeMap<String, String>) -> Result<()> {
    ec2.create_tags()
        .resources(id)
        .set_tags(Some(requests::tags(tags)))
        .send()
        .await
        .map_err(|error| Error::from_sdk("CreateTags", &error))?;
    Ok(())
}

/// Launch templates by their tags.
pub async fn launch_templates(ec2: &Client, wanted: &[Filter]) -> Result<Vec<LaunchTemplate>> {
    const OPERATION: &str = "DescribeLaunchTemplates";
    let mut found = Vec::new();
    let mut token = None;
    loop {
        let page = ec2
            .describe_launch_templates()
            .set_filters(filters(wanted))
            .max_results(200)
            .set_next_token(token)
            .send()
            .await
            .map_err(|error| Error::from_sdk(OPERATION, &error))?;
        found.extend(
            page.launch_templates()
                .iter()
                .filter_map(|template| template.launch_template_name.clone())
                .map(|name| LaunchTemplate { name }),
        );
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(found);
        }
    }
}

/// Whether a launch template of this name exists.
pub async fn launch_template_exists(ec2: &Client, name: &str) -> Result<bool> {
    const OPERATION: &str = "DescribeLaunchTemplates";
    match ec2.describe_launch_templates().launch_template_names(name).send().await {
        Ok(answer) => Ok(!answer.launch_templates().is_empty()),
        Err(error) => match Error::from_sdk(OPERATION, &error) {
            error if error.is_not_found() => Ok(false),
            error => Err(error),
        },
    }
}

/// Deletes a launch template; one that does not exist is fine.
pub async fn delete_launch_template(ec2: &Client, name: &str) -> Result<()> {
    match ec2.delete_launch_template().launch_template_name(name).send().await {
        Ok(_) => Ok(()),
        Err(error) => match Error::from_sdk("DeleteLaunchTemplate", &error) {
            error if error.is_not_found() => Ok(()),
            error => Err(error),
        },
    }
}

/// Available placement groups that match all filters.
pub async fn placement_groups(ec2: &Client, wanted: &[Filter]) -> Result<Vec<PlacementGroup>> {
    let mut wanted = wanted.to_vec();
    wanted.push(filter("state", ["available"]));
    match ec2.describe_placement_groups().set_filters(filters(&wanted)).send().await {
        Ok(answer) => Ok(answer
            .placement_groups()
            .iter()
            .filter_map(|group| group.group_id.clone())
            .map(|id| PlacementGroup { id })
            .collect()),
        Err(error) => match Error::from_sdk("DescribePlacementGroups", &error) {
            error if error.is_not_found() => Ok(Vec::new()),
            error => Err(error),
        },
    }
}
