//! The names of all metrics, against upstream's: what is missing is missing on purpose, and the
//! manual says why.

use std::collections::BTreeSet;

use crate::aws::metrics::AwsMetrics;
use crate::events;
use crate::gauges::{self, pods};
use crate::metrics::{Metrics, process, underway};
use crate::traces::export::Exported;
use crate::{aws, client};

const MANUAL: &str = include_str!("../../../docs/src/reference/metrics.md");

/// Upstream's names: the core's (without prefix `karpenter_`), then the AWS provider's.
const UPSTREAM: &str = "
    nodeclaims_created_total nodeclaims_terminated_total nodeclaims_disrupted_total
    nodeclaims_instance_termination_duration_seconds nodeclaims_termination_duration_seconds nodeclaims_unhealthy_disrupted_total
    nodes_created_total nodes_terminated_total nodes_drained_total nodes_termination_duration_seconds nodes_lifetime_duration_seconds
    nodes_allocatable nodes_total_pod_requests nodes_total_pod_limits nodes_total_daemon_requests nodes_total_daemon_limits
    nodes_system_overhead nodes_current_lifetime_seconds cluster_utilization_percent
    nodes_reboots_total nodes_reboot_duration_seconds nodes_reboot_recovery_duration_seconds
    nodepools_usage nodepools_limit nodepools_allowed_disruptions nodepools_nodes_consuming_budgets nodepools_cost_total
    nodepools_cost_tracker_errors_total
    pods_state pods_startup_duration_seconds pods_unstarted_time_seconds pods_bound_duration_seconds pods_unbound_time_seconds
    pods_provisioning_bound_duration_seconds pods_provisioning_unbound_time_seconds pods_provisioning_startup_duration_seconds
    pods_provisioning_unstarted_time_seconds pods_provisioning_scheduling_undecided_time_seconds
    pods_scheduling_decision_duration_seconds pods_disruption_initiated_total pods_eviction_requests_total pods_drained_total
    pod_deletion_cost_nodes_with_pending_annotation_writes pod_deletion_cost_pod_annotation_writes_total
    scheduler_scheduling_duration_seconds scheduler_queue_depth scheduler_unfinished_work_seconds scheduler_ignored_pods_count
    scheduler_unschedulable_pods_count scheduler_pending_pods_by_effective_zone_count
    voluntary_disruption_decision_evaluation_duration_seconds voluntary_disruption_decisions_total
    voluntary_disruption_decisions_by_nodepool_total voluntary_disruption_eligible_nodes
    voluntary_disruption_consolidation_timeouts_total voluntary_disruption_failed_validations_total
    voluntary_disruption_queue_failures_total voluntary_disruption_terminate_first_decisions_total
    consolidation_score consolidation_moves_total
    cluster_state_node_count cluster_state_synced cluster_state_unsynced_time_seconds build_info
    cloudprovider_duration_seconds cloudprovider_errors_total
    cloudprovider_instance_type_cpu_cores cloudprovider_instance_type_memory_bytes
    cloudprovider_instance_type_offering_price_estimate cloudprovider_instance_type_offering_available
    cloudprovider_instance_launch_failures_total cloudprovider_instance_termination_failures_total
    cloudprovider_batcher_batch_time_seconds cloudprovider_batcher_batch_size
    interruption_received_messages_total interruption_deleted_messages_total interruption_message_queue_duration_seconds
    interruption_instance_status_unhealthy_total ec2nodeclasses_userdata_bytes
";

/// Ours, with their full names.
fn built() -> BTreeSet<String> {
    let metrics = Metrics::new();
    AwsMetrics::new(&metrics);
    aws::calls::CallMetrics::new(&metrics);
    client::calls::CallMetrics::new(&metrics);
    Exported::new(&metrics);
    let mut names = metrics.names();
    names.extend(underway::NAMES.iter().map(|&name| name.to_owned()));
    names.extend(gauges::NAMES.iter().map(|&name| name.to_owned()));
    names.extend(gauges::conditions::names().flatten());
    names.extend(pods::NAMES.iter().map(|&name| name.to_owned()));
    names.extend(process::NAMES.iter().chain(&events::METRIC_NAMES).map(|&name| name.to_owned()));
    names
}

#[test]
fn every_metric_of_upstream_is_built_or_the_manual_says_why_not() {
    let built = built();
    let upstream: BTreeSet<String> =
        UPSTREAM.split_whitespace().map(|name| format!("karpenter_{name}")).collect();
    let missing: Vec<_> = upstream.difference(&built).collect();
    let untold: Vec<_> =
        missing.iter().filter(|name| !MANUAL.contains(&format!("`{name}`"))).collect();
    assert_eq!(untold, Vec::<&&String>::new(), "missing here and in the manual");
    let wrong: Vec<_> = upstream
        .intersection(&built)
        .filter(|name| MANUAL.contains(&format!("| `{name}`")))
        .collect();
    assert_eq!(wrong, Vec::<&String>::new(), "built, but the manual says that it is missing");
}

#[test]
fn every_metric_of_ours_that_upstream_lacks_is_in_the_manual() {
    let upstream: BTreeSet<String> =
        UPSTREAM.split_whitespace().map(|name| format!("karpenter_{name}")).collect();
    let untold: Vec<_> = built()
        .into_iter()
        .filter(|name| !upstream.contains(name) && !MANUAL.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(untold, Vec::<String>::new());
}
