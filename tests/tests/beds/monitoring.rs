//! What the chart ships for Prometheus, in a real Prometheus that scrapes the operator's pods:
//! nothing fires at rest; each alert reaches a real Alertmanager when what it is about happens on
//! the bed; each panel of the dashboards has data. The rules are the chart's, with minutes made
//! seconds; `promtool` tests them as they are.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::control::Control;
use tenon_aws_double::events::Event;
use tenon_aws_double::faults::Shortage;
use tenon_aws_double::progress::Progress;
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::control_plane::programs::PrometheusPrograms;
use tenon_bed::installation::Installation;
use tenon_bed::kubelet::Running;
use tenon_bed::machine::{Fault, Target};
use tenon_bed::prometheus::dashboards::{self, Query};
use tenon_bed::prometheus::{self, Prometheus, operator};
use tenon_bed::user::{User, condition, one_of};
use tenon_bed::wait::{eventually, must};
use tokio::time::Instant;

use self::broken::{BrokenClock, Crowd};

mod broken;

/// Longer than anything takes, on a machine whose cores are busy.
const LIMIT: Duration = Duration::from_secs(120);
/// Longer than any rule waits here.
const REST: Duration = Duration::from_secs(20);

/// A bed with Tenon, and what watches it.
struct Watched {
    tenon: Installation,
    prometheus: Prometheus,
    /// Alerts that have fired, with their last descriptions.
    seen: BTreeMap<String, String>,
}

impl Watched {
    fn user(&self) -> &User {
        self.tenon.user()
    }

    fn bed(&self) -> &Bed {
        self.tenon.bed()
    }

    fn aws(&self) -> &Control {
        must(self.bed().aws()).gateway().control()
    }

    /// None of these fires yet: what makes them fire is still to come.
    async fn quiet(&self, alerts: &[&str]) {
        let firing = must(self.prometheus.firing().await);
        let early: Vec<_> = alerts.iter().filter(|alert| firing.contains_key(**alert)).collect();
        assert!(early.is_empty(), "{early:?} fire already");
    }

    /// Waits until none of these fires any more.
    async fn settles(&self, alerts: &[&str]) {
        let settled = async || {
            let firing = self.prometheus.firing().await?;
            Ok(!alerts.iter().any(|alert| firing.contains_key(*alert)))
        };
        must(eventually("earlier alerts end", LIMIT, settled).await);
    }

    /// Waits until Alertmanager has had each of these.
    async fn fire(&mut self, alerts: &[&str]) {
        let seen = RefCell::new(BTreeMap::new());
        let look = async || {
            let firing = self.prometheus.firing().await?;
            seen.borrow_mut().extend(firing);
            let missing: Vec<_> =
                alerts.iter().filter(|alert| !seen.borrow().contains_key(**alert)).collect();
            if missing.is_empty() { Ok(true) } else { Err(format!("missing {missing:?}").into()) }
        };
        must(eventually("alerts reach Alertmanager", LIMIT, look).await);
        self.seen.append(&mut seen.into_inner());
    }

    /// Waits until a query has a result.
    async fn has(&self, query: &str) {
        let look = async || Ok(!self.prometheus.query(query).await?.is_empty());
        must(eventually(query, LIMIT, look).await);
    }

    /// A pool of on-demand machines of a type, and as many pods for it, one on each.
    async fn pool(&self, name: &str, types: &[&str], spec: &Value, pods: usize) {
        let requirements = json!([
            one_of("node.kubernetes.io/instance-type", types),
            one_of("karpenter.sh/capacity-type", &["on-demand"]),
        ]);
        must(self.user().pool(name, &requirements, spec).await);
        let apart = json!({
            "spec": {
                "nodeSelector": { "scenario": name },
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": { "matchLabels": { "app": name } },
                        }],
                    },
                },
            },
        });
        must(self.user().deploy(name, pods, &apart).await);
    }

    /// Waits until so many NodeClaims of a pool have this condition.
    async fn claims(&self, pool: &str, wanted: usize, kind: &str) {
        let what = format!("{wanted} NodeClaims of {pool} are {kind}");
        let look = async || {
            let claims = self.user().claims(pool).await?;
            let has = claims.iter().filter(|it| condition(it, kind).0 == "True").count();
            if has >= wanted { Ok(true) } else { Err(format!("{has} of {}", claims.len()).into()) }
        };
        must(eventually(&what, LIMIT, look).await);
    }
}

/// Tenon with all that the chart has for Prometheus, and a Prometheus that reads it.
async fn watched(bed: &Arc<Bed>, clock: &BrokenClock) -> Watched {
    must(operator::definitions(&bed.client()).await);
    let mut values = prometheus::values();
    values["controller"] = json!({ "env": clock.variables() });
    let settings = json!({ "deploy": { "values": values } });
    let tenon = must(Installation::ensure(bed, &settings).await);
    let prometheus = must(Prometheus::watch(bed).await);
    Watched { tenon, prometheus, seen: BTreeMap::new() }
}

/// What nodes of the pool `web` may be.
fn web_machines() -> Value {
    json!([
        one_of("node.kubernetes.io/instance-type", &["m6i.large", "m6a.large"]),
        one_of("karpenter.sh/capacity-type", &["spot", "on-demand"]),
    ])
}

/// A cluster in which all is well: a few nodes, some of them spot, and nothing that fires.
async fn all_is_well(watched: &mut Watched) {
    let user = watched.user().clone();
    must(user.pool("web", &web_machines(), &json!({ "limits": { "cpu": "100" } })).await);
    must(user.scale("web", 4, &json!({ "scenario": "web" })).await);
    must(user.runs("web", 4).await);
    let until = Instant::now() + REST;
    while Instant::now() < until {
        let mut firing = must(watched.prometheus.firing().await);
        // Half a minute ago there were no nodes.
        firing.remove("TenonCostRises");
        // Other tests may have the CPUs.
        firing.remove("TenonLacksCpu");
        assert_eq!(firing, BTreeMap::new(), "alerts although all is well");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Pods, NodePools and an EC2NodeClass with which something is wrong, and what consolidation saves
/// once most pods of the pool `web` are gone.
async fn objects_are_wrong(watched: &mut Watched) {
    let alerts = [
        "TenonPodsUnschedulable",
        "TenonPodsIgnored",
        "TenonNodePoolNearLimit",
        "TenonNodeClassNotReady",
        "TenonCostRises",
    ];
    watched.quiet(&alerts).await;
    let user = watched.user().clone();
    must(user.scale("nowhere", 1, &json!({ "topology.kubernetes.io/zone": "nowhere" })).await);
    must(user.scale("restricted", 1, &json!({ "karpenter.sh/restricted": "x" })).await);
    watched.pool("limited", &["m6i.large"], &json!({ "limits": { "cpu": "2" } }), 1).await;
    let mut class = must(user.objects("EC2NodeClass").get("default").await).data["spec"].take();
    class["subnetSelectorTerms"] = json!([{ "tags": { "no": "subnet" } }]);
    let broken = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": { "name": "broken" }, "spec": class,
    });
    must(user.apply(&broken).await);
    must(user.scale("web", 40, &json!({ "scenario": "web" })).await);
    watched.fire(&alerts).await;
    must(user.runs("web", 40).await);
    let saves = json!({
        "limits": { "cpu": "100" },
        "disruption": { "consolidateAfter": "0s", "budgets": [{ "nodes": "100%" }] },
    });
    must(user.pool("web", &web_machines(), &saves).await);
    must(user.scale("web", 10, &json!({ "scenario": "web" })).await);
    let saved = "tenon_disruption_removed_dollars_per_hour_total{nodepool=\"web\"}";
    watched.has(&format!("sum(increase({saved}[20s])) > 0")).await;
    for app in ["nowhere", "restricted"] {
        must(user.remove(app).await);
    }
    must(user.objects("EC2NodeClass").delete("broken", &DeleteParams::default()).await);
}

/// Nodes that do not join, do not drain, drift and are not replaced, or have no known price.
async fn nodes_are_wrong(watched: &mut Watched) {
    let alerts =
        ["TenonNodesDoNotJoin", "TenonDrainsTakeLong", "TenonDriftWaits", "TenonPricesUnknown"];
    watched.quiet(&alerts).await;
    let user = watched.user().clone();
    let kept = json!({ "disruption": { "budgets": [{ "nodes": "0" }] } });
    watched.pool("drifting", &["m6i.large"], &kept, 4).await;
    for pool in ["held", "unpriced"] {
        watched.pool(pool, &["m6i.large"], &json!({}), 1).await;
    }
    must(user.runs("drifting", 4).await);
    must(user.runs("held", 1).await);
    must(user.runs("unpriced", 1).await);

    must(watched.bed().aws()).machines().inject(Target::Next(1), Fault::NeverBoots);
    watched.pool("absent", &["m6i.large"], &json!({}), 1).await;
    watched.claims("absent", 1, "Launched").await;
    drift(&user, &kept).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(user.client(), "default");
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "held" },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "held" } } },
    });
    let parameters = PatchParams::apply("user").force();
    must(budgets.patch("held", &parameters, &Patch::Apply(budget)).await);
    let claims = user.objects("NodeClaim");
    let held = must(user.claims("held").await)[0].name_any();
    must(claims.delete(&held, &DeleteParams::background()).await);
    // As if AWS sold this type no more.
    let gone =
        json!({ "metadata": { "labels": { "node.kubernetes.io/instance-type": "gone.large" } } });
    let claim = must(user.claims("unpriced").await)[0].name_any();
    let node = must(user.nodes("unpriced").await)[0].name_any();
    must(claims.patch(&claim, &PatchParams::default(), &Patch::Merge(&gone)).await);
    let nodes: Api<Node> = Api::all(user.client());
    must(nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&gone)).await);

    watched.fire(&alerts).await;
    // One of each, although both replicas have its series.
    for alert in ["TenonNodesDoNotJoin", "TenonDrainsTakeLong"] {
        let description = &watched.seen[alert];
        assert!(description.starts_with("1 "), "{alert}: {description}");
    }
    must(budgets.delete("held", &DeleteParams::default()).await);
    for app in ["held", "unpriced", "absent"] {
        must(user.remove(app).await);
    }
    must(user.objects("NodePool").delete("absent", &DeleteParams::background()).await);
}

/// Changes the template of the pool `drifting`, whose spec is else this.
async fn drift(user: &User, spec: &Value) {
    let mut changed = spec.clone();
    changed["template"] = json!({ "metadata": { "labels": { "changed": "yes" } } });
    let machines = json!([
        one_of("node.kubernetes.io/instance-type", &["m6i.large"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
    ]);
    must(user.pool("drifting", &machines, &changed).await);
}

/// Replacements of drifted nodes that never join, and that somebody deletes.
async fn replacements_fail(watched: &mut Watched) {
    watched.quiet(&["TenonDisruptionFails"]).await;
    let user = watched.user().clone();
    let machines = must(watched.bed().aws()).machines();
    machines.inject(Target::Share(1.0), Fault::NeverBoots);
    drift(&user, &json!({ "disruption": { "budgets": [{ "nodes": "100%" }] } })).await;
    let claims = user.objects("NodeClaim");
    let delete = async {
        loop {
            for claim in must(user.claims("drifting").await) {
                let [launched, registered] =
                    ["Launched", "Registered"].map(|kind| condition(&claim, kind).0 == "True");
                if launched && !registered && claim.metadata.deletion_timestamp.is_none() {
                    must(claims.delete(&claim.name_any(), &DeleteParams::background()).await);
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = watched.fire(&["TenonDisruptionFails"]) => {}
        () = delete => {}
    }
    must(watched.bed().aws()).machines().heal();
    // Their nodes stay, and their pods need no others.
    let provisioned =
        "karpenter_nodeclaims_created_total{nodepool=\"drifting\",reason=\"provisioned\"}";
    let more = must(watched.prometheus.query(&format!("sum({provisioned}) > 4")).await);
    assert_eq!(more, [], "launches for pods of nodes that stay");
    must(user.remove("drifting").await);
    must(user.objects("NodePool").delete("drifting", &DeleteParams::background()).await);
}

/// EC2 has no capacity, and throttles.
async fn launches_fail(watched: &mut Watched) {
    watched.quiet(&["TenonCapacityMissing"]).await;
    let everything = Shortage {
        instance_type: "*".to_owned(),
        zone: "*".to_owned(),
        capacity_type: None,
        left: 0,
        code: "InsufficientInstanceCapacity".to_owned(),
    };
    let user = watched.user().clone();
    let ice = watched.aws().ice(everything);
    // Prometheus sees only the increase after the first value of a counter.
    let families = ["c5", "c6i", "r5", "r6i"];
    for family in families {
        let machines = json!([one_of("karpenter.k8s.aws/instance-family", &[family])]);
        must(user.pool(family, &machines, &json!({})).await);
        must(user.scale(family, 1, &json!({ "scenario": family })).await);
        watched
            .has(&format!("count(karpenter_cloudprovider_errors_total{{nodepool=\"{family}\"}})"))
            .await;
    }
    watched.fire(&["TenonCapacityMissing"]).await;
    must(watched.aws().heal(&ice));
    for family in families {
        must(user.remove(family).await);
        must(user.objects("NodePool").delete(family, &DeleteParams::background()).await);
    }

    // Planning waits for what is being launched, and pods with it.
    let alerts =
        ["TenonAwsThrottles", "TenonLaunchesFail", "TenonStateNotSynced", "TenonPlanningPaused"];
    // On a busy machine, what could not be launched just now has held the state up.
    watched.settles(&alerts).await;
    let throttled = watched.aws().throttle("ec2:CreateFleet", 0.01, 0.0);
    watched.pool("throttled", &["m6i.large"], &json!({}), 12).await;
    watched.fire(&alerts).await;
    must(watched.aws().heal(&throttled));
    must(user.remove("throttled").await);
    must(user.objects("NodePool").delete("throttled", &DeleteParams::background()).await);
}

/// Many interruptions, and then nobody who may read of them.
async fn the_queue_is_wrong(watched: &mut Watched) {
    let unread = ["TenonInterruptionQueueUnread", "TenonReconcilesFail"];
    watched.quiet(&unread).await;
    watched.quiet(&["TenonInterruptionsFrequent"]).await;
    let state = must(watched.bed().aws()).gateway().state();
    let events: Vec<Event> = (0..40)
        .map(|number| Event::spot_interruption(state, &format!("i-{number:017x}")))
        .collect();
    must(watched.aws().send(&events).await);
    watched.fire(&["TenonInterruptionsFrequent"]).await;
    let denied = watched.aws().fail("sqs:ReceiveMessage", None, 403, "AccessDenied");
    watched.fire(&unread).await;
    must(watched.aws().heal(&denied));
}

/// It panics where a reconcile or a pass reads the clock.
async fn the_operator_panics(watched: &mut Watched, clock: &BrokenClock) {
    watched.quiet(&["TenonPanics"]).await;
    let user = watched.user().clone();
    let work = async {
        for round in 0_usize.. {
            must(user.scale("web", 8 + round % 2, &json!({ "scenario": "web" })).await);
            clock.break_once();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = watched.fire(&["TenonPanics"]) => {}
        () = work => {}
    }
    clock.heal();
    // It has survived.
    assert!(watched.tenon.operators().iter().all(|operator| operator.restarts == 0));
    must(user.scale("web", 12, &json!({ "scenario": "web" })).await);
    must(user.runs("web", 12).await);
}

/// Other programs have its CPU, and it has much to do.
async fn the_operator_lacks_cpu(watched: &mut Watched) {
    let operators = watched.tenon.operators();
    let crowd = must(Crowd::around(operators.iter().map(Running::pid)));
    let readers = operators.iter().cycle().take(2 * operators.len()).map(async |operator| {
        loop {
            // One that takes too long is one that lacks CPU.
            Installation::metrics(operator).await.ok();
        }
    });
    let reads = futures::future::join_all(readers);
    tokio::select! {
        () = watched.fire(&["TenonLacksCpu"]) => {}
        _ = reads => {}
    }
    must(crowd.leave());
}

/// The API server does not answer.
async fn the_operator_is_wrong(watched: &mut Watched) {
    let alerts = ["TenonApiServerFails", "TenonNoLeader"];
    watched.quiet(&alerts).await;
    let faults = watched.bed().api_faults().expect("a proxy before the API server");
    faults.partition();
    watched.fire(&alerts).await;
    watched.bed().api_faults().expect("a proxy before the API server").heal();
}

/// Nobody runs it any more.
async fn the_operator_is_gone(watched: &mut Watched) {
    watched.quiet(&["TenonOperatorAbsent"]).await;
    let deployments: Api<Deployment> = Api::namespaced(watched.user().client(), "kube-system");
    let all = must(deployments.list(&ListParams::default()).await).items;
    assert_eq!(all.len(), 1, "the operator's Deployment");
    let none = json!({ "spec": { "replicas": 0 } });
    let parameters = PatchParams::default();
    must(deployments.patch(&all[0].name_any(), &parameters, &Patch::Merge(none)).await);
    watched.fire(&["TenonOperatorAbsent"]).await;
}

/// Each expression of each panel has had data since the test began.
async fn each_panel_has_data(watched: &Watched) {
    let mut wrong = Vec::new();
    let queries = must(dashboards::queries(watched.bed()).await);
    assert!(!queries.is_empty(), "no dashboards");
    for Query { panel, expression } in queries {
        let asked = format!("max_over_time(({expression})[20m:2s])");
        match watched.prometheus.query(&asked).await {
            Ok(samples) if samples.is_empty() => wrong.push(format!("{panel}: {expression}")),
            Ok(_) => {}
            Err(error) => wrong.push(format!("{panel}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_alert_fires_in_a_real_prometheus_and_each_panel_has_data() {
    let config = BedConfig { api_faults: true, ..BedConfig::default() };
    let bed = Arc::new(must(Bed::start(config).await));
    let clock = BrokenClock::build();
    let mut watched = watched(&bed, &clock).await;
    all_is_well(&mut watched).await;
    objects_are_wrong(&mut watched).await;
    nodes_are_wrong(&mut watched).await;
    replacements_fail(&mut watched).await;
    the_queue_is_wrong(&mut watched).await;
    launches_fail(&mut watched).await;
    the_operator_panics(&mut watched, &clock).await;
    the_operator_lacks_cpu(&mut watched).await;
    the_operator_is_wrong(&mut watched).await;
    the_operator_is_gone(&mut watched).await;
    each_panel_has_data(&watched).await;

    let rules = must(operator::rules(watched.bed()).await);
    let groups = rules["groups"].as_array().expect("groups").iter();
    let all: BTreeSet<&str> = groups
        .flat_map(|group| group["rules"].as_array().expect("rules"))
        .map(|rule| rule["alert"].as_str().expect("a name"))
        .collect();
    let fired: BTreeSet<&str> = watched.seen.keys().map(String::as_str).collect();
    assert_eq!(fired, all, "left: what fired; right: the chart's alerts");

    watched.prometheus.stop().await;
    drop(watched.tenon);
    must(Arc::into_inner(bed).expect("nobody else has the bed").stop().await);
}

/// `promtool` finds the rules right, and each alert fires when it should and not before.
#[tokio::test(flavor = "multi_thread")]
async fn promtool_tests_the_alerts() {
    let programs = must(PrometheusPrograms::provide(&Progress::hidden()).await);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for args in [
        ["check", "rules", "charts/tenon/files/alerts.yaml"],
        ["test", "rules", "tests/prometheus/alerts.yaml"],
    ] {
        let output = Command::new(&programs.promtool).args(args).current_dir(root).output();
        let output = output.expect("promtool runs");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}
