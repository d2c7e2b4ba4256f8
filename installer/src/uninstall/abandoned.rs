//! Instances that are let go of without proof that they are gone, because the user said so.

use std::sync::{Mutex, PoisonError};

use tenon_installer_core::failure::Failure;

/// Which instances were let go of; nothing may be unless it was allowed.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    is_allowed: bool,
    ids: Mutex<Vec<String>>,
}

impl Abandoned {
    /// Nothing yet.
    pub(crate) fn new(is_allowed: bool) -> Self {
        Self { is_allowed, ids: Mutex::default() }
    }

    /// Whether any may be.
    pub(super) fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// The proof of an instance's end, or, where that is allowed, a note that there is none.
    pub(super) fn instead_of(&self, proof: Result<(), Failure>, id: &str) -> Result<(), Failure> {
        match proof {
            Err(error) if self.is_allowed => {
                tracing::warn!("instance {id} is abandoned: {error}");
                let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
                if !ids.iter().any(|known| known == id) {
                    ids.push(id.to_owned());
                }
                Ok(())
            }
            proof => proof,
        }
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_is_abandoned_and_is_known_by_its_id() {
        let fails = || Err(Failure::Foreign { what: "no proof".to_owned() });
        let strict = Abandoned::new(false);
        assert!(strict.instead_of(fails(), "i-1").is_err());
        assert!(strict.ids().is_empty());
        let allowed = Abandoned::new(true);
        allowed.instead_of(Ok(()), "i-0").expect("it is proven");
        for _ in 0..2 {
            allowed.instead_of(fails(), "i-1").expect("it is allowed");
        }
        assert_eq!(allowed.ids(), ["i-1"]);
    }
}
