//! What kube-scheduler makes of plans where nobody tells it which node each pod was planned for.
//!
//! A model of kube-scheduler with its default profile, written from what its plugins are documented
//! to do; it shares nothing with what the planner expects of it. All machines of a plan become
//! ready together, then pods are bound one by one: filters are resources, taints, required node
//! affinity, host ports, volumes (their zones, and how many can be attached), and the required
//! rules about topology; scores are NodeResourcesFit (LeastAllocated),
//! NodeResourcesBalancedAllocation and PodTopologySpread with its default constraints. Preferences
//! of pods, images and resource claims are left out. What finds no place is planned for again,
//! until nothing is left.

mod rules;
mod scores;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::machine;
use super::mixes::Draw;
use crate::label;
use crate::launch::pod_ref;
use crate::plan::{Plan, PodRef};
use crate::policy::Policy;
use crate::provision;
use crate::resources::{MicroUsd, Resources};
use crate::snapshot::{Node, NodeId, Operator, Placement, PodShape, Requirement, Snapshot};
#[cfg(test)]
pub(crate) use rules::is_selected;
use rules::{Rules, View};

/// More rounds than this are not waited for.
const ROUNDS: usize = 50;

/// How kube-scheduler is set up, and its luck.
#[derive(Clone, Copy, Debug)]
pub struct Scheduler {
    /// The order of pods of equal priority and age, and which of equally good nodes is taken.
    pub seed: u64,
    /// Whether BalancedAllocation scores what a pod changes, as from Kubernetes 1.35 on, or what a
    /// node then is.
    pub scores_change: bool,
    /// Whether pods of one shape belong to one Deployment, so that the default constraints spread
    /// them over hosts and zones.
    pub has_workloads: bool,
}

impl Scheduler {
    /// Kubernetes 1.36 with pods that belong to Deployments.
    pub fn new(seed: u64) -> Self {
        Self { seed, scores_change: true, has_workloads: true }
    }
}

/// What came of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What the first plan costs per hour.
    pub planned: MicroUsd,
    /// How many machines it has.
    pub planned_launches: usize,
    /// What all machines that were launched cost in the end.
    pub price: MicroUsd,
    /// How many there are.
    pub launches: usize,
    /// How many plans had launches.
    pub rounds: usize,
    /// Pods without a place.
    pub waiting: usize,
}

/// Plans, launches and deals pods out until all have a place or nothing is launched any more.
pub fn carry_out(snapshot: &Snapshot, policy: &Policy, scheduler: Scheduler) -> Outcome {
    let mut cluster = Cluster::new(snapshot, scheduler);
    let mut outcome = Outcome::default();
    loop {
        let plan = provision(&cluster.snapshot(), policy, Timestamp::UNIX_EPOCH, 1, &());
        if plan.launches.is_empty() || outcome.rounds == ROUNDS {
            break;
        }
        let price = cluster.launch(&plan);
        if outcome.rounds == 0 {
            (outcome.planned, outcome.planned_launches) = (price, plan.launches.len());
        }
        outcome.price = MicroUsd(outcome.price.0 + price.0);
        outcome.launches += plan.launches.len();
        outcome.rounds += 1;
        cluster.deal();
    }
    outcome.waiting = cluster.queue.len();
    outcome
}

/// The cluster once the machines of a plan are there and kube-scheduler has dealt the pods out as
/// it likes; and how many pods that wait found no place.
pub(crate) fn deal_out(
    snapshot: &Snapshot,
    plan: &Plan,
    scheduler: Scheduler,
) -> (Snapshot, usize) {
    let mut cluster = Cluster::new(snapshot, scheduler);
    cluster.launch(plan);
    cluster.deal();
    (cluster.snapshot(), cluster.queue.len())
}

/// The order in which pods arrive at the machines of a plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// As they come.
    Mixed,
    /// As many of one shape as are admitted before any of the next.
    ByShape,
    /// By shape, and all but one of the first shape last.
    OneAhead,
}

impl Arrival {
    /// Each of them for a third of the seeds.
    fn of(seed: u64) -> Self {
        match seed % 3 {
            0 => Self::Mixed,
            1 => Self::ByShape,
            _ => Self::OneAhead,
        }
    }
}

/// The pods that kube-scheduler would not bind where a plan has them, each let onto its machine
/// alone: in the best of so many orders, which differ in their [`Arrival`].
pub fn refused(snapshot: &Snapshot, plan: &Plan, orders: u64) -> Vec<PodRef> {
    let tries = (0..orders).map(|seed| {
        let mut cluster = Cluster::new(snapshot, Scheduler::new(seed));
        cluster.bind(plan, Arrival::of(seed));
        let left = cluster.queue.iter().map(|&pod| pod_ref(&snapshot.pods[pod]));
        left.collect::<Vec<_>>()
    });
    let mut best: Option<Vec<PodRef>> = None;
    for left in tries {
        if best.as_ref().is_none_or(|best| left.len() < best.len()) {
            best = Some(left);
        }
        if best.as_ref().is_some_and(Vec::is_empty) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// A machine and what runs on it.
#[derive(Clone, Debug)]
struct Machine {
    node: Node,
    used: Resources,
    /// CPU and memory, where pods without requests count for something.
    counted: [i64; 2],
    /// How many pods of which shape.
    pods: BTreeMap<usize, usize>,
    /// By CSI driver: how many volumes can be attached, where that is limited.
    volumes: BTreeMap<String, u32>,
}

/// The cluster that kube-scheduler sees.
struct Cluster<'a> {
    before: &'a Snapshot,
    scheduler: Scheduler,
    draw: Draw,
    machines: Vec<Machine>,
    /// In the order in which kube-scheduler walks over them: zones in turn.
    order: Vec<usize>,
    /// Where the next walk begins.
    next: usize,
    /// Pods that need a place, first come first served.
    queue: Vec<usize>,
    /// Where pods are that got one: pod and machine.
    bound: Vec<(usize, usize)>,
    rules: Rules,
}

impl<'a> Cluster<'a> {
    fn new(before: &'a Snapshot, scheduler: Scheduler) -> Self {
        let mut draw = Draw(scheduler.seed);
        let waits = |&pod: &usize| {
            let pod = &before.pods[pod];
            pod.placement == Placement::Unschedulable && !pod.terminating && pod.buffer.is_none()
        };
        let mut queue: Vec<usize> = (0..before.pods.len()).filter(waits).collect();
        queue.sort_by_cached_key(|&pod| {
            let pod = &before.pods[pod];
            (std::cmp::Reverse(pod.priority), pod.created_at, draw.number())
        });
        let known = before.nodes.iter().cloned();
        let mut machines: Vec<Machine> = known.map(|node| Machine::new(before, node)).collect();
        for pod in &before.pods {
            if let Placement::Bound(node) = pod.placement {
                let shape = pod.shape.0 as usize;
                machines[node.0 as usize].put(shape, &before.shapes[shape]);
            }
        }
        let mut cluster = Self {
            before,
            scheduler,
            draw,
            machines: Vec::new(),
            order: Vec::new(),
            next: 0,
            queue,
            bound: Vec::new(),
            rules: Rules::new(before),
        };
        for machine in machines {
            cluster.add(machine);
        }
        cluster
    }

    /// A machine comes, with its daemons.
    fn add(&mut self, mut machine: Machine) {
        let mut daemons = Resources::default();
        for daemon in &self.before.daemon_sets {
            if is_tolerated(&daemon.shape, &machine.node) && is_wanted(&daemon.shape, &machine.node)
            {
                daemons.add(&daemon.shape.requests);
            }
        }
        for (&shape, &n) in &machine.pods {
            let is_daemon =
                |pod: &&crate::snapshot::Pod| pod.daemon && pod.shape.0 as usize == shape;
            if self.before.pods.iter().any(|pod| is_daemon(&pod)) {
                (0..n).for_each(|_| daemons.subtract(&self.before.shapes[shape].requests));
            }
        }
        daemons.max(&Resources::default());
        machine.used.add(&daemons);
        machine.counted[0] += daemons.cpu;
        machine.counted[1] += daemons.memory;
        self.machines.push(machine);
    }

    /// All machines of a plan, and what they cost.
    fn launch(&mut self, plan: &Plan) -> MicroUsd {
        let mut price = 0;
        for launch in &plan.launches {
            let key = format!("dealt-{:06}", self.machines.len());
            let (node, _) = machine(self.before, launch, &key);
            price += node.price.unwrap_or_default().0;
            self.add(Machine::new(self.before, node));
        }
        let mut zones: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, machine) in self.machines.iter().enumerate() {
            let zone = machine.node.labels.get(label::ZONE).map_or("", String::as_str);
            zones.entry(zone).or_default().push(index);
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or(0);
        let turn = |at: usize| zones.values().filter_map(move |zone| zone.get(at).copied());
        self.order = (0..longest).flat_map(turn).collect();
        self.next = 0;
        MicroUsd(price)
    }

    /// Binds all pods that find a place.
    fn deal(&mut self) {
        loop {
            let queue = std::mem::take(&mut self.queue);
            let before = queue.len();
            for pod in queue {
                let shape = self.before.pods[pod].shape.0 as usize;
                match self.choose(shape) {
                    Some(machine) => {
                        self.machines[machine].put(shape, &self.before.shapes[shape]);
                        self.bound.push((pod, machine));
                    }
                    None => self.queue.push(pod),
                }
            }
            // A pod may have waited for one that it wants to be near.
            if self.queue.is_empty() || self.queue.len() == before {
                return;
            }
        }
    }

    /// Binds pods where a plan has them, as long as any may be; keeps those that it places nowhere
    /// out of the queue.
    fn bind(&mut self, plan: &Plan, arrival: Arrival) {
        let first = self.machines.len();
        self.launch(plan);
        let mut places: BTreeMap<&PodRef, usize> = BTreeMap::new();
        for (number, launch) in plan.launches.iter().enumerate() {
            places.extend(launch.pods.iter().map(|pod| (pod, first + number)));
        }
        for nomination in &plan.nominations {
            let is_it = |machine: &Machine| machine.node.key == nomination.node;
            places.extend(self.machines.iter().position(is_it).map(|at| (&nomination.pod, at)));
        }
        let place = |pod: &usize| places.get(&pod_ref(&self.before.pods[*pod])).copied();
        let mut queue: Vec<(usize, usize)> =
            self.queue.iter().filter_map(|pod| Some((*pod, place(pod)?))).collect();
        if arrival != Arrival::Mixed {
            let turns: Vec<u32> = self.before.shapes.iter().map(|_| self.draw.number()).collect();
            queue.sort_by_key(|&(pod, _)| turns[self.before.pods[pod].shape.0 as usize]);
        }
        if arrival == Arrival::OneAhead
            && let Some(&first) = queue.first()
        {
            let shape = |pod: usize| self.before.pods[pod].shape;
            queue.sort_by_key(|&it| it != first && shape(it.0) == shape(first.0));
        }
        let mut progress = true;
        while progress {
            progress = false;
            let mut next = 0;
            while let Some(&(pod, machine)) = queue.get(next) {
                let shape = self.before.pods[pod].shape.0 as usize;
                let view = self.rules.view(&self.before.shapes[shape], shape, &self.machines);
                if !self.admits(machine, shape, &view) {
                    next += 1;
                    continue;
                }
                self.machines[machine].put(shape, &self.before.shapes[shape]);
                queue.remove(next);
                progress = true;
                if arrival != Arrival::Mixed {
                    next = 0;
                }
            }
        }
        self.queue = queue.into_iter().map(|it| it.0).collect();
    }

    /// Whether a pod of a shape passes the filters on a machine.
    fn admits(&self, machine: usize, shape: usize, view: &View) -> bool {
        let (machine, pod) = (&self.machines[machine], &self.before.shapes[shape]);
        self.has_room(machine, pod)
            && is_tolerated(pod, &machine.node)
            && is_wanted(pod, &machine.node)
            && is_reachable(pod, &machine.node)
            && view.admits(&machine.node)
    }

    /// The node for a pod: of those that pass the filters the one with the best score.
    fn choose(&mut self, shape: usize) -> Option<usize> {
        let pod = &self.before.shapes[shape];
        let view = self.rules.view(pod, shape, &self.machines);
        let all = self.order.len();
        let enough = feasible_nodes_to_find(all);
        let mut feasible = Vec::new();
        let mut looked = 0;
        while looked < all && feasible.len() < enough {
            let index = self.order[(self.next + looked) % all];
            looked += 1;
            if self.admits(index, shape, &view) {
                feasible.push(index);
            }
        }
        self.next = (self.next + looked) % all.max(1);
        let scores = scores::score(self.scheduler, pod, shape, &feasible, &self.machines);
        let best = scores.iter().copied().max()?;
        let ties: Vec<usize> =
            feasible.into_iter().zip(scores).filter(|it| it.1 == best).map(|it| it.0).collect();
        Some(*self.draw.from(&ties))
    }

    fn has_room(&self, machine: &Machine, pod: &PodShape) -> bool {
        let mut used = machine.used.clone();
        used.add(&pod.requests);
        let ports = |shape: &usize| {
            let theirs = &self.before.shapes[*shape].host_ports;
            pod.host_ports.iter().any(|mine| theirs.iter().any(|theirs| clash(mine, theirs)))
        };
        let node = &machine.node;
        used.fits(&node.allocatable)
            && !node.deleting
            && !machine.pods.keys().any(ports)
            && self.attaches(machine, pod)
    }

    /// NodeVolumeLimits: of the drivers that the pod uses. A volume that pods share is attached
    /// once.
    fn attaches(&self, machine: &Machine, pod: &PodShape) -> bool {
        let uses = |driver: &String| {
            pod.volumes.contains_key(driver)
                || pod.shared_volumes.iter().any(|volume| volume.driver == *driver)
        };
        machine.volumes.iter().filter(|(driver, _)| uses(driver)).all(|(driver, &limit)| {
            let there = machine.pods.iter().map(|(&shape, &n)| (&*self.before.shapes[shape], n));
            let all: Vec<(&PodShape, usize)> = there.chain([(pod, 1)]).collect();
            let own = all.iter().map(|(shape, n)| {
                n * shape.volumes.get(driver).map_or(0, |&volumes| volumes as usize)
            });
            let shared = all.iter().flat_map(|(shape, _)| {
                shape.shared_volumes.iter().map(move |volume| (&shape.namespace, volume))
            });
            let shared: BTreeSet<_> = shared.filter(|it| it.1.driver == *driver).collect();
            own.sum::<usize>() + shared.len() <= limit as usize
        })
    }

    /// The cluster as it is now.
    fn snapshot(&self) -> Snapshot {
        let mut now = self.before.clone();
        let mut order: Vec<usize> = (0..self.machines.len()).collect();
        order.sort_by(|&a, &b| self.machines[a].node.key.cmp(&self.machines[b].node.key));
        let mut position = vec![NodeId(0); order.len()];
        for (at, &machine) in (0..).zip(&order) {
            position[machine] = NodeId(at);
        }
        now.nodes = order.iter().map(|&machine| self.machines[machine].node.clone()).collect();
        for pod in &mut now.pods {
            if let Placement::Bound(node) = &mut pod.placement {
                *node = position[node.0 as usize];
            }
        }
        for &(pod, machine) in &self.bound {
            now.pods[pod].placement = Placement::Bound(position[machine]);
        }
        now
    }
}

impl Machine {
    fn new(before: &Snapshot, node: Node) -> Self {
        let volumes = volume_limits(before, &node);
        let (used, pods) = (Resources::default(), BTreeMap::new());
        Self { node, used, counted: [0; 2], pods, volumes }
    }

    fn put(&mut self, shape: usize, pod: &PodShape) {
        self.used.add(&pod.requests);
        let counted = scores::counted(pod);
        self.counted = [0, 1].map(|at| self.counted[at] + counted[at]);
        *self.pods.entry(shape).or_default() += 1;
    }
}

/// What the CSINode says; until there is one, what the instance type has.
fn volume_limits(before: &Snapshot, node: &Node) -> BTreeMap<String, u32> {
    let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_ref());
    let pool = pool.and_then(|name| before.node_pools.iter().find(|pool| pool.name == *name));
    let catalog = pool.and_then(|pool| pool.catalog).map(|id| &before.catalogs[id.0 as usize]);
    let name = node.labels.get(label::INSTANCE_TYPE);
    let kinds = catalog.map(|catalog| &catalog.instance_types[..]).unwrap_or_default();
    let kind = kinds.iter().find(|kind| Some(&kind.name) == name);
    let mut limits: BTreeMap<String, u32> =
        kind.iter().flat_map(|kind| kind.volume_limits.clone()).collect();
    for (driver, limit) in &node.volume_limits {
        match limit {
            Some(limit) => limits.insert(driver.clone(), *limit),
            None => limits.remove(driver),
        };
    }
    limits
}

/// With 100 nodes and more kube-scheduler stops looking when it has found enough.
fn feasible_nodes_to_find(all: usize) -> usize {
    const AT_LEAST: usize = 100;
    let share = 50_usize.saturating_sub(all / 125).max(5);
    if all < AT_LEAST { all } else { (all * share / 100).max(AT_LEAST) }
}

/// TaintToleration.
fn is_tolerated(pod: &PodShape, node: &Node) -> bool {
    node.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule").all(|taint| {
        pod.tolerations.iter().any(|it| {
            let (effect, key) = (it.effect.as_deref(), it.key.as_deref());
            let same = match it.operator.as_deref() {
                Some("Exists") => true,
                _ => it.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""),
            };
            same && effect.is_none_or(|it| it.is_empty() || it == taint.effect)
                && key.is_none_or(|it| it.is_empty() || it == taint.key)
        })
    })
}

/// NodeAffinity: selector and required terms.
fn is_wanted(pod: &PodShape, node: &Node) -> bool {
    pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && meets_any(&pod.required_affinity, node)
}

/// VolumeZone, and the affinity of volumes.
fn is_reachable(pod: &PodShape, node: &Node) -> bool {
    meets_any(&pod.volume_topology, node)
}

fn meets_any(terms: &[Vec<Requirement>], node: &Node) -> bool {
    terms.is_empty() || terms.iter().any(|term| term.iter().all(|need| meets(need, node)))
}

fn meets(need: &Requirement, node: &Node) -> bool {
    holds(need, node.labels.get(&need.key).map(String::as_str))
}

/// Whether a label's value meets a requirement, or its absence.
pub(super) fn holds(need: &Requirement, value: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let compare = |holds: fn(&i64, &i64) -> bool| {
        let wanted = need.values.first().and_then(|bound| number(bound));
        value.and_then(number).zip(wanted).is_some_and(|(have, wanted)| holds(&have, &wanted))
    };
    let listed = |value: &str| need.values.iter().any(|listed| listed == value);
    match need.operator {
        Operator::In => value.is_some_and(listed),
        Operator::NotIn => !value.is_some_and(listed),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compare(i64::gt),
        Operator::Lt => compare(i64::lt),
        Operator::Gte => compare(i64::ge),
        Operator::Lte => compare(i64::le),
    }
}

/// NodePorts: whether two can't be on one host.
fn clash(a: &(String, String, u16), b: &(String, String, u16)) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    a.0 == b.0 && a.2 == b.2 && (a.1 == b.1 || any(&a.1) || any(&b.1))
}
