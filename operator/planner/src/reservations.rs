//! Reserved capacity: assigns launches of a plan to reservations.
//!
//! The solver buys reserved offerings as if there were enough of them. Afterwards each launch that
//! could use a reservation is given one that still has room, in the order of planning, and is
//! pinned to it; then what is left is given to those that could use it as well, because only one of
//! a launch's types will be. A launch for which nothing is left is bought on other terms, and if
//! there are none its pods wait for the next pass, which knows how much the launches of this one
//! have really taken.

use std::collections::{BTreeMap, BTreeSet};

use crate::intern::Symbols;
use crate::label;
use crate::plan::{Exclusion, Launch, Plan, StayReason, StayingNode};
use crate::requirements::{Requirements, ValueSet};
use crate::resources::MicroUsd;
use crate::snapshot::{
    CapacityType, DisruptionReason, InstanceType, NodePhase, NodePool, Offering, Operator,
    Requirement, Snapshot,
};

/// Remaining machines of reservations.
#[derive(Clone, Debug)]
pub(crate) struct Reservations<'s> {
    snapshot: &'s Snapshot,
    /// By id.
    left: BTreeMap<&'s str, u32>,
    symbols: Symbols,
}

/// An offering that a launch could use.
#[derive(Clone, Copy, Debug)]
struct Choice<'s> {
    kind: &'s InstanceType,
    offer: &'s Offering,
}

/// The capacity that a NodePool can buy besides reservations, and the reservations that it may use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reserved {
    /// All of its offerings are reserved, available or not, and none can be launched.
    pub(crate) full: bool,
    /// Reservations that are available, with or without room.
    pub(crate) offered: BTreeSet<String>,
}

impl Reserved {
    pub(crate) fn of(snapshot: &Snapshot, pool: &NodePool) -> Self {
        let mut found = Self { full: true, offered: BTreeSet::new() };
        let Some(catalog) = pool.catalog else { return found };
        let mut symbols = Symbols::default();
        let wanted = Requirements::new(&pool.template.requirements, &mut symbols);
        for kind in &snapshot.catalogs[catalog.0 as usize].instance_types {
            let have = Requirements::new(&kind.requirements, &mut symbols);
            if have.intersects(&wanted, &symbols).is_err() {
                continue;
            }
            for offer in &kind.offerings {
                if offered(offer, &mut symbols).intersects(&wanted, &symbols).is_err() {
                    continue;
                }
                match offer.reservation() {
                    Some(id) if offer.available => {
                        found.offered.insert(id.to_owned());
                    }
                    _ => {}
                }
                found.full &= offer.reservation().is_some() && !offer.is_launchable();
            }
        }
        found
    }
}

/// The requirements that an offering adds to a machine.
pub(crate) fn offered(offer: &Offering, symbols: &mut Symbols) -> Requirements {
    let mut have = Requirements::new(&offer.requirements, symbols);
    for (key, value) in
        [(label::ZONE, offer.zone.as_str()), (label::CAPACITY_TYPE, offer.capacity_type.as_str())]
    {
        let (key, value) = (symbols.key(key), symbols.value(value));
        have.add(key, ValueSet::one_of([value]), symbols);
    }
    have
}

impl<'s> Reservations<'s> {
    /// The remaining machines by the offerings, less those that NodeClaims without an instance may
    /// use.
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        let mut left: BTreeMap<&str, u32> = BTreeMap::new();
        for kind in snapshot.catalogs.iter().flat_map(|catalog| &catalog.instance_types) {
            for offer in &kind.offerings {
                if let Some(id) = offer.reservation() {
                    let room = offer.reservation_capacity.unwrap_or(0);
                    left.entry(id).and_modify(|least| *least = room.min(*least)).or_insert(room);
                }
            }
        }
        let pending = snapshot.nodes.iter().filter(|node| node.phase == NodePhase::Pending);
        for id in pending.flat_map(|node| reserved_ids(&node.requirements)) {
            if let Some(left) = left.get_mut(id.as_str()) {
                *left = left.saturating_sub(1);
            }
        }
        Self { snapshot, left, symbols: Symbols::default() }
    }

    /// Pins launches to reservations with room, and removes reserved offerings from the others.
    /// Returns the launches without an offering, with the reason.
    pub(crate) fn settle(&mut self, launches: &mut Vec<Launch>) -> Vec<(Launch, Exclusion)> {
        if self.left.is_empty() {
            return Vec::new();
        }
        let usable: Vec<Vec<&'s str>> = launches.iter().map(|launch| self.usable(launch)).collect();
        let mut held: Vec<Vec<&'s str>> = vec![Vec::new(); launches.len()];
        for further in [false, true] {
            for (held, usable) in held.iter_mut().zip(&usable) {
                for &id in usable {
                    let wanted = if further { !held.is_empty() } else { held.is_empty() };
                    let left = self.left.get_mut(id).filter(|left| **left > 0);
                    if let Some(left) = left.filter(|_| wanted && !held.contains(&id)) {
                        *left -= 1;
                        held.push(id);
                    }
                }
            }
        }
        let mut lost = Vec::new();
        let mut kept = Vec::new();
        for ((launch, held), usable) in launches.drain(..).zip(held).zip(usable) {
            if usable.is_empty() {
                kept.push(launch);
                continue;
            }
            if let Some(pinned) = self.pinned(&launch, &held) {
                kept.push(pinned);
                continue;
            }
            for id in held {
                *self.left.entry(id).or_default() += 1;
            }
            match self.unreserved(&launch) {
                Some(launch) => kept.push(launch),
                None => {
                    let reservations = usable.into_iter().map(str::to_owned).collect();
                    lost.push((launch, Exclusion::Reserved { reservations }));
                }
            }
        }
        *launches = kept;
        lost
    }

    /// Whether a launch still has an offering: a reservation with room, or another capacity type.
    pub(crate) fn allow(&self, launch: &Launch) -> bool {
        self.left.is_empty() || self.clone().settle(&mut vec![launch.clone()]).is_empty()
    }

    /// Subtracts the reservations that launches of a plan hold.
    pub(crate) fn hold(&mut self, launches: &[Launch]) {
        if !self.left.is_empty() {
            self.settle(&mut launches.to_vec());
        }
    }

    /// Pins the replacements of disruption commands, and drops commands that no longer save
    /// anything.
    pub(crate) fn settle_commands(&mut self, plan: &mut Plan) {
        if self.left.is_empty() {
            return;
        }
        for mut command in std::mem::take(&mut plan.commands) {
            if command.replacements.is_empty() {
                plan.commands.push(command);
                continue;
            }
            let left = self.left.clone();
            let lost = self.settle(&mut command.replacements);
            let before: MicroUsd = command.candidates.iter().filter_map(|node| node.price).sum();
            let after: MicroUsd = command.replacements.iter().map(|launch| launch.price).sum();
            let needed =
                [DisruptionReason::Drifted, DisruptionReason::Unhealthy].contains(&command.reason);
            let waits = lost.iter().find_map(|(launch, _)| launch.pods.first().cloned());
            let stay = match waits {
                Some(pod) => Some(StayReason::PodsDontFit(pod)),
                None if !needed && !command.replacements.is_empty() && after >= before => {
                    Some(StayReason::NothingCheaper)
                }
                None => None,
            };
            match stay {
                None => {
                    command.savings = MicroUsd(before.0 - after.0);
                    plan.commands.push(command);
                }
                Some(reason) => {
                    // Later commands may use what this one would have held.
                    self.left = left;
                    plan.report.nodes.extend(command.candidates.into_iter().map(|candidate| {
                        StayingNode { node: candidate.node, reason: reason.clone() }
                    }));
                }
            }
        }
        plan.report.nodes.sort_by(|a, b| a.node.cmp(&b.node));
    }

    /// The reservations with room that a launch could use, those of its cheapest types first.
    fn usable(&mut self, launch: &Launch) -> Vec<&'s str> {
        let mut ids = Vec::new();
        for option in self.options(launch) {
            if let Some(id) = option.offer.reservation()
                && !ids.contains(&id)
            {
                ids.push(id);
            }
        }
        ids
    }

    /// The offerings that a launch could use, in the order of its types.
    fn options(&mut self, launch: &Launch) -> Vec<Choice<'s>> {
        let snapshot = self.snapshot;
        let pool = snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool);
        let Some(catalog) = pool.and_then(|pool| pool.catalog) else { return Vec::new() };
        let kinds = &snapshot.catalogs[catalog.0 as usize].instance_types;
        let wanted = Requirements::new(&launch.requirements, &mut self.symbols);
        let mut options = Vec::new();
        for name in &launch.instance_types {
            let Some(kind) = kinds.iter().find(|kind| kind.name == *name) else { continue };
            for offer in kind.offerings.iter().filter(|offer| offer.is_launchable()) {
                let have = offered(offer, &mut self.symbols);
                if have.intersects(&wanted, &self.symbols).is_ok() {
                    options.push(Choice { kind, offer });
                }
            }
        }
        options
    }

    /// The launch with only the reserved offerings that it holds.
    fn pinned(&mut self, launch: &Launch, held: &[&str]) -> Option<Launch> {
        if held.is_empty() {
            return None;
        }
        let mut options = self.options(launch);
        options.retain(|option| option.offer.reservation().is_some_and(|id| held.contains(&id)));
        let mut pinned = self.narrowed(launch, &options)?;
        let mut by_key: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for need in options.iter().flat_map(|option| &option.offer.requirements) {
            if need.key.ends_with("reservation-id") && need.operator == Operator::In {
                by_key.entry(&need.key).or_default().extend(need.values.iter().cloned());
            }
        }
        for (key, mut values) in by_key {
            values.sort_unstable();
            values.dedup();
            pinned.requirements.retain(|need| need.key != key);
            let key = key.to_owned();
            pinned.requirements.push(Requirement {
                key,
                operator: Operator::In,
                values,
                min_values: None,
            });
        }
        pinned.requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Some(pinned)
    }

    /// The launch without reserved offerings.
    fn unreserved(&mut self, launch: &Launch) -> Option<Launch> {
        let mut options = self.options(launch);
        options.retain(|option| option.offer.capacity_type != CapacityType::Reserved);
        self.narrowed(launch, &options)
    }

    /// The launch with only some offerings; `None` without any, or with too few types for
    /// `minValues`.
    fn narrowed(&mut self, launch: &Launch, options: &[Choice<'s>]) -> Option<Launch> {
        let mut prices: BTreeMap<&str, MicroUsd> = BTreeMap::new();
        let mut kinds: Vec<&InstanceType> = Vec::new();
        for option in options {
            let price = option.offer.price;
            match prices.get_mut(option.kind.name.as_str()) {
                Some(least) => *least = price.min(*least),
                None => {
                    prices.insert(&option.kind.name, price);
                    kinds.push(option.kind);
                }
            }
        }
        kinds.sort_by_key(|kind| (prices[kind.name.as_str()], &kind.name));
        let price = *prices.get(kinds.first()?.name.as_str())?;
        if !self.has_min_values(&launch.requirements, &kinds) {
            return None;
        }
        let mut capacity_types: Vec<_> =
            options.iter().map(|option| option.offer.capacity_type).collect();
        capacity_types.sort_unstable();
        capacity_types.dedup();
        let mut narrowed = launch.clone();
        narrowed.price = price;
        let mut names: Vec<String> = kinds.iter().map(|kind| kind.name.clone()).collect();
        narrowed.instance_types = names.clone().into();
        names.sort_unstable();
        let mut kind_names: Vec<String> =
            capacity_types.iter().map(|kind| kind.as_str().to_owned()).collect();
        kind_names.sort_unstable();
        for need in &mut narrowed.requirements {
            match need.key.as_str() {
                label::INSTANCE_TYPE => need.values.clone_from(&names),
                label::CAPACITY_TYPE => need.values.clone_from(&kind_names),
                _ => {}
            }
        }
        narrowed.capacity_types = capacity_types;
        Some(narrowed)
    }

    fn has_min_values(&mut self, needs: &[Requirement], kinds: &[&InstanceType]) -> bool {
        needs.iter().all(|need| {
            let Some(required) = need.min_values else { return true };
            let set = ValueSet::new(need, &mut self.symbols);
            let mut found: Vec<&String> = kinds
                .iter()
                .flat_map(|kind| &kind.requirements)
                .filter(|of_kind| of_kind.key == need.key)
                .flat_map(|of_kind| &of_kind.values)
                .collect();
            found.sort_unstable();
            found.dedup();
            found.retain(|name| {
                let value = self.symbols.value(name);
                set.has(value, &self.symbols)
            });
            found.len() >= required as usize
        })
    }
}

/// The reservations that requirements pin a machine to.
pub(crate) fn reserved_ids(needs: &[Requirement]) -> impl Iterator<Item = &String> {
    needs
        .iter()
        .filter(|need| need.key.ends_with("reservation-id") && need.operator == Operator::In)
        .flat_map(|need| &need.values)
}
