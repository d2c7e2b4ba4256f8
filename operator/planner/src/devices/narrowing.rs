//! Narrows the types of planned machines: devices that they would have used as the other types are
//! free again.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;

use super::Table;
use super::search::Pick;
use super::state::{Spot, State};
use super::usage::{TEMPLATE, Usage};

impl State {
    /// Restricts a planned machine (index into [`crate::solver::Solver::claims`]) to these types of
    /// a catalog.
    pub(crate) fn narrow(
        &mut self,
        table: &Table<'_>,
        at: usize,
        catalog: usize,
        types: &FixedBitSet,
    ) {
        let of_type = &table.of_type[catalog];
        let stays = |profile: &Option<u32>| {
            profile.is_none_or(|profile| types.ones().any(|kind| of_type[kind] == profile))
        };
        // What the claims of one pod take was taken together.
        let mut taken: BTreeMap<usize, BTreeMap<Option<u32>, Usage>> = BTreeMap::new();
        let mut sharing = BTreeSet::new();
        for seat in self.seats.values_mut().filter(|seat| seat.spot == Some(Spot::Claim(at))) {
            if seat.by_profile.iter().all(|(profile, _)| stays(profile)) {
                continue;
            }
            for (profile, picks) in &seat.by_profile {
                let of_profile = taken.entry(seat.pod).or_default().entry(*profile).or_default();
                let published = |pick: &&Pick| pick.id & TEMPLATE == 0 && !pick.admin;
                for pick in picks.iter().filter(published) {
                    of_profile.take(pick.id, pick.share.as_deref(), &pick.draws);
                    if pick.share.is_some() {
                        sharing.insert(seat.pod);
                    }
                }
            }
            seat.by_profile.retain(|(profile, _)| stays(profile));
        }
        // Who shares a device may draw on counters for others, too: what such a pod has it keeps.
        for (_, by_profile) in taken.iter().filter(|(pod, _)| !sharing.contains(*pod)) {
            let before = Usage::worst_of(by_profile.values());
            let left = by_profile.iter().filter(|(profile, _)| stays(profile));
            let after = Usage::worst_of(left.map(|(_, usage)| usage));
            self.used.remove(&before);
            self.used.add(&after);
            // Devices that others leave are theirs until they have gone.
            for device in before.devices().filter(|&device| table.allocated.has(device)) {
                if !after.has(device) {
                    self.used.take(device, None, &[]);
                    self.freed.take(device, None, &[]);
                }
            }
        }
        if !taken.is_empty() {
            self.failed.clear();
        }
    }
}
