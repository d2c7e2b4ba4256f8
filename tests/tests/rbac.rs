//! What the operator needs at the Kubernetes API is what the installer grants it, and what it is granted beyond that is known. The chart grants the same as the
//! installer, which the installer's own tests prove with the real `helm template`.

use std::collections::BTreeSet;

use serde_json::Value;
use tenon::kubernetes::operator::Release;
use tenon::kubernetes::rbac;
use tenon::kubernetes::values::Values;
use tenon_operator::rbac::{CLUSTER, NAMESPACE, Rule};

/// What may be done: group, resource, verb, and the only name it may be done to.
type Permission = (String, String, String, Option<String>);

/// Granted as upstream's chart grants it, although the operator does without: group and resource, with what it is for.
const BEYOND: [(&str, &str, &str); 18] = [
    ("karpenter.sh", "nodeoverlays", "read by the price overlay"),
    ("karpenter.sh", "nodeoverlays/status", "its status"),
    ("karpenter.k8s.aws", "ec2nodeclasses", "needed with the AWS provider only"),
    ("karpenter.k8s.aws", "ec2nodeclasses/status", "needed with the AWS provider only"),
    ("autoscaling.x-k8s.io", "capacitybuffers", "read for headroom"),
    ("autoscaling.x-k8s.io", "capacitybuffers/status", "their status"),
    ("", "podtemplates", "capacity buffers refer to them"),
    ("", "replicationcontrollers", "capacity buffers refer to them"),
    ("apps", "deployments", "capacity buffers refer to them"),
    ("apps", "replicasets", "capacity buffers refer to them"),
    ("apps", "statefulsets", "capacity buffers refer to them"),
    ("", "events", "read by upstream"),
    ("events.k8s.io", "events", "the newer API for the same events"),
    ("storage.k8s.io", "csinodes", "limits of volumes"),
    ("", "services", "the cluster's DNS address"),
    ("", "nodes", "upstream's verbs"),
    ("karpenter.sh", "nodepools", "upstream's verbs"),
    ("karpenter.sh", "nodepools/status", "upstream's verbs"),
];

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

/// What the installer grants by ClusterRoles that are bound to the operator, and by Roles in the namespace.
fn granted(namespace: &str, kind: &str) -> BTreeSet<Permission> {
    let release = Release {
        name: "tenon".to_owned(),
        namespace: namespace.to_owned(),
        managed_by: "tenon".to_owned(),
    };
    let objects = rbac::objects(&Values::default(), &release);
    let bound: BTreeSet<&str> = objects
        .iter()
        .filter(|object| object.resource.kind == format!("{kind}Binding"))
        .filter_map(|object| object.body.pointer("/roleRef/name")?.as_str())
        .collect();
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let mut all = BTreeSet::new();
    let roles = objects.iter().filter(|object| {
        object.resource.kind == kind && bound.contains(object.name.as_str())
            // The role beside it in kube-system is for reading one Service there.
            && object.namespace.as_deref().is_none_or(|of| of == namespace)
    });
    for rule in roles.flat_map(|role| role.body["rules"].as_array().into_iter().flatten()) {
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
    all
}

/// Granted without a name is granted for every name.
fn allows(granted: &BTreeSet<Permission>, permission: &Permission) -> bool {
    let (group, resource, verb, _) = permission.clone();
    granted.contains(permission) || granted.contains(&(group, resource, verb, None))
}

#[test]
fn the_installer_grants_what_the_operator_needs() {
    for (rules, kind) in [(CLUSTER, "ClusterRole"), (NAMESPACE, "Role")] {
        let granted = granted("tenon", kind);
        let lacking: Vec<_> =
            needed(rules).into_iter().filter(|it| !allows(&granted, it)).collect();
        assert!(lacking.is_empty(), "the {kind} lacks {lacking:?}");
    }
}

#[test]
fn what_is_granted_beyond_that_is_what_upstream_grants() {
    let needed = needed(CLUSTER);
    let beyond: Vec<_> = granted("tenon", "ClusterRole")
        .into_iter()
        .filter(|it| !allows(&needed, it))
        .filter(|(group, resource, ..)| {
            !BEYOND.iter().any(|(of, what, _)| of == group && what == resource)
        })
        .collect();
    assert!(beyond.is_empty(), "nobody asked for {beyond:?}");
    let needed = self::needed(NAMESPACE);
    let beyond: Vec<_> =
        granted("tenon", "Role").into_iter().filter(|it| !allows(&needed, it)).collect();
    assert!(beyond.is_empty(), "nobody asked for {beyond:?}");
}
