//! The charts' `values.schema.json` and `README.md` are made from the types of the values, the
//! charts' default values and `Chart.yaml`, whose versions are the workspace's; these tests fail
//! when the files differ. To write them again:
//! `TENON_REWRITE=1 cargo test --workspace --test chart_files`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenon_installer_core::settings::values::chart::schema;

const COMMAND: &str = "TENON_REWRITE=1 cargo test --workspace --test chart_files";

fn charts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&read(path)).expect("YAML")
}

/// The schema of the chart with the CRDs, which has few values.
fn schema_of_crds() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart tenon-crds",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "additionalAnnotations": {
                "description": "Annotations for all CustomResourceDefinitions.",
                "type": ["object", "null"],
                "additionalProperties": { "type": "string" },
            },
            "global": {
                "description": "Values that Helm passes to all charts of an umbrella chart.",
                "type": ["object", "null"],
                "additionalProperties": true,
            },
        },
    })
}

/// A row for each value: its key, type, default and description.
fn rows(schema: &Value, root: &Value, defaults: &Value, path: &str, table: &mut String) {
    let properties = schema["properties"].as_object().expect("properties");
    for (name, property) in properties {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let target = target(property);
        let definition = target.as_deref().map(|name| &root["definitions"][name]);
        let default = defaults.get(name).unwrap_or(&Value::Null);
        if let (Some(name), Some(definition)) = (&target, definition)
            && !name.starts_with("io.k8s.")
        {
            rows(definition, root, default, &key, table);
            continue;
        }
        let description =
            property["description"].as_str().unwrap_or_else(|| panic!("{key} has no description"));
        let default = if name == "global" { "`{}`".to_owned() } else { format!("`{default}`") };
        let default = default.replace('|', "\\|");
        let description = description.replace('|', "\\|");
        let _ = writeln!(table, "| `{key}` | {} | {default} | {description} |", kind(property));
    }
}

/// The name of the type that a property refers to.
fn target(property: &Value) -> Option<String> {
    let branches = property["anyOf"].as_array().into_iter().flatten();
    let mut references = branches.filter_map(|branch| branch["$ref"].as_str());
    Some(references.next()?.rsplit('/').next()?.to_owned())
}

/// A property's type in words.
fn kind(property: &Value) -> String {
    if let Some(target) = target(property) {
        let name = target.rsplit('.').next().unwrap_or_default();
        return match name {
            "IntOrString" => "integer or string".to_owned(),
            name => name.to_owned(),
        };
    }
    let first = &property["anyOf"][0];
    if first["items"].is_object() || first["anyOf"].is_array() {
        return kind(first);
    }
    if property["anyOf"].is_array() {
        return "boolean".to_owned();
    }
    let one = |name: &Value| match name.as_str().unwrap_or_default() {
        "object" => "map".to_owned(),
        "array" => {
            let items = &property["items"];
            let of = items["$ref"].as_str().and_then(|it| it.rsplit('.').next());
            let of = of.or(items["type"].as_str()).unwrap_or("value");
            format!("list of {}", if of == "object" { "map" } else { of })
        }
        other => other.to_owned(),
    };
    let types =
        property["type"].as_array().cloned().unwrap_or_else(|| vec![property["type"].clone()]);
    let types = types.iter().filter(|name| **name != "null").map(one);
    types.collect::<Vec<_>>().join(" or ")
}

fn readme(name: &str, schema: &Value) -> String {
    let dir = charts().join(name);
    let chart = yaml(&dir.join("Chart.yaml"));
    let description = chart["description"].as_str().expect("a description");
    let mut text = format!(
        "<!-- Generated from values.schema.json and values.yaml: {COMMAND} -->\n# {name}\n\n{description}.\n\n"
    );
    text += if name == "tenon" {
        "Install the chart `tenon-crds` first; the guide \"Install with Helm\" \
         (`docs/src/guides/helm.md`) has all steps.\n\n\
         The keys are those of Karpenter's chart, with the same effects, so values files for it keep \
         working: set `controller.image.repository` to Tenon's image, if the file sets it at all. Helm \
         refuses unknown keys.\n\n## Values\n\n"
    } else {
        "The definitions are templates, so that `helm upgrade` upgrades them. Uninstalling the chart \
         deletes them, and with them all NodePools and nodes, unless they have the annotation \
         `helm.sh/resource-policy: keep`.\n\n## Values\n\n"
    };
    text += "| Key | Type | Default | Description |\n|---|---|---|---|\n";
    rows(schema, schema, &yaml(&dir.join("values.yaml")), "", &mut text);
    text
}

fn assert_written(path: &Path, wanted: &str) {
    if std::env::var_os("TENON_REWRITE").is_some() {
        fs::write(path, wanted).expect("written");
    }
    assert!(read(path) == wanted, "{} is not what it is made from: {COMMAND}", path.display());
}

/// A `Chart.yaml` with the version of the workspace.
fn with_version(chart: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let line = |line: &str| match line.split_once(": ") {
        Some((key @ ("version" | "appVersion"), _)) => format!("{key}: {version}\n"),
        _ => format!("{line}\n"),
    };
    chart.lines().map(line).collect()
}

#[test]
fn charts_have_the_version_of_the_workspace() {
    for name in ["tenon", "tenon-crds"] {
        let path = charts().join(name).join("Chart.yaml");
        assert_written(&path, &with_version(&read(&path)));
        let chart = yaml(&path);
        let versions = [&chart["version"], &chart["appVersion"]];
        assert_eq!(versions.map(Value::as_str), [Some(env!("CARGO_PKG_VERSION")); 2], "{name}");
    }
}

#[test]
fn schemas_and_readmes_are_what_they_are_made_from() {
    for (name, schema) in [("tenon", schema()), ("tenon-crds", schema_of_crds())] {
        let dir = charts().join(name);
        let text = serde_json::to_string_pretty(&schema).expect("JSON");
        assert_written(&dir.join("values.schema.json"), &format!("{text}\n"));
        assert_written(&dir.join("README.md"), &readme(name, &schema));
    }
}
