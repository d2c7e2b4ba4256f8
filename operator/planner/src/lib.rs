//! The decisions of Tenon: which pods go where, what to launch, what to remove, and why.
//!
//! [`provision`] and [`disrupt`] map one [`Snapshot`] to one [`Plan`]. They are pure: no client, clock, environment, log, thread of their own or
//! randomness other than from `seed`; the same input gives the same bytes. [`check()`] is written from the rules of Kubernetes, independently of the
//! solver, and accepts every plan that the solver makes.

pub mod plan;
pub mod policy;
pub mod resources;
pub mod snapshot;

pub use plan::Plan;
pub use policy::Policy;
pub use snapshot::Snapshot;
