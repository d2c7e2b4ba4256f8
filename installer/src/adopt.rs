//! Takes a cluster over from Karpenter, and gives it back: what Karpenter uses, the settings that follow from it, and the steps there and back.
//!
//! Karpenter's installation stays as it is. Tenon's operator comes beside it, with the same service account, role, queue, rules and Lease. The design is in
//! `docs/src/design/upgrade.md`.

pub mod fit;
pub mod found;
pub mod options;
mod pods;
mod ports;
pub mod settings;
pub mod steps;

pub use found::{Found, Layout};

/// Name of the inline policy with what Karpenter's role lacks.
pub const POLICY: &str = "TenonAdoption";
/// Name of Tenon's objects beside Karpenter's.
pub const NAME: &str = "tenon";

#[cfg(test)]
mod tests;
