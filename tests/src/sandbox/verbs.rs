//! The verbs that act on a running bed: clients of its control API.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::{Failure, Output};
use crate::control::Control;
use crate::environment::Environment;

/// A verb.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// List the instances of the AWS double
    Instances {
        /// Terminated ones, too
        #[arg(long)]
        all: bool,
    },
    /// Show AWS calls: who, action, result, time
    Calls(CallsArgs),
    /// Count AWS calls by action
    Counts,
    /// Take spot instances back, with AWS's warning
    Interrupt(InterruptArgs),
    /// Recommend to replace spot instances
    Rebalance(SelectionArgs),
    /// Announce the retirement of instances through AWS Health
    Retire(SelectionArgs),
    /// Terminate instances, as somebody at the console would
    Terminate {
        /// Instance ids
        #[arg(required = true, value_name = "ID")]
        instances: Vec<String>,
    },
    /// Stop instances, as somebody at the console would
    Stop {
        /// Instance ids
        #[arg(required = true, value_name = "ID")]
        instances: Vec<String>,
    },
    /// Take capacity away (insufficient capacity errors)
    Ice(IceArgs),
    /// Throttle an action
    Throttle(ThrottleArgs),
    /// Fail an action with an error of AWS
    Fail(FailArgs),
    /// Answer an action later
    Latency(LatencyArgs),
    /// Close the connections of an action without an answer
    Drop(DropArgs),
    /// Change a price
    Price(PriceArgs),
    /// Let machines boot slowly, badly, or not at all
    Boot(BootArgs),
    /// Say why machines have not become nodes
    Problems,
    /// List the faults in force
    Faults,
    /// End one fault, or all
    Heal {
        /// The fault's id, as the verb that set it printed; without it, all faults end, those of machines too
        #[arg(value_name = "FAULT")]
        id: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(super) struct CallsArgs {
    /// Only this action; wildcards are allowed
    #[arg(value_name = "SERVICE:ACTION")]
    action: Option<String>,
    /// Only those that failed
    #[arg(long)]
    failed: bool,
    /// Forget all calls so far
    #[arg(long, conflicts_with_all = ["action", "failed"])]
    clear: bool,
}

/// Which instances.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct SelectionArgs {
    /// Instance ids
    #[arg(value_name = "ID")]
    instances: Vec<String>,
    /// A share of all spot instances, 0 to 1
    #[arg(long, value_name = "SHARE")]
    share: Option<f64>,
}

#[derive(Debug, Args)]
pub(super) struct InterruptArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Seconds between warning and end
    #[arg(long, default_value_t = 120.0, value_name = "SECONDS")]
    notice: f64,
}

#[derive(Debug, Args)]
pub(super) struct IceArgs {
    /// Instance types; wildcards are allowed
    #[arg(value_name = "TYPE")]
    instance_type: String,
    /// Zones; wildcards are allowed
    #[arg(long, default_value = "*", value_name = "ZONE")]
    zone: String,
    /// Only this capacity type
    #[arg(long, value_enum, value_name = "TYPE")]
    capacity: Option<Capacity>,
    /// How many instances can still be launched
    #[arg(long, default_value_t = 0, value_name = "N")]
    left: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Capacity {
    Spot,
    OnDemand,
}

impl Capacity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }
}

/// Which calls a fault hits.
#[derive(Debug, Args)]
pub(super) struct TargetArgs {
    /// The action; wildcards are allowed (`ec2:*`)
    #[arg(value_name = "SERVICE:ACTION")]
    action: String,
    /// Only calls of this ARN; wildcards are allowed
    #[arg(long, value_name = "ARN")]
    caller: Option<String>,
    /// End after so many calls
    #[arg(long, value_name = "N")]
    times: Option<u32>,
    /// Hit only this share of the calls, 0 to 1
    #[arg(long, default_value_t = 1.0, value_name = "SHARE")]
    probability: f64,
}

#[derive(Debug, Args)]
pub(super) struct ThrottleArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Calls per second that pass
    #[arg(long, default_value_t = 0.0, value_name = "N")]
    per_second: f64,
    /// Calls that pass at once
    #[arg(long, default_value_t = 0.0, value_name = "N")]
    burst: f64,
}

#[derive(Debug, Args)]
pub(super) struct FailArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// AWS' error code
    #[arg(long, default_value = "InternalError", value_name = "CODE")]
    code: String,
    /// HTTP status
    #[arg(long, default_value_t = 500, value_name = "STATUS")]
    status: u16,
    /// The message
    #[arg(long, default_value = "", value_name = "TEXT")]
    message: String,
}

#[derive(Debug, Args)]
pub(super) struct LatencyArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// How much later
    #[arg(long, value_name = "SECONDS")]
    seconds: f64,
}

#[derive(Debug, Args)]
pub(super) struct DropArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Carry the call out, and lose only the answer
    #[arg(long)]
    answer_only: bool,
}

#[derive(Debug, Args)]
pub(super) struct PriceArgs {
    /// The instance type
    #[arg(value_name = "TYPE")]
    instance_type: String,
    /// Dollars per hour
    #[arg(value_name = "DOLLARS")]
    dollars: f64,
    /// Spot or on-demand
    #[arg(long, value_enum, default_value = "on-demand", value_name = "TYPE")]
    capacity: Capacity,
    /// The zone, of a spot price
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
}

/// At least one of the delays or a fault.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct BootArgs {
    /// Seconds from a running instance to its registration as a node, from now on
    #[arg(long, value_name = "SECONDS")]
    delay: Option<f64>,
    /// Seconds from registration to Ready, from now on
    #[arg(long, value_name = "SECONDS")]
    ready: Option<f64>,
    /// What goes wrong
    #[arg(long, value_enum, value_name = "FAULT")]
    fault: Option<BootFault>,
    /// Seconds that belong to the fault
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", requires = "fault")]
    after: f64,
    /// The instance that it hits
    #[arg(long, value_name = "ID", requires = "fault", conflicts_with_all = ["share", "next"])]
    instance: Option<String>,
    /// The share of new machines that it hits, 0 to 1
    #[arg(long, value_name = "SHARE", requires = "fault", conflicts_with = "next")]
    share: Option<f64>,
    /// How many of the next machines it hits
    #[arg(long, default_value_t = 1, value_name = "N", requires = "fault")]
    next: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BootFault {
    /// It never registers
    Never,
    /// It registers later
    Late,
    /// It registers and never gets Ready
    StaysNotReady,
    /// It is Ready, and later not any more
    GoesNotReady,
    /// It is Ready, and later silent
    FallsSilent,
}

/// A call of the control API.
#[derive(Debug, PartialEq)]
struct Request {
    method: Method,
    path: String,
    body: Value,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Method {
    Get,
    Post,
    Delete,
}

fn get(path: &str) -> Request {
    Request { method: Method::Get, path: path.to_owned(), body: Value::Null }
}

fn post(path: &str, body: Value) -> Request {
    Request { method: Method::Post, path: path.to_owned(), body }
}

fn delete(path: &str) -> Request {
    Request { method: Method::Delete, path: path.to_owned(), body: Value::Null }
}

impl SelectionArgs {
    fn body(self) -> Value {
        match self.share {
            Some(share) => json!({ "share": share }),
            None => json!({ "instances": self.instances }),
        }
    }
}

impl TargetArgs {
    fn fault(self, effect: &Value) -> Request {
        let mut body =
            json!({ "action": self.action, "probability": self.probability, "effect": effect });
        if let Some(caller) = self.caller {
            body["caller"] = json!(caller);
        }
        if let Some(times) = self.times {
            body["times"] = json!(times);
        }
        post("faults", body)
    }
}

impl BootArgs {
    fn body(&self) -> Value {
        let mut body = Map::new();
        if let Some(delay) = self.delay {
            body.insert("bootSeconds".to_owned(), json!(delay));
        }
        if let Some(ready) = self.ready {
            body.insert("readySeconds".to_owned(), json!(ready));
        }
        if let Some(fault) = self.fault {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a person's seconds, in milliseconds"
            )]
            let millis = (self.after.max(0.0) * 1000.0) as u64;
            let fault = match fault {
                BootFault::Never => json!("never-boots"),
                BootFault::Late => json!({ "boots-late": millis }),
                BootFault::StaysNotReady => json!("stays-not-ready"),
                BootFault::GoesNotReady => json!({ "goes-not-ready": millis }),
                BootFault::FallsSilent => json!({ "falls-silent": millis }),
            };
            let target = match (&self.instance, self.share) {
                (Some(id), _) => json!({ "instance": id }),
                (None, Some(share)) => json!({ "share": share }),
                (None, None) => json!({ "next": self.next }),
            };
            body.insert("fault".to_owned(), fault);
            body.insert("target".to_owned(), target);
        }
        body.into()
    }
}

impl Verb {
    fn requests(self) -> Vec<Request> {
        let one = match self {
            Self::Instances { .. } => get("instances"),
            Self::Calls(CallsArgs { clear: true, .. }) => delete("calls"),
            Self::Calls(CallsArgs { action, failed, .. }) => {
                let mut query = Vec::new();
                if let Some(action) = action {
                    let safe = percent_encoding::utf8_percent_encode(
                        &action,
                        percent_encoding::NON_ALPHANUMERIC,
                    );
                    query.push(format!("action={safe}"));
                }
                if failed {
                    query.push("failed=true".to_owned());
                }
                get(&format!("calls?{}", query.join("&")))
            }
            Self::Counts => get("counts"),
            Self::Interrupt(InterruptArgs { selection, notice }) => {
                let mut body = selection.body();
                body["notice"] = json!(notice);
                post("interrupt", body)
            }
            Self::Rebalance(selection) => post("rebalance", selection.body()),
            Self::Retire(selection) => post("schedule", selection.body()),
            Self::Terminate { instances } => post("terminate", json!({ "instances": instances })),
            Self::Stop { instances } => post("stop", json!({ "instances": instances })),
            Self::Ice(IceArgs { instance_type, zone, capacity, left }) => {
                let mut body = json!({ "instanceType": instance_type, "zone": zone, "left": left });
                if let Some(capacity) = capacity {
                    body["capacityType"] = json!(capacity.as_str());
                }
                post("ice", body)
            }
            Self::Throttle(ThrottleArgs { target, per_second, burst }) => {
                target.fault(&json!({ "throttle": { "perSecond": per_second, "burst": burst } }))
            }
            Self::Fail(FailArgs { target, code, status, message }) => target
                .fault(&json!({ "error": { "status": status, "code": code, "message": message } })),
            Self::Latency(LatencyArgs { target, seconds }) => {
                target.fault(&json!({ "latency": { "seconds": seconds } }))
            }
            Self::Drop(DropArgs { target, answer_only }) => {
                target.fault(&if answer_only { json!("dropAnswer") } else { json!("drop") })
            }
            Self::Price(PriceArgs { instance_type, dollars, capacity, zone }) => {
                let mut body = json!({ "instanceType": instance_type, "capacityType": capacity.as_str(), "dollars": dollars });
                if let Some(zone) = zone {
                    body["zone"] = json!(zone);
                }
                post("price", body)
            }
            Self::Boot(args) => post("machines", args.body()),
            Self::Problems => get("machines"),
            Self::Faults => get("faults"),
            Self::Heal { id: Some(id) } => delete(&format!("faults/{id}")),
            Self::Heal { id: None } => return vec![delete("faults"), delete("machines")],
        };
        vec![one]
    }
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::front::faults::{Effect, Fault, Shortage};

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        verb: Verb,
    }

    fn request(line: &str) -> Request {
        let line = Line::try_parse_from(["x"].into_iter().chain(line.split(' ')))
            .unwrap_or_else(|error| panic!("{error}"));
        line.verb.requests().remove(0)
    }

    #[test]
    fn faults_are_what_the_front_reads() {
        let fault = |line: &str| {
            serde_json::from_value::<Fault>(request(line).body).expect("the front's type")
        };
        let throttled = fault("throttle ec2:CreateFleet --per-second 2 --burst 5");
        assert_eq!(throttled.effect, Effect::Throttle { per_second: 2.0, burst: 5.0 });
        assert_eq!(fault("fail sqs:* --times 3").times, Some(3));
        assert_eq!(fault("drop ec2:RunInstances --answer-only").effect, Effect::DropAnswer);
        assert_eq!(fault("latency iam:* --seconds 1.5").effect, Effect::Latency { seconds: 1.5 });
    }

    #[test]
    fn shortages_are_what_the_front_reads() {
        let body = request("ice m7* --capacity spot --zone eu-central-1a").body;
        let shortage: Shortage = serde_json::from_value(body).expect("the front's type");
        assert_eq!((shortage.instance_type.as_str(), shortage.left), ("m7*", 0));
    }

    #[test]
    fn an_interruption_names_instances_or_a_share_and_not_both() {
        assert_eq!(
            request("interrupt i-1 i-2").body,
            json!({ "instances": ["i-1", "i-2"], "notice": 120.0 })
        );
        assert_eq!(
            request("interrupt --share 0.5 --notice 2").body,
            json!({ "share": 0.5, "notice": 2.0 })
        );
        assert!(Line::try_parse_from(["x", "interrupt", "i-1", "--share", "1"]).is_err());
        assert!(Line::try_parse_from(["x", "interrupt"]).is_err());
    }

    #[test]
    fn machine_faults_are_what_the_simulator_reads() {
        let body = request("boot --fault late --after 2 --next 3").body;
        let fault: crate::machine::Fault =
            serde_json::from_value(body["fault"].clone()).expect("its type");
        let target: crate::machine::Target =
            serde_json::from_value(body["target"].clone()).expect("its type");
        assert_eq!(fault, crate::machine::Fault::BootsLate(2000));
        assert_eq!(target, crate::machine::Target::Next(3));
        assert!(Line::try_parse_from(["x", "boot"]).is_err());
    }
}
