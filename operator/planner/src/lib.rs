//! The decisions of Tenon: which pods go where, what to launch, what to remove, and why.
//!
//! [`provision`](fn@provision) and [`disrupt`] map one [`Snapshot`] to one [`Plan`]. They are pure:
//! no client, clock, environment, log, thread of their own or randomness other than from `seed`;
//! the same input gives the same bytes. [`check()`] is written from the rules of Kubernetes,
//! independently of the solver, and accepts every plan that the solver makes.

mod arrival_order;
mod cancel;
pub mod check;
mod compile;
mod demands;
mod devices;
mod disruption;
mod dual;
mod id_set;
mod intern;
mod label;
mod launch;
mod limits;
mod lower_bound;
mod machine_specs;
pub mod overlays;
mod pack;
pub mod plan;
pub mod policy;
mod provision;
pub mod repair;
mod requirements;
mod reservations;
pub mod resources;
mod room_index;
pub mod snapshot;
mod solver;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod topology;
mod validate;
mod zones;

pub use cancel::Cancel;
pub use check::{Violation, check};
pub use disruption::{
    BudgetUse, DeletionCost, PresentCost, budget_uses, deletion_costs, disrupt, replicas,
    revalidate, revalidate_all, size_class,
};
pub use lower_bound::{Bound, lower_bound, lower_bound_within};
pub use plan::Plan;
pub use policy::Policy;
pub use provision::provision;
pub use snapshot::Snapshot;
pub use topology::out_of_reach;
pub use validate::{ReadError, SnapshotError};
