//! Costs in the format of FOCUS 1.2, the FinOps Open Cost and Usage Specification: what nodes cost
//! in the hour that is passing, at the prices of now, as charges that tools for cloud bills read.

use std::collections::BTreeMap;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde_json::json;
use tenon_crds::labels;
use tenon_planner::snapshot::{Node, Placement, Pod};

use super::super::prices::{Prices, capacity_type};
use super::Costs;
use super::share::{Shares, shares};
use crate::explain::index;
use crate::fleet::pool_of;

/// The columns of FOCUS 1.2 that are known, in the order of their names, then columns of our own.
const COLUMNS: [&str; 37] = [
    "AvailabilityZone",
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "Tags",
    "x_CostGroup",
    "x_IdleCost",
    "x_InstanceType",
    "x_NodePool",
];

/// Costs as a FOCUS dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Focus {
    /// A header and a row for each node, or for each node and each group of its pods.
    pub csv: String,
    /// Nodes whose price is not known; they have no rows.
    pub without_price: usize,
}

/// A share of a node, of an hour and of its price.
#[derive(Clone)]
struct Charge<'a> {
    node: &'a Node,
    /// Which pods pay it; empty for whole nodes.
    group: String,
    /// The part of a node-hour, 0 to 1.
    quantity: f64,
    /// In USD, for the whole node.
    price: f64,
    /// In USD, for the whole node: what it would cost on demand.
    list: f64,
    /// In USD: what of it no pod requests.
    idle: f64,
}

/// What all charges of a dataset have in common.
struct Periods {
    hour: [String; 2],
    month: [String; 2],
}

impl Costs {
    /// What nodes cost in this hour, billed to an AWS account.
    pub fn focus(&self, account: &str) -> Focus {
        let snapshot = &self.simulation.snapshot;
        let mut pods_of = vec![Vec::new(); snapshot.nodes.len()];
        for pod in &snapshot.pods {
            if let Placement::Bound(id) = pod.placement {
                pods_of[index(id.0)].push(pod);
            }
        }
        let prices = Prices::new(snapshot);
        let periods = Periods::of(self.simulation.options.now);
        let mut csv = format!("{}\n", COLUMNS.join(","));
        let mut without_price = 0;
        for (node, pods) in snapshot.nodes.iter().zip(&pods_of) {
            let Some(price) = prices.of(node) else {
                without_price += 1;
                continue;
            };
            let list = prices.on_demand(&node.labels).unwrap_or(price);
            let shares = shares(snapshot, node, pods, price);
            let whole = Charge {
                node,
                group: String::new(),
                quantity: 1.0,
                price,
                list,
                idle: shares.idle,
            };
            if self.by.of_node(node).is_some() || pods.is_empty() || price <= 0.0 {
                csv += &row(account, &self.by.to_string(), &periods, &whole);
                continue;
            }
            for (group, (requested, idle)) in self.by_group(pods, &shares) {
                let quantity = (requested + idle) / price;
                let part = Charge { group, quantity, idle, ..whole.clone() };
                csv += &row(account, &self.by.to_string(), &periods, &part);
            }
        }
        Focus { csv, without_price }
    }

    /// What groups of the pods of a node pay: for what they request, and for what is idle.
    fn by_group(&self, pods: &[&Pod], shares: &Shares) -> BTreeMap<String, (f64, f64)> {
        let mut groups: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (position, pod) in pods.iter().enumerate() {
            let (requested, idle) =
                groups.entry(self.groups.of(&self.by, pod).to_owned()).or_default();
            *requested += shares.pods[position];
            *idle += shares.idle_of(position);
        }
        groups
    }
}

impl Periods {
    /// The hour and the month, in UTC.
    fn of(now: Timestamp) -> Self {
        let now = TimeZone::UTC.to_datetime(now);
        let hour = now.date().at(now.hour(), 0, 0, 0);
        let month = now.date().first_of_month().at(0, 0, 0, 0);
        let text = |time: DateTime| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let both = |begin: DateTime, end: DateTime| [text(begin), text(end)];
        Self {
            hour: both(hour, hour.saturating_add(1.hour())),
            month: both(month, month.saturating_add(1.month())),
        }
    }
}

/// A line of the CSV, with its end.
fn row(account: &str, by: &str, periods: &Periods, charge: &Charge<'_>) -> String {
    let Charge { node, group, quantity, price, list, idle } = charge;
    let label = |key: &str| node.labels.get(key).cloned().unwrap_or_default();
    let name = node.name.clone().unwrap_or_else(|| node.key.clone());
    let instance = node.claim.as_ref().and_then(|claim| claim.provider_id.as_deref());
    let instance = instance.and_then(|id| id.rsplit('/').next()).unwrap_or(&name);
    let instance_type = label(labels::INSTANCE_TYPE);
    let node_pool = pool_of(node).unwrap_or_default();
    let payer = if group.is_empty() { String::new() } else { format!(", {by} {group}") };
    let tags =
        if node_pool.is_empty() { json!({}) } else { json!({ labels::NODEPOOL: node_pool }) };
    let category = match capacity_type(&node.labels) {
        Some("spot") => "Dynamic",
        _ => "Standard",
    };
    let cost = number(quantity * price);
    let quantity = || number(*quantity);
    let values: [String; COLUMNS.len()] = [
        label(labels::ZONE),
        cost.clone(),
        account.to_owned(),
        String::new(),
        "USD".to_owned(),
        periods.month[1].clone(),
        periods.month[0].clone(),
        "Usage".to_owned(),
        String::new(),
        format!("{instance_type} {}{payer}", capacity_type(&node.labels).unwrap_or_default()),
        "Usage-Based".to_owned(),
        periods.hour[1].clone(),
        periods.hour[0].clone(),
        quantity(),
        "Hours".to_owned(),
        cost.clone(),
        number(*price),
        cost,
        "AWS".to_owned(),
        number(charge.quantity * list),
        number(*list),
        category.to_owned(),
        quantity(),
        "Hours".to_owned(),
        "AWS".to_owned(),
        "AWS".to_owned(),
        label(labels::REGION),
        instance.to_owned(),
        name.clone(),
        "Instance".to_owned(),
        "Compute".to_owned(),
        "Amazon Elastic Compute Cloud".to_owned(),
        tags.to_string(),
        group.clone(),
        number(*idle),
        instance_type,
        node_pool.to_owned(),
    ];
    format!("{}\n", values.map(|value| quoted(&value)).join(","))
}

/// A number without an exponent, with as many digits as prices have, and more for what they are
/// multiplied by.
fn number(value: f64) -> String {
    format!("{value:.9}")
}

/// A value of a CSV line.
fn quoted(value: &str) -> String {
    if value.contains([',', '"', '\n']) {
        format!("\"{}\"", value.replace('"', "\"\""))
    } else {
        value.to_owned()
    }
}
