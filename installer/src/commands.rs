//! One file per command.

pub mod adopt;
pub mod bundle;
pub mod completion;
pub mod config;
pub mod diff;
pub mod doctor;
mod execution;
pub mod export;
pub mod freeze;
pub mod iam;
pub mod install;
mod look;
mod moving;
mod options;
pub mod plan;
pub mod preflight;
#[cfg(test)]
mod reference;
pub mod rollback;
mod session;
mod shown_plan;
pub mod simulate;
pub mod status;
pub mod sweep;
pub mod uninstall;
mod until_object;
pub mod upgrade;
pub mod version;
