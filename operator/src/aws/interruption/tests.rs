use futures::FutureExt as _;
use serde_json::json;
use tenon_planner::snapshot::NodeClassRef;

use super::*;
use crate::aws::tests::mk_provider;
use crate::state::change::ObjectKey;
use crate::state::cluster::annotation;
use crate::testing::bench::{Bench, node, nodeclaim};
use crate::watch::wire::{Node, Pod};

/// The machine `i-a` with its NodeClaim, its Node and a pod, and a provider that knows of it.
async fn running() -> (Bench, AwsProvider) {
    let bench = Bench::new().await;
    let mut claim = nodeclaim("a");
    claim["metadata"]["labels"]["node.kubernetes.io/instance-type"] = json!("m5.large");
    claim["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("eu-central-1a");
    bench.seen::<NodeClaim>(claim).await;
    bench.seen::<Node>(node("a")).await;
    let pod = json!({
        "metadata": { "namespace": "default", "name": "pod" },
        "spec": { "nodeName": "a", "containers": [] },
    });
    bench.seen::<Pod>(pod).await;
    let provider = mk_provider(&[]);
    provider.state.set(bench.state.clone()).unwrap();
    (bench, provider)
}

async fn receive(bench: &Bench, provider: &AwsProvider, kind: Kind) {
    let message = Message { kind, instances: vec!["i-a".to_owned()], time: None };
    act(provider, &bench.context, &bench.write, &message).await.unwrap();
}

/// Whether the provisioner is told that it has to hurry.
fn hurries(bench: &Bench) -> bool {
    bench.context.interrupted.notified().now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_machine_that_is_taken_away_wait_for_another_from_the_message_on() {
    let (bench, provider) = running().await;
    bench.api.take_requests();
    receive(&bench, &provider, Kind::SpotInterrupted).await;
    assert!(hurries(&bench));
    let snapshot = {
        let state = bench.state.read();
        assert!(state.pod(&ObjectKey::new("default", "pod")).is_some());
        state.snapshot(&|_: &NodeClassRef| None, bench.context.clock.now())
    };
    let [machine] = snapshot.nodes.as_slice() else { panic!("one machine") };
    assert!(machine.deleting, "its pods count as pending");
    let claim = "/apis/karpenter.sh/v1/nodeclaims/a";
    assert_eq!(bench.api.take_requests(), [format!("PATCH {claim}"), format!("DELETE {claim}")]);
    let now = provider.catalogs.unavailable.now();
    assert!(now.contains("m5.large", "eu-central-1a", CapacityType::Spot, &[], None));

    // The second message about it finds it on its way.
    receive(&bench, &provider, Kind::InstanceTerminated).await;
    assert!(bench.api.take_requests().is_empty());
    assert!(!hurries(&bench));
}

#[tokio::test(start_paused = true)]
async fn a_message_about_a_nodeclaim_that_was_made_again_touches_nothing() {
    for kind in [Kind::SpotInterrupted, Kind::SystemStatus] {
        let (bench, provider) = running().await;
        bench.api.put::<NodeClaim>(nodeclaim("a"));
        let before = bench.api.get::<NodeClaim>("a");
        receive(&bench, &provider, kind).await;
        assert_eq!(bench.api.get::<NodeClaim>("a"), before, "{kind:?}");
        assert!(!hurries(&bench), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_beyond_draining_gets_its_deadline_with_the_deletion() {
    let (bench, provider) = running().await;
    receive(&bench, &provider, Kind::SystemStatus).await;
    let claim = bench.state.read().claim("a").cloned().unwrap();
    assert_eq!(annotation(&claim, labels::TERMINATION_TIMESTAMP), Some("2026-11-20T00:00:00Z"));
    assert!(claim.metadata.deletion_timestamp.is_some());
}

/// The deadline of the claim's drain.
fn deadline_of(bench: &Bench) -> Option<String> {
    let claim = bench.state.read().claim("a").cloned()?;
    annotation(&claim, labels::TERMINATION_TIMESTAMP).map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn the_drain_of_a_spot_instance_is_over_when_aws_takes_it() {
    // It is 00:00:00; AWS sent the warning 20 seconds ago.
    let warned = || Message {
        kind: Kind::SpotInterrupted,
        instances: vec!["i-a".to_owned()],
        time: Some("2026-11-19T23:59:40Z".parse().unwrap()),
    };
    let taken = Some("2026-11-20T00:01:40Z".to_owned());
    let (bench, provider) = running().await;
    act(&provider, &bench.context, &bench.write, &warned()).await.unwrap();
    assert_eq!(deadline_of(&bench), taken);
    // The second message changes nothing, and others have no deadline.
    bench.api.take_requests();
    act(&provider, &bench.context, &bench.write, &warned()).await.unwrap();
    receive(&bench, &provider, Kind::InstanceTerminated).await;
    assert!(bench.api.take_requests().is_empty());

    // A drain that has begun, for any other reason, ends then, too.
    for (set, expected) in [
        (None, taken.clone()),
        (Some("2026-11-20T01:00:00Z"), taken.clone()),
        (Some("2026-11-20T00:01:00Z"), Some("2026-11-20T00:01:00Z".to_owned())),
    ] {
        let (bench, provider) = running().await;
        let mut claim = bench.api.get::<NodeClaim>("a");
        claim["metadata"]["deletionTimestamp"] = json!("2026-11-19T23:00:00Z");
        if let Some(set) = set {
            claim["metadata"]["annotations"] = json!({ labels::TERMINATION_TIMESTAMP: set });
        }
        bench.seen::<NodeClaim>(claim).await;
        act(&provider, &bench.context, &bench.write, &warned()).await.unwrap();
        assert_eq!(deadline_of(&bench), expected, "{set:?}");
    }

    // A shorter grace period of its own counts.
    let (bench, provider) = running().await;
    let mut claim = bench.api.get::<NodeClaim>("a");
    claim["spec"]["terminationGracePeriod"] = json!("30s");
    bench.seen::<NodeClaim>(claim).await;
    act(&provider, &bench.context, &bench.write, &warned()).await.unwrap();
    assert_eq!(deadline_of(&bench).as_deref(), Some("2026-11-20T00:00:30Z"));
}

#[tokio::test(start_paused = true)]
async fn interruptions_are_counted_by_how_the_machine_ends() {
    for (kind, mode) in [(Kind::SpotInterrupted, "graceful"), (Kind::SystemStatus, "forceful")] {
        let (bench, provider) = running().await;
        receive(&bench, &provider, kind).await;
        let text = bench.context.metrics.encode().unwrap();
        let mut lines = text.lines().filter(|it| it.contains("nodeclaims_disrupted_total{"));
        let line = lines.next().unwrap();
        assert!(line.contains(&format!(r#"termination_mode="{mode}""#)), "{line}");
        assert_eq!(lines.next(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_recommendation_is_told_and_nothing_is_drained() {
    let (bench, provider) = running().await;
    bench.api.take_requests();
    receive(&bench, &provider, Kind::RebalanceRecommendation).await;
    assert!(bench.api.take_requests().is_empty());
}

#[test]
fn every_kind_but_no_op_is_announced() {
    let kinds = [
        (Kind::SpotInterrupted, "SpotInterrupted", true),
        (Kind::RebalanceRecommendation, "SpotRebalanceRecommendation", false),
        (Kind::ScheduledChange, "InstanceUnhealthy", true),
        (Kind::InstanceStatus, "InstanceUnhealthy", true),
        (Kind::SystemStatus, "InstanceUnhealthy", true),
        (Kind::EventStatus, "InstanceUnhealthy", true),
        (Kind::InstanceStopped, "InstanceStopping", true),
        (Kind::InstanceTerminated, "InstanceTerminating", true),
        (Kind::CapacityReservationInterrupted, "CapacityReservationInstanceInterrupted", true),
    ];
    for (kind, reason, drains) in kinds {
        assert_eq!(announcement(kind).unwrap().1.as_str(), reason);
        assert_eq!(kind.drains(), drains, "{reason}");
    }
    assert!(announcement(Kind::NoOp).is_none());
    assert!(!Kind::NoOp.drains());
}
