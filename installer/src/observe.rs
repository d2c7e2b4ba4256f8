//! What is there: first the facts of cluster and caller, then everything that bears a name of ours. Only reads.

pub mod facts;
pub mod world;
