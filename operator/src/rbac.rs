//! What the operator does at the Kubernetes API: the permissions that it needs, no more. The installer and the chart grant these, and a test compares.

/// A rule of a Role or ClusterRole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API group; empty is the core.
    pub group: &'static str,
    /// Resources, with `/` subresources.
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Only objects with these names; empty is all.
    pub names: &'static [&'static str],
}

const READ: &[&str] = &["get", "list", "watch"];

const fn rule(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Rule {
    Rule { group, resources, verbs, names: &[] }
}

/// In the whole cluster, with every provider.
pub const CLUSTER: &[Rule] = &[
    rule(
        "karpenter.sh",
        &["nodepools", "nodepools/status", "nodeclaims", "nodeclaims/status"],
        READ,
    ),
    rule("", &["pods", "nodes", "persistentvolumes", "persistentvolumeclaims", "namespaces"], READ),
    rule("storage.k8s.io", &["storageclasses", "volumeattachments"], READ),
    rule("apps", &["daemonsets"], READ),
    rule("policy", &["poddisruptionbudgets"], READ),
    rule(
        "karpenter.sh",
        &["nodeclaims", "nodeclaims/status"],
        &["create", "delete", "update", "patch"],
    ),
    rule("karpenter.sh", &["nodepools", "nodepools/status"], &["update", "patch"]),
    // Owner references with blockOwnerDeletion need this, where that admission plugin is on.
    rule("karpenter.sh", &["nodeclaims/finalizers", "nodepools/finalizers"], &["update"]),
    rule("", &["events"], &["create", "patch"]),
    rule("", &["nodes"], &["patch", "delete", "update"]),
    rule("", &["pods/eviction"], &["create"]),
    rule("", &["pods"], &["delete"]),
];

/// In the whole cluster, with the kwok provider: it makes the Nodes itself.
pub const KWOK: &[Rule] = &[
    rule("karpenter.kwok.sh", &["kwoknodeclasses"], READ),
    rule("", &["nodes"], &["create", "delete"]),
];

/// In the operator's own namespace.
pub const NAMESPACE: &[Rule] = &[
    rule("coordination.k8s.io", &["leases"], &["get", "watch", "create"]),
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["patch", "update"],
        names: &["karpenter-leader-election"],
    },
];
