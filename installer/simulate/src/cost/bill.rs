//! What nodes cost once Savings Plans and reserved instances have been applied, in the order that
//! AWS applies them in: zonal reserved instances, regional ones, EC2 Instance Savings Plans,
//! Compute Savings Plans.

use jiff::Timestamp;
use serde::Serialize;
use tenon_crds::labels;
use tenon_planner::Snapshot;
use tenon_planner::snapshot::Node;
use tenon_state::ec2::offered::region_of_zone;

use super::super::prices::{Prices, capacity_type};
use super::commitments::{
    CommitmentKind, Commitments, RateKey, ReservedInstances, SavingsPlan, family, units,
};

/// Less of a node, or of a dollar, is none.
const NOTHING: f64 = 1e-9;

/// Savings Plans and reserved instances, and what of them a cluster uses, in USD.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Committed {
    /// Nodes that are covered, wholly or in part.
    pub nodes: usize,
    /// What all commitments cost.
    pub committed_per_hour: f64,
    /// What of that is for nodes of the cluster.
    pub used_per_hour: f64,
    /// What the covered part of these nodes would cost on demand.
    pub on_demand_per_hour: f64,
    /// What all nodes would cost on demand that could be covered.
    pub eligible_per_hour: f64,
    /// Each of them, in the order in which they are applied.
    pub commitments: Vec<Commitment>,
}

/// A Savings Plan, or reserved instances that were bought together, in USD.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Commitment {
    /// AWS's.
    pub id: String,
    /// What it is.
    pub kind: CommitmentKind,
    /// Until when.
    pub end: Option<Timestamp>,
    /// Nodes that it covers, wholly or in part.
    pub nodes: usize,
    /// What it costs.
    pub committed_per_hour: f64,
    /// What of that is for nodes of the cluster.
    pub used_per_hour: f64,
    /// What the covered part of these nodes would cost on demand.
    pub on_demand_per_hour: f64,
}

/// What one node costs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeBill {
    /// In USD per hour, without commitments.
    pub(super) price: f64,
    /// What commitments pay.
    pub(super) covered: Vec<Covered>,
}

/// The part of a node that a commitment pays.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Covered {
    /// Position of the commitment.
    pub(super) commitment: usize,
    /// Of the node, 0 to 1.
    pub(super) share: f64,
    /// In USD per hour, of the share.
    pub(super) cost: f64,
}

impl NodeBill {
    /// The part that no commitment pays, 0 to 1.
    pub(super) fn uncovered(&self) -> f64 {
        let covered: f64 = self.covered.iter().map(|it| it.share).sum();
        let left = 1.0 - covered;
        if left > NOTHING { left } else { 0.0 }
    }

    /// In USD per hour.
    pub(super) fn cost(&self) -> f64 {
        let covered: f64 = self.covered.iter().map(|it| it.cost).sum();
        self.uncovered() * self.price + covered
    }
}

/// What all nodes cost.
#[derive(Debug)]
pub(super) struct Bill {
    /// By position in the snapshot; none where no price is known.
    pub(super) nodes: Vec<Option<NodeBill>>,
    /// None without commitments.
    pub(super) committed: Option<Committed>,
}

impl Bill {
    pub(super) fn new(snapshot: &Snapshot, prices: &Prices<'_>, with: &Commitments) -> Self {
        let nodes = snapshot
            .nodes
            .iter()
            .map(|node| prices.of(node).map(|price| NodeBill { price, covered: Vec::new() }));
        let mut bill = Self { nodes: nodes.collect(), committed: None };
        if !with.are_known {
            return bill;
        }
        let priced = snapshot.nodes.iter().zip(&bill.nodes).enumerate();
        let mut usages: Vec<Usage<'_>> = priced
            .filter_map(|(position, (node, bill))| {
                Usage::new(position, node, bill.as_ref()?.price, prices)
            })
            .collect();
        usages.sort_by(|a, b| a.name.cmp(b.name));
        let eligible_per_hour = usages.iter().map(|usage| usage.list).sum();
        let mut applied = Applied { usages, commitments: Vec::new() };
        let (zonal, regional): (Vec<_>, Vec<_>) =
            with.reserved.iter().partition(|reserved| reserved.zone.is_some());
        for reserved in zonal.into_iter().chain(regional) {
            applied.reserve(reserved);
        }
        for kind in [CommitmentKind::Ec2InstanceSavingsPlan, CommitmentKind::ComputeSavingsPlan] {
            applied.save(&with.plans.iter().filter(|plan| plan.kind == kind).collect::<Vec<_>>());
        }
        let Applied { usages, commitments } = applied;
        let sum = |of: fn(&Commitment) -> f64| commitments.iter().map(of).sum::<f64>();
        bill.committed = Some(Committed {
            nodes: usages.iter().filter(|usage| !usage.covered.is_empty()).count(),
            committed_per_hour: sum(|it| it.committed_per_hour),
            used_per_hour: sum(|it| it.used_per_hour),
            on_demand_per_hour: sum(|it| it.on_demand_per_hour),
            eligible_per_hour,
            commitments,
        });
        for usage in usages {
            if let Some(node) = &mut bill.nodes[usage.position] {
                node.covered = usage.covered;
            }
        }
        bill
    }
}

/// A node that AWS bills as an on-demand instance.
#[derive(Debug)]
struct Usage<'a> {
    /// In the snapshot.
    position: usize,
    name: &'a str,
    zone: &'a str,
    key: RateKey,
    /// Normalized units, where its size is known.
    units: Option<f64>,
    /// In USD per hour: the list price.
    list: f64,
    /// The part that nothing covers yet, 0 to 1.
    left: f64,
    covered: Vec<Covered>,
}

impl<'a> Usage<'a> {
    /// None of spot instances and capacity blocks, which no commitment covers, nor of Windows
    /// nodes: commitments have other prices for them than the ones that are read.
    fn new(position: usize, node: &'a Node, price: f64, prices: &Prices<'_>) -> Option<Self> {
        let label = |key: &str| node.labels.get(key).map(String::as_str);
        let is_billed = matches!(capacity_type(&node.labels)?, "on-demand" | "reserved");
        if !is_billed || label(labels::OS) == Some("windows") {
            return None;
        }
        let zone = label(labels::ZONE).unwrap_or_default();
        let instance_type = label(labels::INSTANCE_TYPE)?;
        Some(Self {
            position,
            name: &node.key,
            zone,
            units: units(instance_type, f64::from(processors(node))),
            key: RateKey {
                region: label(labels::REGION).or_else(|| region_of_zone(zone))?.to_owned(),
                instance_type: instance_type.to_owned(),
                dedicated: label(labels::aws::INSTANCE_TENANCY) == Some("dedicated"),
            },
            list: prices.on_demand(&node.labels).unwrap_or(price),
            left: 1.0,
            covered: Vec::new(),
        })
    }

    /// Covers a part of it.
    fn cover(&mut self, by: &mut Commitment, commitment: usize, share: f64, cost: f64) {
        self.left = (self.left - share).max(0.0);
        self.covered.push(Covered { commitment, share, cost });
        by.nodes += 1;
        by.used_per_hour += cost;
        by.on_demand_per_hour += share * self.list;
    }
}

/// Whole processors of a node.
fn processors(node: &Node) -> u32 {
    u32::try_from(node.capacity.cpu.max(node.allocatable.cpu).max(0) / 1000).unwrap_or(u32::MAX)
}

/// Commitments that have been applied, and what is left for others.
struct Applied<'a> {
    usages: Vec<Usage<'a>>,
    commitments: Vec<Commitment>,
}

impl Applied<'_> {
    /// Applies reserved instances to nodes of their type or, of the family's other sizes, to the
    /// smallest first.
    fn reserve(&mut self, reserved: &ReservedInstances) {
        let commitment = self.commitments.len();
        let mut by = Commitment {
            id: reserved.id.clone(),
            kind: CommitmentKind::ReservedInstances,
            end: reserved.end,
            nodes: 0,
            committed_per_hour: reserved.count * reserved.price,
            used_per_hour: 0.0,
            on_demand_per_hour: 0.0,
        };
        let of = &reserved.instance_type;
        let flexible = if reserved.is_flexible() { units(of, 0.0) } else { None };
        let mut matching: Vec<&mut Usage<'_>> = self
            .usages
            .iter_mut()
            .filter(|usage| {
                let RateKey { instance_type, dedicated, .. } = &usage.key;
                let same_type = match flexible {
                    Some(_) => usage.units.is_some() && family(instance_type) == family(of),
                    None => instance_type == of,
                };
                let in_zone = reserved.zone.as_deref().is_none_or(|zone| zone == usage.zone);
                same_type && in_zone && !dedicated && usage.left > NOTHING
            })
            .collect();
        // Of one instance; all are the same where sizes don't count.
        let size = |usage: &Usage<'_>| match flexible {
            Some(one) => usage.units.unwrap_or(one) / one,
            None => 1.0,
        };
        matching.sort_by(|a, b| size(a).total_cmp(&size(b)));
        let mut left = reserved.count;
        for usage in matching {
            if left <= NOTHING {
                break;
            }
            let size = size(usage);
            let instances = left.min(usage.left * size);
            left -= instances;
            usage.cover(&mut by, commitment, instances / size, instances * reserved.price);
        }
        self.commitments.push(by);
    }

    /// Applies Savings Plans together: what they save most of, in percent, comes first, then what
    /// has the lower rate.
    fn save(&mut self, plans: &[&SavingsPlan]) {
        let first = self.commitments.len();
        let mut offers = Vec::new();
        for (position, plan) in plans.iter().enumerate() {
            for (usage, it) in self.usages.iter().enumerate() {
                let rate = plan.rates.get(&it.key).copied();
                let Some(rate) = rate.filter(|rate| *rate > 0.0 && *rate < it.list) else {
                    continue;
                };
                offers.push((position, usage, rate, rate / it.list));
            }
        }
        offers.sort_by(|a, b| a.3.total_cmp(&b.3).then_with(|| a.2.total_cmp(&b.2)));
        self.commitments.extend(plans.iter().map(|plan| Commitment {
            id: plan.id.clone(),
            kind: plan.kind,
            end: plan.end,
            nodes: 0,
            committed_per_hour: plan.commitment,
            used_per_hour: 0.0,
            on_demand_per_hour: 0.0,
        }));
        for (plan, usage, rate, _) in offers {
            let commitment = first + plan;
            let by = &mut self.commitments[commitment];
            let usage = &mut self.usages[usage];
            let share = usage.left.min((by.committed_per_hour - by.used_per_hour) / rate);
            if share > NOTHING {
                usage.cover(by, commitment, share, share * rate);
            }
        }
    }
}

#[cfg(test)]
mod tests;
