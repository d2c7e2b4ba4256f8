//! Whether pods may be where a plan puts them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::Violation;
use super::labels::{Labels, holds};
use super::pods::{reference, shape};
use super::volumes;
use crate::plan::Launch;
use crate::resources::Resources;
use crate::snapshot::{
    Catalog, InstanceType, NodePool, Offering, Operator, Placement, PodShape, Snapshot,
};

/// Pods on a machine that exists.
pub(super) fn check_machine(
    snapshot: &Snapshot,
    going: &BTreeSet<&str>,
    machine: &str,
    pods: &[usize],
    found: &mut BTreeSet<Violation>,
) {
    let Some((index, node)) =
        snapshot.nodes.iter().enumerate().find(|(_, node)| node.key == machine)
    else {
        found.insert(Violation::Unknown { kind: "machine", name: machine.to_owned() });
        return;
    };
    if node.deleting || going.contains(machine) {
        let pod = reference(snapshot, pods[0]);
        found.insert(Violation::NoMachine { pod, machine: machine.to_owned() });
    }
    let there = snapshot.pods.iter().enumerate().filter(|(_, pod)| match pod.placement {
        Placement::Bound(node) => node.0 as usize == index,
        _ => false,
    });
    let there: Vec<usize> = there.map(|(index, _)| index).collect();
    let all: Vec<usize> = there.iter().chain(pods).copied().collect();
    let labels = Labels::of(node);
    for &pod in pods {
        let shape = shape(snapshot, pod);
        check_taints(snapshot, pod, shape, &node.taints, machine, found);
        if !labels.suit(shape) {
            found.insert(Violation::Affinity {
                pod: reference(snapshot, pod),
                machine: machine.to_owned(),
            });
        }
    }
    let mut requested = Resources::default();
    for &pod in &all {
        requested.add(&shape(snapshot, pod).requests);
    }
    check_amounts(&requested, &node.allocatable, machine, found);
    check_ports(snapshot, &all, pods, &[], machine, found);
    volumes::check_machine(snapshot, node, &all, pods, found);
}

/// Pods on a machine to come, for every type and offering that it may become.
pub(super) fn check_launch(
    snapshot: &Snapshot,
    number: usize,
    launch: &Launch,
    pods: &[usize],
    found: &mut BTreeSet<Violation>,
) {
    let name = format!("launch {number}");
    let pool = snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool);
    let Some(pool) = pool else {
        found.insert(Violation::Unknown { kind: "NodePool", name: launch.node_pool.clone() });
        return;
    };
    // Machines of static pools are launched for no pods.
    if pool.not_ready.is_some() || (pool.replicas.is_some() && !launch.pods.is_empty()) {
        found.insert(Violation::PoolNotReady(pool.name.clone()));
    }
    let Some(catalog) = pool.catalog.map(|id| &snapshot.catalogs[id.0 as usize]) else {
        found.insert(Violation::PoolNotReady(pool.name.clone()));
        return;
    };
    for &pod in pods {
        check_taints(snapshot, pod, shape(snapshot, pod), &pool.template.taints, &name, found);
    }
    let mut last = i64::MIN;
    for (rank, kind) in launch.instance_types.iter().enumerate() {
        let Some(kind) = catalog.instance_types.iter().find(|probe| probe.name == *kind) else {
            found.insert(Violation::Unknown { kind: "instance type", name: kind.clone() });
            continue;
        };
        let offers: Vec<_> = offers(launch, kind).collect();
        let Some(price) = offers.iter().map(|offer| offer.price.0).min() else {
            found.insert(Violation::NotOffered {
                launch: name.clone(),
                instance_type: kind.name.clone(),
            });
            continue;
        };
        if price < last || (rank == 0 && price != launch.price.0) {
            found.insert(Violation::NotRanked(name.clone()));
        }
        last = price;
        for offer in offers {
            let labels = labels_of(launch, pool, kind, offer);
            let place = format!("{name} as {} in {}", kind.name, offer.zone);
            for &pod in pods {
                if !labels.suit(shape(snapshot, pod)) {
                    let pod = reference(snapshot, pod);
                    found.insert(Violation::Affinity { pod, machine: place.clone() });
                }
            }
            let daemons: Vec<&PodShape> = snapshot
                .daemon_sets
                .iter()
                .map(|daemon| &*daemon.shape)
                .filter(|shape| untolerated(&pool.template.taints, &shape.tolerations).is_none())
                .filter(|shape| labels.suit(shape))
                .collect();
            let mut requested = Resources::default();
            let on_it = pods.iter().map(|&pod| shape(snapshot, pod));
            for shape in on_it.chain(daemons.iter().copied()) {
                requested.add(&shape.requests);
            }
            check_amounts(&requested, &kind.allocatable(), &place, found);
            check_ports(snapshot, pods, pods, &daemons, &place, found);
            let shapes: Vec<_> =
                pods.iter().map(|&pod| shape(snapshot, pod)).chain(daemons).collect();
            volumes::check(&shapes, &kind.volume_limits, &place, found);
        }
    }
    check_min_values(catalog, launch, &name, found);
}

/// Offerings that a launch may get.
pub(super) fn offers<'k>(
    launch: &Launch,
    kind: &'k InstanceType,
) -> impl Iterator<Item = &'k Offering> {
    kind.offerings.iter().filter(|offer| {
        let zone = ("topology.kubernetes.io/zone", &offer.zone);
        let capacity_type =
            ("karpenter.sh/capacity-type", &offer.capacity_type.as_str().to_owned());
        let full = offer.capacity_type == crate::snapshot::CapacityType::Reserved
            && offer.reservation_capacity.unwrap_or(0) == 0;
        let own = offer.requirements.iter().filter(|need| need.operator == Operator::In);
        let mut own = own.filter(|need| need.values.len() == 1);
        let further = own.all(|need| {
            let mut asked = launch.requirements.iter().filter(|asked| asked.key == need.key);
            asked.all(|asked| holds(asked, need.values.first()))
        });
        let listed = [zone, capacity_type].iter().all(|(key, value)| {
            launch
                .requirements
                .iter()
                .filter(|requirement| requirement.key == *key)
                .all(|requirement| holds(requirement, Some(value)))
        });
        offer.available && !full && listed && further
    })
}

/// The labels that a machine gets.
pub(super) fn labels_of(
    launch: &Launch,
    pool: &NodePool,
    kind: &InstanceType,
    offer: &Offering,
) -> Labels {
    let mut certain: BTreeMap<String, String> = BTreeMap::new();
    let single = |requirements: &[crate::snapshot::Requirement]| -> Vec<(String, String)> {
        requirements
            .iter()
            .filter(|need| need.operator == Operator::In && need.values.len() == 1)
            .map(|need| (need.key.clone(), need.values[0].clone()))
            .collect()
    };
    certain.extend(single(&kind.requirements));
    certain.extend(single(&offer.requirements));
    certain.extend(single(&launch.requirements));
    certain.extend((*launch.labels).clone());
    for (key, value) in [
        ("karpenter.sh/nodepool", pool.name.as_str()),
        ("karpenter.sh/registered", "true"),
        ("karpenter.sh/initialized", "true"),
        ("node.kubernetes.io/instance-type", kind.name.as_str()),
        ("topology.kubernetes.io/zone", offer.zone.as_str()),
        ("karpenter.sh/capacity-type", offer.capacity_type.as_str()),
    ] {
        certain.insert(key.to_owned(), value.to_owned());
    }
    Labels { certain, possible: BTreeMap::new() }
}

/// What the labels of a launch may become.
pub(super) fn possible_labels(
    snapshot: &Snapshot,
    launch: &Launch,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let pool = snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool);
    let catalog = pool.and_then(|pool| pool.catalog).map(|id| &snapshot.catalogs[id.0 as usize]);
    let (Some(pool), Some(catalog)) = (pool, catalog) else { return values };
    let kinds =
        catalog.instance_types.iter().filter(|kind| launch.instance_types.contains(&kind.name));
    for kind in kinds {
        for offer in offers(launch, kind) {
            for (key, value) in labels_of(launch, pool, kind, offer).certain {
                values.entry(key).or_default().insert(value);
            }
        }
    }
    values
}

fn check_min_values(
    catalog: &Catalog,
    launch: &Launch,
    name: &str,
    found: &mut BTreeSet<Violation>,
) {
    for requirement in &launch.requirements {
        let Some(required) = requirement.min_values else { continue };
        let values: BTreeSet<&String> = catalog
            .instance_types
            .iter()
            .filter(|kind| launch.instance_types.contains(&kind.name))
            .flat_map(|kind| &kind.requirements)
            .filter(|of_type| of_type.key == requirement.key)
            .flat_map(|of_type| &of_type.values)
            .filter(|value| holds(requirement, Some(value)))
            .collect();
        if values.len() < required as usize {
            let key = requirement.key.clone();
            found.insert(Violation::MinValues { launch: name.to_owned(), key });
        }
    }
}

/// NodePool limits, with every launch counted as the largest type that it carries, and without the
/// machines that go.
pub(super) fn check_limits(
    snapshot: &Snapshot,
    going: &BTreeSet<&str>,
    launches: &[&Launch],
    found: &mut BTreeSet<Violation>,
) {
    for pool in &snapshot.node_pools {
        let launched: Vec<_> =
            launches.iter().filter(|launch| launch.node_pool == pool.name).collect();
        let Some(catalog) = pool.catalog.filter(|_| !launched.is_empty()) else { continue };
        let types = &snapshot.catalogs[catalog.0 as usize].instance_types;
        for (resource, &limit) in &pool.limits {
            let of_type = |name: &String| {
                let kind = types.iter().find(|kind| kind.name == *name);
                kind.map_or(0, |kind| kind.capacity.get(resource))
            };
            let mut used = 0;
            for node in &snapshot.nodes {
                let of_pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_ref());
                let stays = !node.deleting && !going.contains(node.key.as_str());
                if of_pool == Some(&pool.name) && stays {
                    used += if resource == "nodes" { 1 } else { node.capacity.get(resource) };
                }
            }
            for launch in &launched {
                used += if resource == "nodes" {
                    1
                } else {
                    launch.instance_types.iter().map(of_type).max().unwrap_or(0)
                };
            }
            if used > limit {
                let resource = resource.clone();
                found.insert(Violation::Limit { pool: pool.name.clone(), resource });
            }
        }
    }
}

fn check_taints(
    snapshot: &Snapshot,
    pod: usize,
    shape: &PodShape,
    taints: &[Taint],
    machine: &str,
    found: &mut BTreeSet<Violation>,
) {
    if let Some(taint) = untolerated(taints, &shape.tolerations) {
        found.insert(Violation::Taint {
            pod: reference(snapshot, pod),
            machine: machine.to_owned(),
            key: taint.key.clone(),
        });
    }
}

/// The first taint that keeps a pod off, as kube-scheduler sees it.
pub(super) fn untolerated<'t>(
    taints: &'t [Taint],
    tolerations: &[Toleration],
) -> Option<&'t Taint> {
    let hard = taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    hard.into_iter().find(|taint| {
        !tolerations.iter().any(|toleration| {
            let same = |mine: &Option<String>, theirs: &str| {
                mine.as_deref().is_none_or(|mine| mine.is_empty() || mine == theirs)
            };
            let value = taint.value.as_deref().unwrap_or_default();
            let wanted = toleration.value.as_deref().unwrap_or_default();
            let numbers = (value.parse::<i64>().ok(), wanted.parse::<i64>().ok());
            same(&toleration.effect, &taint.effect)
                && same(&toleration.key, &taint.key)
                && match toleration.operator.as_deref() {
                    Some("Exists") => true,
                    Some("Lt") => matches!(numbers, (Some(value), Some(wanted)) if value < wanted),
                    Some("Gt") => matches!(numbers, (Some(value), Some(wanted)) if value > wanted),
                    _ => {
                        value == wanted
                            && toleration.key.as_deref().is_some_and(|key| !key.is_empty())
                    }
                }
        })
    })
}

fn check_amounts(
    requested: &Resources,
    allocatable: &Resources,
    machine: &str,
    found: &mut BTreeSet<Violation>,
) {
    for (resource, amount) in requested.iter() {
        if amount > allocatable.get(resource) {
            found.insert(Violation::Overfull {
                machine: machine.to_owned(),
                resource: resource.to_owned(),
                requested: amount,
                allocatable: allocatable.get(resource),
            });
        }
    }
}

fn check_ports(
    snapshot: &Snapshot,
    all: &[usize],
    new: &[usize],
    daemons: &[&PodShape],
    machine: &str,
    found: &mut BTreeSet<Violation>,
) {
    let everywhere = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
    let clash = |a: &PodShape, b: &PodShape| {
        a.host_ports.iter().any(|(protocol, ip, port)| {
            b.host_ports.iter().any(|(other_protocol, other_ip, other_port)| {
                (protocol, port) == (other_protocol, other_port)
                    && (ip == other_ip || everywhere(ip) || everywhere(other_ip))
            })
        })
    };
    for &pod in new {
        let mine = shape(snapshot, pod);
        if mine.host_ports.is_empty() {
            continue;
        }
        let with_pods =
            all.iter().any(|&other| other != pod && clash(mine, shape(snapshot, other)));
        if with_pods || daemons.iter().any(|daemon| clash(mine, daemon)) {
            found.insert(Violation::HostPort {
                pod: reference(snapshot, pod),
                machine: machine.to_owned(),
            });
        }
    }
}
