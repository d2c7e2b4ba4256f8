//! What nodes cost, those of other tools among them, and what spot instances cost less than
//! on-demand ones of the same types in the same zones.

use std::collections::BTreeMap;

use serde::Serialize;
use tenon_crds::labels;
use tenon_planner::Snapshot;
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{CapacityType, InstanceType, Node};
use tenon_state::ec2::is_for_windows;
use tenon_state::ec2::prices::windows_license;

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
    on_demand: ByPlace<'a>,
    spot: ByPlace<'a>,
}

/// By instance type and zone.
type ByPlace<'a> = BTreeMap<(&'a str, &'a str), Machine>;

#[derive(Debug)]
struct Machine {
    /// With Linux.
    price: MicroUsd,
    /// In thousandths.
    cpu: i64,
}

impl<'a> Prices<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let mut prices = Self { on_demand: BTreeMap::new(), spot: BTreeMap::new() };
        let types = snapshot.catalogs.iter().flat_map(|catalog| &catalog.instance_types);
        for kind in types {
            let cpu = kind.capacity.cpu;
            for offering in &kind.offerings {
                let known = match offering.capacity_type {
                    CapacityType::OnDemand => &mut prices.on_demand,
                    CapacityType::Spot => &mut prices.spot,
                    CapacityType::Reserved => continue,
                };
                if let Some(MicroUsd(price)) = offering.known_price() {
                    let license = license_of_type(kind, &offering.zone);
                    let price = MicroUsd(price - license.0);
                    known.insert((&kind.name, &offering.zone), Machine { price, cpu });
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
        match capacity_type(labels)? {
            "spot" => price(&self.spot, labels),
            "on-demand" => price(&self.on_demand, labels),
            _ => None,
        }
    }

    /// What the catalogs say that a node with these labels costs per hour on demand.
    pub(super) fn on_demand(&self, labels: &BTreeMap<String, String>) -> Option<f64> {
        price(&self.on_demand, labels)
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

fn price(machines: &ByPlace<'_>, labels: &BTreeMap<String, String>) -> Option<f64> {
    let machine = machines.get(&key(labels))?;
    Some(MicroUsd(machine.price.0 + license_of_node(labels, machine.cpu).0).as_usd())
}

/// What the operating system of a node with these labels costs per hour on so many thousandths of a
/// CPU. It is part of the node's price.
pub(super) fn license_of_node(labels: &BTreeMap<String, String>, cpu: i64) -> MicroUsd {
    let (instance_type, zone) = key(labels);
    match labels.get(labels::OS).map(String::as_str) {
        Some("windows") => windows_license(instance_type, cpu / 1000, zone),
        _ => MicroUsd(0),
    }
}

/// The same of the nodes that a catalog's type makes.
pub(super) fn license_of_type(kind: &InstanceType, zone: &str) -> MicroUsd {
    if is_for_windows(kind) {
        windows_license(&kind.name, kind.capacity.cpu / 1000, zone)
    } else {
        MicroUsd(0)
    }
}

/// Instance type and zone.
fn key(labels: &BTreeMap<String, String>) -> (&str, &str) {
    let label = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
    (label(labels::INSTANCE_TYPE), label(labels::ZONE))
}

#[cfg(test)]
mod tests {
    use tenon_planner::resources::Resources;
    use tenon_planner::snapshot::{Catalog, NodeClassRef, Offering, Operator, Requirement};

    use super::*;

    /// Whichever system the nodes of a catalog run, others may run another one.
    #[test]
    fn the_license_of_windows_is_a_part_of_the_price_of_windows_nodes_only() {
        const ZONE: &str = "eu-west-1a";
        let offering = |price: i64| Offering {
            zone: ZONE.to_owned(),
            capacity_type: CapacityType::OnDemand,
            requirements: Vec::new(),
            price: MicroUsd(price),
            available: true,
            reservation_capacity: None,
            unpriced: None,
        };
        let mut kind = InstanceType {
            name: "m5.large".to_owned(),
            capacity: Resources { cpu: 2000, ..Resources::default() },
            offerings: vec![offering(100_000)],
            ..InstanceType::default()
        };
        let snapshot = |kind: &InstanceType| {
            let node_class = NodeClassRef::default();
            let catalog = Catalog { node_class, instance_types: vec![kind.clone()] };
            Snapshot { catalogs: vec![catalog.into()], ..Snapshot::default() }
        };
        let linux = snapshot(&kind);
        kind.requirements = vec![Requirement {
            key: labels::OS.to_owned(),
            operator: Operator::In,
            values: vec!["windows".to_owned()],
            min_values: None,
        }];
        kind.offerings = vec![offering(192_000)];
        let windows = snapshot(&kind);
        for catalogs in [linux, windows] {
            let prices = Prices::new(&catalogs);
            for (os, expected) in [("linux", 100_000), ("windows", 192_000)] {
                let pairs =
                    [(labels::OS, os), (labels::INSTANCE_TYPE, "m5.large"), (labels::ZONE, ZONE)];
                let node = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
                let price = prices.listed(&node).map(MicroUsd::from_usd);
                assert_eq!(price, Some(MicroUsd(expected)), "{os}");
            }
        }
    }

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
