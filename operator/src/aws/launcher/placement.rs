//! Placement groups: which partition a machine goes into, and what it is when EC2 chose it.
//!
//! A claim that restricts the label of the partition is launched into one that it allows, and has
//! the label from then on. For any other EC2 chooses, and tells only on the instance: until that is
//! read the label is empty and the Node waits for its registration, so that no pod is placed by a
//! label that is not true yet.

use std::collections::BTreeSet;
use std::time::Duration;

use tenon_crds::NodeClaim;
use tenon_crds::labels::aws;
use tenon_planner::snapshot::Offering;
use tenon_state::ec2::labels::partition_values;

use super::candidate::Candidate;
use crate::aws::catalog::unavailable::placement_scope;
use crate::aws::ec2::PlacementGroup;
use crate::aws::instances::{Instances, parse_provider_id};
use crate::aws::matching::{Requirements, values_of};
use crate::cloud_provider::{CloudError, Hook, HookProgress};

/// The label's value while the partition is not known.
pub(crate) const UNKNOWN_PARTITION: &str = "";

/// The hook's name in conditions, as Karpenter's.
const HOOK: &str = "PlacementGroupRegistrationHook";

/// How often an instance is looked at that does not tell its partition yet.
const AGAIN: Duration = Duration::from_secs(5);

/// Where a machine is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The group's id.
    pub group: String,
    /// The partition, counted from one; EC2 chooses when there is none.
    pub partition: Option<i32>,
}

impl Placed {
    /// What a lack of capacity there is remembered under.
    pub(crate) fn scope(&self) -> String {
        placement_scope(&self.group, self.partition.map(|number| number.to_string()).as_deref())
    }
}

/// Chooses the partition for a claim that does not allow all of them: the first that the cheapest
/// type can be had in. What can't be had there is taken off the candidates, for a fleet is launched
/// into one partition.
pub(crate) fn place(
    group: &PlacementGroup,
    wanted: &Requirements,
    candidates: &mut Vec<Candidate<'_>>,
) -> Placed {
    let everywhere = Placed { group: group.id.clone(), partition: None };
    let allowed = |value: &str| wanted.allow(aws::PLACEMENT_GROUP_PARTITION, Some(value));
    if partition_values(group.partitions).all(|value| allowed(&value)) {
        return everywhere;
    }
    let cheapest = candidates.first().map(|candidate| candidate.offerings.as_slice());
    let had: BTreeSet<&str> = cheapest
        .into_iter()
        .flatten()
        .flat_map(|offering| partitions_of(offering))
        .map(String::as_str)
        .filter(|value| allowed(value))
        .collect();
    let Some(chosen) = had.first().map(|&value| value.to_owned()) else { return everywhere };
    let Ok(number) = chosen.parse() else { return everywhere };
    for candidate in candidates.iter_mut() {
        candidate.offerings.retain(|offering| partitions_of(offering).contains(&chosen));
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    Placed { partition: Some(number), ..everywhere }
}

fn partitions_of(offering: &Offering) -> &[String] {
    values_of(&offering.requirements, aws::PLACEMENT_GROUP_PARTITION)
}

/// Whether a claim allows a machine that EC2 has put into this partition.
pub(crate) fn allows(wanted: &Requirements, partition: Option<i32>) -> bool {
    let value = partition.map(|number| number.to_string());
    !wanted.mention(aws::PLACEMENT_GROUP_PARTITION)
        || wanted.allow(aws::PLACEMENT_GROUP_PARTITION, value.as_deref())
}

/// Finds out which partition EC2 chose for the claim's machine; nothing where there is nothing to
/// find out.
pub(crate) async fn hook(instances: &Instances, claim: &NodeClaim) -> Option<Hook> {
    let label = |key| claim.metadata.labels.as_ref()?.get(key).map(String::as_str);
    label(aws::PLACEMENT_GROUP_ID)?;
    if label(aws::PLACEMENT_GROUP_PARTITION)? != UNKNOWN_PARTITION {
        return None;
    }
    Some(Hook { name: HOOK, progress: partition(instances, claim).await })
}

async fn partition(instances: &Instances, claim: &NodeClaim) -> Result<HookProgress, CloudError> {
    const PENDING: HookProgress = HookProgress::Pending(AGAIN);
    let failed = |error| CloudError::Other {
        operation: "determine the partition of the instance".to_owned(),
        source: Box::new(error),
    };
    let Some(provider_id) = claim.provider_id() else { return Ok(PENDING) };
    let id = parse_provider_id(provider_id).map_err(failed)?;
    let found = instances.get(id).await.map_err(failed)?;
    Ok(match found.and_then(|instance| instance.partition) {
        Some(number) => HookProgress::Done(
            [(aws::PLACEMENT_GROUP_PARTITION.to_owned(), number.to_string())].into(),
        ),
        None => PENDING,
    })
}

#[cfg(test)]
mod tests;
