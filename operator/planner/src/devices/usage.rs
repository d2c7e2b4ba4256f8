//! Usage of devices and counters.

use rustc_hash::{FxHashMap, FxHashSet};

/// Marks devices and counters that machines will have, as against those that are published.
pub(super) const TEMPLATE: u32 = 1 << 31;

/// Usage by device and by counter.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    taken: FxHashSet<u32>,
    counters: FxHashMap<u32, i64>,
    /// Of shared devices, by dimension.
    shares: FxHashMap<u32, Vec<i64>>,
}

impl Usage {
    /// Takes a device, or a share of it, and draws on counters. A shared device draws once, whoever
    /// shares it: the caller knows if it does already.
    pub(super) fn take(&mut self, device: u32, share: Option<&[i64]>, draws: &[(u32, i64)]) {
        match share {
            None => {
                self.taken.insert(device);
            }
            Some(amounts) => {
                let sums = self.shares.entry(device).or_insert_with(|| vec![0; amounts.len()]);
                add(sums, amounts);
            }
        }
        for &(counter, amount) in draws {
            let sum = self.counters.entry(counter | (device & TEMPLATE)).or_default();
            *sum = sum.saturating_add(amount);
        }
    }

    /// Undoes [`Self::take`].
    pub(super) fn give_back(&mut self, device: u32, share: Option<&[i64]>, draws: &[(u32, i64)]) {
        match share {
            None => {
                self.taken.remove(&device);
            }
            Some(amounts) => {
                if let Some(sums) = self.shares.get_mut(&device) {
                    sums.iter_mut()
                        .zip(amounts)
                        .for_each(|(sum, &less)| *sum = sum.saturating_sub(less));
                    if sums.iter().all(|&sum| sum == 0) {
                        self.shares.remove(&device);
                    }
                }
            }
        }
        for &(counter, amount) in draws {
            let sum = self.counters.entry(counter | (device & TEMPLATE)).or_default();
            *sum = sum.saturating_sub(amount);
        }
    }

    pub(super) fn has(&self, device: u32) -> bool {
        self.taken.contains(&device)
    }

    pub(super) fn shares(&self, device: u32) -> Option<&[i64]> {
        self.shares.get(&device).map(Vec::as_slice)
    }

    /// The amount that is drawn on a counter.
    pub(super) fn drawn(&self, counter: u32) -> i64 {
        self.counters.get(&counter).copied().unwrap_or(0)
    }

    /// The devices that are taken as a whole.
    pub(super) fn devices(&self) -> impl Iterator<Item = u32> {
        self.taken.iter().copied()
    }

    /// Whatever `others` take, one of which will come to be: of what several take the most.
    pub(super) fn worst_of<'u>(others: impl Iterator<Item = &'u Self>) -> Self {
        let mut worst = Self::default();
        for other in others {
            worst.taken.extend(&other.taken);
            for (&counter, &amount) in &other.counters {
                let most = worst.counters.entry(counter).or_default();
                *most = amount.max(*most);
            }
            for (&device, amounts) in &other.shares {
                let most = worst.shares.entry(device).or_insert_with(|| vec![0; amounts.len()]);
                most.iter_mut().zip(amounts).for_each(|(most, &amount)| *most = amount.max(*most));
            }
        }
        worst
    }

    /// Adds another usage.
    pub(super) fn add(&mut self, other: &Self) {
        self.taken.extend(&other.taken);
        for (&counter, &amount) in &other.counters {
            let sum = self.counters.entry(counter).or_default();
            *sum = sum.saturating_add(amount);
        }
        for (&device, amounts) in &other.shares {
            let sums = self.shares.entry(device).or_insert_with(|| vec![0; amounts.len()]);
            add(sums, amounts);
        }
    }

    /// Subtracts another usage.
    pub(super) fn remove(&mut self, other: &Self) {
        for &device in &other.taken {
            self.taken.remove(&device);
        }
        for (&counter, &amount) in &other.counters {
            let sum = self.counters.entry(counter).or_default();
            *sum = sum.saturating_sub(amount);
        }
        for (&device, amounts) in &other.shares {
            self.give_back(device, Some(amounts), &[]);
        }
    }
}

fn add(sums: &mut [i64], amounts: &[i64]) {
    sums.iter_mut().zip(amounts).for_each(|(sum, &more)| *sum = sum.saturating_add(more));
}
