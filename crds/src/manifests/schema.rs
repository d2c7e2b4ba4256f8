//! Edits of a schema by path, for the tables of the kinds.

use serde_json::{Map, Value, json};

/// The schema of a kind, as JSON.
pub(super) struct Schema(Value);

/// A CEL rule and the message that users see when it does not hold.
pub(super) fn rule(rule: impl Into<String>, message: impl Into<String>) -> Value {
    json!({ "rule": rule.into(), "message": message.into() })
}

/// A CEL list of texts.
pub(super) fn cel_list<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| format!("'{text}'")).collect();
    format!("[{}]", quoted.join(", "))
}

impl Schema {
    /// Takes what schemars derived and removes what the API server would read differently from
    /// Karpenter's schema: nothing is nullable, so that `null` is refused instead of stored.
    pub(super) fn new(mut derived: Value) -> Self {
        remove_nullable(&mut derived);
        if let Value::Object(root) = &mut derived {
            root.remove("title");
        }
        Self(derived)
    }

    pub(super) fn into_value(self) -> Value {
        self.0
    }

    /// Sets keywords of the field at `path`. `spec.list[].field` goes into the items of a list,
    /// `spec.map{}` into the values of a map; an empty path is the object itself. CEL rules are
    /// added to those that are there, everything else is replaced.
    ///
    /// # Panics
    /// If there is no such field: the table and the types have drifted apart.
    pub(super) fn at(&mut self, path: &str, keywords: Value) -> &mut Self {
        let field = self.field(path);
        let Value::Object(keywords) = keywords else { panic!("keywords of {path} are an object") };
        for (keyword, value) in keywords {
            match (keyword.as_str(), field.get_mut(&keyword)) {
                ("x-kubernetes-validations", Some(Value::Array(rules))) => {
                    rules.extend(value.as_array().cloned().unwrap_or_default());
                }
                _ => {
                    field.insert(keyword, value);
                }
            }
        }
        self
    }

    /// Adds CEL rules to the field at `path`.
    pub(super) fn rules(
        &mut self,
        path: &str,
        rules: impl IntoIterator<Item = Value>,
    ) -> &mut Self {
        self.at(path, json!({ "x-kubernetes-validations": rules.into_iter().collect::<Vec<_>>() }))
    }

    /// Sets which fields of the object at `path` must be given.
    pub(super) fn required(&mut self, path: &str, fields: &[&str]) -> &mut Self {
        let field = self.field(path);
        if fields.is_empty() {
            field.remove("required");
        } else {
            field.insert("required".to_owned(), json!(fields));
        }
        self
    }

    /// Removes keywords of the field at `path`.
    pub(super) fn without(&mut self, path: &str, keywords: &[&str]) -> &mut Self {
        let field = self.field(path);
        for keyword in keywords {
            field.remove(*keyword);
        }
        self
    }

    fn field(&mut self, path: &str) -> &mut Map<String, Value> {
        let mut field = &mut self.0;
        for segment in path.split('.').filter(|segment| !segment.is_empty()) {
            let name = segment.trim_end_matches("[]").trim_end_matches("{}");
            field = &mut field["properties"][name];
            if segment.ends_with("[]") {
                field = &mut field["items"];
            } else if segment.ends_with("{}") {
                field = &mut field["additionalProperties"];
            }
        }
        field.as_object_mut().unwrap_or_else(|| panic!("the schema has no field {path}"))
    }
}

fn remove_nullable(schema: &mut Value) {
    match schema {
        Value::Object(keywords) => {
            keywords.remove("nullable");
            if let Some(Value::Array(values)) = keywords.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            keywords.values_mut().for_each(remove_nullable);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_nullable),
        _ => {}
    }
}
