//! Commands that are being carried out: the candidates are fenced off, their replacements launched,
//! and only when these are initialised the candidates go.
//!
//! A command that fails, or that takes too long, is taken back: candidates stay, replacements that
//! exist stay too, and are consolidated later if nobody needs them. So is what the API server does
//! not let us delete; it is then left alone for a while. Commands are not stored: after a restart,
//! and when taking one back fails, the next pass removes their traces ([`super::clean_up`]), and
//! what still makes sense is planned again.

pub(crate) mod deletion;
mod expected;
mod marks;
mod running;
mod started;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tenon_crds::NodeClaim;
use tenon_crds::conditions::nodeclaim::INITIALIZED;
use tenon_planner::plan::{Candidate, Command};
use tenon_planner::snapshot::Refusal;
use tenon_state::decision::State;

use self::deletion::delete;
pub(super) use self::expected::expect_evictions;
pub(super) use self::marks::clear;
use self::marks::mark;
use self::running::Running;
pub(super) use self::started::tell_repair;
use self::started::{count_decision, count_prices, decision, tell_failed, tell_started};
use super::moves::consolidation_type;
use crate::actuate::{self, LaunchError, lower};
use crate::cloud_provider::CloudProvider;
use crate::controller::{Affected, Controller, Reconciler, Reported};
use crate::events::{Event, Reason};
use crate::operator::Operator;
use crate::state::change::{Change, Touched};
use crate::state::cluster::{is_true, name};
use crate::watch::wire::Node;
use crate::work_queue::{Action, Backoff, Concern, Failure as _, WorkQueue, log_concern};
use crate::write::WriteError;

/// Replacements are looked at again so often.
const POLL: Duration = Duration::from_secs(1);
/// A deletion that the API server refuses is tried again for so long.
const REFUSAL_PATIENCE: SignedDuration = SignedDuration::from_mins(1);
/// A deletion that fails otherwise, as while the API server can't be reached.
const FAILURE_PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// A node that could not be deleted is left alone for so long, and twice as long each further time.
const LEAVE_ALONE: Backoff = Backoff { min: Duration::from_mins(10), max: Duration::from_hours(2) };

/// Commands that are being carried out. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    queue: WorkQueue<u64>,
    running: Arc<Mutex<Running>>,
}

/// A command whose candidates are fenced off and whose replacements exist.
#[derive(Debug)]
struct Started {
    command: Command,
    /// Names and uids of the NodeClaims that replace the candidates.
    replacements: Vec<NodeClaim>,
    since: Timestamp,
    /// Since when candidates could have been deleted and were not.
    stuck_since: OnceLock<Timestamp>,
}

/// Why a command can't be started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("nodeclaim {0} is deleted or being deleted, or part of another command")]
    Candidate(String),
    #[error("marking nodeclaim {claim}")]
    Mark { claim: String, source: WriteError },
    #[error("launching a replacement")]
    Launch(#[from] LaunchError),
    #[error("node {0} can't be rebooted, and a node that requests a reboot must not be deleted")]
    Reboot(String),
}

impl StartError {
    /// Who has to know: nobody, where the cluster is not what it was when the command was planned.
    /// The next pass plans on what it is now.
    fn concern(&self) -> Concern {
        match self {
            Self::Candidate(_) => Concern::Nobody,
            Self::Mark { source, .. } if source.is_not_found() => Concern::Nobody,
            Self::Mark { source, .. } => source.concern(),
            Self::Launch(error) => error.concern(),
            Self::Reboot(_) => Concern::Administrator,
        }
    }
}

impl Default for Commands {
    fn default() -> Self {
        Self::new()
    }
}

impl Commands {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { queue: WorkQueue::new(), running: Arc::default() }
    }

    /// Whether a NodeClaim is a candidate of a running command.
    pub(crate) fn has(&self, claim: &str) -> bool {
        self.running.lock().candidates.contains_key(claim)
    }

    /// Starts a command; answers whether that succeeded. What failed is logged, and cleaned up by
    /// the next pass.
    pub(crate) async fn start<P: CloudProvider>(
        &self,
        operator: &Operator<P>,
        command: Command,
    ) -> bool {
        let pods: Vec<_> = expected::pods(&command).map(|pod| Arc::clone(&pod.uid)).collect();
        let planned = command.clone();
        let error = match self.try_start(operator, command).await {
            Ok(()) => return true,
            Err(error) => error,
        };
        for uid in &pods {
            operator.eviction_order.forget(uid);
        }
        let chain = crate::text::chain(&error);
        let concern = error.concern();
        if concern == Concern::Nobody {
            tracing::info!(error = %chain, "not starting a command: the cluster has changed in the \
                 meantime");
            return false;
        }
        tell_failed(operator, &planned, &chain);
        log_concern!(concern, error = %chain, "failed to start a command");
        if let StartError::Mark { claim, source } = &error
            && source.is_refused()
        {
            self.leave_alone(operator, claim, source).await;
        }
        false
    }

    async fn try_start<P: CloudProvider>(
        &self,
        operator: &Operator<P>,
        mut command: Command,
    ) -> Result<(), StartError> {
        refuse_reboot(&command)?;
        // Dereference and validate.
        let mut candidates = Vec::new();
        for candidate in &command.candidates {
            candidates.push(self.candidate(operator, candidate)?);
        }
        // Fence all candidates off before anything is launched for their pods.
        let marking = candidates
            .iter()
            .map(|(claim, node)| mark(operator, claim, node.as_ref(), command.reason));
        let marked = join_all(marking).await;
        let failed: Vec<_> =
            marked.into_iter().enumerate().filter_map(|(i, r)| Some((i, r.err()?))).collect();
        if !failed.is_empty() {
            let all = failed.len() == candidates.len();
            let indexes: BTreeSet<usize> = failed.iter().map(|(index, _)| *index).collect();
            let (index, source) = failed.into_iter().next().expect("not empty");
            // A deletion makes sense for those that could be marked; what is replaced must all be
            // there.
            if all || !command.replacements.is_empty() {
                return Err(StartError::Mark {
                    claim: name(&candidates[index].0.metadata),
                    source,
                });
            }
            tracing::warn!(
                error = %crate::text::chain(&source),
                "excluding a node from a command"
            );
            let mut index = 0;
            command.candidates.retain(|_| {
                index += 1;
                !indexes.contains(&(index - 1))
            });
        }
        let launches =
            command.replacements.iter().map(|launch| actuate::create_claim(operator, launch));
        let replacements = try_join_all(launches).await?;
        // Only now: a node that is marked counts as going, and its pods would be provisioned for a
        // second time.
        operator.state.apply(going(&command, &replacements)).await;
        actuate::nominate(operator, &command.nominations).await;
        tell_started(operator, &command, &replacements);
        count_decision(operator, &command);
        let since = operator.now();
        let started = Started { command, replacements, since, stuck_since: OnceLock::new() };
        let id = self.running.lock().add(started);
        self.queue.add(id);
        Ok(())
    }

    fn candidate<P: CloudProvider>(
        &self,
        operator: &Operator<P>,
        candidate: &Candidate,
    ) -> Result<(Arc<NodeClaim>, Option<Arc<Node>>), StartError> {
        let unfit = || StartError::Candidate(candidate.claim.clone());
        if self.has(&candidate.claim) {
            return Err(unfit());
        }
        let state = operator.state.read();
        let claim = state.claim(&candidate.claim).filter(|claim| !state.is_going(claim));
        let claim = claim.ok_or_else(unfit)?;
        Ok((Arc::clone(claim), state.node_of(claim).cloned()))
    }

    /// What carries commands on.
    pub(crate) fn controller<P: CloudProvider>(
        &self,
        operator: Arc<Operator<P>>,
    ) -> Controller<CommandQueue<P>> {
        let reconciler = CommandQueue { operator, commands: self.clone() };
        Controller::fed_by(reconciler, self.queue.clone())
    }

    async fn advance<P: CloudProvider>(
        &self,
        operator: &Operator<P>,
        id: u64,
        started: &Started,
    ) -> Result<Action, Reported> {
        match started.progress(operator, self.n_candidates()) {
            Progress::Waiting => return Ok(Action::After(POLL)),
            Progress::ReplacementGone(claim) => {
                tracing::info!(
                    replacement = claim,
                    reason = lower(started.command.reason),
                    "rolling back a command: a replacement was deleted"
                );
                let why = (State::Abandoned, format!("its replacement {claim} was deleted"));
                self.take_back(operator, &started.command, &started.command.candidates, why).await;
            }
            Progress::TooLate => {
                tracing::warn!(
                    reason = lower(started.command.reason),
                    "rolling back a command: its replacements were not initialized in time"
                );
                let why = "its replacements were not initialized in time".to_owned();
                let why = (State::Abandoned, why);
                self.take_back(operator, &started.command, &started.command.candidates, why).await;
            }
            Progress::Ready => self.conclude(operator, started).await?,
        }
        self.running.lock().remove(id);
        Ok(Action::Wait)
    }

    /// Deletes the candidates. Those that can't be deleted for a while stay, and are left alone;
    /// the others go all the same.
    async fn conclude<P: CloudProvider>(
        &self,
        operator: &Operator<P>,
        started: &Started,
    ) -> Result<(), Reported> {
        let candidates = &started.command.candidates;
        if !started.command.replacements.is_empty() {
            expect_evictions(operator, &started.command);
            operator.context.decisions.replaced(&started.command);
        }
        let deletions = candidates.iter().map(|candidate| delete(operator, started, candidate));
        let results = join_all(deletions).await;
        let failed: Vec<(&Candidate, WriteError)> = candidates
            .iter()
            .zip(results)
            .filter_map(|(candidate, result)| Some((candidate, result.err()?)))
            .collect();
        if failed.is_empty() {
            count_prices(operator, &started.command);
            return Ok(());
        }
        let now = operator.now();
        let stuck_for = now.duration_since(*started.stuck_since.get_or_init(|| now));
        let patience = if failed.iter().all(|(_, error)| error.is_refused()) {
            REFUSAL_PATIENCE
        } else {
            FAILURE_PATIENCE
        };
        if stuck_for < patience {
            for (candidate, error) in &failed {
                tracing::warn!(
                    nodeclaim = candidate.claim,
                    error = %crate::text::chain(error),
                    "failed to delete a disrupted nodeclaim; retrying"
                );
            }
            return Err(Reported);
        }
        let stay: Vec<Candidate> =
            failed.iter().map(|(candidate, _)| (*candidate).clone()).collect();
        for (candidate, error) in &failed {
            tracing::error!(
                nodeclaim = candidate.claim,
                node = candidate.node,
                error = %crate::text::chain(error),
                "giving up on disrupting a node: its nodeclaim can't be deleted; check the \
                 admission webhooks for nodeclaims and the operator's permissions"
            );
            self.leave_alone(operator, &candidate.claim, error).await;
        }
        let why = failed.first().map(|(_, error)| crate::text::chain(error)).unwrap_or_default();
        let why = (State::Failed, format!("the nodeclaim can't be deleted: {why}"));
        self.take_back(operator, &started.command, &stay, why).await;
        Ok(())
    }

    /// Keeps the planner from a node for a while that the API server does not let go.
    async fn leave_alone<P: CloudProvider>(
        &self,
        operator: &Operator<P>,
        claim: &str,
        error: &WriteError,
    ) {
        let times = {
            let state = operator.state.read();
            let given_up = &mut self.running.lock().given_up;
            given_up.retain(|claim, _| state.claim(claim).is_some());
            let times = given_up.entry(claim.to_owned()).or_default();
            *times += 1;
            *times
        };
        let until = operator.now().checked_add(LEAVE_ALONE.delay(times)).unwrap_or(Timestamp::MAX);
        let refusal = Refusal { until, message: error.message() };
        operator.state.apply(Change::Refused(claim.to_owned(), refusal)).await;
    }

    fn n_candidates(&self) -> usize {
        self.running.lock().candidates.len()
    }

    /// Takes a command back for these of its candidates, as far as that is possible: what is left
    /// the next pass removes.
    async fn take_back<P: CloudProvider>(
        &self,
        operator: &Operator<P>,
        command: &Command,
        candidates: &[Candidate],
        (state, why): (State, String),
    ) {
        operator.context.decisions.rolled_back(candidates, state, &why);
        let labels = [decision(command), lower(command.reason), consolidation_type(command.method)];
        operator.context.metrics.disruption_queue_failures.inc(labels);
        for candidate in candidates {
            let (claim, node) = {
                let state = operator.state.read();
                let claim = state.claim(&candidate.claim).cloned();
                let node = claim.as_ref().and_then(|claim| state.node_of(claim).cloned());
                (claim, node)
            };
            if let Some(claim) = claim {
                clear(operator, &claim, node.as_deref()).await;
            }
        }
        let unmarked = candidates.iter().map(|candidate| candidate.claim.clone()).collect();
        operator.state.apply(Change::Unmarked(unmarked)).await;
    }
}

/// Carries commands on.
pub(crate) struct CommandQueue<P> {
    operator: Arc<Operator<P>>,
    commands: Commands,
}

impl<P: CloudProvider> Reconciler for CommandQueue<P> {
    const NAME: &'static str = "disruption.queue";
    const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(10) };
    type Key = u64;
    type Error = Reported;

    fn workers(&self) -> usize {
        self.operator.options.workers(100, 1000)
    }

    fn affected(&self, touched: &Touched, _: &crate::state::State) -> Affected<u64> {
        match touched {
            Touched::NodeClaim(name) => {
                self.commands.running.lock().replacements.get(name).copied().into()
            }
            _ => Affected::None,
        }
    }

    async fn reconcile(&self, id: &u64) -> Result<Action, Reported> {
        let started = self.commands.running.lock().commands.get(id).cloned();
        let Some(started) = started else { return Ok(Action::Wait) };
        self.commands.advance(&self.operator, *id, &started).await
    }
}

/// A reboot replaces nothing, and would be carried out as the deletion of its node. The provider's
/// policies are checked at the start; this holds whatever the planner comes to.
fn refuse_reboot(command: &Command) -> Result<(), StartError> {
    if !command.is_reboot() {
        return Ok(());
    }
    let nodes: Vec<&str> = command.candidates.iter().map(|it| it.node.as_str()).collect();
    Err(StartError::Reboot(nodes.join(", ")))
}

/// That the candidates of a command go, for these.
fn going(command: &Command, replacements: &[NodeClaim]) -> Change {
    let identity =
        |claim: &NodeClaim| (name(&claim.metadata), claim.metadata.uid.clone().unwrap_or_default());
    Change::Marked {
        claims: command.candidates.iter().map(|candidate| candidate.claim.clone()).collect(),
        replacements: replacements.iter().map(identity).collect(),
    }
}

/// How far a command is.
enum Progress {
    Waiting,
    Ready,
    /// This NodeClaim, which was launched as a replacement, is gone or being deleted.
    ReplacementGone(String),
    /// The replacements take too long.
    TooLate,
}

impl Started {
    fn progress<P: CloudProvider>(&self, operator: &Operator<P>, n_candidates: usize) -> Progress {
        let reason = format!("{:?}", self.command.reason);
        let recorder = &operator.context.recorder;
        let mut waiting = false;
        for own in &self.replacements {
            let now = operator.state.read().claim(&name(&own.metadata)).cloned();
            // One that is on its way out takes no pods, ready or not. Waiting until it is gone
            // would give the provisioner time to launch nodes for the candidates' pods, which stay.
            let stays = |claim: &Arc<NodeClaim>| {
                claim.metadata.uid == own.metadata.uid
                    && claim.metadata.deletion_timestamp.is_none()
            };
            match now.filter(stays) {
                None => return Progress::ReplacementGone(name(&own.metadata)),
                Some(claim) if is_true(&claim, INITIALIZED) => {}
                Some(claim) => {
                    waiting = true;
                    let message = format!("Launching NodeClaim: {reason}");
                    recorder.publish(Event::normal(&*claim, Reason::DisruptionLaunching, message));
                    let message = "Waiting on readiness to continue disruption";
                    recorder.publish(Event::normal(
                        &*claim,
                        Reason::DisruptionWaitingReadiness,
                        message,
                    ));
                }
            }
        }
        let age = operator.now().duration_since(self.since);
        if !waiting {
            Progress::Ready
        } else if age > timeout(n_candidates) {
            Progress::TooLate
        } else {
            Progress::Waiting
        }
    }
}

/// More candidates take longer to be replaced.
fn timeout(n_candidates: usize) -> SignedDuration {
    let millis = i64::try_from(n_candidates).unwrap_or(i64::MAX).saturating_mul(80);
    SignedDuration::from_millis(millis)
        .clamp(SignedDuration::from_mins(10), SignedDuration::from_hours(1))
}

#[cfg(test)]
mod tests;
