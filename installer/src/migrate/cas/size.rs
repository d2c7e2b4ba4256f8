//! What a group was like before it was emptied.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenon_installer_core::observe::auto_scaling::GroupState;

/// By the name of the Auto Scaling group.
pub(crate) type Sizes = BTreeMap<String, Size>;

/// The sizes of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    /// The least number of instances.
    pub min: i32,
    /// How many there were.
    pub desired: i32,
    /// It moved instances between zones.
    pub rebalance: bool,
}

impl Size {
    /// As it is.
    pub(crate) fn of(group: &GroupState) -> Self {
        Self { min: group.min, desired: group.desired, rebalance: !group.is_rebalance_suspended }
    }
}
