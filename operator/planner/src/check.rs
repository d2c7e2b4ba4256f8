//! A checker of plans, written from the rules of Kubernetes and independently of the solver: it
//! works on names and labels, machine by machine, and knows nothing of specs, patterns or ids. The
//! solver's tests, `tenon simulate` and the operator's own assertions use it.

mod commands;
mod consolidation;
mod devices;
mod labels;
mod places;
mod pods;
mod repair;
mod reservations;
mod terminate_first;
mod topology;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Plan, PodRef};
use crate::snapshot::{DisruptionReason, Placement, Snapshot};

/// A rule that a plan breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// The plan has another format, this version.
    Version(u32),
    /// A pod that the snapshot does not have.
    UnknownPod(PodRef),
    /// A machine, NodePool or instance type that the snapshot does not have.
    Unknown {
        /// What.
        kind: &'static str,
        /// As the plan has it.
        name: String,
    },
    /// A pod that gets more than one place.
    PlacedTwice(PodRef),
    /// A virtual pod among those that there are, or the other way round.
    Announced(PodRef),
    /// A pod that needs no place: it runs, and its machine stays.
    NeedsNoPlace(PodRef),
    /// A pod of a node that goes gets no place.
    LosesItsPlace(PodRef),
    /// The machine is going, or takes no pods.
    NoMachine {
        /// The pod that the plan puts there.
        pod: PodRef,
        /// A node, or a launch by its number.
        machine: String,
    },
    /// The pods of a machine ask for more than it has.
    Overfull {
        /// The machine; for a launch with the instance type.
        machine: String,
        /// Of what.
        resource: String,
        /// Asked for, daemons included.
        requested: i64,
        /// There.
        allocatable: i64,
    },
    /// A taint is not tolerated.
    Taint {
        /// The pod that does not tolerate it.
        pod: PodRef,
        /// A node, or a launch by its number.
        machine: String,
        /// The taint's key.
        key: String,
    },
    /// Node selector, required affinity or volumes don't allow the machine.
    Affinity {
        /// The pod that asks for another one.
        pod: PodRef,
        /// The machine; for a launch with instance type and zone.
        machine: String,
    },
    /// Two pods of a machine want the same port of the host.
    HostPort {
        /// One of them.
        pod: PodRef,
        /// A node, or a launch by its number.
        machine: String,
    },
    /// Spread, pod affinity or anti-affinity is violated.
    Topology {
        /// The pod for which it is violated.
        pod: PodRef,
        /// Which rule and where.
        rule: String,
    },
    /// The pool may not launch.
    PoolNotReady(String),
    /// An instance type of a launch can't be bought as its requirements say.
    NotOffered {
        /// The launch, by number.
        launch: String,
        /// One of its types.
        instance_type: String,
    },
    /// The types are not ranked by price, or the price is not that of the first.
    NotRanked(String),
    /// A machine has more volumes to attach than it can; shared volumes count once.
    Volumes {
        /// The machine; for a launch with the instance type.
        machine: String,
        /// The CSI driver.
        driver: String,
    },
    /// More launches take from a reservation than it has machines.
    Reservation(String),
    /// A NodePool's limit is exceeded, each launch being charged with its largest type.
    Limit {
        /// Name of the NodePool.
        pool: String,
        /// Of what.
        resource: String,
    },
    /// A launch carries fewer distinct values than `minValues`.
    MinValues {
        /// By its number.
        launch: String,
        /// Of the label.
        key: String,
    },
    /// More nodes of a pool go than its budgets allow.
    Budget {
        /// Name of the NodePool.
        pool: String,
        /// For this reason.
        reason: DisruptionReason,
    },
    /// More pods of a PodDisruptionBudget go than it allows, and not all from one node.
    PodBudget(String),
    /// A node goes that must stay.
    MustStay {
        /// By its key in the snapshot.
        node: String,
        /// Why.
        reason: String,
    },
    /// A claim does not have the devices that it asks for, where its pods can reach them.
    Devices {
        /// The claim; where a device or a pool is the trouble, this.
        claim: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Consolidation that saves nothing.
    SavesNothing(String),
}

/// Everything that a plan breaks, sorted; empty for a valid plan.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Vec<Violation> {
    let overlaid = crate::overlays::apply(snapshot);
    let snapshot = &*overlaid.snapshot;
    let mut found = BTreeSet::new();
    if plan.version != crate::plan::PLAN_VERSION {
        found.insert(Violation::Version(plan.version));
    }
    let afterwards = terminate_first::afterwards(snapshot, plan, &mut found);
    let snapshot = &*afterwards;
    let pods: BTreeMap<(&str, &str), usize> = snapshot
        .pods
        .iter()
        .enumerate()
        .map(|(index, pod)| ((&*pod.namespace, &*pod.name), index))
        .collect();
    // Nodes that are rebooted stay, and take no pods meanwhile.
    let candidates = |reboots: bool| {
        let commands = plan.commands.iter().filter(move |it| reboots || !it.is_reboot());
        commands.flat_map(|command| &command.candidates).map(|candidate| candidate.node.as_str())
    };
    let going: BTreeSet<&str> = candidates(false).collect();
    let closed: BTreeSet<&str> = candidates(true).collect();
    let moved = |pod: usize| match snapshot.pods[pod].placement {
        Placement::Unschedulable => true,
        Placement::Waiting => false,
        Placement::Bound(node) => {
            let node = &snapshot.nodes[node.0 as usize];
            node.deleting || going.contains(node.key.as_str())
        }
    };
    let mut placed: BTreeSet<usize> = BTreeSet::new();
    let mut place = |pod: &PodRef, found: &mut BTreeSet<Violation>| {
        let index = pods.get(&(&*pod.namespace, &*pod.name)).copied();
        let Some(index) = index.filter(|&index| snapshot.pods[index].uid == pod.uid) else {
            found.insert(Violation::UnknownPod(pod.clone()));
            return None;
        };
        if !placed.insert(index) {
            found.insert(Violation::PlacedTwice(pod.clone()));
        }
        if !moved(index) {
            found.insert(Violation::NeedsNoPlace(pod.clone()));
        }
        Some(index)
    };

    let mut on_machine: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let nominations = plan
        .nominations
        .iter()
        .chain(&plan.buffered)
        .chain(plan.commands.iter().flat_map(|command| &command.nominations));
    for nomination in nominations {
        if let Some(pod) = place(&nomination.pod, &mut found) {
            on_machine.entry(nomination.node.clone()).or_default().push(pod);
        }
    }
    let launches: Vec<_> = plan
        .launches
        .iter()
        .chain(plan.commands.iter().flat_map(|command| {
            let first = command.terminate_first.as_ref();
            let after = first.and_then(|first| first.launch.as_ref());
            command.replacements.iter().chain(after)
        }))
        .collect();
    let in_launch: Vec<Vec<usize>> = launches
        .iter()
        .map(|launch| {
            let pods = launch.pods.iter().chain(&launch.buffer_pods);
            pods.filter_map(|pod| place(pod, &mut found)).collect()
        })
        .collect();
    announce(snapshot, plan, &launches, &mut found);

    for (machine, pods) in &on_machine {
        places::check_machine(snapshot, &closed, machine, pods, &mut found);
    }
    for (number, (launch, pods)) in launches.iter().zip(&in_launch).enumerate() {
        places::check_launch(snapshot, number, launch, pods, &mut found);
    }
    topology::check_topology(snapshot, &going, &on_machine, &launches, &in_launch, &mut found);
    places::check_limits(snapshot, &going, &launches, &mut found);
    let in_launches = (&launches[..], &in_launch[..]);
    devices::check_devices(snapshot, plan, &going, &on_machine, in_launches, &mut found);
    reservations::check_reservations(snapshot, &launches, &mut found);
    commands::check_commands(snapshot, plan, &placed, &mut found);
    consolidation::check_consolidation(snapshot, plan, &mut found);
    found.into_iter().collect()
}

/// Virtual pods are listed apart, so that nothing is announced for them.
fn announce(
    snapshot: &Snapshot,
    plan: &Plan,
    launches: &[&crate::plan::Launch],
    found: &mut BTreeSet<Violation>,
) {
    let buffers: BTreeSet<&str> =
        snapshot.pods.iter().filter(|pod| pod.buffer.is_some()).map(|pod| &*pod.uid).collect();
    let real = plan.nominations.iter().map(|nomination| &nomination.pod);
    let real = real.chain(launches.iter().flat_map(|launch| &launch.pods));
    let apart = plan.buffered.iter().map(|nomination| &nomination.pod);
    let apart = apart.chain(launches.iter().flat_map(|launch| &launch.buffer_pods));
    let wrong = real
        .filter(|pod| buffers.contains(&*pod.uid))
        .chain(apart.filter(|pod| !buffers.contains(&*pod.uid)));
    found.extend(wrong.map(|pod| Violation::Announced(pod.clone())));
}
