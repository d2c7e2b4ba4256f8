//! The one place where the bed reads environment variables: each is declared once, here or in the
//! AWS double, with its meaning.

use std::path::PathBuf;

use clap::Parser;

/// What the bed takes from the environment of the process it runs in.
#[derive(Clone, Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct Environment {
    /// What the AWS double takes.
    #[command(flatten)]
    pub double: tenon_aws_double::environment::Environment,
    /// A directory with `etcd`, `kube-apiserver` and `kubectl` (the convention of envtest); they
    /// are then used instead of being built.
    #[arg(long, env = "KUBEBUILDER_ASSETS")]
    pub kubebuilder_assets: Option<PathBuf>,
    /// Keep the temporary directory of each bed when it stops (logs, etcd data), to look at it
    /// afterwards.
    #[arg(long, env = "TENON_BED_KEEP", value_parser = clap::builder::FalseyValueParser::new(), default_value = "")]
    pub keep: bool,
    /// How many beds may run at once on this machine (1 to 16); each needs about 1 GB of memory.
    #[arg(long, env = "TENON_BED_SLOTS", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub slots: u16,
    /// The address of a running bed's control API, as `sandbox up` exports it; the control verbs of
    /// `sandbox` use it.
    #[arg(long, env = "TENON_BED_CONTROL")]
    pub control: Option<String>,
    /// What the bed logs on stderr, in the syntax of `tracing` (`tenon_bed=debug`).
    #[arg(long, env = "RUST_LOG", default_value = "tenon_bed=warn,tenon_aws_double=warn")]
    pub log: String,
    /// Whether the programs of this workspace are brought up to date before a bed starts; with
    /// `false`, those that are there are used.
    #[arg(long, env = "TENON_BED_BUILD", value_parser = clap::builder::BoolishValueParser::new(), default_value = "true")]
    pub build: bool,
    /// Only scenarios whose names contain this text are played, of tests that play several on one
    /// bed.
    #[arg(long, env = "TENON_SCENARIO", default_value = "")]
    pub scenario: String,
    /// How often an operator is started in the midst of drains, in each order in which it may get
    /// to know the cluster: more often to look for rare orders of events.
    #[arg(long, env = "TENON_COLD_STARTS", default_value_t = 1)]
    pub cold_starts: usize,
    /// The cargo that runs us; set by cargo itself.
    #[arg(long, env = "CARGO", default_value = "cargo")]
    pub cargo: PathBuf,
}

impl Environment {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// When a variable has a value that it can't have; the message names it and what is allowed.
    pub fn read() -> Result<Self, clap::Error> {
        Self::try_parse_from(std::iter::empty::<&str>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_without_any_argument() {
        let environment = Environment::read().expect("the environment of a test run is valid");
        assert!(environment.slots >= 1);
        assert!(!environment.double.path.is_empty());
    }
}
