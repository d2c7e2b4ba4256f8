//! What tests share: types, pools, pods, nodes.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Taint, Toleration};

use crate::resources::Resources;
use crate::snapshot::{
    CapacityType, Catalog, ClaimState, InstanceType, Node, NodeClassRef, NodePhase, NodePool,
    Offering, Operator, PodShape, Requirement, Snapshot,
};
use crate::testing::{Builder, instance_type, node_pool, usd};
use crate::{Plan, Policy, check, disrupt, provision};

pub(super) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
pub(super) const GI: i64 = 1 << 30;

pub(super) fn offerings(price: f64) -> Vec<Offering> {
    let mut list = Vec::new();
    for zone in ZONES {
        for (capacity_type, share) in [(CapacityType::Spot, 0.4), (CapacityType::OnDemand, 1.0)] {
            list.push(Offering {
                zone: zone.to_owned(),
                capacity_type,
                requirements: Vec::new(),
                price: usd(price * share),
                available: true,
                reservation_capacity: None,
                unpriced: None,
            });
        }
    }
    list
}

/// c, m and r types of 2 to 32 cores, priced as AWS does.
pub(super) fn kinds() -> Vec<InstanceType> {
    let mut list = Vec::new();
    for (family, per_core, price) in [("c", 2, 0.0425), ("m", 4, 0.048), ("r", 8, 0.063)] {
        for (size, cores) in
            [("large", 2_i32), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16), ("8xlarge", 32)]
        {
            let pods = if cores < 4 { 29 } else { 58 };
            let price = offerings(price * f64::from(cores));
            let (name, cores) = (format!("{family}.{size}"), i64::from(cores));
            list.push(instance_type(&name, cores * 1000, cores * per_core * GI, pods, price));
        }
    }
    list
}

pub(super) fn catalog(kinds: Vec<InstanceType>) -> Catalog {
    Catalog { node_class: NodeClassRef::default(), instance_types: kinds }
}

pub(super) fn builder() -> Builder {
    Builder::new(catalog(kinds()))
}

pub(super) fn need(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    let mut values: Vec<_> = values.iter().map(|&value| value.to_owned()).collect();
    values.sort_unstable();
    Requirement { key: key.to_owned(), operator, values, min_values: None }
}

pub(super) fn pool(name: &str) -> NodePool {
    let mut pool = node_pool(name);
    pool.template.labels.insert("karpenter.sh/nodepool".to_owned(), name.to_owned());
    pool
}

/// Only on-demand, so that prices are list prices and nothing is spot to spot.
pub(super) fn on_demand(name: &str) -> NodePool {
    let mut pool = pool(name);
    pool.template.requirements.push(need(
        "karpenter.sh/capacity-type",
        Operator::In,
        &["on-demand"],
    ));
    pool
}

pub(super) fn shape(cpu: i64, memory: i64) -> PodShape {
    PodShape {
        namespace: "default".to_owned(),
        requests: Resources { cpu, memory, pods: 1, ..Resources::default() },
        ..PodShape::default()
    }
}

pub(super) fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: None, effect: effect.to_owned(), time_added: None }
}

pub(super) fn tolerate(key: &str) -> Toleration {
    Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        ..Toleration::default()
    }
}

/// An initialised on-demand node of a type in a zone, of a pool.
pub(super) fn node(key: &str, pool: &str, kind: &str, zone: &str) -> Node {
    let kinds = kinds();
    let kind = kinds.iter().find(|probe| probe.name == kind).expect("a known type");
    let offer = kind
        .offerings
        .iter()
        .find(|offer| offer.zone == zone && offer.capacity_type == CapacityType::OnDemand)
        .expect("a known zone");
    let labels = [
        ("karpenter.sh/nodepool", pool),
        ("node.kubernetes.io/instance-type", kind.name.as_str()),
        ("topology.kubernetes.io/zone", zone),
        ("karpenter.sh/capacity-type", "on-demand"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/hostname", key),
        ("karpenter.sh/registered", "true"),
        ("karpenter.sh/initialized", "true"),
    ];
    Node {
        key: key.to_owned(),
        name: Some(key.to_owned()),
        claim: Some(ClaimState {
            name: key.to_owned(),
            uid: format!("uid-{key}"),
            node_pool: Some(pool.to_owned()),
            provider_id: Some(format!("test:///{key}")),
            drifted: None,
            consolidatable: Some(Timestamp::UNIX_EPOCH),
            expires_at: None,
            expire_after: None,
            has_termination_grace_period: false,
            termination_grace_period: None,
        }),
        phase: NodePhase::Initialized,
        labels: labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
        taints: Vec::new(),
        capacity: kind.capacity.clone(),
        allocatable: kind.allocatable(),
        price: Some(offer.price),
        deleting: false,
        nominated_until: None,
        do_not_disrupt: false,
        created_at: Timestamp::UNIX_EPOCH,
        ready: true,
        ..Node::default()
    }
}

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(2_000_000_000).expect("a valid time")
}

/// Provisions, and has the plan checked.
pub(super) fn plan(snapshot: &Snapshot) -> Plan {
    plan_with(snapshot, &Policy::default())
}

pub(super) fn plan_with(snapshot: &Snapshot, policy: &Policy) -> Plan {
    snapshot.validate().expect("a valid snapshot");
    let plan = provision(snapshot, policy, now(), 1, &());
    assert_eq!(check(snapshot, &plan), []);
    plan
}

/// Disrupts, and has the plan checked.
pub(super) fn disruption(snapshot: &Snapshot) -> Plan {
    disruption_with(snapshot, &Policy::default())
}

pub(super) fn disruption_with(snapshot: &Snapshot, policy: &Policy) -> Plan {
    snapshot.validate().expect("a valid snapshot");
    let plan = disrupt(snapshot, policy, now(), 1, &());
    assert_eq!(check(snapshot, &plan), []);
    plan
}

/// Pods by launch.
pub(super) fn loads(plan: &Plan) -> Vec<Vec<&str>> {
    plan.launches.iter().map(|launch| launch.pods.iter().map(|pod| &*pod.name).collect()).collect()
}

/// The one reason of the one waiting pod.
pub(super) fn only_reason(plan: &Plan) -> &crate::plan::Exclusion {
    assert_eq!(plan.report.pods.len(), 1, "{:?}", plan.report.pods);
    assert_eq!(plan.report.pods[0].reasons.len(), 1, "{:?}", plan.report.pods);
    &plan.report.pods[0].reasons[0].1
}
