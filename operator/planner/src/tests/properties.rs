//! Properties of plans over generated clusters.

mod any_rules;
mod dealing;
mod scene;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;

use super::fixtures::*;
use crate::plan::{Exclusion, Launch, LaunchReason, Method, Nomination, PLAN_VERSION, WaitingPod};
use crate::policy::Policy;
use crate::resources::{MicroUsd, Resources};
use crate::snapshot::{
    Budget, BudgetNodes, CapacityType, ConsolidationPolicy, Eviction, InstanceType, Node,
    NodeClassRef, NodeOverlay, NodePhase, NodePool, Offering, Operator, Placement, PodAffinityTerm,
    PodBudget, PodShape, PriceChange, Requirement, ShapeId, Snapshot, TopologySpread,
};
use crate::testing::dealing::is_selected;
use crate::testing::{Builder, apply};
use crate::{Plan, check, disrupt, provision};
use scene::{any_reservations, any_scene, reserve};

fn bytes(plan: &Plan) -> String {
    serde_json::to_string(plan).expect("plans are plain data")
}

/// Whether some machine of some pool would do for a pod alone: asked of the checker.
fn has_a_place(snapshot: &Snapshot, pod: usize) -> bool {
    let pod = &snapshot.pods[pod];
    let reference = crate::launch::pod_ref(pod);
    snapshot.node_pools.iter().any(|pool| {
        let catalog = &snapshot.catalogs[0];
        catalog.instance_types.iter().any(|kind| {
            kind.offerings.iter().filter(|offer| offer.available).any(|offer| {
                let mut requirements = vec![
                    need("topology.kubernetes.io/zone", Operator::In, &[&offer.zone]),
                    need(
                        "karpenter.sh/capacity-type",
                        Operator::In,
                        &[offer.capacity_type.as_str()],
                    ),
                ];
                requirements.extend(pool.template.requirements.iter().cloned());
                let suits_pool = suits(pool, kind, &offer.zone, offer.capacity_type);
                let launch = Launch {
                    node_pool: pool.name.clone(),
                    node_pool_uid: pool.uid.clone(),
                    labels: pool.template.labels.clone().into(),
                    annotations: BTreeMap::default().into(),
                    requirements: requirements.into(),
                    instance_types: vec![kind.name.clone()].into(),
                    capacity_types: vec![offer.capacity_type],
                    requests: Resources::default(),
                    taints: Vec::new().into(),
                    startup_taints: Vec::new().into(),
                    node_class: NodeClassRef::default(),
                    expire_after: None,
                    termination_grace_period: None,
                    pods: vec![reference.clone()],
                    devices: Vec::new(),
                    buffer_pods: Vec::new(),
                    price: offer.price,
                    reason: LaunchReason::Provisioned,
                };
                suits_pool
                    && check(
                        snapshot,
                        &Plan { version: PLAN_VERSION, launches: vec![launch], ..Plan::default() },
                    )
                    .is_empty()
            })
        })
    })
}

/// Whether a type in a zone meets the pool's requirements; labels that only pods and pools know are
/// left out.
fn suits(pool: &NodePool, kind: &InstanceType, zone: &str, capacity_type: CapacityType) -> bool {
    pool.template.requirements.iter().all(|need| {
        let value = match need.key.as_str() {
            "topology.kubernetes.io/zone" => zone.to_owned(),
            "karpenter.sh/capacity-type" => capacity_type.as_str().to_owned(),
            "team" | any_rules::RACK => return true,
            key => {
                let of_kind = kind.requirements.iter().find(|of_kind| of_kind.key == key);
                of_kind.expect("every well-known label is defined").values[0].clone()
            }
        };
        let number = |text: &str| text.parse::<i64>().expect("an integer");
        match need.operator {
            Operator::In => need.values.contains(&value),
            Operator::NotIn => !need.values.contains(&value),
            Operator::Gt => number(&value) > number(&need.values[0]),
            Operator::Lte => number(&value) <= number(&need.values[0]),
            Operator::Exists => true,
            other => panic!("operator {other:?} is not generated"),
        }
    })
}

/// Whether nothing but room decides what a pool launches.
fn is_unbounded(pool: &NodePool) -> bool {
    let bounded = |need: &Requirement| need.min_values.is_some();
    pool.limits.is_empty() && !pool.template.requirements.iter().any(bounded)
}

/// Whether a pod waits because nobody says which value of a label machines to come will have.
pub(super) fn is_untold(why: &Exclusion) -> bool {
    matches!(why, Exclusion::Topology { rule, .. } if rule == crate::topology::UNTOLD)
}

/// Whether a pool says of a label that a required rule of a shape is about that there is to be one,
/// but not which.
fn leaves_open(pool: &NodePool, shape: &PodShape) -> bool {
    let terms = shape.pod_affinity.iter().filter(|term| term.weight.is_none());
    let spread = shape.topology_spread.iter().filter(|spread| spread.required);
    let mut keys = terms.map(|it| &it.topology_key).chain(spread.map(|it| &it.topology_key));
    keys.any(|key| {
        let open = |need: &Requirement| matches!(need.operator, Operator::Exists | Operator::NotIn);
        pool.template.requirements.iter().any(|need| need.key == *key && open(need))
    })
}

fn total(snapshot: &Snapshot) -> MicroUsd {
    snapshot.nodes.iter().filter_map(|node| node.price).sum()
}

proptest! {

    #[test]
    fn every_plan_is_accepted_and_planning_again_changes_nothing(mut scene in any_scene(), reservations in any_reservations()) {
        reserve(&mut scene.kinds, &reservations);
        let snapshot = scene.snapshot();
        snapshot.validate().expect("a valid snapshot");
        let plan = provision(&snapshot, &Policy::default(), now(), 1, &());
        prop_assert_eq!(check(&snapshot, &plan), vec![], "{}", dealing::told(&plan));
        prop_assert_eq!(bytes(&plan), bytes(&provision(&snapshot, &Policy::default(), now(), 1, &())));
        let after = apply(&snapshot, &plan);
        after.validate().expect("a valid snapshot");
        let again = provision(&after, &Policy::default(), now(), 1, &());
        prop_assert_eq!(check(&after, &again), vec![]);
        // A launch is charged to its limit with its largest type and becomes a smaller one, so a
        // limited pool may have room again; and a launch that a further pod would leave with too
        // few types for `minValues` becomes a machine that takes it. What waits for a reservation
        // may find another place once the reservation is full.
        let waits = |waiting: &WaitingPod| {
            waiting.reasons.iter().any(|(_, why)| matches!(why, Exclusion::Reserved { .. }))
        };
        if scene.pools.iter().all(is_unbounded) && !plan.report.pods.iter().any(waits) {
            let shape = |placed: &Nomination| {
                let pod = snapshot.pods.iter().find(|pod| pod.uid == placed.pod.uid);
                &*snapshot.shapes[pod.expect("a known pod").shape.0 as usize]
            };
            // Which domain of a label a machine is in that the NodePool does not tell is known once
            // it is there: a pod with a rule about it may find its place then.
            let untold = |placed: &Nomination| {
                let waited = plan.report.pods.iter().find(|waiting| waiting.pod == placed.pod);
                // Of several alternatives the report has the last one only.
                let is_open = || scene.pools.iter().any(|pool| leaves_open(pool, shape(placed)));
                waited.is_some_and(|waiting| waiting.reasons.iter().any(|(_, why)| is_untold(why)) || is_open())
            };
            // And so may those that want to be near such pods.
            let (mut told, mut sooner): (Vec<_>, Vec<_>) = again.nominations.iter().partition(|it| untold(it));
            loop {
                let follows = |it: &&Nomination| {
                    let near = shape(it).pod_affinity.iter().filter(|term| !term.anti && term.weight.is_none());
                    near.into_iter().any(|term| told.iter().any(|other| is_selected(&snapshot, shape(it), term, shape(other))))
                };
                let (following, left): (Vec<_>, Vec<_>) = sooner.into_iter().partition(follows);
                sooner = left;
                if following.is_empty() {
                    break;
                }
                told.extend(following);
            }
            prop_assert_eq!(sooner, Vec::<&Nomination>::new());
            // These may take the room of virtual pods, which then need another machine.
            let further = again.launches.iter().filter(|it| told.is_empty() || !it.pods.is_empty());
            prop_assert_eq!(further.collect::<Vec<_>>(), Vec::<&Launch>::new());
        }
    }

    #[test]
    fn plans_for_being_dealt_out_are_accepted_and_keep_nobody_waiting(scene in any_scene()) {
        let snapshot = scene.snapshot();
        let dealt_out = Policy { nominations: false, ..Policy::default() };
        let rehearsed = provision(&snapshot, &dealt_out, now(), 1, &());
        prop_assert_eq!(check(&snapshot, &rehearsed), vec![]);
        prop_assert_eq!(bytes(&rehearsed), bytes(&provision(&snapshot, &dealt_out, now(), 1, &())));
        let planned = provision(&snapshot, &Policy::default(), now(), 1, &());
        prop_assert_eq!(&rehearsed.report.pods, &planned.report.pods);
        prop_assert_eq!(&rehearsed.nominations, &planned.nominations);
        let pods = |plan: &Plan| {
            let mut pods: Vec<_> = plan.launches.iter().flat_map(|it| it.pods.clone()).collect();
            pods.sort_unstable();
            pods
        };
        prop_assert_eq!(pods(&rehearsed), pods(&planned));
    }

    #[test]
    fn the_number_of_threads_is_irrelevant(scene in any_scene()) {
        let snapshot = scene.snapshot();
        let plan = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            pool.install(|| bytes(&provision(&snapshot, &Policy::default(), now(), 1, &())))
        };
        prop_assert_eq!(plan(1), plan(3));
    }

    #[test]
    fn no_pod_waits_that_has_a_place(mut scene in any_scene()) {
        for pool in &mut scene.pools {
            pool.limits.clear();
            pool.template.requirements.retain(|need| need.min_values.is_none() && need.key != "team" && need.key != any_rules::RACK);
        }
        scene.spare = 0;
        // What topology rules forbid is not told by a pod alone.
        for shape in scene.pending.iter_mut().chain(scene.before.iter_mut().map(|(shape, _)| shape)) {
            shape.pod_affinity.clear();
            shape.topology_spread.clear();
        }
        let snapshot = scene.snapshot();
        let plan = provision(&snapshot, &Policy::default(), now(), 1, &());
        for waiting in &plan.report.pods {
            prop_assert!(!waiting.reasons.is_empty());
            let pod = snapshot.pods.iter().position(|pod| pod.uid == waiting.pod.uid).expect("a pod");
            prop_assert!(!has_a_place(&snapshot, pod), "{:?}", waiting);
        }
        let placed: usize = plan.launches.iter().map(|launch| launch.pods.len()).sum();
        let pending = snapshot.pods.iter().filter(|pod| pod.placement == Placement::Unschedulable).count();
        prop_assert_eq!(placed + plan.nominations.len() + plan.report.pods.len(), pending);
    }

    #[test]
    fn the_order_of_shapes_is_irrelevant(scene in any_scene()) {
        let snapshot = scene.snapshot();
        let mut other = snapshot.clone();
        other.shapes.reverse();
        let last = u32::try_from(other.shapes.len()).expect("few shapes");
        for pod in &mut other.pods {
            pod.shape = ShapeId(last - 1 - pod.shape.0);
        }
        let plans = [&snapshot, &other].map(|snapshot| {
            let policy = Policy::default();
            (bytes(&provision(snapshot, &policy, now(), 1, &())), bytes(&disrupt(snapshot, &policy, now(), 1, &())))
        });
        prop_assert_eq!(&plans[0], &plans[1]);
    }

    #[test]
    fn disruption_is_accepted_saves_money_and_comes_to_rest(mut scene in any_scene(), share in 10..101_u32) {
        scene.spare = 0;
        let mut snapshot = scene.snapshot();
        for pool in &mut snapshot.node_pools {
            pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Percent(share), reasons: Vec::new() }];
        }
        // What waits has been provisioned for first.
        let plan = provision(&snapshot, &Policy::default(), now(), 1, &());
        let mut snapshot = apply(&snapshot, &plan);
        let mut waves = 0;
        loop {
            let plan = disrupt(&snapshot, &Policy::default(), now(), 1, &());
            prop_assert_eq!(check(&snapshot, &plan), vec![]);
            for command in &plan.commands {
                prop_assert_eq!(crate::revalidate(command, &snapshot, &Policy::default(), now()), Ok(()));
            }
            if plan.commands.is_empty() {
                break;
            }
            let after = apply(&snapshot, &plan);
            prop_assert!(total(&after) < total(&snapshot));
            let unbound = |snapshot: &Snapshot| {
                snapshot.pods.iter().filter(|pod| pod.placement == Placement::Unschedulable).count()
            };
            prop_assert_eq!(unbound(&after), unbound(&snapshot));
            // Nothing that was moved needs a machine afterwards.
            let refill = provision(&after, &Policy::default(), now(), 1, &());
            if unbound(&after) == 0 {
                prop_assert_eq!(&refill.launches, &vec![]);
            }
            snapshot = after;
            waves += 1;
            prop_assert!(waves <= 2 * (snapshot.nodes.len() + scene.before.len()) + 8, "still going after {waves} waves");
        }
    }

    #[test]
    fn disruption_with_everything_on_is_accepted(
        scene in any_scene(),
        marks in prop::collection::vec(0..10_u8, 64),
        policy in 0..3_u8,
        share in 10..101_u32,
        spot_to_spot in any::<bool>(),
    ) {
        let mut snapshot = scene.snapshot();
        snapshot.repair_policies = super::repairing::policies();
        for pool in &mut snapshot.node_pools {
            pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Percent(share), reasons: Vec::new() }];
            pool.disruption.consolidation_policy = match policy {
                0 => ConsolidationPolicy::WhenEmpty,
                1 => ConsolidationPolicy::Balanced,
                _ => ConsolidationPolicy::WhenEmptyOrUnderutilized,
            };
        }
        snapshot.pod_budgets = (1..3)
            .map(|allowed| PodBudget { namespace: "default".to_owned(), name: format!("pdb-{allowed}"), allowed })
            .collect();
        let drifted = || Some(("NodePoolDrifted".to_owned(), now()));
        for (node, mark) in snapshot.nodes.iter_mut().zip(marks.iter().cycle()) {
            let Some(claim) = &mut node.claim else { continue };
            match mark {
                0 | 1 => (claim.drifted, claim.has_termination_grace_period) = (drifted(), *mark == 0),
                2 => node.do_not_disrupt = true,
                3 => node.ready = false,
                4 => claim.consolidatable = None,
                8 => claim.consolidatable = Some(now() + jiff::SignedDuration::from_secs(1)),
                5 => node.deleting = true,
                6 => super::repairing::fall_ill(node, "KernelReady", "DeadlockDetected"),
                7 => {
                    super::repairing::fall_ill(node, "KernelReady", "Unknown");
                    node.phase = NodePhase::Registered;
                }
                _ => {}
            }
        }
        for (pod, mark) in snapshot.pods.iter_mut().zip(marks.iter().rev().cycle()) {
            match mark {
                0 => pod.eviction = Eviction::DoNotDisrupt,
                1 => pod.eviction = Eviction::BlockedByPdb("pdb".to_owned()),
                2 => (pod.deletion_cost, pod.pod_budget) = (-(1 << 28), Some(0)),
                3 => pod.priority = 1_000_000,
                4 => (pod.terminating, pod.stateful) = (true, true),
                5..8 => pod.pod_budget = Some(u32::from(mark % 2)),
                _ => {}
            }
        }
        let policy = Policy { spot_to_spot, ..Policy::default() };
        let plan = disrupt(&snapshot, &policy, now(), 1, &());
        prop_assert_eq!(check(&snapshot, &plan), vec![]);
        // What consolidateAfter asks for is told by the condition, which the checker looks at; only
        // the clock it does not know.
        let too_soon = |node: &&Node| {
            let since = node.claim.as_ref().and_then(|claim| claim.consolidatable);
            since.is_some_and(|since| since > now())
        };
        for node in snapshot.nodes.iter().filter(too_soon) {
            let voluntary = plan.commands.iter().filter(|command| !matches!(command.method, Method::Repair | Method::Drift));
            let mut going = voluntary.flat_map(|command| &command.candidates);
            prop_assert!(going.all(|candidate| candidate.node != node.key), "{}", node.key);
        }
        prop_assert_eq!(bytes(&plan), bytes(&disrupt(&snapshot, &policy, now(), 1, &())));
        let short = disrupt(&snapshot, &policy, now(), 1, &|| true);
        prop_assert_eq!(check(&snapshot, &short), vec![]);
        // Every node goes, stays for a reason, or has its turn in the next pass.
        let going: usize = plan.commands.iter().map(|command| command.candidates.len()).sum();
        prop_assert_eq!(going + plan.report.nodes.len(), snapshot.nodes.len());
    }

    #[test]
    fn a_shared_shape_is_planned_like_its_copies(scene in any_scene()) {
        let snapshot = scene.snapshot();
        let mut other = snapshot.clone();
        other.shapes = snapshot.pods.iter().map(|pod| Arc::clone(&snapshot.shapes[pod.shape.0 as usize])).collect();
        for (index, pod) in (0..).zip(&mut other.pods) {
            pod.shape = ShapeId(index);
        }
        let plans = [&snapshot, &other].map(|snapshot| provision(snapshot, &Policy::default(), now(), 1, &()));
        prop_assert_eq!(check(&other, &plans[1]), vec![]);
        // With limits and topology rules it depends on the order of equals which of them is left
        // out.
        let constrained = snapshot.shapes.iter().any(|shape| !shape.pod_affinity.is_empty() || !shape.topology_spread.is_empty());
        if !constrained && scene.pools.iter().all(|pool| pool.limits.is_empty()) {
            prop_assert_eq!(plans[0].report.pods.len(), plans[1].report.pods.len());
        }
    }

    #[test]
    fn commands_are_checked_together_as_one_after_the_other(
        scene in any_scene(),
        marks in prop::collection::vec(0..16_u8, 64),
        changes in prop::collection::vec(0..24_u8, 64),
        share in 10..101_u32,
        stale in any::<bool>(),
    ) {
        let mut before = scene.snapshot();
        for pool in &mut before.node_pools {
            pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Percent(share), reasons: Vec::new() }];
        }
        let drifted = || Some(("NodePoolDrifted".to_owned(), now()));
        let mut empty = vec![false; before.nodes.len()];
        for ((node, empty), mark) in before.nodes.iter_mut().zip(&mut empty).zip(marks.iter().cycle()) {
            let Some(claim) = &mut node.claim else { continue };
            match mark {
                0 | 1 => claim.drifted = drifted(),
                2 => node.ready = false,
                // Its pods are gone, or would not be missed.
                3..=9 => *empty = true,
                _ => {}
            }
        }
        for (index, pod) in before.pods.iter_mut().enumerate() {
            match pod.placement {
                Placement::Bound(node) if empty[node.0 as usize] => {
                    if index % 5 == 0 {
                        pod.deletion_cost = i32::MIN;
                    } else {
                        pod.daemon = true;
                    }
                }
                _ => {}
            }
        }
        let plan = disrupt(&before, &Policy::default(), now(), 1, &());
        let mut snapshot = before.clone();
        if stale {
            for (node, change) in snapshot.nodes.iter_mut().zip(changes.iter().cycle()) {
                match change {
                    0 => node.do_not_disrupt = true,
                    1 => node.ready = !node.ready,
                    2 => node.deleting = true,
                    3 => node.nominated_until = Some(now() + jiff::SignedDuration::from_secs(5)),
                    _ => {}
                }
            }
            for (pod, change) in snapshot.pods.iter_mut().zip(changes.iter().rev().cycle()) {
                match change {
                    0 => pod.eviction = Eviction::DoNotDisrupt,
                    1 => pod.daemon = false,
                    2 => pod.placement = Placement::Unschedulable,
                    _ => {}
                }
            }
        }
        // Some twice: a node that goes already does not go again.
        let mut commands = plan.commands;
        commands.extend(commands.clone().into_iter().step_by(2));
        let until = now() + jiff::SignedDuration::from_secs(20);
        let mut state = snapshot.clone();
        let one_by_one: Vec<_> = commands
            .iter()
            .map(|command| {
                let verdict = crate::revalidate(command, &state, &Policy::default(), now());
                if verdict.is_ok() {
                    crate::disruption::begun(&mut state, command, until);
                }
                verdict
            })
            .collect();
        let together = crate::revalidate_all(&commands, &snapshot, &Policy::default(), now(), until);
        prop_assert_eq!(together, one_by_one);
    }
}
