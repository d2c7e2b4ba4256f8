//! CreateFleet of type `instant`: chooses pools by strategy and price, and tells which it could not
//! use and why.

use std::collections::BTreeMap;

use super::super::aws_state::{AwsState, Fleet};
use super::super::consistency::Kind;
use super::super::instance::{Instance, TemplateRef};
use super::super::prices::{CapacityType, MicroUsd};
use super::super::request::{AwsRequest, Params};
use super::super::response::{AwsError, AwsResponse};
use super::super::service::Principal;
use super::super::xml::{Element, render};
use super::launch::{Call, NO_ROOM, NO_ROOM_MESSAGE, shortage_message};
use super::pool::{Facts, Pool, pool};
use super::wish::{Wish, overlay, overlay_tags, tag_specs};
use super::{client_token, dry_run, invalid, reservations, templates};

/// One override of one launch template.
struct Candidate {
    wish: Wish,
    overrides: Params,
    template: TemplateRef,
    /// Lower goes first, before any price.
    priority: u64,
}

pub(super) async fn create(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    if params.get("Type") != Some("instant") {
        return Err(AwsError::new(
            "NotImplementedInDouble",
            "the double only knows fleets of type instant",
        )
        .with_status(418));
    }
    let target = params.structure("TargetCapacitySpecification");
    let wanted: u32 = target
        .get("TotalTargetCapacity")
        .and_then(|total| total.parse().ok())
        .ok_or_else(|| {
            AwsError::new(
                "MissingParameter",
                "The request must contain the parameter TotalTargetCapacity",
            )
        })?;
    let token = client_token(params);
    let unsigned = Params::of(params.iter().filter(|(name, _)| !name.starts_with("X-Amz-")));
    if token.is_some()
        && let Some(fleet) =
            aws_state.fleets.lock().values().find(|fleet| fleet.client_token == token)
    {
        if fleet.request != unsigned {
            let message =
                "The request has the same client token as an earlier one, and other parameters.";
            return Err(AwsError::new("IdempotentParameterMismatch", message));
        }
        return Ok(AwsResponse::ec2(request, &fleet.answer));
    }
    let default_type = target.get("DefaultTargetCapacityType").unwrap_or("on-demand");
    let capacity_type =
        if default_type == "spot" { CapacityType::Spot } else { CapacityType::OnDemand };
    let reserved = !matches!(default_type, "spot" | "on-demand");
    let candidates = candidates(aws_state, params, capacity_type)?;
    if request.is_dry_run() {
        return Err(dry_run());
    }
    let facts = Facts::read(aws_state, candidates.iter().map(|candidate| &candidate.wish)).await?;
    let mut pools: Vec<(&Candidate, Result<Pool, AwsError>)> = candidates
        .iter()
        .map(|candidate| {
            (
                candidate,
                if reserved && reservations::target(&candidate.wish.params).is_none() {
                    Err(AwsError::new(NO_ROOM, NO_ROOM_MESSAGE))
                } else {
                    pool(aws_state, &facts, &candidate.wish)
                },
            )
        })
        .collect();
    // By priority, then by price, then in the order of the request; what can't be launched at all
    // is tried last.
    pools.sort_by_key(|(candidate, pool)| {
        (
            candidate.priority,
            pool.as_ref().map_or(MicroUsd(u64::MAX), |pool| price(aws_state, pool, capacity_type)),
        )
    });
    let fleet_id = format!("fleet-{}", uuid_like(&aws_state.id("f")));
    let mut call = Call {
        aws_state,
        principal,
        client_token: token.clone().unwrap_or_default(),
        fleet_id: Some(fleet_id.clone()),
        reservation_id: aws_state.id("r"),
        taken: BTreeMap::new(),
        reserved: BTreeMap::new(),
        placed: BTreeMap::new(),
    };
    let mut launched: Vec<(&Candidate, Vec<Instance>)> = Vec::new();
    let mut errors: Vec<(&Candidate, AwsError)> = Vec::new();
    let mut missing = wanted;
    for (candidate, tried) in pools {
        if missing == 0 {
            break;
        }
        match tried {
            Err(error) => errors.push((candidate, error)),
            Ok(pool) => {
                let (made, error) = launch_instances(&mut call, candidate, &pool, missing);
                missing -= u32::try_from(made.len()).unwrap_or(missing);
                errors.extend(error.map(|error| (candidate, error)));
                if !made.is_empty() {
                    launched.push((candidate, made));
                }
            }
        }
    }
    let lifecycle = capacity_type.as_str();
    let error_items = errors.iter().map(|(candidate, error)| {
        vec![
            chosen(candidate),
            Element::leaf("lifecycle", lifecycle),
            Element::leaf("errorCode", &error.code),
            Element::leaf("errorMessage", &error.message),
        ]
    });
    let instance_items = launched.iter().map(|(candidate, made)| {
        let ids = made.iter().map(|instance| Element::leaf("item", &instance.id)).collect();
        vec![
            chosen(candidate),
            Element::leaf("lifecycle", lifecycle),
            Element::node("instanceIds", ids),
            Element::leaf("instanceType", &made[0].instance_type),
            Element::leaf("availabilityZone", &made[0].zone),
            Element::leaf("subnetId", &made[0].subnet_id),
        ]
    });
    let inner = render(&[
        Element::leaf("fleetId", &fleet_id),
        Element::list("errorSet", error_items),
        Element::list("fleetInstanceSet", instance_items),
    ]);
    let made: Vec<Instance> = launched.into_iter().flat_map(|(_, made)| made).collect();
    let ids: Vec<String> = made.iter().map(|instance| instance.id.clone()).collect();
    for id in &ids {
        aws_state.consistency().changed(Kind::Instance, id);
    }
    aws_state.instances().insert(made);
    let tags = tag_specs(params).remove("fleet").unwrap_or_default();
    let fleet = Fleet { tags, client_token: token, request: unsigned, answer: inner.clone() };
    aws_state.fleets.lock().insert(fleet_id.clone(), fleet);
    Ok(AwsResponse::ec2(request, &inner).with_resources([fleet_id]).with_resources(ids))
}

fn candidates(
    aws_state: &AwsState,
    params: &Params,
    capacity_type: CapacityType,
) -> Result<Vec<Candidate>, AwsError> {
    let configs = params.structs("LaunchTemplateConfigs");
    if configs.is_empty() {
        return Err(AwsError::new(
            "MissingParameter",
            "The request must contain the parameter LaunchTemplateConfigs",
        ));
    }
    let strategy = match capacity_type {
        CapacityType::Spot => params.get("SpotOptions.AllocationStrategy"),
        CapacityType::OnDemand => params.get("OnDemandOptions.AllocationStrategy"),
    };
    let by_priority = matches!(strategy, Some("prioritized" | "capacity-optimized-prioritized"));
    let request_tags = tag_specs(params);
    let mut candidates = Vec::new();
    for config in &configs {
        let spec = config.structure("LaunchTemplateSpecification");
        let template = templates::visible(aws_state, &spec)?;
        let (version, data) = template.version(spec.get("Version"))?;
        let reference =
            TemplateRef { id: template.id.clone(), name: template.name.clone(), version };
        let tags = overlay_tags(tag_specs(data), &request_tags);
        let mut overrides = config.structs("Overrides");
        if overrides.is_empty() {
            overrides.push(Params::default());
        }
        for one in overrides {
            let merged = overlay(data, &one);
            if merged.get("InstanceType").is_none() {
                return Err(invalid(
                    "InstanceType or InstanceRequirements must be specified in the launch template or the overrides",
                ));
            }
            let priority = if by_priority { priority(&one) } else { 0 };
            candidates.push(Candidate {
                wish: Wish {
                    params: merged,
                    tags: tags.clone(),
                    template: Some(reference.clone()),
                    capacity_type,
                },
                overrides: one,
                template: reference.clone(),
                priority,
            });
        }
    }
    Ok(candidates)
}

/// Lower goes first; no priority goes last.
fn priority(overrides: &Params) -> u64 {
    let given = overrides.get("Priority").and_then(|priority| priority.parse::<f64>().ok());
    given.map_or(u64::MAX, |priority| MicroUsd::dollars(priority).0)
}

fn price(aws_state: &AwsState, pool: &Pool, capacity_type: CapacityType) -> MicroUsd {
    let known = aws_state.catalog().get(&pool.instance_type);
    known.map_or(MicroUsd(u64::MAX), |known| {
        aws_state.prices().of(known, &pool.subnet.zone, capacity_type)
    })
}

fn launch_instances(
    call: &mut Call<'_>,
    candidate: &Candidate,
    pool: &Pool,
    wanted: u32,
) -> (Vec<Instance>, Option<AwsError>) {
    let wish = &candidate.wish;
    let (given, short) = match reservations::target(&wish.params) {
        Some(id) => call.room(id, pool, wanted),
        None => call.aws_state.faults().take_capacity(
            &pool.instance_type,
            &pool.subnet.zone,
            wish.capacity_type,
            wanted,
        ),
    };
    let (given, full) = call.spread(pool, given);
    let made = call.make(wish, pool, given);
    let code = if made.len() < given as usize {
        Some("InsufficientFreeAddressesInSubnet".to_owned())
    } else {
        short
    };
    let error = code.map(|code| {
        let message = shortage_message(&code, wish, pool);
        AwsError::new(code, message)
    });
    (made, full.or(error))
}

/// `<launchTemplateAndOverrides>`: what was asked for, given back.
fn chosen(candidate: &Candidate) -> Element {
    let specification = vec![
        Element::leaf("launchTemplateId", &candidate.template.id),
        Element::leaf("launchTemplateName", &candidate.template.name),
        Element::leaf("version", candidate.template.version.to_string()),
    ];
    let mut overrides = Vec::new();
    for (name, field) in [
        ("InstanceType", "instanceType"),
        ("MaxPrice", "maxPrice"),
        ("SubnetId", "subnetId"),
        ("AvailabilityZone", "availabilityZone"),
        ("WeightedCapacity", "weightedCapacity"),
        ("Priority", "priority"),
        ("ImageId", "imageId"),
    ] {
        overrides.extend(candidate.overrides.get(name).map(|value| Element::leaf(field, value)));
    }
    Element::node(
        "launchTemplateAndOverrides",
        vec![
            Element::node("launchTemplateSpecification", specification),
            Element::node("overrides", overrides),
        ],
    )
}

/// Fleet IDs have a UUID's form.
fn uuid_like(id: &str) -> String {
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).cycle().take(32).collect();
    format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}
