//! Machines that were launched for a claim without this process knowing: by a leader that ended
//! before it could write the result down.
//!
//! A machine that was launched alone carries its claim's name. Machines that were launched together
//! carry only what all claims of the call had in common: each is adopted by one claim that it is
//! good for and that waited for a machine when it was launched. Until then garbage collection
//! leaves it alone.
//!
//! Two claims must never share a machine. So what this process launched itself, in whichever of its
//! terms as the leader, is nobody's to adopt: its [`Launcher`](super::launcher::Launcher) knows for
//! which claim it was. And which machines belong to claims is asked of the API server, after the
//! machines were listed: a watch may not tell yet what the former leader wrote last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use parking_lot::Mutex;
use tenon_crds::labels::{self, aws};
use tenon_crds::{EC2NodeClass, NodeClaim};
use tenon_planner::snapshot::Catalog;

use super::call_batcher::{CallBatcher, Window};
use super::ec2::Instance;
use super::error::Error;
use super::instances::Instances;
use super::launcher::placement;
use super::matching::Requirements;
use super::objects::ClaimUse;
use super::{conversion, objects};
use crate::state::resources;

/// Claims that are looked after at the same time share one list of instances, and one of
/// NodeClaims.
const WINDOW: Window =
    Window { idle: Duration::from_millis(100), max: Duration::from_secs(1), max_items: 1000 };

/// The API server, which dates claims, may be ahead of us.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// How long after the end of a term what was asked for in it may still be launched.
const LATE: SignedDuration = SignedDuration::from_mins(1);

/// How long terms are remembered: longer than any claim waits for its launch.
const MEMORY: SignedDuration = SignedDuration::from_hours(1);

/// Finds machines that former leaders launched.
#[derive(Debug)]
pub(super) struct Recovery {
    instances: Lists<Instance, Error>,
    claims: Lists<ClaimUse, Arc<kube::Error>>,
    /// When this process was the leader, the newest term last.
    terms: Mutex<Vec<Term>>,
    /// Which claim (by uid) has adopted which instance.
    adopted: Mutex<BTreeMap<String, String>>,
}

type Lists<T, E> = CallBatcher<(), (), Result<Arc<[T]>, E>>;

/// From when until when this process was the leader.
#[derive(Clone, Copy, Debug)]
struct Term {
    began: Timestamp,
    /// `None` while it lasts.
    ended: Option<Timestamp>,
}

impl Term {
    /// Whether this process may have launched it in this term. EC2 tells seconds.
    fn may_have_launched(self, launched: Timestamp) -> bool {
        let late = |ended: Timestamp| launched.duration_since(ended) > LATE;
        launched.as_second() >= self.began.as_second() && !self.ended.is_some_and(late)
    }
}

/// Where a claim's machine is looked for.
#[derive(Clone, Copy)]
pub(super) struct AdoptionScope<'a> {
    /// The API server.
    pub kubernetes: &'a Client,
    /// The cluster's instances.
    pub instances: &'a Instances,
    /// The claim's class.
    pub class: &'a EC2NodeClass,
    /// What can be launched with it.
    pub catalog: &'a Catalog,
}

/// Why it cannot be told whether a claim has a machine.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum RecoveryError {
    /// AWS did not answer, or refused.
    #[error(transparent)]
    Aws(#[from] Error),
    /// The API server did not.
    #[error("listing NodeClaims")]
    Kubernetes(#[from] Arc<kube::Error>),
    /// The API server says that it has one, which the claim that was asked about does not say yet.
    #[error("NodeClaim {claim} has instance {instance}, which the watch has not reported yet")]
    Stale {
        /// The claim's name.
        claim: String,
        /// The id of its instance.
        instance: String,
    },
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            instances: CallBatcher::new(WINDOW),
            claims: CallBatcher::new(WINDOW),
            terms: Mutex::default(),
            adopted: Mutex::default(),
        }
    }
}

impl Recovery {
    /// From now on this process is the one that launches.
    pub(super) fn lead_since(&self, now: Timestamp) {
        let mut terms = self.terms.lock();
        terms.retain(|term| term.ended.is_none_or(|ended| now.duration_since(ended) < MEMORY));
        terms.push(Term { began: now, ended: None });
    }

    /// From now on it is not.
    pub(super) fn lead_until(&self, now: Timestamp) {
        if let Some(term) = self.terms.lock().last_mut() {
            term.ended.get_or_insert(now);
        }
    }

    /// Whether a former leader may have launched for the claim.
    pub(super) fn may_have_been_launched(&self, claim: &NodeClaim) -> bool {
        let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let began = self.terms.lock().last().map(|term| term.began);
        created.zip(began).is_some_and(|(created, began)| created.duration_since(began) < SKEW)
    }

    /// The instance that carries the claim's name.
    pub(super) async fn find(
        &self,
        instances: &Instances,
        claim: &NodeClaim,
    ) -> Result<Option<Instance>, Error> {
        Ok(named(&self.instances(instances).await?, claim))
    }

    /// The instance that carries the claim's name, else one of those that carry none.
    ///
    /// # Errors
    /// When AWS or the API server can't be asked, and when the claim has a machine that `claim`
    /// does not tell of.
    pub(super) async fn find_or_adopt(
        &self,
        claim: &NodeClaim,
        scope: AdoptionScope<'_>,
    ) -> Result<Option<Instance>, RecoveryError> {
        let instances = self.instances(scope.instances).await?;
        // Read after them: whoever has one of them by now says so.
        let claims = self.claims(scope.kubernetes).await?;
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let same = |known: &&ClaimUse| known.metadata.uid.as_deref() == Some(uid);
        if let Some(known) = claims.iter().find(same)
            && let Some(instance) = known.instance_id()
        {
            let [claim, instance] = [known.name(), instance].map(str::to_owned);
            return Err(RecoveryError::Stale { claim, instance });
        }
        if let Some(found) = named(&instances, claim) {
            return Ok(Some(found));
        }
        let taken: BTreeSet<&str> = claims.iter().filter_map(ClaimUse::instance_id).collect();
        let terms = self.terms.lock().clone();
        // What this process launches it knows.
        let foreign = |launched| !terms.iter().any(|term| term.may_have_launched(launched));
        let mut orphans: Vec<&Instance> = instances
            .iter()
            .filter(|instance| instance.launched_at.is_some_and(foreign))
            .filter(|instance| !taken.contains(instance.id.as_str()))
            .filter(|instance| waits_for(claim, instance) && is_good_for(claim, instance, scope))
            .collect();
        orphans.sort_by(|a, b| (a.launched_at, &a.id).cmp(&(b.launched_at, &b.id)));
        let mut adopted = self.adopted.lock();
        let free = |instance: &&Instance| {
            adopted.get(&instance.id).is_none_or(|adopter| adopter.as_str() == uid)
        };
        let Some(chosen) = orphans.into_iter().find(free).cloned() else { return Ok(None) };
        adopted.insert(chosen.id.clone(), uid.to_owned());
        Ok(Some(chosen))
    }

    async fn instances(&self, instances: &Instances) -> Result<Arc<[Instance]>, Error> {
        let list = |items: Vec<()>| async move { for_each(&items, instances.list().await) };
        self.instances.submit((), (), |_| {}, list).await
    }

    async fn claims(&self, kubernetes: &Client) -> Result<Arc<[ClaimUse]>, Arc<kube::Error>> {
        let list = |items: Vec<()>| async move {
            for_each(&items, objects::claims(kubernetes).await.map_err(Arc::new))
        };
        self.claims.submit((), (), |_| {}, list).await
    }
}

/// One list for all who asked for it.
fn for_each<T, E: Clone>(items: &[()], listed: Result<Vec<T>, E>) -> Vec<Result<Arc<[T]>, E>> {
    let listed = listed.map(Arc::from);
    items.iter().map(|()| listed.clone()).collect()
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

/// Whether an instance may be the one that a claim without a machine waits for: it names the claim,
/// or it names none and was launched for the claim's NodePool and NodeClass while the claim waited.
pub(super) fn waits_for(claim: &NodeClaim, instance: &Instance) -> bool {
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
pub(super) struct Waiting<'a> {
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
pub(super) fn waited_for(instance: &Instance, claim: Waiting<'_>) -> bool {
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
        && wanted.allow_capacity_type(conversion::capacity_type(instance))
        && instance.tenancy.as_deref().is_none_or(|tenancy| tenancy == wanted.tenancy())
}

fn label<'c>(claim: &'c NodeClaim, key: &str) -> Option<&'c str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests;
