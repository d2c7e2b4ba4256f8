//! The loop over the interruption queue: a machine that is about to go is drained, and its
//! replacement is planned at once.
//!
//! The NodeClaim is deleted first. From the API server's answer on the state counts its pods as
//! pending, and the provisioner is told that it need not wait for others: the drain, which begins
//! at the same time, has two minutes. What holds a drain can't hold a spot instance, so the drain
//! of one has a deadline, as if its NodeClaim had a termination grace period.

use std::time::Duration;

use aws_sdk_sqs::types::{Message as SqsMessage, MessageSystemAttributeName};
use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use tenon_crds::NodeClaim;
use tenon_crds::labels;
use tenon_planner::snapshot::CapacityType;

use self::message::{Kind, Message};
use super::AwsProvider;
use super::error::{Error, Result};
use super::provider_id::instance_id;
use crate::claims::termination_mode;
use crate::context::Context;
use crate::decisions::Cause;
use crate::events::{Event, EventType, Reason};
use crate::liveness;
use crate::logging::log_failure;
use crate::state::cluster::label;
use crate::text::chain;
use crate::write::{Precondition, WriteError, Writer};

pub mod message;
pub(crate) mod status;

/// Messages that are handled at once.
const WORKERS: usize = 10;
/// After a failure: the queue may be missing, or SQS down.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Handles messages for ever.
pub async fn run(provider: &AwsProvider, context: &Context, write: &Writer) {
    let queue = provider.options.interruption_queue.as_str();
    for kind in Kind::OF_MESSAGES {
        provider.metrics.received_messages.begin([kind.as_str()]);
    }
    let mut url: Option<String> = None;
    let mut retry = FIRST_RETRY;
    loop {
        // Longer than a message is waited for, and than handling ten of them takes.
        let turn = receive_and_handle(provider, context, write, queue, &mut url);
        match liveness::turn(liveness::WORK, turn).await {
            Ok(()) => retry = FIRST_RETRY,
            Err(error) => {
                context.metrics.reconcile_errors.inc(["interruption", error.operation]);
                log_failure!(passing: error.is_retryable(), queue, %error, "failed to read the \
                     interruption queue, retrying");
                // A queue that was deleted and made again may have another URL.
                url = None;
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(LAST_RETRY);
            }
        }
    }
}

async fn receive_and_handle(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    queue: &str,
    known_url: &mut Option<String>,
) -> Result<()> {
    let url = match known_url {
        Some(url) => url.clone(),
        None => known_url.insert(queue_url(provider, queue).await?).clone(),
    };
    let messages = receive(provider, &url).await?;
    stream::iter(messages)
        .for_each_concurrent(WORKERS, |message| handle(provider, context, write, &url, message))
        .await;
    Ok(())
}

async fn queue_url(provider: &AwsProvider, queue: &str) -> Result<String> {
    const OPERATION: &str = "GetQueueUrl";
    let answer = provider
        .clients
        .sqs
        .get_queue_url()
        .queue_name(queue)
        .send()
        .await
        .map_err(|error| Error::from_sdk(OPERATION, &error))?;
    answer.queue_url.ok_or_else(|| Error::unexpected(OPERATION, "the queue has no URL"))
}

async fn receive(provider: &AwsProvider, url: &str) -> Result<Vec<SqsMessage>> {
    let answer = provider
        .clients
        .sqs
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(10)
        .visibility_timeout(20)
        .wait_time_seconds(20)
        .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
        .message_attribute_names("All")
        .send()
        .await
        .map_err(|error| Error::from_sdk("ReceiveMessage", &error))?;
    Ok(answer.messages.unwrap_or_default())
}

/// Handles one message. One that fails stays in the queue and comes again.
async fn handle(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    url: &str,
    raw: SqsMessage,
) {
    let message = match message::parse(raw.body.as_deref().unwrap_or_default()) {
        Ok(message) => Some(message),
        Err(error) => {
            tracing::error!(%error, body = raw.body, "deleting a message that cannot be read");
            None
        }
    };
    if let Some(message) = message {
        provider.metrics.received_messages.inc([message.kind.as_str()]);
        if let Err(error) = act(provider, context, write, &message).await {
            let kind = message.kind.as_str();
            log_failure!(passing: error.is_passing(), kind, error = chain(&error), "failed to \
                 handle a message, it will be redelivered");
            return;
        }
        if let Some(time) = message.time {
            let latency = context.clock.now().duration_since(time).as_secs_f64();
            provider.metrics.message_latency.observe([], latency.max(0.0));
        }
    }
    let deleted = provider
        .clients
        .sqs
        .delete_message()
        .queue_url(url)
        .receipt_handle(raw.receipt_handle.unwrap_or_default())
        .send()
        .await;
    match deleted {
        Ok(_) => provider.metrics.deleted_messages.inc([]),
        Err(error) => {
            let error = Error::from_sdk("DeleteMessage", &error);
            log_failure!(passing: error.is_retryable(), %error, "failed to delete a message, it \
                 will be redelivered");
        }
    }
}

async fn act(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    message: &Message,
) -> std::result::Result<(), WriteError> {
    if message.kind == Kind::NoOp {
        return Ok(());
    }
    for instance in &message.instances {
        act_on_instance(provider, context, write, message.kind, message.time, instance).await?;
    }
    Ok(())
}

/// Acts on the claims of an instance, to which this happened, at this time if it is known; answers
/// how many there are.
async fn act_on_instance(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    kind: Kind,
    time: Option<Timestamp>,
    instance: &str,
) -> std::result::Result<usize, WriteError> {
    let claims =
        provider.claims(|claim| claim.provider_id().and_then(instance_id) == Some(instance));
    for claim in &claims {
        act_on_claim(provider, context, write, kind, time, claim).await?;
    }
    Ok(claims.len())
}

async fn act_on_claim(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    kind: Kind,
    time: Option<Timestamp>,
    claim: &NodeClaim,
) -> std::result::Result<(), WriteError> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let label = |key| label(claim, key);
    tracing::info!(
        nodeclaim = name,
        node = claim.node_name(),
        kind = kind.as_str(),
        "interruption"
    );
    let announced = announcement(kind);
    if let Some((event_type, reason, text)) = announced {
        publish(context, claim, event_type, reason, text, text);
        if !kind.drains() {
            context.decisions.announced(claim, text);
        }
    }
    if kind == Kind::SpotInterrupted
        && let (Some(instance_type), Some(zone)) =
            (label(labels::INSTANCE_TYPE), label(labels::ZONE))
    {
        provider.catalogs.unavailable.mark_offering(
            instance_type,
            zone,
            CapacityType::Spot,
            None,
            kind.as_str(),
        );
    }
    if kind == Kind::CapacityReservationInterrupted
        && let Some(reservation) = label(labels::aws::CAPACITY_RESERVATION_ID)
    {
        provider.catalogs.reservations.exhaust(reservation);
    }
    let deadline = deadline(kind, time, claim, context.clock.now());
    if let Some(by) = deadline
        && !write.bound_drain(claim, by, Precondition::SameUid).await?
    {
        return Ok(());
    }
    if !kind.drains() || claim.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    if !write.delete_claim(claim).await? {
        return Ok(());
    }
    // The pods of the machine need a place now, not when the drain has come to them.
    context.interrupted.notify_one();
    let what = announced.map_or(kind.as_str(), |(_, _, text)| text);
    context.decisions.deleted(claim, Cause::Interrupted(what));
    publish(
        context,
        claim,
        EventType::Warning,
        Reason::TerminatingOnInterruption,
        "Interruption triggered termination for the NodeClaim",
        "Interruption triggered termination for the Node",
    );
    context.metrics.nodeclaims_disrupted.inc([
        kind.as_str(),
        label(labels::NODEPOOL).unwrap_or_default(),
        label(labels::CAPACITY_TYPE).unwrap_or_default(),
        "",
        // Whatever grace period the claim has, it ends at once then.
        if kind.is_forceful() { "forceful" } else { termination_mode(claim) },
    ]);
    Ok(())
}

/// When the drain of a claim's machine has to be over because of this event, if it has to.
fn deadline(
    kind: Kind,
    time: Option<Timestamp>,
    claim: &NodeClaim,
    now: Timestamp,
) -> Option<Timestamp> {
    let is_deleting = claim.metadata.deletion_timestamp.is_some();
    if kind.is_forceful() {
        return (!is_deleting).then_some(now);
    }
    let taken = time.unwrap_or(now).checked_add(kind.notice()?).ok()?;
    // Its own grace period begins with the deletion, and may be shorter.
    let period = claim.spec.termination_grace_period.as_ref().filter(|_| !is_deleting);
    let by = period.and_then(|period| now.checked_add(period.as_signed()).ok());
    Some(by.map_or(taken, |by| by.min(taken)))
}

/// What is said when a message of a kind arrives.
fn announcement(kind: Kind) -> Option<(EventType, Reason, &'static str)> {
    Some(match kind {
        Kind::SpotInterrupted => {
            (EventType::Warning, Reason::SpotInterrupted, "Spot interruption warning was triggered")
        }
        Kind::CapacityReservationInterrupted => (
            EventType::Warning,
            Reason::CapacityReservationInstanceInterrupted,
            "Capacity Reservation interruption warning was triggered",
        ),
        Kind::RebalanceRecommendation => (
            EventType::Normal,
            Reason::SpotRebalanceRecommendation,
            "Spot rebalance recommendation was triggered",
        ),
        Kind::InstanceStopped => {
            (EventType::Warning, Reason::InstanceStopping, "Instance is stopping")
        }
        Kind::InstanceTerminated => {
            (EventType::Warning, Reason::InstanceTerminating, "Instance is terminating")
        }
        Kind::ScheduledChange | Kind::InstanceStatus | Kind::SystemStatus | Kind::EventStatus => (
            EventType::Warning,
            Reason::InstanceUnhealthy,
            "An unhealthy warning was triggered for the instance",
        ),
        Kind::NoOp => return None,
    })
}

/// Says it on the claim and on its node.
fn publish(
    context: &Context,
    claim: &NodeClaim,
    event_type: EventType,
    reason: Reason,
    on_claim: &str,
    on_node: &str,
) {
    use kube::Resource as _;
    let about = |reference, text: &str| {
        context.recorder.publish(Event::about(reference, event_type, reason, text.to_owned()));
    };
    about(claim.object_ref(&()), on_claim);
    if let Some(node) = claim.node_name() {
        let reference = k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            // As the kubelet does: events about nodes go by the name where the uid is not at hand.
            uid: Some(node.to_owned()),
            ..Default::default()
        };
        about(reference, on_node);
    }
}

#[cfg(test)]
mod tests;
