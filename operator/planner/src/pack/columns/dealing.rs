//! From loads of clusters to loads of pods.
//!
//! A load says how many pods of which cluster a machine holds. Which ones is decided here, so that
//! what is left of a cluster stays like the cluster was: each pod is the one that brings what the
//! cluster has given so far closest to its average. Then the room that is left is filled, and pods
//! give way to larger ones that use what nothing else fits into.

use smallvec::SmallVec;

use super::super::knapsack::{Row, Takes};
use super::table::{Bin, Left, Table};
use crate::topology::HostOccupancy;

/// So often a pod gives way to another on one machine.
const EXCHANGES: usize = 4;

/// The limit on pods × rows that are compared for one exchange.
const COMPARED: usize = 100_000;

/// Pods that are dealt out to machines.
#[derive(Clone)]
pub(super) struct Dealer<'t> {
    table: &'t Table,
    /// Pods by row.
    pub(super) left: Vec<usize>,
    /// By crew: how many of its pods may still be in each spec.
    pub(super) seats: Vec<Vec<usize>>,
    /// By cluster: what was taken of processors and memory beyond the average.
    drift: Vec<[f64; 2]>,
    /// Rows, those whose pods are worth most first.
    order: Vec<usize>,
}

/// A machine that is being filled.
struct Filling<'t> {
    bin: &'t Bin,
    room: SmallVec<[i64; 6]>,
    on_host: HostOccupancy,
    takes: Takes,
}

impl<'t> Dealer<'t> {
    pub(super) fn new(table: &'t Table) -> Self {
        let mut order: Vec<usize> = (0..table.rows.len()).collect();
        order.sort_by(|&a, &b| table.values[b].total_cmp(&table.values[a]).then(a.cmp(&b)));
        let drift = vec![[0.0; 2]; table.clusters.len()];
        Self { table, left: table.left.clone(), seats: table.seats.clone(), drift, order }
    }

    /// Pods of clusters that are left, and places for them.
    pub(super) fn rest(&self) -> Left {
        self.table.left(&self.left, &self.seats)
    }

    /// How many pods of a row are left for a machine, whatever it holds.
    fn left_for(&self, filling: &Filling<'_>, row: usize) -> usize {
        let seats = self.table.crew_of[row].map(|crew| self.seats[crew][filling.bin.place]);
        self.left[row].min(seats.unwrap_or(usize::MAX))
    }

    /// Pods for one machine, by row: as many of each cluster as there are and as fit, then what
    /// else does. Takes as many as `repeats` machines of these, and returns how many it was.
    pub(super) fn deal(&mut self, bin: usize, takes: &Takes, repeats: usize) -> (Takes, usize) {
        let table = self.table;
        let bin = &table.bins[bin];
        let mut filling = Filling {
            bin,
            room: bin.net.clone(),
            on_host: HostOccupancy::default(),
            takes: Takes::new(),
        };
        for &(cluster, n) in takes {
            if let [row] = table.clusters[cluster].rows[..] {
                let left = self.left_for(&filling, row);
                let n = n.min(filling.most(&table.rows[row], left));
                self.put(&mut filling, row, n);
                continue;
            }
            for _ in 0..n {
                let Some(row) = self.next_of(&filling, cluster) else { break };
                self.put(&mut filling, row, 1);
            }
        }
        self.top_up(&mut filling);
        for _ in 0..EXCHANGES {
            if !self.exchange(&mut filling) {
                break;
            }
        }
        let mut dealt = filling.takes;
        dealt.retain(|(_, n)| *n > 0);
        dealt.sort_unstable();
        let more = dealt.iter().map(|&(row, n)| self.left[row] / n).min().unwrap_or(0);
        let more = more.min(repeats.saturating_sub(1)).min(self.seats_for(bin, &dealt));
        for &(row, n) in &dealt {
            self.left[row] -= n * more;
            if let Some(crew) = table.crew_of[row] {
                self.seats[crew][bin.place] -= n * more;
            }
        }
        (dealt, more + 1)
    }

    /// How many more machines may hold what one does, as far as places in its spec are concerned.
    fn seats_for(&self, bin: &Bin, dealt: &Takes) -> usize {
        let mut of_crew: SmallVec<[(usize, usize); 6]> = SmallVec::new();
        for &(row, n) in dealt {
            let Some(crew) = self.table.crew_of[row] else { continue };
            match of_crew.iter_mut().find(|(known, _)| *known == crew) {
                Some((_, pods)) => *pods += n,
                None => of_crew.push((crew, n)),
            }
        }
        let times = of_crew.into_iter().map(|(crew, n)| self.seats[crew][bin.place] / n);
        times.min().unwrap_or(usize::MAX)
    }

    /// The pod that keeps a cluster what it was, if any fits.
    fn next_of(&self, filling: &Filling<'_>, cluster: usize) -> Option<usize> {
        let table = self.table;
        let mean = table.requests[cluster];
        let drift = self.drift[cluster];
        let scale = filling.bin.room;
        let mut best: Option<(f64, usize)> = None;
        for &row in &table.clusters[cluster].rows {
            if self.left_for(filling, row) == 0 || filling.most(&table.rows[row], 1) == 0 {
                continue;
            }
            let amounts = table.rows[row].amounts();
            let off = [0, 1].map(|at| (drift[at] + amounts[at] - mean[at]).abs() / scale[at]);
            if best.is_none_or(|(least, _)| off[0] + off[1] < least) {
                best = Some((off[0] + off[1], row));
            }
        }
        best.map(|(_, row)| row)
    }

    fn put(&mut self, filling: &mut Filling<'_>, row: usize, n: usize) {
        if n == 0 {
            return;
        }
        let Row { requests, groups, .. } = &self.table.rows[row];
        let by = i64::try_from(n).unwrap_or(0);
        filling.room.iter_mut().zip(requests).for_each(|(have, want)| *have -= by * want);
        filling.on_host.add(groups, n);
        match filling.takes.iter_mut().find(|(known, _)| *known == row) {
            Some((_, count)) => *count += n,
            None => filling.takes.push((row, n)),
        }
        self.left[row] -= n;
        if let Some(crew) = self.table.crew_of[row] {
            self.seats[crew][filling.bin.place] -= n;
        }
        self.follow(row, weight(n));
    }

    /// Notes that a cluster has given pods of a row.
    fn follow(&mut self, row: usize, pods: f64) {
        let cluster = self.table.cluster_of[row];
        let (amounts, mean) = (self.table.rows[row].amounts(), self.table.requests[cluster]);
        for at in [0, 1] {
            self.drift[cluster][at] += pods * (amounts[at] - mean[at]);
        }
    }

    /// Fills room with whatever fits, what is worth most first.
    fn top_up(&mut self, filling: &mut Filling<'_>) {
        for at in 0..self.order.len() {
            let row = self.order[at];
            let left = self.left_for(filling, row);
            if left > 0 {
                let most = filling.most(&self.table.rows[row], left);
                if most > 0 && filling.bin.rows.binary_search(&row).is_ok() {
                    self.put(filling, row, most);
                }
            }
        }
    }

    /// Lets one pod give way to the one that is worth most more. Returns whether any did.
    fn exchange(&mut self, filling: &mut Filling<'_>) -> bool {
        let Table { rows, values, crew_of, .. } = self.table;
        if filling.takes.len() * rows.len() > COMPARED {
            return false;
        }
        // Less is not worth it.
        let mut best = (filling.bin.price * 1e-3, None);
        for (at, &(out, n)) in filling.takes.iter().enumerate() {
            if n == 0 || !rows[out].groups.is_empty() {
                continue;
            }
            for &row in &self.order {
                let gain = values[row] - values[out];
                if gain <= best.0 {
                    break;
                }
                let holds = || {
                    let requests = rows[row].requests.iter().zip(&rows[out].requests);
                    requests.zip(&filling.room).all(|((want, gone), have)| want - gone <= *have)
                };
                let left = self.left_for(filling, row);
                let is_left = left > 0 || self.left[row] > 0 && crew_of[row] == crew_of[out];
                if is_left
                    && rows[row].groups.is_empty()
                    && holds()
                    && filling.bin.rows.binary_search(&row).is_ok()
                {
                    best = (gain, Some((at, row)));
                    break;
                }
            }
        }
        let (_, Some((at, row))) = best else { return false };
        let out = filling.takes[at].0;
        filling.takes[at].1 -= 1;
        let gone = &rows[out].requests;
        filling.room.iter_mut().zip(gone).for_each(|(have, gone)| *have += gone);
        self.left[out] += 1;
        if let Some(crew) = crew_of[out] {
            self.seats[crew][filling.bin.place] += 1;
        }
        self.follow(out, -1.0);
        self.put(filling, row, 1);
        true
    }
}

impl Filling<'_> {
    /// How many of so many pods of a row fit.
    fn most(&self, row: &Row, pods: usize) -> usize {
        let mut most = pods.min(self.on_host.most(&row.groups));
        for (&want, &have) in row.requests.iter().zip(&self.room) {
            if want > have {
                return 0;
            }
            if want > 0 && most > 1 {
                most = most.min(usize::try_from(have / want).unwrap_or(0));
            }
        }
        most
    }
}

fn weight(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}
