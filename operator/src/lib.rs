//! The Kubernetes operator of Tenon.
//!
//! Data flows one way: watches → [`state`] → Snapshot → planner → Plan → [`actuate`] → Kubernetes
//! and the cloud. See `docs/src/architecture.md`.

mod actuate;
pub mod aws;
mod capacitybuffer;
mod claims;
mod client;
pub mod clock;
mod cloud_provider;
mod confirm;
mod context;
mod controller;
mod dashboard;
mod decisions;
mod deletioncost;
mod disruption;
#[expect(
    clippy::disallowed_methods,
    reason = "events are about objects, and no controller reads them back"
)]
mod events;
mod eviction_order;
pub mod gauges;
mod http;
#[expect(clippy::disallowed_methods, reason = "the Nodes are the pretended cloud's machines")]
mod kwok;
#[expect(clippy::disallowed_methods, reason = "the Lease is the election's own")]
mod leader;
mod leadership;
mod ledger;
mod liveness;
pub mod logging;
pub mod metrics;
mod node;
mod node_classes;
mod nodeclaim;
mod nodeoverlay;
mod nodepool;
mod nomination;
mod nominations;
mod offers;
mod operator;
pub mod options;
mod pauses;
mod planning;
mod provisioning;
mod quarantine;
pub mod rbac;
pub mod run;
mod settling;
pub mod state;
mod tasks;
#[cfg(test)]
mod testing;
pub mod text;
pub mod traces;
mod watch;
mod work_queue;
#[expect(clippy::disallowed_methods, reason = "the one way to write")]
mod write;
