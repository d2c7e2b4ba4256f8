//! A plan for people: lines with what each part of them is, so that whoever prints them may color
//! it.

mod fields;
mod line;

pub use line::{Line, Tone};

use super::impact::Impact;
use super::{Op, Plan, Step};
use crate::words::count;

/// A plan alone, without a width that it has to keep to.
#[cfg(any(test, feature = "testing"))]
pub fn plan_text(plan: &Plan) -> String {
    plain(&plan_lines(plan, &Impact::default()), None)
}

/// Lines as a plain text, wrapped to a width.
pub fn plain(lines: &[Line], width: Option<usize>) -> String {
    let wrapped = lines.iter().flat_map(|line| line.wrapped(width));
    wrapped.map(|line| line.text()).collect::<Vec<_>>().join("\n")
}

/// A plan with what it comes to.
pub fn plan_lines(plan: &Plan, impact: &Impact) -> Vec<Line> {
    let warning = |warning: &String| {
        Line::new(0, 4).with(Tone::Mark, "warning:").with(Tone::Plain, &format!(" {warning}"))
    };
    let mut lines = plan.warnings.iter().map(warning).collect::<Vec<_>>();
    if plan.steps.is_empty() {
        lines.push(Line::plain("Nothing to do: everything matches the settings."));
        return lines;
    }
    let mut rest = plan.steps.as_slice();
    while let Some(first) = rest.first() {
        let service = service(&first.kind);
        let n = rest.iter().take_while(|step| self::service(&step.kind) == service).count();
        let (group, others) = rest.split_at(n);
        if !lines.is_empty() {
            lines.push(Line::plain(""));
        }
        lines.push(Line::new(0, 0).with(Tone::Heading, service));
        let width = group.iter().map(|step| step.kind.chars().count()).max().unwrap_or(0);
        for step in group {
            lines.extend(step_lines(step, width));
        }
        rest = others;
    }
    lines.push(Line::plain(""));
    lines.push(Line::plain(&format!("Plan: {}", counts(plan))));
    lines.extend(impact.lines().iter().map(|line| Line::plain(line)));
    lines.push(Line::plain(&format!(
        "The caller needs {}.",
        count(plan.caller_actions().len(), "permission")
    )));
    lines
}

fn step_lines(step: &Step, kind_width: usize) -> Vec<Line> {
    let tone = match step.op {
        Op::Create => Tone::Added,
        Op::Delete => Tone::Removed,
        Op::Update | Op::Tag | Op::Adopt => Tone::Changed,
    };
    let mut line = Line::new(1, 6)
        .with(tone, step.op.sign())
        .with(Tone::Plain, &format!(" {:<kind_width$}  {}", step.kind, step.resource));
    if !step.reasons.is_empty() {
        line = line.with(Tone::Plain, &format!("  ({})", step.reasons.join("; ")));
    }
    let changes = step.changes.iter().flat_map(fields::lines);
    std::iter::once(line).chain(changes).collect()
}

/// What a kind of thing belongs to.
fn service(kind: &str) -> &'static str {
    match kind {
        "IAM role" | "instance profile" | "service-linked role" | "IAM identity provider" => "IAM",
        "EKS access entry"
        | "Pod Identity association"
        | "EKS add-on"
        | "Fargate profile"
        | "node group" => "EKS",
        "SQS queue" | "EventBridge rule" => "SQS and EventBridge",
        "subnet" | "security group" | "lifecycle hook" | "Auto Scaling group" => "EC2",
        _ => "Kubernetes",
    }
}

/// `14 create, 0 update, 4 tag, 0 delete`
pub fn counts(plan: &Plan) -> String {
    let word = |op: Op| match op {
        Op::Create => "create",
        Op::Update => "update",
        Op::Tag => "tag",
        Op::Delete => "delete",
        Op::Adopt => "adopt",
    };
    plan.counts().iter().map(|(op, n)| format!("{n} {}", word(*op))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
