//! What the operator needs at the Kubernetes API is what the chart grants it, and what it is
//! granted beyond that is known. The installer grants the same as the chart: its own tests prove
//! that with the real `helm template`.

use std::collections::BTreeSet;

use serde_json::Value;
use tenon_operator::rbac::{AWS, AWS_KUBE_SYSTEM, CLUSTER, NAMESPACE, Rule};

/// What may be done: group, resource, verb, and the only name it may be done to.
type Permission = (String, String, String, Option<String>);

/// Granted as upstream's chart grants it, although the operator does without: group and resource,
/// with what it is for.
const BEYOND: [(&str, &str, &str); 13] = [
    ("karpenter.sh", "nodeoverlays/status", "upstream's verbs"),
    ("karpenter.sh", "nodepools", "upstream's verbs"),
    ("karpenter.sh", "nodepools/status", "upstream's verbs"),
    ("karpenter.sh", "nodeclaims", "upstream's verbs"),
    ("karpenter.sh", "nodeclaims/status", "upstream's verbs"),
    ("karpenter.k8s.aws", "ec2nodeclasses", "upstream's verbs"),
    ("karpenter.k8s.aws", "ec2nodeclasses/status", "upstream's verbs"),
    ("autoscaling.x-k8s.io", "capacitybuffers/status", "upstream's verbs"),
    ("", "events", "read by upstream"),
    ("events.k8s.io", "events", "the newer API for the same events"),
    ("", "nodes", "upstream's verbs"),
    ("coordination.k8s.io", "leases", "upstream's verbs"),
    ("policy", "poddisruptionbudgets", "upstream's verbs"),
];

fn is_upstreams((group, resource, ..): &Permission) -> bool {
    BEYOND.iter().any(|(of, what, _)| of == group && what == resource)
}

fn needed(rules: &[Rule]) -> BTreeSet<Permission> {
    let mut all = BTreeSet::new();
    for rule in rules {
        for resource in rule.resources {
            for verb in rule.verbs {
                let of = |name: Option<&str>| {
                    let text = |text: &str| text.to_owned();
                    (text(rule.group), text(resource), text(verb), name.map(text))
                };
                match rule.names {
                    [] => drop(all.insert(of(None))),
                    names => all.extend(names.iter().map(|name| of(Some(name)))),
                }
            }
        }
    }
    all
}

/// The rules of the chart: of its ClusterRoles that are bound to the operator, of its Role beside
/// the operator, and of its Role in `kube-system`.
///
/// Lines of the template language hold names and labels only; what is left of each document is
/// YAML.
fn granted(kind: &str, in_kube_system: bool) -> BTreeSet<Permission> {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenon/templates/rbac.yaml");
    let chart = std::fs::read_to_string(chart).expect("the chart");
    let mut all = BTreeSet::new();
    for document in chart.split("\n---\n") {
        let named = document.lines().find(|line| line.contains("tenon.metadata"));
        let named = named.expect("each object has a name");
        let for_people = ["aggregate-to-admin", "decisions-reader", "$reader"]
            .iter()
            .any(|mark| named.contains(mark));
        if for_people || named.contains("\"kube-system\"") != in_kube_system {
            continue;
        }
        let plain: Vec<&str> = document.lines().filter(|line| !line.contains("{{")).collect();
        let object: Value = serde_saphyr::from_str(&plain.join("\n")).expect("YAML");
        if object["kind"] == kind {
            add_rules(&object, &mut all);
        }
    }
    all
}

fn add_rules(role: &Value, all: &mut BTreeSet<Permission>) {
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    for rule in role["rules"].as_array().into_iter().flatten() {
        let mut names = texts(&rule["resourceNames"]).into_iter().map(Some).collect::<Vec<_>>();
        if names.is_empty() {
            names.push(None);
        }
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    for name in &names {
                        all.insert((group.clone(), resource.clone(), verb.clone(), name.clone()));
                    }
                }
            }
        }
    }
}

/// Granted without a name is granted for every name.
fn allows(granted: &BTreeSet<Permission>, permission: &Permission) -> bool {
    let (group, resource, verb, _) = permission.clone();
    granted.contains(permission) || granted.contains(&(group, resource, verb, None))
}

/// What is needed, and by which kind of role in which namespace it is granted.
fn table() -> [(Vec<Rule>, BTreeSet<Permission>); 3] {
    [
        ([CLUSTER, AWS].concat(), granted("ClusterRole", false)),
        (NAMESPACE.to_vec(), granted("Role", false)),
        (AWS_KUBE_SYSTEM.to_vec(), granted("Role", true)),
    ]
}

#[test]
fn the_chart_grants_what_the_operator_needs() {
    for (rules, granted) in table() {
        assert!(!granted.is_empty());
        let lacking: Vec<_> =
            needed(&rules).into_iter().filter(|it| !allows(&granted, it)).collect();
        assert!(lacking.is_empty(), "it lacks {lacking:?}");
    }
}

#[test]
fn what_is_granted_beyond_that_is_what_upstream_grants() {
    for (rules, granted) in table() {
        let needed = needed(&rules);
        let beyond: Vec<_> =
            granted.into_iter().filter(|it| !allows(&needed, it) && !is_upstreams(it)).collect();
        assert!(beyond.is_empty(), "nobody asked for {beyond:?}");
    }
}
