//! Who owns which fields of an object, and what is left of it after ours are applied.
//!
//! The API server records for each manager the fields that it wrote last
//! (`metadata.managedFields`). That is the record of what was applied: a field that somebody else
//! wrote since is theirs in it.

use serde_json::{Map, Value};

use super::list::{common_key, name};
use super::object::first_difference;

/// The fields that managers own, as `FieldsV1`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ownership {
    managers: Vec<Manager>,
}

#[derive(Debug, Clone)]
struct Manager {
    name: String,
    /// It applies, so that fields that it no longer wants are removed.
    applies: bool,
    fields: Value,
}

/// Where a field is, as this module looks it up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At<'a> {
    /// In a field of a map.
    Field(&'a str),
    /// In the element of a list in which a field has this value.
    Element(&'a str, &'a str),
}

impl Ownership {
    /// What the object records. Status is nobody's business here.
    pub(crate) fn of(live: &Value) -> Self {
        let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
        let managers = entries.into_iter().flatten().filter_map(|entry| {
            if entry["subresource"] == "status" {
                return None;
            }
            Some(Manager {
                name: entry["manager"].as_str()?.to_owned(),
                applies: entry["operation"] == "Apply",
                fields: entry.get("fieldsV1")?.clone(),
            })
        });
        Self { managers: managers.collect() }
    }

    /// Names of the managers that own a field, or something that it is part of.
    pub(crate) fn owners(&self, path: &[At<'_>]) -> Vec<&str> {
        let own = self.managers.iter().filter(|manager| covers(&manager.fields, path));
        let mut names = own.map(|manager| manager.name.as_str()).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The object after the fields that these managers applied and that are no longer wanted are
    /// gone.
    fn pruned(&self, live: &Value, wanted: &Value, ours: &[&str]) -> Value {
        let mut after = live.clone();
        let is_ours = |manager: &&Manager| ours.contains(&manager.name.as_str());
        let others = self.managers.iter().filter(|manager| !is_ours(manager));
        let others = others.map(|manager| &manager.fields).collect::<Vec<_>>();
        for manager in self.managers.iter().filter(|one| one.applies && is_ours(one)) {
            prune(&mut after, Some(wanted), &manager.fields, &others);
        }
        after
    }

    /// The object after it was applied by these managers: what is wanted wins, what they no longer
    /// want goes, and what others own stays.
    pub(crate) fn applied(&self, live: &Value, wanted: &Value, ours: &[&str]) -> Value {
        let mut after = self.pruned(live, wanted, ours);
        let fields = self.managers.iter().map(|manager| &manager.fields).collect::<Vec<_>>();
        overlay(&mut after, wanted, &fields);
        after
    }
}

fn covers(fields: &Value, path: &[At<'_>]) -> bool {
    let Some(fields) = fields.as_object() else { return false };
    let Some((first, rest)) = path.split_first() else { return true };
    if fields.keys().all(|key| key == ".") {
        // A list or map that is owned as a whole.
        return true;
    }
    let next = match first {
        At::Field(name) => fields.get(&format!("f:{name}")),
        At::Element(key, name) => {
            fields.iter().find(|(id, _)| is_element(id, key, name)).map(|(_, fields)| fields)
        }
    };
    next.is_some_and(|next| covers(next, rest))
}

fn is_element(id: &str, key: &str, name: &str) -> bool {
    let keys = id.strip_prefix("k:").and_then(|text| serde_json::from_str::<Value>(text).ok());
    match keys.as_ref().and_then(|keys| keys.get(key)) {
        Some(Value::String(text)) => text == name,
        Some(Value::Number(number)) => number.to_string() == name,
        _ => false,
    }
}

fn prune(live: &mut Value, wanted: Option<&Value>, owned: &Value, others: &[&Value]) {
    for (id, below) in owned.as_object().into_iter().flatten() {
        let theirs = others.iter().filter_map(|fields| fields.get(id)).collect::<Vec<_>>();
        if let Some(name) = id.strip_prefix("f:") {
            let wanted = wanted.and_then(|wanted| wanted.get(name)).filter(|it| !it.is_null());
            let Some(fields) = live.as_object_mut() else { continue };
            let Some(field) = fields.get_mut(name) else { continue };
            let is_leaf = below.as_object().is_none_or(Map::is_empty);
            if !is_leaf {
                prune(field, wanted, below, &theirs);
            }
            let is_empty = field.as_object().is_some_and(Map::is_empty)
                || field.as_array().is_some_and(Vec::is_empty);
            if wanted.is_none() && theirs.is_empty() && (is_leaf || is_empty) {
                fields.remove(name);
            }
        } else if let Some(value) = id.strip_prefix("v:") {
            let Ok(value) = serde_json::from_str::<Value>(value) else { continue };
            let is_wanted = wanted.and_then(Value::as_array).is_some_and(|it| it.contains(&value));
            let Some(list) = live.as_array_mut() else { continue };
            if !is_wanted && theirs.is_empty() {
                list.retain(|element| *element != value);
            }
        } else if id.starts_with("k:") {
            let matches = |element: &Value| is_of(id, element);
            let wanted = wanted.and_then(Value::as_array);
            let wanted = wanted.and_then(|list| list.iter().find(|element| matches(element)));
            let Some(list) = live.as_array_mut() else { continue };
            let Some(at) = list.iter().position(matches) else { continue };
            if wanted.is_none() && theirs.is_empty() {
                list.remove(at);
            } else {
                prune(&mut list[at], wanted, below, &theirs);
            }
        }
    }
}

/// What is wanted over what is there. The API server's defaults within elements of a list stay, and
/// so do elements of others in a list that has several owners.
fn overlay(base: &mut Value, over: &Value, fields: &[&Value]) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                let id = format!("f:{key}");
                let below = fields.iter().filter_map(|fields| fields.get(&id)).collect::<Vec<_>>();
                overlay(base.entry(key.clone()).or_insert(Value::Null), value, &below);
            }
        }
        (Value::Array(base), Value::Array(over)) => overlay_list(base, over, fields),
        (base, over) => {
            // A number that is written in another way stays as it is.
            if first_difference(over, base).is_some() {
                base.clone_from(over);
            }
        }
    }
}

fn overlay_list(base: &mut Vec<Value>, over: &[Value], fields: &[&Value]) {
    let before = std::mem::take(base);
    let key = common_key(&before, over);
    let name = |element: &Value| key.and_then(|key| name(element, key));
    let elements = over.iter().enumerate().map(|(i, wanted)| {
        let live = match key {
            Some(_) => before.iter().find(|live| name(live) == name(wanted)),
            None => before.get(i).filter(|_| before.len() == over.len()),
        };
        let below = fields.iter().filter_map(|fields| fields.as_object()).flatten();
        let below = below.filter(|(id, _)| is_of(id, wanted)).map(|(_, fields)| fields);
        let mut element = live.cloned().unwrap_or(Value::Null);
        overlay(&mut element, wanted, &below.collect::<Vec<_>>());
        element
    });
    base.extend(elements);
    let has_owners = |prefix: &str| {
        let ids = fields.iter().filter_map(|fields| fields.as_object()).flat_map(Map::keys);
        ids.into_iter().any(|id| id.starts_with(prefix))
    };
    if has_owners("v:") {
        // A set, in the API server's order.
        let new = base.iter().filter(|element| !before.contains(element)).cloned();
        *base = before.iter().cloned().chain(new.collect::<Vec<_>>()).collect();
        return;
    }
    if key.is_none() {
        return;
    }
    if has_owners("k:") {
        let wanted = over.iter().map(name).collect::<Vec<_>>();
        base.extend(before.iter().filter(|live| !wanted.contains(&name(live))).cloned());
    }
    // The API server keeps its order.
    let place = |element: &Value| before.iter().position(|live| name(live) == name(element));
    base.sort_by_key(|element| place(element).unwrap_or(usize::MAX));
}

/// Whether the id of an element in the record is that of this element.
fn is_of(id: &str, element: &Value) -> bool {
    let keys = id.strip_prefix("k:").and_then(|text| serde_json::from_str::<Value>(text).ok());
    let keys = keys.as_ref().and_then(Value::as_object);
    keys.is_some_and(|keys| keys.iter().all(|(key, value)| element.get(key) == Some(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live() -> Value {
        json!({
            "metadata": {
                "managedFields": [
                    {"manager": "tenon", "operation": "Apply", "fieldsV1": {"f:spec": {
                        "f:paused": {},
                        "f:selector": {"f:a": {}, "f:b": {}},
                        "f:containers": {
                            "k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:image": {}, "f:stdin": {}},
                            "k:{\"name\":\"old\"}": {".": {}, "f:name": {}},
                        },
                        "f:zones": {},
                    }}},
                    {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {
                        "f:replicas": {},
                        "f:containers": {"k:{\"name\":\"theirs\"}": {".": {}, "f:name": {}}},
                    }}},
                    {"manager": "kubelet", "operation": "Update", "subresource": "status", "fieldsV1": {
                        "f:spec": {"f:paused": {}},
                    }},
                ],
            },
            "spec": {
                "paused": true,
                "replicas": 5,
                "selector": {"a": "1", "b": "2"},
                "containers": [
                    {"name": "a", "image": "x:1", "stdin": true, "default": 1},
                    {"name": "old"},
                    {"name": "theirs"},
                ],
                "zones": ["a"],
            },
        })
    }

    #[test]
    fn owners_are_those_who_wrote_the_field_or_what_it_is_part_of() {
        let ownership = Ownership::of(&live());
        let spec = At::Field("spec");
        assert_eq!(ownership.owners(&[spec, At::Field("replicas")]), ["kubectl"]);
        assert_eq!(ownership.owners(&[spec, At::Field("paused")]), ["tenon"]);
        let image = [spec, At::Field("containers"), At::Element("name", "a"), At::Field("image")];
        assert_eq!(ownership.owners(&image), ["tenon"]);
        assert_eq!(ownership.owners(&[spec, At::Field("zones"), At::Field("x")]), ["tenon"]);
        assert!(ownership.owners(&[spec, At::Field("minReadySeconds")]).is_empty());
    }

    #[test]
    fn an_applied_object_keeps_what_others_own_and_loses_what_is_no_longer_wanted() {
        let wanted = json!({"spec": {
            "selector": {"a": "1"},
            "containers": [{"name": "a", "image": "x:2"}, {"name": "new"}],
            "zones": ["b"],
        }});
        let after = Ownership::of(&live()).applied(&live(), &wanted, &["tenon", "helm"]);
        assert_eq!(
            after["spec"],
            json!({
                "replicas": 5,
                "selector": {"a": "1"},
                "containers": [
                    {"name": "a", "image": "x:2", "default": 1},
                    {"name": "theirs"},
                    {"name": "new"},
                ],
                "zones": ["b"],
            })
        );
    }

    #[test]
    fn a_set_keeps_the_elements_of_others_and_loses_ours_that_are_no_longer_wanted() {
        let set = |ids: &[&str]| {
            let ids = ids.iter().map(|id| (format!("v:\"{id}\""), json!({})));
            json!({"f:spec": {"f:names": Value::Object(ids.collect())}})
        };
        let live = json!({
            "metadata": {"managedFields": [
                {"manager": "tenon", "operation": "Apply", "fieldsV1": set(&["a", "old"])},
                {"manager": "other", "operation": "Apply", "fieldsV1": set(&["theirs"])},
            ]},
            "spec": {"names": ["theirs", "old", "a"]},
        });
        let wanted = json!({"spec": {"names": ["a", "new"]}});
        let after = Ownership::of(&live).applied(&live, &wanted, &["tenon"]);
        assert_eq!(after["spec"]["names"], json!(["theirs", "a", "new"]));
    }

    #[test]
    fn without_a_record_what_is_wanted_replaces_lists() {
        let mut live = live();
        live["metadata"] = json!({});
        let wanted = json!({"spec": {"containers": [{"name": "a", "image": "x:2"}]}});
        let after = Ownership::of(&live).applied(&live, &wanted, &["tenon"]);
        let containers = json!([{"name": "a", "image": "x:2", "stdin": true, "default": 1}]);
        assert_eq!(after["spec"]["containers"], containers);
        assert_eq!(after["spec"]["paused"], true);
    }
}
