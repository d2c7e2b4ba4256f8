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
        counts.room_in_domains(&problem.topology(), specs, shape, dropped, machine)
    }

    fn by_types(&mut self, pods: usize) -> usize {
        self.pod.map_or(pods, |pod| usize::from(self.solver.has_devices(self.machine, pod)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place with given answers, which counts how many it was asked for.
    struct Answers {
        answers: [usize; 4],
        asked: usize,
    }

    impl Answers {
        fn next(&mut self) -> usize {
            self.asked += 1;
            self.answers[self.asked - 1]
        }
    }

    impl Place for Answers {
        fn by_room(&mut self) -> usize {
            self.next()
        }

        fn by_hosts(&mut self) -> usize {
            self.next()
        }

        fn by_labels(&mut self) -> usize {
            self.next()
        }

        fn by_types(&mut self, pods: usize) -> usize {
            pods.min(self.next())
        }
    }

    #[test]
    fn the_tightest_limit_counts_and_nothing_is_asked_after_none() {
        for (most, answers, room, asked) in [
            (9, [5, 3, ANY, 7], 3, 4),
            (2, [5, 3, ANY, 7], 2, 4),
            (9, [5, 4, 3, 1], 1, 4),
            (9, [0, 4, 3, 1], 0, 1),
            (9, [5, 0, 3, 1], 0, 2),
            (9, [5, 4, 0, 1], 0, 3),
            (9, [5, 4, 3, 0], 0, 4),
        ] {
            let mut place = Answers { answers, asked: 0 };
            assert_eq!((room_for(&mut place, most), place.asked), (room, asked), "{answers:?}");
        }
    }

    #[test]
    fn pods_with_host_ports_come_one_at_a_time_where_nobody_uses_them() {
        let port = |number| vec![("TCP".to_owned(), "0.0.0.0".to_owned(), number)];
        let fit = |ports: &[HostPort], used: &[HostPort]| free((&[2], &[7]), (ports, used));
        assert_eq!(fit(&[], &port(80)), 3);
        assert_eq!(fit(&port(80), &port(81)), 1);
        assert_eq!(fit(&port(80), &port(80)), 0);
        assert_eq!(free((&[8], &[7]), (&[], &[])), 0);
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic = "a filter leaves it out"]
    fn a_filter_that_leaves_out_a_place_with_room_is_found() {
        none_left_out([4].into_iter(), |_| 1);
    }
}
