//! The command line: what can be typed. What it means is resolved in [`crate::settings`].

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::simulate::{ExplainArgs, SimulateArgs};
use crate::printer::Printer;
use crate::settings::config::{
    Architecture, Authorization, CapacityType, Discovery, Host, IdentityMode, ProfileMode,
};

/// Installs, checks and removes Tenon, a node autoscaler for Kubernetes on AWS.
#[derive(Debug, Parser)]
#[command(
    name = "tenon",
    version,
    max_term_width = 100,
    propagate_version = false,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What every command understands.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Install Tenon, or bring an installation to what the settings say
    ///
    /// Without a settings file, on a terminal, a wizard asks for what it cannot find out.
    #[command(visible_alias = "apply")]
    Install(InstallArgs),
    /// Show what `install` would do, and change nothing
    Plan(PlanArgs),
    /// Show what differs from the settings, and end with code 5 if anything does
    Diff(DiffArgs),
    /// Let all NodePools stand still: no launches, no voluntary disruption
    Freeze(FreezeArgs),
    /// Let frozen NodePools go on
    Unfreeze(FreezeArgs),
    /// Check whether cluster and account are fit for Tenon, and change nothing
    Preflight(crate::commands::preflight::PreflightArgs),
    /// Show what is installed and whether it works
    Status(StatusArgs),
    /// Find out what is wrong, and why
    Doctor(crate::commands::doctor::DoctorArgs),
    /// Bring a newer version of the operator, without replacing a node
    Upgrade(crate::commands::upgrade::UpgradeArgs),
    /// Go back to the version before
    Rollback(crate::commands::rollback::RollbackArgs),
    /// Take a cluster over from Karpenter without replacing a node, or give it back
    Adopt(crate::commands::adopt::AdoptArgs),
    /// Remove nodes, operator and everything that the installer made
    Uninstall(crate::commands::uninstall::UninstallArgs),
    /// Find what an operator or an installation left behind in AWS, and remove it with --yes
    ///
    /// Works without an installation, and after the cluster itself is gone.
    Sweep(crate::commands::sweep::SweepArgs),
    /// Show what the operator would launch, place and remove, and change nothing
    Simulate(SimulateArgs),
    /// Tell why a pod, node or NodePool is as it is
    Explain(ExplainArgs),
    /// Print and verify IAM policies: of the operator, of nodes, of the caller
    Iam(crate::commands::iam::IamArgs),
    /// Begin, check and explain settings files
    Config(ConfigArgs),
    /// Print what would be made, for another tool to make
    Export(crate::commands::export::ExportArgs),
    /// Write what somebody else needs to see to help
    Bundle(crate::commands::bundle::BundleArgs),
    /// Print what a shell needs to complete command lines
    Completion(crate::commands::completion::CompletionArgs),
    /// Print the version
    Version,
}

/// What every command understands. A flag wins over its environment variable, which wins over the settings file.
#[derive(Debug, Clone, Args)]
pub struct GlobalArgs {
    /// Name of the EKS cluster
    #[arg(
        long,
        global = true,
        env = "TENON_CLUSTER",
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Target"
    )]
    pub cluster: Option<String>,
    /// AWS region of the cluster
    #[arg(
        long,
        global = true,
        env = "AWS_REGION",
        hide_env_values = true,
        value_name = "REGION",
        help_heading = "Target"
    )]
    pub region: Option<String>,
    /// Region of the AWS configuration, where AWS_REGION is not set
    #[arg(long, global = true, env = "AWS_DEFAULT_REGION", hide = true)]
    pub default_region: Option<String>,
    /// Profile of the AWS configuration
    #[arg(
        long,
        global = true,
        env = "AWS_PROFILE",
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Target"
    )]
    pub profile: Option<String>,
    /// Kubeconfig file; without it and without --context, the cluster is reached with a token made from the AWS credentials
    #[arg(
        long,
        global = true,
        env = "KUBECONFIG",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Target"
    )]
    pub kubeconfig: Option<String>,
    /// Context of the kubeconfig file
    #[arg(
        long,
        global = true,
        env = "TENON_CONTEXT",
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Target"
    )]
    pub context: Option<String>,
    /// How often a call to AWS is tried
    #[arg(long, global = true, env = "AWS_MAX_ATTEMPTS", hide = true, default_value_t = 8)]
    pub max_attempts: u32,
    /// Format of what is printed on stdout
    #[arg(
        short,
        long,
        global = true,
        env = "TENON_OUTPUT",
        hide_env_values = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub output: OutputFormat,
    /// Never ask: a missing value is an error
    #[arg(long, global = true)]
    pub non_interactive: bool,
    /// Set in most CI systems: then nothing is asked
    #[arg(long, global = true, env = "CI", hide = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "")]
    pub ci: bool,
    /// Print results only
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Log what is done (-v) and every request (-vv)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Log filter, such as `tenon=debug`
    #[arg(long, global = true, env = "TENON_LOG", hide = true)]
    pub log: Option<String>,
    /// Where journals and backups are kept; default `$XDG_STATE_HOME/tenon`, else `~/.local/state/tenon`
    #[arg(
        long,
        global = true,
        env = "TENON_STATE_DIR",
        hide_env_values = true,
        value_name = "DIR",
        hide = true
    )]
    pub state_dir: Option<PathBuf>,
    /// The user's state directory (XDG base directory specification)
    #[arg(long, global = true, env = "XDG_STATE_HOME", hide = true)]
    pub xdg_state_home: Option<PathBuf>,
    /// The user's home directory
    #[arg(long, global = true, env = "HOME", hide = true)]
    pub home: Option<PathBuf>,
    /// Who runs this, for others who meet its lock
    #[arg(long, global = true, env = "USER", hide = true, hide_env_values = true)]
    pub user: Option<String>,
    /// The machine's name, where the system does not say it
    #[arg(long, global = true, env = "HOSTNAME", hide = true, hide_env_values = true)]
    pub host: Option<String>,
    /// For tests of resuming: abort right after this many steps have been done, before that is recorded
    #[arg(long, global = true, env = "TENON_FAULT_EXIT_AFTER_STEP", hide = true)]
    pub fault_exit_after_step: Option<usize>,
}

impl GlobalArgs {
    /// Whether there is somebody who can answer questions.
    pub fn may_ask(&self) -> bool {
        Printer::is_interactive() && !self.non_interactive && !self.ci
    }
}

/// What is printed on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    #[value(alias = "table")]
    Text,
    /// For programs.
    Json,
    /// For programs, and for people who read data.
    Yaml,
}

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
    /// Refuse to work in any other AWS account
    #[arg(long, value_name = "ID", help_heading = "Settings")]
    pub account_id: Option<String>,
    /// First part of the names of everything made in AWS
    #[arg(long, value_name = "TEXT", help_heading = "Settings")]
    pub name_prefix: Option<String>,
    /// ARN of a permissions boundary for the roles
    #[arg(long, value_name = "ARN", help_heading = "Settings")]
    pub permissions_boundary: Option<String>,
    /// Path of the roles; default `/tenon/<cluster>/`
    #[arg(long, value_name = "PATH", help_heading = "Settings")]
    pub role_path: Option<String>,
    /// How the operator's pods get their role
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Settings")]
    pub identity: Option<IdentityMode>,
    /// How the cluster lets nodes in
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Settings")]
    pub node_authorization: Option<Authorization>,
    /// Who makes instance profiles
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Settings")]
    pub instance_profile: Option<ProfileMode>,
    /// Where the operator runs
    #[arg(long = "run-on", value_enum, value_name = "WHERE", help_heading = "Settings")]
    pub host_on: Option<Host>,
    /// ARN of a KMS key for the interruption queue
    #[arg(long, value_name = "ARN", help_heading = "Settings")]
    pub queue_kms_key: Option<String>,
    /// Install the EKS add-on for Pod Identity if the cluster has none
    #[arg(long, help_heading = "Settings")]
    pub install_agent: bool,
    /// Use this role for the operator instead of making one
    #[arg(long, value_name = "ARN", help_heading = "Settings")]
    pub controller_role_arn: Option<String>,
    /// Use this role for nodes instead of making one
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    pub node_role_name: Option<String>,
    /// Make no interruption queue and rules
    #[arg(long, help_heading = "Settings")]
    pub no_interruption: bool,
    /// How NodeClasses find subnets and security groups
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
    /// How many operators run, one of them active
    #[arg(long, value_name = "N", help_heading = "Settings")]
    pub replicas: Option<i32>,
    /// Set a value of the Helm chart, such as `logLevel=debug` (may be repeated)
    #[arg(long, value_name = "PATH=VALUE", help_heading = "Settings")]
    pub set: Vec<String>,
    /// File with values of the Helm chart (may be repeated)
    #[arg(long = "values", value_name = "FILE", help_heading = "Settings")]
    pub values_files: Vec<PathBuf>,
    /// Make no default NodePool and EC2NodeClass
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
    /// Tag for everything made in AWS (may be repeated)
    #[arg(long = "tag", value_name = "KEY=VALUE", help_heading = "Settings")]
    pub tags: Vec<String>,
}

/// `tenon install`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is given or not")]
pub struct InstallArgs {
    /// A plan that `tenon plan --out` saved: it is applied exactly so, or not at all
    #[arg(value_name = "PLAN", conflicts_with = "file")]
    pub plan: Option<PathBuf>,
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Which preflight checks are made.
    #[command(flatten)]
    pub checks: crate::commands::preflight::CheckArgs,
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Don't wait until the operator and the NodeClasses are ready
    #[arg(long)]
    pub no_wait: bool,
    /// Then launch one small node, see it join, and see it go by a message in the interruption queue
    #[arg(long, conflicts_with = "no_wait")]
    pub canary: bool,
    /// Give up waiting after this time, such as `90s`, `20m`
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "20m", value_name = "TIME")]
    pub timeout: Duration,
    /// How many steps may run at once
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=32), value_name = "N")]
    pub parallel: u8,
}

/// `tenon plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Save the plan: `tenon apply FILE` does exactly this, or nothing if the world has moved
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `tenon diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// What is asked for; default: what the installation recorded.
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// `tenon freeze`, `tenon unfreeze`
#[derive(Debug, Args)]
pub struct FreezeArgs {
    /// What was asked for; default: what the installation recorded.
    #[command(flatten)]
    pub settings: SettingArgs,
}

/// `tenon status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// What is asked for; default: what the installation recorded.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Wait until the operator, the EC2NodeClasses and the NodePools are ready
    #[arg(long)]
    pub wait: bool,
    /// Show the status again whenever it changes, until interrupted
    #[arg(long, conflicts_with_all = ["wait", "exit_code"])]
    pub watch: bool,
    /// Give up waiting after this time
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "20m", value_name = "TIME")]
    pub timeout: Duration,
    /// End with exit code 5 if something differs from the settings
    #[arg(long)]
    pub exit_code: bool,
}

/// `tenon config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: crate::commands::config::ConfigCommand,
}

/// Prints what clap has to say (help, version or a usage error) and tells the exit code: 0 or 2.
pub fn usage_exit(error: &clap::Error) -> ExitCode {
    // Nothing better can be done when the terminal is gone.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(crate::errors::EXIT_USAGE) } else { ExitCode::SUCCESS }
}

/// A time such as `90s`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let explain = || format!("{text:?} is not a time such as 90s, 20m or 1h");
    let number_end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(explain)?;
    let number: u64 = text[..number_end].parse().map_err(|_| explain())?;
    let unit = match &text[number_end..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(explain()),
    };
    Ok(Duration::from_secs(number.checked_mul(unit).ok_or_else(explain)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("20m"), Ok(Duration::from_mins(20)));
        assert!(parse_duration("20").is_err());
        assert!(parse_duration("m").is_err());
        assert!(parse_duration("1d").is_err());
    }
}
