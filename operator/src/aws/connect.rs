//! The start of the provider: what has to be known, and to be allowed, before the operator can do
//! anything.

use std::sync::Arc;

use super::calls::CallMetrics;
use super::catalog;
use super::clients::{self, Clients};
use super::cluster::Cluster;
use super::error::Error;
use super::options::AwsSettings;
use super::{AwsProvider, ec2, zonal_shift};
use crate::clock::Clock;
use crate::metrics::Metrics;

/// The provider can't start.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The region is neither configured nor found.
    #[error(transparent)]
    Region(#[from] clients::NoRegion),
    /// AWS refuses, or can't be reached.
    #[error(
        "AWS cannot be used: check the operator's credentials, its role's policies and the network"
    )]
    Aws(#[from] Error),
    /// Zonal shifts are to be watched, and can't be.
    #[error(
        "zonal shifts of the cluster cannot be read: register it with `aws eks \
         update-cluster-config --name {cluster} --zonal-shift-config enabled=true` and allow the \
         operator's role to call arc-zonal-shift:GetManagedResource, or turn ENABLE_ZONAL_SHIFT \
         (settings.enableZonalShift) off"
    )]
    ZonalShift {
        /// Name of the cluster.
        cluster: String,
        /// The call that failed.
        source: Error,
    },
}

impl AwsProvider {
    /// Connects to AWS, and finds out what the operator can't do without.
    pub async fn connect(
        options: AwsSettings,
        kubernetes: &kube::Client,
        clock: Clock,
        metrics: &Metrics,
    ) -> Result<Arc<Self>, ConnectError> {
        let clients = Clients::from_default_chain(&CallMetrics::new(metrics)).await?;
        ec2::check_access(&clients.ec2).await?;
        let cluster = Cluster::discover(clients.eks.clone(), &options, kubernetes).await?;
        cluster.refresh_version(kubernetes).await?;
        let mut provider = Self::assemble(options, clients, cluster, clock, metrics);
        catalog::refresh_types(&provider.clients.ec2, &provider.catalogs).await?;
        if provider.options.enable_zonal_shift {
            provider.watches_shifts_of = Some(provider.first_look_at_shifts().await?);
        }
        Ok(Arc::new(provider))
    }

    /// Reads zonal shifts for the first time; returns the ARN of the cluster, which they are asked
    /// for by. A service that does not answer now will later, and must not keep the operator from
    /// starting; a cluster that is not registered, or a permission that lacks, will not come by
    /// itself.
    async fn first_look_at_shifts(&self) -> Result<String, ConnectError> {
        let arn = self.cluster.arn().await?;
        match zonal_shift::ask(&self.clients.zonal_shift, &arn).await {
            Ok(shifts) => self.zonal_shifts.set(&shifts, self.clock.now()),
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "zonal shifts are not known yet");
            }
            Err(source) => {
                let cluster = self.options.cluster_name.clone();
                return Err(ConnectError::ZonalShift { cluster, source });
            }
        }
        Ok(arn)
    }
}
