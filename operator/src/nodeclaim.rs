//! NodeClaims: from the request for a machine to its end.

pub(crate) mod consistency;
pub(crate) mod disruption;
pub(crate) mod expiration;
pub(crate) mod garbage_collection;
pub(crate) mod lifecycle;
mod pod_events;
pub(crate) mod reboot;

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
