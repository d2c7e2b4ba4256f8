//! Steps of a move from Node Termination Handler: its pods end, its messages move into our queue,
//! and the hooks that fed its queue go.

use std::time::Duration;

use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, QueueAttributeName};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Context, Progress, patch, wait};
use crate::aws::{Aws, AwsError, Calling, IfThere};
use crate::failure::Failure;
use crate::kubernetes::object::Object;
use crate::ownership::ADOPTED_BY;
use crate::words::count;

/// A label that no node has: a DaemonSet that selects it has no pods.
pub const NOWHERE: &str = "tenon.sh/stopped";

/// How long a message stays hidden that is being moved, in seconds. Were the move to end in
/// between, it would be back after that.
const HIDDEN: i32 = 30;

/// As many messages as SQS hands out at once.
const BATCH: u8 = 10;

/// How often a queue must be found empty in a row: its counts are approximate.
const EMPTY: u32 = 3;

/// Keeps the pods of a DaemonSet off all nodes and waits until they are gone.
pub(super) async fn stop(
    context: &Context,
    daemon_set: &Object,
    install_id: &str,
    (seconds, progress): (u64, &dyn Progress),
) -> Result<(), Failure> {
    let body = json!({
        "metadata": {"annotations": {ADOPTED_BY: install_id}},
        "spec": {"template": {"spec": {"nodeSelector": {NOWHERE: "true"}}}},
    });
    patch(context, daemon_set, &body).await?;
    let what = format!("the pods of {} to end", daemon_set.key());
    let told = wait::LastReport::default();
    let at_most = Duration::from_secs(seconds);
    wait::until(&what, at_most, Duration::from_millis(500), || async {
        let live = context.cluster.get(&daemon_set.resource, &daemon_set.key()).await?;
        let Some(left) = live.as_ref().and_then(pods_left) else { return Ok(Ok(())) };
        if told.is_new(&left) {
            progress.note(&format!("   {}: {left}", daemon_set.key()));
        }
        Ok(Err(left))
    })
    .await
}

/// What is still running of a DaemonSet that runs nowhere, or `None`. Its pods count until they
/// have ended.
fn pods_left(live: &Value) -> Option<String> {
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    if number("/status/observedGeneration") < number("/metadata/generation") {
        return Some("its controller has not processed it yet".to_owned());
    }
    let pods = ["/status/currentNumberScheduled", "/status/numberMisscheduled"];
    let left = usize::try_from(pods.into_iter().map(number).sum::<u64>()).unwrap_or(usize::MAX);
    (left > 0).then(|| format!("{} left", count(left, "pod")))
}

/// Lets the pods of a DaemonSet onto their nodes again.
pub(super) async fn start(context: &Context, daemon_set: &Object) -> Result<(), Failure> {
    let body = json!({
        "metadata": {"annotations": {ADOPTED_BY: null}},
        "spec": {"template": {"spec": {"nodeSelector": {NOWHERE: null}}}},
    });
    patch(context, daemon_set, &body).await
}

/// Removes a lifecycle hook; one that is gone is no error. Instances that wait for it go on.
pub(super) async fn delete_hook(aws: &Aws, group: &str, name: &str) -> Result<(), Failure> {
    let call = aws.auto_scaling.delete_lifecycle_hook();
    let call = call.auto_scaling_group_name(group).lifecycle_hook_name(name).send().await;
    let what = format!("lifecycle hook {group}/{name}");
    match call.calling("autoscaling:DeleteLifecycleHook", what) {
        // The only thing that can be invalid about two names is that nothing has them.
        Err(error) if error.has_code(&["ValidationError"]) => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}

/// Moves all messages of a queue into another, also those that somebody received and did not
/// delete: they turn up again. A message is deleted only once the other queue has it, so it may
/// arrive twice, and is never lost. A queue that is gone has none.
///
/// A queue that is `fed` for good is never empty. What turns up within so many seconds is moved:
/// then nothing is in flight any more that was there before.
pub(super) async fn move_messages(
    aws: &Aws,
    (from, to): (&str, &str),
    fed: Option<u64>,
    (seconds, progress): (u64, &dyn Progress),
) -> Result<(), Failure> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let settled = fed.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut moved, mut empty) = (0, 0);
    loop {
        let Some(messages) = receive(aws, from).await? else { break };
        send(aws, to, &messages).await?;
        delete(aws, from, &messages).await?;
        moved += messages.len();
        if let Some(settled) = settled {
            // A full batch may not be the last one.
            if Instant::now() >= settled && messages.len() < usize::from(BATCH) {
                break;
            }
            continue;
        }
        if !messages.is_empty() {
            empty = 0;
            continue;
        }
        let Some(left) = left(aws, from).await? else { break };
        empty = if left == 0 { empty + 1 } else { 0 };
        if empty == EMPTY {
            break;
        }
        if Instant::now() >= end {
            let what = format!("queue {from} to be empty");
            let last = format!("{} left", count(left, "message"));
            return Err(Failure::Wait { what, last });
        }
    }
    progress.note(&format!("   {} moved", count(moved, "message")));
    Ok(())
}

async fn receive(aws: &Aws, queue: &str) -> Result<Option<Vec<Message>>, AwsError> {
    let call = aws.sqs.receive_message().queue_url(queue).max_number_of_messages(i32::from(BATCH));
    // Asks all servers that hold the queue, not a sample of them.
    let call = call.wait_time_seconds(1).visibility_timeout(HIDDEN).send().await;
    let found = call.calling("sqs:ReceiveMessage", queue).if_there()?;
    Ok(found.map(|found| found.messages.unwrap_or_default()))
}

/// Messages that are in the queue, in flight or delayed.
async fn left(aws: &Aws, queue: &str) -> Result<Option<usize>, AwsError> {
    let call = aws.sqs.get_queue_attributes().queue_url(queue);
    let call = call.attribute_names(QueueAttributeName::All).send().await;
    let Some(found) = call.calling("sqs:GetQueueAttributes", queue).if_there()? else {
        return Ok(None);
    };
    let attributes = found.attributes.unwrap_or_default();
    let counts = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        QueueAttributeName::ApproximateNumberOfMessagesDelayed,
    ];
    let number = |name| attributes.get(&name).and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Some(counts.into_iter().map(number).sum()))
}

/// Each alone: ten of them may be too large for one call.
async fn send(aws: &Aws, queue: &str, messages: &[Message]) -> Result<(), AwsError> {
    for message in messages {
        let body = message.body.as_deref().unwrap_or_default();
        let call = aws.sqs.send_message().queue_url(queue).message_body(body).send().await;
        call.calling("sqs:SendMessage", queue)?;
    }
    Ok(())
}

async fn delete(aws: &Aws, queue: &str, messages: &[Message]) -> Result<(), AwsError> {
    if messages.is_empty() {
        return Ok(());
    }
    let handles = messages.iter().filter_map(|message| message.receipt_handle.as_deref());
    let entries = handles.enumerate().map(|(at, handle)| {
        let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string());
        entry.receipt_handle(handle).build().expect("id and handle are set")
    });
    let call = aws.sqs.delete_message_batch().queue_url(queue);
    // One that could not be deleted turns up again, and moves twice.
    let call = call.set_entries(Some(entries.collect())).send().await;
    call.calling("sqs:DeleteMessage", queue).if_there()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_set_is_stopped_once_its_last_pod_has_ended() {
        let left = |observed: u64, scheduled: u64, misscheduled: u64| {
            pods_left(&json!({
                "metadata": {"generation": 2},
                "status": {
                    "observedGeneration": observed,
                    "currentNumberScheduled": scheduled,
                    "numberMisscheduled": misscheduled,
                },
            }))
        };
        assert_eq!(left(1, 0, 0).as_deref(), Some("its controller has not processed it yet"));
        assert_eq!(left(2, 0, 2).as_deref(), Some("2 pods left"));
        assert_eq!(left(2, 1, 0).as_deref(), Some("1 pod left"));
        assert_eq!(left(2, 0, 0), None);
    }
}
