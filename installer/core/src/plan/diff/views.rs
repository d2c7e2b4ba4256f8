//! Resources of AWS as maps, so that what changes of them can be told field by field. Policies are
//! maps by statement, in which order and spelling of lists don't matter.

use serde_json::{Map, Value, json};
use tenon_iam_policies::Document;
use tenon_iam_policies::document::Version;

use crate::desired::{FargateProfile, Queue, Role, Rule};
use crate::observe::state::{FargateState, QueueState, RoleState, RuleState};
use crate::ownership::{SPEC_HASH, Tags};
use crate::plan::change::{Change, Origin, Path, changes};

/// What leads from one state to the other. `applied` are the tags as they are: with the checksum of
/// what is asked for now, nothing is asked for that was not applied before, so whatever differs was
/// changed from outside. That is known of the fields that the checksum covers, and of no other,
/// such as tags.
pub(super) fn changed(
    (before, after): (&Value, &Value),
    applied: &Tags,
    wanted: &Tags,
    covered: &[&str],
) -> Vec<Change> {
    let mut found = changes(before, after);
    let bookkeeping = Path::default().field("tags").field(SPEC_HASH);
    found.retain(|change| change.path != bookkeeping);
    if applied.get(SPEC_HASH).is_some_and(|hash| Some(hash) == wanted.get(SPEC_HASH)) {
        for change in &mut found {
            if covered.iter().any(|field| change.path.starts_with(&[field])) {
                change.origin = Origin::Outside { by: Vec::new() };
            }
        }
    }
    found
}

pub(super) fn role_state(state: &RoleState) -> Value {
    let inline = state.inline.iter().map(|(name, text)| (name.clone(), document_text(text)));
    json!({
        "trust": document_text(&state.trust),
        "boundary": state.boundary,
        "attached": state.attached,
        "inline": inline.collect::<Map<_, _>>(),
        "tags": state.tags,
    })
}

/// A role after its step: tags of others stay.
pub(super) fn role(role: &Role, live: &RoleState) -> Value {
    let inline = role.inline.iter().map(|(name, policy)| (name.clone(), document(policy)));
    let mut attached = role.attached.clone();
    attached.sort();
    json!({
        "trust": document(&role.trust),
        "boundary": role.boundary,
        "attached": attached,
        "inline": inline.collect::<Map<_, _>>(),
        "tags": with(&live.tags, &role.tags),
    })
}

pub(super) fn queue_state(state: &QueueState, queue: &Queue) -> Value {
    // Of the many attributes of a queue, only those that are asked for.
    let mut attributes = state.attributes.clone();
    attributes.retain(|name, value| queue.attributes.contains_key(name) && !value.is_empty());
    json!({
        "attributes": attributes,
        "policy": state.attributes.get("Policy").map(|text| document_text(text)),
        "tags": state.tags,
    })
}

pub(super) fn queue(queue: &Queue, live: &QueueState) -> Value {
    let mut attributes = queue.attributes.clone();
    // SQS does not say what is empty.
    attributes.retain(|_, value| !value.is_empty());
    json!({
        "attributes": attributes,
        "policy": document(&queue.policy),
        "tags": with(&live.tags, &queue.tags),
    })
}

pub(super) fn rule_state(state: &RuleState) -> Value {
    json!({
        "pattern": state.pattern.as_deref().map(json_text),
        "enabled": state.enabled,
        "targets": state.targets,
        "tags": state.tags,
    })
}

pub(super) fn rule(rule: &Rule, live: &RuleState) -> Value {
    let mut targets = live.targets.clone();
    targets.insert(rule.target_id.clone(), rule.target_arn.clone());
    json!({
        "pattern": json_text(&rule.pattern),
        "enabled": true,
        "targets": targets,
        "tags": with(&live.tags, &rule.tags),
    })
}

pub(super) fn fargate_state(state: &FargateState) -> Value {
    let selectors = state
        .selectors
        .iter()
        .map(|(namespace, labels)| json!({"namespace": namespace, "labels": labels}));
    json!({
        "podExecutionRoleArn": state.role_arn,
        "subnets": state.subnet_ids,
        "selectors": selectors.collect::<Vec<_>>(),
    })
}

pub(super) fn fargate(profile: &FargateProfile) -> Value {
    let mut subnets = profile.subnet_ids.clone();
    subnets.sort();
    subnets.dedup();
    json!({
        "podExecutionRoleArn": profile.role_arn,
        "subnets": subnets,
        "selectors": [{"namespace": profile.namespace, "labels": profile.labels}],
    })
}

/// Tags after ours were set.
pub(super) fn with(live: &Tags, wanted: &Tags) -> Tags {
    let mut tags = live.clone();
    tags.extend(wanted.clone());
    tags
}

fn json_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn document_text(text: &str) -> Value {
    Document::parse(text).map_or_else(|_| text.into(), |parsed| document(&parsed))
}

/// A policy: its statements by id, or by number where they have none, and their lists sorted.
pub fn document(policy: &Document) -> Value {
    let mut value = json!(policy);
    if policy.version == Version::default()
        && let Some(fields) = value.as_object_mut()
    {
        // What every document should have is not worth a line.
        fields.remove("Version");
    }
    if let Some(statements) = value.get_mut("Statement") {
        let mut list = match statements.take() {
            Value::Array(list) => list,
            one => vec![one],
        };
        for (statement, number) in list.iter_mut().zip(1..) {
            sort_lists(statement);
            if let Some(statement) = statement.as_object_mut() {
                let number = || Value::from(format!("#{number}"));
                statement.entry("Sid").or_insert_with(number);
            }
        }
        list.sort_by_key(|statement| statement["Sid"].as_str().unwrap_or_default().to_owned());
        *statements = Value::Array(list);
    }
    value
}

/// Sets in IAM: the order of their members says nothing, and one alone may stand without brackets.
fn sort_lists(statement: &mut Value) {
    const SETS: [&str; 4] = ["Action", "NotAction", "Resource", "NotResource"];
    let Some(fields) = statement.as_object_mut() else { return };
    for (name, value) in fields {
        match name.as_str() {
            name if SETS.contains(&name) => sort(value),
            "Principal" | "NotPrincipal" => {
                value.as_object_mut().into_iter().flatten().for_each(|(_, value)| sort(value));
            }
            "Condition" => {
                let operators = value.as_object_mut().into_iter().flatten();
                let keys = operators.filter_map(|(_, keys)| keys.as_object_mut());
                keys.flatten().for_each(|(_, value)| sort(value));
            }
            _ => {}
        }
    }
}

fn sort(value: &mut Value) {
    let mut list = match value.take() {
        Value::Array(list) => list,
        one => vec![one],
    };
    list.sort_by_key(ToString::to_string);
    list.dedup();
    *value = Value::Array(list);
}
