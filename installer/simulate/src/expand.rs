//! Pods of what makes pods: as many as are wanted and not there yet.
//!
//! A saved cluster has a Deployment, its ReplicaSets and their pods; a chart has the Deployment
//! only. So each pod that is there counts for the workload at the root of its owners, and only the
//! rest is made up.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use tenon_crds::Operator;
use tenon_crds::toleration::tolerates;
use tenon_state::change::Object;
use tenon_state::wire::{self, controller};

use super::input::{Input, Workload, WorkloadKind};

/// Kind, namespace and name of a workload.
type Key = (WorkloadKind, String, String);

/// Makes the pods of workloads, and those of DaemonSets on the Nodes that are there.
pub(super) fn expand(input: &mut Input) {
    workloads(input);
    daemons(input);
}

fn workloads(input: &mut Input) {
    let parents: BTreeMap<Key, Option<Key>> = input
        .workloads
        .iter()
        .map(|workload| (key(workload), parent(&workload.metadata)))
        .collect();
    let root = |metadata: &ObjectMeta| {
        let mut at = owner(metadata, &parents)?;
        while let Some(Some(above)) = parents.get(&at) {
            if !parents.contains_key(above) {
                break;
            }
            at = above.clone();
        }
        Some(at)
    };
    let mut there: BTreeMap<Key, i32> = BTreeMap::new();
    let mut names: BTreeSet<(String, String)> = BTreeSet::new();
    for pod in &input.pods {
        names.insert((namespace(&pod.metadata), name(&pod.metadata)));
        let ended = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if !ended && let Some(root) = root(&pod.metadata) {
            *there.entry(root).or_default() += 1;
        }
    }
    let mut volume_claims: BTreeSet<(String, String)> = input
        .others
        .iter()
        .filter_map(|object| match object {
            Object::PersistentVolumeClaim(claim) => {
                Some((namespace(&claim.metadata), name(&claim.metadata)))
            }
            _ => None,
        })
        .collect();
    for workload in std::mem::take(&mut input.workloads) {
        let key = key(&workload);
        let above = parents.get(&key).and_then(Option::as_ref);
        if above.is_some_and(|above| parents.contains_key(above)) {
            continue;
        }
        let missing = wanted(&workload) - there.get(&key).copied().unwrap_or(0);
        let mut ordinal = 0;
        for _ in 0..missing.max(0) {
            let pod_name = loop {
                let candidate = format!("{}-{ordinal}", key.2);
                if names.insert((key.1.clone(), candidate.clone())) {
                    break candidate;
                }
                ordinal += 1;
            };
            let (pod, claims) = pod(&workload, &key.1, &pod_name);
            input.pods.push(pod);
            for claim in claims {
                if volume_claims.insert((key.1.clone(), name(&claim.metadata))) {
                    input.others.push(Object::PersistentVolumeClaim(Box::new(claim)));
                }
            }
        }
    }
}

/// How many pods a workload has when it is at rest.
fn wanted(workload: &Workload) -> i32 {
    let spec = &workload.spec;
    if workload.kind != WorkloadKind::Job {
        return spec.replicas.unwrap_or(1);
    }
    if spec.suspend {
        return 0;
    }
    let parallelism = spec.parallelism.unwrap_or(1);
    let left = spec.completions.map_or(parallelism, |all| all - workload.status.succeeded);
    parallelism.min(left)
}

/// A pod, and the PersistentVolumeClaims that come with it.
fn pod(
    workload: &Workload,
    namespace: &str,
    pod_name: &str,
) -> (wire::Pod, Vec<wire::PersistentVolumeClaim>) {
    let template = &workload.spec.template;
    let mut pod = wire::Pod {
        metadata: ObjectMeta {
            name: Some(pod_name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: template.metadata.labels.clone(),
            annotations: template.metadata.annotations.clone(),
            owner_references: Some(vec![OwnerReference {
                api_version: workload.kind.api_version().to_owned(),
                kind: workload.kind.as_str().to_owned(),
                name: name(&workload.metadata),
                uid: workload.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: wire::PodStatus::default(),
    };
    let mut claims = Vec::new();
    for template in &workload.spec.volume_claim_templates {
        let volume = name(&template.metadata);
        let claim_name = format!("{volume}-{pod_name}");
        pod.spec.volumes.retain(|known| known.name != volume);
        pod.spec.volumes.push(wire::Volume {
            name: volume,
            persistent_volume_claim: Some(wire::ClaimName { claim_name: claim_name.clone() }),
            ephemeral: None,
        });
        let mut claim = template.clone();
        claim.metadata.name = Some(claim_name);
        claim.metadata.namespace = Some(namespace.to_owned());
        claims.push(claim);
    }
    (pod, claims)
}

/// A pod of each DaemonSet on each Node that is there and takes it, unless it is there too.
fn daemons(input: &mut Input) {
    let there: BTreeSet<(String, String)> = input
        .pods
        .iter()
        .filter_map(|pod| {
            let owner = controller(&pod.metadata).filter(|owner| owner.kind == "DaemonSet")?;
            let node = pod.spec.node_name.clone()?;
            Some((format!("{}/{}", namespace(&pod.metadata), owner.name), node))
        })
        .collect();
    for set in &input.daemon_sets {
        let (namespace, set_name) = (namespace(&set.metadata), name(&set.metadata));
        for node in &input.nodes {
            let key = (format!("{namespace}/{set_name}"), node.name().to_owned());
            if there.contains(&key) || !takes(node, &set.spec.template.spec) {
                continue;
            }
            let mut spec = set.spec.template.spec.clone();
            spec.node_name = Some(node.name().to_owned());
            input.pods.push(wire::Pod {
                metadata: ObjectMeta {
                    name: Some(format!("{set_name}-{}", node.name())),
                    namespace: Some(namespace.clone()),
                    labels: set.spec.template.metadata.labels.clone(),
                    owner_references: Some(vec![OwnerReference {
                        api_version: "apps/v1".to_owned(),
                        kind: "DaemonSet".to_owned(),
                        name: set_name.clone(),
                        uid: set.metadata.uid.clone().unwrap_or_default(),
                        controller: Some(true),
                        block_owner_deletion: None,
                    }]),
                    ..ObjectMeta::default()
                },
                spec,
                status: wire::PodStatus {
                    phase: Some("Running".to_owned()),
                    ..wire::PodStatus::default()
                },
            });
        }
    }
}

/// Whether the DaemonSet controller would put a pod there: by labels and by taints, not by room.
fn takes(node: &wire::Node, spec: &wire::PodSpec) -> bool {
    let selected =
        spec.node_selector.iter().all(|(key, value)| node.label(key) == Some(value.as_str()));
    let terms = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let affine = terms
        .is_none_or(|selector| selector.node_selector_terms.iter().any(|term| holds(term, node)));
    let tolerated = node.spec.taints.iter().all(|taint| {
        taint.effect == "PreferNoSchedule"
            || is_tolerated_by_daemons(taint)
            || spec.tolerations.iter().any(|toleration| tolerates(toleration, taint))
    });
    selected && affine && tolerated
}

fn holds(term: &NodeSelectorTerm, node: &wire::Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let matches = |value: Option<&str>, operator: &str, values: Option<&Vec<String>>| {
        let values = values.map(Vec::as_slice).unwrap_or_default();
        Operator::of_node_selector(operator).is_some_and(|it| it.admits(values, value))
    };
    // A term that asks for nothing selects nothing.
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|e| matches(node.label(&e.key), &e.operator, e.values.as_ref()))
        && fields.iter().all(|field| {
            field.key == "metadata.name"
                && matches(Some(node.name()), &field.operator, field.values.as_ref())
        })
}

/// What the DaemonSet controller lets its pods tolerate.
fn is_tolerated_by_daemons(taint: &Taint) -> bool {
    match taint.key.strip_prefix("node.kubernetes.io/") {
        Some("not-ready" | "unreachable") => taint.effect == "NoExecute",
        Some("disk-pressure" | "memory-pressure" | "pid-pressure" | "unschedulable") => {
            taint.effect == "NoSchedule"
        }
        _ => false,
    }
}

/// The workload that controls an object, if it was read.
fn owner(metadata: &ObjectMeta, known: &BTreeMap<Key, Option<Key>>) -> Option<Key> {
    let key = parent(metadata)?;
    if known.contains_key(&key) {
        return Some(key);
    }
    // Pods and Deployments without the ReplicaSets between them: a ReplicaSet is called after its
    // Deployment and the hash of its template.
    let hash = metadata.labels.as_ref()?.get("pod-template-hash")?;
    let deployment = key.2.strip_suffix(hash.as_str())?.strip_suffix('-')?;
    let key = (WorkloadKind::Deployment, key.1, deployment.to_owned());
    known.contains_key(&key).then_some(key)
}

fn parent(metadata: &ObjectMeta) -> Option<Key> {
    let owner = controller(metadata)?;
    let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("apps/v1", "Deployment") => WorkloadKind::Deployment,
        ("apps/v1", "ReplicaSet") => WorkloadKind::ReplicaSet,
        ("apps/v1", "StatefulSet") => WorkloadKind::StatefulSet,
        ("batch/v1", "Job") => WorkloadKind::Job,
        _ => return None,
    };
    Some((kind, namespace(metadata), owner.name.clone()))
}

fn key(workload: &Workload) -> Key {
    (workload.kind, namespace(&workload.metadata), name(&workload.metadata))
}

pub(super) fn name(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

pub(super) fn namespace(metadata: &ObjectMeta) -> String {
    metadata.namespace.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
