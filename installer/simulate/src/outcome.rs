//! What a simulation found, as data. The format is described in `docs/src/reference/simulate.md`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use tenon_crds::{ResourceList, labels};
use tenon_planner::plan::{self, Plan, Shortage, StayReason};
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{
    CapacityType, DisruptionReason, InstanceType, Placement, Requirement,
};
use tenon_planner::{Bound, Snapshot};
use tenon_state::resources;

use super::buffers::{self, Buffer};
use super::drain::Drained;
use super::parts::{PodName, WhyNot, why_not};
use super::words::{self, counted};

/// The version of the format.
pub(super) const SCHEMA: &str = "tenon.sh/simulation/v1alpha1";

/// What would happen, and why the rest would not.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The moment that was planned for.
    pub now: Timestamp,
    /// What breaks ties.
    pub seed: u64,
    /// Machines for pending pods.
    pub launches: Vec<Launch>,
    /// Pending pods that fit on machines that are there, by machine.
    pub placements: Vec<Placed>,
    /// Pods that stay pending.
    pub unschedulable: Vec<Unschedulable>,
    /// What comes of each CapacityBuffer.
    pub buffers: Vec<Buffer>,
    /// Nodes that would go.
    pub disruptions: Vec<Disruption>,
    /// Nodes that were looked at and stay.
    pub staying: Vec<Staying>,
    /// NodePools that took no part.
    pub node_pools: Vec<Skipped>,
    /// Nodes that were taken as drained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
    /// Figures.
    pub totals: Totals,
    /// What a person should know about the input.
    pub warnings: Vec<String>,
    /// Kinds that were left out, and how often they were met.
    pub skipped_kinds: BTreeMap<String, usize>,
}

/// A machine to launch.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// The NodePool.
    pub node_pool: String,
    /// What the machine has to be.
    pub requirements: Vec<Requirement>,
    /// Types that hold the pods, cheapest first.
    pub instance_types: Vec<PricedType>,
    /// How it may be bought.
    pub capacity_types: Vec<CapacityType>,
    /// What pods and daemons ask for together.
    pub requests: ResourceList,
    /// US dollars per hour of the cheapest offering.
    pub price_per_hour: f64,
    /// What it may come to cost. Not of replacements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_range_per_hour: Option<PriceRange>,
    /// The pods that it is for.
    pub pods: Vec<PodName>,
    /// For how many pods to come it keeps room (CapacityBuffers).
    pub buffer_pods: usize,
}

/// What a launch may come to cost, depending on which of its types and zones it is given. US
/// dollars per hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PriceRange {
    /// Of the cheapest offering.
    pub cheapest: f64,
    /// Spot is chosen by capacity, too, so there it is the mean over the types, each where it is
    /// cheapest; else it is the cheapest.
    pub expected: f64,
    /// Of the dearest offering.
    pub dearest: f64,
}

/// An instance type with what it costs here.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PricedType {
    /// Such as `m7i.large`.
    pub name: String,
    /// US dollars per hour of the cheapest offering that the machine may use.
    pub price_per_hour: Option<f64>,
}

/// Pods that would go to a machine that is there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Placed {
    /// The NodeClaim's name, or the Node's where there is no NodeClaim.
    pub node: String,
    /// Those that are nominated to it.
    pub pods: Vec<PodName>,
}

/// A pod that stays pending.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unschedulable {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Why, NodePool by NodePool. Empty when there is none.
    pub reasons: Vec<WhyNot>,
}

/// Nodes that would go together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Why.
    pub reason: DisruptionReason,
    /// How it was found.
    pub method: plan::Method,
    /// The nodes, named as in [`Placed`].
    pub nodes: Vec<String>,
    /// Pods that would move.
    pub pods: Vec<PodName>,
    /// Machines that would be launched first.
    pub replacements: Vec<Launch>,
    /// Why the nodes go before anything comes in their place, if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminate_first: Option<Shortage>,
    /// US dollars per hour; negative when it costs more.
    pub savings_per_hour: f64,
}

/// A node that stays.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Staying {
    /// Named as in [`Placed`].
    pub node: String,
    /// In words.
    pub message: String,
    /// As data.
    pub reason: StayReason,
}

/// A NodePool that took no part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skipped {
    /// Name of the NodePool.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Pending pods that were planned for.
    pub pods: usize,
    /// Those among them that would get a place.
    pub scheduled: usize,
    /// Machines that are there.
    pub nodes_before: usize,
    /// Machines afterwards.
    pub nodes_after: usize,
    /// US dollars per hour of the machines that are there, as far as their prices are known.
    pub price_per_hour_before: f64,
    /// US dollars per hour afterwards.
    pub price_per_hour_after: f64,
    /// Machines whose price is not known; they count as free.
    pub nodes_without_price: usize,
    /// US dollars per hour that any machines for the launched pods cost at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound_per_hour: Option<f64>,
    /// Why there is no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound_omitted: Option<&'static str>,
    /// Seconds that planning took.
    pub plan_seconds: f64,
}

/// The plans of one simulation.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// Of pending pods.
    pub(super) provision: Option<Plan>,
    /// Of nodes to disrupt.
    pub(super) disrupt: Option<Plan>,
    /// How long both took, in seconds.
    pub(super) seconds: f64,
    /// What the launches cost at least.
    pub(super) bound: Option<Bound>,
}

impl Outcome {
    /// How much was planned, and how long it took.
    pub fn duration_in_words(&self) -> String {
        format!(
            "planned {} and {} in {:.2} s",
            counted(self.totals.pods, "pod"),
            counted(self.totals.nodes_before, "node"),
            self.totals.plan_seconds
        )
    }

    /// Counts nodes that were taken as drained among those that are there before.
    pub(super) fn add_drained(&mut self, drained: Drained) {
        self.totals.nodes_before += drained.nodes.len();
        self.totals.nodes_without_price += drained.without_price;
        let before = self.totals.price_per_hour_before + drained.price_per_hour;
        self.totals.price_per_hour_before = micros(before);
        self.drained = Some(drained);
    }

    /// What the plans say about the snapshot.
    pub(super) fn new(snapshot: &Snapshot, plans: &Plans, now: Timestamp, seed: u64) -> Self {
        let provision = plans.provision.as_ref();
        let disrupt = plans.disrupt.as_ref();
        let launches: Vec<Launch> =
            provision.iter().flat_map(|plan| Launch::of(snapshot, plan)).collect();
        let placements = placements(provision);
        let disruptions: Vec<Disruption> = disrupt
            .iter()
            .flat_map(|plan| &plan.commands)
            .map(|command| Disruption::new(snapshot, command))
            .collect();
        let mut node_pools: Vec<Skipped> = provision
            .iter()
            .chain(&disrupt)
            .flat_map(|plan| &plan.report.node_pools)
            .map(|pool| Skipped { name: pool.name.clone(), reason: pool.reason.clone() })
            .collect();
        node_pools.sort_by(|a, b| a.name.cmp(&b.name));
        node_pools.dedup_by(|a, b| a.name == b.name);
        let to_come = buffers::virtual_pods(snapshot);
        let totals = totals(snapshot, &launches, &placements, &disruptions, plans);
        Self {
            schema: SCHEMA,
            now,
            seed,
            launches,
            placements,
            unschedulable: provision
                .iter()
                .flat_map(|plan| &plan.report.pods)
                .filter(|waiting| !to_come.contains_key(&*waiting.pod.uid))
                .map(|waiting| Unschedulable {
                    namespace: waiting.pod.namespace.to_string(),
                    name: waiting.pod.name.to_string(),
                    reasons: waiting.reasons.iter().map(why_not).collect(),
                })
                .collect(),
            buffers: provision.map(|plan| buffers::buffers(snapshot, plan)).unwrap_or_default(),
            disruptions,
            staying: disrupt.iter().flat_map(|plan| &plan.report.nodes).map(staying).collect(),
            node_pools,
            drained: None,
            totals,
            warnings: Vec::new(),
            skipped_kinds: BTreeMap::new(),
        }
    }
}

pub(super) fn staying(staying: &plan::StayingNode) -> Staying {
    Staying {
        node: staying.node.clone(),
        message: words::stay(&staying.reason),
        reason: staying.reason.clone(),
    }
}

fn placements(plan: Option<&Plan>) -> Vec<Placed> {
    let mut by_node: BTreeMap<&str, Vec<PodName>> = BTreeMap::new();
    for nomination in plan.iter().flat_map(|plan| &plan.nominations) {
        by_node.entry(&nomination.node).or_default().push(PodName::from(&nomination.pod));
    }
    by_node.into_iter().map(|(node, pods)| Placed { node: node.to_owned(), pods }).collect()
}

fn totals(
    snapshot: &Snapshot,
    launches: &[Launch],
    placements: &[Placed],
    disruptions: &[Disruption],
    plans: &Plans,
) -> Totals {
    let pending = |pod: &&tenon_planner::snapshot::Pod| {
        matches!(pod.placement, Placement::Unschedulable)
            && !pod.daemon
            && !pod.terminating
            && pod.buffer.is_none()
    };
    let before: f64 =
        snapshot.nodes.iter().filter_map(|node| node.price).map(MicroUsd::as_usd).sum();
    let launched: f64 = launches.iter().map(|launch| launch.price_per_hour).sum();
    let saved: f64 = disruptions.iter().map(|disruption| disruption.savings_per_hour).sum();
    let gone: usize = disruptions.iter().map(|disruption| disruption.nodes.len()).sum();
    let replaced: usize = disruptions.iter().map(|disruption| disruption.replacements.len()).sum();
    let nodes_before = snapshot.nodes.len();
    let bound = plans.bound.filter(|_| !launches.is_empty()).map(|bound| bound.price.as_usd());
    let omitted = if plans.provision.is_none() {
        Some("pending pods were not planned for")
    } else if launches.is_empty() {
        Some("nothing would be launched")
    } else if bound.is_none() {
        Some("the pods differ too much to compute a bound in time")
    } else {
        None
    };
    Totals {
        pods: snapshot.pods.iter().filter(pending).count(),
        scheduled: launches.iter().map(|launch| launch.pods.len()).sum::<usize>()
            + placements.iter().map(|placed| placed.pods.len()).sum::<usize>(),
        nodes_before,
        nodes_after: (nodes_before + launches.len() + replaced).saturating_sub(gone),
        price_per_hour_before: micros(before),
        price_per_hour_after: micros(before + launched - saved),
        nodes_without_price: snapshot.nodes.iter().filter(|node| node.price.is_none()).count(),
        lower_bound_per_hour: bound,
        lower_bound_omitted: omitted,
        plan_seconds: plans.seconds,
    }
}

/// Sums of millionths stay millionths.
fn micros(usd: f64) -> f64 {
    let rounded = (usd * 1e6).round() / 1e6;
    // Minus zero is nothing that a reader should meet.
    if rounded == 0.0 { 0.0 } else { rounded }
}

impl From<plan::PriceRange> for PriceRange {
    fn from(range: plan::PriceRange) -> Self {
        let [cheapest, expected, dearest] =
            [range.cheapest, range.expected, range.dearest].map(MicroUsd::as_usd);
        Self { cheapest, expected, dearest }
    }
}

impl Launch {
    /// The launches of a plan, with what each may come to cost.
    pub(super) fn of(snapshot: &Snapshot, plan: &Plan) -> impl Iterator<Item = Self> {
        let ranges = plan.report.prices.iter().map(|&range| Some(PriceRange::from(range)));
        let launches = plan.launches.iter().zip(ranges.chain(std::iter::repeat(None)));
        launches.map(|(launch, price_range_per_hour)| Self {
            price_range_per_hour,
            ..Self::new(snapshot, launch)
        })
    }

    fn new(snapshot: &Snapshot, launch: &plan::Launch) -> Self {
        Self {
            node_pool: launch.node_pool.clone(),
            requirements: launch.requirements.to_vec(),
            instance_types: launch
                .instance_types
                .iter()
                .map(|name| PricedType {
                    name: name.clone(),
                    price_per_hour: instance_type(snapshot, launch, name)
                        .and_then(|kind| cheapest(kind, launch)),
                })
                .collect(),
            capacity_types: launch.capacity_types.clone(),
            requests: resources::to_list(&launch.requests),
            price_per_hour: launch.price.as_usd(),
            price_range_per_hour: None,
            pods: launch.pods.iter().map(PodName::from).collect(),
            buffer_pods: launch.buffer_pods.len(),
        }
    }
}

fn instance_type<'a>(
    snapshot: &'a Snapshot,
    launch: &plan::Launch,
    name: &str,
) -> Option<&'a InstanceType> {
    let pool = snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool)?;
    let types = &snapshot.catalogs.get(pool.catalog?.0 as usize)?.instance_types;
    types.binary_search_by(|kind| kind.name.as_str().cmp(name)).ok().map(|index| &types[index])
}

fn cheapest(kind: &InstanceType, launch: &plan::Launch) -> Option<f64> {
    let allowed = |key: &str, value: &str| {
        launch
            .requirements
            .iter()
            .filter(|requirement| requirement.key == key)
            .all(|requirement| requirement.operator.admits(&requirement.values, Some(value)))
    };
    kind.offerings
        .iter()
        .filter(|offering| {
            offering.available
                && launch.capacity_types.contains(&offering.capacity_type)
                && allowed(labels::ZONE, &offering.zone)
                && allowed(labels::CAPACITY_TYPE, offering.capacity_type.as_str())
        })
        .map(|offering| offering.price)
        .min()
        .map(MicroUsd::as_usd)
}

impl Disruption {
    pub(super) fn new(snapshot: &Snapshot, command: &plan::Command) -> Self {
        Self {
            reason: command.reason,
            method: command.method,
            nodes: command.candidates.iter().map(|candidate| candidate.node.clone()).collect(),
            pods: command
                .candidates
                .iter()
                .flat_map(|candidate| &candidate.pods)
                .map(PodName::from)
                .collect(),
            replacements: command
                .replacements
                .iter()
                .map(|launch| Launch::new(snapshot, launch))
                .collect(),
            terminate_first: command.terminate_first.as_ref().map(|first| first.reason),
            savings_per_hour: command.savings.as_usd(),
        }
    }
}
