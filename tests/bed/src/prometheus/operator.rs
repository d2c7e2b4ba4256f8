//! What the Prometheus operator does with a ServiceMonitor and a PrometheusRule, as far as the
//! chart's need it.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::failure::Failure;
use crate::user::LIMIT;
use crate::wait::eventually;

const GROUP: &str = "monitoring.coreos.com";

/// Serves ServiceMonitors and PrometheusRules, without their schemas.
///
/// # Errors
/// When the API server refuses a definition, or does not serve it in time.
pub async fn definitions(client: &Client) -> Result<(), Failure> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (kind, plural) in
        [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")]
    {
        let name = format!("{plural}.{GROUP}");
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": name },
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
                "versions": [{
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": true,
                        },
                    },
                }],
            },
        });
        crds.patch(&name, &PatchParams::apply("user").force(), &Patch::Apply(&crd)).await?;
        eventually(&format!("{name} is established"), LIMIT, async || {
            let status = crds.get(&name).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            Ok(conditions.iter().any(|it| it.type_ == "Established" && it.status == "True"))
        })
        .await?;
    }
    Ok(())
}

/// The only object of a kind.
async fn only(client: Client, kind: &str) -> Result<DynamicObject, Failure> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let all = api.list(&ListParams::default()).await?.items;
    one(all).map_err(|n| format!("{n} objects of kind {kind}").into())
}

/// The only element, or how many there are.
fn one<T>(all: Vec<T>) -> Result<T, usize> {
    <[T; 1]>::try_from(all).map(|[one]| one).map_err(|all| all.len())
}

/// The scrape configuration that comes of the ServiceMonitor. Pods are discovered, because the bed
/// has no EndpointSlices (its pods are on loopback, which they must not contain), and get the
/// labels that they would have from there.
pub(super) async fn scrape(bed: &Bed) -> Result<Value, Failure> {
    let monitor = only(bed.client(), "ServiceMonitor").await?;
    let spec = &monitor.data["spec"];
    let namespaces = &spec["namespaceSelector"]["matchNames"];
    let selector = spec["selector"]["matchLabels"].as_object().ok_or("no labels of the Service")?;
    let service = {
        let namespace = namespaces[0].as_str().ok_or("no namespace")?;
        let services: Api<Service> = Api::namespaced(bed.client(), namespace);
        let pairs: Vec<String> =
            selector.iter().map(|(key, value)| format!("{key}={}", text(value))).collect();
        let found = services.list(&ListParams::default().labels(&pairs.join(","))).await?.items;
        one(found).map_err(|n| format!("{n} Services have the labels {pairs:?}"))?
    };
    let endpoint = &spec["endpoints"][0];
    let port = text(&endpoint["port"]);
    let service_spec = service.spec.clone().unwrap_or_default();
    let ports = service_spec.ports.unwrap_or_default();
    if !ports.iter().any(|it| it.name.as_deref() == Some(port)) {
        return Err(format!("the Service has no port {port}: {ports:?}").into());
    }
    let keep = |label: &str, value: &str| json!({ "source_labels": [label], "regex": value, "action": "keep" });
    let set =
        |source: &str, target: &str| json!({ "source_labels": [source], "target_label": target });
    let mut rules = vec![keep("__meta_kubernetes_pod_container_port_name", port)];
    for (key, value) in service_spec.selector.unwrap_or_default() {
        let sanitized: String =
            key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        rules.push(keep(&format!("__meta_kubernetes_pod_label_{sanitized}"), &value));
    }
    rules.extend([
        set("__meta_kubernetes_namespace", "namespace"),
        set("__meta_kubernetes_pod_name", "pod"),
        set("__meta_kubernetes_pod_container_name", "container"),
        json!({ "target_label": "service", "replacement": service.name_any() }),
        json!({ "target_label": "job", "replacement": service.name_any() }),
        json!({ "target_label": "endpoint", "replacement": port }),
    ]);
    Ok(json!({
        "job_name": format!("serviceMonitor/{}", monitor.name_any()),
        "metrics_path": endpoint["path"],
        "kubernetes_sd_configs": [{ "role": "pod", "namespaces": { "names": namespaces } }],
        "relabel_configs": rules,
    }))
}

/// The content of the PrometheusRule, as a rule file.
///
/// # Errors
/// When there is none, or there are several.
pub async fn rules(bed: &Bed) -> Result<Value, Failure> {
    let mut rule = only(bed.client(), "PrometheusRule").await?;
    Ok(json!({ "groups": rule.data["spec"]["groups"].take() }))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
