//! What the operator's metrics say.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt};
use tenon_crds::labels;

use super::Failure;
use crate::bed::Bed;
use crate::kwok_operators::Operator;

/// The nodes and what they cost together, dollars per hour, as their labels say it.
pub(super) async fn fleet(bed: &Bed) -> Result<(usize, f64), Failure> {
    let nodes: Api<Node> = Api::all(bed.client());
    let nodes = nodes.list_metadata(&ListParams::default()).await?.items;
    let price = |node: &PartialObjectMeta<Node>| -> Option<f64> {
        node.labels().get(labels::kwok::INSTANCE_PRICE)?.parse().ok()
    };
    let price: f64 = nodes.iter().filter_map(price).sum();
    Ok((nodes.len(), (price * 100.0).round() / 100.0))
}

/// What the operator's metrics say.
pub(super) struct Metrics(String);

impl Metrics {
    pub(super) async fn of(operator: &Operator) -> Result<Self, Failure> {
        Ok(Self(operator.metrics().await?))
    }

    fn lines(&self, name: &str) -> impl Iterator<Item = &str> {
        let lines = self.0.lines();
        lines.filter(move |line| {
            line.strip_prefix(name).is_some_and(|it| it.starts_with(['{', ' ']))
        })
    }

    /// The sum of the series whose labels contain `part`.
    pub(super) fn sum(&self, name: &str, part: &str) -> f64 {
        // Not `sum`, which is -0.0 where there is nothing.
        self.lines(name).filter(|line| line.contains(part)).map(value).fold(0.0, |a, b| a + b)
    }

    pub(super) fn evictions(&self) -> f64 {
        self.sum("karpenter_pods_eviction_requests_total", "code=\"20")
    }

    pub(super) fn calls(&self) -> BTreeMap<String, f64> {
        let mut calls = BTreeMap::new();
        for line in self.lines("client_go_request_total") {
            let label = |key: &str| {
                let rest = line.split_once(&format!("{key}=\""))?.1;
                rest.split_once('"').map(|it| it.0)
            };
            let parts = ["method", "group", "kind", "subresource", "code"];
            let name: Vec<&str> = parts.iter().filter_map(|part| label(part)).collect();
            *calls.entry(name.join(" ")).or_default() += value(line);
        }
        calls
    }
}

fn value(line: &str) -> f64 {
    line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).unwrap_or(0.0)
}
