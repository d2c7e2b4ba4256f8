//! Finds and removes what an operator or an installation left behind: things that carry a cluster's
//! tags and that nobody looks after any more.
//!
//! It needs no installation, and no cluster either: a cluster that is gone looks after nothing.
//! What is found is decided in [`find`] by two keys, the tag of ownership and the cluster's name;
//! nothing is removed by its name alone.

pub(crate) mod find;
mod observe;
mod remove;

pub(crate) use find::{ClusterSeen, Orphan, orphans};
pub(crate) use observe::{observe, observe_cluster};
pub(crate) use remove::Sweeper;
