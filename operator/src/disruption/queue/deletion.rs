//! The end of a command: its candidates are deleted, when everything that replaces them is there.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_crds::{NodeClaim, labels};
use tenon_planner::plan::{Candidate, Command};

use super::Started;
use crate::actuate::lower;
use crate::cloud_provider::CloudProvider;
use crate::disruption::moves::consolidation_type;
use crate::events::{Event, Reason};
use crate::nodeclaim::{capacity_type_of, pool_of, termination_mode};
use crate::operator::Operator;
use crate::state::cluster::annotation;
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

/// Sets the time by which everything has to be gone from the machine, unless an earlier one is set; false when the NodeClaim is gone.
pub(crate) async fn bound_drain<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    bound: SignedDuration,
) -> Result<bool, WriteError> {
    let set = annotation(claim, labels::TERMINATION_TIMESTAMP);
    let Some(text) = tightened(set, bound, operator.now()) else { return Ok(true) };
    let body = json!({"metadata": {"annotations": {labels::TERMINATION_TIMESTAMP: text}}});
    match operator.write.patch_claim(claim, body, true).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// What to write for the end of a drain, `None` when what is set is no later. What can't be read counts as not set.
fn tightened(set: Option<&str>, bound: SignedDuration, now: Timestamp) -> Option<String> {
    let by = now.checked_add(bound).unwrap_or(Timestamp::MAX);
    let text = tenon_crds::Timestamp(by).to_string();
    // Both as they are written, in whole seconds.
    let by: Timestamp = text.parse().unwrap_or(by);
    let earlier = set.and_then(|set| set.parse::<Timestamp>().ok()).is_some_and(|set| set <= by);
    (!earlier).then_some(text)
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

/// Counts a NodeClaim that goes because of this condition of its node; `mode` is how its machine ends.
pub(crate) fn count_unhealthy<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    condition: &str,
    mode: &'static str,
) {
    let image = claim.status.as_ref().and_then(|status| status.image_id.as_deref());
    let condition = snake_case(condition);
    let (pool, capacity_type) = (pool_of(claim), capacity_type_of(claim));
    let labels = [condition.as_str(), pool, capacity_type, image.unwrap_or_default(), mode];
    operator.context.metrics.nodeclaims_unhealthy_disrupted.inc(labels);
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

/// `StorageReady` as `storage_ready`, and `KWOKUnhealthy` as `kwok_unhealthy`.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::with_capacity(name.len() + 4);
    for (index, &letter) in letters.iter().enumerate() {
        let starts_word = letter.is_uppercase()
            && index.checked_sub(1).is_some_and(|before| {
                let next = letters.get(index + 1);
                !letters[before].is_uppercase() || next.is_some_and(|next| next.is_lowercase())
            });
        if starts_word {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_only_ever_shortened() {
        let now: Timestamp = "2026-11-20T12:00:00.7Z".parse().unwrap();
        let minutes = SignedDuration::from_mins;
        let expected = |minute: u32| Some(format!("2026-11-20T12:{minute:02}:00Z"));
        assert_eq!(tightened(None, SignedDuration::ZERO, now), expected(0));
        assert_eq!(tightened(None, minutes(5), now), expected(5));
        assert_eq!(tightened(Some("2026-11-20T12:06:00Z"), minutes(5), now), expected(5));
        assert_eq!(tightened(Some("soon"), minutes(5), now), expected(5));
        assert_eq!(tightened(Some("2026-11-20T12:05:00Z"), minutes(5), now), None);
        assert_eq!(tightened(Some("2026-11-20T12:04:00Z"), minutes(5), now), None);
    }

    #[test]
    fn conditions_are_labelled_in_snake_case() {
        for (name, expected) in [
            ("Ready", "ready"),
            ("AcceleratedHardwareReady", "accelerated_hardware_ready"),
            ("KWOKUnhealthy", "kwok_unhealthy"),
        ] {
            assert_eq!(snake_case(name), expected);
        }
    }
}
