//! Where so much is sick at once, the machines are not what is wrong, and new ones would not help.

use std::collections::BTreeMap;

use super::Policies;
use crate::snapshot::{Node, Snapshot};

/// Of a pool's Nodes so many per cent, rounded up, may be sick.
const MOST_SICK: u32 = 20;

/// How many Nodes of a pool are sick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Sick Nodes, whether that is still tolerated or not.
    pub(crate) unhealthy: u32,
    /// All Nodes.
    pub(crate) nodes: u32,
}

impl Share {
    pub(super) fn count(&mut self, is_sick: bool) {
        self.nodes += 1;
        self.unhealthy += u32::from(is_sick);
    }

    pub(crate) fn is_too_much(self) -> bool {
        let most = (u64::from(self.nodes) * u64::from(MOST_SICK)).div_ceil(100);
        u64::from(self.unhealthy) > most
    }
}

/// What keeps repair from doing harm.
pub(crate) struct Breaker<'a> {
    pools: BTreeMap<&'a str, Share>,
}

impl<'a> Breaker<'a> {
    /// Counts the Nodes of each pool, those that are starting or going included.
    pub(crate) fn new(snapshot: &'a Snapshot, policies: &Policies<'_>) -> Self {
        let mut pools: BTreeMap<&str, Share> = BTreeMap::new();
        for node in snapshot.nodes.iter().filter(|node| node.name.is_some()) {
            if let Some(pool) = pool_of(node) {
                pools.entry(pool).or_default().count(policies.is_sick(node));
            }
        }
        Self { pools }
    }

    pub(crate) fn share(&self, pool: &str) -> Share {
        self.pools.get(pool).copied().unwrap_or_default()
    }
}

pub(super) fn pool_of(node: &Node) -> Option<&str> {
    let claimed = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
    claimed.or_else(|| node.labels.get("karpenter.sh/nodepool").map(String::as_str))
}
