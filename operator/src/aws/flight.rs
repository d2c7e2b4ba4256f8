//! One call for all who want the same at the same time: the first caller makes it, the others wait
//! for its outcome.
//!
//! There is no task behind it. When the future of the caller that makes the call is dropped,
//! another of those who wait makes it. An outcome is shared by those who waited for it and is not
//! remembered: who comes later asks anew.

use std::collections::BTreeMap;
use std::future::Future;

use parking_lot::Mutex;
use tokio::sync::broadcast;

/// Calls that are under way, by what they are for.
#[derive(Debug)]
pub(super) struct Flights<K: Ord, T> {
    under_way: Mutex<BTreeMap<K, broadcast::Sender<T>>>,
}

impl<K: Ord, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self { under_way: Mutex::default() }
    }
}

enum Role<T> {
    Leader,
    Follower(broadcast::Receiver<T>),
}

impl<K: Ord + Clone, T: Clone> Flights<K, T> {
    /// The outcome of `call`, or of the call of somebody else for the same key that is under way.
    pub(super) async fn join<F, Fut>(&self, key: &K, call: F) -> T
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T>,
    {
        loop {
            match self.board(key) {
                Role::Leader => break,
                // Closed without an outcome: the leader went away before it had one.
                Role::Follower(mut outcome) => {
                    if let Ok(outcome) = outcome.recv().await {
                        return outcome;
                    }
                }
            }
        }
        let landing = Landing { flights: self, key: Some(key) };
        // A call is large. Followers have room for a pointer to one only, since they make none.
        let outcome = Box::pin(call()).await;
        if let Some(waiting) = landing.land() {
            // Nobody waits, as a rule.
            let _alone = waiting.send(outcome.clone());
        }
        outcome
    }

    fn board(&self, key: &K) -> Role<T> {
        let mut under_way = self.under_way.lock();
        if let Some(sender) = under_way.get(key) {
            return Role::Follower(sender.subscribe());
        }
        under_way.insert(key.clone(), broadcast::Sender::new(1));
        Role::Leader
    }
}

/// Ends a flight whose leader is dropped: those who wait notice, and one of them leads.
struct Landing<'f, K: Ord, T> {
    flights: &'f Flights<K, T>,
    /// Until the flight has ended.
    key: Option<&'f K>,
}

impl<K: Ord, T> Landing<'_, K, T> {
    /// Ends the flight; returns by what its followers are told.
    fn land(mut self) -> Option<broadcast::Sender<T>> {
        self.end()
    }

    fn end(&mut self) -> Option<broadcast::Sender<T>> {
        let key = self.key.take()?;
        self.flights.under_way.lock().remove(key)
    }
}

impl<K: Ord, T> Drop for Landing<'_, K, T> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures::future::join_all;

    use super::*;

    async fn slow(calls: &AtomicU32) -> u32 {
        let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
        number
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_at_the_same_time_share_one_call_and_later_ones_ask_anew() {
        let (flights, calls) = (Flights::default(), AtomicU32::new(0));
        let outcomes = join_all((0..100).map(|_| flights.join(&"a", || slow(&calls)))).await;
        assert_eq!(outcomes, vec![1; 100]);
        assert_eq!(flights.join(&"a", || slow(&calls)).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn different_keys_do_not_wait_for_each_other() {
        let (flights, calls) = (Flights::default(), AtomicU32::new(0));
        let started = tokio::time::Instant::now();
        tokio::join!(flights.join(&"a", || slow(&calls)), flights.join(&"b", || slow(&calls)));
        assert_eq!((calls.into_inner(), started.elapsed()), (2, Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_those_who_wait_takes_over_when_the_caller_goes_away() {
        let (flights, calls) = (Flights::default(), AtomicU32::new(0));
        let leader =
            tokio::time::timeout(Duration::from_millis(500), flights.join(&"a", || slow(&calls)));
        let followers = join_all((0..10).map(|_| flights.join(&"a", || slow(&calls))));
        let (leader, followers) = tokio::join!(leader, followers);
        assert!(leader.is_err());
        assert_eq!(followers, vec![2; 10]);
    }
}
