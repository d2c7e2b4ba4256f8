//! How many instances capacity reservations still have room for.
//!
//! EC2 says so with each look at the reservations. In between, what the operator launches and
//! terminates itself is counted, so that two launches in a row do not count on the same place. Too
//! high a figure costs a launch that is planned again; too low a one costs money.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Places left, by id of the reservation. Every change raises the version: catalogs that were
/// computed before are stale then.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    left: BTreeMap<String, u32>,
}

impl Reservations {
    /// EC2 says that so many are left.
    pub(super) fn observe(&self, id: &str, left: u32) {
        self.set(id, |_| Some(left));
    }

    /// An instance was launched into it.
    pub(super) fn take(&self, id: &str) {
        self.set(id, |known| Some(known?.saturating_sub(1)));
    }

    /// An instance of it is gone.
    pub(super) fn give_back(&self, id: &str) {
        self.set(id, |known| Some(known?.saturating_add(1)));
    }

    /// EC2 could not launch into it.
    pub(super) fn exhaust(&self, id: &str) {
        self.set(id, |_| Some(0));
    }

    /// How many are left; none of a reservation that was never seen.
    pub(super) fn left(&self, id: &str) -> u32 {
        self.state.lock().left.get(id).copied().unwrap_or(0)
    }

    /// The version of what is left.
    pub(super) fn version(&self) -> u64 {
        self.state.lock().version
    }

    fn set(&self, id: &str, change: impl FnOnce(Option<u32>) -> Option<u32>) {
        let mut state = self.state.lock();
        let before = state.left.get(id).copied();
        let after = change(before);
        if after != before
            && let Some(after) = after
        {
            state.left.insert(id.to_owned(), after);
            state.version += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_and_terminations_are_counted_until_ec2_says_better() {
        let reservations = Reservations::default();
        reservations.observe("cr-1", 2);
        reservations.take("cr-1");
        assert_eq!(reservations.left("cr-1"), 1);
        reservations.take("cr-1");
        reservations.take("cr-1");
        assert_eq!(reservations.left("cr-1"), 0, "never below nothing");
        reservations.give_back("cr-1");
        assert_eq!(reservations.left("cr-1"), 1);
        reservations.observe("cr-1", 5);
        assert_eq!(reservations.left("cr-1"), 5);
        reservations.exhaust("cr-1");
        assert_eq!(reservations.left("cr-1"), 0);
    }

    #[test]
    fn a_reservation_that_ec2_did_not_tell_of_has_no_room() {
        let reservations = Reservations::default();
        reservations.take("cr-1");
        reservations.give_back("cr-1");
        assert_eq!((reservations.left("cr-1"), reservations.version()), (0, 0));
    }

    #[test]
    fn only_a_change_makes_catalogs_stale() {
        let reservations = Reservations::default();
        reservations.observe("cr-1", 2);
        let version = reservations.version();
        reservations.observe("cr-1", 2);
        assert_eq!(reservations.version(), version);
        reservations.take("cr-1");
        assert!(reservations.version() > version);
    }
}
