//! The chart's alerts and dashboards: the guide lists every alert, promtool finds them right, and
//! Grafana can read the dashboards. That their metrics exist is a test of the operator
//! (`run/metric_names.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// From `TENON_PROMTOOL`, or among the tools of the cache.
fn promtool() -> Option<PathBuf> {
    let variable =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("TENON_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|dir| dir.join("tenon")))
        .or_else(|| variable("HOME").map(|dir| dir.join(".cache/tenon")));
    variable("TENON_PROMTOOL")
        .or_else(|| Some(cache?.join("tools/bin/promtool")).filter(|path| path.is_file()))
}

#[test]
fn every_alert_fires_when_it_should_and_not_before() {
    let tests = read("tests/prometheus/alerts.yaml");
    for rule in rules() {
        let name = text(&rule, "/alert");
        assert!(tests.contains(&format!("- name: {name}\n")), "{name} has no test");
    }
    let Some(promtool) = promtool() else {
        // It takes minutes to build.
        eprintln!("LEFT OUT: there is no promtool; CONTRIBUTING.md says how to build it");
        return;
    };
    for args in [
        ["check", "rules", "charts/tenon/files/alerts.yaml"],
        ["test", "rules", "tests/prometheus/alerts.yaml"],
    ] {
        let output = Command::new(&promtool).args(args).current_dir(root()).output();
        let output = output.expect("promtool runs");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
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
