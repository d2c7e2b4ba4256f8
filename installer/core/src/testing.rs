//! For tests of this crate and of those above it (feature `testing`): settings and what should be
//! there for them, plans carried out in memory, an API server, and pages of the book that are
//! written from the code.

mod api_server;
mod carry_out;
mod fixture;
mod pages;

pub use api_server::Double;
pub use carry_out::{carry_out, carry_out_some, perform};
pub use fixture::{complete, desired, facts, settings, untouched};
pub use pages::assert_written;

use crate::plan::Plan;

/// The ids of a plan's steps, in its order.
pub fn ids(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.id.as_str()).collect()
}
