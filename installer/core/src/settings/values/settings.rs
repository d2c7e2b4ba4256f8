//! The operator's settings among the chart's values: `settings` and `settings.featureGates`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient;

/// `settings`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "these are switches that users set by name")]
pub struct OperatorSettings {
    /// Maximum length of a batch of pending pods.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub batch_max_duration: String,
    /// A batch ends when no pod arrives for this long.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub batch_idle_duration: String,
    /// Whether preferences of pods count: `Respect` or `Ignore`.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub preference_policy: String,
    /// Whether `minValues` have to be met: `Strict` or `BestEffort`.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub min_values_policy: String,
    /// Certificate authority of the cluster in base64; empty: that of the operator's connection.
    #[serde(rename = "clusterCABundle")]
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub cluster_ca_bundle: String,
    /// Name of the cluster. Required.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub cluster_name: String,
    /// Endpoint of the cluster; empty: discovered through the EKS API.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub cluster_endpoint: String,
    /// The VPC has no internet access: AWS services without a VPC endpoint are not called.
    #[serde(rename = "isolatedVPC")]
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub isolated_vpc: bool,
    /// The operator creates no instance profiles.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub static_instance_profiles: bool,
    /// Take the cluster's version from the EKS API.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub eks_control_plane: bool,
    /// Share of an instance's memory that the operating system does not see.
    #[serde(deserialize_with = "lenient::number")]
    #[schemars(extend("type" = ["number", "string"]))]
    pub vm_memory_overhead_percent: f64,
    /// Name of the interruption queue in SQS; empty: interruptions are not handled.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub interruption_queue: String,
    /// Launch no nodes in zones from which ARC shifts traffic away.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub enable_zonal_shift: bool,
    /// Number of network interfaces that don't count for the number of pods.
    #[serde(rename = "reservedENIs")]
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub reserved_enis: String,
    /// Ignore resource claims of pods.
    #[serde(rename = "ignoreDRARequests")]
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub ignore_dra_requests: bool,
    /// Publish no metrics and events of the cluster state.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub disable_cluster_state_observability: bool,
    /// Don't validate EC2NodeClasses by dry runs in EC2.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub disable_dry_run: bool,
    /// Interval at which AMIs are refreshed.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub ami_refresh_interval: String,
    /// Interval at which subnets are refreshed.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub subnet_refresh_interval: String,
    /// Dollars per hour that an additional node is assumed to cost beyond its price; empty: 0.0005.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub node_price: String,
    /// Largest share of the cluster's pods that one new node is planned for, in percent; empty: no
    /// limit.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub largest_share: String,
    /// Share of the affected NodePools' nodes, in percent: a consolidation that lack of room limits
    /// to this many nodes or fewer removes none; empty: 2.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub few_nodes: String,
    /// Write the planned node into each pod's `status.nominatedNodeName`. Requires Kubernetes 1.35.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub nominate_pods: bool,
    /// Topology spread that kube-scheduler applies to pods without constraints of their own, in
    /// YAML; empty: none.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub scheduler_config: String,
    /// kOps' state store, such as `s3://BUCKET`: what `tenon kops sync` has created follows its
    /// InstanceGroups; empty: none.
    #[serde(deserialize_with = "lenient::text")]
    #[schemars(extend("type" = ["string", "number"]))]
    pub kops_state_store: String,
    /// Feature gates.
    pub feature_gates: FeatureGates,
    /// Feature gates of Karpenter's provider for AWS.
    pub aws_feature_gates: AwsFeatureGates,
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
            kops_state_store: String::new(),
            feature_gates: FeatureGates::default(),
            aws_feature_gates: AwsFeatureGates::default(),
        }
    }
}

/// `settings.featureGates`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "these are switches that users set by name")]
pub struct FeatureGates {
    /// Replace unhealthy nodes.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub node_repair: bool,
    /// Apply NodeOverlays.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub node_overlay: bool,
    /// Launch into capacity reservations.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub reserved_capacity: bool,
    /// Replace spot nodes by cheaper spot nodes.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub spot_to_spot_consolidation: bool,
    /// NodePools of a fixed size.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub static_capacity: bool,
    /// Launch nodes for CapacityBuffers.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub capacity_buffer: bool,
    /// Set the deletion cost of pods, so that ReplicaSets that scale in empty the nodes that
    /// consolidation would remove next.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub pod_deletion_cost_management: bool,
    /// Terminate drifted nodes first if their replacements only fit then.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub terminate_first_drift: bool,
    /// Terminate unhealthy nodes first if their replacements only fit then.
    #[serde(deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
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

/// `settings.awsFeatureGates`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AwsFeatureGates {
    /// CEL expressions in `spec.kubelet` of EC2NodeClasses. Tenon does not evaluate them: `true` is
    /// refused.
    #[serde(rename = "nodeClassCEL", deserialize_with = "lenient::switch")]
    #[schemars(extend("type" = ["boolean", "string"], "enum" = [true, false, "true", "false"]))]
    pub node_class_cel: bool,
}

impl OperatorSettings {
    /// The settings that are templates in Karpenter's chart, which only Helm renders.
    pub(super) fn texts(&self) -> [(&'static str, &str); 11] {
        [
            ("batchMaxDuration", &self.batch_max_duration),
            ("batchIdleDuration", &self.batch_idle_duration),
            ("preferencePolicy", &self.preference_policy),
            ("minValuesPolicy", &self.min_values_policy),
            ("clusterCABundle", &self.cluster_ca_bundle),
            ("clusterName", &self.cluster_name),
            ("clusterEndpoint", &self.cluster_endpoint),
            ("interruptionQueue", &self.interruption_queue),
            ("reservedENIs", &self.reserved_enis),
            ("amiRefreshInterval", &self.ami_refresh_interval),
            ("subnetRefreshInterval", &self.subnet_refresh_interval),
        ]
    }
}
