//! Inputs with thousands of topology rules.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use tenon_planner::snapshot::{Operator, Placement, PodShape, Requirement};
use tenon_planner::testing::apply;
use tenon_planner::testing::mixes::{Draw, HOSTNAME, ZONE, shape, spread, term};
use tenon_planner::{Policy, Snapshot, provision};

use crate::fixtures::{cluster, constrained_services};
use crate::{common, consolidating, named, need, node};

fn app(number: i64) -> PodShape {
    let mut pod = shape(100, 128);
    pod.labels.insert("app".to_owned(), format!("app-{number:04}"));
    pod
}

/// Pods with a rule each that is about all but two applications.
pub(crate) fn not_in(n: i64, rule: fn(&mut PodShape, LabelSelector)) -> Snapshot {
    let mut world = cluster(common(), named("default"));
    for number in 0..n {
        let mut pod = app(number);
        let but = LabelSelectorRequirement {
            key: "app".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some([number % 2, number].map(|app| format!("app-{app:04}")).into()),
        };
        let selector =
            LabelSelector { match_expressions: Some(vec![but]), ..LabelSelector::default() };
        rule(&mut pod, selector);
        world = world.pending(&format!("pod-{number:05}"), pod);
    }
    world.build()
}

fn keep_off(pod: &mut PodShape, key: &str, selector: LabelSelector) {
    let mut anti = term(true, None, key, "app", "");
    anti.selector = Some(selector);
    pod.pod_affinity.push(anti);
}

pub(crate) fn keep_off_hosts(pod: &mut PodShape, selector: LabelSelector) {
    keep_off(pod, HOSTNAME, selector);
}

pub(crate) fn keep_off_zones(pod: &mut PodShape, selector: LabelSelector) {
    keep_off(pod, ZONE, selector);
}

fn spread_over(pod: &mut PodShape, key: &str, selector: LabelSelector) {
    let mut rule = spread(key, "");
    rule.selector = Some(selector);
    pod.topology_spread.push(rule);
}

pub(crate) fn spread_over_hosts(pod: &mut PodShape, selector: LabelSelector) {
    spread_over(pod, HOSTNAME, selector);
}

pub(crate) fn spread_over_zones(pod: &mut PodShape, selector: LabelSelector) {
    spread_over(pod, ZONE, selector);
}

pub(crate) fn no_rule(_: &mut PodShape, _: LabelSelector) {}

/// The same, where each pod requires something else of its machine, too.
pub(crate) fn not_in_classes(
    n: i64,
    rule: fn(&mut PodShape, LabelSelector),
    requires: fn(usize) -> Vec<Requirement>,
) -> Snapshot {
    let mut snapshot = not_in(n, rule);
    for (number, shape) in snapshot.shapes.iter_mut().enumerate() {
        std::sync::Arc::make_mut(shape).required_affinity = vec![requires(number)];
    }
    snapshot
}

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// To be on no machine of a type that there is not.
pub(crate) fn no_such_type(number: usize) -> Vec<Requirement> {
    vec![need(INSTANCE_TYPE, Operator::NotIn, vec![format!("type-{number}")])]
}

/// The same for another label, too.
pub(crate) fn no_such_type_or_arch(number: usize) -> Vec<Requirement> {
    let but = vec![format!("arch-{number}")];
    vec![no_such_type(number).remove(0), need("kubernetes.io/arch", Operator::NotIn, but)]
}

/// To be on no machine of thousands of types that there are not.
pub(crate) fn none_of_thousands(number: usize) -> Vec<Requirement> {
    let but = (0..4000).map(|at| format!("type-{number}-{at}")).collect();
    vec![need(INSTANCE_TYPE, Operator::NotIn, but)]
}

/// To be on a machine of one of about half the types.
pub(crate) fn half_the_types(number: usize) -> Vec<Requirement> {
    let mut draw = Draw(number as u64 + 1);
    let kinds = common().into_iter().map(|kind| kind.name);
    vec![need(
        INSTANCE_TYPE,
        Operator::In,
        kinds.filter(|_| draw.number().is_multiple_of(2)).collect(),
    )]
}

/// The same pods, but for one in fifty on machines.
pub(crate) fn bound(before: &Snapshot) -> Snapshot {
    let plan = provision(before, &Policy::default(), Timestamp::UNIX_EPOCH, 1, &());
    let mut after = apply(before, &plan);
    for pod in after.pods.iter_mut().step_by(50) {
        pod.placement = Placement::Unschedulable;
    }
    after
}

/// Pods with a rule each that is about themselves.
pub(crate) fn own(n: i64, rule: fn(&mut PodShape, LabelSelector)) -> Snapshot {
    let mut world = cluster(common(), named("default"));
    for number in 0..n {
        let mut pod = app(number);
        let selector =
            LabelSelector { match_labels: Some(pod.labels.clone()), ..LabelSelector::default() };
        rule(&mut pod, selector);
        world = world.pending(&format!("pod-{number:05}"), pod);
    }
    world.build()
}

/// Pods with rules about so many topology keys each, of which no two pods share one and nodes have
/// none but in the first rule.
pub(crate) fn many_keys(pods: usize, keys: usize, nodes: usize) -> Snapshot {
    let kinds = common();
    let kind = kinds.iter().find(|kind| kind.name == "m5.xlarge").expect("it is common").clone();
    let mut world = cluster(kinds, named("default"));
    for number in 0..nodes {
        let zone = ["us-west-2a", "us-west-2b", "us-west-2c"][number % 3];
        world = world.node(node(&format!("n{number:05}"), &kind, "default", zone));
    }
    for number in 0..pods {
        let mut pod = shape(100, 128);
        pod.labels.insert("my-label".to_owned(), "a".to_owned());
        pod.topology_spread.push(spread(ZONE, "a"));
        for key in 0..keys {
            let key = format!("key-{number}-{key}");
            pod.pod_affinity.push(term(true, None, &key, "my-label", "a"));
        }
        world = world.pending(&format!("pod-{number:05}"), pod);
    }
    world.build()
}

/// Services with rules on machines, of which three pods in ten have gone.
pub(crate) fn shrunk(n: usize) -> Snapshot {
    let before = constrained_services(cluster(common(), consolidating("default")), n);
    let plan = provision(&before, &Policy::default(), Timestamp::UNIX_EPOCH, 1, &());
    let mut after = apply(&before, &plan);
    let mut number = 0;
    after.pods.retain(|_| {
        number += 1;
        number % 10 >= 3
    });
    for node in &mut after.nodes {
        if let Some(claim) = &mut node.claim {
            claim.consolidatable = Some(Timestamp::UNIX_EPOCH);
        }
    }
    after
}

/// Pods whose selectors have that many values each.
pub(crate) fn values(n: i64) -> Snapshot {
    let mut world = cluster(common(), named("default"));
    for number in 0..400 {
        let mut pod = app(number);
        let mut anti = term(true, None, HOSTNAME, "app", "");
        anti.selector = Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "app".to_owned(),
                operator: "In".to_owned(),
                values: Some((number..number + n).map(|at| format!("app-{at:05}")).collect()),
            }]),
            ..LabelSelector::default()
        });
        pod.pod_affinity.push(anti);
        world = world.pending(&format!("pod-{number:05}"), pod);
    }
    world.build()
}
