//! The Kubernetes operator of Tenon.
//!
//! Data flows one way: watches → [`state`] → Snapshot → planner → Plan → [`actuate`] → Kubernetes
//! and the cloud. See `docs/src/architecture.md`.

pub mod actuate;
pub mod aws;
pub mod capacitybuffer;
pub mod claims;
pub mod client;
pub mod clock;
pub mod cloud_provider;
pub mod confirm;
pub mod context;
pub(crate) mod controller;
pub mod deletioncost;
pub mod disruption;
#[expect(
    clippy::disallowed_methods,
    reason = "events are about objects, and nobody reads them back"
)]
pub mod events;
pub mod eviction_order;
pub mod gauges;
pub mod http;
#[expect(clippy::disallowed_methods, reason = "the Nodes are the pretended cloud's machines")]
pub mod kwok;
#[expect(clippy::disallowed_methods, reason = "the Lease is the election's own")]
pub mod leader;
pub mod leadership;
pub mod ledger;
pub mod liveness;
pub mod logging;
pub mod metrics;
pub mod node;
pub mod node_classes;
pub mod nodeclaim;
pub mod nodeoverlay;
pub mod nodepool;
pub mod nomination;
pub mod nominations;
pub mod offers;
pub mod operator;
pub mod options;
pub mod pauses;
pub mod planning;
pub mod provisioning;
pub mod quarantine;
pub mod rbac;
pub mod run;
pub mod settling;
pub mod state;
pub mod tasks;
#[cfg(test)]
mod testing;
pub mod text;
pub mod traces;
pub mod watch;
pub mod work;
#[expect(clippy::disallowed_methods, reason = "the one way to write")]
pub mod write;
