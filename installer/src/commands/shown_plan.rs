//! A plan as the result of a command.

use serde_json::{Value, json};
use tenon_installer_core::plan::outlook::Outlook;
use tenon_installer_core::plan::text::plan_lines;
use tenon_installer_core::plan::{Plan, SCHEMA};

use crate::printer::Printer;

/// Prints a plan in the format of results.
pub(super) fn print(printer: Printer, target: &Value, plan: &Plan, outlook: &Outlook) {
    printer.json(&json!({
        "schema": SCHEMA,
        "target": target,
        "actions": plan.steps,
        "warnings": plan.warnings,
        "callerActions": plan.caller_actions(),
        "outlook": outlook,
    }));
    printer.lines(&plan_lines(plan, outlook));
}
