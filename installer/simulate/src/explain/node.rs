//! A node: why it stays, or what would remove it.

use jiff::SignedDuration;
use serde::Serialize;
use tenon_crds::ResourceList;
use tenon_planner::plan::{PodRef, StayReason};
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot::{Node, NodePhase, Placement, Pod};
use tenon_state::resources;

use super::{Answer, Facts, Known, SCHEMA, eviction, index, removal, title};
use crate::advice::{Advice, Cause, word};
use crate::amounts::amounts;
use crate::error::SimulateError;
use crate::observed::condition;
use crate::outcome::Disruption;
use crate::words::{self, counted, price};

/// A node that has not joined after this time is not only slow.
const JOINS_WITHIN: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeFacts {
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

pub(super) fn node(name: &str, by_claim: bool, known: Known<'_>) -> Result<Answer, SimulateError> {
    let Known { snapshot, plans, .. } = known;
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
    let together = amounts(&requested);
    let pods = counted(bound.len(), "pod");
    details.push(match (bound.len(), together.is_empty()) {
        (0, _) | (_, true) => pods,
        (1, false) => format!("{pods}, which requests {together}"),
        (_, false) => format!("{pods}, which together request {together}"),
    });
    if !allocatable.is_empty() {
        details.push(format!("it has {} for pods", amounts(&allocatable)));
    }
    if let Some(usd) = node.price {
        details.push(format!("it costs {} per hour", price(usd.as_usd())));
    }
    let blocking = bound.iter().filter_map(|pod| {
        let why = eviction(&pod.eviction)?;
        Some(format!("pod {}/{}: {why}", pod.namespace, pod.name))
    });
    details.extend(blocking);
    let (cause, mut advice) = match (&disruption, &reason) {
        (Some(_), _) => (Cause::Disruption, keep(node)),
        (None, Some(reason)) => (Cause::Stays, remove(node, reason)),
        (None, None) => (Cause::Stays, remove(node, &StayReason::Later)),
    };
    let mut cause = cause;
    if let Some(found) = problem(node, known) {
        let (why, text) = found;
        cause = why;
        details.insert(0, text);
        let about = format!("kubectl describe nodeclaim {}", word(&node.key));
        advice = vec![
            Advice::run(
                why,
                "To check permissions, quotas, security groups and the nodes' role:",
                "tenon doctor",
            ),
            Advice::run(why, "The conditions and events of the NodeClaim:", about),
        ];
    }
    let claim = node.claim.as_ref();
    Ok(Answer {
        schema: SCHEMA,
        kind: if by_claim { "NodeClaim" } else { "Node" },
        namespace: None,
        name: name.to_owned(),
        summary,
        cause,
        advice,
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

/// Why a NodeClaim without a Node has none, if something is wrong.
fn problem(node: &Node, known: Known<'_>) -> Option<(Cause, String)> {
    if node.phase == NodePhase::Initialized {
        return None;
    }
    if let Some(problem) = known.observed.launch_problem(&node.key) {
        return Some((Cause::LaunchFailed, format!("it is not launched: {}", condition(problem))));
    }
    let since = known.observed.unregistered_since(&node.key)?;
    let age = known.now.duration_since(since);
    let minutes = usize::try_from(age.as_mins()).unwrap_or(0);
    (age >= JOINS_WITHIN).then(|| {
        let text = format!(
            "its instance was launched {} ago, and its node has not joined",
            counted(minutes, "minute")
        );
        (Cause::NotRegistered, text)
    })
}

/// How to keep a node that would be removed.
fn keep(node: &Node) -> Vec<Advice> {
    let cause = Cause::Disruption;
    let Some(name) = &node.name else { return vec![show(node, cause)] };
    vec![Advice::run(
        cause,
        "Nothing: its pods have room elsewhere. To keep the node:",
        format!("kubectl annotate node {} karpenter.sh/do-not-disrupt=true", word(name)),
    )]
}

/// What would let a node be removed that stays.
fn remove(node: &Node, reason: &StayReason) -> Vec<Advice> {
    let cause = Cause::Stays;
    let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
    let edit = |text: &str| {
        pool.map(|pool| Advice::run(cause, text, format!("kubectl edit nodepool {}", word(pool))))
    };
    let of = |pod: &PodRef| format!("{} --namespace={}", word(&pod.name), word(&pod.namespace));
    let advice = match reason {
        StayReason::PodDoNotDisrupt(pod) => Some(Advice::run(
            cause,
            "To let the node be disrupted, remove the annotation from the pod (and from what creates it):",
            format!("kubectl annotate pod {} karpenter.sh/do-not-disrupt-", of(pod)),
        )),
        StayReason::DoNotDisrupt => node.name.as_ref().map(|name| {
            Advice::run(
                cause,
                "To let the node be disrupted, remove the annotation:",
                format!("kubectl annotate node {} karpenter.sh/do-not-disrupt-", word(name)),
            )
        }),
        StayReason::DoNotRepair => node.name.as_ref().map(|name| {
            Advice::run(
                cause,
                "To let the node be repaired, remove the annotation:",
                format!("kubectl annotate node {} karpenter.sh/do-not-repair-", word(name)),
            )
        }),
        StayReason::Pdb { pod, budget } | StayReason::PdbUsedUp { pod, budget } => {
            Some(Advice::run(
                cause,
                "Raise the replicas that the PodDisruptionBudget selects, or let it allow a disruption:",
                format!(
                    "kubectl edit poddisruptionbudget {} --namespace={}",
                    word(budget),
                    word(&pod.namespace)
                ),
            ))
        }
        StayReason::Budget(_) => edit("Wait, or raise spec.disruption.budgets of its NodePool:"),
        StayReason::NotConsolidatable => edit(
            "Wait, or change spec.disruption (consolidationPolicy, consolidateAfter) of its NodePool:",
        ),
        StayReason::PodsDontFit(pod) | StayReason::WaitsForMachine(pod) => Some(Advice::run(
            cause,
            "The pod would have no other place. What it requires:",
            format!("tenon explain pod {}", of(pod)),
        )),
        StayReason::SpotToSpot => Some(Advice::write(
            cause,
            "To replace spot instances with spot instances, in the chart's values:",
            "settings:\n  featureGates:\n    spotToSpotConsolidation: true",
        )),
        StayReason::NothingCheaper
        | StayReason::NeedsSeveralReplacements
        | StayReason::SavesTooLittle
        | StayReason::ScoresTooLow(_) => edit(
            "Nothing: it is worth its price. Cheaper instance types can be allowed in its NodePool:",
        ),
        StayReason::NotManaged => Some(Advice::run(
            cause,
            "Create the NodePool again, or remove the node yourself:",
            "kubectl get nodepools",
        )),
        _ => None,
    };
    vec![advice.unwrap_or_else(|| show(node, cause))]
}

fn show(node: &Node, cause: Cause) -> Advice {
    let command = match &node.name {
        Some(name) => format!("kubectl describe node {}", word(name)),
        None => format!("kubectl describe nodeclaim {}", word(&node.key)),
    };
    Advice::run(cause, "Nothing now. Its conditions and events:", command)
}
