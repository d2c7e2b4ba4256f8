//! Whether a cluster and an account are fit for Tenon, and whether an installed Tenon works.
//!
//! [`observe`](mod@observe) reads one [`observed::Observed`] value. Each check of [`table`] is a
//! pure function of it, so that a fault can be made in a test, and so that a support bundle can be
//! judged on another machine. The page `docs/src/reference/troubleshooting.md` is written from the
//! same table.

mod check;
pub mod observe;
pub mod observed;
pub mod report;
mod signatures;
mod table;

mod account;
mod autoscalers;
mod cluster;
mod compute;
mod identity;
mod inside;
mod kops;
mod network;
mod working;

pub use check::{Check, Outcome, Severity, When};
use check::{known, skip};
pub use compute::{missing_image, placeholder};

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
