//! Capacity reservations: listed, and how much room they have for a launch.

use super::super::aws_state::AwsState;
use super::super::filters::{any_matches, page, select, tag_filter};
use super::super::request::{AwsRequest, Params};
use super::super::reservations::Reservation;
use super::super::response::{AwsError, AwsResponse};
use super::super::xml::Element;
use super::{list_answer, time};

/// The reservation that launch parameters name.
pub(super) fn target(params: &Params) -> Option<&str> {
    params.get("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId")
}

/// How many more instances a reservation has room for.
pub(super) fn available(aws_state: &AwsState, reservation: &Reservation) -> u32 {
    let all = aws_state.instances().all();
    let inside = all.values().filter(|instance| {
        instance.state.is_alive()
            && instance.capacity_reservation.as_deref() == Some(&reservation.id)
    });
    reservation.total.saturating_sub(u32::try_from(inside.count()).unwrap_or(u32::MAX))
}

pub(super) fn describe(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let named = params.list("CapacityReservationId");
    let all = aws_state.reservations().all();
    if let Some(id) = named.iter().find(|id| !all.iter().any(|known| known.id == **id)) {
        return Err(AwsError::new(
            "InvalidCapacityReservationId.NotFound",
            format!("The capacity reservation ID '{id}' does not exist"),
        ));
    }
    let wanted = all.into_iter().filter(|it| named.is_empty() || named.contains(&it.id.as_str()));
    let found = select(wanted.collect(), &params.filters(), |it, name, values| match name {
        "state" => Some(any_matches(values, it.state())),
        "owner-id" => Some(any_matches(values, aws_state.account())),
        "instance-type" => Some(any_matches(values, &it.instance_type)),
        "availability-zone" => Some(any_matches(values, &it.zone)),
        "instance-match-criteria" => Some(any_matches(values, "targeted")),
        name => tag_filter(name, values, &it.tags),
    })?;
    let (found, next) = page(found, params, (1, 1000), Some(1000))?;
    let items = found.into_iter().map(|it| element(aws_state, &it));
    Ok(list_answer(request, "capacityReservationSet", items.collect(), next))
}

fn element(aws_state: &AwsState, it: &Reservation) -> Vec<Element> {
    let kind = if it.capacity_block { "capacity-block" } else { "default" };
    let mut item = vec![
        Element::leaf("capacityReservationId", &it.id),
        Element::leaf("ownerId", aws_state.account()),
        Element::leaf("instanceType", &it.instance_type),
        Element::leaf("instancePlatform", "Linux/UNIX"),
        Element::leaf("availabilityZone", &it.zone),
        Element::leaf("tenancy", "default"),
        Element::leaf("totalInstanceCount", it.total.to_string()),
        Element::leaf("availableInstanceCount", available(aws_state, it).to_string()),
        Element::leaf("state", it.state()),
        Element::leaf("endDateType", if it.ends.is_some() { "limited" } else { "unlimited" }),
        Element::leaf("instanceMatchCriteria", "targeted"),
        Element::leaf("reservationType", kind),
        Element::leaf("interruptible", it.interruptible.to_string()),
        Element::tag_set(&it.tags),
    ];
    item.extend(it.ends.map(|end| Element::leaf("endDate", time(end))));
    item
}
