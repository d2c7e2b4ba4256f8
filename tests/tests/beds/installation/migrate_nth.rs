//! Interruption handling moves from Node Termination Handler to Tenon, and back: its workloads in
//! both modes, with what feeds its queue. It is played by its objects and its calls alone.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tenon_bed::bed::{ACCOUNT, Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::{LIMIT, User, instance_of, one_of};
use tenon_bed::wait::{eventually, must};

use super::calls::{denied, grant};
use super::command::{check, tenon};

const APP: &str = "worker";
const QUEUE: &str = "nth";
const GROUP: &str = "workers";
const HOOK: &str = "drain";
const IMAGE: &str = "public.ecr.aws/aws-ec2/aws-node-termination-handler:v1.25.6";
const SPOT: &str = "EC2 Spot Instance Interruption Warning";

fn arn(bed: &Bed, queue: &str) -> String {
    format!("arn:aws:sqs:{}:{ACCOUNT}:{queue}", bed.region())
}

fn url(bed: &Bed, queue: &str) -> String {
    format!("https://sqs.{}.amazonaws.com/{ACCOUNT}/{queue}", bed.region())
}

/// A call of a service that speaks JSON, of which moto holds everything.
async fn moto(bed: &Bed, service: &str, action: &str, body: Value) -> Value {
    let aws = must(bed.aws());
    must(aws.gateway().state().moto().json(service, action, &body).await)
}

/// As its guide lays it out: a queue, a rule of its own, one that others listen to as well, and a
/// lifecycle hook that announces to the queue.
async fn aws_side(bed: &Bed) {
    for queue in [QUEUE, "audit"] {
        moto(bed, "sqs", "AmazonSQS.CreateQueue", json!({ "QueueName": queue })).await;
    }
    let rules = [
        ("nth-spot", SPOT, &[QUEUE][..]),
        ("all-states", "EC2 Instance State-change Notification", &[QUEUE, "audit"]),
    ];
    for (name, detail_type, queues) in rules {
        let pattern = json!({ "source": ["aws.ec2"], "detail-type": [detail_type] }).to_string();
        let rule = json!({ "Name": name, "EventPattern": pattern });
        moto(bed, "events", "AWSEvents.PutRule", rule).await;
        let targets = queues.iter().map(|queue| json!({ "Id": queue, "Arn": arn(bed, queue) }));
        let targets = json!({ "Rule": name, "Targets": targets.collect::<Value>() });
        moto(bed, "events", "AWSEvents.PutTargets", targets).await;
    }
    let aws = must(bed.aws());
    let subnet = aws.seed().subnet_ids[0].clone();
    let caller = aws.caller();
    let configuration = [
        ("LaunchConfigurationName", GROUP),
        ("ImageId", "ami-12345678"),
        ("InstanceType", "m5.large"),
    ];
    must(caller.query("autoscaling", "CreateLaunchConfiguration", &configuration).await);
    let group = [
        ("AutoScalingGroupName", GROUP),
        ("LaunchConfigurationName", GROUP),
        ("MinSize", "0"),
        ("MaxSize", "3"),
        ("DesiredCapacity", "0"),
        ("VPCZoneIdentifier", &subnet),
    ];
    must(caller.query("autoscaling", "CreateAutoScalingGroup", &group).await);
    for (name, target) in [(HOOK, arn(bed, QUEUE)), ("other", arn(bed, "audit"))] {
        let hook = [
            ("AutoScalingGroupName", GROUP),
            ("LifecycleHookName", name),
            ("LifecycleTransition", "autoscaling:EC2_INSTANCE_TERMINATING"),
            ("NotificationTargetARN", &target),
            ("RoleARN", "arn:aws:iam::123456789012:role/hooks"),
        ];
        must(caller.query("autoscaling", "PutLifecycleHook", &hook).await);
    }
}

async fn hooks(bed: &Bed) -> String {
    let caller = must(bed.aws()).caller();
    let group = [("AutoScalingGroupName", GROUP)];
    format!("{:?}", must(caller.query("autoscaling", "DescribeLifecycleHooks", &group).await))
}

/// The Deployment that reads the queue, and the DaemonSet that reads instance metadata.
async fn kubernetes_side(bed: &Bed) {
    let labels = json!({ "app": "nth" });
    let template = |env: Value| {
        json!({
            "metadata": { "labels": labels },
            "spec": {
                "tolerations": [{ "operator": "Exists" }],
                "containers": [{ "name": "nth", "image": IMAGE, "env": env }],
            },
        })
    };
    let env = json!([
        { "name": "ENABLE_SQS_TERMINATION_DRAINING", "value": "true" },
        { "name": "CHECK_TAG_BEFORE_DRAINING", "value": "false" },
        { "name": "QUEUE_URL", "value": url(bed, QUEUE) },
        { "name": "SQS_MSG_VISIBILITY_TIMEOUT_SEC", "value": "5" },
    ]);
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "nth",
            "annotations": {
                "meta.helm.sh/release-name": "handler",
                "meta.helm.sh/release-namespace": "kube-system",
            },
        },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": labels }, "template": template(env),
        },
    });
    let daemon_set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "nth-node" },
        "spec": { "selector": { "matchLabels": labels }, "template": template(json!([])) },
    });
    let parameters = PatchParams::apply("helm");
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    must(deployments.patch("nth", &parameters, &Patch::Apply(deployment)).await);
    let sets: Api<DaemonSet> = Api::namespaced(bed.client(), "kube-system");
    must(sets.patch("nth-node", &parameters, &Patch::Apply(daemon_set)).await);
}

/// Pods that run: of the Deployment, and of the DaemonSet.
async fn running(bed: &Bed) -> (i32, i32) {
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let sets: Api<DaemonSet> = Api::namespaced(bed.client(), "kube-system");
    let of_deployment = must(deployments.get("nth").await).status;
    let of_set = must(sets.get("nth-node").await).status.unwrap_or_default();
    let of_deployment = of_deployment.and_then(|status| status.ready_replicas).unwrap_or(0);
    (of_deployment, of_set.current_number_scheduled + of_set.number_misscheduled)
}

async fn runs(bed: &Bed) {
    let all = async || {
        let (of_deployment, of_set) = running(bed).await;
        Ok(of_deployment == 2 && of_set > 0)
    };
    must(eventually("Node Termination Handler runs", LIMIT, all).await);
}

/// An interruption that only Node Termination Handler's queue gets, and that it has received.
async fn receives_interruption(bed: &Bed, instance: &str) {
    let event = json!({
        "version": "0",
        "id": "12345678-1234-1234-1234-123456789012",
        "detail-type": SPOT,
        "source": "aws.ec2",
        "account": ACCOUNT,
        "time": "2026-01-01T00:00:00Z",
        "region": bed.region(),
        "resources": [],
        "detail": { "instance-id": instance, "instance-action": "terminate" },
    });
    let queue = url(bed, QUEUE);
    let message = json!({ "QueueUrl": queue, "MessageBody": event.to_string() });
    moto(bed, "sqs", "AmazonSQS.SendMessage", message).await;
    let receive = json!({ "QueueUrl": queue, "MaxNumberOfMessages": 10, "VisibilityTimeout": 5 });
    let received = moto(bed, "sqs", "AmazonSQS.ReceiveMessage", receive).await;
    assert!(received.to_string().contains(instance), "{received}");
}

async fn queues(bed: &Bed) -> String {
    moto(bed, "sqs", "AmazonSQS.ListQueues", json!({})).await.to_string()
}

async fn targets(bed: &Bed, rule: &str) -> Value {
    let found = json!({ "Rule": rule });
    moto(bed, "events", "AWSEvents.ListTargetsByRule", found).await["Targets"].clone()
}

async fn spot_node(bed: &Bed, user: &User) -> String {
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", &["m5.large"]),
        one_of("karpenter.sh/capacity-type", &["spot"]),
    ]);
    must(user.pool(APP, &requirements, &json!({})).await);
    must(user.scale(APP, 2, &json!({ "scenario": APP })).await);
    must(user.runs(APP, 2).await);
    let claims = must(user.claims(APP).await);
    assert_eq!(claims.len(), 1, "on {}", bed.cluster());
    claims[0].name_any()
}

#[tokio::test(flavor = "multi_thread")]
async fn node_termination_handler_ends_without_a_gap_and_leaves_nothing_of_its_own() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let installed = must(Installation::ensure(&bed, &json!({})).await);
    let user = installed.user();
    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let with = |args: &[&'static str]| [&["migrate", "nth"][..], args, &target].concat();

    let nothing = tenon(&bed, &with(&["--yes"]), None).await;
    assert_eq!(nothing.code, 0, "{}", nothing.stderr);
    assert!(nothing.stdout.contains("there is no Node Termination Handler"), "{}", nothing.stdout);

    let claim = spot_node(&bed, user).await;
    aws_side(&bed).await;
    kubernetes_side(&bed).await;
    runs(&bed).await;
    // From now on with the permissions that `tenon iam caller` prints.
    grant(&bed, "migrate-nth", &target).await;
    assert_eq!(check(&bed, "EX-04").await["outcome"], "fail");

    // Refused while an event would be lost.
    let spot = json!({ "Name": format!("tenon-{}-spot", bed.cluster()) });
    moto(&bed, "events", "AWSEvents.DisableRule", spot.clone()).await;
    let refused = tenon(&bed, &with(&["--yes"]), None).await;
    assert_eq!(refused.code, 6, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("handles spot interruptions"), "{}", refused.stderr);
    assert_eq!(running(&bed).await.0, 2, "it was touched");
    moto(&bed, "events", "AWSEvents.EnableRule", spot).await;

    // There and back, with all of it in AWS.
    let shown = tenon(&bed, &with(&["--dry-run", "-o", "json"]), None).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let shown: Value = must(serde_json::from_str(&shown.stdout));
    assert_eq!(shown["events"], json!(["spot", "state", "health", "lifecycle"]));
    assert_eq!(shown["unhandledNodes"], json!([]));
    let steps = shown["actions"].as_array().expect("steps").iter();
    let steps = steps.map(|step| step["id"].as_str().expect("an id")).collect::<Vec<_>>();
    assert_eq!(
        steps,
        [
            "stop/kube-system/nth",
            "stop/kube-system/nth-node",
            "hook/workers/drain",
            "rule/all-states",
            "rule/nth-spot",
            "messages/nth",
            "queue/nth"
        ]
    );
    let kept = tenon(&bed, &with(&["--keep-aws", "--yes"]), None).await;
    assert_eq!(kept.code, 0, "{}{}", kept.stdout, kept.stderr);
    assert!(kept.stdout.contains("helm -n kube-system uninstall handler"), "{}", kept.stdout);
    assert_eq!(running(&bed).await, (0, 0));
    assert_eq!(check(&bed, "EX-04").await["outcome"], "pass");
    let undone = tenon(&bed, &with(&["--undo", "--yes"]), None).await;
    assert_eq!(undone.code, 0, "{}{}", undone.stdout, undone.stderr);
    runs(&bed).await;

    // An interruption comes in the middle: it has received it, and ends. Killed after each
    // workload, after what feeds the queue, and after the messages have moved, it goes on.
    let claims = user.objects("NodeClaim");
    let instance = instance_of(&must(claims.get(&claim).await));
    receives_interruption(&bed, &instance).await;
    for after in [1, 1, 3, 1] {
        let killed = tenon(&bed, &with(&["--yes"]), Some(after)).await;
        assert_ne!(killed.code, 0, "{}", killed.stdout);
    }
    let done = tenon(&bed, &with(&["--yes"]), None).await;
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("Tenon alone handles interruptions"), "{}", done.stdout);
    let again = tenon(&bed, &with(&["--yes"]), None).await;
    assert!(again.stdout.contains("Nothing to do"), "{}{}", again.stdout, again.stderr);
    let is_replaced = async || Ok(must(claims.get_opt(&claim).await).is_none());
    must(eventually("Tenon replaces the interrupted node", LIMIT, is_replaced).await);
    must(user.runs(APP, 2).await);

    assert_eq!(running(&bed).await, (0, 0));
    let left = queues(&bed).await;
    assert!(!left.contains("/nth") && left.contains("/audit"), "{left}");
    let audit = json!([{ "Id": "audit", "Arn": arn(&bed, "audit") }]);
    assert_eq!(targets(&bed, "all-states").await, audit);
    let rules = moto(&bed, "events", "AWSEvents.ListRules", json!({})).await.to_string();
    assert!(!rules.contains("nth-spot"), "{rules}");
    let left = hooks(&bed).await;
    assert!(!left.contains("drain") && left.contains("other"), "{left}");
    assert_eq!(check(&bed, "EX-04").await["outcome"], "pass");
    let diff = tenon(&bed, &[&["diff"][..], &target].concat(), None).await;
    assert_eq!(diff.code, 0, "the installation is as it was: {}", diff.stdout);
    let refused = tenon(&bed, &with(&["--undo", "--yes"]), None).await;
    assert_eq!(refused.code, 6, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("is gone"), "{}", refused.stderr);

    assert_eq!(denied(&bed), [""; 0]);

    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    must(deployments.delete("nth", &DeleteParams::default()).await);
}
