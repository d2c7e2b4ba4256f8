//! Takes a cluster over from Karpenter, and gives it back: what Karpenter uses, the settings that
//! follow from it, and the steps there and back.
//!
//! Karpenter's installation stays as it is. Tenon's operator comes beside it, with the same service
//! account, role, queue, rules and Lease. The design is in `docs/src/design/upgrade.md`.

mod carried;
pub(crate) mod fit;
mod host_ports;
pub(crate) mod karpenter;
mod pods;
mod ports;
pub(crate) mod settings;
pub(crate) mod steps;
mod variables;

pub(crate) use karpenter::Karpenter;

/// Name of the inline policy with what Karpenter's role lacks.
pub(crate) const POLICY: &str = "TenonAdoption";
/// Name of Tenon's objects beside Karpenter's.
pub(crate) const NAME: &str = "tenon";

#[cfg(test)]
mod tests;
