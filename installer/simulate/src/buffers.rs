//! CapacityBuffers: what they refer to among the input, and what comes of them.

use std::collections::BTreeMap;

use serde::Serialize;
use tenon_crds::CapacityBuffer;
use tenon_planner::Snapshot;
use tenon_planner::plan::{Plan, PodRef};
use tenon_state::change::{Object, ObjectKey};
use tenon_state::cluster::{Cluster, Room};
use tenon_state::wire;

use super::input::{Input, Workload, WorkloadKind};
use super::parts::{WhyNot, why_not};
use super::words::counted;

/// What comes of a CapacityBuffer.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Buffer {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// For how many pods it keeps room.
    pub pods: usize,
    /// How many of them fit on machines that are there.
    pub on_nodes: usize,
    /// For how many machines would be launched.
    pub on_launches: usize,
    /// For how many there would be no room.
    pub missing: usize,
    /// Why, NodePool by NodePool, for the first of these.
    pub reasons: Vec<WhyNot>,
}

/// Adds the workloads that CapacityBuffers refer to as objects that the state is made of: otherwise
/// only their pods count.
pub(super) fn refer(input: &mut Input) {
    let buffers = input.others.iter().filter_map(|object| match object {
        Object::CapacityBuffer(buffer) => Some(buffer),
        _ => None,
    });
    let referred: Vec<Object> =
        buffers.filter_map(|buffer| object(workload(buffer, &input.workloads)?)).collect();
    input.others.extend(referred);
}

/// Adds all workloads as objects that the state is made of: their selectors say which pods are
/// spread together.
pub(super) fn refer_to_all(input: &mut Input) {
    let all: Vec<Object> = input.workloads.iter().filter_map(object).collect();
    input.others.extend(all);
}

/// The workload that a buffer is for, if it was read.
fn workload<'a>(buffer: &CapacityBuffer, all: &'a [Workload]) -> Option<&'a Workload> {
    let reference = buffer.spec.scalable_ref.as_ref()?;
    all.iter().find(|workload| {
        workload.kind.as_str() == reference.kind
            && workload.metadata.name.as_deref() == Some(&reference.name)
            && workload.metadata.namespace == buffer.metadata.namespace
    })
}

/// A workload as the state takes it; nothing for one that it knows nothing of.
fn object(workload: &Workload) -> Option<Object> {
    let metadata = workload.metadata.clone();
    let spec = wire::WorkloadSpec {
        replicas: workload.spec.replicas,
        selector: workload.spec.selector.clone(),
        template: workload.spec.template.clone(),
    };
    Some(match workload.kind {
        WorkloadKind::Deployment => {
            Object::Deployment(Box::new(wire::Deployment { metadata, spec }))
        }
        WorkloadKind::StatefulSet => {
            Object::StatefulSet(Box::new(wire::StatefulSet { metadata, spec }))
        }
        WorkloadKind::ReplicaSet => {
            Object::ReplicaSet(Box::new(wire::ReplicaSet { metadata, spec }))
        }
        WorkloadKind::Job => return None,
    })
}

/// Buffers that keep no room or less than they ask for, and why.
pub(super) fn warnings(cluster: &Cluster) -> Vec<String> {
    let says = |(key, buffer): (&ObjectKey, &std::sync::Arc<CapacityBuffer>)| {
        let what = match cluster.room(buffer) {
            Ok(Room { problem: Some(why), .. }) => format!("no room: {why}"),
            Ok(Room { limited: Some(limited), replicas, .. }) => format!(
                "room for {replicas} of {}: ResourceQuota {} allows no more",
                counted(usize::try_from(limited.wanted).unwrap_or(usize::MAX), "pod"),
                limited.quotas.join(", ")
            ),
            Ok(_) => return None,
            Err(unresolved) => format!("no room: {}", unresolved.condition().1),
        };
        Some(format!("CapacityBuffer {}/{} reserves {what}", key.namespace, key.name))
    };
    cluster.buffers().filter_map(says).collect()
}

/// The pods that only buffers stand for, by uid: namespace and name of their buffers.
pub(super) fn virtual_pods(snapshot: &Snapshot) -> BTreeMap<&str, (&str, &str)> {
    let pods = snapshot.pods.iter();
    pods.filter_map(|pod| Some((&*pod.uid, (&*pod.namespace, pod.buffer.as_deref()?)))).collect()
}

/// What comes of each buffer in a plan for pending pods; by namespace and name.
pub(super) fn buffers(snapshot: &Snapshot, plan: &Plan) -> Vec<Buffer> {
    let by_uid = virtual_pods(snapshot);
    let mut found: BTreeMap<(&str, &str), Buffer> = BTreeMap::new();
    for &(namespace, name) in by_uid.values() {
        let buffer = found.entry((namespace, name)).or_default();
        (buffer.namespace, buffer.name) = (namespace.to_owned(), name.to_owned());
        buffer.pods += 1;
    }
    let of = |pod: &PodRef| by_uid.get(&*pod.uid).copied();
    for key in plan.buffered.iter().filter_map(|nomination| of(&nomination.pod)) {
        found.entry(key).or_default().on_nodes += 1;
    }
    for key in plan.launches.iter().flat_map(|launch| &launch.buffer_pods).filter_map(of) {
        found.entry(key).or_default().on_launches += 1;
    }
    for waiting in &plan.report.pods {
        let Some(key) = of(&waiting.pod) else { continue };
        let reasons = &mut found.entry(key).or_default().reasons;
        if reasons.is_empty() {
            *reasons = waiting.reasons.iter().map(why_not).collect();
        }
    }
    for buffer in found.values_mut() {
        buffer.missing = buffer.pods.saturating_sub(buffer.on_nodes + buffer.on_launches);
    }
    found.into_values().collect()
}
