//! `tenon cost`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tenon_simulate::{CostBy, NodeGroup};

use super::decisions::ReachArgs;
use super::duration::parse_duration;
use super::simulate::SourceArgs;

/// `tenon cost`
#[derive(Debug, Args)]
pub struct CostArgs {
    /// Group costs by nodepool, capacity-type, zone, instance-type, namespace, workload, or a label
    /// of pods, such as label=team
    #[arg(long, default_value_t, value_name = "GROUP")]
    pub by: CostBy,
    /// Count only what consolidation saved in the last such time; default: since the operator's
    /// leader started
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub since: Option<Duration>,
    /// Print all groups as CSV, for spreadsheets
    #[arg(long)]
    pub csv: bool,
    /// Print the costs of this hour as CSV in the format of FOCUS 1.2, billed to this AWS account
    /// (12 digits)
    #[arg(long, value_parser = account, value_name = "ACCOUNT")]
    #[arg(conflicts_with_all = ["csv", "since", "watch"])]
    pub focus: Option<String>,
    /// Savings Plans and reserved instances, which pay for nodes first: the output of `aws ec2
    /// describe-reserved-instances`, `aws savingsplans describe-savings-plans` or `aws savingsplans
    /// describe-savings-plan-rates` (may be repeated)
    #[arg(long, value_name = "FILE")]
    pub commitments: Vec<PathBuf>,
    /// Compare with what the pods of NodePools would cost on node groups of this instance type, as
    /// Cluster Autoscaler scales them: TYPE for on-demand instances, TYPE:spot for spot instances
    /// (may be repeated)
    #[arg(long, value_name = "TYPE[:spot]", conflicts_with_all = ["csv", "focus"])]
    pub node_group: Vec<NodeGroup>,
    /// Show the costs again after every change (on a terminal, in place) until interrupted
    #[arg(long, conflicts_with_all = ["csv", "files"])]
    pub watch: bool,
    /// How the operator is reached.
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Where the objects come from; without files, the cluster of the current kubeconfig.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The terminal's type: on one that moves no cursor, nothing is redrawn in place
    #[arg(long, env = "TERM", hide = true)]
    pub term: Option<String>,
}

fn account(text: &str) -> Result<String, String> {
    if text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(text.to_owned())
    } else {
        Err("an AWS account ID is a number of 12 digits".to_owned())
    }
}
