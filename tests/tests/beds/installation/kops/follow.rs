//! An operator that is given the state store keeps NodePools and EC2NodeClasses as that asks for.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use k8s_openapi::api::core::v1::Event;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tenon_bed::kops::{CLUSTER, Written, instance_group};
use tenon_bed::user::{LIMIT, User};
use tenon_bed::wait::{Polled, eventually, must};

use super::super::command::tenon;
use super::{Kops, QUEUE, nodes};
use crate::verdicts::{outcome, passes};

/// The operator follows the state store, and nobody runs `tenon kops sync`.
pub(super) async fn follows(kops: &Kops, user: &User) {
    let bed = &kops.bed;
    let max_pods = async |wanted: i64| -> Polled {
        let class = user.objects("EC2NodeClass").get("web").await?;
        Ok(class.data["spec"]["kubelet"]["maxPods"] == wanted)
    };
    let said = async |reason: &'static str, text: &str| -> Polled {
        let events = user.events(reason).await?;
        let said = |event: &Event| event.message.as_deref().is_some_and(|it| it.contains(text));
        Ok(events.iter().any(said))
    };

    // Half an update is none.
    let before = nodes(user, "web").await;
    kops.put("igconfig/node/web/nodeupconfig.yaml", &Written::new("web", 110).node_config).await;
    let why = "`kops update cluster --yes` is running or was interrupted";
    let refused = async || said("InstanceGroupNotFollowed", why).await;
    must(eventually("an event says why nothing is followed", LIMIT, refused).await);
    assert!(must(max_pods(58).await), "half an update was applied");

    // The script and the InstanceGroup itself, with the patch of the file. Another InstanceGroup
    // that can't be mapped makes no difference.
    let mut web = json!({ "nodeLabels": { "tier": "web" }, "maxSize": 9 });
    web["mixedInstancesPolicy"] = json!({
        "instances": ["m6i.large", "m6i.xlarge"], "onDemandAboveBase": 0,
    });
    kops.put("instancegroup/web", &instance_group("web", &web)).await;
    let broken = json!({ "tenancy": "host" });
    kops.put("instancegroup/broken", &instance_group("broken", &broken)).await;
    kops.update(&["web", "broken"], 110).await;
    let pool_is = async |nodes: &str| -> Polled {
        let spec = user.objects("NodePool").get("web").await?.data["spec"].clone();
        let patched = spec["weight"] == 7 && spec["disruption"]["budgets"][0]["nodes"] == "1";
        Ok(spec["limits"]["nodes"] == nodes && patched)
    };
    let follows = async || Ok(max_pods(110).await? && pool_is("9").await?);
    must(eventually("both objects follow", LIMIT, follows).await);
    let followed = "new nodes boot with the configuration";
    let told = async || said("InstanceGroupFollowed", followed).await;
    must(eventually("an event says what has changed", LIMIT, told).await);

    // What a person changes of it is undone, while nodes are replaced within the budget.
    let by_hand = json!({ "spec": { "limits": { "nodes": "1" } } });
    let pools = user.objects("NodePool");
    must(pools.patch("web", &PatchParams::default(), &Patch::Merge(by_hand)).await);
    let most = AtomicUsize::new(0);
    must(
        eventually("every node has booted with the new script", LIMIT * 2, async || {
            let claims = user.claims("web").await?;
            let going = |one: &&DynamicObject| one.metadata.deletion_timestamp.is_some();
            most.fetch_max(claims.iter().filter(going).count(), Relaxed);
            let now = nodes(user, "web").await;
            Ok(!now.is_empty() && now.is_disjoint(&before))
        })
        .await,
    );
    let most = most.into_inner();
    assert!(most <= 1, "{most} nodes went at once, and the budget is 1");
    must(eventually("a change by hand is undone", LIMIT, async || pool_is("9").await).await);
    must(user.runs("shop", 2).await);

    // A pool that stands still stays as it is, for the operator and for `sync`.
    let target = ["--cluster", CLUSTER, "--region", bed.region()];
    let frozen = tenon(bed, &[&["freeze"][..], &target].concat(), None).await;
    assert_eq!(frozen.code, 0, "{}{}", frozen.stdout, frozen.stderr);
    assert!(frozen.stderr.contains("kOps cluster shop.example.com"), "{}", frozen.stderr);
    web["maxSize"] = 8.into();
    kops.put("instancegroup/web", &instance_group("web", &web)).await;
    kops.update(&["web", "broken"], 58).await;
    must(eventually("the EC2NodeClass follows", LIMIT, async || max_pods(58).await).await);
    let stands_still = async || {
        let spec = must(pools.get("web").await).data["spec"].clone();
        spec["limits"] == json!({ "cpu": "0", "nodes": "9" })
            && spec["disruption"]["budgets"] == json!([{ "nodes": "0" }])
    };
    assert!(stands_still().await, "the operator has thawed it");
    kops.remove("instancegroup/broken").await;
    let synced = kops.tenon(&["sync", "--yes"]).await;
    assert_eq!(synced.code, 0, "{}{}", synced.stdout, synced.stderr);
    assert!(synced.stderr.contains("NodePool web is paused"), "{}", synced.stderr);
    assert!(stands_still().await, "`tenon kops sync` has thawed it");
    let thawed = tenon(bed, &[&["unfreeze"][..], &target].concat(), None).await;
    assert_eq!(thawed.code, 0, "{}{}", thawed.stdout, thawed.stderr);
    must(eventually("the NodePool follows again", LIMIT, async || pool_is("8").await).await);
    must(user.runs("shop", 2).await);

    let status = tenon(bed, &[&["status", "-o", "json"][..], &target].concat(), None).await;
    assert_eq!(status.code, 0, "{}{}", status.stdout, status.stderr);
    let status: Value = must(serde_json::from_str(&status.stdout));
    assert_eq!(status["warnings"], json!([]), "{status}");
    assert_eq!(status["healthy"], true, "{status}");
    assert_eq!(status["target"], json!({ "cluster": CLUSTER, "region": bed.region() }));
    assert_eq!(status["queue"]["name"], QUEUE, "{status}");
    assert_eq!(status["operator"]["deployment"], "karpenter", "{status}");
    assert_eq!(status["fleet"]["nodePools"][0]["name"], "web", "{status}");

    // The checks of what kOps clusters have, too.
    let doctor = tenon(bed, &[&["doctor", "-o", "json"][..], &target].concat(), None).await;
    assert_eq!(doctor.code, 0, "{}{}", doctor.stdout, doctor.stderr);
    let report: Value = must(serde_json::from_str(&doctor.stdout));
    // The bed has no DNS.
    assert_eq!(outcome(&report, "CL-10").0, "fail", "{report:#}");
    let counts = ["fatal", "warnings", "unknown"].map(|name| &report["counts"][name]);
    assert_eq!(counts, [&json!(0), &json!(1), &json!(0)], "{report:#}");
    passes(&report, ["OP-01", "OP-03", "OP-04", "NC-01", "NP-02", "NO-01"]);

    // Other commands are for EKS, and say so.
    for command in ["plan", "install", "uninstall"] {
        let args = [&[command, "--non-interactive"][..], &target].concat();
        let refused = tenon(bed, &args, None).await;
        assert_eq!(refused.code, 6, "{command}: {}{}", refused.stdout, refused.stderr);
        assert!(refused.stderr.contains("is a kOps cluster"), "{command}: {}", refused.stderr);
    }
}
