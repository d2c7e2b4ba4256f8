//! Static NodePools: drifted and sick nodes are replaced one for one, whatever runs on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Pass;
use super::candidates::Node;
use super::{drift, replicas, terminate_first};
use crate::plan::{Launch, LaunchReason, Method, Shortage, StayReason, TerminateFirst};
use crate::reservations::Reserved;
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
    reserved: Reserved,
}

impl Slots {
    /// Replaces a node by another one of its pool, if that has one to spare.
    pub(super) fn replace(
        &mut self,
        pass: &mut Pass<'_, '_>,
        node: &Node,
        reason: DisruptionReason,
        method: Method,
    ) -> Result<(), StayReason> {
        let slot = self.pools.entry(node.pool).or_insert_with(|| Slot::of(pass, node.pool));
        if slot.census.active > slot.wanted {
            // What there is too much of goes first.
            return Err(StayReason::Later);
        }
        if pass.is_initialized(node) {
            pass.budgets.allow(pass.problem.tables.snapshot, &[node], reason)?;
        }
        if let Some(shortage) = slot.goes_first(pass, node, reason)? {
            let moves = pass.begin(&[node]);
            pass.decide(&[node], &moves, Vec::new(), reason, method);
            let command = pass.commands.last_mut().expect("one was just added");
            Arc::make_mut(command).terminate_first =
                Some(TerminateFirst { reason: shortage, launch: None });
            return Ok(());
        }
        let launch = slot.launch.as_ref().filter(|_| slot.census.room > 0);
        let launch = launch.ok_or(StayReason::NoStaticReplacement)?;
        slot.census.room -= 1;
        let launch = Launch { reason: LaunchReason::Replacement(reason), ..launch.clone() };
        let moves = pass.begin(&[node]);
        pass.decide(&[node], &moves, vec![launch], reason, method);
        Ok(())
    }
}

impl Slot {
    /// Whether the node has to go before another one can come, and why; an error when it can't go
    /// at all.
    fn goes_first(
        &self,
        pass: &Pass<'_, '_>,
        node: &Node,
        reason: DisruptionReason,
    ) -> Result<Option<Shortage>, StayReason> {
        let snapshot = pass.problem.tables.snapshot;
        if !terminate_first::is_allowed(pass.problem.tables.policy, reason) {
            return Ok(None);
        }
        let shortage = if self.reserved.full {
            let id = terminate_first::reservation(snapshot, node.index);
            if !id.is_some_and(|id| self.reserved.offered.contains(id)) {
                return Err(StayReason::StaticReservationsFull);
            }
            Shortage::NoReservedCapacity
        } else if self.census.room <= 0 {
            Shortage::StaticAtLimit
        } else {
            return Ok(None);
        };
        match snapshot.node_pools[node.pool].not_ready {
            None => Ok(Some(shortage)),
            // Nothing would be launched in its place.
            Some(_) => Err(StayReason::StaticNotReady),
        }
    }

    fn of(pass: &Pass<'_, '_>, pool: usize) -> Self {
        let (snapshot, policy) = (pass.problem.tables.snapshot, pass.problem.tables.policy);
        let source = &snapshot.node_pools[pool];
        let reason = LaunchReason::Provisioned;
        Self {
            census: replicas::Census::of(snapshot, source),
            wanted: source.replicas.unwrap_or(0),
            launch: replicas::static_launch(snapshot, policy, pool, reason),
            reserved: Reserved::of(snapshot, source),
        }
    }
}

pub(super) fn plan(pass: &mut Pass<'_, '_>, slots: &mut Slots, nodes: &[Node]) {
    let snapshot = pass.problem.tables.snapshot;
    let first = terminate_first::is_allowed(pass.problem.tables.policy, DisruptionReason::Drifted);
    let mut drifted: Vec<_> = nodes
        .iter()
        .filter(|node| snapshot.node_pools[node.pool].replicas.is_some() && !pass.is_going(node))
        .filter_map(|node| {
            let claim = snapshot.nodes[node.index].claim.as_ref()?;
            // Those that may go first where reservations are full are not kept waiting by those
            // that can't go at all.
            let reserved = terminate_first::reservation(snapshot, node.index).is_some();
            let later = first && !reserved;
            Some((node.pool, later, claim.drifted.as_ref()?.1, node.index, node))
        })
        .collect();
    drifted.sort_unstable_by_key(|&(pool, later, since, index, _)| (pool, later, since, index));
    for (.., node) in drifted {
        let replaced = drift::permitted(pass, node)
            .and_then(|()| slots.replace(pass, node, DisruptionReason::Drifted, Method::Drift));
        if let Err(stay) = replaced {
            pass.stay(node.index, stay);
        }
    }
}
