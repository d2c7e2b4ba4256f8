//! A cluster moves from Cluster Autoscaler to Tenon, and back: a managed node group and a
//! self-managed one, with instances that launch from their templates and join as nodes. Cluster
//! Autoscaler is played by its Deployment alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::cluster_autoscaler::{Groups, LABELS, LARGE, MANAGED, NAME, OWN, SMALL, Size};
use tenon_bed::installation::Installation;
use tenon_bed::user::LIMIT;
use tenon_bed::wait::{eventually, must};

use super::calls::{denied, grant};
use super::command::{check, tenon};
use crate::guide::Guide;

const GUIDE: &str = include_str!("../../../../docs/src/guides/cluster-autoscaler.md");

/// An Auto Scaling group of which no process is suspended.
const fn size(least: i32, desired: i32) -> Size {
    Size { least, desired, is_suspended: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_autoscaler_s_groups_become_node_pools_and_back() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let names = [("my-cluster", bed.cluster()), ("eu-central-1", bed.region())];
    let mut guide = Guide::new(GUIDE, names);
    let begun = guide.enter(&bed, "Before you begin", "tenon install", "--yes --timeout 2m").await;
    assert_eq!(begun.code, 0, "{}", begun.stderr);
    let installed = Installation::on(&bed);
    let user = installed.user();
    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let with = |args: &[&'static str]| [&["migrate", "cas"][..], args, &target].concat();

    let nothing = tenon(&bed, &with(&["--yes"]), None).await;
    assert_eq!(nothing.code, 0, "{}", nothing.stderr);
    assert!(nothing.stdout.contains("there is no Cluster Autoscaler"), "{}", nothing.stdout);

    let groups = must(Groups::start(&bed, user, &SMALL).await);
    // From now on with the permissions that `tenon iam caller` prints.
    grant(&bed, "migrate-cas", &target).await;
    assert_eq!(check(&bed, "EX-03").await["outcome"], "fail");

    // Refused, while a pod would have no place.
    let section = "See what the groups become";
    let proposed = guide.enter(&bed, section, "tenon migrate cas", "").await;
    assert_eq!(proposed.code, 0, "{}", proposed.stderr);
    let proposed = must(std::fs::read_to_string(bed.dir().join("nodepools.yaml")));
    let file = bed.dir().join("other.yaml");
    let pools = proposed.replace("tier: back", "tier: front");
    assert_ne!(pools, proposed, "{pools}");
    must(std::fs::write(&file, pools));
    let file = file.display().to_string();
    let other = [&with(&["--yes"])[..], &["--node-pools", &file]].concat();
    let refused = tenon(&bed, &other, None).await;
    assert_eq!(refused.code, 6, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("would stay pending"), "{}", refused.stderr);
    assert_eq!(must(groups.replicas().await).0, 1, "it was touched");

    // What would happen.
    let shown = guide.enter(&bed, "See what would happen", "tenon migrate cas", "-o json").await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let shown: Value = must(serde_json::from_str(&shown.stdout));
    let pending = shown["simulation"]["unschedulable"].as_array().expect("pods");
    assert_eq!(pending.len(), 1, "only Cluster Autoscaler, which ends: {pending:?}");
    assert_eq!(shown["simulation"]["drained"]["pods"], 10);
    assert_eq!(shown["nodesThatStay"], json!({}));
    assert_eq!(shown["changed"], 0);

    // Stopped by a kill, by a pause between the groups, and called off.
    let killed = tenon(&bed, &with(&["--yes"]), Some(5)).await;
    assert_ne!(killed.code, 0, "{}", killed.stdout);
    let paused = tenon(&bed, &with(&["--yes", "--pause-between"]), None).await;
    assert_eq!(paused.code, 0, "{}{}", paused.stdout, paused.stderr);
    assert!(paused.stdout.contains("Stopped before group"), "{}", paused.stdout);
    assert_eq!(must(groups.replicas().await), (0, 0));
    let aborted = guide.enter(&bed, "Return", "tenon migrate cas", "--yes").await;
    assert_eq!(aborted.code, 0, "{}{}", aborted.stdout, aborted.stderr);
    assert_eq!(must(groups.replicas().await).0, 1);
    assert_eq!(must(groups.size("eks-apps").await), size(2, 3));
    assert_eq!(must(groups.size(OWN).await), size(1, 2));
    for (label, nodes) in LABELS.into_iter().zip(SMALL.nodes) {
        must(groups.has_nodes(label, nodes).await);
    }

    // The pods return once the NodePools are gone.
    for pool in [MANAGED, OWN] {
        must(user.objects("NodePool").delete(pool, &DeleteParams::foreground()).await);
    }
    let are_gone = async || {
        let all = ListParams::default();
        let claims = must(user.objects("NodeClaim").list(&all).await);
        let pools = must(user.objects("NodePool").list(&all).await);
        Ok(claims.items.is_empty() && pools.items.len() == 1)
    };
    must(eventually("the NodePools and their nodes are gone", LIMIT, are_gone).await);
    must(groups.all_run().await);

    // All the way, with a kill in a group.
    let has_ended = AtomicBool::new(false);
    let moved = async {
        let killed = tenon(&bed, &with(&["--yes", "--parallel", "2"]), Some(4)).await;
        assert_ne!(killed.code, 0, "{}", killed.stdout);
        let done = guide.enter(&bed, "Migrate", "tenon migrate cas", "--yes --parallel 2").await;
        assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
        must(groups.all_run().await);
        has_ended.store(true, Ordering::Relaxed);
        done
    };
    let (done, most) = tokio::join!(moved, groups.most_missing(&has_ended));
    assert_eq!(groups.too_many(&must(most)), [""; 0]);
    assert_eq!(must(groups.size("eks-apps").await), size(0, 0));
    assert_eq!(must(groups.size(OWN).await), size(0, 0));
    for label in LABELS {
        assert_eq!(must(groups.nodes(label).await), []);
    }
    assert_eq!(check(&bed, "EX-03").await["outcome"], "pass");
    assert!(done.stdout.contains("aws eks delete-nodegroup"), "{}", done.stdout);
    let checked = guide.enter(&bed, "Clean up", "tenon doctor", "").await;
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    let again = tenon(&bed, &with(&["--yes"]), None).await;
    assert!(again.stdout.contains("Nothing to do"), "{}{}", again.stdout, again.stderr);
    let diff = tenon(&bed, &[&["diff"][..], &target].concat(), None).await;
    assert_eq!(diff.code, 0, "the installation is as it was: {}", diff.stdout);

    assert_eq!(denied(&bed), [""; 0]);
    guide.has_typed_all_but(&[]);

    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    must(deployments.delete(NAME, &DeleteParams::default()).await);
}

/// What `docs/src/reference/measurements.md` says of such a move.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and prints figures"]
async fn measure_a_move_from_cluster_autoscaler() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let installed = must(Installation::ensure(&bed, &json!({})).await);
    let user = installed.user();
    let groups = must(Groups::start(&bed, user, &LARGE).await);
    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let has_ended = AtomicBool::new(false);
    let began = Instant::now();
    let moved = async {
        let args = [&["migrate", "cas", "--yes", "-o", "json"][..], &target].concat();
        let done = tenon(&bed, &args, None).await;
        assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
        let seconds = began.elapsed().as_secs_f64();
        must(groups.all_run().await);
        has_ended.store(true, Ordering::Relaxed);
        (seconds, done)
    };
    let ((seconds, done), most) = tokio::join!(moved, groups.most_missing(&has_ended));
    let most = must(most);
    assert_eq!(groups.too_many(&most), [""; 0]);
    let report: Value = must(serde_json::from_str(&done.stdout));
    println!("{seconds:.0} s, missing at most {most:?}");
    println!("plan: {}", report["simulation"]["totals"]);
    println!("moved: {}", price(&bed).await);
    // What is left to do is consolidation's, which waits as long as Cluster Autoscaler did.
    for pool in [MANAGED, OWN] {
        let soon = json!({ "spec": { "disruption": { "consolidateAfter": "5s" } } });
        let pools = user.objects("NodePool");
        must(pools.patch(pool, &PatchParams::default(), &Patch::Merge(soon)).await);
    }
    let (mut seen, mut since) = (Vec::new(), Instant::now());
    while since.elapsed() < Duration::from_secs(60) {
        let claims = must(user.objects("NodeClaim").list(&ListParams::default()).await).items;
        let now = claims.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let seconds = began.elapsed().as_secs_f64() - 60.0;
    println!("consolidated after {seconds:.0} s: {}", price(&bed).await);
}

/// Nodes and what they cost, in USD per hour.
async fn price(bed: &Bed) -> String {
    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let status = tenon(bed, &[&["status", "-o", "json"][..], &target].concat(), None).await;
    let status: Value = must(serde_json::from_str(&status.stdout));
    status["fleet"]["total"].to_string()
}
