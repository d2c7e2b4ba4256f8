//! Launching into capacity reservations: which reservation a machine goes into, and what EC2 takes
//! in one call.
//!
//! Pure.

use std::collections::BTreeMap;

use tenon_crds::ec2nodeclass::ReservationType;
use tenon_crds::labels::aws as keys;
use tenon_planner::snapshot::{CapacityType, Offering};

use super::candidate::Candidate;
use crate::aws::matching::single_value;

/// A capacity reservation that machines are launched into.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reservation {
    /// `CapacityReservationId`, `cr-…`.
    pub id: String,
    /// What kind it is.
    pub terms: Terms,
}

/// Kinds of reservations, in the order in which they are preferred at the same price. One call
/// launches into one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Terms {
    /// An on-demand capacity reservation.
    OnDemand,
    /// A capacity block for ML.
    CapacityBlock,
    /// A reservation that its owner takes back when needed.
    Interruptible,
}

impl Terms {
    /// `InstanceMarketOptions.MarketType` of a launch template.
    pub(crate) fn market_type(self) -> Option<&'static str> {
        match self {
            Self::OnDemand => None,
            Self::CapacityBlock => Some("capacity-block"),
            Self::Interruptible => Some("interruptible-capacity-reservation"),
        }
    }

    /// `DefaultTargetCapacityType` of a fleet.
    pub(crate) fn target_capacity_type(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::CapacityBlock => "capacity-block",
            Self::Interruptible => "reserved-capacity",
        }
    }

    /// The value of the label of the reservation's type.
    pub(crate) fn type_label(self) -> &'static str {
        match self {
            Self::OnDemand | Self::Interruptible => ReservationType::Default.as_str(),
            Self::CapacityBlock => ReservationType::CapacityBlock.as_str(),
        }
    }
}

impl Reservation {
    /// The one that an offering is from.
    pub(crate) fn of(offering: &Offering) -> Option<Self> {
        if offering.capacity_type != CapacityType::Reserved {
            return None;
        }
        let label = |key| single_value(&offering.requirements, key);
        let block =
            label(keys::CAPACITY_RESERVATION_TYPE) == Some(ReservationType::CapacityBlock.as_str());
        let interruptible = label(keys::CAPACITY_RESERVATION_INTERRUPTIBLE) == Some("true");
        let terms = match (block, interruptible) {
            (true, _) => Terms::CapacityBlock,
            (false, true) => Terms::Interruptible,
            (false, false) => Terms::OnDemand,
        };
        Some(Self { id: label(keys::CAPACITY_RESERVATION_ID)?.to_owned(), terms })
    }

    /// The labels of its machines.
    pub(crate) fn labels(&self) -> [(&'static str, String); 3] {
        let interruptible = self.terms == Terms::Interruptible;
        [
            (keys::CAPACITY_RESERVATION_ID, self.id.clone()),
            (keys::CAPACITY_RESERVATION_TYPE, self.terms.type_label().to_owned()),
            (keys::CAPACITY_RESERVATION_INTERRUPTIBLE, interruptible.to_string()),
        ]
    }
}

/// The candidates with nothing but reservations, if one of them has any: of one kind, and where EC2
/// would have to choose between several for the same type and zone, the one with the most room.
pub(crate) fn preferred(mut candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let Some((_, terms)) = candidates
        .iter()
        .flat_map(|candidate| &candidate.offerings)
        .filter_map(|offering| Some((offering.price, Reservation::of(offering)?.terms)))
        .min()
    else {
        return candidates;
    };
    keep(&mut candidates, |offering| Reservation::of(offering).is_some_and(|it| it.terms == terms));
    if terms == Terms::CapacityBlock {
        return only_cheapest(candidates);
    }
    for candidate in &mut candidates {
        let mut by_zone: BTreeMap<&str, &Offering> = BTreeMap::new();
        for &offering in &candidate.offerings {
            let best = by_zone.entry(&offering.zone).or_insert(offering);
            if offering.reservation_capacity > best.reservation_capacity {
                *best = offering;
            }
        }
        candidate.offerings = by_zone.into_values().collect();
    }
    candidates
}

/// A fleet takes one capacity block.
fn only_cheapest(mut candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let cheapest = candidates
        .iter()
        .flat_map(|candidate| {
            let name = candidate.instance_type.name.as_str();
            candidate
                .offerings
                .iter()
                .map(move |offering| (offering.price, name, offering.zone.as_str()))
        })
        .min();
    if let Some((price, name, zone)) = cheapest {
        candidates.retain(|candidate| candidate.instance_type.name == name);
        for candidate in &mut candidates {
            candidate.offerings.retain(|offering| offering.price == price && offering.zone == zone);
            candidate.offerings.truncate(1);
        }
    }
    candidates
}

fn keep(candidates: &mut Vec<Candidate<'_>>, wanted: impl Fn(&Offering) -> bool) {
    for candidate in candidates.iter_mut() {
        candidate.offerings.retain(|offering| wanted(offering));
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
}

/// The reservation of each type and zone. After [`preferred`] there is one.
pub(crate) fn by_place(candidates: &[Candidate<'_>]) -> BTreeMap<(String, String), Reservation> {
    let offered = candidates.iter().flat_map(|candidate| {
        let name = &candidate.instance_type.name;
        candidate.offerings.iter().map(move |offering| (name, offering))
    });
    offered
        .filter_map(|(name, offering)| {
            Some(((name.clone(), offering.zone.clone()), Reservation::of(offering)?))
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests;
