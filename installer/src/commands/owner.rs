//! Whose the operator is: what Helm, Flux or Argo CD deploys is changed there.

use serde_json::Value;
use tenon_installer_core::kubernetes::git_source::GitSource;
use tenon_installer_core::kubernetes::operator_deployment::{
    OperatorDeployment, gitops_key, is_operator,
};

use super::session::Session;
use crate::errors::ExpectedError;

/// Refuses to write an operator that another tool deploys, and says how to change it there.
pub(super) fn refuse(session: &Session, operation: &str) -> Result<(), ExpectedError> {
    let is_asked_for = session.settings.manage_operator || operation != "install";
    let deployment = session.desired.deployment();
    let live = deployment.and_then(|wanted| session.actual.objects.get(&wanted.key()));
    let live = live.filter(|live| is_operator(live));
    let found = live.map(|live| OperatorDeployment { live: live.clone() });
    let found = found.filter(|found| found.managed_by().is_some() && is_asked_for);
    match found.as_ref().and_then(|found| Some((found, GitSource::of(&found.live)?))) {
        Some((found, source)) => Err(ExpectedError::Refused {
            reasons: vec![format!(
                "Deployment {}/{} is managed by {}, which would revert the {operation}",
                found.namespace(),
                found.name(),
                source.tool
            )],
            hints: hints(&source, &found.live, operation),
        }),
        None => Ok(()),
    }
}

/// What to change in git instead, and how to take the marks off that a tool has left.
fn hints(source: &GitSource, live: &Value, operation: &str) -> Vec<String> {
    let GitSource { object, version, values, .. } = source;
    let in_git = match operation {
        "install" => format!("change {values} of {object} in git"),
        "upgrade" => format!("set {version} of {object}, and of its CRDs, to the version in git"),
        _ => format!("revert {version} of {object} in git"),
    };
    let aws = "for the AWS resources, run `tenon install --aws-only` with the settings".to_owned();
    let left = format!("if {} no longer applies it, remove its marks: ", source.tool);
    vec![in_git, aws, left + &unmark(live)]
}

/// The commands that take the marks of Flux or Argo CD off a Deployment.
fn unmark(live: &Value) -> String {
    let text = |field: &str| live["metadata"][field].as_str().unwrap_or_default();
    let (name, namespace) = (text("name"), text("namespace"));
    let commands = [("label", "labels"), ("annotate", "annotations")].map(|(verb, field)| {
        let keys = live["metadata"][field].as_object().into_iter().flat_map(|map| map.keys());
        let keys = keys.filter(|key| gitops_key(key).is_some()).map(|key| format!(" {key}-"));
        let keys = keys.collect::<String>();
        let is_marked = !keys.is_empty();
        is_marked
            .then(|| format!("`kubectl {verb} deployment {name} --namespace {namespace}{keys}`"))
    });
    commands.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_to_change_in_git_follows_from_the_operation() {
        let labels = json!({
            "app.kubernetes.io/name": "karpenter",
            "helm.toolkit.fluxcd.io/name": "nodes",
            "helm.toolkit.fluxcd.io/namespace": "infra",
        });
        let metadata = json!({"name": "karpenter", "namespace": "kube-system", "labels": labels});
        let live = json!({ "metadata": metadata });
        let source = GitSource::of(&live).expect("it is Flux'");
        let unmarked = "if Flux no longer applies it, remove its marks: `kubectl label deployment \
                        karpenter --namespace kube-system helm.toolkit.fluxcd.io/name- \
                        helm.toolkit.fluxcd.io/namespace-`";
        for (operation, field) in [
            ("install", "change spec.values of HelmRelease infra/nodes"),
            ("upgrade", "set spec.chart.spec.version of HelmRelease infra/nodes"),
            ("rollback", "revert spec.chart.spec.version of HelmRelease infra/nodes"),
        ] {
            let said = hints(&source, &live, operation);
            assert!(said[0].starts_with(field), "{said:?}");
            assert!(said[1].contains("tenon install --aws-only"), "{said:?}");
            assert_eq!(said[2], unmarked);
        }
    }
}
