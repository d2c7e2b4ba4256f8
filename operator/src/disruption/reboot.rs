//! The beginning of a reboot: it is written on the NodeClaim, and [`crate::nodeclaim::reboot`]
//! carries it out. Nothing is tainted, replaced or marked: the machine comes back.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_crds::conditions::nodeclaim::REBOOTING;
use tenon_crds::{NodeClaim, labels};
use tenon_planner::plan::{Candidate, Command, Repair};

use super::queue::deletion::count;
use super::queue::tell_repair;
use super::set_reason;
use crate::actuate::lower;
use crate::claims::conditions;
use crate::cloud_provider::CloudProvider;
use crate::nodeclaim::reboot::steps::REQUESTED;
use crate::operator::Operator;
use crate::state::change::Change;
use crate::state::cluster::is_true;
use crate::work_queue::{Failure as _, log_concern};
use crate::write::{Precondition, WriteError};

/// Requests the reboots of a command; answers whether one was. What failed is logged, and decided
/// on anew by the next pass.
pub(super) async fn request<P: CloudProvider>(operator: &Operator<P>, command: &Command) -> bool {
    let Some(repair) = &command.repair else { return false };
    tell_repair(repair);
    let mut requested = false;
    for candidate in &command.candidates {
        match commit(operator, candidate, repair).await {
            Ok(Some(claim)) => {
                requested = true;
                tracing::info!(
                    nodeclaim = candidate.claim,
                    node = candidate.node,
                    "committed node reboot"
                );
                operator.context.decisions.rebooting(command, candidate, &claim);
                count(operator, command, candidate, &claim);
                count_decision(operator, command, candidate);
            }
            Ok(None) => {}
            Err(error) => {
                let (concern, error) = (error.concern(), crate::text::chain(&error));
                let nodeclaim = &candidate.claim;
                log_concern!(concern, nodeclaim, error, "failed to request a reboot");
            }
        }
    }
    requested
}

/// Writes down that a machine is to reboot; nothing when it is gone, going, or rebooting already.
async fn commit<P: CloudProvider>(
    operator: &Operator<P>,
    candidate: &Candidate,
    repair: &Repair,
) -> Result<Option<NodeClaim>, WriteError> {
    let claim = {
        let state = operator.state.read();
        let fit = |claim: &&std::sync::Arc<NodeClaim>| {
            !state.is_going(claim) && !is_true(claim, REBOOTING)
        };
        state.claim(&candidate.claim).filter(fit).cloned()
    };
    let Some(claim) = claim else { return Ok(None) };
    let annotations = json!({
        labels::REBOOT_TERMINATION_GRACE_PERIOD: repair.drain_bound.map(text),
        // Of a former reboot; it must not be taken for this one.
        labels::REBOOT_PRE_BOOT_ID: Value::Null,
    });
    let body = json!({"metadata": {"annotations": annotations}});
    let mut claim = operator.write.patch_claim(&claim, body, Precondition::Unchanged).await?;
    let now = operator.now();
    set_reason(&mut claim, "Unhealthy", now);
    let message = format!("rebooting for {}/{}", repair.condition, repair.reason);
    conditions(&mut claim, now).set_true_because(REBOOTING, REQUESTED, &message);
    let claim = operator.write.patch_claim_status(&claim).await?;
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    operator.state.apply(Change::Rebooting(uid, now)).await;
    Ok(Some(claim))
}

/// As Go writes durations.
fn text(bound: SignedDuration) -> String {
    let nanos = i64::try_from(bound.as_nanos()).unwrap_or(i64::MAX);
    tenon_crds::Duration::from_nanos(nanos).to_string()
}

fn count_decision<P: CloudProvider>(
    operator: &Operator<P>,
    command: &Command,
    candidate: &Candidate,
) {
    const DECISION: &str = "reboot";
    let (metrics, reason) = (&operator.context.metrics, lower(command.reason));
    metrics.disruption_decisions.inc([DECISION, reason, ""]);
    metrics.disruption_decisions_by_nodepool.inc([&candidate.node_pool, DECISION, reason, ""]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_written_as_go_writes_them() {
        for (bound, expected) in [
            (SignedDuration::ZERO, "0s"),
            (SignedDuration::from_secs(45), "45s"),
            (SignedDuration::from_mins(5), "5m0s"),
            (SignedDuration::from_mins(90), "1h30m0s"),
        ] {
            assert_eq!(text(bound), expected);
        }
    }
}
