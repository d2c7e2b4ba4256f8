//! The pod that `tenon kops install` tries before it changes all of them.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::json;
use tenon_bed::wait::must;

use super::{Kops, install};

/// The operator's pods change if one of the new ones becomes ready, and otherwise not; what a run
/// that was killed has left of it goes with the next one.
pub(super) async fn changes_pods(kops: &Kops) {
    let deployments: Api<Deployment> = Api::namespaced(kops.bed.client(), "kube-system");
    let broken = kops.bed.dir().join("broken.yaml");
    let env = [json!({ "name": "KUBE_CLIENT_QPS", "value": "many" })];
    must(std::fs::write(&broken, json!({ "controller": { "env": env } }).to_string()));
    let before = must(deployments.get("karpenter").await).spec;
    let twice = kops.bed.dir().join("twice.yaml");
    let env = json!([{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }]);
    must(std::fs::write(&twice, json!({ "controller": { "env": env } }).to_string()));
    let refused = install(kops, &["--yes", "--values", &twice.display().to_string()], None).await;
    assert_eq!(refused.code, 3, "{}{}", refused.stdout, refused.stderr);
    let said = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("env: duplicate entries for key [name=\"A\"]"), "{said}");
    let failed = install(kops, &["--yes", "--values", &broken.display().to_string()], None).await;
    assert_ne!(failed.code, 0, "{}", failed.stdout);
    assert!(failed.stderr.contains("can't take over"), "{}", failed.stderr);
    assert_eq!(must(deployments.get("karpenter").await).spec, before, "it was changed");
    let killed = install(kops, &["--yes", "--set", "logLevel=debug"], Some(1)).await;
    assert_ne!(killed.code, 0, "{}", killed.stdout);
    must(deployments.get("karpenter-canary").await);
    for values in [&["--set", "logLevel=debug"][..], &[]] {
        let changed = install(kops, &[&["--yes"], values].concat(), None).await;
        assert_eq!(changed.code, 0, "{}{}", changed.stdout, changed.stderr);
        let left = must(deployments.get_opt("karpenter-canary").await);
        assert!(left.is_none(), "the canary is left");
    }
    assert_eq!(must(deployments.get("karpenter").await).spec, before);
}
