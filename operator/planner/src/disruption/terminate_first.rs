//! Terminate-first: nodes whose replacement only finds room once they have gone. They go first, and
//! provisioning fills the place.
//!
//! A node in a full capacity reservation is such a case when its pods may run nowhere else: the
//! reservation has room again when the node has gone. So its pods are planned for once more as if
//! it had room for one more machine.

use std::sync::Arc;

use super::candidates::Node;
use super::rehearsal::Evicted;
use super::rescheduling::Search;
use super::{Pass, prepare};
use crate::devices::State;
use crate::label;
use crate::plan::{Command, Method, PodRef, Shortage, StayReason, TerminateFirst};
use crate::policy::Policy;
use crate::reservations::{Reservations, reserved_ids};
use crate::snapshot::{DisruptionReason, Snapshot};

/// Whether nodes may go first when they go for this reason.
pub(super) fn is_allowed(policy: &Policy, reason: DisruptionReason) -> bool {
    match reason {
        DisruptionReason::Drifted => policy.terminate_first_drift,
        DisruptionReason::Unhealthy => policy.terminate_first_repair,
        DisruptionReason::Empty | DisruptionReason::Underutilized => false,
    }
}

/// The capacity reservation that a node is in.
pub(super) fn reservation(snapshot: &Snapshot, node: usize) -> Option<&str> {
    let labels = &snapshot.nodes[node].labels;
    let is_reserved = labels.get(label::CAPACITY_TYPE).is_some_and(|kind| kind == "reserved");
    let mut ids = labels.iter().filter(|(key, _)| is_reserved && key.ends_with("reservation-id"));
    ids.next().map(|(_, id)| id.as_str())
}

/// Replaces a node: by what is launched first, or where that is not possible, by what can be
/// launched afterwards.
pub(super) fn replace(
    pass: &mut Pass<'_, '_>,
    node: &Node,
    search: Search,
    reason: DisruptionReason,
    method: Method,
) -> Result<(), StayReason> {
    match pass.move_or_replace(node, search, reason) {
        Ok((moves, launches)) => pass.decide(&[node], &moves, launches, reason, method),
        Err(StayReason::PodsDontFit(_)) if go_first(pass, node, search, reason, method) => {}
        Err(stay) => return Err(stay),
    }
    Ok(())
}

/// Lets a node go first whose pods find no place as long as it is there, if what it leaves in its
/// reservation is room for one machine with all of them.
fn go_first(
    pass: &mut Pass<'_, '_>,
    node: &Node,
    search: Search,
    reason: DisruptionReason,
    method: Method,
) -> bool {
    let command = is_allowed(pass.problem.tables.policy, reason)
        .then(|| command_after(pass, node, search, reason, method))
        .flatten();
    let Some(command) = command else { return false };
    pass.replay(&command);
    pass.evicted.extend(node.pods.iter().map(|&pod| Evicted { pod, late: false }));
    if pass.is_initialized(node) {
        pass.budgets.take(node);
    }
    pass.touch(node);
    pass.commands.push(Arc::new(command));
    true
}

/// The command for a node that goes first, planned on the snapshot as it is once it has gone. The
/// pass then knows what that leaves of limits and devices.
fn command_after(
    pass: &mut Pass<'_, '_>,
    node: &Node,
    search: Search,
    reason: DisruptionReason,
    method: Method,
) -> Option<Command> {
    let snapshot = pass.problem.tables.snapshot;
    let id = reservation(snapshot, node.index)?;
    let credited = with_room_for_one_more(snapshot, id)?;
    let (problem, candidates) = prepare(&credited, pass.problem.tables.policy, pass.now);
    let (mut after, _) = Pass::new(&problem, candidates, pass.now);
    after.touched.clone_from(&pass.touched);
    for command in &pass.commands {
        after.replay(command);
    }
    after.solver.limits.at_most_in(&problem.tables, (&pass.problem.tables, &pass.solver.limits));
    after.solver.devices = forgetful(pass.solver.devices.clone());
    let (moves, launches) = after.move_or_replace(node, search, reason).ok()?;
    let [launch] = <[_; 1]>::try_from(launches).ok()?;
    let mut settled = vec![launch.clone()];
    let lost = Reservations::new(&credited).settle(&mut settled);
    let pinned = settled.pop().filter(|pinned| {
        lost.is_empty() && reserved_ids(&pinned.requirements).any(|pinned| pinned == id)
    })?;
    after.decide(&[node], &moves, vec![launch], reason, method);
    let mut command = Arc::unwrap_or_clone(after.commands.pop().expect("one was just added"));
    command.replacements.clear();
    let reason = Shortage::NoReservedCapacity;
    command.terminate_first = Some(TerminateFirst { reason, launch: Some(pinned) });
    pass.solver.limits.at_most_in(&pass.problem.tables, (&problem.tables, &after.solver.limits));
    pass.solver.devices = forgetful(after.solver.devices.take());
    Some(command)
}

/// The devices that are left, for another solver over the same machines and types: which machines
/// the first one would launch means nothing to it.
fn forgetful(mut devices: Option<Box<State>>) -> Option<Box<State>> {
    if let Some(devices) = &mut devices {
        devices.forget_claims();
    }
    devices
}

/// The snapshot with room for one more machine in a capacity reservation that is in order; nothing
/// when no offering is of it.
fn with_room_for_one_more(snapshot: &Snapshot, reservation: &str) -> Option<Snapshot> {
    let mut credited = snapshot.clone();
    let mut is_offered = false;
    for catalog in &mut credited.catalogs {
        let kinds = &mut Arc::make_mut(catalog).instance_types;
        for offer in kinds.iter_mut().flat_map(|kind| &mut kind.offerings) {
            if offer.available && offer.reservation() == Some(reservation) {
                let left = offer.reservation_capacity.get_or_insert_default();
                *left = left.saturating_add(1);
                is_offered = true;
            }
        }
    }
    is_offered.then_some(credited)
}

impl Pass<'_, '_> {
    /// Takes in a command that was decided elsewhere: its nodes go, and its pods are where it moves
    /// them.
    fn replay(&mut self, command: &Command) {
        let problem = self.problem;
        let snapshot = problem.tables.snapshot;
        let find =
            |key: &str| snapshot.nodes.binary_search_by(|node| node.key.as_str().cmp(key)).ok();
        let going = command.candidates.iter().filter_map(|candidate| find(&candidate.node));
        let going: Vec<usize> = going.collect();
        let totals = Arc::make_mut(&mut self.totals);
        for &node in &going {
            self.solver.close(node);
            totals.leave(snapshot, node);
        }
        let pod = |wanted: &PodRef| {
            let mut pods =
                going.iter().flat_map(|&node| problem.tables.pods_on[node].iter().copied());
            pods.find(|&pod| snapshot.pods[pod].uid == wanted.uid)
        };
        for launch in command.launches() {
            let pods: Vec<usize> = launch.pods.iter().filter_map(pod).collect();
            totals.come(snapshot, launch, &pods);
        }
        for nomination in &command.nominations {
            if let (Some(pod), Some(machine)) = (pod(&nomination.pod), find(&nomination.node)) {
                totals.join(snapshot, machine, pod);
                let shape = snapshot.pods[pod].shape.0 as usize;
                self.solver.occupy(machine, shape, 1);
                self.solver.counts.add_on_machine(&problem.topology(), shape, machine, 1);
                self.receiving.insert(machine);
            }
        }
    }
}
