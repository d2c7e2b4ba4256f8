//! Where in git an object comes from, by the marks of Flux and Argo CD.

use serde_json::Value;

use super::object::{annotation, label};
use super::operator_deployment::{ARGO_CD, FLUX, gitops};

/// Beginning of the labels of objects of a HelmRelease.
const HELM_CONTROLLER: &str = "helm.toolkit.fluxcd.io";
/// Beginning of the labels of objects of a Kustomization.
const KUSTOMIZE_CONTROLLER: &str = "kustomize.toolkit.fluxcd.io";

/// The object of Flux or Argo CD that applies another one, to be changed in git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSource {
    /// Flux or Argo CD.
    pub tool: &'static str,
    /// Kind and name.
    pub object: String,
    /// What has its version.
    pub version: &'static str,
    /// What has the values of its chart, or all that there is.
    pub values: &'static str,
}

impl GitSource {
    /// Of an object as it is; `None` if neither applies it.
    pub fn of(live: &Value) -> Option<Self> {
        let tool = gitops(live)?;
        let of = |key: &str| label(live, key).or_else(|| annotation(live, key)).unwrap_or_default();
        let named = |controller: &str| {
            format!(
                "{}/{}",
                of(&format!("{controller}/namespace")),
                of(&format!("{controller}/name"))
            )
        };
        Some(if tool == ARGO_CD {
            // `<application>:<group>/<kind>:<namespace>/<name>`
            let tracked = of("argocd.argoproj.io/tracking-id").split(':').next();
            let tracked = tracked.filter(|name| !name.is_empty());
            let name = tracked.unwrap_or_else(|| of("argocd.argoproj.io/instance"));
            Self {
                tool,
                object: format!("Application {name}"),
                version: "spec.source.targetRevision",
                values: "spec.source.helm",
            }
        } else if of(&format!("{HELM_CONTROLLER}/name")).is_empty() {
            Self {
                tool: FLUX,
                object: format!("Kustomization {}", named(KUSTOMIZE_CONTROLLER)),
                version: "the image's tag",
                values: "the manifests",
            }
        } else {
            Self {
                tool: FLUX,
                object: format!("HelmRelease {}", named(HELM_CONTROLLER)),
                version: "spec.chart.spec.version",
                values: "spec.values",
            }
        })
    }
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
        ] {
            assert_eq!(of(&metadata).as_deref(), Some(source));
        }
        assert_eq!(of(&json!({"labels": {"app": "nodes"}})), None);
    }
}
