//! Static NodePools: drifted nodes are replaced one for one, whatever runs on them.

use super::Pass;
use super::candidates::Node;
use super::{drift, replicas};
use crate::plan::{LaunchReason, Method, Stay};
use crate::snapshot::DisruptionReason;

pub(super) fn plan(pass: &mut Pass<'_, '_>, nodes: &[Node]) {
    let snapshot = pass.problem.snapshot;
    for (index, pool) in snapshot.node_pools.iter().enumerate() {
        let Some(wanted) = pool.replicas else { continue };
        let mut drifted: Vec<_> = nodes
            .iter()
            .filter(|node| node.pool == index && !pass.is_going(node))
            .filter_map(|node| {
                let claim = snapshot.nodes[node.index].claim.as_ref()?;
                Some((claim.drifted.as_ref()?.1, node.index, node))
            })
            .collect();
        if drifted.is_empty() {
            continue;
        }
        drifted.sort_unstable_by_key(|&(since, index, _)| (since, index));
        let mut census = replicas::Census::of(snapshot, pool);
        let reason = LaunchReason::Replacement(DisruptionReason::Drifted);
        let replacement = replicas::launch(snapshot, pass.problem.policy, index, reason, pass.seed);
        for (_, _, node) in drifted {
            let stay = if let Err(stay) = drift::permitted(pass, node) {
                stay
            } else if census.active > wanted {
                // What there is too much of goes first.
                Stay::Later
            } else if pass.budgets.available(index, DisruptionReason::Drifted) == 0 {
                Stay::Budget(DisruptionReason::Drifted)
            } else if let (Some(launch), true) = (&replacement, census.room > 0) {
                census.room -= 1;
                let moves = pass.begin(&[node]);
                let launches = vec![launch.clone()];
                pass.decide(&[node], &moves, launches, DisruptionReason::Drifted, Method::Drift);
                continue;
            } else {
                Stay::NoStaticReplacement
            };
            pass.stay(node.index, stay);
        }
    }
}
