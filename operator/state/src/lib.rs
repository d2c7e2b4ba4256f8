//! From Kubernetes objects to the planner's input.
//!
//! [`Cluster`](cluster::Cluster) takes objects in, in whatever order they come, and answers with a
//! [`Snapshot`](tenon_planner::Snapshot). The operator fills it from its watches and keeps it;
//! `tenon simulate` and `tenon explain` fill it from files or from a live list. So both plan on the
//! same view. What else both programs have in common is here, too: [`options`] of planning, what of
//! kube-scheduler's configuration counts ([`scheduler`]), what a [`probe`] reports, and the form in
//! which [decisions](decision) are served and read. Nothing here asks for the time, a client or an
//! environment variable.

pub mod catalog;
pub mod cel;
pub mod change;
pub mod cluster;
pub mod decision;
pub mod ec2;
pub mod explain;
pub mod guarded;
pub mod node_class;
pub mod options;
pub mod pod;
pub mod probe;
pub mod protobuf;
pub mod resources;
pub mod scheduler;
pub mod shape;
mod shared;
pub mod snapshot;
pub mod volumes;
pub mod wire;
