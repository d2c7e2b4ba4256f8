//! One file per command.

pub mod bundle;
pub mod completion;
pub mod config;
pub mod diff;
pub mod doctor;
pub mod export;
pub mod freeze;
pub mod iam;
pub mod install;
mod look;
pub mod plan;
pub mod preflight;
#[cfg(test)]
mod reference;
mod session;
pub mod simulate;
pub mod status;
pub mod uninstall;
pub mod version;
