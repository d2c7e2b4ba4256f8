//! `tenon export`

use clap::{Args, Subcommand};

use super::settings::SettingArgs;

/// `tenon export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The form.
    #[command(subcommand)]
    pub form: ExportForm,
}

/// The forms.
#[derive(Debug, Subcommand)]
pub enum ExportForm {
    /// The operator's objects, CRDs, NodePools and EC2NodeClasses as Kubernetes manifests
    Manifests(PlainArgs),
    /// Values for the Helm chart
    Values(PlainArgs),
    /// AWS resources as a Terraform module (main.tf.json)
    Terraform(PlainArgs),
    /// AWS resources as a CloudFormation template
    Cfn(PlainArgs),
    /// Source, two HelmReleases and the NodePools for Flux
    Flux(GitOpsArgs),
    /// Three Applications for Argo CD
    Argocd(GitOpsArgs),
}

/// What every form needs.
#[derive(Debug, Args)]
pub struct PlainArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// What GitOps tools need to know as well.
#[derive(Debug, Args)]
pub struct GitOpsArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Registry and path of the charts tenon and tenon-crds, such as
    /// `oci://registry.example/charts`
    #[arg(long, value_name = "URL")]
    pub charts: String,
    /// Version of the charts
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"), value_name = "VERSION")]
    pub chart_version: String,
    /// Git repository with the NodePools, for Argo CD
    #[arg(long, value_name = "URL", default_value = "")]
    pub repository: String,
}
