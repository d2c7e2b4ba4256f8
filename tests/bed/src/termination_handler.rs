//! Node Termination Handler: its workloads in both modes, and what feeds its queue in AWS. It is
//! played by its objects and its calls alone.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::bed::{ACCOUNT, Bed};
use crate::failure::Failure;
use crate::user::LIMIT;
use crate::wait::{NotYet, eventually};

/// Its queue.
pub const QUEUE: &str = "nth";
/// A queue of others, that a rule and a lifecycle hook feed as well.
pub const AUDIT: &str = "audit";
/// The rule that is its own, and the one that both queues are targets of.
pub const RULES: [&str; 2] = ["nth-spot", "all-states"];
/// The lifecycle hook that announces to its queue, and the one that does not.
pub const HOOKS: [&str; 2] = ["drain", "other"];
const GROUP: &str = "workers";
/// Its Deployment, which reads the queue, and its DaemonSet, which reads instance metadata; in the
/// namespace `kube-system`.
const NAMES: [&str; 2] = ["nth", "nth-node"];
const IMAGE: &str = "public.ecr.aws/aws-ec2/aws-node-termination-handler:v1.25.6";
const SPOT: &str = "EC2 Spot Instance Interruption Warning";

/// A running Node Termination Handler.
#[derive(Clone, Copy, Debug)]
pub struct TerminationHandler<'a> {
    bed: &'a Bed,
}

impl<'a> TerminationHandler<'a> {
    /// Creates what its guide asks for in AWS and what its chart creates in the cluster, and waits
    /// until its pods run.
    ///
    /// # Errors
    /// When AWS or the API server refuses something, or its pods do not run in time.
    pub async fn start(bed: &'a Bed) -> Result<Self, Failure> {
        let this = Self { bed };
        this.queue_and_rules().await?;
        this.hooked_group().await?;
        this.workloads().await?;
        this.runs().await?;
        Ok(this)
    }

    fn arn(self, queue: &str) -> String {
        format!("arn:aws:sqs:{}:{ACCOUNT}:{queue}", self.bed.region())
    }

    fn url(self) -> String {
        format!("https://sqs.{}.amazonaws.com/{ACCOUNT}/{QUEUE}", self.bed.region())
    }

    /// A call of a service that speaks JSON, of which moto holds everything.
    async fn call(self, service: &str, action: &str, body: Value) -> Result<Value, Failure> {
        Ok(self.bed.aws()?.gateway().state().moto().json(service, action, &body).await?)
    }

    async fn queue_and_rules(self) -> Result<(), Failure> {
        for queue in [QUEUE, AUDIT] {
            let body = json!({ "QueueName": queue });
            self.call("sqs", "AmazonSQS.CreateQueue", body).await?;
        }
        let [own, shared] = RULES;
        for (name, detail_type, queues) in [
            (own, SPOT, &[QUEUE][..]),
            (shared, "EC2 Instance State-change Notification", &[QUEUE, AUDIT]),
        ] {
            let pattern = json!({ "source": ["aws.ec2"], "detail-type": [detail_type] });
            let rule = json!({ "Name": name, "EventPattern": pattern.to_string() });
            self.call("events", "AWSEvents.PutRule", rule).await?;
            let targets = queues.iter().map(|queue| json!({ "Id": queue, "Arn": self.arn(queue) }));
            let targets = json!({ "Rule": name, "Targets": targets.collect::<Value>() });
            self.call("events", "AWSEvents.PutTargets", targets).await?;
        }
        Ok(())
    }

    /// An Auto Scaling group without instances, with both lifecycle hooks.
    async fn hooked_group(self) -> Result<(), Failure> {
        let aws = self.bed.aws()?;
        let subnet = aws.seed().subnet_ids[0].clone();
        let caller = aws.caller();
        let configuration = [
            ("LaunchConfigurationName", GROUP),
            ("ImageId", "ami-12345678"),
            ("InstanceType", "m5.large"),
        ];
        caller.query("autoscaling", "CreateLaunchConfiguration", &configuration).await?;
        let group = [
            ("AutoScalingGroupName", GROUP),
            ("LaunchConfigurationName", GROUP),
            ("MinSize", "0"),
            ("MaxSize", "3"),
            ("DesiredCapacity", "0"),
            ("VPCZoneIdentifier", &subnet),
        ];
        caller.query("autoscaling", "CreateAutoScalingGroup", &group).await?;
        let role = format!("arn:aws:iam::{ACCOUNT}:role/hooks");
        for (name, queue) in HOOKS.into_iter().zip([QUEUE, AUDIT]) {
            let target = self.arn(queue);
            let hook = [
                ("AutoScalingGroupName", GROUP),
                ("LifecycleHookName", name),
                ("LifecycleTransition", "autoscaling:EC2_INSTANCE_TERMINATING"),
                ("NotificationTargetARN", &target),
                ("RoleARN", &role),
            ];
            caller.query("autoscaling", "PutLifecycleHook", &hook).await?;
        }
        Ok(())
    }

    fn deployments(self) -> Api<Deployment> {
        Api::namespaced(self.bed.client(), "kube-system")
    }

    fn daemon_sets(self) -> Api<DaemonSet> {
        Api::namespaced(self.bed.client(), "kube-system")
    }

    async fn workloads(self) -> Result<(), kube::Error> {
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
            { "name": "QUEUE_URL", "value": self.url() },
            { "name": "SQS_MSG_VISIBILITY_TIMEOUT_SEC", "value": "5" },
        ]);
        let [of_queue, of_metadata] = NAMES;
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": of_queue,
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
            "metadata": { "name": of_metadata },
            "spec": { "selector": { "matchLabels": labels }, "template": template(json!([])) },
        });
        let parameters = PatchParams::apply("helm");
        self.deployments().patch(of_queue, &parameters, &Patch::Apply(deployment)).await?;
        self.daemon_sets().patch(of_metadata, &parameters, &Patch::Apply(daemon_set)).await?;
        Ok(())
    }

    /// Pods that run: of the Deployment, and of the DaemonSet.
    ///
    /// # Errors
    /// When the API server can't be asked.
    pub async fn running(self) -> Result<(i32, i32), kube::Error> {
        let [of_queue, of_metadata] = NAMES;
        let deployment = self.deployments().get(of_queue).await?.status;
        let daemon_set = self.daemon_sets().get(of_metadata).await?.status.unwrap_or_default();
        let ready = deployment.and_then(|status| status.ready_replicas).unwrap_or(0);
        Ok((ready, daemon_set.current_number_scheduled + daemon_set.number_misscheduled))
    }

    /// Waits until pods of both modes run.
    ///
    /// # Errors
    /// When they do not in time.
    pub async fn runs(self) -> Result<(), NotYet> {
        eventually("Node Termination Handler runs", LIMIT, async || {
            let (of_queue, of_metadata) = self.running().await?;
            Ok(of_queue == 2 && of_metadata > 0)
        })
        .await
    }

    /// Removes its Deployment, as the owner of its Helm release does in the end.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn remove(self) -> Result<(), kube::Error> {
        self.deployments().delete(NAMES[0], &DeleteParams::default()).await.map(drop)
    }

    /// An interruption of an instance that only its own queue gets. It has received the message,
    /// which is invisible for five seconds, and does nothing with it.
    ///
    /// # Errors
    /// When the queue refuses the message, or does not hand it out.
    pub async fn receives_interruption(self, instance: &str) -> Result<(), Failure> {
        let event = json!({
            "version": "0",
            "id": "12345678-1234-1234-1234-123456789012",
            "detail-type": SPOT,
            "source": "aws.ec2",
            "account": ACCOUNT,
            "time": "2026-01-01T00:00:00Z",
            "region": self.bed.region(),
            "resources": [],
            "detail": { "instance-id": instance, "instance-action": "terminate" },
        });
        let url = self.url();
        let message = json!({ "QueueUrl": url, "MessageBody": event.to_string() });
        self.call("sqs", "AmazonSQS.SendMessage", message).await?;
        let receive = json!({ "QueueUrl": url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 5 });
        let received = self.call("sqs", "AmazonSQS.ReceiveMessage", receive).await?;
        if received.to_string().contains(instance) {
            Ok(())
        } else {
            Err(format!("the queue hands out {received}").into())
        }
    }

    /// What is in AWS of all that the handler and others use: queues, rules with the ids of their
    /// targets, and lifecycle hooks.
    ///
    /// # Errors
    /// When AWS can't be asked.
    pub async fn in_aws(self) -> Result<Vec<String>, Failure> {
        let mut all = Vec::new();
        let queues = self.call("sqs", "AmazonSQS.ListQueues", json!({})).await?;
        let urls = queues["QueueUrls"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let names: Vec<&str> = urls.filter_map(|url| url.rsplit('/').next()).collect();
        all.extend(
            [QUEUE, AUDIT].iter().filter(|it| names.contains(it)).map(|it| format!("queue {it}")),
        );
        for rule in RULES {
            let rules = self.call("events", "AWSEvents.ListRules", json!({})).await?;
            let mut rules = rules["Rules"].as_array().into_iter().flatten();
            if !rules.any(|one| one["Name"] == rule) {
                continue;
            }
            let of_rule = json!({ "Rule": rule });
            let targets = self.call("events", "AWSEvents.ListTargetsByRule", of_rule).await?;
            let targets = targets["Targets"].as_array().into_iter().flatten();
            let ids: Vec<&str> = targets.filter_map(|target| target["Id"].as_str()).collect();
            all.push(format!("rule {rule} for {}", ids.join(" and ")));
        }
        let caller = self.bed.aws()?.caller();
        let group = [("AutoScalingGroupName", GROUP)];
        let hooks = caller.query("autoscaling", "DescribeLifecycleHooks", &group).await?;
        let path = ["DescribeLifecycleHooksResult", "LifecycleHooks"];
        let hooks = hooks.at(&path).ok_or("no list of lifecycle hooks")?;
        let names = hooks.children.iter().filter_map(|hook| hook.get("LifecycleHookName"));
        all.extend(names.map(|name| format!("hook {name}")));
        Ok(all)
    }

    /// Turns the rule of Tenon's on or off by which it hears of spot interruptions.
    ///
    /// # Errors
    /// When AWS refuses.
    pub async fn tenon_hears(self, is_on: bool) -> Result<(), Failure> {
        let action = if is_on { "AWSEvents.EnableRule" } else { "AWSEvents.DisableRule" };
        let rule = json!({ "Name": format!("tenon-{}-spot", self.bed.cluster()) });
        self.call("events", action, rule).await.map(drop)
    }
}
