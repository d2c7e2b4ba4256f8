//! Settings on the command line.

use std::path::PathBuf;

use clap::Args;
use tenon_installer_core::settings::config::{
    Architecture, Authorization, CapacityType, Discovery, Host, IdentityMode, ProfileMode,
};

/// Where settings come from, for the commands that need all of them. Each flag wins over the file.
#[derive(Debug, Clone, Default, Args)]
pub struct SettingArgs {
    /// Settings file
    #[arg(
        short = 'f',
        long = "file",
        env = "TENON_CONFIG",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Settings"
    )]
    pub file: Option<PathBuf>,
    /// Refuse to run against any other AWS account
    #[arg(long, value_name = "ID", help_heading = "Settings")]
    pub account_id: Option<String>,
    /// Prefix of the names of all AWS resources
    #[arg(long, value_name = "TEXT", help_heading = "Settings")]
    pub name_prefix: Option<String>,
    /// ARN of the permissions boundary for the roles
    #[arg(long, value_name = "ARN", help_heading = "Settings")]
    pub permissions_boundary: Option<String>,
    /// Path of the roles; default `/tenon/<cluster>/`
    #[arg(long, value_name = "PATH", help_heading = "Settings")]
    pub role_path: Option<String>,
    /// Mechanism by which the operator's pods get their role
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Settings")]
    pub identity: Option<IdentityMode>,
    /// Mechanism by which the cluster authorizes nodes
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Settings")]
    pub node_authorization: Option<Authorization>,
    /// Whether the operator (dynamic) or the installer (static) creates instance profiles
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Settings")]
    pub instance_profile: Option<ProfileMode>,
    /// Where the operator runs
    #[arg(long = "run-on", value_enum, value_name = "WHERE", help_heading = "Settings")]
    pub host_on: Option<Host>,
    /// ARN of the KMS key for the interruption queue
    #[arg(long, value_name = "ARN", help_heading = "Settings")]
    pub queue_kms_key: Option<String>,
    /// Install the EKS add-on for Pod Identity if the cluster has none
    #[arg(long, help_heading = "Settings")]
    pub install_agent: bool,
    /// Use this role for the operator instead of creating one
    #[arg(long, value_name = "ARN", help_heading = "Settings")]
    pub controller_role_arn: Option<String>,
    /// Use this role for nodes instead of creating one
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub node_role_name: Option<String>,
    /// Don't create an interruption queue and rules
    #[arg(long, help_heading = "Settings")]
    pub no_interruption: bool,
    /// How EC2NodeClasses select subnets and security groups
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Settings")]
    pub discovery: Option<Discovery>,
    /// Subnets for nodes; default: those of the cluster
    #[arg(long, value_delimiter = ',', value_name = "ID,…", help_heading = "Settings")]
    pub subnets: Vec<String>,
    /// Security groups for nodes; default: the cluster's own
    #[arg(long, value_delimiter = ',', value_name = "ID,…", help_heading = "Settings")]
    pub security_groups: Vec<String>,
    /// Namespace of the operator
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub namespace: Option<String>,
    /// Image of the operator, without tag
    #[arg(long, value_name = "REPOSITORY", help_heading = "Settings")]
    pub image: Option<String>,
    /// Tag of the operator's image
    #[arg(long, value_name = "TAG", help_heading = "Settings")]
    pub image_tag: Option<String>,
    /// Number of replicas of the operator, one of them active
    #[arg(long, value_name = "N", help_heading = "Settings")]
    pub replicas: Option<i32>,
    /// Set a value of the Helm chart, such as `logLevel=debug` (may be repeated)
    #[arg(long, value_name = "PATH=VALUE", help_heading = "Settings")]
    pub set: Vec<String>,
    /// File with values of the Helm chart (may be repeated)
    #[arg(long = "values", value_name = "FILE", help_heading = "Settings")]
    pub values_files: Vec<PathBuf>,
    /// Don't create a default NodePool and EC2NodeClass
    #[arg(long, help_heading = "Settings")]
    pub no_defaults: bool,
    /// Capacity types of the default NodePool
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "TYPE,…",
        help_heading = "Settings"
    )]
    pub capacity: Vec<CapacityType>,
    /// Architectures of the default NodePool
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "ARCH,…",
        help_heading = "Settings"
    )]
    pub arch: Vec<Architecture>,
    /// CPU limit of the default NodePool
    #[arg(long, value_name = "CORES", help_heading = "Settings")]
    pub cpu_limit: Option<u32>,
    /// AMI alias of the default EC2NodeClass
    #[arg(long, value_name = "ALIAS", help_heading = "Settings")]
    pub ami_alias: Option<String>,
    /// Apply these NodePools and EC2NodeClasses instead of the default ones (may be repeated)
    #[arg(long = "nodepool-file", value_name = "FILE", help_heading = "Settings")]
    pub nodepool_files: Vec<PathBuf>,
    /// Tag for all AWS resources (may be repeated)
    #[arg(long = "tag", value_name = "KEY=VALUE", help_heading = "Settings")]
    pub tags: Vec<String>,
}
