//! A NodePool: its usage and limits, its launches, and the pods that it excludes.

use std::collections::BTreeMap;

use serde::Serialize;
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot::{Node, NodePool};
use tenon_state::resources;

use super::{Answer, Facts, Known, SCHEMA, removal};
use crate::advice::{Advice, Cause, word};
use crate::amounts::pair;
use crate::causes::no_type;
use crate::error::SimulateError;
use crate::observed::{condition, line};
use crate::outcome::{Disruption, Launch};
use crate::parts::{PodName, why_not};
use crate::reasons;
use crate::words::{self, counted, grouped, price};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolFacts {
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
    /// In the planner's units.
    #[serde(skip)]
    amounts: (i64, i64),
    used: String,
    limit: String,
}

pub(super) fn node_pool(name: &str, known: Known<'_>) -> Result<Answer, SimulateError> {
    let Known { snapshot, plans, observed, .. } = known;
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
            (
                resource.clone(),
                Limit { amounts: (used, limit), used: text(used), limit: text(limit) },
            )
        })
        .collect();
    let provision = plans.provision.as_ref();
    let launches: Vec<Launch> = provision
        .iter()
        .flat_map(|plan| Launch::of(snapshot, plan))
        .filter(|launch| launch.node_pool == name)
        .collect();
    let mut excludes: BTreeMap<String, Vec<PodName>> = BTreeMap::new();
    let mut in_words: BTreeMap<String, Vec<PodName>> = BTreeMap::new();
    for waiting in provision.iter().flat_map(|plan| &plan.report.pods) {
        for reason in waiting.reasons.iter().filter(|(pool, _)| pool == name) {
            let pod = PodName::from(&waiting.pod);
            excludes.entry(why_not(reason).message).or_default().push(pod.clone());
            in_words.entry(reasons::exclusion(&reason.1)).or_default().push(pod);
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
    let is_frozen = observed.is_frozen(name);
    let skipped = provision.iter().flat_map(|plan| &plan.report.node_pools);
    // It is ready, and the planner can launch nothing from it all the same.
    let skipped = skipped.filter(|it| it.name == name).map(|it| it.reason.as_str()).next();
    let skipped = skipped.filter(|_| pool.not_ready.is_none());
    let summary = match &pool.not_ready {
        _ if is_frozen => "nothing is launched from it: it is paused by `tenon freeze`".to_owned(),
        Some(reason) => format!("nothing is launched from it: {}", not_ready(pool, reason, known)),
        None if let Some(reason) = skipped => {
            format!("nothing is launched from it: {}", line(reason))
        }
        None => format!(
            "it has {} for {} per hour and would launch {}",
            counted(members.len(), "node"),
            price(price_per_hour),
            if launches.is_empty() {
                "none".to_owned()
            } else {
                format!("{} more", grouped(launches.len()))
            }
        ),
    };
    let mut details: Vec<String> = limits
        .iter()
        .map(|(resource, limit)| {
            let (used, limit) = limit.amounts;
            let (used, limit) = pair(resource, used, limit);
            format!("limit of {limit}: {used} in use")
        })
        .collect();
    for (reason, pods) in &in_words {
        details.push(format!("can't take {}: {reason}", words::pods(pods, 3)));
    }
    details
        .extend(disruptions.iter().map(|disruption| format!("would lose {}", removal(disruption))));
    let (cause, advice) = match skipped {
        Some(reason) if !is_frozen && pool.catalog.is_some() => {
            let found = no_type(snapshot, pool, reason);
            (found.cause, found.advice)
        }
        _ => advice(pool, is_frozen, (&in_words, &disruptions), known),
    };
    Ok(Answer {
        schema: SCHEMA,
        kind: "NodePool",
        namespace: None,
        name: name.to_owned(),
        summary,
        cause,
        advice,
        details,
        facts: Facts::NodePool(Box::new(PoolFacts {
            not_ready: pool.not_ready.clone().or(skipped.map(str::to_owned)),
            nodes: members.len(),
            price_per_hour,
            limits,
            launches,
            excludes,
            disruptions,
        })),
    })
}

/// Why it is not ready, by its NodeClass if that is why.
fn not_ready(pool: &NodePool, reason: &str, known: Known<'_>) -> String {
    let class = &pool.template.node_class;
    match known.observed.class_condition(&pool.name) {
        Some(of_pool) => {
            let problems = known.observed.class_problems(&class.name);
            let why = problems.first().map_or_else(
                || condition(of_pool),
                |first| format!("{}: {}", first.type_, condition(first)),
            );
            format!("{} {} is not ready: {why}", class.kind, class.name)
        }
        None => line(reason),
    }
}

fn advice(
    pool: &NodePool,
    is_frozen: bool,
    (excludes, disruptions): (&BTreeMap<String, Vec<PodName>>, &[Disruption]),
    known: Known<'_>,
) -> (Cause, Vec<Advice>) {
    let name = word(&pool.name);
    let class = &pool.template.node_class;
    if is_frozen {
        return (
            Cause::Frozen,
            vec![Advice::run(Cause::Frozen, "Resume the NodePools:", "tenon unfreeze")],
        );
    }
    if pool.not_ready.is_some() {
        if known.observed.class_condition(&pool.name).is_some() {
            let cause = Cause::NodeClassNotReady;
            let command =
                format!("kubectl describe {} {}", class.kind.to_lowercase(), word(&class.name));
            let text =
                format!("Correct what the conditions of {} {} report:", class.kind, class.name);
            return (cause, vec![Advice::run(cause, text, command)]);
        }
        let cause = Cause::NodePoolNotReady;
        let text = "Correct what its conditions report:";
        let command = format!("kubectl describe nodepool {name}");
        return (cause, vec![Advice::run(cause, text, command)]);
    }
    if let Some(pod) = excludes.values().flatten().next() {
        let cause = Cause::Other;
        let text = "Find out what the pods need that it does not have:";
        let command =
            format!("tenon explain pod {} --namespace={}", word(&pod.name), word(&pod.namespace));
        return (cause, vec![Advice::run(cause, text, command)]);
    }
    let command = format!("kubectl edit nodepool {name}");
    if disruptions.is_empty() {
        let text = "Nothing. Its limits and its disruption are set in:";
        return (Cause::Working, vec![Advice::run(Cause::Working, text, command)]);
    }
    let text = "Nothing: the pods have room elsewhere. To slow disruption down, set spec.disruption.budgets:";
    (Cause::Disruption, vec![Advice::run(Cause::Disruption, text, command)])
}
