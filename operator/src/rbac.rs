//! What the operator does at the Kubernetes API: the permissions that it needs, no more. The
//! installer and the chart grant these, and a test compares.

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
    rule("karpenter.sh", &["nodepools", "nodeclaims", "nodeoverlays"], READ),
    rule("autoscaling.x-k8s.io", &["capacitybuffers"], READ),
    rule(
        "",
        &[
            "pods",
            "nodes",
            "persistentvolumes",
            "persistentvolumeclaims",
            "namespaces",
            "podtemplates",
            "resourcequotas",
            "services",
            "replicationcontrollers",
        ],
        READ,
    ),
    rule("storage.k8s.io", &["storageclasses", "volumeattachments", "csinodes"], READ),
    rule("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"], READ),
    rule(
        "resource.k8s.io",
        &["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"],
        READ,
    ),
    rule("policy", &["poddisruptionbudgets"], READ),
    rule("karpenter.sh", &["nodeclaims"], &["create", "delete", "patch"]),
    rule("karpenter.sh", &["nodepools"], &["patch"]),
    rule(
        "karpenter.sh",
        &["nodeclaims/status", "nodepools/status", "nodeoverlays/status"],
        &["patch"],
    ),
    rule("autoscaling.x-k8s.io", &["capacitybuffers/status"], &["patch"]),
    // Owner references with blockOwnerDeletion need this, where that admission plugin is on.
    rule("karpenter.sh", &["nodeclaims/finalizers", "nodepools/finalizers"], &["update"]),
    rule("", &["events"], &["create"]),
    rule("", &["nodes"], &["patch", "delete"]),
    rule("", &["pods/eviction"], &["create"]),
    // Nominations.
    rule("", &["pods/status"], &["patch"]),
    rule("", &["pods"], &["delete", "patch"]),
    // Who asks for decisions.
    rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
    rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];

/// In the whole cluster, with the AWS provider.
pub const AWS: &[Rule] = &[
    rule("karpenter.k8s.aws", &["ec2nodeclasses"], READ),
    rule("karpenter.k8s.aws", &["ec2nodeclasses", "ec2nodeclasses/status"], &["patch"]),
];

/// In the namespace `kube-system`, with the AWS provider: machines are told the address of the
/// cluster's DNS.
pub const AWS_KUBE_SYSTEM: &[Rule] =
    &[Rule { group: "", resources: &["services"], verbs: &["get"], names: &["kube-dns"] }];

/// In the whole cluster, with the kwok provider: it makes the Nodes itself.
pub const KWOK: &[Rule] = &[
    rule("karpenter.kwok.sh", &["kwoknodeclasses"], READ),
    rule("", &["nodes"], &["create", "delete"]),
    rule("", &["nodes/status"], &["patch"]),
];

/// In the operator's own namespace.
pub const NAMESPACE: &[Rule] = &[
    rule("coordination.k8s.io", &["leases"], &["create"]),
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "watch", "patch"],
        names: &["karpenter-leader-election"],
    },
];

/// Whether rules allow a verb on every object of a resource, `/` subresource included.
pub fn allow(rules: &[Rule], group: &str, resource: &str, verb: &str) -> bool {
    rules.iter().any(|rule| {
        rule.group == group
            && rule.resources.contains(&resource)
            && rule.verbs.contains(&verb)
            && rule.names.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use kube::Resource;
    use tenon_crds::EC2NodeClass;
    use tenon_crds::labels::LabelRules;
    use tenon_state::node_class;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::client::target::Target;
    use crate::state::State;
    use crate::state::change::Kind;
    use crate::state::cluster::Cluster;
    use crate::tasks::Tasks;
    use crate::testing::bench::Bench;
    use crate::testing::{Request, spawn};

    /// Verb, group and plural of what is asked for.
    fn read(request: &Request) -> (String, String, String) {
        let url = format!("{}?{}", request.path, request.query).parse().unwrap();
        let target = Target::of(&request.method.parse().unwrap(), &url);
        (target.verb.to_lowercase(), target.group, target.resource)
    }

    #[tokio::test(start_paused = true)]
    async fn everything_that_is_watched_may_be_read() {
        let bench = Bench::new().await;
        let mut cluster = Cluster::new(&[node_class::EC2], LabelRules::core());
        cluster.plan_for_claims();
        let optional = [Kind::NodeOverlay].into_iter().chain(Kind::BUFFERS).chain(Kind::SPREAD);
        optional.for_each(|kind| cluster.expect(kind));
        let kinds: BTreeSet<Kind> = cluster.watched().collect();
        let n_kinds = kinds.len();
        let (state, task) = State::new(cluster);
        spawn(task.run());
        let mut tasks = Tasks::new(CancellationToken::new());
        crate::watch::start(&bench.context, &state.updates(), &kinds, &mut tasks);
        let asked = || bench.api.requests().iter().map(read).collect::<BTreeSet<_>>();
        while asked().len() < 2 * n_kinds {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for (verb, group, plural) in asked() {
            assert!(allow(CLUSTER, &group, &plural, &verb), "{verb} {plural}.{group}");
        }
        let (group, plural) = (EC2NodeClass::group(&()), EC2NodeClass::plural(&()));
        assert!(["list", "watch"].iter().all(|verb| allow(AWS, &group, &plural, verb)));
        assert!(allow(AWS, "karpenter.k8s.aws", "ec2nodeclasses/status", "patch"));
        assert!(!allow(AWS_KUBE_SYSTEM, "", "services", "get"), "only kube-dns");
    }
}
