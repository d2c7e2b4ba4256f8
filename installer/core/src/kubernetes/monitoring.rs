//! What watches the operator, as the Helm chart renders it: the ServiceMonitor and the
//! PrometheusRule of the Prometheus operator, and Grafana's dashboards. Alerts and dashboards are
//! files of the chart.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::object::Object;
use super::release::{Release, metadata, selector};
use crate::settings::values::{ALERTS, Values, alert_groups};

/// The dashboards, by the names of their files.
const DASHBOARDS: [(&str, &str); 2] = [
    ("cluster", include_str!("../../../../charts/tenon/files/dashboards/cluster.json")),
    ("operator", include_str!("../../../../charts/tenon/files/dashboards/operator.json")),
];

/// The label by which Grafana's sidecar finds dashboards.
pub(crate) const DASHBOARD: &str = "grafana_dashboard";

/// All that the values ask for.
pub(super) fn objects(values: &Values, release: &Release) -> Vec<Object> {
    let mut objects = Vec::new();
    objects.extend(service_monitor(values, release));
    objects.extend(prometheus_rule(values, release));
    objects.extend(dashboards(values, release));
    objects
}

/// The files of the chart that its templates read, by path.
pub(super) fn files() -> [(String, &'static str); 3] {
    let [cluster, operator] =
        DASHBOARDS.map(|(name, text)| (format!("files/dashboards/{name}.json"), text));
    [("files/alerts.yaml".to_owned(), ALERTS), cluster, operator]
}

fn service_monitor(values: &Values, release: &Release) -> Option<Object> {
    let monitor = &values.service_monitor;
    let mut endpoint = json!({"port": "http-metrics", "path": "/metrics"});
    for (key, list) in
        [("relabelings", &monitor.relabelings), ("metricRelabelings", &monitor.metric_relabelings)]
    {
        if !list.is_empty() {
            endpoint[key] = json!(list);
        }
    }
    json_patch::merge(&mut endpoint, &json!(monitor.endpoint_config));
    let mut metadata = metadata(values, release, &values.fullname(), Some(&release.namespace));
    let mut labels = monitor.additional_labels.clone();
    metadata.labels.get_or_insert_default().append(&mut labels);
    let mut body = json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata,
        "spec": {
            "namespaceSelector": {"matchNames": [release.namespace]},
            "selector": {"matchLabels": selector(values, release)},
            "endpoints": [endpoint],
        },
    });
    if let Some(limit) = monitor.sample_limit {
        body["spec"]["sampleLimit"] = limit.into();
    }
    monitor.enabled.then(|| Object::from_json(body, "servicemonitors"))
}

fn prometheus_rule(values: &Values, release: &Release) -> Option<Object> {
    let rule = &values.prometheus_rule;
    let is_on = |alert: &Value| {
        !alert["alert"].as_str().is_some_and(|name| rule.disabled.iter().any(|off| off == name))
    };
    let mut groups = alert_groups();
    for group in &mut groups {
        if let Some(rules) = group["rules"].as_array_mut() {
            rules.retain(is_on);
        }
    }
    groups.retain(|group| group["rules"].as_array().is_some_and(|rules| !rules.is_empty()));
    groups.extend(rule.additional_groups.iter().cloned().map(Value::Object));
    let mut metadata = metadata(values, release, &values.fullname(), Some(&release.namespace));
    let mut labels = rule.additional_labels.clone();
    metadata.labels.get_or_insert_default().append(&mut labels);
    let body = json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": {"groups": groups},
    });
    rule.enabled.then(|| Object::from_json(body, "prometheusrules"))
}

fn dashboards(values: &Values, release: &Release) -> impl Iterator<Item = Object> {
    let shown = &values.dashboards;
    let wanted = DASHBOARDS.into_iter().filter(|_| shown.enabled);
    wanted.map(move |(name, text)| {
        let object = format!("{}-dashboard-{name}", values.fullname());
        let mut metadata = metadata(values, release, &object, Some(&release.namespace));
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(DASHBOARD.to_owned(), "1".to_owned());
        labels.extend(shown.additional_labels.clone());
        if !shown.annotations.is_empty() {
            metadata.annotations.get_or_insert_default().extend(shown.annotations.clone());
        }
        let data = BTreeMap::from([(format!("tenon-{name}.json"), text.to_owned())]);
        Object::new(&ConfigMap { metadata, data: Some(data), ..ConfigMap::default() })
    })
}
