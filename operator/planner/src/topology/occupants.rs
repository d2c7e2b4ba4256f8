//! Which pods are on which hosts, for rules about hosts.
//!
//! Whom such rules keep off a host, or draw there, is read off the pods that are on it, since these
//! are few. To count for each rule whom it selects on each host would be as much as rules × hosts,
//! and whoever may create pods may write thousands of rules that select nearly everybody.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::tallies::Tally;
use super::{Group, Kind, Rules};
use crate::id_set::IdSet;

/// A host, as rules about host names see it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Host {
    /// A machine that exists.
    Machine(usize),
    /// A machine to come.
    Claim(usize),
}

/// The pods on hosts of one kind: machines that exist, or machines to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Occupants {
    /// By host: shapes, and how many pods of them.
    on: FxHashMap<usize, SmallVec<[(u32, u32); 4]>>,
    /// By shape: where its pods are, as places in bitsets.
    places: Vec<IdSet>,
    /// By shape: the only one of these, [`NOWHERE`] or [`SEVERAL`]. Each of thousands of pods may
    /// be selected by thousands of rules, so that it is looked up often.
    only: Vec<u32>,
    /// How many such places there are.
    width: usize,
}

/// There is no such place.
const NOWHERE: u32 = u32::MAX;

/// There are several.
const SEVERAL: u32 = NOWHERE - 1;

impl Occupants {
    /// Counts pods of a shape on a host in, or out (negative). The host's place in bitsets, if it
    /// has one.
    pub(super) fn change(&mut self, shape: usize, host: usize, place: Option<usize>, by: i32) {
        let pods = self.on.entry(host).or_default();
        let id = u32::try_from(shape).expect("fewer shapes than fit into memory");
        let at = pods.iter().position(|&(other, _)| other == id).unwrap_or_else(|| {
            pods.push((id, 0));
            pods.len() - 1
        });
        pods[at].1 = pods[at].1.saturating_add_signed(by);
        let is_there = pods[at].1 > 0;
        if !is_there {
            pods.swap_remove(at);
        }
        let Some(place) = place else { return };
        if self.places.len() <= shape {
            self.places.resize_with(shape + 1, IdSet::default);
            self.only.resize(shape + 1, NOWHERE);
        }
        self.width = self.width.max(place + 1);
        let places = &mut self.places[shape];
        if is_there {
            places.insert(place);
        } else {
            places.remove(place);
        }
        let mut left = places.iter();
        self.only[shape] = match (left.next(), left.next()) {
            (None, _) => NOWHERE,
            (Some(only), None) => u32::try_from(only).expect("fewer places than fit into memory"),
            (Some(_), Some(_)) => SEVERAL,
        };
    }

    /// Adds the places of a shape's pods.
    fn add_places(&self, shape: usize, places: &mut FixedBitSet) {
        match self.only.get(shape) {
            None | Some(&NOWHERE) => {}
            Some(&SEVERAL) => self.places[shape].add_to(places),
            Some(&only) => places.grow_and_insert(only as usize),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The pods on a host that a group selects, and those that carry its rule.
    pub(super) fn tally(&self, group: &Group, host: usize) -> Tally {
        let mut tally = Tally::default();
        for &(shape, pods) in self.on(host) {
            if group.selects.contains(shape as usize) {
                tally.selected = tally.selected.saturating_add(pods);
            }
            if group.carriers.binary_search(&shape).is_ok() {
                tally.carrying = tally.carrying.saturating_add(pods);
            }
        }
        tally
    }

    /// Whether a pod on a host wants no pod of a shape there.
    pub(super) fn keep_off(&self, rules: &Rules, shape: usize, host: usize) -> bool {
        self.on(host).iter().any(|&(other, _)| {
            rules.required[other as usize].iter().any(|rule| {
                let group = &rules.groups[rule.group];
                group.host && group.kind == Kind::Anti && group.selects.contains(shape)
            })
        })
    }

    /// Whether spread over hosts that pods on a host carry leaves room there for one more pod of a
    /// shape.
    pub(super) fn leave_room(&self, rules: &Rules, shape: usize, host: usize) -> bool {
        let carried = self.on(host).iter().flat_map(|&(other, _)| &rules.required[other as usize]);
        carried.map(|rule| &rules.groups[rule.group]).all(|group| match group.kind {
            Kind::Spread { max_skew, .. } if group.host && group.selects.contains(shape) => {
                i64::from(self.tally(group, host).selected) < i64::from(max_skew)
            }
            _ => true,
        })
    }

    /// No places, with room for those of all hosts.
    pub(super) fn no_places(&self) -> FixedBitSet {
        FixedBitSet::with_capacity(self.width)
    }

    /// Adds the places of hosts with pods that a group selects.
    pub(super) fn add_selected(&self, group: &Group, places: &mut FixedBitSet) {
        let placed = self.only.len();
        for shape in group.selects.iter().take_while(|&shape| shape < placed) {
            self.add_places(shape, places);
        }
    }

    /// Adds the places of hosts with pods of at least so many shapes that a group selects.
    pub(super) fn add_crowded(&self, group: &Group, least: u32, places: &mut FixedBitSet) {
        if least <= 1 {
            self.add_selected(group, places);
            return;
        }
        let mut shapes = vec![0_u32; self.width];
        let mut add = |place: usize| {
            shapes[place] += 1;
            if shapes[place] >= least {
                places.grow_and_insert(place);
            }
        };
        let placed = self.only.len();
        for shape in group.selects.iter().take_while(|&shape| shape < placed) {
            match self.only[shape] {
                NOWHERE => {}
                SEVERAL => self.places[shape].iter().for_each(&mut add),
                only => add(only as usize),
            }
        }
    }

    /// Adds the places of hosts with pods that carry a group's rule.
    pub(super) fn add_carrying(&self, group: &Group, places: &mut FixedBitSet) {
        for &shape in &group.carriers {
            self.add_places(shape as usize, places);
        }
    }

    fn on(&self, host: usize) -> &[(u32, u32)] {
        self.on.get(&host).map(|pods| &pods[..]).unwrap_or_default()
    }
}
