//! What several parts of the operator count.

use super::DURATION_BUCKETS;
use super::declare::families;

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

families! {
    /// What several parts of the operator count.
    #[derive(Debug)]
    pub struct Core {
        /// Number of nodeclaims created in total by Tenon
        pub nodeclaims_created: counters(
            "karpenter_nodeclaims_created_total", ["reason", "nodepool", "min_values_relaxed"],
        ),
        /// Number of nodeclaims terminated in total by Tenon
        pub nodeclaims_terminated: counters(
            "karpenter_nodeclaims_terminated_total", ["nodepool", "capacity_type", "zone"],
        ),
        /// Number of nodeclaims disrupted in total by Tenon
        pub nodeclaims_disrupted: counters(
            "karpenter_nodeclaims_disrupted_total",
            ["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"],
        ),
        /// Number of nodeclaims disrupted because their node was unhealthy
        pub nodeclaims_unhealthy_disrupted: counters(
            "karpenter_nodeclaims_unhealthy_disrupted_total",
            ["condition", "nodepool", "capacity_type", "image_id", "termination_mode"],
        ),
        /// Time from the deletion of a nodeclaim until its instance is terminated
        pub instance_termination_duration: histograms(
            "karpenter_nodeclaims_instance_termination_duration_seconds",
            ["nodepool"],
            &TERMINATION_BUCKETS[..11],
        ),
        /// Time from the deletion of a nodeclaim until its finalizer is removed
        pub nodeclaim_termination_duration: histograms(
            "karpenter_nodeclaims_termination_duration_seconds", ["nodepool"], TERMINATION_BUCKETS,
        ),
        /// Number of nodes that registered
        pub nodes_created: counters("karpenter_nodes_created_total", ["nodepool", "zone"]),
        /// Number of nodes terminated in total by Tenon
        pub nodes_terminated: counters("karpenter_nodes_terminated_total", ["nodepool", "zone"]),
        /// Number of nodes drained in total by Tenon
        pub nodes_drained: counters("karpenter_nodes_drained_total", ["nodepool"]),
        /// Time from the deletion of a node until its finalizer is removed
        pub node_termination_duration: summaries(
            "karpenter_nodes_termination_duration_seconds", ["nodepool"],
        ),
        /// Age of nodes when they were deleted
        pub node_lifetime: histograms(
            "karpenter_nodes_lifetime_duration_seconds", ["nodepool"], LIFETIME_BUCKETS,
        ),
        /// Number of reboots of unhealthy nodes, by result
        pub reboots: counters("karpenter_nodes_reboots_total", ["result"]),
        /// Time from the decision to reboot a node until it has succeeded or failed
        pub reboot_duration: histograms(
            "karpenter_nodes_reboot_duration_seconds", ["result"], REBOOT_BUCKETS,
        ),
        /// Time from the acceptance of a reboot by the cloud until the node is ready
        pub reboot_recovery_duration: histograms(
            "karpenter_nodes_reboot_recovery_duration_seconds", [], REBOOT_BUCKETS,
        ),
        /// Number of pods with a planned node that were bound, by whether kube-scheduler bound them
        /// to that node
        pub planned_pods_bound: counters("tenon_planned_pods_bound_total", ["as_planned"]),
        /// Number of eviction requests by response code
        pub eviction_requests: counters("karpenter_pods_eviction_requests_total", ["code"]),
        /// Number of pods evicted or deleted while draining
        pub pods_drained: counters("karpenter_pods_drained_total", ["reason"]),
        /// Number of pods that had to move because their node was disrupted
        pub pods_disruption_initiated: counters(
            "karpenter_pods_disruption_initiated_total",
            ["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"],
        ),
        /// Number of nodes whose pods needed a different deletion cost in the last pass
        pub pod_deletion_cost_pending: gauges(
            "karpenter_pod_deletion_cost_nodes_with_pending_annotation_writes", ["nodepool"],
        ),
        /// Number of deletion costs to write to pods, by result
        pub pod_deletion_cost_writes: counters(
            "karpenter_pod_deletion_cost_pod_annotation_writes_total", ["result"],
        ),
        /// Time from the creation of a pod until it runs
        pub pod_startup_duration: summaries("karpenter_pods_startup_duration_seconds", []),
        /// Time from the creation of a pod until it is bound
        pub pod_bound_duration: histograms(
            "karpenter_pods_bound_duration_seconds", ["dynamic_resources"], DURATION_BUCKETS,
        ),
        /// Time from the first plan with a place for a pod until the pod is bound
        pub pod_provisioning_bound_duration: histograms(
            "karpenter_pods_provisioning_bound_duration_seconds",
            ["dynamic_resources"],
            DURATION_BUCKETS,
        ),
        /// Time from the first plan with a place for a pod until the pod runs
        pub pod_provisioning_startup_duration: histograms(
            "karpenter_pods_provisioning_startup_duration_seconds", [], DURATION_BUCKETS,
        ),
        /// Time from when a pod is first seen as pending until a plan decides on it
        pub pod_decision_duration: histograms(
            "karpenter_pods_scheduling_decision_duration_seconds", [], DURATION_BUCKETS,
        ),
        /// Duration of planning
        pub scheduling_duration: histograms(
            "karpenter_scheduler_scheduling_duration_seconds", ["controller"], DURATION_BUCKETS,
        ),
        /// Number of pods that fit on no node and no nodepool
        pub unschedulable_pods: gauges(
            "karpenter_scheduler_unschedulable_pods_count", ["controller"],
        ),
        /// Number of pending pods by the zone that they are limited to, flexible for several, none
        /// for none
        pub pending_pods_by_zone: gauges(
            "karpenter_scheduler_pending_pods_by_effective_zone_count", ["controller", "zone"],
        ),
        /// Number of pods whose specification can't be planned for
        pub ignored_pods: gauges("karpenter_scheduler_ignored_pods_count", []),
        /// Duration of a disruption decision
        pub disruption_evaluation_duration: histograms(
            "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
            ["reason", "consolidation_type"],
            DURATION_BUCKETS,
        ),
        /// Number of nodes that could be disrupted in the last pass
        pub eligible_nodes: gauges("karpenter_voluntary_disruption_eligible_nodes", ["reason"]),
        /// Number of nodes of a nodepool that its budgets allow to disrupt at the same time
        pub allowed_disruptions: gauges(
            "karpenter_nodepools_allowed_disruptions", ["nodepool", "reason"],
        ),
        /// Number of nodes of a nodepool that are being deleted or not ready
        pub nodes_consuming_budgets: gauges(
            "karpenter_nodepools_nodes_consuming_budgets", ["nodepool", "reason"],
        ),
        /// Number of disruption decisions performed
        pub disruption_decisions: counters(
            "karpenter_voluntary_disruption_decisions_total",
            ["decision", "reason", "consolidation_type"],
        ),
        /// Number of disruption decisions performed, by nodepool
        pub disruption_decisions_by_nodepool: counters(
            "karpenter_voluntary_disruption_decisions_by_nodepool_total",
            ["nodepool", "decision", "reason", "consolidation_type"],
        ),
        /// Number of nodes deleted before their replacement, which only then has room
        pub terminate_first_decisions: counters(
            "karpenter_voluntary_disruption_terminate_first_decisions_total",
            ["nodepool", "reason", "terminate_first_reason"],
        ),
        /// Price per hour in dollars of the nodes that disruption commands removed
        pub disruption_removed: amounts(
            "tenon_disruption_removed_dollars_per_hour_total", ["nodepool", "reason"],
        ),
        /// Price per hour in dollars of the nodes that were launched in place of those
        pub disruption_added: amounts(
            "tenon_disruption_added_dollars_per_hour_total", ["nodepool", "reason"],
        ),
        /// Number of disruption passes that were cut short
        pub consolidation_timeouts: counters(
            "karpenter_voluntary_disruption_consolidation_timeouts_total", ["consolidation_type"],
        ),
        /// Price per hour in dollars of the nodes of a nodepool, as of the last pass
        pub node_pool_cost: gauges("karpenter_nodepools_cost_total", ["nodepool"]),
        /// Number of nodes without a known price, omitted from the cost, once per pass
        pub node_pool_cost_errors: counters(
            "karpenter_nodepools_cost_tracker_errors_total", ["nodepool"],
        ),
        /// The version of the operator
        pub build_info: gauges(
            "karpenter_build_info", ["version", "goversion", "goarch", "commit"],
        ),
        /// Whether this replica holds the lease
        pub leader: gauges("leader_election_master_status", ["name"]),
        /// Score of moves by the policy Balanced: the share saved over the share disrupted
        pub consolidation_score: histograms(
            "karpenter_consolidation_score", ["decision", "nodepool", "policy"], SCORE_BUCKETS,
        ),
        /// Number of moves found by consolidation, and of nodes that Balanced left alone
        pub consolidation_moves: counters(
            "karpenter_consolidation_moves_total", ["decision", "nodepool", "policy"],
        ),
        /// Number of commands that failed their validation
        pub failed_validations: counters(
            "karpenter_voluntary_disruption_failed_validations_total", ["consolidation_type"],
        ),
        /// Number of commands that failed after they were started
        pub disruption_queue_failures: counters(
            "karpenter_voluntary_disruption_queue_failures_total",
            ["decision", "reason", "consolidation_type"],
        ),
        /// Duration of cloud provider calls
        pub cloudprovider_duration: histograms(
            "karpenter_cloudprovider_duration_seconds",
            ["controller", "method", "provider"],
            DURATION_BUCKETS,
        ),
        /// Number of failed cloud provider calls
        pub cloudprovider_errors: counters(
            "karpenter_cloudprovider_errors_total",
            ["controller", "method", "provider", "error", "nodepool"],
        ),
        /// Number of objects that were skipped because they did not parse
        pub invalid_objects: counters("tenon_watch_invalid_objects_total", ["kind"]),
        /// Number of reconciles that failed and are retried
        pub reconcile_errors: counters("tenon_reconcile_errors_total", ["controller", "error"]),
        /// Number of panics that the operator survived, each of them a defect
        pub panics: counters("tenon_panics_total", ["controller"]),
    }
}

impl Core {
    /// Forgets what only a leader measures: on a replica that leads no more it would stand as it
    /// was, beside what the new leader says.
    pub(crate) fn forget_leading(&self) {
        self.pod_deletion_cost_pending.clear();
        self.unschedulable_pods.clear();
        self.pending_pods_by_zone.clear();
        self.ignored_pods.clear();
        self.eligible_nodes.clear();
        self.allowed_disruptions.clear();
        self.nodes_consuming_budgets.clear();
        self.node_pool_cost.clear();
    }
}
