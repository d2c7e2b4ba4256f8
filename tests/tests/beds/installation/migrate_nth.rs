//! Interruption handling moves from Node Termination Handler to Tenon, and back: its workloads in
//! both modes, with what feeds its queue. It is played by its objects and its calls alone.

use std::sync::Arc;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::termination_handler::TerminationHandler;
use tenon_bed::user::{LIMIT, User, instance_of, one_of};
use tenon_bed::wait::{eventually, must};

use super::calls::{denied, grant};
use super::command::{check, tenon};
use crate::guide::Guide;

const GUIDE: &str = include_str!("../../../../docs/src/guides/node-termination-handler.md");
const APP: &str = "worker";

async fn spot_node(bed: &Bed, user: &User) -> String {
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", &["m5.large"]),
        one_of("karpenter.sh/capacity-type", &["spot"]),
    ]);
    must(user.pool(APP, &requirements, &json!({})).await);
    must(user.scale(APP, 2, &json!({ "scenario": APP })).await);
    must(user.runs(APP, 2).await);
    let claims = must(user.claims(APP).await);
    assert_eq!(claims.len(), 1, "on {}", bed.cluster());
    claims[0].name_any()
}

#[tokio::test(flavor = "multi_thread")]
async fn node_termination_handler_ends_without_a_gap_and_leaves_nothing_of_its_own() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let installed = must(Installation::ensure(&bed, &json!({})).await);
    let user = installed.user();
    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let with = |args: &[&'static str]| [&["migrate", "nth"][..], args, &target].concat();

    let names = [("my-cluster", bed.cluster()), ("eu-central-1", bed.region())];
    let mut guide = Guide::new(GUIDE, names);

    let nothing = tenon(&bed, &with(&["--yes"]), None).await;
    assert_eq!(nothing.code, 0, "{}", nothing.stderr);
    assert!(nothing.stdout.contains("there is no Node Termination Handler"), "{}", nothing.stdout);

    let claim = spot_node(&bed, user).await;
    let handler = must(TerminationHandler::start(&bed).await);
    // From now on with the permissions that `tenon iam caller` prints.
    grant(&bed, "migrate-nth", &target).await;
    assert_eq!(check(&bed, "EX-04").await["outcome"], "fail");

    // Refused while an event would be lost.
    must(handler.tenon_hears(false).await);
    let refused = tenon(&bed, &with(&["--yes"]), None).await;
    assert_eq!(refused.code, 6, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("handles spot interruptions"), "{}", refused.stderr);
    assert_eq!(must(handler.running().await).0, 2, "it was touched");
    must(handler.tenon_hears(true).await);

    // There and back, with all of it in AWS.
    let shown = guide.enter(&bed, "See what would happen", "tenon migrate nth", "-o json").await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let shown: Value = must(serde_json::from_str(&shown.stdout));
    assert_eq!(shown["events"], json!(["spot", "state", "health", "lifecycle"]));
    assert_eq!(shown["unhandledNodes"], json!([]));
    let steps = shown["actions"].as_array().expect("steps").iter();
    let steps = steps.map(|step| step["id"].as_str().expect("an id")).collect::<Vec<_>>();
    assert_eq!(
        steps,
        [
            "stop/kube-system/nth",
            "stop/kube-system/nth-node",
            "hook/workers/drain",
            "rule/all-states",
            "rule/nth-spot",
            "messages/nth",
            "queue/nth"
        ]
    );
    let kept = tenon(&bed, &with(&["--keep-aws", "--yes"]), None).await;
    assert_eq!(kept.code, 0, "{}{}", kept.stdout, kept.stderr);
    assert!(kept.stdout.contains("helm -n kube-system uninstall handler"), "{}", kept.stdout);
    assert_eq!(must(handler.running().await), (0, 0));
    assert_eq!(check(&bed, "EX-04").await["outcome"], "pass");
    let undone = guide.enter(&bed, "Return", "tenon migrate nth", "--yes").await;
    assert_eq!(undone.code, 0, "{}{}", undone.stdout, undone.stderr);
    must(handler.runs().await);

    // An interruption comes in the middle: it has received it, and ends. Killed after each
    // workload, after what feeds the queue, and after the messages have moved, it goes on.
    let claims = user.objects("NodeClaim");
    let instance = instance_of(&must(claims.get(&claim).await));
    must(handler.receives_interruption(&instance).await);
    for after in [1, 1, 3, 1] {
        let killed = tenon(&bed, &with(&["--yes"]), Some(after)).await;
        assert_ne!(killed.code, 0, "{}", killed.stdout);
    }
    let done = guide.enter(&bed, "Migrate", "tenon migrate nth", "--yes").await;
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("Tenon alone handles interruptions"), "{}", done.stdout);
    let again = tenon(&bed, &with(&["--yes"]), None).await;
    assert!(again.stdout.contains("Nothing to do"), "{}{}", again.stdout, again.stderr);
    let is_replaced = async || Ok(must(claims.get_opt(&claim).await).is_none());
    must(eventually("Tenon replaces the interrupted node", LIMIT, is_replaced).await);
    must(user.runs(APP, 2).await);

    assert_eq!(must(handler.running().await), (0, 0));
    let of_others = ["queue audit", "rule all-states for audit", "hook other"];
    assert_eq!(must(handler.in_aws().await), of_others);
    assert_eq!(check(&bed, "EX-04").await["outcome"], "pass");
    let diff = tenon(&bed, &[&["diff"][..], &target].concat(), None).await;
    assert_eq!(diff.code, 0, "the installation is as it was: {}", diff.stdout);
    let refused = tenon(&bed, &with(&["--undo", "--yes"]), None).await;
    assert_eq!(refused.code, 6, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("is gone"), "{}", refused.stderr);

    assert_eq!(denied(&bed), [""; 0]);
    guide.has_typed_all_but(&[]);

    must(handler.remove().await);
}
