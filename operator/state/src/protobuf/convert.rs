//! From messages to wire types. What Kubernetes' JSON leaves out because it is empty is absent
//! here, too, so that both encodings of an object give the same value.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use tenon_crds::{Quantity, ResourceList};

use super::{InvalidField, messages};
use crate::guarded;
use crate::wire;

/// Absent if it is empty.
pub(super) fn text(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn list<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

fn map(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    Some(map).filter(|map| !map.is_empty())
}

/// A time that is not set is written as an empty message.
fn time(time: Option<messages::Time>) -> Option<Timestamp> {
    let seconds = time?.seconds;
    Timestamp::from_second(seconds).ok().filter(|_| seconds != 0)
}

fn resources(
    path: &str,
    amounts: BTreeMap<String, messages::Quantity>,
) -> Result<ResourceList, InvalidField> {
    let amount =
        |(name, amount): (String, messages::Quantity)| match amount.string.parse::<Quantity>() {
            Ok(quantity) => Ok((name, quantity)),
            Err(error) => Err((format!("{path}.{name}"), error.to_string())),
        };
    amounts.into_iter().map(amount).collect()
}

fn metadata(of: Option<messages::ObjectMeta>) -> meta::ObjectMeta {
    let of = of.unwrap_or_default();
    let owner = |owner: messages::OwnerReference| meta::OwnerReference {
        api_version: owner.api_version,
        block_owner_deletion: owner.block_owner_deletion,
        controller: owner.controller,
        kind: owner.kind,
        name: owner.name,
        uid: owner.uid,
    };
    let entry = |entry: messages::ManagedFieldsEntry| meta::ManagedFieldsEntry {
        manager: text(entry.manager),
        operation: text(entry.operation),
        ..meta::ManagedFieldsEntry::default()
    };
    let ours = of.managed_fields.into_iter().filter(|entry| guarded::is_ours(&entry.manager));
    meta::ObjectMeta {
        annotations: map(of.annotations),
        creation_timestamp: time(of.creation_timestamp).map(meta::Time),
        deletion_grace_period_seconds: of.deletion_grace_period_seconds,
        deletion_timestamp: time(of.deletion_timestamp).map(meta::Time),
        finalizers: list(of.finalizers),
        generate_name: text(of.generate_name),
        generation: Some(of.generation).filter(|generation| *generation != 0),
        labels: map(of.labels),
        managed_fields: list(ours.map(entry).collect()),
        name: text(of.name),
        namespace: text(of.namespace),
        owner_references: list(of.owner_references.into_iter().map(owner).collect()),
        resource_version: text(of.resource_version),
        self_link: None,
        uid: text(of.uid),
    }
}

fn condition(condition: messages::Condition) -> wire::Condition {
    wire::Condition {
        type_: condition.type_,
        status: condition.status,
        reason: text(condition.reason),
        last_transition_time: time(condition.last_transition_time),
    }
}

pub(super) fn pod(pod: messages::Pod) -> Result<wire::Pod, InvalidField> {
    Ok(wire::Pod {
        metadata: metadata(pod.metadata),
        spec: pod_spec(pod.spec.unwrap_or_default())?,
        status: pod_status(pod.status.unwrap_or_default()),
    })
}

fn pod_spec(spec: messages::PodSpec) -> Result<wire::PodSpec, InvalidField> {
    let containers = |path: &'static str, containers: Vec<messages::Container>| {
        let numbered = containers.into_iter().enumerate();
        numbered
            .map(|(number, it)| container(&format!("spec.{path}[{number}]"), it))
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(wire::PodSpec {
        node_name: text(spec.node_name),
        node_selector: spec.node_selector,
        affinity: spec.affinity.map(affinity),
        tolerations: spec.tolerations.into_iter().map(toleration).collect(),
        topology_spread_constraints: spec
            .topology_spread_constraints
            .into_iter()
            .map(spread)
            .collect(),
        containers: containers("containers", spec.containers)?,
        init_containers: containers("initContainers", spec.init_containers)?,
        overhead: resources("spec.overhead", spec.overhead)?,
        resources: spec.resources.map(|it| of_container("spec.resources", it)).transpose()?,
        scheduler_name: text(spec.scheduler_name),
        priority: spec.priority.unwrap_or_default(),
        priority_class_name: text(spec.priority_class_name),
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        volumes: spec.volumes.into_iter().map(volume).collect(),
        resource_claims: spec.resource_claims.into_iter().map(claim).collect(),
        scheduling_gates: spec
            .scheduling_gates
            .into_iter()
            .map(|gate| wire::SchedulingGate { name: gate.name })
            .collect(),
    })
}

fn container(path: &str, it: messages::Container) -> Result<wire::Container, InvalidField> {
    let ports = it.ports.into_iter().enumerate().map(|(number, it)| port(path, number, it));
    Ok(wire::Container {
        ports: ports.collect::<Result<_, _>>()?,
        resources: of_container(&format!("{path}.resources"), it.resources.unwrap_or_default())?,
        restart_policy: it.restart_policy,
    })
}

fn port(path: &str, number: usize, port: messages::Port) -> Result<wire::Port, InvalidField> {
    let host_port = u16::try_from(port.host_port).map_err(|error| {
        (format!("{path}.ports[{number}].hostPort"), format!("{}: {error}", port.host_port))
    })?;
    Ok(wire::Port { host_port, host_ip: text(port.host_ip), protocol: text(port.protocol) })
}

fn of_container(
    path: &str,
    of: messages::Resources,
) -> Result<wire::ContainerResources, InvalidField> {
    Ok(wire::ContainerResources {
        requests: resources(&format!("{path}.requests"), of.requests)?,
        limits: resources(&format!("{path}.limits"), of.limits)?,
    })
}

fn volume(volume: messages::Volume) -> wire::Volume {
    let source = volume.source.unwrap_or_default();
    wire::Volume {
        name: volume.name,
        persistent_volume_claim: source
            .persistent_volume_claim
            .map(|claim| wire::ClaimName { claim_name: claim.claim_name }),
        ephemeral: source.ephemeral.map(|()| wire::Present),
    }
}

fn claim(claim: messages::PodResourceClaim) -> wire::PodResourceClaim {
    wire::PodResourceClaim {
        name: claim.name,
        resource_claim_name: claim.resource_claim_name,
        resource_claim_template_name: claim.resource_claim_template_name,
    }
}

fn pod_status(status: messages::PodStatus) -> wire::PodStatus {
    let claim = |claim: messages::PodResourceClaimStatus| wire::PodResourceClaimStatus {
        name: claim.name,
        resource_claim_name: claim.resource_claim_name,
    };
    wire::PodStatus {
        phase: text(status.phase),
        conditions: status.conditions.into_iter().map(condition).collect(),
        nominated_node_name: text(status.nominated_node_name),
        start_time: time(status.start_time),
        resource_claim_statuses: status.resource_claim_statuses.into_iter().map(claim).collect(),
    }
}

fn toleration(it: messages::Toleration) -> core::Toleration {
    core::Toleration {
        effect: text(it.effect),
        key: text(it.key),
        operator: text(it.operator),
        toleration_seconds: it.toleration_seconds,
        value: text(it.value),
    }
}

fn spread(it: messages::TopologySpreadConstraint) -> core::TopologySpreadConstraint {
    core::TopologySpreadConstraint {
        label_selector: it.label_selector.map(label_selector),
        match_label_keys: list(it.match_label_keys),
        max_skew: it.max_skew,
        min_domains: it.min_domains,
        node_affinity_policy: it.node_affinity_policy,
        node_taints_policy: it.node_taints_policy,
        topology_key: it.topology_key,
        when_unsatisfiable: it.when_unsatisfiable,
    }
}

fn label_selector(it: messages::LabelSelector) -> meta::LabelSelector {
    let requirement = |it: messages::Requirement| meta::LabelSelectorRequirement {
        key: it.key,
        operator: it.operator,
        values: list(it.values),
    };
    meta::LabelSelector {
        match_expressions: list(it.match_expressions.into_iter().map(requirement).collect()),
        match_labels: map(it.match_labels),
    }
}

fn affinity(it: messages::Affinity) -> core::Affinity {
    core::Affinity {
        node_affinity: it.node_affinity.map(node_affinity),
        pod_affinity: it.pod_affinity.map(|it| {
            let (required, preferred) = pod_terms(it);
            core::PodAffinity {
                preferred_during_scheduling_ignored_during_execution: preferred,
                required_during_scheduling_ignored_during_execution: required,
            }
        }),
        pod_anti_affinity: it.pod_anti_affinity.map(|it| {
            let (required, preferred) = pod_terms(it);
            core::PodAntiAffinity {
                preferred_during_scheduling_ignored_during_execution: preferred,
                required_during_scheduling_ignored_during_execution: required,
            }
        }),
    }
}

fn node_affinity(it: messages::NodeAffinity) -> core::NodeAffinity {
    let preferred = |it: messages::PreferredTerm| core::PreferredSchedulingTerm {
        preference: node_term(it.preference.unwrap_or_default()),
        weight: it.weight,
    };
    core::NodeAffinity {
        preferred_during_scheduling_ignored_during_execution: list(
            it.preferred.into_iter().map(preferred).collect(),
        ),
        required_during_scheduling_ignored_during_execution: it.required.map(|it| {
            core::NodeSelector {
                node_selector_terms: it.terms.into_iter().map(node_term).collect(),
            }
        }),
    }
}

fn node_term(it: messages::NodeSelectorTerm) -> core::NodeSelectorTerm {
    let requirements = |them: Vec<messages::Requirement>| {
        let requirement = |it: messages::Requirement| core::NodeSelectorRequirement {
            key: it.key,
            operator: it.operator,
            values: list(it.values),
        };
        list(them.into_iter().map(requirement).collect())
    };
    core::NodeSelectorTerm {
        match_expressions: requirements(it.match_expressions),
        match_fields: requirements(it.match_fields),
    }
}

type PodTerms = (Option<Vec<core::PodAffinityTerm>>, Option<Vec<core::WeightedPodAffinityTerm>>);

/// Required and preferred ones.
fn pod_terms(it: messages::PodAffinity) -> PodTerms {
    let weighted = |it: messages::WeightedTerm| core::WeightedPodAffinityTerm {
        pod_affinity_term: pod_term(it.term.unwrap_or_default()),
        weight: it.weight,
    };
    (
        list(it.required.into_iter().map(pod_term).collect()),
        list(it.preferred.into_iter().map(weighted).collect()),
    )
}

fn pod_term(it: messages::PodAffinityTerm) -> core::PodAffinityTerm {
    core::PodAffinityTerm {
        label_selector: it.label_selector.map(label_selector),
        match_label_keys: list(it.match_label_keys),
        mismatch_label_keys: list(it.mismatch_label_keys),
        namespace_selector: it.namespace_selector.map(label_selector),
        namespaces: list(it.namespaces),
        topology_key: it.topology_key,
    }
}

pub(super) fn node(node: messages::Node) -> Result<wire::Node, InvalidField> {
    let spec = node.spec.unwrap_or_default();
    let status = node.status.unwrap_or_default();
    let taint = |it: messages::Taint| core::Taint {
        effect: it.effect,
        key: it.key,
        time_added: time(it.time_added).map(meta::Time),
        value: text(it.value),
    };
    Ok(wire::Node {
        metadata: metadata(node.metadata),
        spec: wire::NodeSpec {
            provider_id: text(spec.provider_id),
            taints: spec.taints.into_iter().map(taint).collect(),
            unschedulable: spec.unschedulable,
        },
        status: wire::NodeStatus {
            capacity: Arc::new(resources("status.capacity", status.capacity)?),
            allocatable: Arc::new(resources("status.allocatable", status.allocatable)?),
            conditions: status.conditions.into_iter().map(condition).collect(),
            node_info: wire::NodeInfo { boot_id: status.node_info.unwrap_or_default().boot_id },
        },
    })
}
