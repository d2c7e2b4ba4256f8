//! Which event is said next: a bounded queue in which a newer event takes the place of an older one
//! that says the same thing.
//!
//! An event has a key: its reason, its object and what distinguishes it further
//! ([`super::Event::distinct_by`]); the message is not part of it.
//! - While an event waits, a newer one with its key replaces it and keeps its turn, so that the
//!   newest form is what will be said. One that supersedes ([`super::Event::superseding`]) also
//!   replaces what is distinguished from it: of the obstacles of a node only the newest waits.
//! - It counts as said only when the API server has taken it ([`Queue::settle`]); from then on its
//!   key rests for its window. While it is on its way a newer one is kept aside and used if the
//!   write fails.
//! - What was done comes before how things are, but every fourth turn goes to the other lines as
//!   long as there is something in them: nothing starves.
//! - Reasons with a rate of their own wait in a line of their own, and not longer than their
//!   window: they are a sample, and worthless when they are late.
//! - At most [`Limits::waiting`] events wait. Beyond that what producers repeat anyway has to give
//!   way: it was not said, and so it is said later.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::reason::Urgency;
use super::{Event, Rate, Reason};

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Events that wait at the same time.
    pub waiting: usize,
    /// How often the write of an event is attempted.
    pub attempts: u32,
}

/// Reason and object, and the distinction unless the event supersedes: what one event waits for at
/// a time.
pub(super) type Slot = Arc<str>;

/// An event that waits, or is on its way.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    /// What is to be said.
    pub event: Event,
    /// When it came to be true.
    pub since: Timestamp,
    /// The name of the Event object, once a write was attempted: a write that is repeated must not
    /// become a second object.
    pub name: Option<String>,
    /// Writes that failed.
    pub attempts: u32,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The API server has it.
    Taken,
    /// The API server will never take it.
    Refused,
    /// The API server did not answer, or had no time for it.
    Failed,
}

/// How many events came to which end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Taken by the API server.
    pub taken: u64,
    /// Refused by the API server.
    pub refused: u64,
    /// Given up: there was no room, they were too old, or their write failed too often.
    pub dropped: u64,
}

/// A line of those who wait, in the order of their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    Of(Urgency),
    /// Reasons with a rate of their own.
    Rated(Reason),
}

#[derive(Debug)]
pub(super) struct Queue {
    limits: Limits,
    lines: BTreeMap<Line, BTreeMap<u64, (Slot, Waiting)>>,
    /// Where the event of a slot waits.
    places: BTreeMap<Slot, (Line, u64)>,
    /// Events on their way, each with a newer one that came meanwhile.
    under_way: BTreeMap<Slot, Option<Waiting>>,
    /// Until when a key rests.
    said: BTreeMap<String, Timestamp>,
    swept: Timestamp,
    /// Tokens left per reason, and when they were counted.
    buckets: BTreeMap<Reason, (f64, Timestamp)>,
    arrivals: u64,
    turns: u64,
    counts: Counts,
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            lines: BTreeMap::new(),
            places: BTreeMap::new(),
            under_way: BTreeMap::new(),
            said: BTreeMap::new(),
            swept: Timestamp::MIN,
            buckets: BTreeMap::new(),
            arrivals: 0,
            turns: 0,
            counts: Counts::default(),
        }
    }

    /// Takes an event in, unless it was said a short while ago.
    pub(super) fn push(&mut self, event: Event, now: Timestamp) {
        self.sweep(now);
        let slot: Slot = event.slot().into();
        if self.said.get(&event.key()).is_some_and(|&until| now < until) {
            // What came in between does not hold any more.
            if event.supersedes
                && let Some(&(line, turn)) = self.places.get(&slot)
            {
                self.remove(line, turn);
            }
            return;
        }
        let waiting = Waiting { event, since: now, name: None, attempts: 0 };
        if let Some(newer) = self.under_way.get_mut(&slot) {
            *newer = Some(waiting);
            return;
        }
        if let Some((line, turn)) = self.places.get(&slot) {
            let place = self.lines.get_mut(line).and_then(|line| line.get_mut(turn));
            if let Some((_, older)) = place {
                *older = Waiting { attempts: older.attempts, ..waiting };
            }
            return;
        }
        self.enqueue(slot, waiting);
    }

    /// The event whose turn it is, if there is one that may be said now. It is on its way then, and
    /// [`Self::settle`] has to be told what became of it.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<(Slot, Waiting)> {
        self.forget_stale(now);
        let mut lines: Vec<Line> = self.lines.keys().copied().collect();
        lines.retain(|&line| self.may(line, now));
        if lines.len() > 1 && self.turns % 4 == 3 {
            // In turn, so that none of them is always the first of the others.
            let others = u64::try_from(lines.len() - 1).unwrap_or(1);
            let index = usize::try_from(self.turns / 4 % others).unwrap_or(0);
            lines.swap(0, index + 1);
        }
        let line = *lines.first()?;
        self.turns += 1;
        let turn = *self.lines.get(&line)?.keys().next()?;
        let (slot, waiting) = self.remove(line, turn)?;
        if let Line::Rated(reason) = line
            && let Some((tokens, _)) = self.buckets.get_mut(&reason)
        {
            *tokens -= 1.0;
        }
        self.under_way.insert(Arc::clone(&slot), None);
        Some((slot, waiting))
    }

    /// When [`Self::pop`] may have something that it has not now, although nothing comes in; `None`
    /// when nothing waits.
    pub(super) fn next_at(&self, now: Timestamp) -> Option<Timestamp> {
        let at = |line: &Line| {
            let Line::Rated(reason) = line else { return now };
            let rate = self.rate(*reason);
            let (tokens, counted) = self.buckets.get(reason).copied().unwrap_or((1.0, now));
            let missing = (1.0 - tokens).max(0.0);
            let wait = rate.map_or(0.0, |rate| missing / rate.per_second);
            // Rounded up, lest whoever waits comes a moment too early, again and again.
            let wait = SignedDuration::try_from_secs_f64(wait).unwrap_or(SignedDuration::ZERO);
            counted.checked_add(wait + SignedDuration::from_millis(1)).unwrap_or(now)
        };
        self.lines.keys().map(at).min()
    }

    /// Learns what became of an event that was on its way.
    pub(super) fn settle(
        &mut self,
        slot: &Slot,
        waiting: Waiting,
        outcome: Outcome,
        now: Timestamp,
    ) {
        let newer = self.under_way.remove(slot).flatten();
        match outcome {
            Outcome::Taken => self.counts.taken += 1,
            Outcome::Refused => self.counts.refused += 1,
            Outcome::Failed => {
                let attempts = waiting.attempts + 1;
                if attempts < self.limits.attempts {
                    let again = newer.unwrap_or(waiting);
                    self.enqueue(Arc::clone(slot), Waiting { attempts, ..again });
                } else {
                    self.counts.dropped += 1;
                }
                return;
            }
        }
        // What was refused rests, too: it would be refused again.
        let until = now.checked_add(waiting.event.window).unwrap_or(Timestamp::MAX);
        self.said.insert(waiting.event.key(), until);
        if let Some(newer) = newer {
            // It is a repetition, unless it supersedes.
            self.push(newer.event, newer.since);
        }
    }

    /// Drops what others will find out again.
    pub(super) fn keep_deeds(&mut self) {
        self.lines.retain(|line, _| *line == Line::Of(Urgency::Deed));
        self.places.retain(|_, (line, _)| *line == Line::Of(Urgency::Deed));
    }

    /// How many events wait or are on their way.
    pub(super) fn len(&self) -> usize {
        self.places.len() + self.under_way.len()
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    fn enqueue(&mut self, slot: Slot, waiting: Waiting) {
        let line = match waiting.event.rate {
            Some(_) => Line::Rated(waiting.event.reason),
            None => Line::Of(waiting.event.reason.urgency()),
        };
        if !self.make_room(line, &waiting) {
            self.counts.dropped += 1;
            return;
        }
        self.arrivals += 1;
        self.places.insert(Arc::clone(&slot), (line, self.arrivals));
        self.lines.entry(line).or_default().insert(self.arrivals, (slot, waiting));
    }

    /// Whether one more can wait in this line; what matters less gives way, the latest first.
    fn make_room(&mut self, line: Line, waiting: &Waiting) -> bool {
        if let Some(Rate { per_second, burst }) = waiting.event.rate {
            let sayable = burst + per_second * waiting.event.window.as_secs_f64();
            let n_waiting = u32::try_from(self.lines.get(&line).map_or(0, BTreeMap::len));
            if n_waiting.is_ok_and(|n| f64::from(n) >= sayable) {
                return false;
            }
        }
        if self.places.len() < self.limits.waiting {
            return true;
        }
        let Some((&least, latest)) = self.lines.last_key_value() else { return false };
        let Some((&turn, _)) = latest.last_key_value().filter(|_| least > line) else {
            return false;
        };
        self.counts.dropped += 1;
        self.remove(least, turn).is_some()
    }

    fn remove(&mut self, line: Line, turn: u64) -> Option<(Slot, Waiting)> {
        let waiting = self.lines.get_mut(&line)?;
        let (slot, event) = waiting.remove(&turn)?;
        if waiting.is_empty() {
            self.lines.remove(&line);
        }
        self.places.remove(&slot);
        Some((slot, event))
    }

    /// Whether the first of a line may be said now.
    fn may(&mut self, line: Line, now: Timestamp) -> bool {
        let Line::Rated(reason) = line else { return true };
        let Some(Rate { per_second, burst }) = self.rate(reason) else { return true };
        let (tokens, counted) = self.buckets.entry(reason).or_insert((burst, now));
        let elapsed = now.duration_since(*counted).as_secs_f64().max(0.0);
        *tokens = (*tokens + elapsed * per_second).min(burst);
        *counted = now;
        *tokens >= 1.0
    }

    /// The rate of a reason of which something waits.
    fn rate(&self, reason: Reason) -> Option<Rate> {
        let line = self.lines.get(&Line::Rated(reason))?;
        line.values().next().and_then(|(_, waiting)| waiting.event.rate)
    }

    /// Drops what has waited for its rate for too long.
    fn forget_stale(&mut self, now: Timestamp) {
        let is_stale = |waiting: &Waiting| now.duration_since(waiting.since) > waiting.event.window;
        let rated = self.lines.iter().filter(|(line, _)| matches!(line, Line::Rated(_)));
        let stale: Vec<(Line, u64)> = rated
            .flat_map(|(&line, waiting)| {
                // They stand in the order in which they came, but for those that were replaced by
                // newer ones.
                let stale = waiting.iter().take_while(|(_, (_, waiting))| is_stale(waiting));
                stale.map(move |(&turn, _)| (line, turn))
            })
            .collect();
        for (line, turn) in stale {
            self.remove(line, turn);
            self.counts.dropped += 1;
        }
    }

    /// Forgets what may be said again.
    fn sweep(&mut self, now: Timestamp) {
        if now.duration_since(self.swept) > SignedDuration::from_secs(10) {
            self.said.retain(|_, until| now < *until);
            self.swept = now;
        }
    }
}
