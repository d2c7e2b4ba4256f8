//! `tenon simulate --live` and `tenon explain` say of a running cluster what its operator does and
//! why, and change nothing.

use std::path::PathBuf;
use std::process::Output;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::progress::Progress;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kwok_operators::KwokOperators;
use tenon_bed::programs::TenonPrograms;
use tenon_bed::user::{LIMIT, User, one_of};
use tenon_bed::wait::{eventually, must};
use tokio::process::Command;

/// A NodePool of machines with two CPUs.
const POOL: &str = "small";

/// The program, on the bed's cluster.
struct Tenon {
    program: PathBuf,
    kubeconfig: PathBuf,
    dir: tempfile::TempDir,
}

impl Tenon {
    async fn run(&self, args: &str) -> Output {
        let mut command = Command::new(&self.program);
        command.args(args.split_whitespace()).current_dir(self.dir.path());
        command.env_clear().env("HOME", self.dir.path()).env("KUBECONFIG", &self.kubeconfig);
        must(command.output().await)
    }

    async fn succeeds(&self, args: &str) -> String {
        let output = self.run(args).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tenon {args}: {stderr}");
        must(String::from_utf8(output.stdout))
    }

    async fn json(&self, args: &str) -> Value {
        must(serde_json::from_str(&self.succeeds(&format!("{args} -o json")).await))
    }
}

/// A pod that is larger than every machine of the NodePool.
async fn ask_for_too_much(user: &User) {
    let pods: Api<Pod> = Api::namespaced(user.client(), "default");
    let pod = json!({
        "metadata": { "name": "huge" },
        "spec": {
            "nodeSelector": { "scenario": POOL },
            "containers": [{ "name": "main", "image": "x", "resources": { "requests": { "cpu": "3" } } }],
        },
    });
    must(pods.create(&PostParams::default(), &must(serde_json::from_value(pod))).await);
}

/// What the operator says of a pod that it can't launch a machine for.
async fn said(user: &User, pod: &str) -> Result<Option<String>, kube::Error> {
    let scheduler = Some("default-scheduler");
    let of_operator = |event: &Event| {
        let source = event.source.as_ref().and_then(|source| source.component.as_deref());
        event.involved_object.name.as_deref() == Some(pod)
            && source != scheduler
            && event.reporting_component.as_deref() != scheduler
    };
    let events = user.events("FailedScheduling").await?;
    Ok(events.into_iter().find(of_operator).and_then(|event| event.message))
}

/// Waits until the operator has said it.
async fn told(user: &User, pod: &str) -> String {
    let look = async || Ok(said(user, pod).await?.is_some());
    must(eventually("the operator says why the pod waits", LIMIT, look).await);
    must(said(user, pod).await).unwrap_or_default()
}

async fn the_simulation_says_what_the_operator_says(tenon: &Tenon, user: &User, said: &str) {
    let claims = must(user.claims(POOL).await);
    let outcome = tenon.json("simulate --live").await;
    let totals = &outcome["totals"];
    assert_eq!((&totals["nodesBefore"], &totals["pods"]), (&json!(1), &json!(1)), "{totals}");
    assert_eq!(outcome["launches"], json!([]));
    let waiting = &outcome["unschedulable"][0];
    assert_eq!(waiting["name"], "huge");
    let why = &waiting["reasons"][0];
    assert_eq!(why["reason"]["resources"]["resource"], "cpu", "{why}");
    let message = why["message"].as_str().expect("words");
    assert!(said.contains(message), "the operator said {said:?}, the simulation {message:?}");

    // A Deployment that is not there yet: its pods don't fit beside the one that runs.
    let more = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "more" },
        "spec": { "replicas": 3, "template": {
            "metadata": { "labels": { "app": "more" } },
            "spec": {
                "nodeSelector": { "scenario": POOL },
                "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1500m" } } }],
            },
        } },
    });
    must(std::fs::write(tenon.dir.path().join("more.json"), more.to_string()));
    let outcome = tenon.json("simulate --live -f more.json --save kept.json").await;
    let placed = outcome["placements"].as_array().map_or(0, Vec::len);
    let launched = outcome["launches"].as_array().map_or(0, Vec::len);
    assert_eq!((placed, launched), (0, 3), "{outcome}");
    assert_eq!(outcome["launches"][0]["nodePool"], POOL);
    assert!(outcome["totals"]["lowerBoundPerHour"].as_f64().is_some_and(|bound| bound > 0.0));

    // The same from what was kept, without a cluster. The time goes on, but nothing here depends on
    // it.
    let again = tenon.json("simulate -f kept.json").await;
    for part in ["launches", "placements", "unschedulable", "disruptions"] {
        assert_eq!(again[part], outcome[part], "{part}");
    }
    let names = |claims: &[kube::api::DynamicObject]| -> Vec<String> {
        claims.iter().map(ResourceExt::name_any).collect()
    };
    assert_eq!(names(&must(user.claims(POOL).await)), names(&claims), "nothing was launched");
}

async fn each_object_is_explained(tenon: &Tenon, user: &User) {
    let claim = must(user.claims(POOL).await).remove(0).name_any();
    let node = must(user.nodes(POOL).await).remove(0).name_any();
    let pod = must(user.pods("web").await).remove(0).name_any();

    let words = tenon.succeeds(&format!("explain pod {pod}")).await;
    assert!(words.contains(&format!("it runs on Node {node} (NodeClaim {claim})")), "{words}");
    let data = tenon.json(&format!("explain pod {pod}")).await;
    assert_eq!((&data["kind"], &data["node"]), (&json!("Pod"), &json!(claim)));

    let words = tenon.succeeds("explain pod huge").await;
    assert!(words.contains("it stays pending") && words.contains("cpu"), "{words}");
    let data = tenon.json("explain pod huge").await;
    let funnel = &data["instanceTypes"][0];
    assert_eq!((&funnel["nodePool"], &funnel["largeEnough"]), (&json!(POOL), &json!(0)));
    assert!(funnel["matchingPod"].as_u64() > Some(0), "{funnel}");

    for (kind, name) in [("node", &node), ("nodeclaim", &claim)] {
        let words = tenon.succeeds(&format!("explain {kind} {name}")).await;
        assert!(words.contains("stays"), "{words}");
        let data = tenon.json(&format!("explain {kind} {name}")).await;
        assert_eq!((&data["node"], &data["nodeClaim"]), (&json!(node), &json!(claim)));
        assert_eq!((&data["nodePool"], &data["disruption"]), (&json!(POOL), &Value::Null));
        assert_ne!(data["reason"], Value::Null, "why it stays");
    }

    let words = tenon.succeeds(&format!("explain nodepool {POOL}")).await;
    assert!(
        words.contains("it has 1 node") && words.contains("can't take default/huge"),
        "{words}"
    );
    let data = tenon.json(&format!("explain nodepool {POOL}")).await;
    assert_eq!((&data["nodes"], &data["launches"]), (&json!(1), &json!([])));
    assert_eq!(data["limits"]["cpu"], json!({ "used": "2", "limit": "10" }));

    let output = tenon.run("explain nodepool smal").await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("there is NodePool small"), "{stderr}");
}

/// The node is drained in a simulation, and then by the operator.
async fn a_drain_is_what_was_simulated(tenon: &Tenon, user: &User) {
    let output = tenon.run("simulate --live --drain team=nobody").await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("no node matches --drain team=nobody"), "{stderr}");

    let selector = format!("--drain karpenter.sh/nodepool={POOL}");
    let outcome = tenon.json(&format!("simulate --live --what provision {selector}")).await;
    let claim = must(user.claims(POOL).await).remove(0);
    let node = must(user.nodes(POOL).await).remove(0).name_any();
    let drained = &outcome["drained"];
    assert_eq!((&drained["nodes"], &drained["pods"]), (&json!([node]), &json!(1)), "{drained}");
    assert_eq!((&drained["lost"], &drained["held"]), (&json!([]), &json!([])), "{drained}");
    let launches = outcome["launches"].as_array().expect("launches");
    assert_eq!(launches.len(), 1, "{outcome}");
    let totals = &outcome["totals"];
    assert_eq!((&totals["nodesBefore"], &totals["nodesAfter"]), (&json!(1), &json!(1)));
    assert_eq!(totals["pricePerHourBefore"], totals["pricePerHourAfter"], "{totals}");
    assert!(totals["pricePerHourAfter"].as_f64() > Some(0.0), "{totals}");

    let claims = user.objects("NodeClaim");
    must(claims.delete(&claim.name_any(), &DeleteParams::default()).await);
    let is_replaced = async || Ok(claims.get_opt(&claim.name_any()).await?.is_none());
    must(eventually("the node is drained", LIMIT, is_replaced).await);
    must(user.runs("web", 1).await);
    assert_eq!(must(user.claims(POOL).await).len(), launches.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn simulate_and_explain_tell_of_a_running_cluster_what_its_operator_does() {
    let programs = must(TenonPrograms::provide(&Progress::hidden()).await);
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    let bed = must(Bed::start(config).await);
    let tenon = Tenon {
        program: programs.tenon.clone(),
        kubeconfig: bed.control_plane().kubeconfig().to_path_buf(),
        dir: must(tempfile::tempdir()),
    };
    let kwok_operators = must(KwokOperators::prepare(&bed, programs).await);
    let operator = must(kwok_operators.start("one"));
    must(operator.ready(LIMIT).await);
    let user = kwok_operators.user();
    let requirements = json!([
        one_of("kubernetes.io/os", &["linux"]),
        one_of("kubernetes.io/arch", &["amd64"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
        one_of("karpenter.kwok.sh/instance-cpu", &["2"]),
    ]);
    must(user.pool(POOL, &requirements, &json!({ "limits": { "cpu": "10" } })).await);
    must(user.scale("web", 1, &json!({ "scenario": POOL })).await);
    must(user.runs("web", 1).await);
    ask_for_too_much(user).await;
    let said = told(user, "huge").await;
    the_simulation_says_what_the_operator_says(&tenon, user, &said).await;
    each_object_is_explained(&tenon, user).await;
    a_drain_is_what_was_simulated(&tenon, user).await;
    drop((operator, kwok_operators));
    must(bed.stop().await);
}
