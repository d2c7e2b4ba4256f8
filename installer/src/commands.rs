//! One file per command.

pub mod config;
pub mod diff;
pub mod freeze;
pub mod install;
pub mod plan;
mod session;
pub mod simulate;
pub mod status;
pub mod uninstall;
pub mod version;
