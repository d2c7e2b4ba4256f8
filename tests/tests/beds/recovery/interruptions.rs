//! Interruptions: a machine that is taken away is replaced while it drains, not afterwards.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenon_aws_double::calls::Call;
use tenon_aws_double::clock::Clock;
use tenon_aws_double::control::Selection;
use tenon_bed::bed::Bed;
use tenon_bed::user::{LIMIT, instance_of, one_of};
use tenon_bed::wait::{eventually, must};

use super::setup::{control, installed};

/// From the message's receipt to the launch of the replacement. The manual promises 1.5 s; an
/// operator without optimisation, on a machine that has other work, takes longer. What must not be
/// waited for is the look at everything that waits, which comes every ten seconds.
const AT_ONCE: SignedDuration = SignedDuration::from_secs(5);

const POOL: &str = "interrupted";

/// When the operator had the message that it deleted afterwards: the answer of the last receipt
/// before the deletion.
fn received(receipts: &[Call], deletion: &Call) -> Timestamp {
    let answered = |call: &Call| must(call.time.checked_add(Duration::from_millis(call.millis)));
    let before = receipts.iter().map(answered).filter(|&answered| answered <= deletion.time);
    before.max().expect("a message was received before it was deleted")
}

pub(super) async fn a_machine_that_is_taken_away_is_replaced_at_once(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    let user = tenon.user();
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", &["m5.large", "m5n.large", "m5d.large"]),
        one_of("karpenter.sh/capacity-type", &["spot"]),
    ]);
    must(user.pool(POOL, &requirements, &json!({})).await);
    must(user.scale(POOL, 1, &json!({ "scenario": POOL })).await);
    must(user.runs(POOL, 1).await);
    // The pod can't be evicted before another one runs, so that nothing but the message tells that
    // it will need a place.
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": POOL, "namespace": "default" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": POOL } } },
    });
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(user.client(), "default");
    let budget = serde_json::from_value(budget).expect("a PodDisruptionBudget");
    must(budgets.create(&PostParams::default(), &budget).await);
    let claim = must(user.claims(POOL).await).remove(0);
    // The first machine of a leader is looked for among those that a former one launched. That is
    // not what is measured here.
    control(&bed).calls().clear();
    let sent = Clock::system().now();
    let chosen = Selection::Instances(vec![instance_of(&claim)]);
    must(control(&bed).interrupt(chosen, None).await);
    let calls = || control(&bed).calls().of("ec2:CreateFleet");
    let launch = || calls().into_iter().find(|call| !call.dry_run);
    let launched = async || Ok(launch().is_some());
    must(eventually("the replacement is launched", LIMIT, launched).await);
    let handled = async || Ok(!control(&bed).calls().of("sqs:DeleteMessage").is_empty());
    must(eventually("the message is deleted", LIMIT, handled).await);

    let deletion = control(&bed).calls().of("sqs:DeleteMessage").remove(0);
    let receipts = control(&bed).calls().of("sqs:ReceiveMessage");
    let launch = launch().expect("it was there before");
    let since_sent = launch.time.duration_since(sent);
    let since_received = launch.time.duration_since(received(&receipts, &deletion));
    anstream::println!(
        "CreateFleet {} ms after the message was sent, {} ms after it was received",
        since_sent.as_millis(),
        since_received.as_millis()
    );
    assert!(since_received < AT_ONCE, "it took {since_received:#} to launch a replacement");

    let pods = must(user.pods(POOL).await);
    assert!(pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none()), "it was evicted");
    must(budgets.delete(POOL, &DeleteParams::default()).await);
    let name = claim.name_any();
    let replaced = async || {
        let claims = user.claims(POOL).await?;
        if claims.iter().any(|it| it.name_any() == name) {
            return Err(format!("{name} is left").into());
        }
        user.all_run(POOL, 1).await
    };
    must(eventually("the machine is replaced, and its pod runs", LIMIT, replaced).await);
    must(user.remove(POOL).await);
}
