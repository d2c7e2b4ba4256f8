//! A plan for people.

use super::outlook::Outlook;
use super::{Op, Plan};
use crate::words::count;

/// A plan alone.
pub fn plan_text(plan: &Plan) -> String {
    plan_and_outlook(plan, &Outlook::default())
}

/// A plan with what it comes to, for people.
pub fn plan_and_outlook(plan: &Plan, outlook: &Outlook) -> String {
    let mut lines =
        plan.warnings.iter().map(|warning| format!("warning: {warning}")).collect::<Vec<_>>();
    if plan.steps.is_empty() {
        lines.push("Nothing to do: everything matches the settings.".to_owned());
        return lines.join("\n");
    }
    let kind_width = plan.steps.iter().map(|step| step.kind.chars().count()).max().unwrap_or(0);
    for step in &plan.steps {
        let reasons = if step.reasons.is_empty() {
            String::new()
        } else {
            format!("  ({})", step.reasons.join("; "))
        };
        lines.push(format!(
            " {} {:<kind_width$}  {}{reasons}",
            step.op.sign(),
            step.kind,
            step.resource
        ));
    }
    lines.push(format!("Plan: {}", counts(plan)));
    lines.extend(outlook.lines());
    lines.push(format!("The caller needs {}.", count(plan.caller_actions().len(), "permission")));
    lines.join("\n")
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
