//! Placement groups: made, listed, deleted, and where in one of them a launch puts its instances.

use std::sync::Arc;

use super::super::aws_state::AwsState;
use super::super::filters::{any_matches, select, tag_filter};
use super::super::instance::{Instance, Placed};
use super::super::placement_groups::{PlacementGroup, Strategy};
use super::super::request::{AwsRequest, Params};
use super::super::response::{AwsError, AwsResponse};
use super::super::xml::{Element, render};
use super::wish::tag_specs;
use super::{invalid, list_answer};

/// The most partitions that a group has in a zone.
const PARTITIONS: u32 = 7;

/// How many partitions a group has whose maker did not say.
const DEFAULT_PARTITIONS: u32 = 2;

/// How many running instances of a spread group a zone takes.
const SPREAD: u32 = 7;

/// A spread group has as many instances in a zone as it may. EC2 tells it as a lack of capacity, by
/// the message.
pub(super) fn is_full() -> AwsError {
    AwsError::new(
        "InsufficientInstanceCapacity",
        "You've reached the limit of instances in this spread placement group, which takes seven per Availability Zone.",
    )
}

fn unknown(group: &str) -> AwsError {
    AwsError::new(
        "InvalidPlacementGroup.Unknown",
        format!("The Placement Group '{group}' is unknown."),
    )
}

fn missing(parameter: &str) -> AwsError {
    let message = format!("The request must contain the parameter {parameter}");
    AwsError::new("MissingParameter", message)
}

pub(super) fn create(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let name = params.get("GroupName").ok_or_else(|| missing("groupName"))?;
    if name.is_empty() || name.len() > 255 || !name.is_ascii() {
        return Err(invalid(format!("Value ({name}) for parameter groupName is invalid.")));
    }
    let word = params.get("Strategy").unwrap_or("cluster");
    let strategy = Strategy::parse(word)
        .ok_or_else(|| invalid(format!("Value ({word}) for parameter strategy is invalid.")))?;
    let partitions = match (strategy, params.get("PartitionCount")) {
        (Strategy::Partition, None) => DEFAULT_PARTITIONS,
        (Strategy::Partition, Some(count)) => {
            let count = count.parse().ok().filter(|count| (1..=PARTITIONS).contains(count));
            count.ok_or_else(|| {
                invalid(format!("The partition count has to be between 1 and {PARTITIONS}."))
            })?
        }
        (_, None) => 0,
        (_, Some(_)) => {
            return Err(AwsError::new(
                "InvalidParameterCombination",
                "The parameter PartitionCount can only be used with the strategy partition.",
            ));
        }
    };
    if params.get("SpreadLevel").is_some_and(|level| level != "rack") {
        return Err(invalid("A spread level other than rack needs an Outpost."));
    }
    let group = PlacementGroup {
        id: aws_state.id("pg"),
        name: name.to_owned(),
        strategy,
        partitions,
        tags: tag_specs(params).remove("placement-group").unwrap_or_default(),
    };
    let answer = Element::node("placementGroup", element(aws_state, &group));
    let id = group.id.clone();
    if !aws_state.placement_groups().add(group) {
        return Err(AwsError::new(
            "InvalidPlacementGroup.Duplicate",
            format!("The Placement Group '{name}' already exists."),
        ));
    }
    Ok(AwsResponse::ec2(request, &render(&[answer])).with_resources([id]))
}

pub(super) fn delete(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let name = request.params.get("GroupName").ok_or_else(|| missing("groupName"))?;
    let group = aws_state.placement_groups().named(name).ok_or_else(|| unknown(name))?;
    if members(aws_state, &group.id).next().is_some() {
        return Err(AwsError::new(
            "InvalidPlacementGroup.InUse",
            format!("The placement group '{name}' is in use and may not be deleted."),
        ));
    }
    aws_state.placement_groups().remove(name);
    Ok(AwsResponse::ec2(request, "<return>true</return>").with_resources([group.id]))
}

pub(super) fn describe(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let (names, ids) = (params.list("GroupName"), params.list("GroupId"));
    let groups = aws_state.placement_groups();
    let gone = names.iter().find(|name| groups.named(name).is_none());
    if let Some(group) = gone.or(ids.iter().find(|id| groups.get(id).is_none())) {
        return Err(unknown(group));
    }
    let wanted = |group: &PlacementGroup| {
        (names.is_empty() || names.contains(&group.name.as_str()))
            && (ids.is_empty() || ids.contains(&group.id.as_str()))
    };
    let all = groups.all().into_iter().filter(wanted).collect();
    // EC2 has no filter for the ID.
    let found = select(all, &params.filters(), |group, name, values| match name {
        "group-name" => Some(any_matches(values, &group.name)),
        "group-arn" => Some(any_matches(values, &arn(aws_state, group))),
        "state" => Some(any_matches(values, "available")),
        "strategy" => Some(any_matches(values, group.strategy.as_str())),
        "spread-level" => Some(group.strategy == Strategy::Spread && any_matches(values, "rack")),
        name => tag_filter(name, values, &group.tags),
    })?;
    let items = found.iter().map(|group| element(aws_state, group)).collect();
    Ok(list_answer(request, "placementGroupSet", items, None))
}

fn arn(aws_state: &AwsState, group: &PlacementGroup) -> String {
    aws_state.arn("ec2", &format!("placement-group/{}", group.name))
}

fn element(aws_state: &AwsState, group: &PlacementGroup) -> Vec<Element> {
    let mut item = vec![
        Element::leaf("groupName", &group.name),
        Element::leaf("state", "available"),
        Element::leaf("strategy", group.strategy.as_str()),
        Element::leaf("groupId", &group.id),
        Element::leaf("groupArn", arn(aws_state, group)),
        Element::tag_set(&group.tags),
    ];
    match group.strategy {
        Strategy::Cluster => {}
        Strategy::Partition => {
            item.push(Element::leaf("partitionCount", group.partitions.to_string()));
        }
        Strategy::Spread => item.push(Element::leaf("spreadLevel", "rack")),
    }
    item
}

/// Instances that take up room in a group.
fn members(aws_state: &AwsState, group: &str) -> impl Iterator<Item = Arc<Instance>> {
    let all = aws_state.instances().all();
    let inside = |instance: &&Arc<Instance>| {
        instance.state.is_alive()
            && instance.placement_group.as_ref().is_some_and(|placed| placed.group_id == group)
    };
    all.values().filter(inside).cloned().collect::<Vec<_>>().into_iter()
}

/// Where launch parameters want instances to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    group: PlacementGroup,
    /// EC2 chooses where there is none.
    partition: Option<u32>,
}

/// The group that launch parameters name, and the partition in it; checked as EC2 does at launch.
pub(super) fn target(aws_state: &AwsState, params: &Params) -> Result<Option<Target>, AwsError> {
    let groups = aws_state.placement_groups();
    let number = params.get("Placement.PartitionNumber");
    let (name, id) = (params.get("Placement.GroupName"), params.get("Placement.GroupId"));
    let group = match (name.filter(|name| !name.is_empty()), id) {
        (None, None) if number.is_some() => {
            return Err(AwsError::new(
                "InvalidParameterCombination",
                "A partition number can only be given with a placement group.",
            ));
        }
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(AwsError::new(
                "InvalidParameterCombination",
                "The parameters GroupName and GroupId can not be used together.",
            ));
        }
        (Some(name), None) => groups.named(name).ok_or_else(|| unknown(name))?,
        (None, Some(id)) => groups.get(id).ok_or_else(|| unknown(id))?,
    };
    let partition = number.map(|number| {
        let number = number.parse().ok().filter(|number| (1..=group.partitions).contains(number));
        number.ok_or_else(|| {
            invalid(format!("The placement group '{}' has no such partition.", group.name))
        })
    });
    Ok(Some(Target { partition: partition.transpose()?, group }))
}

impl Target {
    /// How many of `wanted` instances a zone takes beside those that are there and those of this
    /// call.
    pub(super) fn room(&self, aws_state: &AwsState, zone: &str, taken: u32, wanted: u32) -> u32 {
        if self.group.strategy != Strategy::Spread {
            return wanted;
        }
        let there = members(aws_state, &self.group.id).filter(|instance| instance.zone == zone);
        let there = u32::try_from(there.count()).unwrap_or(u32::MAX);
        wanted.min(SPREAD.saturating_sub(there.saturating_add(taken)))
    }

    /// Puts new instances into the group: each into the partition that was asked for, or into the
    /// one with the fewest.
    pub(super) fn place(&self, aws_state: &AwsState, made: &mut [Instance]) {
        let mut counts = vec![0_u32; self.group.partitions as usize];
        let mut count = |partition: Option<u32>| {
            let index = partition.and_then(|number| number.checked_sub(1)).map(|it| it as usize);
            if let Some(count) = index.and_then(|index| counts.get_mut(index)) {
                *count += 1;
            }
            let fewest = counts.iter().min().copied();
            let first = counts.iter().position(|count| Some(*count) == fewest);
            first.and_then(|index| u32::try_from(index + 1).ok())
        };
        let mut next = count(None);
        for instance in members(aws_state, &self.group.id) {
            next = count(instance.placement_group.as_ref().and_then(|placed| placed.partition));
        }
        for instance in made {
            let partition = self.partition.or(next);
            instance.placement_group = Some(Placed {
                group_id: self.group.id.clone(),
                group_name: self.group.name.clone(),
                partition,
            });
            next = count(partition);
        }
    }
}
