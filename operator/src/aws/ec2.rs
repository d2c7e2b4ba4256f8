//! The EC2 calls that the provider makes, one function each: pages are followed, answers become plain values, errors become [`Error`].
//!
//! Everything about the SDK's types is in the modules below; the rest of the provider sees the structs that they return. Requests that launch are in
//! [`requests`].

use std::collections::BTreeMap;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types as sdk;

use super::error::{Error, Kind, Result};

mod images;
mod instances;
mod network;
mod offers;
pub mod requests;
mod reservations;
pub mod send;
mod status;
mod templates;

pub use self::images::{Image, images};
pub use self::instances::{InReservation, Instance, create_tags, instances, terminate};
pub use self::network::{
    PlacementGroup, SecurityGroup, Subnet, placement_groups, security_groups, subnets,
};
pub use self::offers::{instance_type_zones, instance_types, spot_prices};
pub use self::reservations::{CapacityReservation, capacity_reservations};
pub use self::status::{InstanceStatus, unhealthy_instances};
pub use self::templates::{delete_launch_template, launch_template_exists, launch_templates};

/// A filter of a Describe call: name and alternatives.
pub type Filter = (String, Vec<String>);

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

#[cfg(test)]
mod tests;
