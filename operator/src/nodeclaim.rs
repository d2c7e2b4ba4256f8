//! NodeClaims: from the request for a machine to its end.

pub mod consistency;
pub mod disruption;
pub mod expiration;
pub mod garbage_collection;
pub mod lifecycle;
mod pod_events;
pub mod reboot;

use crate::controller::Affected;
use crate::state::change::Touched;
use crate::state::cluster::{Cluster, name};

/// For who looks at a NodeClaim when it has changed.
fn by_name(touched: &Touched) -> Affected<String> {
    match touched {
        Touched::NodeClaim(name) => Affected::One(name.clone()),
        _ => Affected::None,
    }
}

/// The names of all NodeClaims.
fn names(state: &Cluster) -> Vec<String> {
    state.claims().map(|claim| name(&claim.metadata)).collect()
}
