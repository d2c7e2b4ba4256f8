//! A check, and how it comes out.

use serde::Serialize;

use super::observed::{Observed, Seen};

/// What follows when a check fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Tenon would not work: `install` refuses.
    Fatal,
    /// It would work, but not as it should.
    Warning,
    /// Good to know.
    Info,
}

/// When a check is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Before and after installing.
    Always,
    /// Only once Tenon is installed.
    Installed,
    /// Only where it is asked for: something has to be made in the cluster.
    Inside,
    /// Only where it is given what the bill can be split by.
    Billing,
}

/// One check.
#[derive(Debug)]
pub struct Check {
    /// Stable id, such as `CL-09`.
    pub id: &'static str,
    /// What follows when it fails.
    pub severity: Severity,
    /// When it is made.
    pub when: When,
    /// What is true when it passes.
    pub title: &'static str,
    /// Why it matters: what goes wrong otherwise.
    pub cause: &'static str,
    /// What to type. `<cluster>`, `<region>` and `<namespace>` stand for what they say.
    pub fix: &'static str,
    /// The check.
    pub run: fn(&Observed) -> Outcome,
}

/// How a check came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "lowercase")]
pub enum Outcome {
    /// It is as it should be; in a few words how.
    Pass(String),
    /// It is not; what exactly.
    Fail(String),
    /// It does not apply here, and why.
    Skip(String),
    /// What it looks at can't be read, and why.
    Unknown(String),
}

impl Outcome {
    /// Passes unless there are problems, which are all named.
    pub(crate) fn of(problems: &[String], pass: impl Into<String>) -> Self {
        if problems.is_empty() { Self::Pass(pass.into()) } else { Self::Fail(problems.join("; ")) }
    }

    /// Passes or fails.
    pub(crate) fn when(holds: bool, pass: impl Into<String>, fail: impl Into<String>) -> Self {
        if holds { Self::Pass(pass.into()) } else { Self::Fail(fail.into()) }
    }
}

/// Judges a part of the observations if it is known.
pub(crate) fn known<T>(seen: &Seen<T>, judge: impl FnOnce(&T) -> Outcome) -> Outcome {
    match seen {
        Seen::Known(value) => judge(value),
        Seen::Unknown(why) => Outcome::Unknown(why.clone()),
    }
}

/// Judges a part of the observations that a check can do without.
pub(crate) fn skip(why: &str) -> Outcome {
    Outcome::Skip(why.to_owned())
}
