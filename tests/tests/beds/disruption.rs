//! Nodes that are dearer than necessary, expired, drifted or deleted by their user go, and not
//! before budgets, PodDisruptionBudgets, annotations and volumes let them; their pods go through
//! the eviction API. All scenarios wait most of the time, so they are played at once, on the
//! provider `kwok`, with two operators; at the end the one that leads is killed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::process::Signal;
use tenon_aws_double::progress::Progress;
use tenon_bed::attacher::DETACHES_AFTER_ANNOTATION;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::eviction_log::EvictionLog;
use tenon_bed::kwok_operators::{KwokOperators, Operator};
use tenon_bed::programs::TenonPrograms;
use tenon_bed::scenarios;
use tenon_bed::scenarios::{Scenario, at_once, end};
use tenon_bed::user::{LIMIT, User, condition, one_of};
use tenon_bed::wait::{eventually, must};

type Tenon = Arc<KwokOperators>;

const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const DISRUPTED: &str = "karpenter.sh/disrupted";
/// A lease that is not renewed lasts 15 seconds, and a standby looks every 2.
const FAILOVER: Duration = Duration::from_secs(20);

/// Machines with so many CPUs.
fn machines(cpus: &[&str]) -> Value {
    json!([
        one_of("kubernetes.io/os", &["linux"]),
        one_of("kubernetes.io/arch", &["amd64"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
        one_of("karpenter.kwok.sh/instance-cpu", cpus),
    ])
}

/// A pod template for nodes of the scenario's pool.
fn on(scenario: &str) -> Value {
    json!({ "spec": { "nodeSelector": { "scenario": scenario } } })
}

/// A NodePool of machines that hold one pod each, and so many pods that run on them. `spec` is the
/// NodePool's, `template` the pods'.
async fn running(user: &User, scenario: &str, replicas: usize, spec: &Value, template: &Value) {
    must(user.pool(scenario, &machines(&["1"]), spec).await);
    must(user.deploy(scenario, replicas, template).await);
    must(user.runs(scenario, replicas).await);
}

async fn names(user: &User, scenario: &str) -> BTreeSet<String> {
    must(user.claims(scenario).await).iter().map(ResourceExt::name_any).collect()
}

/// The only NodeClaim of a scenario, and the name of its Node.
async fn only(user: &User, scenario: &str) -> (DynamicObject, String) {
    must(user.joined(scenario).await);
    let mut claims = must(user.claims(scenario).await);
    assert_eq!(claims.len(), 1, "{scenario}");
    let claim = claims.remove(0);
    let node = claim.data["status"]["nodeName"].as_str().expect("it was there").to_owned();
    (claim, node)
}

/// Waits until none of the `old` NodeClaims is left and the pods run on others.
async fn replaced(user: &User, scenario: &str, old: &BTreeSet<String>, replicas: usize) {
    let what = format!("{scenario}: all old NodeClaims are gone, and the pods run");
    let look = async || {
        let left: Vec<String> = names(user, scenario).await.intersection(old).cloned().collect();
        if left.is_empty() {
            user.all_run(scenario, replicas).await
        } else {
            Err(format!("left: {}", left.join(", ")).into())
        }
    };
    must(eventually(&what, LIMIT, look).await);
}

/// Waits for an event with this reason about this object, whose message has `part` in it.
async fn told(user: &User, reason: &str, about: &str, part: &str) {
    let look = async || {
        let events = user.events(reason).await?;
        let mut of_it =
            events.iter().filter(|it| it.involved_object.name.as_deref() == Some(about));
        Ok(of_it.any(|it| it.message.as_deref().unwrap_or_default().contains(part)))
    };
    let what = format!("an event {reason} about {about} says {part:?}");
    must(eventually(&what, LIMIT, look).await);
}

/// Says that so many pods went, all of them through the eviction API.
fn all_evicted(evictions: &EvictionLog, expected: usize) {
    let (evicted, others) = evictions.by_eviction();
    assert!(others.is_empty(), "{others:?} did not go through the eviction API");
    assert_eq!(evicted.len(), expected, "{evicted:?}");
}

async fn delete(user: &User, claim: &DynamicObject) {
    let name = claim.name_any();
    must(user.objects("NodeClaim").delete(&name, &DeleteParams::default()).await);
}

async fn a_node_is_replaced_by_a_cheaper_one(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "cheaper");
    let mark = must(tenon.logs().mark());
    must(user.pool(scenario, &machines(&["4"]), &json!({})).await);
    must(user.deploy(scenario, 1, &on(scenario)).await);
    must(user.runs(scenario, 1).await);
    let evictions = EvictionLog::watch(user.client(), scenario);
    let (dear, _) = only(user, scenario).await;
    // Now smaller machines are allowed, too.
    let eager =
        json!({ "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s" });
    let spec = json!({ "disruption": eager });
    must(user.pool(scenario, &machines(&["1", "4"]), &spec).await);
    replaced(user, scenario, &BTreeSet::from([dear.name_any()]), 1).await;
    let (cheap, _) = only(user, scenario).await;
    assert_eq!(cheap.labels()["karpenter.kwok.sh/instance-cpu"], "1");
    all_evicted(&evictions, 1);
    let line = must(tenon.logs().says(&mark, &["disrupting node(s)", &dear.name_any()]).await);
    for part in ["underutilized", "replace", "single"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

async fn an_expired_node_is_replaced_whatever_the_budgets_say(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "expired");
    let mark = must(tenon.logs().mark());
    let spec = |after: &str| {
        json!({
            "template": { "spec": { "expireAfter": after } },
            "disruption": { "budgets": [{ "nodes": "0" }] },
        })
    };
    let evictions = EvictionLog::watch(user.client(), scenario);
    must(user.pool(scenario, &machines(&["1"]), &spec("30s")).await);
    must(user.deploy(scenario, 1, &on(scenario)).await);
    let launched = async || Ok(!names(user, scenario).await.is_empty());
    must(eventually("its machine is launched", LIMIT, launched).await);
    let old = names(user, scenario).await;
    // What is launched from now on stays.
    must(user.pool(scenario, &machines(&["1"]), &spec("Never")).await);
    must(user.runs(scenario, 1).await);
    replaced(user, scenario, &old, 1).await;
    all_evicted(&evictions, 1);
    for name in old {
        let parts = ["deleting nodeclaim", "expired", &name];
        must(tenon.logs().says(&mark, &parts).await);
    }
}

fn goes(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == DISRUPTED)
        || node.metadata.deletion_timestamp.is_some()
}

/// Runs three nodes with a pod each, makes them drift, and waits until they are replaced. Meanwhile
/// no more than one of the nodes that go may count.
async fn drifts_one_at_a_time(
    user: &User,
    scenario: &str,
    budget: &str,
    protect: impl AsyncFnOnce(),
    counts: impl Fn(&Node, &[Pod]) -> bool,
) {
    let spec = |generation: &str| {
        json!({
            "template": { "metadata": { "labels": { "generation": generation } } },
            "disruption": { "budgets": [{ "nodes": budget }] },
        })
    };
    running(user, scenario, 3, &spec("one"), &on(scenario)).await;
    protect().await;
    let evictions = EvictionLog::watch(user.client(), scenario);
    let old = names(user, scenario).await;
    assert_eq!(old.len(), 3);
    must(user.pool(scenario, &machines(&["1"]), &spec("two")).await);
    let look = async || {
        let (nodes, pods) = (user.nodes(scenario).await?, user.pods(scenario).await?);
        let n_going = nodes.iter().filter(|node| goes(node) && counts(node, &pods)).count();
        assert!(n_going <= 1, "{scenario}: {n_going} nodes go at the same time");
        let left = names(user, scenario).await.intersection(&old).count();
        if left == 0 { user.all_run(scenario, 3).await } else { Err(format!("{left} left").into()) }
    };
    must(eventually(&format!("{scenario}: all drifted nodes are replaced"), LIMIT, look).await);
    for node in must(user.nodes(scenario).await) {
        assert_eq!(node.labels()["generation"], "two");
    }
    all_evicted(&evictions, 3);
}

async fn drifted_nodes_are_replaced_one_at_a_time_as_the_budget_says(tenon: Tenon) {
    drifts_one_at_a_time(tenon.user(), "drifted", "1", async || {}, |_, _| true).await;
}

async fn drifted_nodes_are_replaced_one_at_a_time_as_their_poddisruptionbudget_says(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "protected");
    let protect = async || guard(user, scenario, 1, 3).await;
    // Nodes without pods any more hold nobody up.
    let drains = |node: &Node, pods: &[Pod]| {
        pods.iter().any(|pod| {
            let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            on == Some(&node.name_any()) && pod.metadata.deletion_timestamp.is_none()
        })
    };
    drifts_one_at_a_time(user, scenario, "100%", protect, drains).await;
}

/// A PodDisruptionBudget that lets so many pods of a scenario be unavailable, once it has counted
/// them.
async fn guard(user: &User, scenario: &str, unavailable: i32, pods: i32) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(user.client(), "default");
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": scenario },
        "spec": { "maxUnavailable": unavailable, "selector": { "matchLabels": { "app": scenario } } },
    });
    let parameters = PatchParams::apply("user").force();
    must(budgets.patch(scenario, &parameters, &Patch::Apply(budget)).await);
    let known = async || {
        let status = budgets.get(scenario).await?.status.unwrap_or_default();
        let allowed = status.disruptions_allowed == Some(unavailable);
        Ok(status.expected_pods == Some(pods) && allowed)
    };
    must(eventually(&format!("{scenario}: the budget counts its pods"), LIMIT, known).await);
}

async fn what_must_not_be_disrupted_ends_with_the_termination_grace_period(tenon: Tenon) {
    const PERIOD: i64 = 8;
    let (user, scenario) = (tenon.user(), "deadline");
    let spec =
        json!({ "template": { "spec": { "terminationGracePeriod": format!("{PERIOD}s") } } });
    let mut template = on(scenario);
    template["metadata"] = json!({ "annotations": { DO_NOT_DISRUPT: "true" } });
    running(user, scenario, 1, &spec, &template).await;
    let evictions = EvictionLog::watch(user.client(), scenario);
    let (claim, _) = only(user, scenario).await;
    delete(user, &claim).await;
    told(user, "TerminationGracePeriodExpiring", &claim.name_any(), "deleted by").await;
    let claims = user.objects("NodeClaim");
    let deleting = must(claims.get(&claim.name_any()).await);
    let asked = deleting.metadata.deletion_timestamp.expect("it is being deleted").0;
    replaced(user, scenario, &BTreeSet::from([claim.name_any()]), 1).await;
    let gone = evictions.gone();
    let [pod] = gone.as_slice() else { panic!("{} pods went", gone.len()) };
    let (evicted, _) = evictions.by_eviction();
    assert!(evicted.is_empty(), "its annotation forbids the eviction of {evicted:?}");
    told(user, "Disrupted", &pod.name_any(), "terminationGracePeriod").await;
    // The time of a deletion is when the pod's own grace period ends, and the API server cuts it to
    // seconds.
    let ended = pod.metadata.deletion_timestamp.as_ref().expect("it was deleted").0;
    let after = ended.duration_since(asked).as_secs();
    assert!((PERIOD - 1..=PERIOD + 5).contains(&after), "the pod went after {after} s");
}

async fn a_poddisruptionbudget_holds_a_drain_until_it_lets_go(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "guarded");
    running(user, scenario, 1, &json!({}), &on(scenario)).await;
    let evictions = EvictionLog::watch(user.client(), scenario);
    guard(user, scenario, 0, 1).await;
    let (claim, node) = only(user, scenario).await;
    delete(user, &claim).await;
    told(user, "FailedDraining", &node, "disruption budget").await;
    let claims = user.objects("NodeClaim");
    let waiting = must(claims.get(&claim.name_any()).await);
    let (drained, _, _) = condition(&waiting, "Drained");
    assert_ne!(drained, "True");
    assert!(evictions.gone().is_empty(), "the budget allows nothing");
    guard(user, scenario, 1, 1).await;
    replaced(user, scenario, &BTreeSet::from([claim.name_any()]), 1).await;
    all_evicted(&evictions, 1);
}

async fn a_pod_that_must_not_be_disrupted_keeps_its_drifted_node(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "annotated");
    let mut template = on(scenario);
    template["metadata"] = json!({ "annotations": { DO_NOT_DISRUPT: "true" } });
    running(user, scenario, 1, &json!({}), &template).await;
    let evictions = EvictionLog::watch(user.client(), scenario);
    let (claim, _) = only(user, scenario).await;
    let labels = json!({ "template": { "metadata": { "labels": { "generation": "two" } } } });
    must(user.pool(scenario, &machines(&["1"]), &labels).await);
    told(user, "DisruptionBlocked", &claim.name_any(), DO_NOT_DISRUPT).await;
    assert_eq!(names(user, scenario).await, BTreeSet::from([claim.name_any()]));
    // The pod's own annotation goes; its Deployment, which would replace it, does not change.
    let pods: Api<Pod> = Api::namespaced(user.client(), "default");
    let pod = must(user.pods(scenario).await).remove(0).name_any();
    let free = json!({ "metadata": { "annotations": { DO_NOT_DISRUPT: null } } });
    must(pods.patch(&pod, &PatchParams::default(), &Patch::Merge(free)).await);
    replaced(user, scenario, &BTreeSet::from([claim.name_any()]), 1).await;
    all_evicted(&evictions, 1);
}

/// A volume that somebody has made for the claim of the same name.
async fn volume(user: &User, name: &str) {
    let size = json!({ "storage": "1Gi" });
    let volumes: Api<PersistentVolume> = Api::all(user.client());
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "csi": { "driver": "csi.example.com", "volumeHandle": name },
            "claimRef": { "namespace": "default", "name": name },
        },
    });
    let volume = must(serde_json::from_value(volume));
    must(volumes.create(&PostParams::default(), &volume).await);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(user.client(), "default");
    let claim = json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": { "requests": size },
        },
    });
    let claim = must(serde_json::from_value(claim));
    must(claims.create(&PostParams::default(), &claim).await);
}

/// Lets a volume take its time to be detached.
async fn detaches_after(user: &User, name: &str, time: &str) {
    let volumes: Api<PersistentVolume> = Api::all(user.client());
    let patch = json!({ "metadata": { "annotations": { DETACHES_AFTER_ANNOTATION: time } } });
    must(volumes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await);
}

async fn a_node_stays_until_its_volumes_are_detached(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "volume");
    volume(user, scenario).await;
    detaches_after(user, scenario, "1h").await;
    let mut template = on(scenario);
    template["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": scenario } }]);
    running(user, scenario, 1, &json!({}), &template).await;
    let evictions = EvictionLog::watch(user.client(), scenario);
    let (claim, node) = only(user, scenario).await;
    let attachments: Api<VolumeAttachment> = Api::all(user.client());
    let attached = async || {
        let all = attachments.list(&ListParams::default()).await?.items;
        let there = |it: &VolumeAttachment| {
            it.spec.node_name == node && it.status.as_ref().is_some_and(|status| status.attached)
        };
        Ok(all.iter().any(there))
    };
    must(eventually("the volume is attached", LIMIT, attached).await);
    delete(user, &claim).await;
    told(user, "AwaitingVolumeDetachment", &node, "1 volume").await;
    let claims = user.objects("NodeClaim");
    let waits = async || {
        let (status, reason, _) =
            condition(&claims.get(&claim.name_any()).await?, "VolumesDetached");
        Ok(status == "Unknown" && reason == "AwaitingVolumeDetachment")
    };
    must(eventually("its NodeClaim says what it waits for", LIMIT, waits).await);
    all_evicted(&evictions, 1);
    let nodes = must(user.nodes(scenario).await);
    assert!(nodes.iter().any(|it| it.name_any() == node), "{node} has lost its volume");
    detaches_after(user, scenario, "1s").await;
    replaced(user, scenario, &BTreeSet::from([claim.name_any()]), 1).await;
}

/// Who holds the lease, by name.
async fn leader(user: &User) -> String {
    let leases: Api<Lease> = Api::namespaced(user.client(), "kube-system");
    let lease = must(leases.get("karpenter-leader-election").await);
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    holder.split('_').next().unwrap_or_default().to_owned()
}

async fn a_standby_takes_over_within_seconds(
    tenon: &KwokOperators,
    operators: &[(&str, Operator)],
) {
    let (user, scenario) = (tenon.user(), "failover");
    must(user.pool(scenario, &machines(&["1"]), &json!({})).await);
    let first = leader(user).await;
    let (_, process) = operators.iter().find(|(name, _)| *name == first).expect("one leads");
    must(user.deploy(scenario, 5, &on(scenario)).await);
    let begun = async || Ok(!user.claims(scenario).await?.is_empty());
    must(eventually("the scale-up has begun", LIMIT, begun).await);
    process.process().signal(Signal::Kill);
    let other = async || Ok(leader(user).await != first);
    must(eventually("the standby leads", FAILOVER, other).await);
    must(user.runs(scenario, 5).await);
    let (claims, nodes) = (must(user.claims(scenario).await), must(user.nodes(scenario).await));
    assert_eq!((claims.len(), nodes.len()), (5, 5), "one machine for each pod, and none besides");
}

const SCENARIOS: &[Scenario<Tenon>] = &scenarios![
    a_node_is_replaced_by_a_cheaper_one,
    an_expired_node_is_replaced_whatever_the_budgets_say,
    drifted_nodes_are_replaced_one_at_a_time_as_the_budget_says,
    drifted_nodes_are_replaced_one_at_a_time_as_their_poddisruptionbudget_says,
    what_must_not_be_disrupted_ends_with_the_termination_grace_period,
    a_poddisruptionbudget_holds_a_drain_until_it_lets_go,
    a_pod_that_must_not_be_disrupted_keeps_its_drifted_node,
    a_node_stays_until_its_volumes_are_detached,
];

#[tokio::test(flavor = "multi_thread")]
async fn nodes_go_when_they_may_and_a_standby_takes_over() {
    let programs = must(TenonPrograms::provide(&Progress::hidden()).await);
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    let bed = must(Bed::start(config).await);
    let tenon = Arc::new(must(KwokOperators::prepare(&bed, programs).await));
    let operators = ["one", "two"].map(|name| (name, must(tenon.start(name))));
    for (_, operator) in &operators {
        must(operator.ready(LIMIT).await);
    }
    let failed = at_once(&tenon, SCENARIOS).await;
    if failed.is_empty() {
        a_standby_takes_over_within_seconds(&tenon, &operators).await;
    }
    drop((operators, tenon));
    end(bed, &failed).await;
}
