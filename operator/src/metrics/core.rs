//! What several parts of the operator count.

use parking_lot::Mutex;

use super::pods::Tracker;
use super::queues::QueueMetrics;
use super::summary::{self, Summaries};
use super::transitions::Transitions;
use super::{
    Counters, DURATION_BUCKETS, Families, Gauges, Histograms, counters, gauges, histograms,
};

/// Buckets of node lifetimes in seconds: 15 minutes to 30 days.
const LIFETIME_BUCKETS: &[f64] = &[
    900.0,
    1800.0,
    2700.0,
    3600.0,
    7200.0,
    14_400.0,
    21_600.0,
    28_800.0,
    36_000.0,
    43_200.0,
    57_600.0,
    64_800.0,
    72_000.0,
    86_400.0,
    172_800.0,
    259_200.0,
    432_000.0,
    864_000.0,
    1_296_000.0,
    1_728_000.0,
    2_160_000.0,
    2_592_000.0,
];

/// 1·2^k seconds.
const TERMINATION_BUCKETS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];

/// 10·2^k seconds.
const REBOOT_BUCKETS: &[f64] = &[10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0];

/// Scores around the threshold of the policy Balanced, 0.5.
const SCORE_BUCKETS: &[f64] = &[0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0];

/// What several parts of the operator count. Labels are given in the order of the names in each comment.
#[derive(Debug)]
pub struct Core {
    /// `karpenter_nodeclaims_created_total{reason,nodepool,min_values_relaxed}`
    pub nodeclaims_created: Counters<3>,
    /// `karpenter_nodeclaims_terminated_total{nodepool,capacity_type,zone}`
    pub nodeclaims_terminated: Counters<3>,
    /// `karpenter_nodeclaims_disrupted_total{reason,nodepool,capacity_type,consolidation_policy,termination_mode}`
    pub nodeclaims_disrupted: Counters<5>,
    /// `karpenter_nodeclaims_unhealthy_disrupted_total{condition,nodepool,capacity_type,image_id,termination_mode}`
    pub nodeclaims_unhealthy_disrupted: Counters<5>,
    /// `karpenter_nodeclaims_instance_termination_duration_seconds{nodepool}`
    pub instance_termination_duration: Histograms<1>,
    /// `karpenter_nodeclaims_termination_duration_seconds{nodepool}`
    pub nodeclaim_termination_duration: Histograms<1>,
    /// `karpenter_nodes_created_total{nodepool,zone}`
    pub nodes_created: Counters<2>,
    /// `karpenter_nodes_terminated_total{nodepool,zone}`
    pub nodes_terminated: Counters<2>,
    /// `karpenter_nodes_drained_total{nodepool}`
    pub nodes_drained: Counters<1>,
    /// `karpenter_nodes_termination_duration_seconds{nodepool}`
    pub node_termination_duration: Summaries<1>,
    /// `karpenter_nodes_lifetime_duration_seconds{nodepool}`
    pub node_lifetime: Histograms<1>,
    /// `karpenter_nodes_reboots_total{result}`
    pub reboots: Counters<1>,
    /// `karpenter_nodes_reboot_duration_seconds{result}`: from the decision to the end.
    pub reboot_duration: Histograms<1>,
    /// `karpenter_nodes_reboot_recovery_duration_seconds{}`: from when the cloud has accepted it until the machine is back.
    pub reboot_recovery_duration: Histograms<0>,
    /// `tenon_planned_pods_bound_total{as_planned}`: pods that were planned for, and were bound.
    pub planned_pods_bound: Counters<1>,
    /// `karpenter_pods_eviction_requests_total{code}`
    pub eviction_requests: Counters<1>,
    /// `karpenter_pods_drained_total{reason}`
    pub pods_drained: Counters<1>,
    /// `karpenter_pods_disruption_initiated_total{reason,nodepool,capacity_type,consolidation_policy,termination_mode}`
    pub pods_disruption_initiated: Counters<5>,
    /// `karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes{nodepool}`
    pub pod_deletion_cost_pending: Gauges<1>,
    /// `karpenter_pod_deletion_cost_pod_annotation_writes_total{result}`
    pub pod_deletion_cost_writes: Counters<1>,
    /// `karpenter_pods_startup_duration_seconds{}`
    pub pod_startup_duration: Summaries<0>,
    /// `karpenter_pods_bound_duration_seconds{dynamic_resources}`
    pub pod_bound_duration: Histograms<1>,
    /// `karpenter_pods_provisioning_bound_duration_seconds{dynamic_resources}`
    pub pod_provisioning_bound_duration: Histograms<1>,
    /// `karpenter_pods_provisioning_startup_duration_seconds{}`
    pub pod_provisioning_startup_duration: Histograms<0>,
    /// `karpenter_pods_scheduling_decision_duration_seconds{}`
    pub pod_decision_duration: Histograms<0>,
    /// Pods that wait.
    pub pods: Tracker,
    /// `karpenter_scheduler_scheduling_duration_seconds{controller}`
    pub scheduling_duration: Histograms<1>,
    /// `karpenter_scheduler_unschedulable_pods_count{controller}`
    pub unschedulable_pods: Gauges<1>,
    /// `karpenter_scheduler_pending_pods_by_effective_zone_count{controller,zone}`
    pub pending_pods_by_zone: Gauges<2>,
    /// `karpenter_scheduler_ignored_pods_count{}`
    pub ignored_pods: Gauges<0>,
    /// `karpenter_voluntary_disruption_decision_evaluation_duration_seconds{reason,consolidation_type}`
    pub disruption_evaluation_duration: Histograms<2>,
    /// `karpenter_voluntary_disruption_eligible_nodes{reason}`
    pub eligible_nodes: Gauges<1>,
    /// `karpenter_nodepools_allowed_disruptions{nodepool,reason}`
    pub allowed_disruptions: Gauges<2>,
    /// `karpenter_nodepools_nodes_consuming_budgets{nodepool,reason}`
    pub nodes_consuming_budgets: Gauges<2>,
    /// `karpenter_voluntary_disruption_decisions_total{decision,reason,consolidation_type}`
    pub disruption_decisions: Counters<3>,
    /// `karpenter_voluntary_disruption_decisions_by_nodepool_total{nodepool,decision,reason,consolidation_type}`
    pub disruption_decisions_by_nodepool: Counters<4>,
    /// `karpenter_voluntary_disruption_terminate_first_decisions_total{nodepool,reason,terminate_first_reason}`
    pub terminate_first_decisions: Counters<3>,
    /// `karpenter_voluntary_disruption_consolidation_timeouts_total{consolidation_type}`: passes that were cut short, of whatever type.
    pub consolidation_timeouts: Counters<1>,
    /// `karpenter_nodepools_cost_total{nodepool}`
    pub node_pool_cost: Gauges<1>,
    /// `karpenter_nodepools_cost_tracker_errors_total{nodepool}`: nodes that are not in the cost because their price is not known, once per pass.
    pub node_pool_cost_errors: Counters<1>,
    /// `karpenter_build_info{version,goversion,goarch,commit}`
    pub build_info: Gauges<4>,
    /// `leader_election_master_status{name}`: 1 while this replica holds the lease.
    pub leader: Gauges<1>,
    /// `karpenter_consolidation_score{decision,nodepool,policy}`
    pub consolidation_score: Histograms<3>,
    /// `karpenter_consolidation_moves_total{decision,nodepool,policy}`
    pub consolidation_moves: Counters<3>,
    /// `karpenter_voluntary_disruption_failed_validations_total{consolidation_type}`
    pub failed_validations: Counters<1>,
    /// `karpenter_voluntary_disruption_queue_failures_total{decision,reason,consolidation_type}`
    pub disruption_queue_failures: Counters<3>,
    /// `karpenter_cloudprovider_duration_seconds{controller,method,provider}`
    pub cloudprovider_duration: Histograms<3>,
    /// `karpenter_cloudprovider_errors_total{controller,method,provider,error,nodepool}`
    pub cloudprovider_errors: Counters<5>,
    /// `tenon_watch_invalid_objects_total{kind}`: objects that a watch skipped because they did not parse.
    pub invalid_objects: Counters<1>,
    /// `tenon_reconcile_errors_total{controller,error}`
    pub reconcile_errors: Counters<2>,
    /// `tenon_panics_total{controller}`: panics that the operator survived.
    pub panics: Counters<1>,
    /// `operator_<kind>_status_condition_transition_seconds{type,status,…}`, `operator_<kind>_status_condition_transitions_total{type,status,reason,…}` and
    /// `operator_<kind>_termination_duration_seconds{…}`
    pub transitions: Transitions,
    /// `workqueue_*{name,controller}`
    pub queues: QueueMetrics,
}

impl Core {
    /// Forgets what only a leader measures: on a replica that leads no more it would stand as it was, beside what the new leader says.
    pub fn forget_leading(&self) {
        self.pod_deletion_cost_pending.clear();
        self.unschedulable_pods.clear();
        self.pending_pods_by_zone.clear();
        self.ignored_pods.clear();
        self.eligible_nodes.clear();
        self.allowed_disruptions.clear();
        self.nodes_consuming_budgets.clear();
        self.node_pool_cost.clear();
    }

    pub(super) fn new(registry: &Mutex<Families>) -> Self {
        const DISRUPTED: [&str; 5] =
            ["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"];
        const MOVES: [&str; 3] = ["decision", "nodepool", "policy"];
        Self {
            nodeclaims_created: counters(
                registry,
                "karpenter_nodeclaims_created",
                "Number of nodeclaims created in total by Tenon",
                ["reason", "nodepool", "min_values_relaxed"],
            ),
            nodeclaims_terminated: counters(
                registry,
                "karpenter_nodeclaims_terminated",
                "Number of nodeclaims terminated in total by Tenon",
                ["nodepool", "capacity_type", "zone"],
            ),
            nodeclaims_disrupted: counters(
                registry,
                "karpenter_nodeclaims_disrupted",
                "Number of nodeclaims disrupted in total by Tenon",
                DISRUPTED,
            ),
            nodeclaims_unhealthy_disrupted: counters(
                registry,
                "karpenter_nodeclaims_unhealthy_disrupted",
                "Number of nodeclaims disrupted because their node was unhealthy",
                ["condition", "nodepool", "capacity_type", "image_id", "termination_mode"],
            ),
            instance_termination_duration: histograms(
                registry,
                "karpenter_nodeclaims_instance_termination_duration_seconds",
                "Time from the deletion of a nodeclaim until its instance is terminated",
                ["nodepool"],
                &TERMINATION_BUCKETS[..11],
            ),
            nodeclaim_termination_duration: histograms(
                registry,
                "karpenter_nodeclaims_termination_duration_seconds",
                "Time from the deletion of a nodeclaim until its finalizer is removed",
                ["nodepool"],
                TERMINATION_BUCKETS,
            ),
            nodes_created: counters(
                registry,
                "karpenter_nodes_created",
                "Number of nodes that registered",
                ["nodepool", "zone"],
            ),
            nodes_terminated: counters(
                registry,
                "karpenter_nodes_terminated",
                "Number of nodes terminated in total by Tenon",
                ["nodepool", "zone"],
            ),
            nodes_drained: counters(
                registry,
                "karpenter_nodes_drained",
                "Number of nodes drained in total by Tenon",
                ["nodepool"],
            ),
            node_termination_duration: summary::summaries(
                registry,
                "karpenter_nodes_termination_duration_seconds",
                "Time from the deletion of a node until its finalizer is removed",
                ["nodepool"],
            ),
            node_lifetime: histograms(
                registry,
                "karpenter_nodes_lifetime_duration_seconds",
                "Age of nodes when they were deleted",
                ["nodepool"],
                LIFETIME_BUCKETS,
            ),
            reboots: counters(
                registry,
                "karpenter_nodes_reboots",
                "Number of reboots of unhealthy nodes, by result",
                ["result"],
            ),
            reboot_duration: histograms(
                registry,
                "karpenter_nodes_reboot_duration_seconds",
                "Time from the decision to reboot a node until it has succeeded or failed",
                ["result"],
                REBOOT_BUCKETS,
            ),
            reboot_recovery_duration: histograms(
                registry,
                "karpenter_nodes_reboot_recovery_duration_seconds",
                "Time from the acceptance of a reboot by the cloud until the node is ready",
                [],
                REBOOT_BUCKETS,
            ),
            planned_pods_bound: counters(
                registry,
                "tenon_planned_pods_bound",
                "Number of pods with a planned node that were bound, by whether kube-scheduler \
                 bound them to that node",
                ["as_planned"],
            ),
            eviction_requests: counters(
                registry,
                "karpenter_pods_eviction_requests",
                "Number of eviction requests by response code",
                ["code"],
            ),
            pods_drained: counters(
                registry,
                "karpenter_pods_drained",
                "Number of pods evicted or deleted while draining",
                ["reason"],
            ),
            pods_disruption_initiated: counters(
                registry,
                "karpenter_pods_disruption_initiated",
                "Number of pods that had to move because their node was disrupted",
                DISRUPTED,
            ),
            pod_deletion_cost_pending: gauges(
                registry,
                "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes",
                "Number of nodes whose pods needed a different deletion cost in the last pass",
                ["nodepool"],
            ),
            pod_deletion_cost_writes: counters(
                registry,
                "karpenter_pod_deletion_cost_pod_annotation_writes",
                "Number of deletion costs to write to pods, by result",
                ["result"],
            ),
            pod_startup_duration: summary::summaries(
                registry,
                "karpenter_pods_startup_duration_seconds",
                "Time from the creation of a pod until it runs",
                [],
            ),
            pod_bound_duration: histograms(
                registry,
                "karpenter_pods_bound_duration_seconds",
                "Time from the creation of a pod until it is bound",
                ["dynamic_resources"],
                DURATION_BUCKETS,
            ),
            pod_provisioning_bound_duration: histograms(
                registry,
                "karpenter_pods_provisioning_bound_duration_seconds",
                "Time from the first plan with a place for a pod until the pod is bound",
                ["dynamic_resources"],
                DURATION_BUCKETS,
            ),
            pod_provisioning_startup_duration: histograms(
                registry,
                "karpenter_pods_provisioning_startup_duration_seconds",
                "Time from the first plan with a place for a pod until the pod runs",
                [],
                DURATION_BUCKETS,
            ),
            pod_decision_duration: histograms(
                registry,
                "karpenter_pods_scheduling_decision_duration_seconds",
                "Time from when a pod is first seen as pending until a plan decides on it",
                [],
                DURATION_BUCKETS,
            ),
            pods: Tracker::default(),
            scheduling_duration: histograms(
                registry,
                "karpenter_scheduler_scheduling_duration_seconds",
                "Duration of planning",
                ["controller"],
                DURATION_BUCKETS,
            ),
            unschedulable_pods: gauges(
                registry,
                "karpenter_scheduler_unschedulable_pods_count",
                "Number of pods that fit on no node and no nodepool",
                ["controller"],
            ),
            pending_pods_by_zone: gauges(
                registry,
                "karpenter_scheduler_pending_pods_by_effective_zone_count",
                "Number of pending pods by the zone that they are limited to, flexible for \
                 several, none for none",
                ["controller", "zone"],
            ),
            ignored_pods: gauges(
                registry,
                "karpenter_scheduler_ignored_pods_count",
                "Number of pods whose specification can't be planned for",
                [],
            ),
            disruption_evaluation_duration: histograms(
                registry,
                "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
                "Duration of a disruption decision",
                ["reason", "consolidation_type"],
                DURATION_BUCKETS,
            ),
            eligible_nodes: gauges(
                registry,
                "karpenter_voluntary_disruption_eligible_nodes",
                "Number of nodes that could be disrupted in the last pass",
                ["reason"],
            ),
            allowed_disruptions: gauges(
                registry,
                "karpenter_nodepools_allowed_disruptions",
                "Number of nodes of a nodepool that its budgets allow to disrupt at the same time",
                ["nodepool", "reason"],
            ),
            nodes_consuming_budgets: gauges(
                registry,
                "karpenter_nodepools_nodes_consuming_budgets",
                "Number of nodes of a nodepool that are being deleted or not ready",
                ["nodepool", "reason"],
            ),
            disruption_decisions: counters(
                registry,
                "karpenter_voluntary_disruption_decisions",
                "Number of disruption decisions performed",
                ["decision", "reason", "consolidation_type"],
            ),
            disruption_decisions_by_nodepool: counters(
                registry,
                "karpenter_voluntary_disruption_decisions_by_nodepool",
                "Number of disruption decisions performed, by nodepool",
                ["nodepool", "decision", "reason", "consolidation_type"],
            ),
            terminate_first_decisions: counters(
                registry,
                "karpenter_voluntary_disruption_terminate_first_decisions",
                "Number of nodes deleted before their replacement, which only then has room",
                ["nodepool", "reason", "terminate_first_reason"],
            ),
            consolidation_timeouts: counters(
                registry,
                "karpenter_voluntary_disruption_consolidation_timeouts",
                "Number of disruption passes that were cut short",
                ["consolidation_type"],
            ),
            node_pool_cost: gauges(
                registry,
                "karpenter_nodepools_cost_total",
                "Price per hour in dollars of the nodes of a nodepool, as of the last pass",
                ["nodepool"],
            ),
            node_pool_cost_errors: counters(
                registry,
                "karpenter_nodepools_cost_tracker_errors",
                "Number of nodes without a known price, omitted from the cost, once per pass",
                ["nodepool"],
            ),
            build_info: gauges(
                registry,
                "karpenter_build_info",
                "The version of the operator",
                ["version", "goversion", "goarch", "commit"],
            ),
            leader: gauges(
                registry,
                "leader_election_master_status",
                "Whether this replica holds the lease",
                ["name"],
            ),
            consolidation_score: histograms(
                registry,
                "karpenter_consolidation_score",
                "Score of moves by the policy Balanced: the share saved over the share disrupted",
                MOVES,
                SCORE_BUCKETS,
            ),
            consolidation_moves: counters(
                registry,
                "karpenter_consolidation_moves",
                "Number of moves found by consolidation, and of nodes that Balanced left alone",
                MOVES,
            ),
            failed_validations: counters(
                registry,
                "karpenter_voluntary_disruption_failed_validations",
                "Number of commands that failed their validation",
                ["consolidation_type"],
            ),
            disruption_queue_failures: counters(
                registry,
                "karpenter_voluntary_disruption_queue_failures",
                "Number of commands that failed after they were started",
                ["decision", "reason", "consolidation_type"],
            ),
            cloudprovider_duration: histograms(
                registry,
                "karpenter_cloudprovider_duration_seconds",
                "Duration of cloud provider calls",
                ["controller", "method", "provider"],
                DURATION_BUCKETS,
            ),
            cloudprovider_errors: counters(
                registry,
                "karpenter_cloudprovider_errors",
                "Number of failed cloud provider calls",
                ["controller", "method", "provider", "error", "nodepool"],
            ),
            invalid_objects: counters(
                registry,
                "tenon_watch_invalid_objects",
                "Number of objects that were skipped because they did not parse",
                ["kind"],
            ),
            reconcile_errors: counters(
                registry,
                "tenon_reconcile_errors",
                "Number of reconciles that failed and are retried",
                ["controller", "error"],
            ),
            panics: counters(
                registry,
                "tenon_panics",
                "Number of panics that the operator survived, each of them a defect",
                ["controller"],
            ),
            transitions: Transitions::new(registry),
            queues: QueueMetrics::new(registry),
        }
    }
}
