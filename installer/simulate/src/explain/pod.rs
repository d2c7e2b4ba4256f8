//! A pod: where it is, where it would be, or why it is pending.

use jiff::SignedDuration;
use serde::Serialize;
use tenon_crds::ResourceList;
use tenon_planner::plan::{Exclusion, PodRef};
use tenon_planner::snapshot::{Eviction, Node, NodeId, NodePhase, Placement, Pod};
use tenon_state::resources;

use super::{Answer, Facts, Known, SCHEMA, eviction, index, removal, title};
use crate::advice::{Advice, Cause, word};
use crate::amounts::amounts;
use crate::causes::{About, Verdict, more_capacity, verdicts};
use crate::error::SimulateError;
use crate::funnel::Funnel;
use crate::observed::{condition, line};
use crate::outcome::{Disruption, Launch};
use crate::parts::{WhyNot, why_not};
use crate::words::{counted, price, some};

/// How many NodePools are named, and for how many causes there is advice.
const SHOWN: usize = 3;

/// A node that has not joined after this time is not only slow.
const JOINS_WITHIN: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodFacts {
    /// Where it is, or is expected; a machine is named by its NodeClaim, or by its Node where there
    /// is none.
    node: Option<String>,
    requests: ResourceList,
    /// The machine that would be launched for it.
    launch: Option<Launch>,
    /// Why it stays pending, NodePool by NodePool.
    reasons: Vec<WhyNot>,
    /// The same, by cause.
    causes: Vec<Verdict>,
    instance_types: Vec<Funnel>,
    /// What forbids its eviction now.
    eviction: Eviction,
    /// What would move it.
    disruption: Option<Disruption>,
}

/// The first line, what follows it, and what to do.
struct Explanation {
    cause: Cause,
    summary: String,
    details: Vec<String>,
    advice: Vec<Advice>,
}

pub(super) fn pod(namespace: &str, name: &str, known: Known<'_>) -> Result<Answer, SimulateError> {
    let Known { snapshot, plans, observed, .. } = known;
    let pod = find(namespace, name, known)?;
    let is_it = |other: &PodRef| *other.namespace == *namespace && *other.name == *name;
    let provision = plans.provision.as_ref();
    let is_for_it =
        |launch: &Launch| launch.pods.iter().any(|it| it.namespace == namespace && it.name == name);
    let launch = provision.and_then(|plan| Launch::of(snapshot, plan).find(is_for_it));
    let nominated = provision
        .and_then(|plan| plan.nominations.iter().find(|nomination| is_it(&nomination.pod)))
        .map(|nomination| nomination.node.clone());
    let waiting = provision
        .and_then(|plan| plan.report.pods.iter().find(|waiting| is_it(&waiting.pod)))
        .map_or(&[][..], |waiting| &waiting.reasons);
    let command = plans.disrupt.iter().flat_map(|plan| &plan.commands).find(|command| {
        command.candidates.iter().any(|candidate| candidate.pods.iter().any(is_it))
    });
    let disruption = command.map(|command| Disruption::new(snapshot, command));
    let shape = &snapshot.shapes[index(pod.shape.0)];
    let about = About { snapshot, observed, pod, shape };
    let instance_types: Vec<Funnel> =
        waiting.iter().filter_map(|(pool, why)| funnel(&about, pool, why)).collect();
    let causes = verdicts(&about, waiting);
    let target = nominated.as_ref().and_then(|key| snapshot.nodes.iter().find(|it| it.key == *key));
    let explanation = match (&pod.placement, &launch, target) {
        (Placement::Bound(id), ..) => runs(pod, machine(snapshot, *id), disruption.as_ref()),
        _ if pod.terminating => deleting(pod),
        (_, Some(launch), _) => would_launch(&about, launch),
        (_, None, Some(node)) => expected(&about, node, known),
        (Placement::Waiting, ..) => not_tried(&about),
        _ => stays(&about, &causes, &instance_types),
    };
    let requests = resources::to_list(&shape.requests);
    let asked = amounts(&requests);
    let mut details = Vec::new();
    details.push(if asked.is_empty() {
        "requests no resources".to_owned()
    } else {
        format!("requests {asked}")
    });
    details.extend(explanation.details);
    let node = match pod.placement {
        Placement::Bound(id) => Some(machine(snapshot, id).key.clone()),
        _ => nominated.clone(),
    };
    Ok(Answer {
        schema: SCHEMA,
        kind: "Pod",
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
        summary: explanation.summary,
        cause: explanation.cause,
        advice: explanation.advice,
        details,
        facts: Facts::Pod(Box::new(PodFacts {
            node,
            requests,
            launch,
            reasons: waiting.iter().map(why_not).collect(),
            causes,
            instance_types,
            eviction: pod.eviction.clone(),
            disruption,
        })),
    })
}

fn find<'a>(namespace: &str, name: &str, known: Known<'a>) -> Result<&'a Pod, SimulateError> {
    let pods = &known.snapshot.pods;
    let found = pods.iter().find(|pod| *pod.namespace == *namespace && *pod.name == *name);
    found.ok_or_else(|| {
        // Those of a Deployment of that name, or in another namespace.
        let similar = pods.iter().filter(|pod| {
            *pod.name == *name || *pod.namespace == *namespace && pod.name.starts_with(name)
        });
        SimulateError::NotFound {
            what: format!("pod {namespace}/{name} that has not ended"),
            similar: similar
                .take(3)
                .map(|pod| format!("pod {}/{}", pod.namespace, pod.name))
                .collect(),
        }
    })
}

fn funnel(about: &About<'_>, pool: &str, why: &Exclusion) -> Option<Funnel> {
    let pool = about.snapshot.node_pools.iter().find(|it| it.name == pool)?;
    Funnel::new(about.snapshot, pool, about.shape, why)
}

fn runs(pod: &Pod, node: &Node, disruption: Option<&Disruption>) -> Explanation {
    let mut details: Vec<String> = eviction(&pod.eviction).into_iter().collect();
    if let Some(disruption) = disruption {
        details.push(format!("it would move: {}", removal(disruption)));
    }
    let (kind, name) = match (&node.name, &node.claim) {
        (Some(name), _) => ("node", name),
        (None, _) => ("nodeclaim", &node.key),
    };
    let advice = Advice::run(
        Cause::Running,
        "Nothing. To see whether its node stays:",
        format!("tenon explain {kind} {}", word(name)),
    );
    Explanation {
        cause: Cause::Running,
        summary: format!("it runs on {}", title(node)),
        details,
        advice: vec![advice],
    }
}

fn deleting(pod: &Pod) -> Explanation {
    let advice = Advice::run(
        Cause::Deleting,
        "Wait until its grace period ends; if it stays, remove what its finalizers wait for:",
        format!("kubectl get pod {} -o yaml", of(pod)),
    );
    Explanation {
        cause: Cause::Deleting,
        summary: "it is being deleted".to_owned(),
        details: Vec::new(),
        advice: vec![advice],
    }
}

fn would_launch(about: &About<'_>, launch: &Launch) -> Explanation {
    let pod = about.pod;
    let pool = &launch.node_pool;
    let for_whom = match launch.pods.len() {
        1 => "for it".to_owned(),
        n => format!("for it and {}", counted(n - 1, "other pod")),
    };
    let summary = format!(
        "it is pending; NodePool {pool} would launch {} {for_whom}, for {} per hour",
        launch.instance_types.first().map_or("a node", |kind| kind.name.as_str()),
        price(launch.price_per_hour)
    );
    let failed = about.observed.failed_launch((&pod.namespace, &pod.name), Some(pool), None);
    let of_pool = about.snapshot.node_pools.iter().find(|it| it.name == *pool);
    if let (Some(event), Some(of_pool)) = (failed, of_pool) {
        let is_capacity = event.reason == "InsufficientCapacityError";
        let cause = if is_capacity { Cause::NoCapacity } else { Cause::LaunchFailed };
        let advice =
            if is_capacity { more_capacity(of_pool) } else { launch_failed(&event.message, None) };
        return Explanation {
            cause,
            summary: format!("{summary}, but the last launch failed"),
            details: vec![format!("at {}: {}", time(event.at), event.report())],
            advice,
        };
    }
    let advice = Advice::run(
        Cause::WouldLaunch,
        "Nothing: the operator launches the node within seconds. If it does not, check that it runs:",
        "tenon status",
    );
    Explanation { cause: Cause::WouldLaunch, summary, details: Vec::new(), advice: vec![advice] }
}

/// It is expected on a machine, which may not be there yet.
fn expected(about: &About<'_>, node: &Node, known: Known<'_>) -> Explanation {
    let pod = about.pod;
    let claim = &node.key;
    let of_pod = (&*pod.namespace, &*pod.name);
    let watch = |cause, text: &str| {
        vec![Advice::run(cause, text, format!("kubectl get nodeclaim {} --watch", word(claim)))]
    };
    let age = |since| minutes(known.now.duration_since(since));
    if node.phase == NodePhase::Pending {
        let problem = about.observed.launch_problem(claim).map(condition);
        let event = || {
            let event = about.observed.failed_launch(of_pod, None, Some(claim))?;
            Some(event.report())
        };
        if let Some(problem) = problem.or_else(event) {
            let is_capacity = problem.contains("InsufficientCapacity")
                || problem.contains("insufficient capacity");
            let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_ref());
            let pool = about.snapshot.node_pools.iter().find(|it| Some(&it.name) == pool);
            let (cause, advice) = match pool {
                Some(pool) if is_capacity => (Cause::NoCapacity, more_capacity(pool)),
                _ => (Cause::LaunchFailed, launch_failed(&problem, Some(claim))),
            };
            return Explanation {
                cause,
                summary: format!(
                    "it is pending: NodeClaim {claim}, which is meant for it, has not been launched"
                ),
                details: vec![format!("the operator reports: {problem}")],
                advice,
            };
        }
    }
    if node.phase != NodePhase::Initialized {
        let since = about.observed.unregistered_since(claim);
        let late = since.filter(|&since| known.now.duration_since(since) >= JOINS_WITHIN);
        if let Some(since) = late {
            let cause = Cause::NotRegistered;
            let advice = vec![
                Advice::run(
                    cause,
                    "Check that nodes may join: security groups, the access entry of the nodes' role, \
                     DNS and routes to the API server:",
                    "tenon doctor",
                ),
                Advice::run(
                    cause,
                    "The instance and its conditions:",
                    format!("kubectl describe nodeclaim {}", word(claim)),
                ),
            ];
            return Explanation {
                cause,
                summary: format!(
                    "it is pending: the instance of NodeClaim {claim} was launched {} ago, and its \
                     node has not joined",
                    age(since)
                ),
                details: Vec::new(),
                advice,
            };
        }
        let state = match node.phase {
            NodePhase::Pending => "is being launched",
            NodePhase::Launched => "is launched, and its node is about to join",
            _ => "has joined, and is about to be ready",
        };
        return Explanation {
            cause: Cause::Launching,
            summary: format!("it is pending; NodeClaim {claim}, which has room for it, {state}"),
            details: vec![format!("NodeClaim {claim} is {} old", age(node.created_at))],
            advice: watch(Cause::Launching, "Wait. The progress of the NodeClaim:"),
        };
    }
    let reported = about.observed.scheduler(&pod.namespace, &pod.name);
    let details = reported.map(|event| format!("kube-scheduler reports: {}", line(&event.message)));
    let advice = Advice::run(
        Cause::Fits,
        "Nothing: kube-scheduler binds it within seconds. If it does not, its events show why:",
        format!("kubectl describe pod {}", of(pod)),
    );
    Explanation {
        cause: Cause::Fits,
        summary: format!("it is pending and fits on the existing node {claim}"),
        details: details.into_iter().collect(),
        advice: vec![advice],
    }
}

fn not_tried(about: &About<'_>) -> Explanation {
    let pod = about.pod;
    let gates = about.observed.gates(&pod.namespace, &pod.name);
    if gates.is_empty() {
        let advice = Advice::run(
            Cause::NotTried,
            "Wait a second and run the command again. If nothing changes, check that the pod's \
             scheduler runs:",
            format!("kubectl describe pod {}", of(pod)),
        );
        return Explanation {
            cause: Cause::NotTried,
            summary: "kube-scheduler has not refused it, so nothing is launched for it".to_owned(),
            details: vec![
                "it has not been tried yet, waits for pods that it preempts, or has another \
                 scheduler"
                    .to_owned(),
            ],
            advice: vec![advice],
        };
    }
    let patch = r#"[{"op":"remove","path":"/spec/schedulingGates"}]"#;
    let names = some(gates.iter().map(|gate| line(gate)), 6);
    let advice = vec![
        Advice::run(
            Cause::SchedulingGates,
            "The controllers that set the gates remove them. To see what they report:",
            format!("kubectl describe pod {}", of(pod)),
        ),
        Advice::run(
            Cause::SchedulingGates,
            "Or, if they are not coming back, remove all gates yourself:",
            format!("kubectl patch pod {} --type=json -p {}", of(pod), word(patch)),
        ),
    ];
    let keep = if gates.len() == 1 { "keeps" } else { "keep" };
    Explanation {
        cause: Cause::SchedulingGates,
        summary: format!(
            "it is pending: {} {keep} kube-scheduler from placing it",
            counted(gates.len(), "scheduling gate")
        ),
        details: vec![format!("scheduling gates: {names}")],
        advice,
    }
}

/// It stays pending.
fn stays(about: &About<'_>, causes: &[Verdict], funnels: &[Funnel]) -> Explanation {
    let Some(first) = causes.first() else {
        return without_verdict(about);
    };
    let mut details = Vec::new();
    for verdict in causes {
        let pools = &verdict.node_pools;
        let names = some(pools.iter().cloned(), SHOWN);
        let noun = if pools.len() == 1 { "NodePool" } else { "NodePools" };
        details.push(if pools.is_empty() {
            verdict.text.clone()
        } else {
            format!("{noun} {names}: {}", verdict.text)
        });
        // What is wrong with the pod says nothing about instance types.
        let is_about_types =
            !matches!(verdict.cause, Cause::ResourceClaims | Cause::Volume | Cause::PodSpec);
        let funnel = funnels.iter().find(|it| pools.contains(&it.node_pool));
        if let Some(funnel) = funnel.filter(|_| is_about_types) {
            let of = if pools.len() == 1 { String::new() } else { format!(" ({})", pools[0]) };
            details.push(format!("  {}{of}", funnel.text()));
        }
    }
    if let Some(event) = about.observed.scheduler(&about.pod.namespace, &about.pod.name) {
        details.push(format!("kube-scheduler reports: {}", line(&event.message)));
    }
    let mut advice: Vec<Advice> = Vec::new();
    for one in causes.iter().take(SHOWN).flat_map(|verdict| &verdict.advice) {
        if !advice.contains(one) {
            advice.push(one.clone());
        }
    }
    Explanation {
        cause: first.cause,
        summary: format!("it stays pending because {}", first.because),
        details,
        advice,
    }
}

/// No NodePool has anything to say about it.
fn without_verdict(about: &About<'_>) -> Explanation {
    let pools = &about.snapshot.node_pools;
    if pools.iter().any(|pool| pool.replicas.is_none()) {
        let advice = Advice::run(
            Cause::NodeAffinity,
            "If NodePools are meant for it, remove karpenter.sh/nodepool from its node affinity:",
            format!("kubectl get pod {} -o yaml", of(about.pod)),
        );
        return Explanation {
            cause: Cause::NodeAffinity,
            summary: "it stays pending because it requires a node without a NodePool".to_owned(),
            details: Vec::new(),
            advice: vec![advice],
        };
    }
    let (reason, text) = if pools.is_empty() {
        ("there is no NodePool", "Create a NodePool. Its fields:")
    } else {
        ("every NodePool is static", "Create a NodePool without spec.replicas. Its fields:")
    };
    Explanation {
        cause: Cause::NoNodePool,
        summary: format!("it stays pending because {reason}"),
        details: Vec::new(),
        advice: vec![Advice::run(Cause::NoNodePool, text, "kubectl explain nodepool.spec")],
    }
}

/// What helps against launches that fail for another reason than capacity.
fn launch_failed(message: &str, claim: Option<&str>) -> Vec<Advice> {
    let cause = Cause::LaunchFailed;
    let (text, command) = if message.contains("Unauthorized") || message.contains("AccessDenied") {
        ("Give the operator's role the missing permission. What differs:", "tenon iam verify")
    } else {
        ("Find what AWS refuses; permissions, quotas and images are checked by:", "tenon doctor")
    };
    let mut advice = vec![Advice::run(cause, text, command)];
    if let Some(claim) = claim {
        let command = format!("kubectl describe nodeclaim {}", word(claim));
        advice.push(Advice::run(
            cause,
            "The operator retries automatically. Its attempts:",
            command,
        ));
    }
    advice
}

/// `NAME --namespace=NAMESPACE`
fn of(pod: &Pod) -> String {
    format!("{} --namespace={}", word(&pod.name), word(&pod.namespace))
}

/// `1 minute`
fn minutes(age: SignedDuration) -> String {
    let minutes = usize::try_from(age.as_mins()).unwrap_or(0);
    if minutes == 0 {
        return counted(usize::try_from(age.as_secs()).unwrap_or(0), "second");
    }
    counted(minutes, "minute")
}

/// To the second.
fn time(at: jiff::Timestamp) -> String {
    at.strftime("%H:%M:%SZ").to_string()
}

fn machine(snapshot: &tenon_planner::Snapshot, id: NodeId) -> &Node {
    &snapshot.nodes[index(id.0)]
}
