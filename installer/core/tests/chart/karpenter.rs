//! Values files as users of Karpenter's chart write them (`karpenter-values/*.yaml`), rendered by
//! the real Helm with nothing changed: every object is one of Kubernetes' types and says nothing
//! that the type does not know, and each line `# expect:` of the file holds.
//!
//! A line is `# expect: KIND POINTER JSON`, `# expect: KIND env:NAME JSON`,
//! `# expect: KIND NAME has-rule JSON` or `# expect: no KIND`. Of several objects of a kind, one
//! has to fulfill it; `null` means that none has the field.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenon_installer_core::kubernetes::operator;
use tenon_installer_core::kubernetes::release::Release;
use tenon_installer_core::settings::values::Values;

use super::{Objects, assert_same, keyed, template};

/// Fields of `document` that the type doesn't know, as paths.
fn unknown<T: DeserializeOwned + Serialize>(document: &Value) -> Vec<String> {
    let object: T = serde_json::from_value(document.clone())
        .unwrap_or_else(|error| panic!("{error}: {document:#}"));
    let read = serde_json::to_value(object).expect("it was JSON");
    lost(document, Some(&read), "")
}

fn lost(document: &Value, read: Option<&Value>, path: &str) -> Vec<String> {
    let Some(read) = read else { return vec![path.to_owned()] };
    match document {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, field)| lost(field, read.get(name), &format!("{path}.{name}")))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(index, item)| lost(item, read.get(index), &format!("{path}[{index}]")))
            .collect(),
        _ => Vec::new(),
    }
}

/// Fields of a rendered object that its type doesn't know.
fn unknown_fields(object: &Value) -> Vec<String> {
    match object["kind"].as_str() {
        Some("Deployment") => unknown::<Deployment>(object),
        Some("Service") => unknown::<Service>(object),
        Some("ServiceAccount") => unknown::<ServiceAccount>(object),
        Some("PodDisruptionBudget") => unknown::<PodDisruptionBudget>(object),
        Some("ClusterRole") => unknown::<ClusterRole>(object),
        Some("ClusterRoleBinding") => unknown::<ClusterRoleBinding>(object),
        Some("Role") => unknown::<Role>(object),
        Some("RoleBinding") => unknown::<RoleBinding>(object),
        // The fields of the Prometheus operator's type that Karpenter's chart uses.
        Some("ServiceMonitor") => {
            let spec = object["spec"].as_object().expect("a spec").keys();
            let known = ["endpoints", "namespaceSelector", "sampleLimit", "selector"];
            spec.filter(|key| !known.contains(&key.as_str())).cloned().collect()
        }
        kind => panic!("no type for {kind:?}"),
    }
}

/// What a Deployment's container has for a variable: the last entry counts.
fn variable(object: &Value, name: &str) -> Option<Value> {
    let env = object.pointer("/spec/template/spec/containers/0/env")?.as_array()?;
    env.iter().rfind(|it| it["name"] == name).map(|it| it["value"].clone())
}

/// Whether a line of a file holds.
fn holds(expectation: &str, objects: &Objects) -> bool {
    let (first, rest) = expectation.split_once(' ').expect("a kind and more");
    let of_kind = |kind: &str| {
        let kind = kind.to_owned();
        objects.values().filter(move |object| object["kind"] == kind.as_str())
    };
    if first == "no" {
        return of_kind(rest).count() == 0;
    }
    let (place, json) = rest.split_once(' ').expect("a place and a value");
    if let Some(rule) = json.strip_prefix("has-rule ") {
        let rule: Value = serde_json::from_str(rule).expect("JSON");
        let mut named = of_kind(first).filter(|object| object["metadata"]["name"] == place);
        return named.any(|role| role["rules"].as_array().is_some_and(|all| all.contains(&rule)));
    }
    let wanted: Value = serde_json::from_str(json).expect("JSON");
    let found = |object: &Value| match place.strip_prefix("env:") {
        Some(name) => variable(object, name),
        None => object.pointer(place).cloned(),
    };
    let mut found = of_kind(first).map(found);
    if wanted.is_null() {
        return of_kind(first).count() > 0 && found.all(|value| value.is_none());
    }
    found.any(|value| value.as_ref() == Some(&wanted))
}

#[test]
fn values_files_for_karpenter_work_as_they_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/karpenter-values");
    let mut files = std::fs::read_dir(folder)
        .expect("the files are there")
        .map(|entry| entry.expect("an entry").path())
        .collect::<Vec<_>>();
    files.sort();
    assert!(files.len() >= 20, "{} files", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("a text");
        let objects = template("karpenter", "tenon", "karpenter", &text);
        for (key, object) in &objects {
            let unknown = unknown_fields(object);
            if !unknown.is_empty() {
                wrong.push(format!("{name}: {key} has unknown fields {unknown:?}"));
            }
        }
        let expectations = text.lines().filter_map(|line| line.strip_prefix("# expect: "));
        let expectations = expectations.collect::<Vec<_>>();
        assert!(expectations.len() >= 2, "{name} expects nothing");
        let broken = expectations.into_iter().filter(|it| !holds(it, &objects));
        wrong.extend(broken.map(|it| format!("{name}: {it}")));
        // The installer makes the same of it, unless it needs Helm's templates.
        let overrides: Value = serde_saphyr::from_str(&text).expect("YAML");
        if !text.contains("{{") {
            let values = Values::merged(&overrides).expect("valid values");
            let release = Release {
                name: "tenon".to_owned(),
                namespace: "karpenter".to_owned(),
                managed_by: "Helm".to_owned(),
            };
            let built = operator::objects(&values, &release);
            let built = keyed(built.into_iter().map(|object| object.body));
            let mut rendered = template("tenon", "tenon", "karpenter", &text);
            for object in rendered.values_mut().filter(|it| it["kind"] == "Deployment") {
                // Quantities are texts then, also those that are written as numbers.
                let typed = serde_json::from_value::<Deployment>(object.take());
                *object = serde_json::to_value(typed.expect("it was read before")).expect("JSON");
            }
            assert_same(&name, &built, &rendered);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn objects_have_the_names_that_karpenters_chart_gives() {
    let values = "settings:\n  clusterName: prod\n";
    let named = "nameOverride: scaler\nsettings:\n  clusterName: prod\n";
    for (release, values, name) in [
        ("karpenter", values, "karpenter"),
        ("my-karpenter", values, "my-karpenter"),
        ("autoscaling", values, "autoscaling-karpenter"),
        ("prod", named, "prod-scaler"),
        // `tenon install` gives this name.
        ("tenon", values, "karpenter"),
    ] {
        let objects = template(release, "tenon", "karpenter", values);
        let key = format!("v1 ServiceAccount karpenter/{name}");
        assert!(objects.contains_key(&key), "{release}: {:?}", objects.keys());
    }
}
