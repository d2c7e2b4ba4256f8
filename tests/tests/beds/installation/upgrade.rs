//! An upgrade and the way back, on a cluster with a node that must not notice, killed after every
//! step; and a canary that fails.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig, Finished};
use tenon_bed::installation::Installation;
use tenon_bed::user::one_of;
use tenon_bed::wait::must;

use super::command::tenon;
use super::install::MANY;

/// What the role of the version before allowed, and this one does not need.
const OLD: &str = r#"{"Version":"2012-10-17","Statement":[{"Sid":"AllowOldReads","Effect":"Allow","Action":"ec2:DescribeVpcs","Resource":"*"}]}"#;
const ROLE: &str = "tenon-bed-controller";

async fn image(bed: &Bed) -> String {
    let api: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let deployment = must(api.get("karpenter").await);
    let spec = deployment.spec.template.spec.expect("a pod");
    spec.containers[0].image.clone().unwrap_or_default()
}

/// Names of the role's inline policies.
async fn policies(bed: &Bed) -> Vec<String> {
    let caller = must(bed.aws()).caller();
    let answer = must(caller.query("iam", "ListRolePolicies", &[("RoleName", ROLE)]).await);
    let names = answer.at(&["ListRolePoliciesResult", "PolicyNames"]).expect("a list");
    names.children.iter().map(|name| name.text.clone()).collect()
}

async fn deployments(bed: &Bed) -> Vec<String> {
    let api: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let all = must(api.list(&ListParams::default()).await);
    all.items.into_iter().filter_map(|one| one.metadata.name).collect()
}

fn succeeded(finished: &Finished, what: &str) {
    assert_eq!(finished.code, 0, "{what}:\n{}", finished.stderr);
}

/// Runs a command again and again, aborted each time after one step. How often that was.
async fn step_by_step(bed: &Bed, args: &[&str]) -> usize {
    for kills in 0..MANY {
        let run = tenon(bed, args, Some(1)).await;
        if run.code == 0 {
            return kills;
        }
        let goes_on = run.code != 1 && run.code != 2 && run.code != 6;
        assert!(goes_on, "after {kills} kills it ended with {}:\n{}", run.code, run.stderr);
    }
    panic!("`tenon {}` never ends", args.join(" "));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_and_the_way_back_replace_no_node_and_go_on_when_killed() {
    let bed = Arc::new(Bed::start(BedConfig::default()).await.expect("the bed starts"));
    let installed = must(Installation::ensure(&bed, &json!({})).await);
    let requirements = json!([one_of("node.kubernetes.io/instance-type", &["m6i.large"])]);
    must(installed.user().pool("upgrade", &requirements, &json!({})).await);
    must(installed.user().scale("upgrade", 2, &json!({ "scenario": "upgrade" })).await);
    must(installed.user().runs("upgrade", 2).await);
    let nodes = must(installed.instances());
    assert!(!nodes.is_empty());

    // Nothing to do is said, and nothing older is taken.
    let same = tenon(&bed, &["upgrade", "--yes"], None).await;
    succeeded(&same, "the same version");
    assert!(same.stdout.contains("Nothing to do"), "{}", same.stdout);
    let older = tenon(&bed, &["upgrade", "--to", "0.0.9", "--yes"], None).await;
    assert_eq!(older.code, 6, "{}", older.stderr);
    assert!(older.stderr.contains("tenon rollback"), "{}", older.stderr);

    // As if the version before had needed more.
    let caller = must(bed.aws()).caller();
    let put = [("RoleName", ROLE), ("PolicyName", "Old"), ("PolicyDocument", OLD)];
    must(caller.query("iam", "PutRolePolicy", &put).await);
    let upgrade = ["upgrade", "--to", "0.1.1", "--yes"];
    let shown = tenon(&bed, &["upgrade", "--to", "0.1.1", "--dry-run", "-o", "json"], None).await;
    succeeded(&shown, "a dry run");
    let shown: Value = serde_json::from_str(&shown.stdout).expect("one document");
    assert_eq!(shown["versions"]["to"], "0.1.1");
    assert_eq!(shown["iam"][0]["statement"], "AllowOldReads");
    assert_eq!(shown["iam"][0]["change"], "removed");
    let kinds = |id: &str| {
        shown["actions"].as_array().is_some_and(|all| all.iter().any(|one| one["id"] == id))
    };
    assert!(
        ["canary", "rollout", "canary-goes", "controller-role/narrow"].into_iter().all(kinds),
        "{shown:#}"
    );

    let kills = step_by_step(&bed, &upgrade).await;
    assert!(kills >= 5, "only {kills} steps were interrupted");
    assert_eq!(image(&bed).await, "tenon-operator:0.1.1");
    assert_eq!(deployments(&bed).await, ["karpenter"], "the canary is gone");
    assert!(!policies(&bed).await.contains(&"Old".to_owned()), "the role is narrow again");
    must(installed.user().scale("upgrade", 4, &json!({ "scenario": "upgrade" })).await);
    must(installed.user().runs("upgrade", 4).await);

    let kills = step_by_step(&bed, &["rollback", "--yes"]).await;
    assert!(kills >= 4, "only {kills} steps were interrupted");
    assert_eq!(image(&bed).await, "tenon-operator:0.1.0");
    assert_eq!(deployments(&bed).await, ["karpenter"]);
    succeeded(&tenon(&bed, &["diff"], None).await, "everything is as recorded");
    let left = must(installed.instances());
    assert!(nodes.keys().all(|id| left.contains_key(id)), "a node was replaced");
    must(installed.instances_match_claims().await);
    let uninstall = ["uninstall", "--yes", "--force-capacity"];
    succeeded(&tenon(&bed, &uninstall, None).await, "uninstall");
    let bed = {
        drop(installed);
        Arc::try_unwrap(bed).expect("nobody else has the bed")
    };
    bed.stop().await.expect("the bed stops");
}
