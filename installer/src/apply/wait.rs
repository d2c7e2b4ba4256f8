//! Waiting for conditions, with the reason shown that is seen meanwhile.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::Value;
use tokio::time::Instant;

use crate::errors::{ExpectedError, Failure};
use crate::kubernetes::client::{Cluster, KubeError};
use crate::kubernetes::object::Object;
use crate::printer::Printer;

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

/// Repeats a call to Kubernetes while it fails for a passing reason: a conflict, overload, a server that restarts, a type that is not served yet.
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

/// What was said last about something that is waited for, so that it is said again only when it has changed.
#[derive(Debug, Default)]
pub struct Told(Mutex<String>);

impl Told {
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

/// Waits until a CRD is served.
pub async fn established(cluster: &Cluster, crd: &Object) -> Result<(), Failure> {
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
        return Some("its controller has not seen it yet".to_owned());
    }
    let (updated, available) =
        (number("/status/updatedReplicas"), number("/status/availableReplicas"));
    if updated < wanted || available < wanted || number("/status/replicas") > wanted {
        return Some(format!(
            "{available} of {wanted} pods are available, {updated} are up to date"
        ));
    }
    None
}

/// What is still missing until an object's `Ready` condition is true, or `None`.
pub fn readiness_lacks(live: Option<&Value>) -> Option<String> {
    match live.map(|live| condition(live, "Ready")) {
        None => Some("it does not exist".to_owned()),
        Some(None) => Some("the operator has not looked at it yet".to_owned()),
        Some(Some(("True", _, _))) => None,
        Some(Some((_, reason, message))) => Some(
            [reason, message]
                .iter()
                .filter(|text| !text.is_empty())
                .copied()
                .collect::<Vec<_>>()
                .join(": "),
        ),
    }
}

/// Waits until an object lacks nothing, and tells what it lacks whenever that changes.
pub async fn until_object(
    cluster: &Cluster,
    object: &Object,
    lacks: fn(Option<&Value>) -> Option<String>,
    end: Instant,
    printer: &Printer,
) -> Result<(), ExpectedError> {
    let began = Instant::now();
    let what = object.key().to_string();
    let told = Told::default();
    loop {
        let missing = match cluster.get(&object.resource, &object.key()).await {
            Ok(live) => lacks(live.as_ref()),
            // The API server may restart while we wait.
            Err(error) if error.is_transient() => Some(error.to_string()),
            Err(error) => return Err(ExpectedError::Observe(error.into())),
        };
        let Some(missing) = missing else {
            printer.done(&what, "ready", began.elapsed());
            return Ok(());
        };
        if told.is_new(&missing) {
            printer.note(&format!("   {what}: {missing}"));
        }
        if Instant::now() >= end {
            let seconds = began.elapsed().as_secs();
            return Err(ExpectedError::Timeout {
                what,
                seconds,
                last: pods_in_trouble(cluster, object).await.unwrap_or(missing),
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// How often a container may end before waiting for it is given up.
const RESTARTS: i32 = 3;

/// What the pods of a Deployment say about themselves, when it does not get ready.
pub async fn pods_in_trouble(cluster: &Cluster, object: &Object) -> Option<String> {
    let lines = pods(cluster, object).await?.iter().flat_map(troubles).collect::<Vec<_>>();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// The same, if one of them ends again and again.
pub async fn pods_that_crash(cluster: &Cluster, object: &Object) -> Option<String> {
    let crashes = |pod: &Pod| {
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_deref());
        containers.unwrap_or_default().iter().any(|container| {
            !container.ready
                && container.restart_count >= RESTARTS
                && container.state.as_ref().is_some_and(|state| state.waiting.is_some())
        })
    };
    let pods = pods(cluster, object).await?;
    let lines = pods.iter().filter(|pod| crashes(pod)).flat_map(troubles).collect::<Vec<_>>();
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

fn troubles(pod: &Pod) -> Vec<String> {
    let mut lines = Vec::new();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let Some(status) = &pod.status else { return lines };
    for condition in status.conditions.iter().flatten() {
        if condition.status != "True" && condition.type_ == "PodScheduled" {
            lines.push(format!("{name}: {}", condition.message.as_deref().unwrap_or_default()));
        }
    }
    for container in status.container_statuses.iter().flatten() {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let ended = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        if let Some(waiting) = waiting {
            lines.push(format!(
                "{name}: {} {}",
                waiting.reason.as_deref().unwrap_or_default(),
                waiting.message.as_deref().unwrap_or_default()
            ));
        }
        if let Some(ended) = ended {
            lines.push(format!(
                "{name}: last ended with code {}: {}",
                ended.exit_code,
                ended.message.as_deref().unwrap_or_default()
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_told_once_until_it_changes() {
        let told = Told::default();
        let lines = ["0 of 2", "0 of 2", "1 of 2", "1 of 2", "0 of 2"];
        let news = lines.into_iter().filter(|line| told.is_new(line)).collect::<Vec<_>>();
        assert_eq!(news, ["0 of 2", "1 of 2", "0 of 2"]);
    }
}
