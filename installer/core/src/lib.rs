//! From what was asked for to what is there: the installer without its program.
//!
//! Everything goes through four values. [`settings::Settings`] is what was asked for, [`observe`]
//! reads what is there, [`desired::Desired`] is what should be there, and [`plan::Plan`] is what
//! has to be done about the difference. [`apply`] carries it out, one step at a time, each step
//! safe to repeat and written to the [`journal`] first. So resuming after a crash is running again.
//!
//! Invariants: nothing is changed that doesn't carry this installation's mark ([`ownership`]);
//! nothing is printed here, and nothing is known of commands: who carries out a plan hears of it
//! through [`apply::Progress`].

#![expect(
    clippy::missing_panics_doc,
    reason = "only invariants are expected, and each says why it holds"
)]

pub mod apply;
pub mod audit;
pub mod aws;
pub mod cleanup;
pub mod clock;
pub mod desired;
pub mod failure;
pub mod files;
pub mod journal;
pub mod kubernetes;
pub mod lock;
pub mod names;
pub mod observe;
pub mod ownership;
pub mod plan;
pub mod plugin;
pub mod retry;
pub mod settings;
pub mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod words;
