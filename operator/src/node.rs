//! Nodes: how they end.

pub(crate) mod drain;
pub(crate) mod evictions;
pub(crate) mod health;
pub(crate) mod protection;
pub(crate) mod termination;
