//! The launch templates that exist in EC2: created when a launch needs them, deleted when none has
//! used them for a minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenon_crds::labels::aws;

use crate::aws::ec2::requests::CreateLaunchTemplate;
use crate::aws::ec2::{self, Ec2, filter, send};
use crate::aws::error::Result;
use crate::aws::flight::Flights;
use crate::aws::tags::cluster_tag;
use crate::aws::ttl::TtlMap;
use crate::logging::log_failure;

/// How long an unused template stays.
const TTL: Duration = Duration::from_secs(60);

/// Templates by name.
#[derive(Debug)]
pub(crate) struct Templates {
    ec2: Ec2,
    cluster: Arc<str>,
    existing: TtlMap<String, Made>,
    /// The account may make a few of these calls a second: a burst of claims makes one per
    /// template, whatever its size.
    flights: Flights<String, Flown>,
    count: AtomicU64,
}

/// Tells a template from one that was made later under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made(u64);

/// What came of a call for a template.
#[derive(Clone, Debug)]
enum Flown {
    Created(Result<Made>),
    /// It was, or was to be, deleted: who wants it has to look again.
    Deleted,
}

impl Templates {
    /// None known yet.
    pub(crate) fn new(ec2: Ec2, cluster: Arc<str>) -> Self {
        Self {
            ec2,
            cluster,
            existing: TtlMap::new(TTL),
            flights: Flights::default(),
            count: AtomicU64::default(),
        }
    }

    /// Makes sure that a template exists, and that it stays for the next minute. The name tells the
    /// content, so one that exists needs no look.
    pub(crate) async fn ensure(&self, request: &CreateLaunchTemplate) -> Result<Made> {
        let name = &request.launch_template_name;
        loop {
            if let Some(made) = self.existing.get_and_prolong(name) {
                return Ok(made);
            }
            match self.flights.join(name, || self.create(request)).await {
                Flown::Created(made) => return made,
                Flown::Deleted => {}
            }
        }
    }

    async fn create(&self, request: &CreateLaunchTemplate) -> Flown {
        let name = &request.launch_template_name;
        Flown::Created(send::create_launch_template(&self.ec2, request).await.map(|()| {
            tracing::debug!(launch_template = name, "created launch template");
            self.exists(name.clone())
        }))
    }

    fn exists(&self, name: String) -> Made {
        let made = Made(self.count.fetch_add(1, Ordering::Relaxed));
        self.existing.insert(name, made);
        made
    }

    /// EC2 says that this template does not exist: the next launch creates it again. One that was
    /// made meanwhile is not touched.
    pub(crate) fn invalidate(&self, name: &str, gone: Made) {
        self.existing.remove_value(name, &gone);
    }

    /// Learns which templates of the cluster exist. Those that a former leader left behind end, and
    /// are deleted, like all others.
    pub(crate) async fn hydrate(&self) -> Result<()> {
        let filters = [filter(&format!("tag:{}", aws::EKS_CLUSTER_NAME_TAG), [&*self.cluster])];
        for template in ec2::launch_templates(&self.ec2, &filters).await? {
            if self.existing.get(&template.name).is_none() {
                self.exists(template.name);
            }
        }
        Ok(())
    }

    /// Deletes the templates that nobody has used for a while. One whose deletion fails is tried
    /// again after the same time.
    pub(crate) async fn delete_unused(&self) {
        for (name, _) in self.existing.take_ended() {
            // A launch that wants the template now either creates it first, and then it stays, or
            // waits and creates it again.
            self.flights.join(&name, || self.delete(&name)).await;
        }
    }

    async fn delete(&self, name: &str) -> Flown {
        if self.existing.get(name).is_some() {
            return Flown::Deleted;
        }
        if let Err(error) = ec2::delete_launch_template(&self.ec2, name).await {
            log_failure!(passing: error.is_retryable(), launch_template = name, %error, "failed to delete launch template");
            self.exists(name.to_owned());
        } else {
            tracing::debug!(launch_template = name, "deleted launch template");
        }
        Flown::Deleted
    }

    /// Deletes all templates of a NodeClass.
    pub(crate) async fn delete_all(&self, node_class: &str) -> Result<()> {
        let filters = [
            filter(&format!("tag:{}", cluster_tag(&self.cluster)), ["owned"]),
            filter(&format!("tag:{}", aws::EC2NODECLASS), [node_class]),
        ];
        for template in ec2::launch_templates(&self.ec2, &filters).await? {
            ec2::delete_launch_template(&self.ec2, &template.name).await?;
            self.existing.remove(&template.name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
