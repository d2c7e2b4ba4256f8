//! A search for a load that keeps many beginnings in view.
//!
//! Pods come in the order of what they are worth per what they take. For each of them every beginning goes on with as many as fit, with some fewer, and without any; of
//! all that come of it those are kept that may still be worth most. A load that fills a machine exactly often has fewer of the first pods than would fit, and something of
//! most others: a search that ends one beginning before it looks at the next does not get there.

use super::{Entry, Load, MORE, Room, Row, Search, Takes};

/// Besides none, a beginning goes on with as many pods of a kind as fit and with up to so many fewer.
const FEWER: usize = 6;

/// Some pods on the machine.
struct Beginning {
    /// What they and others may be worth at most.
    most: f64,
    worth: f64,
    room: Room,
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
    #[expect(clippy::cast_precision_loss, reason = "worth, for comparison")]
    pub(super) fn beam(&mut self, room: &Room, width: usize) -> usize {
        let mut trails = vec![Trail { before: 0, at: 0, n: 0 }];
        let mut best = (0.0, 0);
        let mut beginnings =
            vec![Beginning { most: f64::INFINITY, worth: 0.0, room: room.clone(), last: 0 }];
        let mut longer: Vec<Beginning> = Vec::new();
        let mut looked = 0;
        for at in 0..self.entries.len() {
            let Entry { value, left, of: Row { requests, groups }, .. } = self.entries[at];
            for Beginning { worth, room, last, .. } in beginnings.drain(..) {
                let most = if groups.is_empty() {
                    left
                } else {
                    usize::from(!self.meets(&trails, last, groups))
                };
                let times = requests.iter().zip(&room).filter(|(want, _)| **want > 0);
                let times = times.map(|(want, have)| usize::try_from(have / want).unwrap_or(0));
                let most = times.min().unwrap_or(most).min(most);
                for n in (most.saturating_sub(FEWER).max(1)..=most).rev().chain([0]) {
                    looked += 1;
                    let by = i64::try_from(n).unwrap_or(0);
                    let rest = room.iter().zip(requests).map(|(have, want)| have - by * want);
                    let room: Room = rest.collect();
                    let worth = worth + value * n as f64;
                    let goes_on = self.may_be_worth(at + 1, &room, worth);
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
                        longer.push(Beginning { most, worth, room, last });
                    }
                }
            }
            if longer.len() > width {
                longer.select_nth_unstable_by(width, |a, b| {
                    b.most.total_cmp(&a.most).then(a.last.cmp(&b.last))
                });
                longer.truncate(width);
            }
            std::mem::swap(&mut beginnings, &mut longer);
        }
        let (worth, mut last) = best;
        let mut takes = Takes::new();
        while last > 0 {
            let Trail { before, at, n } = trails[last];
            takes.push((at, n));
            last = before;
        }
        self.best = Load { worth, takes };
        looked
    }

    /// Whether pods of any of some groups are on the machine.
    fn meets(&self, trails: &[Trail], mut last: usize, groups: &[usize]) -> bool {
        while last > 0 {
            let Trail { before, at, .. } = trails[last];
            if self.entries[at].of.groups.iter().any(|group| groups.contains(group)) {
                return true;
            }
            last = before;
        }
        false
    }
}
