//! EventBridge as a region would drive it: events of EC2 and AWS Health go to the rules that are
//! there, and to the queues whose policy lets EventBridge in.
//!
//! moto holds the rules, targets and queues. Its own PutEvents leaves out `account`, ignores queue
//! policies and accepts `aws.*` sources from anybody, so events are matched and delivered here, and
//! PutEvents with such a source is refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::aws_state::AwsState;
use super::instances::StateChange;
use super::kms::{self, KeyRefusal};
use super::policy::{Caller, Context};
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};
use queue_policy::QueueRefusal;

mod pattern;
mod queue_policy;
#[cfg(test)]
mod tests;

/// An event before its envelope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// `aws.ec2`, `aws.health`.
    pub source: String,
    /// `EC2 Spot Instance Interruption Warning`.
    pub detail_type: String,
    /// ARNs of what it is about.
    #[serde(default)]
    pub resources: Vec<String>,
    /// Detail.
    pub detail: Value,
}

/// What became of an event at one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Rule.
    pub rule: String,
    /// ARN of the target.
    pub target: String,
    /// Why it did not arrive; `None` when it did.
    pub failure: Option<String>,
}

impl Event {
    fn of_instance(aws_state: &AwsState, detail_type: &str, id: &str, detail: Value) -> Self {
        let arn = aws_state.arn("ec2", &format!("instance/{id}"));
        Self {
            source: "aws.ec2".to_owned(),
            detail_type: detail_type.to_owned(),
            resources: vec![arn],
            detail,
        }
    }

    /// Two minutes' notice that a spot instance is taken back.
    pub fn spot_interruption(aws_state: &AwsState, id: &str) -> Self {
        let detail = json!({ "instance-id": id, "instance-action": "terminate" });
        Self::of_instance(aws_state, "EC2 Spot Instance Interruption Warning", id, detail)
    }

    /// A spot instance is at risk.
    pub fn rebalance(aws_state: &AwsState, id: &str) -> Self {
        Self::of_instance(
            aws_state,
            "EC2 Instance Rebalance Recommendation",
            id,
            json!({ "instance-id": id }),
        )
    }

    /// An instance of an interruptible capacity reservation is taken back.
    pub fn capacity_reservation_interruption(aws_state: &AwsState, id: &str) -> Self {
        let detail = json!({ "instance-id": id, "instance-action": "terminate" });
        Self::of_instance(
            aws_state,
            "EC2 Capacity Reservation Instance Interruption Warning",
            id,
            detail,
        )
    }

    /// An instance has another state.
    pub fn state_change(aws_state: &AwsState, change: &StateChange) -> Self {
        let detail = json!({ "instance-id": change.id, "state": change.state.as_str() });
        Self::of_instance(aws_state, "EC2 Instance State-change Notification", &change.id, detail)
    }

    /// AWS Health announces maintenance of instances.
    pub fn scheduled_change(aws_state: &AwsState, ids: &[String], code: &str) -> Self {
        let now = aws_state.clock().now();
        let entities: Vec<Value> = ids.iter().map(|id| json!({ "entityValue": id })).collect();
        let detail = json!({
            "eventArn": format!("arn:{}:health:{}::event/EC2/{code}/{code}_{}", aws_state.partition(), aws_state.region(), aws_state.id("e")),
            "service": "EC2",
            "eventTypeCode": code,
            "eventTypeCategory": "scheduledChange",
            "startTime": health_time(now),
            "endTime": health_time(now),
            "eventDescription": [{ "language": "en_US", "latestDescription": "A maintenance is scheduled for these instances." }],
            "affectedEntities": entities,
        });
        Self {
            source: "aws.health".to_owned(),
            detail_type: "AWS Health Event".to_owned(),
            resources: ids.to_vec(),
            detail,
        }
    }

    fn envelope(&self, aws_state: &AwsState) -> Value {
        json!({
            "version": "0",
            "id": super::response::event_id(),
            "detail-type": self.detail_type,
            "source": self.source,
            "account": aws_state.account(),
            "time": aws_state.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "region": aws_state.region(),
            "resources": self.resources,
            "detail": self.detail,
        })
    }
}

fn health_time(at: Timestamp) -> String {
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// A rule with an event pattern, and its targets' ARNs.
struct Rule {
    name: String,
    arn: String,
    pattern: Value,
    targets: Vec<String>,
}

/// Sends events through the rules of the region; says what became of each at each rule that
/// matched.
pub(crate) async fn emit(
    aws_state: &AwsState,
    events: &[Event],
) -> Result<Vec<Delivery>, AwsError> {
    let mut deliveries = Vec::new();
    if events.is_empty() {
        return Ok(deliveries);
    }
    let rules = rules(aws_state).await?;
    let mut queues: BTreeMap<String, Result<Queue, Undelivered>> = BTreeMap::new();
    for event in events {
        let envelope = event.envelope(aws_state);
        for rule in &rules {
            match pattern::matches(&rule.pattern, &envelope) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    let reason = error.to_string();
                    tracing::warn!(
                        rule = rule.name,
                        reason,
                        "the double can't evaluate this event pattern; the event is not delivered"
                    );
                    deliveries.push(Delivery {
                        rule: rule.name.clone(),
                        target: String::new(),
                        failure: Some(reason),
                    });
                    continue;
                }
            }
            for target in &rule.targets {
                if !queues.contains_key(target) {
                    queues.insert(target.clone(), queue(aws_state, target).await);
                }
                let delivered = deliver(aws_state, &queues[target], rule, target, &envelope).await;
                let failure = delivered.err().map(|error| error.to_string());
                if let Some(reason) = &failure {
                    tracing::warn!(
                        rule = rule.name,
                        target,
                        reason,
                        "an event does not reach its target (AWS counts a FailedInvocation)"
                    );
                }
                deliveries.push(Delivery {
                    rule: rule.name.clone(),
                    target: target.clone(),
                    failure,
                });
            }
        }
    }
    Ok(deliveries)
}

async fn rules(aws_state: &AwsState) -> Result<Vec<Rule>, AwsError> {
    let moto = aws_state.moto();
    let mut rules = Vec::new();
    let mut token = Value::Null;
    loop {
        let body = if token.is_null() { json!({}) } else { json!({ "NextToken": token }) };
        let answer = moto.json("events", "AWSEvents.ListRules", &body).await?;
        for rule in answer["Rules"].as_array().into_iter().flatten() {
            let text = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
            if text("State") != "ENABLED" {
                continue;
            }
            let Ok(pattern) = serde_json::from_str(&text("EventPattern")) else { continue };
            let targets = moto
                .json("events", "AWSEvents.ListTargetsByRule", &json!({ "Rule": text("Name") }))
                .await?;
            let targets = targets["Targets"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|target| Some(target["Arn"].as_str()?.to_owned()))
                .collect();
            rules.push(Rule { name: text("Name"), arn: text("Arn"), pattern, targets });
        }
        token = answer["NextToken"].clone();
        if token.is_null() {
            return Ok(rules);
        }
    }
}

/// Why an event does not reach a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Undelivered {
    #[error("the double delivers only to SQS queues")]
    NotAQueue,
    #[error(transparent)]
    Queue(#[from] QueueRefusal),
    #[error(transparent)]
    Key(#[from] KeyRefusal),
    #[error(transparent)]
    Sqs(#[from] AwsError),
}

struct Queue {
    url: String,
    policy: Option<String>,
    key: Option<String>,
}

/// The queue behind a target's ARN, or why it can't be reached.
async fn queue(aws_state: &AwsState, target: &str) -> Result<Queue, Undelivered> {
    let Some(name) = target
        .strip_prefix("arn:")
        .filter(|rest| rest.contains(":sqs:"))
        .and_then(|rest| rest.rsplit(':').next())
    else {
        return Err(Undelivered::NotAQueue);
    };
    let moto = aws_state.moto();
    let named = json!({ "QueueName": name });
    let found = moto.json("sqs", "AmazonSQS.GetQueueUrl", &named).await?;
    let url = found["QueueUrl"].as_str().unwrap_or_default().to_owned();
    let body = json!({ "QueueUrl": url, "AttributeNames": ["Policy", "KmsMasterKeyId"] });
    let attributes = moto.json("sqs", "AmazonSQS.GetQueueAttributes", &body).await?;
    let attribute = |name: &str| {
        let text = attributes["Attributes"][name].as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
    };
    Ok(Queue { url, policy: attribute("Policy"), key: attribute("KmsMasterKeyId") })
}

async fn deliver(
    aws_state: &AwsState,
    queue: &Result<Queue, Undelivered>,
    rule: &Rule,
    target: &str,
    envelope: &Value,
) -> Result<(), Undelivered> {
    let queue = queue.as_ref().map_err(Clone::clone)?;
    queue_policy::allows(queue.policy.as_deref(), target, &rule.arn, aws_state.account())?;
    if let Some(key) = &queue.key {
        let context = Context::new()
            .with("aws:SourceArn", &rule.arn)
            .with("aws:SourceAccount", aws_state.account())
            .with("kms:ViaService", kms::via_sqs(aws_state));
        let service = Caller::Service(queue_policy::SERVICE);
        kms::allows(aws_state, key, service, &kms::ENCRYPT, &context).await?;
    }
    let body = json!({ "QueueUrl": queue.url, "MessageBody": envelope.to_string() });
    aws_state.moto().json("sqs", "AmazonSQS.SendMessage", &body).await?;
    Ok(())
}

/// EventBridge calls: all moto's, except that nobody may send events in AWS's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventBridge;

impl Service for EventBridge {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "events"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let entries = request.json["Entries"].as_array().cloned().unwrap_or_default();
        let is_aws = |entry: &Value| {
            entry["Source"].as_str().is_some_and(|source| source.starts_with("aws."))
        };
        if request.action != "PutEvents" || !entries.iter().any(is_aws) {
            return aws_state.moto().forward(request).await;
        }
        let answers: Vec<Value> = entries
            .iter()
            .map(|entry| {
                // A batch with one such entry is sent by nobody; its other entries are to be
                // sent again.
                let code = if is_aws(entry) {
                    "NotAuthorizedForSourceException"
                } else {
                    "InternalFailure"
                };
                json!({ "ErrorCode": code, "ErrorMessage": "Not authorized for the source." })
            })
            .collect();
        Ok(AwsResponse::json(
            request,
            &json!({ "FailedEntryCount": answers.len(), "Entries": answers }),
        ))
    }
}
