//! The operator that is there, whoever installed it: `tenon install`, Helm, Flux or Argo CD.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use tenon_crds::selector::selects;

use super::client::{Cluster, KubeError, failed};
use super::lease::Place;
use super::object::{Key, annotation, label};
use crate::ownership::INSTALL_ID;

/// The name that images of the operator end with.
const IMAGE: &str = "tenon-operator";

/// Beginning of the label by which Helm's chart marks its objects.
const CHART: &str = "tenon-";

/// The operator's Deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorDeployment {
    /// As it is.
    pub live: Value,
}

/// Who acts, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Holder of the Lease.
    pub pod: String,
    /// Since when, if the Lease has it.
    pub since: Option<jiff::Timestamp>,
}

/// Whether a Deployment is Tenon's: by the mark of the installer, the image, or the chart.
pub fn is_operator(deployment: &Value) -> bool {
    let containers = deployment.pointer("/spec/template/spec/containers");
    let mut containers = containers.and_then(Value::as_array).into_iter().flatten();
    label(deployment, INSTALL_ID).is_some()
        || label(deployment, "helm.sh/chart").is_some_and(|chart| chart.starts_with(CHART))
        || containers.any(|one| one["image"].as_str().is_some_and(is_image))
}

/// Whether an image is the operator's, whatever its registry.
pub fn is_image(reference: &str) -> bool {
    let path = reference.split('@').next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    last.split(':').next() == Some(IMAGE)
}

/// Its name, as [`gitops`] answers it.
pub const FLUX: &str = "Flux";
/// Its name, as [`gitops`] answers it.
pub const ARGO_CD: &str = "Argo CD";

/// The GitOps tool that applied an object and would undo any change to it.
pub fn gitops(live: &Value) -> Option<&'static str> {
    let marks = ["labels", "annotations"].map(|of| live["metadata"][of].as_object());
    let mut keys = marks.into_iter().flatten().flat_map(|map| map.keys());
    keys.find_map(|key| gitops_key(key))
}

/// The GitOps tool that puts a label or annotation of this key on what it applies.
pub fn gitops_key(key: &str) -> Option<&'static str> {
    if key.contains("toolkit.fluxcd.io/") {
        Some(FLUX)
    } else if key.starts_with("argocd.argoproj.io/") {
        Some(ARGO_CD)
    } else {
        None
    }
}

/// Finds it: where it is expected, else anywhere in the cluster.
///
/// # Errors
/// What the caller may not read.
pub async fn find(
    cluster: &Cluster,
    expected: &Key,
) -> Result<Option<OperatorDeployment>, KubeError> {
    let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "deployments");
    if let Some(live) = cluster.get(&resource, expected).await?.filter(is_operator) {
        return Ok(Some(OperatorDeployment { live }));
    }
    let all = cluster.list(&resource).await?;
    let mut found = all
        .into_iter()
        .map(|one| serde_json::to_value(one).unwrap_or_default())
        .filter(is_operator)
        .collect::<Vec<_>>();
    // One that works comes before one that was scaled down, and then one where it is expected.
    found.sort_by_key(|live| {
        let runs = live.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0);
        let is_near = live["metadata"]["namespace"].as_str() == expected.namespace.as_deref();
        (!runs, !is_near)
    });
    Ok(found.into_iter().next().map(|live| OperatorDeployment { live }))
}

impl OperatorDeployment {
    fn text(&self, pointer: &str) -> &str {
        self.live.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Where its Lease is, too.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// As in `metadata.name`.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Which version runs: by the label that its objects carry, else by its image's tag.
    pub fn version(&self) -> Option<&str> {
        let by_label = label(&self.live, "app.kubernetes.io/version");
        by_label.or_else(|| {
            let image = self.text("/spec/template/spec/containers/0/image");
            let last = image.split('@').next()?.rsplit('/').next()?;
            last.split_once(':').map(|(_, tag)| tag)
        })
    }

    /// The tool that manages it, where that is not `tenon`.
    pub fn managed_by(&self) -> Option<&'static str> {
        // First: what took it over from `tenon` has left our label.
        if let Some(tool) = gitops(&self.live) {
            return Some(tool);
        }
        if label(&self.live, INSTALL_ID).is_some() {
            return None;
        }
        let release = "meta.helm.sh/release-name";
        let is_of_helm =
            || label(&self.live, release).or(annotation(&self.live, release)).is_some();
        Some(if is_of_helm() { "Helm" } else { "another tool" })
    }

    /// How it finds its pods.
    pub fn selector(&self) -> String {
        selector(&self.live)
    }

    /// Whether a pod is one of its own.
    pub fn has(&self, pod: &Pod) -> bool {
        has(&self.live, pod)
    }

    /// The Lease that its replicas hold in turn.
    pub fn lease(&self) -> Place {
        Place::of(&self.live)
    }

    /// Who leads; none if no replica has ever led.
    ///
    /// # Errors
    /// What the caller may not read.
    pub async fn leader(&self, cluster: &Cluster) -> Result<Option<Leader>, KubeError> {
        let place = self.lease();
        let api: Api<Lease> = Api::namespaced(cluster.client(), &place.namespace);
        let lease = api.get_opt(&place.name).await;
        let lease = lease.map_err(|source| failed("get", format!("lease {place}"), source))?;
        Ok(lease.and_then(|lease| lease.spec).and_then(|spec| {
            let holder = spec.holder_identity.filter(|holder| !holder.is_empty())?;
            let pod = holder.split('_').next().unwrap_or_default().to_owned();
            Some(Leader { pod, since: spec.acquire_time.map(|time| time.0) })
        }))
    }
}

/// Whether a pod is one of a Deployment's.
pub fn has(deployment: &Value, pod: &Pod) -> bool {
    let selector = deployment.pointer("/spec/selector").cloned().unwrap_or_default();
    let Ok(selector) = serde_json::from_value::<LabelSelector>(selector) else { return false };
    pod.metadata.namespace.as_deref() == deployment["metadata"]["namespace"].as_str()
        && selects(&selector, pod.labels())
}

/// The selector of a Deployment, as the API server takes it.
pub fn selector(deployment: &Value) -> String {
    let labels = deployment.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let rules = deployment.pointer("/spec/selector/matchExpressions").and_then(Value::as_array);
    let rules = rules.into_iter().flatten().filter_map(|rule| {
        let key = rule["key"].as_str()?;
        let values = rule["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        match rule["operator"].as_str()? {
            "In" => Some(format!("{key} in ({values})")),
            "NotIn" => Some(format!("{key} notin ({values})")),
            "Exists" => Some(key.to_owned()),
            "DoesNotExist" => Some(format!("!{key}")),
            _ => None,
        }
    });
    labels.chain(rules).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Double;

    fn deployment(namespace: &str, name: &str, labels: &Value, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": image}]}}},
        })
    }

    fn expected() -> Key {
        Key {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: Some("kube-system".to_owned()),
            name: "karpenter".to_owned(),
        }
    }

    #[tokio::test]
    async fn it_is_found_by_its_chart_or_image_wherever_it_is() {
        let upstream =
            deployment("kube-system", "karpenter", &json!({}), "x/karpenter/controller:1");
        let chart = json!({"helm.sh/chart": "tenon-0.1.0", "app.kubernetes.io/version": "0.1.0"});
        let helm = deployment("nodes", "autoscaler", &chart, "mirror/operator:latest");
        let all = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {}, "items": [upstream, helm]});
        let server = Double::start(&[
            ("/apis/apps/v1/namespaces/kube-system/deployments/karpenter", upstream.clone()),
            ("/apis/apps/v1/deployments", all),
        ])
        .await;
        let found = find(&server.cluster(), &expected()).await.expect("it may be read");
        let found = found.expect("it is there");
        assert_eq!((found.namespace(), found.name()), ("nodes", "autoscaler"));
        assert_eq!(found.version(), Some("0.1.0"));
        assert_eq!(found.managed_by(), Some("another tool"));
        let server = Double::start(&[(
            "/apis/apps/v1/namespaces/kube-system/deployments/karpenter",
            upstream,
        )])
        .await;
        let found = find(&server.cluster(), &expected()).await.expect("it may be read");
        assert_eq!(found, None, "Karpenter's own is none of ours");
    }

    #[test]
    fn tools_are_known_by_what_they_write_on_it() {
        let of = |labels: Value| {
            let live = deployment("a", "b", &labels, "x/tenon-operator:1.2@sha256:0");
            let found = OperatorDeployment { live };
            (found.managed_by(), found.version().map(str::to_owned))
        };
        let version = || Some("1.2".to_owned());
        assert_eq!(of(json!({INSTALL_ID: "x"})), (None, version()));
        let flux = json!({"helm.toolkit.fluxcd.io/name": "x", "meta.helm.sh/release-name": "x"});
        assert_eq!(of(flux), (Some("Flux"), version()));
        let taken_over = json!({INSTALL_ID: "x", "helm.toolkit.fluxcd.io/name": "x"});
        assert_eq!(of(taken_over).0, Some("Flux"));
        assert_eq!(of(json!({"argocd.argoproj.io/instance": "x"})).0, Some("Argo CD"));
        assert_eq!(of(json!({"meta.helm.sh/release-name": "x"})).0, Some("Helm"));
    }

    #[test]
    fn a_selector_has_labels_and_expressions() {
        let selector = selector(&json!({"spec": {"selector": {
            "matchLabels": {"a": "b"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["d", "e"]},
                {"key": "f", "operator": "NotIn", "values": ["g"]},
                {"key": "h", "operator": "Exists"},
                {"key": "i", "operator": "DoesNotExist"},
            ],
        }}}));
        assert_eq!(selector, "a=b,c in (d,e),f notin (g),h,!i");
    }
}
