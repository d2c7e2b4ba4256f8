//! What stands in the way of other CRDs, and what an older version would not read.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kubernetes::object::{Key, Object};

/// What a version of Tenon knows of a CRD's objects.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    /// API versions that it serves.
    pub versions: Vec<String>,
    /// Kind of its objects.
    pub kind: String,
    /// Paths of all fields below `spec`, with `[]` for the elements of lists and `*` for any key.
    pub fields: BTreeSet<String>,
}

/// What is known by CRDs, by their names.
pub fn known(crds: &[Object]) -> BTreeMap<String, Known> {
    let one = |crd: &Object| {
        let mut known = Known {
            kind: crd.body["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned(),
            ..Known::default()
        };
        for version in versions(&crd.body) {
            if version["served"] == true {
                known.versions.extend(version["name"].as_str().map(str::to_owned));
            }
            let spec = version.pointer("/schema/openAPIV3Schema/properties/spec");
            fields(spec.unwrap_or(&Value::Null), "spec", &mut known.fields);
        }
        (crd.name.clone(), known)
    };
    crds.iter().map(one).collect()
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

fn fields(schema: &Value, path: &str, into: &mut BTreeSet<String>) {
    into.insert(path.to_owned());
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        fields(inner, &format!("{path}.{name}"), into);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], &format!("{path}[]"), into);
    }
    if schema["additionalProperties"].is_object() {
        fields(&schema["additionalProperties"], &format!("{path}.*"), into);
    }
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true
        || schema["additionalProperties"] == true;
    if open {
        into.insert(format!("{path}.**"));
    }
}

/// Why live CRDs can't become these: objects would be lost, or the version that still runs could
/// not read them.
pub fn refusals(wanted: &[Object], live: &BTreeMap<Key, Value>) -> Vec<String> {
    let mut reasons = Vec::new();
    for crd in wanted {
        let Some(live) = live.get(&crd.key()) else { continue };
        let name = &crd.name;
        let wanted =
            versions(&crd.body).filter_map(|one| one["name"].as_str()).collect::<BTreeSet<_>>();
        let served = versions(&crd.body)
            .filter(|one| one["served"] == true)
            .filter_map(|one| one["name"].as_str())
            .collect::<BTreeSet<_>>();
        let stored = live.pointer("/status/storedVersions").and_then(Value::as_array);
        for version in stored.into_iter().flatten().filter_map(Value::as_str) {
            if !wanted.contains(version) {
                reasons.push(format!(
                    "{name} has objects stored as {version}, and the new CRD has no such version: \
                     with the running version, rewrite every object (`kubectl get {name} -A -o \
                     yaml | kubectl replace -f -`), remove {version} from status.storedVersions, \
                     then upgrade"
                ));
            }
        }
        let lost = versions(live)
            .filter(|one| one["served"] == true)
            .filter_map(|one| one["name"].as_str())
            .filter(|version| !served.contains(version));
        for version in lost {
            if !reasons.iter().any(|reason| reason.starts_with(&format!("{name} "))) {
                reasons.push(format!(
                    "{name} would no longer serve {version}, which the running operator reads: \
                     upgrade to an intermediate release first"
                ));
            }
        }
    }
    reasons
}

/// Fields that objects use and a version does not know: it would not see them. One line per object
/// and field.
pub fn unreadable(known: &BTreeMap<String, Known>, objects: &[Value]) -> Vec<String> {
    let mut lines = BTreeSet::new();
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or_default();
        let Some(known) = known.values().find(|known| known.kind == kind) else { continue };
        let mut unknown = BTreeSet::new();
        walk(&object["spec"], "spec", &known.fields, &mut unknown);
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        lines.extend(unknown.into_iter().map(|path| format!("{kind} {name}: {path}")));
    }
    lines.into_iter().collect()
}

fn walk(value: &Value, path: &str, known: &BTreeSet<String>, unknown: &mut BTreeSet<String>) {
    if known.contains(&format!("{path}.**")) {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let (exact, any) = (format!("{path}.{key}"), format!("{path}.*"));
                if known.contains(&exact) {
                    walk(value, &exact, known, unknown);
                } else if known.contains(&any) {
                    walk(value, &any, known, unknown);
                } else {
                    unknown.insert(exact);
                }
            }
        }
        Value::Array(list) => {
            for value in list {
                walk(value, &format!("{path}[]"), known, unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::crds;
    use serde_json::json;

    fn crd(versions: &[(&str, bool)]) -> Object {
        let versions = versions.iter().map(|(name, served)| {
            json!({"name": name, "served": served, "schema": {"openAPIV3Schema": {"properties": {"spec": {
                "properties": {
                    "limits": {"additionalProperties": {"type": "string"}},
                    "list": {"items": {"properties": {"a": {}}}},
                },
            }}}}})
        });
        let body = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "pools.x"},
            "spec": {"names": {"kind": "Pool"}, "versions": versions.collect::<Value>()},
        });
        Object::from_json(body, "customresourcedefinitions")
    }

    fn live(versions: &[(&str, bool)], stored: &[&str]) -> BTreeMap<Key, Value> {
        let crd = crd(versions);
        let mut body = crd.body.clone();
        body["status"]["storedVersions"] = json!(stored);
        [(crd.key(), body)].into()
    }

    #[test]
    fn a_version_that_objects_are_stored_in_or_read_as_must_stay() {
        let of = |wanted: &[(&str, bool)], live: &BTreeMap<Key, Value>| {
            refusals(&[crd(wanted)], live).join("; ")
        };
        assert_eq!(of(&[("v1", true)], &live(&[("v1", true)], &["v1"])), "");
        assert_eq!(of(&[("v1", true)], &BTreeMap::new()), "");
        let stored = of(&[("v1", true)], &live(&[("v1", true)], &["v1beta1", "v1"]));
        assert!(stored.contains("stored as v1beta1"), "{stored}");
        let read = of(&[("v2", true), ("v1", false)], &live(&[("v1", true)], &["v1"]));
        assert!(read.contains("no longer serve v1"), "{read}");
    }

    #[test]
    fn fields_that_a_version_does_not_know_are_named() {
        let known = known(&[crd(&[("v1", true)])]);
        let object = |spec: Value| json!({"kind": "Pool", "metadata": {"name": "a"}, "spec": spec});
        let fits = object(json!({"limits": {"cpu": "1"}, "list": [{"a": 1}]}));
        assert_eq!(unreadable(&known, &[fits]), [""; 0]);
        let newer = object(json!({"list": [{"a": 1, "b": 2}, {"b": 3}], "replicas": 1}));
        assert_eq!(
            unreadable(&known, &[newer]),
            ["Pool a: spec.list[].b", "Pool a: spec.replicas"]
        );
    }

    #[test]
    fn the_crds_of_today_know_their_own_fields() {
        let known = known(&crds::objects());
        let pool = json!({"kind": "NodePool", "metadata": {"name": "a"}, "spec": {
            "limits": {"cpu": "1"},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"requirements": [{"key": "k", "operator": "In", "values": ["v"]}]},
            },
        }});
        assert_eq!(unreadable(&known, &[pool]), [""; 0]);
        assert_eq!(known["nodepools.karpenter.sh"].versions, ["v1"]);
    }
}
