//! The end of a command: its candidates are deleted, when everything that replaces them is there.

use tenon_crds::NodeClaim;
use tenon_planner::plan::{Candidate, Command};

use super::Started;
use crate::actuate::claims::{bound_drain, count_unhealthy};
use crate::actuate::lower;
use crate::claims::{capacity_type_of, pool_of, termination_mode};
use crate::cloud_provider::CloudProvider;
use crate::disruption::moves::consolidation_type;
use crate::events::{Event, Reason};
use crate::operator::Operator;
use crate::write::WriteError;

/// Deletes a candidate, and counts it.
pub(super) async fn delete<P: CloudProvider>(
    operator: &Operator<P>,
    started: &Started,
    candidate: &Candidate,
) -> Result<(), WriteError> {
    let (claim, node) = {
        let state = operator.state.read();
        let claim = state.claim(&candidate.claim).cloned();
        let node = claim.as_ref().and_then(|claim| state.node_of(claim).cloned());
        (claim, node)
    };
    // Somebody was faster, or an earlier try got this far.
    let Some(claim) = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none()) else {
        return Ok(());
    };
    let command = &started.command;
    if let Some(bound) = command.repair.as_ref().and_then(|repair| repair.drain_bound)
        && !bound_drain(operator, &claim, bound).await?
    {
        return Ok(());
    }
    operator.write.delete_claim(&claim).await?;
    let recorder = &operator.context.recorder;
    let message = format!("Disrupting NodeClaim: {:?}", command.reason);
    recorder.publish(Event::normal(&*claim, Reason::DisruptionTerminating, message));
    if let Some(node) = node {
        let message = format!("Disrupting Node: {:?}", command.reason);
        recorder.publish(Event::normal(&*node, Reason::DisruptionTerminating, message));
    }
    count(operator, command, candidate, &claim);
    Ok(())
}

/// Counts a candidate of a command that goes or restarts.
pub(crate) fn count<P: CloudProvider>(
    operator: &Operator<P>,
    command: &Command,
    candidate: &Candidate,
    claim: &NodeClaim,
) {
    let metrics = &operator.context.metrics;
    let (pool, capacity_type) = (pool_of(claim), capacity_type_of(claim));
    let policy = consolidation_policy(operator, command, claim);
    let labels = [lower(command.reason), pool, capacity_type, policy, termination_mode(claim)];
    metrics.nodeclaims_disrupted.inc(labels);
    let n_pods = u64::try_from(candidate.pods.len()).unwrap_or(u64::MAX);
    metrics.pods_disruption_initiated.add(labels, n_pods);
    if let Some(repair) = &command.repair {
        // The mode of the drain as it is bounded, not as the NodeClaim has it.
        let mode = match repair.drain_bound {
            None => termination_mode(claim),
            Some(bound) if bound.is_zero() => "forceful",
            Some(_) => "eventual",
        };
        count_unhealthy(operator, claim, &repair.condition, mode);
    }
}

fn consolidation_policy<P: CloudProvider>(
    operator: &Operator<P>,
    command: &Command,
    claim: &NodeClaim,
) -> &'static str {
    use tenon_crds::ConsolidationPolicy as Policy;
    if consolidation_type(command.method).is_empty() {
        return "";
    }
    let state = operator.state.read();
    let pool = state.pool(pool_of(claim));
    pool.map_or("", |pool| match pool.spec.disruption.consolidation_policy {
        Policy::WhenEmpty => "when_empty",
        Policy::WhenEmptyOrUnderutilized => "when_empty_or_underutilized",
        Policy::Balanced => "balanced",
    })
}
