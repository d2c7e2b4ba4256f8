//! Capacity reservations.

use aws_sdk_ec2::types as sdk;
use jiff::Timestamp;

use super::{Ec2, Filter, filters};
use crate::aws::error::Result;

/// A capacity reservation. Criteria and type are as EC2 names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CapacityReservation {
    /// ID.
    pub id: String,
    /// Account that owns it.
    pub owner_id: String,
    /// Instance type that it holds.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// `open` or `targeted`.
    pub match_criteria: String,
    /// `default` or `capacity-block`.
    pub kind: String,
    /// EC2 may take it back.
    pub interruptible: bool,
    /// When it ends.
    pub ends_at: Option<Timestamp>,
    /// How many more instances it has room for.
    pub left: u32,
}

/// One reservation by its id, or those that match all filters. An id that does not exist is no
/// error.
pub(crate) async fn capacity_reservations(
    ec2: &Ec2,
    id: Option<&str>,
    wanted: &[Filter],
) -> Result<Vec<CapacityReservation>> {
    const OPERATION: &str = "DescribeCapacityReservations";
    let mut pages = ec2
        .describe_capacity_reservations()
        .set_capacity_reservation_ids(id.map(|id| vec![id.to_owned()]))
        .set_filters(filters(wanted))
        .set_max_results(id.is_none().then_some(1000))
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = ec2.page(OPERATION, pages.next()).await {
        let page = match page {
            Ok(page) => page,
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        found.extend(page.capacity_reservations().iter().filter_map(CapacityReservation::from_sdk));
    }
    Ok(found)
}

impl CapacityReservation {
    fn from_sdk(found: &sdk::CapacityReservation) -> Option<Self> {
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        Some(Self {
            id: found.capacity_reservation_id.clone()?,
            owner_id: found.owner_id.clone().unwrap_or_default(),
            instance_type: found.instance_type.clone()?,
            zone: found.availability_zone.clone()?,
            match_criteria: text(
                found.instance_match_criteria.as_ref().map(sdk::InstanceMatchCriteria::as_str),
            ),
            kind: text(found.reservation_type.as_ref().map(sdk::CapacityReservationType::as_str)),
            interruptible: found.interruptible.unwrap_or(false),
            ends_at: found.end_date.and_then(|time| Timestamp::from_second(time.secs()).ok()),
            left: found.available_instance_count.and_then(|n| n.try_into().ok()).unwrap_or(0),
        })
    }
}
