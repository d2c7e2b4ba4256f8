//! The order in which pods of disrupted nodes are evicted: the larger ones first.
//!
//! kube-scheduler places pods one by one, in the order in which they are created anew, each on the
//! node with the most room left. If small pods came first, each would take a little of some node,
//! and large ones would find none with enough left: a node would be launched for them, although the
//! plan has a place for every pod. So a pod of a disruption command waits while pods of a larger
//! [class](tenon_planner::size_class) are still to be evicted, and until their replacements have
//! been placed.
//!
//! The order is an improvement, never a condition: nobody waits longer than [`LONGEST`], and what a
//! PodDisruptionBudget holds back holds back nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// No pod waits longer for larger ones, from when its command was started.
const LONGEST: SignedDuration = SignedDuration::from_secs(20);

/// Replacements that are not placed so long after the last eviction of their workload are not
/// waited for: a StatefulSet creates them only once the pod is gone, a Job perhaps not at all.
const RETURN: SignedDuration = SignedDuration::from_secs(3);

/// How old the answer may be to which class is the largest that is waited for.
const FRESH: SignedDuration = SignedDuration::from_millis(50);

/// Timestamps of the API server are in whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Pods that commands evict, by uid.
#[derive(Debug, Default)]
pub(crate) struct EvictionOrder {
    order: Mutex<Order>,
    rest: Notify,
}

#[derive(Debug, Default)]
struct Order {
    /// Pods that have not been asked yet.
    ahead: BTreeMap<Arc<str>, Ahead>,
    /// By the path of their owner: workloads whose evicted pods have not all been replaced.
    away: BTreeMap<Arc<str>, Away>,
    /// The largest class that is waited for, and as of when.
    largest: Option<(u32, Timestamp)>,
}

#[derive(Debug)]
struct Ahead {
    class: u32,
    until: Timestamp,
}

#[derive(Debug)]
struct Away {
    /// The largest class of those evicted.
    class: u32,
    evicted: usize,
    /// Uids of pods that were created since and have found a place, or none: kube-scheduler has had
    /// its say.
    back: BTreeSet<Arc<str>>,
    since: Timestamp,
    last: Timestamp,
}

impl EvictionOrder {
    /// These pods, with their classes, are about to be evicted.
    pub(crate) fn expect(&self, pods: impl Iterator<Item = (Arc<str>, u32)>, now: Timestamp) {
        let until = now.checked_add(LONGEST).unwrap_or(Timestamp::MAX);
        let mut order = self.order.lock();
        order.ahead.retain(|_, ahead| ahead.until > now);
        for (uid, class) in pods {
            order.ahead.entry(uid).or_insert(Ahead { class, until });
        }
        order.largest = None;
    }

    /// Whether a pod has to wait for larger ones.
    pub(crate) fn holds(&self, uid: &str, now: Timestamp) -> bool {
        let mut order = self.order.lock();
        let Some(own) = order.ahead.get(uid).filter(|own| own.until > now) else { return false };
        let class = own.class;
        order.largest(now) > class
    }

    /// Until when, at most, pods are still to be evicted, or replacements of evicted ones to be
    /// placed; `None` when neither is so.
    pub(crate) fn moves_until(&self, now: Timestamp) -> Option<Timestamp> {
        let mut order = self.order.lock();
        order.forget_old(now);
        let ahead = order.ahead.values().map(|ahead| ahead.until);
        let away = order.away.values().filter_map(|away| away.last.checked_add(RETURN).ok());
        ahead.chain(away).max()
    }

    /// Ends when the last pod has been asked, or a workload has its replacements placed, from when
    /// this is called.
    pub(crate) fn progress(&self) -> Notified<'_> {
        self.rest.notified()
    }

    /// How many pods have not been asked yet.
    pub(crate) fn len(&self) -> usize {
        self.order.lock().ahead.len()
    }

    /// The API server has agreed to the eviction of a pod. `owner`:
    /// [`crate::state::pod::Pod::owner_path`].
    pub(crate) fn evicted(&self, uid: &str, owner: Option<&Arc<str>>, now: Timestamp) {
        let mut order = self.order.lock();
        let Some(class) = self.remove(&mut order, uid) else { return };
        let Some(owner) = owner else { return };
        let away = order.away.entry(Arc::clone(owner)).or_insert_with(|| Away {
            class,
            evicted: 0,
            back: BTreeSet::new(),
            since: now,
            last: now,
        });
        away.evicted += 1;
        away.class = away.class.max(class);
        away.last = now;
    }

    /// A pod is gone, protected or refused: nobody waits for it, and it waits for nobody.
    pub(crate) fn forget(&self, uid: &str) {
        self.remove(&mut self.order.lock(), uid);
    }

    /// kube-scheduler has bound a pod, or found no place for it.
    pub(crate) fn tried(&self, uid: &Arc<str>, owner: &str, created: Timestamp) {
        let mut order = self.order.lock();
        if let Some(away) = order.away.get_mut(owner)
            && created.checked_add(SECOND).is_ok_and(|created| created >= away.since)
        {
            away.back.insert(Arc::clone(uid));
            if away.is_back() {
                self.rest.notify_waiters();
            }
        }
    }

    /// Removes a pod that is still to be asked; answers its class.
    fn remove(&self, order: &mut Order, uid: &str) -> Option<u32> {
        let removed = order.ahead.remove(uid)?;
        if order.ahead.is_empty() {
            self.rest.notify_waiters();
        }
        Some(removed.class)
    }
}

impl Away {
    /// Whether every evicted pod has a replacement that kube-scheduler has tried.
    fn is_back(&self) -> bool {
        self.back.len() >= self.evicted
    }
}

impl Order {
    /// The largest class that is waited for; 0 when there is none, as nothing is smaller.
    fn largest(&mut self, now: Timestamp) -> u32 {
        if let Some((largest, since)) = self.largest
            && now.duration_since(since) < FRESH
        {
            return largest;
        }
        self.forget_old(now);
        let ahead = self.ahead.values().map(|ahead| ahead.class);
        let away = self.away.values().map(|away| away.class);
        let largest = ahead.chain(away).max().unwrap_or(0);
        self.largest = Some((largest, now));
        largest
    }

    /// Forgets what has been waited for long enough, or has come.
    fn forget_old(&mut self, now: Timestamp) {
        self.ahead.retain(|_, ahead| ahead.until > now);
        self.away.retain(|_, away| !away.is_back() && now.duration_since(away.last) < RETURN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn order(pods: &[(&str, u32)]) -> EvictionOrder {
        let order = EvictionOrder::default();
        order.expect(pods.iter().map(|&(uid, class)| (uid.into(), class)), at(0));
        order
    }

    fn held(order: &EvictionOrder, uids: &[&str], now: i64) -> Vec<bool> {
        uids.iter().map(|uid| order.holds(uid, at(now))).collect()
    }

    #[test]
    fn smaller_pods_wait_until_the_replacements_of_larger_ones_are_placed() {
        let order = order(&[("large-1", 9), ("large-2", 9), ("middle", 5), ("small", 1)]);
        let all = ["large-1", "large-2", "middle", "small", "stranger"];
        assert_eq!(held(&order, &all, 0), [false, false, true, true, false]);
        let owner: Arc<str> = "/replicasets/large".into();
        order.evicted("large-1", Some(&owner), at(100));
        order.evicted("large-2", Some(&owner), at(200));
        assert_eq!(held(&order, &all[2..], 300), [true, true, false], "none is back");
        // One that was there before is none of the replacements, nor is that of another workload.
        order.tried(&"old".into(), &owner, at(-5000));
        order.tried(&"other".into(), "/replicasets/other", at(0));
        order.tried(&"new-1".into(), &owner, at(0));
        order.tried(&"new-1".into(), &owner, at(0));
        assert_eq!(held(&order, &all[2..], 400), [true, true, false], "one of two is back");
        order.tried(&"new-2".into(), &owner, at(0));
        assert_eq!(held(&order, &all[2..], 500), [false, true, false]);
        order.evicted("middle", None, at(500));
        assert_eq!(held(&order, &["small"], 600), [false], "nobody creates a bare pod anew");
    }

    #[test]
    fn what_does_not_come_back_is_not_waited_for_long() {
        let order = order(&[("large", 9), ("small", 1)]);
        order.evicted("large", Some(&"/statefulsets/db".into()), at(0));
        assert_eq!(held(&order, &["small"], 2_900), [true]);
        assert_eq!(held(&order, &["small"], 3_000), [false]);
    }

    #[test]
    fn pods_that_may_not_go_hold_nobody_back() {
        let order = order(&[("guarded", 9), ("small", 1), ("stuck", 5)]);
        order.forget("guarded");
        assert_eq!(held(&order, &["small"], 0), [true], "one is left");
        assert_eq!(held(&order, &["small"], 20_000), [false], "but not for ever");
        assert!(!order.holds("guarded", at(0)));
        order.expect([].into_iter(), at(20_000));
        assert_eq!(order.len(), 0, "what is over is forgotten with the next command");
    }

    #[test]
    fn a_larger_pod_that_is_announced_later_goes_first_all_the_same() {
        let order = order(&[("small", 1)]);
        assert_eq!(held(&order, &["small"], 0), [false]);
        order.expect([("large".into(), 9)].into_iter(), at(1));
        assert_eq!(held(&order, &["small"], 2), [true]);
    }
}
