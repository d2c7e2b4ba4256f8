//! What a plan comes to: what it adds to the bill, and what it does to nodes that run.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tenon_crds::labels::{self, aws};
use tenon_crds::{EC2NodeClassSpec, NodePoolSpec, hash};

use super::{Action, Op, Plan};
use crate::desired::Desired;
use crate::kubernetes::object::{Key, Object, annotation, label};
use crate::observe::actual::Actual;
use crate::words::count;

/// Hours in a month, as AWS counts them.
const HOURS: f64 = 730.0;

/// List prices of us-east-1 in USD, from AWS's price pages in July 2025; other regions differ by
/// some percent.
mod price {
    /// A million requests to SQS, beyond the first million a month.
    pub(super) const SQS_MILLION: f64 = 0.40;
    /// 10,000 requests to KMS.
    pub(super) const KMS_TEN_THOUSAND: f64 = 0.03;
    /// An hour of a vCPU on Fargate.
    pub(super) const FARGATE_CPU: f64 = 0.040_48;
    /// An hour of a GB of memory on Fargate.
    pub(super) const FARGATE_GB: f64 = 0.004_445;
}

/// The operator asks the queue three times a minute when nothing happens.
const REQUESTS_A_MONTH: f64 = 3.0 * 60.0 * HOURS;

/// Sender and reader of the queue each ask KMS once per five minutes for a data key.
const KEYS_A_MONTH: f64 = 2.0 * 12.0 * HOURS;

/// What a plan comes to.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Impact {
    /// What is added to the bill, an estimate.
    pub cost: Vec<Cost>,
    /// NodeClaims that are there; not counted if the plan changes no NodePool and no EC2NodeClass.
    pub node_claims: Option<usize>,
    /// What happens to them.
    pub drift: Vec<Drift>,
}

/// What one thing costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// What it is.
    pub what: String,
    /// USD a month.
    pub monthly: f64,
    /// What was assumed.
    pub basis: String,
}

/// What a changed NodePool or EC2NodeClass does to its NodeClaims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    /// Which object.
    pub object: String,
    /// How many NodeClaims are of it.
    pub node_claims: usize,
    /// All of them drift; otherwise those that no longer fit.
    pub all: bool,
}

impl Impact {
    /// Looks ahead. `claims` are all NodeClaims, if they were read.
    pub fn of(plan: &Plan, desired: &Desired, actual: &Actual, claims: Option<&[Value]>) -> Self {
        Self {
            cost: cost(plan, desired),
            node_claims: claims.map(<[Value]>::len),
            drift: drifts(plan, &actual.objects, claims.unwrap_or_default()),
        }
    }

    /// What a plan of NodePools and EC2NodeClasses alone does to nodes. `live` are the objects as
    /// they are, `claims` all NodeClaims.
    pub fn on_nodes(plan: &Plan, live: &BTreeMap<Key, Value>, claims: &[Value]) -> Self {
        let node_claims = Self::needs_claims(plan).then_some(claims.len());
        Self { cost: Vec::new(), node_claims, drift: drifts(plan, live, claims) }
    }

    /// Whether it takes the NodeClaims to look ahead.
    pub fn needs_claims(plan: &Plan) -> bool {
        changed_node_objects(plan).next().is_some()
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.cost.is_empty() {
            let sum = self.cost.iter().map(|cost| cost.monthly).sum::<f64>();
            lines.push(format!(
                "Cost: about ${sum:.2} more per month at list prices; the cost of nodes depends on \
                 the pods."
            ));
            lines.extend(
                self.cost
                    .iter()
                    .map(|cost| format!("   ${:.2}  {} ({})", cost.monthly, cost.what, cost.basis)),
            );
        }
        if let Some(claims) = self.node_claims {
            if self.drift.is_empty() {
                lines.push(format!("Nodes: none of {} drifts.", count(claims, "NodeClaim")));
            }
            lines.extend(self.drift.iter().map(Drift::line));
        }
        lines
    }
}

impl Drift {
    fn line(&self) -> String {
        let claims = count(self.node_claims, "NodeClaim");
        let (verb, replaced, they) = match self.node_claims {
            1 => ("drifts", "is replaced as disruption budgets allow", "it no longer matches"),
            _ => ("drift", "are replaced as disruption budgets allow", "they no longer match"),
        };
        let so_far = if self.all { String::new() } else { format!(" if {they}") };
        format!("Nodes: {claims} of {} {verb}{so_far}, and {replaced}.", self.object)
    }
}

fn cost(plan: &Plan, desired: &Desired) -> Vec<Cost> {
    let mut costs = Vec::new();
    for step in plan.steps.iter().filter(|step| step.op == Op::Create) {
        match &step.action {
            Action::CreateQueue(queue) => {
                costs.push(Cost {
                    what: "SQS queue".to_owned(),
                    monthly: REQUESTS_A_MONTH / 1e6 * price::SQS_MILLION,
                    basis: "130,000 requests; nothing within the first million of the account"
                        .to_owned(),
                });
                if queue.key().is_some() {
                    costs.push(Cost {
                        what: "requests to the queue's KMS key".to_owned(),
                        monthly: KEYS_A_MONTH / 1e4 * price::KMS_TEN_THOUSAND,
                        basis: "one data key per five minutes; the key itself already exists"
                            .to_owned(),
                    });
                }
            }
            Action::CreateFargate { .. } => costs.extend(fargate(desired)),
            _ => {}
        }
    }
    costs
}

/// Fargate has sizes: vCPUs, with the least and the most memory in GB that go with them.
const SIZES: [(f64, f64, f64); 5] =
    [(0.25, 0.5, 2.0), (0.5, 1.0, 4.0), (1.0, 2.0, 8.0), (2.0, 4.0, 16.0), (4.0, 8.0, 30.0)];

fn fargate(desired: &Desired) -> Option<Cost> {
    let deployment = desired.deployment()?;
    let replicas = deployment.body.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    let replicas = u32::try_from(replicas).unwrap_or(u32::MAX);
    let pods = usize::try_from(replicas).unwrap_or(usize::MAX);
    let requests = deployment.body.pointer("/spec/template/spec/containers/0/resources/requests");
    let asked = |name: &str| {
        let text = requests.and_then(|requests| requests.get(name)).and_then(Value::as_str);
        text.and_then(|text| text.parse::<tenon_crds::Quantity>().ok())
    };
    #[expect(clippy::cast_precision_loss, reason = "vCPUs and bytes of one pod are far below 2^52")]
    let (cpu, memory) = (
        asked("cpu").map_or(0.0, |cpu| cpu.millis() as f64 / 1000.0),
        asked("memory").map_or(0.0, |memory| memory.units() as f64 / f64::from(1 << 30)),
    );
    // Fargate adds 256 MB for its own part of each pod.
    let memory = memory + 0.25;
    let (cpu, memory) = SIZES
        .iter()
        .find(|(vcpus, _, most)| *vcpus >= cpu && *most >= memory)
        .map_or((cpu, memory), |(vcpus, least, _)| (*vcpus, memory.max(*least).ceil_half()));
    Some(Cost {
        what: format!("{} of the operator on Fargate", count(pods, "pod")),
        monthly: f64::from(replicas)
            * HOURS
            * (cpu * price::FARGATE_CPU + memory * price::FARGATE_GB),
        basis: format!("{cpu} vCPU and {memory} GB each"),
    })
}

trait CeilHalf {
    /// The next half above.
    fn ceil_half(self) -> Self;
}

impl CeilHalf for f64 {
    fn ceil_half(self) -> Self {
        (self * 2.0).ceil() / 2.0
    }
}

fn changed_node_objects(plan: &Plan) -> impl Iterator<Item = &Object> {
    plan.steps.iter().filter(|step| step.op == Op::Update).filter_map(|step| match &step.action {
        Action::Apply(object)
            if matches!(object.resource.kind.as_str(), "NodePool" | "EC2NodeClass") =>
        {
            Some(object)
        }
        _ => None,
    })
}

fn drifts(plan: &Plan, live: &BTreeMap<Key, Value>, claims: &[Value]) -> Vec<Drift> {
    changed_node_objects(plan).filter_map(|object| drift(object, live, claims)).collect()
}

fn drift(object: &Object, live: &BTreeMap<Key, Value>, claims: &[Value]) -> Option<Drift> {
    let live = live.get(&object.key())?;
    let before = &live["spec"];
    let after = applied(before, &object.body["spec"]);
    let is_pool = object.resource.kind == "NodePool";
    let all = if is_pool {
        hash_of_pool(before) != hash_of_pool(&after)
    } else {
        hash_of_class(before) != hash_of_class(&after)
    };
    let differs = |pointer: &str| before.pointer(pointer) != after.pointer(pointer);
    // Not part of the hash: each node is compared with what these select.
    let selectors = if is_pool {
        &["/template/spec/requirements"][..]
    } else {
        &["/amiSelectorTerms", "/subnetSelectorTerms", "/securityGroupSelectorTerms"]
    };
    if !all && !selectors.iter().any(|pointer| differs(pointer)) {
        return None;
    }
    let name = object.name.as_str();
    let of_object = |claim: &&Value| {
        if is_pool {
            label(claim, labels::NODEPOOL) == Some(name)
        } else {
            claim["spec"]["nodeClassRef"]["name"] == name
        }
    };
    // The operator gives NodeClaims with a hash of another version the new hash, and does not call
    // that a drift.
    let (version, current) = if is_pool {
        (labels::NODEPOOL_HASH_VERSION, hash::NODE_POOL_HASH_VERSION)
    } else {
        (aws::EC2NODECLASS_HASH_VERSION, hash::EC2_NODE_CLASS_HASH_VERSION)
    };
    let comparable = |claim: &&Value| !all || annotation(claim, version) == Some(current);
    let node_claims = claims.iter().filter(of_object).filter(comparable).count();
    (node_claims > 0).then(|| Drift { object: object.key().to_string(), node_claims, all })
}

/// A spec after it was applied: what is asked for wins, and what the installer wrote earlier and
/// does not ask for any more goes.
fn applied(live: &Value, asked: &Value) -> Value {
    let mut after = live.clone();
    overlay(&mut after, asked);
    if let Some(after) = after.as_object_mut() {
        for key in ["role", "instanceProfile", "tags"] {
            if asked.get(key).is_none() {
                after.remove(key);
            }
        }
    }
    after
}

fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                overlay(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => base.clone_from(over),
    }
}

fn hash_of_pool(spec: &Value) -> Option<String> {
    let spec: NodePoolSpec = serde_json::from_value(spec.clone()).ok()?;
    Some(hash::node_pool(&spec))
}

fn hash_of_class(spec: &Value) -> Option<String> {
    let spec: EC2NodeClassSpec = serde_json::from_value(spec.clone()).ok()?;
    Some(hash::ec2_node_class(&spec, None))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::{Step, diff};
    use crate::testing::{complete, desired, untouched};

    fn claim(pool: &str) -> Value {
        json!({
            "metadata": {
                "labels": {(labels::NODEPOOL): pool},
                "annotations": {
                    (labels::NODEPOOL_HASH_VERSION): hash::NODE_POOL_HASH_VERSION,
                    (aws::EC2NODECLASS_HASH_VERSION): hash::EC2_NODE_CLASS_HASH_VERSION,
                },
            },
            "spec": {"nodeClassRef": {"name": "default"}},
        })
    }

    #[test]
    fn a_first_installation_costs_a_queue_and_touches_no_node() {
        let desired = desired("");
        let plan = diff(&desired, &untouched()).expect("nothing is in the way");
        assert!(!Impact::needs_claims(&plan));
        let impact = Impact::of(&plan, &desired, &untouched(), None);
        insta::assert_snapshot!(impact.lines().join("\n"), @r"
        Cost: about $0.05 more per month at list prices; the cost of nodes depends on the pods.
           $0.05  SQS queue (130,000 requests; nothing within the first million of the account)
        ");
    }

    #[test]
    fn the_operator_on_fargate_is_paid_by_the_size_that_holds_it() {
        let desired = desired("deploy:\n  host: fargate\n");
        let cost = fargate(&desired).expect("there is a Deployment");
        insta::assert_snapshot!(format!("{} {:.2} {}", cost.what, cost.monthly, cost.basis), @"2 pods of the operator on Fargate 72.08 1 vCPU and 2 GB each");
    }

    #[test]
    fn what_enters_the_hash_makes_all_nodes_drift_and_a_selector_those_that_no_longer_fit() {
        let before = desired("");
        let actual = complete(&before);
        let mut older = claim("default");
        older["metadata"]["annotations"][aws::EC2NODECLASS_HASH_VERSION] = json!("v1");
        let claims = [claim("default"), claim("default"), claim("mine"), older];
        let of = |extra: &str| {
            let after = desired(extra);
            let steps = after
                .node_objects
                .iter()
                .filter(|object| {
                    actual
                        .objects
                        .get(&object.key())
                        .is_some_and(|live| live["spec"] != object.body["spec"])
                })
                .map(|object| {
                    Step::new(&object.name, "", "", Op::Update, Action::Apply(object.clone()))
                });
            let plan = Plan { steps: steps.collect(), warnings: Vec::new() };
            Impact::of(&plan, &after, &actual, Some(&claims)).lines()
        };
        assert_eq!(of(""), ["Nodes: none of 4 NodeClaims drifts."]);
        assert_eq!(
            of("tags:\n  team: a\n"),
            ["Nodes: 3 NodeClaims of EC2NodeClass default drift, and are replaced as disruption \
                 budgets allow."]
        );
        assert_eq!(
            of("defaults:\n  arch: [arm64]\n"),
            ["Nodes: 3 NodeClaims of NodePool default drift if they no longer match, and \
                 are replaced as disruption budgets allow."]
        );
        assert_eq!(of("defaults:\n  cpuLimit: 7\n"), ["Nodes: none of 4 NodeClaims drifts."]);
    }
}
