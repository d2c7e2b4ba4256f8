//! What the pods of NodePools would cost on node groups, as Cluster Autoscaler scales them: nodes
//! of a few fixed instance types.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use tenon_crds::labels;
use tenon_planner::overlays;
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{CapacityType, Placement};
use tenon_planner::{Policy, Snapshot};

use super::super::prices::Prices;
use crate::explain::index;
use crate::fleet::pool_of;

/// A node group with one instance type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeGroup {
    /// Such as `m7i.2xlarge`.
    pub instance_type: String,
    /// Whether it has spot instances.
    pub spot: bool,
}

impl FromStr for NodeGroup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (instance_type, spot) = match text.split_once(':') {
            None | Some((_, "on-demand")) => (text.split(':').next().unwrap_or_default(), false),
            Some((instance_type, "spot")) => (instance_type, true),
            Some(_) => return Err("use TYPE, TYPE:on-demand or TYPE:spot".to_owned()),
        };
        if instance_type.is_empty() || instance_type.contains(char::is_whitespace) {
            return Err("name an instance type, such as m7i.2xlarge or m7i.2xlarge:spot".to_owned());
        }
        Ok(Self { instance_type: instance_type.to_owned(), spot })
    }
}

impl fmt::Display for NodeGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.instance_type)?;
        if self.spot { f.write_str(":spot") } else { Ok(()) }
    }
}

/// The pods of NodePools on node groups, and where they run now. Prices are in USD, and without
/// commitments.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OnNodeGroups {
    /// As they were typed.
    pub groups: Vec<String>,
    /// How many nodes the groups would have.
    pub nodes: usize,
    /// What these would cost.
    pub price_per_hour: f64,
    /// Pods that have no place there.
    pub pods_without_place: usize,
    /// How many nodes NodePools have.
    pub current_nodes: usize,
    /// What those whose price is known cost.
    pub current_price_per_hour: f64,
}

/// Packs the pods that run on nodes of NodePools onto node groups. Each NodePool keeps its labels,
/// taints, and requirements about architecture, operating system, zone and labels of its own; what
/// it says of instance types and capacity types does not count, and neither do its limits.
pub(super) fn compare(
    snapshot: &Snapshot,
    groups: &[NodeGroup],
    (policy, now, seed): (&Policy, Timestamp, u64),
) -> OnNodeGroups {
    let prices = Prices::new(snapshot);
    let ours = snapshot.nodes.iter().filter(|node| pool_of(node).is_some());
    let plan = tenon_planner::provision(&narrowed(snapshot, groups), policy, now, seed, &());
    OnNodeGroups {
        groups: groups.iter().map(ToString::to_string).collect(),
        nodes: plan.launches.len(),
        price_per_hour: plan.launches.iter().map(|launch| launch.price).sum::<MicroUsd>().as_usd(),
        pods_without_place: plan.report.pods.len(),
        current_nodes: ours.clone().count(),
        current_price_per_hour: ours.filter_map(|node| prices.of(node)).sum(),
    }
}

/// Instance types of node groups that no NodePool could launch.
pub(super) fn unknown<'a>(snapshot: &Snapshot, groups: &'a [NodeGroup]) -> BTreeSet<&'a str> {
    let types = snapshot.catalogs.iter().flat_map(|catalog| &catalog.instance_types);
    let known: BTreeSet<&str> = types.map(|kind| kind.name.as_str()).collect();
    let named = groups.iter().map(|group| group.instance_type.as_str());
    named.filter(|name| !known.contains(name)).collect()
}

/// The same pods, whose nodes go, with NodePools that launch nothing but these groups.
fn narrowed(snapshot: &Snapshot, groups: &[NodeGroup]) -> Snapshot {
    let mut narrowed = overlays::applied(snapshot.clone());
    for node in &mut narrowed.nodes {
        node.deleting |= pool_of(node).is_some();
    }
    for pod in &mut narrowed.pods {
        let comes_back = pod.is_reschedulable();
        match pod.placement {
            Placement::Bound(id) if comes_back && narrowed.nodes[index(id.0)].deleting => {
                pod.placement = Placement::Unschedulable;
            }
            // They cost nothing yet.
            Placement::Unschedulable => pod.placement = Placement::Waiting,
            Placement::Bound(_) | Placement::Waiting => {}
        }
    }
    for pool in &mut narrowed.node_pools {
        pool.limits.clear();
        pool.replicas = None;
        pool.not_ready = None;
        pool.template.requirements.retain(|requirement| is_kept(&requirement.key));
        for requirement in &mut pool.template.requirements {
            requirement.min_values = None;
        }
    }
    for catalog in &mut narrowed.catalogs {
        let types = &mut Arc::make_mut(catalog).instance_types;
        types.retain_mut(|kind| {
            let is_of = |group: &&NodeGroup| group.instance_type == kind.name;
            let bought: BTreeSet<bool> =
                groups.iter().filter(is_of).map(|group| group.spot).collect();
            kind.offerings.retain(|offering| match offering.capacity_type {
                CapacityType::OnDemand => bought.contains(&false),
                CapacityType::Spot => bought.contains(&true),
                CapacityType::Reserved => false,
            });
            !kind.offerings.is_empty()
        });
    }
    narrowed
}

/// Whether a requirement is about something else than what the instance is.
fn is_kept(key: &str) -> bool {
    let of_provider = ["karpenter.k8s.aws/", "karpenter.kwok.sh/"];
    key != labels::INSTANCE_TYPE
        && key != labels::CAPACITY_TYPE
        && !of_provider.iter().any(|prefix| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_groups_are_written_as_they_are_read() {
        for (text, expected) in [
            ("m7i.2xlarge", "m7i.2xlarge"),
            ("m7i.2xlarge:on-demand", "m7i.2xlarge"),
            ("m7i.2xlarge:spot", "m7i.2xlarge:spot"),
        ] {
            let group: NodeGroup = text.parse().expect("it is one");
            assert_eq!(group.to_string(), expected);
        }
        for wrong in ["", ":spot", "m7i.2xlarge:reserved", "m7i large"] {
            assert!(wrong.parse::<NodeGroup>().is_err(), "{wrong}");
        }
    }
}
