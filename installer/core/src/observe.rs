//! What is there: first the facts of cluster and caller, then everything that bears a name of ours.
//! Only reads.

pub mod actual;
pub mod auto_scaling;
pub mod bucket;
pub mod ec2;
pub mod eks;
pub mod facts;
pub mod granted;
pub mod iam;
pub mod labelled;
pub mod messaging;
pub mod node_groups;
pub mod parameters;
pub mod state;
pub mod templates;
