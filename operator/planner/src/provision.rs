//! Provisioning: places for pods that have none, on machines that exist, are on their way, or are
//! to be launched.

use std::collections::BTreeSet;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use jiff::Timestamp;

use crate::Cancel;
use crate::compile::Problem;
use crate::demands::{Demand, demands};
use crate::launch::{LaunchFilter, Launches, pod_ref, tell_apart};
use crate::machine_specs::MachineSpecs;
use crate::pack::{Strategy, pack, pack_jointly, rehearse, relocate, repack};
use crate::plan::{
    Exclusion, Launch, LaunchReason, Nomination, PLAN_VERSION, Plan, PodRef, WaitingPod,
};
use crate::policy::Policy;
use crate::reservations::Reservations;
use crate::snapshot::{Placement, Snapshot};
use crate::solver::{Budget, PlacedPod, Solver};

/// Plans places for all pods that need one: those that kube-scheduler found none for, and those on
/// machines that go away.
///
/// `cancel` is asked between machines; what is in the plan then is valid, the rest was not looked
/// at.
pub fn provision(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    seed: u64,
    cancel: &dyn Cancel,
) -> Plan {
    // Expiry of nominations and the like are the disruption side's; the signature is the same for
    // both.
    let _ = now;
    let overlaid = crate::overlays::apply(snapshot);
    let snapshot = &*overlaid.snapshot;
    let problem = Problem::new(snapshot, policy);
    let (demands, rejected) = demands(&problem, |_| true);
    let mut fresh = Solver::new(&problem);
    let mut plan = Plan { version: PLAN_VERSION, ..Plan::default() };
    plan.report.zones = crate::zones::count(&problem, &mut fresh.counts, &demands);
    let Planned { packed, made, launches } =
        planned(&fresh, demands, &mut plan.report.pods, cancel);
    plan.launches = launches;
    plan.report.cancelled = cancel.is_cancelled();
    plan.report.node_pools.clone_from(&problem.tables.skipped);
    plan.report.node_pools.sort_by(|a, b| a.name.cmp(&b.name));
    tell_apart(snapshot, plan.launches.iter_mut(), seed);
    plan.report.prices = made.price_ranges(snapshot, &plan.launches);
    plan.launches.iter_mut().for_each(|launch| overlaid.mark(launch));
    let (virtual_pods, placed): (Vec<_>, Vec<_>) =
        packed.solver.placed.iter().partition(|it| snapshot.pods[it.pod].buffer.is_some());
    plan.nominations = nominations(snapshot, &placed);
    plan.buffered = nominations(snapshot, &virtual_pods);
    if let Some((left, table)) = packed.solver.devices.as_deref().zip(problem.devices.as_deref()) {
        let pods = packed.solver.placed.iter().map(|it| it.pod);
        plan.devices = left.on_machines(&problem.tables, table, pods);
    }
    let skipped = problem
        .tables
        .skipped
        .iter()
        .map(|pool| (pool.name.clone(), Exclusion::PoolNotReady(pool.reason.clone())));
    let skipped: Vec<_> = skipped.collect();
    let mut wait = |pod: usize, reasons: Vec<(String, Exclusion)>| {
        if snapshot.pods[pod].placement == Placement::Unschedulable {
            plan.report.pods.push(WaitingPod { pod: pod_ref(&snapshot.pods[pod]), reasons });
        }
    };
    let many: usize = packed.waiting.iter().map(|&(demand, _)| packed.demands[demand].left()).sum();
    for (demand, mut reasons) in packed.waiting {
        reasons.extend(skipped.iter().cloned());
        reasons.truncate((TOLD / many.max(1)).max(1));
        for &pod in &packed.demands[demand].pods[packed.demands[demand].next..] {
            wait(pod, reasons.clone());
        }
    }
    for (pod, reason) in rejected {
        wait(pod, vec![(String::new(), reason)]);
    }
    plan.report.pods.sort_by(|a, b| a.pod.cmp(&b.pod));
    plan
}

/// A packing, and what can be launched of it.
struct Planned<'p, 'a> {
    packed: Packed<'p, 'a>,
    made: Launches,
    launches: Vec<Launch>,
}

/// Packings in which only the pods of launches that came to nothing are left out; after these, so
/// is every pod whose rules depend on such pods.
const PACKINGS: usize = 4;

/// Packs the pods and makes the launches. A launch can come to nothing, because its reservation is
/// full, say; then its pods wait. If topology rules of other pods depend on these pods, the rest is
/// packed again without them: an emptier domain closes others to spread, and affinity may have
/// nobody to be near.
fn planned<'p, 'a>(
    fresh: &Solver<'p, 'a>,
    mut demands: Vec<Demand>,
    waiting: &mut Vec<WaitingPod>,
    cancel: &dyn Cancel,
) -> Planned<'p, 'a> {
    let problem = fresh.problem;
    let snapshot = problem.tables.snapshot;
    let mut packings = 0;
    loop {
        packings += 1;
        let packed = best(fresh, &demands, cancel);
        let (mut made, mut launches, mut lost) = (Launches::default(), Vec::new(), Vec::new());
        for claim in &packed.solver.claims {
            let filter = LaunchFilter::all(&packed.solver, claim);
            match made.make(&packed.solver, claim, &filter, LaunchReason::Provisioned) {
                Ok(launch) => launches.push(launch),
                Err(reason) => {
                    let template = packed.solver.specs[claim.spec].template;
                    let pool = crate::tables::templates::pool_name(
                        &problem.tables,
                        &problem.tables.templates[template],
                    );
                    let pods = claim.pods.iter().map(|&pod| pod_ref(&snapshot.pods[pod]));
                    lost.push((pods.collect::<Vec<_>>(), pool.to_owned(), reason));
                }
            }
        }
        for (launch, reason) in Reservations::new(snapshot).settle(&mut launches) {
            let pods = launch.pods.into_iter().chain(launch.buffer_pods).collect();
            lost.push((pods, launch.node_pool, reason));
        }
        let without = lost.iter().flat_map(|(pods, ..)| pods);
        let without: BTreeSet<Arc<str>> = without.map(|pod| Arc::clone(&pod.uid)).collect();
        let counted_on = counted_on(&packed.solver, &without);
        let mut leave = |pod: &PodRef, at: usize| {
            let (_, pool, reason) = &lost[at];
            waiting.push(WaitingPod {
                pod: pod.clone(),
                reasons: vec![(pool.clone(), reason.clone())],
            });
        };
        for (at, (pods, ..)) in lost.iter().enumerate() {
            for pod in pods {
                leave(pod, at);
            }
        }
        if counted_on.is_empty() {
            return Planned { packed, made, launches };
        }
        for demand in &mut demands {
            let is_bound = packings >= PACKINGS && counted_on.contains(&demand.shape);
            demand.pods.retain(|&pod| {
                let pod = &snapshot.pods[pod];
                let is_left = !without.contains(&pod.uid);
                if is_bound && is_left {
                    leave(&pod_ref(pod), 0);
                }
                !is_bound && is_left
            });
        }
        demands.retain(|demand| !demand.pods.is_empty());
    }
}

/// The shapes of placed pods whose rules depend on pods that have no place after all. `without` has
/// the uids of the latter.
fn counted_on(solver: &Solver<'_, '_>, without: &BTreeSet<Arc<str>>) -> BTreeSet<usize> {
    if without.is_empty() {
        return BTreeSet::new();
    }
    let (problem, snapshot) = (solver.problem, solver.problem.tables.snapshot);
    let placed = solver.placed.iter().map(|it| it.pod);
    let placed = placed.chain(solver.claims.iter().flat_map(|claim| claim.pods.iter().copied()));
    let (mut lost, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for pod in placed.map(|pod| &snapshot.pods[pod]) {
        let shapes = if without.contains(&pod.uid) { &mut lost } else { &mut kept };
        shapes.insert(pod.shape.0 as usize);
    }
    let mut touched = problem.rules.in_order();
    let groups: FixedBitSet = lost.iter().flat_map(|&shape| problem.rules.of(shape)).collect();
    touched.intersect_with(&groups);
    kept.retain(|&shape| problem.rules.require(shape, &touched));
    kept
}

/// How many reasons a report has at most, apart from the first one of each pod: there may be many
/// pods, and many NodePools that don't take them.
const TOLD: usize = 200_000;

/// A finished packing.
pub(crate) struct Packed<'p, 'a> {
    pub(crate) solver: Solver<'p, 'a>,
    pub(crate) demands: Vec<Demand>,
    pub(crate) waiting: Vec<(usize, Vec<(String, Exclusion)>)>,
}

/// Plans of up to so many machines, and those that leave pods waiting, are packed machine by
/// machine, too: the more there are, the less is lost by whole machines.
const SMALL: usize = 200;

/// And where there are so few kinds of pods × kinds of machines, or half as many as pods.
const QUICK: usize = 4_000;

/// Packs in each way and keeps the one that leaves the fewest pods waiting, at the lowest price;
/// its pods may then move where that makes it cheaper.
pub(crate) fn best<'p, 'a>(
    fresh: &Solver<'p, 'a>,
    demands: &[Demand],
    cancel: &dyn Cancel,
) -> Packed<'p, 'a> {
    let run = |strategy, specs: &MachineSpecs, budget| {
        let mut solver = fresh.clone();
        (solver.specs, solver.budget) = (specs.clone(), budget);
        let mut demands = demands.to_vec();
        let waiting = pack(&mut solver, &mut demands, strategy, &|_| true, cancel);
        if matches!(strategy, Strategy::Cheapest | Strategy::Columns) {
            repack(&mut solver, cancel);
        }
        Packed { solver, demands, waiting }
    };
    let first = run(Strategy::Columns, &fresh.specs, None);
    if first.solver.claims.is_empty() {
        return first;
    }
    let rank = |packed: &Packed<'_, '_>| {
        let left: usize = packed.demands.iter().map(Demand::left).sum();
        (left, packed.solver.cost())
    };
    let small = first.solver.claims.len() <= SMALL || rank(&first).0 > 0;
    // Without machines of their own for pods without rules there is but one way with values.
    let free = first.solver.opens_freely;
    let close = first.solver.is_close;
    // Machine by machine it takes time for each kind of pod and each kind of machine.
    let pods: usize = demands.iter().map(|demand| demand.pods.len()).sum();
    let kinds = demands.len() * first.solver.claims.len().min(4 * demands.len());
    let quick = !free || kinds <= QUICK.max(pods / 2);
    let tried = small && quick && !close;
    let others = [
        Some(Strategy::Cheapest).filter(|_| free && tried),
        Some(Strategy::Plain).filter(|_| tried),
        Some(Strategy::Fill),
    ];
    let mut best = others.into_iter().flatten().fold(first, |best, strategy| {
        let (left, price) = rank(&best);
        let budget = (left == 0).then(|| Budget::new(price));
        let other = run(strategy, &best.solver.specs, budget);
        if rank(&other) < (left, price) { other } else { best }
    });
    pack_jointly(&mut best.solver, &fresh.counts, cancel);
    relocate(&mut best.solver, cancel);
    if !fresh.problem.tables.policy.nominations {
        rehearse(&mut best.solver, cancel);
    }
    best
}

/// Placements on machines that exist, by pod.
pub(crate) fn nominations(snapshot: &Snapshot, placed: &[PlacedPod]) -> Vec<Nomination> {
    let mut list: Vec<_> = placed
        .iter()
        .map(|&PlacedPod { pod, machine }| Nomination {
            pod: pod_ref(&snapshot.pods[pod]),
            node: snapshot.nodes[machine].key.clone(),
        })
        .collect();
    list.sort_by(|a, b| a.pod.cmp(&b.pod));
    list
}
