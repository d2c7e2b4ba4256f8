//! `tenon export`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::settings::{AwsArgs, SettingArgs};

/// `tenon export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// What to export.
    #[command(subcommand)]
    pub form: ExportForm,
}

/// What an installation can be exported as.
#[derive(Debug, Subcommand)]
pub enum ExportForm {
    /// The operator's objects, CRDs, NodePools and EC2NodeClasses as Kubernetes manifests
    Manifests(PlainArgs),
    /// Values for the Helm chart
    Values(PlainArgs),
    /// AWS resources as a Terraform module (main.tf.json), with import blocks for those that exist
    Terraform(ResourceArgs),
    /// AWS resources as a CloudFormation template
    Cfn(ResourceArgs),
    /// CRDs, operator and NodePools for Flux, in three Kustomizations, each of which depends on the
    /// previous one
    Flux(FluxArgs),
    /// Three Applications for Argo CD: CRDs, operator and NodePools
    Argocd(ArgocdArgs),
}

/// What the forms of AWS resources need.
#[derive(Debug, Args)]
pub struct ResourceArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: AwsArgs,
}

/// What every other form needs.
#[derive(Debug, Args)]
pub struct PlainArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// What GitOps tools need to know as well.
#[derive(Debug, Args)]
pub struct ChartArgs {
    /// Registry and path of the charts tenon and tenon-crds, such as
    /// `oci://registry.example/charts`
    #[arg(long, value_name = "URL")]
    pub charts: String,
    /// Version of the charts
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"), value_name = "VERSION")]
    pub chart_version: String,
    /// Folder of the git repository to which the files are committed
    #[arg(long, default_value = "tenon", value_name = "PATH")]
    pub path: String,
    /// Write the files below this directory instead of printing them
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `tenon export flux`
#[derive(Debug, Args)]
pub struct FluxArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// The charts and the files.
    #[command(flatten)]
    pub charts: ChartArgs,
    /// GitRepository in namespace flux-system from which Flux reads the files
    #[arg(long, default_value = "flux-system", value_name = "NAME")]
    pub source: String,
}

/// `tenon export argocd`
#[derive(Debug, Args)]
pub struct ArgocdArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// The charts and the files.
    #[command(flatten)]
    pub charts: ChartArgs,
    /// Git repository to which the files are committed
    #[arg(long, value_name = "URL")]
    pub repository: String,
}
