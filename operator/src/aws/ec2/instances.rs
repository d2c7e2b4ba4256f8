//! Instances: read, terminated, tagged.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types as sdk;
use jiff::Timestamp;

use super::{Ec2, Filter, filter, filters, requests};
use crate::aws::error::Result;

/// As DescribeInstances answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Instance {
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
    pub reservation: Option<InReservation>,
    /// Subnet.
    pub subnet_id: Option<String>,
    /// Security groups.
    pub security_groups: BTreeSet<String>,
    /// Tenancy.
    pub tenancy: Option<String>,
    /// Partition of the placement group that it was put into, counted from one.
    pub partition: Option<i32>,
    /// Network interfaces for EFA.
    pub n_efa: usize,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// The reservation that an instance was launched into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InReservation {
    /// `CapacityReservationId`, `cr-…`.
    pub id: String,
    /// `InstanceLifecycle`: empty, `capacity-block` or `interruptible-capacity-reservation`.
    pub lifecycle: String,
}

/// States of instances that still count. `terminated` ones are gone.
const LIVING: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

/// Instances that match, without those that are terminated. `ids` must be unique; with ids the
/// answer is not paged.
pub(crate) async fn instances(
    ec2: &Ec2,
    ids: &[String],
    wanted: &[Filter],
) -> Result<Vec<Instance>> {
    const OPERATION: &str = "DescribeInstances";
    let mut wanted = wanted.to_vec();
    wanted.push(filter("instance-state-name", LIVING));
    let mut pages = ec2
        .describe_instances()
        .set_instance_ids((!ids.is_empty()).then(|| ids.to_vec()))
        .set_filters(filters(&wanted))
        .set_max_results(ids.is_empty().then_some(1000))
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = ec2.page(OPERATION, pages.next()).await {
        let page = page?;
        found.extend(
            page.reservations()
                .iter()
                .flat_map(sdk::Reservation::instances)
                .filter_map(Instance::from_sdk),
        );
    }
    Ok(found)
}

impl Instance {
    fn from_sdk(instance: &sdk::Instance) -> Option<Self> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let lifecycle = instance.instance_lifecycle.as_ref().map(|kind| kind.as_str().to_owned());
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
            reservation: reservation_id
                .map(|id| InReservation { id, lifecycle: lifecycle.unwrap_or_default() }),
            subnet_id: instance.subnet_id.clone(),
            security_groups: instance
                .security_groups()
                .iter()
                .filter_map(|group| group.group_id.clone())
                .collect(),
            tenancy: placement
                .and_then(|placement| placement.tenancy.as_ref())
                .map(|tenancy| tenancy.as_str().to_owned()),
            partition: placement.and_then(|placement| placement.partition_number),
            n_efa: instance
                .network_interfaces()
                .iter()
                .filter_map(|interface| interface.interface_type.as_deref())
                .filter(|kind| *kind == "efa" || *kind == "efa-only")
                .count(),
            tags: instance.tags().iter().map(|tag| (text(&tag.key), text(&tag.value))).collect(),
        })
    }

    /// The value of a tag, unless it is empty.
    pub(crate) fn tag(&self, key: &str) -> Option<&str> {
        self.tags.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// On its way out.
    pub(crate) fn is_terminating(&self) -> bool {
        self.state == "shutting-down" || self.state == "terminated"
    }
}

/// Starts the termination of instances.
pub(crate) async fn terminate(ec2: &Ec2, ids: &[String]) -> Result<BTreeSet<String>> {
    let sent = ec2.terminate_instances().set_instance_ids(Some(ids.to_vec())).send();
    let answer = ec2.call("TerminateInstances", sent).await?;
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
pub(crate) async fn create_tags(
    ec2: &Ec2,
    id: &str,
    tags: &BTreeMap<String, String>,
) -> Result<()> {
    let sent = ec2.create_tags().resources(id).set_tags(Some(requests::tags(tags))).send();
    ec2.call("CreateTags", sent).await?;
    Ok(())
}
