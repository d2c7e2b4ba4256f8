//! An operator that starts in the midst of drains does not know yet what it drains. Whatever it
//! learns last, no machine goes before its pods, no matter whether it was killed or replaced during
//! a rollout.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tenon_aws_double::process::Signal;
use tenon_aws_double::progress::Progress;
use tenon_bed::api_faults::{ApiFaults, Fault, Requests};
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::environment::Environment;
use tenon_bed::eviction_log::EvictionLog;
use tenon_bed::kwok_operators::{KwokOperators, Operator};
use tenon_bed::programs::TenonPrograms;
use tenon_bed::scenarios::end;
use tenon_bed::user::{LIMIT, User, one_of};
use tenon_bed::wait::{eventually, must};

/// The app, its NodePool and its PodDisruptionBudget.
const HELD: &str = "held";
const N_NODES: usize = 3;
const LEASE: &str = "karpenter-leader-election";

/// Orders in which the operator gets to know the kinds that a drain is about; the others come at
/// once.
const ORDERS: &[&[&str]] = &[
    &["nodeclaims", "nodes", "poddisruptionbudgets", "pods"],
    &["pods", "poddisruptionbudgets", "nodes", "nodeclaims"],
    &["nodes", "pods", "nodepools", "nodeclaims"],
    &["kwoknodeclasses", "nodeclaims", "pods", "nodes"],
];

fn leases(user: &User) -> Api<Lease> {
    Api::namespaced(user.client(), "kube-system")
}

/// Who holds the lease; empty while nobody does.
async fn holder(user: &User) -> String {
    let lease = must(leases(user).get_opt(LEASE).await);
    let spec = lease.and_then(|lease| lease.spec);
    spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

/// Takes the lease from an operator that was killed, which would keep it for fifteen seconds.
async fn free_the_lease(user: &User) {
    let patch = json!({ "spec": { "holderIdentity": "" } });
    must(leases(user).patch(LEASE, &PatchParams::default(), &Patch::Merge(patch)).await);
}

/// Nodes that are being deleted and that a PodDisruptionBudget holds.
async fn held_drains(user: &User) -> BTreeSet<String> {
    let machines = json!([
        one_of("kubernetes.io/os", &["linux"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
        one_of("karpenter.kwok.sh/instance-cpu", &["1"]),
    ]);
    must(user.pool(HELD, &machines, &json!({})).await);
    let template = json!({ "spec": { "nodeSelector": { "scenario": HELD } } });
    must(user.deploy(HELD, N_NODES, &template).await);
    must(user.runs(HELD, N_NODES).await);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(user.client(), "default");
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": HELD },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": HELD } } },
    });
    let parameters = PatchParams::apply("user").force();
    must(budgets.patch(HELD, &parameters, &Patch::Apply(budget)).await);
    let counted = async || {
        let status = budgets.get(HELD).await?.status.unwrap_or_default();
        Ok(usize::try_from(status.expected_pods.unwrap_or(0)) == Ok(N_NODES))
    };
    must(eventually("the budget counts its pods", LIMIT, counted).await);
    for claim in must(user.claims(HELD).await) {
        let claims = user.objects("NodeClaim");
        must(claims.delete(&claim.name_any(), &DeleteParams::default()).await);
    }
    let draining = async || {
        let nodes = user.nodes(HELD).await?;
        Ok(nodes.iter().all(|node| node.metadata.deletion_timestamp.is_some()))
    };
    must(eventually("all nodes are being drained", LIMIT, draining).await);
    nodes(user).await
}

async fn nodes(user: &User) -> BTreeSet<String> {
    must(user.nodes(HELD).await).iter().map(ResourceExt::name_any).collect()
}

/// After the operator has looked at its drains a few times nothing has gone.
async fn nothing_goes(user: &User, expected: &BTreeSet<String>, what: &str) {
    let leads = async || Ok(!holder(user).await.is_empty());
    must(eventually(&format!("{what}: an operator leads"), LIMIT, leads).await);
    // A drain is looked at every second.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(nodes(user).await, *expected, "{what}: a node went before its pods");
    assert_eq!(must(user.pods(HELD).await).len(), N_NODES, "{what}");
}

async fn an_operator_that_is_killed_knows_its_drains_before_it_acts(
    tenon: &KwokOperators,
    faults: &ApiFaults,
    operator: &mut Operator,
    held: &BTreeSet<String>,
) {
    let user = tenon.user();
    for round in 0..must(Environment::read()).cold_starts {
        for order in ORDERS {
            let hidden: Vec<_> = order
                .iter()
                .map(|kind| (kind, faults.add(Requests::lists(kind), Fault::Hold)))
                .collect();
            must(operator.kill_and_restart().await);
            free_the_lease(user).await;
            for (kind, rule) in hidden {
                let asked = async || Ok(rule.met() > 0);
                must(eventually(&format!("it lists {kind}"), LIMIT, asked).await);
                // As long as it takes to campaign, if it did.
                tokio::time::sleep(Duration::from_millis(500)).await;
                assert_eq!(holder(user).await, "", "it campaigns and does not know {kind} yet");
                rule.lift();
            }
            nothing_goes(user, held, &format!("{order:?}, round {round}")).await;
        }
    }
}

/// How long nobody leads when the leader is told to stop while a standby is ready.
async fn a_standby_takes_over_at_once(
    tenon: &KwokOperators,
    leader: &Operator,
    expected: &str,
) -> Operator {
    let user = tenon.user();
    let standby = must(tenon.start(expected));
    must(standby.ready(LIMIT).await);
    let began = Instant::now();
    leader.process().signal(Signal::Term);
    let leads = async || Ok(holder(user).await.starts_with(expected));
    must(eventually("the standby leads", LIMIT, leads).await);
    let took = began.elapsed();
    // Without the watch it takes up to two seconds more, and without the release fifteen.
    assert!(took < Duration::from_secs(2), "{took:?}");
    standby
}

/// A rollout: the new pod is ready to take over while the old one is stopped.
async fn a_surge_pod_waits_until_it_knows_the_drains(
    tenon: &KwokOperators,
    faults: &ApiFaults,
    first: Operator,
    held: &BTreeSet<String>,
) -> Operator {
    let user = tenon.user();
    let pods = faults.add(Requests::lists("pods"), Fault::Hold);
    let second = must(tenon.start_behind(faults, "second", &[]));
    let asked = async || Ok(pods.met() > 0);
    must(eventually("the second operator lists pods", LIMIT, asked).await);
    first.process().signal(Signal::Term);
    let free = async || Ok(holder(user).await.is_empty());
    must(eventually("the first operator has given the lease up", LIMIT, free).await);
    // A standby looks every two seconds, and watches.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(holder(user).await, "", "the second operator does not know the pods yet");
    pods.lift();
    must(second.ready(LIMIT).await);
    nothing_goes(user, held, "during a rollout").await;
    assert!(holder(user).await.starts_with("second"));
    second
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_starts_in_the_midst_of_a_drain_terminates_no_machine_before_its_pods() {
    let programs = must(TenonPrograms::provide(&Progress::hidden()).await);
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    let bed = must(Bed::start(config).await);
    let tenon = must(KwokOperators::prepare(&bed, programs).await);
    let faults = must(ApiFaults::start(bed.control_plane()).await);
    let mut first = must(tenon.start_behind(&faults, "first", &[]));
    must(first.ready(LIMIT).await);
    let user = tenon.user();
    let held = held_drains(user).await;
    let evictions = EvictionLog::watch(user.client(), HELD);
    an_operator_that_is_killed_knows_its_drains_before_it_acts(&tenon, &faults, &mut first, &held)
        .await;
    let second = a_surge_pod_waits_until_it_knows_the_drains(&tenon, &faults, first, &held).await;
    let third = a_standby_takes_over_at_once(&tenon, &second, "third").await;
    nothing_goes(user, &held, "after the third operator took over").await;
    assert!(evictions.gone().is_empty(), "the budget allows nothing");
    drop((third, tenon));
    end(bed, &[]).await;
}
