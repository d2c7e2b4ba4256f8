//! What every command understands.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::printer::{OutputFormat, Printer};

/// What every command understands. A flag wins over its environment variable, which wins over the
/// settings file.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
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
    /// Accept a region that this version of tenon does not know
    #[arg(
        long,
        global = true,
        env = "TENON_ALLOW_UNKNOWN_REGION",
        hide_env_values = true,
        value_parser = clap::builder::FalseyValueParser::new(),
        help_heading = "Target"
    )]
    pub allow_unknown_region: bool,
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
    /// The AWS configuration, for the names of its profiles
    #[arg(long, global = true, env = "AWS_CONFIG_FILE", hide = true, value_name = "FILE")]
    pub aws_config_file: Option<PathBuf>,
    /// The credentials of the AWS configuration, for the names of its profiles
    #[arg(
        long,
        global = true,
        env = "AWS_SHARED_CREDENTIALS_FILE",
        hide = true,
        value_name = "FILE"
    )]
    pub aws_credentials_file: Option<PathBuf>,
    /// Kubeconfig file; without it and without --context, tenon connects with a token created from
    /// the AWS credentials
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
    /// Maximum number of attempts for a call to AWS
    #[arg(long, global = true, env = "AWS_MAX_ATTEMPTS", hide = true, default_value_t = 8)]
    pub max_attempts: u32,
    /// Output format on stdout
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
    /// Never prompt: a missing value is an error
    #[arg(long, global = true)]
    pub non_interactive: bool,
    /// Set in most CI systems: never prompt
    #[arg(long, global = true, env = "CI", hide = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "")]
    pub ci: bool,
    /// Print results only
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Log each action (-v) and every request (-vv)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Log filter, such as `tenon=debug`
    #[arg(long, global = true, env = "TENON_LOG", hide = true)]
    pub log: Option<String>,
    /// Directory for journals and backups; default `$XDG_STATE_HOME/tenon`, else
    /// `~/.local/state/tenon`
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
    /// For tests of resuming: abort right after this many steps have been done, before that is
    /// recorded
    #[arg(long, global = true, env = "TENON_FAULT_EXIT_AFTER_STEP", hide = true)]
    pub fault_exit_after_step: Option<usize>,
}

impl GlobalArgs {
    /// Whether there is somebody who can answer questions.
    pub fn may_ask(&self) -> bool {
        Printer::is_interactive() && !self.non_interactive && !self.ci
    }

    /// Where records and backups of this machine are.
    pub fn records(&self) -> Option<PathBuf> {
        let absolute = |path: &&PathBuf| path.is_absolute();
        self.state_dir
            .clone()
            .or_else(|| {
                self.xdg_state_home.as_ref().filter(absolute).map(|path| path.join("tenon"))
            })
            .or_else(|| {
                self.home.as_ref().filter(absolute).map(|path| path.join(".local/state/tenon"))
            })
    }
}
