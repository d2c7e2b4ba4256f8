//! The operator at work: its pods, who leads, and what its objects say of themselves.

use jiff::Timestamp;
use serde_json::Value;
use tenon_crds::quantity::Quantity;
use tenon_installer_core::kubernetes::condition::{self, Untrue, is_ready, planning_paused};
use tenon_installer_core::kubernetes::freeze::is_frozen;
use tenon_installer_core::words::count as counted;

use super::observed::{CostTags, NOT_CHECKED, Observed, OperatorDeploymentView, Seen};
use super::signatures::{explain, explain_denial};
use super::{Check, Outcome, Severity, When, identity, known};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "OP-01",
        severity: Severity::Fatal,
        when: When::Installed,
        title: "the operator is running",
        cause: "No nodes are launched while none of its pods is ready.",
        fix: "kubectl -n <namespace> describe deployment <deployment>",
        run: runs,
    },
    Check {
        id: "OP-02",
        severity: Severity::Warning,
        when: When::Installed,
        title: "the operator does not restart repeatedly",
        cause: "A pod that keeps restarting loses its state each time.",
        fix: "kubectl -n <namespace> logs deployment/<deployment> --previous",
        run: stays_up,
    },
    Check {
        id: "OP-03",
        severity: Severity::Fatal,
        when: When::Installed,
        title: "one replica of the operator leads",
        cause: "Only the leader acts. If the lease is not renewed, no replica acts.",
        fix: "kubectl -n <namespace> get lease karpenter-leader-election -o yaml",
        run: leads,
    },
    Check {
        id: "OP-04",
        severity: Severity::Warning,
        when: When::Installed,
        title: "the operator logs no errors with a known cause",
        cause: "The signatures below list the causes.",
        fix: "kubectl -n <namespace> logs deployment/<deployment>",
        run: log,
    },
    Check {
        id: "OP-05",
        severity: Severity::Warning,
        when: When::Installed,
        title: "no warning event has a known cause",
        cause: "The signatures below list the causes.",
        fix: "kubectl get events -A --field-selector type=Warning",
        run: events,
    },
    Check {
        id: "NC-01",
        severity: Severity::Fatal,
        when: When::Installed,
        title: "every EC2NodeClass is ready",
        cause: "NodePools whose EC2NodeClass is not ready launch nothing. Its conditions show what \
             was missing at the operator's last check.",
        fix: "kubectl describe ec2nodeclass",
        run: node_classes,
    },
    Check {
        id: "NC-02",
        severity: Severity::Warning,
        when: When::Billing,
        title: "the bill can be split by the tags of every EC2NodeClass",
        cause: "AWS splits costs only by tags that are active in the payer account, and only from \
             then on. `--cost-allocation-tags` expects the output of `aws ce \
             list-cost-allocation-tags --status Active` with that account's credentials. Activate \
             `karpenter.sh/nodepool`, too, to split costs by NodePool.",
        fix: "aws ce update-cost-allocation-tags-status --cost-allocation-tags-status TagKey=<tag>,Status=Active",
        run: cost_tags,
    },
    Check {
        id: "NP-02",
        severity: Severity::Warning,
        when: When::Installed,
        title: "every NodePool is ready, takes part in planning and is below its limits",
        cause: "A NodePool at its limit launches nothing more. Neither does one that is paused or \
             has PlanningActive=False; the condition's reason shows what blocks planning.",
        fix: "kubectl describe nodepool",
        run: node_pools,
    },
    Check {
        id: "NO-01",
        severity: Severity::Warning,
        when: When::Installed,
        title: "instances become nodes",
        cause: "An instance that has not become a node after 15 minutes is terminated and \
             replaced. The usual causes are its security group, its subnet's routes, the endpoint, \
             the access entry or the user data.",
        fix: "aws ec2 get-console-output --region <region> --latest --instance-id <instance>",
        run: registration,
    },
];

fn runs(seen: &Observed) -> Outcome {
    known(&seen.operator.pods, |pods| {
        if pods.is_empty() {
            return Outcome::Fail(match &seen.operator.deployment {
                None => "the cluster has no Deployment of the operator".to_owned(),
                Some(OperatorDeploymentView { namespace, name, .. }) => {
                    format!("Deployment {namespace}/{name} has no pods")
                }
            });
        }
        let ready = pods.iter().filter(|pod| pod.ready).count();
        let why = pods.iter().find_map(|pod| {
            let waiting = pod.waiting.as_ref()?;
            let message = pod.message.as_deref().unwrap_or_default();
            Some(format!(": {waiting} {message}").trim_end().to_owned())
        });
        let none = match pods.len() {
            1 => "its pod is not ready".to_owned(),
            n => format!("none of {} is ready", counted(n, "pod")),
        };
        Outcome::when(
            ready > 0,
            format!("{ready} of {} ready", counted(pods.len(), "pod")),
            format!("{none}{}", why.unwrap_or_default()),
        )
    })
}

/// More starts than an upgrade or a moved node explains.
const MANY_RESTARTS: i64 = 3;

fn stays_up(seen: &Observed) -> Outcome {
    known(&seen.operator.pods, |pods| {
        let problems = pods
            .iter()
            .filter(|pod| pod.restarts > MANY_RESTARTS)
            .map(|pod| {
                format!(
                    "{} was started {}: {}",
                    pod.name,
                    counted(usize::try_from(pod.restarts + 1).unwrap_or_default(), "time"),
                    pod.message.as_deref().unwrap_or("no reason given")
                )
            })
            .collect::<Vec<_>>();
        Outcome::of(&problems, "no pod restarted repeatedly")
    })
}

/// Four times as long as a leader keeps its lease without renewing it.
const STALE_LEASE_SECONDS: i64 = 60;

fn leads(seen: &Observed) -> Outcome {
    known(&seen.operator.leader, |leader| match leader {
        None => Outcome::Fail("no replica has ever led".to_owned()),
        Some(leader) => Outcome::when(
            leader.renewed_seconds_ago <= STALE_LEASE_SECONDS,
            &leader.holder,
            format!(
                "{} last renewed the lease {} s ago",
                leader.holder, leader.renewed_seconds_ago
            ),
        ),
    })
}

/// Each cause once, with the first text that shows it.
fn with_causes<'a>(
    seen: &Observed,
    texts: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<String> {
    let mut causes = Vec::new();
    let mut problems = Vec::new();
    for (object, text) in texts {
        let Some(signature) = explain(text) else { continue };
        if causes.contains(&signature.id) {
            continue;
        }
        causes.push(signature.id);
        let denial = explain_denial(text).map(|denial| format!(" ({denial})")).unwrap_or_default();
        problems.push(format!("{}{object}{denial}: {}", signature.id, signature.in_words(seen)));
    }
    problems
}

/// What to type for the first known cause that the operator's log (OP-04) or the events (OP-05)
/// name: it does more than to read them again.
pub(crate) fn fix_of_first_cause(id: &str, seen: &Observed) -> Option<&'static str> {
    let signature = match id {
        "OP-04" => {
            let Seen::Known(lines) = &seen.operator.log else { return None };
            lines.iter().find_map(|line| explain(line))
        }
        "OP-05" => {
            let Seen::Known(events) = &seen.operator.events else { return None };
            events.iter().find_map(|event| explain(&format!("{} {}", event.reason, event.message)))
        }
        _ => None,
    };
    signature.and_then(|signature| signature.fix(seen))
}

fn log(seen: &Observed) -> Outcome {
    known(&seen.operator.log, |lines| {
        let texts = lines.iter().map(|line| ("", line.as_str()));
        Outcome::of(&with_causes(seen, texts), "it logs none")
    })
}

fn events(seen: &Observed) -> Outcome {
    known(&seen.operator.events, |events| {
        let texts = events
            .iter()
            .map(|event| (event, format!("{} {}", event.reason, event.message)))
            .collect::<Vec<_>>();
        let objects =
            texts.iter().map(|(event, _)| format!(" on {}", event.object)).collect::<Vec<_>>();
        let pairs =
            objects.iter().zip(&texts).map(|(object, (_, text))| (object.as_str(), text.as_str()));
        Outcome::of(&with_causes(seen, pairs), "none has")
    })
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Conditions that are not true: which, since when, what the operator says of it, and what is known
/// about that.
fn untrue(object: &Value, seen: &Observed) -> Vec<String> {
    let now = Timestamp::from_second(seen.now).unwrap_or_default();
    let tell = |condition: &Untrue| {
        let said = condition.said.as_str();
        let cause = explain(said).map(|it| format!(" ({}: {})", it.id, it.in_words(seen)));
        let denial = explain_denial(said).map(|denial| format!(" ({denial})"));
        format!(
            "{}{}{}{}",
            condition.in_words(now),
            cause.unwrap_or_default(),
            denial.unwrap_or_default(),
            mended(condition, seen).unwrap_or_default()
        )
    };
    condition::untrue(object).iter().map(tell).collect()
}

/// What the operator was denied, where its role allows everything now: what it says is what it
/// found then.
fn mended(condition: &Untrue, seen: &Observed) -> Option<&'static str> {
    let is_denial = ["AuthCheckFailed", "UnauthorizedOperation", "AccessDenied", "not authorized"]
        .iter()
        .any(|text| condition.said.contains(text));
    (is_denial && matches!(identity::controller_role(seen), Outcome::Pass(_))).then_some(
        " (its role now has all required permissions, see IA-11; the operator checks again on its \
         own and then updates the condition)",
    )
}

fn node_classes(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.node_classes, |classes| {
        let problems = classes
            .iter()
            .filter(|class| !is_ready(class))
            .map(|class| {
                let why = untrue(class, seen);
                let why = if why.is_empty() {
                    "it has no conditions yet".to_owned()
                } else {
                    why.join(", ")
                };
                format!("{}: {why}", name(class))
            })
            .collect::<Vec<_>>();
        Outcome::of(&problems, format!("{} are", classes.len()))
    })
}

fn cost_tags(seen: &Observed) -> Outcome {
    let Some(CostTags { active }) = &seen.cost_tags else {
        return Outcome::Unknown(NOT_CHECKED.to_owned());
    };
    known(&seen.kubernetes.node_classes, |classes| {
        let mut tags = 0;
        let mut problems = Vec::new();
        for class in classes {
            let keys = class["spec"]["tags"].as_object().into_iter().flat_map(|tags| tags.keys());
            let keys: Vec<&str> = keys.map(String::as_str).collect();
            tags += keys.len();
            let inactive: Vec<&str> =
                keys.into_iter().filter(|key| !active.contains(*key)).collect();
            if !inactive.is_empty() {
                let verb = if inactive.len() == 1 { "is" } else { "are" };
                let keys = inactive.join(", ");
                problems.push(format!("{}: {keys} {verb} not active in billing", name(class)));
            }
        }
        Outcome::of(&problems, if tags == 0 { "none has tags" } else { "it can" })
    })
}

fn node_pools(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.node_pools, |pools| {
        let mut problems = Vec::new();
        for pool in pools {
            if !is_ready(pool) {
                problems.push(format!(
                    "{} is not ready: {}",
                    name(pool),
                    untrue(pool, seen).join(", ")
                ));
            }
            if is_frozen(pool) {
                // Its limit of 0 is part of the pause.
                problems.push(format!(
                    "{} is paused by `tenon freeze`; `tenon unfreeze` resumes it",
                    name(pool)
                ));
                continue;
            }
            if let Some(paused) = planning_paused(pool) {
                let now = Timestamp::from_second(seen.now).unwrap_or_default();
                problems.push(format!("{}: {}", name(pool), paused.in_words(now)));
            }
            let limits = pool.pointer("/spec/limits").and_then(Value::as_object);
            for (resource, limit) in limits.into_iter().flatten() {
                let used = pool.pointer("/status/resources").and_then(|used| used.get(resource));
                let number = |value: &Value| {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    text.parse::<Quantity>().ok()
                };
                if let (Some(used), Some(limit)) = (used.and_then(number), number(limit))
                    && used >= limit
                {
                    problems.push(format!("{} is at its limit of {resource}", name(pool)));
                }
            }
        }
        Outcome::of(&problems, format!("{} are", pools.len()))
    })
}

/// The operator gives up on an instance then.
const REGISTRATION_SECONDS: i64 = 15 * 60;

fn registration(seen: &Observed) -> Outcome {
    known(&seen.kubernetes.node_claims, |claims| {
        let mut problems = Vec::new();
        for claim in claims {
            let made = claim
                .pointer("/metadata/creationTimestamp")
                .and_then(Value::as_str)
                .and_then(|text| text.parse::<Timestamp>().ok());
            let age = made.map_or(0, |made| seen.now - made.as_second());
            let registered = claim
                .pointer("/status/conditions")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .any(|one| {
                    one["type"].as_str() == Some("Registered")
                        && one["status"].as_str() == Some("True")
                });
            // A third of the time is more than any healthy node needs.
            if !registered && age > REGISTRATION_SECONDS / 3 {
                problems.push(format!(
                    "NodeClaim {} has not become a node after {} minutes",
                    name(claim),
                    age / 60
                ));
            }
        }
        for instance in seen.compute.instances.known().into_iter().flatten() {
            if let Some(signature) = instance.state_reason.as_deref().and_then(explain) {
                let words = signature.in_words(seen);
                problems.push(format!("{} ({}): {words}", instance.id, signature.id));
            }
        }
        Outcome::of(&problems, counted(claims.len(), "NodeClaim"))
    })
}
