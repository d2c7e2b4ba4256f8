//! How a plan that was shown is agreed to and carried out: the same for every command that changes
//! an installation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenon_installer_core::apply::{self, Options, Progress, StepError};
use tenon_installer_core::aws::Aws;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::files::FileError;
use tenon_installer_core::journal::{self, Journal};
use tenon_installer_core::plan::Plan;

use super::session::Session;
use crate::cli::GlobalArgs;
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::prompt;

/// Asks whether to go on.
pub(super) async fn confirm(global: &GlobalArgs, question: &str) -> Result<(), ExpectedError> {
    if !global.may_ask() {
        return Err(ExpectedError::NotConfirmed {
            hint: "add --yes to continue without confirmation",
        });
    }
    if prompt::confirm(question, false).await.map_err(ExpectedError::prompt)? {
        Ok(())
    } else {
        Err(ExpectedError::NotConfirmed { hint: "run the same command again when ready" })
    }
}

/// From now on every call that deletes is written down, beside the record of this machine. Answers
/// where.
pub(super) fn open_audit(
    aws: &Aws,
    operation: &str,
    record: Option<&Path>,
) -> Result<Option<PathBuf>, ExpectedError> {
    let Some(path) = record.map(journal::audit_file) else { return Ok(None) };
    match aws.audit.open(operation, &path) {
        Ok(()) => Ok(Some(path)),
        Err(source) => Err(FileError::writing(&path)(source).into()),
    }
}

/// A command that carries a plan out.
pub(super) struct Execution<'a> {
    pub(super) global: &'a GlobalArgs,
    pub(super) session: &'a Session,
    /// The command, as the journal names it.
    pub(super) operation: &'a str,
    /// How many steps may run at once.
    pub(super) parallel: u8,
    /// The Helm revision that a rollback goes to.
    pub(super) back_to: Option<u32>,
    pub(super) printer: &'a Printer,
}

impl Execution<'_> {
    /// Carries the plan out, and records that it ended. Answers how many steps were done.
    pub(super) async fn run(self, plan: Plan) -> Result<usize, ExpectedError> {
        let Some((done, mut journal)) = self.steps(plan).await? else { return Ok(0) };
        let ended = journal.finish().await;
        ended.map_err(|error| unrecorded(done, Failure::Journal(error)))?;
        Ok(done)
    }

    /// Carries out a plan without a record: the installation is another tool's, and a record would
    /// say that it is ours. Answers how many steps were done.
    pub(super) async fn run_unrecorded(self, plan: Plan) -> Result<usize, ExpectedError> {
        Ok(self.carry_out(plan, &mut Journal::unwritten()).await?)
    }

    /// Carries out a plan that only begins the command: until the rest is done, the record says
    /// that it was interrupted.
    pub(super) async fn run_first(self, plan: Plan) -> Result<(), ExpectedError> {
        self.steps(plan).await.map(drop)
    }

    /// Carries out a plan after which nothing is installed any more, and removes the record.
    pub(super) async fn run_and_forget(self, plan: Plan) -> Result<usize, ExpectedError> {
        let Some((done, journal)) = self.steps(plan).await? else { return Ok(0) };
        journal.remove().await.map_err(|error| unrecorded(done, error.into()))?;
        Ok(done)
    }

    async fn steps(self, plan: Plan) -> Result<Option<(usize, Journal)>, ExpectedError> {
        let session = self.session;
        // A run that was killed after its last step has nothing to do but to say so.
        if plan.steps.is_empty() && session.unfinished().is_none() {
            return Ok(None);
        }
        let mut journal = Journal::new(
            &session.desired.installation.id,
            &session.settings.config,
            self.operation,
            session.file.clone(),
            session.target.cluster.clone(),
            &session.settings.namespace,
        )
        .back_to(self.back_to);
        let done = self.carry_out(plan, &mut journal).await?;
        Ok(Some((done, journal)))
    }

    async fn carry_out(self, plan: Plan, journal: &mut Journal) -> Result<usize, StepError> {
        let options = Options {
            parallel: usize::from(self.parallel),
            fault_after: self.global.fault_exit_after_step,
        };
        let context = Arc::new(self.session.context());
        let progress: Arc<dyn Progress> = Arc::new(*self.printer);
        apply::run(context, plan, options, journal, &progress).await
    }
}

fn unrecorded(done: usize, source: Failure) -> ExpectedError {
    ExpectedError::Step(StepError { step: "record".to_owned(), done, source })
}
