//! NodeClaims that end for a reason that no user asked for: the drain bounded, the deletion, and
//! what is counted.

use jiff::{SignedDuration, Timestamp};
use tenon_crds::NodeClaim;

use crate::claims::{capacity_type_of, pool_of, termination_mode};
use crate::cloud_provider::CloudProvider;
use crate::decisions::Cause;
use crate::operator::Operator;
use crate::state::cluster::name;
use crate::write::{Precondition, WriteError};

/// Deletes a NodeClaim for a reason that no user asked for, counts it, and keeps why.
pub(crate) async fn give_up<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    reason: &'static str,
    cause: Cause<'_>,
) -> Result<(), WriteError> {
    operator.write.delete_claim(claim).await?;
    operator.context.decisions.deleted(claim, cause);
    let (pool, capacity_type) = (pool_of(claim), capacity_type_of(claim));
    tracing::info!(
        nodeclaim = name(&claim.metadata),
        nodepool = pool,
        reason,
        "deleting nodeclaim"
    );
    let labels = [reason, pool, capacity_type, "", termination_mode(claim)];
    operator.context.metrics.nodeclaims_disrupted.inc(labels);
    Ok(())
}

/// How many pods have to find a place elsewhere when the NodeClaim's node goes.
pub(crate) fn pods_to_move<P: CloudProvider>(operator: &Operator<P>, claim: &NodeClaim) -> u64 {
    let state = operator.state.read();
    let node = state.node_of(claim);
    let pods = node.into_iter().flat_map(|node| state.pods_on(node.name()));
    let n_pods = pods.filter(|(_, pod)| pod.is_reschedulable()).count();
    u64::try_from(n_pods).unwrap_or(u64::MAX)
}

/// Lets everything on the machine be gone after this time, unless it has to be gone earlier; false
/// when the NodeClaim is gone.
pub(crate) async fn bound_drain<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    bound: SignedDuration,
) -> Result<bool, WriteError> {
    let by = operator.now().checked_add(bound).unwrap_or(Timestamp::MAX);
    operator.write.bound_drain(claim, by, Precondition::Unchanged).await
}

/// Counts a NodeClaim that goes because of this condition of its node; `mode` is how its machine
/// ends.
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
