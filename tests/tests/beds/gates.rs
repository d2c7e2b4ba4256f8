//! What feature gates add, on the provider `kwok`, with one operator that has them on. The
//! scenarios wait most of the time, so they are played at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, PodTemplate, ResourceQuota};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::clock::Clock;
use tenon_aws_double::progress::Progress;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kwok_operators::KwokOperators;
use tenon_bed::programs::TenonPrograms;
use tenon_bed::scenarios;
use tenon_bed::scenarios::{Scenario, at_once, end};
use tenon_bed::user::{LIMIT, User, condition, one_of};
use tenon_bed::wait::{eventually, must};

use super::devices::machines_come_for_devices_and_count_when_these_are_published;

type Tenon = Arc<KwokOperators>;

const GATES: &str = "--feature-gates=NodeOverlay=true,CapacityBuffer=true,NodeRepair=true,PodDeletionCostManagement=true";
const DEVICES: &str = "--ignore-dra-requests=false";
/// Nodes are ranked for the deletion costs of their pods once a minute.
const RANKED: Duration = Duration::from_mins(3);
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Sick nodes of the provider `kwok` are tolerated for half a minute; then comes all that one
/// decision brings about.
const REPAIR: Duration = Duration::from_mins(3);
const CPUS: &str = "karpenter.kwok.sh/instance-cpu";

/// Machines with so many CPUs.
fn machines(cpus: &[&str]) -> Value {
    json!([
        one_of("kubernetes.io/os", &["linux"]),
        one_of("kubernetes.io/arch", &["amd64"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
        one_of(CPUS, cpus),
    ])
}

/// A NodeOverlay about machines of a NodePool with so many CPUs.
fn overlay(name: &str, pool: &str, cpus: &[&str], says: &Value) -> Value {
    let mut overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": { "name": name },
        "spec": { "requirements": [one_of("karpenter.sh/nodepool", &[pool]), one_of(CPUS, cpus)] },
    });
    for (key, value) in says.as_object().expect("fields of a spec") {
        overlay["spec"][key] = value.clone();
    }
    overlay
}

/// Waits until the overlay's condition ValidationSucceeded has this status and reason; answers its
/// message.
async fn judged(user: &User, name: &str, status: &str, reason: &str) -> String {
    let overlays = user.objects("NodeOverlay");
    let look = async || {
        let (is, because, _) = condition(&overlays.get(name).await?, "ValidationSucceeded");
        if (is.as_str(), because.as_str()) == (status, reason) {
            Ok(true)
        } else {
            Err(format!("{is} {because}").into())
        }
    };
    let what = format!("the NodeOverlay {name} is {status} because of {reason}");
    must(eventually(&what, LIMIT, look).await);
    condition(&must(overlays.get(name).await), "ValidationSucceeded").2
}

/// The only NodeClaim of a NodePool.
async fn only(user: &User, pool: &str) -> DynamicObject {
    let mut claims = must(user.claims(pool).await);
    assert_eq!(claims.len(), 1, "{pool}");
    claims.remove(0)
}

async fn a_price_decides_which_type_is_launched(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "discount");
    must(user.pool(scenario, &machines(&["1", "4"]), &json!({})).await);
    let on = json!({ "spec": { "nodeSelector": { "scenario": scenario } } });
    must(user.apply(&overlay(scenario, scenario, &["4"], &json!({ "price": "0.0001" }))).await);
    judged(user, scenario, "True", "ValidationSucceeded").await;
    must(user.deploy(scenario, 1, &on).await);
    must(user.runs(scenario, 1).await);
    let claim = only(user, scenario).await;
    assert_eq!(claim.labels()[CPUS], "4", "the cheaper one by the provider's price has 1 CPU");
    assert_eq!(claim.annotations()["karpenter.sh/price-overlay-applied"], "true");
    assert!(!claim.annotations().contains_key("karpenter.sh/capacity-overlay-applied"));
}

async fn a_resource_that_an_overlay_adds_lets_pods_run(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "dongles");
    let dongle = json!({ "example.com/dongle": "1" });
    let container = json!({
        "name": "main", "image": "registry.example/app:1",
        "resources": { "requests": dongle, "limits": dongle },
    });
    let spec = json!({ "nodeSelector": { "scenario": scenario }, "containers": [container] });
    must(user.pool(scenario, &machines(&["1"]), &json!({})).await);
    must(user.deploy(scenario, 2, &json!({ "spec": spec })).await);
    let refused = async || {
        let events = user.events("FailedScheduling").await?;
        let mut ours = events.iter().filter(|it| {
            let source = it.source.as_ref().and_then(|source| source.component.as_deref());
            source == Some("karpenter")
        });
        Ok(ours.any(|it| it.message.as_deref().unwrap_or_default().contains("example.com/dongle")))
    };
    must(eventually("an event says that nothing has a dongle", LIMIT, refused).await);
    let says = json!({ "capacity": { "example.com/dongle": "2" } });
    must(user.apply(&overlay(scenario, scenario, &["1"], &says)).await);
    must(user.runs(scenario, 2).await);
    let claim = only(user, scenario).await;
    assert_eq!(claim.annotations()["karpenter.sh/capacity-overlay-applied"], "true");
    assert_eq!(claim.data["status"]["capacity"]["example.com/dongle"], "2");
}

async fn of_two_overlays_with_the_same_weight_one_counts(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "conflict");
    must(user.pool(scenario, &machines(&["1"]), &json!({})).await);
    let (first, second) = ("conflict-a", "conflict-b");
    must(user.apply(&overlay(first, scenario, &["1"], &json!({ "price": "1" }))).await);
    judged(user, first, "True", "ValidationSucceeded").await;
    let cheaper = json!({ "priceAdjustment": "-10%" });
    must(user.apply(&overlay(second, scenario, &["1"], &cheaper)).await);
    let message = judged(user, first, "False", "Conflict").await;
    assert!(message.contains(second), "{message}");
    judged(user, second, "True", "ValidationSucceeded").await;
    must(user.objects("NodeOverlay").delete(second, &DeleteParams::default()).await);
    judged(user, first, "True", "ValidationSucceeded").await;
}

/// Waits until a NodePool has so many Nodes, all of them initialised, and answers their names.
async fn nodes(user: &User, pool: &str, wanted: usize) -> BTreeSet<String> {
    let look = async || {
        let nodes = user.nodes(pool).await?;
        let initialized =
            nodes.iter().filter(|node| node.labels().contains_key("karpenter.sh/initialized"));
        match (initialized.count(), nodes.len()) {
            (ready, all) if (ready, all) == (wanted, wanted) => Ok(true),
            (ready, all) => Err(format!("{ready} of {all} are initialised").into()),
        }
    };
    must(eventually(&format!("{pool} has {wanted} Nodes"), LIMIT, look).await);
    must(user.nodes(pool).await).iter().map(ResourceExt::name_any).collect()
}

async fn a_buffer_keeps_machines_for_pods_to_come(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "buffer");
    let eager = json!({ "consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s" });
    must(user.pool(scenario, &machines(&["1"]), &json!({ "disruption": eager })).await);
    let on = json!({ "spec": { "nodeSelector": { "scenario": scenario } } });
    let resources = json!({ "requests": { "cpu": "500m", "memory": "512Mi" } });
    let container =
        json!({ "name": "main", "image": "registry.example/app:1", "resources": resources });
    let mut template = json!({ "metadata": { "name": scenario }, "template": on.clone() });
    template["template"]["spec"]["containers"] = json!([container]);
    let templates: Api<PodTemplate> = Api::namespaced(user.client(), "default");
    let template = must(serde_json::from_value(template));
    must(templates.create(&PostParams::default(), &template).await);
    let buffer = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": { "name": scenario },
        "spec": { "podTemplateRef": { "name": scenario }, "replicas": 2 },
    });
    must(user.apply(&buffer).await);
    let kept = nodes(user, scenario, 2).await;
    let buffers = user.objects("CapacityBuffer");
    let fits = async || {
        let (status, reason, message) = condition(&buffers.get(scenario).await?, "Provisioning");
        if (status.as_str(), reason.as_str()) == ("True", "FitsExistingCapacity") {
            Ok(true)
        } else {
            Err(format!("{status} {reason} {message}").into())
        }
    };
    must(eventually("the buffer has its room", LIMIT, fits).await);
    assert_eq!(must(buffers.get(scenario).await).data["status"]["replicas"], 2);
    let stays = async || {
        let events = user.events("DisruptionBlocked").await?;
        let mut ours = events
            .iter()
            .filter(|it| it.involved_object.name.as_ref().is_some_and(|name| kept.contains(name)));
        Ok(ours.any(|it| it.message.as_deref().unwrap_or_default().contains("nominated")))
    };
    must(eventually("an event says why the empty machines stay", LIMIT, stays).await);
    // Pods that come get these machines, and the buffer gets others.
    must(user.deploy(scenario, 2, &on).await);
    must(user.runs(scenario, 2).await);
    let used = must(user.pods(scenario).await);
    let used = used.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
    assert_eq!(used.collect::<BTreeSet<_>>(), kept);
    assert!(nodes(user, scenario, 4).await.is_superset(&kept));
    must(buffers.delete(scenario, &DeleteParams::default()).await);
    assert_eq!(nodes(user, scenario, 2).await, kept, "only what pods run on is left");
}

async fn a_buffer_keeps_no_room_for_pods_that_a_quota_forbids(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "quota");
    must(user.pool(scenario, &machines(&["1"]), &json!({})).await);
    let namespaces: Api<Namespace> = Api::all(user.client());
    let namespace = must(serde_json::from_value(json!({ "metadata": { "name": scenario } })));
    must(namespaces.create(&PostParams::default(), &namespace).await);
    let quotas: Api<ResourceQuota> = Api::namespaced(user.client(), scenario);
    let hard = |cpu: &str| json!({ "spec": { "hard": { "requests.cpu": cpu } } });
    let mut quota = hard("500m");
    quota["metadata"] = json!({ "name": "compute" });
    let quota = must(serde_json::from_value(quota));
    must(quotas.create(&PostParams::default(), &quota).await);
    let resources = json!({ "requests": { "cpu": "500m", "memory": "512Mi" } });
    let container =
        json!({ "name": "main", "image": "registry.example/app:1", "resources": resources });
    let spec = json!({ "nodeSelector": { "scenario": scenario }, "containers": [container] });
    let template = json!({ "metadata": { "name": scenario }, "template": { "spec": spec } });
    let templates: Api<PodTemplate> = Api::namespaced(user.client(), scenario);
    let template = must(serde_json::from_value(template));
    must(templates.create(&PostParams::default(), &template).await);
    let allowed = async || {
        let quota = quotas.get("compute").await?;
        Ok(quota.status.is_some_and(|status| status.hard.is_some()))
    };
    must(eventually("the quota is in force", LIMIT, allowed).await);
    let buffers = user.buffers(scenario);
    let buffer = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": { "name": scenario },
        "spec": { "podTemplateRef": { "name": scenario }, "replicas": 3 },
    });
    let buffer = must(serde_json::from_value(buffer));
    must(buffers.create(&PostParams::default(), &buffer).await);
    let keeps = async |replicas: u32, limited: &str| {
        let look = async || {
            let buffer = buffers.get(scenario).await?;
            let (status, _, message) = condition(&buffer, "LimitedByQuotas");
            let said = (&buffer.data["status"]["replicas"], status.as_str());
            if said == (&replicas.into(), limited) {
                Ok(true)
            } else {
                Err(format!("{said:?} {message}").into())
            }
        };
        must(eventually(&format!("the buffer is for {replicas}"), LIMIT, look).await);
    };
    keeps(1, "True").await;
    nodes(user, scenario, 1).await;
    let (message, patch) =
        (condition(&must(buffers.get(scenario).await), "LimitedByQuotas").2, hard("4"));
    assert!(message.contains("1 of 3") && message.contains("compute"), "{message}");
    must(quotas.patch("compute", &PatchParams::default(), &Patch::Merge(patch)).await);
    keeps(3, "False").await;
    nodes(user, scenario, 3).await;
}

/// Lets a node say from now on that it is sick, or that it is not.
async fn diagnose(user: &User, node: &str, sick: bool) {
    say(user, node, "KWOKUnhealthy", sick).await;
}

/// Lets a node say from now on that a condition holds, or that it does not.
async fn say(user: &User, node: &str, what: &str, holds: bool) {
    let nodes: Api<Node> = Api::all(user.client());
    // Not earlier: what is tolerated no longer goes before the next node is sick as well.
    let since = Clock::system().time();
    let condition = json!({
        "type": what, "status": if holds { "True" } else { "False" },
        "reason": "Injected", "message": "", "lastTransitionTime": since, "lastHeartbeatTime": since,
    });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    must(nodes.patch_status(node, &PatchParams::default(), &patch).await);
}

/// Waits until a Node is gone and the pods run on others.
async fn replaced(user: &User, pool: &str, node: &str, replicas: usize) {
    let look = async || {
        if user.nodes(pool).await?.iter().any(|it| it.name_any() == node) {
            return Err("it is there".into());
        }
        user.all_run(pool, replicas).await
    };
    must(eventually(&format!("{pool}: {node} is replaced"), REPAIR, look).await);
}

async fn a_sick_node_is_replaced(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "sick");
    must(user.pool(scenario, &machines(&["1"]), &json!({})).await);
    let on = json!({ "spec": { "nodeSelector": { "scenario": scenario } } });
    must(user.deploy(scenario, 3, &on).await);
    must(user.runs(scenario, 3).await);
    let before = nodes(user, scenario, 3).await;
    let sick = before.first().expect("three nodes").clone();
    diagnose(user, &sick, true).await;
    replaced(user, scenario, &sick, 3).await;
    let after = nodes(user, scenario, 3).await;
    assert_eq!(before.intersection(&after).count(), 2, "the others stay");
    let events = must(user.events("DisruptionTerminating").await);
    let told = events.iter().any(|it| {
        it.involved_object.name.as_ref() == Some(&sick)
            && it.message.as_deref() == Some("Disrupting Node: Unhealthy")
    });
    assert!(told, "an event says why {sick} went");
}

async fn a_node_that_a_reboot_may_cure_is_rebooted_and_keeps_its_pods_place(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "reboot");
    must(user.pool(scenario, &machines(&["1"]), &json!({})).await);
    let on = json!({ "spec": { "nodeSelector": { "scenario": scenario } } });
    must(user.deploy(scenario, 2, &on).await);
    must(user.runs(scenario, 2).await);
    let before = nodes(user, scenario, 2).await;
    let sick = before.first().expect("two nodes").clone();
    let api: Api<Node> = Api::all(user.client());
    let boot = async || -> Result<String, kube::Error> {
        let info = api.get(&sick).await?.status.and_then(|status| status.node_info);
        Ok(info.map(|info| info.boot_id).unwrap_or_default())
    };
    let first = must(boot().await);
    say(user, &sick, "KWOKRebootRequired", true).await;
    let rebooted = async || {
        let now = boot().await?;
        if now == first { Err(format!("its boot is still {now:?}").into()) } else { Ok(true) }
    };
    must(eventually(&format!("{sick} boots"), REPAIR, rebooted).await);
    say(user, &sick, "KWOKRebootRequired", false).await;
    let back = async || {
        let node = api.get(&sick).await?;
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let fenced = taints.into_iter().any(|taint| taint.key == "karpenter.sh/rebooting");
        let initialized = node.labels().get("karpenter.sh/initialized").is_some();
        let claims = user.objects("NodeClaim").list(&kube::api::ListParams::default()).await?;
        let ended = claims.iter().any(|claim| {
            let (status, reason, _) = condition(claim, "Rebooting");
            (status.as_str(), reason.as_str()) == ("False", "RebootSucceeded")
        });
        if fenced || !initialized || !ended {
            return Err(
                format!("fenced: {fenced}, initialized: {initialized}, ended: {ended}").into()
            );
        }
        user.all_run(scenario, 2).await
    };
    must(eventually(&format!("{sick} is back"), REPAIR, back).await);
    assert_eq!(nodes(user, scenario, 2).await, before, "nothing was launched or removed for it");
}

async fn sick_nodes_stay_where_too_many_are(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "epidemic");
    must(user.pool(scenario, &machines(&["1"]), &json!({})).await);
    let on = json!({ "spec": { "nodeSelector": { "scenario": scenario } } });
    must(user.deploy(scenario, 3, &on).await);
    must(user.runs(scenario, 3).await);
    let before = nodes(user, scenario, 3).await;
    let sick: Vec<&String> = before.iter().take(2).collect();
    for node in &sick {
        diagnose(user, node, true).await;
    }
    let told = async || {
        let events = user.events("NodeRepairBlocked").await?;
        let about =
            |name: &str| events.iter().any(|it| it.involved_object.name.as_deref() == Some(name));
        Ok(about(scenario) && sick.iter().all(|node| about(node)))
    };
    must(eventually("events say that too many are sick", REPAIR, told).await);
    assert_eq!(nodes(user, scenario, 3).await, before);
    // One of them recovers: the other one is not one of too many any more.
    diagnose(user, sick[0], false).await;
    replaced(user, scenario, sick[1], 3).await;
    assert!(nodes(user, scenario, 3).await.contains(sick[0]), "it has recovered");
}

/// The deletion costs of an app's pods, by the node that they run on.
async fn costs(user: &User, app: &str) -> Result<BTreeMap<String, Option<i32>>, kube::Error> {
    let pods = user.pods(app).await?;
    let costs = pods.into_iter().filter_map(|pod| {
        let cost = pod.annotations().get(DELETION_COST).map(|cost| cost.parse());
        Some((pod.spec?.node_name?, cost.transpose().expect("a number")))
    });
    Ok(costs.collect())
}

async fn a_replica_set_that_shrinks_empties_the_node_that_would_go_next(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "costs");
    let disruption = json!({
        "consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s", "budgets": [{ "nodes": "100%" }],
    });
    must(user.pool(scenario, &machines(&["1"]), &json!({ "disruption": disruption })).await);
    let on = json!({ "spec": { "nodeSelector": { "scenario": scenario } } });
    must(user.deploy(scenario, 3, &on).await);
    must(user.runs(scenario, 3).await);
    let mut given = on.clone();
    given["metadata"] = json!({ "annotations": { DELETION_COST: "7" } });
    must(user.deploy("given", 1, &given).await);
    must(user.runs("given", 1).await);
    // The machine of the pod with a cost of its own has a rank, too.
    nodes(user, scenario, 4).await;
    let look = async || {
        let costs = costs(user, scenario).await?;
        let ranks: BTreeSet<i32> = costs.values().copied().flatten().collect();
        let ranked = ranks.len() == 3 && ranks.iter().all(|rank| (-4..0).contains(rank));
        if ranked { Ok(true) } else { Err(format!("they cost {costs:?}").into()) }
    };
    must(eventually("the pods cost what their nodes are ranked", RANKED, look).await);
    let given = must(costs(user, "given").await);
    assert!(given.values().eq([&Some(7)]), "somebody else's stays: {given:?}");
    let ranks = must(costs(user, scenario).await);
    let next = ranks.iter().min_by_key(|(_, rank)| **rank).expect("three pods").0;
    must(user.scale(scenario, 2, &json!({ "scenario": scenario })).await);
    let gone = async || Ok(!user.nodes(scenario).await?.iter().any(|it| it.name_any() == *next));
    must(eventually(&format!("{next} is empty and goes"), LIMIT, gone).await);
    must(user.runs(scenario, 2).await);
}

async fn what_balanced_approves_of_is_told(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "balanced");
    must(user.pool(scenario, &machines(&["4"]), &json!({})).await);
    let on = json!({ "spec": { "nodeSelector": { "scenario": scenario } } });
    must(user.deploy(scenario, 1, &on).await);
    must(user.runs(scenario, 1).await);
    let dear = nodes(user, scenario, 1).await;
    // Three quarters of the price for all of the pods.
    let disruption = json!({ "consolidationPolicy": "Balanced", "consolidateAfter": "0s" });
    let spec = json!({ "disruption": disruption });
    must(user.pool(scenario, &machines(&["1", "4"]), &spec).await);
    let told = async || {
        let events = user.events("ConsolidationApproved").await?;
        let mut about = events
            .iter()
            .filter(|it| it.involved_object.name.as_ref().is_some_and(|name| dear.contains(name)));
        Ok(about.any(|it| it.message.as_deref().unwrap_or_default().contains(">= threshold 0.50")))
    };
    must(eventually("an event tells the score", LIMIT, told).await);
    let dear = dear.first().expect("one node");
    replaced(user, scenario, dear, 1).await;
}

async fn a_pod_for_a_zone_that_there_is_not_waits(tenon: Tenon) {
    let (user, scenario) = (tenon.user(), "nowhere");
    let nowhere = json!({ "topology.kubernetes.io/zone": scenario });
    must(user.deploy(scenario, 1, &json!({ "spec": { "nodeSelector": nowhere } })).await);
    let told = async || {
        let events = user.events("FailedScheduling").await?;
        let mut about = events.iter().filter_map(|it| it.involved_object.name.as_deref());
        Ok(about.any(|name| name.starts_with(scenario)))
    };
    must(eventually("an event says why", LIMIT, told).await);
}

/// In the metrics of the operator that all of this was played with.
async fn decisions_are_counted(metrics: String) {
    let value = |name: &str, labels: &[&str]| {
        let mut found = metrics.lines().filter(|line| {
            line.starts_with(&format!("{name}{{")) && labels.iter().all(|it| line.contains(it))
        });
        let line = found.next().unwrap_or_else(|| panic!("no {name} {labels:?} in\n{metrics}"));
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        value.expect("a number")
    };
    let approved = [r#"decision="approved""#, r#"nodepool="balanced""#, r#"policy="Balanced""#];
    assert!(value("karpenter_consolidation_moves_total", &approved) >= 1.0);
    assert!(value("karpenter_consolidation_score_count", &approved) >= 1.0);
    let waits = value("karpenter_scheduler_pending_pods_by_effective_zone_count", &["nowhere"]);
    assert!((waits - 1.0).abs() < 1e-9, "{waits}");
}

/// In the metrics of the operator that all of this was played with.
async fn what_conditions_do_is_counted(metrics: String) {
    for kind in ["nodeclaim", "nodepool", "node"] {
        let name = format!("operator_{kind}_status_condition_transitions_total{{");
        let ready = |line: &str| line.contains(r#"type="Ready",status="True""#);
        let counted = metrics.lines().any(|line| line.starts_with(&name) && ready(line));
        assert!(counted, "a {kind} became ready:\n{metrics}");
    }
    for name in [
        "operator_nodeclaim_status_condition_transition_seconds_count{",
        "operator_nodeclaim_termination_duration_seconds_count{",
        "operator_capacitybuffer_status_condition_transitions_total{",
    ] {
        assert!(metrics.contains(name), "no {name} in\n{metrics}");
    }
}

async fn deletion_costs_go_with_their_gate(tenon: Tenon) {
    let user = tenon.user();
    let gone = async || {
        let costs = costs(user, "costs").await?;
        let bare = costs.values().all(Option::is_none);
        if bare { Ok(true) } else { Err(format!("they cost {costs:?}").into()) }
    };
    must(eventually("the pods cost nothing", RANKED, gone).await);
    let given = must(costs(user, "given").await);
    assert!(given.values().eq([&Some(7)]), "somebody else's stays: {given:?}");
}

const SCENARIOS: &[Scenario<Tenon>] = &scenarios![
    a_price_decides_which_type_is_launched,
    a_resource_that_an_overlay_adds_lets_pods_run,
    of_two_overlays_with_the_same_weight_one_counts,
    a_buffer_keeps_machines_for_pods_to_come,
    a_buffer_keeps_no_room_for_pods_that_a_quota_forbids,
    a_sick_node_is_replaced,
    a_node_that_a_reboot_may_cure_is_rebooted_and_keeps_its_pods_place,
    sick_nodes_stay_where_too_many_are,
    machines_come_for_devices_and_count_when_these_are_published,
    a_replica_set_that_shrinks_empties_the_node_that_would_go_next,
    what_balanced_approves_of_is_told,
    a_pod_for_a_zone_that_there_is_not_waits,
];

#[tokio::test(flavor = "multi_thread")]
async fn feature_gates_do_what_they_promise() {
    let programs = must(TenonPrograms::provide(&Progress::hidden()).await);
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    let bed = must(Bed::start(config).await);
    let tenon = Arc::new(must(KwokOperators::prepare(&bed, programs).await));
    let operator = must(tenon.start_with("gates", &[GATES, DEVICES]));
    must(operator.ready(LIMIT).await);
    let mut failed = at_once(&tenon, SCENARIOS).await;
    let metrics = must(operator.metrics().await);
    failed.extend(
        at_once(&metrics, &scenarios![what_conditions_do_is_counted, decisions_are_counted]).await,
    );
    drop(operator);
    let plain = must(tenon.start("plain"));
    must(plain.ready(LIMIT).await);
    failed.extend(at_once(&tenon, &scenarios![deletion_costs_go_with_their_gate]).await);
    drop((plain, tenon));
    end(bed, &failed).await;
}
