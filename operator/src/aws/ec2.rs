//! The EC2 calls that the provider makes, one function each: pages are followed, answers become
//! plain values, errors become [`Error`].
//!
//! Everything about the SDK's types is in the modules below; the rest of the provider sees the
//! structs that they return. Requests that launch are in [`requests`].

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types as sdk;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use self::watch::Watch;
use super::error::{Error, Kind, Result};
use super::pace::{Family, Pace};

mod images;
mod instances;
mod network;
mod offers;
pub(super) mod requests;
mod reservations;
pub(super) mod send;
mod status;
mod templates;
mod type_info;
mod watch;

pub(super) use self::images::{Image, images};
pub(super) use self::instances::{InReservation, Instance, create_tags, instances, terminate};
pub(super) use self::network::{
    GroupKey, PlacementGroup, SecurityGroup, Subnet, placement_groups, security_groups, subnets,
};
pub(super) use self::offers::{instance_type_zones, instance_types, spot_prices};
pub(super) use self::reservations::{CapacityReservation, capacity_reservations};
pub(super) use self::status::{InstanceStatus, unhealthy_instances};
pub(super) use self::templates::{delete_launch_template, launch_templates};

/// EC2, called no faster than the account bears. Clones share the pace.
#[derive(Clone, Debug)]
pub(crate) struct Ec2 {
    client: Client,
    pace: Arc<Pace>,
}

impl Ec2 {
    /// With the configuration of a client.
    pub(crate) fn new(config: aws_sdk_ec2::config::Builder) -> Self {
        let pace = Arc::<Pace>::default();
        let config = config.interceptor(Watch(Arc::clone(&pace))).build();
        Self { client: Client::from_conf(config), pace }
    }

    /// Makes a call when it is its turn.
    async fn call<T, E>(
        &self,
        operation: &'static str,
        call: impl Future<Output = std::result::Result<T, SdkError<E, HttpResponse>>>,
    ) -> Result<T>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let family = Family::of(operation);
        self.pace.turn(family).await;
        let result = call.await.map_err(|error| Error::from_sdk(operation, &error));
        self.pace.learn(family, &result);
        result
    }

    /// Asks for the next page of an answer when it is its turn.
    async fn page<T, E>(
        &self,
        operation: &'static str,
        page: impl Future<Output = Option<std::result::Result<T, SdkError<E, HttpResponse>>>>,
    ) -> Option<Result<T>>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let family = Family::of(operation);
        self.pace.turn(family).await;
        let Some(page) = page.await else {
            // The page before was the last one: nothing was called.
            self.pace.give_back(family);
            return None;
        };
        let result = page.map_err(|error| Error::from_sdk(operation, &error));
        self.pace.learn(family, &result);
        Some(result)
    }
}

/// For building requests. They are sent by [`Ec2::call`].
impl std::ops::Deref for Ec2 {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A filter of a Describe call: name and alternatives.
pub(super) type Filter = (String, Vec<String>);

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
pub(super) fn tag_filters(tags: &BTreeMap<String, String>) -> Vec<Filter> {
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

/// In the SDK's form.
pub(super) fn filter(name: &str, values: impl IntoIterator<Item = impl Into<String>>) -> Filter {
    (name.to_owned(), values.into_iter().map(Into::into).collect())
}

/// Whether the caller may describe instance types: the cheapest proof that credentials and endpoint
/// work.
pub(super) async fn check_access(ec2: &Ec2) -> Result<()> {
    const OPERATION: &str = "DescribeInstanceTypes";
    let sent = ec2.describe_instance_types().dry_run(true).send();
    match ec2.call(OPERATION, sent).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind == Kind::DryRun => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
