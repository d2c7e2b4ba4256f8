//! Faults that a person or a test sets: throttling, latency, errors, dropped connections and other
//! answers per action, parameters and caller, and pools that run out of capacity.

use std::collections::BTreeMap;
use std::time::Duration;

use indexmap::IndexMap;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::policy::glob;
use super::prices::CapacityType;
use super::request::{AwsRequest, Protocol};
use super::response::AwsError;
use super::rewrite::Rewrite;

/// A fault rule: which calls, how often, what happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// Calls by `service:Action`, with wildcards: `ec2:CreateFleet`, `sqs:*`, `*`.
    pub action: String,
    /// Callers by ARN, with wildcards; all callers when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Calls by the values of their parameters (of a form, or at the top of a JSON body), with
    /// wildcards; all calls when missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// How many calls are hit before the rule ends; no end when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// The share of calls that is hit, by the seeded source: 1 when missing.
    #[serde(default = "always")]
    pub probability: f64,
    /// What happens.
    pub effect: Effect,
}

impl Fault {
    /// A rule for every call of an action (wildcards allowed), whoever makes it.
    pub fn new(action: impl Into<String>, effect: Effect) -> Self {
        Self {
            action: action.into(),
            caller: None,
            parameters: BTreeMap::new(),
            times: None,
            probability: 1.0,
            effect,
        }
    }

    fn is_about(&self, request: &AwsRequest, caller: &str) -> bool {
        let has = |(name, pattern): (&String, &String)| {
            let value = request.params.get(name).or_else(|| request.json[name].as_str());
            value.is_some_and(|value| glob(pattern, value))
        };
        glob(&self.action, &request.iam_action())
            && self.caller.as_deref().is_none_or(|pattern| glob(pattern, caller))
            && self.parameters.iter().all(has)
    }
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Effect {
    /// AWS's throttling error of the call's protocol, once the bucket is empty: it holds `burst`
    /// calls and refills with `per_second`.
    Throttle {
        /// Calls per second that pass; zero throttles everything.
        per_second: f64,
        /// Calls that pass at once.
        #[serde(default)]
        burst: f64,
    },
    /// The call is answered with an error, and not carried out.
    Error {
        /// HTTP status.
        status: u16,
        /// AWS code.
        code: String,
        /// Message.
        #[serde(default)]
        message: String,
    },
    /// The call is answered so much later.
    Latency {
        /// Seconds.
        seconds: f64,
    },
    /// The connection is closed without an answer, before anything is done.
    Drop,
    /// The call is carried out, and the connection is closed without an answer.
    DropAnswer,
    /// The call is carried out, and its answer is changed.
    Rewrite(Rewrite),
}

fn always() -> f64 {
    1.0
}

/// What the gateway must do to a call.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) delay: Duration,
    pub(super) error: Option<AwsError>,
    pub(super) drop: bool,
    pub(super) drop_answer: bool,
    pub(super) rewrites: Vec<Rewrite>,
}

/// A pool of capacity, or several by wildcard, and how many instances can still be launched in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Shortage {
    /// Instance types, with wildcards.
    #[serde(default = "any")]
    pub instance_type: String,
    /// Zones, with wildcards.
    #[serde(default = "any")]
    pub zone: String,
    /// Capacity type; both when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<CapacityType>,
    /// Instances that can still be launched; zero when missing.
    #[serde(default)]
    pub left: u32,
    /// The error item's code; `InsufficientInstanceCapacity` when missing.
    #[serde(default = "insufficient")]
    pub code: String,
}

fn any() -> String {
    "*".to_owned()
}

fn insufficient() -> String {
    "InsufficientInstanceCapacity".to_owned()
}

/// The faults in force, by ID.
#[derive(Debug)]
pub struct Faults {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: StdRng,
    next: u32,
    rules: IndexMap<String, Rule>,
    shortages: IndexMap<String, Shortage>,
}

#[derive(Debug)]
struct Rule {
    fault: Fault,
    tokens: f64,
    refilled: Instant,
}

impl Faults {
    /// No faults; `seed` decides those with a probability.
    pub fn new(seed: u64) -> Self {
        let state = State {
            rng: StdRng::seed_from_u64(seed),
            next: 1,
            rules: IndexMap::new(),
            shortages: IndexMap::new(),
        };
        Self { state: Mutex::new(state) }
    }

    /// Adds a rule; returns its ID.
    pub fn add(&self, fault: Fault) -> String {
        let mut state = self.state.lock();
        let id = state.id("fault");
        let tokens = match fault.effect {
            Effect::Throttle { burst, .. } => burst,
            _ => 0.0,
        };
        state.rules.insert(id.clone(), Rule { fault, tokens, refilled: Instant::now() });
        id
    }

    /// Takes capacity away; returns the ID of the shortage. The newest shortage that matches a pool
    /// decides.
    pub(crate) fn add_shortage(&self, shortage: Shortage) -> String {
        let mut state = self.state.lock();
        let id = state.id("ice");
        state.shortages.insert(id.clone(), shortage);
        id
    }

    /// Ends a rule or a shortage; `false` if there is none of this ID.
    pub fn remove(&self, id: &str) -> bool {
        let mut state = self.state.lock();
        state.rules.shift_remove(id).is_some() || state.shortages.shift_remove(id).is_some()
    }

    /// Ends all rules and shortages.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.rules.clear();
        state.shortages.clear();
    }

    /// The rules in force, by ID.
    pub fn rules(&self) -> IndexMap<String, Fault> {
        self.state.lock().rules.iter().map(|(id, rule)| (id.clone(), rule.fault.clone())).collect()
    }

    /// The shortages in force, by ID.
    pub(crate) fn shortages(&self) -> IndexMap<String, Shortage> {
        self.state.lock().shortages.clone()
    }

    /// How many of `wanted` instances a pool gives, and the error for the rest. Takes them from the
    /// pool.
    pub(super) fn take_capacity(
        &self,
        instance_type: &str,
        zone: &str,
        capacity_type: CapacityType,
        wanted: u32,
    ) -> (u32, Option<String>) {
        let mut state = self.state.lock();
        let found = state.shortages.values_mut().rev().find(|shortage| {
            glob(&shortage.instance_type, instance_type)
                && glob(&shortage.zone, zone)
                && shortage.capacity_type.is_none_or(|kind| kind == capacity_type)
        });
        match found {
            None => (wanted, None),
            Some(shortage) => {
                let given = shortage.left.min(wanted);
                shortage.left -= given;
                (given, (given < wanted).then(|| shortage.code.clone()))
            }
        }
    }

    pub(super) fn judge(&self, request: &AwsRequest, caller: &str) -> Verdict {
        let mut verdict = Verdict::default();
        let state = &mut *self.state.lock();
        for rule in state.rules.values_mut() {
            let fault = &mut rule.fault;
            let applies = fault.is_about(request, caller)
                && fault.times != Some(0)
                && (fault.probability >= 1.0 || state.rng.random::<f64>() < fault.probability);
            if !applies {
                continue;
            }
            match &fault.effect {
                Effect::Throttle { per_second, burst } => {
                    let now = Instant::now();
                    let refill = now.duration_since(rule.refilled).as_secs_f64() * per_second;
                    rule.tokens = (rule.tokens + refill).min(burst.max(1.0));
                    rule.refilled = now;
                    if rule.tokens >= 1.0 {
                        rule.tokens -= 1.0;
                        continue;
                    }
                    verdict.error = Some(throttled(request));
                }
                Effect::Error { status, code, message } => {
                    verdict.error = Some(AwsError::new(code, message).with_status(*status));
                }
                Effect::Latency { seconds } => {
                    verdict.delay += Duration::try_from_secs_f64(*seconds).unwrap_or_default();
                }
                Effect::Drop => verdict.drop = true,
                Effect::DropAnswer => verdict.drop_answer = true,
                Effect::Rewrite(rewrite) => verdict.rewrites.push(rewrite.clone()),
            }
            if let Some(times) = &mut fault.times {
                *times -= 1;
            }
        }
        state.rules.retain(|_, rule| rule.fault.times != Some(0));
        verdict
    }
}

impl State {
    fn id(&mut self, kind: &str) -> String {
        let id = format!("{kind}-{}", self.next);
        self.next += 1;
        id
    }
}

fn throttled(request: &AwsRequest) -> AwsError {
    match request.protocol {
        Protocol::Ec2 => AwsError::new("RequestLimitExceeded", "Request limit exceeded."),
        Protocol::Query => AwsError::new("Throttling", "Rate exceeded"),
        Protocol::RestXml => {
            AwsError::new("SlowDown", "Please reduce your request rate.").with_status(503)
        }
        Protocol::Json(_) => AwsError::new("ThrottlingException", "Rate exceeded"),
        Protocol::RestJson => {
            AwsError::new("ThrottlingException", "Rate exceeded").with_status(429)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;
    use axum::http::{HeaderMap, Method};

    fn call(action: &str) -> AwsRequest {
        let uri = format!("/?Action={action}&X-Amz-Credential=K%2F1%2Fr%2Fec2%2Faws4_request")
            .parse()
            .unwrap();
        AwsRequest::read(Method::GET, &uri, HeaderMap::new(), Bytes::new(), "r")
    }

    fn fault(action: &str, effect: Effect) -> Fault {
        Fault::new(action, effect)
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_throttles_when_empty_and_refills() {
        let faults = Faults::new(1);
        faults.add(fault("ec2:Create*", Effect::Throttle { per_second: 1.0, burst: 2.0 }));
        let errors = |n: usize| -> Vec<bool> {
            (0..n).map(|_| faults.judge(&call("CreateFleet"), "").error.is_some()).collect()
        };
        assert_eq!(errors(3), [false, false, true]);
        assert_eq!(faults.judge(&call("DescribeInstances"), "").error, None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(errors(2), [false, true]);
        assert_eq!(
            faults.judge(&call("CreateFleet"), "").error.unwrap().code,
            "RequestLimitExceeded"
        );
    }

    #[tokio::test]
    async fn a_rule_ends_after_its_times_and_keeps_to_its_caller() {
        let faults = Faults::new(1);
        let error =
            Effect::Error { status: 500, code: "InternalError".to_owned(), message: String::new() };
        faults.add(Fault {
            times: Some(1),
            caller: Some("*role/op*".to_owned()),
            ..fault("*", error)
        });
        assert!(faults.judge(&call("A"), "arn:user/x").error.is_none());
        assert_eq!(faults.judge(&call("A"), "arn:role/op").error.unwrap().status, 500);
        assert!(faults.judge(&call("A"), "arn:role/op").error.is_none());
        assert!(faults.rules().is_empty());
    }

    #[tokio::test]
    async fn a_rule_keeps_to_the_parameters_of_its_calls() {
        let faults = Faults::new(1);
        let rewrite = Effect::Rewrite(Rewrite::body("<a/>"));
        faults.add(Fault {
            parameters: [("ImageId".to_owned(), "ami-*".to_owned())].into(),
            ..fault("ec2:DescribeImages", rewrite)
        });
        let rewrites = |call: &str| faults.judge(&self::call(call), "").rewrites.len();
        assert_eq!(rewrites("DescribeImages&ImageId=ami-1"), 1);
        assert_eq!(rewrites("DescribeImages&ImageId=x"), 0);
        assert_eq!(rewrites("DescribeImages"), 0);
    }

    #[tokio::test]
    async fn the_newest_shortage_decides_and_counts_down() {
        let faults = Faults::new(1);
        let ice = |kind: &str, left| Shortage {
            instance_type: kind.to_owned(),
            zone: any(),
            capacity_type: Some(CapacityType::Spot),
            left,
            code: insufficient(),
        };
        faults.add_shortage(ice("m5.*", 0));
        let id = faults.add_shortage(ice("m5.large", 1));
        assert_eq!(
            faults.take_capacity("m5.large", "a", CapacityType::Spot, 2),
            (1, Some(insufficient()))
        );
        assert_eq!(faults.take_capacity("m5.large", "a", CapacityType::OnDemand, 2), (2, None));
        assert_eq!(faults.take_capacity("m5.xlarge", "a", CapacityType::Spot, 1).0, 0);
        assert!(faults.remove(&id) && !faults.remove(&id));
        assert_eq!(faults.take_capacity("m5.large", "a", CapacityType::Spot, 1).0, 0);
    }
}
