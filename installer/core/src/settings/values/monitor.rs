//! The ServiceMonitor among the chart's values: `serviceMonitor`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
