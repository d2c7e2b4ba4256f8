//! What a user adds to generated objects.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::node_pool::base_name;
use crate::problem::Problem;

/// The annotation of a generated object with the patches that it has been changed by: a list in
/// JSON. With it, whoever generates the object again needs no file.
pub const PATCH_ANNOTATION: &str = "tenon.sh/kops-patch";

/// Changes to generated objects, by kind and name; `*` stands for every name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Patches(BTreeMap<(String, String), Value>);

/// Reads patches: YAML documents with the `kind` and `metadata.name` of a generated NodePool or
/// EC2NodeClass (`*` for all of them) and the fields of `spec` that are to differ. As in a JSON
/// merge patch, `null` removes a field and a list replaces a list.
///
/// # Errors
/// Every document that is none of these.
pub fn parse_patches(text: &str) -> Result<Patches, Vec<Problem>> {
    let mut patches = Patches::default();
    let mut problems = Vec::new();
    for (at, document) in documents(text).enumerate() {
        let what = format!("patch {}", at + 1);
        let wrong = |field: &str, message: &str| Problem::new(&what, field, message);
        let document: Value = match serde_saphyr::from_str(document) {
            Ok(document) => document,
            Err(error) => {
                problems.push(wrong("", &format!("it is no YAML document: {error}")));
                continue;
            }
        };
        let kind = document["kind"].as_str().unwrap_or_default();
        let name = document["metadata"]["name"].as_str().unwrap_or_default();
        if !["EC2NodeClass", "NodePool"].contains(&kind) {
            problems.push(wrong("kind", "write EC2NodeClass or NodePool"));
        }
        if name.is_empty() {
            problems.push(wrong("metadata.name", "name the object, or write \"*\" for all"));
        }
        if !document["spec"].is_object() {
            problems.push(wrong("spec", "write the fields that are to differ"));
        }
        let key = (kind.to_owned(), name.to_owned());
        if patches.0.insert(key, document["spec"].clone()).is_some() {
            problems.push(wrong("metadata.name", "there are two patches for this object"));
        }
    }
    if problems.is_empty() { Ok(patches) } else { Err(problems) }
}

impl Patches {
    /// Changes the objects, and records in their annotations how. `elsewhere` are the names of
    /// InstanceGroups whose objects are not among them: patches for those change nothing here.
    ///
    /// # Errors
    /// Patches for objects of no InstanceGroup.
    pub fn apply<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a mut Value>,
        elsewhere: &[String],
    ) -> Result<(), Vec<Problem>> {
        let recorded = |object: &mut Value, patches: &[&Value]| {
            let patches = serde_json::to_string(patches).unwrap_or_default();
            object["metadata"]["annotations"] = json!({ PATCH_ANNOTATION: patches });
        };
        self.merge(objects, elsewhere, recorded)
    }

    /// Changes the objects, and hands `changed` each of those that were, with its patches.
    fn merge<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a mut Value>,
        elsewhere: &[String],
        changed: impl Fn(&mut Value, &[&Value]),
    ) -> Result<(), Vec<Problem>> {
        let mut objects = objects.into_iter().map(|it| (it, Vec::new())).collect::<Vec<_>>();
        let mut problems = Vec::new();
        // Those for all come first in the order of names.
        for ((kind, name), patch) in &self.0 {
            let is_meant = |object: &Value| {
                object["kind"] == **kind && (name == "*" || object["metadata"]["name"] == **name)
            };
            let is_of =
                |group: &String| name == group || (kind == "NodePool" && *name == base_name(group));
            let mut is_used = name == "*" || elsewhere.iter().any(is_of);
            for (object, patches) in &mut objects {
                if is_meant(object) {
                    is_used = true;
                    json_patch::merge(&mut object["spec"], patch);
                    patches.push(patch);
                }
            }
            if !is_used {
                let what = format!("patch for {kind} {name}");
                problems.push(Problem::new(&what, "", "no such object is generated"));
            }
        }
        for (object, patches) in objects.into_iter().filter(|(_, patches)| !patches.is_empty()) {
            changed(object, &patches);
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

/// Changes a generated object by the patches that are recorded in `annotation` of the object that
/// it is to take the place of, and keeps the record.
///
/// # Errors
/// If `annotation` is not such a record.
pub fn apply_recorded(object: &mut Value, annotation: &str) -> Result<(), serde_json::Error> {
    for patch in serde_json::from_str::<Vec<Value>>(annotation)? {
        json_patch::merge(&mut object["spec"], &patch);
    }
    object["metadata"]["annotations"] = json!({ PATCH_ANNOTATION: annotation });
    Ok(())
}

impl Patches {
    /// The fields of the patches alone, as objects that can be applied beside those that kOps
    /// applies. `elsewhere` as in [`Self::apply`].
    ///
    /// # Errors
    /// Patches for objects of no InstanceGroup, fields that those set already, and fields
    /// that are to be removed.
    pub fn alone(
        &self,
        objects: &[Value],
        elsewhere: &[String],
    ) -> Result<Vec<Value>, Vec<Problem>> {
        let mut alone = objects
            .iter()
            .map(|object| {
                json!({
                    "apiVersion": object["apiVersion"],
                    "kind": object["kind"],
                    "metadata": {"name": object["metadata"]["name"]},
                    "spec": {},
                })
            })
            .collect::<Vec<_>>();
        self.merge(alone.iter_mut(), elsewhere, |_, _| {})?;
        let mut problems = Vec::new();
        for (alone, object) in alone.iter().zip(objects) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let what = format!("patch for {} {name}", object["kind"].as_str().unwrap_or_default());
            let mut taken = Vec::new();
            overlap(&alone["spec"], &object["spec"], "spec", &mut taken);
            problems.extend(
                taken.iter().map(|field| Problem::new(&what, field, "kOps sets this field itself")),
            );
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        alone.retain(|object| object["spec"].as_object().is_some_and(|spec| !spec.is_empty()));
        Ok(alone)
    }
}

/// Paths that both set.
fn overlap(a: &Value, b: &Value, path: &str, found: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                if let Some(other) = b.get(key) {
                    overlap(value, other, &format!("{path}.{key}"), found);
                }
            }
        }
        _ => found.push(path.to_owned()),
    }
}

/// The documents of a file, without those that hold comments alone.
fn documents(text: &str) -> impl Iterator<Item = &str> {
    let is_said = |document: &&str| {
        document.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    };
    text.split("\n---").map(|document| document.trim_start_matches("---")).filter(is_said)
}
