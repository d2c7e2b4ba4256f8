//! The steps of the move, there and back. Pure: what is done already needs no step, so a run that
//! was killed is run again.
//!
//! Its pods end first. Until then both would drain the same node, but no event is missed: Tenon
//! handles them all along. Then nothing sends to its queue any more, its messages move, and the
//! queue goes last.

use serde_json::json;
use tenon_iam_policies::Scope;
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::plan::change::changes;
use tenon_installer_core::plan::{Action, Op, Plan, Step};

use super::super::stopped::Stopped as _;
use super::fit::Wanted;
use super::{Feed, Found, Handler, Ours, is_here};

/// The tag of what a stack of CloudFormation made.
const STACK: &str = "aws:cloudformation:stack-name";

/// For how long a message stays hidden that Node Termination Handler received and did not delete,
/// in seconds, unless it is told otherwise.
const VISIBILITY: u64 = 20;

/// A little longer than that: the clock of SQS is not ours.
const MARGIN: u64 = 5;

/// Where a workload is, without what it holds: that changes while one looks.
fn place(handler: &Handler) -> Object {
    Object::at(&handler.live.resource, &handler.live.key())
}

fn stop_id(handler: &Handler) -> String {
    format!("stop/{}", handler.live.key().path())
}

/// The move to Tenon.
pub(crate) fn migrate(
    found: &Found,
    ours: &Ours,
    wanted: Wanted,
    (install_id, seconds): (&str, u64),
) -> Plan {
    let mut plan = Plan::default();
    let running = found.handlers.iter().filter(|handler| !handler.is_stopped());
    for handler in running {
        plan.steps.push(stop(handler, install_id, seconds));
    }
    let Some(our_queue) = &ours.feed else { return plan };
    for feed in found.feeds.values() {
        if feed.arn() == our_queue.arn() {
            let warning = "Node Termination Handler reads Tenon's own queue: the queue and its \
                           rules stay";
            plan.warnings.push(warning.to_owned());
        } else {
            let Plan { steps, warnings } = of_feed(found, feed, our_queue, wanted, seconds);
            plan.steps.extend(steps);
            plan.warnings.extend(warnings);
        }
    }
    plan
}

fn stop(handler: &Handler, install_id: &str, seconds: u64) -> Step {
    let key = handler.live.key();
    let (install_id, kind) = (install_id.to_owned(), key.kind.clone());
    let step = |action| Step::new(&stop_id(handler), &kind, &key.path(), Op::Update, action);
    let step = if handler.is_daemon_set() {
        let daemon_set = place(handler);
        step(Action::StopDaemonSet { daemon_set, install_id, seconds })
            .because(["it selects no node any more, and stays"])
    } else {
        let (deployment, replicas) = (place(handler), handler.live.replicas());
        let of = |n: i64| json!({"spec": {"replicas": n}});
        step(Action::HandOver { deployment, replicas, install_id, seconds })
            .because(["it stays"])
            .changing(changes(&of(handler.live.replicas_now()), &of(0)))
    };
    step.needs(&["patch"], &key.to_string())
}

/// What feeds a queue goes, its messages move, and it goes as well.
fn of_feed(found: &Found, feed: &Feed, ours: &Feed, wanted: Wanted, seconds: u64) -> Plan {
    let mut plan = Plan::default();
    let reads = |one: &&Handler| found.feed_of(one).is_some_and(|its| its.name == feed.name);
    let readers = || found.handlers.iter().filter(reads);
    let stopped = readers().filter(|one| !one.is_stopped()).map(stop_id).collect::<Vec<_>>();
    let mut fed = wanted.keep_aws && !(feed.rules.is_empty() && feed.hooks.is_empty());
    if !wanted.keep_aws {
        fed = sources(&mut plan, feed, &stopped);
    }
    let before = plan.steps.iter().map(|step| step.id.clone()).chain(stopped).collect::<Vec<_>>();
    let hidden = readers().filter_map(|one| {
        one.options.value("SQS_MSG_VISIBILITY_TIMEOUT_SEC").and_then(|text| text.parse().ok())
    });
    let hidden = hidden.max().unwrap_or(VISIBILITY) + MARGIN;
    let messages = format!("messages/{}", feed.name);
    let action = Action::MoveMessages {
        from: feed.state.url.clone(),
        to: ours.state.url.clone(),
        seconds,
        fed: fed.then_some(hidden),
    };
    plan.steps.push(
        Step::new(&messages, "SQS queue", &feed.name, Op::Update, action)
            .because([format!("its messages move to {}", ours.name)])
            .after(before)
            .needs(&["sqs:ReceiveMessage", "sqs:DeleteMessage"], feed.arn())
            .needs(&["sqs:SendMessage"], ours.arn()),
    );
    if wanted.keep_aws {
        return plan;
    }
    if let Some(stack) = feed.state.tags.get(STACK) {
        plan.warnings.push(format!(
            "queue {} belongs to the CloudFormation stack {stack}: it stays until the stack is \
             deleted",
            feed.name
        ));
        return plan;
    }
    let (url, name) = (feed.state.url.clone(), feed.name.clone());
    plan.steps.push(
        Step::new(
            &format!("queue/{name}"),
            "SQS queue",
            &feed.name,
            Op::Delete,
            Action::DeleteQueue { url, name },
        )
        .after([messages])
        .needs(&["sqs:DeleteQueue"], feed.arn()),
    );
    plan
}

/// What sends to a queue goes, as far as it may. Answers whether something is left that sends.
fn sources(plan: &mut Plan, feed: &Feed, after: &[String]) -> bool {
    let mut is_left = false;
    for hook in &feed.hooks {
        let (group, name) = (hook.group.clone(), hook.name.clone());
        let resource = format!("{group}/{name}");
        let action = Action::DeleteHook { group, name };
        let id = format!("hook/{resource}");
        plan.steps.push(
            Step::new(&id, "lifecycle hook", &resource, Op::Delete, action)
                .after(after.iter().cloned())
                .needs(&["autoscaling:DeleteLifecycleHook"], &resource),
        );
    }
    for (name, rule) in &feed.rules {
        let of_queue = rule.targets.iter().filter(|(_, arn)| *arn == feed.arn());
        let targets = of_queue.map(|(id, _)| id.clone()).collect::<Vec<_>>();
        if let Some(stack) = rule.tags.get(STACK) {
            is_left = true;
            plan.warnings.push(format!(
                "rule {name} belongs to the CloudFormation stack {stack}: it stays until the \
                 stack is deleted"
            ));
            continue;
        }
        let id = format!("rule/{name}");
        let of_rule = |op, action| Step::new(&id, "EventBridge rule", name, op, action);
        let step = if targets.len() < rule.targets.len() {
            of_rule(Op::Update, Action::RemoveTargets { rule: name.clone(), targets })
                .because([format!("it has other targets; {} is no longer one", feed.name)])
                .needs(&["events:RemoveTargets"], &rule.arn)
        } else {
            of_rule(Op::Delete, Action::DeleteRule { name: name.clone(), targets })
                .needs(&["events:RemoveTargets", "events:DeleteRule"], &rule.arn)
        };
        plan.steps.push(step.after(after.iter().cloned()));
    }
    is_left
}

/// The way back: what this installation stopped starts again.
pub(crate) fn undo(found: &Found, (install_id, seconds): (&str, u64)) -> Plan {
    let mut plan = Plan::default();
    let ours = found.handlers.iter().filter(|one| one.live.stopped_by() == Some(install_id));
    for handler in ours {
        let key = handler.live.key();
        let step = |id: &str, action| Step::new(id, &key.kind, &key.path(), Op::Update, action);
        let start = format!("start/{}", key.path());
        if handler.is_daemon_set() {
            let daemon_set = place(handler);
            plan.steps.push(
                step(&start, Action::StartDaemonSet { daemon_set })
                    .because(["on its nodes again"])
                    .needs(&["patch"], &key.to_string()),
            );
            continue;
        }
        let (deployment, replicas) = (place(handler), handler.live.replicas());
        let of = |n: i64| json!({"spec": {"replicas": n}});
        plan.steps.push(
            step(&start, Action::HandBack { deployment, replicas, seconds })
                .changing(changes(&of(handler.live.replicas_now()), &of(replicas)))
                .needs(&["patch"], &key.to_string()),
        );
        let deployment = place(handler);
        // Last: as long as the mark is there, a run that was killed knows what it was about.
        plan.steps.push(
            step(
                &format!("forget/{}", key.path()),
                Action::ForgetHandOver { deployment, replicas: None },
            )
            .because(["without our annotations"])
            .after([start])
            .needs(&["patch"], &key.to_string()),
        );
    }
    plan
}

/// Why what was stopped can't do its work again.
pub(crate) fn against_undo(found: &Found, scope: &Scope, install_id: &str) -> Vec<String> {
    let ours = found.handlers.iter().filter(|one| one.live.stopped_by() == Some(install_id));
    let here = ours.filter_map(|one| Some((one, one.queue().filter(|url| is_here(url, scope))?)));
    let gone = here.filter(|(one, _)| found.feed_of(one).is_none());
    let reasons = gone.map(|(one, url)| {
        format!(
            "the queue {url} of {} is gone: create it and its rules again first",
            one.live.key()
        )
    });
    reasons.collect()
}
