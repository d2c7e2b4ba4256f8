//! What goes wrong around the operator: each fault stays until the operator has told of it, in a
//! condition, an event or its log; then it ends, and everything must come right by itself.

use std::sync::Arc;
use std::time::Duration;

use super::interruptions::a_machine_that_is_taken_away_is_replaced_at_once;
use super::reservations::machines_go_into_reservations_and_outlive_them;
use super::setup::{control, installed};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::control::Selection;
use tenon_aws_double::faults::{Effect, Fault, Shortage};
use tenon_aws_double::prices::CapacityType;
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::machine;
use tenon_bed::scenarios;
use tenon_bed::scenarios::play;
use tenon_bed::user::{LIMIT, condition, instance_of, one_of};
use tenon_bed::wait::{eventually, must};

/// How long an instance without NodeClaim may live: its collection runs every two minutes.
const COLLECTED: Duration = Duration::from_secs(130);

/// The identity of the operator that leads.
async fn leader(tenon: &Installation) -> String {
    let leases: Api<Lease> = Api::namespaced(tenon.user().client(), "kube-system");
    let lease = must(leases.get("karpenter-leader-election").await);
    lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

/// A pool of its own for each scenario, of types that no other uses, so that what one learns about
/// them is no matter to others.
async fn pool(tenon: &Installation, scenario: &str, types: &[&str], capacity: &[&str]) {
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", types),
        one_of("karpenter.sh/capacity-type", capacity),
    ]);
    must(tenon.user().pool(scenario, &requirements, &json!({})).await);
}

async fn scale(tenon: &Installation, scenario: &str, replicas: usize) {
    must(tenon.user().scale(scenario, replicas, &json!({ "scenario": scenario })).await);
}

async fn runs(tenon: &Installation, scenario: &str, replicas: usize) {
    must(tenon.user().runs(scenario, replicas).await);
}

/// Waits until a NodeClaim of the scenario has a condition with this status and reason, and these
/// parts in its message.
async fn tells(
    tenon: &Installation,
    scenario: &str,
    [kind, status, reason]: [&str; 3],
    parts: &[&str],
) {
    let what = format!("a NodeClaim of {scenario} has {kind}={status} because of {reason}");
    let look = async || {
        let mut seen = Vec::new();
        for claim in tenon.user().claims(scenario).await? {
            let (is, why, message) = condition(&claim, kind);
            if is == status && why == reason && parts.iter().all(|part| message.contains(part)) {
                return Ok(true);
            }
            seen.push(format!("{kind}={is} ({why}: {message})"));
        }
        Err(format!("{seen:?}").into())
    };
    must(eventually(&what, LIMIT, look).await);
}

/// Every instance has its NodeClaim and every NodeClaim its instance, and none ever had two.
async fn nothing_is_left_over(tenon: &Installation) {
    let what = "every instance has its NodeClaim";
    must(eventually(what, COLLECTED, async || tenon.instances_match_claims().await).await);
    assert_eq!(must(tenon.doubled()), [], "a NodeClaim had several instances");
}

async fn pods_get_other_offerings_when_the_cheapest_have_no_capacity(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    pool(&tenon, "ice", &["c6i.large", "c6a.large"], &["spot", "on-demand"]).await;
    let mark = must(tenon.logs().mark());
    control(&bed).ice(Shortage {
        instance_type: "c6*".to_owned(),
        zone: "*".to_owned(),
        capacity_type: Some(CapacityType::Spot),
        left: 0,
        code: "InsufficientInstanceCapacity".to_owned(),
    });
    scale(&tenon, "ice", 2).await;
    runs(&tenon, "ice", 2).await;
    for node in must(tenon.user().nodes("ice").await) {
        assert_eq!(node.labels()["karpenter.sh/capacity-type"], "on-demand");
    }
    let line = ["offering is unavailable", "InsufficientInstanceCapacity", "spot"];
    must(tenon.logs().says(&mark, &line).await);

    // What has no capacity is not asked for again, by the operator that has learned it: no more
    // calls than instances.
    control(&bed).calls().clear();
    let learner = leader(&tenon).await;
    let before = must(tenon.instances()).len();
    scale(&tenon, "ice", 6).await;
    runs(&tenon, "ice", 6).await;
    let launched = must(tenon.instances()).len() - before;
    let calls = control(&bed).calls().of("ec2:CreateFleet");
    let asked = calls.iter().filter(|call| !call.dry_run).count();
    assert!(launched > 0, "six pods fit on what two had");
    let learned = leader(&tenon).await == learner;
    assert!(!learned || asked <= launched, "{asked} calls for {launched} instances");
    control(&bed).heal_all();
    must(tenon.user().remove("ice").await);
}

async fn a_throttled_launch_is_tried_until_it_passes(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    pool(&tenon, "throttled", &["m5a.large"], &["on-demand"]).await;
    control(&bed).throttle("ec2:CreateFleet", 0.0, 0.0);
    scale(&tenon, "throttled", 2).await;
    let throttled = ["Launched", "Unknown", "RequestLimitExceeded"];
    tells(&tenon, "throttled", throttled, &["throttle"]).await;
    control(&bed).heal_all();
    runs(&tenon, "throttled", 2).await;
    nothing_is_left_over(&tenon).await;
    must(tenon.user().remove("throttled").await);
}

async fn server_errors_and_lost_answers_pass_and_nothing_is_launched_twice(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    pool(&tenon, "burst", &["m6a.large"], &["on-demand"]).await;
    let mark = must(tenon.logs().mark());
    control(&bed).fail("ec2:Create*", None, 500, "InternalError");
    scale(&tenon, "burst", 2).await;
    tells(&tenon, "burst", ["Launched", "Unknown", "InternalError"], &["InternalError"]).await;
    must(
        tenon
            .logs()
            .says(&mark, &["reconcile failed", "nodeclaim.lifecycle", "InternalError"])
            .await,
    );
    control(&bed).heal_all();
    runs(&tenon, "burst", 2).await;

    // The fleet is made, and the answer is lost: asked again with the same token, EC2 tells of the
    // same fleet.
    let lost = Fault::new("ec2:CreateFleet", Effect::DropAnswer);
    control(&bed).fault(Fault { times: Some(2), ..lost });
    scale(&tenon, "burst", 8).await;
    runs(&tenon, "burst", 8).await;
    control(&bed).heal_all();
    nothing_is_left_over(&tenon).await;
    must(tenon.user().remove("burst").await);
}

async fn an_interruption_is_handled_when_sqs_is_back(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    pool(&tenon, "sqs", &["r6i.large", "r6a.large"], &["spot"]).await;
    scale(&tenon, "sqs", 1).await;
    runs(&tenon, "sqs", 1).await;
    let claim = must(tenon.user().claims("sqs").await).remove(0);

    let mark = must(tenon.logs().mark());
    control(&bed).fail("sqs:*", None, 503, "ServiceUnavailable");
    must(tenon.logs().says(&mark, &["failed to read the interruption queue"]).await);
    let chosen = Selection::Instances(vec![instance_of(&claim)]);
    let outcome = must(control(&bed).interrupt(chosen, None).await);
    let failures: Vec<_> = outcome.deliveries.iter().filter_map(|it| it.failure.clone()).collect();
    assert!(!outcome.deliveries.is_empty() && failures.is_empty(), "{failures:?}");
    control(&bed).heal_all();
    let look = async || {
        let claims = tenon.user().claims("sqs").await?;
        if claims.iter().any(|it| it.name_any() == claim.name_any()) {
            return Err(format!("{} is left", claim.name_any()).into());
        }
        tenon.user().all_run("sqs", 1).await
    };
    must(eventually("the interrupted NodeClaim is replaced, and its pod runs", LIMIT, look).await);
    let said = must(tenon.user().events("SpotInterrupted").await);
    let name = claim.name_any();
    assert!(
        said.iter().any(|event| event.involved_object.name.as_deref() == Some(name.as_str())),
        "no event tells of the interruption of {name}"
    );
    must(tenon.user().remove("sqs").await);
}

async fn a_scale_up_survives_a_restart_of_the_api_server(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    pool(&tenon, "api", &["m7i.large"], &["on-demand"]).await;
    let mark = must(tenon.logs().mark());
    scale(&tenon, "api", 9).await;
    let begun = async || Ok(!tenon.user().claims("api").await?.is_empty());
    must(eventually("the scale-up has begun", LIMIT, begun).await);
    must(bed.restart_api_server(Duration::from_secs(4)).await);
    runs(&tenon, "api", 9).await;
    must(tenon.logs().says(&mark, &["failed to renew the lease"]).await);
    nothing_is_left_over(&tenon).await;
    must(tenon.user().remove("api").await);
}

/// As if so much more time had passed since something began to be waited for: the condition's last
/// transition is put back.
async fn age(tenon: &Installation, claim: &DynamicObject, kind: &str, by: SignedDuration) {
    let mut conditions = claim.data["status"]["conditions"].clone();
    for condition in conditions.as_array_mut().into_iter().flatten() {
        if condition["type"] == kind {
            let text = condition["lastTransitionTime"].as_str().unwrap_or_default();
            let since: Timestamp = must(text.parse());
            let since = must(since.checked_sub(by)).strftime("%FT%TZ").to_string();
            condition["lastTransitionTime"] = json!(since);
        }
    }
    let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    let claims = tenon.user().objects("NodeClaim");
    must(claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await);
}

async fn a_machine_that_never_joins_is_given_up_and_replaced(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    let machines = must(bed.aws()).machines();
    pool(&tenon, "silent", &["c5.large"], &["on-demand"]).await;
    machines.inject(machine::Target::Next(1), machine::Fault::NeverBoots);
    let mark = must(tenon.logs().mark());
    scale(&tenon, "silent", 1).await;
    // The NodeClaim tells what it waits for. A person looks at the machine.
    let waiting = ["Registered", "Unknown", "NodeNotFound"];
    tells(&tenon, "silent", waiting, &["Node not registered"]).await;
    let claim = must(tenon.user().claims("silent").await).remove(0);
    let instance = instance_of(&claim);
    let known = async || Ok(machines.problems().contains_key(&instance));
    must(eventually("the bed says why the machine does not join", LIMIT, known).await);
    // It is given a quarter of an hour.
    age(&tenon, &claim, "Registered", SignedDuration::from_mins(15)).await;
    let line = ["deleting nodeclaim", "registration_timeout", &claim.name_any()];
    must(tenon.logs().says(&mark, &line).await);
    runs(&tenon, "silent", 1).await;
    let gone = async || Ok(!must(tenon.instances()).contains_key(&instance));
    must(eventually("its instance is terminated", LIMIT, gone).await);
    nothing_is_left_over(&tenon).await;
    must(tenon.user().remove("silent").await);
}

/// Waits until the log and an event about the object say that it is skipped, and what of it can't
/// be read.
async fn is_skipped(
    tenon: &Installation,
    mark: &tenon_bed::logs::Mark,
    [kind, name]: [&str; 2],
    what: &str,
) {
    must(tenon.logs().says(mark, &["skipping an object", kind, name, what]).await);
    let look = async || {
        let events = tenon.user().events("Invalid").await?;
        Ok(events.iter().any(|event| {
            let about = &event.involved_object;
            about.kind.as_deref() == Some(kind)
                && about.name.as_deref() == Some(name)
                && event.message.as_deref().unwrap_or_default().contains(what)
        }))
    };
    must(eventually(&format!("an event tells whoever looks at the {kind}"), LIMIT, look).await);
}

async fn what_does_not_parse_is_skipped_loudly_and_the_others_work(bed: Arc<Bed>) {
    let tenon = installed(&bed).await;
    let user = tenon.user();
    let mark = must(tenon.logs().mark());
    // The schema's pattern, which is Kubernetes' own, lets it pass; it is no quantity all the same.
    let pool_spec = json!({
        "limits": { "cpu": "1e1.5" },
        "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
            "requirements": [one_of("kubernetes.io/arch", &["amd64"])],
        } },
    });
    let broken_pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": { "name": "broken" }, "spec": pool_spec,
    });
    must(user.apply(&broken_pool).await);
    is_skipped(&tenon, &mark, ["NodePool", "broken"], "1e1.5").await;
    // The CRD of another version may allow more than this operator reads.
    let definitions: Api<CustomResourceDefinition> = Api::all(user.client());
    let name = "ec2nodeclasses.karpenter.k8s.aws";
    let format = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/kubelet/properties/maxPods/format";
    let looser = serde_json::from_value(json!([{ "op": "remove", "path": format }]));
    let looser: Patch<()> = Patch::Json(looser.expect("a patch"));
    must(definitions.patch(name, &PatchParams::default(), &looser).await);
    let mut class: Value = must(user.objects("EC2NodeClass").get("default").await).data;
    class["spec"]["kubelet"] = json!({ "maxPods": 3_000_000_000_u64 });
    let broken_class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": { "name": "broken" }, "spec": class["spec"],
    });
    let accepted = async || Ok(user.apply(&broken_class).await.is_ok());
    must(eventually("the API server validates by the looser CRD", LIMIT, accepted).await);
    is_skipped(&tenon, &mark, ["EC2NodeClass", "broken"], "3000000000").await;

    // Others are made, and launched for, as if they were not there; also by an operator that starts
    // with them.
    must(tenon.kill_leader().await);
    pool(&tenon, "whole", &["m5.large"], &["on-demand"]).await;
    scale(&tenon, "whole", 1).await;
    runs(&tenon, "whole", 1).await;
    for kind in ["NodePool", "EC2NodeClass"] {
        let objects = user.objects(kind);
        let all = must(objects.list(&ListParams::default()).await);
        assert!(all.iter().any(|it| it.name_any() == "broken"), "somebody has removed the {kind}");
        must(objects.delete("broken", &DeleteParams::default()).await);
        let gone = async || Ok(objects.get_opt("broken").await?.is_none());
        must(eventually(&format!("the broken {kind} can be deleted"), LIMIT, gone).await);
    }
    must(user.remove("whole").await);
    let format = json!([{ "op": "add", "path": format, "value": "int32" }]);
    let strict_again: Patch<()> = Patch::Json(serde_json::from_value(format).expect("a patch"));
    must(definitions.patch(name, &PatchParams::default(), &strict_again).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_recovers_and_says_what_happened() {
    play(
        BedConfig::default(),
        &scenarios![
            pods_get_other_offerings_when_the_cheapest_have_no_capacity,
            a_throttled_launch_is_tried_until_it_passes,
            server_errors_and_lost_answers_pass_and_nothing_is_launched_twice,
            an_interruption_is_handled_when_sqs_is_back,
            a_machine_that_is_taken_away_is_replaced_at_once,
            a_scale_up_survives_a_restart_of_the_api_server,
            a_machine_that_never_joins_is_given_up_and_replaced,
            machines_go_into_reservations_and_outlive_them,
            what_does_not_parse_is_skipped_loudly_and_the_others_work,
        ],
    )
    .await;
}
