//! `status.lastPodEventTime`: when a pod last came to a node or left it, for `consolidateAfter`.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;
use crate::state::change::Touched;
use crate::work::{Action, Backoff, WorkQueue, settle};
use crate::write::WriteError;

const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_mins(1) };

/// Events within this time after the last one are not worth a write.
const DEDUPE: SignedDuration = SignedDuration::from_secs(10);

/// Writes down pod events until `stop`. Keys are names of Nodes.
pub async fn run<P: CloudProvider>(operator: Arc<Operator<P>>, stop: CancellationToken) {
    let queue = WorkQueue::new();
    let sink = queue.clone();
    operator.state.subscribe(move |touched| {
        if let Touched::Pod(_, event) = touched
            && event.moved
            && let Some(node) = &event.node
        {
            sink.add(node.clone());
        }
    });
    let workers = operator.options.workers(10, 1000);
    queue
        .run(workers, BACKOFF, stop, |node| {
            let operator = Arc::clone(&operator);
            async move {
                let result = reconcile(&operator, &node).await;
                settle(&operator.context, "nodeclaim.podevents", &node, result)
            }
        })
        .await;
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    node: &str,
) -> Result<Action, WriteError> {
    let claim = {
        let state = operator.state.read();
        state.node(node).and_then(|node| state.claim_of(node)).cloned()
    };
    let Some(claim) = claim else { return Ok(Action::Wait) };
    let now = operator.now();
    let last = claim.status.as_ref().and_then(|status| status.last_pod_event_time);
    let recent = last.is_some_and(|last| now.duration_since(last.0) < DEDUPE);
    if recent || claim.metadata.deletion_timestamp.is_some() {
        return Ok(Action::Wait);
    }
    let mut claim = (*claim).clone();
    claim.status.get_or_insert_default().last_pod_event_time = Some(now.into());
    operator.write.patch_claim_status(&claim).await?;
    Ok(Action::Wait)
}
