//! A plan as the result of a command.

use serde_json::{Value, json};
use tenon_installer_core::kubernetes::trial::Trial;
use tenon_installer_core::plan::impact::Impact;
use tenon_installer_core::plan::text::{Line, plan_lines};
use tenon_installer_core::plan::{Plan, SCHEMA};

use crate::errors::ExpectedError;
use crate::printer::{OutputFormat, Printer};

/// Warns about what could not be tried.
pub(super) fn warn(printer: Printer, trial: &Trial) {
    for why in &trial.untried {
        printer.warn(&format!("can't check whether the cluster would accept {why}"));
    }
}

/// What the cluster would refuse, as the end of a command.
pub(super) fn accepted(trial: &Trial) -> Result<(), ExpectedError> {
    if trial.refusals.is_empty() {
        return Ok(());
    }
    Err(ExpectedError::Rejected {
        refusals: trial.refusals.iter().map(ToString::to_string).collect(),
    })
}

/// Prints a plan in the format of results, and ends with what the cluster would refuse of it.
pub(super) fn print(
    printer: Printer,
    target: &Value,
    plan: &Plan,
    impact: &Impact,
    trial: &Trial,
) -> Result<(), ExpectedError> {
    let json = json!({
        "schema": SCHEMA,
        "target": target,
        "actions": plan.steps,
        "warnings": plan.warnings,
        "callerActions": plan.caller_actions(),
        "outlook": impact,
    });
    print_or_refuse(printer, trial, &json, &plan_lines(plan, impact))
}

/// Prints the result of a command that changes nothing, and ends with what the cluster would
/// refuse. With `-o json` there is one document, and a refusal is it.
pub(super) fn print_or_refuse(
    printer: Printer,
    trial: &Trial,
    json: &Value,
    lines: &[Line],
) -> Result<(), ExpectedError> {
    if printer.format() == OutputFormat::Text || trial.refusals.is_empty() {
        printer.json(json);
        printer.lines(lines);
    }
    accepted(trial)
}
