//! What the command line says, as those who connect take it.

use std::time::Duration;

use kube::Client;
use tenon_installer_core::aws::profiles::ProfileFiles;
use tenon_installer_core::aws::{Aws, AwsOptions};
use tenon_installer_core::settings::Settings;
use tenon_installer_core::target::{self, KubeconfigOptions};
use tokio::time::timeout;

use super::session::region_of_nodes;
use crate::cli::GlobalArgs;
use crate::errors::ExpectedError;
use crate::prices::SpotPrices;

/// How long a node may take to say where it is: what is read next says why a cluster does not
/// answer.
const ANSWER: Duration = Duration::from_secs(3);

impl GlobalArgs {
    /// Clients for AWS, once everything that was named for reaching AWS and the cluster is known to
    /// exist.
    pub(super) async fn connect(&self, settings: &Settings) -> Result<Aws, ExpectedError> {
        target::check(&self.kubeconfig())?;
        self.connect_aws(settings).await
    }

    /// The same where the cluster is not asked.
    pub(super) async fn connect_aws(&self, settings: &Settings) -> Result<Aws, ExpectedError> {
        self.connect_region(&settings.region).await
    }

    /// Clients for a region, before anything else is known.
    pub(super) async fn connect_region(&self, region: &str) -> Result<Aws, ExpectedError> {
        if let Some(profile) = &self.profile {
            self.profile_files().check(profile)?;
        }
        Ok(Aws::connect(&self.aws(), region).await)
    }

    /// What spot instances cost in the region that is named, that the kubeconfig's context names,
    /// or that nodes are in. Without any, EC2 is not asked.
    pub(super) async fn spot_prices(&self, client: &Client) -> Result<SpotPrices, ExpectedError> {
        let inferred = || target::infer(&self.kubeconfig()).region;
        let region = match self.region.clone().or_else(inferred) {
            Some(region) => Some(region),
            None => {
                let of_nodes = timeout(ANSWER, region_of_nodes(client)).await;
                of_nodes.ok().and_then(Result::ok).flatten().or(self.default_region.clone())
            }
        };
        Ok(SpotPrices::new(match region {
            Some(region) => Some(self.connect_region(&region).await?),
            None => None,
        }))
    }

    fn profile_files(&self) -> ProfileFiles {
        let at_home = |name: &str| self.home.as_ref().map(|home| home.join(".aws").join(name));
        ProfileFiles {
            config: self.aws_config_file.clone().or_else(|| at_home("config")),
            credentials: self.aws_credentials_file.clone().or_else(|| at_home("credentials")),
        }
    }

    /// How AWS is reached.
    fn aws(&self) -> AwsOptions {
        AwsOptions { profile: self.profile.clone(), max_attempts: self.max_attempts }
    }

    /// How the cluster is reached.
    pub(super) fn kubeconfig(&self) -> KubeconfigOptions {
        KubeconfigOptions {
            files: self.kubeconfig.clone(),
            context: self.context.clone(),
            attended: self.may_ask(),
        }
    }
}
