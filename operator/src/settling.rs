//! NodeClaims whose nodes come to rest: when they will be `Consolidatable`, unless a pod comes or
//! goes before that.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;

/// NodeClaims that have yet to be `Consolidatable`, by name, and from when on they will be.
#[derive(Debug, Default)]
pub struct Settling(Mutex<BTreeMap<String, Timestamp>>);

impl Settling {
    /// A NodeClaim will be `Consolidatable` at `when`; with `None` it already is, or won't be
    /// before something else changes.
    pub fn note(&self, claim: &str, when: Option<Timestamp>) {
        let mut settling = self.0.lock();
        match when {
            Some(when) => {
                settling.insert(claim.to_owned(), when);
            }
            None => {
                settling.remove(claim);
            }
        }
    }

    /// Whether a NodeClaim will be `Consolidatable` by that time. One that is overdue counts: its
    /// condition is being written.
    pub fn any_by(&self, time: Timestamp) -> bool {
        self.0.lock().values().any(|when| *when <= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodeclaim_counts_until_its_condition_is_written() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let settling = Settling::default();
        assert!(!settling.any_by(at(100)));
        settling.note("a", Some(at(20)));
        settling.note("b", Some(at(30)));
        assert_eq!([19, 20, 25, 40].map(|by| settling.any_by(at(by))), [false, true, true, true]);
        // A pod came.
        settling.note("a", Some(at(50)));
        assert!(!settling.any_by(at(29)));
        settling.note("b", None);
        assert_eq!([49, 50].map(|by| settling.any_by(at(by))), [false, true]);
    }
}
