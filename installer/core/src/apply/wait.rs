//! Waiting for conditions, with the reason shown that is seen meanwhile.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::Value;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::kubernetes::client::{Cluster, KubeError};
use crate::kubernetes::last_words;
use crate::kubernetes::object::Object;
use crate::words::count_are;

/// For how long a call is repeated that fails for a passing reason.
#[derive(Debug, Clone, Copy)]
pub struct Tries {
    until: Instant,
}

impl Tries {
    /// From now on.
    pub fn seconds(seconds: u64) -> Self {
        Self { until: Instant::now() + Duration::from_secs(seconds) }
    }
}

/// Repeats a call to Kubernetes while it fails for a passing reason: a conflict, overload, a server
/// that restarts, a type that is not served yet.
pub async fn transient<T, F>(tries: Tries, mut call: impl FnMut() -> F) -> Result<T, KubeError>
where
    F: Future<Output = Result<T, KubeError>>,
{
    let mut pause = Duration::from_millis(200);
    loop {
        match call().await {
            // 404 on a patch: the CRD is established, but not every API server serves it yet.
            Err(error)
                if (error.is_transient() || error.is_not_found())
                    && Instant::now() + pause < tries.until =>
            {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(3));
            }
            result => return result,
        }
    }
}

/// Asks again and again until the answer is `Ok(())`; an `Err` says what is still missing.
pub async fn until<F>(
    what: &str,
    at_most: Duration,
    every: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<Result<(), String>, Failure>>,
{
    let end = Instant::now() + at_most;
    loop {
        match probe().await? {
            Ok(()) => return Ok(()),
            Err(last) if Instant::now() >= end => {
                return Err(Failure::Wait { what: what.to_owned(), last });
            }
            Err(_) => tokio::time::sleep(every).await,
        }
    }
}

/// What was said last about something that is waited for, so that it is said again only when it has
/// changed.
#[derive(Debug, Default)]
pub struct LastReport(Mutex<String>);

impl LastReport {
    /// Whether this is news. From then on it is not.
    pub fn is_new(&self, text: &str) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *last != text;
        if is_new {
            text.clone_into(&mut last);
        }
        is_new
    }
}

/// The status and message of a condition.
pub fn condition<'a>(body: &'a Value, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = body.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
    Some((text("status"), text("reason"), text("message")))
}

/// Since when a condition has the status that it has.
fn since<'a>(body: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = body.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    found["lastTransitionTime"].as_str()
}

/// Waits until a CRD is served.
pub(crate) async fn established(cluster: &Cluster, crd: &Object) -> Result<(), Failure> {
    until(
        &format!("{} to be served", crd.name),
        Duration::from_mins(1),
        Duration::from_millis(100),
        || async {
            let live = cluster.get(&crd.resource, &crd.key()).await?.unwrap_or_default();
            let is = |kind: &str| matches!(condition(&live, kind), Some(("True", _, _)));
            if is("Established") && is("NamesAccepted") {
                return Ok(Ok(()));
            }
            let why = condition(&live, "NamesAccepted")
                .map_or("no conditions yet", |(_, _, message)| message);
            Ok(Err(why.to_owned()))
        },
    )
    .await
}

/// What is still missing until a Deployment serves, or `None`.
pub fn deployment_lacks(live: Option<&Value>) -> Option<String> {
    let Some(live) = live else { return Some("there is no Deployment".to_owned()) };
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let wanted = number("/spec/replicas");
    if number("/status/observedGeneration") < number("/metadata/generation") {
        return Some("its controller has not processed it yet".to_owned());
    }
    let (updated, available) =
        (number("/status/updatedReplicas"), number("/status/availableReplicas"));
    if updated < wanted || available < wanted || number("/status/replicas") > wanted {
        return Some(format!(
            "{available} of {} available, {updated} up to date",
            count_are(usize::try_from(wanted).unwrap_or_default(), "pod")
        ));
    }
    None
}

/// What is still missing until an object's `Ready` condition is true, or `None`.
pub fn readiness_lacks(live: Option<&Value>) -> Option<String> {
    match live.map(|live| condition(live, "Ready")) {
        None => Some("it does not exist".to_owned()),
        Some(None) => Some("the operator has not processed it yet".to_owned()),
        Some(Some(("True", _, _))) => None,
        Some(Some((_, reason, message))) => {
            let said = [reason, message].into_iter().filter(|text| !text.is_empty());
            let said = said.collect::<Vec<_>>().join(": ");
            // Not how long ago: it is told again when it changes.
            let since = live.and_then(|live| since(live, "Ready"));
            Some(since.map_or_else(|| said.clone(), |since| format!("{said} (since {since})")))
        }
    }
}

/// How often a container may end before waiting for it is given up.
const RESTARTS: i32 = 3;

/// What the pods of a Deployment say about themselves, when it does not get ready.
pub async fn pods_in_trouble(cluster: &Cluster, object: &Object) -> Option<String> {
    in_trouble(cluster, &pods(cluster, object).await?).await
}

/// The same, if one of them ends again and again.
pub(crate) async fn pods_that_crash(cluster: &Cluster, object: &Object) -> Option<String> {
    let crashes = |pod: &Pod| {
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_deref());
        containers.unwrap_or_default().iter().any(|container| {
            !container.ready
                && container.restart_count >= RESTARTS
                && container.state.as_ref().is_some_and(|state| state.waiting.is_some())
        })
    };
    let mut pods = pods(cluster, object).await?;
    pods.retain(crashes);
    in_trouble(cluster, &pods).await
}

/// What is wrong with these pods, in their own words. Each thing once: replicas tend to fail alike.
async fn in_trouble(cluster: &Cluster, pods: &[Pod]) -> Option<String> {
    let mut lines = Vec::new();
    for pod in pods {
        for trouble in troubles(cluster, pod).await {
            if !lines.iter().any(|(_, known)| *known == trouble) {
                lines.push((pod.metadata.name.clone().unwrap_or_default(), trouble));
            }
        }
    }
    let lines = lines.into_iter().map(|(name, trouble)| format!("{name}: {trouble}"));
    let lines = lines.collect::<Vec<_>>();
    (!lines.is_empty()).then(|| lines.join("; "))
}

async fn pods(cluster: &Cluster, object: &Object) -> Option<Vec<Pod>> {
    if object.resource.kind != "Deployment" {
        return None;
    }
    let labels = object.body.pointer("/spec/selector/matchLabels")?.as_object()?;
    let selector = labels
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect::<Vec<_>>()
        .join(",");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), object.namespace.as_deref()?);
    Some(pods.list(&ListParams::default().labels(&selector)).await.ok()?.items)
}

async fn troubles(cluster: &Cluster, pod: &Pod) -> Vec<String> {
    let mut lines = Vec::new();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let Some(status) = &pod.status else { return lines };
    for condition in status.conditions.iter().flatten() {
        if condition.status != "True" && condition.type_ == "PodScheduled" {
            lines.push(condition.message.clone().unwrap_or_default());
        }
    }
    for container in status.container_statuses.iter().flatten() {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let ended = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        if let Some(waiting) = waiting {
            // The message of a back-off names the pod and nothing else.
            let reason = waiting.reason.as_deref().unwrap_or_default();
            let message = waiting.message.as_deref().filter(|_| reason != "CrashLoopBackOff");
            lines.push(format!("{reason} {}", message.unwrap_or_default()).trim().to_owned());
        }
        if let Some(ended) = ended {
            let said = ended.message.clone().filter(|message| !message.trim().is_empty());
            let said = match said {
                Some(message) => message,
                None => last_words::of(cluster, namespace, name, &container.name).await,
            };
            lines.push(format!("last ended with code {}: {}", ended.exit_code, said.trim()));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pods_that_end_are_told_with_their_own_last_words_and_once_for_all_replicas() {
        use crate::testing::Double;
        use serde_json::json;
        let path = "/api/v1/namespaces/kube-system/pods";
        let pod = |name: &str| {
            json!({
                "metadata": {"name": name, "namespace": "kube-system"},
                "status": {"containerStatuses": [{
                    "name": "controller", "image": "x", "imageID": "", "ready": false, "restartCount": 4,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                    "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
                }]},
            })
        };
        let said = json!({"level": "ERROR", "message": "missing field, cluster-name"});
        let paths = ["tenon-a", "tenon-b"].map(|name| (name, format!("{path}/{name}")));
        let logs = paths.clone().map(|(_, path)| format!("{path}/log"));
        let mut objects = Vec::new();
        for ((name, path), log) in paths.iter().zip(&logs) {
            objects.push((path.as_str(), pod(name)));
            objects.push((log.as_str(), said.clone()));
        }
        let server = Double::start(&objects).await;
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "tenon", "namespace": "kube-system"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}},
        });
        let deployment = Object::from_json(body, "deployments");
        let trouble = pods_that_crash(&server.cluster(), &deployment).await;
        assert_eq!(
            trouble.as_deref(),
            Some(
                "tenon-a: CrashLoopBackOff; tenon-a: last ended with code 1: missing field, cluster-name"
            )
        );
    }

    #[test]
    fn what_is_not_ready_says_since_when() {
        use serde_json::json;
        let class = json!({"status": {"conditions": [{
            "type": "Ready", "status": "False", "reason": "UnreadyConditions", "message": "SubnetsReady=False",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}});
        assert_eq!(
            readiness_lacks(Some(&class)).as_deref(),
            Some("UnreadyConditions: SubnetsReady=False (since 2026-01-01T00:00:00Z)")
        );
    }

    #[test]
    fn what_is_waited_for_is_told_once_until_it_changes() {
        let told = LastReport::default();
        let lines = ["0 of 2", "0 of 2", "1 of 2", "1 of 2", "0 of 2"];
        let news = lines.into_iter().filter(|line| told.is_new(line)).collect::<Vec<_>>();
        assert_eq!(news, ["0 of 2", "1 of 2", "0 of 2"]);
    }
}
