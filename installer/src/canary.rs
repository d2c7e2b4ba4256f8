//! Proof of work: one small node is launched, joins and goes again, and a message in the
//! interruption queue is what makes it go.
//!
//! The node has a NodePool of its own whose limits allow none and whose taint keeps pods away, so
//! that nothing else is launched or placed by it. Everything hangs on that NodePool: whoever
//! deletes it, or its NodeClaim expiring, ends the canary, however this program ends.

use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PropagationPolicy};
use kube::core::ApiResource;
use serde::Serialize;
use serde_json::{Value, json};
use tenon_installer_core::apply::{Context, StepError, wait};
use tenon_installer_core::aws::Calling;
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::object::Key;
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::observe::messaging;
use tenon_installer_core::ownership::INSTALL_ID;
use tokio::time::Instant;

use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::uninstall::prove_terminated;

/// Name of the NodePool and of its NodeClaim.
const NAME: &str = "tenon-canary";
const TAINT: &str = "tenon.sh/canary";

/// How long a message may stay in the queue: the operator asks all the time.
const HANDLING: Duration = Duration::from_mins(1);

/// What was proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Proof {
    /// Type of the instance.
    pub instance_type: String,
    pub zone: String,
    pub instance_id: String,
    /// Seconds until its node was ready.
    pub joined_seconds: u64,
    /// Seconds until the operator had handled the message; without a queue, none was sent.
    pub message_seconds: Option<u64>,
}

/// Launches one node, sees it join, and sees it go.
pub(crate) struct Canary<'a> {
    /// What it works with.
    pub context: &'a Context,
    /// Name of the interruption queue, if there is one.
    pub queue: Option<&'a str>,
    /// How long the node may take to join, and to go.
    pub timeout: Duration,
    /// Tells what is seen.
    pub printer: Printer,
}

impl Canary<'_> {
    /// Runs it. Whatever happens, NodePool and NodeClaim are deleted at the end.
    pub(crate) async fn run(&self, cleanup: &Cleanup) -> Result<Proof, ExpectedError> {
        let template = self.template().await?;
        let doomed = self.context.clone();
        cleanup.add(async move {
            // The command is ending, and there is nobody to tell: the NodeClaim expires by itself.
            let _ = delete(&doomed).await;
        });
        let result = self.launch_and_remove(&template).await;
        delete(self.context).await.map_err(|error| failed(error.into()))?;
        result
    }

    /// A NodePool to take requirements and class from: of what is there, the first that is not ours
    /// for this.
    async fn template(&self) -> Result<Value, ExpectedError> {
        let pools = self.context.cluster.list(&resources::node_pools()).await;
        let pools = pools.map_err(|error| failed(error.into()))?;
        let template = pools
            .into_iter()
            .filter(|pool| pool.name_any() != NAME)
            .find_map(|pool| pool.data.pointer("/spec/template/spec").cloned());
        template.ok_or_else(|| ExpectedError::Preflight {
            reasons: vec![
                "there is no NodePool for a canary: create one, or omit --canary".to_owned(),
            ],
        })
    }

    async fn launch_and_remove(&self, template: &Value) -> Result<Proof, ExpectedError> {
        let cluster = &self.context.cluster;
        // One that an earlier run left would not be made anew.
        delete(self.context).await.map_err(|error| failed(error.into()))?;
        self.until_gone().await?;
        let began = Instant::now();
        let pool = node_pool(template, &self.context.install_id);
        let resource = resources::node_pools();
        cluster
            .create(&resource, &key(&resource), &pool)
            .await
            .map_err(|error| failed(error.into()))?;
        let made = cluster.get(&resource, &key(&resource)).await;
        let made = made.map_err(|error| failed(error.into()))?.unwrap_or_default();
        let uid = made.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let resource = resources::node_claims();
        let claim = node_claim(template, &self.context.install_id, uid);
        cluster
            .create(&resource, &key(&resource), &claim)
            .await
            .map_err(|error| failed(error.into()))?;
        let claim = self.until_ready(began).await?;
        let text = |pointer: &str| {
            claim.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let provider_id = text("/status/providerID");
        let mut proof = Proof {
            instance_type: text("/metadata/labels/node.kubernetes.io~1instance-type"),
            zone: text("/metadata/labels/topology.kubernetes.io~1zone"),
            instance_id: provider_id.rsplit('/').next().unwrap_or_default().to_owned(),
            joined_seconds: began.elapsed().as_secs(),
            message_seconds: None,
        };
        let what = format!("canary {} in {}", proof.instance_type, proof.zone);
        self.printer.done(&what, "joined", began.elapsed());
        let began = Instant::now();
        match self.queue {
            Some(queue) => proof.message_seconds = Some(self.announce(queue, &proof).await?),
            None => delete(self.context).await.map_err(|error| failed(error.into()))?,
        }
        self.until_gone().await?;
        prove_terminated(&self.context.aws, &proof.instance_id, self.timeout)
            .await
            .map_err(failed)?;
        self.printer.done(&what, "removed", began.elapsed());
        Ok(proof)
    }

    async fn until_ready(&self, began: Instant) -> Result<Value, ExpectedError> {
        let resource = resources::node_claims();
        let mut told = String::new();
        loop {
            let live = self.context.cluster.get(&resource, &key(&resource)).await;
            let live = live.map_err(|error| failed(error.into()))?;
            let Some(live) = live else {
                // The operator gives a NodeClaim up that it can't launch, and says why in its
                // events.
                let why = self.with_last_warning(told).await;
                return Err(timeout(
                    "the canary to join",
                    began,
                    format!("the operator gave up on it: {why}"),
                ));
            };
            let Some(missing) = wait::readiness_lacks(Some(&live)) else { return Ok(live) };
            if missing != told {
                self.printer.note(&format!("   canary: {missing}"));
                told = missing;
            }
            if began.elapsed() >= self.timeout {
                let why = self.with_last_warning(told).await;
                return Err(timeout("the canary to join", began, why));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// What its conditions said, and the last thing that the operator warned of.
    async fn with_last_warning(&self, state: String) -> String {
        let events: Api<Event> = Api::all(self.context.cluster.client());
        let about = format!("involvedObject.name={NAME},type=Warning");
        // Events only help to understand: one who may not read them knows the conditions.
        let found = events.list(&ListParams::default().fields(&about)).await;
        let found = found.map(|list| list.items).unwrap_or_default();
        let last = found.into_iter().max_by_key(|event| {
            let at = event.last_timestamp.as_ref().map(|time| time.0);
            at.or_else(|| event.event_time.as_ref().map(|time| time.0))
        });
        match last.and_then(|event| event.message) {
            Some(warning) => format!("{state}; {warning}"),
            None => state,
        }
    }

    async fn until_gone(&self) -> Result<(), ExpectedError> {
        let (resource, cluster) = (resources::node_claims(), &self.context.cluster);
        let gone = || async {
            let live = cluster.get(&resource, &key(&resource)).await?;
            Ok(live.map_or(Ok(()), |_| Err("its NodeClaim is still there".to_owned())))
        };
        let every = Duration::from_millis(500);
        wait::until("the canary to be gone", self.timeout, every, gone).await.map_err(failed)
    }

    /// Sends what EventBridge sends when an instance stops, and waits until the operator has taken
    /// it from the queue and acted. Answers after how many seconds.
    async fn announce(&self, queue: &str, proof: &Proof) -> Result<u64, ExpectedError> {
        let began = Instant::now();
        let aws = &self.context.aws;
        let found = messaging::queue(aws, queue).await.map_err(|error| failed(error.into()))?;
        let Some(found) = found else {
            return Err(failed(Failure::Wait {
                what: format!("queue {queue}"),
                last: "none with that name exists".to_owned(),
            }));
        };
        let body =
            notification(&proof.instance_id, &tenon_installer_core::clock::now().to_string());
        let sent = aws.sqs.send_message().queue_url(&found.url).message_body(body).send().await;
        sent.calling("sqs:SendMessage", format!("queue {queue}"))
            .map_err(|error| failed(error.into()))?;
        let handled = || async {
            let counts = [
                QueueAttributeName::ApproximateNumberOfMessages,
                QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            ];
            let call = aws.sqs.get_queue_attributes().queue_url(&found.url);
            let call = call.set_attribute_names(Some(counts.to_vec())).send().await;
            let answer = call.calling("sqs:GetQueueAttributes", format!("queue {queue}"))?;
            let left = answer.attributes.unwrap_or_default();
            let left = counts.iter().filter_map(|count| left.get(count)?.parse::<u64>().ok());
            let left = left.sum::<u64>();
            let resource = resources::node_claims();
            let live = self.context.cluster.get(&resource, &key(&resource)).await?;
            let goes =
                live.is_none_or(|live| live.pointer("/metadata/deletionTimestamp").is_some());
            Ok(match (goes, left) {
                (true, 0) => Ok(()),
                (false, _) => Err("the operator has not handled it".to_owned()),
                (true, left) => Err(format!(
                    "{} in the queue",
                    tenon_installer_core::words::count(
                        usize::try_from(left).unwrap_or(usize::MAX),
                        "message"
                    )
                )),
            })
        };
        let what = "the message to be handled";
        wait::until(what, HANDLING, Duration::from_millis(500), handled).await.map_err(failed)?;
        self.printer.done("message in the interruption queue", "handled", began.elapsed());
        Ok(began.elapsed().as_secs())
    }
}

fn failed(source: Failure) -> ExpectedError {
    ExpectedError::Step(StepError { step: "canary".to_owned(), done: 0, source })
}

fn timeout(what: &str, began: Instant, last: String) -> ExpectedError {
    ExpectedError::Timeout { what: what.to_owned(), seconds: began.elapsed().as_secs(), last }
}

fn key(resource: &ApiResource) -> Key {
    Key {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: None,
        name: NAME.to_owned(),
    }
}

/// Deletes NodePool and NodeClaim, if they are there.
async fn delete(
    context: &Context,
) -> Result<(), tenon_installer_core::kubernetes::client::KubeError> {
    for resource in [resources::node_claims(), resources::node_pools()] {
        let key = key(&resource);
        context.cluster.delete(&resource, &key, PropagationPolicy::Background).await?;
    }
    Ok(())
}

/// A NodePool that launches nothing by itself.
fn node_pool(template: &Value, install_id: &str) -> Value {
    let resource = resources::node_pools();
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": NAME, "labels": {INSTALL_ID: install_id}},
        "spec": {
            "limits": {"cpu": "0"},
            "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]},
            "template": {"spec": {
                "nodeClassRef": template["nodeClassRef"],
                "requirements": requirements(template),
                "taints": [{"key": TAINT, "effect": "NoSchedule"}],
            }},
        },
    })
}

/// A claim to the cheapest machine that the template's NodePool would take.
fn node_claim(template: &Value, install_id: &str, pool_uid: &str) -> Value {
    let (pools, claims) = (resources::node_pools(), resources::node_claims());
    json!({
        "apiVersion": claims.api_version,
        "kind": claims.kind,
        "metadata": {
            "name": NAME,
            "labels": {"karpenter.sh/nodepool": NAME, INSTALL_ID: install_id},
            "ownerReferences": [{
                "apiVersion": pools.api_version,
                "kind": pools.kind,
                "name": NAME,
                "uid": pool_uid,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeClassRef": template["nodeClassRef"],
            "requirements": requirements(template),
            "taints": [{"key": TAINT, "effect": "NoSchedule"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi", "pods": "1"}},
            // However this program ends, the machine does not stay.
            "expireAfter": "1h",
            "terminationGracePeriod": "5m",
        },
    })
}

/// One machine needs no variety.
fn requirements(template: &Value) -> Value {
    let mut requirements = template["requirements"].clone();
    for requirement in requirements.as_array_mut().into_iter().flatten() {
        if let Some(requirement) = requirement.as_object_mut() {
            requirement.remove("minValues");
        }
    }
    requirements
}

/// What EventBridge sends when an instance is being stopped.
fn notification(instance_id: &str, time: &str) -> String {
    json!({
        "version": "0",
        "id": "tenon-canary",
        "detail-type": "EC2 Instance State-change Notification",
        "source": "aws.ec2",
        "time": time,
        "resources": [],
        "detail": {"instance-id": instance_id, "state": "stopping"},
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_installer_core::aws::Aws;
    use tenon_installer_core::testing::Double;

    fn template() -> Value {
        json!({
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
                {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 15},
            ],
        })
    }

    #[test]
    fn its_node_pool_launches_nothing_and_takes_no_pods() {
        let pool = node_pool(&template(), "abcd0123");
        assert_eq!(pool["spec"]["limits"]["cpu"], "0");
        assert_eq!(pool["spec"]["template"]["spec"]["taints"][0]["key"], TAINT);
        let pool: tenon_crds::NodePool = serde_json::from_value(pool).expect("a NodePool");
        assert_eq!(pool.metadata.name.as_deref(), Some(NAME));
    }

    #[test]
    fn its_claim_asks_for_what_the_node_pool_would_take_and_ends_by_itself() {
        let claim = node_claim(&template(), "abcd0123", "uid");
        let requirements = claim["spec"]["requirements"].as_array().expect("a list");
        assert_eq!(requirements.len(), 2);
        assert!(requirements.iter().all(|requirement| requirement.get("minValues").is_none()));
        assert_eq!(claim["spec"]["expireAfter"], "1h");
        let claim: tenon_crds::NodeClaim = serde_json::from_value(claim).expect("a NodeClaim");
        let owner = &claim.metadata.owner_references.expect("an owner")[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("NodePool", "uid"));
    }

    #[test]
    fn the_message_is_what_event_bridge_sends() {
        let message: Value =
            serde_json::from_str(&notification("i-1", "2026-01-01T00:00:00Z")).expect("JSON");
        assert_eq!(message["detail"], json!({"instance-id": "i-1", "state": "stopping"}));
        assert_eq!(message["source"], "aws.ec2");
    }

    const POOL: &str = "/apis/karpenter.sh/v1/nodepools/default";

    fn pool() -> Value {
        let resource = resources::node_pools();
        json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": "default"},
            "spec": {"template": {"spec": template()}},
        })
    }

    #[tokio::test]
    async fn one_that_never_joins_says_why_leaves_nothing_and_ends_with_code_4() {
        let warning = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "canary.1", "namespace": "default"},
            "involvedObject": {"kind": "NodeClaim", "name": NAME},
            "type": "Warning",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "message": "no arm64 capacity in eu-central-1a",
        });
        let server = Double::start(&[(POOL, pool()), ("/api/v1/events/1", warning)]).await;
        let context = Context {
            aws: Aws::nowhere(),
            cluster: server.cluster(),
            cluster_name: "prod".to_owned(),
            install_id: "abcd0123".to_owned(),
        };
        let canary = Canary {
            context: &context,
            queue: None,
            timeout: Duration::from_millis(50),
            printer: Printer::new(crate::printer::OutputFormat::Json, true),
        };
        let error = canary.run(&Cleanup::default()).await.expect_err("nobody launches it");
        assert_eq!(error.exit_code(), crate::exit_codes::EXIT_PARTIAL);
        let details = error.details().join(" ");
        assert!(details.contains("the operator has not processed it yet"), "{details}");
        assert!(details.contains("no arm64 capacity"), "{details}");
        assert_eq!(server.paths(), ["/api/v1/events/1", POOL], "NodePool and NodeClaim are gone");
    }

    #[tokio::test]
    async fn without_a_node_pool_none_is_launched() {
        let server = Double::start(&[]).await;
        let context = Context {
            aws: Aws::nowhere(),
            cluster: server.cluster(),
            cluster_name: "prod".to_owned(),
            install_id: "abcd0123".to_owned(),
        };
        let printer = Printer::new(crate::printer::OutputFormat::Json, true);
        let canary = Canary { context: &context, queue: None, timeout: Duration::ZERO, printer };
        let error = canary.run(&Cleanup::default()).await.expect_err("nothing to copy from");
        assert_eq!(error.exit_code(), crate::exit_codes::EXIT_PREFLIGHT);
        assert!(server.paths().is_empty());
    }
}
