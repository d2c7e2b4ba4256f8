//! Nodes of other tools that are emptied: cordoned, their pods evicted, their instances terminated.
//!
//! A pod is evicted as its PodDisruptionBudgets allow. One without a budget is evicted only while
//! all other pods of its controller are ready, so that never more than one of them is missing. The
//! instance ends once the pods that were evicted run elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use tenon_crds::{labels, selector};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Context, Progress, groups, patch, wait};
use crate::failure::Failure;
use crate::kubernetes::client::Eviction;
use crate::kubernetes::object::{Key, Object};
use crate::kubernetes::resources;
use crate::ownership::CORDONED_BY;
use crate::plan::NodeMove;
use crate::words::count;

/// By which Cluster Autoscaler knows pods that must not be evicted, with the value `false`.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// How often the pods of a node are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// How long a controller that has fewer pods than before may take to start another one: it may
/// have been scaled down, and then there is none to wait for.
const SETTLED: Duration = Duration::from_secs(15);

/// Whether a pod has a place and must be ready may be asked of several nodes at once: between the
/// answer and the eviction no other pod may be evicted.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn node(name: &str) -> Object {
    let resource = resources::nodes();
    let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
    Object::at(&resource, &Key { api_version, kind, namespace: None, name: name.to_owned() })
}

/// Keeps new pods off nodes. One that is cordoned already is not marked as ours.
pub(super) async fn cordon(
    context: &Context,
    nodes: &[String],
    install_id: &str,
) -> Result<(), Failure> {
    for name in nodes {
        let object = node(name);
        let live = context.cluster.get(&object.resource, &object.key()).await?;
        let Some(live) = live.filter(|live| live["spec"]["unschedulable"] != true) else {
            continue;
        };
        let body = json!({
            "metadata": {
                "annotations": {CORDONED_BY: install_id},
                // Of another Node with this name nothing is known.
                "uid": live["metadata"]["uid"],
            },
            "spec": {"unschedulable": true},
        });
        patch(context, &object, &body).await?;
    }
    Ok(())
}

/// Lets pods onto nodes again.
pub(super) async fn uncordon(context: &Context, nodes: &[String]) -> Result<(), Failure> {
    let body = json!({
        "metadata": {"annotations": {CORDONED_BY: null}},
        "spec": {"unschedulable": false},
    });
    for name in nodes {
        let object = node(name);
        if context.cluster.get(&object.resource, &object.key()).await?.is_some() {
            patch(context, &object, &body).await?;
        }
    }
    Ok(())
}

/// Why a pod should not be evicted as things are; none for one that may be.
pub fn protection(pod: &Pod) -> Option<&'static str> {
    let has = |key: &str, value: &str| pod.annotations().get(key).is_some_and(|it| it == value);
    if has(SAFE_TO_EVICT, "false") {
        Some("it is annotated safe-to-evict: \"false\"")
    } else if has(labels::DO_NOT_DISRUPT, "true") {
        Some("it is annotated do-not-disrupt: \"true\"")
    } else if controller(pod).is_none() {
        Some("no controller would start it again")
    } else {
        None
    }
}

/// Pods of DaemonSets and static pods stay with their node; ended ones hold nothing.
pub fn must_leave(pod: &Pod) -> bool {
    let of_node = controller(pod).is_some_and(|it| matches!(&*it.kind, "DaemonSet" | "Node"));
    let is_static = pod.annotations().contains_key("kubernetes.io/config.mirror");
    !of_node && !is_static && !has_ended(pod)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.owner_references().iter().find(|owner| owner.controller == Some(true))
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    !is_going(pod) && conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// The pods of a controller, and how many of them should be ready.
struct Replicas {
    namespace: String,
    uid: String,
    name: String,
    n: usize,
}

/// What is known of a node while it is emptied.
struct Emptying<'a> {
    context: &'a Context,
    asked: &'a NodeMove,
    name: &'a str,
    /// Controllers whose pods were evicted, by UID.
    evicted: BTreeMap<String, Replicas>,
    /// Since when each pod, by UID, should have gone.
    since: BTreeMap<String, Instant>,
}

/// Empties a node and terminates its instance. Repeated, it continues with what is left.
pub(super) async fn empty(
    context: &Context,
    asked: &NodeMove,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    if !groups::has(&context.aws, &asked.group, &asked.instance).await? {
        return Ok(());
    }
    if let Some(name) = node_of(context, asked).await? {
        let (evicted, since) = (BTreeMap::new(), BTreeMap::new());
        // One that joined after the plan was made takes pods still.
        cordon(context, std::slice::from_ref(&name), &context.install_id).await?;
        let mut emptying = Emptying { context, asked, name: &name, evicted, since };
        emptying.evict_all(progress).await?;
        emptying.await_replacements(progress).await?;
    }
    groups::terminate(&context.aws, &asked.group, &asked.instance).await
}

/// The node that an instance is now: it may have joined since the plan was made, or again under
/// another name. Only the server's list proves that it is none.
async fn node_of(context: &Context, asked: &NodeMove) -> Result<Option<String>, Failure> {
    let is_it = |node: &Node| {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        id.is_some_and(|id| id.rsplit('/').next() == Some(asked.instance.as_str()))
    };
    if let Some(name) = &asked.node {
        let object = node(name);
        let live = context.cluster.get(&object.resource, &object.key()).await?;
        let live = live.and_then(|live| serde_json::from_value::<Node>(live).ok());
        if live.is_some_and(|node| is_it(&node)) {
            return Ok(Some(name.clone()));
        }
    }
    let nodes: Vec<Node> = context.cluster.all().await?;
    Ok(nodes.iter().find(|node| is_it(node)).map(ResourceExt::name_any))
}

impl Emptying<'_> {
    async fn pods(&self) -> Result<Vec<Pod>, Failure> {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={}", self.name));
        let listed = self.context.cluster.pods(&format!("pods on {}", self.name), &on_node).await?;
        Ok(listed.into_iter().filter(must_leave).collect())
    }

    async fn evict_all(&mut self, progress: &dyn Progress) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs(self.asked.seconds);
        let told = wait::LastReport::default();
        loop {
            let left = self.pods().await?;
            if left.is_empty() {
                return Ok(());
            }
            let budgets: Vec<PodDisruptionBudget> = self.context.cluster.all().await?;
            let mut waits = BTreeSet::new();
            for pod in &left {
                let path = path(pod);
                if is_going(pod) {
                    // For as long as it takes to end.
                    waits.insert(format!("{path}: it is terminating"));
                    continue;
                }
                let Some(why) = self.evict(pod, &budgets).await? else { continue };
                let since = self.since.entry(pod.uid().unwrap_or_default());
                if since.or_insert_with(Instant::now).elapsed().as_secs() >= self.asked.pod_seconds
                {
                    return Err(self.stuck(format!("pod {path}: {why}")));
                }
                waits.insert(format!("{path}: {why}"));
            }
            let first = waits.first().map_or_else(String::new, |first| format!("; {first}"));
            let report = format!("{} left{first}", count(left.len(), "pod"));
            if Instant::now() >= end {
                return Err(self.stuck(report));
            }
            if told.is_new(&report) {
                progress.note(&format!("   {}: {report}", self.name));
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn stuck(&self, last: String) -> Failure {
        Failure::Wait { what: format!("pods to leave node {}", self.name), last }
    }

    /// Asks a pod to go; answers why it does not go yet.
    async fn evict(
        &mut self,
        pod: &Pod,
        budgets: &[PodDisruptionBudget],
    ) -> Result<Option<String>, Failure> {
        if !self.asked.is_forced
            && let Some(why) = protection(pod)
        {
            return Ok(Some(why.to_owned()));
        }
        let _guard = ONE_AT_A_TIME.lock().await;
        if let Some(owner) = controller(pod).filter(|owner| owner.kind != "Job") {
            let namespace = pod.namespace().unwrap_or_default();
            let siblings = self.siblings(&namespace, &owner.uid).await?;
            let missing = siblings.iter().filter(|other| !is_ready(other)).count();
            // One that is not ready itself is missing already.
            if missing > 0 && is_ready(pod) && !has_budget(pod, budgets) {
                let are = if missing == 1 { "is" } else { "are" };
                return Ok(Some(format!("{missing} of its controller's pods {are} not ready")));
            }
            self.evicted.entry(owner.uid.clone()).or_insert_with(|| Replicas {
                namespace,
                uid: owner.uid.clone(),
                name: format!("{} {}", owner.kind, owner.name),
                n: siblings.iter().filter(|other| is_ready(other)).count(),
            });
        }
        match self.context.cluster.evict(pod).await {
            Ok(Eviction::Accepted | Eviction::Gone) => Ok(None),
            Ok(Eviction::Refused(why)) => Ok(Some(why)),
            Err(error) if error.is_transient() => Ok(Some(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The pods of a controller that have not ended.
    async fn siblings(&self, namespace: &str, uid: &str) -> Result<Vec<Pod>, Failure> {
        let what = format!("pods of {namespace}");
        let of_namespace = ListParams::default().fields(&format!("metadata.namespace={namespace}"));
        let listed = self.context.cluster.pods(&what, &of_namespace).await?;
        let of_controller =
            |pod: &Pod| controller(pod).is_some_and(|owner| owner.uid == uid) && !has_ended(pod);
        Ok(listed.into_iter().filter(of_controller).collect())
    }

    /// Waits until the pods that were evicted are ready elsewhere: as long as they are not, the
    /// node can be uncordoned.
    async fn await_replacements(&self, progress: &dyn Progress) -> Result<(), Failure> {
        let told = wait::LastReport::default();
        for replicas in self.evicted.values() {
            let at_most = Duration::from_secs(self.asked.seconds);
            let began = Instant::now();
            let what = format!("the pods of {} {} to be ready", replicas.namespace, replicas.name);
            wait::until(&what, at_most, EVERY, || async {
                let pods = self.siblings(&replicas.namespace, &replicas.uid).await?;
                let ready = pods.iter().filter(|pod| is_ready(pod)).count();
                let is_settled = began.elapsed() >= SETTLED && pods.len() == ready;
                if ready >= replicas.n || is_settled {
                    return Ok(Ok(()));
                }
                let report = format!("{ready} of {} ready", count(replicas.n, "pod"));
                if told.is_new(&report) {
                    progress.note(&format!("   {}: {report}", replicas.name));
                }
                Ok(Err(report))
            })
            .await?;
        }
        Ok(())
    }
}

fn path(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Whether a PodDisruptionBudget selects a pod.
fn has_budget(pod: &Pod, budgets: &[PodDisruptionBudget]) -> bool {
    let mut selectors = budgets.iter().filter(|budget| budget.namespace() == pod.namespace());
    selectors.any(|budget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| selector::selects(selector, pod.labels()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::aws::Aws;
    use crate::testing::Double;

    fn pod(annotations: &Value, owner: Option<&str>) -> Pod {
        let owner = owner.map(|kind| {
            json!({"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true})
        });
        let owners = owner.into_iter().collect::<Vec<_>>();
        let metadata = json!({"annotations": annotations, "ownerReferences": owners});
        serde_json::from_value(json!({"metadata": metadata})).expect("a pod")
    }

    #[test]
    fn pods_that_an_eviction_would_lose_are_protected() {
        let none = json!({});
        assert_eq!(protection(&pod(&none, Some("ReplicaSet"))), None);
        assert!(protection(&pod(&none, None)).is_some_and(|why| why.contains("no controller")));
        for (key, value) in [(SAFE_TO_EVICT, "false"), (labels::DO_NOT_DISRUPT, "true")] {
            let protected = pod(&json!({key: value}), Some("ReplicaSet"));
            assert!(protection(&protected).is_some_and(|why| why.contains(value)), "{key}");
            let other = pod(&json!({key: "else"}), Some("ReplicaSet"));
            assert_eq!(protection(&other), None, "{key}");
        }
    }

    #[tokio::test]
    async fn an_instance_that_joined_after_the_plan_was_made_is_found() {
        let joined = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "late"},
            "spec": {"providerID": "aws:///eu-central-1a/i-1"},
        });
        let list = json!({
            "apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": [joined],
        });
        let paths = [("/api/v1/nodes", list), ("/api/v1/nodes/late", joined)];
        let server = Double::start(&paths).await;
        let context = Context {
            aws: Aws::nowhere(),
            cluster: server.cluster(),
            cluster_name: "prod".to_owned(),
            install_id: "abcd0123".to_owned(),
        };
        let of = async |instance: &str, node: Option<&str>| {
            let asked = NodeMove {
                group: "workers".to_owned(),
                instance: instance.to_owned(),
                node: node.map(str::to_owned),
                is_forced: false,
                pod_seconds: 1,
                seconds: 1,
            };
            node_of(&context, &asked).await.expect("it answers")
        };
        for planned in [None, Some("late"), Some("before")] {
            assert_eq!(of("i-1", planned).await.as_deref(), Some("late"), "{planned:?}");
            assert_eq!(of("i-2", planned).await, None, "{planned:?}");
        }
    }

    #[test]
    fn pods_that_belong_to_their_node_need_not_leave_it() {
        let none = json!({});
        assert!(must_leave(&pod(&none, None)));
        assert!(must_leave(&pod(&none, Some("ReplicaSet"))));
        assert!(!must_leave(&pod(&none, Some("DaemonSet"))));
        assert!(!must_leave(&pod(&json!({"kubernetes.io/config.mirror": "x"}), Some("Node"))));
        let mut ended = pod(&none, Some("Job"));
        ended.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        assert!(!must_leave(&ended));
    }
}
