//! All checks in the order in which they are shown, and the page that explains them.

use std::fmt::Write;

use super::signatures::SIGNATURES;
use super::{Check, Severity, When};
use super::{account, autoscalers, cluster, compute, identity, inside, network, working};

/// A group of checks with its heading.
#[derive(Debug)]
pub struct Category {
    /// What the checks are about.
    pub title: &'static str,
    /// The checks.
    pub checks: &'static [Check],
}

/// All checks.
pub const CATEGORIES: &[Category] = &[
    Category { title: "Credentials and target", checks: account::CHECKS },
    Category { title: "Cluster", checks: cluster::CHECKS },
    Category { title: "Other autoscalers and leftovers", checks: autoscalers::CHECKS },
    Category { title: "Network", checks: network::CHECKS },
    Category { title: "Identity", checks: identity::CHECKS },
    Category { title: "Quotas, images, queue and NodePools", checks: compute::CHECKS },
    Category { title: "The operator at work", checks: working::CHECKS },
    Category { title: "From inside the cluster", checks: inside::CHECKS },
];

/// All checks, one after the other.
pub fn all() -> impl Iterator<Item = &'static Check> {
    CATEGORIES.iter().flat_map(|category| category.checks)
}

/// The page `docs/src/reference/troubleshooting.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Troubleshooting\n\n\
         <!-- Written from the table of checks in installer/src/checks; a test fails when both differ. -->\n\n\
         `tenon preflight` looks before anything is installed, `tenon doctor` also at an installation at work. Both change nothing, but that `--in-cluster` makes a Job\n\
         which asks from inside the cluster, and removes it. Each check has an id; `--skip CL-09,QU-01` leaves\n\
         checks out, `--strict` lets warnings fail as well. `tenon install` makes the preflight checks first and stops at a fatal one.\n\n\
         | Ends with | When |\n|---|---|\n| 0 | no fatal check fails (with `--strict`: no warning either) |\n| 3 | one does |\n| 1 | nothing could be looked at |\n\n\
         A check that can't read what it looks at, for example because the caller may not, says \"unknown\". That never passes and never fails.\n\n\
         In the commands, `<cluster>`, `<region>` and `<namespace>` are filled in when `tenon` prints them.\n",
    );
    for category in CATEGORIES {
        let _ = write!(page, "\n## {}\n", category.title);
        for check in category.checks {
            let severity = match check.severity {
                Severity::Fatal => "fatal",
                Severity::Warning => "warning",
                Severity::Info => "for information",
            };
            let when = match check.when {
                When::Always => "",
                When::Installed => ", only `tenon doctor`",
                When::Inside => ", only with `--in-cluster`",
            };
            let _ = write!(
                page,
                "\n### {}: {}\n\n*{severity}{when}*: {}\n\n```\n{}\n```\n",
                check.id, check.title, check.cause, check.fix
            );
        }
    }
    page.push_str(
        "\n## Signatures\n\nTexts that `tenon doctor` knows when it finds them in conditions, events and the operator's log.\n\n\
         | Id | Text | Cause | What to do |\n|---|---|---|---|\n",
    );
    for signature in SIGNATURES {
        let texts =
            signature.texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ");
        let fix = signature.fix.replace('|', "\\|");
        let _ = writeln!(page, "| {} | {texts} | {} | `{fix}` |", signature.id, signature.cause);
    }
    page.push_str(
        "\nFor a denied call the doctor names the action, the resource, and the statement of the operator's policies that grants it: compare it with what is attached by\n`tenon iam verify`.\n",
    );
    page
}
