//! Rules about a label that machines to come don't have: kube-scheduler takes such a node for
//! anti-affinity, but neither for spread nor for affinity.

use super::*;
use crate::snapshot::Node;

const RACK: &str = "example.com/rack";

/// A pod that keeps off `app`, with a rule that can bind: one such pod runs.
fn waiting(pods: usize, shape: &PodShape, full: Node) -> Builder {
    let key = full.key.clone();
    let mut world = builder().pool(pool("default")).node(full);
    world = world.pod("there", app("db", 1_800), Some(&key));
    for number in 0..pods {
        world = world.pending(&format!("db-{number}"), shape.clone());
    }
    world
}

fn full() -> Node {
    node("full", "default", "c.large", "zone-a")
}

#[test]
fn anti_affinity_over_a_label_that_machines_to_come_lack_is_met() {
    let shape = near(app("db", 500), RACK, "db", true);
    let plan = plan(&waiting(3, &shape, full()).build());
    assert_eq!(loads(&plan), [["db-0", "db-1", "db-2"]], "they need no machine each");
}

#[test]
fn anti_affinity_over_a_label_that_the_pool_says_does_not_exist_is_met() {
    let shape = near(app("db", 500), RACK, "db", true);
    let mut bare = pool("default");
    bare.template.requirements.push(need(RACK, Operator::DoesNotExist, &[]));
    let world = builder().pool(bare).node(full()).pod("there", app("db", 1_800), Some("full"));
    let plan = plan(&world.pending("db-0", shape.clone()).pending("db-1", shape).build());
    assert_eq!(loads(&plan), [["db-0", "db-1"]]);
}

#[test]
fn spread_and_affinity_over_a_label_that_machines_to_come_lack_are_not_met() {
    for shape in [spread(app("db", 500), RACK, 1), near(app("db", 500), RACK, "db", false)] {
        let plan = plan(&waiting(1, &shape, full()).build());
        assert!(matches!(only_reason(&plan), Exclusion::Topology { key, .. } if key == RACK));
    }
}

/// Somebody else labels these machines once they are there, and may put each into the domain that
/// is closed.
#[test]
fn machines_like_those_that_got_a_label_later_on_are_no_domain() {
    let shape = near(app("db", 500), RACK, "db", true);
    let mut full = full();
    full.labels.insert(RACK.to_owned(), "r1".to_owned());
    let labelled = waiting(1, &shape, full);
    let plan = plan(&labelled.build());
    assert!(matches!(only_reason(&plan), Exclusion::Topology { key, .. } if key == RACK));
}

#[test]
fn labels_of_machines_of_another_pool_say_nothing() {
    let shape = near(app("db", 500), RACK, "db", true);
    let mut full = node("full", "other", "c.large", "zone-a");
    full.labels.insert(RACK.to_owned(), "r1".to_owned());
    let other = pool("other");
    let closed = NodePool { not_ready: Some("NodeClassNotReady".to_owned()), ..other };
    let snapshot = waiting(1, &shape, full).pool(closed).build();
    let plan = plan(&snapshot);
    assert_eq!(loads(&plan), [["db-0"]]);
    assert_eq!(plan.launches[0].node_pool, "default");
}
