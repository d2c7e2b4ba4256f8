//! What watches the operator among the chart's values: `serviceMonitor`, `prometheusRule` and
//! `dashboards`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The alerts, as the chart has them.
pub(crate) const ALERTS: &str = include_str!("../../../../../charts/tenon/files/alerts.yaml");

/// The groups of alerts.
pub(crate) fn alert_groups() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(ALERTS).expect("the chart's alerts are YAML");
    file["groups"].as_array().cloned().unwrap_or_default()
}

/// The names of all alerts.
pub(super) fn alerts() -> Vec<String> {
    let groups = alert_groups();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
    rules.filter_map(|rule| rule["alert"].as_str()).map(str::to_owned).collect()
}

/// `serviceMonitor`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServiceMonitor {
    /// Create a ServiceMonitor, by which the Prometheus operator scrapes the metrics. The chart
    /// renders it only if the cluster serves `monitoring.coreos.com/v1`.
    pub enabled: bool,
    /// Additional labels of the ServiceMonitor.
    pub additional_labels: BTreeMap<String, String>,
    /// Relabelings of the endpoint.
    pub relabelings: Vec<Map<String, Value>>,
    /// Relabelings of the metrics.
    pub metric_relabelings: Vec<Map<String, Value>>,
    /// Additional fields of the endpoint, such as `interval` and `scrapeTimeout`.
    pub endpoint_config: Map<String, Value>,
    /// Maximum number of samples per scrape; absent: no limit.
    #[schemars(range(min = 0))]
    pub sample_limit: Option<i64>,
}

/// `prometheusRule`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrometheusRule {
    /// Create a PrometheusRule with alerts on the metrics. The chart renders it only if the cluster
    /// serves `monitoring.coreos.com/v1`.
    pub enabled: bool,
    /// Additional labels of the PrometheusRule.
    pub additional_labels: BTreeMap<String, String>,
    /// Names of alerts to omit, such as `TenonCostRises`.
    pub disabled: Vec<String>,
    /// Additional groups of rules, such as alerts with other thresholds.
    pub additional_groups: Vec<Map<String, Value>>,
}

/// `dashboards`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Dashboards {
    /// Create a ConfigMap for each Grafana dashboard, with the label `grafana_dashboard: "1"`, by
    /// which Grafana's sidecar finds it.
    pub enabled: bool,
    /// Additional labels of the ConfigMaps.
    pub additional_labels: BTreeMap<String, String>,
    /// Annotations of the ConfigMaps, such as `grafana_folder`.
    pub annotations: BTreeMap<String, String>,
}
