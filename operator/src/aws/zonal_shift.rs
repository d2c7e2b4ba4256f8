//! Zonal shifts: which zones the cluster's traffic is moved away from, as AWS Application Recovery
//! Controller (ARC) tells.
//!
//! While a zone is shifted away from nothing is launched there, and what EC2 says about machines
//! there counts for little: those that are known stay known, and none of them is terminated or
//! tagged. Nodes in the zone are not drained: that is for whoever has started the shift to decide.
//!
//! Every replica polls, so that a new leader knows from its first moment. The leader tells
//! NodePools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_arczonalshift::Client;
use aws_sdk_arczonalshift::types::{AppliedStatus, AutoshiftAppliedStatus};
use jiff::Timestamp;
use parking_lot::Mutex;
use tenon_crds::ec2nodeclass::Subnet;
use tenon_crds::labels;
use tenon_crds::nodepool::NodePool;
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::{Error, Result};
use super::matching::Requirements;
use super::{AwsProvider, objects};
use crate::context::Context;
use crate::controller::Periodic;
use crate::events::{Event, Reason};
use crate::logging::log_failure;

/// Between polls.
const POLL: Duration = Duration::from_secs(30);

/// The call that tells of shifts.
const OPERATION: &str = "GetManagedResource";

/// The zones that are shifted away from. Without the option to watch them there are never any.
#[derive(Debug, Default)]
pub(super) struct ZonalShifts {
    /// By zone id, until when; an autoshift has no end that is known before.
    shifted: Mutex<BTreeMap<String, Option<Instant>>>,
    /// The ids of zones by their names, which are others in each account.
    ids: Mutex<BTreeMap<String, String>>,
    changed: watch::Sender<()>,
}

/// A shift that is in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shift {
    /// Zone id.
    pub away_from: String,
    /// When it ends by itself.
    pub until: Option<Timestamp>,
}

impl ZonalShifts {
    /// Takes in which shifts are in effect; those that are not among them have ended.
    pub(super) fn set(&self, shifts: &[Shift], now: Timestamp) {
        let started = Instant::now();
        let ends = |until: Timestamp| {
            // A shift that has ended is as good as none.
            Some(started + Duration::try_from(until.duration_since(now)).ok()?)
        };
        let mut shifted = BTreeMap::new();
        for shift in shifts {
            let until = match shift.until {
                None => None,
                Some(until) => match ends(until) {
                    Some(until) => Some(until),
                    None => continue,
                },
            };
            shifted.insert(shift.away_from.clone(), until);
        }
        let mut known = self.shifted.lock();
        let news = !known.keys().eq(shifted.keys());
        *known = shifted;
        drop(known);
        if news {
            self.changed.send_replace(());
        }
    }

    /// Ids of the zones that are shifted away from now.
    pub(super) fn zone_ids(&self) -> BTreeSet<String> {
        let now = Instant::now();
        let lasts = |until: &Option<Instant>| until.is_none_or(|until| until > now);
        let shifted = self.shifted.lock();
        shifted.iter().filter(|(_, until)| lasts(until)).map(|(id, _)| id.clone()).collect()
    }

    /// The id of a zone, as the status of NodeClasses lists it with their subnets; `None` while
    /// none does.
    pub(super) fn zone_id(&self, zone: &str) -> Option<String> {
        self.ids.lock().get(zone).cloned()
    }

    /// Learns how zones are called.
    pub(super) fn learn(&self, subnets: &[Subnet]) {
        let mut ids = self.ids.lock();
        for subnet in subnets {
            if let Some(id) = &subnet.zone_id
                && ids.get(&subnet.zone) != Some(id)
            {
                ids.insert(subnet.zone.clone(), id.clone());
            }
        }
    }

    /// Whether a zone, by its name, is shifted away from now.
    pub(super) fn contain(&self, zone: &str) -> bool {
        let shifted = self.zone_ids();
        !shifted.is_empty()
            && self.ids.lock().get(zone).is_some_and(|zone_id| shifted.contains(zone_id))
    }

    /// Refuses to do something to a machine in a zone that is shifted away from. What is refused is
    /// tried again later.
    pub(super) fn check(&self, operation: &'static str, zone: &str) -> Result<()> {
        if !self.contain(zone) {
            return Ok(());
        }
        let message =
            format!("a zonal shift moves the cluster away from {zone}: retrying after its end");
        Err(Error::unexpected(operation, message))
    }
}

/// The shifts of a cluster that are in effect.
pub(super) async fn ask(client: &Client, cluster_arn: &str) -> Result<Vec<Shift>> {
    let answer = client
        .get_managed_resource()
        .resource_identifier(cluster_arn)
        .send()
        .await
        .map_err(|error| Error::from_sdk(OPERATION, &error))?;
    let by_people = answer
        .zonal_shifts()
        .iter()
        .filter(|shift| *shift.applied_status() == AppliedStatus::Applied)
        .map(|shift| Shift {
            away_from: shift.away_from().to_owned(),
            until: Timestamp::from_second(shift.expiry_time().secs()).ok(),
        });
    let by_aws = answer
        .autoshifts()
        .iter()
        .filter(|shift| *shift.applied_status() == AutoshiftAppliedStatus::Applied)
        .map(|shift| Shift { away_from: shift.away_from().to_owned(), until: None });
    Ok(by_people.chain(by_aws).collect())
}

/// Polls. What was known counts while there is no answer.
pub(super) struct ShiftPoll {
    pub(super) provider: Arc<AwsProvider>,
    pub(super) context: Context,
    pub(super) cluster_arn: String,
}

impl Periodic for ShiftPoll {
    const NAME: &'static str = "zonalshift";

    async fn pass(&mut self) -> Duration {
        let Self { provider, context, cluster_arn } = self;
        match ask(&provider.clients.zonal_shift, cluster_arn).await {
            Ok(shifts) => {
                let before = provider.zonal_shifts.zone_ids();
                provider.zonal_shifts.set(&shifts, context.clock.now());
                let after = provider.zonal_shifts.zone_ids();
                if before != after {
                    tracing::info!(?before, ?after, "the zones of active zonal shifts changed");
                    context.wake.notify_one();
                }
            }
            Err(error) => {
                context.metrics.reconcile_errors.inc([Self::NAME, error.operation]);
                log_failure!(passing: error.is_retryable(), %error, "failed to read zonal shifts, \
                     retrying");
            }
        }
        POLL
    }
}

/// Tells NodePools of shifts that begin and end, for ever.
pub(super) async fn tell(provider: &Arc<AwsProvider>, context: &Context) {
    let mut changes = provider.zonal_shifts.changed.subscribe();
    let mut told = BTreeSet::new();
    loop {
        let shifted = provider.zonal_shifts.zone_ids();
        if shifted != told {
            match objects::parsed::<NodePool>(&context.client).await {
                Ok(pools) => {
                    for (zone_id, active) in news(&told, &shifted) {
                        for event in events(provider, &pools, zone_id, active) {
                            context.recorder.publish(event);
                        }
                    }
                    told = shifted;
                }
                Err(error) => {
                    let error = crate::text::chain(&error);
                    tracing::warn!(
                        error,
                        "failed to list NodePools, publishing events about zonal shifts later"
                    );
                }
            }
        }
        // A shift ends by its time, too, and then nobody says so.
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// Zones whose shift began (`true`) or ended.
fn news<'z>(
    before: &'z BTreeSet<String>,
    after: &'z BTreeSet<String>,
) -> impl Iterator<Item = (&'z str, bool)> {
    let began = after.difference(before).map(|zone| (zone.as_str(), true));
    began.chain(before.difference(after).map(|zone| (zone.as_str(), false)))
}

fn events(provider: &AwsProvider, pools: &[NodePool], zone_id: &str, active: bool) -> Vec<Event> {
    let subnets_of = |pool: &NodePool| {
        let class = provider.classes.get(&pool.spec.template.spec.node_class_ref.name)?;
        Some(class.status.as_ref()?.subnets.clone())
    };
    pools
        .iter()
        .filter_map(|pool| {
            let zone = reachable(pool, &subnets_of(pool)?, zone_id)?;
            let event = if active {
                let message = format!(
                    "Zonal shift detected: offerings in zone {zone} ({zone_id}) are unavailable for this NodePool"
                );
                Event::warning(pool, Reason::ZonalShiftActive, message)
            } else {
                let message = format!(
                    "Zonal shift cleared: offerings in zone {zone} ({zone_id}) are restored for this NodePool"
                );
                Event::normal(pool, Reason::ZonalShiftCleared, message)
            };
            Some(event.distinct_by(zone_id))
        })
        .collect()
}

/// The name of a zone, if the NodePool may launch there.
fn reachable(pool: &NodePool, subnets: &[Subnet], zone_id: &str) -> Option<String> {
    let zone = &subnets.iter().find(|subnet| subnet.zone_id.as_deref() == Some(zone_id))?.zone;
    let wanted = Requirements::from_api(&pool.spec.template.spec.requirements);
    let allowed =
        wanted.allow(labels::ZONE, Some(zone)) && wanted.allow(labels::aws::ZONE_ID, Some(zone_id));
    allowed.then(|| zone.clone())
}

#[cfg(test)]
mod tests;
