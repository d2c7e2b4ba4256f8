//! Every failure that a user can cause or has to know about, with its exit code and a hint that can be typed.

use jiff::Timestamp;

use crate::aws::AwsError;
use crate::kubernetes::client::KubeError;
use crate::lock::{self, Holder};
use crate::plugin::PluginError;
use crate::settings::problem::Problem;
use crate::simulate::error::SimulateError;

/// What helps when the API server is silent.
const UNANSWERED: &str = "something on the way to the API server drops packets, or it is overloaded: look at VPN, proxy, firewalls and the access to the cluster's endpoint, try \
                          `kubectl get --raw /readyz`, then run the same command again";

/// Something failed.
pub const EXIT_FAILURE: u8 = 1;
/// The command line or the settings are wrong, or a value is missing. Nothing was called.
pub const EXIT_USAGE: u8 = 2;
/// The cluster or the account is not fit for it. Nothing was changed.
pub const EXIT_PREFLIGHT: u8 = 3;
/// Some steps were done, then one failed. Running again goes on from there.
pub const EXIT_PARTIAL: u8 = 4;
/// What is there differs from the settings (only with `--exit-code`).
pub const EXIT_DRIFT: u8 = 5;
/// Refused, because something would be touched that isn't ours or is protected.
pub const EXIT_REFUSED: u8 = 6;
/// Interrupted from the keyboard.
pub const EXIT_INTERRUPTED: u8 = 130;

/// A failure that a user can cause, or has to know about.
#[derive(Debug, thiserror::Error)]
pub enum ExpectedError {
    /// The settings have problems; all of them.
    #[error("the settings have {n}", n = count(problems.len(), "problem"))]
    Settings {
        /// What is wrong, in the order of the file.
        problems: Vec<Problem>,
    },
    /// Settings or journal can't be read or written.
    #[error("can't {operation} {path}", path = path.display())]
    File {
        /// `read`, `write`, ….
        operation: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A call failed while looking at what is there.
    #[error("can't find out what is there")]
    Observe(#[source] Failure),
    /// The kubeconfig's credential plugin gave no credential.
    #[error(transparent)]
    Credential(PluginError),
    /// The cluster or account is not fit.
    #[error("the cluster is not ready for Tenon")]
    Preflight {
        /// Why, and what to do about it.
        reasons: Vec<String>,
    },
    /// Things exist under our names that we did not make.
    #[error("refused: {n} in the way", n = count(conflicts.len(), "thing that Tenon did not make is"))]
    Foreign {
        /// What they are.
        conflicts: Vec<String>,
    },
    /// The user said no, or could not be asked.
    #[error("not confirmed, nothing was changed")]
    NotConfirmed {
        /// What to do instead.
        hint: &'static str,
    },
    /// Another installer is at work.
    #[error("another tenon is at work on this cluster")]
    Locked {
        /// Who, and since when.
        holder: Holder,
        /// When its lock ends by itself, if that is known.
        ends: Option<Timestamp>,
    },
    /// What was planned no longer fits what is there.
    #[error("the world has moved since the plan was made; nothing was changed")]
    Moved {
        /// What is planned differently now.
        changes: Vec<String>,
    },
    /// A move to another version would do harm, or is not possible.
    #[error("refused: {what}")]
    Unfit {
        /// What is refused.
        what: String,
        /// Why, each with what to do instead.
        reasons: Vec<String>,
    },
    /// What was asked for would do harm.
    #[error("refused: {n} against it", n = count(reasons.len(), "reason"))]
    Refused {
        /// What would come of it.
        reasons: Vec<String>,
        /// What to do instead.
        hints: Vec<String>,
    },
    /// The settings say that the installation stays.
    #[error("refused: protect.preventUninstall is set for this installation")]
    Protected,
    /// A step failed; the steps before it are done.
    #[error("step {step} failed ({done} done)", done = count(*done, "step"))]
    Step {
        /// The id of the step.
        step: String,
        /// How many steps had been done before it in this run.
        done: usize,
        /// Why.
        source: Failure,
    },
    /// A condition did not become true in time.
    #[error("gave up waiting for {what} after {seconds} s")]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: u64,
        /// The last thing that was seen.
        last: String,
    },
    /// The terminal could not be used.
    #[error("can't ask on this terminal")]
    Prompt(#[source] std::io::Error),
    /// A simulation's input is wrong.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// Ctrl-C.
    #[error("interrupted; what is done stays")]
    Interrupted,
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// To AWS.
    #[error(transparent)]
    Aws(#[from] AwsError),
    /// To Kubernetes.
    #[error(transparent)]
    Kubernetes(#[from] KubeError),
    /// The journal could not be written, so the step was not begun.
    #[error("the journal can't be written: {0}")]
    Journal(String),
    /// What was waited for did not happen.
    #[error("gave up waiting for {what}: {last}")]
    Wait {
        /// What was waited for.
        what: String,
        /// What was seen last.
        last: String,
    },
    /// One pod of another version was tried, and could not take over.
    #[error(
        "the new version can't take over: {why}; its pod was removed, and the version before goes on"
    )]
    Canary {
        /// What its pod said.
        why: String,
    },
    /// What is there can't be changed without harm.
    #[error("{what} is left as it is: {why}")]
    Refused {
        /// What it is.
        what: String,
        /// Why.
        why: String,
    },
    /// Something with this name exists that Tenon did not make; it appeared after the plan was made.
    #[error("{what} exists and is not this installation's")]
    Foreign {
        /// What it is.
        what: String,
    },
}

impl Failure {
    /// What is missing when the call was denied: the action and what it was tried on.
    pub fn denied(&self) -> Option<(String, String)> {
        match self {
            Self::Aws(error) if error.is_denied() => {
                Some((error.action.to_owned(), error.resource.clone()))
            }
            Self::Kubernetes(error) if error.is_denied() => {
                Some((error.verb.to_owned(), error.resource.clone()))
            }
            _ => None,
        }
    }
}

impl ExpectedError {
    /// An answer could not be read: Ctrl-C where keys are read one by one, or a terminal that is none.
    pub fn prompt(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Prompt(error),
        }
    }

    /// The exit code, one exhaustive match.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Settings { .. } | Self::Simulate(_) => EXIT_USAGE,
            Self::File { operation: "read", .. } => EXIT_USAGE,
            Self::File { .. } | Self::Observe(_) | Self::Prompt(_) => EXIT_FAILURE,
            Self::Preflight { .. } | Self::Credential(_) => EXIT_PREFLIGHT,
            Self::Foreign { .. }
            | Self::Locked { .. }
            | Self::Moved { .. }
            | Self::Unfit { .. }
            | Self::Refused { .. }
            | Self::Protected
            | Self::NotConfirmed { .. } => EXIT_REFUSED,
            Self::Step { source: Failure::Foreign { .. } | Failure::Refused { .. }, .. } => {
                EXIT_REFUSED
            }
            Self::Step { .. } | Self::Timeout { .. } => EXIT_PARTIAL,
            Self::Interrupted => EXIT_INTERRUPTED,
        }
    }

    /// A short word for programs: the `kind` of the JSON output.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Settings { .. } => "settings",
            Self::File { .. } => "file",
            Self::Observe(_) => "observe",
            Self::Credential(_) => "credential",
            Self::Preflight { .. } => "preflight",
            Self::Foreign { .. } => "foreign",
            Self::NotConfirmed { .. } => "not-confirmed",
            Self::Locked { .. } => "locked",
            Self::Moved { .. } => "moved",
            Self::Unfit { .. } => "unfit",
            Self::Refused { .. } => "refused",
            Self::Protected => "protected",
            Self::Step { .. } => "step",
            Self::Timeout { .. } => "timeout",
            Self::Prompt(_) => "prompt",
            Self::Simulate(error) => error.kind(),
            Self::Interrupted => "interrupted",
        }
    }

    /// The single facts behind the error, one per line.
    pub fn details(&self) -> Vec<String> {
        match self {
            Self::Settings { problems } => problems.iter().map(ToString::to_string).collect(),
            Self::Preflight { reasons }
            | Self::Unfit { reasons, .. }
            | Self::Refused { reasons, .. } => reasons.clone(),
            Self::Credential(error) => error.said.lines().map(str::to_owned).collect(),
            Self::Observe(Failure::Kubernetes(error))
            | Self::Step { source: Failure::Kubernetes(error), .. } => error
                .plugin()
                .map(|plugin| plugin.said.lines().map(str::to_owned).collect())
                .unwrap_or_default(),
            Self::Simulate(error) => error.details(),
            Self::Foreign { conflicts } => conflicts.clone(),
            Self::Timeout { last, .. } => vec![format!("last seen: {last}")],
            Self::Moved { changes } => changes.clone(),
            Self::Locked { holder, .. } => {
                vec![format!(
                    "{} has run `{}` since {}",
                    holder.who, holder.operation, holder.since
                )]
            }
            _ => Vec::new(),
        }
    }

    /// What to do next.
    pub fn hints(&self) -> Vec<String> {
        let advice = |failure: &Failure| {
            if matches!(failure, Failure::Aws(error) if error.is_unknown_caller()) {
                return Some("AWS does not accept these credentials: renew them, or choose others with --profile".to_owned());
            }
            if matches!(failure, Failure::Kubernetes(error) if error.is_silence()) {
                return Some(UNANSWERED.to_owned());
            }
            failure.denied().map(|(action, resource)| match failure {
                Failure::Aws(error) if error.is_denied_by_organization() => format!(
                    "a policy of the organisation denies {action} on {resource}, whatever the caller may: often it demands --permissions-boundary or --role-path; \
                     ask whoever runs the organisation, then run the same command again"
                ),
                _ => format!("the caller needs {action} on {resource}; then run the same command again"),
            })
        };
        match self {
            Self::Settings { .. } => {
                vec!["`tenon config schema` prints what is allowed".to_owned()]
            }
            Self::Foreign { .. } => {
                vec!["choose other names (--name-prefix), or remove what is in the way; nothing was changed".to_owned()]
            }
            Self::Credential(error) => error.advice(),
            Self::NotConfirmed { hint } => vec![(*hint).to_owned()],
            Self::Refused { hints, .. } => hints.clone(),
            Self::Simulate(error) => error.hints(),
            Self::Moved { .. } => vec!["make the plan again and look at it".to_owned()],
            Self::Locked { ends: None, .. } => {
                vec!["it runs on this machine: wait until it has ended".to_owned()]
            }
            Self::Locked { ends: Some(ends), .. } => vec![
                format!("wait until it has ended; if it was killed, its lock ends at {ends}"),
                format!(
                    "to break the lock of a run that is certainly gone: kubectl -n {} delete lease {}",
                    lock::NAMESPACE,
                    lock::LEASE
                ),
            ],
            Self::Interrupted => vec![
                "run the same command again to go on; `tenon status` shows what is missing, `tenon uninstall` takes back what is done".to_owned(),
            ],
            Self::Protected => vec![
                "set protect.preventUninstall to false, run `tenon install`, then uninstall"
                    .to_owned(),
            ],
            Self::Observe(Failure::Kubernetes(error))
            | Self::Step { source: Failure::Kubernetes(error), .. }
                if let Some(plugin) = error.plugin() =>
            {
                plugin.advice()
            }
            Self::Observe(failure) => advice(failure).into_iter().collect(),
            Self::Step { source: Failure::Canary { .. }, .. } => vec![
                "run the same command again when that is mended, or `tenon rollback` to take back what was prepared".to_owned(),
            ],
            Self::Step { source, .. } => {
                vec![
                    advice(source).unwrap_or_else(|| {
                        "run the same command again to go on from here".to_owned()
                    }),
                ]
            }
            Self::Timeout { .. } => vec![
                "`tenon status` shows what is missing; a longer --timeout waits longer".to_owned(),
            ],
            Self::File { .. }
            | Self::Preflight { .. }
            | Self::Unfit { .. }
            | Self::Prompt(_) => Vec::new(),
        }
    }
}

/// `1 step`, `2 steps`; `thing … is` becomes `things … are`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        return format!("{n} {noun}");
    }
    match noun.strip_suffix(" is").and_then(|noun| noun.split_once(' ')) {
        Some((head, rest)) => format!("{n} {head}s {rest} are"),
        None => format!("{n} {noun}s"),
    }
}

/// The first of some names, at most `n`, and how many more there are: `a, b and 3 more`.
pub fn some(names: &[String], n: usize) -> String {
    let first = names[..names.len().min(n)].join(", ");
    match names.len().saturating_sub(n) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_well() {
        assert_eq!(count(1, "step"), "1 step");
        assert_eq!(count(0, "step"), "0 steps");
        assert_eq!(
            count(2, "thing that Tenon did not make is"),
            "2 things that Tenon did not make are"
        );
    }

    #[test]
    fn a_long_list_ends_with_how_many_more_there_are() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(some(&names, 3), "a, b, c");
        assert_eq!(some(&names, 2), "a, b and 1 more");
        assert_eq!(some(&[], 2), "");
    }

    #[test]
    fn a_denial_by_the_organisation_is_not_for_the_caller_to_mend() {
        let hints = |message: &str| {
            let source = Failure::Aws(AwsError {
                action: "iam:CreateRole",
                resource: "role x".into(),
                code: Some("AccessDenied".into()),
                message: message.into(),
            });
            ExpectedError::Step { step: "node-role".into(), done: 0, source }.hints().join("\n")
        };
        assert!(hints("not authorized").starts_with("the caller needs iam:CreateRole on role x"));
        let denied = hints("not authorized with an explicit deny in a service control policy");
        assert!(denied.contains("--permissions-boundary or --role-path"), "{denied}");
    }

    #[test]
    fn a_failed_step_is_a_partial_application_and_a_foreign_thing_a_refusal() {
        let step = |source| ExpectedError::Step { step: "queue".into(), done: 3, source };
        assert_eq!(step(Failure::Journal("disk full".into())).exit_code(), EXIT_PARTIAL);
        assert_eq!(step(Failure::Foreign { what: "queue x".into() }).exit_code(), EXIT_REFUSED);
        assert_eq!(ExpectedError::Interrupted.exit_code(), EXIT_INTERRUPTED);
        let prompt = |kind: std::io::ErrorKind| ExpectedError::prompt(kind.into()).exit_code();
        assert_eq!(prompt(std::io::ErrorKind::Interrupted), EXIT_INTERRUPTED);
        assert_eq!(prompt(std::io::ErrorKind::UnexpectedEof), EXIT_FAILURE);
    }
}
