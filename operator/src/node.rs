//! Nodes: how they end.

pub mod drain;
pub mod evictions;
pub mod protection;
pub mod termination;
