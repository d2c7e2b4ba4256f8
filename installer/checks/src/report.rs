//! What came out of the checks, for people and programs.

use std::collections::BTreeSet;

use serde::Serialize;
use tenon_installer_core::words::count;

use super::observed::{NOT_CHECKED, Observed};
use super::{Check, Outcome, Severity, When, kops, table, working};

/// Version of the JSON form of a report.
pub const SCHEMA: &str = "tenon.sh/checks/v1alpha1";

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of this form.
    pub schema: &'static str,
    /// No fatal check failed; with `strict`, no warning either.
    pub success: bool,
    /// How many checks came out how.
    pub counts: Counts,
    /// The checks by category.
    pub categories: Vec<Group>,
    /// The check to begin with, if one failed, and its command.
    pub first: Option<First>,
}

/// What to begin with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct First {
    /// The check's id.
    pub id: &'static str,
    /// What to type.
    pub command: String,
}

/// How many checks came out how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// As it should be.
    pub passed: usize,
    /// Failed and fatal.
    pub fatal: usize,
    /// Failed and not fatal.
    pub warnings: usize,
    /// Failed, for information.
    pub infos: usize,
    /// Not applicable, or left out.
    pub skipped: usize,
    /// Not known.
    pub unknown: usize,
}

/// A category.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Heading above the checks.
    pub title: &'static str,
    /// In the order of the table.
    pub checks: Vec<Line>,
}

/// A check and how it came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The check's id.
    pub id: &'static str,
    /// What follows when it fails.
    pub severity: Severity,
    /// What is true when it passes.
    pub title: &'static str,
    /// How it came out.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Why it matters; only when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
    /// What to type; only when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// What to check, and how strictly.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Ids of checks to leave out.
    pub skip: BTreeSet<String>,
    /// Warnings fail, too.
    pub strict: bool,
    /// Also look at the operator at work.
    pub installed: bool,
    /// Only Kubernetes was asked: what AWS would have to say is skipped.
    pub without_aws: bool,
}

impl Options {
    /// Ids that no check has.
    pub fn unknown_ids(&self) -> Vec<String> {
        self.skip.iter().filter(|id| table::all().all(|check| check.id != **id)).cloned().collect()
    }
}

/// Makes all checks.
pub fn judge(seen: &Observed, options: &Options) -> Report {
    let mut counts = Counts::default();
    let mut categories = Vec::new();
    for category in table::CATEGORIES {
        let made = category
            .checks
            .iter()
            .filter(|check| !seen.asked.kops || kops::has(check.id))
            .filter(|check| match check.when {
                When::Always => true,
                When::Installed => options.installed,
                When::Inside => seen.inside.is_some(),
                When::Billing => seen.cost_tags.is_some(),
            })
            .map(|check| line(check, seen, options))
            .collect::<Vec<_>>();
        for line in &made {
            let count = match (&line.outcome, line.severity) {
                (Outcome::Pass(_), _) => &mut counts.passed,
                (Outcome::Skip(_), _) => &mut counts.skipped,
                (Outcome::Unknown(_), _) => &mut counts.unknown,
                (Outcome::Fail(_), Severity::Fatal) => &mut counts.fatal,
                (Outcome::Fail(_), Severity::Warning) => &mut counts.warnings,
                (Outcome::Fail(_), Severity::Info) => &mut counts.infos,
            };
            *count += 1;
        }
        if !made.is_empty() {
            categories.push(Group { title: category.title, checks: made });
        }
    }
    let first = first(&categories);
    let success = counts.fatal == 0 && !(options.strict && counts.warnings > 0);
    Report { schema: SCHEMA, success, counts, categories, first }
}

/// The first fatal check that failed, else the first warning: what the later ones are about often
/// follows from it.
fn first(categories: &[Group]) -> Option<First> {
    let failed = || {
        let lines = categories.iter().flat_map(|group| &group.checks);
        lines.filter(|line| matches!(line.outcome, Outcome::Fail(_)))
    };
    let of = |severity| failed().find(|line| line.severity == severity);
    let line = of(Severity::Fatal).or_else(|| of(Severity::Warning))?;
    // What follows explains the command.
    let command = line.fix.as_deref()?.split("   #").next()?.trim().to_owned();
    Some(First { id: line.id, command })
}

fn line(check: &'static Check, seen: &Observed, options: &Options) -> Line {
    let outcome = if options.skip.contains(check.id) {
        Outcome::Skip("skipped by --skip".to_owned())
    } else {
        match (check.run)(seen) {
            // Not to know who calls is a failure by itself, but not where nobody is to call.
            Outcome::Unknown(why) | Outcome::Fail(why)
                if options.without_aws && why == NOT_CHECKED =>
            {
                Outcome::Skip("skipped: there are no AWS credentials".to_owned())
            }
            outcome => outcome,
        }
    };
    let failed = matches!(outcome, Outcome::Fail(_));
    Line {
        id: check.id,
        severity: check.severity,
        title: check.title,
        outcome,
        cause: failed.then_some(check.cause),
        fix: failed.then(|| {
            let of_kops = || if seen.asked.kops { kops::fix(check.id) } else { None };
            let fix = working::fix_of_first_cause(check.id, seen).or_else(of_kops);
            seen.fill(fix.unwrap_or(check.fix))
        }),
    }
}

impl Report {
    /// The checks that failed and are fatal, as one line each with what to type.
    pub fn reasons(&self) -> Vec<String> {
        let all = self.categories.iter().flat_map(|group| &group.checks);
        all.filter(|line| line.severity == Severity::Fatal)
            .filter_map(|line| match (&line.outcome, &line.fix) {
                (Outcome::Fail(detail), Some(fix)) => {
                    Some(format!("{} {}: {detail}\n      {fix}", line.id, line.title))
                }
                _ => None,
            })
            .collect()
    }

    /// The checks that failed as warnings, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let all = self.categories.iter().flat_map(|group| &group.checks);
        all.filter(|line| line.severity == Severity::Warning)
            .filter_map(|line| match &line.outcome {
                Outcome::Fail(detail) => Some(format!("{} {}: {detail}", line.id, line.title)),
                _ => None,
            })
            .collect()
    }

    /// The report for people. Without `verbose`, what passed is only counted.
    pub fn text(&self, verbose: bool) -> String {
        let mut lines = Vec::new();
        for group in &self.categories {
            let shown = group
                .checks
                .iter()
                .filter(|line| {
                    verbose || !matches!(line.outcome, Outcome::Pass(_) | Outcome::Skip(_))
                })
                .collect::<Vec<_>>();
            let passed =
                group.checks.iter().filter(|line| matches!(line.outcome, Outcome::Pass(_))).count();
            lines.push(format!("{} ({passed} of {} passed)", group.title, group.checks.len()));
            for line in shown {
                let (sign, detail) = match (&line.outcome, line.severity) {
                    (Outcome::Pass(detail), _) => ("✔", detail),
                    (Outcome::Skip(detail), _) => ("-", detail),
                    (Outcome::Unknown(detail), _) => ("?", detail),
                    (Outcome::Fail(detail), Severity::Fatal) => ("✘", detail),
                    (Outcome::Fail(detail), Severity::Warning) => ("‼", detail),
                    (Outcome::Fail(detail), Severity::Info) => ("i", detail),
                };
                lines.push(format!(" {sign} {} {}: {detail}", line.id, line.title));
                if let (Some(cause), Some(fix)) = (line.cause, &line.fix) {
                    lines.push(format!("     {cause}"));
                    lines.push(format!("     → {fix}"));
                }
            }
        }
        let Counts { passed, fatal, warnings, infos, skipped, unknown } = self.counts;
        lines.push(format!(
            "{passed} passed, {fatal} fatal, {}, {infos} informational, {skipped} not applicable, \
             {unknown} unknown",
            count(warnings, "warning")
        ));
        if let Some(First { id, command }) = &self.first {
            lines.push(format!("\nRun first ({id}):\n    {command}"));
        }
        lines.join("\n")
    }
}
