//! The decision ledger: what the operator decided last, why, and what became of it.
//!
//! Whoever logs a decision, publishes its event and counts it records it here, too; and whoever
//! finds out what became of it says so. Nothing is decided here, and nothing is kept for long: a
//! bounded [ring] in memory that starts anew with each leader. [`crate::http`] serves it.
//! `docs/src/design/ledger.md` has the form and the bounds.

mod record;
mod ring;

use std::sync::Arc;

use parking_lot::Mutex;
use tenon_crds::NodeClaim;
use tenon_planner::plan::{Candidate, Command, Launch, StayReason};
use tenon_state::decision::{Decisions as Answer, State};
use tokio::sync::watch;

pub(crate) use self::record::Cause;
use self::record::{abandoned, announced, command, ended, launch_decision, reboot, rejected, text};
pub(crate) use self::ring::Query;
use self::ring::{LIMITS, Ring};
use crate::clock::Clock;
use crate::state::cluster::name;

/// The last decisions. Clones share them.
#[derive(Clone, Debug)]
pub struct Decisions {
    clock: Clock,
    ring: Arc<Mutex<Ring>>,
    /// The revision of the newest change.
    changed: Arc<watch::Sender<u64>>,
}

impl Decisions {
    /// None yet, and no leader.
    pub fn new(clock: Clock) -> Self {
        let ring = Arc::new(Mutex::new(Ring::new(LIMITS)));
        Self { clock, ring, changed: Arc::new(watch::Sender::new(0)) }
    }

    /// This replica leads from now on, by this name.
    pub(crate) fn lead(&self, identity: String) {
        let now = self.clock.now();
        self.with(|ring| ring.lead(identity, now));
        self.changed.send_modify(|_| {});
    }

    /// It leads no more.
    pub(crate) fn step_down(&self) {
        self.with(Ring::step_down);
        self.changed.send_modify(|_| {});
    }

    /// Whether this replica leads.
    pub(crate) fn leads(&self) -> bool {
        self.ring.lock().leads()
    }

    /// Answers a question.
    pub(crate) fn answer(&self, query: &Query) -> Answer {
        self.ring.lock().answer(query)
    }

    /// Told whenever something changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A NodeClaim was created for a launch.
    pub(crate) fn launched(&self, planned: &Launch, claim: &str) {
        let now = self.clock.now();
        self.with(|ring| {
            let seq = ring.push(launch_decision(planned, Some(claim)), now);
            ring.await_launches(seq, [claim.to_owned()]);
        });
    }

    /// A launch for which no NodeClaim could be created. It is planned again, so failures of the
    /// same kind are one decision.
    pub(crate) fn launch_failed(&self, planned: &Launch, why: &str) {
        let now = self.clock.now();
        let mut decision = launch_decision(planned, None);
        decision.result.state = State::Failed;
        decision.result.message = text(why, record::MESSAGE);
        let key = format!("launch {} {}", planned.node_pool, decision.result.message);
        self.with(|ring| ring.repeat(key, decision, now));
    }

    /// What is known of a NodeClaim that was launched.
    pub(crate) fn progress(&self, claim: &str, state: State, message: &str) {
        let now = self.clock.now();
        let message = text(message, record::MESSAGE);
        self.with(|ring| ring.note_launch(claim, state, message, now));
    }

    /// A command is carried out: `nodes` are the Nodes of its candidates, and `drifted` says what
    /// they differ in.
    pub(crate) fn started(
        &self,
        planned: &Command,
        nodes: Vec<String>,
        replacements: &[NodeClaim],
        drifted: Option<&str>,
    ) {
        let now = self.clock.now();
        let replacements = replacements.iter().map(|claim| name(&claim.metadata)).collect();
        let claims: Vec<String> = planned.candidates.iter().map(|it| it.claim.clone()).collect();
        let decision = command(planned, nodes, replacements, drifted);
        self.with(|ring| {
            let seq = ring.push(decision, now);
            ring.await_ends(seq, claims);
        });
    }

    /// A command could not be started.
    pub(crate) fn start_failed(&self, planned: &Command, nodes: Vec<String>, why: &str) {
        let now = self.clock.now();
        let mut decision = command(planned, nodes, Vec::new(), None);
        decision.result.state = State::Failed;
        decision.result.message = text(why, record::MESSAGE);
        let names: Vec<&str> = planned.candidates.iter().map(|it| it.claim.as_str()).collect();
        let key = format!("start {} {}", names.join(" "), decision.result.message);
        self.with(|ring| ring.repeat(key, decision, now));
    }

    /// The candidates of a command are deleted, now that their replacements are there.
    pub(crate) fn replaced(&self, planned: &Command) {
        let now = self.clock.now();
        let first = planned.candidates.first().map(|candidate| candidate.claim.as_str());
        self.with(|ring| {
            if let Some(seq) = first.and_then(|claim| ring.leaving(claim)) {
                ring.settle(seq, State::Pending, record::DRAINING.to_owned(), now);
            }
        });
    }

    /// These candidates of a command stay after all.
    pub(crate) fn rolled_back(&self, candidates: &[Candidate], state: State, why: &str) {
        let now = self.clock.now();
        let claims: Vec<&str> = candidates.iter().map(|it| it.claim.as_str()).collect();
        self.with(|ring| ring.stays(&claims, state, &abandoned(why, claims.len()), now));
    }

    /// A command did not hold when it was checked again.
    pub(crate) fn rejected(&self, planned: &Command, why: &str) {
        let now = self.clock.now();
        let (key, decision) = rejected(planned, why);
        self.with(|ring| ring.repeat(key, decision, now));
    }

    /// Nodes must not be disrupted. Those that stay for the same kind of reason are one decision.
    pub(crate) fn staying<'a>(
        &self,
        nodes: impl IntoIterator<Item = (&'a str, &'a str, &'a StayReason, &'a str)>,
    ) {
        let now = self.clock.now();
        let refusals = record::refusals(nodes);
        self.with(|ring| {
            for (key, decision) in refusals {
                ring.repeat(key, decision, now);
            }
        });
    }

    /// An instance is rebooted.
    pub(crate) fn rebooting(&self, planned: &Command, candidate: &Candidate, claim: &NodeClaim) {
        let now = self.clock.now();
        self.with(|ring| {
            let seq = ring.push(reboot(planned, candidate, claim), now);
            ring.await_launches(seq, [candidate.claim.clone()]);
        });
    }

    /// A NodeClaim is deleted outside of a command.
    pub(crate) fn deleted(&self, claim: &NodeClaim, cause: Cause<'_>) {
        let (now, name) = (self.clock.now(), name(&claim.metadata));
        self.with(|ring| match ended(claim, cause) {
            Ok(decision) => {
                let seq = ring.push(decision, now);
                ring.await_ends(seq, [name]);
            }
            Err(why) => ring.note_launch(&name, State::Failed, why, now),
        });
    }

    /// AWS announces something about the instance of a NodeClaim, which stays for now. An instance
    /// may be told the same again and again.
    pub(crate) fn announced(&self, claim: &NodeClaim, what: &str) {
        let now = self.clock.now();
        let key = format!("notice {} {what}", name(&claim.metadata));
        self.with(|ring| ring.repeat(key, announced(claim, what), now));
    }

    /// A NodeClaim is gone.
    pub(crate) fn gone(&self, claim: &str) {
        let now = self.clock.now();
        self.with(|ring| ring.gone(claim, now));
    }

    fn with(&self, change: impl FnOnce(&mut Ring)) {
        let revision = {
            let mut ring = self.ring.lock();
            change(&mut ring);
            ring.revision()
        };
        self.changed.send_if_modified(|known| std::mem::replace(known, revision) != revision);
    }
}

#[cfg(test)]
mod tests;
