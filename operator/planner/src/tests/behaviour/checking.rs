//! The checker: plans that break rules are found.

use super::*;
use crate::check::Violation;

/// The checker has to find what the solver never does.
#[test]
fn finds_plans_that_break_rules() {
    let mut big = shape(1500, GI);
    big.node_selector.insert(ZONE.to_owned(), "zone-a".to_owned());
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("n1", "default", "m.large", "zone-b"))
        .pending("a", big.clone())
        .pending("b", big)
        .pod("c", shape(1000, GI), Some("n1"))
        .build();
    let good = plan(&snapshot);
    let broken = |change: &dyn Fn(&mut crate::Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        crate::check(&snapshot, &plan)
    };
    let nominate = |plan: &mut crate::Plan| {
        let pod = plan.launches[0].pods.remove(0);
        plan.nominations.push(crate::plan::Nomination { pod, node: "n1".to_owned() });
    };
    let found = broken(&nominate);
    assert!(found.iter().any(|it| matches!(it, Violation::Affinity { .. })), "{found:?}");
    assert!(found.iter().any(|it| matches!(it, Violation::Overfull { .. })), "{found:?}");
    let found = broken(&|plan| plan.launches[0].requirements.retain(|need| need.key != ZONE));
    assert!(found.iter().any(|it| matches!(it, Violation::Affinity { .. })), "{found:?}");
    let found = broken(&|plan| plan.launches[0].instance_types.insert(0, "c.large".to_owned()));
    assert!(found.iter().any(|it| matches!(it, Violation::Overfull { .. })), "{found:?}");
    let found = broken(&|plan| plan.launches.push(plan.launches[0].clone()));
    assert!(found.iter().any(|it| matches!(it, Violation::PlacedTwice(_))), "{found:?}");
    let found = broken(&|plan| plan.launches[0].instance_types.reverse());
    assert!(found.iter().any(|it| matches!(it, Violation::NotRanked(_))), "{found:?}");
}

/// A pod that wants others on its host may be the first of its kind, and then one that wants them
/// in its zone may come. The other way round the former has a peer on another host.
#[test]
fn pods_that_may_be_the_first_of_their_kind_come_in_the_order_that_suits_all() {
    let of_web = |key| near(app("web", 100), key, "web", false);
    let snapshot = builder()
        .pool(pool("default"))
        .node(node("n1", "default", "m.large", "zone-a"))
        .node(node("n2", "default", "m.large", "zone-a"))
        .node(node("n3", "default", "m.large", "zone-b"))
        .pending("host", of_web(HOSTNAME))
        .pending("zone", of_web(ZONE))
        .build();
    let found = |host: &str, zone: &str| {
        let places = [(0, host), (1, zone)].map(|(pod, node)| crate::plan::Nomination {
            pod: crate::launch::pod_ref(&snapshot.pods[pod]),
            node: node.to_owned(),
        });
        let version = crate::plan::PLAN_VERSION;
        let plan = crate::Plan { version, nominations: places.into(), ..crate::Plan::default() };
        crate::check(&snapshot, &plan)
    };
    assert_eq!(found("n2", "n1"), []);
    assert_eq!(found("n1", "n2"), []);
    assert!(
        matches!(found("n3", "n1")[..], [Violation::Topology { .. }]),
        "they have no zone in common"
    );
}

/// A machine that pods of a constraint may turn out not to be able to use makes no domain that is
/// too empty.
#[test]
fn accuses_no_spread_because_of_machines_that_may_not_count() {
    const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
    let mut spot = node("n1", "default", "m.large", "zone-b");
    spot.labels.insert(CAPACITY_TYPE.to_owned(), "spot".to_owned());
    let mut web = spread(app("web", 200), ZONE, 1);
    web.node_selector.insert(CAPACITY_TYPE.to_owned(), "spot".to_owned());
    web.required_affinity = vec![
        vec![need(CAPACITY_TYPE, Operator::In, &["on-demand"])],
        vec![need(ZONE, Operator::In, &["zone-b"])],
    ];
    let mut other = app("web", 1500);
    other.node_selector.insert(ZONE.to_owned(), "zone-a".to_owned());
    let snapshot = builder()
        .pool(pool("default"))
        .node(spot)
        .pod("there", app("web", 100), Some("n1"))
        .pending("web-0", web.clone())
        .pending("web-1", web)
        .pending("other", other)
        .build();
    let plan = plan(&snapshot);
    assert_eq!((loads(&plan), plan.nominations.len()), (vec![vec!["other"]], 2));
}
