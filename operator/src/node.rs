//! Nodes: how they end.

pub mod drain;
pub mod evictions;
pub mod health;
pub mod protection;
pub mod termination;
