//! All checks in the order in which they are shown, and the page that explains them.

use super::Check;
use super::{account, autoscalers, cluster, compute, identity, inside, network, working};

/// A group of checks with its heading.
#[derive(Debug)]
pub(crate) struct Category {
    /// What the checks are about.
    pub title: &'static str,
    /// In the order in which they are made and shown.
    pub checks: &'static [Check],
}

/// All checks.
pub(crate) const CATEGORIES: &[Category] = &[
    Category { title: "Credentials and target", checks: account::CHECKS },
    Category { title: "Cluster", checks: cluster::CHECKS },
    Category { title: "Other autoscalers and leftovers", checks: autoscalers::CHECKS },
    Category { title: "Network", checks: network::CHECKS },
    Category { title: "Identity", checks: identity::CHECKS },
    Category { title: "Quotas, images, queue and NodePools", checks: compute::CHECKS },
    Category { title: "The running operator", checks: working::CHECKS },
    Category { title: "From inside the cluster", checks: inside::CHECKS },
];

/// All checks, one after the other.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    CATEGORIES.iter().flat_map(|category| category.checks)
}

/// The page `docs/src/reference/troubleshooting.md`.
#[cfg(test)]
pub(crate) fn page() -> String {
    use std::fmt::Write;

    use super::signatures::SIGNATURES;
    use super::{Severity, When};

    let mut page = String::from(
        "# Troubleshooting\n\n\
         <!-- Written from the table of checks in installer/checks/src; a test fails when both \
         differ. -->\n\n\
         `tenon preflight` checks the cluster and the account before an installation; `tenon \
         doctor` also checks a running installation. Neither changes anything, except that \
         `--in-cluster`\n\
         creates a Job that checks connectivity from inside the cluster, and deletes it. Each \
         check has an id; `--skip CL-09,QU-01` skips checks, and\n\
         `--strict` treats warnings as errors. `tenon install` runs the preflight checks first and \
         stops if a fatal check fails.\n\n\
         | Exit code | When |\n\
         |---|---|\n\
         | 0 | no fatal check failed (with `--strict`: no warning either) |\n\
         | 3 | a fatal check failed (with `--strict`: or a warning) |\n\
         | 1 | nothing could be checked |\n\n\
         A check that can't read its data, for example because the caller lacks a permission, \
         reports \"unknown\", which neither passes nor fails.\n\n\
         When `tenon` prints the commands, it fills in `<cluster>`, `<region>` and `<namespace>`.\n",
    );
    for category in CATEGORIES {
        let _ = write!(page, "\n## {}\n", category.title);
        for check in category.checks {
            let severity = match check.severity {
                Severity::Fatal => "fatal",
                Severity::Warning => "warning",
                Severity::Info => "informational",
            };
            let when = match check.when {
                When::Always => "",
                When::Installed => ", only `tenon doctor`",
                When::Inside => ", only with `--in-cluster`",
                When::Billing => ", only `tenon doctor --cost-allocation-tags`",
            };
            let _ = write!(
                page,
                "\n### {}: {}\n\n*{severity}{when}*: {}\n\n```\n{}\n```\n",
                check.id, check.title, check.cause, check.fix
            );
        }
    }
    page.push_str(
        "\n\
         ## Signatures\n\n\
         Texts that `tenon doctor` recognizes in conditions, events and the operator's log.\n\n\
         | Id | Text | Cause | What to do |\n\
         |---|---|---|---|\n",
    );
    for signature in SIGNATURES {
        let texts =
            signature.texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ");
        let fix = signature.fix.replace('|', "\\|");
        let _ = writeln!(page, "| {} | {texts} | {} | `{fix}` |", signature.id, signature.cause);
    }
    page.push_str(
        "\n\
         For a denied call, `tenon doctor` names the action, the resource, and the statement of \
         the operator's policies that grants it. Compare it with the attached policies with\n\
         `tenon iam verify`.\n",
    );
    page
}
