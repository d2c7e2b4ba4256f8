//! The rules in force, and what has passed: which fault a request, or an answer under way, meets.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Fault;
use super::requests::{ApiRequest, Requests};

/// A rule of some [`super::ApiFaults`]. It stays in force until it is lifted or has been met as
/// often as it may; dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct Rule {
    rules: Arc<Rules>,
    id: u64,
}

impl Rule {
    /// Ends it. Answers that it held are given; what it has silenced stays silent.
    pub fn lift(&self) {
        self.rules.change(|inner| {
            for entry in inner.entries.iter_mut().filter(|entry| entry.id == self.id) {
                entry.lifted = true;
            }
        });
    }

    /// How many requests, and answers under way, have met it.
    pub fn met(&self) -> usize {
        self.rules.inner.lock().entries.iter().find(|it| it.id == self.id).map_or(0, |it| it.met)
    }
}

#[derive(Debug)]
struct Entry {
    id: u64,
    requests: Requests,
    fault: Fault,
    /// `None`: without bound.
    left: Option<usize>,
    lifted: bool,
    met: usize,
}

impl Entry {
    fn in_force(&self) -> bool {
        !self.lifted && self.left != Some(0)
    }

    fn meet(&mut self) -> Met {
        self.met += 1;
        self.left = self.left.map(|left| left - 1);
        Met { id: self.id, fault: self.fault.clone() }
    }
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<Entry>,
    passed: Vec<ApiRequest>,
}

/// All rules of one proxy, and the requests that it has seen.
#[derive(Debug)]
pub(super) struct Rules {
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
}

/// A rule that was met.
#[derive(Clone, Debug)]
pub(super) struct Met {
    pub(super) id: u64,
    pub(super) fault: Fault,
}

impl Rules {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), changed: watch::Sender::new(()) })
    }

    pub(super) fn add(
        self: &Arc<Self>,
        requests: Requests,
        fault: Fault,
        times: Option<usize>,
    ) -> Rule {
        let id = self.change(|inner| {
            let id = inner.entries.len() as u64;
            inner.entries.push(Entry { id, requests, fault, left: times, lifted: false, met: 0 });
            id
        });
        Rule { rules: Arc::clone(self), id }
    }

    pub(super) fn lift_all(&self) {
        self.change(|inner| inner.entries.iter_mut().for_each(|entry| entry.lifted = true));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let done = change(&mut self.inner.lock());
        self.changed.send_replace(());
        done
    }

    /// Told of every change of the rules.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Notes a new request; answers the oldest rule in force that means it.
    pub(super) fn meet(&self, request: &ApiRequest) -> Option<Met> {
        let mut inner = self.inner.lock();
        inner.passed.push(request.clone());
        let meant = |it: &&mut Entry| it.in_force() && it.requests.include(request);
        inner.entries.iter_mut().find(meant).map(Entry::meet)
    }

    /// The oldest rule in force that means an answer under way and that it has not met yet, or that
    /// it is held by.
    pub(super) fn meet_under_way(&self, request: &ApiRequest, held_by: &[u64]) -> Option<Met> {
        let mut inner = self.inner.lock();
        let meant = |it: &&mut Entry| it.in_force() && it.requests.include_under_way(request);
        inner.entries.iter_mut().filter(|it| !held_by.contains(&it.id)).find(meant).map(Entry::meet)
    }

    /// Whether a rule that holds an answer still does.
    pub(super) fn holds(&self, id: u64) -> bool {
        // A bounded rule that has been met often enough goes on to hold what it holds, until it is
        // lifted.
        self.inner.lock().entries.iter().any(|it| it.id == id && !it.lifted)
    }

    /// The requests that were seen, oldest first.
    pub(super) fn passed(&self, which: &Requests) -> Vec<ApiRequest> {
        let inner = self.inner.lock();
        inner.passed.iter().filter(|it| which.include(it)).cloned().collect()
    }

    pub(super) fn count(&self, which: &Requests) -> usize {
        self.inner.lock().passed.iter().filter(|it| which.include(it)).count()
    }
}
