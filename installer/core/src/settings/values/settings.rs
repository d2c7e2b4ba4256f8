//! The operator's settings among the chart's values: `settings` and `settings.featureGates`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
