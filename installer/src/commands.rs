//! One file per command.

pub(crate) mod adopt;
pub(crate) mod bundle;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod cost;
pub(crate) mod dashboard;
pub(crate) mod decisions;
pub(crate) mod diff;
pub(crate) mod doctor;
mod execution;
pub(crate) mod export;
mod fleet;
pub(crate) mod freeze;
pub(crate) mod iam;
pub(crate) mod install;
pub(crate) mod kops;
mod kops_cluster;
pub(crate) mod migrate;
mod observation;
mod options;
mod owner;
pub(crate) mod plan;
pub(crate) mod preflight;
#[cfg(test)]
mod reference;
pub(crate) mod rollback;
mod session;
mod shown_plan;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod sweep;
pub(crate) mod top;
pub(crate) mod uninstall;
mod until_object;
pub(crate) mod upgrade;
pub(crate) mod version;
mod version_change;
