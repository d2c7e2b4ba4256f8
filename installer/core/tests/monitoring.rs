//! The chart's alerts and dashboards: the guide lists every alert, each has a test for promtool,
//! and Grafana can read the dashboards. That their metrics exist is a test of the operator
//! (`run/metric_names.rs`); that Prometheus fires them is one on the test bed (`monitoring.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect("a file of the project")
}

fn rules() -> Vec<Value> {
    let file: Value =
        serde_saphyr::from_str(&read("charts/tenon/files/alerts.yaml")).expect("YAML");
    let groups = file["groups"].as_array().expect("groups").clone();
    groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer}: {value}"))
}

#[test]
fn the_guide_lists_every_alert_under_its_severity() {
    let guide = read("docs/src/guides/prometheus.md");
    let (_, listed) = guide.split_once("\n## Alerts\n").expect("a section");
    let (listed, _) = listed.split_once("\n## ").expect("another section");
    let mut found = BTreeSet::new();
    for (severity, section) in
        ["critical", "warning", "info"].iter().zip(listed.split("\n\n| Alert").skip(1))
    {
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        found.extend(rows.map(|(name, _)| (name.to_owned(), (*severity).to_owned())));
    }
    let rules = rules();
    let known: BTreeSet<_> = rules
        .iter()
        .map(|rule| (text(rule, "/alert").to_owned(), text(rule, "/labels/severity").to_owned()))
        .collect();
    assert_eq!(found, known, "left: the guide; right: the rules");
    for rule in &rules {
        for key in ["summary", "description"] {
            assert!(!text(rule, &format!("/annotations/{key}")).is_empty(), "{rule}");
        }
    }
}

#[test]
fn every_alert_has_a_test() {
    let tests = read("tests/prometheus/alerts.yaml");
    for rule in rules() {
        let name = text(&rule, "/alert");
        assert!(tests.contains(&format!("- name: {name}\n")), "{name} has no test");
    }
}

#[test]
fn grafana_can_read_the_dashboards() {
    let mut identities = BTreeSet::new();
    for name in ["cluster", "operator"] {
        let file = read(&format!("charts/tenon/files/dashboards/{name}.json"));
        let dashboard: Value = serde_json::from_str(&file).expect("JSON");
        assert!(identities.insert(text(&dashboard, "/uid").to_owned()));
        let panels = dashboard["panels"].as_array().expect("panels");
        let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_i64()).collect();
        assert_eq!(ids.len(), panels.len(), "{name}: ids are unique");
        for panel in panels.iter().filter(|panel| panel["type"] != "row") {
            let title = text(panel, "/title");
            assert!(!text(panel, "/fieldConfig/defaults/unit").is_empty(), "{title}");
            for target in panel["targets"].as_array().expect("targets") {
                let expression = text(target, "/expr");
                assert!(expression.contains("job=~\"$job\""), "{title}: {expression}");
                assert_eq!(text(target, "/datasource/uid"), "${datasource}", "{title}");
            }
            let place = &panel["gridPos"];
            let right = place["x"].as_i64().zip(place["w"].as_i64()).map(|(x, w)| x + w);
            assert!(right <= Some(24), "{title}: {place}");
        }
    }
}
