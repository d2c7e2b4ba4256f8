//! A small map whose entries end after a time, on tokio's clock.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A map whose entries end. Reads never return an ended entry; ended entries are dropped on the
/// next write.
#[derive(Debug)]
pub(super) struct TtlMap<K, V> {
    ttl: Duration,
    entries: Mutex<BTreeMap<K, (Instant, V)>>,
}

impl<K: Ord + Clone, V: Clone> TtlMap<K, V> {
    /// An empty map; entries live for `ttl` unless said otherwise.
    pub(super) fn new(ttl: Duration) -> Self {
        Self { ttl, entries: Mutex::default() }
    }

    /// The value of a key that has not ended.
    pub(super) fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let entries = self.entries.lock();
        let (until, value) = entries.get(key)?;
        (*until > Instant::now()).then(|| value.clone())
    }

    /// The value of a key that has not ended, which from now on lives for the map's time again.
    pub(super) fn get_and_prolong<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        let (until, value) = entries.get_mut(key).filter(|(until, _)| *until > now)?;
        *until = now + self.ttl;
        Some(value.clone())
    }

    /// Sets a value for the map's time.
    pub(super) fn insert(&self, key: K, value: V) {
        self.insert_for(key, value, self.ttl);
    }

    /// Sets a value for a given time.
    pub(super) fn insert_for(&self, key: K, value: V, ttl: Duration) {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        entries.retain(|_, (until, _)| *until > now);
        entries.insert(key, (now + ttl, value));
    }

    /// Removes an entry.
    pub(super) fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.entries.lock().remove(key).map(|(_, value)| value)
    }

    /// Removes an entry if it has this value.
    pub(super) fn remove_value<Q>(&self, key: &Q, value: &V)
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        V: PartialEq,
    {
        let mut entries = self.entries.lock();
        if entries.get(key).is_some_and(|(_, known)| known == value) {
            entries.remove(key);
        }
    }

    /// The entries that have not ended.
    pub(super) fn entries(&self) -> Vec<(K, V)> {
        let now = Instant::now();
        self.entries
            .lock()
            .iter()
            .filter(|(_, (until, _))| *until > now)
            .map(|(key, (_, value))| (key.clone(), value.clone()))
            .collect()
    }

    /// Drops the entries that have ended, and those that `keep` is false for.
    pub(super) fn retain(&self, keep: impl Fn(&K) -> bool) {
        let now = Instant::now();
        self.entries.lock().retain(|key, (until, _)| *until > now && keep(key));
    }

    /// Removes and returns the entries that have ended.
    pub(super) fn take_ended(&self) -> Vec<(K, V)> {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        let ended: Vec<K> = entries
            .iter()
            .filter(|(_, (until, _))| *until <= now)
            .map(|(key, _)| key.clone())
            .collect();
        ended
            .into_iter()
            .filter_map(|key| entries.remove(&key).map(|(_, value)| (key, value)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_end() {
        let map = TtlMap::new(Duration::from_secs(60));
        map.insert("a", 1);
        map.insert_for("b", 2, Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!((map.get("a"), map.get("b")), (Some(1), None));
        assert_eq!(map.take_ended(), [("b", 2)]);
        assert_eq!(map.entries(), [("a", 1)]);
        map.insert("a", 3);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(map.get("a"), Some(3), "setting again prolongs");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_can_prolong_what_has_not_ended() {
        let map = TtlMap::new(Duration::from_secs(60));
        map.insert("a", 1);
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(59)).await;
            assert_eq!(map.get_and_prolong("a"), Some(1));
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(map.get_and_prolong("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_is_removed_only_if_it_is_the_one_that_is_meant() {
        let map = TtlMap::new(Duration::from_secs(60));
        map.insert("a", 2);
        map.remove_value("a", &1);
        assert_eq!(map.get("a"), Some(2));
        map.remove_value("a", &2);
        assert_eq!(map.get("a"), None);
    }
}
