//! The interruption queue and the rules that feed it.

use super::{Differ, has_tags, same_document, views};
use crate::desired::{Queue, Rule};
use crate::observe::state::{QueueState, RuleState};
use crate::plan::{Action, Op, Step};

const QUEUE: &str = "SQS queue";
const RULE: &str = "EventBridge rule";

fn rule_id(name: &str) -> String {
    format!("rule/{name}")
}

impl Differ<'_> {
    pub(super) fn queue(&mut self) {
        let name = self.desired.queue_name.as_str();
        let step = |op, action| Step::new("queue", QUEUE, name, op, action);
        match (&self.desired.queue, &self.actual.queue) {
            (None, None) => {}
            (None, Some(state)) => {
                if self.desired.installation.owns(&state.tags) {
                    let action =
                        Action::DeleteQueue { url: state.url.clone(), name: name.to_owned() };
                    self.add(
                        step(Op::Delete, action)
                            .because(["interruption handling is off"])
                            .after(self.desired.rule_names.iter().map(|rule| rule_id(rule)))
                            .needs(&["sqs:DeleteQueue"], &format!("queue {name}")),
                    );
                }
            }
            (Some(queue), state) => {
                let owns = |state| self.owns(&format!("{QUEUE} {name}"), state);
                if state.as_ref().map(|state| &state.tags).is_none_or(owns)
                    && let Some(step) = queue_step(queue, state.as_ref())
                {
                    self.add(step);
                }
            }
        }
    }

    pub(super) fn rules(&mut self) {
        for name in &self.desired.rule_names {
            let wanted = self.desired.rules.iter().find(|rule| rule.name == *name);
            let state = self.actual.rules.get(name);
            match (wanted, state) {
                (None, None) => {}
                (None, Some(state)) => self.unwanted_rule(name, state),
                (Some(rule), state) => {
                    let owns = |tags| self.owns(&format!("{RULE} {name}"), tags);
                    if state.map(|state| &state.tags).is_none_or(owns)
                        && let Some(step) = rule_step(rule, state)
                    {
                        self.add(step);
                    }
                }
            }
        }
    }

    fn unwanted_rule(&mut self, name: &str, state: &RuleState) {
        if !self.desired.installation.owns(&state.tags) {
            return;
        }
        let action = Action::DeleteRule {
            name: name.to_owned(),
            targets: state.targets.keys().cloned().collect(),
        };
        let arn = self.desired.scope.rule_arn(name);
        self.add(
            Step::new(&rule_id(name), RULE, name, Op::Delete, action)
                .because(["its events are disabled in the settings"])
                .needs(&["events:RemoveTargets", "events:DeleteRule"], &arn),
        );
    }
}

/// What makes a queue that is ours, or not there, as it should be; none if it is.
pub fn queue_step(queue: &Queue, state: Option<&QueueState>) -> Option<Step> {
    let step = |op, action| Step::new("queue", QUEUE, &queue.name, op, action);
    let Some(state) = state else {
        return Some(
            step(Op::Create, Action::CreateQueue(queue.clone()))
                .needs(&["sqs:CreateQueue", "sqs:SetQueueAttributes", "sqs:TagQueue"], &queue.arn),
        );
    };
    if !queue_differs(queue, state) {
        return None;
    }
    let (before, after) = (views::queue_state(state, queue), views::queue(queue, state));
    let fields = ["attributes", "policy"];
    let changes = views::changed((&before, &after), &state.tags, &queue.tags, &fields);
    let action = Action::UpdateQueue { url: state.url.clone(), queue: queue.clone() };
    let needs = ["sqs:SetQueueAttributes", "sqs:TagQueue"];
    Some(step(Op::Update, action).changing(changes).needs(&needs, &queue.arn))
}

/// What makes a rule that is ours, or not there, as it should be; none if it is.
pub fn rule_step(rule: &Rule, state: Option<&RuleState>) -> Option<Step> {
    let Some(state) = state else { return Some(put(rule, true)) };
    if !rule_differs(rule, state) {
        return None;
    }
    let (before, after) = (views::rule_state(state), views::rule(rule, state));
    let fields = ["pattern", "enabled"];
    let changes = views::changed((&before, &after), &state.tags, &rule.tags, &fields);
    Some(put(rule, false).changing(changes))
}

fn put(rule: &Rule, create: bool) -> Step {
    let op = if create { Op::Create } else { Op::Update };
    let action = Action::EnsureRule { rule: rule.clone(), create };
    Step::new(&rule_id(&rule.name), RULE, &rule.name, op, action)
        .after(["queue"])
        .needs(&["events:PutRule", "events:TagResource", "events:PutTargets"], &rule.arn)
}

fn queue_differs(queue: &Queue, state: &QueueState) -> bool {
    // SQS does not say what is empty.
    let live = |name: &str| state.attributes.get(name).map_or("", String::as_str);
    queue.attributes.iter().any(|(name, value)| live(name) != value)
        || !state.attributes.get("Policy").is_some_and(|live| same_document(live, &queue.policy))
        || !has_tags(&state.tags, &queue.tags)
}

fn rule_differs(rule: &Rule, state: &RuleState) -> bool {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    state.pattern.as_deref().and_then(json) != json(&rule.pattern)
        || !state.enabled
        || state.targets.get(&rule.target_id) != Some(&rule.target_arn)
        || !has_tags(&state.tags, &rule.tags)
}
