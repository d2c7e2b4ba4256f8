//! Checks a document against a JSON schema, as far as schemas of our own types go, and reports
//! everything that is wrong at once.
//!
//! The types' own `Deserialize` would stop at the first problem and know no lines; the schema comes
//! from the same types.

use std::path::Path;

use serde_json::Value;

use super::document::{Document, Node};
use super::problem::Problem;
use super::syntax::{QUANTITY, is_quantity};

/// All problems of a document, in the order of the file.
pub fn check(schema: &Value, document: &Document, file: &Path) -> Vec<Problem> {
    check_in(schema, document, Some(file))
}

/// The same of a value that is in no file.
pub(super) fn check_value(schema: &Value, value: Value) -> Vec<Problem> {
    check_in(schema, &Document::from(value), None)
}

fn check_in(schema: &Value, document: &Document, file: Option<&Path>) -> Vec<Problem> {
    let mut checker = Checker { root: schema, file, problems: Vec::new() };
    checker.check(schema, document, "");
    checker.problems.sort_by_key(|problem| problem.line.unwrap_or(0));
    checker.problems
}

struct Checker<'a> {
    root: &'a Value,
    file: Option<&'a Path>,
    problems: Vec<Problem>,
}

impl<'a> Checker<'a> {
    fn check(&mut self, schema: &'a Value, document: &Document, path: &str) {
        let is_null = matches!(document.node, Node::Scalar(Value::Null));
        if is_null && path.starts_with("deploy.values.") {
            // As for Helm, it takes the default away.
            return;
        }
        if names_quantity(schema) {
            let text = match &document.node {
                Node::Scalar(Value::String(text)) => text.clone(),
                other => shown_node(other),
            };
            if !is_quantity(&text) {
                let message = format!("{} is not allowed; allowed: {QUANTITY}", shown(document));
                self.report(document, path, message);
            }
            return;
        }
        let schema = self.resolve(schema, document);
        let is_nothing = matches!(&document.node, Node::Map(entries) if entries.is_empty());
        if is_nothing && types(schema).contains(&"array") && path.starts_with("deploy.values.") {
            // Karpenter's chart has it for a list.
            return;
        }
        if let Some(allowed) = constants(schema) {
            if !allowed.contains(&&document.to_json()) {
                let allowed =
                    allowed.iter().map(|value| plain(value)).collect::<Vec<_>>().join(", ");
                self.report(
                    document,
                    path,
                    format!("{} is not allowed; allowed: {allowed}", shown(document)),
                );
            }
            return;
        }
        if !types(schema).is_empty() && !types(schema).iter().any(|name| is_of_type(document, name))
        {
            let expected = types(schema)
                .iter()
                .filter(|name| **name != "null")
                .map(|name| in_words(name))
                .collect::<Vec<_>>()
                .join(" or ");
            self.report(
                document,
                path,
                format!("{} is not allowed; allowed: {expected}", shown(document)),
            );
            return;
        }
        match &document.node {
            Node::Map(entries) => self.check_map(schema, document, entries, path),
            Node::List(items) => {
                if let Some(schema) = schema.get("items") {
                    for (i, item) in items.iter().enumerate() {
                        self.check(schema, item, &format!("{path}[{i}]"));
                    }
                }
            }
            Node::Scalar(value) => self.check_range(schema, document, value, path),
        }
    }

    fn check_map(
        &mut self,
        schema: &'a Value,
        document: &Document,
        entries: &[(String, Document)],
        path: &str,
    ) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (i, (key, value)) in entries.iter().enumerate() {
            let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            if entries[..i].iter().any(|(earlier, _)| earlier == key) {
                self.report(value, &inner, "is duplicated".to_owned());
            }
            match (
                properties.and_then(|properties| properties.get(key)),
                schema.get("additionalProperties"),
            ) {
                (Some(schema), _) => self.check(schema, value, &inner),
                (None, Some(Value::Bool(false))) => {
                    let known = properties
                        .map(|properties| properties.keys().map(String::as_str).collect::<Vec<_>>())
                        .unwrap_or_default();
                    let meant = known
                        .iter()
                        .find(|known| are_alike(known, key))
                        .map(|known| format!(" (did you mean {known}?)"));
                    let meant = meant.unwrap_or_default();
                    self.report(
                        value,
                        &inner,
                        format!("unknown field{meant}; allowed: {}", known.join(", ")),
                    );
                }
                (None, Some(schema @ Value::Object(_))) => self.check(schema, value, &inner),
                (None, _) => {}
            }
        }
        for required in schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !entries.iter().any(|(key, _)| key == required) {
                let inner = if path.is_empty() {
                    required.to_owned()
                } else {
                    format!("{path}.{required}")
                };
                let schema = properties.and_then(|properties| properties.get(required));
                let allowed = schema.and_then(|schema| constants(self.resolve(schema, document)));
                let allowed = allowed.map(|values| {
                    values.iter().map(|value| plain(value)).collect::<Vec<_>>().join(", ")
                });
                let allowed =
                    allowed.map(|values| format!("; allowed: {values}")).unwrap_or_default();
                self.report(document, &inner, format!("missing{allowed}"));
            }
        }
    }

    fn check_range(&mut self, schema: &Value, document: &Document, value: &Value, path: &str) {
        let Some(number) = value.as_f64() else { return };
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let (minimum, maximum) = (bound("minimum"), bound("maximum"));
        if minimum.is_some_and(|minimum| number < minimum)
            || maximum.is_some_and(|maximum| number > maximum)
        {
            let allowed = match (minimum, maximum) {
                (Some(minimum), Some(maximum)) => format!("{minimum} to {maximum}"),
                (Some(minimum), None) => format!("{minimum} or more"),
                (None, Some(maximum)) => format!("at most {maximum}"),
                (None, None) => return,
            };
            self.report(document, path, format!("{number} is not allowed; allowed: {allowed}"));
        }
    }

    /// Follows references, and takes the branch of an optional value that is not `null`.
    fn resolve(&self, schema: &'a Value, document: &Document) -> &'a Value {
        let mut schema = schema;
        loop {
            if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
                match self.root.pointer(reference.trim_start_matches('#')) {
                    Some(target) => schema = target,
                    None => return schema,
                }
            } else if let Some(branches) = schema.get("anyOf").and_then(Value::as_array) {
                let is_null =
                    |branch: &&Value| branch.get("type").and_then(Value::as_str) == Some("null");
                let wanted = matches!(document.node, Node::Scalar(Value::Null));
                match branches.iter().find(|branch| is_null(branch) == wanted) {
                    Some(branch) => schema = branch,
                    None => return schema,
                }
            } else {
                return schema;
            }
        }
    }

    fn report(&mut self, document: &Document, path: &str, message: String) {
        let line = (document.line > 0).then_some(document.line);
        self.problems.push(match self.file {
            Some(file) => Problem::in_file(file, line, path, message),
            None => Problem::of_value(path, message),
        });
    }
}

/// The values of an enumeration.
fn constants(schema: &Value) -> Option<Vec<&Value>> {
    if let Some(value) = schema.get("const") {
        return Some(vec![value]);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.iter().collect());
    }
    let branches = schema.get("oneOf").and_then(Value::as_array)?;
    branches.iter().map(constants).collect::<Option<Vec<_>>>().map(|values| values.concat())
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_of_type(document: &Document, name: &str) -> bool {
    match (&document.node, name) {
        (Node::Map(_), "object") | (Node::List(_), "array") => true,
        // A section whose fields are all commented out is empty, not wrong.
        (Node::Scalar(Value::Null), "null") => true,
        (Node::Scalar(Value::Bool(_)), "boolean") => true,
        (Node::Scalar(Value::String(_)), "string") => true,
        (Node::Scalar(Value::Number(number)), "integer") => number.is_i64() || number.is_u64(),
        (Node::Scalar(Value::Number(_)), "number") => true,
        _ => false,
    }
}

fn in_words(name: &str) -> &str {
    match name {
        "object" => "a map",
        "array" => "a list",
        "boolean" => "true or false",
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        other => other,
    }
}

/// Whether it is the schema of a quantity, for which numbers may stand as well.
fn names_quantity(schema: &Value) -> bool {
    let reference = schema.get("$ref").and_then(Value::as_str);
    reference.is_some_and(|reference| reference.ends_with(".resource.Quantity"))
}

fn shown(document: &Document) -> String {
    shown_node(&document.node)
}

fn shown_node(node: &Node) -> String {
    match node {
        Node::Map(_) => "a map".to_owned(),
        Node::List(_) => "a list".to_owned(),
        Node::Scalar(Value::Null) => "an empty value".to_owned(),
        Node::Scalar(value) => value.to_string(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The same but for case, dashes and one slip: a letter wrong, missing, too many or swapped with
/// its neighbour.
fn are_alike(a: &str, b: &str) -> bool {
    let normal =
        |text: &str| text.to_lowercase().replace(['-', '_'], "").chars().collect::<Vec<_>>();
    let (a, b) = (normal(a), normal(b));
    let start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
    a.len() <= 1 && b.len() <= 1 || a.len() == 2 && b.len() == 2 && a[0] == b[1] && a[1] == b[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised() {
        assert!(are_alike("region", "regoin"));
        assert!(are_alike("region", "regon"));
        assert!(are_alike("subnetIds", "subnet_ids"));
        assert!(!are_alike("region", "name"));
    }
}
