//! Static NodePools: drifted and sick nodes are replaced one for one, whatever runs on them.

use std::collections::BTreeMap;

use super::Pass;
use super::candidates::Node;
use super::{drift, replicas};
use crate::plan::{Launch, LaunchReason, Method, Stay};
use crate::snapshot::DisruptionReason;

/// What static pools can replace.
#[derive(Default)]
pub(super) struct Slots {
    pools: BTreeMap<usize, Slot>,
}

struct Slot {
    census: replicas::Census,
    wanted: i64,
    /// What the pool launches, if it can.
    launch: Option<Launch>,
}

impl Slots {
    /// Replaces a node by another one of its pool, if that has one to spare.
    pub(super) fn replace(
        &mut self,
        pass: &mut Pass<'_, '_>,
        node: &Node,
        reason: DisruptionReason,
        method: Method,
    ) -> Result<(), Stay> {
        let slot = self.pools.entry(node.pool).or_insert_with(|| Slot::of(pass, node.pool));
        if slot.census.active > slot.wanted {
            // What there is too much of goes first.
            return Err(Stay::Later);
        }
        if pass.is_initialized(node) && pass.budgets.available(node.pool, reason) == 0 {
            return Err(Stay::Budget(reason));
        }
        let launch = slot.launch.as_ref().filter(|_| slot.census.room > 0);
        let launch = launch.ok_or(Stay::NoStaticReplacement)?;
        slot.census.room -= 1;
        let launch = Launch { reason: LaunchReason::Replacement(reason), ..launch.clone() };
        let moves = pass.begin(&[node]);
        pass.decide(&[node], &moves, vec![launch], reason, method);
        Ok(())
    }
}

impl Slot {
    fn of(pass: &Pass<'_, '_>, pool: usize) -> Self {
        let (snapshot, policy) = (pass.problem.snapshot, pass.problem.policy);
        let source = &snapshot.node_pools[pool];
        let reason = LaunchReason::Provisioned;
        Self {
            census: replicas::Census::of(snapshot, source),
            wanted: source.replicas.unwrap_or(0),
            launch: replicas::launch(snapshot, policy, pool, reason, pass.seed),
        }
    }
}

pub(super) fn plan(pass: &mut Pass<'_, '_>, slots: &mut Slots, nodes: &[Node]) {
    let snapshot = pass.problem.snapshot;
    let mut drifted: Vec<_> = nodes
        .iter()
        .filter(|node| snapshot.node_pools[node.pool].replicas.is_some() && !pass.is_going(node))
        .filter_map(|node| {
            let claim = snapshot.nodes[node.index].claim.as_ref()?;
            Some((node.pool, claim.drifted.as_ref()?.1, node.index, node))
        })
        .collect();
    drifted.sort_unstable_by_key(|&(pool, since, index, _)| (pool, since, index));
    for (.., node) in drifted {
        let replaced = drift::permitted(pass, node)
            .and_then(|()| slots.replace(pass, node, DisruptionReason::Drifted, Method::Drift));
        if let Err(stay) = replaced {
            pass.stay(node.index, stay);
        }
    }
}
