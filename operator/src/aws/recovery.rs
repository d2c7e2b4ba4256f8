//! Machines that were launched for a claim without this process knowing: by a leader that ended before it could write the result down.
//!
//! A machine that was launched alone carries its claim's name. Machines that were launched together carry only what all claims of the call had in common:
//! each is adopted by one claim that it is good for and that waited for a machine when it was launched. Until then garbage collection leaves it alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tenon_crds::labels::{self, aws};
use tenon_crds::{EC2NodeClass, NodeClaim};
use tenon_planner::snapshot::Catalog;

use super::batcher::{Batcher, Window};
use super::ec2::Instance;
use super::error::Result;
use super::instances::Instances;
use super::launch::placement;
use super::matching::Requirements;
use super::provider_id::instance_id;
use super::{present, resources};
use crate::state::State;

/// Claims that are looked after at the same time share one list of instances.
const WINDOW: Window =
    Window { idle: Duration::from_millis(100), max: Duration::from_secs(1), max_items: 1000 };

/// The API server, which dates claims, may be ahead of us.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Finds machines that former leaders launched.
#[derive(Debug)]
pub struct Recovery {
    lists: Batcher<(), (), Result<Vec<Instance>>>,
    /// When this process became the leader.
    leading_since: Mutex<Option<Timestamp>>,
    /// Which claim (by uid) has adopted which instance.
    adopted: Mutex<BTreeMap<String, String>>,
}

/// What a claim must know about the world to adopt.
#[derive(Clone, Copy, Debug)]
pub struct AdoptionScope<'a> {
    /// The claim's class.
    pub class: &'a EC2NodeClass,
    /// What can be launched with it.
    pub catalog: &'a Catalog,
    /// Ids of instances that belong to claims.
    pub taken: &'a BTreeSet<String>,
}

/// The instances that belong to NodeClaims; `None` while NodeClaims were not listed.
pub(super) fn taken(state: &State) -> Option<BTreeSet<String>> {
    let state = state.read();
    let ids = || {
        let ids = state.claims().filter_map(|claim| instance_id(claim.provider_id()?));
        ids.map(str::to_owned).collect()
    };
    state.has_found_crds().then(ids)
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            lists: Batcher::new(WINDOW),
            leading_since: Mutex::default(),
            adopted: Mutex::default(),
        }
    }
}

impl Recovery {
    /// From now on this process is the one that launches.
    pub fn lead_since(&self, now: Timestamp) {
        *self.leading_since.lock() = Some(now);
    }

    /// Whether a former leader may have launched for the claim.
    pub fn may_have_been_launched(&self, claim: &NodeClaim) -> bool {
        let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let since = *self.leading_since.lock();
        created.zip(since).is_some_and(|(created, since)| created.duration_since(since) < SKEW)
    }

    /// The instance that carries the claim's name.
    pub async fn find(&self, instances: &Instances, claim: &NodeClaim) -> Result<Option<Instance>> {
        Ok(named(&self.list(instances).await?, claim))
    }

    /// The instance that carries the claim's name, else one of those that carry none.
    pub async fn find_or_adopt(
        &self,
        instances: &Instances,
        claim: &NodeClaim,
        scope: AdoptionScope<'_>,
    ) -> Result<Option<Instance>> {
        let found = self.list(instances).await?;
        if let Some(found) = named(&found, claim) {
            return Ok(Some(found));
        }
        let since = self.leading_since.lock().unwrap_or(Timestamp::MIN);
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let mut orphans: Vec<Instance> = found
            .into_iter()
            // What this process launches it knows.
            .filter(|instance| instance.launched_at.is_some_and(|launched| launched < since))
            .filter(|instance| !scope.taken.contains(&instance.id))
            .filter(|instance| waits_for(claim, instance) && is_good_for(claim, instance, scope))
            .collect();
        orphans.sort_by(|a, b| (a.launched_at, &a.id).cmp(&(b.launched_at, &b.id)));
        let mut adopted = self.adopted.lock();
        let free = |instance: &&Instance| {
            adopted.get(&instance.id).is_none_or(|adopter| adopter.as_str() == uid)
        };
        let Some(chosen) = orphans.iter().find(free).cloned() else { return Ok(None) };
        adopted.insert(chosen.id.clone(), uid.to_owned());
        Ok(Some(chosen))
    }

    async fn list(&self, instances: &Instances) -> Result<Vec<Instance>> {
        let list = |items: Vec<()>| async move {
            let found = instances.list().await;
            items.iter().map(|()| found.clone()).collect()
        };
        self.lists.submit((), (), |_| {}, list).await
    }
}

/// The instance that was launched for the claim alone.
fn named(found: &[Instance], claim: &NodeClaim) -> Option<Instance> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    found
        .iter()
        .filter(|instance| !instance.is_terminating())
        .filter(|instance| instance.tag(aws::NODECLAIM_TAG) == Some(name))
        .min_by(|a, b| a.id.cmp(&b.id))
        .cloned()
}

/// Whether an instance may be the one that a claim without a machine waits for: it names the claim, or it names none and was launched for the claim's
/// NodePool and NodeClass while the claim waited.
pub fn waits_for(claim: &NodeClaim, instance: &Instance) -> bool {
    waited_for(
        instance,
        Waiting {
            name: claim.metadata.name.as_deref().unwrap_or_default(),
            node_pool: label(claim, labels::NODEPOOL).unwrap_or_default(),
            node_class: &claim.spec.node_class_ref.name,
            created: claim.metadata.creation_timestamp.as_ref().map(|time| time.0),
        },
    )
}

/// A claim without a machine, as far as it tells which one it waits for.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// Name of the claim.
    pub name: &'a str,
    /// Its NodePool.
    pub node_pool: &'a str,
    /// Its EC2NodeClass.
    pub node_class: &'a str,
    /// When it was created.
    pub created: Option<Timestamp>,
}

/// [`waits_for`], for a claim of which no more is known.
pub fn waited_for(instance: &Instance, claim: Waiting<'_>) -> bool {
    if instance.is_terminating() {
        return false;
    }
    if let Some(named) = instance.tag(aws::NODECLAIM_TAG) {
        return named == claim.name;
    }
    instance.tag(labels::NODEPOOL) == Some(claim.node_pool)
        && instance.tag(aws::EC2NODECLASS) == Some(claim.node_class)
        && claim.created.zip(instance.launched_at).is_some_and(|(created, at)| created <= at)
}

/// Whether a machine is what the claim asks for.
fn is_good_for(claim: &NodeClaim, instance: &Instance, scope: AdoptionScope<'_>) -> bool {
    if scope.class.metadata.name.as_deref() != instance.tag(aws::EC2NODECLASS) {
        return false;
    }
    let types = &scope.catalog.instance_types;
    let Some(known) = types.iter().find(|known| known.name == instance.instance_type) else {
        return false;
    };
    let wanted = Requirements::from_api(&claim.spec.requirements);
    let requests = resources::from_list(&claim.spec.resources.requests);
    wanted.meet_type(known)
        && requests.fits(&known.allocatable())
        && wanted.allow(labels::ZONE, Some(&instance.zone))
        && placement::allows(&wanted, instance.partition)
        && wanted.allow_capacity_type(present::capacity_type(instance))
        && instance.tenancy.as_deref().is_none_or(|tenancy| tenancy == wanted.tenancy())
}

fn label<'c>(claim: &'c NodeClaim, key: &str) -> Option<&'c str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests;
