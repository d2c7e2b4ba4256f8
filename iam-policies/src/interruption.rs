//! The interruption queue's policy and the five EventBridge rules that feed it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Document, Principal, Statement};
use crate::scope::Scope;

/// The id of the one target that every rule has.
pub const TARGET_ID: &str = "KarpenterInterruptionQueueTarget";

/// How long messages stay in the queue, in seconds. An interruption is over in two minutes; older
/// messages would only mislead.
pub const MESSAGE_RETENTION_SECONDS: u32 = 300;

/// What a rule of ours listens for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptionRule {
    /// AWS plans maintenance on an instance.
    ScheduledChange,
    /// A spot instance will be taken away in two minutes.
    SpotInterruption,
    /// A spot instance is likelier than before to be taken away.
    Rebalance,
    /// An instance stops or is terminated.
    InstanceStateChange,
    /// The owner of a capacity reservation takes back what was lent.
    CapacityReservationInterruption,
}

/// An EventBridge event pattern: an event matches when each field has one of the listed values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct EventPattern {
    /// Who sends the event.
    pub source: Vec<String>,
    /// The kind of event.
    pub detail_type: Vec<String>,
    /// Fields of the event's detail.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub detail: BTreeMap<String, Vec<String>>,
}

impl InterruptionRule {
    /// All rules, in the order in which they are shown.
    pub const ALL: [Self; 5] = [
        Self::ScheduledChange,
        Self::SpotInterruption,
        Self::Rebalance,
        Self::InstanceStateChange,
        Self::CapacityReservationInterruption,
    ];

    /// The short name: the suffix of the rule's own name, and the value of its component tag after
    /// `rule-`.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::ScheduledChange => "health",
            Self::SpotInterruption => "spot",
            Self::Rebalance => "rebalance",
            Self::InstanceStateChange => "state",
            Self::CapacityReservationInterruption => "capres",
        }
    }

    /// Upstream's pattern: everything of the kind, in the whole account.
    pub fn upstream_pattern(self) -> EventPattern {
        let (source, detail_type) = match self {
            Self::ScheduledChange => ("aws.health", "AWS Health Event"),
            Self::SpotInterruption => ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
            Self::Rebalance => ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
            Self::InstanceStateChange => ("aws.ec2", "EC2 Instance State-change Notification"),
            Self::CapacityReservationInterruption => {
                ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning")
            }
        };
        EventPattern {
            source: vec![source.to_owned()],
            detail_type: vec![detail_type.to_owned()],
            detail: BTreeMap::new(),
        }
    }

    /// Upstream's pattern without the events that the controller would only throw away: `pending`
    /// and `running` of every instance in the account, and health events that are no scheduled
    /// changes.
    pub fn pattern(self) -> EventPattern {
        let detail: &[(&str, &[&str])] = match self {
            Self::ScheduledChange => {
                &[("eventTypeCategory", &["scheduledChange"]), ("service", &["EC2"])]
            }
            Self::InstanceStateChange => {
                &[("state", &["stopping", "stopped", "shutting-down", "terminated"])]
            }
            Self::SpotInterruption | Self::Rebalance | Self::CapacityReservationInterruption => &[],
        };
        let detail = detail.iter().map(|(key, values)| {
            ((*key).to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
        });
        EventPattern { detail: detail.collect(), ..self.upstream_pattern() }
    }
}

impl EventPattern {
    /// The pattern as one line of JSON: what EventBridge stores.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self)
            .expect("a pattern is maps and lists of strings, which always serialise")
    }
}

/// The queue's policy: only these rules of this account may send, and only over TLS may anybody do
/// anything. `None` when the scope has no queue.
///
/// `rules` are the names of the rules on the default bus.
pub fn queue_policy(scope: &Scope, rules: &[String]) -> Option<Document> {
    let queue = scope.queue_arn()?;
    let send = Statement::allow("AllowInterruptionRules", ["sqs:SendMessage"])
        .by(Principal::service(["events.amazonaws.com"]))
        .on([&queue])
        .when("ArnEquals", "aws:SourceArn", rules.iter().map(|rule| scope.rule_arn(rule)))
        .when("StringEquals", "aws:SourceAccount", [&scope.account]);
    Some(Document::new([send, deny_http(&queue)]).with_id("EC2InterruptionPolicy"))
}

/// The queue's policy as upstream's template has it: any rule of any account may send. `None` when
/// the scope has no queue.
pub fn queue_policy_upstream(scope: &Scope) -> Option<Document> {
    let queue = scope.queue_arn()?;
    let services = Principal::service(["events.amazonaws.com", "sqs.amazonaws.com"]);
    let send = Statement::allow("", ["sqs:SendMessage"]).by(services).on([&queue]);
    Some(Document::new([send, deny_http(&queue)]).with_id("EC2InterruptionPolicy"))
}

fn deny_http(queue: &str) -> Statement {
    Statement::deny("DenyHTTP", ["sqs:*"]).by(Principal::Anyone).on([queue]).when(
        "Bool",
        "aws:SecureTransport",
        ["false"],
    )
}

#[cfg(test)]
mod tests;
