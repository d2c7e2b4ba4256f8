//! Which version of an object counts: an event of a watch may be older than what the operator has
//! written, and a list may be older than what it has just written.

use kube::core::ObjectMeta;

use super::Cluster;
use crate::change::{Kind, ObjectKey, version};

/// Where a version of an object comes from, which decides whether it replaces the one that is
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// An event of a watch: events may be older than what the operator wrote itself.
    Watch,
    /// A list, which is newer than everything that was known when it began.
    List,
    /// The answer to a write of the operator's own.
    Own,
}

impl Cluster {
    /// The operator wrote this object: a list of its kind that is under way may not have that.
    pub(super) fn wrote(&mut self, kind: Kind, key: &ObjectKey) {
        if let Some(meanwhile) = self.listing.get_mut(&kind) {
            meanwhile.insert(key.clone());
        }
    }

    /// Whether a version of an object replaces the one that is known.
    pub(super) fn is_news(
        &self,
        source: Source,
        kind: Kind,
        key: &ObjectKey,
        (new, known): (u64, u64),
    ) -> bool {
        let older_than_own = || self.listing.get(&kind).is_some_and(|it| it.contains(key));
        // Objects without a version (in tests) are always news.
        match source {
            Source::List if !older_than_own() => new == 0 || new != known,
            _ => new == 0 || new > known,
        }
    }

    /// Whether a version of an object is taken in: one that the operator wrote only while the
    /// object is known, for when the watch has already seen it go it must not come back.
    pub(super) fn takes(
        &self,
        source: Source,
        kind: Kind,
        key: &ObjectKey,
        new: &ObjectMeta,
        known: Option<&ObjectMeta>,
    ) -> bool {
        match known {
            Some(known) => self.is_news(source, kind, key, versions(new, known)),
            None => source != Source::Own,
        }
    }

    /// Remembers what the operator wrote while a list is under way.
    pub(super) fn note(&mut self, source: Source, kind: Kind, key: &ObjectKey) {
        if source == Source::Own {
            self.wrote(kind, key);
        }
    }
}

/// Resource versions of what came and of what is known.
pub(super) fn versions(new: &ObjectMeta, known: &ObjectMeta) -> (u64, u64) {
    let version = |metadata: &ObjectMeta| version(metadata.resource_version.as_deref());
    (version(new), version(known))
}
