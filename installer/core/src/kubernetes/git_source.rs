//! Where in git an object comes from, by the marks of Flux and Argo CD.

use kube::core::ApiResource;
use serde_json::Value;

use super::object::{Object, annotation, label};
use super::operator_deployment::{ARGO_CD, FLUX, gitops};
use super::resources;

/// Beginning of the labels of objects of a HelmRelease.
const HELM_CONTROLLER: &str = "helm.toolkit.fluxcd.io";
/// Beginning of the labels of objects of a Kustomization.
const KUSTOMIZE_CONTROLLER: &str = "kustomize.toolkit.fluxcd.io";

/// The object of Flux or Argo CD that applies another one, to be changed in git.
#[derive(Debug, Clone, PartialEq)]
pub struct GitSource {
    /// Flux or Argo CD.
    pub tool: &'static str,
    /// Kind and name.
    pub object: String,
    /// What has its version.
    pub version: &'static str,
    /// What has the values of its chart, or all that there is.
    pub values: &'static str,
    /// Where it is in the cluster; an Application without its namespace, unless its mark has one.
    pub(super) applier: Object,
}

impl GitSource {
    /// Of an object as it is; `None` if neither applies it. Argo CD marks nothing if it tracks by
    /// the label `app.kubernetes.io/instance`, its default before version 3: then it is only known
    /// as the manager of fields, and remains that when it no longer applies the object.
    pub fn of(live: &Value) -> Option<Self> {
        let tool = gitops(live).or_else(|| is_written_by_argo_cd(live).then_some(ARGO_CD))?;
        let of = |key: &str| label(live, key).or_else(|| annotation(live, key)).unwrap_or_default();
        let of_flux = |resource: &ApiResource, controller: &str| {
            let of = |part: &str| of(&format!("{controller}/{part}")).to_owned();
            let namespace = Some(of("namespace"));
            let name = of("name");
            Object { resource: resource.clone(), namespace, name, body: Value::Null }
        };
        Some(if tool == ARGO_CD {
            // `<application>:<group>/<kind>:<namespace>/<name>`
            let tracked = of("argocd.argoproj.io/tracking-id").split(':').next();
            let tracked = tracked.filter(|name| !name.is_empty());
            let labels = ["argocd.argoproj.io/instance", "app.kubernetes.io/instance"];
            let labelled = labels.map(of).into_iter().find(|name| !name.is_empty());
            let name = tracked.or(labelled).unwrap_or_default();
            // Outside of Argo CD's own namespace, it is `<namespace>_<name>`.
            let (namespace, name) = match name.split_once('_') {
                Some((namespace, name)) => (Some(namespace.to_owned()), name),
                None => (None, name),
            };
            let resource = resources::applications();
            let applier = Object { resource, namespace, name: name.to_owned(), body: Value::Null };
            Self {
                tool,
                object: applier.key().to_string(),
                version: "spec.source.targetRevision",
                values: "spec.source.helm",
                applier,
            }
        } else if of(&format!("{HELM_CONTROLLER}/name")).is_empty() {
            let applier = of_flux(&resources::kustomizations(), KUSTOMIZE_CONTROLLER);
            Self {
                tool: FLUX,
                object: applier.key().to_string(),
                version: "the image's tag",
                values: "the manifests",
                applier,
            }
        } else {
            let applier = of_flux(&resources::helm_releases(), HELM_CONTROLLER);
            Self {
                tool: FLUX,
                object: applier.key().to_string(),
                version: "spec.chart.spec.version",
                values: "spec.values",
                applier,
            }
        })
    }
}

fn is_written_by_argo_cd(live: &Value) -> bool {
    let managers = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    managers.filter_map(|entry| entry["manager"].as_str()).any(|name| name.starts_with("argocd-"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_object_in_git_is_named() {
        let of = |metadata: &Value| {
            let source = GitSource::of(&json!({ "metadata": metadata }));
            source.map(|it| format!("{}: {} of {}", it.tool, it.values, it.object))
        };
        let tracked = "nodes:apps/Deployment:kube-system/karpenter";
        for (metadata, source) in [
            (
                json!({"labels": {
                    "helm.toolkit.fluxcd.io/name": "nodes",
                    "helm.toolkit.fluxcd.io/namespace": "infra",
                }}),
                "Flux: spec.values of HelmRelease infra/nodes",
            ),
            (
                json!({"labels": {
                    "kustomize.toolkit.fluxcd.io/name": "nodes",
                    "kustomize.toolkit.fluxcd.io/namespace": "infra",
                }}),
                "Flux: the manifests of Kustomization infra/nodes",
            ),
            (
                json!({"annotations": {"argocd.argoproj.io/tracking-id": tracked}}),
                "Argo CD: spec.source.helm of Application nodes",
            ),
            (
                json!({"labels": {"argocd.argoproj.io/instance": "nodes"}}),
                "Argo CD: spec.source.helm of Application nodes",
            ),
            (
                json!({
                    "labels": {"app.kubernetes.io/instance": "nodes"},
                    "managedFields": [{"manager": "argocd-controller"}],
                }),
                "Argo CD: spec.source.helm of Application nodes",
            ),
            (
                json!({"annotations": {
                    "argocd.argoproj.io/tracking-id": format!("team_{tracked}"),
                }}),
                "Argo CD: spec.source.helm of Application team/nodes",
            ),
        ] {
            assert_eq!(of(&metadata).as_deref(), Some(source));
        }
        let others = json!({
            "labels": {"app.kubernetes.io/instance": "nodes"},
            "managedFields": [{"manager": "helm"}],
        });
        assert_eq!(of(&others), None);
    }
}
