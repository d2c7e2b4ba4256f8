//! What goes wrong around the operator, and that it recovers by itself and has said what happened: each fault stays until the operator has told of it,
//! then it ends, and everything must come right.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_tests::bed::{Bed, BedConfig};
use tenon_tests::front::control::Selection;
use tenon_tests::front::faults::Shortage;
use tenon_tests::front::prices::CapacityType;
use tenon_tests::installed::{Installed, LIMIT, instance_of, one_of};
use tenon_tests::scenarios::{Scenario, play};
use tenon_tests::wait::eventually;

async fn installed(bed: &Arc<Bed>) -> Installed {
    let tenon = Installed::ensure(bed, &json!({})).await.expect("Tenon is installed");
    tenon.ready("EC2NodeClass", "default").await.unwrap_or_else(|error| panic!("{error}"));
    tenon
}

/// Pods on nodes of the scenario's own pool.
async fn scale(tenon: &Installed, scenario: &str, replicas: usize) {
    tenon.scale(scenario, replicas, &json!({ "scenario": scenario })).await.expect("scaled");
}

async fn runs(tenon: &Installed, scenario: &str, replicas: usize) {
    tenon.runs(scenario, replicas).await.unwrap_or_else(|error| panic!("{error}"));
}

/// Waits for a line of the operator's log.
async fn says(tenon: &Installed, mark: &tenon_tests::installed::Mark, parts: &[&str]) {
    tenon.says(mark, parts).await.unwrap_or_else(|error| panic!("{error}"));
}

/// Types that no other scenario uses, so that what one learns about them is no matter to others.
fn types(types: &[&str], capacity: &[&str]) -> Value {
    json!([
        one_of("node.kubernetes.io/instance-type", types),
        one_of("karpenter.sh/capacity-type", capacity),
    ])
}

async fn pods_get_other_offerings_when_the_cheapest_have_no_capacity(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    let control = bed.aws().expect("AWS").front().control();
    let both = types(&["c6i.large", "c6a.large"], &["spot", "on-demand"]);
    tenon.pool("ice", &both, None).await.expect("a pool");
    let mark = tenon.mark().expect("logs");
    control.ice(Shortage {
        instance_type: "c6*".to_owned(),
        zone: "*".to_owned(),
        capacity_type: Some(CapacityType::Spot),
        left: 0,
        code: "InsufficientInstanceCapacity".to_owned(),
    });
    scale(&tenon, "ice", 2).await;
    runs(&tenon, "ice", 2).await;
    for node in tenon.nodes("ice").await.expect("nodes") {
        assert_eq!(node.labels()["karpenter.sh/capacity-type"], "on-demand");
    }
    says(&tenon, &mark, &["offering is unavailable", "InsufficientInstanceCapacity", "spot"]).await;

    // What has no capacity is not asked for again: as many calls as instances.
    control.calls().clear();
    let before = tenon.instances().expect("AWS").len();
    scale(&tenon, "ice", 6).await;
    runs(&tenon, "ice", 6).await;
    let launched = tenon.instances().expect("AWS").len() - before;
    let calls = control.calls().of("ec2:CreateFleet");
    let asked = calls.iter().filter(|call| !call.dry_run).count();
    assert!(launched > 0 && asked <= launched, "{asked} calls for {launched} instances");
    control.heal_all();
    tenon.remove("ice").await.expect("removed");
}

async fn a_burst_of_server_errors_passes(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    let control = bed.aws().expect("AWS").front().control();
    tenon.pool("burst", &types(&["m6a.large"], &["on-demand"]), None).await.expect("a pool");
    let mark = tenon.mark().expect("logs");
    control.fail("ec2:*", None, 500, "InternalError");
    scale(&tenon, "burst", 2).await;
    says(&tenon, &mark, &["InternalError"]).await;
    control.heal_all();
    runs(&tenon, "burst", 2).await;
    eventually("every instance has its NodeClaim", LIMIT, async || {
        tenon.instances_match_claims().await
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"));
    tenon.remove("burst").await.expect("removed");
}

async fn an_interruption_is_handled_when_sqs_is_back(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    let control = bed.aws().expect("AWS").front().control();
    tenon.pool("sqs", &types(&["r6i.large", "r6a.large"], &["spot"]), None).await.expect("a pool");
    scale(&tenon, "sqs", 1).await;
    runs(&tenon, "sqs", 1).await;
    let claim = tenon.claims("sqs").await.expect("claims").remove(0);
    let instance = instance_of(&claim);

    let mark = tenon.mark().expect("logs");
    control.fail("sqs:*", None, 503, "ServiceUnavailable");
    says(&tenon, &mark, &["failed to read the interruption queue"]).await;
    let chosen = Selection::Instances(vec![instance]);
    let outcome = control.interrupt(chosen, None).await.expect("the event is sent");
    let failures: Vec<_> = outcome.deliveries.iter().filter_map(|it| it.failure.clone()).collect();
    assert!(!outcome.deliveries.is_empty() && failures.is_empty(), "{failures:?}");
    control.heal_all();
    eventually("the interrupted NodeClaim is replaced, and its pod runs", LIMIT, async || {
        let claims = tenon.claims("sqs").await?;
        if claims.iter().any(|it| it.name_any() == claim.name_any()) {
            return Err(format!("{} is left", claim.name_any()).into());
        }
        tenon.all_run("sqs", 1).await
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"));
    let said = tenon.events("SpotInterrupted").await.expect("events");
    let name = claim.name_any();
    assert!(
        said.iter().any(|event| event.involved_object.name.as_deref() == Some(name.as_str())),
        "no event tells of the interruption of {name}"
    );
    tenon.remove("sqs").await.expect("removed");
}

async fn a_scale_up_survives_a_restart_of_the_api_server(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    tenon.pool("api", &types(&["m7i.large"], &["on-demand"]), None).await.expect("a pool");
    let mark = tenon.mark().expect("logs");
    scale(&tenon, "api", 9).await;
    eventually("the scale-up has begun", LIMIT, async || {
        Ok(!tenon.claims("api").await?.is_empty())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"));
    bed.restart_api_server(Duration::from_secs(4)).await.expect("it comes back");
    runs(&tenon, "api", 9).await;
    says(&tenon, &mark, &["failed to renew the lease"]).await;
    eventually("every instance has its NodeClaim", LIMIT, async || {
        tenon.instances_match_claims().await
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(tenon.doubled().expect("AWS"), [], "a NodeClaim had several instances");
    tenon.remove("api").await.expect("removed");
}

async fn what_does_not_parse_is_skipped_loudly(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    let mark = tenon.mark().expect("logs");
    // The schema's pattern, which is Kubernetes' own, lets it pass; it is no quantity all the same.
    let broken = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "broken" },
        "spec": {
            "limits": { "cpu": "1e1.5" },
            "template": {
                "spec": {
                    "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                    "requirements": [one_of("kubernetes.io/arch", &["amd64"])],
                },
            },
        },
    });
    tenon.apply(&broken).await.expect("the API server accepts it");
    says(&tenon, &mark, &["skipping an object that does not parse", "broken", "1e1.5"]).await;
    eventually("an event tells whoever looks at the NodePool", LIMIT, async || {
        let events = tenon.events("Invalid").await?;
        Ok(events.iter().any(|event| {
            let about = &event.involved_object;
            about.kind.as_deref() == Some("NodePool") && about.name.as_deref() == Some("broken")
        }))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"));

    // Others are made, and launched for, as if it were not there; also by an operator that starts with it.
    tenon.kill_leader().await.expect("somebody leads");
    tenon.pool("whole", &types(&["m5.large"], &["on-demand"]), None).await.expect("a pool");
    scale(&tenon, "whole", 1).await;
    runs(&tenon, "whole", 1).await;
    let pools: Api<kube::api::DynamicObject> = tenon.objects("NodePool");
    let names: Vec<String> = pools
        .list(&ListParams::default())
        .await
        .expect("NodePools")
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert!(names.contains(&"broken".to_owned()), "nobody removes it: {names:?}");
    pools.delete("broken", &DeleteParams::default()).await.expect("deleted");
    eventually("it can be deleted", LIMIT, async || Ok(pools.get_opt("broken").await?.is_none()))
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    tenon.remove("whole").await.expect("removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_recovers_and_says_what_happened() {
    play(
        BedConfig::default(),
        &[
            Scenario::new("pods_get_other_offerings_when_the_cheapest_have_no_capacity", |bed| {
                Box::pin(pods_get_other_offerings_when_the_cheapest_have_no_capacity(bed))
            }),
            Scenario::new("a_burst_of_server_errors_passes", |bed| {
                Box::pin(a_burst_of_server_errors_passes(bed))
            }),
            Scenario::new("an_interruption_is_handled_when_sqs_is_back", |bed| {
                Box::pin(an_interruption_is_handled_when_sqs_is_back(bed))
            }),
            Scenario::new("a_scale_up_survives_a_restart_of_the_api_server", |bed| {
                Box::pin(a_scale_up_survives_a_restart_of_the_api_server(bed))
            }),
            Scenario::new("what_does_not_parse_is_skipped_loudly", |bed| {
                Box::pin(what_does_not_parse_is_skipped_loudly(bed))
            }),
        ],
    )
    .await;
}
