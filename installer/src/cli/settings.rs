//! Settings on the command line.

use std::path::PathBuf;

use clap::Args;
use tenon_installer_core::settings::config::{
    Architecture, Authorization, CapacityType, Discovery, Host, IdentityMode, ProfileMode,
};

/// Which installation a command is about. Its settings are those that it recorded, unless a file is
/// named; without a record, its objects are found by their names.
#[derive(Debug, Clone, Default, Args)]
pub struct InstallationArgs {
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
    /// Path of the roles; default `/tenon/<cluster>/`
    #[arg(long, value_name = "PATH", help_heading = "Settings")]
    pub role_path: Option<String>,
    /// Namespace of the operator
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub namespace: Option<String>,
}

impl InstallationArgs {
    /// The same as flags of a command that accepts all settings.
    pub fn settings(&self) -> SettingArgs {
        AwsArgs { installation: self.clone(), ..AwsArgs::default() }.settings()
    }
}

/// Settings on which the resources in AWS depend, for the commands that are about these alone. Each
/// flag wins over the file.
#[derive(Debug, Clone, Default, Args)]
pub struct AwsArgs {
    /// File and names.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// ARN of the permissions boundary for the roles
    #[arg(long, value_name = "ARN", help_heading = "Settings")]
    pub permissions_boundary: Option<String>,
    /// Mechanism by which the operator's pods get their role
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Settings")]
    pub identity: Option<IdentityMode>,
    /// Mechanism by which the cluster authorizes nodes
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Settings")]
    pub node_authorization: Option<Authorization>,
    /// Authorize nodes to run Windows, too
    #[arg(long, help_heading = "Settings")]
    pub windows_nodes: bool,
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
    /// Tag for all AWS resources (may be repeated)
    #[arg(long = "tag", value_name = "KEY=VALUE", help_heading = "Settings")]
    pub tags: Vec<String>,
}

impl AwsArgs {
    /// The same as flags of a command that accepts all settings.
    pub fn settings(&self) -> SettingArgs {
        SettingArgs { aws: self.clone(), ..SettingArgs::default() }
    }
}

/// How the operator is deployed.
#[derive(Debug, Clone, Default, Args)]
pub struct DeployArgs {
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
}

/// All settings, for the commands that plan with them. Each flag wins over the file.
#[derive(Debug, Clone, Default, Args)]
pub struct SettingArgs {
    /// File, names, and the resources in AWS.
    #[command(flatten)]
    pub aws: AwsArgs,
    /// Manage the AWS resources only: Helm, Flux or Argo CD deploys the operator
    #[arg(long, help_heading = "Settings")]
    pub aws_only: bool,
    /// The operator's image, and values of the chart.
    #[command(flatten)]
    pub deploy: DeployArgs,
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
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Cli;

    #[test]
    fn commands_on_an_installation_accept_what_finds_it_and_no_other_settings() {
        let parses = |command: &str, flags: &[&str]| {
            let line = ["tenon", command].into_iter().chain(flags.iter().copied());
            Cli::try_parse_from(line).is_ok()
        };
        for command in
            ["freeze", "unfreeze", "status", "doctor", "bundle", "rollback", "uninstall", "sweep"]
        {
            let found = ["-f", "tenon.yaml", "--name-prefix", "x", "--namespace", "y"];
            assert!(parses(command, &found), "{command}");
            for flags in [&["--replicas", "1"][..], &["--no-defaults"], &["--set", "a=b"]] {
                assert!(!parses(command, flags), "{command} {flags:?}");
                assert!(parses("plan", flags), "{flags:?}");
            }
        }
    }

    #[test]
    fn commands_about_aws_alone_accept_no_settings_of_the_operator() {
        let parses = |command: &[&str], flags: &[&str]| {
            let line = [&["tenon"], command, flags].concat();
            Cli::try_parse_from(line).is_ok()
        };
        for command in
            [["iam", "print"], ["iam", "verify"], ["export", "terraform"], ["export", "cfn"]]
        {
            for flags in [&["--no-interruption"][..], &["--tag", "a=b"], &["--subnets", "subnet-1"]]
            {
                assert!(parses(&command, flags), "{command:?} {flags:?}");
            }
            for flags in [&["--replicas", "1"][..], &["--arch", "arm64"], &["--cpu-limit", "9"]] {
                assert!(!parses(&command, flags), "{command:?} {flags:?}");
                assert!(parses(&["export", "values"], flags), "{flags:?}");
            }
        }
    }
}
