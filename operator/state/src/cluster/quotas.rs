//! ResourceQuotas, as far as they bound CapacityBuffers: room for pods that could not be created is
//! of no use.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ScopedResourceSelectorRequirement;
use tenon_crds::Operator;
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::PodShape;

use crate::change::ObjectKey;
use crate::{resources, wire};

/// ResourceQuotas by namespace and name.
pub(super) type Quotas = BTreeMap<ObjectKey, Quota>;

/// A ResourceQuota.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quota {
    /// The pods that it is about: those of all these scopes.
    scopes: Vec<ScopedResourceSelectorRequirement>,
    /// What is left of it for further pods, by resource, in the units of [`Resources`]; may be
    /// negative. What it says about limits of pods or about other objects is left out.
    left: BTreeMap<String, i64>,
}

/// What quotas see of the pods of a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pods<'a> {
    pub(super) shape: &'a PodShape,
    pub(super) priority_class: Option<&'a str>,
}

impl Quota {
    pub(super) fn of(object: &wire::ResourceQuota) -> Self {
        let wire::ResourceQuota { spec, status, .. } = object;
        let named = spec.scopes.iter().map(|scope| ScopedResourceSelectorRequirement {
            scope_name: scope.clone(),
            operator: "Exists".to_owned(),
            values: None,
        });
        let selector = spec.scope_selector.clone().and_then(|it| it.match_expressions);
        let mut left: BTreeMap<String, i64> = BTreeMap::new();
        for (name, &hard) in &status.hard {
            let Some(resource) = resource_of(name) else { continue };
            let amount = |quantity| resources::amount(resource, quantity);
            let used = status.used.get(name).map_or(0, |&used| amount(used));
            let rest = amount(hard).saturating_sub(used);
            // It may be given in two ways, as `cpu` and as `requests.cpu`.
            let known = left.entry(resource.to_owned()).or_insert(rest);
            *known = rest.min(*known);
        }
        Self { scopes: named.chain(selector.into_iter().flatten()).collect(), left }
    }

    fn is_about(&self, pods: Pods<'_>) -> bool {
        self.scopes.iter().all(|scope| is_in_scope(scope, pods))
    }
}

/// The resource of pods that a quota bounds by this name; none where it is about something else.
fn resource_of(name: &str) -> Option<&str> {
    match name {
        "count/pods" => Some("pods"),
        "requests.storage" => None,
        _ if name.starts_with("limits.") || name.starts_with("count/") => None,
        _ => Some(name.strip_prefix("requests.").unwrap_or(name)),
    }
}

/// Whether pods are in a scope. Those of buffers are taken to live for ever.
fn is_in_scope(scope: &ScopedResourceSelectorRequirement, pods: Pods<'_>) -> bool {
    let asks_nothing = pods.shape.requests.cpu == 0 && pods.shape.requests.memory == 0;
    match scope.scope_name.as_str() {
        "NotTerminating" => true,
        "BestEffort" => asks_nothing,
        "NotBestEffort" => !asks_nothing,
        "PriorityClass" => {
            let values = scope.values.as_deref().unwrap_or_default();
            Operator::of_node_selector(&scope.operator)
                .is_some_and(|operator| operator.admits(values, pods.priority_class))
        }
        "CrossNamespacePodAffinity" => pods
            .shape
            .pod_affinity
            .iter()
            .any(|term| !term.namespaces.is_empty() || term.namespace_selector.is_some()),
        // `Terminating`, and what is about other objects.
        _ => false,
    }
}

/// What is left of the quotas of a namespace while one buffer after the other takes its share.
#[derive(Debug)]
pub(super) struct Shares<'a> {
    quotas: Vec<(&'a str, &'a Quota, BTreeMap<String, i64>)>,
}

impl<'a> Shares<'a> {
    pub(super) fn of(quotas: &'a Quotas, namespace: &str) -> Self {
        let of_namespace = quotas
            .range(ObjectKey::new(namespace, "")..)
            .take_while(|(key, _)| *key.namespace == *namespace);
        let whole =
            |(key, quota): (&'a ObjectKey, &'a Quota)| (&*key.name, quota, quota.left.clone());
        Self { quotas: of_namespace.map(whole).collect() }
    }

    pub(super) fn is_unlimited(&self) -> bool {
        self.quotas.is_empty()
    }

    /// Takes the share of so many pods, or of as many as there is enough for: how many, and the
    /// names of the quotas that forbid more.
    pub(super) fn take(&mut self, pods: Pods<'_>, wanted: i64) -> (i64, Vec<String>) {
        let requests = &pods.shape.requests;
        let (mut allowed, mut against) = (wanted, Vec::new());
        for (name, _, left) in self.quotas.iter().filter(|(_, quota, _)| quota.is_about(pods)) {
            let fitting = fitting(left, requests);
            if fitting < wanted {
                against.push((*name).to_owned());
            }
            allowed = allowed.min(fitting);
        }
        for (_, _, left) in self.quotas.iter_mut().filter(|(_, quota, _)| quota.is_about(pods)) {
            for (name, amount) in left {
                let taken = requests.get(name).saturating_mul(allowed);
                *amount = amount.saturating_sub(taken);
            }
        }
        (allowed, against)
    }
}

fn fitting(left: &BTreeMap<String, i64>, requests: &Resources) -> i64 {
    let counts = left.iter().filter_map(|(name, left)| {
        let requested = requests.get(name);
        (requested > 0).then(|| left.max(&0) / requested)
    });
    counts.min().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenon_planner::snapshot::PodAffinityTerm;

    use super::*;

    fn quota(spec: &Value, hard: &Value, used: &Value) -> Quota {
        let status = json!({"hard": hard, "used": used});
        let object = json!({"metadata": {"name": "q"}, "spec": spec, "status": status});
        Quota::of(&serde_json::from_value(object).unwrap())
    }

    fn pod(cpu: i64, memory: i64) -> PodShape {
        let mut shape = PodShape::default();
        (shape.requests.cpu, shape.requests.memory, shape.requests.pods) = (cpu, memory, 1);
        shape.requests.set("example.com/gpu", 1);
        shape
    }

    #[test]
    fn what_is_left_of_requests_and_pods_is_what_counts() {
        let shape = pod(500, 1 << 30);
        let fits = |hard: Value, used: Value| {
            fitting(&quota(&json!({}), &hard, &used).left, &shape.requests)
        };
        let nothing = || json!({});
        assert_eq!(fits(json!({"cpu": "4"}), json!({"cpu": "1"})), 6);
        assert_eq!(fits(json!({"requests.cpu": "4", "cpu": "2"}), nothing()), 4);
        assert_eq!(fits(json!({"requests.memory": "3Gi"}), json!({"requests.memory": "1Gi"})), 2);
        assert_eq!(fits(json!({"pods": "5", "count/pods": "3"}), json!({"count/pods": "1"})), 2);
        assert_eq!(fits(json!({"requests.example.com/gpu": "2"}), nothing()), 2);
        assert_eq!(fits(json!({"cpu": "1"}), json!({"cpu": "2"})), 0);
        let others = json!({"limits.cpu": "1", "requests.storage": "1Gi", "services": "1",
            "count/services": "1", "ephemeral-storage": "1Gi"});
        assert_eq!(fits(others, nothing()), i64::MAX);
    }

    #[test]
    fn a_quota_is_about_the_pods_of_all_its_scopes() {
        let scope = |name: &str| json!({"scopes": [name]});
        let class = |operator: &str, values: Value| {
            let expression =
                json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
            json!({"scopeSelector": {"matchExpressions": [expression]}})
        };
        let (asking, idle) = (pod(1, 0), pod(0, 0));
        let mut elsewhere = pod(1, 0);
        elsewhere.pod_affinity.push(PodAffinityTerm {
            anti: false,
            weight: None,
            topology_key: "topology.kubernetes.io/zone".to_owned(),
            selector: None,
            namespaces: vec!["other".to_owned()],
            namespace_selector: None,
        });
        for (spec, shape, priority_class, expected) in [
            (json!({}), &asking, None, true),
            (scope("Terminating"), &asking, None, false),
            (scope("NotTerminating"), &asking, None, true),
            (scope("BestEffort"), &asking, None, false),
            (scope("BestEffort"), &idle, None, true),
            (scope("NotBestEffort"), &asking, None, true),
            (scope("CrossNamespacePodAffinity"), &asking, None, false),
            (scope("CrossNamespacePodAffinity"), &elsewhere, None, true),
            (json!({"scopes": ["NotTerminating", "BestEffort"]}), &asking, None, false),
            (class("In", json!(["high"])), &asking, Some("high"), true),
            (class("In", json!(["high"])), &asking, None, false),
            (class("NotIn", json!(["high"])), &asking, Some("low"), true),
            (class("NotIn", json!(["high"])), &asking, Some("high"), false),
            (class("Exists", json!(null)), &asking, Some("low"), true),
            (class("DoesNotExist", json!(null)), &asking, Some("low"), false),
            (scope("VolumeAttributesClass"), &asking, None, false),
        ] {
            let quota = quota(&spec, &json!({}), &json!({}));
            assert_eq!(quota.is_about(Pods { shape, priority_class }), expected, "{spec}");
        }
    }

    #[test]
    fn what_one_buffer_takes_the_next_one_does_not_get() {
        let key = |namespace, name| ObjectKey::new(namespace, name);
        let all = json!({});
        let idle = json!({"scopes": ["BestEffort"]});
        let limit = |spec: &Value, hard: &Value| quota(spec, hard, &json!({}));
        let quotas = Quotas::from([
            (key("a", "cpu"), limit(&all, &json!({"cpu": "2"}))),
            (key("a", "idle"), limit(&idle, &json!({"pods": "0"}))),
            (key("a", "pods"), limit(&all, &json!({"pods": "3"}))),
            (key("b", "none"), limit(&all, &json!({"pods": "0"}))),
        ]);
        let (half, whole) = (pod(500, 0), pod(1000, 0));
        let of = |shape| Pods { shape, priority_class: None };
        let mut shares = Shares::of(&quotas, "a");
        assert_eq!(shares.take(of(&half), 2), (2, vec![]));
        let both = vec!["cpu".to_owned(), "pods".to_owned()];
        assert_eq!(shares.take(of(&whole), 2), (1, both.clone()));
        assert_eq!(shares.take(of(&whole), 1), (0, both));
        assert!(Shares::of(&quotas, "c").is_unlimited());
    }
}
