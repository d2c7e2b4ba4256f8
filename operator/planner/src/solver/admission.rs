//! Admission: how many pods of a shape a place takes as it is now.
//!
//! [`room_for`] is the only answer. Whoever looks for places has indexes and bitsets that leave out
//! those which would take none, so that not all have to be asked; debug builds ask some of them
//! nevertheless ([`none_left_out`]).

use super::Solver;
use crate::tables::shapes::{HostPort, ports_conflict};
use crate::tables::times;
use crate::topology::Host;

/// No limit.
pub(crate) const ANY: usize = usize::MAX;

/// A place for pods of one shape, in the state of a plan: a machine that exists, one to come, or
/// one that is only thought of. What depends on nothing there has no limit.
pub(crate) trait Place {
    /// How many pods it has free resources and host ports for.
    fn by_room(&mut self) -> usize;

    /// How many pods rules about hosts let there.
    fn by_hosts(&mut self) -> usize {
        ANY
    }

    /// How many pods labels, taints and rules about other domains let there.
    fn by_labels(&mut self) -> usize {
        ANY
    }

    /// Of so many pods, those that it takes together with all that is there: instance types, their
    /// `minValues`, devices.
    fn by_types(&mut self, pods: usize) -> usize {
        pods
    }
}

/// How many pods a place takes now, at most so many. The cheapest questions come first.
pub(crate) fn room_for(place: &mut impl Place, most: usize) -> usize {
    let mut room = most.min(place.by_room());
    if room > 0 {
        room = room.min(place.by_hosts());
    }
    if room > 0 {
        room = room.min(place.by_labels());
    }
    if room > 0 { room.min(place.by_types(room)) } else { 0 }
}

/// How many pods with such requests and host ports fit next to what is there.
pub(crate) fn free(
    (requests, room): (&[i64], &[i64]),
    (ports, used): (&[HostPort], &[HostPort]),
) -> usize {
    match times(requests, room) {
        0 => 0,
        n => n.min(free_ports(ports, used)),
    }
}

/// How many pods with such host ports may come next to those who use some.
pub(crate) fn free_ports(ports: &[HostPort], used: &[HostPort]) -> usize {
    if ports.is_empty() { ANY } else { usize::from(!ports_conflict(ports, used)) }
}

/// Makes sure, in debug builds, that places take no pods that a filter leaves out. Not all are
/// asked: they may be as many as the filter is there for.
pub(crate) fn none_left_out(
    mut left_out: impl Iterator<Item = usize>,
    room: impl FnOnce(usize) -> usize,
) {
    if cfg!(debug_assertions)
        && let Some(place) = left_out.next()
    {
        let room = room(place);
        debug_assert_eq!(room, 0, "place {place} takes pods, and a filter leaves it out");
    }
}

/// What is to be met of what a shape asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// One of its alternatives, with so many preferences about other pods dropped.
    Alternative { variant: usize, dropped: usize },
    /// One of the variants from the first up to the last, and no preference about other pods.
    Required { first: usize, end: usize },
}

/// A machine that exists.
pub(crate) struct OnMachine<'s, 'p, 'a> {
    pub(crate) solver: &'s mut Solver<'p, 'a>,
    pub(crate) machine: usize,
    pub(crate) shape: usize,
    pub(crate) wanted: Wanted,
    /// The pod whose claims ask for devices, if that matters.
    pub(crate) pod: Option<usize>,
}

impl OnMachine<'_, '_, '_> {
    fn dropped(&self) -> usize {
        match self.wanted {
            Wanted::Alternative { dropped, .. } => dropped,
            Wanted::Required { .. } => self.solver.problem.rules.preferences(self.shape).0,
        }
    }
}

impl Place for OnMachine<'_, '_, '_> {
    fn by_room(&mut self) -> usize {
        let shape = &self.solver.problem.tables.shapes[self.shape];
        let room = self.solver.room_of(self.machine);
        free((&shape.requests, room), (&shape.ports, &self.solver.ports[self.machine]))
    }

    fn by_hosts(&mut self) -> usize {
        if !self.solver.problem.rules.concern(self.shape) {
            return ANY;
        }
        let topology = &self.solver.problem.topology();
        let host = Host::Machine(self.machine);
        self.solver.counts.room_on_host(topology, self.shape, self.dropped(), host) as usize
    }

    fn by_labels(&mut self) -> usize {
        let (machine, shape, dropped) = (self.machine, self.shape, self.dropped());
        let class = self.solver.problem.tables.shapes[shape].class;
        let suits = match self.wanted {
            Wanted::Alternative { variant, .. } => self.solver.suits(machine, class, variant),
            Wanted::Required { first, end } => {
                (first..end).any(|variant| self.solver.suits(machine, class, variant))
            }
        };
        if !suits || self.solver.is_closed(machine) {
            return 0;
        }
        let Solver { problem, counts, specs, .. } = &mut *self.solver;
        if !problem.rules.concern(shape) {
            return ANY;
        }
        counts.room_in_domains(&problem.topology(), specs, shape, dropped, machine)
    }

    fn by_types(&mut self, pods: usize) -> usize {
        self.pod.map_or(pods, |pod| usize::from(self.solver.has_devices(self.machine, pod)))
    }
}
