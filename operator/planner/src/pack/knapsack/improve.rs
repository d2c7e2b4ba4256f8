//! Makes a load better: one or two pods leave it, and whatever is worth most of all that fits in
//! their place is put there.

use smallvec::SmallVec;

use super::{Entry, Load, MORE, Room, Row, Search};

/// So many steps it takes at most to fill the room of pods that leave.
const REFILL: usize = 30;

/// Pods that leave a load, by entry.
type Leaving = SmallVec<[(usize, usize); 2]>;

impl Search<'_> {
    /// Exchanges pods of the best load until none is left whose place is worth more without it, or
    /// so many steps are taken. Returns how many were.
    pub(super) fn improve(&mut self, room: &mut Room, steps: usize) -> usize {
        let mut load = std::mem::take(&mut self.best);
        load.takes.iter().for_each(|&(at, n)| self.put(at, n, room));
        let mut left = steps;
        let mut better = true;
        while std::mem::take(&mut better) {
            let mut first = 0;
            while first < load.takes.len() {
                let swaps = leaving(&load.takes[first..]);
                better |= swaps.iter().any(|out| self.swap(&mut load, out, room, &mut left));
                first += 1;
            }
        }
        self.best = load;
        steps - left
    }

    /// Exchanges pods of a load that is on the machine where that makes it worth more. Returns
    /// whether it did.
    fn swap(
        &mut self,
        load: &mut Load,
        out: &[(usize, usize)],
        room: &mut Room,
        left: &mut usize,
    ) -> bool {
        if *left == 0 {
            return false;
        }
        let gone: f64 = out.iter().map(|&(at, n)| self.lift(at, n, room)).sum();
        self.best = Load { worth: load.worth, takes: SmallVec::new() };
        let allowed = REFILL.min(*left);
        self.steps = allowed;
        self.descend(0, room, load.worth - gone);
        *left -= (allowed - self.steps).max(1);
        let Load { worth, takes } = std::mem::take(&mut self.best);
        if worth <= load.worth * MORE {
            for &(at, n) in out {
                self.put_back(at, n, room);
            }
            return false;
        }
        load.worth = worth;
        for &(at, n) in out {
            self.entries[at].left += n;
            load.takes.iter_mut().filter(|it| it.0 == at).for_each(|it| it.1 -= n);
        }
        for (at, n) in takes {
            self.put(at, n, room);
            match load.takes.iter_mut().find(|it| it.0 == at) {
                Some(it) => it.1 += n,
                None => load.takes.push((at, n)),
            }
        }
        load.takes.retain(|it| it.1 > 0);
        true
    }

    /// Puts pods on the machine.
    fn put(&mut self, at: usize, n: usize, room: &mut Room) {
        self.entries[at].left -= n;
        self.put_back(at, n, room);
    }

    /// Puts pods on the machine that were lifted from it.
    fn put_back(&mut self, at: usize, n: usize, room: &mut Room) {
        let Entry { apart, of: Row { requests, groups, .. }, .. } = self.entries[at];
        let by = i64::try_from(n).unwrap_or(0);
        room.iter_mut().zip(requests).for_each(|(have, want)| *have -= by * want);
        self.on_host.add(groups, n);
        self.n_apart += usize::from(apart > 0.0);
    }

    /// Takes pods off the machine; they don't count as pods that are left. Returns what they are
    /// worth.
    #[expect(clippy::cast_precision_loss, reason = "worth, for comparison")]
    fn lift(&mut self, at: usize, n: usize, room: &mut Room) -> f64 {
        let Entry { value, apart, of: Row { requests, groups, .. }, .. } = self.entries[at];
        let by = i64::try_from(n).unwrap_or(0);
        room.iter_mut().zip(requests).for_each(|(have, want)| *have += by * want);
        self.on_host.remove(groups, n);
        self.n_apart -= usize::from(apart > 0.0);
        value * n as f64
    }
}

/// What may leave a load: one or two of its first pods, or one of them with one of another kind.
fn leaving(takes: &[(usize, usize)]) -> SmallVec<[Leaving; 12]> {
    let Some((&(one, n), others)) = takes.split_first() else { return SmallVec::new() };
    let of_one = (1..=n.min(2)).map(|n| SmallVec::from_slice(&[(one, n)]));
    let of_two = others.iter().map(|&(other, _)| SmallVec::from_buf([(one, 1), (other, 1)]));
    of_one.chain(of_two).collect()
}
