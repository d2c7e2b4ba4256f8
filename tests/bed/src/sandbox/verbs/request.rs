//! From a verb to the calls of the control API that it means.

use serde_json::{Map, Value, json};

use super::Verb;
use super::arguments::{
    BootArgs, BootFault, CallsArgs, DropArgs, FailArgs, IceArgs, InterruptArgs, LatencyArgs,
    PriceArgs, SelectionArgs, ShiftArgs, TargetArgs, ThrottleArgs,
};

/// A call of the control API.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Value,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Method {
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
    pub(super) fn requests(self) -> Vec<Request> {
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
            Self::Shift(ShiftArgs { zone, seconds, auto }) => {
                let mut body = json!({ "awayFrom": zone });
                if !auto {
                    body["seconds"] = json!(seconds);
                }
                post("zonal-shifts", body)
            }
            Self::Shifts => get("zonal-shifts"),
            Self::Unshift { id } => delete(&format!("zonal-shifts/{id}")),
            Self::Boot(args) => post("machines", args.body()),
            Self::Problems => get("machines"),
            Self::Faults => get("faults"),
            Self::Heal { id: Some(id) } => delete(&format!("faults/{id}")),
            Self::Heal { id: None } => return vec![delete("faults"), delete("machines")],
        };
        vec![one]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use tenon_aws_double::faults::{Effect, Fault, Shortage};

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
    fn faults_are_what_the_gateway_reads() {
        let fault = |line: &str| {
            serde_json::from_value::<Fault>(request(line).body).expect("the gateway's type")
        };
        let throttled = fault("throttle ec2:CreateFleet --per-second 2 --burst 5");
        assert_eq!(throttled.effect, Effect::Throttle { per_second: 2.0, burst: 5.0 });
        assert_eq!(fault("fail sqs:* --times 3").times, Some(3));
        assert_eq!(fault("drop ec2:RunInstances --answer-only").effect, Effect::DropAnswer);
        assert_eq!(fault("latency iam:* --seconds 1.5").effect, Effect::Latency { seconds: 1.5 });
    }

    #[test]
    fn shortages_are_what_the_gateway_reads() {
        let body = request("ice m7* --capacity spot --zone eu-central-1a").body;
        let shortage: Shortage = serde_json::from_value(body).expect("the gateway's type");
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
    fn a_zonal_shift_has_an_end_and_an_autoshift_none() {
        let body = |line: &str| request(line).body;
        assert_eq!(
            body("shift eu-central-1a"),
            json!({ "awayFrom": "eu-central-1a", "seconds": 3600.0 })
        );
        assert_eq!(
            body("shift euc1-az2 --seconds 5"),
            json!({ "awayFrom": "euc1-az2", "seconds": 5.0 })
        );
        assert_eq!(body("shift euc1-az2 --auto"), json!({ "awayFrom": "euc1-az2" }));
        assert!(Line::try_parse_from(["x", "shift", "z", "--auto", "--seconds", "5"]).is_err());
        assert_eq!(request("unshift 1-2").path, "zonal-shifts/1-2");
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
