//! CreateTags, DeleteTags and DescribeTags over resources of both the gateway and moto.

use std::collections::BTreeMap;

use super::super::aws_state::AwsState;
use super::super::consistency::Kind;
use super::super::filters::{any_matches, page, select};
use super::super::instance::State;
use super::super::request::{AwsRequest, Params};
use super::super::response::{AwsError, AwsResponse};
use super::super::templates::missing_id;
use super::super::xml::Element;
use super::{invalid, list_answer};

/// Tags of users per resource.
const LIMIT: usize = 50;

type Tags = BTreeMap<String, String>;

/// What to do with a resource's tags.
enum Change {
    Set(Vec<(String, String)>),
    /// Keys, each with the value that it must have.
    Unset(Vec<(String, Option<String>)>),
    UnsetAll,
}

impl Change {
    fn apply(&self, tags: &mut Tags) {
        match self {
            Self::Set(set) => tags.extend(set.iter().cloned()),
            Self::Unset(unset) => {
                for (key, value) in unset {
                    if value.as_ref().is_none_or(|value| tags.get(key) == Some(value)) {
                        tags.remove(key);
                    }
                }
            }
            Self::UnsetAll => tags.retain(|key, _| key.starts_with("aws:")),
        }
    }
}

fn is_ours(id: &str) -> bool {
    ["i-", "vol-", "eni-", "sir-", "fleet-", "lt-", "ami-", "pg-"]
        .iter()
        .any(|prefix| id.starts_with(prefix))
}

pub(super) async fn change(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let resources: Vec<String> = params.list("ResourceId").into_iter().map(str::to_owned).collect();
    let given = params.structs("Tag");
    if let Some(key) =
        given.iter().filter_map(|tag| tag.get("Key")).find(|key| key.starts_with("aws:"))
    {
        return Err(invalid(format!(
            "Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved for internal use"
        )));
    }
    let change = if request.action == "CreateTags" {
        Change::Set(params.tags("Tag"))
    } else if given.is_empty() {
        Change::UnsetAll
    } else {
        Change::Unset(
            given
                .iter()
                .filter_map(|tag| {
                    Some((tag.get("Key")?.to_owned(), tag.get("Value").map(str::to_owned)))
                })
                .collect(),
        )
    };
    let (ours, theirs): (Vec<String>, Vec<String>) =
        resources.iter().cloned().partition(|id| is_ours(id));
    for id in &ours {
        let Some(mut tags) = aws_state.ec2_tags(id) else { return Err(not_found(id)) };
        change.apply(&mut tags);
        if tags.keys().filter(|key| !key.starts_with("aws:")).count() > LIMIT {
            return Err(AwsError::new(
                "TagLimitExceeded",
                "Maximum number of tags reached for the resource",
            ));
        }
    }
    if !theirs.is_empty() {
        let mut rest =
            Params::of(params.iter().filter(|(name, _)| {
                !name.starts_with("ResourceId.") && !name.starts_with("X-Amz-")
            }));
        for (index, id) in theirs.iter().enumerate() {
            rest.set(format!("ResourceId.{}", index + 1), id);
        }
        aws_state.moto().query_params("ec2", &request.action, &rest).await?;
    }
    for id in &ours {
        apply(aws_state, id, &change);
    }
    if let Change::Set(tags) = &change {
        for (id, (key, _)) in resources.iter().flat_map(|id| tags.iter().map(move |tag| (id, tag)))
        {
            aws_state.consistency().changed(Kind::Tag, &format!("{id}/{key}"));
        }
    }
    Ok(AwsResponse::ec2(request, "<return>true</return>").with_resources(resources))
}

fn apply(aws_state: &AwsState, id: &str, change: &Change) {
    match id.split_once('-').map_or("", |(kind, _)| kind) {
        "i" => aws_state.instances().update(id, |instance| change.apply(&mut instance.tags)),
        "lt" => {
            aws_state.templates().update(id, |template| change.apply(&mut template.tags));
        }
        "pg" => aws_state.placement_groups().update(id, |group| change.apply(&mut group.tags)),
        "fleet" => {
            if let Some(fleet) = aws_state.fleets.lock().get_mut(id) {
                change.apply(&mut fleet.tags);
            }
        }
        "ami" => change.apply(aws_state.image_tags.lock().entry(id.to_owned()).or_default()),
        _ => {
            let all = aws_state.instances().all();
            let holder = all.values().find(|instance| {
                instance.volumes.iter().any(|volume| volume.id == id)
                    || instance.interfaces.iter().any(|interface| interface.id == id)
            });
            let Some(holder) = holder else { return };
            aws_state.instances().update(&holder.id, |instance| {
                instance
                    .volumes
                    .iter_mut()
                    .filter(|volume| volume.id == id)
                    .for_each(|volume| change.apply(&mut volume.tags));
                instance
                    .interfaces
                    .iter_mut()
                    .filter(|interface| interface.id == id)
                    .for_each(|interface| change.apply(&mut interface.tags));
            });
        }
    }
}

fn not_found(id: &str) -> AwsError {
    let (code, what) = match id.split_once('-').map_or("", |(kind, _)| kind) {
        "i" => ("InvalidInstanceID.NotFound", "instance ID"),
        "vol" => ("InvalidVolume.NotFound", "volume"),
        "eni" => ("InvalidNetworkInterfaceID.NotFound", "networkInterface ID"),
        "lt" => return missing_id(id),
        "pg" => ("InvalidPlacementGroup.Unknown", "placement group ID"),
        "fleet" => ("InvalidFleetId.NotFound", "fleet ID"),
        _ => ("InvalidSpotInstanceRequestID.NotFound", "spot instance request ID"),
    };
    AwsError::new(code, format!("The {what} '{id}' does not exist"))
}

/// One row of DescribeTags.
struct Row {
    resource_id: String,
    resource_type: String,
    key: String,
    value: String,
}

pub(super) async fn describe(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let theirs = aws_state.moto().query("ec2", "DescribeTags", []).await?;
    let mut rows: Vec<Row> = theirs
        .items("tagSet")
        .iter()
        .map(|item| {
            let text = |name: &str| item.get(name).unwrap_or_default().to_owned();
            Row {
                resource_id: text("resourceId"),
                resource_type: text("resourceType"),
                key: text("key"),
                value: text("value"),
            }
        })
        .collect();
    let mut add = |id: &str, kind: &str, tags: &Tags| {
        rows.extend(tags.iter().map(|(key, value)| Row {
            resource_id: id.to_owned(),
            resource_type: kind.to_owned(),
            key: key.clone(),
            value: value.clone(),
        }));
    };
    for instance in aws_state.instances().all().values() {
        add(&instance.id, "instance", &instance.tags);
        if instance.state != State::Terminated {
            instance.volumes.iter().for_each(|volume| add(&volume.id, "volume", &volume.tags));
            instance
                .interfaces
                .iter()
                .for_each(|interface| add(&interface.id, "network-interface", &interface.tags));
        }
    }
    for template in aws_state.templates().all() {
        add(&template.id, "launch-template", &template.tags);
    }
    for group in aws_state.placement_groups().all() {
        add(&group.id, "placement-group", &group.tags);
    }
    for (id, tags) in aws_state.image_tags.lock().iter() {
        add(id, "image", tags);
    }
    let rows = select(rows, &request.params.filters(), |row, name, values| match name {
        "resource-id" => Some(any_matches(values, &row.resource_id)),
        "resource-type" => Some(any_matches(values, &row.resource_type)),
        "key" => Some(any_matches(values, &row.key)),
        "value" => Some(any_matches(values, &row.value)),
        _ => name.strip_prefix("tag:").map(|key| row.key == key && any_matches(values, &row.value)),
    })?;
    let (rows, next) = page(rows, &request.params, (5, 1000), Some(1000))?;
    let items = rows.into_iter().map(|row| {
        vec![
            Element::leaf("resourceId", row.resource_id),
            Element::leaf("resourceType", row.resource_type),
            Element::leaf("key", row.key),
            Element::leaf("value", row.value),
        ]
    });
    Ok(list_answer(request, "tagSet", items.collect(), next))
}
