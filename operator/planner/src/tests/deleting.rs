//! Deletion costs of pods, by which ReplicaSets that shrink empty the nodes that would go next.

use super::disrupting::drifted;
use super::fixtures::*;
use super::overlays::{on_types, scale};
use crate::policy::Policy;
use crate::snapshot::{Budget, BudgetNodes, Eviction, Node, NodePool, Owner, Pod};
use crate::testing::Builder;
use crate::{DeletionCost, PresentCost, deletion_costs};

fn web(world: Builder, node: &str, owner: Owner) -> Builder {
    world.pod_with(&format!("web-{node}"), shape(100, GI), Some(node), |pod| pod.owner = owner)
}

fn world(pool: NodePool, nodes: Vec<Node>) -> Builder {
    let names: Vec<String> = nodes.iter().map(|node| node.key.clone()).collect();
    let world = nodes.into_iter().fold(builder().pool(pool), Builder::node);
    names.iter().fold(world, |world, name| web(world, name, Owner::ReplicaSet))
}

fn costs(world: Builder, present: &dyn Fn(&Pod) -> Option<i32>) -> Vec<(String, Option<i32>)> {
    let snapshot = world.build();
    let written = |pod: &Pod| present(pod).map_or(PresentCost::Unset, PresentCost::Written);
    let list = deletion_costs(&snapshot, &Policy::default(), now(), &written);
    let named =
        |it: &DeletionCost| it.pods.iter().all(|pod| *pod.name == format!("web-{}", it.node));
    assert!(list.iter().all(named), "{list:?}");
    list.into_iter().map(|it| (it.node, it.value)).collect()
}

fn named(list: &[(&str, Option<i32>)]) -> Vec<(String, Option<i32>)> {
    list.iter().map(|&(node, value)| (node.to_owned(), value)).collect()
}

/// Appendix A.13.
#[test]
fn pods_cost_less_the_sooner_their_node_goes() {
    let small = || node("a", "default", "m.large", "zone-a");
    let large = || node("b", "default", "m.xlarge", "zone-a");
    let run = |nodes| costs(world(on_demand("default"), nodes), &|_| None);
    assert_eq!(run(vec![small(), large()]), named(&[("b", Some(-2)), ("a", Some(-1))]));
    assert_eq!(
        run(vec![small(), large(), drifted("old", 60)]),
        named(&[("old", Some(-3)), ("b", Some(-2)), ("a", Some(-1))])
    );
    let tainted = Node { taints: vec![taint("karpenter.sh/disrupted", "NoSchedule")], ..large() };
    assert_eq!(run(vec![small(), tainted]), named(&[("b", Some(i32::MIN)), ("a", Some(-1))]));
}

#[test]
fn overlays_have_a_say_in_what_goes_first() {
    let kinds = [("a", "m.large"), ("b", "m.xlarge")];
    let nodes = kinds.map(|(key, kind)| node(key, "default", kind, "zone-a")).to_vec();
    let world = world(on_demand("default"), nodes);
    let world = world.overlays(vec![on_types("cheap", 0, &["m.xlarge"], Some(scale(-99)))]);
    assert_eq!(costs(world, &|_| None), named(&[("a", Some(-2)), ("b", Some(-1))]));
}

#[test]
fn nodes_that_are_held_or_beyond_the_budget_have_no_rank() {
    let nodes = || {
        let kinds = [("a", "m.large"), ("b", "m.xlarge"), ("c", "m.2xlarge"), ("d", "m.4xlarge")];
        kinds.map(|(key, kind)| node(key, "default", kind, "zone-a")).to_vec()
    };
    let mut slow = on_demand("default");
    slow.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(2), reasons: Vec::new() }];
    let mut held = nodes();
    held[3].do_not_disrupt = true;
    let all = |_: &Pod| Some(7);
    assert_eq!(
        costs(world(slow.clone(), held), &all),
        named(&[("c", Some(-2)), ("b", Some(-1)), ("d", None), ("a", None)])
    );
    // A pod that nobody brings back, or that may not be evicted, holds its node.
    let pinned = web(builder().pool(slow.clone()).node(nodes().remove(0)), "a", Owner::ReplicaSet)
        .pod("bare", shape(100, GI), Some("a"));
    assert_eq!(costs(pinned, &all), named(&[("a", None)]));
    let blocked = web(builder().pool(slow).node(nodes().remove(0)), "a", Owner::ReplicaSet)
        .pod_with("job", shape(100, GI), Some("a"), |pod| {
            (pod.owner, pod.eviction) = (Owner::Job, Eviction::DoNotDisrupt);
        });
    assert_eq!(costs(blocked, &all), named(&[("a", None)]));
}

#[test]
fn a_drifted_node_is_ranked_whatever_consolidation_does_and_a_static_one_is_like_others() {
    let mut off = on_demand("default");
    off.disruption.consolidate_after = None;
    let nodes = || vec![node("a", "default", "m.xlarge", "zone-a"), drifted("old", 60)];
    let all = |_: &Pod| Some(7);
    assert_eq!(costs(world(off, nodes()), &all), named(&[("old", Some(-1)), ("a", None)]));
    let mut fixed = on_demand("default");
    fixed.replicas = Some(2);
    let list = costs(world(fixed, nodes()), &all);
    assert_eq!(list, named(&[("a", Some(-2)), ("old", Some(-1))]));
}

#[test]
fn fifty_nodes_are_written_at_once_and_those_that_need_nothing_do_not_count() {
    let nodes: Vec<Node> = (0..70)
        .map(|n| {
            let going = n >= 60;
            Node { deleting: going, ..node(&format!("n{n:02}"), "default", "m.large", "zone-a") }
        })
        .collect();
    let list = costs(world(on_demand("default"), nodes), &|pod| {
        // The first five have their values already.
        let number: i32 = pod.name.trim_start_matches("web-n").parse().expect("a number");
        (number < 5).then_some(number - 60)
    });
    assert_eq!(list.len(), 60);
    assert!(list[..10].iter().all(|(_, value)| *value == Some(i32::MIN)));
    assert_eq!(list[10], ("n05".to_owned(), Some(-55)));
    assert_eq!(list[59], ("n54".to_owned(), Some(-6)));
}

#[test]
fn pods_with_a_cost_of_somebody_else_are_not_written_and_hold_nothing() {
    let nodes = vec![node("a", "default", "m.large", "zone-a")];
    let snapshot = world(on_demand("default"), nodes)
        .pod_with("other", shape(100, GI), Some("a"), |pod| pod.owner = Owner::ReplicaSet)
        .build();
    let present = |pod: &Pod| match &*pod.name {
        "other" => PresentCost::Foreign,
        _ => PresentCost::Unset,
    };
    let list = deletion_costs(&snapshot, &Policy::default(), now(), &present);
    let pods: Vec<&str> = list[0].pods.iter().map(|pod| &*pod.name).collect();
    assert_eq!((list.len(), list[0].value, pods), (1, Some(-1), vec!["web-a"]));
}
