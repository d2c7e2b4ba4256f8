//! `tenon top`

use std::time::Duration;

use clap::Args;

use super::decisions::ReachArgs;
use super::duration::parse_duration;

/// `tenon top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Read the cluster this often; at least 1s
    #[arg(long, value_parser = parse_interval, default_value = "2s", value_name = "TIME")]
    pub interval: Duration,
    /// How the operator is reached.
    #[command(flatten)]
    pub reach: ReachArgs,
    /// The terminal's type: one that moves no cursor can't be drawn on
    #[arg(long, env = "TERM", hide = true)]
    pub term: Option<String>,
    /// Unless it is empty, nothing is colored
    #[arg(long, env = "NO_COLOR", hide = true)]
    pub no_color: Option<String>,
}

/// A time that is not 0.
fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => {
            Err("the cluster is read at most once per second: use at least 1s".to_owned())
        }
        interval => Ok(interval),
    }
}
