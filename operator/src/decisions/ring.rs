//! The last decisions, in bounded memory. Knows numbers, times and bounds, not what decisions mean.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use tenon_state::decision::{Decision, Decisions as Answer, Kind, Names, Outcome, State, VERSION};

/// How much is kept: an hour of a launch every two seconds, and less than one percent of the memory
/// that the chart gives to the operator.
pub(super) const LIMITS: Limits = Limits { decisions: 2000, bytes: 4 << 20 };

/// How much is kept at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Decisions.
    pub decisions: usize,
    /// Bytes that they take, about.
    pub bytes: usize,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// Only changes after this revision; all where there is none.
    pub after: Option<u64>,
    /// At most so many decisions.
    pub limit: usize,
    /// About this NodePool.
    pub node_pool: Option<String>,
    /// About this Node or NodeClaim.
    pub node: Option<String>,
    /// About this pod: `name` or `namespace/name`.
    pub pod: Option<String>,
    /// Of this kind.
    pub kind: Option<Kind>,
}

impl Query {
    fn matches(&self, decision: &Decision) -> bool {
        let Self { after, limit: _, node_pool, node, pod, kind } = self;
        let has = |names: &Names, name: &String| names.names.contains(name);
        after.is_none_or(|after| decision.revision > after)
            && kind.is_none_or(|kind| decision.kind == kind)
            && node_pool.as_ref().is_none_or(|pool| decision.node_pools.contains(pool))
            && node.as_ref().is_none_or(|node| {
                has(&decision.nodes, node)
                    || has(&decision.node_claims, node)
                    || has(&decision.replacements, node)
            })
            && pod.as_ref().is_none_or(|pod| {
                let mut pods = decision.pods.names.iter();
                pods.any(|it| it == pod || it.split_once('/').is_some_and(|(_, name)| name == pod))
            })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    limits: Limits,
    leader: String,
    since: Option<Timestamp>,
    /// In the order of their numbers, without gaps.
    entries: VecDeque<Entry>,
    next: u64,
    revision: u64,
    dropped: u64,
    bytes: usize,
    /// The decision that launched a NodeClaim which is not initialized yet.
    launching: BTreeMap<String, u64>,
    /// The decision by which a NodeClaim goes.
    leaving: BTreeMap<String, u64>,
    /// The decision that counts what is decided again and again.
    repeated: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Entry {
    decision: Decision,
    bytes: usize,
    /// NodeClaims that have not become what was decided.
    open: usize,
}

impl Ring {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            leader: String::new(),
            since: None,
            entries: VecDeque::new(),
            next: 1,
            revision: 0,
            dropped: 0,
            bytes: 0,
            launching: BTreeMap::new(),
            leaving: BTreeMap::new(),
            repeated: BTreeMap::new(),
        }
    }

    /// Starts anew, for this leader.
    pub(super) fn lead(&mut self, leader: String, now: Timestamp) {
        *self = Self { leader, since: Some(now), ..Self::new(self.limits) };
    }

    /// Has no leader.
    pub(super) fn step_down(&mut self) {
        *self = Self::new(self.limits);
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn leads(&self) -> bool {
        self.since.is_some()
    }

    /// Records a decision that was made now; answers its number.
    pub(super) fn push(&mut self, decision: Decision, now: Timestamp) -> u64 {
        let seq = self.next;
        self.next += 1;
        self.revision += 1;
        let result = Outcome { at: now, ..decision.result };
        let decision =
            Decision { seq, revision: self.revision, time: now, count: 1, result, ..decision };
        let bytes = size(&decision);
        self.bytes += bytes;
        self.entries.push_back(Entry { decision, bytes, open: 0 });
        self.shrink();
        seq
    }

    /// Records a decision, or that it was made once more. It is news only if it says something else
    /// than before.
    pub(super) fn repeat(&mut self, key: String, decision: Decision, now: Timestamp) {
        let known = self.repeated.get(&key).and_then(|&seq| self.entry(seq));
        let Some(entry) = known else {
            let seq = self.push(decision, now);
            self.repeated.insert(key, seq);
            return;
        };
        let seq = entry.decision.seq;
        let before = entry.decision.clone();
        let is_news = before.reason != decision.reason
            || before.nodes != decision.nodes
            || before.node_claims != decision.node_claims
            || before.result.message != decision.result.message;
        let count = before.count + 1;
        let change = |known: &mut Decision| {
            let Decision { seq, revision, time, .. } = *known;
            let result = Outcome { at: now, ..decision.result };
            *known = Decision { seq, revision, time, count, result, ..decision };
            known.result.seconds = seconds(time, now);
        };
        if is_news {
            self.change(seq, change);
        } else if let Some(entry) = self.entry_mut(seq) {
            entry.decision.count = count;
            entry.decision.result.at = now;
            entry.decision.result.seconds = seconds(entry.decision.time, now);
        }
    }

    /// The decision is carried out when these NodeClaims are initialized.
    pub(super) fn await_launches(&mut self, seq: u64, claims: impl IntoIterator<Item = String>) {
        self.launching.extend(claims.into_iter().map(|claim| (claim, seq)));
        self.count_open(seq);
    }

    /// The decision is carried out when these NodeClaims are gone.
    pub(super) fn await_ends(&mut self, seq: u64, claims: impl IntoIterator<Item = String>) {
        self.leaving.extend(claims.into_iter().map(|claim| (claim, seq)));
        self.count_open(seq);
    }

    /// What is known of the launch of a NodeClaim; nothing if it is not in the ledger, or if that
    /// is known.
    pub(super) fn note_launch(
        &mut self,
        claim: &str,
        state: State,
        message: String,
        now: Timestamp,
    ) {
        let Some(&seq) = self.launching.get(claim) else { return };
        if state.is_final() {
            self.launching.remove(claim);
        }
        let known = self.entry(seq).map(|entry| &entry.decision.result);
        if known.is_some_and(|result| result.state == state && result.message == message) {
            return;
        }
        self.settle(seq, state, message, now);
    }

    /// The number of the decision by which a NodeClaim goes.
    pub(super) fn leaving(&self, claim: &str) -> Option<u64> {
        self.leaving.get(claim).copied()
    }

    /// A NodeClaim is gone. The decision is carried out with the last one.
    pub(super) fn gone(&mut self, claim: &str, now: Timestamp) {
        let message = "the nodeclaim was deleted before its node was initialized".to_owned();
        self.note_launch(claim, State::Failed, message, now);
        let Some(seq) = self.leaving.remove(claim) else { return };
        let Some(entry) = self.entry_mut(seq) else { return };
        entry.open = entry.open.saturating_sub(1);
        if entry.open == 0 && !entry.decision.result.state.is_final() {
            self.settle(seq, State::Done, String::new(), now);
        }
    }

    /// These NodeClaims stay after all. The decision has failed or was taken back if none is left
    /// to go.
    pub(super) fn stays(&mut self, claims: &[&str], state: State, message: &str, now: Timestamp) {
        for claim in claims {
            let Some(seq) = self.leaving.remove(*claim) else { continue };
            let Some(entry) = self.entry_mut(seq) else { continue };
            entry.open = entry.open.saturating_sub(1);
            self.settle(seq, state, message.to_owned(), now);
        }
    }

    /// What became of a decision.
    pub(super) fn settle(&mut self, seq: u64, state: State, message: String, now: Timestamp) {
        self.change(seq, |decision| {
            let seconds = seconds(decision.time, now);
            decision.result = Outcome { state, at: now, seconds, message };
        });
    }

    /// Answers a question.
    pub(super) fn answer(&self, query: &Query) -> Answer {
        let mut found: Vec<&Decision> = self
            .entries
            .iter()
            .map(|entry| &entry.decision)
            .filter(|it| query.matches(it))
            .collect();
        let (mut revision, mut more) = (self.revision, false);
        if query.after.is_some() {
            found.sort_by_key(|decision| decision.revision);
            if found.len() > query.limit {
                found.truncate(query.limit);
                revision = found.last().map_or(revision, |last| last.revision);
                more = true;
            }
        } else {
            found.drain(..found.len().saturating_sub(query.limit));
        }
        Answer {
            version: VERSION,
            leader: self.leader.clone(),
            since: self.since,
            revision,
            dropped: self.dropped,
            more,
            decisions: found.into_iter().cloned().collect(),
        }
    }

    fn index(&self, seq: u64) -> Option<usize> {
        let first = self.entries.front()?.decision.seq;
        usize::try_from(seq.checked_sub(first)?).ok()
    }

    fn entry(&self, seq: u64) -> Option<&Entry> {
        self.entries.get(self.index(seq)?)
    }

    fn entry_mut(&mut self, seq: u64) -> Option<&mut Entry> {
        let index = self.index(seq)?;
        self.entries.get_mut(index)
    }

    fn change(&mut self, seq: u64, change: impl FnOnce(&mut Decision)) {
        let revision = self.revision + 1;
        let Some(entry) = self.entry_mut(seq) else { return };
        change(&mut entry.decision);
        entry.decision.revision = revision;
        let bytes = size(&entry.decision);
        let before = std::mem::replace(&mut entry.bytes, bytes);
        self.bytes = self.bytes + bytes - before;
        self.revision = revision;
        self.shrink();
    }

    fn count_open(&mut self, seq: u64) {
        let of = |all: &BTreeMap<String, u64>| all.values().filter(|&&it| it == seq).count();
        let open = of(&self.launching) + of(&self.leaving);
        if let Some(entry) = self.entry_mut(seq) {
            entry.open = open;
        }
    }

    /// Lets the oldest decisions go that are too many.
    fn shrink(&mut self) {
        let before = self.entries.len();
        while self.entries.len() > 1
            && (self.entries.len() > self.limits.decisions || self.bytes > self.limits.bytes)
        {
            let Some(entry) = self.entries.pop_front() else { break };
            self.bytes -= entry.bytes;
            self.dropped += 1;
        }
        if self.entries.len() == before {
            return;
        }
        // Each name belongs to a decision that is kept: no more than one per NodeClaim, and few
        // that are decided again and again.
        let Some(first) = self.entries.front().map(|entry| entry.decision.seq) else { return };
        for names in [&mut self.launching, &mut self.leaving, &mut self.repeated] {
            if names.len() > self.limits.decisions / 4 {
                names.retain(|_, seq| *seq >= first);
            }
        }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    // To a thousandth: nobody wants more, and it reads better.
    (to.duration_since(from).as_secs_f64().max(0.0) * 1000.0).round() / 1000.0
}

/// Bytes that a decision takes, about.
fn size(decision: &Decision) -> usize {
    let names = |names: &Names| list(&names.names);
    let list = list(&decision.alternatives) + list(&decision.node_pools);
    let Decision { node_claims, nodes, replacements, pods, .. } = decision;
    let named: usize = [node_claims, nodes, replacements, pods].map(names).iter().sum();
    size_of::<Entry>() + decision.reason.len() + decision.result.message.len() + list + named
}

fn list(texts: &[String]) -> usize {
    texts.iter().map(|text| size_of::<String>() + text.len()).sum()
}

#[cfg(test)]
mod tests;
