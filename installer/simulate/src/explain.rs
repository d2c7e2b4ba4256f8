//! The planner's reasons for one object. The format is described in `docs/src/reference/simulate.md`.

use std::collections::BTreeMap;

use serde::Serialize;
use tenon_crds::ResourceList;
use tenon_planner::Snapshot;
use tenon_planner::plan::{PodRef, StayReason};
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot::{Eviction, Node, NodeId, NodePhase, Placement, Pod};
use tenon_state::resources;

use super::error::SimulateError;
use super::funnel::Funnel;
use super::options::{Kind, Subject};
use super::outcome::{Disruption, Launch, Plans};
use super::parts::{PodName, WhyNot, why_not};
use super::words::{self, amounts, counted, grouped, price};

/// The version of the format.
const SCHEMA: &str = "tenon.sh/explanation/v1alpha1";

/// Why an object is as it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    schema: &'static str,
    /// Kubernetes' name of the kind.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// The answer in one sentence.
    summary: String,
    /// What else there is to say, in words.
    #[serde(skip)]
    details: Vec<String>,
    #[serde(flatten)]
    facts: Facts,
}

/// The answer as data.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Facts {
    Pod(Box<PodFacts>),
    Node(Box<NodeFacts>),
    NodePool(Box<PoolFacts>),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodFacts {
    /// Where it is, or is expected; a machine is named by its NodeClaim, or by its Node where there is none.
    node: Option<String>,
    requests: ResourceList,
    /// The machine that would be launched for it.
    launch: Option<Launch>,
    /// Why it stays pending, NodePool by NodePool.
    reasons: Vec<WhyNot>,
    instance_types: Vec<Funnel>,
    /// What forbids its eviction now.
    eviction: Eviction,
    /// What would move it.
    disruption: Option<Disruption>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeFacts {
    node: Option<String>,
    node_claim: Option<String>,
    node_pool: Option<String>,
    phase: NodePhase,
    price_per_hour: Option<f64>,
    allocatable: ResourceList,
    requests: ResourceList,
    pods: usize,
    /// Why it stays.
    reason: Option<StayReason>,
    /// What would remove it.
    disruption: Option<Disruption>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolFacts {
    /// Why nothing is launched from it.
    not_ready: Option<String>,
    nodes: usize,
    price_per_hour: f64,
    limits: BTreeMap<String, Limit>,
    launches: Vec<Launch>,
    /// Pending pods that it can't take, by reason.
    excludes: BTreeMap<String, Vec<PodName>>,
    disruptions: Vec<Disruption>,
}

#[derive(Debug, Serialize)]
struct Limit {
    used: String,
    limit: String,
}

impl Answer {
    /// For people.
    pub fn text(&self) -> String {
        let name = match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        };
        let mut lines = vec![format!("{} {name}: {}", self.kind, self.summary)];
        lines.extend(self.details.iter().map(|detail| format!("  {detail}")));
        lines.join("\n")
    }
}

/// Looks the object up and puts together what the plans say about it.
pub(super) fn explain(
    subject: &Subject,
    snapshot: &Snapshot,
    plans: &Plans,
) -> Result<Answer, SimulateError> {
    let Subject { kind, namespace, name } = subject;
    match kind {
        Kind::Pod => pod(namespace, name, snapshot, plans),
        Kind::Node => node(name, false, snapshot, plans),
        Kind::NodeClaim => node(name, true, snapshot, plans),
        Kind::NodePool => node_pool(name, snapshot, plans),
    }
}

fn pod(
    namespace: &str,
    name: &str,
    snapshot: &Snapshot,
    plans: &Plans,
) -> Result<Answer, SimulateError> {
    let Some(pod) =
        snapshot.pods.iter().find(|pod| *pod.namespace == *namespace && *pod.name == *name)
    else {
        // Those of a Deployment of that name, or in another namespace.
        let similar = snapshot.pods.iter().filter(|pod| {
            *pod.name == *name || *pod.namespace == *namespace && pod.name.starts_with(name)
        });
        return Err(SimulateError::NotFound {
            what: format!("pod {namespace}/{name} that has not ended"),
            similar: similar
                .take(3)
                .map(|pod| format!("pod {}/{}", pod.namespace, pod.name))
                .collect(),
        });
    };
    let is_it = |other: &PodRef| *other.namespace == *namespace && *other.name == *name;
    let provision = plans.provision.as_ref();
    let is_for_it =
        |launch: &Launch| launch.pods.iter().any(|it| it.namespace == namespace && it.name == name);
    let launch = provision.and_then(|plan| Launch::of(snapshot, plan).find(is_for_it));
    let nominated = provision
        .and_then(|plan| plan.nominations.iter().find(|nomination| is_it(&nomination.pod)))
        .map(|nomination| nomination.node.clone());
    let reasons: Vec<WhyNot> = provision
        .and_then(|plan| plan.report.pods.iter().find(|waiting| is_it(&waiting.pod)))
        .map(|waiting| waiting.reasons.iter().map(why_not).collect())
        .unwrap_or_default();
    let disruption = plans
        .disrupt
        .as_ref()
        .and_then(|plan| {
            plan.commands.iter().find(|command| {
                command.candidates.iter().any(|candidate| candidate.pods.iter().any(is_it))
            })
        })
        .map(|command| Disruption::new(snapshot, command));
    let shape = &snapshot.shapes[index(pod.shape.0)];
    let waits = matches!(pod.placement, Placement::Unschedulable)
        && launch.is_none()
        && nominated.is_none();
    let instance_types: Vec<Funnel> = if waits {
        snapshot.node_pools.iter().filter_map(|pool| Funnel::new(snapshot, pool, shape)).collect()
    } else {
        Vec::new()
    };
    let node = match pod.placement {
        Placement::Bound(id) => Some(machine(snapshot, id).key.clone()),
        _ => nominated.clone(),
    };
    let summary = match (&pod.placement, &launch, &nominated) {
        (Placement::Bound(id), ..) => format!("it runs on {}", title(machine(snapshot, *id))),
        (_, Some(launch), _) => format!(
            "it is pending; NodePool {} would launch {} for {}, for {} per hour",
            launch.node_pool,
            launch.instance_types.first().map_or("a node", |kind| kind.name.as_str()),
            match launch.pods.len() {
                1 => "it alone".to_owned(),
                n => format!("{n} pods, it among them"),
            },
            price(launch.price_per_hour)
        ),
        (_, None, Some(node)) => format!("it is pending and fits on the existing node {node}"),
        (Placement::Waiting, ..) => {
            "kube-scheduler has not refused it, so nothing is launched for it: it is gated, has \
             not been tried yet, or waits for pods that it preempted"
                .to_owned()
        }
        _ if pod.terminating => "it is being deleted".to_owned(),
        _ => "it stays pending".to_owned(),
    };
    let mut details = vec![format!("asks for {}", amounts(&resources::to_list(&shape.requests)))];
    for why in &reasons {
        details.push(format!("NodePool {}: {}", why.node_pool, why.message));
        if let Some(funnel) = instance_types.iter().find(|funnel| funnel.node_pool == why.node_pool)
        {
            details.push(format!("  {}", funnel.text()));
        }
    }
    if waits && snapshot.node_pools.is_empty() {
        details.push("there is no NodePool".to_owned());
    }
    if let Placement::Bound(_) = pod.placement {
        details.extend(eviction(&pod.eviction));
    }
    if let Some(disruption) = &disruption {
        details.push(format!("it would move: {}", removal(disruption)));
    }
    Ok(Answer {
        schema: SCHEMA,
        kind: "Pod",
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        summary,
        details,
        facts: Facts::Pod(Box::new(PodFacts {
            node,
            requests: resources::to_list(&shape.requests),
            launch,
            reasons,
            instance_types,
            eviction: pod.eviction.clone(),
            disruption,
        })),
    })
}

fn eviction(eviction: &Eviction) -> Option<String> {
    match eviction {
        Eviction::Allowed => None,
        Eviction::DoNotDisrupt => {
            Some("it keeps its node: it has karpenter.sh/do-not-disrupt".to_owned())
        }
        Eviction::BlockedByPdb(budget) => Some(format!(
            "it keeps its node for now: PodDisruptionBudget {budget} allows no disruption at the moment"
        )),
        Eviction::FullyBlockedByPdb(budget) => Some(format!(
            "it keeps its node: PodDisruptionBudget {budget} never allows a disruption, or is not the only one"
        )),
    }
}

fn node(
    name: &str,
    by_claim: bool,
    snapshot: &Snapshot,
    plans: &Plans,
) -> Result<Answer, SimulateError> {
    let claim_of = |node: &Node| node.claim.as_ref().map(|claim| claim.name.clone());
    let found = snapshot.nodes.iter().enumerate().find(|(_, node)| {
        if by_claim {
            claim_of(node).as_deref() == Some(name)
        } else {
            node.name.as_deref() == Some(name)
        }
    });
    let Some((position, node)) = found else {
        // The other name of the machine, or a part of a name, as people copy them.
        let named = |node: &&Node| {
            node.key.contains(name) || node.name.as_deref().is_some_and(|it| it.contains(name))
        };
        return Err(SimulateError::NotFound {
            what: format!("{} {name}", if by_claim { "NodeClaim" } else { "Node" }),
            similar: snapshot.nodes.iter().filter(named).take(3).map(title).collect(),
        });
    };
    let plan = plans.disrupt.as_ref();
    let disruption = plan
        .and_then(|plan| {
            plan.commands.iter().find(|command| {
                command.candidates.iter().any(|candidate| candidate.node == node.key)
            })
        })
        .map(|command| Disruption::new(snapshot, command));
    let reason = plan
        .and_then(|plan| plan.report.nodes.iter().find(|staying| staying.node == node.key))
        .map(|staying| staying.reason.clone());
    let bound: Vec<&Pod> = snapshot
        .pods
        .iter()
        .filter(|pod| matches!(pod.placement, Placement::Bound(id) if index(id.0) == position))
        .collect();
    let mut requests = Resources::default();
    for pod in &bound {
        requests.add(&snapshot.shapes[index(pod.shape.0)].requests);
    }
    let summary = match (&disruption, &reason) {
        (Some(disruption), _) => format!("it would be removed: {}", removal(disruption)),
        (None, Some(reason)) => format!("it stays: {}", words::stay(reason)),
        (None, None) => "it stays, though nothing prevents its removal".to_owned(),
    };
    let mut details = Vec::new();
    let (allocatable, requested) =
        (resources::to_list(&node.allocatable), resources::to_list(&requests));
    details.push(format!("{}, together {}", counted(bound.len(), "pod"), amounts(&requested)));
    details.push(format!("it has {} for pods", amounts(&allocatable)));
    if let Some(usd) = node.price {
        details.push(format!("it costs {} per hour", price(usd.as_usd())));
    }
    let blocking = bound.iter().filter_map(|pod| {
        let why = eviction(&pod.eviction)?;
        Some(format!("pod {}/{}: {why}", pod.namespace, pod.name))
    });
    details.extend(blocking);
    let claim = node.claim.as_ref();
    Ok(Answer {
        schema: SCHEMA,
        kind: if by_claim { "NodeClaim" } else { "Node" },
        namespace: None,
        name: name.to_owned(),
        summary,
        details,
        facts: Facts::Node(Box::new(NodeFacts {
            node: node.name.clone(),
            node_claim: claim_of(node),
            node_pool: claim.and_then(|claim| claim.node_pool.clone()),
            phase: node.phase,
            price_per_hour: node.price.map(MicroUsd::as_usd),
            allocatable,
            requests: requested,
            pods: bound.len(),
            reason,
            disruption,
        })),
    })
}

fn node_pool(name: &str, snapshot: &Snapshot, plans: &Plans) -> Result<Answer, SimulateError> {
    let Some(pool) = snapshot.node_pools.iter().find(|pool| pool.name == name) else {
        let similar = snapshot.node_pools.iter().map(|pool| format!("NodePool {}", pool.name));
        return Err(SimulateError::NotFound {
            what: format!("NodePool {name}"),
            similar: similar.take(5).collect(),
        });
    };
    let members: Vec<&Node> = snapshot
        .nodes
        .iter()
        .filter(|node| {
            node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref()) == Some(name)
        })
        .collect();
    let mut used = Resources::default();
    for node in members.iter().filter(|node| !node.deleting) {
        used.add(&node.capacity);
    }
    let n_nodes =
        i64::try_from(members.iter().filter(|node| !node.deleting).count()).unwrap_or(i64::MAX);
    let limits: BTreeMap<String, Limit> = pool
        .limits
        .iter()
        .map(|(resource, &limit)| {
            let used = if resource == "nodes" { n_nodes } else { used.get(resource) };
            let text = |amount| resources::quantity(resource, amount).to_string();
            (resource.clone(), Limit { used: text(used), limit: text(limit) })
        })
        .collect();
    let provision = plans.provision.as_ref();
    let launches: Vec<Launch> = provision
        .iter()
        .flat_map(|plan| Launch::of(snapshot, plan))
        .filter(|launch| launch.node_pool == name)
        .collect();
    let mut excludes: BTreeMap<String, Vec<PodName>> = BTreeMap::new();
    for waiting in provision.iter().flat_map(|plan| &plan.report.pods) {
        for reason in waiting.reasons.iter().filter(|(pool, _)| pool == name) {
            excludes.entry(why_not(reason).message).or_default().push(PodName::from(&waiting.pod));
        }
    }
    let disruptions: Vec<Disruption> = plans
        .disrupt
        .iter()
        .flat_map(|plan| &plan.commands)
        .filter(|command| command.candidates.iter().any(|candidate| candidate.node_pool == name))
        .map(|command| Disruption::new(snapshot, command))
        .collect();
    let price_per_hour: f64 =
        members.iter().filter_map(|node| node.price).map(MicroUsd::as_usd).sum();
    let summary = match &pool.not_ready {
        Some(reason) => format!("nothing is launched from it: {reason}"),
        None => format!(
            "it has {} for {} per hour and would launch {} more",
            counted(members.len(), "node"),
            price(price_per_hour),
            grouped(launches.len())
        ),
    };
    let mut details: Vec<String> = limits
        .iter()
        .map(|(resource, limit)| {
            format!("limit of {resource}: {} of {} in use", limit.used, limit.limit)
        })
        .collect();
    for (reason, pods) in &excludes {
        details.push(format!("can't take {}: {reason}", words::pods(pods, 3)));
    }
    details
        .extend(disruptions.iter().map(|disruption| format!("would lose {}", removal(disruption))));
    Ok(Answer {
        schema: SCHEMA,
        kind: "NodePool",
        namespace: None,
        name: name.to_owned(),
        summary,
        details,
        facts: Facts::NodePool(Box::new(PoolFacts {
            not_ready: pool.not_ready.clone(),
            nodes: members.len(),
            price_per_hour,
            limits,
            launches,
            excludes,
            disruptions,
        })),
    })
}

/// `a, b (Underutilized), replaced by c-4x, saving $0.1000 per hour`
fn removal(disruption: &Disruption) -> String {
    let nodes = words::some(disruption.nodes.iter().cloned(), 3);
    let by = disruption.replacements.iter().map(|launch| {
        launch.instance_types.first().map_or_else(|| "a node".to_owned(), |kind| kind.name.clone())
    });
    let by = words::some(by, 3);
    let replaced = if by.is_empty() { String::new() } else { format!(", replaced by {by}") };
    format!(
        "{nodes} ({:?}){replaced}, saving {} per hour",
        disruption.reason,
        price(disruption.savings_per_hour)
    )
}

fn title(node: &Node) -> String {
    match (&node.name, &node.claim) {
        (Some(name), Some(claim)) => format!("Node {name} (NodeClaim {})", claim.name),
        (Some(name), None) => format!("Node {name}"),
        (None, _) => format!("NodeClaim {}, which has no Node yet", node.key),
    }
}

fn machine(snapshot: &Snapshot, id: NodeId) -> &Node {
    &snapshot.nodes[index(id.0)]
}

fn index(id: u32) -> usize {
    usize::try_from(id).expect("indexes have 32 bits at most")
}
