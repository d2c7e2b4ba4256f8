//! `tenon decisions`

use clap::Args;
use clap::builder::PossibleValuesParser;
use tenon_state::decision::Kind;

/// `tenon decisions`
#[derive(Debug, Args)]
pub struct DecisionsArgs {
    /// Also print new decisions and results, until interrupted
    #[arg(short, long)]
    pub follow: bool,
    /// Only decisions about this NodePool
    #[arg(long, value_name = "NAME")]
    pub nodepool: Option<String>,
    /// Only decisions about this node, by its name or that of its NodeClaim
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only decisions about this pod, as NAME or NAMESPACE/NAME
    #[arg(long, value_name = "POD")]
    pub pod: Option<String>,
    /// Only decisions of this kind
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::as_str)))]
    pub kind: Option<String>,
    /// Show at most this many of the newest decisions
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// How the operator is reached.
    #[command(flatten)]
    pub reach: ReachArgs,
}

/// How the operator's decision ledger is reached.
#[derive(Debug, Args)]
pub struct ReachArgs {
    /// Read decisions from this URL on the loopback address, such as http://127.0.0.1:8085, instead
    /// of forwarding a port of the operator's pod
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
}
