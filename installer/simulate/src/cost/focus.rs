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
use super::bill::{Bill, Commitment, NodeBill};
use super::commitments::CommitmentKind;
use super::share::{Shares, shares};
use crate::explain::index;
use crate::fleet::pool_of;

/// A column and what a charge has in it.
type Column = (&'static str, fn(&Row<'_>) -> String);

/// The columns of FOCUS 1.2 that are known, in the order of their names, then columns of our own.
/// An empty value is null.
const COLUMNS: [Column; 42] = [
    ("AvailabilityZone", |row| row.label(labels::ZONE)),
    ("BilledCost", |row| number(if row.by.is_some() { 0.0 } else { row.cost })),
    ("BillingAccountId", |row| row.dataset.account.to_owned()),
    ("BillingAccountName", |_| String::new()),
    ("BillingCurrency", |_| "USD".to_owned()),
    ("BillingPeriodEnd", |row| text(row.dataset.month.1)),
    ("BillingPeriodStart", |row| text(row.dataset.month.0)),
    ("ChargeCategory", |_| "Usage".to_owned()),
    ("ChargeClass", |_| String::new()),
    ("ChargeDescription", |row| row.description()),
    ("ChargeFrequency", |_| "Usage-Based".to_owned()),
    ("ChargePeriodEnd", |row| text(row.dataset.hour.1)),
    ("ChargePeriodStart", |row| text(row.dataset.hour.0)),
    ("CommitmentDiscountCategory", |row| row.committed(category)),
    ("CommitmentDiscountId", |row| row.committed(|by| by.id.clone())),
    ("CommitmentDiscountName", |row| row.committed(|by| by.id.clone())),
    ("CommitmentDiscountStatus", |row| row.committed(|_| "Used".to_owned())),
    ("CommitmentDiscountType", |row| row.committed(|by| by.kind.words().to_owned())),
    ("ConsumedQuantity", |row| number(row.quantity)),
    ("ConsumedUnit", |_| "Hours".to_owned()),
    ("ContractedCost", |row| number(row.quantity * row.price)),
    ("ContractedUnitPrice", |row| number(row.price)),
    ("EffectiveCost", |row| number(row.cost)),
    ("InvoiceIssuerName", |_| "AWS".to_owned()),
    ("ListCost", |row| number(row.quantity * row.list)),
    ("ListUnitPrice", |row| number(row.list)),
    ("PricingCategory", |row| row.category().to_owned()),
    ("PricingQuantity", |row| number(row.quantity)),
    ("PricingUnit", |_| "Hours".to_owned()),
    ("ProviderName", |_| "AWS".to_owned()),
    ("PublisherName", |_| "AWS".to_owned()),
    ("RegionId", |row| row.label(labels::REGION)),
    ("ResourceId", |row| row.instance()),
    ("ResourceName", |row| row.node_name()),
    ("ResourceType", |_| "Instance".to_owned()),
    ("ServiceCategory", |_| "Compute".to_owned()),
    ("ServiceName", |_| "Amazon Elastic Compute Cloud".to_owned()),
    ("Tags", |row| row.tags()),
    ("x_CostGroup", |row| row.group.clone()),
    ("x_IdleCost", |row| number(row.idle)),
    ("x_InstanceType", |row| row.label(labels::INSTANCE_TYPE)),
    ("x_NodePool", |row| pool_of(row.node).unwrap_or_default().to_owned()),
];

/// Costs as a FOCUS dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Focus {
    /// A header and a row for each node, or for each node and each group of its pods.
    pub csv: String,
    /// Nodes whose price is not known; they have no rows.
    pub without_price: usize,
}

/// What all charges have in common.
struct Dataset<'a> {
    account: &'a str,
    /// What pods are grouped by.
    by: String,
    /// Begin and end, in UTC, of the hour and of its month.
    hour: (DateTime, DateTime),
    month: (DateTime, DateTime),
}

/// A charge: a node for an hour, or a share of that.
#[derive(Clone)]
struct Row<'a> {
    dataset: &'a Dataset<'a>,
    node: &'a Node,
    /// Which pods pay it; empty for whole nodes.
    group: String,
    /// The part of a node-hour, 0 to 1.
    quantity: f64,
    /// In USD.
    cost: f64,
    /// The commitment that pays it.
    by: Option<&'a Commitment>,
    /// In USD, for the whole node, without commitments.
    price: f64,
    /// In USD, for the whole node: what it would cost on demand.
    list: f64,
    /// In USD: what of it no pod requests.
    idle: f64,
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
        let bill = Bill::new(snapshot, &prices, &self.commitments);
        let commitments = bill.committed.as_ref().map(|it| it.commitments.as_slice());
        let commitments = commitments.unwrap_or_default();
        let dataset = Dataset::new(account, self.by.to_string(), self.simulation.options.now);
        let mut csv = format!("{}\n", COLUMNS.map(|(name, _)| name).join(","));
        let mut without_price = 0;
        for ((node, pods), billed) in snapshot.nodes.iter().zip(&pods_of).zip(&bill.nodes) {
            let Some(billed) = billed else {
                without_price += 1;
                continue;
            };
            let cost = billed.cost();
            let shares = shares(snapshot, node, pods, cost);
            let whole = Row {
                dataset: &dataset,
                node,
                group: String::new(),
                quantity: 1.0,
                cost,
                by: None,
                price: billed.price,
                list: prices.on_demand(&node.labels).unwrap_or(billed.price),
                idle: shares.idle,
            };
            let by_node = self.by.of_node(node).is_some() || pods.is_empty() || cost <= 0.0;
            let groups = if by_node { BTreeMap::new() } else { self.by_group(pods, &shares) };
            for part in parts(&whole, billed, commitments) {
                if by_node {
                    csv += &part.line();
                }
                for (group, (requested, idle)) in &groups {
                    csv += &part.scaled(group, (requested + idle) / cost, idle / cost).line();
                }
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

/// The charges of a node: one for what nothing was bought for in advance, one for each commitment.
fn parts<'a>(whole: &Row<'a>, billed: &NodeBill, commitments: &'a [Commitment]) -> Vec<Row<'a>> {
    let all = billed.cost();
    let part = |share: f64, cost: f64, by| Row {
        quantity: share,
        cost,
        by,
        idle: if all > 0.0 { whole.idle * cost / all } else { 0.0 },
        ..whole.clone()
    };
    let uncovered = billed.uncovered();
    let mut parts = Vec::with_capacity(1 + billed.covered.len());
    if uncovered > 0.0 {
        parts.push(part(uncovered, uncovered * billed.price, None));
    }
    parts.extend(
        billed.covered.iter().map(|it| part(it.share, it.cost, commitments.get(it.commitment))),
    );
    parts
}

/// As FOCUS tells them apart: by how much is used, or by what it costs.
fn category(by: &Commitment) -> String {
    match by.kind {
        CommitmentKind::ReservedInstances => "Usage".to_owned(),
        CommitmentKind::Ec2InstanceSavingsPlan | CommitmentKind::ComputeSavingsPlan => {
            "Spend".to_owned()
        }
    }
}

impl<'a> Dataset<'a> {
    fn new(account: &'a str, by: String, now: Timestamp) -> Self {
        let now = TimeZone::UTC.to_datetime(now);
        let hour = now.date().at(now.hour(), 0, 0, 0);
        let month = now.date().first_of_month().at(0, 0, 0, 0);
        Self {
            account,
            by,
            hour: (hour, hour.saturating_add(1.hour())),
            month: (month, month.saturating_add(1.month())),
        }
    }
}

impl Row<'_> {
    /// A line of the CSV, with its end.
    fn line(&self) -> String {
        format!("{}\n", COLUMNS.map(|(_, value)| quoted(&value(self))).join(","))
    }

    fn label(&self, key: &str) -> String {
        self.node.labels.get(key).cloned().unwrap_or_default()
    }

    /// The share of it that a group of pods pays; `idle` is the share of the node's cost that is
    /// idle and falls to the group.
    fn scaled(&self, group: &str, share: f64, idle: f64) -> Self {
        Self {
            group: group.to_owned(),
            quantity: self.quantity * share,
            cost: self.cost * share,
            idle: self.cost * idle,
            ..self.clone()
        }
    }

    /// Something of the commitment that pays it.
    fn committed(&self, of: impl FnOnce(&Commitment) -> String) -> String {
        self.by.map(of).unwrap_or_default()
    }

    fn category(&self) -> &'static str {
        if self.by.is_some() {
            "Committed"
        } else if capacity_type(&self.node.labels) == Some("spot") {
            "Dynamic"
        } else {
            "Standard"
        }
    }

    /// `m7i.large spot, namespace shop`
    fn description(&self) -> String {
        let capacity_type = capacity_type(&self.node.labels).unwrap_or_default();
        let whole = format!("{} {capacity_type}", self.label(labels::INSTANCE_TYPE));
        if self.group.is_empty() {
            whole
        } else {
            format!("{whole}, {} {}", self.dataset.by, self.group)
        }
    }

    fn node_name(&self) -> String {
        self.node.name.clone().unwrap_or_else(|| self.node.key.clone())
    }

    /// The id of the instance; where only the Node is known, its name.
    fn instance(&self) -> String {
        let claim = self.node.claim.as_ref();
        let id = claim.and_then(|claim| claim.provider_id.as_deref()?.rsplit('/').next());
        id.map_or_else(|| self.node_name(), str::to_owned)
    }

    /// Of those that the operator sets on the instance, the one that tells whose it is.
    fn tags(&self) -> String {
        match pool_of(self.node) {
            Some(pool) => json!({ labels::NODEPOOL: pool }),
            None => json!({}),
        }
        .to_string()
    }
}

fn text(time: DateTime) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
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
