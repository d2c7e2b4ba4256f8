//! Lists about instances: instances, their status, volumes, network interfaces and spot requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::aws_state::AwsState;
use super::super::consistency::Kind;
use super::super::filters::{any_matches, page, select, tag_filter};
use super::super::instance::{Instance, State};
use super::super::prices::CapacityType;
use super::super::request::{AwsRequest, Params};
use super::super::response::{AwsError, AwsResponse};
use super::super::xml::Element;
use super::render::{
    instance_element, interface_element, reservation_elements, state_element, volume_element,
};
use super::{list_answer, time};

/// The instances that a call names by `InstanceId.n`, each once: unknown ones fail the whole call,
/// as in AWS.
pub(super) fn named(aws_state: &AwsState, params: &Params) -> Result<Vec<Arc<Instance>>, AwsError> {
    let all = aws_state.instances().all();
    let ids: BTreeSet<&str> = params.list("InstanceId").into_iter().collect();
    let mut missing = Vec::new();
    let mut found = Vec::new();
    for id in ids {
        match all.get(id) {
            Some(instance) if aws_state.consistency().is_visible(Kind::Instance, id) => {
                found.push(Arc::clone(instance));
            }
            _ if !id.starts_with("i-") => {
                return Err(AwsError::new(
                    "InvalidInstanceID.Malformed",
                    format!("Invalid id: \"{id}\" (expecting \"i-...\")"),
                ));
            }
            _ => missing.push(id),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    let message = match missing.as_slice() {
        [one] => format!("The instance ID '{one}' does not exist"),
        many => format!("The instance IDs '{}' do not exist", many.join(", ")),
    };
    Err(AwsError::new("InvalidInstanceID.NotFound", message))
}

/// The named instances, or all.
fn wanted(aws_state: &AwsState, params: &Params) -> Result<Vec<Arc<Instance>>, AwsError> {
    if !params.list("InstanceId").is_empty() {
        if params.get("MaxResults").is_some() {
            let message = "The parameter instancesSet cannot be used with the parameter maxResults";
            return Err(AwsError::new("InvalidParameterCombination", message));
        }
        return named(aws_state, params);
    }
    let all = aws_state.instances().all();
    let visible = all
        .values()
        .filter(|instance| aws_state.consistency().is_visible(Kind::Instance, &instance.id));
    Ok(visible.cloned().collect())
}

fn instance_filter(
    aws_state: &AwsState,
    instance: &Instance,
    name: &str,
    values: &[String],
) -> Option<bool> {
    let is = |text: &str| Some(any_matches(values, text));
    match name {
        "instance-id" => is(&instance.id),
        "instance-state-name" => is(instance.state.as_str()),
        "instance-state-code" => is(&instance.state.code().to_string()),
        "instance-type" => is(&instance.instance_type),
        "availability-zone" => is(&instance.zone),
        "subnet-id" | "network-interface.subnet-id" => is(&instance.subnet_id),
        "vpc-id" | "network-interface.vpc-id" => is(&instance.vpc_id),
        "private-dns-name" => is(&instance.private_dns_name),
        "private-ip-address" => is(&instance.private_ip.to_string()),
        "image-id" => is(&instance.image_id),
        "architecture" => is(&instance.architecture),
        "launch-time" => is(&time(instance.launched)),
        "reservation-id" => is(&instance.reservation_id),
        "client-token" => is(&instance.client_token),
        "tenancy" => is(&instance.tenancy),
        "instance-lifecycle" => {
            is(if instance.capacity_type == CapacityType::Spot { "spot" } else { "" })
        }
        "spot-instance-request-id" => is(instance.spot_request_id.as_deref().unwrap_or_default()),
        "iam-instance-profile.arn" => {
            is(instance.profile.as_ref().map_or("", |profile| &profile.arn))
        }
        "iam-instance-profile.name" => {
            is(instance.profile.as_ref().map_or("", |profile| &profile.name))
        }
        "iam-instance-profile.id" => {
            is(instance.profile.as_ref().map_or("", |profile| &profile.id))
        }
        "instance.group-id" | "network-interface.group-id" => {
            Some(instance.security_groups.iter().any(|(id, _)| any_matches(values, id)))
        }
        "instance.group-name" => {
            Some(instance.security_groups.iter().any(|(_, name)| any_matches(values, name)))
        }
        _ => {
            let tags = instance.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            tag_filter(name, values, &aws_state.consistency().visible_tags(&instance.id, tags))
        }
    }
}

pub(super) fn instances(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let found = select(
        wanted(aws_state, &request.params)?,
        &request.params.filters(),
        |instance, name, values| instance_filter(aws_state, instance, name, values),
    )?;
    let (found, next) = page(found, &request.params, (5, 1000), Some(1000))?;
    // Instances of one launch are one reservation.
    let mut reservations: Vec<(String, Vec<Vec<Element>>)> = Vec::new();
    for instance in &found {
        let item = instance_element(aws_state, instance);
        match reservations.iter_mut().find(|(id, _)| *id == instance.reservation_id) {
            Some((_, items)) => items.push(item),
            None => reservations.push((instance.reservation_id.clone(), vec![item])),
        }
    }
    let items = reservations
        .into_iter()
        .map(|(id, items)| reservation_elements(aws_state.account(), &id, items))
        .collect();
    Ok(list_answer(request, "reservationSet", items, next))
}

pub(super) fn statuses(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let mut found = wanted(aws_state, params)?;
    if params.get("IncludeAllInstances") != Some("true") {
        found.retain(|instance| instance.state == State::Running);
    }
    let found = select(found, &params.filters(), |instance, name, values| {
        let is = |text: &str| Some(any_matches(values, text));
        let health = &instance.health;
        match name {
            "instance-status.status" => is(status(health.instance_impaired_since.is_some())),
            "system-status.status" => is(status(health.system_impaired_since.is_some())),
            "instance-status.reachability" => {
                is(reachability(health.instance_impaired_since.is_some()))
            }
            "system-status.reachability" => {
                is(reachability(health.system_impaired_since.is_some()))
            }
            "event.code" => {
                Some(health.events.iter().any(|event| any_matches(values, &event.code)))
            }
            "event.description" => {
                Some(health.events.iter().any(|event| any_matches(values, &event.description)))
            }
            "availability-zone" => is(&instance.zone),
            "instance-state-name" => is(instance.state.as_str()),
            "instance-state-code" => is(&instance.state.code().to_string()),
            _ => None,
        }
    })?;
    let (found, next) = page(found, params, (5, 1000), Some(1000))?;
    let items = found.iter().map(|instance| {
        let health = &instance.health;
        let check = |name: &str, since: Option<jiff::Timestamp>| {
            let mut detail = vec![
                Element::leaf("name", "reachability"),
                Element::leaf("status", reachability(since.is_some())),
            ];
            detail.extend(since.map(|since| Element::leaf("impairedSince", time(since))));
            Element::node(
                name,
                vec![
                    Element::leaf("status", status(since.is_some())),
                    Element::list("details", [detail]),
                ],
            )
        };
        let mut item = vec![
            Element::leaf("instanceId", &instance.id),
            Element::leaf("availabilityZone", &instance.zone),
            state_element("instanceState", instance.state),
            check("systemStatus", health.system_impaired_since),
            check("instanceStatus", health.instance_impaired_since),
        ];
        if !health.events.is_empty() {
            let events = health.events.iter().enumerate().map(|(index, event)| {
                vec![
                    Element::leaf(
                        "instanceEventId",
                        format!("instance-event-{}{index}", &instance.id[2..]),
                    ),
                    Element::leaf("code", &event.code),
                    Element::leaf("description", &event.description),
                    Element::leaf("notBefore", time(event.not_before)),
                ]
            });
            item.push(Element::list("eventsSet", events));
        }
        item
    });
    Ok(list_answer(request, "instanceStatusSet", items.collect(), next))
}

fn status(impaired: bool) -> &'static str {
    if impaired { "impaired" } else { "ok" }
}

fn reachability(impaired: bool) -> &'static str {
    if impaired { "failed" } else { "passed" }
}

/// Instances that still have their volumes and interfaces.
fn present(aws_state: &AwsState) -> Vec<Arc<Instance>> {
    aws_state
        .instances()
        .all()
        .values()
        .filter(|instance| instance.state != State::Terminated)
        .cloned()
        .collect()
}

pub(super) fn volumes(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let named = params.list("VolumeId");
    let all = present(aws_state);
    let mut found: Vec<_> = all
        .iter()
        .flat_map(|instance| instance.volumes.iter().map(move |volume| (instance, volume)))
        .collect();
    if !named.is_empty() {
        found.retain(|(_, volume)| named.contains(&volume.id.as_str()));
        if let Some(missing) =
            named.iter().find(|id| !found.iter().any(|(_, volume)| volume.id == **id))
        {
            return Err(AwsError::new(
                "InvalidVolume.NotFound",
                format!("The volume '{missing}' does not exist."),
            ));
        }
    }
    let found = select(found, &params.filters(), |(instance, volume), name, values| match name {
        "volume-id" => Some(any_matches(values, &volume.id)),
        "attachment.instance-id" => Some(any_matches(values, &instance.id)),
        "attachment.device" => Some(any_matches(values, &volume.device)),
        "attachment.status" => Some(any_matches(values, "attached")),
        "availability-zone" => Some(any_matches(values, &instance.zone)),
        "status" => Some(any_matches(values, "in-use")),
        "volume-type" => Some(any_matches(values, &volume.volume_type)),
        "encrypted" => Some(any_matches(values, &volume.encrypted.to_string())),
        _ => tag_filter(name, values, &volume.tags),
    })?;
    let (found, next) = page(found, params, (5, 1000), Some(1000))?;
    let items =
        found.into_iter().map(|(instance, volume)| volume_element(instance, volume)).collect();
    Ok(list_answer(request, "volumeSet", items, next))
}

pub(super) fn interfaces(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let named = params.list("NetworkInterfaceId");
    let all = present(aws_state);
    let mut found: Vec<_> = all
        .iter()
        .flat_map(|instance| instance.interfaces.iter().map(move |interface| (instance, interface)))
        .collect();
    if !named.is_empty() {
        found.retain(|(_, interface)| named.contains(&interface.id.as_str()));
        if let Some(missing) =
            named.iter().find(|id| !found.iter().any(|(_, interface)| interface.id == **id))
        {
            let message = format!("The networkInterface ID '{missing}' does not exist");
            return Err(AwsError::new("InvalidNetworkInterfaceID.NotFound", message));
        }
    }
    let found =
        select(found, &params.filters(), |(instance, interface), name, values| match name {
            "network-interface-id" => Some(any_matches(values, &interface.id)),
            "attachment.instance-id" => Some(any_matches(values, &instance.id)),
            "group-id" => {
                Some(instance.security_groups.iter().any(|(id, _)| any_matches(values, id)))
            }
            "subnet-id" => Some(any_matches(values, &instance.subnet_id)),
            "vpc-id" => Some(any_matches(values, &instance.vpc_id)),
            "availability-zone" => Some(any_matches(values, &instance.zone)),
            "status" => Some(any_matches(values, "in-use")),
            "interface-type" => Some(any_matches(values, &interface.interface_type)),
            "private-ip-address" | "addresses.private-ip-address" => {
                Some(any_matches(values, &interface.private_ip.to_string()))
            }
            _ => tag_filter(name, values, &interface.tags),
        })?;
    let (found, next) = page(found, params, (5, 1000), Some(1000))?;
    let items = found
        .into_iter()
        .map(|(instance, interface)| interface_element(aws_state, instance, interface, true))
        .collect();
    Ok(list_answer(request, "networkInterfaceSet", items, next))
}

pub(super) fn spot_requests(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let named = params.list("SpotInstanceRequestId");
    let all = aws_state.instances().all();
    let mut found: Vec<(&Arc<Instance>, &String)> = all
        .values()
        .filter_map(|instance| Some((instance, instance.spot_request_id.as_ref()?)))
        .collect();
    if !named.is_empty() {
        found.retain(|(_, id)| named.contains(&id.as_str()));
        if let Some(missing) = named.iter().find(|id| !found.iter().any(|(_, known)| known == *id))
        {
            let message = format!("The spot instance request ID '{missing}' does not exist");
            return Err(AwsError::new("InvalidSpotInstanceRequestID.NotFound", message));
        }
    }
    let state_of =
        |instance: &Instance| if instance.state.is_alive() { "active" } else { "closed" };
    let found = select(found, &params.filters(), |(instance, id), name, values| match name {
        "spot-instance-request-id" => Some(any_matches(values, id)),
        "instance-id" => Some(any_matches(values, &instance.id)),
        "state" => Some(any_matches(values, state_of(instance))),
        _ => tag_filter(name, values, &instance.tags),
    })?;
    let (found, next) = page(found, params, (5, 1000), Some(1000))?;
    let items = found.into_iter().map(|(instance, id)| {
        let code =
            if instance.state.is_alive() { "fulfilled" } else { "instance-terminated-by-user" };
        vec![
            Element::leaf("spotInstanceRequestId", id),
            Element::leaf("type", "one-time"),
            Element::leaf("state", state_of(instance)),
            Element::node(
                "status",
                vec![
                    Element::leaf("code", code),
                    Element::leaf("updateTime", time(instance.changed)),
                ],
            ),
            Element::leaf("instanceId", &instance.id),
            Element::leaf("createTime", time(instance.launched)),
            Element::leaf("productDescription", "Linux/UNIX"),
            Element::leaf("launchedAvailabilityZone", &instance.zone),
            Element::leaf("instanceInterruptionBehavior", "terminate"),
            Element::tag_set(&instance.tags),
        ]
    });
    Ok(list_answer(request, "spotInstanceRequestSet", items.collect(), next))
}
