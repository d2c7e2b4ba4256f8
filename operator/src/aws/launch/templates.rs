//! The launch templates that exist in EC2: created when a launch needs them, deleted when none has used them for a minute.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_ec2::Client;
use tenon_crds::labels::aws;

use crate::aws::ec2::requests::CreateLaunchTemplate;
use crate::aws::ec2::{self, filter, send};
use crate::aws::error::Result;
use crate::aws::tags::cluster_tag;
use crate::aws::ttl::TtlMap;

/// How long an unused template stays.
const TTL: Duration = Duration::from_secs(60);

/// Templates by name.
#[derive(Debug)]
pub struct Templates {
    ec2: Client,
    cluster: Arc<str>,
    existing: TtlMap<String, ()>,
}

impl Templates {
    /// None known yet.
    pub fn new(ec2: Client, cluster: Arc<str>) -> Self {
        Self { ec2, cluster, existing: TtlMap::new(TTL) }
    }

    /// Makes sure that a template exists, and that it stays for the next minute. The name tells the content, so one that exists needs no look.
    pub async fn ensure(&self, request: &CreateLaunchTemplate) -> Result<()> {
        let name = &request.launch_template_name;
        if self.existing.get(name).is_none() {
            send::create_launch_template(&self.ec2, request).await?;
            tracing::debug!(launch_template = name, "created launch template");
        }
        self.existing.insert(name.clone(), ());
        Ok(())
    }

    /// EC2 says that the template does not exist: the next launch creates it again.
    pub fn invalidate(&self, name: &str) {
        self.existing.remove(name);
    }

    /// Learns which templates of the cluster exist. Those that a former leader left behind end, and are deleted, like all others.
    pub async fn hydrate(&self) -> Result<()> {
        let filters = [filter(&format!("tag:{}", aws::EKS_CLUSTER_NAME_TAG), [&*self.cluster])];
        for template in ec2::launch_templates(&self.ec2, &filters).await? {
            if self.existing.get(&template.name).is_none() {
                self.existing.insert(template.name, ());
            }
        }
        Ok(())
    }

    /// Deletes the templates that nobody has used for a while. One whose deletion fails is tried again after the same time.
    pub async fn delete_unused(&self) {
        for (name, ()) in self.existing.take_ended() {
            if let Err(error) = ec2::delete_launch_template(&self.ec2, &name).await {
                tracing::error!(launch_template = name, %error, "failed to delete launch template");
                self.existing.insert(name, ());
            } else {
                tracing::debug!(launch_template = name, "deleted launch template");
            }
        }
    }

    /// Deletes all templates of a NodeClass.
    pub async fn delete_all(&self, node_class: &str) -> Result<()> {
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
