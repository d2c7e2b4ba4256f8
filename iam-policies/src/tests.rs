//! The documents in `documents/` are what people review and copy. They must be what the crate
//! renders; `TENON_REWRITE=1` rewrites them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::controller::controller_policies;
use crate::identity::{self, ServiceAccount};
use crate::interruption::{InterruptionRule, queue_policy, queue_policy_upstream};
use crate::{Document, Features, InstanceProfiles, Partition, Scope};

const ISSUER: &str =
    "https://oidc.eks.eu-central-1.amazonaws.com/id/EXAMPLED539D4633E53DE1B71EXAMPLE";

fn scope(partition: Partition, region: &str, features: Features) -> Scope {
    let base = Scope {
        partition,
        region: region.to_owned(),
        account: "123456789012".to_owned(),
        cluster: "example".to_owned(),
        queue: Some("tenon-example".to_owned()),
        node_roles: Vec::new(),
        features,
    };
    Scope { node_roles: vec![base.role_arn("/tenon/example/", "tenon-example-node")], ..base }
}

fn service_account() -> ServiceAccount {
    ServiceAccount { namespace: "kube-system".to_owned(), name: "karpenter".to_owned() }
}

fn rendered() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let every_key = Features {
        volume_keys: vec!["arn:aws:kms:eu-central-1:123456789012:key/volumes".to_owned()],
        queue_key: Some("arn:aws:kms:eu-central-1:123456789012:key/queue".to_owned()),
        ..Features::default()
    };
    let static_profiles =
        Features { instance_profiles: InstanceProfiles::Static, ..Features::default() };
    let scopes = [
        ("aws", scope(Partition::Aws, "eu-central-1", Features::default())),
        ("aws-cn", scope(Partition::AwsCn, "cn-north-1", Features::default())),
        ("aws-us-gov", scope(Partition::AwsUsGov, "us-gov-west-1", Features::default())),
        ("upstream", scope(Partition::Aws, "eu-central-1", Features::upstream())),
        ("static-profiles", scope(Partition::Aws, "eu-central-1", static_profiles)),
        ("customer-keys", scope(Partition::Aws, "eu-central-1", every_key)),
    ];
    for (folder, scope) in &scopes {
        let mut add = |name: &str, document: &Document| {
            files.insert(Path::new(folder).join(format!("{name}.json")), document.to_json_pretty());
        };
        for policy in controller_policies(scope) {
            add(policy.part.name(), &policy.document);
        }
        add("node-role-trust", &identity::node_trust(scope.partition));
        add("node-role-ipv6-cni", &identity::node_ipv6_cni(scope.partition));
        if *folder == "upstream" {
            add("controller-role-trust-pod-identity", &identity::pod_identity_trust_upstream());
            add("queue-policy", &queue_policy_upstream(scope).unwrap());
        } else {
            add(
                "controller-role-trust-pod-identity",
                &identity::pod_identity_trust(scope, &service_account()),
            );
            let rules: Vec<_> = InterruptionRule::ALL
                .iter()
                .map(|rule| format!("tenon-example-{}", rule.suffix()))
                .collect();
            add("queue-policy", &queue_policy(scope, &rules).unwrap());
        }
        add("controller-role-trust-irsa", &identity::irsa_trust(scope, ISSUER, &service_account()));
        let patterns: BTreeMap<_, _> = InterruptionRule::ALL
            .into_iter()
            .map(|rule| {
                (
                    rule.suffix(),
                    if *folder == "upstream" { rule.upstream_pattern() } else { rule.pattern() },
                )
            })
            .collect();
        files.insert(
            Path::new(folder).join("event-patterns.json"),
            serde_json::to_string_pretty(&patterns).unwrap() + "\n",
        );
        let managed =
            serde_json::to_string_pretty(&identity::node_managed_policies(scope.partition))
                .unwrap()
                + "\n";
        files.insert(Path::new(folder).join("node-role-managed-policies.json"), managed);
    }
    files
}

fn stored(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for folder in fs::read_dir(root).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            files.insert(
                path.strip_prefix(root).unwrap().to_owned(),
                fs::read_to_string(&path).unwrap(),
            );
        }
    }
    files
}

#[test]
fn the_stored_documents_are_the_rendered_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("documents");
    let rendered = rendered();
    if std::env::var_os("TENON_REWRITE").is_some() {
        if root.exists() {
            fs::remove_dir_all(&root).unwrap();
        }
        for (path, text) in &rendered {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
    }
    let stored = stored(&root);
    let names = |files: &BTreeMap<PathBuf, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&rendered),
        names(&stored),
        "run this test with TENON_REWRITE=1 and look at the difference"
    );
    for (path, text) in &rendered {
        assert_eq!(
            text,
            &stored[path],
            "{} is out of date: run this test with TENON_REWRITE=1 and look at the difference",
            path.display()
        );
    }
}

#[test]
fn every_stored_policy_reads_back_as_itself() {
    for (path, text) in rendered() {
        if path.ends_with("event-patterns.json")
            || path.ends_with("node-role-managed-policies.json")
        {
            continue;
        }
        assert_eq!(Document::parse(&text).unwrap().to_json_pretty(), text, "{}", path.display());
    }
}
