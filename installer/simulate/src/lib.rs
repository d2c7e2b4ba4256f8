//! What the operator would do, without doing it: the same way from objects to a Snapshot, the same
//! planner, and the plan as a report.
//!
//! Objects come from files, from a running cluster, or both ([`read()`]); what the API server and
//! the controllers would have filled in is filled in; the planner plans; [`Outcome`] is the answer.
//! Nothing is ever written to a cluster, and nothing is printed.

mod advice;
mod amounts;
mod buffers;
mod catalogs;
mod causes;
mod complete;
mod cost;
mod decode;
mod documents;
mod drain;
mod encoded;
mod error;
mod expand;
mod explain;
mod fleet;
mod funnel;
mod input;
mod inventory;
mod layout;
mod live;
mod observed;
mod options;
mod outcome;
mod parts;
mod prepare;
mod prices;
mod problem;
mod prune;
mod read;
mod reasons;
mod table;
mod what_if;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tenon_crds::{NodePool, labels};
use tenon_planner::plan::Plan;
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{CapacityType, Node, Placement};
use tenon_planner::{Policy, Snapshot, lower_bound_within, overlays};
use tenon_state::cluster::Cluster;

pub use self::advice::{Advice, Cause};
use self::catalogs::SPOT_ASSUMED;
pub use self::cost::{
    Commitment, CommitmentKind, Commitments, Committed, Cost, CostBy, CostRow, Costs, Focus, Idle,
    NodeGroup, OnNodeGroups, Savings, read_costs,
};
pub use self::drain::{Drained, Held};
pub use self::encoded::list_page;
pub use self::error::SimulateError;
pub use self::explain::Answer;
use self::explain::Known;
pub use self::fleet::{Blocked, Disrupting, Fleet, FleetNode, FleetPool, FleetSum, Pending, Used};
use self::input::Input;
pub use self::inventory::{Machine, PodOnNode, PodsOnNode};
pub use self::live::Events;
use self::observed::Observed;
pub use self::options::{CatalogOptions, Drain, Freshness, Kind, Loops, Options, Subject};
pub use self::outcome::Outcome;
use self::outcome::Plans;
pub use self::parts::PodName;
use self::prepare::Prepared;
pub use self::prices::Discount;
use self::prices::{license_of_node, license_of_type};
use self::read::Files;
pub use self::what_if::{WhatIf, what_if, what_if_of};
pub use self::words::{age, counted};

/// For how long the operator expects pods on a machine that it planned them onto.
const NOMINATION: SignedDuration = SignedDuration::from_secs(20);

/// What a lower bound of the price may cost: about 0.3 s, enough for the full bound of 12 shapes
/// and for a good one of 350, with a thousand instance types.
const BOUND_STEPS: u64 = 36_000_000;

/// What spot instances cost per hour, in USD by instance type and zone.
pub type SpotPrices = BTreeMap<(String, String), f64>;

/// The planner's input, and what is known of where it came from.
#[derive(Debug)]
pub struct Simulation {
    snapshot: Snapshot,
    observed: Observed,
    notes: Vec<String>,
    warnings: Vec<String>,
    skipped: BTreeMap<String, usize>,
    /// The NodePools as they were read, by name.
    pools: BTreeMap<String, NodePool>,
    /// Nodes that were taken as drained.
    drained: Option<drain::Drain>,
    /// What was planned for explanations and the fleet: planning takes longer than all else.
    plans: Option<Plans>,
    options: Options,
}

/// What was read, before anything is filled in.
enum Gathered {
    /// Kubernetes objects.
    Objects(Box<Input>),
    /// The planner's input, as it was saved.
    Snapshot(Box<Snapshot>),
}

/// Reads what there is to read: files, a cluster, or both. `note` is told of what was read as it
/// goes.
pub async fn read(
    options: Options,
    client: Option<&Client>,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Simulation, SimulateError> {
    from_gathered(gather(&options, client, note).await?, options)
}

/// The same with the manifests of a text beside all else: where both have an object of one name,
/// that of the text counts.
pub async fn read_with(
    options: Options,
    client: &Client,
    manifests: &str,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Simulation, SimulateError> {
    let mut gathered = gather(&options, Some(client), note).await?;
    if let Gathered::Objects(input) = &mut gathered {
        let mut more = Input::default();
        read::manifests(manifests)?.into_iter().for_each(|read| more.add(read));
        input.extend(more);
    }
    from_gathered(gathered, options)
}

fn from_gathered(gathered: Gathered, options: Options) -> Result<Simulation, SimulateError> {
    match gathered {
        Gathered::Objects(input) => Simulation::new(*input, options),
        Gathered::Snapshot(_) if !options.drain.is_empty() => {
            Err(SimulateError::SnapshotUndrainable)
        }
        Gathered::Snapshot(snapshot) => Ok(Simulation {
            snapshot: *snapshot,
            observed: Observed::default(),
            notes: Vec::new(),
            warnings: Vec::new(),
            skipped: BTreeMap::new(),
            pools: BTreeMap::new(),
            drained: None,
            plans: None,
            options,
        }),
    }
}

async fn gather(
    options: &Options,
    client: Option<&Client>,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Gathered, SimulateError> {
    let mut input = Input::default();
    if let Some(client) = client {
        let begun = Instant::now();
        input = live::read(client, options).await?;
        note(&format!(
            "read {} of the cluster in {:.2} s",
            counted(input.count, "object"),
            begun.elapsed().as_secs_f64()
        ));
    }
    if !options.files.is_empty() {
        let begun = Instant::now();
        match read::read(&options.files)? {
            Files::Snapshot(snapshot) => {
                if client.is_some() || !options.catalog.files.is_empty() {
                    return Err(SimulateError::SnapshotAlone);
                }
                note("read a saved snapshot");
                return Ok(Gathered::Snapshot(snapshot));
            }
            Files::Objects { input: read, files, bytes } => {
                #[expect(clippy::cast_precision_loss, reason = "for people, to a tenth")]
                let megabytes = bytes as f64 / 1e6;
                note(&format!(
                    "read {} from {} ({megabytes:.1} MB) in {:.2} s",
                    counted(read.count, "object"),
                    counted(files, "file"),
                    begun.elapsed().as_secs_f64()
                ));
                input.extend(*read);
            }
        }
    }
    for (kind, n) in &input.skipped {
        note(&format!("ignored {} of kind {kind}", counted(*n, "object")));
    }
    Ok(Gathered::Objects(Box::new(input)))
}

impl Simulation {
    fn new(mut input: Input, options: Options) -> Result<Self, SimulateError> {
        let skipped = std::mem::take(&mut input.skipped);
        let named = input.pools.iter().filter_map(|it| Some((it.metadata.name.clone()?, it)));
        let pools = named.map(|(name, pool)| (name, pool.clone())).collect();
        let drained = drain::drain(&mut input, &options.drain)?;
        let prepared = prepare::prepare(input, &options)?;
        let Prepared { snapshot, observed, notes, warnings } = prepared;
        Ok(Self {
            snapshot,
            observed,
            notes,
            warnings,
            skipped,
            pools,
            drained,
            plans: None,
            options,
        })
    }

    /// Of a cluster that is in memory, as the operator has it, and of the planner's input that it
    /// makes of it.
    pub fn of(cluster: &Cluster, snapshot: Snapshot, options: Options) -> Self {
        let named = cluster.pools().filter_map(|it| Some((it.metadata.name.clone()?, it)));
        let pools = named.map(|(name, pool)| (name, (**pool).clone())).collect();
        let (claims, known) = (cluster.claims(), cluster.pools());
        Self {
            snapshot,
            observed: Observed::of(claims.map(|it| &**it), known.map(|it| &**it)),
            notes: Vec::new(),
            warnings: Vec::new(),
            skipped: BTreeMap::new(),
            pools,
            drained: None,
            plans: None,
            options,
        }
    }

    /// What a person should know about the input.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What was assumed about instance types and prices: for the end of what is printed.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Writes the planner's input.
    pub fn save(&self, path: &Path) -> Result<(), SimulateError> {
        let mut text = serde_json::to_string(&self.snapshot)
            .expect("a snapshot is maps, lists and scalars, which always serialise");
        text.push('\n');
        std::fs::write(path, text)
            .map_err(|source| SimulateError::Write { path: path.to_owned(), source })
    }

    /// What would be launched, placed and removed.
    pub fn outcome(&mut self, loops: Loops) -> Outcome {
        let plans = self.plan(loops, true);
        let Options { now, seed, .. } = self.options;
        let mut outcome = Outcome::new(&self.snapshot, &plans, now, seed);
        if let Some(drained) = &self.drained {
            outcome.add_drained(drained.priced(&self.snapshot));
        }
        outcome.warnings.clone_from(&self.warnings);
        outcome.skipped_kinds.clone_from(&self.skipped);
        outcome
    }

    /// Adds what a running cluster's Events say.
    pub fn add_events(&mut self, events: &Events) {
        self.observed.add(events.all(), self.options.now);
    }

    /// Why one object is as it is.
    pub fn explain(&mut self, subject: &Subject) -> Result<Answer, SimulateError> {
        let plans = self.planned(if self.has_no_node(subject) {
            // The other loop takes longest, and says nothing of it.
            Loops::Provision
        } else {
            Loops::Both
        });
        let Self { snapshot, observed, options, .. } = self;
        let answer = explain::explain(
            subject,
            Known { snapshot, plans: &plans, observed, now: options.now },
        );
        self.plans = Some(plans);
        answer
    }

    /// The instance types of spot nodes, where no catalog has spot prices.
    pub fn unpriced_spot_types(&self) -> BTreeSet<&str> {
        if !self.options.catalog.files.is_empty() {
            return BTreeSet::new();
        }
        let spot = self.snapshot.nodes.iter().filter(|node| is_spot(node));
        spot.filter_map(|node| Some(node.labels.get(labels::INSTANCE_TYPE)?.as_str())).collect()
    }

    /// Sets what spot nodes cost, and what others of their types would. The prices are those of
    /// Linux; Windows nodes cost its license as well. Nodes of other types and zones have no known
    /// price afterwards, since what was assumed for them is that of on-demand instances. A type
    /// that has prices is for sale only in the zones that it has one in, as for the operator.
    pub fn price_spot(&mut self, prices: &SpotPrices) {
        for node in self.snapshot.nodes.iter_mut().filter(|node| is_spot(node)) {
            let label = |key: &str| node.labels.get(key).cloned().unwrap_or_default();
            let price = prices.get(&(label(labels::INSTANCE_TYPE), label(labels::ZONE)));
            let license = license_of_node(&node.labels, node.capacity.cpu);
            node.price = price.map(|price| MicroUsd(MicroUsd::from_usd(*price).0 + license.0));
        }
        let mut by_type: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
        for ((kind, zone), price) in prices {
            by_type.entry(kind).or_default().insert(zone, *price);
        }
        for catalog in &mut self.snapshot.catalogs {
            for kind in &mut Arc::make_mut(catalog).instance_types {
                let Some(by_zone) = by_type.get(kind.name.as_str()) else { continue };
                let of_zone = |zone: &str| Some((by_zone.get(zone)?, license_of_type(kind, zone)));
                let prices = kind.offerings.iter().map(|it| of_zone(&it.zone)).collect::<Vec<_>>();
                let offerings = kind.offerings.iter_mut().zip(prices);
                for (offering, price) in
                    offerings.filter(|(it, _)| it.capacity_type == CapacityType::Spot)
                {
                    if let Some((price, license)) = price {
                        offering.price = MicroUsd(MicroUsd::from_usd(*price).0 + license.0);
                    } else {
                        offering.unpriced = Some(offering.available);
                        offering.available = false;
                        offering.price = MicroUsd(0);
                    }
                }
            }
        }
        self.plans = None;
        for note in &mut self.notes {
            *note = note.replace(SPOT_ASSUMED, "spot at EC2's current prices");
        }
    }

    /// What there is and what it is at: nodes, their use and price, pending pods, disruptions.
    pub fn fleet(&mut self) -> Fleet {
        let plans = self.planned(Loops::Provision);
        let Self { snapshot, observed, options, .. } = self;
        let fleet = Fleet::new(Known { snapshot, plans: &plans, observed, now: options.now });
        self.plans = Some(plans);
        fleet
    }

    /// Every machine, by its key.
    pub fn machines(&self) -> Vec<Machine> {
        inventory::machines(&self.snapshot)
    }

    /// The pods on a machine, by its key; none if there is no such machine.
    pub fn pods_on(&self, key: &str) -> Option<PodsOnNode> {
        inventory::pods_on(&self.snapshot, key)
    }

    /// The manifest of a NodePool as people would write it, in YAML; none if there is no such
    /// NodePool, or its input was a saved snapshot.
    pub fn node_pool_manifest(&self, name: &str) -> Option<String> {
        what_if::manifest(self.pools.get(name)?)
    }

    /// Whether a pod has no node yet.
    fn has_no_node(&self, subject: &Subject) -> bool {
        subject.kind == Kind::Pod
            && self.snapshot.pods.iter().any(|pod| {
                *pod.namespace == *subject.namespace
                    && *pod.name == *subject.name
                    && !matches!(pod.placement, Placement::Bound(_))
            })
    }

    /// The plans so far, and what they lack of these loops.
    fn planned(&mut self, loops: Loops) -> Plans {
        let mut plans = match self.plans.take() {
            Some(plans) => plans,
            None => self.plan(Loops::Provision, false),
        };
        if loops != Loops::Provision && plans.disrupt.is_none() {
            let Plans { disrupt, seconds, .. } = self.plan(Loops::Disrupt, false);
            plans.disrupt = disrupt;
            plans.seconds += seconds;
        }
        plans
    }

    fn plan(&mut self, loops: Loops, bound: bool) -> Plans {
        let snapshot = std::mem::take(&mut self.snapshot);
        self.snapshot = overlays::applied(snapshot);
        let Options { now, seed, .. } = self.options;
        let asked = Asked { loops, now, seed, bound };
        plan(&mut self.snapshot, &self.options.policy, asked)
    }
}

fn is_spot(node: &Node) -> bool {
    node.labels.get(labels::CAPACITY_TYPE).is_some_and(|it| it == "spot")
}

/// What is asked of the planner.
#[derive(Clone, Copy)]
struct Asked {
    loops: Loops,
    now: Timestamp,
    seed: u64,
    /// Whether a lower bound of the price is wanted.
    bound: bool,
}

/// Plans as the operator's two loops would, one after the other: nodes on which pending pods are
/// expected are not disrupted.
fn plan(snapshot: &mut Snapshot, policy: &Policy, asked: Asked) -> Plans {
    let Asked { loops, now, seed, bound } = asked;
    let mut plans = Plans::default();
    let begun = Instant::now();
    let mut served = None;
    if loops != Loops::Disrupt {
        let plan = tenon_planner::provision(snapshot, policy, now, seed, &());
        plans.seconds = begun.elapsed().as_secs_f64();
        served = bound.then(|| served_by(&plan, snapshot));
        nominate(snapshot, &plan, now);
        plans.provision = Some(plan);
    }
    let disrupt = || {
        let begun = Instant::now();
        let plan = (loops != Loops::Provision)
            .then(|| tenon_planner::disrupt(snapshot, policy, now, seed, &()));
        (plan, begun.elapsed().as_secs_f64())
    };
    let bound = || lower_bound_within(&served?, policy, BOUND_STEPS);
    let ((plan, seconds), bound) = rayon::join(disrupt, bound);
    plans.disrupt = plan;
    plans.seconds += seconds;
    plans.bound = bound;
    plans
}

/// The snapshot with those pending pods only that the plan has places for: the others cost nothing,
/// so they don't belong into a bound of the price.
fn served_by(plan: &Plan, snapshot: &Snapshot) -> Snapshot {
    let mut served = snapshot.clone();
    let waiting: BTreeSet<(&str, &str)> =
        plan.report.pods.iter().map(|it| (&*it.pod.namespace, &*it.pod.name)).collect();
    for pod in &mut served.pods {
        if waiting.contains(&(&*pod.namespace, &*pod.name)) {
            pod.placement = Placement::Waiting;
        }
    }
    served
}

fn nominate(snapshot: &mut Snapshot, plan: &Plan, now: Timestamp) {
    let until = now.checked_add(NOMINATION).unwrap_or(Timestamp::MAX);
    let nominated: BTreeSet<&str> =
        plan.nominations.iter().map(|nomination| nomination.node.as_str()).collect();
    for node in &mut snapshot.nodes {
        if nominated.contains(node.key.as_str()) {
            node.nominated_until = node.nominated_until.max(Some(until));
        }
    }
}
