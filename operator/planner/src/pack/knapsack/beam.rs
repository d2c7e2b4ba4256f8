//! A search for a load that keeps many beginnings in view.
//!
//! Pods come in the order of what they are worth per what they take. For each of them every
//! beginning goes on with as many as fit, with some fewer, and without any; of all that come of it
//! those are kept that may still be worth most. A load that fills a machine exactly often has fewer
//! of the first pods than would fit, and something of most others: a search that ends one beginning
//! before it looks at the next does not get there.

use super::{Entry, Load, MORE, Row, Search, Takes};
use crate::topology::{HostGroup, HostOccupancy, most_on_host};

/// Besides none, a beginning goes on with as many pods of a kind as fit and with up to so many
/// fewer.
const FEWER: usize = 6;

/// Some pods on the machine.
struct Beginning {
    /// What they and others may be worth at most.
    most: f64,
    worth: f64,
    /// How many of them keep off each other.
    n_apart: usize,
    /// Where what they leave of the machine begins in a list of rooms.
    room: usize,
    /// The last of them, as an index of [`Trail`]s.
    last: usize,
}

/// Pods of an entry, and what was on the machine before them; the first one is none.
struct Trail {
    before: usize,
    at: usize,
    n: usize,
}

impl Search<'_> {
    /// Looks for a load with so many beginnings in view. Returns how many were looked at.
    /// Beginnings that can't become worth more than `least`, or more than the load that takes as
    /// many pods as fit of each kind in turn, are dropped: without that limit nearly all of them
    /// are kept until the last kinds of pods.
    #[expect(clippy::cast_precision_loss, reason = "worth, for comparison")]
    pub(super) fn beam(&mut self, room: &[i64], width: usize, least: f64) -> usize {
        self.fill(room);
        let floor = f64::max(self.best.worth, least);
        let mut trails = vec![Trail { before: 0, at: 0, n: 0 }];
        let mut best = (floor, 0);
        let none = Beginning { most: f64::INFINITY, worth: 0.0, n_apart: 0, room: 0, last: 0 };
        let mut beginnings = vec![none];
        let mut longer: Vec<Beginning> = Vec::new();
        let (mut rooms, mut shorter) = (room.to_vec(), Vec::new());
        let mut rest = room.to_vec();
        let mut looked = 0;
        for at in 0..self.entries.len() {
            let Entry { value, apart, left, of: Row { requests, groups, .. }, .. } =
                self.entries[at];
            for Beginning { worth, n_apart, room, last, .. } in beginnings.drain(..) {
                let room = &rooms[room..room + rest.len()];
                let most = if groups.is_empty() {
                    left
                } else {
                    left.min(most_on_host(groups, &self.on_host(&trails, last)))
                };
                let most = times(requests, room, most);
                let by = i64::try_from(most).unwrap_or(0);
                let amounts = rest.iter_mut().zip(room).zip(requests);
                amounts.for_each(|((rest, have), want)| *rest = have - by * want);
                for n in (most.saturating_sub(FEWER).max(1)..=most).rev().chain([0]) {
                    looked += 1;
                    if n == 0 {
                        rest.copy_from_slice(room);
                    }
                    let worth = worth + value * n as f64;
                    let n_apart = n_apart + usize::from(n > 0 && apart > 0.0);
                    let goes_on = self.may_be_worth(at + 1, &rest, worth, n_apart);
                    let goes_on = goes_on.filter(|most| *most > f64::max(best.0, worth) * MORE);
                    let mut last = last;
                    if n > 0 && (worth > best.0 || goes_on.is_some()) {
                        trails.push(Trail { before: last, at, n });
                        last = trails.len() - 1;
                    }
                    if worth > best.0 {
                        best = (worth, last);
                    }
                    if let Some(most) = goes_on {
                        longer.push(Beginning { most, worth, n_apart, room: shorter.len(), last });
                        shorter.extend_from_slice(&rest);
                    }
                    rest.iter_mut().zip(requests).for_each(|(have, want)| *have += want);
                }
            }
            if longer.is_empty() {
                break;
            }
            if longer.len() > width {
                longer.select_nth_unstable_by(width, |a, b| {
                    b.most.total_cmp(&a.most).then(a.last.cmp(&b.last))
                });
                longer.truncate(width);
            }
            std::mem::swap(&mut beginnings, &mut longer);
            std::mem::swap(&mut rooms, &mut shorter);
            shorter.clear();
        }
        let (worth, mut last) = best;
        if last > 0 {
            let mut takes = Takes::new();
            while last > 0 {
                let Trail { before, at, n } = trails[last];
                takes.push((at, n));
                last = before;
            }
            self.best = Load { worth, takes };
        }
        looked
    }

    /// The first load: as many pods as fit of each kind in turn.
    #[expect(clippy::cast_precision_loss, reason = "worth, for comparison")]
    fn fill(&mut self, room: &[i64]) {
        let mut rest = room.to_vec();
        let mut load = Load::default();
        let mut on_host = HostOccupancy::default();
        for (at, entry) in self.entries.iter().enumerate() {
            let Row { requests, groups, .. } = entry.of;
            let n = times(requests, &rest, entry.left.min(on_host.most(groups)));
            if n > 0 {
                let by = i64::try_from(n).unwrap_or(0);
                rest.iter_mut().zip(requests).for_each(|(have, want)| *have -= by * want);
                on_host.add(groups, n);
                load.takes.push((at, n));
                load.worth += entry.value * n as f64;
            }
        }
        self.best = load;
    }

    /// The groups that pods on the machine belong to.
    fn on_host(
        &self,
        trails: &[Trail],
        last: usize,
    ) -> impl Iterator<Item = (HostGroup, usize)> + Clone {
        let longer = |&last: &usize| Some(trails[last].before);
        let trail = std::iter::successors(Some(last), longer).take_while(|&last| last > 0);
        trail.flat_map(move |last| {
            let Trail { at, n, .. } = trails[last];
            self.entries[at].of.groups.iter().map(move |&group| (group, n))
        })
    }
}

/// The number of requests that fit, up to `most`.
fn times(requests: &[i64], room: &[i64], most: usize) -> usize {
    let mut times = i64::try_from(most).unwrap_or(i64::MAX);
    for (&want, &have) in requests.iter().zip(room) {
        // A division costs more than a multiplication, and most pods fit.
        if want > 0 && want.saturating_mul(times) > have {
            times = have.max(0) / want;
        }
    }
    usize::try_from(times).unwrap_or(0)
}
