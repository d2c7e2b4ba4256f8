//! The values of the operator's objects, under the keys of the Helm chart (and of upstream's).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvFromSource, EnvVar, LocalObjectReference, NodeAffinity, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, PodSecurityContext, ResourceRequirements,
    SeccompProfile, Toleration, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Requests and limits.
    pub resources: ResourceRequirements,
    /// More mounts.
    pub extra_volume_mounts: Vec<VolumeMount>,
    /// The metrics port.
    pub metrics: Port,
    /// The port of the probes.
    pub health_probe: Port,
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
            extra_volume_mounts: Vec::new(),
            metrics: Port { port: 8080 },
            health_probe: Port { port: 8081 },
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

impl Default for Image {
    fn default() -> Self {
        Self { repository: "tenon-operator".to_owned(), tag: String::new(), digest: String::new() }
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

/// `settings`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "these are switches that users set by name")]
pub struct OperatorSettings {
    /// Longest time to collect pending pods before they are planned together.
    pub batch_max_duration: String,
    /// A batch ends when no pod came for this time.
    pub batch_idle_duration: String,
    /// `Respect` or `Ignore` preferences of pods.
    pub preference_policy: String,
    /// `Strict` or `BestEffort`.
    pub min_values_policy: String,
    /// The cluster's certificate authority, base64.
    #[serde(rename = "clusterCABundle")]
    pub cluster_ca_bundle: String,
    /// Name of the cluster. Required.
    pub cluster_name: String,
    /// Endpoint of the cluster; empty: asked of EKS.
    pub cluster_endpoint: String,
    /// The VPC has no way out.
    #[serde(rename = "isolatedVPC")]
    pub isolated_vpc: bool,
    /// The operator makes no instance profiles.
    pub static_instance_profiles: bool,
    /// Take the cluster's version from EKS.
    pub eks_control_plane: bool,
    /// Part of an instance's memory that it never shows.
    pub vm_memory_overhead_percent: f64,
    /// Name of the interruption queue.
    pub interruption_queue: String,
    /// Watch zonal shifts.
    pub enable_zonal_shift: bool,
    /// Network interfaces to keep free.
    #[serde(rename = "reservedENIs")]
    pub reserved_enis: String,
    /// Ignore pods with dynamic resource claims.
    #[serde(rename = "ignoreDRARequests")]
    pub ignore_dra_requests: bool,
    /// No metrics of cluster state.
    pub disable_cluster_state_observability: bool,
    /// No dry runs of EC2NodeClasses.
    pub disable_dry_run: bool,
    /// How often AMIs are looked up.
    pub ami_refresh_interval: String,
    /// How often subnets are looked up.
    pub subnet_refresh_interval: String,
    /// What a further machine is taken to cost beyond its price, in dollars per hour; empty: the operator's default.
    pub node_price: String,
    /// Largest share of the cluster's pods that a new machine is planned for, in per cent; empty: no limit.
    pub largest_share: String,
    /// What share of their NodePools' nodes is so few, in per cent, that consolidation leaves them alone where room is short; empty: the operator's default.
    pub few_nodes: String,
    /// Whether kube-scheduler is told which node each pod was planned for.
    pub nominate_pods: bool,
    /// The topology spread that kube-scheduler gives pods without constraints of their own, in YAML; empty: none.
    pub scheduler_config: String,
    /// Feature gates.
    pub feature_gates: FeatureGates,
}

impl Default for OperatorSettings {
    fn default() -> Self {
        Self {
            batch_max_duration: "10s".to_owned(),
            batch_idle_duration: "1s".to_owned(),
            preference_policy: "Respect".to_owned(),
            min_values_policy: "Strict".to_owned(),
            cluster_ca_bundle: String::new(),
            cluster_name: String::new(),
            cluster_endpoint: String::new(),
            isolated_vpc: false,
            static_instance_profiles: false,
            eks_control_plane: false,
            vm_memory_overhead_percent: 0.075,
            interruption_queue: String::new(),
            enable_zonal_shift: false,
            reserved_enis: "0".to_owned(),
            ignore_dra_requests: true,
            disable_cluster_state_observability: false,
            disable_dry_run: false,
            ami_refresh_interval: "1m".to_owned(),
            subnet_refresh_interval: "1m".to_owned(),
            node_price: String::new(),
            largest_share: String::new(),
            few_nodes: String::new(),
            nominate_pods: true,
            scheduler_config: String::new(),
            feature_gates: FeatureGates::default(),
        }
    }
}

/// `settings.featureGates`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "these are switches that users set by name")]
pub struct FeatureGates {
    /// Replace unhealthy nodes.
    pub node_repair: bool,
    /// Honour NodeOverlays.
    pub node_overlay: bool,
    /// Use capacity reservations.
    pub reserved_capacity: bool,
    /// Replace spot nodes by cheaper spot nodes.
    pub spot_to_spot_consolidation: bool,
    /// NodePools of a fixed size.
    pub static_capacity: bool,
    /// Honour CapacityBuffers.
    pub capacity_buffer: bool,
    /// Let ReplicaSets that shrink empty the nodes that would go next.
    pub pod_deletion_cost_management: bool,
    /// Let drifted nodes go first whose replacement finds room only then.
    pub terminate_first_drift: bool,
    /// The same for sick nodes.
    pub terminate_first_repair: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            node_repair: false,
            node_overlay: false,
            reserved_capacity: true,
            spot_to_spot_consolidation: false,
            static_capacity: false,
            capacity_buffer: false,
            pod_deletion_cost_management: false,
            terminate_first_drift: false,
            terminate_first_repair: false,
        }
    }
}

impl FeatureGates {
    /// As the operator reads them.
    pub fn render(&self) -> String {
        let Self {
            node_repair,
            node_overlay,
            reserved_capacity,
            spot_to_spot_consolidation,
            static_capacity,
            capacity_buffer,
            pod_deletion_cost_management,
            terminate_first_drift,
            terminate_first_repair,
        } = self;
        format!(
            "ReservedCapacity={reserved_capacity},SpotToSpotConsolidation={spot_to_spot_consolidation},NodeRepair={node_repair},\
             NodeOverlay={node_overlay},StaticCapacity={static_capacity},CapacityBuffer={capacity_buffer},\
             PodDeletionCostManagement={pod_deletion_cost_management},\
             TerminateFirstDrift={terminate_first_drift},TerminateFirstRepair={terminate_first_repair}"
        )
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
            replicas: 2,
            revision_history_limit: 10,
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
        merge(&mut merged, overrides);
        drop_nulls(&mut merged, overrides);
        serde_json::from_value(merged)
    }

    /// Name of the objects.
    pub fn fullname(&self) -> &str {
        if self.fullname_override.is_empty() { "karpenter" } else { &self.fullname_override }
    }

    /// Value of `app.kubernetes.io/name`.
    pub fn app_name(&self) -> &str {
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

/// Merges maps into maps; everything else replaces what was there.
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

/// Takes away what the overrides say is `null`.
fn drop_nulls(merged: &mut Value, overrides: &Value) {
    let (Value::Object(merged), Value::Object(overrides)) = (merged, overrides) else { return };
    for (key, value) in overrides {
        if value.is_null() {
            merged.remove(key);
        } else if let Some(merged) = merged.get_mut(key) {
            drop_nulls(merged, value);
        }
    }
}
