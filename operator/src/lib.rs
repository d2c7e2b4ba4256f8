//! The Kubernetes operator of Tenon.
//!
//! Data flows one way: watches → [`state`] → Snapshot → planner → Plan → [`actuate`] → Kubernetes and the cloud. See `docs/src/architecture.md`.

pub mod actuate;
pub mod aws;
pub mod capacitybuffer;
pub mod clock;
pub mod cloud_provider;
pub mod confirm;
pub mod deletioncost;
pub mod disruption;
pub mod events;
pub mod http;
pub mod kwok;
pub mod leader;
pub mod leadership;
pub mod logging;
pub mod metrics;
pub mod node;
pub mod nodeclaim;
pub mod nodeoverlay;
pub mod nodepool;
pub mod operator;
pub mod options;
pub mod provisioning;
pub mod rbac;
pub mod run;
pub mod state;
pub mod tasks;
#[cfg(test)]
mod testing;
pub mod watch;
pub mod work;
pub mod write;
