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
pub mod plan;
pub mod preflight;
#[cfg(test)]
mod reference;
pub mod rollback;
mod session;
pub mod simulate;
pub mod status;
pub mod sweep;
pub mod uninstall;
pub mod upgrade;
pub mod version;
