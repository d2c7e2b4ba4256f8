//! The fields of settings files out of their JSON schema: path, type, allowed values, and what they
//! mean.

use serde_json::{Value, json};

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// Its path, such as `interruption.events[]`.
    pub(super) path: String,
    /// Its type in words, or the values that are allowed.
    pub(super) kind: String,
    /// What it means.
    pub(super) about: String,
}

impl Field {
    /// It is the field of that path, or below it. The empty path is above all.
    pub(super) fn is_at(&self, path: &str) -> bool {
        let bare = self.path.trim_end_matches("[]");
        path.is_empty()
            || bare == path
            || self.path == path
            || self.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
    }

    pub(super) fn text(&self) -> String {
        format!("{} ({})\n    {}", self.path, self.kind, self.about)
    }

    pub(super) fn json(&self) -> Value {
        json!({"path": self.path, "type": self.kind, "description": self.about})
    }
}

/// All fields, in the order of the schema. What the Helm chart's values hold is left to
/// `helm show values`.
pub(super) fn fields(schema: &Value) -> Vec<Field> {
    let mut fields = Vec::new();
    collect(schema, schema, "", &mut fields);
    fields
}

fn collect(root: &Value, schema: &Value, path: &str, fields: &mut Vec<Field>) {
    let Some(properties) = resolve(root, schema).get("properties").and_then(Value::as_object)
    else {
        return;
    };
    for (name, field) in properties {
        let resolved = resolve(root, field);
        let is_list = kind_is(resolved, "array");
        let brackets = if is_list { "[]" } else { "" };
        let path = if path.is_empty() {
            format!("{name}{brackets}")
        } else {
            format!("{path}.{name}{brackets}")
        };
        let item = if is_list { resolve(root, &resolved["items"]) } else { resolved };
        let about = [field, resolved].into_iter().find_map(|one| one.get("description")?.as_str());
        let is_leaf = item.get("properties").is_none();
        fields.push(Field {
            kind: if is_leaf { kind(root, item) } else { "section".to_owned() },
            about: about.unwrap_or_default().replace("\n\n", " "),
            path: path.clone(),
        });
        if !is_leaf {
            collect(root, item, &path, fields);
        }
    }
}

/// Follows references, and takes the part of `anyOf` that is not null.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let pointer = name.trim_start_matches('#');
        return root.pointer(pointer).map_or(schema, |target| resolve(root, target));
    }
    let any = schema.get("anyOf").and_then(Value::as_array);
    match any.and_then(|any| any.iter().find(|one| !kind_is(one, "null"))) {
        Some(one) => resolve(root, one),
        None => schema,
    }
}

fn kind_is(schema: &Value, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == name,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == name),
        _ => false,
    }
}

fn kind(root: &Value, schema: &Value) -> String {
    let constant = |one: &Value| one.get("const").and_then(Value::as_str).map(str::to_owned);
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | ");
    }
    if let Some(any) = schema.get("oneOf").and_then(Value::as_array) {
        let mut all = Vec::new();
        for one in any {
            let one = resolve(root, one);
            all.extend(constant(one));
            let values = one.get("enum").and_then(Value::as_array).into_iter().flatten();
            all.extend(values.filter_map(Value::as_str).map(str::to_owned));
        }
        return all.join(" | ");
    }
    constant(schema).unwrap_or_else(|| {
        let words = [
            ("string", "text"),
            ("boolean", "true | false"),
            ("integer", "whole number"),
            ("object", "map"),
        ];
        let word = words.iter().find(|(name, _)| kind_is(schema, name));
        word.map_or("any", |(_, word)| word).to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_installer_core::settings::config::Config;

    fn field(path: &str) -> Field {
        let fields = fields(&Config::json_schema());
        fields.into_iter().find(|one| one.path == path).expect("the field exists")
    }

    #[test]
    fn fields_are_explained_in_words() {
        assert_eq!(field("identity.installAgent").kind, "true | false");
        assert_eq!(field("network.discovery").kind, "tags | ids");
        assert_eq!(
            field("interruption.events[]").kind,
            "spot | state | health | rebalance | capres"
        );
        assert_eq!(field("defaults.cpuLimit").kind, "whole number");
        assert_eq!(field("cluster").kind, "section");
        assert_eq!(field("cluster.name").about, "Name of the EKS cluster.");
    }

    #[test]
    fn every_field_has_an_explanation() {
        for field in fields(&Config::json_schema()) {
            assert!(!field.about.is_empty(), "{}", field.path);
        }
    }

    #[test]
    fn a_path_finds_the_field_and_what_is_below_it() {
        let fields = fields(&Config::json_schema());
        let at = |path: &str| fields.iter().filter(|one| one.is_at(path)).count();
        assert_eq!(at("cluster.name"), 1);
        assert_eq!(at("interruption.events"), 1);
        assert!(at("cluster") > 3);
        assert_eq!(at(""), fields.len());
        assert_eq!(at("clust"), 0);
    }
}
