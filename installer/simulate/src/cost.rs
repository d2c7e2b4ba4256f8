//! What a cluster costs, and for what: the price of every node, shared out to its pods by what they
//! request, and the rest told apart as idle. The format is described in
//! `docs/src/reference/cost.md`.

mod bill;
mod by;
mod commitments;
mod focus;
mod idle;
mod node_groups;
mod savings;
mod share;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use tenon_planner::snapshot::{Node, Placement, Pod};

use self::bill::{Bill, NodeBill};
pub use self::bill::{Commitment, Committed};
pub use self::by::CostBy;
use self::by::Groups;
pub use self::commitments::{CommitmentKind, Commitments};
pub use self::focus::Focus;
pub use self::idle::Idle;
pub use self::node_groups::{NodeGroup, OnNodeGroups};
pub use self::savings::Savings;
use self::share::{Shares, shares};
use super::error::SimulateError;
use super::explain::{Known, index};
use super::fleet::pool_of;
use super::options::{Loops, Options};
use super::prices::{Discount, Prices};
use super::{Gathered, Simulation, from_gathered, gather};

/// The version of the format.
const SCHEMA: &str = "tenon.sh/cost/v1alpha1";

/// Hours of a month, as AWS's price lists count them.
const MONTH: f64 = 730.0;

/// What a cluster costs at one moment, in USD.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// When.
    pub now: Timestamp,
    /// What `rows` are of, such as `namespace` or `label=team`.
    pub by: String,
    /// The dearest first.
    pub rows: Vec<CostRow>,
    /// All nodes and pods.
    pub total: CostRow,
    /// What pods of DaemonSets take of the total, per hour.
    pub daemon_sets_per_hour: f64,
    /// Nodes whose price is not known; they are in no sum.
    pub without_price: usize,
    /// What spot instances cost less than on-demand ones; none without spot instances whose price
    /// is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot: Option<Discount>,
    /// Savings Plans and reserved instances, which the prices of nodes follow; none if none were
    /// named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed: Option<Committed>,
    /// Idle capacity by what keeps its nodes, the dearest first.
    pub idle: Vec<Idle>,
    /// What the pods of NodePools would cost on node groups; none if none were named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_groups: Option<OnNodeGroups>,
    /// What consolidation saved, by the operator's decision ledger; none if that was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub savings: Option<Savings>,
}

/// What some nodes, or some pods, cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CostRow {
    /// Name of the group.
    pub name: String,
    /// How many nodes; of pods, on how many they are.
    pub nodes: usize,
    /// How many pods.
    pub pods: usize,
    /// In USD: the share of the price that is requested by pods.
    pub requested_per_hour: f64,
    /// In USD: the rest. Of pods: the share of their nodes' rest, in proportion to what they
    /// request.
    pub idle_per_hour: f64,
    /// In USD: both.
    pub price_per_hour: f64,
    /// In USD, for 730 hours.
    pub price_per_month: f64,
}

impl CostRow {
    fn add(&mut self, requested: f64, idle: f64) {
        self.requested_per_hour += requested;
        self.idle_per_hour += idle;
        self.price_per_hour += requested + idle;
        self.price_per_month = self.price_per_hour * MONTH;
    }
}

/// A simulation with what its pods are grouped by.
#[derive(Debug)]
pub struct Costs {
    simulation: Simulation,
    by: CostBy,
    groups: Groups,
    commitments: Commitments,
    node_groups: Vec<NodeGroup>,
}

/// Reads what there is to read, as [`super::read()`] does, and what its pods are grouped by.
///
/// # Errors
/// When the input can't be read, or is a saved snapshot that does not tell pods apart by `by`.
pub async fn read_costs(
    options: Options,
    client: Option<&Client>,
    by: CostBy,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Costs, SimulateError> {
    let gathered = gather(&options, client, note).await?;
    let groups = match &gathered {
        Gathered::Objects(input) => Groups::new(&by, &input.pods),
        Gathered::Snapshot(_) if by.needs_pods() => {
            return Err(SimulateError::SnapshotWithoutOwners);
        }
        Gathered::Snapshot(_) => Groups::default(),
    };
    let simulation = from_gathered(gathered, options)?;
    let commitments = Commitments::default();
    Ok(Costs { simulation, by, groups, commitments, node_groups: Vec::new() })
}

impl Costs {
    /// The same with Savings Plans and reserved instances, which pay for nodes first.
    #[must_use]
    pub fn with(self, commitments: Commitments) -> Self {
        Self { commitments, ..self }
    }

    /// The same with node groups to compare with.
    ///
    /// # Errors
    /// When a group's instance type is none of those that NodePools can launch.
    pub fn on(self, node_groups: Vec<NodeGroup>) -> Result<Self, SimulateError> {
        let unknown = node_groups::unknown(&self.simulation.snapshot, &node_groups);
        match unknown.first() {
            Some(name) => Err(SimulateError::UnknownType { name: (*name).to_owned() }),
            None => Ok(Self { node_groups, ..self }),
        }
    }

    /// What was read, to be priced and observed.
    pub fn simulation(&mut self) -> &mut Simulation {
        &mut self.simulation
    }

    /// What it costs. Plans disruption, for what keeps idle nodes.
    pub fn cost(&mut self) -> Cost {
        let plans = self.simulation.planned(Loops::Both);
        let Simulation { snapshot, observed, options, .. } = &self.simulation;
        let known = Known { snapshot, plans: &plans, observed, now: options.now };
        let mut cost = Cost::new(known, &self.by, &self.groups, &self.commitments);
        if !self.node_groups.is_empty() {
            let with = (&options.policy, options.now, options.seed);
            cost.node_groups = Some(node_groups::compare(snapshot, &self.node_groups, with));
        }
        self.simulation.plans = Some(plans);
        cost
    }
}

impl Cost {
    fn new(known: Known<'_>, by: &CostBy, groups: &Groups, commitments: &Commitments) -> Self {
        let Known { snapshot, now, .. } = known;
        let mut pods_of = vec![Vec::new(); snapshot.nodes.len()];
        for pod in &snapshot.pods {
            if let Placement::Bound(id) = pod.placement {
                pods_of[index(id.0)].push(pod);
            }
        }
        let prices = Prices::new(snapshot);
        let bill = Bill::new(snapshot, &prices, commitments);
        let mut rows: BTreeMap<String, CostRow> = BTreeMap::new();
        let mut total = CostRow { name: "total".to_owned(), ..CostRow::default() };
        let mut idle = Vec::with_capacity(snapshot.nodes.len());
        let (mut daemons, mut without_price) = (0.0, 0);
        for ((node, pods), billed) in snapshot.nodes.iter().zip(&pods_of).zip(&bill.nodes) {
            let price = billed.as_ref().map(NodeBill::cost);
            without_price += usize::from(price.is_none());
            let price = price.unwrap_or(0.0);
            let shares = shares(snapshot, node, pods, price);
            daemons += daemon_share(pods, &shares);
            total.nodes += 1;
            total.pods += pods.len();
            total.add(shares.requested(), shares.idle);
            idle.push(shares.idle);
            match by.of_node(node) {
                Some(name) => {
                    let row = rows.entry(name).or_default();
                    row.nodes += 1;
                    row.pods += pods.len();
                    row.add(shares.requested(), shares.idle);
                }
                None => by_pod(&mut rows, (by, groups), pods, &shares),
            }
        }
        let mut rows: Vec<CostRow> =
            rows.into_iter().map(|(name, row)| CostRow { name, ..row }).collect();
        rows.sort_by(|a, b| {
            b.price_per_hour.total_cmp(&a.price_per_hour).then_with(|| a.name.cmp(&b.name))
        });
        Self {
            schema: SCHEMA,
            now,
            by: by.to_string(),
            rows,
            total,
            daemon_sets_per_hour: daemons,
            without_price,
            spot: prices.discount(snapshot),
            committed: bill.committed,
            idle: idle::by_reason(known, &idle),
            node_groups: None,
            savings: None,
        }
    }
}

/// Adds what the pods of a node cost to their rows.
fn by_pod(
    rows: &mut BTreeMap<String, CostRow>,
    (by, groups): (&CostBy, &Groups),
    pods: &[&Pod],
    shares: &Shares,
) {
    if pods.is_empty() {
        let row = rows.entry("(no pods)".to_owned()).or_default();
        row.nodes += 1;
        row.add(0.0, shares.idle);
        return;
    }
    let mut seen = BTreeSet::new();
    for (position, pod) in pods.iter().enumerate() {
        let name = groups.of(by, pod);
        let is_new = seen.insert(name);
        let row = match rows.get_mut(name) {
            Some(row) => row,
            None => rows.entry(name.to_owned()).or_default(),
        };
        row.nodes += usize::from(is_new);
        row.pods += 1;
        row.add(shares.pods[position], shares.idle_of(position));
    }
}

fn daemon_share(pods: &[&Pod], shares: &Shares) -> f64 {
    let daemons = pods.iter().zip(&shares.pods).filter(|(pod, _)| pod.daemon);
    daemons.map(|(_, share)| share).sum()
}

/// The value of a label, or that there is none.
fn label(node: &Node, key: &str) -> String {
    node.labels.get(key).cloned().unwrap_or_else(|| "(unknown)".to_owned())
}

/// The NodePool of a node.
fn node_pool(node: &Node) -> String {
    pool_of(node).unwrap_or("(none)").to_owned()
}
