//! The values of the operator's objects, under the keys of the Helm chart (and of upstream's).

pub mod chart;
mod check;
mod controller;
mod lenient;
mod monitor;
mod settings;

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Affinity, Container, LocalObjectReference, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PodAffinityTerm, PodAntiAffinity, PodDNSConfig, PodSecurityContext,
    SeccompProfile, Toleration, TopologySpreadConstraint, Volume,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(super) use self::check::Refused;
pub use self::controller::{Controller, Image, PLACEHOLDER, ProbeTiming};
use self::lenient::list_or_nothing;
pub(crate) use self::monitor::{ALERTS, alert_groups};
pub use self::monitor::{Dashboards, PrometheusRule, ServiceMonitor};
pub use self::settings::{AwsFeatureGates, FeatureGates, OperatorSettings};

/// Name of the release that the installer makes.
pub(crate) const RELEASE: &str = "tenon";

/// All values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Values {
    /// Value of the label `app.kubernetes.io/name`; empty: `karpenter`.
    pub name_override: String,
    /// Name of the objects; empty: `RELEASE-karpenter`, or `RELEASE` if it contains `karpenter`, or
    /// `karpenter` if it contains `tenon`.
    pub fullname_override: String,
    /// Additional labels for all objects.
    pub additional_labels: BTreeMap<String, String>,
    /// Additional annotations for all objects.
    pub additional_annotations: BTreeMap<String, String>,
    /// When the kubelet pulls the image: `Always`, `IfNotPresent` or `Never`.
    pub image_pull_policy: String,
    /// Secrets with the credentials of the image's registry.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// The Service of the metrics.
    pub service: Service,
    /// The operator's ServiceAccount.
    pub service_account: ServiceAccount,
    /// Additional rules for the operator's ClusterRole.
    pub additional_cluster_role_rules: Vec<PolicyRule>,
    /// The ServiceMonitor of the Prometheus operator.
    pub service_monitor: ServiceMonitor,
    /// The PrometheusRule of the Prometheus operator.
    pub prometheus_rule: PrometheusRule,
    /// The Grafana dashboards.
    pub dashboards: Dashboards,
    /// Number of replicas. One is active, the others stand by.
    #[schemars(range(min = 0, max = 10))]
    pub replicas: i32,
    /// Number of old ReplicaSets to keep.
    pub revision_history_limit: i32,
    /// How a rollout replaces pods.
    pub strategy: DeploymentStrategy,
    /// Additional labels of the pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// The PodDisruptionBudget.
    pub pod_disruption_budget: DisruptionBudget,
    /// Security context of the pods.
    pub pod_security_context: PodSecurityContext,
    /// Name of the pods' PriorityClass.
    pub priority_class_name: String,
    /// Termination grace period of the pods in seconds; absent: 30.
    pub termination_grace_period_seconds: Option<i64>,
    /// Use the network of the node. Custom CNIs require it.
    pub host_network: bool,
    /// Name of the scheduler of the pods.
    pub scheduler_name: String,
    /// DNS policy of the pods.
    pub dns_policy: String,
    /// Name servers, search domains and resolver options of the pods.
    #[serde(rename = "dnsConfig")]
    pub dns_config: PodDNSConfig,
    /// Containers that run to completion before the operator's container starts.
    #[serde(deserialize_with = "list_or_nothing")]
    pub init_containers: Vec<Container>,
    /// Labels of the nodes that the pods may run on.
    pub node_selector: BTreeMap<String, String>,
    /// Affinity of the pods. Pod affinity and anti-affinity terms without a label selector select
    /// the operator's own pods.
    pub affinity: Affinity,
    /// Topology spread of the pods. A constraint without a label selector selects the operator's
    /// own pods.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Taints that the pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// Additional volumes of the pods.
    pub extra_volumes: Vec<Volume>,
    /// The operator's container.
    pub controller: Controller,
    /// Log level: `debug`, `info`, `warn` or `error`.
    pub log_level: String,
    /// Destinations of the log.
    pub log_output_paths: Vec<String>,
    /// Destinations of errors of the logger itself.
    pub log_error_output_paths: Vec<String>,
    /// The operator's settings.
    pub settings: OperatorSettings,
    /// Values that Helm passes to all charts of an umbrella chart. Templates in `settings` may use
    /// them.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub global: Map<String, Value>,
}

/// `service`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Service {
    /// Annotations of the Service.
    pub annotations: BTreeMap<String, String>,
}

/// `serviceAccount`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServiceAccount {
    /// Create the ServiceAccount.
    pub create: bool,
    /// Name of the ServiceAccount; empty: the name of the other objects.
    pub name: String,
    /// Annotations of the ServiceAccount, such as `eks.amazonaws.com/role-arn`.
    pub annotations: BTreeMap<String, String>,
}

impl Default for ServiceAccount {
    fn default() -> Self {
        Self { create: true, name: String::new(), annotations: BTreeMap::new() }
    }
}

/// `podDisruptionBudget`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DisruptionBudget {
    /// Name of the PodDisruptionBudget.
    pub name: String,
    /// Number or share of the pods that an eviction may leave unavailable.
    pub max_unavailable: IntOrString,
}

impl Default for DisruptionBudget {
    fn default() -> Self {
        Self { name: "karpenter".to_owned(), max_unavailable: IntOrString::Int(1) }
    }
}

impl Default for Values {
    fn default() -> Self {
        let not_on_own_nodes = NodeSelectorRequirement {
            key: "karpenter.sh/nodepool".to_owned(),
            operator: "DoesNotExist".to_owned(),
            values: None,
        };
        Self {
            name_override: String::new(),
            fullname_override: String::new(),
            additional_labels: BTreeMap::new(),
            additional_annotations: BTreeMap::new(),
            image_pull_policy: "IfNotPresent".to_owned(),
            image_pull_secrets: Vec::new(),
            service: Service::default(),
            service_account: ServiceAccount::default(),
            additional_cluster_role_rules: Vec::new(),
            service_monitor: ServiceMonitor::default(),
            prometheus_rule: PrometheusRule::default(),
            dashboards: Dashboards::default(),
            replicas: 2,
            revision_history_limit: 10,
            strategy: DeploymentStrategy {
                type_: None,
                rolling_update: Some(RollingUpdateDeployment {
                    max_unavailable: Some(IntOrString::Int(1)),
                    max_surge: None,
                }),
            },
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            pod_disruption_budget: DisruptionBudget::default(),
            pod_security_context: PodSecurityContext {
                fs_group: Some(65532),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            },
            priority_class_name: "system-cluster-critical".to_owned(),
            termination_grace_period_seconds: None,
            host_network: false,
            scheduler_name: "default-scheduler".to_owned(),
            dns_policy: "ClusterFirst".to_owned(),
            dns_config: PodDNSConfig::default(),
            init_containers: Vec::new(),
            node_selector: BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]),
            affinity: Affinity {
                node_affinity: Some(NodeAffinity {
                    required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                        node_selector_terms: vec![NodeSelectorTerm {
                            match_expressions: Some(vec![not_on_own_nodes]),
                            match_fields: None,
                        }],
                    }),
                    preferred_during_scheduling_ignored_during_execution: None,
                }),
                pod_anti_affinity: Some(PodAntiAffinity {
                    required_during_scheduling_ignored_during_execution: Some(vec![
                        PodAffinityTerm {
                            topology_key: "kubernetes.io/hostname".to_owned(),
                            ..PodAffinityTerm::default()
                        },
                    ]),
                    preferred_during_scheduling_ignored_during_execution: None,
                }),
                ..Affinity::default()
            },
            topology_spread_constraints: vec![TopologySpreadConstraint {
                max_skew: 1,
                topology_key: "topology.kubernetes.io/zone".to_owned(),
                when_unsatisfiable: "DoNotSchedule".to_owned(),
                ..TopologySpreadConstraint::default()
            }],
            tolerations: vec![Toleration {
                key: Some("CriticalAddonsOnly".to_owned()),
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }],
            extra_volumes: Vec::new(),
            controller: Controller::default(),
            log_level: "info".to_owned(),
            log_output_paths: vec!["stdout".to_owned()],
            log_error_output_paths: vec!["stderr".to_owned()],
            settings: OperatorSettings::default(),
            global: Map::new(),
        }
    }
}

impl Values {
    /// The defaults with a values file merged into them as Helm does it: maps are merged,
    /// everything else is replaced, `null` takes a default away.
    pub fn merged(overrides: &Value) -> Result<Self, serde_json::Error> {
        let defaults = serde_json::to_value(Self::default())?;
        let mut merged = defaults.clone();
        json_patch::merge(&mut merged, overrides);
        empty_nulls(&mut merged, overrides, &defaults);
        serde_json::from_value(merged)
    }

    /// Name of the objects, as the chart gives it in a release of our name.
    pub fn fullname(&self) -> Cow<'_, str> {
        match (self.fullname_override.as_str(), self.name_override.as_str()) {
            ("", "") => "karpenter".into(),
            ("", name) if RELEASE.contains(name) => RELEASE.into(),
            ("", name) => format!("{RELEASE}-{name}").into(),
            (name, _) => name.into(),
        }
    }

    /// Value of `app.kubernetes.io/name`.
    pub(crate) fn app_name(&self) -> &str {
        if self.name_override.is_empty() { "karpenter" } else { &self.name_override }
    }

    /// Name of the service account.
    pub fn service_account_name(&self) -> Cow<'_, str> {
        match (self.service_account.name.as_str(), self.service_account.create) {
            ("", true) => self.fullname(),
            ("", false) => "default".into(),
            (name, _) => name.into(),
        }
    }
}

/// Lays one values file over another. Unlike a merge patch it keeps `null`, which takes away a
/// default that neither file has.
pub fn merge(into: &mut Value, overrides: &Value) {
    match (into, overrides) {
        (Value::Object(into), Value::Object(overrides)) => {
            for (key, value) in overrides {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value.clone(),
    }
}

/// Sections of the values, whose fields have defaults of their own. Everything else is a map or a
/// type of Kubernetes.
const SECTIONS: [&str; 18] = [
    "controller",
    "dashboard",
    "dashboards",
    "debug",
    "decisions",
    "healthProbe",
    "image",
    "livenessProbe",
    "metrics",
    "podDisruptionBudget",
    "prometheusRule",
    "readinessProbe",
    "securityContext",
    "service",
    "serviceAccount",
    "serviceMonitor",
    "settings",
    "tracing",
];

/// A field of a section (`defaults` are the section's) that the overrides say is `null` would get
/// its default again: it gets an empty text, list or map.
fn empty_nulls(merged: &mut Value, overrides: &Value, defaults: &Value) {
    let (Value::Object(merged), Value::Object(overrides)) = (merged, overrides) else { return };
    for (key, value) in overrides {
        let Some(default) = defaults.get(key) else { continue };
        if value.is_null() {
            let empty = match default {
                Value::String(_) => Value::String(String::new()),
                Value::Array(_) => Value::Array(Vec::new()),
                Value::Object(_) => Value::Object(Map::new()),
                _ => continue,
            };
            merged.insert(key.clone(), empty);
        } else if SECTIONS.contains(&key.as_str())
            && let Some(merged) = merged.get_mut(key)
        {
            empty_nulls(merged, value, default);
        }
    }
}
