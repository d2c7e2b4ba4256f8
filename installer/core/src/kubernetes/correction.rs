//! What Flux and Argo CD do when the replicas of a Deployment that they apply from git are changed
//! in the cluster.

use kube::core::DynamicObject;
use serde_json::Value;

use super::client::{Cluster, KubeError};
use super::freeze::FLUX_RECONCILES;
use super::git_source::GitSource;
use super::object::{Key, Object, annotation};

/// The namespace of Argo CD, unless it is installed elsewhere.
const ARGO_CD_NAMESPACE: &str = "argocd";
/// An Application with this annotation is left alone.
const SKIP_RECONCILE: &str = "argocd.argoproj.io/skip-reconcile";
/// Which objects of a Kustomization are applied again.
const APPLIED: &str = "kustomize.toolkit.fluxcd.io/ssa";
/// Replicas in a Deployment.
const REPLICAS: &str = "/spec/replicas";

/// What the tool does about replicas that are not those of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Correction {
    /// It restores them, at once or the next time it compares.
    Restores(Pause),
    /// It would restore them if it were not paused.
    Paused(Pause),
    /// It restores them with the next change in git.
    OnChange,
    /// That can't be seen: the Application is in another cluster, or hidden from the caller.
    Unknown,
}

/// How to keep a tool from an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// The command that pauses it.
    pub on: String,
    /// The command that resumes it.
    pub off: String,
}

/// What the tool that applies a Deployment does when its replicas are changed.
///
/// # Errors
/// What the caller may not read of Flux. Applications are often for a platform team alone.
pub async fn of_replicas(
    cluster: &Cluster,
    source: &GitSource,
    live: &Object,
) -> Result<Correction, KubeError> {
    let applier = &source.applier;
    let key = applier.key();
    if applier.resource.kind == "Application" {
        return match cluster.list(&applier.resource).await {
            Ok(all) => Ok(find(&all, &key).map_or(Correction::Unknown, by_application)),
            Err(error) if error.is_denied() => Ok(Correction::Unknown),
            Err(error) => Err(error),
        };
    }
    let Some(found) = cluster.get(&applier.resource, &key).await? else {
        return Ok(Correction::OnChange);
    };
    Ok(if applier.resource.kind == "HelmRelease" {
        by_release(&found, &key)
    } else {
        by_kustomization(&found, &key, live)
    })
}

/// The Application that a mark names: without a namespace, it is Argo CD's own.
fn find<'a>(all: &'a [DynamicObject], key: &Key) -> Option<&'a DynamicObject> {
    let mut named = all.iter().filter(|one| {
        one.metadata.name.as_ref() == Some(&key.name)
            && (key.namespace.is_none() || one.metadata.namespace == key.namespace)
    });
    let first = named.clone().next();
    named.find(|one| one.metadata.namespace.as_deref() == Some(ARGO_CD_NAMESPACE)).or(first)
}

fn by_application(application: &DynamicObject) -> Correction {
    let metadata = &application.metadata;
    let (name, namespace) = (metadata.name.as_deref(), metadata.namespace.as_deref());
    let annotate = annotate("application", name, namespace);
    let pause = Pause {
        on: format!("{annotate} {SKIP_RECONCILE}=true"),
        off: format!("{annotate} {SKIP_RECONCILE}-"),
    };
    let spec = &application.data["spec"];
    let automated = &spec["syncPolicy"]["automated"];
    let ignored = spec["ignoreDifferences"].as_array().into_iter().flatten();
    let of_deployments = |entry: &&Value| entry["kind"] == "Deployment" || entry["kind"] == "*";
    let ignored = ignored.filter(of_deployments).any(|entry| {
        has(&entry["jsonPointers"], REPLICAS) || has(&entry["jqPathExpressions"], ".spec.replicas")
    });
    if automated["selfHeal"] != true || automated["enabled"] == false || ignored {
        return Correction::OnChange;
    }
    let annotations = metadata.annotations.as_ref();
    let skipped = annotations.and_then(|all| all.get(SKIP_RECONCILE));
    either(skipped.is_some_and(|value| value == "true"), pause)
}

fn by_release(release: &Value, key: &Key) -> Correction {
    let spec = &release["spec"];
    let detection = &spec["driftDetection"];
    let mut ignored = detection["ignore"].as_array().into_iter().flatten();
    if detection["mode"] != "enabled" || ignored.any(|it| has(&it["paths"], REPLICAS)) {
        return Correction::OnChange;
    }
    either(spec["suspend"] == true, suspend("helmrelease", key))
}

fn by_kustomization(kustomization: &Value, key: &Key, live: &Object) -> Correction {
    if kustomization["spec"]["suspend"] == true {
        return Correction::Paused(suspend("kustomization", key));
    }
    let applied = annotation(&live.body, APPLIED).unwrap_or_default().to_lowercase();
    if applied == "ignore" || applied == "ifnotpresent" {
        return Correction::OnChange;
    }
    let annotate = annotate("deployment", Some(&live.name), live.namespace.as_deref());
    let pause = Pause {
        on: format!("{annotate} {FLUX_RECONCILES}=disabled"),
        off: format!("{annotate} {FLUX_RECONCILES}-"),
    };
    let reconcile = annotation(&live.body, FLUX_RECONCILES).unwrap_or_default().to_lowercase();
    either(reconcile == "disabled", pause)
}

fn suspend(kind: &str, key: &Key) -> Pause {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let patch = format!("kubectl patch {kind} {} --namespace {namespace} --type merge", key.name);
    let to = |value: bool| format!("{patch} --patch '{{\"spec\":{{\"suspend\":{value}}}}}'");
    Pause { on: to(true), off: to(false) }
}

fn annotate(kind: &str, name: Option<&str>, namespace: Option<&str>) -> String {
    let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
    format!("kubectl annotate {kind} {name} --namespace {namespace}")
}

fn either(is_paused: bool, pause: Pause) -> Correction {
    if is_paused { Correction::Paused(pause) } else { Correction::Restores(pause) }
}

fn has(list: &Value, entry: &str) -> bool {
    list.as_array().is_some_and(|all| all.iter().any(|one| one == entry))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn application(namespace: &str, spec: &Value) -> DynamicObject {
        let body = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": "karpenter", "namespace": namespace},
            "spec": spec,
        });
        serde_json::from_value(body).expect("an object")
    }

    fn key(kind: &str, namespace: Option<&str>) -> Key {
        Key {
            api_version: String::new(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: "karpenter".to_owned(),
        }
    }

    fn deployment(annotations: &Value) -> Object {
        let metadata = json!({
            "name": "karpenter", "namespace": "kube-system", "annotations": annotations,
        });
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata});
        Object::from_json(body, "deployments")
    }

    #[test]
    fn argo_cd_restores_what_it_heals_unless_it_skips_or_ignores_it() {
        let heals = json!({"syncPolicy": {"automated": {"selfHeal": true}}});
        let of = |spec: &Value| by_application(&application("argocd", spec));
        let Correction::Restores(pause) = of(&heals) else { panic!("it heals") };
        let annotate = "kubectl annotate application karpenter --namespace argocd \
                        argocd.argoproj.io/skip-reconcile";
        assert_eq!(pause.on, format!("{annotate}=true"));
        assert_eq!(pause.off, format!("{annotate}-"));
        let mut skipped = application("argocd", &heals);
        let annotations = [(SKIP_RECONCILE.to_owned(), "true".to_owned())];
        skipped.metadata.annotations = Some(annotations.into());
        assert_eq!(by_application(&skipped), Correction::Paused(pause));
        for spec in [
            json!({}),
            json!({"syncPolicy": {"automated": {"prune": true}}}),
            json!({"syncPolicy": {"automated": {"selfHeal": true, "enabled": false}}}),
            json!({
                "syncPolicy": {"automated": {"selfHeal": true}},
                "ignoreDifferences": [
                    {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]},
                ],
            }),
            json!({
                "syncPolicy": {"automated": {"selfHeal": true}},
                "ignoreDifferences": [{"kind": "*", "jqPathExpressions": [".spec.replicas"]}],
            }),
        ] {
            assert_eq!(of(&spec), Correction::OnChange, "{spec}");
        }
        let others = json!({
            "syncPolicy": {"automated": {"selfHeal": true}},
            "ignoreDifferences": [
                {"group": "apps", "kind": "StatefulSet", "jsonPointers": ["/spec/replicas"]},
                {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/template"]},
            ],
        });
        assert!(matches!(of(&others), Correction::Restores(_)));
    }

    #[test]
    fn a_mark_without_a_namespace_means_the_application_of_argo_cd_itself() {
        let all = [application("team", &json!({})), application("argocd", &json!({}))];
        let namespace = |of: Option<&str>| {
            let found = find(&all, &key("Application", of)).expect("it is there");
            found.metadata.namespace.as_deref()
        };
        assert_eq!(namespace(None), Some("argocd"));
        assert_eq!(namespace(Some("team")), Some("team"));
        assert_eq!(find(&all, &key("Application", Some("other"))), None);
        let elsewhere = find(&all[..1], &key("Application", None)).expect("it is there");
        assert_eq!(elsewhere.metadata.namespace.as_deref(), Some("team"));
    }

    #[test]
    fn helm_controller_restores_where_it_detects_drift() {
        let of =
            |spec: &Value| by_release(&json!({ "spec": spec }), &key("HelmRelease", Some("infra")));
        let Correction::Restores(pause) = of(&json!({"driftDetection": {"mode": "enabled"}}))
        else {
            panic!("it corrects drift")
        };
        let patch = "kubectl patch helmrelease karpenter --namespace infra --type merge --patch \
                     '{\"spec\":{\"suspend\":";
        assert_eq!(pause.on, format!("{patch}true}}}}'"));
        assert_eq!(pause.off, format!("{patch}false}}}}'"));
        let suspended = json!({"suspend": true, "driftDetection": {"mode": "enabled"}});
        assert_eq!(of(&suspended), Correction::Paused(pause));
        for spec in [
            json!({}),
            json!({"driftDetection": {"mode": "warn"}}),
            json!({"driftDetection": {
                "mode": "enabled", "ignore": [{"paths": ["/spec/replicas"]}],
            }}),
        ] {
            assert_eq!(of(&spec), Correction::OnChange, "{spec}");
        }
    }

    #[test]
    fn kustomize_controller_restores_everything_that_is_not_exempt() {
        let key = key("Kustomization", Some("flux-system"));
        let of = |spec: &Value, annotations: &Value| {
            by_kustomization(&json!({ "spec": spec }), &key, &deployment(annotations))
        };
        let Correction::Restores(pause) = of(&json!({}), &json!({})) else {
            panic!("it restores everything")
        };
        let annotate = "kubectl annotate deployment karpenter --namespace kube-system \
                        kustomize.toolkit.fluxcd.io/reconcile";
        assert_eq!(pause.on, format!("{annotate}=disabled"));
        assert_eq!(pause.off, format!("{annotate}-"));
        assert_eq!(
            of(&json!({}), &json!({(FLUX_RECONCILES): "disabled"})),
            Correction::Paused(pause)
        );
        assert_eq!(of(&json!({}), &json!({(APPLIED): "IfNotPresent"})), Correction::OnChange);
        let Correction::Paused(pause) = of(&json!({"suspend": true}), &json!({})) else {
            panic!("it is suspended")
        };
        assert!(pause.off.starts_with("kubectl patch kustomization karpenter"), "{}", pause.off);
    }
}
