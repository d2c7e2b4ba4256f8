//! What the cluster would make of objects, asked by server-side dry runs: everything is checked as
//! if it were applied, and nothing is kept.

use std::fmt;

use futures::StreamExt;
use futures::stream;
use kube::Error;
use serde_json::Value;

use super::client::{Cluster, FIELD_MANAGER, KubeError};
use super::helm;
use super::object::{Key, Object, label};

mod schema;

/// The API of the Prometheus operator, which clusters need not have.
const MONITORING: &str = "monitoring.coreos.com";

/// In the words of server-side apply, which answers so with the code of an internal error.
const MISFIT: &str = "failed to create typed patch object";

/// How many objects are tried at once.
const AT_ONCE: usize = 8;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trial {
    /// What the cluster would not take.
    pub refusals: Vec<Refusal>,
    /// What could not be tried, and why.
    pub untried: Vec<String>,
}

/// A field that the cluster would not take, or a whole object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What was applied in the dry run.
    pub object: Key,
    /// The field, if the API server names one.
    pub field: Option<String>,
    /// Why.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, message } = self;
        match field {
            Some(field) => write!(f, "{object}: {field}: {message}"),
            None => write!(f, "{object}: {message}"),
        }
    }
}

/// Tries to apply objects. Those whose type or namespace is itself among them are compared with the
/// schema of their CRD, or can't be tried yet.
pub async fn attempt(cluster: &Cluster, objects: &[&Object]) -> Trial {
    let results = stream::iter(objects)
        .map(|object| async { (*object, try_apply(cluster, object).await) })
        .buffered(AT_ONCE)
        .collect::<Vec<_>>();
    let mut trial = Trial::default();
    for (object, result) in results.await {
        if let Err(error) = result {
            judge(object, &error, objects, &mut trial);
        }
    }
    trial
}

/// As the owner that applies it.
async fn try_apply(cluster: &Cluster, object: &Object) -> Result<(), KubeError> {
    if label(&object.body, "app.kubernetes.io/managed-by") == Some(helm::MANAGED_BY) {
        // Our marks beside it are only labels and annotations.
        let (of_chart, _) = object.by_owner();
        return cluster.try_apply(&of_chart, helm::FIELD_MANAGER).await;
    }
    cluster.try_apply(object, FIELD_MANAGER).await
}

fn judge(object: &Object, error: &KubeError, all: &[&Object], trial: &mut Trial) {
    let key = object.key();
    let message = error.reason();
    if error.is_not_found() {
        if let Some(schema) = schema::of(object, all) {
            let problems = schema::problems(schema, &object.body);
            trial.refusals.extend(problems.into_iter().map(|(field, message)| Refusal {
                object: key.clone(),
                field: Some(field),
                message,
            }));
        } else if object.resource.group == MONITORING {
            let message = "the cluster does not serve this type: install the Prometheus operator first, or set \
                           serviceMonitor.enabled to false";
            trial.refusals.push(Refusal { object: key, field: None, message: message.to_owned() });
        } else if !is_planned(object, all) {
            trial.untried.push(format!("{key}: {message}"));
        }
        return;
    }
    if let Some((field, message)) = misfit(&message) {
        trial.refusals.push(Refusal { object: key, field, message });
        return;
    }
    let is_about_rights = error.is_denied() && is_rbac(&message);
    let is_unable = message.contains("does not support dry run");
    if is_about_rights || is_unable || !(error.is_invalid() || error.is_denied()) {
        // Somebody else changed it just now, or the server is overloaded: no word about the object.
        if !error.is_transient() || error.is_unreached() {
            trial.untried.push(format!("{key}: {message}"));
        }
        return;
    }
    let causes = match &*error.cause {
        Error::Api(status) => status.details.as_ref().map(|details| details.causes.as_slice()),
        _ => None,
    };
    let causes = causes.unwrap_or_default().iter().filter(|cause| !cause.message.is_empty());
    let mut refusals = causes
        .map(|cause| Refusal {
            object: key.clone(),
            field: Some(cause.field.clone()).filter(|field| !field.is_empty()),
            message: cause.message.clone(),
        })
        .collect::<Vec<_>>();
    if refusals.is_empty() {
        refusals.push(Refusal { object: key, field: None, message });
    }
    trial.refusals.extend(refusals);
}

/// The field that does not fit the object's type, if the API server names it, and why.
fn misfit(message: &str) -> Option<(Option<String>, String)> {
    let (_, after) = message.split_once(MISFIT)?;
    let (_, why) = after.split_once("): ")?;
    let of_field = why.strip_prefix('.').and_then(|why| why.split_once(": "));
    Some(match of_field {
        Some((field, why)) => (Some(field.to_owned()), why.to_owned()),
        None => (None, why.to_owned()),
    })
}

/// Whether its namespace is to be created with it.
fn is_planned(object: &Object, all: &[&Object]) -> bool {
    object.namespace.as_ref().is_some_and(|namespace| {
        all.iter().any(|other| other.resource.kind == "Namespace" && other.name == *namespace)
    })
}

/// Whether RBAC is what refuses, and no admission policy.
fn is_rbac(message: &str) -> bool {
    ["is forbidden: User ", "is attempting to grant RBAC permissions"]
        .iter()
        .any(|text| message.contains(text))
}

/// A value's text without quotes, for messages.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn object(body: Value, plural: &str) -> Object {
        Object::from_json(body, plural)
    }

    fn deployment() -> Object {
        let metadata = json!({"name": "karpenter", "namespace": "kube-system"});
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata});
        object(body, "deployments")
    }

    fn answer(code: u16, message: &str, causes: &[(&str, &str)]) -> KubeError {
        let causes = causes.iter().map(|(field, message)| {
            json!({"reason": "FieldValueInvalid", "field": field, "message": message})
        });
        let details = json!({"causes": causes.collect::<Vec<_>>()});
        let status = json!({"code": code, "message": message, "details": details});
        let status: Status = serde_json::from_value(status).expect("a status");
        super::super::client::failed("patch", "x".to_owned(), Error::Api(Box::new(status)))
    }

    fn judged(object: &Object, error: &KubeError, all: &[&Object]) -> (Vec<String>, Vec<String>) {
        let mut trial = Trial::default();
        judge(object, error, all, &mut trial);
        (trial.refusals.iter().map(ToString::to_string).collect(), trial.untried)
    }

    #[test]
    fn a_refusal_names_object_field_and_cause() {
        let causes =
            [("spec.replicas", "must be greater than 0"), ("spec.selector", "is immutable")];
        let (refusals, untried) = judged(&deployment(), &answer(422, "is invalid", &causes), &[]);
        assert_eq!(
            refusals,
            [
                "Deployment kube-system/karpenter: spec.replicas: must be greater than 0",
                "Deployment kube-system/karpenter: spec.selector: is immutable",
            ]
        );
        assert_eq!(untried, Vec::<String>::new());
    }

    #[test]
    fn what_does_not_fit_its_type_is_a_refusal() {
        let of = |why: &str| {
            let object = "(kube-system/karpenter; apps/v1, Kind=Deployment)";
            let message = format!("failed to create typed patch object {object}: {why}");
            judged(&deployment(), &answer(500, &message, &[]), &[]).0
        };
        let list = r#"spec.template.spec.containers[name="controller"].env"#;
        assert_eq!(
            of(&format!(".{list}: duplicate entries for key [name=\"A\"]")),
            [format!(
                "Deployment kube-system/karpenter: {list}: duplicate entries for key [name=\"A\"]"
            )]
        );
        assert_eq!(
            of("errors:\n  .spec.a: x\n  .spec.b: y"),
            ["Deployment kube-system/karpenter: errors:\n  .spec.a: x\n  .spec.b: y"]
        );
    }

    #[test]
    fn what_an_admission_policy_denies_is_a_refusal_and_what_rbac_denies_is_not() {
        let policy = "deployments.apps \"karpenter\" is forbidden: ValidatingAdmissionPolicy 'p' \
                      with binding 'b' denied request: no images of other registries";
        let (refusals, _) = judged(&deployment(), &answer(403, policy, &[]), &[]);
        assert_eq!(refusals, [format!("Deployment kube-system/karpenter: {policy}")]);
        for rbac in [
            "deployments.apps \"karpenter\" is forbidden: User \"dev\" cannot patch resource",
            "clusterroles \"x\" is forbidden: user \"dev\" (groups=[a]) is attempting to grant \
             RBAC permissions not currently held",
        ] {
            let (refusals, untried) = judged(&deployment(), &answer(403, rbac, &[]), &[]);
            assert_eq!((refusals.len(), untried.len()), (0, 1), "{rbac}");
        }
    }

    #[test]
    fn what_the_plan_itself_brings_is_no_obstacle() {
        let missing = answer(404, "namespaces \"nodes\" not found", &[]);
        let mut wanted = deployment();
        wanted.namespace = Some("nodes".to_owned());
        assert_eq!(judged(&wanted, &missing, &[]).1.len(), 1);
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nodes"}});
        let namespace = object(namespace, "namespaces");
        assert_eq!(judged(&wanted, &missing, &[&namespace]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn without_its_crd_an_object_is_compared_with_the_schema_that_the_plan_installs() {
        let crds = crate::kubernetes::crds::objects();
        let all = crds.iter().collect::<Vec<_>>();
        let pool = |limits: Value, policy: &str| {
            let reference =
                json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
            object(
                json!({
                    "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
                    "spec": {
                        "limits": limits,
                        "disruption": {"consolidationPolicy": policy, "consolidateAfter": "1m"},
                        "template": {"spec": {"nodeClassRef": reference, "requirements": []}},
                    },
                }),
                "nodepools",
            )
        };
        let missing = answer(404, "404 page not found", &[]);
        let good = pool(json!({"cpu": "10", "memory": 1}), "WhenEmpty");
        assert_eq!(judged(&good, &missing, &all), (Vec::new(), Vec::new()));
        let mut bad = pool(json!({"cpu": true}), "Never");
        bad.body["spec"]["weigth"] = 1.into();
        bad.body["spec"]["template"]["spec"].as_object_mut().expect("a map").remove("nodeClassRef");
        let (refusals, _) = judged(&bad, &missing, &all);
        for expected in [
            "NodePool default: spec.limits.cpu: must be",
            "NodePool default: spec.disruption.consolidationPolicy: \"Never\" is not allowed",
            "NodePool default: spec.weigth: is not a field",
            "NodePool default: spec.template.spec.nodeClassRef: is required",
        ] {
            assert!(
                refusals.iter().any(|line| line.starts_with(expected)),
                "{expected}: {refusals:#?}"
            );
        }
        assert_eq!(refusals.len(), 4, "{refusals:#?}");
    }
}
