//! What is known of the cluster: one value, which only [`State::learn`] changes.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use tenon_simulate::{Fleet, Subject};
use tenon_state::decision::{Decision, Decisions};

use crate::uninstall::Motion;

/// Prices that are remembered: half an hour of them at one every two seconds.
const PRICES: usize = 900;

/// Decisions that are remembered, the newest.
const DECISIONS: usize = 500;

/// A read that is so late is not late by chance.
const LATE: SignedDuration = SignedDuration::from_secs(10);

/// Longer times between two reads don't count: the machine may have slept.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// What happened outside of the screen.
#[derive(Debug)]
pub(crate) enum News {
    /// The cluster was read.
    Fleet {
        /// What there is.
        fleet: Box<Fleet>,
        /// What was assumed about prices, and what could not be read.
        notes: Vec<String>,
        /// Whether spot nodes have EC2's prices, and not those of on-demand nodes.
        has_spot_prices: bool,
    },
    /// The cluster could not be read; why.
    Unread(String),
    /// The operator answered with decisions that are new or have changed.
    Decisions(Decisions),
    /// The operator's decisions can't be read; why.
    NoDecisions(String),
    /// An explanation is there, or why there is none.
    Explained(Subject, Result<String, String>),
    /// NodePools were paused or resumed, in words; or why they were not.
    Paused(Pause, Result<String, String>),
}

/// NodePools to pause or to resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pause {
    /// What they are to do.
    pub(crate) motion: Motion,
    /// Their names.
    pub(crate) pools: Vec<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The cluster's name.
    pub(super) cluster: String,
    /// The time now.
    pub(super) now: Timestamp,
    /// The cluster as it was read last.
    pub(super) fleet: Option<Fleet>,
    /// What was assumed about prices, and what could not be read.
    pub(super) notes: Vec<String>,
    /// Why the cluster could not be read the last time, if it could not.
    pub(super) unread: Option<String>,
    /// From one read to the next, the last time.
    period: SignedDuration,
    /// Prices.
    pub(super) prices: Prices,
    /// Decisions.
    pub(super) log: Log,
}

impl State {
    /// Nothing is known yet but the cluster's name.
    pub(crate) fn new(cluster: &str, now: Timestamp) -> Self {
        Self { cluster: cluster.to_owned(), now, ..Self::default() }
    }

    /// Whether the cluster should have been read again by now: a server that accepts requests and
    /// does not answer them is no error for a minute.
    pub(super) fn is_late(&self) -> bool {
        let period = self.period.clamp(SignedDuration::ZERO, LONGEST);
        let since = |fleet: &Fleet| self.now.duration_since(fleet.now);
        self.fleet.as_ref().is_some_and(|fleet| since(fleet) > period * 3 + LATE)
    }

    /// Takes in what happened, as far as it is about the cluster.
    pub(super) fn learn(&mut self, news: News) {
        match news {
            News::Fleet { fleet, notes, has_spot_prices } => {
                // A curve of prices from two sources would show changes that there were not.
                if has_spot_prices != self.prices.has_spot_prices {
                    self.prices = Prices { has_spot_prices, ..Prices::default() };
                }
                let total = &fleet.total;
                if total.without_price < total.nodes || total.nodes == 0 {
                    self.prices.add(fleet.now, total.price_per_hour);
                }
                if let Some(before) = &self.fleet {
                    self.period = fleet.now.duration_since(before.now);
                }
                self.fleet = Some(*fleet);
                self.notes = notes;
                self.unread = None;
            }
            News::Unread(why) => self.unread = Some(why),
            News::Decisions(decisions) => self.log.add(decisions),
            News::NoDecisions(why) => self.log.problem = Some(why),
            // The next read of the cluster will say so, too.
            News::Paused(Pause { motion, pools }, Ok(_)) => {
                let known = self.fleet.iter_mut().flat_map(|fleet| &mut fleet.node_pools);
                for pool in known.filter(|pool| pools.contains(&pool.name)) {
                    pool.paused = motion == Motion::Still;
                }
            }
            News::Explained(..) | News::Paused(_, Err(_)) => {}
        }
    }
}

/// Prices per hour in USD, of the last so many reads.
#[derive(Debug, Default)]
pub(super) struct Prices {
    all: VecDeque<(Timestamp, f64)>,
    /// Whether those of spot nodes are EC2's.
    has_spot_prices: bool,
}

impl Prices {
    fn add(&mut self, at: Timestamp, price: f64) {
        if self.all.len() == PRICES {
            self.all.pop_front();
        }
        self.all.push_back((at, price));
    }

    /// When the first one was read.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.all.front().map(|(at, _)| *at)
    }

    /// Oldest first.
    pub(super) fn values(&self) -> Vec<f64> {
        self.all.iter().map(|(_, price)| *price).collect()
    }
}

/// The operator's decisions.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Identity of the replica that leads.
    pub(super) leader: String,
    /// Since when it leads.
    pub(super) since: Option<Timestamp>,
    /// By number.
    pub(super) decisions: BTreeMap<u64, Decision>,
    /// Why they can't be read at the moment.
    pub(super) problem: Option<String>,
}

impl Log {
    fn add(&mut self, answer: Decisions) {
        let Decisions { leader, since, decisions, .. } = answer;
        if (&leader, since) != (&self.leader, self.since) {
            // Numbers start again.
            *self = Self { leader, since, ..Self::default() };
        }
        self.problem = None;
        self.decisions.extend(decisions.into_iter().map(|it| (it.seq, it)));
        while self.decisions.len() > DECISIONS {
            self.decisions.pop_first();
        }
    }

    /// The pod of the leader, without what makes its identity unique.
    pub(super) fn leading(&self) -> &str {
        self.leader.split('_').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(leader: &str, numbers: std::ops::Range<u64>) -> Decisions {
        let decisions = numbers.map(|seq| Decision { seq, ..Decision::default() }).collect();
        Decisions { leader: leader.to_owned(), decisions, ..Decisions::default() }
    }

    #[test]
    fn memory_is_bounded_however_long_it_runs() {
        let mut state = State::default();
        for n in 0..5000_i64 {
            let at = Timestamp::from_second(n).expect("a time");
            state.prices.add(at, 1.0);
        }
        assert_eq!(state.prices.values().len(), PRICES);
        let first = i64::try_from(5000 - PRICES).expect("a number");
        assert_eq!(state.prices.since().map(Timestamp::as_second), Some(first));
        state.learn(News::Decisions(answer("a", 0..3000)));
        assert_eq!(state.log.decisions.len(), DECISIONS);
        assert_eq!(state.log.decisions.keys().next_back(), Some(&2999));
    }

    #[test]
    fn another_leader_has_another_ledger_and_a_result_replaces_its_decision() {
        let mut state = State::default();
        state.learn(News::Decisions(answer("karpenter-a_1", 1..4)));
        state.learn(News::NoDecisions("it is gone".to_owned()));
        assert_eq!((state.log.decisions.len(), state.log.leading()), (3, "karpenter-a"));
        let mut changed = answer("karpenter-a_1", 2..3);
        changed.decisions[0].count = 7;
        state.learn(News::Decisions(changed));
        assert_eq!((state.log.decisions.len(), &state.log.problem), (3, &None));
        assert_eq!(state.log.decisions[&2].count, 7);
        state.learn(News::Decisions(answer("karpenter-b_1", 1..2)));
        assert_eq!(state.log.decisions.len(), 1);
    }
}
