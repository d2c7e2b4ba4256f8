//! What the API server refuses or forgets costs nobody a pod: a webhook that denies deletions, a
//! watch that expires in the midst of a burst, and connections on which nothing comes any more.

use std::time::Duration;

use serde_json::{Value, json};
use tenon_aws_double::progress::Progress;
use tenon_bed::api_faults::{ApiFaults, Fault, Refusal, Requests};
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kwok_operators::KwokOperators;
use tenon_bed::programs::TenonPrograms;
use tenon_bed::user::{LIMIT, User, one_of};
use tenon_bed::wait::{eventually, must};

/// A dead connection is noticed within 25 seconds, and this is how long the operator's manual
/// allows.
const NOTICED: Duration = Duration::from_secs(30);

/// Machines that hold one pod each.
fn machines() -> Value {
    json!([
        one_of("kubernetes.io/os", &["linux"]),
        one_of("kubernetes.io/arch", &["amd64"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
        one_of("karpenter.kwok.sh/instance-cpu", &["1"]),
    ])
}

fn of_generation(generation: &str) -> Value {
    json!({ "template": { "metadata": { "labels": { "generation": generation } } } })
}

async fn deploy(user: &User, app: &str, replicas: usize) {
    must(user.scale(app, replicas, &json!({ "scenario": app })).await);
}

async fn a_denied_deletion_is_tried_again_and_leaves_the_pods_alone(
    user: &User,
    faults: &ApiFaults,
) {
    let scenario = "denied";
    must(user.pool(scenario, &machines(), &of_generation("one")).await);
    deploy(user, scenario, 2).await;
    must(user.runs(scenario, 2).await);
    let denial = Fault::Refuse(Refusal::denied_by_webhook("policy.example", "not today"));
    let rule = faults.add(Requests::of("delete", "nodeclaims"), denial);
    must(user.pool(scenario, &machines(), &of_generation("two")).await);
    let look = async || {
        let claims = user.claims(scenario).await?.len();
        assert!(claims <= 4, "{claims} NodeClaims: replacements pile up");
        Ok(rule.met() >= 3)
    };
    must(eventually("a drifted NodeClaim's deletion is denied three times", LIMIT, look).await);
    must(user.runs(scenario, 2).await);
    rule.lift();
    let look = async || {
        let nodes = user.nodes(scenario).await?;
        let new = nodes.iter().filter(|node| {
            let labels = node.metadata.labels.as_ref();
            labels.and_then(|it| it.get("generation")).is_some_and(|it| it == "two")
        });
        if new.count() == 2 && nodes.len() == 2 && user.claims(scenario).await?.len() == 2 {
            user.all_run(scenario, 2).await
        } else {
            Err(format!("{} Nodes", nodes.len()).into())
        }
    };
    must(eventually("both Nodes are replaced once deletions are allowed", LIMIT, look).await);
}

async fn an_expired_watch_in_a_burst_launches_nothing_twice(user: &User, faults: &ApiFaults) {
    let scenario = "burst";
    must(user.pool(scenario, &machines(), &json!({})).await);
    deploy(user, scenario, 15).await;
    let begun = async || Ok(!user.claims(scenario).await?.is_empty());
    must(eventually("the scale-up has begun", LIMIT, begun).await);
    // Once in its midst, and once more when it begins anew.
    let rule = faults.add_times(2, Requests::watches("pods"), Fault::Expire);
    must(user.runs(scenario, 15).await);
    assert_eq!(rule.met(), 2, "the watch expired while pods came");
    let (claims, nodes) = (must(user.claims(scenario).await), must(user.nodes(scenario).await));
    assert_eq!((claims.len(), nodes.len()), (15, 15), "one machine for each pod");
    assert_eq!(faults.count(&Requests::of("create", "nodeclaims")), 15, "none was made in vain");
}

/// A network that drops packets tells nobody, and acknowledges what is sent: the operator has to
/// find out by itself.
async fn connections_that_hang_in_a_burst_are_left_within_half_a_minute(
    user: &User,
    faults: &ApiFaults,
) {
    let scenario = "hung";
    must(user.pool(scenario, &machines(), &json!({})).await);
    deploy(user, scenario, 15).await;
    let begun = async || Ok(!user.claims(scenario).await?.is_empty());
    must(eventually("the scale-up has begun", LIMIT, begun).await);
    let watches = Requests::watches("pods");
    let before = faults.count(&watches);
    faults.hang_connections();
    let again = async || Ok(faults.count(&watches) > before);
    must(eventually("it watches on another connection", NOTICED, again).await);
    must(user.runs(scenario, 15).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_expired_watches_cost_nobody_a_pod() {
    let programs = must(TenonPrograms::provide(&Progress::hidden()).await);
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    let bed = must(Bed::start(config).await);
    let tenon = must(KwokOperators::prepare(&bed, programs).await);
    let faults = must(ApiFaults::start(bed.control_plane()).await);
    let operator = must(tenon.start_behind(&faults, "one", &[]));
    must(operator.ready(LIMIT).await);
    an_expired_watch_in_a_burst_launches_nothing_twice(tenon.user(), &faults).await;
    a_denied_deletion_is_tried_again_and_leaves_the_pods_alone(tenon.user(), &faults).await;
    connections_that_hang_in_a_burst_are_left_within_half_a_minute(tenon.user(), &faults).await;
    drop((operator, tenon));
    must(bed.stop().await);
}
