//! All metrics with their labels, against upstream's: what is missing is missing on purpose, and
//! the manual says why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::aws::metrics::AwsMetrics;
use crate::events;
use crate::gauges::{self, pods};
use crate::metrics::declare::Declared;
use crate::metrics::exposition::Type;
use crate::metrics::{Described, Metrics, process, underway};
use crate::traces::export::Exported;
use crate::{aws, client};

const MANUAL: &str = include_str!("../../../docs/src/reference/metrics.md");

/// Upstream's metrics, without the prefix `karpenter_`, with their labels: the core's, then the AWS
/// provider's. `*` stands for the well-known labels of nodes.
const UPSTREAM: &str = "
    nodeclaims_created_total{reason,nodepool,min_values_relaxed}
    nodeclaims_terminated_total{nodepool,capacity_type,zone}
    nodeclaims_disrupted_total{reason,nodepool,capacity_type,consolidation_policy,termination_mode}
    nodeclaims_instance_termination_duration_seconds{nodepool}
    nodeclaims_termination_duration_seconds{nodepool}
    nodeclaims_unhealthy_disrupted_total{condition,nodepool,capacity_type,image_id,termination_mode}
    nodes_created_total{nodepool,zone} nodes_terminated_total{nodepool,zone}
    nodes_drained_total{nodepool} nodes_termination_duration_seconds{nodepool}
    nodes_lifetime_duration_seconds{nodepool}
    nodes_allocatable{*,node_name,phase,managed,resource_type}
    nodes_total_pod_requests{*,node_name,phase,managed,resource_type}
    nodes_total_pod_limits{*,node_name,phase,managed,resource_type}
    nodes_total_daemon_requests{*,node_name,phase,managed,resource_type}
    nodes_total_daemon_limits{*,node_name,phase,managed,resource_type}
    nodes_system_overhead{*,node_name,phase,managed,resource_type}
    nodes_current_lifetime_seconds{*,node_name,phase,managed}
    cluster_utilization_percent{resource_type}
    nodes_reboots_total{result} nodes_reboot_duration_seconds{result}
    nodes_reboot_recovery_duration_seconds{}
    nodepools_usage{resource_type,nodepool} nodepools_limit{resource_type,nodepool}
    nodepools_allowed_disruptions{nodepool,reason} nodepools_nodes_consuming_budgets{nodepool,reason}
    nodepools_cost_total{nodepool} nodepools_cost_tracker_errors_total{nodepool}
    pods_state{name,namespace,owner,node,scheduled,nodepool,zone,arch,capacity_type,instance_type,phase,ready,managed}
    pods_startup_duration_seconds{} pods_unstarted_time_seconds{name,namespace}
    pods_bound_duration_seconds{dynamic_resources}
    pods_unbound_time_seconds{name,namespace,dynamic_resources}
    pods_provisioning_bound_duration_seconds{dynamic_resources}
    pods_provisioning_unbound_time_seconds{name,namespace,dynamic_resources}
    pods_provisioning_startup_duration_seconds{}
    pods_provisioning_unstarted_time_seconds{name,namespace}
    pods_provisioning_scheduling_undecided_time_seconds{name,namespace}
    pods_scheduling_decision_duration_seconds{}
    pods_disruption_initiated_total{reason,nodepool,capacity_type,consolidation_policy,termination_mode}
    pods_eviction_requests_total{code} pods_drained_total{reason}
    pod_deletion_cost_nodes_with_pending_annotation_writes{nodepool}
    pod_deletion_cost_pod_annotation_writes_total{result}
    scheduler_scheduling_duration_seconds{controller} scheduler_queue_depth{controller,scheduling_id}
    scheduler_unfinished_work_seconds{controller,scheduling_id} scheduler_ignored_pods_count{}
    scheduler_unschedulable_pods_count{controller}
    scheduler_pending_pods_by_effective_zone_count{controller,zone}
    voluntary_disruption_decision_evaluation_duration_seconds{reason,consolidation_type}
    voluntary_disruption_decisions_total{decision,reason,consolidation_type}
    voluntary_disruption_decisions_by_nodepool_total{nodepool,decision,reason,consolidation_type}
    voluntary_disruption_eligible_nodes{reason}
    voluntary_disruption_consolidation_timeouts_total{consolidation_type}
    voluntary_disruption_failed_validations_total{consolidation_type}
    voluntary_disruption_queue_failures_total{decision,reason,consolidation_type}
    voluntary_disruption_terminate_first_decisions_total{nodepool,reason,terminate_first_reason}
    consolidation_score{decision,nodepool,policy} consolidation_moves_total{decision,nodepool,policy}
    cluster_state_node_count{} cluster_state_synced{} cluster_state_unsynced_time_seconds{}
    build_info{version,goversion,goarch,commit}
    cloudprovider_duration_seconds{controller,method,provider}
    cloudprovider_errors_total{controller,method,provider,error,nodepool}
    cloudprovider_instance_type_cpu_cores{instance_type}
    cloudprovider_instance_type_memory_bytes{instance_type}
    cloudprovider_instance_type_offering_price_estimate{instance_type,capacity_type,zone}
    cloudprovider_instance_type_offering_available{instance_type,capacity_type,zone}
    cloudprovider_instance_launch_failures_total{zone,zone_id,capacity_type,reason}
    cloudprovider_instance_termination_failures_total{zone,zone_id}
    cloudprovider_batcher_batch_time_seconds{batcher} cloudprovider_batcher_batch_size{batcher}
    interruption_received_messages_total{message_type} interruption_deleted_messages_total{}
    interruption_message_queue_duration_seconds{}
    interruption_instance_status_unhealthy_total{category} ec2nodeclasses_userdata_bytes{nodeclass}
";

/// What `*` stands for here; that upstream has more is told in the manual.
const OF_NODES: &str = "nodepool,zone,zone_id,region,instance_type,arch,os,capacity_type";

/// Upstream's, with their full names.
fn upstream() -> BTreeMap<String, BTreeSet<&'static str>> {
    let metric = |metric: &'static str| {
        let (name, labels) = metric.strip_suffix('}')?.split_once('{')?;
        let labels = labels.split(',').flat_map(|label| match label {
            "*" => OF_NODES.split(','),
            label => label.split(','),
        });
        Some((format!("karpenter_{name}"), labels.filter(|label| !label.is_empty()).collect()))
    };
    UPSTREAM.split_whitespace().map(|text| metric(text).expect("name{labels}")).collect()
}

/// Ours, with their full names.
fn built() -> BTreeMap<String, BTreeSet<&'static str>> {
    // Their labels depend on the provider and on the object.
    let conditions = gauges::conditions::names().flatten().map(|name| (name, BTreeSet::new()));
    let described = described().into_iter();
    described.map(|(name, it)| (name, it.labels.into_iter().collect())).chain(conditions).collect()
}

/// Ours, but for the gauges of conditions.
fn described() -> BTreeMap<String, Described> {
    let metrics = Metrics::new();
    AwsMetrics::new(&metrics);
    aws::calls::CallMetrics::new(&metrics);
    client::calls::CallMetrics::new(&metrics);
    Exported::new(&metrics);
    let computed = [
        &underway::DECLARED[..],
        &gauges::DECLARED,
        &pods::DECLARED,
        &process::DECLARED,
        &events::DECLARED,
    ];
    let computed = computed.into_iter().flatten();
    let computed = computed.map(|Declared { name, labels, help }| {
        let kind = if name.ends_with("_total") { Type::Counter } else { Type::Gauge };
        ((*name).to_owned(), Described { kind, labels: labels.to_vec(), help })
    });
    metrics.described().into_iter().chain(computed).collect()
}

#[test]
fn every_metric_of_upstream_is_built_or_the_manual_says_why_not() {
    let (built, upstream) = (built(), upstream());
    let missing: Vec<_> = upstream.keys().filter(|name| !built.contains_key(*name)).collect();
    let unexplained: Vec<_> =
        missing.iter().filter(|name| !MANUAL.contains(&format!("`{name}`"))).collect();
    assert_eq!(unexplained, Vec::<&&String>::new(), "missing here and in the manual");
    let wrong: Vec<_> = upstream
        .keys()
        .filter(|name| built.contains_key(*name) && MANUAL.contains(&format!("| `{name}`")))
        .collect();
    assert_eq!(wrong, Vec::<&String>::new(), "built, but the manual says that it is missing");
}

#[test]
fn metrics_have_upstreams_labels() {
    let built = built();
    for (name, mut labels) in upstream() {
        let Some(ours) = built.get(&name) else { continue };
        if name.starts_with("karpenter_nodes_") {
            labels.remove("phase");
        }
        assert_eq!(*ours, labels, "labels of {name}");
    }
    assert!(MANUAL.contains("no label `phase`"), "the manual says that nodes have none");
}

#[test]
fn every_metric_of_ours_that_upstream_lacks_is_in_the_manual() {
    let upstream = upstream();
    let untold: Vec<_> = built()
        .into_keys()
        .filter(|name| !upstream.contains_key(name) && !MANUAL.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(untold, Vec::<String>::new());
}

/// The alerts and dashboards of the chart.
const CHARTED: [&str; 3] = [
    include_str!("../../../charts/tenon/files/alerts.yaml"),
    include_str!("../../../charts/tenon/files/dashboards/cluster.json"),
    include_str!("../../../charts/tenon/files/dashboards/operator.json"),
];

#[test]
fn alerts_and_dashboards_use_metrics_that_exist() {
    let built = built();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let prefixes = ["karpenter_", "tenon_", "operator_", "aws_sdk_go_", "client_go_", "workqueue_"];
    let words = CHARTED.iter().flat_map(|text| text.split(|c: char| !is_word(c)));
    // The label of NodeClaims and Nodes has the prefix of metrics.
    let used: BTreeSet<&str> = words
        .filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
        .filter(|word| *word != "karpenter_sh_nodepool")
        .collect();
    let exists = |name: &str| {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
        built.contains_key(name) || base.is_some_and(|base| built.contains_key(base))
    };
    let unknown: Vec<_> = used.iter().filter(|name| !exists(name)).collect();
    assert_eq!(unknown, Vec::<&&str>::new());
    assert!(used.len() > 30, "{used:?}");
}

#[test]
fn alerts_and_dashboards_group_by_labels_that_exist() {
    let built = built();
    // Those that Prometheus sets, and those of conditions and their objects.
    let others = ["namespace", "job", "pod", "le", "name", "reason", "karpenter_sh_nodepool"];
    let known: BTreeSet<&str> = built.values().flatten().copied().chain(others).collect();
    let groups = CHARTED.iter().flat_map(|text| text.split("by (").skip(1));
    let labels = groups.flat_map(|rest| {
        let (labels, _) = rest.split_once(')').expect("a bracket");
        labels.split(',').map(str::trim)
    });
    let labels: BTreeSet<&str> = labels.collect();
    assert!(labels.len() > 15, "{labels:?}");
    let unknown: Vec<_> = labels.difference(&known).collect();
    assert_eq!(unknown, Vec::<&&str>::new());
}

/// The page of the manual that lists all metrics.
const PAGE: &str = "docs/src/reference/all-metrics.md";

const INTRODUCTION: &str = "\
# All metrics

This page lists the metrics that the operator exposes, except the gauges of conditions, whose labels
depend on the kind of the object. It is generated from the operator's code. [Metrics](metrics.md)
explains the differences from Karpenter, and the gauges of conditions.

*Stable* metrics keep their names, labels and units within a major version of Tenon. They are those
that Karpenter calls GA or beta, and those of client libraries. *Experimental* metrics may change in
any release; the changelog lists such changes.

";

/// Those that Karpenter calls GA or beta, without the prefix `karpenter_`; with `*`, all that begin
/// so.
const STABLE: &str = "
    build_info nodeclaims_created_total nodeclaims_terminated_total nodes_created_total
    nodes_terminated_total nodepools_limit nodepools_usage nodepools_allowed_disruptions
    pods_startup_duration_seconds voluntary_disruption_decisions_total
    scheduler_scheduling_duration_seconds cluster_state_node_count cluster_state_synced
    cluster_state_unsynced_time_seconds
    nodes_allocatable nodes_total_pod_requests nodes_total_pod_limits nodes_total_daemon_requests
    nodes_total_daemon_limits nodes_system_overhead nodes_termination_duration_seconds
    nodeclaims_instance_termination_duration_seconds nodeclaims_termination_duration_seconds
    pods_state cloudprovider_* voluntary_disruption_eligible_nodes
    voluntary_disruption_decision_evaluation_duration_seconds
    voluntary_disruption_consolidation_timeouts_total voluntary_disruption_queue_failures_total
    nodes_reboot* interruption_*
";

/// The names of client libraries and of the process, whose metrics are the same everywhere.
const LIBRARIES: [&str; 5] =
    ["aws_sdk_go_", "client_go_", "workqueue_", "leader_election_", "process_"];

fn stability(name: &str) -> &'static str {
    let upstream = name.strip_prefix("karpenter_");
    let is_meant = |listed: &str| match (listed.strip_suffix('*'), upstream) {
        (_, None) => false,
        (Some(begin), Some(name)) => name.starts_with(begin),
        (None, Some(name)) => name == listed,
    };
    let library = LIBRARIES.iter().any(|prefix| name.starts_with(prefix));
    if library || STABLE.split_whitespace().any(is_meant) { "stable" } else { "experimental" }
}

/// What values are measured in.
fn unit(name: &str, labels: &[&str]) -> &'static str {
    let name = name.trim_end_matches("_total");
    if labels.contains(&"resource_type") && !name.ends_with("_percent") {
        // Cores of processors, bytes of memory, numbers of the others.
        return "of the resource";
    }
    let of_ending = [
        ("_seconds", "seconds"),
        ("_bytes", "bytes"),
        ("_cores", "cores"),
        ("_percent", "percent"),
        ("_dollars_per_hour", "USD per hour"),
        ("_price_estimate", "USD per hour"),
        ("nodepools_cost", "USD per hour"),
    ];
    let found = of_ending.iter().find(|(ending, _)| name.ends_with(ending));
    found.map_or("number", |(_, unit)| unit)
}

#[test]
fn the_manual_lists_all_metrics() {
    let mut page = INTRODUCTION.to_owned();
    page += "| Metric | Type | Unit | Labels | Stability | Meaning |\n|---|---|---|---|---|---|\n";
    for (name, Described { kind, labels, help }) in described() {
        let names: Vec<String> =
            labels
                .iter()
                .map(|label| {
                    if *label == "*" { "labels of nodes".to_owned() } else { format!("`{label}`") }
                })
                .collect();
        let names = match names.as_slice() {
            [] if name.starts_with("operator_") => "those of the condition".to_owned(),
            [] => "–".to_owned(),
            names => names.join(", "),
        };
        let (kind, unit) = (kind.as_str(), unit(&name, &labels));
        let stability = stability(&name);
        writeln!(page, "| `{name}` | {kind} | {unit} | {names} | {stability} | {} |", help.trim())
            .unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    if std::env::var_os("TENON_REWRITE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(stored == page, "{PAGE} is out of date: run this test with TENON_REWRITE=1");
}

#[test]
fn what_is_called_stable_exists() {
    let built = built();
    for listed in STABLE.split_whitespace() {
        let name = format!("karpenter_{}", listed.trim_end_matches('*'));
        let all = listed.ends_with('*');
        let exists = built.keys().any(|it| *it == name || all && it.starts_with(&name));
        assert!(exists, "{listed}");
    }
}
