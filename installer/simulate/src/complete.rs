//! What the API server and the controllers would have filled in, so that manifests as people write
//! them can be planned on.
//!
//! Objects that were read from a cluster have all of it, and stay as they are.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tenon_crds::conditions::{Condition, READY, nodeclaim as condition};
use tenon_crds::labels::{self, LabelRules};
use tenon_crds::{ConditionStatus, NodeClaim, NodePool, selector, validation};
use tenon_state::change::Object;
use tenon_state::wire;

use super::buffers;
use super::expand::{expand, name, namespace};
use super::input::{Input, PriorityClass};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Fills in names, namespaces, uids, times, priorities, and the pods of workloads. Where pods are
/// spread by default the selectors of all workloads count.
pub(super) fn complete(input: &mut Input, rules: &LabelRules, now: Timestamp, is_spread: bool) {
    identify(input, now);
    keep_last(input);
    if is_spread {
        buffers::refer_to_all(input);
    } else {
        buffers::refer(input);
    }
    expand(input);
    // Once more, for the pods that were made.
    identify(input, now);
    let priorities = Priorities::new(&input.priority_classes);
    for pod in &mut input.pods {
        priorities.fill(&mut pod.spec);
        refuse_if_pending(pod);
    }
    for set in &mut input.daemon_sets {
        priorities.fill(&mut set.spec.template.spec);
    }
    input.nodes.iter_mut().for_each(node);
    for pool in &mut input.pools {
        node_pool(pool, rules, now);
    }
    for claim in &mut input.claims {
        node_claim(claim, &input.pools);
    }
    storage_class(&mut input.others);
    for budget in &mut input.budgets {
        // The status of one that was read from a cluster is the disruption controller's, which
        // knows more.
        if budget.metadata.resource_version.is_none() {
            budget.status.disruptions_allowed = allowed(budget, &input.pods);
        }
    }
}

fn identify(input: &mut Input, now: Timestamp) {
    let mut generated: BTreeMap<String, usize> = BTreeMap::new();
    let mut metadata = |kind: &str, metadata: &mut ObjectMeta, namespaced: bool| {
        if namespaced && metadata.namespace.as_deref().unwrap_or_default().is_empty() {
            metadata.namespace = Some("default".to_owned());
        }
        if metadata.name.is_none()
            && let Some(prefix) = &metadata.generate_name
        {
            let number = generated.entry(format!("{kind}/{prefix}")).or_default();
            metadata.name = Some(format!("{prefix}{number}"));
            *number += 1;
        }
        if metadata.uid.is_none() {
            metadata.uid = Some(format!("{kind}/{}/{}", namespace(metadata), name(metadata)));
        }
        metadata.creation_timestamp.get_or_insert(Time(now));
    };
    for pool in &mut input.pools {
        metadata("NodePool", &mut pool.metadata, false);
    }
    for claim in &mut input.claims {
        metadata("NodeClaim", &mut claim.metadata, false);
    }
    for node in &mut input.nodes {
        metadata("Node", &mut node.metadata, false);
    }
    for pod in &mut input.pods {
        metadata("Pod", &mut pod.metadata, true);
    }
    for set in &mut input.daemon_sets {
        metadata("DaemonSet", &mut set.metadata, true);
    }
    for budget in &mut input.budgets {
        metadata("PodDisruptionBudget", &mut budget.metadata, true);
    }
    for workload in &mut input.workloads {
        metadata(workload.kind.as_str(), &mut workload.metadata, true);
    }
    for object in &mut input.others {
        match object {
            Object::PersistentVolumeClaim(claim) => {
                metadata("PersistentVolumeClaim", &mut claim.metadata, true);
            }
            Object::PersistentVolume(volume) => {
                metadata("PersistentVolume", &mut volume.metadata, false);
            }
            Object::StorageClass(class) => metadata("StorageClass", &mut class.metadata, false),
            Object::Namespace(namespace) => metadata("Namespace", &mut namespace.metadata, false),
            Object::DeviceClass(class) => metadata("DeviceClass", &mut class.metadata, false),
            Object::ResourceSlice(slice) => metadata("ResourceSlice", &mut slice.metadata, false),
            Object::ResourceClaim(claim) => metadata("ResourceClaim", &mut claim.metadata, true),
            Object::ResourceClaimTemplate(template) => {
                metadata("ResourceClaimTemplate", &mut template.metadata, true);
            }
            Object::CapacityBuffer(buffer) => {
                metadata("CapacityBuffer", &mut buffer.metadata, true);
            }
            Object::PodTemplate(template) => metadata("PodTemplate", &mut template.metadata, true),
            Object::ResourceQuota(quota) => metadata("ResourceQuota", &mut quota.metadata, true),
            Object::Service(service) => metadata("Service", &mut service.metadata, true),
            _ => {}
        }
    }
}

/// Of objects with one name the last counts, as when they are applied one after the other.
fn keep_last(input: &mut Input) {
    fn last<T>(list: &mut Vec<T>, key: impl Fn(&T) -> (String, String)) {
        let last: BTreeMap<_, _> =
            list.iter().enumerate().map(|(index, object)| (key(object), index)).collect();
        if last.len() < list.len() {
            let mut index = 0;
            list.retain(|object| {
                index += 1;
                last[&key(object)] == index - 1
            });
        }
    }
    let of = |metadata: &ObjectMeta| (namespace(metadata), name(metadata));
    last(&mut input.pools, |pool| of(&pool.metadata));
    last(&mut input.claims, |claim| of(&claim.metadata));
    last(&mut input.nodes, |node| of(&node.metadata));
    last(&mut input.pods, |pod| of(&pod.metadata));
    last(&mut input.daemon_sets, |set| of(&set.metadata));
    last(&mut input.budgets, |budget| of(&budget.metadata));
    last(&mut input.workloads, |workload| {
        let (namespace, name) = of(&workload.metadata);
        (format!("{}/{namespace}", workload.kind.as_str()), name)
    });
}

/// Priorities by class.
struct Priorities<'a> {
    by_name: BTreeMap<&'a str, i32>,
    default: Option<(&'a str, i32)>,
}

impl<'a> Priorities<'a> {
    fn new(classes: &'a [PriorityClass]) -> Self {
        let mut by_name = BTreeMap::from([
            ("system-cluster-critical", 2_000_000_000),
            ("system-node-critical", 2_000_001_000),
        ]);
        let mut default = None;
        for class in classes {
            let name = class.metadata.name.as_deref().unwrap_or_default();
            by_name.insert(name, class.value);
            if class.global_default {
                default = Some((name, class.value));
            }
        }
        Self { by_name, default }
    }

    /// A pod that was admitted has a priority already; 0 is what one without a class would get.
    fn fill(&self, spec: &mut wire::PodSpec) {
        if spec.priority != 0 {
            return;
        }
        match spec.priority_class_name.as_deref() {
            Some(class) => spec.priority = self.by_name.get(class).copied().unwrap_or(0),
            None => {
                if let Some((class, value)) = self.default {
                    spec.priority_class_name = Some(class.to_owned());
                    spec.priority = value;
                }
            }
        }
    }
}

/// A pod without a node that no scheduler has looked at is taken as refused: whether it fits on a
/// node that is there, the planner finds out by itself.
fn refuse_if_pending(pod: &mut wire::Pod) {
    let status = &mut pod.status;
    let unscheduled = pod.spec.node_name.as_deref().unwrap_or_default().is_empty();
    let undecided = !status.conditions.iter().any(|condition| condition.type_ == "PodScheduled");
    if unscheduled
        && undecided
        && pod.spec.scheduling_gates.is_empty()
        && matches!(status.phase.as_deref(), None | Some("Pending"))
    {
        status.phase = Some("Pending".to_owned());
        status.conditions.push(wire::Condition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("Unschedulable".to_owned()),
            last_transition_time: None,
        });
    }
}

fn node(node: &mut wire::Node) {
    let status = &mut node.status;
    if status.allocatable.is_empty() {
        status.allocatable.clone_from(&status.capacity);
    }
    if status.capacity.is_empty() {
        status.capacity.clone_from(&status.allocatable);
    }
    if status.conditions.is_empty() {
        status.conditions.push(wire::Condition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            ..wire::Condition::default()
        });
    }
}

/// A NodePool that nobody has looked at is ready if it makes sense.
fn node_pool(pool: &mut NodePool, rules: &LabelRules, now: Timestamp) {
    let status = pool.status.get_or_insert_default();
    if status.conditions.iter().any(|condition| condition.type_ == READY) {
        return;
    }
    let problems = validation::node_pool(&pool.spec, rules);
    let message: Vec<String> = problems.iter().map(ToString::to_string).collect();
    status.conditions.push(Condition {
        type_: READY.to_owned(),
        status: if problems.is_empty() { ConditionStatus::True } else { ConditionStatus::False },
        reason: if problems.is_empty() { READY } else { "ValidationFailed" }.to_owned(),
        message: message.join("; "),
        last_transition_time: tenon_crds::Timestamp(now),
        observed_generation: None,
    });
}

/// A NodeClaim that nobody has looked at could be consolidated since it exists, if its NodePool
/// allows that at all.
fn node_claim(claim: &mut NodeClaim, pools: &[NodePool]) {
    let Some(created) = claim.metadata.creation_timestamp.as_ref().map(|time| time.0) else {
        return;
    };
    let pool = claim.metadata.labels.as_ref().and_then(|all| all.get(labels::NODEPOOL));
    let pool = pools.iter().find(|known| known.metadata.name.as_ref() == pool);
    let after = pool.and_then(|pool| pool.spec.disruption.consolidate_after.duration());
    let status = claim.status.get_or_insert_default();
    if after.is_some() && status.conditions.is_empty() {
        status.conditions.push(Condition {
            type_: condition::CONSOLIDATABLE.to_owned(),
            status: ConditionStatus::True,
            reason: condition::CONSOLIDATABLE.to_owned(),
            message: String::new(),
            last_transition_time: tenon_crds::Timestamp(created),
            observed_generation: None,
        });
    }
}

/// Claims that name no class get the default one.
fn storage_class(others: &mut [Object]) {
    let default = others.iter().find_map(|object| match object {
        Object::StorageClass(class) => {
            let annotations = class.metadata.annotations.as_ref()?;
            let is_default = annotations.get(DEFAULT_CLASS).is_some_and(|value| value == "true");
            is_default.then(|| name(&class.metadata))
        }
        _ => None,
    });
    for object in others {
        if let Object::PersistentVolumeClaim(claim) = object
            && claim.spec.storage_class_name.is_none()
        {
            claim.spec.storage_class_name.clone_from(&default);
        }
    }
}

/// How many of the pods that a budget selects may go now, as the disruption controller would say.
pub(super) fn allowed(budget: &wire::PodDisruptionBudget, pods: &[wire::Pod]) -> i32 {
    let spec = &budget.spec;
    let Some(selected_by) = &spec.selector else { return 0 };
    let none = BTreeMap::new();
    let selected: Vec<_> = pods
        .iter()
        .filter(|pod| {
            pod.metadata.namespace == budget.metadata.namespace
                && selector::selects(selected_by, pod.metadata.labels.as_ref().unwrap_or(&none))
        })
        .collect();
    let is_healthy = |pod: &&&wire::Pod| {
        let unready =
            |condition: &wire::Condition| condition.type_ == "Ready" && condition.status != "True";
        pod.spec.node_name.is_some()
            && pod.metadata.deletion_timestamp.is_none()
            && !pod.status.conditions.iter().any(unready)
    };
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let healthy = count(selected.iter().filter(is_healthy).count());
    let expected = count(selected.len());
    let of_expected = |amount: &IntOrString| match amount {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(text) => {
            let percent: i32 = text.strip_suffix('%')?.parse().ok()?;
            Some(expected.saturating_mul(percent).saturating_add(99) / 100)
        }
    };
    let needed = match (&spec.min_available, &spec.max_unavailable) {
        (Some(least), _) => of_expected(least),
        (None, Some(most)) => of_expected(most).map(|most| expected - most),
        (None, None) => Some(expected),
    };
    needed.map_or(0, |needed| (healthy - needed).max(0))
}

#[cfg(test)]
mod tests;
