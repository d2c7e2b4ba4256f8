//! Sick nodes: which are repaired, how, and which are left alone.

use jiff::{SignedDuration, Timestamp};

use super::disrupting::{commands, drifted, stay};
use super::fixtures::*;
use crate::check::Violation;
use crate::plan::{LaunchReason, Method, Resume, StayReason};
use crate::policy::Policy;
use crate::snapshot::{
    Budget, BudgetNodes, DisruptionReason, Eviction, Node, NodeCondition, NodePhase, NodePool,
    RepairAction, RepairPolicy, Snapshot,
};
use crate::testing::{Builder, apply};
use crate::{Plan, check, disrupt, revalidate};

const UNHEALTHY: DisruptionReason = DisruptionReason::Unhealthy;

/// A kernel that hangs is rebooted after ten minutes; what else is wrong with kernel or network is
/// replaced after half an hour.
pub(super) fn policies() -> Vec<RepairPolicy> {
    let policy = |condition: &str, reason: Option<&str>, minutes, action| RepairPolicy {
        condition: condition.to_owned(),
        status: "False".to_owned(),
        reason: reason.map(str::to_owned),
        toleration: SignedDuration::from_mins(minutes),
        termination_grace_period: None,
        priority: 50,
        action,
    };
    vec![
        policy("NetworkingReady", None, 30, RepairAction::ReplaceNode),
        policy("KernelReady", Some("Deadlock"), 10, RepairAction::RebootNode),
    ]
}

fn ago(minutes: i64) -> Timestamp {
    now() - SignedDuration::from_mins(minutes)
}

/// A condition is False for an hour.
pub(super) fn fall_ill(node: &mut Node, condition: &str, reason: &str) {
    node.health.conditions.push(NodeCondition {
        type_: condition.to_owned(),
        status: "False".to_owned(),
        reason: reason.to_owned(),
        since: ago(60),
    });
}

fn sick(key: &str) -> Node {
    let mut node = node(key, "default", "m.large", "zone-a");
    fall_ill(&mut node, "NetworkingReady", "Down");
    node
}

fn not_repaired(mut node: Node) -> Node {
    node.health.do_not_repair = true;
    node
}

/// Of its nodes none is consolidated.
fn quiet() -> NodePool {
    let mut pool = on_demand("default");
    pool.disruption.consolidate_after = None;
    pool
}

/// Ten full nodes that must not be disrupted, and others.
fn ward(nodes: impl IntoIterator<Item = Node>) -> Builder {
    ward_of(quiet(), nodes)
}

fn ward_of(pool: NodePool, nodes: impl IntoIterator<Item = Node>) -> Builder {
    let mut world = builder().pool(pool);
    for number in 0..10 {
        let mut well = node(&format!("well-{number}"), "default", "m.large", "zone-a");
        well.do_not_disrupt = true;
        world = world.node(well).pod(
            &format!("busy-{number}"),
            shape(1700, GI),
            Some(&format!("well-{number}")),
        );
    }
    nodes.into_iter().fold(world, Builder::node)
}

fn treated(builder: Builder) -> (Snapshot, Plan) {
    let mut snapshot = builder.build();
    snapshot.repair_policies = policies();
    let plan = disruption(&snapshot);
    for command in &plan.commands {
        assert_eq!(revalidate(command, &snapshot, &Policy::default(), now()), Ok(()));
    }
    (snapshot, plan)
}

fn keys(plan: &Plan) -> Vec<&str> {
    plan.commands.iter().map(|command| command.candidates[0].node.as_str()).collect()
}

#[test]
fn a_sick_node_is_replaced_and_what_it_suffers_from_is_told() {
    let world = ward([sick("ill")]).pod("web", shape(1500, GI), Some("ill"));
    let (snapshot, plan) = treated(world);
    assert_eq!(commands(&plan), [(UNHEALTHY, "ill", 1)]);
    let command = &plan.commands[0];
    assert_eq!(command.method, Method::Repair);
    assert_eq!(command.replacements[0].reason, LaunchReason::Replacement(UNHEALTHY));
    let repair = command.repair.as_ref().expect("repair says why");
    assert_eq!(
        (&*repair.condition, &*repair.reason, repair.policy.as_deref()),
        ("NetworkingReady", "Down", None)
    );
    assert_eq!((repair.eligible_at, repair.drain_bound), (ago(30), None));
    assert_eq!(disruption(&apply(&snapshot, &plan)).commands, []);
    // While the gate is off nothing is.
    assert_eq!(disruption(&Snapshot { repair_policies: Vec::new(), ..snapshot }).commands, []);
}

#[test]
fn an_empty_sick_node_goes_without_a_replacement() {
    let (_, plan) = treated(ward([sick("ill")]));
    assert_eq!(commands(&plan), [(UNHEALTHY, "ill", 0)]);
}

#[test]
fn what_is_tolerated_is_left_alone() {
    let mut ill = sick("ill");
    ill.health.conditions[0].since = ago(29);
    let (_, plan) = treated(ward([ill]).pod("web", shape(1500, GI), Some("ill")));
    assert_eq!(plan.commands, []);
}

#[test]
fn a_pool_of_which_too_many_are_sick_is_left_alone() {
    // Of fourteen three may be sick, counted whether it is tolerated or not.
    let sick = |n: usize| {
        let ill = (0..n).map(|number| {
            let mut ill = sick(&format!("ill-{number}"));
            if number > 0 {
                ill.health.conditions[0].since = ago(1);
            }
            ill
        });
        treated(ward(ill).pod("web", shape(1500, GI), Some("ill-0"))).1
    };
    assert_eq!(keys(&sick(3)), ["ill-0"]);
    let plan = sick(4);
    let reason =
        StayReason::TooManyUnhealthy { node_pool: "default".to_owned(), unhealthy: 4, nodes: 14 };
    assert_eq!((keys(&plan), stay(&plan, "ill-0")), (vec![], &reason));
}

#[test]
fn budgets_pace_repair_and_nodes_that_are_not_ready_do_not_use_them_up() {
    let mut slow = quiet();
    slow.disruption.budgets =
        vec![Budget { nodes: BudgetNodes::Count(1), reasons: vec![UNHEALTHY] }];
    let ill = ["a", "b"].map(|key| Node { ready: false, ..sick(key) });
    let world = ward_of(slow.clone(), ill.clone());
    let (_, plan) = treated(world);
    assert_eq!(keys(&plan), ["a"]);
    assert_eq!(*stay(&plan, "b"), StayReason::Budget(UNHEALTHY));
    // What never came up is in no budget.
    slow.disruption.budgets[0].nodes = BudgetNodes::Count(0);
    let starting = ill.map(|node| Node { phase: NodePhase::Registered, ..node });
    let (_, plan) = treated(ward_of(slow, starting));
    assert_eq!(keys(&plan), ["a", "b"]);
}

#[test]
fn the_most_urgent_goes_first_then_the_cheapest_to_empty_then_by_name() {
    let mut slow = quiet();
    slow.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(3), reasons: Vec::new() }];
    let mut worst = sick("z");
    worst.health.conditions[0].since = ago(120);
    let ill = ["a", "b", "c"].map(sick);
    let world = ward_of(slow, ill.into_iter().chain([worst]))
        .node(node("more", "default", "m.8xlarge", "zone-a"))
        .pod("a", shape(100, GI), Some("a"))
        .pod("hold", shape(100, GI), Some("more"));
    let mut snapshot = world.build();
    snapshot.repair_policies = policies();
    // Four of sixteen are a quarter; another pool's nodes do not help, so two more are well.
    for number in 10..15 {
        let key = format!("well-{number}");
        snapshot
            .nodes
            .push(Node { do_not_disrupt: true, ..node(&key, "default", "m.large", "zone-a") });
    }
    let snapshot = sorted(snapshot);
    let plan = disruption(&snapshot);
    assert_eq!(keys(&plan), ["z", "b", "c"]);
    // A pass that is cut short goes on with the next one.
    let short = disrupt(&snapshot, &Policy::default(), now(), 1, &|| true);
    assert_eq!(keys(&short)[0], "z");
    let resume = Some(Resume { method: Method::Repair, node: "b".to_owned() });
    assert_eq!(short.report.resume, resume);
    let plan = disruption_with(&snapshot, &Policy { resume, ..Policy::default() });
    assert_eq!(keys(&plan), ["b", "c", "a"]);
}

#[test]
fn where_repair_was_cut_short_is_not_forgotten_by_consolidation_which_is_too() {
    let well = ["fine-1", "fine-2"].map(|key| node(key, "default", "m.large", "zone-a"));
    let world = ward_of(on_demand("default"), ["a", "b"].map(sick).into_iter().chain(well));
    let world = ["a", "b", "fine-1", "fine-2"]
        .into_iter()
        .fold(world, |world, key| world.pod(key, shape(1700, GI), Some(key)));
    let mut snapshot = world.build();
    let cut_short = |snapshot: &Snapshot| {
        disrupt(snapshot, &Policy::default(), now(), 1, &|| true).report.resume
    };
    // Without repair it says where consolidation goes on.
    let resume = cut_short(&snapshot).map(|resume| resume.method);
    assert_eq!(resume, Some(Method::SingleNodeConsolidation));
    snapshot.repair_policies = policies();
    let resume = Resume { method: Method::Repair, node: "b".to_owned() };
    assert_eq!(cut_short(&snapshot), Some(resume));
}

/// Nodes in the order of their keys, with the pods where they were.
fn sorted(mut snapshot: Snapshot) -> Snapshot {
    use crate::snapshot::{NodeId, Placement};
    let before: Vec<String> = snapshot.nodes.iter().map(|node| node.key.clone()).collect();
    snapshot.nodes.sort_by(|a, b| a.key.cmp(&b.key));
    for pod in &mut snapshot.pods {
        if let Placement::Bound(NodeId(node)) = &mut pod.placement {
            let key = &before[*node as usize];
            let at = snapshot.nodes.iter().position(|it| it.key == *key).expect("it was there");
            *node = u32::try_from(at).expect("few nodes");
        }
    }
    snapshot
}

#[test]
fn do_not_repair_is_obeyed_and_do_not_disrupt_is_not() {
    let ill = Node { do_not_disrupt: true, ..sick("ill") };
    assert_eq!(keys(&treated(ward([ill.clone()])).1), ["ill"]);
    let plan = treated(ward([not_repaired(ill)])).1;
    assert_eq!((keys(&plan), stay(&plan, "ill")), (vec![], &StayReason::DoNotRepair));
}

#[test]
fn nominated_nodes_wait_unless_they_never_came_up() {
    let ill = Node { nominated_until: Some(now() + SignedDuration::from_secs(5)), ..sick("ill") };
    let plan = treated(ward([ill.clone()])).1;
    assert_eq!((keys(&plan), stay(&plan, "ill")), (vec![], &StayReason::Nominated));
    let starting = Node { phase: NodePhase::Registered, ..ill };
    // Even while a pod is waiting that it is expected to take.
    let world = ward([starting]).pending("new", shape(1500, GI));
    assert_eq!(keys(&treated(world).1), ["ill"]);
    let joining = Node { phase: NodePhase::Launched, ..sick("ill") };
    assert_eq!(*stay(&treated(ward([joining])).1, "ill"), StayReason::NotInitialized);
}

#[test]
fn pods_that_may_not_be_evicted_need_a_bound() {
    let run = |own: Option<i64>, policy: Option<i64>| {
        let mut ill = sick("ill");
        let claim = ill.claim.as_mut().expect("a claim");
        claim.termination_grace_period = own.map(SignedDuration::from_mins);
        claim.has_termination_grace_period = own.is_some();
        let mut snapshot = ward([ill])
            .pod_with("held", shape(1500, GI), Some("ill"), |pod| {
                pod.eviction = Eviction::DoNotDisrupt;
            })
            .build();
        snapshot.repair_policies = policies();
        snapshot.repair_policies[0].termination_grace_period =
            policy.map(SignedDuration::from_mins);
        disruption(&snapshot)
    };
    let plan = run(None, None);
    assert!(
        matches!(stay(&plan, "ill"), StayReason::RepairNeedsGracePeriod(pod) if *pod.name == *"held")
    );
    for (own, policy, bound) in
        [(Some(7), None, None), (None, Some(5), Some(5)), (Some(3), Some(5), Some(3))]
    {
        let plan = run(own, policy);
        // The pod gets a place like others.
        assert_eq!(commands(&plan), [(UNHEALTHY, "ill", 1)]);
        let repair = plan.commands[0].repair.as_ref().expect("repair says why");
        assert_eq!(repair.drain_bound, bound.map(SignedDuration::from_mins));
    }
}

#[test]
fn a_node_without_a_nodepool_is_not_repaired() {
    let mut ill = sick("ill");
    ill.claim.as_mut().expect("a claim").node_pool = None;
    ill.labels.remove("karpenter.sh/nodepool");
    assert_eq!(*stay(&treated(ward([ill])).1, "ill"), StayReason::RepairNeedsNodePool);
}

#[test]
fn a_reboot_leaves_node_and_pods_where_they_are() {
    let mut hung = node("hung", "default", "m.large", "zone-a");
    fall_ill(&mut hung, "KernelReady", "DeadlockDetected");
    hung.claim.as_mut().expect("a claim").termination_grace_period =
        Some(SignedDuration::from_mins(7));
    let world = |hung: Node| ward([hung]).pod("web", shape(1500, GI), Some("hung"));
    let (snapshot, plan) = treated(world(hung.clone()));
    assert_eq!(commands(&plan), [(UNHEALTHY, "hung", 0)]);
    let command = &plan.commands[0];
    assert!(command.is_reboot() && command.nominations.is_empty());
    assert_eq!((command.savings.0, command.candidates[0].pods.len()), (0, 1));
    let repair = command.repair.as_ref().expect("repair says why");
    assert_eq!(
        (repair.policy.as_deref(), repair.drain_bound),
        (Some("Deadlock"), Some(SignedDuration::from_mins(7)))
    );
    assert_eq!(apply(&snapshot, &plan), snapshot);
    // Twice a day, then it is replaced.
    hung.health.reboots.decided_at = vec![ago(600), ago(300)];
    let (_, plan) = treated(world(hung.clone()));
    assert_eq!(commands(&plan), [(UNHEALTHY, "hung", 1)]);
    assert!(plan.commands[0].repair.as_ref().is_some_and(|repair| repair.escalated));
    // While it is on its way it counts for every budget, and nothing else happens to it.
    hung.health.reboots.in_progress = true;
    let mut slow = quiet();
    slow.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(1), reasons: Vec::new() }];
    let (_, plan) = treated(ward_of(slow, [hung, sick("ill")]));
    assert_eq!(plan.commands, []);
    assert_eq!(*stay(&plan, "hung"), StayReason::Rebooting);
    assert_eq!(*stay(&plan, "ill"), StayReason::Budget(UNHEALTHY));
}

#[test]
fn nothing_is_moved_onto_a_sick_node() {
    // There would be room for everything on the node that may not be repaired.
    let large = not_repaired(node("large", "default", "m.8xlarge", "zone-a"));
    let with = |ill: bool| {
        let mut large = large.clone();
        large.do_not_disrupt = true;
        if ill {
            fall_ill(&mut large, "NetworkingReady", "Down");
        }
        treated(ward([large, drifted("old", 60)]).pod("web", shape(1500, GI), Some("old")))
    };
    let (_, while_well) = with(false);
    assert_eq!(commands(&while_well), [(DisruptionReason::Drifted, "old", 0)]);
    let (ill, plan) = with(true);
    assert_eq!(commands(&plan), [(DisruptionReason::Drifted, "old", 1)]);
    // Nor when it fell ill after the plan was made.
    let later = revalidate(&while_well.commands[0], &ill, &Policy::default(), now());
    assert!(matches!(later, Err(StayReason::PodsDontFit(pod)) if *pod.name == *"web"));
}

#[test]
fn static_pools_replace_sick_nodes_one_for_one_within_their_limit() {
    let world = |limit: i64| {
        let mut pool = quiet();
        pool.replicas = Some(12);
        pool.limits.insert("nodes".to_owned(), limit);
        let mut old = drifted("old", 60);
        old.do_not_disrupt = false;
        treated(ward_of(pool, [sick("ill"), old]).pod("web", shape(100, GI), Some("ill"))).1
    };
    assert_eq!(
        commands(&world(14)),
        [(UNHEALTHY, "ill", 1), (DisruptionReason::Drifted, "old", 1)]
    );
    // Repair comes first, and what it takes is gone.
    let plan = world(13);
    assert_eq!(commands(&plan), [(UNHEALTHY, "ill", 1)]);
    assert_eq!(*stay(&plan, "old"), StayReason::NoStaticReplacement);
    assert_eq!(*stay(&world(12), "ill"), StayReason::NoStaticReplacement);
}

#[test]
fn repair_comes_before_other_reasons_and_uses_up_their_budgets() {
    let mut slow = on_demand("default");
    slow.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(1), reasons: Vec::new() }];
    let mut ill = drifted("ill", 60);
    fall_ill(&mut ill, "NetworkingReady", "Down");
    let empty = node("empty", "default", "m.large", "zone-a");
    let plan = treated(ward_of(slow, [ill, empty])).1;
    assert_eq!(commands(&plan), [(UNHEALTHY, "ill", 0)]);
    assert_eq!(*stay(&plan, "empty"), StayReason::Budget(DisruptionReason::Empty));
}

#[test]
fn a_repair_that_nothing_calls_for_is_found() {
    let (snapshot, plan) = treated(ward([sick("ill")]).pod("web", shape(1500, GI), Some("ill")));
    type Spoil = (&'static str, fn(&mut Snapshot, &mut Plan));
    let spoils: [Spoil; 11] = [
        ("too early", |snapshot, _| {
            snapshot.repair_policies[0].toleration = SignedDuration::from_hours(1);
        }),
        ("well", |snapshot, _| snapshot.nodes[0].health.conditions.clear()),
        ("vetoed", |snapshot, _| snapshot.nodes[0].health.do_not_repair = true),
        ("no reason", |_, plan| plan.commands[0].repair = None),
        ("another condition", |_, plan| {
            plan.commands[0].repair.as_mut().expect("a repair").condition = "Ready".to_owned();
        }),
        ("a reboot that replaces", |_, plan| {
            plan.commands[0].repair.as_mut().expect("a repair").action = RepairAction::RebootNode;
        }),
        ("a policy about another condition", |_, plan| {
            plan.commands[0].repair.as_mut().expect("a repair").policy =
                Some("Deadlock".to_owned());
        }),
        ("another moment", |_, plan| {
            plan.commands[0].repair.as_mut().expect("a repair").eligible_at = ago(20);
        }),
        ("an action that no policy asks for", |_, plan| {
            plan.commands[0].repair.as_mut().expect("a repair").escalated = true;
        }),
        ("a drain beyond the policy's", |snapshot, plan| {
            let bound = SignedDuration::from_mins(5);
            snapshot.repair_policies[0].termination_grace_period = Some(bound);
            plan.commands[0].repair.as_mut().expect("a repair").drain_bound = Some(bound * 2);
        }),
        ("too many", |snapshot, _| {
            for node in &mut snapshot.nodes {
                node.health.conditions = vec![NodeCondition {
                    type_: "KernelReady".to_owned(),
                    status: "False".to_owned(),
                    reason: String::new(),
                    since: now(),
                }];
            }
            fall_ill(&mut snapshot.nodes[0], "NetworkingReady", "Down");
        }),
    ];
    for (name, spoil) in spoils {
        let (mut snapshot, mut plan) = (snapshot.clone(), plan.clone());
        spoil(&mut snapshot, &mut plan);
        let found = check(&snapshot, &plan);
        assert!(
            found.iter().any(|it| matches!(it, Violation::MustStay { .. })),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn a_repair_is_void_when_the_node_recovers_or_a_pod_comes() {
    let world = || ward([sick("ill")]).pod("web", shape(1000, GI), Some("ill"));
    let (mut snapshot, plan) = treated(world());
    let command = &plan.commands[0];
    let valid = |snapshot: &Snapshot| revalidate(command, snapshot, &Policy::default(), now());
    let mut more = world().pod("late", shape(100, GI), Some("ill")).build();
    more.repair_policies = policies();
    assert!(matches!(valid(&more), Err(StayReason::Changed(_))));
    snapshot.nodes[0].health.conditions.clear();
    assert!(matches!(valid(&snapshot), Err(StayReason::Changed(_))));
}

#[test]
fn the_former_way_deletes_at_once_unless_too_many_are_sick() {
    let run = |ill: Vec<Node>| {
        let mut snapshot = ward(ill).build();
        snapshot.repair_policies = policies();
        let found = crate::repair::forced(&snapshot, now()).into_iter();
        found.map(|it| (it.node, it.condition.reason, it.blocked)).collect::<Vec<_>>()
    };
    // No annotation helps, and what a policy would reboot is no business of it.
    let mut ill = not_repaired(sick("ill"));
    let mut hung = node("hung", "default", "m.large", "zone-a");
    fall_ill(&mut hung, "KernelReady", "DeadlockDetected");
    assert_eq!(run(vec![ill.clone(), hung]), [("ill".to_owned(), "Down".to_owned(), None)]);
    // Of several conditions the one that is due first counts.
    ill.health.conditions[0].since = ago(29);
    assert_eq!(run(vec![ill.clone()]), []);
    fall_ill(&mut ill, "NetworkingReady", "Worse");
    assert_eq!(run(vec![ill.clone()])[0].1, "Worse");
    // Of a pool of fourteen four are too many; a node without a pool is held against the whole
    // cluster.
    let mut stray = sick("stray");
    stray.claim.as_mut().expect("a claim").node_pool = None;
    stray.labels.remove("karpenter.sh/nodepool");
    let many = ["a", "b", "c", "d"].map(sick);
    let found = run(many.iter().cloned().chain([stray.clone()]).collect());
    let blocked: Vec<_> = found.iter().map(|it| it.2).collect();
    assert_eq!(
        blocked,
        [Some((4, 14)), Some((4, 14)), Some((4, 14)), Some((4, 14)), Some((5, 15))]
    );
    assert_eq!(run(vec![stray])[0].2, None);
}
