//! The values of the operator's objects, under the keys of the Helm chart (and of upstream's).

mod check;
mod settings;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Affinity, AppArmorProfile, Container, EnvFromSource, EnvVar, LocalObjectReference,
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodDNSConfig,
    PodSecurityContext, ResourceRequirements, SELinuxOptions, SeccompProfile, Toleration,
    TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub(super) use self::check::Refused;
pub use self::settings::{FeatureGates, OperatorSettings};

/// All values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Values {
    /// Value of `app.kubernetes.io/name`; empty: `karpenter`.
    pub name_override: String,
    /// Name of the objects; empty: `karpenter`.
    pub fullname_override: String,
    /// More labels for all objects.
    pub additional_labels: BTreeMap<String, String>,
    /// More annotations for all objects.
    pub additional_annotations: BTreeMap<String, String>,
    /// When the image is pulled.
    pub image_pull_policy: String,
    /// Secrets for the registry.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// The metrics Service.
    pub service: Service,
    /// The operator's ServiceAccount.
    pub service_account: ServiceAccount,
    /// More rules for the operator.
    pub additional_cluster_role_rules: Vec<PolicyRule>,
    /// How many operators run, one of them active.
    #[schemars(range(min = 0, max = 10))]
    pub replicas: i32,
    /// How many old ReplicaSets are kept.
    pub revision_history_limit: i32,
    /// How new pods take the place of old ones.
    pub strategy: DeploymentStrategy,
    /// Labels of the pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// The PodDisruptionBudget.
    pub pod_disruption_budget: DisruptionBudget,
    /// Security of the pods.
    pub pod_security_context: PodSecurityContext,
    /// Priority of the pods.
    pub priority_class_name: String,
    /// How long the operator may take to stop, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
    /// Use the node's network.
    pub host_network: bool,
    /// Who schedules the pods.
    pub scheduler_name: String,
    /// How the pods resolve names.
    pub dns_policy: String,
    /// Name servers, search domains and options of the pods' resolver.
    #[serde(rename = "dnsConfig")]
    pub dns_config: PodDNSConfig,
    /// Containers that run to their end before the operator's begins.
    #[serde(deserialize_with = "list_or_nothing")]
    pub init_containers: Vec<Container>,
    /// Labels of nodes that the pods may run on.
    pub node_selector: BTreeMap<String, String>,
    /// Where the pods run. A pod anti-affinity by host name is added when this has none.
    pub affinity: Affinity,
    /// How the pods are spread. The label selector is filled in.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Taints that the pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// More volumes.
    pub extra_volumes: Vec<Volume>,
    /// The operator's container.
    pub controller: Controller,
    /// `debug`, `info` or `error`.
    pub log_level: String,
    /// Where the log goes.
    pub log_output_paths: Vec<String>,
    /// Where errors of the log itself go.
    pub log_error_output_paths: Vec<String>,
    /// The operator's settings.
    pub settings: OperatorSettings,
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
    /// Make it.
    pub create: bool,
    /// Its name; empty: that of the other objects.
    pub name: String,
    /// Its annotations.
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
    /// Its name.
    pub name: String,
    /// How many pods may be gone.
    pub max_unavailable: i32,
}

impl Default for DisruptionBudget {
    fn default() -> Self {
        Self { name: "karpenter".to_owned(), max_unavailable: 1 }
    }
}

/// `controller`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Controller {
    /// Name of the container.
    pub container_name: String,
    /// Its image.
    pub image: Image,
    /// More environment variables.
    pub env: Vec<EnvVar>,
    /// More environment variables from ConfigMaps and Secrets.
    pub env_from: Vec<EnvFromSource>,
    /// What the container's security context has beside the restrictions that it always has.
    pub security_context: ContainerSecurity,
    /// Requests and limits.
    pub resources: ResourceRequirements,
    /// More mounts.
    pub extra_volume_mounts: Vec<VolumeMount>,
    /// Containers beside the operator's. One without `volumeMounts` of its own has those of `extraVolumeMounts` and `sidecarVolumeMounts`.
    #[serde(deserialize_with = "list_or_nothing")]
    pub sidecar_container: Vec<Container>,
    /// Mounts of the containers beside it, after `extraVolumeMounts`.
    pub sidecar_volume_mounts: Vec<VolumeMount>,
    /// The metrics port.
    pub metrics: Port,
    /// The port of the probes.
    pub health_probe: Port,
    /// When the container counts as dead.
    pub liveness_probe: ProbeTiming,
    /// When it counts as ready.
    pub readiness_probe: ProbeTiming,
    /// What helps to find out what the operator does.
    pub debug: DebugServer,
    /// Where traces go.
    pub tracing: Tracing,
}

impl Default for Controller {
    fn default() -> Self {
        let quantity = |text: &str| Quantity(text.to_owned());
        Self {
            container_name: "controller".to_owned(),
            image: Image::default(),
            env: Vec::new(),
            env_from: Vec::new(),
            resources: ResourceRequirements {
                requests: Some(BTreeMap::from([
                    ("cpu".to_owned(), quantity("1")),
                    ("memory".to_owned(), quantity("1Gi")),
                ])),
                limits: Some(BTreeMap::from([("memory".to_owned(), quantity("1Gi"))])),
                claims: None,
            },
            security_context: ContainerSecurity::default(),
            extra_volume_mounts: Vec::new(),
            sidecar_container: Vec::new(),
            sidecar_volume_mounts: Vec::new(),
            metrics: Port { port: 8080 },
            health_probe: Port { port: 8081 },
            liveness_probe: ProbeTiming::starting_after(30),
            readiness_probe: ProbeTiming::starting_after(5),
            debug: DebugServer::default(),
            tracing: Tracing::default(),
        }
    }
}

/// `controller.image`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Image {
    /// Image without tag.
    pub repository: String,
    /// Tag; empty: the chart's version.
    pub tag: String,
    /// Digest, such as `sha256:…`.
    pub digest: String,
}

/// The repository of a build that no release made. It names no registry, so that nothing can be pulled from it.
pub const PLACEHOLDER: &str = "tenon-operator";

/// The repository that a release has by default.
const REPOSITORY: &str = match option_env!("TENON_IMAGE") {
    Some(repository) => repository,
    None => PLACEHOLDER,
};

impl Default for Image {
    fn default() -> Self {
        Self { repository: REPOSITORY.to_owned(), tag: String::new(), digest: String::new() }
    }
}

impl Image {
    /// Its tag, or the version that stands for an empty one.
    pub fn tag(&self) -> &str {
        if self.tag.is_empty() { env!("CARGO_PKG_VERSION") } else { &self.tag }
    }

    /// The image as a pod names it.
    pub fn reference(&self) -> String {
        let tag = self.tag();
        let digest =
            if self.digest.is_empty() { String::new() } else { format!("@{}", self.digest) };
        format!("{}:{tag}{digest}", self.repository)
    }
}

/// `controller.securityContext`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContainerSecurity {
    /// AppArmor profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<AppArmorProfile>,
    /// SELinux options.
    #[serde(rename = "seLinuxOptions", skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<SELinuxOptions>,
    /// Seccomp profile; absent: `RuntimeDefault`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<SeccompProfile>,
}

/// `controller.livenessProbe` and `controller.readinessProbe`: when a probe is made and what it takes to believe it. What is absent is Kubernetes' default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProbeTiming {
    /// Seconds from the container's start to the first probe.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between probes.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<i32>,
    /// Seconds for an answer.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// So many probes have to fail in a row.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<i32>,
    /// So many probes have to succeed in a row; 1 for the liveness probe.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_threshold: Option<i32>,
}

impl ProbeTiming {
    fn starting_after(seconds: i32) -> Self {
        Self { initial_delay_seconds: Some(seconds), timeout_seconds: Some(30), ..Self::default() }
    }
}

/// A list, or the empty map that Karpenter's chart has for one: values that Helm has printed go on working.
fn list_or_nothing<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Container>, D::Error> {
    let value = Value::deserialize(from)?;
    if value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(Vec::new());
    }
    serde_json::from_value(value).map_err(serde::de::Error::custom)
}

/// A port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// `controller.debug`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DebugServer {
    /// Its port on the pod's loopback address; 0 for none, absent: the operator's default (8082).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Serve profiles there.
    pub profiling: bool,
}

/// `controller.tracing`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tracing {
    /// Send traces to a collector.
    pub enabled: bool,
    /// URL of the collector; empty: the operator's default.
    pub endpoint: String,
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
        }
    }
}

impl Values {
    /// The defaults with a values file merged into them as Helm does it: maps are merged, everything else is replaced, `null` takes a default away.
    pub fn merged(overrides: &Value) -> Result<Self, serde_json::Error> {
        let mut merged = serde_json::to_value(Self::default())?;
        json_patch::merge(&mut merged, overrides);
        serde_json::from_value(merged)
    }

    /// Name of the objects.
    pub fn fullname(&self) -> &str {
        if self.fullname_override.is_empty() { "karpenter" } else { &self.fullname_override }
    }

    /// Value of `app.kubernetes.io/name`.
    pub(crate) fn app_name(&self) -> &str {
        if self.name_override.is_empty() { "karpenter" } else { &self.name_override }
    }

    /// Name of the service account.
    pub fn service_account_name(&self) -> &str {
        match (self.service_account.name.as_str(), self.service_account.create) {
            ("", true) => self.fullname(),
            ("", false) => "default",
            (name, _) => name,
        }
    }
}

/// Lays one values file over another. Unlike a merge patch it keeps `null`, which takes away a default
/// that neither file has.
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
