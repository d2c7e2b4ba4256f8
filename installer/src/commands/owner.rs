//! Whose the operator is: what Helm, Flux or Argo CD deploys is changed there.

use serde_json::Value;
use tenon_installer_core::kubernetes::object::{annotation, label};
use tenon_installer_core::kubernetes::operator_deployment::{
    ARGO_CD, FLUX, OperatorDeployment, is_operator,
};

use super::session::Session;
use crate::errors::ExpectedError;

/// Beginning of the labels of objects of a HelmRelease.
const HELM_CONTROLLER: &str = "helm.toolkit.fluxcd.io";

/// Refuses to write an operator that another tool deploys, and says how to change it there.
pub(super) fn refuse(session: &Session, operation: &str) -> Result<(), ExpectedError> {
    let is_asked_for = session.settings.manage_operator || operation != "install";
    let deployment = session.desired.deployment();
    let live = deployment.and_then(|wanted| session.actual.objects.get(&wanted.key()));
    let live = live.filter(|live| is_operator(live));
    let found = live.map(|live| OperatorDeployment { live: live.clone() });
    match found.as_ref().and_then(|found| Some((found, found.managed_by()?))) {
        Some((found, tool)) if is_asked_for && [FLUX, ARGO_CD].contains(&tool) => {
            Err(ExpectedError::Refused {
                reasons: vec![format!(
                    "Deployment {}/{} is managed by {tool}, which would revert the {operation}",
                    found.namespace(),
                    found.name()
                )],
                hints: hints(tool, operation, &found.live),
            })
        }
        _ => Ok(()),
    }
}

/// What to change in git instead.
fn hints(tool: &str, operation: &str, live: &Value) -> Vec<String> {
    let of = |key: &str| label(live, key).or_else(|| annotation(live, key)).unwrap_or_default();
    let named = |tool: &str| {
        format!("{}/{}", of(&format!("{tool}/namespace")), of(&format!("{tool}/name")))
    };
    let (owner, version, values) = if tool == ARGO_CD {
        // `<application>:<group>/<kind>:<namespace>/<name>`
        let tracked = of("argocd.argoproj.io/tracking-id").split(':').next().unwrap_or_default();
        let labelled = of("argocd.argoproj.io/instance");
        let name = if tracked.is_empty() { labelled } else { tracked };
        (format!("Application {name}"), "spec.source.targetRevision", "spec.source.helm")
    } else if of(&format!("{HELM_CONTROLLER}/name")).is_empty() {
        let name = named("kustomize.toolkit.fluxcd.io");
        (format!("Kustomization {name}"), "the image's tag", "the manifests")
    } else {
        let name = named(HELM_CONTROLLER);
        (format!("HelmRelease {name}"), "spec.chart.spec.version", "spec.values")
    };
    let in_git = match operation {
        "install" => format!("change {values} of {owner} in git"),
        "upgrade" => format!("set {version} of {owner}, and of its CRDs, to the version in git"),
        _ => format!("revert {version} of {owner} in git"),
    };
    let aws = "for the AWS resources, run `tenon install --aws-only` with the settings".to_owned();
    vec![in_git, aws]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_object_in_git_is_named() {
        let flux = json!({"metadata": {"labels": {
            "helm.toolkit.fluxcd.io/name": "nodes", "helm.toolkit.fluxcd.io/namespace": "infra",
        }}});
        let said = hints(FLUX, "install", &flux);
        assert_eq!(said[0], "change spec.values of HelmRelease infra/nodes in git");
        assert!(said[1].contains("tenon install --aws-only"), "{said:?}");
        let plain = json!({"metadata": {"labels": {
            "kustomize.toolkit.fluxcd.io/name": "nodes",
            "kustomize.toolkit.fluxcd.io/namespace": "infra",
        }}});
        let said = hints(FLUX, "install", &plain);
        assert_eq!(said[0], "change the manifests of Kustomization infra/nodes in git");
        let tracked = "nodes:apps/Deployment:kube-system/karpenter";
        for argo in [
            json!({"annotations": {"argocd.argoproj.io/tracking-id": tracked}}),
            json!({"labels": {"argocd.argoproj.io/instance": "nodes"}}),
        ] {
            let said = hints(ARGO_CD, "upgrade", &json!({ "metadata": argo }));
            assert!(
                said[0].contains("spec.source.targetRevision of Application nodes"),
                "{said:?}"
            );
        }
    }
}
