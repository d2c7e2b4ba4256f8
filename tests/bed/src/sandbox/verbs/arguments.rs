//! What the verbs take on the command line.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(in super::super) struct CallsArgs {
    /// Only this action; wildcards are allowed
    #[arg(value_name = "SERVICE:ACTION")]
    pub(super) action: Option<String>,
    /// Only failed calls
    #[arg(long)]
    pub(super) failed: bool,
    /// Clear the recorded calls
    #[arg(long, conflicts_with_all = ["action", "failed"])]
    pub(super) clear: bool,
}

/// Which instances.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(in super::super) struct SelectionArgs {
    /// Instance ids
    #[arg(value_name = "ID")]
    pub(super) instances: Vec<String>,
    /// Share of all spot instances, 0 to 1
    #[arg(long, value_name = "SHARE")]
    pub(super) share: Option<f64>,
}

#[derive(Debug, Args)]
pub(in super::super) struct InterruptArgs {
    #[command(flatten)]
    pub(super) selection: SelectionArgs,
    /// Seconds between the warning and the termination
    #[arg(long, default_value_t = 120.0, value_name = "SECONDS")]
    pub(super) notice: f64,
}

#[derive(Debug, Args)]
pub(in super::super) struct IceArgs {
    /// Instance types; wildcards are allowed
    #[arg(value_name = "TYPE")]
    pub(super) instance_type: String,
    /// Zones; wildcards are allowed
    #[arg(long, default_value = "*", value_name = "ZONE")]
    pub(super) zone: String,
    /// Only this capacity type
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(super) capacity: Option<Capacity>,
    /// Number of instances that can still be launched
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(super) left: u32,
}

#[derive(Debug, Args)]
pub(in super::super) struct ShiftArgs {
    /// Name or id of the zone
    #[arg(value_name = "ZONE")]
    pub(super) zone: String,
    /// Duration of the shift
    #[arg(long, default_value_t = 3600.0, value_name = "SECONDS", conflicts_with = "auto")]
    pub(super) seconds: f64,
    /// Start an autoshift, which lasts until it is ended
    #[arg(long)]
    pub(super) auto: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(in super::super) enum Capacity {
    Spot,
    OnDemand,
}

impl Capacity {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }
}

/// Which calls a fault hits.
#[derive(Debug, Args)]
pub(in super::super) struct TargetArgs {
    /// The action; wildcards are allowed (`ec2:*`)
    #[arg(value_name = "SERVICE:ACTION")]
    pub(super) action: String,
    /// Only calls of this ARN; wildcards are allowed
    #[arg(long, value_name = "ARN")]
    pub(super) caller: Option<String>,
    /// End the fault after this number of calls
    #[arg(long, value_name = "N")]
    pub(super) times: Option<u32>,
    /// Affect only this share of the calls, 0 to 1
    #[arg(long, default_value_t = 1.0, value_name = "SHARE")]
    pub(super) probability: f64,
}

#[derive(Debug, Args)]
pub(in super::super) struct ThrottleArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Number of calls per second that succeed
    #[arg(long, default_value_t = 0.0, value_name = "N")]
    pub(super) per_second: f64,
    /// Number of calls that succeed in a burst
    #[arg(long, default_value_t = 0.0, value_name = "N")]
    pub(super) burst: f64,
}

#[derive(Debug, Args)]
pub(in super::super) struct FailArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// AWS' error code
    #[arg(long, default_value = "InternalError", value_name = "CODE")]
    pub(super) code: String,
    /// HTTP status
    #[arg(long, default_value_t = 500, value_name = "STATUS")]
    pub(super) status: u16,
    /// The message
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(super) message: String,
}

#[derive(Debug, Args)]
pub(in super::super) struct LatencyArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Delay of the answer
    #[arg(long, value_name = "SECONDS")]
    pub(super) seconds: f64,
}

#[derive(Debug, Args)]
pub(in super::super) struct DropArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Execute the call, and lose only the answer
    #[arg(long)]
    pub(super) answer_only: bool,
}

#[derive(Debug, Args)]
pub(in super::super) struct PriceArgs {
    /// The instance type
    #[arg(value_name = "TYPE")]
    pub(super) instance_type: String,
    /// Dollars per hour
    #[arg(value_name = "DOLLARS")]
    pub(super) dollars: f64,
    /// Spot or on-demand
    #[arg(long, value_enum, default_value = "on-demand", value_name = "TYPE")]
    pub(super) capacity: Capacity,
    /// Zone of the spot price
    #[arg(long, value_name = "ZONE")]
    pub(super) zone: Option<String>,
}

/// At least one of the delays or a fault.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(in super::super) struct BootArgs {
    /// Seconds from a running instance to its registration as a node, from now on
    #[arg(long, value_name = "SECONDS")]
    pub(super) delay: Option<f64>,
    /// Seconds from registration to Ready, from now on
    #[arg(long, value_name = "SECONDS")]
    pub(super) ready: Option<f64>,
    /// Fault of the instances
    #[arg(long, value_enum, value_name = "FAULT")]
    pub(super) fault: Option<BootFault>,
    /// Seconds until the fault, or that it delays
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", requires = "fault")]
    pub(super) after: f64,
    /// Id of the affected instance
    #[arg(long, value_name = "ID", requires = "fault", conflicts_with_all = ["share", "next"])]
    pub(super) instance: Option<String>,
    /// Share of new instances that are affected, 0 to 1
    #[arg(long, value_name = "SHARE", requires = "fault", conflicts_with = "next")]
    pub(super) share: Option<f64>,
    /// Number of the next instances that are affected
    #[arg(long, default_value_t = 1, value_name = "N", requires = "fault")]
    pub(super) next: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(in super::super) enum BootFault {
    /// Never register
    Never,
    /// Register later
    Late,
    /// Register, and never become Ready
    StaysNotReady,
    /// Become Ready, and later NotReady
    GoesNotReady,
    /// Become Ready, and later stop reporting
    FallsSilent,
}
