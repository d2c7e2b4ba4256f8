//! Exchanges: some pods of a load leave, others take their room and what was left over, and the
//! load is worth more.
//!
//! A load that was filled pod by pod ends with a gap that no pod fits into. Which pods went in last
//! decides how large it is, so a load of few large pods may waste some per cent of its machine. The
//! values of pods that fit into a machine never sum up to more than its price when they are dual
//! prices, so what is missing to the price says how much there is to gain, and when to stop.

use super::load::{Load, Part, rest};
use crate::solver::{Place, room_for};
use crate::tables::{add_times, take_times, times};
use crate::topology::HostOccupancy;

/// A load that is worth so much of its machine's price is good enough.
const ENOUGH: f64 = 0.999;

/// So many pods of one shape leave at most at once.
const LEAVING: usize = 3;

/// So many exchanges at most are made on one load.
const EXCHANGES: usize = 8;

/// With more shapes than this only one other shape takes the room, not two: the work grows with the
/// number of shapes to the second power, not to the third.
const FEW_SHAPES: usize = 60;

/// Pods of a part that leave (below 0) or come.
type Move = (usize, isize);

/// An exchange and what it gains.
#[derive(Clone, Debug, Default)]
struct Exchange {
    gain: f64,
    moves: Vec<Move>,
}

/// Exchanges pods of a load on a machine with so much room for pods, at this price, as long as that
/// gains something.
pub(super) fn improve(load: &mut Load, parts: &[Part], net: &[i64], price: f64) {
    // The load's first pod stays: it is what the machine is opened for.
    let Some(&(seed, _)) = load.takes.first() else { return };
    let mut bench = Bench::new(load, parts, net);
    for _ in 0..EXCHANGES {
        let missing = price - load.value;
        if missing <= price * (1.0 - ENOUGH) {
            break;
        }
        let best = bench.best(seed, missing);
        if best.moves.is_empty() {
            break;
        }
        load.value += best.gain;
        for (index, by) in best.moves {
            bench.carry_out(load, index, by);
        }
    }
    load.takes.retain(|&(_, n)| n > 0);
}

/// A load and the pods that could be in it.
struct Bench<'p> {
    /// Parts that can come and go freely: they neither narrow the machine nor take its ports.
    parts: Vec<&'p Part>,
    taken: Vec<usize>,
    /// What the load leaves.
    room: Vec<i64>,
    /// The groups of its pods.
    on_host: HostOccupancy,
}

impl<'p> Bench<'p> {
    fn new(load: &Load, parts: &'p [Part], net: &[i64]) -> Self {
        let count = |part: &Part| {
            let take = load.takes.iter().find(|(demand, _)| *demand == part.demand);
            take.map_or(0, |&(_, n)| n)
        };
        let mut used = vec![0; net.len()];
        for part in parts {
            add_times(&mut used, &part.requests, count(part));
        }
        let mut on_host = HostOccupancy::default();
        for part in parts {
            on_host.add(&part.groups, count(part));
        }
        let free = |part: &&Part| !part.narrows && part.ports.is_empty();
        let parts: Vec<&Part> = parts.iter().filter(free).collect();
        let taken = parts.iter().map(|part| count(part)).collect();
        Self { parts, taken, room: rest(net, &used), on_host }
    }

    /// The exchange that gains most; the first that gains most of what is missing.
    fn best(&self, seed: usize, missing: f64) -> Exchange {
        let mut best = Exchange { gain: missing * 0.1, moves: Vec::new() };
        // First without anybody leaving.
        self.fill(&self.room, &Exchange::default(), &mut best);
        for (index, part) in self.parts.iter().enumerate() {
            let stays = usize::from(part.demand == seed);
            let mut room = self.room.clone();
            for n in 1..=LEAVING.min(self.taken[index].saturating_sub(stays)) {
                if best.gain > missing * 0.6 {
                    return best;
                }
                add_times(&mut room, &part.requests, 1);
                let left = Exchange {
                    gain: -part.value * weight(n),
                    moves: vec![(index, -isize::try_from(n).unwrap_or(isize::MAX))],
                };
                self.fill(&room, &left, &mut best);
            }
        }
        best
    }

    /// Tries who takes the room that others have left.
    fn fill(&self, room: &[i64], left: &Exchange, best: &mut Exchange) {
        let mut rest = room.to_vec();
        for (index, part) in self.parts.iter().enumerate() {
            let most = self.most(index, left, room, &self.on_host);
            for n in [most, most.saturating_sub(1), most / 2] {
                if n == 0 {
                    break;
                }
                let gain = left.gain + part.value * weight(n);
                if gain > best.gain {
                    *best = left.and(gain, &[(index, n)]);
                }
                if self.parts.len() > FEW_SHAPES {
                    continue;
                }
                rest.copy_from_slice(room);
                take_times(&mut rest, &part.requests, n);
                let mut on_host = self.on_host.clone();
                on_host.add(&part.groups, n);
                for (other, second) in self.parts.iter().enumerate() {
                    let both = other != index;
                    let m = if both { self.most(other, left, &rest, &on_host) } else { 0 };
                    let gain = gain + second.value * weight(m);
                    if m > 0 && gain > best.gain {
                        *best = left.and(gain, &[(index, n), (other, m)]);
                    }
                }
            }
        }
    }

    /// How many pods of a part a room takes, of those that have not just left it.
    fn most(&self, index: usize, left: &Exchange, room: &[i64], on_host: &HostOccupancy) -> usize {
        if left.moves.iter().any(|&(gone, _)| gone == index) {
            return 0;
        }
        let part = self.parts[index];
        let waiting = part.left - self.taken[index];
        room_for(&mut Gap { part, room, on_host }, waiting)
    }

    fn carry_out(&mut self, load: &mut Load, index: usize, by: isize) {
        let (part, n) = (self.parts[index], by.unsigned_abs());
        let known = load.takes.iter().position(|(demand, _)| *demand == part.demand);
        let place = known.unwrap_or_else(|| {
            load.takes.push((part.demand, 0));
            load.takes.len() - 1
        });
        if by < 0 {
            add_times(&mut self.room, &part.requests, n);
            self.taken[index] -= n;
            self.on_host.remove(&part.groups, n);
        } else {
            take_times(&mut self.room, &part.requests, n);
            self.taken[index] += n;
            self.on_host.add(&part.groups, n);
        }
        load.takes[place].1 = self.taken[index];
    }
}

/// What others leave as a place for a part's pods.
struct Gap<'b> {
    part: &'b Part,
    room: &'b [i64],
    on_host: &'b HostOccupancy,
}

impl Place for Gap<'_> {
    fn by_room(&mut self) -> usize {
        times(&self.part.requests, self.room)
    }

    fn by_hosts(&mut self) -> usize {
        self.on_host.most(&self.part.groups)
    }
}

impl Exchange {
    /// This one with pods that come.
    fn and(&self, gain: f64, coming: &[(usize, usize)]) -> Self {
        let coming =
            coming.iter().map(|&(index, n)| (index, isize::try_from(n).unwrap_or(isize::MAX)));
        Self { gain, moves: self.moves.iter().copied().chain(coming).collect() }
    }
}

fn weight(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_specs::SpecId;
    use crate::topology::HostGroup;

    fn part(demand: usize, left: usize, cpu: i64, memory: i64) -> Part {
        // Processors and memory cost the same, one each.
        let value = f64::from(i32::try_from(cpu + memory).expect("small"));
        let requests = vec![cpu, memory];
        let (ports, groups) = (Vec::new(), Vec::new());
        Part { demand, left, value, requests, ports, groups, narrows: false }
    }

    fn load(parts: &[Part], takes: &[(usize, usize)]) -> Load {
        let value = takes.iter().map(|&(index, n)| parts[index].value * weight(n)).sum();
        Load { spec: SpecId::default(), takes: takes.to_vec(), value }
    }

    #[test]
    fn pods_leave_for_others_that_fill_the_gap() {
        // 3 + 3 of 10 leave 4 that nobody fits into; 3 + 7 fill it.
        let parts = [part(0, 9, 3, 3), part(1, 9, 7, 7)];
        let mut load = load(&parts, &[(0, 3)]);
        improve(&mut load, &parts, &[10, 10], 20.0);
        assert_eq!(load.takes, [(0, 1), (1, 1)]);
        assert!((load.value - 20.0).abs() < 1e-9);
    }

    #[test]
    fn of_a_group_one_pod_comes_and_only_when_none_is_there() {
        let mut parts = [part(0, 9, 6, 6), part(1, 9, 2, 2), part(2, 9, 2, 2), part(3, 9, 1, 1)];
        let one_per_host =
            HostGroup { group: 7, is_selected: true, is_carrier: true, is_anti: true };
        parts[1].groups = vec![one_per_host];
        parts[2].groups = vec![one_per_host];
        let mut free = load(&parts, &[(0, 1)]);
        improve(&mut free, &parts, &[10, 10], 20.0);
        assert_eq!(free.takes, [(0, 1), (1, 1), (3, 2)]);
        let mut taken = load(&parts, &[(0, 1), (2, 1)]);
        improve(&mut taken, &parts, &[10, 10], 20.0);
        assert_eq!(taken.takes, [(0, 1), (2, 1), (3, 2)]);
    }

    #[test]
    fn what_narrows_the_machine_or_opened_it_stays_and_no_more_come_than_there_are() {
        let mut parts = [part(0, 9, 6, 6), part(1, 1, 5, 5), part(2, 9, 10, 10), part(3, 3, 1, 1)];
        let mut alone = load(&parts, &[(0, 1)]);
        improve(&mut alone, &parts, &[10, 10], 20.0);
        assert_eq!(alone.takes, [(0, 1), (3, 3)], "the first pod is what the machine is for");
        parts[2].narrows = true;
        let mut other = load(&parts, &[(1, 1)]);
        improve(&mut other, &parts, &[10, 10], 20.0);
        assert_eq!(other.takes, [(1, 1), (3, 3)], "there is one pod of five, and ten narrows");
    }
}
