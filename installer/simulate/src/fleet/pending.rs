//! Pending pods by reason. Pods that the planner treats alike are explained once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tenon_planner::plan::{Exclusion, PodRef};
use tenon_planner::snapshot::{Node, NodePhase, Placement, Pod};

use crate::advice::Cause;
use crate::explain::{Known, explain};
use crate::options::{Kind, Subject};
use crate::parts::PodName;
use crate::words::counted;

/// How many groups are explained: more reasons than that are nothing for one look.
const EXPLAINED: usize = 40;

/// How many pods of a group are named.
const NAMED: usize = 100;

/// Pending pods with one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// How many.
    pub count: usize,
    /// The reason for programs, as in the answers of `tenon explain`.
    pub cause: Cause,
    /// The reason in words.
    pub reason: String,
    /// Nothing has to be done about them.
    pub ok: bool,
    /// The pods, by name; only the first of very many.
    pub pods: Vec<PodName>,
}

/// What pods have in common that are explained alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Group<'a> {
    /// A node of this NodePool would be launched.
    Launch(&'a str),
    /// An existing node has room.
    Fits,
    /// A machine that is not a node yet has room.
    Machine(&'a str),
    /// kube-scheduler has not refused it.
    Waiting(usize),
    /// Pods of this shape stay, for these reasons.
    Stays(u32, Option<&'a str>, String),
}

/// Namespace and name.
type Name<'a> = (&'a str, &'a str);

fn name(pod: &PodRef) -> Name<'_> {
    (&pod.namespace, &pod.name)
}

pub(super) fn pending(known: Known<'_>) -> Vec<Pending> {
    let mut by_reason: BTreeMap<(Cause, String), Pending> = BTreeMap::new();
    let mut groups: Vec<(Group<'_>, Vec<&Pod>)> = groups(known).into_iter().collect();
    groups.sort_by_key(|(_, pods)| Reverse(pods.len()));
    for (n, (group, pods)) in groups.iter().enumerate() {
        let explained = (n < EXPLAINED).then(|| explained(group, pods, known)).flatten();
        let (cause, reason) =
            explained.unwrap_or_else(|| (Cause::Other, "other reasons".to_owned()));
        let ok = matches!(cause, Cause::WouldLaunch | Cause::Launching | Cause::Fits);
        let entry = by_reason.entry((cause, reason.clone())).or_insert_with(|| Pending {
            count: 0,
            cause,
            reason,
            ok,
            pods: Vec::new(),
        });
        entry.count += pods.len();
        entry.pods.extend(pods.iter().map(|pod| PodName {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
        }));
    }
    let mut pending: Vec<Pending> = by_reason.into_values().collect();
    for one in &mut pending {
        one.pods.sort();
        one.pods.truncate(NAMED);
    }
    // What resolves itself comes last.
    pending.sort_by_key(|one| (one.ok, Reverse(one.count)));
    pending
}

/// Pending pods, grouped by what decides what is said about them.
fn groups(known: Known<'_>) -> BTreeMap<Group<'_>, Vec<&Pod>> {
    let Known { snapshot, plans, observed, .. } = known;
    let mut launches: BTreeMap<Name<'_>, &str> = BTreeMap::new();
    let mut nominated: BTreeMap<Name<'_>, &Node> = BTreeMap::new();
    let mut reasons: BTreeMap<Name<'_>, &[(String, Exclusion)]> = BTreeMap::new();
    if let Some(plan) = &plans.provision {
        let nodes: BTreeMap<&str, &Node> =
            snapshot.nodes.iter().map(|node| (&*node.key, node)).collect();
        for launch in &plan.launches {
            launches.extend(launch.pods.iter().map(|pod| (name(pod), &*launch.node_pool)));
        }
        nominated.extend(plan.nominations.iter().filter_map(|nomination| {
            Some((name(&nomination.pod), *nodes.get(&*nomination.node)?))
        }));
        reasons.extend(plan.report.pods.iter().map(|it| (name(&it.pod), &*it.reasons)));
    }
    let mut groups: BTreeMap<Group<'_>, Vec<&Pod>> = BTreeMap::new();
    let pending = snapshot.pods.iter().filter(|pod| {
        !matches!(pod.placement, Placement::Bound(_))
            && !pod.daemon
            && !pod.terminating
            && pod.buffer.is_none()
    });
    for pod in pending {
        let name = (&*pod.namespace, &*pod.name);
        let group = match (launches.get(&name), nominated.get(&name)) {
            (Some(pool), _) => Group::Launch(pool),
            (None, Some(node)) if node.phase == NodePhase::Initialized => Group::Fits,
            (None, Some(node)) => Group::Machine(&node.key),
            (None, None) if pod.placement == Placement::Waiting => {
                Group::Waiting(observed.gates(&pod.namespace, &pod.name).len())
            }
            (None, None) => {
                let reasons = reasons.get(&name).copied().unwrap_or_default();
                Group::Stays(pod.shape.0, pod.problem.as_deref(), format!("{reasons:?}"))
            }
        };
        groups.entry(group).or_default().push(pod);
    }
    groups
}

fn explained(group: &Group<'_>, pods: &[&Pod], known: Known<'_>) -> Option<(Cause, String)> {
    let first = pods.first()?;
    let (namespace, name_of) = (first.namespace.to_string(), first.name.to_string());
    let subject = Subject { kind: Kind::Pod, namespace, name: name_of };
    let answer = explain(&subject, known).ok()?;
    let cause = answer.cause();
    let reported = || answer.details().last().map_or("", String::as_str);
    let reason = match (group, cause) {
        (Group::Launch(pool), Cause::WouldLaunch) => match launches(pool, pods, known) {
            1 => format!("NodePool {pool} would launch a node"),
            n => format!("NodePool {pool} would launch {}", counted(n, "node")),
        },
        (Group::Launch(pool), _) => {
            format!("NodePool {pool} would launch nodes; the last launch failed {}", reported())
        }
        (Group::Fits, _) => "existing nodes have room".to_owned(),
        (Group::Machine(_), Cause::NoCapacity | Cause::LaunchFailed) => {
            format!("{}; {}", answer.reason(), reported())
        }
        _ => answer.reason().to_owned(),
    };
    Some((cause, reason))
}

/// How many machines of a NodePool would be launched for these pods.
fn launches(pool: &str, pods: &[&Pod], known: Known<'_>) -> usize {
    let names: BTreeSet<Name<'_>> = pods.iter().map(|pod| (&*pod.namespace, &*pod.name)).collect();
    let launches = known.plans.provision.iter().flat_map(|plan| &plan.launches);
    launches
        .filter(|launch| launch.node_pool == pool)
        .filter(|launch| launch.pods.iter().any(|pod| names.contains(&name(pod))))
        .count()
}
