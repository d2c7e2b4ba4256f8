//! `tenon cost`

use std::time::Duration;

use clap::Args;
use tenon_simulate::CostBy;

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
