//! The commands that are carried out, and which NodeClaims they are about: looked up by name, since
//! passes ask for every NodeClaim, and there may be a thousand commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Started;
use crate::state::cluster::name;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Running {
    pub(super) commands: BTreeMap<u64, Arc<Started>>,
    next: u64,
    /// The command that a NodeClaim is a candidate of, by its name.
    pub(super) candidates: BTreeMap<String, u64>,
    /// The command that waits for a NodeClaim as a replacement, by its name.
    pub(super) replacements: BTreeMap<String, u64>,
    /// How often the deletion of a NodeClaim was given up, by its name.
    pub(super) given_up: BTreeMap<String, u32>,
}

impl Running {
    /// Takes a command in, and answers its number.
    pub(super) fn add(&mut self, started: Started) -> u64 {
        self.next += 1;
        let id = self.next;
        let candidates = started.command.candidates.iter();
        self.candidates.extend(candidates.map(|candidate| (candidate.claim.clone(), id)));
        let replacements = started.replacements.iter();
        self.replacements.extend(replacements.map(|claim| (name(&claim.metadata), id)));
        self.commands.insert(id, Arc::new(started));
        id
    }

    pub(super) fn remove(&mut self, id: u64) {
        let Some(started) = self.commands.remove(&id) else { return };
        for candidate in &started.command.candidates {
            self.candidates.remove(&candidate.claim);
        }
        for claim in &started.replacements {
            self.replacements.remove(&name(&claim.metadata));
        }
    }
}
