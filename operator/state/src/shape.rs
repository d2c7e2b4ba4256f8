//! What scheduling sees of a pod: from its specification to the planner's [`PodShape`].

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm as KubeAffinityTerm,
    Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use tenon_crds::ResourceList;
use tenon_crds::labels::LabelRules;
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{Operator, PodAffinityTerm, PodShape, Requirement, TopologySpread};

use crate::resources;
use crate::wire::{Container, ContainerResources, PodSpec};

/// What scheduling sees of a pod with this specification, apart from its volumes' topology, which
/// depends on other objects.
pub fn shape(
    namespace: &str,
    labels: &BTreeMap<String, String>,
    spec: &PodSpec,
    rules: &LabelRules,
) -> PodShape {
    let affinity = spec.affinity.as_ref();
    let mut host_ports: Vec<_> = spec.containers.iter().flat_map(host_ports).collect();
    host_ports.sort();
    host_ports.dedup();
    PodShape {
        namespace: namespace.to_owned(),
        labels: labels.clone(),
        requests: requests(spec),
        node_selector: spec
            .node_selector
            .iter()
            .map(|(key, value)| (rules.normalize(key).to_owned(), value.clone()))
            .collect(),
        required_affinity: required_affinity(affinity, rules),
        preferred_affinity: preferred_affinity(affinity, rules),
        tolerations: spec.tolerations.clone(),
        host_ports,
        topology_spread: spec
            .topology_spread_constraints
            .iter()
            .map(|constraint| topology_spread(constraint, labels, rules))
            .collect(),
        pod_affinity: affinity
            .map(|affinity| pod_affinity(affinity, labels, rules))
            .unwrap_or_default(),
        resource_claims: spec.resource_claims.iter().map(|claim| claim.name.clone()).collect(),
        ..PodShape::default()
    }
}

/// What kube-scheduler counts for a pod: its containers and sidecars, or an init container where
/// that needs more; the pod's own figures where it gives them; and the overhead of its runtime
/// class. A container that gives only limits asks for these (the API server fills that in for pods,
/// not for templates).
pub fn requests(spec: &PodSpec) -> Resources {
    let mut total = total(spec, |list| defaulted(&list.requests, &list.limits));
    total.add(&resources::from_list(&spec.overhead));
    total.pods = 1;
    total
}

/// What a pod may use at most, reckoned as [`requests`] are. What has no limit is not in it.
pub fn limits(spec: &PodSpec) -> Resources {
    let mut total = total(spec, |list| list.limits.clone());
    for (name, amount) in resources::from_list(&spec.overhead).iter() {
        let limit = total.get(name);
        if limit > 0 {
            total.set(name, limit + amount);
        }
    }
    total
}

/// The sum of what `of` finds in containers and sidecars, or of what an init container needs where
/// that is more; the pod's own figures where it gives them.
fn total(spec: &PodSpec, of: impl Fn(&ContainerResources) -> ResourceList) -> Resources {
    let of_container = |container: &Container| resources::from_list(&of(&container.resources));
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&of_container(container));
    }
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for container in &spec.init_containers {
        let mut own = of_container(container);
        if container.restart_policy.as_deref() == Some("Always") {
            running.add(&own);
            sidecars.add(&own);
            starting.max(&sidecars);
        } else {
            own.add(&sidecars);
            starting.max(&own);
        }
    }
    let mut total = running;
    total.max(&starting);
    if let Some(pod) = &spec.resources {
        for (name, &quantity) in &of(pod) {
            total.set(name, resources::amount(name, quantity));
        }
    }
    total
}

fn defaulted(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut list = limits.clone();
    list.extend(requests.iter().map(|(name, &quantity)| (name.clone(), quantity)));
    list
}

fn host_ports(container: &Container) -> impl Iterator<Item = (String, String, u16)> {
    container.ports.iter().filter(|port| port.host_port != 0).map(|port| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let ip = port.host_ip.clone().filter(|ip| !ip.is_empty());
        (protocol, ip.unwrap_or_else(|| "0.0.0.0".to_owned()), port.host_port)
    })
}

/// The pod's required node affinity: alternatives, each a conjunction.
pub fn required_affinity(affinity: Option<&Affinity>, rules: &LabelRules) -> Vec<Vec<Requirement>> {
    affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref())
        .map(|selector| selector.node_selector_terms.iter().map(|term| conjunction(term, rules)))
        .map(Iterator::collect)
        .unwrap_or_default()
}

fn preferred_affinity(
    affinity: Option<&Affinity>,
    rules: &LabelRules,
) -> Vec<(i32, Vec<Requirement>)> {
    affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_ref())
        .map(|terms| {
            terms.iter().map(|term| (term.weight, conjunction(&term.preference, rules))).collect()
        })
        .unwrap_or_default()
}

/// Whether a required node affinity names fields of nodes instead of labels, which no machine can
/// be planned for.
pub(crate) fn has_match_fields(spec: &PodSpec) -> bool {
    spec.affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref())
        .is_some_and(|selector| {
            selector
                .node_selector_terms
                .iter()
                .any(|term| term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()))
        })
}

/// A node selector term as a conjunction of requirements.
pub fn conjunction(term: &NodeSelectorTerm, rules: &LabelRules) -> Vec<Requirement> {
    term.match_expressions
        .iter()
        .flatten()
        .filter_map(|expression| requirement(expression, rules))
        .collect()
}

/// `None` for an operator that Kubernetes does not know.
fn requirement(expression: &NodeSelectorRequirement, rules: &LabelRules) -> Option<Requirement> {
    let operator = Operator::of_node_selector(&expression.operator)?;
    let mut values = expression.values.clone().unwrap_or_default();
    values.sort();
    values.dedup();
    let key = rules.normalize(&expression.key).to_owned();
    Some(Requirement { key, operator, values, min_values: None })
}

fn topology_spread(
    constraint: &TopologySpreadConstraint,
    labels: &BTreeMap<String, String>,
    rules: &LabelRules,
) -> TopologySpread {
    let keys = constraint.match_label_keys.iter().flatten().map(|key| ("In", key));
    let selector = merge_label_keys(constraint.label_selector.clone(), keys, labels);
    TopologySpread {
        topology_key: rules.normalize(&constraint.topology_key).to_owned(),
        max_skew: constraint.max_skew,
        min_domains: constraint.min_domains,
        required: constraint.when_unsatisfiable == "DoNotSchedule",
        selector,
        honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
    }
}

/// The selector, with the values that the pod has for `keys`, each by an operator. API servers put
/// them in themselves (of spread, newer ones), manifests don't have them; what is there already is
/// not added again.
fn merge_label_keys<'a>(
    selector: Option<LabelSelector>,
    keys: impl Iterator<Item = (&'static str, &'a String)>,
    labels: &BTreeMap<String, String>,
) -> Option<LabelSelector> {
    let mut selector = selector?;
    for (operator, key) in keys {
        let Some(value) = labels.get(key) else { continue };
        let expression = LabelSelectorRequirement {
            key: key.clone(),
            operator: operator.to_owned(),
            values: Some(vec![value.clone()]),
        };
        let expressions = selector.match_expressions.get_or_insert_default();
        if !expressions.contains(&expression) {
            expressions.push(expression);
        }
    }
    Some(selector)
}

fn pod_affinity(
    affinity: &Affinity,
    labels: &BTreeMap<String, String>,
    rules: &LabelRules,
) -> Vec<PodAffinityTerm> {
    let mut terms = Vec::new();
    let mut add = |anti, weight, term: &KubeAffinityTerm| {
        let matching = term.match_label_keys.iter().flatten().map(|key| ("In", key));
        let others = term.mismatch_label_keys.iter().flatten().map(|key| ("NotIn", key));
        let keys = matching.chain(others);
        terms.push(PodAffinityTerm {
            anti,
            weight,
            topology_key: rules.normalize(&term.topology_key).to_owned(),
            selector: merge_label_keys(term.label_selector.clone(), keys, labels),
            namespaces: term.namespaces.clone().unwrap_or_default(),
            namespace_selector: term.namespace_selector.clone(),
        });
    };
    if let Some(pods) = &affinity.pod_affinity {
        for term in pods.required_during_scheduling_ignored_during_execution.iter().flatten() {
            add(false, None, term);
        }
        for term in pods.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
            add(false, Some(term.weight), &term.pod_affinity_term);
        }
    }
    if let Some(pods) = &affinity.pod_anti_affinity {
        for term in pods.required_during_scheduling_ignored_during_execution.iter().flatten() {
            add(true, None, term);
        }
        for term in pods.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
            add(true, Some(term.weight), &term.pod_affinity_term);
        }
    }
    terms
}

/// With fewer shapes nothing is dropped.
const SWEEP_AT: usize = 256;

/// Shapes that pods share. Equal shapes are one value in memory, so that the memory is bounded by
/// the number of shapes.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    buckets: BTreeMap<u64, Vec<Arc<PodShape>>>,
    count: usize,
    /// Unused shapes are dropped when there are so many in all.
    sweep_at: usize,
}

impl Shapes {
    /// The one value for all pods of this shape.
    pub fn intern(&mut self, shape: PodShape) -> Arc<PodShape> {
        let bucket = self.buckets.entry(fingerprint(&shape)).or_default();
        if let Some(known) = bucket.iter().find(|known| ***known == shape) {
            return Arc::clone(known);
        }
        let shape = Arc::new(shape);
        bucket.push(Arc::clone(&shape));
        self.count += 1;
        if self.count > self.sweep_at {
            self.sweep();
        }
        shape
    }

    /// How many there are, with those that nothing uses any more.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Drops what nothing uses. Called when the number has doubled since the last time, so that it
    /// costs constant time per new shape.
    fn sweep(&mut self) {
        for bucket in self.buckets.values_mut() {
            bucket.retain(|shape| Arc::strong_count(shape) > 1);
        }
        self.buckets.retain(|_, bucket| !bucket.is_empty());
        self.count = self.buckets.values().map(Vec::len).sum();
        self.sweep_at = (self.count * 2).max(SWEEP_AT);
    }
}

/// Equal for equal shapes. Every field is part of it: shapes that differ anywhere are looked for
/// among few others, whatever pods are created.
fn fingerprint(shape: &PodShape) -> u64 {
    let PodShape {
        namespace,
        labels,
        requests,
        node_selector,
        required_affinity,
        preferred_affinity,
        tolerations,
        host_ports,
        topology_spread,
        pod_affinity,
        volume_topology,
        resource_claims,
        device_claims,
        volumes,
        shared_volumes,
    } = shape;
    let hasher = &mut FixedState::default().build_hasher();
    (namespace, labels, requests, node_selector).hash(hasher);
    (required_affinity, preferred_affinity, host_ports, resource_claims).hash(hasher);
    (volume_topology, device_claims, volumes, shared_volumes).hash(hasher);
    tolerations.len().hash(hasher);
    for toleration in tolerations {
        let Toleration { key, operator, value, effect, toleration_seconds } = toleration;
        (key, operator, value, effect, toleration_seconds).hash(hasher);
    }
    topology_spread.len().hash(hasher);
    for constraint in topology_spread {
        let TopologySpread {
            topology_key,
            max_skew,
            min_domains,
            required,
            selector,
            honor_affinity,
            honor_taints,
        } = constraint;
        (topology_key, max_skew, min_domains, required).hash(hasher);
        (honor_affinity, honor_taints).hash(hasher);
        hash_selector(selector.as_ref(), hasher);
    }
    for term in pod_affinity {
        let PodAffinityTerm {
            anti,
            weight,
            topology_key,
            selector,
            namespaces,
            namespace_selector,
        } = term;
        (anti, weight, topology_key, namespaces).hash(hasher);
        hash_selector(selector.as_ref(), hasher);
        hash_selector(namespace_selector.as_ref(), hasher);
    }
    hasher.finish()
}

fn hash_selector(selector: Option<&LabelSelector>, hasher: &mut impl Hasher) {
    selector.is_some().hash(hasher);
    let Some(LabelSelector { match_labels, match_expressions }) = selector else { return };
    match_labels.hash(hasher);
    let expressions = match_expressions.as_deref();
    expressions.map(<[_]>::len).hash(hasher);
    for expression in expressions.unwrap_or_default() {
        let LabelSelectorRequirement { key, operator, values } = expression;
        (key, operator, values).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).unwrap()
    }

    fn container(cpu: &str, memory: &str) -> serde_json::Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn cpu_and_memory(value: serde_json::Value) -> (i64, i64) {
        let total = requests(&spec(value));
        assert_eq!(total.pods, 1);
        (total.cpu, total.memory >> 20)
    }

    #[test]
    fn requests_follow_kube_scheduler() {
        let sidecar =
            |cpu| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        for (pod, expected) in [
            (
                json!({"containers": [container("100m", "64Mi"), container("1", "1Gi")]}),
                (1100, 1088),
            ),
            (
                json!({"containers": [container("1", "1Gi")], "initContainers": [container("3", "512Mi")]}),
                (3000, 1024),
            ),
            // A sidecar runs beside the containers, and beside the init containers that come after
            // it.
            (
                json!({"containers": [container("1", "0")], "initContainers": [sidecar("1"), container("2", "0")]}),
                (3000, 0),
            ),
            (
                json!({"containers": [container("1", "0")], "initContainers": [container("2", "0"), sidecar("1")]}),
                (2000, 0),
            ),
            (
                json!({"containers": [container("1", "0")], "overhead": {"cpu": "250m", "memory": "16Mi"}}),
                (1250, 16),
            ),
            (
                json!({"containers": [container("1", "1Gi")], "resources": {"requests": {"cpu": "4"}}}),
                (4000, 1024),
            ),
            (json!({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}), (2000, 0)),
            (
                json!({"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}),
                (1000, 0),
            ),
        ] {
            assert_eq!(cpu_and_memory(pod.clone()), expected, "{pod}");
        }
    }

    #[test]
    fn limits_are_those_of_what_runs_and_nothing_where_there_are_none() {
        let container = |cpu: &str| json!({"resources": {"limits": {"cpu": cpu}, "requests": {"memory": "1Gi"}}});
        let pod = json!({"containers": [container("1"), container("2")], "initContainers": [container("500m")],
            "overhead": {"cpu": "250m", "memory": "16Mi"}});
        let expected = Resources { cpu: 3250, ..Resources::default() };
        assert_eq!(limits(&spec(pod)), expected);
        assert_eq!(limits(&spec(json!({"containers": [{}]}))), Resources::default());
    }

    #[test]
    fn keys_are_normalised_and_values_sorted() {
        let spec = spec(json!({
            "nodeSelector": {"beta.kubernetes.io/arch": "arm64"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In", "values": ["b", "a", "b"]}]},
            ]}}},
        }));
        let shape = shape("default", &BTreeMap::new(), &spec, &LabelRules::core());
        assert_eq!(shape.node_selector["kubernetes.io/arch"], "arm64");
        assert_eq!(
            shape.required_affinity,
            [[Requirement {
                key: "topology.kubernetes.io/zone".to_owned(),
                operator: Operator::In,
                values: vec!["a".to_owned(), "b".to_owned()],
                min_values: None
            }]]
        );
    }

    #[test]
    fn match_label_keys_become_part_of_the_selector_once() {
        let constraint = |expressions| {
            json!({"topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                "matchLabelKeys": ["rev", "absent"],
                "labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": expressions},
            }]})
        };
        let labels = BTreeMap::from([("rev".to_owned(), "7".to_owned())]);
        for expressions in [json!([]), json!([{"key": "rev", "operator": "In", "values": ["7"]}])] {
            let spec = spec(constraint(expressions));
            let shape = shape("default", &labels, &spec, &LabelRules::core());
            let selector = shape.topology_spread[0].selector.as_ref().unwrap();
            assert_eq!(selector.match_expressions.as_ref().unwrap().len(), 1);
        }
    }

    #[test]
    fn affinity_to_pods_of_the_same_revision_and_of_other_tenants_is_part_of_the_selector_once() {
        let term = |expressions| {
            let term = json!({
                "topologyKey": "topology.kubernetes.io/zone",
                "matchLabelKeys": ["rev", "absent"], "mismatchLabelKeys": ["tenant"],
                "labelSelector": {"matchExpressions": expressions},
            });
            let required = "requiredDuringSchedulingIgnoredDuringExecution";
            json!({"affinity": {"podAffinity": {required: [term]}, "podAntiAffinity": {required: [term]}}})
        };
        let labels = [("rev", "7"), ("tenant", "a")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let merged = json!([
            {"key": "rev", "operator": "In", "values": ["7"]},
            {"key": "tenant", "operator": "NotIn", "values": ["a"]},
        ]);
        for expressions in [json!([]), merged.clone()] {
            let shape = shape("default", &labels, &spec(term(expressions)), &LabelRules::core());
            assert_eq!(shape.pod_affinity.len(), 2);
            for term in &shape.pod_affinity {
                let selector = serde_json::to_value(&term.selector).unwrap();
                assert_eq!(selector["matchExpressions"], merged, "{}", term.anti);
            }
        }
    }

    #[test]
    fn shapes_that_differ_in_one_field_have_different_fingerprints() {
        let shape = |field: &str, value: serde_json::Value| -> PodShape {
            let mut shape = serde_json::to_value(PodShape::default()).unwrap();
            shape[field] = value;
            serde_json::from_value(shape).unwrap()
        };
        let requirement = |value: &str| json!([[{"key": "a", "operator": "In", "values": [value], "minValues": null}]]);
        let toleration =
            |value: serde_json::Value| json!([{"key": "a", "tolerationSeconds": value}]);
        let with = |mut rule: serde_json::Value, field: &str, value: serde_json::Value| {
            rule[field] = value;
            json!([rule])
        };
        let spread = |field: &str, value: serde_json::Value| {
            let rule = json!({"topologyKey": "zone", "maxSkew": 1, "minDomains": null,
                "required": true, "selector": null, "honorAffinity": true, "honorTaints": false});
            shape("topologySpread", with(rule, field, value))
        };
        let affinity = |field: &str, value: serde_json::Value| {
            let rule = json!({"anti": true, "weight": null, "topologyKey": "zone",
                "selector": null, "namespaces": [], "namespaceSelector": null});
            shape("podAffinity", with(rule, field, value))
        };
        let expression = |values: serde_json::Value| json!({"matchExpressions": [{"key": "a", "operator": "In", "values": values}]});
        let claim = |name: &str| json!([{"driver": "ebs", "claim": name}]);
        let null = serde_json::Value::Null;
        let shapes = [
            PodShape::default(),
            shape("namespace", json!("a")),
            shape("labels", json!({"a": "b"})),
            shape("nodeSelector", json!({"a": "b"})),
            shape("requests", json!({"cpu": 1})),
            shape("requests", json!({"extended": {"gpu": 1}})),
            shape("requiredAffinity", requirement("a")),
            shape("requiredAffinity", requirement("b")),
            shape("preferredAffinity", json!([[1, requirement("a")[0]]])),
            shape("preferredAffinity", json!([[2, requirement("a")[0]]])),
            shape("volumeTopology", requirement("a")),
            shape("tolerations", toleration(null.clone())),
            shape("tolerations", toleration(json!(3))),
            shape("hostPorts", json!([["TCP", "0.0.0.0", 80]])),
            shape("hostPorts", json!([["UDP", "0.0.0.0", 80]])),
            spread("topologyKey", json!("zone")),
            spread("topologyKey", json!("host")),
            spread("maxSkew", json!(2)),
            spread("minDomains", json!(1)),
            spread("required", json!(false)),
            spread("honorAffinity", json!(false)),
            spread("honorTaints", json!(true)),
            spread("selector", json!({})),
            spread("selector", json!({"matchLabels": {"a": "b"}})),
            spread("selector", expression(null.clone())),
            spread("selector", expression(json!(["b"]))),
            affinity("topologyKey", json!("zone")),
            affinity("topologyKey", json!("host")),
            affinity("anti", json!(false)),
            affinity("weight", json!(1)),
            affinity("namespaces", json!(["a"])),
            affinity("selector", json!({})),
            affinity("namespaceSelector", json!({})),
            affinity("namespaceSelector", expression(json!(["b"]))),
            shape("resourceClaims", json!(["a"])),
            shape("deviceClaims", json!([0])),
            shape("volumes", json!({"ebs": 1})),
            shape("sharedVolumes", claim("a")),
            shape("sharedVolumes", claim("b")),
        ];
        for (n, shape) in shapes.iter().enumerate() {
            assert_eq!(fingerprint(shape), fingerprint(&shape.clone()), "{shape:?}");
            for other in &shapes[..n] {
                assert_ne!(fingerprint(shape), fingerprint(other), "{shape:?}\n{other:?}");
            }
        }
    }

    #[test]
    fn equal_shapes_are_one_value_and_unused_ones_go() {
        let mut shapes = Shapes::default();
        let kept = shapes.intern(PodShape { namespace: "kept".to_owned(), ..PodShape::default() });
        let again = shapes.intern(PodShape { namespace: "kept".to_owned(), ..PodShape::default() });
        assert!(Arc::ptr_eq(&kept, &again));
        for i in 0..5000 {
            shapes.intern(PodShape { namespace: format!("n{i}"), ..PodShape::default() });
        }
        assert!(shapes.len() <= SWEEP_AT, "{} shapes", shapes.len());
    }
}
