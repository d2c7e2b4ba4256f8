//! The verbs that act on a running bed: clients of its control API.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::Value;

use self::arguments::{
    BootArgs, CallsArgs, DropArgs, FailArgs, IceArgs, InterruptArgs, LatencyArgs, PriceArgs,
    SelectionArgs, ShiftArgs, ThrottleArgs,
};
use self::request::Method;
use crate::cli::Output;
use crate::control::Control;
use crate::environment::Environment;
use crate::failure::Failure;

mod arguments;
mod request;

/// What a running bed can be told to do.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the instances of the AWS double
    Instances {
        /// Include terminated instances
        #[arg(long)]
        all: bool,
    },
    /// Show AWS calls with caller, action, result and time
    Calls(CallsArgs),
    /// Count AWS calls by action
    Counts,
    /// Interrupt spot instances, with AWS's warning
    Interrupt(InterruptArgs),
    /// Recommend the replacement of spot instances
    Rebalance(SelectionArgs),
    /// Announce the retirement of instances through AWS Health
    Retire(SelectionArgs),
    /// Terminate instances, as from the AWS console
    Terminate {
        /// Instance ids
        #[arg(required = true, value_name = "ID")]
        instances: Vec<String>,
    },
    /// Stop instances, as from the AWS console
    Stop {
        /// Instance ids
        #[arg(required = true, value_name = "ID")]
        instances: Vec<String>,
    },
    /// Remove capacity (insufficient capacity errors)
    Ice(IceArgs),
    /// Throttle an action
    Throttle(ThrottleArgs),
    /// Fail an action with an AWS error
    Fail(FailArgs),
    /// Delay the answers to an action
    Latency(LatencyArgs),
    /// Close the connections of an action without an answer
    Drop(DropArgs),
    /// Change a price
    Price(PriceArgs),
    /// Move the cluster away from a zone (an ARC zonal shift)
    Shift(ShiftArgs),
    /// List the active zonal shifts
    Shifts,
    /// End a zonal shift
    Unshift {
        /// Id of the shift, as `shift` printed it
        #[arg(value_name = "SHIFT")]
        id: String,
    },
    /// Make instances boot slowly, incorrectly, or not at all
    Boot(BootArgs),
    /// Show why instances have not become nodes
    Problems,
    /// List the active faults
    Faults,
    /// End one fault, or all
    Heal {
        /// Id of the fault, as the command that created it printed; without an id, all faults end,
        /// including those of instances
        #[arg(value_name = "FAULT")]
        id: Option<String>,
    },
}

/// Sends a verb to the bed that the exports name, and prints the answer.
pub(super) async fn run(verb: Verb, output: Output) -> Result<ExitCode, Failure> {
    let environment = Environment::read()?;
    let base = environment.control.ok_or(
        "no bed is named: run `sandbox up` in another terminal and load the exports that it prints (TENON_BED_CONTROL)",
    )?;
    let control = Control::new(base);
    let alive_only = matches!(verb, Verb::Instances { all: false });
    for request in verb.requests() {
        let mut answer = match request.method {
            Method::Get => control.get(&request.path).await?,
            Method::Post => control.post(&request.path, &request.body).await?,
            Method::Delete => control.delete(&request.path).await?,
        };
        if alive_only && let Some(all) = answer.as_array_mut() {
            all.retain(|instance| instance["state"] != "terminated");
        }
        match output {
            Output::Json => anstream::println!("{answer}"),
            Output::Text => print(&request.path, &answer),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(path: &str, answer: &Value) {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match answer {
        Value::Array(items) if path == "instances" => {
            for it in items {
                let of = |key: &str| text(&it[key]);
                let (id, kind, zone) = (of("id"), of("instanceType"), of("zone"));
                anstream::println!(
                    "{id}  {kind:<14} {:<10} {zone:<16} {}",
                    of("capacityType"),
                    of("state")
                );
            }
        }
        Value::Array(items) if path.starts_with("calls") => {
            for it in items {
                let result =
                    if it["error"].is_null() { "ok".to_owned() } else { text(&it["error"]) };
                let (time, action) = (text(&it["time"]), text(&it["action"]));
                anstream::println!("{time}  {action:<45} {result:<30} {}", text(&it["caller"]));
            }
        }
        Value::Object(map) if map.is_empty() => {}
        Value::Object(map) if map.values().all(|value| !value.is_object() && !value.is_array()) => {
            for (key, value) in map {
                anstream::println!("{key:<45} {}", text(value));
            }
        }
        other => anstream::println!("{other:#}"),
    }
}
