//! Every failure that a user can cause or has to know about, with its exit code and a hint that can
//! be typed.

mod hints;

use jiff::Timestamp;
use tenon_installer_core::apply::StepError;
use tenon_installer_core::aws::profiles::UnknownProfile;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::files::{FileError, FileOperation};
use tenon_installer_core::kubernetes::client::KubeError;
use tenon_installer_core::lock::Holder;
use tenon_installer_core::plan::Moved;
use tenon_installer_core::plugin::{ClientError, PluginError};
use tenon_installer_core::settings::SettingsError;
use tenon_installer_core::target::TargetError;
use tenon_installer_core::words::{chain, count, without_types};
use tenon_simulate::SimulateError;

use crate::exit_codes::{
    EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_PARTIAL, EXIT_PREFLIGHT, EXIT_REFUSED, EXIT_USAGE,
};
use crate::ledger::LedgerError;
use crate::printer::ErrorReport;

/// A failure that a user can cause, or has to know about.
#[derive(Debug, thiserror::Error)]
pub enum ExpectedError {
    /// The settings have problems; all of them.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A call failed while looking at what is there.
    #[error("can't inspect the cluster and the account")]
    Observe(#[source] Failure),
    /// The kubeconfig's credential plugin gave no credential.
    #[error(transparent)]
    Credential(PluginError),
    /// The kubeconfig can't be used, or has no such context.
    #[error(transparent)]
    Kubeconfig(ClientError),
    /// The AWS configuration has no such profile.
    #[error(transparent)]
    Profile(#[from] UnknownProfile),
    /// The cluster or account is not fit.
    #[error("the cluster does not meet Tenon's requirements")]
    Preflight {
        /// Why, and what to do about it.
        reasons: Vec<String>,
    },
    /// The cluster would not take what is planned.
    #[error("the cluster would refuse {n} of the plan; nothing was changed", n = count(refusals.len(), "part"))]
    Rejected {
        /// Object, field and message of each.
        refusals: Vec<String>,
    },
    /// Things exist under our names that we did not make.
    #[error("refused: {n} that Tenon did not create", n = count(conflicts.len(), "conflicting object"))]
    Foreign {
        /// What they are.
        conflicts: Vec<String>,
    },
    /// The user said no, or could not be asked.
    #[error("not confirmed; nothing was changed")]
    NotConfirmed {
        /// What to do instead.
        hint: &'static str,
    },
    /// Another installer is at work.
    #[error("another tenon command is running on this cluster")]
    Locked {
        /// Who, and since when.
        holder: Holder,
        /// When its lock ends by itself, if that is known.
        ends: Option<Timestamp>,
    },
    /// What was planned no longer fits what is there.
    #[error(transparent)]
    Moved(#[from] Moved),
    /// A move to another version would do harm, or is not possible.
    #[error("refused: {what}")]
    Unfit {
        /// What is refused.
        what: String,
        /// Why, each with what to do instead.
        reasons: Vec<String>,
    },
    /// What was asked for would do harm.
    #[error("refused for {n}", n = count(reasons.len(), "reason"))]
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
    #[error(transparent)]
    Step(#[from] StepError),
    /// A condition did not become true in time.
    #[error("timed out after {seconds} s waiting for {what}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: u64,
        /// The last thing that was seen.
        last: String,
    },
    /// The terminal could not be used.
    #[error("can't prompt on this terminal")]
    Prompt(#[source] std::io::Error),
    /// There is no terminal that can be drawn on.
    #[error("`tenon top` needs a terminal: {why}")]
    NoTerminal {
        /// What there is instead.
        why: &'static str,
    },
    /// The terminal can't be drawn on.
    #[error("can't draw on this terminal")]
    Draw(#[source] std::io::Error),
    /// A simulation's input is wrong.
    #[error(transparent)]
    Simulate(SimulateError),
    /// The operator's decisions can't be read.
    #[error("can't read the operator's decisions")]
    Ledger(#[source] LedgerError),
    /// A port of this machine can't be listened on.
    #[error("can't listen on {address}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Ctrl-C.
    #[error("interrupted; completed steps stay")]
    Interrupted,
}

impl From<SimulateError> for ExpectedError {
    fn from(error: SimulateError) -> Self {
        match error {
            SimulateError::Read { path, source } => FileError::reading(&path)(source).into(),
            SimulateError::Write { path, source } => FileError::writing(&path)(source).into(),
            SimulateError::List { resource, source } => {
                Self::Observe(KubeError { verb: "list", resource, cause: source }.into())
            }
            error => Self::Simulate(error),
        }
    }
}

impl From<ClientError> for ExpectedError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Plugin(error) => Self::Credential(error),
            error => Self::Kubeconfig(error),
        }
    }
}

impl From<LedgerError> for ExpectedError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Client(error) => error.into(),
            error => Self::Ledger(error),
        }
    }
}

impl From<TargetError> for ExpectedError {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Client(error) => error.into(),
            other => Self::Preflight { reasons: vec![other.to_string()] },
        }
    }
}

impl ExpectedError {
    /// An answer could not be read: Ctrl-C where keys are read one by one, or a terminal that is
    /// none.
    pub fn prompt(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Prompt(error),
        }
    }

    /// All of it, to be shown.
    pub fn report(&self) -> ErrorReport {
        ErrorReport {
            kind: self.kind(),
            exit_code: self.exit_code(),
            message: self.message(),
            details: self.details(),
            hints: self.hints(),
        }
    }

    /// What failed and why, in one sentence without names of types.
    pub(crate) fn message(&self) -> String {
        without_types(&match self {
            // What was about to be done doesn't matter.
            Self::Observe(failure) if failure.lacks_credentials() => failure.to_string(),
            other => chain(other),
        })
    }

    /// The exit code, one exhaustive match.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_)
            | Self::Simulate(_)
            | Self::Kubeconfig(_)
            | Self::Profile(_)
            | Self::NoTerminal { .. } => EXIT_USAGE,
            Self::Ledger(LedgerError::Url { .. }) => EXIT_USAGE,
            Self::Ledger(_) => EXIT_FAILURE,
            Self::File(error) => match error.operation {
                FileOperation::Read => EXIT_USAGE,
                FileOperation::Write => EXIT_FAILURE,
            },
            Self::Observe(failure) if failure.lacks_credentials() => EXIT_PREFLIGHT,
            Self::Observe(_) | Self::Prompt(_) | Self::Draw(_) | Self::Listen { .. } => {
                EXIT_FAILURE
            }
            Self::Preflight { .. } | Self::Rejected { .. } | Self::Credential(_) => EXIT_PREFLIGHT,
            Self::Foreign { .. }
            | Self::Locked { .. }
            | Self::Moved(_)
            | Self::Unfit { .. }
            | Self::Refused { .. }
            | Self::Protected
            | Self::NotConfirmed { .. } => EXIT_REFUSED,
            Self::Step(StepError {
                source: Failure::Foreign { .. } | Failure::Refused { .. },
                ..
            }) => EXIT_REFUSED,
            Self::Step(_) | Self::Timeout { .. } => EXIT_PARTIAL,
            Self::Interrupted => EXIT_INTERRUPTED,
        }
    }

    /// A short word for programs: the `kind` of the JSON output.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Settings(_) => "settings",
            Self::File(_) => "file",
            Self::Observe(failure) if failure.lacks_credentials() => "credential",
            Self::Observe(_) => "observe",
            Self::Credential(_) => "credential",
            Self::Kubeconfig(_) => "kubeconfig",
            Self::Profile(_) => "profile",
            Self::Preflight { .. } => "preflight",
            Self::Rejected { .. } => "rejected",
            Self::Foreign { .. } => "foreign",
            Self::NotConfirmed { .. } => "not-confirmed",
            Self::Locked { .. } => "locked",
            Self::Moved(_) => "moved",
            Self::Unfit { .. } => "unfit",
            Self::Refused { .. } => "refused",
            Self::Protected => "protected",
            Self::Step(_) => "step",
            Self::Timeout { .. } => "timeout",
            Self::Prompt(_) => "prompt",
            Self::NoTerminal { .. } | Self::Draw(_) => "terminal",
            Self::Simulate(error) => error.kind(),
            Self::Ledger(_) => "decisions",
            Self::Listen { .. } => "listen",
            Self::Interrupted => "interrupted",
        }
    }

    /// The single facts behind the error, one per line.
    pub fn details(&self) -> Vec<String> {
        match self {
            Self::Settings(error) => error.problems.iter().map(ToString::to_string).collect(),
            Self::Rejected { refusals: reasons }
            | Self::Preflight { reasons }
            | Self::Unfit { reasons, .. }
            | Self::Refused { reasons, .. } => reasons.clone(),
            Self::Credential(error) => error.said.lines().map(str::to_owned).collect(),
            Self::Observe(Failure::Kubernetes(error))
            | Self::Step(StepError { source: Failure::Kubernetes(error), .. }) => error
                .plugin()
                .map(|plugin| plugin.said.lines().map(str::to_owned).collect())
                .unwrap_or_default(),
            Self::Kubeconfig(ClientError::UnknownContext { known, .. }) if !known.is_empty() => {
                vec![format!("contexts: {}", known.join(", "))]
            }
            Self::Profile(UnknownProfile { known, .. }) if !known.is_empty() => {
                vec![format!("profiles: {}", known.join(", "))]
            }
            Self::Simulate(error) => error.details(),
            Self::Foreign { conflicts } => conflicts.clone(),
            Self::Timeout { last, .. } => vec![format!("last seen: {last}")],
            Self::Moved(error) => error.changes.clone(),
            Self::Locked { holder, .. } => {
                vec![format!(
                    "{} has been running `{}` since {}",
                    holder.who, holder.operation, holder.since
                )]
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_installer_core::aws::AwsError;

    #[test]
    fn a_denial_by_the_organisation_is_not_for_the_caller_to_mend() {
        let hints = |message: &str| {
            let source = Failure::Aws(AwsError {
                action: "iam:CreateRole",
                resource: "role x".into(),
                code: Some("AccessDenied".into()),
                message: message.into(),
                no_answer: None,
            });
            ExpectedError::from(StepError { step: "node-role".into(), done: 0, source })
                .hints()
                .join("\n")
        };
        assert!(hints("not authorized").starts_with("the caller needs iam:CreateRole on role x"));
        let denied = hints("not authorized with an explicit deny in a service control policy");
        assert!(denied.contains("--permissions-boundary or --role-path"), "{denied}");
    }

    fn unread(source: kube::Error) -> ExpectedError {
        let source = Box::new(source);
        let cause = source;
        ExpectedError::Observe(KubeError { verb: "list", resource: "nodes".into(), cause }.into())
    }

    #[test]
    fn a_silent_api_server_is_asked_in_another_way() {
        let silence = std::io::Error::from(std::io::ErrorKind::TimedOut);
        let hints = unread(kube::Error::Service(silence.into())).hints();
        assert!(hints.concat().contains("kubectl get --raw /readyz"), "{hints:?}");
    }

    #[test]
    fn a_credential_plugin_is_named_and_quoted_wherever_it_fails() {
        let plugin = PluginError::failed("aws eks get-token", "Token has expired\nand more");
        let first = ExpectedError::from(ClientError::Plugin(plugin.clone()));
        assert_eq!((first.exit_code(), first.kind()), (3, "credential"));
        let later = unread(kube::Error::Service(plugin.into()));
        for error in [first, later] {
            assert_eq!(error.details(), ["Token has expired", "and more"]);
            let hints = error.hints().concat();
            assert!(hints.contains("run `aws eks get-token` manually"), "{hints}");
        }
    }

    /// Rows 4 and 6 of the page on exit codes, and what is told apart from them. Row 5 and what is
    /// left after an uninstall or a sweep are results of commands.
    #[test]
    fn exit_codes_are_those_of_the_reference() {
        let reasons = || vec!["why".to_owned()];
        let step =
            |source| ExpectedError::from(StepError { step: "queue".into(), done: 3, source });
        let holder =
            Holder { who: "a".into(), operation: "b".into(), since: Timestamp::UNIX_EPOCH };
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403);
        let denied = || KubeError {
            verb: "patch",
            resource: "x".into(),
            cause: Box::new(kube::Error::Api(status.clone().boxed())),
        };
        for (error, code) in [
            (step(denied().into()), EXIT_PARTIAL),
            (step(Failure::Wait { what: "x".into(), last: "y".into() }), EXIT_PARTIAL),
            (
                ExpectedError::Timeout { what: "x".into(), seconds: 1, last: "y".into() },
                EXIT_PARTIAL,
            ),
            (ExpectedError::NotConfirmed { hint: "x" }, EXIT_REFUSED),
            (ExpectedError::Protected, EXIT_REFUSED),
            (ExpectedError::Locked { holder, ends: None }, EXIT_REFUSED),
            (ExpectedError::Unfit { what: "x".into(), reasons: reasons() }, EXIT_REFUSED),
            (ExpectedError::Moved(Moved { changes: reasons() }), EXIT_REFUSED),
            (ExpectedError::Foreign { conflicts: reasons() }, EXIT_REFUSED),
            (ExpectedError::Refused { reasons: reasons(), hints: reasons() }, EXIT_REFUSED),
            (step(Failure::Foreign { what: "x".into() }), EXIT_REFUSED),
            // Before the first step, the same denial is code 1, and what can be found out before is
            // 3.
            (ExpectedError::Observe(denied().into()), EXIT_FAILURE),
            (ExpectedError::Rejected { refusals: reasons() }, EXIT_PREFLIGHT),
            (ExpectedError::Preflight { reasons: reasons() }, EXIT_PREFLIGHT),
        ] {
            assert_eq!(error.exit_code(), code, "{error:?}");
        }
    }

    #[test]
    fn a_failed_step_is_a_partial_application_and_a_foreign_thing_a_refusal() {
        let step =
            |source| ExpectedError::Step(StepError { step: "queue".into(), done: 3, source });
        assert_eq!(
            step(Failure::Wait { what: "queue x".into(), last: "not there".into() }).exit_code(),
            EXIT_PARTIAL
        );
        assert_eq!(step(Failure::Foreign { what: "queue x".into() }).exit_code(), EXIT_REFUSED);
        assert_eq!(ExpectedError::Interrupted.exit_code(), EXIT_INTERRUPTED);
        let prompt = |kind: std::io::ErrorKind| ExpectedError::prompt(kind.into()).exit_code();
        assert_eq!(prompt(std::io::ErrorKind::Interrupted), EXIT_INTERRUPTED);
        assert_eq!(prompt(std::io::ErrorKind::UnexpectedEof), EXIT_FAILURE);
    }
}
