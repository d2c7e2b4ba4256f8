//! Static capacity: a NodePool with `replicas` has so many machines, whatever pods there are.

use fixedbitset::FixedBitSet;
use jiff::{SignedDuration, Timestamp};

use crate::compile::Problem;
use crate::disruption::cost::reschedule_cost;
use crate::launch::{LaunchFilter, launch_of, tell_apart};
use crate::plan::{Exclusion, Launch, LaunchReason, PLAN_VERSION, Plan, Removal, SkippedPool};
use crate::policy::Policy;
use crate::snapshot::{Eviction, NodePool, Placement, Snapshot};
use crate::solver::{Claim, Solver};

/// The most machines that one pass launches; the next one goes on. A slip of the finger in
/// `spec.replicas` is seen before it is paid for, and a plan stays of a size that can be carried
/// out.
const MOST_LAUNCHES: i64 = 1000;

/// Plans what static NodePools launch and remove to have as many machines as `spec.replicas` says,
/// within `limits.nodes`, a thousand launches at once.
///
/// [`Plan::launches`] has what is missing, [`Plan::removals`] what there is too much of: first
/// machines that never came up, then those without pods, then those that cost least to empty;
/// protected ones last.
pub fn replicas(snapshot: &Snapshot, policy: &Policy, now: Timestamp, seed: u64) -> Plan {
    let mut plan = Plan { version: PLAN_VERSION, ..Plan::default() };
    let mut on = vec![Vec::new(); snapshot.nodes.len()];
    for (index, pod) in snapshot.pods.iter().enumerate() {
        if let Placement::Bound(node) = pod.placement {
            on[node.0 as usize].push(index);
        }
    }
    for (index, pool) in snapshot.node_pools.iter().enumerate() {
        let Some(wanted) = pool.replicas else { continue };
        let mut skip = |reason: String| {
            plan.report.node_pools.push(SkippedPool { name: pool.name.clone(), reason });
        };
        if let Some(reason) = &pool.not_ready {
            skip(reason.clone());
            continue;
        }
        let census = Census::of(snapshot, pool);
        if census.active > wanted {
            let surplus = usize::try_from(census.active - wanted).unwrap_or(usize::MAX);
            let first = leaving(snapshot, pool, &on, now);
            plan.removals
                .extend(first.into_iter().take(surplus).map(|node| removal(snapshot, node)));
            continue;
        }
        let planned = i64::try_from(plan.launches.len()).unwrap_or(i64::MAX);
        let missing = (wanted - census.active).min(census.room).min(MOST_LAUNCHES - planned);
        if missing <= 0 {
            if census.active < wanted && census.room <= 0 {
                skip("it has as many machines as its limit allows".to_owned());
            }
            continue;
        }
        match static_launch(snapshot, policy, index, LaunchReason::Provisioned) {
            Some(launch) => plan.launches.extend((0..missing).map(|_| launch.clone())),
            None => skip("none of its instance types can be launched".to_owned()),
        }
    }
    tell_apart(snapshot, plan.launches.iter_mut(), seed);
    plan
}

/// How many machines a static pool has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Census {
    /// Machines that are not going.
    pub(super) active: i64,
    /// How many more its limit allows, those that are going included in what it has.
    pub(super) room: i64,
}

impl Census {
    pub(super) fn of(snapshot: &Snapshot, pool: &NodePool) -> Self {
        let (mut active, mut all) = (0, 0);
        for node in of_pool(snapshot, pool).map(|index| &snapshot.nodes[index]) {
            all += 1;
            active += i64::from(!node.deleting);
        }
        let limit = pool.limits.get("nodes").copied().unwrap_or(i64::MAX);
        Self { active, room: limit.saturating_sub(all) }
    }
}

fn of_pool<'s>(snapshot: &'s Snapshot, pool: &'s NodePool) -> impl Iterator<Item = usize> + 's {
    let nodes = snapshot.nodes.iter().enumerate();
    let owned = nodes.filter(|(_, node)| {
        node.claim.as_ref().and_then(|claim| claim.node_pool.as_ref()) == Some(&pool.name)
    });
    owned.map(|(index, _)| index)
}

/// The machines of a pool in the order in which they go when there are too many.
fn leaving(snapshot: &Snapshot, pool: &NodePool, on: &[Vec<usize>], now: Timestamp) -> Vec<usize> {
    let mut ranked: Vec<_> = of_pool(snapshot, pool)
        .filter(|&index| !snapshot.nodes[index].deleting)
        .map(|index| {
            let node = &snapshot.nodes[index];
            let pods = || on[index].iter().map(|&pod| &snapshot.pods[pod]);
            let held = |eviction: &Eviction| *eviction == Eviction::DoNotDisrupt;
            let starting = node.claim.as_ref().is_none_or(|claim| claim.provider_id.is_none());
            let empty = pods().all(|pod| pod.daemon && !held(&pod.eviction));
            let cost = reschedule_cost(pods().filter(|pod| pod.is_reschedulable()));
            let protected = node.do_not_disrupt || pods().any(|pod| held(&pod.eviction));
            let rank = if starting {
                0
            } else if empty {
                1
            } else {
                2 + u8::from(protected)
            };
            (rank, cost * lifetime_left(snapshot, index, now), index)
        })
        .collect();
    ranked.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    ranked.into_iter().map(|(_, _, index)| index).collect()
}

/// The share of its life that a machine has before it; 1 when it does not expire.
pub(super) fn lifetime_left(snapshot: &Snapshot, node: usize, now: Timestamp) -> f64 {
    let node = &snapshot.nodes[node];
    let life = node.claim.as_ref().and_then(|claim| claim.expire_after);
    let Some(life) = life.filter(SignedDuration::is_positive) else { return 1.0 };
    let age = now.duration_since(node.created_at);
    ((life.as_secs_f64() - age.as_secs_f64()) / life.as_secs_f64()).clamp(0.0, 1.0)
}

fn removal(snapshot: &Snapshot, node: usize) -> Removal {
    let node = &snapshot.nodes[node];
    let claim = node.claim.as_ref();
    Removal {
        node: node.key.clone(),
        claim: claim.map(|claim| claim.name.clone()).unwrap_or_default(),
        node_pool: claim.and_then(|claim| claim.node_pool.clone()).unwrap_or_default(),
    }
}

/// A machine of a static pool: what its template says and nothing more. `None` when none of its
/// types is on sale.
pub(super) fn static_launch(
    snapshot: &Snapshot,
    policy: &Policy,
    pool: usize,
    reason: LaunchReason,
) -> Option<Launch> {
    // Static pools take no part in scheduling, so that the compiled snapshot does not have them;
    // alone and without replicas it is a pool like others.
    let mut source = snapshot.node_pools[pool].clone();
    source.replicas = None;
    source.limits.clear();
    let alone = Snapshot {
        node_pools: vec![source],
        nodes: Vec::new(),
        shapes: Vec::new(),
        pods: Vec::new(),
        ..snapshot.clone()
    };
    let problem = Problem::new(&alone, policy);
    let mut solver = Solver::new(&problem);
    if problem.tables.templates.is_empty() {
        return None;
    }
    let spec = solver.specs.base(&problem.tables, 0);
    let types = solver.specs[spec].types.clone();
    let claim = empty_claim(&solver, spec, types);
    let filter = LaunchFilter::all(&solver, &claim);
    let found: Result<Launch, Exclusion> = launch_of(&solver, &claim, &filter, reason);
    let mut launch = found.ok()?;
    // The NodeClaim carries the pool's requirements as they are, not a list of types.
    launch.requirements = snapshot.node_pools[pool].template.requirements.clone().into();
    launch.requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Some(launch)
}

fn empty_claim(
    solver: &Solver<'_, '_>,
    spec: crate::machine_specs::SpecId,
    types: FixedBitSet,
) -> Claim {
    let prices = &solver.specs[spec];
    let target = types.ones().min_by_key(|&kind| (prices.price(kind), kind)).unwrap_or(0);
    Claim {
        spec,
        used: vec![0; solver.problem.tables.columns.len()],
        types,
        ports: Vec::new(),
        pods: Vec::new(),
        relaxed: Vec::new(),
        target,
    }
}
