//! Where so much is sick at once, the machines are not what is wrong, and new ones would not help.

use std::collections::BTreeMap;

use crate::label::NODE_POOL;
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
    fn count(&mut self, is_sick: bool) {
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
    /// Of all Nodes, those without a pool included.
    pub(super) cluster: Share,
}

impl<'a> Breaker<'a> {
    /// Counts the Nodes of each pool, those that are starting or going included.
    pub(crate) fn new(snapshot: &'a Snapshot, is_sick: impl Fn(&Node) -> bool) -> Self {
        let mut breaker = Self { pools: BTreeMap::new(), cluster: Share::default() };
        for node in snapshot.nodes.iter().filter(|node| node.name.is_some()) {
            let is_sick = is_sick(node);
            breaker.cluster.count(is_sick);
            if let Some(pool) = pool_of(node) {
                breaker.pools.entry(pool).or_default().count(is_sick);
            }
        }
        breaker
    }

    pub(crate) fn share(&self, pool: &str) -> Share {
        self.pools.get(pool).copied().unwrap_or_default()
    }
}

fn pool_of(node: &Node) -> Option<&str> {
    let claimed = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
    claimed.or_else(|| node.labels.get(NODE_POOL).map(String::as_str))
}
