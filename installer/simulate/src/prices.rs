//! What nodes cost, those of other tools among them, and what spot instances cost less than
//! on-demand ones of the same types in the same zones.

use std::collections::BTreeMap;

use serde::Serialize;
use tenon_crds::labels;
use tenon_planner::Snapshot;
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{CapacityType, Node};

/// How managed node groups of EKS label their nodes: `SPOT`, `ON_DEMAND` or `CAPACITY_BLOCK`.
const OF_NODE_GROUPS: &str = "eks.amazonaws.com/capacityType";

/// Spot instances beside what they would cost on demand, in USD.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Discount {
    /// Spot nodes whose price is known, both as spot and on demand.
    pub nodes: usize,
    /// What they cost.
    pub price_per_hour: f64,
    /// What they would cost on demand.
    pub on_demand_per_hour: f64,
}

/// The prices of the catalogs.
#[derive(Debug)]
pub(super) struct Prices<'a> {
    on_demand: BTreeMap<(&'a str, &'a str), MicroUsd>,
    spot: BTreeMap<(&'a str, &'a str), MicroUsd>,
}

impl<'a> Prices<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let mut prices = Self { on_demand: BTreeMap::new(), spot: BTreeMap::new() };
        let types = snapshot.catalogs.iter().flat_map(|catalog| &catalog.instance_types);
        for kind in types {
            for offering in &kind.offerings {
                let known = match offering.capacity_type {
                    CapacityType::OnDemand => &mut prices.on_demand,
                    CapacityType::Spot => &mut prices.spot,
                    CapacityType::Reserved => continue,
                };
                if let Some(price) = offering.known_price() {
                    known.insert((&kind.name, &offering.zone), price);
                }
            }
        }
        prices
    }

    /// What a node costs per hour, if that is known. The planner knows it of those that have a
    /// NodePool; others cost what the catalogs say. An instance in a capacity reservation is billed
    /// as an on-demand one: the planner's price of it is next to nothing, because its capacity is
    /// paid for in any case. What a capacity block costs is not known.
    pub(super) fn of(&self, node: &Node) -> Option<f64> {
        if is_reserved(node) {
            return if is_block(&node.labels) { None } else { self.on_demand(&node.labels) };
        }
        let known = node.price.map(MicroUsd::as_usd);
        known.or_else(|| self.listed(&node.labels))
    }

    /// What the catalogs say that a node with these labels costs per hour.
    pub(super) fn listed(&self, labels: &BTreeMap<String, String>) -> Option<f64> {
        let price = match capacity_type(labels)? {
            "spot" => self.spot.get(&key(labels)),
            "on-demand" => self.on_demand.get(&key(labels)),
            _ => None,
        };
        price.map(|price| price.as_usd())
    }

    /// What the catalogs say that a node with these labels costs per hour on demand.
    pub(super) fn on_demand(&self, labels: &BTreeMap<String, String>) -> Option<f64> {
        self.on_demand.get(&key(labels)).map(|price| price.as_usd())
    }

    /// What the spot nodes cost, and would cost on demand.
    pub(super) fn discount(&self, snapshot: &Snapshot) -> Option<Discount> {
        let mut sum = Discount { nodes: 0, price_per_hour: 0.0, on_demand_per_hour: 0.0 };
        for node in snapshot.nodes.iter().filter(|node| capacity_type(&node.labels) == Some("spot"))
        {
            let on_demand = self.on_demand(&node.labels);
            if let (Some(price), Some(on_demand)) = (self.of(node), on_demand) {
                sum.nodes += 1;
                sum.price_per_hour += price;
                sum.on_demand_per_hour += on_demand;
            }
        }
        (sum.nodes > 0).then_some(sum)
    }
}

/// What AWS bills: the planner's prices, but for nodes in capacity reservations.
#[derive(Debug)]
pub(super) struct Billed<'a> {
    /// Only where there are such nodes.
    prices: Option<Prices<'a>>,
}

impl<'a> Billed<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let any = snapshot.nodes.iter().any(is_reserved);
        Self { prices: any.then(|| Prices::new(snapshot)) }
    }

    /// In USD per hour, where it is known.
    pub(super) fn of(&self, node: &Node) -> Option<f64> {
        match &self.prices {
            Some(prices) if is_reserved(node) => prices.of(node),
            _ => node.price.map(MicroUsd::as_usd),
        }
    }
}

fn is_reserved(node: &Node) -> bool {
    capacity_type(&node.labels) == Some("reserved")
}

/// `spot`, `on-demand` or `reserved`; instances of unlabelled node groups are on-demand ones.
pub(super) fn capacity_type(labels: &BTreeMap<String, String>) -> Option<&str> {
    if let Some(known) = labels.get(labels::CAPACITY_TYPE) {
        return Some(known);
    }
    match labels.get(OF_NODE_GROUPS).map(String::as_str) {
        Some("SPOT") => Some("spot"),
        Some("CAPACITY_BLOCK") => Some("reserved"),
        Some(_) => Some("on-demand"),
        None => labels.contains_key(labels::INSTANCE_TYPE).then_some("on-demand"),
    }
}

/// Whether the capacity of a node was paid for as a block.
fn is_block(labels: &BTreeMap<String, String>) -> bool {
    let is = |key: &str, value: &str| labels.get(key).is_some_and(|it| it == value);
    is(labels::aws::CAPACITY_RESERVATION_TYPE, "capacity-block")
        || is(OF_NODE_GROUPS, "CAPACITY_BLOCK")
}

/// Instance type and zone.
fn key(labels: &BTreeMap<String, String>) -> (&str, &str) {
    let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
    (label(labels::INSTANCE_TYPE), label(labels::ZONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_node_groups_have_a_capacity_type() {
        let all = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let type_ = ("node.kubernetes.io/instance-type", "m7i.large");
        for (labels, expected) in [
            (&[type_, ("karpenter.sh/capacity-type", "spot")][..], Some("spot")),
            (&[type_, (OF_NODE_GROUPS, "SPOT")], Some("spot")),
            (&[type_, (OF_NODE_GROUPS, "ON_DEMAND")], Some("on-demand")),
            (&[type_, (OF_NODE_GROUPS, "CAPACITY_BLOCK")], Some("reserved")),
            (&[type_], Some("on-demand")),
            // It may run anywhere.
            (&[], None),
        ] {
            assert_eq!(capacity_type(&all(labels)), expected, "{labels:?}");
        }
    }
}
