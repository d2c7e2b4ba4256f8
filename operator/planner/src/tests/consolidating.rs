//! Several nodes at once, prices that have to be beaten, and passes that are cut short.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::behaviour::{HOSTNAME, ZONE, app, near, spread};
use super::disrupting::{commands, stay};
use super::fixtures::*;
use crate::plan::{Method, StayReason};
use crate::policy::Policy;
use crate::revalidate;
use crate::snapshot::{CapacityType, DisruptionReason, Operator, PodShape};
use crate::testing::{apply, usd};

#[test]
fn several_nodes_become_one_cheaper_machine() {
    // Neither pod fits next to the other, and neither has a cheaper machine of its own.
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "r.large", "zone-a"))
        .node(node("b", "default", "r.large", "zone-a"))
        .node(node("c", "default", "r.large", "zone-a"))
        .pod("web-a", shape(1200, 9 * GI), Some("a"))
        .pod("web-b", shape(1200, 9 * GI), Some("b"))
        .pod("web-c", shape(1200, 9 * GI), Some("c"))
        .build();
    let plan = disruption(&snapshot);
    assert_eq!(plan.commands.len(), 1, "{:?}", plan.report.nodes);
    let command = &plan.commands[0];
    assert_eq!(command.method, Method::MultiNodeConsolidation);
    assert_eq!((command.candidates.len(), command.replacements.len()), (3, 1));
    assert!(command.savings.0 > 0);
    assert_eq!(revalidate(command, &snapshot, &Policy::default(), now()), Ok(()));
    assert_eq!(disruption(&apply(&snapshot, &plan)).commands, []);
}

#[test]
fn several_spot_nodes_are_merged_without_fifteen_types_to_choose_from_but_not_without_the_gate() {
    let on_spot = |key: &str| {
        let mut spot = node(key, "default", "r.large", "zone-a");
        spot.labels.insert("karpenter.sh/capacity-type".to_owned(), "spot".to_owned());
        spot.price = spot.price.map(|price| crate::resources::MicroUsd(price.0 * 4 / 10));
        spot
    };
    let mut world = builder().pool(pool("default"));
    for name in ["a", "b", "c"] {
        world = world.node(on_spot(name)).pod(name, shape(1200, 9 * GI), Some(name));
    }
    let snapshot = world.build();
    assert_eq!(disruption(&snapshot).commands, []);
    let policy = Policy { spot_to_spot: true, ..Policy::default() };
    let plan = disruption_with(&snapshot, &policy);
    assert_eq!(plan.commands.len(), 1, "{:?}", plan.report.nodes);
    assert_eq!(plan.commands[0].replacements[0].capacity_types, [CapacityType::Spot]);
    assert!(plan.commands[0].replacements[0].instance_types.len() < 15);
}

#[test]
fn all_independent_commands_come_in_one_pass() {
    let mut world = builder().pool(on_demand("default"));
    for index in 0..10 {
        let name = format!("n{index}");
        world = world.node(node(&name, "default", "c.xlarge", "zone-a"));
        for pod in 0..2 {
            world = world.pod(&format!("web-{index}-{pod}"), shape(500, GI), Some(&name));
        }
    }
    let snapshot = world.build();
    let plan = disruption(&snapshot);
    // Twenty halves of a core need three of these machines; the rest goes at once.
    assert_eq!(plan.commands.len(), 7, "{:?}", plan.report.nodes);
    let after = apply(&snapshot, &plan);
    assert_eq!(after.nodes.len(), 3);
    assert_eq!(disruption(&after).commands, []);
}

#[test]
fn pods_that_others_leave_no_host_keep_their_node() {
    let held = |key: &str| {
        let mut held = node(key, "default", "c.large", "zone-a");
        held.do_not_disrupt = true;
        held
    };
    let cluster = |db: &dyn Fn(i64) -> PodShape| {
        builder()
            .pool(on_demand("default"))
            .node(node("a", "default", "c.large", "zone-a"))
            .node(node("b", "default", "c.large", "zone-a"))
            .node(held("empty"))
            .node(held("with-db"))
            .pod("db-0", db(1000), Some("a"))
            .pod("web", app("web", 1000), Some("b"))
            .pod("agent", app("agent", 400), Some("empty"))
            .pod("db-1", db(700), Some("with-db"))
            .build()
    };
    let apart = |cpu| near(app("db", cpu), HOSTNAME, "db", true);
    // kube-scheduler may put web where most is left, and that is the only host without a db.
    assert_eq!(disruption(&cluster(&apart)).commands.len(), 1);
    assert_eq!(disruption(&cluster(&|cpu| app("db", cpu))).commands.len(), 2);
}

#[test]
fn nobody_counts_on_a_pod_that_is_still_waiting_for_its_place() {
    let follower = near(app("web", 1000), ZONE, "db", false);
    let world = || {
        builder()
            .pool(on_demand("default"))
            .node(node("a", "default", "c.large", "zone-a"))
            .node(node("b", "default", "c.xlarge", "zone-b"))
            .pod("web", follower.clone(), Some("a"))
    };
    // It would have to follow a pod of which nobody knows where it will be.
    assert_eq!(disruption(&world().pending("db", app("db", 1500)).build()).commands, []);
    let bound = world().pod("db", app("db", 1500), Some("b")).build();
    assert_eq!(disruption(&bound).commands.len(), 1);
}

#[test]
fn commands_whose_pods_keep_off_each_others_hosts_come_in_one_pass() {
    let mut world = builder().pool(on_demand("default"));
    for index in 0..6 {
        let name = format!("n{index}");
        world = world.node(node(&name, "default", "m.xlarge", "zone-a"));
        let db = near(
            app(&format!("db-{}", index % 2), 500),
            HOSTNAME,
            &format!("db-{}", index % 2),
            true,
        );
        world = world.pod(&format!("db-{index}"), db, Some(&name));
    }
    let snapshot = world.build();
    let plan = disruption(&snapshot);
    let after = apply(&snapshot, &plan);
    assert_eq!(after.nodes.len(), 3, "one host for each pair: {:?}", plan.report.nodes);
}

#[test]
fn commands_whose_pods_are_spread_over_zones_take_turns() {
    let mut world = builder().pool(on_demand("default"));
    for index in 0..6 {
        let (name, zone) = (format!("n{index}"), ZONES[index % 3]);
        let web = spread(app("web", 200), ZONE, 1);
        world = world.node(node(&name, "default", "m.xlarge", zone)).pod(&name, web, Some(&name));
    }
    let mut snapshot = world.build();
    let plan = disruption(&snapshot);
    assert!(plan.report.nodes.iter().any(|node| node.reason == StayReason::Later));
    for _ in 0..6 {
        snapshot = apply(&snapshot, &disruption(&snapshot));
    }
    assert_eq!(snapshot.nodes.len(), 3, "one in each zone");
    assert_eq!(disruption(&snapshot).commands, []);
}

#[test]
fn an_eviction_has_to_save_its_price() {
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.large", "zone-a"))
        .pod("web", shape(1500, 3 * GI), Some("a"))
        .build();
    assert_eq!(disruption(&snapshot).commands.len(), 1);
    // m.large costs 0.011 more than c.large.
    let policy = Policy { eviction_price: usd(0.012), ..Policy::default() };
    let plan = disruption_with(&snapshot, &policy);
    assert_eq!(plan.commands, []);
    assert!(matches!(stay(&plan, "a"), StayReason::SavesTooLittle | StayReason::NothingCheaper));
}

#[test]
fn worst_launch_price_has_to_be_strictly_below_the_price() {
    // The other way to buy the cheaper type costs as much as what is there.
    let mut kinds = kinds();
    for kind in &mut kinds {
        for offer in &mut kind.offerings {
            let dear = offer.zone == "zone-b" && kind.name == "c.large";
            if dear && offer.capacity_type == CapacityType::OnDemand {
                offer.price = usd(0.096);
            }
        }
    }
    let world = |zones: &[&str]| {
        let mut pool = on_demand("default");
        pool.template.requirements.push(need(ZONE, Operator::In, zones));
        crate::testing::Builder::new(catalog(kinds.clone()))
            .pool(pool)
            .node(node("a", "default", "m.large", "zone-a"))
            .pod("web", shape(1500, 3 * GI), Some("a"))
            .build()
    };
    assert_eq!(*stay(&disruption(&world(&["zone-a", "zone-b"])), "a"), StayReason::NothingCheaper);
    assert_eq!(disruption(&world(&["zone-a", "zone-c"])).commands.len(), 1);
}

#[test]
fn a_pass_that_is_cut_short_goes_on_where_it_stopped() {
    let mut world = builder().pool(on_demand("default"));
    for index in 0..8 {
        let name = format!("n{index}");
        world = world.node(node(&name, "default", "c.large", "zone-a")).pod(
            &name,
            shape(1700, 3 * GI),
            Some(&name),
        );
    }
    let snapshot = world.build();
    let mut policy = Policy::default();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let plan = crate::disrupt(&snapshot, &policy, now(), 1, &|| true);
        assert!(plan.report.cancelled);
        seen.extend(plan.report.nodes.iter().map(|node| node.node.clone()));
        policy.resume = plan.report.resume;
        assert!(policy.resume.is_some() || seen.len() == 8);
    }
    assert_eq!(seen.len(), 8, "every node had its turn");
}

#[test]
fn a_pass_that_is_cut_short_still_gets_something_done() {
    let mut world = builder().pool(on_demand("default"));
    for index in 0..4 {
        let name = format!("n{index}");
        world = world.node(node(&name, "default", "m.4xlarge", "zone-a")).pod(
            &name,
            shape(1700, 3 * GI),
            Some(&name),
        );
    }
    let plan = crate::disrupt(&world.build(), &Policy::default(), now(), 1, &|| true);
    assert!(!plan.commands.is_empty());
    assert!(plan.report.resume.is_some());
}

#[test]
fn pods_move_to_the_nodes_that_have_least_to_gain_from_going() {
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.xlarge", "zone-a"))
        .node(node("b", "default", "m.xlarge", "zone-a"))
        .node(node("c", "default", "m.xlarge", "zone-a"))
        .pod("small-a", shape(300, GI), Some("a"))
        .pod("small-b", shape(300, GI), Some("b"))
        .pod("large", shape(2000, GI), Some("c"))
        .pod("middle", shape(1000, GI), Some("c"))
        .build();
    let plan = disruption(&snapshot);
    assert_eq!(plan.commands.len(), 2);
    let places = plan.commands.iter().flat_map(|command| &command.nominations);
    assert!(places.into_iter().all(|nomination| nomination.node == "c"));
}

#[test]
fn no_node_goes_while_one_like_it_is_launched_for_pods_that_wait() {
    let world = |waiting: Option<PodShape>| {
        let world = builder()
            .pool(on_demand("default"))
            .node(node("a", "default", "c.xlarge", "zone-a"))
            .node(node("b", "default", "c.xlarge", "zone-a"))
            .pod("web-a", shape(1000, GI), Some("a"))
            .pod("web-b", shape(1000, GI), Some("b"));
        match waiting {
            Some(waiting) => world.pending("waiting", waiting).build(),
            None => world.build(),
        }
    };
    assert_eq!(disruption(&world(None)).commands.len(), 1, "one node can go");
    // Neither node has room for it now; either would have once its own pod were gone.
    let waiting = world(Some(shape(3500, GI)));
    assert_eq!(plan(&waiting).launches[0].instance_types[0], "c.xlarge");
    let held = disruption(&waiting);
    assert_eq!(held.commands, []);
    assert_eq!(*stay(&held, "a"), StayReason::Later);
    // A pod that nothing is launched for keeps no node, nor does one for which a cheaper machine
    // comes.
    let mut nowhere = shape(3500, GI);
    nowhere.node_selector.insert(ZONE.to_owned(), "nowhere".to_owned());
    assert_eq!(disruption(&world(Some(nowhere))).commands.len(), 1);
    let mut apart = near(app("web", 500), HOSTNAME, "web", true);
    apart.pod_affinity[0].selector = Some(LabelSelector::default());
    assert_eq!(plan(&world(Some(apart.clone()))).launches[0].instance_types[0], "c.large");
    assert_eq!(disruption(&world(Some(apart))).commands.len(), 1);
}

#[test]
fn machines_for_pods_that_wait_are_those_that_provisioning_launches() {
    let world = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "c.xlarge", "zone-a"))
        .node(node("b", "default", "c.xlarge", "zone-a"))
        .pod("web-a", shape(1000, GI), Some("a"))
        .pod("web-b", shape(1000, GI), Some("b"));
    // They could share a machine, but two cost less.
    let snapshot =
        world.pending("fast", shape(3500, 6 * GI)).pending("large", shape(1500, 12 * GI)).build();
    let mut launched: Vec<_> =
        plan(&snapshot).launches.iter().map(|launch| launch.instance_types[0].clone()).collect();
    launched.sort_unstable();
    assert_eq!(launched, ["c.xlarge", "r.large"]);
    let held = disruption(&snapshot);
    assert_eq!(held.commands, []);
    assert_eq!(*stay(&held, "a"), StayReason::Later);
}

#[test]
fn pods_stay_whose_spread_depends_on_a_pod_for_which_a_machine_is_launched() {
    let web = |cpu| spread(app("web", cpu), ZONE, 2);
    let world = |waits: bool| {
        let mut stays = node("b", "default", "c.large", "zone-a");
        stays.do_not_disrupt = true;
        let world = builder()
            .pool(on_demand("default"))
            .node(node("a", "default", "c.large", "zone-a"))
            .node(stays)
            .pod("web-a", web(100), Some("a"))
            .pod("web-b", web(100), Some("b"));
        if waits { world.pending("large", web(9000)).build() } else { world.build() }
    };
    assert_eq!(commands(&disruption(&world(false))), [(DisruptionReason::Underutilized, "a", 0)]);
    let plan = disruption(&world(true));
    assert_eq!(plan.commands, []);
    assert_eq!(*stay(&plan, "a"), StayReason::Later);
}
