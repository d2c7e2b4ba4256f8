//! The operator at work: pods, log, lease, warnings.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, LogParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use tenon_installer_core::clock;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::lease::Place;
use tenon_installer_core::kubernetes::object::{Key, Object};
use tenon_installer_core::kubernetes::{last_words, operator_deployment};

use super::super::observed::{
    EventView, LeaderView, OperatorDeploymentView, OperatorView, PodView, Seen,
};
use super::Sources;
use super::kubernetes::{text, why};
use super::unread::Unread;

/// Enough for the last reconciliations of every kind.
const LOG_LINES: i64 = 400;
/// Older warnings are about what has changed since.
const EVENT_SECONDS: i64 = 3600;

pub(super) async fn read(sources: &Sources<'_>) -> OperatorView {
    let (Ok(target), true) = (&sources.target, sources.installed) else {
        return OperatorView::default();
    };
    let cluster = &target.cluster;
    let namespace = &sources.settings.namespace;
    let expected = sources.desired.as_ref().ok().and_then(|desired| desired.deployment());
    let name = sources.settings.values.fullname();
    let expected = expected.map_or_else(|| deployment(namespace, &name), Object::key);
    let (found, events) =
        tokio::join!(operator_deployment::find(cluster, &expected), events(cluster));
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let why = Unread::from(error);
            return OperatorView {
                pods: Err(Unread::of(&why)).into(),
                log: Err(Unread::of(&why)).into(),
                leader: Err(why).into(),
                events: events.into(),
                ..OperatorView::default()
            };
        }
    };
    let Some(found) = found else {
        return OperatorView {
            pods: Seen::Known(Vec::new()),
            log: Seen::Known(Vec::new()),
            leader: Seen::Known(None),
            events: events.into(),
            ..OperatorView::default()
        };
    };
    let namespace = found.namespace();
    let (selector, lease) = (found.selector(), found.lease());
    let (pods, leader) = tokio::join!(pods(cluster, namespace, &selector), leader(cluster, &lease));
    let log = match &pods {
        Ok(pods) => {
            log(cluster, namespace, pods, leader.as_ref().ok().and_then(Option::as_ref)).await
        }
        Err(why) => Err(Unread::of(why)),
    };
    OperatorView {
        pods: pods.into(),
        log: log.into(),
        leader: leader.into(),
        events: events.into(),
        deployment: Some(OperatorDeploymentView {
            namespace: namespace.to_owned(),
            name: found.name().to_owned(),
            managed_by: found.managed_by().map(str::to_owned),
        }),
    }
}

fn deployment(namespace: &str, name: &str) -> Key {
    Key {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    }
}

async fn pods(cluster: &Cluster, namespace: &str, selector: &str) -> Result<Vec<PodView>, Unread> {
    let api: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let found = api.list(&ListParams::default().labels(selector)).await;
    let found = found.map_err(|source| why("list", "pods", source))?;
    let json = |pod: &Pod| serde_json::to_value(pod).unwrap_or_default();
    let mut views = Vec::new();
    for pod in found.items.iter().map(json) {
        let mut view = pod_view(&pod);
        if let Some(container) = ended(&pod) {
            view.message = Some(last_words::of(cluster, namespace, &view.name, container).await);
        }
        views.push(view);
    }
    Ok(views)
}

/// The container that ended without a message of its own: its log has the reason, and what
/// Kubernetes says of it is only that it waits.
fn ended(pod: &Value) -> Option<&str> {
    let statuses = pod.pointer("/status/containerStatuses")?.as_array()?;
    let status = statuses.iter().find(|status| {
        let waits = text(status, "/state/waiting/reason");
        text(status, "/lastState/terminated/message").trim().is_empty()
            && status.pointer("/lastState/terminated").is_some_and(Value::is_object)
            && (waits.is_empty() || waits == "CrashLoopBackOff")
    });
    status?["name"].as_str()
}

fn pod_view(pod: &Value) -> PodView {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let statuses = statuses.cloned().unwrap_or_default();
    let waiting = statuses.iter().find_map(|status| status.pointer("/state/waiting"));
    let last = statuses.iter().find_map(|status| status.pointer("/lastState/terminated"));
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let message = waiting.and_then(|waiting| some(text(waiting, "/message"))).or_else(|| {
        last.and_then(|last| some(text(last, "/message")).or_else(|| some(text(last, "/reason"))))
    });
    PodView {
        name: text(pod, "/metadata/name"),
        ready: !statuses.is_empty()
            && statuses.iter().all(|status| status["ready"].as_bool() == Some(true)),
        restarts: statuses
            .iter()
            .filter_map(|status| status["restartCount"].as_i64())
            .max()
            .unwrap_or(0),
        waiting: waiting.and_then(|waiting| some(text(waiting, "/reason"))),
        message,
    }
}

async fn log(
    cluster: &Cluster,
    namespace: &str,
    pods: &[PodView],
    leader: Option<&LeaderView>,
) -> Result<Vec<String>, Unread> {
    // The leader acts; without one, any pod may say why.
    let leads = |pod: &&PodView| leader.is_some_and(|leader| leader.holder.starts_with(&pod.name));
    let Some(pod) = pods.iter().find(leads).or_else(|| pods.first()) else { return Ok(Vec::new()) };
    let api: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let params = LogParams { tail_lines: Some(LOG_LINES), ..LogParams::default() };
    let log = api.logs(&pod.name, &params).await;
    let log = log.map_err(|source| why("get", "pods/log", source))?;
    let matters =
        |line: &&str| !line.contains("\"level\":\"INFO\"") && !line.contains("\"level\":\"DEBUG\"");
    Ok(log.lines().filter(matters).map(str::to_owned).collect())
}

async fn leader(cluster: &Cluster, lease: &Place) -> Result<Option<LeaderView>, Unread> {
    let gvk = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "leases");
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client(), &lease.namespace, &resource);
    let found = api.get_opt(&lease.name).await;
    let found = found.map_err(|source| why("get", &format!("lease {lease}"), source))?;
    let Some(found) = found else { return Ok(None) };
    let found = serde_json::to_value(found).unwrap_or_default();
    let holder = text(&found, "/spec/holderIdentity");
    let renewed = text(&found, "/spec/renewTime").parse::<Timestamp>().ok();
    Ok(Some(holder).filter(|holder| !holder.is_empty()).map(|holder| LeaderView {
        holder,
        renewed_seconds_ago: renewed
            .map_or(i64::MAX, |at| clock::now().as_second() - at.as_second()),
    }))
}

async fn events(cluster: &Cluster) -> Result<Vec<EventView>, Unread> {
    let gvk = GroupVersionKind::gvk("", "v1", "Event");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "events");
    let api: Api<DynamicObject> = Api::all_with(cluster.client(), &resource);
    let found = api.list(&ListParams::default().fields("type=Warning")).await;
    let found = found.map_err(|source| why("list", "events", source))?;
    let now = clock::now().as_second();
    let json = |event: DynamicObject| serde_json::to_value(event).unwrap_or_default();
    Ok(found
        .items
        .into_iter()
        .map(json)
        .filter(|event| {
            let kind = text(event, "/involvedObject/kind");
            ["NodePool", "NodeClaim", "EC2NodeClass", "Node"].contains(&kind.as_str())
        })
        .filter(|event| {
            let times = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
            let at = times.iter().find_map(|time| text(event, time).parse::<Timestamp>().ok());
            at.is_none_or(|at| now - at.as_second() < EVENT_SECONDS)
        })
        .map(|event| EventView {
            object: format!(
                "{} {}",
                text(&event, "/involvedObject/kind"),
                text(&event, "/involvedObject/name")
            ),
            reason: text(&event, "/reason"),
            message: text(&event, "/message"),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tenon_installer_core::testing::Double;

    #[tokio::test]
    async fn a_call_that_fails_is_told_in_the_api_server_s_words() {
        let server = Double::start(&[]).await;
        let pods = [pod_view(&json!({"metadata": {"name": "karpenter-1"}}))];
        let log = log(&server.cluster(), "kube-system", &pods, None).await;
        let path = "/api/v1/namespaces/kube-system/pods/karpenter-1/log";
        assert_eq!(
            log.map_err(|why| why.to_string()),
            Err(format!("get pods/log: {path} not found"))
        );
    }

    #[tokio::test]
    async fn a_pod_that_ends_again_and_again_is_told_with_its_last_words() {
        let pod = json!({
            "metadata": {"name": "karpenter-1", "namespace": "kube-system"},
            "status": {"containerStatuses": [{
                "name": "controller", "image": "x", "imageID": "", "ready": false, "restartCount": 4,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            }]},
        });
        let said = json!({"level": "ERROR", "message": "missing field, cluster-name"});
        let path = "/api/v1/namespaces/kube-system/pods/karpenter-1";
        let log = format!("{path}/log");
        let server = Double::start(&[(path, pod), (log.as_str(), said)]).await;
        let views = pods(&server.cluster(), "kube-system", "a=b").await.expect("it answers");
        assert_eq!(views[0].message.as_deref(), Some("missing field, cluster-name"));
    }

    #[test]
    fn a_pod_that_can_not_be_started_says_why() {
        let pod = json!({
            "metadata": {"name": "karpenter-1"},
            "status": {"containerStatuses": [{
                "ready": false,
                "restartCount": 4,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            }]},
        });
        let view = pod_view(&pod);
        assert_eq!(view.waiting.as_deref(), Some("CrashLoopBackOff"));
        assert_eq!((view.ready, view.restarts), (false, 4));
        assert!(!pod_view(&json!({"metadata": {"name": "new"}})).ready);
    }
}
