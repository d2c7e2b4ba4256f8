//! Whether nodes may go before there is anything in their place, and what there will be room for
//! then.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::Violation;
use super::places::offers;
use crate::plan::{Command, Plan, Shortage};
use crate::snapshot::{Node, NodePool, Offering, Snapshot};

/// The snapshot as it is once the nodes that go first have left their reservations.
pub(super) fn afterwards<'s>(
    snapshot: &'s Snapshot,
    plan: &Plan,
    found: &mut BTreeSet<Violation>,
) -> Cow<'s, Snapshot> {
    let mut after = Cow::Borrowed(snapshot);
    for command in &plan.commands {
        let Some(first) = &command.terminate_first else { continue };
        let mut must_stay = |reason: &str| {
            let (node, reason) = (command.candidates[0].node.clone(), reason.to_owned());
            found.insert(Violation::MustStay { node, reason });
        };
        if command.candidates.len() != 1 || !command.replacements.is_empty() {
            must_stay("what goes first goes alone, and nothing comes before");
        }
        let node = snapshot.nodes.iter().find(|node| node.key == command.candidates[0].node);
        let pool =
            snapshot.node_pools.iter().find(|pool| pool.name == command.candidates[0].node_pool);
        let (Some(node), Some(pool)) = (node, pool) else { continue };
        let result = match first.reason {
            Shortage::StaticAtLimit => at_limit(snapshot, plan, pool),
            Shortage::NoReservedCapacity => in_full_reservation(snapshot, command, node, pool),
        };
        match result {
            Err(why) => must_stay(why),
            Ok(None) => {}
            Ok(Some(id)) => leave(after.to_mut(), id),
        }
    }
    after
}

fn at_limit<'n>(
    snapshot: &Snapshot,
    plan: &Plan,
    pool: &NodePool,
) -> Result<Option<&'n str>, &'static str> {
    let is_its = |node: &&Node| {
        let claim = node.claim.as_ref();
        claim.and_then(|claim| claim.node_pool.as_ref()) == Some(&pool.name)
    };
    let coming = plan.commands.iter().flat_map(|command| &command.replacements);
    let coming = coming.filter(|launch| launch.node_pool == pool.name).count();
    let there = snapshot.nodes.iter().filter(is_its).count();
    let all = i64::try_from(there + coming).unwrap_or(i64::MAX);
    match pool.limits.get("nodes") {
        _ if pool.replicas.is_none() => Err("only a static NodePool keeps its number"),
        _ if pool.not_ready.is_some() => Err("nothing would come in its place"),
        Some(&limit) if all >= limit => Ok(None),
        _ => Err("its NodePool has room for another one"),
    }
}

/// The reservation that the node leaves.
fn in_full_reservation<'n>(
    snapshot: &Snapshot,
    command: &Command,
    node: &'n Node,
    pool: &NodePool,
) -> Result<Option<&'n str>, &'static str> {
    let label = |key: &str| node.labels.iter().find(|(name, _)| name.ends_with(key));
    let is_reserved = label("karpenter.sh/capacity-type").is_some_and(|(_, it)| it == "reserved");
    let (Some((_, id)), true) = (label("reservation-id"), is_reserved) else {
        return Err("it is in no capacity reservation");
    };
    let catalog = pool.catalog.map(|catalog| &snapshot.catalogs[catalog.0 as usize]);
    let all = || catalog.iter().flat_map(|catalog| &catalog.instance_types);
    let of_it: Vec<&Offering> = all()
        .flat_map(|kind| &kind.offerings)
        .filter(|offer| offer.reservation() == Some(id.as_str()))
        .collect();
    if !of_it.iter().any(|offer| offer.available) {
        return Err("its reservation is not offered any more");
    }
    if of_it.iter().any(|offer| offer.reservation_capacity.unwrap_or(0) > 0) {
        return Err("its reservation has room");
    }
    let first = command.terminate_first.as_ref().and_then(|first| first.launch.as_ref());
    let Some(launch) = first else {
        return if pool.replicas.is_some() && pool.not_ready.is_none() {
            Ok(Some(id))
        } else {
            Err("nothing would come in its place")
        };
    };
    let kinds = all().filter(|kind| launch.instance_types.contains(&kind.name));
    if kinds.flat_map(|kind| offers(launch, kind)).next().is_some() {
        return Err("another machine could come first");
    }
    Ok(Some(id))
}

fn leave(snapshot: &mut Snapshot, id: &str) {
    for catalog in &mut snapshot.catalogs {
        let kinds = &mut Arc::make_mut(catalog).instance_types;
        for offer in kinds.iter_mut().flat_map(|kind| &mut kind.offerings) {
            if offer.reservation() == Some(id) && offer.available {
                *offer.reservation_capacity.get_or_insert_default() += 1;
            }
        }
    }
}
