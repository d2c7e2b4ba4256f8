//! `kill -9` of the operator while it scales up, consolidates and reacts to an interruption: in the
//! end all pods run, every instance has its NodeClaim, no NodeClaim had two instances, and no pod
//! was evicted twice.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tenon_aws_double::control::Selection;
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::scenarios;
use tenon_bed::scenarios::play;
use tenon_bed::user::{LIMIT, instance_of, one_of};
use tenon_bed::wait::eventually;

/// Decides when kills come.
const SEED: u64 = 7;
/// How long an instance without NodeClaim may live: the interval of its collection is two minutes,
/// and the operator may have been killed meanwhile.
const COLLECTED: Duration = Duration::from_secs(150);

/// Waits for a moment chosen by chance, at most `within` from now, and kills the operator that
/// leads.
async fn kill_within(tenon: &Installation, chance: &mut StdRng, within: Duration) {
    let limit = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    let delay = Duration::from_millis(chance.random_range(0..limit));
    // Not a wait for something: the moment itself is what is tried out.
    tokio::time::sleep(delay).await;
    let killed = tenon.kill_leader().await.expect("somebody leads");
    assert!(!killed.is_empty(), "no operator ran");
}

/// What must hold whenever everything has come to rest.
async fn nothing_is_left_over(tenon: &Installation) {
    eventually("every instance has its NodeClaim", COLLECTED, async || {
        tenon.instances_match_claims().await
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"));
    eventually("no node that stays is fenced off", LIMIT, async || {
        for node in tenon.user().nodes("kills").await? {
            let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            let fenced = taints.into_iter().any(|taint| taint.key == "karpenter.sh/disrupted");
            if fenced && node.metadata.deletion_timestamp.is_none() {
                return Err(node.name_any().into());
            }
        }
        Ok(true)
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(tenon.doubled().expect("AWS"), [], "a NodeClaim had several instances");
    let evictions = tenon.user().evictions().await.expect("events");
    let twice: Vec<_> = evictions.values().filter(|(_, count)| *count > 1).collect();
    assert!(twice.is_empty(), "pods were evicted more than once: {twice:?}");
}

/// Tenon with one pool of small machines, so that there are many of them.
async fn prepared(bed: &Arc<Bed>, pool: &serde_json::Value) -> Installation {
    let tenon = Installation::ensure(bed, &json!({})).await.expect("Tenon is installed");
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", &["m6i.large", "m7i.large", "m6a.large"]),
        one_of("karpenter.sh/capacity-type", &["spot", "on-demand"]),
    ]);
    tenon.user().pool("kills", &requirements, pool).await.expect("a pool");
    tenon
}

async fn scale(tenon: &Installation, replicas: usize) {
    tenon.user().scale("kills", replicas, &json!({ "scenario": "kills" })).await.expect("scaled");
}

async fn runs(tenon: &Installation, replicas: usize) {
    tenon.user().runs("kills", replicas).await.unwrap_or_else(|error| panic!("{error}"));
}

async fn a_scale_up_survives(bed: Arc<Bed>) {
    let tenon = prepared(&bed, &json!({})).await;
    let mut chance = StdRng::seed_from_u64(SEED);
    let mut replicas = 0;
    for _ in 0..4 {
        replicas += 5;
        scale(&tenon, replicas).await;
        kill_within(&tenon, &mut chance, Duration::from_secs(5)).await;
        runs(&tenon, replicas).await;
    }
    nothing_is_left_over(&tenon).await;
}

async fn a_consolidation_survives(bed: Arc<Bed>) {
    let tenon = prepared(&bed, &json!({})).await;
    let mut chance = StdRng::seed_from_u64(SEED + 1);
    scale(&tenon, 20).await;
    runs(&tenon, 20).await;
    let before = tenon.user().claims("kills").await.expect("claims").len();
    // Pods go from all nodes; those that are left fit on fewer.
    scale(&tenon, 6).await;
    runs(&tenon, 6).await;
    let eager = json!({
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "1s",
        "budgets": [{ "nodes": "50%" }],
    });
    prepared(&bed, &json!({ "disruption": eager })).await;
    for _ in 0..2 {
        kill_within(&tenon, &mut chance, Duration::from_secs(8)).await;
    }
    eventually("fewer nodes are left, and the pods run", 2 * LIMIT, async || {
        let claims = tenon.user().claims("kills").await?;
        let leaving = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some());
        if claims.len() <= 3 && claims.len() < before && leaving.count() == 0 {
            tenon.user().all_run("kills", 6).await
        } else {
            Err(format!("{} of {before} NodeClaims are left", claims.len()).into())
        }
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"));
    nothing_is_left_over(&tenon).await;
}

async fn an_interruption_survives(bed: Arc<Bed>) {
    let tenon = prepared(&bed, &json!({})).await;
    let mut chance = StdRng::seed_from_u64(SEED + 2);
    scale(&tenon, 6).await;
    runs(&tenon, 6).await;
    for _ in 0..2 {
        // A share of nothing is one instance.
        let control = bed.aws().expect("AWS").gateway().control();
        let outcome = control.interrupt(Selection::Share(0.0), None).await.expect("a spot node");
        let instance = outcome.instances[0].clone();
        kill_within(&tenon, &mut chance, Duration::from_secs(3)).await;
        eventually("its NodeClaim is gone, and the pods run", 2 * LIMIT, async || {
            let claims = tenon.user().claims("kills").await?;
            let left = claims.iter().find(|claim| instance_of(claim) == instance);
            match left {
                Some(claim) => Err(format!("{} is left", claim.name_any()).into()),
                None => tenon.user().all_run("kills", 6).await,
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    }
    nothing_is_left_over(&tenon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_the_operator_finishes_what_was_begun() {
    play(
        BedConfig::default(),
        &scenarios![a_scale_up_survives, a_consolidation_survives, an_interruption_survives,],
    )
    .await;
}
