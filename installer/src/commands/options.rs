//! What the command line says, as those who connect take it.

use tenon_installer_core::aws::AwsOptions;
use tenon_installer_core::target::KubeconfigOptions;

use crate::cli::GlobalArgs;

impl GlobalArgs {
    /// How AWS is reached.
    pub(super) fn aws(&self) -> AwsOptions {
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
