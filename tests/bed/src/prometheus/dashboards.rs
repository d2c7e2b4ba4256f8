//! The expressions of the chart's Grafana dashboards.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;

use crate::bed::Bed;
use crate::failure::Failure;

/// An expression of a panel.
#[derive(Clone, Debug)]
pub struct Query {
    /// The title of its panel.
    pub panel: String,
    /// As Grafana asks Prometheus, where all of each variable is chosen.
    pub expression: String,
}

/// The expressions of all panels, of the dashboards as the cluster has them.
///
/// # Errors
/// When the API server can't be asked, or a dashboard is not what Grafana reads.
pub async fn queries(bed: &Bed) -> Result<Vec<Query>, Failure> {
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), "kube-system");
    let labelled = ListParams::default().labels("grafana_dashboard=1");
    let maps = maps.list(&labelled).await?.items;
    let texts = maps.into_iter().flat_map(|map| map.data.unwrap_or_default().into_values());
    let mut queries = Vec::new();
    for text in texts {
        let dashboard: Value = serde_json::from_str(&text)?;
        for panel in dashboard["panels"].as_array().ok_or("a dashboard without panels")? {
            let title = panel["title"].as_str().ok_or("a panel without a title")?;
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().ok_or("a target without an expression")?;
                let (panel, expression) = (title.to_owned(), as_grafana_asks(expression));
                queries.push(Query { panel, expression });
            }
        }
    }
    Ok(queries)
}

fn as_grafana_asks(expression: &str) -> String {
    let variables = BTreeMap::from([
        ("$__rate_interval", "8s"),
        ("$namespace", ".*"),
        ("$job", ".*"),
        ("$nodepool", ".*"),
    ]);
    variables
        .into_iter()
        .fold(expression.to_owned(), |text, (name, value)| text.replace(name, value))
}
