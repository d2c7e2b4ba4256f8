//! Labels that a NodePool leaves open: machines must not share a value that was made up, or they
//! would be one domain to topology rules.

use super::behaviour::{ZONE, app, near, spread};
use super::disrupting::drifted;
use super::fixtures::*;
use crate::plan::{Exclusion, Plan};
use crate::snapshot::{Budget, BudgetNodes, Node, NodePool, Operator, PodShape, Snapshot};
use crate::testing::apply;
use crate::{Violation, check};

const RANK: &str = "example.com/rank";
const RACK: &str = "example.com/rack";

/// A pool whose machines have a rank from 4 to 6.
fn ranked() -> NodePool {
    let mut pool = on_demand("default");
    pool.template.requirements.push(need(RANK, Operator::Gt, &["3"]));
    pool.template.requirements.push(need(RANK, Operator::Lt, &["7"]));
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(9), reasons: Vec::new() }];
    pool
}

fn with_rank(mut node: Node, rank: &str) -> Node {
    node.labels.insert(RANK.to_owned(), rank.to_owned());
    node
}

/// A pod that fills a machine of the largest kind.
fn large() -> PodShape {
    app("web", 30_000)
}

/// A machine with a pod that keeps off `web` by rank; two that fill machines to come.
fn kept_apart() -> Snapshot {
    builder()
        .pool(ranked())
        .node(with_rank(node("old", "default", "m.large", "zone-a"), "5"))
        .pod("guard", near(app("guard", 1_500), RANK, "web", true), Some("old"))
        .pending("web-0", large())
        .pending("web-1", large())
        .build()
}

fn ranks<'l>(launches: impl Iterator<Item = &'l crate::plan::Launch>) -> Vec<&'l str> {
    let mut ranks: Vec<&str> = launches.map(|launch| &*launch.labels[RANK]).collect();
    ranks.sort_unstable();
    ranks
}

#[test]
fn launches_of_a_plan_get_values_that_no_other_machine_has() {
    let plan = plan(&kept_apart());
    assert_eq!(ranks(plan.launches.iter()), ["4", "6"]);
}

#[test]
fn a_later_plan_takes_none_of_an_earlier_one() {
    let first = builder().pool(ranked()).pending("web-0", large()).pending("web-1", large());
    let first = first.build();
    let mut after = apply(&first, &plan(&first));
    let taken: Vec<String> = after.nodes.iter().map(|node| node.labels[RANK].clone()).collect();
    after.pods[0].placement = crate::snapshot::Placement::Unschedulable;
    after.nodes.iter_mut().for_each(|node| node.taints.push(taint("closed", "NoSchedule")));
    let plan = plan(&after);
    let new = ranks(plan.launches.iter());
    assert_eq!(new.len(), 1);
    assert!(!taken.iter().any(|value| value == new[0]), "{new:?} after {taken:?}");
}

#[test]
fn nodes_that_are_replaced_keep_theirs_for_themselves() {
    let snapshot = builder()
        .pool(ranked())
        .node(with_rank(drifted("a", 100), "4"))
        .node(with_rank(drifted("b", 100), "5"))
        .pod("a", app("web", 1_500), Some("a"))
        .build();
    let plan = disruption(&snapshot);
    let launches = plan.commands.iter().flat_map(|command| &command.replacements);
    assert_eq!(ranks(launches), ["6"]);
}

#[test]
fn values_that_pods_do_not_want_are_not_made_up() {
    let mut picky = large();
    picky.required_affinity = vec![vec![need(RANK, Operator::NotIn, &["4", "6"])]];
    let plan = plan(&builder().pool(ranked()).pending("web", picky).build());
    assert_eq!(ranks(plan.launches.iter()), ["5"]);
}

#[test]
fn the_checker_sees_machines_that_share_a_value() {
    let snapshot = kept_apart();
    let mut plan = plan(&snapshot);
    plan.launches[1].labels.insert(RANK.to_owned(), "5".to_owned());
    let found = check(&snapshot, &plan);
    assert!(matches!(&found[..], [Violation::Topology { .. }]), "{found:?}");
}

#[test]
fn pods_with_rules_about_an_open_label_wait() {
    let why = |plan: &Plan| match only_reason(plan) {
        Exclusion::Topology { key, rule } => (key.clone(), rule.clone()),
        other => panic!("{other:?}"),
    };
    for shape in [near(app("db", 500), RANK, "db", true), spread(app("db", 500), RANK, 1)] {
        // One that runs, so that the rule can bind.
        let snapshot = builder()
            .pool(ranked())
            .node(with_rank(node("full", "default", "c.large", "zone-a"), "5"))
            .pod("there", app("db", 1_800), Some("full"))
            .pending("db", shape)
            .build();
        let said = "the NodePool does not say which value the label has";
        assert_eq!(why(&plan(&snapshot)), (RANK.to_owned(), said.to_owned()));
    }
}

/// Each machine of a NodePool that leaves a label open is one more domain, with none of the pods.
#[test]
fn machines_with_a_value_of_their_own_keep_told_domains_from_filling_up() {
    let mut told = on_demand("told");
    told.template.labels.insert(RANK.to_owned(), "blue".to_owned());
    let world = |other: Option<PodShape>| {
        let mut world = builder()
            .pool(ranked())
            .pool(told.clone())
            .node(with_rank(node("full", "told", "c.large", "zone-a"), "blue"))
            .pod("there", spread(app("web", 1_800), RANK, 1), Some("full"))
            .pending("web", spread(app("web", 500), RANK, 1));
        if let Some(other) = other {
            world = world.pending("other", other);
        }
        world.build()
    };
    let of_default = |mut shape: PodShape| {
        shape.node_selector.insert("karpenter.sh/nodepool".to_owned(), "default".to_owned());
        shape
    };
    let snapshot = world(Some(of_default(app("other", 500))));
    let with_other = plan(&snapshot);
    assert_eq!(loads(&with_other), [["other"]]);
    let waits = &with_other.report.pods[0];
    assert!(waits.reasons.iter().all(|(_, why)| crate::tests::properties::is_untold(why)));
    assert_eq!(crate::testing::dealing::refused(&snapshot, &with_other, 1), []);
    // Where nobody else can have such a machine none will come.
    let alone = world(Some(of_default(spread(app("web", 500), RANK, 1))));
    assert_eq!(loads(&plan(&alone)), [["web"]]);
}

#[test]
fn a_pod_that_names_the_value_of_an_open_label_joins_no_machine_whose_pods_have_none_yet() {
    let mut open = on_demand("default");
    open.template.requirements.push(need("team", Operator::NotIn, &["a"]));
    let mut apart = near(app("web", 100), "team", "web", true);
    apart.required_affinity = vec![vec![need("team", Operator::In, &["b"])]];
    let world = builder().pool(open).pending("any", app("web", 100)).pending("in-b", apart);
    let plan = plan(&world.build());
    assert_eq!(plan.launches.len(), 2, "{:?}", plan.launches);
}

/// kube-scheduler binds neither first: a pod with affinity is not the first of its kind where
/// another that it selects runs, whatever the value of the label turns out to be there; and once it
/// runs, it takes the other one's place in the zone.
#[test]
fn a_pod_is_not_the_first_of_its_kind_while_another_gets_a_machine_with_an_open_label() {
    let mut open = on_demand("default");
    open.template.requirements.push(need(RACK, Operator::NotIn, &["r1"]));
    let mut old = node("old", "default", "m.large", "zone-a");
    old.labels.insert(RACK.to_owned(), "7".to_owned());
    let mut spread = spread(app("web", 9_000), ZONE, 1);
    spread.node_selector.insert(ZONE.to_owned(), "zone-a".to_owned());
    let mut far = shape(100, GI);
    far.node_selector.insert(ZONE.to_owned(), "zone-b".to_owned());
    far.requests.cpu = 9_000;
    let world = builder().pool(open).node(old).pending("spread", spread).pending("far", far);
    let snapshot = world.pending("near", near(app("web", 100), RACK, "web", false)).build();
    let plan = plan(&snapshot);
    assert_eq!(plan.nominations, []);
    assert_eq!(plan.report.pods.len(), 1, "{:?}", plan.report.pods);
    assert_eq!(&*plan.report.pods[0].pod.name, "near");
}
