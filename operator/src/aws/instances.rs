//! Instances of this cluster: found, read and terminated, many callers' wishes in one call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tenon_crds::labels::{self, aws};

use super::call_batcher::{BatchSize, CallBatcher, Window};
use super::ec2::{self, Ec2, Instance, filter};
use super::error::{Error, Result};
use super::metrics::AwsMetrics;
use super::provider_id::instance_id;
use super::zonal_shift::ZonalShifts;

const WINDOW: Window =
    Window { idle: Duration::from_millis(100), max: Duration::from_secs(1), max_items: 500 };

/// Reads and terminates instances, and remembers what it read.
#[derive(Debug)]
pub(super) struct Instances {
    ec2: Ec2,
    cluster: Arc<str>,
    metrics: AwsMetrics,
    describe: CallBatcher<(), String, Result<Option<Instance>>>,
    terminate: CallBatcher<(), String, Result<()>>,
    known: Mutex<BTreeMap<String, Instance>>,
    shifts: Arc<ZonalShifts>,
}

impl Instances {
    /// Instances of a cluster.
    pub(super) fn new(
        ec2: Ec2,
        cluster: Arc<str>,
        metrics: AwsMetrics,
        shifts: Arc<ZonalShifts>,
    ) -> Self {
        Self {
            ec2,
            cluster,
            metrics,
            describe: CallBatcher::new(WINDOW),
            terminate: CallBatcher::new(WINDOW),
            known: Mutex::default(),
            shifts,
        }
    }

    /// The instance as EC2 has it now; `None` when it is gone. Of one in a zone that is shifted
    /// away from, what was read before: there EC2's word that it is gone counts for nothing.
    pub(super) async fn get(&self, id: &str) -> Result<Option<Instance>> {
        let known = self.known.lock().get(id).cloned();
        if let Some(instance) = known.filter(|known| self.shifts.contain(&known.zone)) {
            return Ok(Some(instance));
        }
        let found = self
            .describe
            .submit(
                (),
                id.to_owned(),
                |size| self.observe("describe_instances", size),
                |ids| describe_all(&self.ec2, ids),
            )
            .await?;
        let mut known = self.known.lock();
        match &found {
            Some(instance) => known.insert(id.to_owned(), instance.clone()),
            None => known.remove(id),
        };
        Ok(found)
    }

    /// The instance as it was read last, by [`Self::list`] at the latest; asks EC2 when it was not
    /// read yet.
    pub(super) async fn get_known(&self, id: &str) -> Result<Option<Instance>> {
        let known = self.known.lock().get(id).cloned();
        match known {
            Some(instance) => Ok(Some(instance)),
            None => self.get(id).await,
        }
    }

    /// All instances that the operator launched for this cluster.
    pub(super) async fn list(&self) -> Result<Vec<Instance>> {
        let mut found = ec2::instances(&self.ec2, &[], &self.own_filters()).await?;
        let mut known = self.known.lock();
        let listed: BTreeSet<&str> = found.iter().map(|instance| instance.id.as_str()).collect();
        let missing: Vec<Instance> = known
            .values()
            .filter(|known| !listed.contains(known.id.as_str()))
            .filter(|known| self.shifts.contain(&known.zone))
            .cloned()
            .collect();
        found.extend(missing);
        *known = found.iter().map(|instance| (instance.id.clone(), instance.clone())).collect();
        Ok(found)
    }

    /// Starts the termination of an instance.
    pub(super) async fn terminate(&self, instance: &Instance) -> Result<()> {
        self.shifts.check("TerminateInstances", &instance.zone)?;
        let result = self
            .terminate
            .submit(
                (),
                instance.id.clone(),
                |size| self.observe("terminate_instances", size),
                |ids| terminate_all(&self.ec2, ids),
            )
            .await;
        if result.is_err() {
            let zone_id = self.shifts.zone_id(&instance.zone).unwrap_or_default();
            self.metrics.termination_failures.inc([&instance.zone, &zone_id]);
        }
        result
    }

    /// Adds tags to an instance.
    pub(super) async fn tag(&self, id: &str, tags: &BTreeMap<String, String>) -> Result<()> {
        let zone = self.known.lock().get(id).map(|known| known.zone.clone());
        if let Some(zone) = zone {
            self.shifts.check("CreateTags", &zone)?;
        }
        ec2::create_tags(&self.ec2, id, tags).await
    }

    fn own_filters(&self) -> Vec<ec2::Filter> {
        vec![
            filter("tag-key", [labels::NODEPOOL]),
            filter("tag-key", [aws::EC2NODECLASS]),
            filter(&format!("tag:{}", aws::EKS_CLUSTER_NAME_TAG), [&*self.cluster]),
        ]
    }

    fn observe(&self, batcher: &'static str, size: BatchSize) {
        self.metrics.batch_time.observe([batcher], size.open.as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "batches have at most 1000 items")]
        self.metrics.batch_size.observe([batcher], size.items as f64);
    }
}

/// Reads instances together; when EC2 does not know one of the ids it refuses all of them, and each
/// is asked for alone.
async fn describe_all(client: &Ec2, ids: Vec<String>) -> Vec<Result<Option<Instance>>> {
    let unique: BTreeSet<String> = ids.iter().cloned().collect();
    let unique: Vec<String> = unique.into_iter().collect();
    match ec2::instances(client, &unique, &[]).await {
        Ok(found) => {
            let found: BTreeMap<&str, &Instance> =
                found.iter().map(|instance| (instance.id.as_str(), instance)).collect();
            ids.iter().map(|id| Ok(found.get(id.as_str()).copied().cloned())).collect()
        }
        Err(error) if error.is_not_found() && unique.len() > 1 => {
            join_all(ids.iter().map(|id| describe_one(client, id))).await
        }
        Err(error) if error.is_not_found() => ids.iter().map(|_| Ok(None)).collect(),
        Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
    }
}

async fn describe_one(client: &Ec2, id: &String) -> Result<Option<Instance>> {
    match ec2::instances(client, std::slice::from_ref(id), &[]).await {
        Ok(found) => Ok(found.into_iter().next()),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Terminates instances together; those that the common call did not take are tried alone.
async fn terminate_all(client: &Ec2, ids: Vec<String>) -> Vec<Result<()>> {
    let unique: BTreeSet<String> = ids.iter().cloned().collect();
    let unique: Vec<String> = unique.into_iter().collect();
    let done = match ec2::terminate(client, &unique).await {
        Ok(done) => done,
        Err(error) if unique.len() == 1 => {
            return ids.iter().map(|_| ignore_gone(&error)).collect();
        }
        Err(_) => BTreeSet::new(),
    };
    join_all(ids.iter().map(async |id| {
        if done.contains(id) {
            return Ok(());
        }
        match ec2::terminate(client, std::slice::from_ref(id)).await {
            Ok(_) => Ok(()),
            Err(error) => ignore_gone(&error),
        }
    }))
    .await
}

fn ignore_gone(error: &Error) -> Result<()> {
    if error.is_not_found() { Ok(()) } else { Err(error.clone()) }
}

/// The id in a provider id, or why there is none.
pub(super) fn parse_provider_id(provider_id: &str) -> Result<&str> {
    instance_id(provider_id).ok_or_else(|| {
        Error::unexpected(
            "DescribeInstances",
            format!("\"{provider_id}\" is not the provider id of an EC2 instance"),
        )
    })
}

#[cfg(test)]
mod tests;
