use parking_lot::Mutex;
use serde_json::Value;
use tenon_crds::labels::LabelRules;

use super::*;
use crate::kwok::Kwok;
use crate::state::change::{Change, Object};
use crate::state::cluster::Cluster;
use crate::testing::{ApiServer, Request, operator};

/// A Node that is being deleted and kept from new pods.
fn going() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "n", "uid": "2", "resourceVersion": "1",
            "deletionTimestamp": "1970-01-01T00:00:00Z",
            "finalizers": [labels::TERMINATION_FINALIZER],
            "labels": {
                "karpenter.kwok.sh/kwoknodeclass": "default",
                EXCLUDE_FROM_LOAD_BALANCERS: "karpenter",
            },
        },
        "spec": {
            "providerID": "kwok://n",
            "taints": [{"key": labels::DISRUPTED_TAINT, "effect": "NoSchedule"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Its NodeClaim, which has been draining for as long as a drain takes at least.
fn draining() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": "a", "uid": "1", "resourceVersion": "1",
            "deletionTimestamp": "1970-01-01T00:00:00Z",
            "finalizers": [labels::TERMINATION_FINALIZER],
            "labels": {labels::NODEPOOL: "default"},
        },
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        },
        "status": {
            "providerID": "kwok://n", "nodeName": "n",
            "conditions": [{
                "type": DRAINED, "status": "Unknown", "reason": "Draining", "message": "Draining",
                "lastTransitionTime": "1969-12-31T23:59:00Z",
            }],
        },
    })
}

fn pod(name: &str, phase: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "uid": name},
        "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": phase},
    })
}

/// What the API server has: pods on the node, and NodeClaims.
#[derive(Clone, Default)]
struct Objects {
    pods: Arc<Mutex<Vec<Value>>>,
    claims: Arc<Mutex<Vec<Value>>>,
}

impl Objects {
    fn answer(&self, request: &Request) -> (u16, Value) {
        let list = |kind: &str, items: &Mutex<Vec<Value>>| {
            let items = items.lock().clone();
            (200, json!({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": items}))
        };
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/api/v1/pods") => list("PodList", &self.pods),
            ("GET", "/apis/karpenter.sh/v1/nodeclaims") => list("NodeClaimList", &self.claims),
            ("PATCH", "/api/v1/nodes/n") => (200, going()),
            ("PATCH", "/apis/karpenter.sh/v1/nodeclaims/a/status") => {
                let mut claim = draining();
                claim["status"] = request.body["status"].clone();
                (200, claim)
            }
            ("DELETE", "/api/v1/nodes/n") => (
                404,
                json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}),
            ),
            other => panic!("{other:?}"),
        }
    }
}

/// An operator whose state knows these objects, and no pod.
fn cold(
    objects: &Objects,
    known: impl IntoIterator<Item = Object>,
) -> (ApiServer, Arc<Operator<Kwok>>) {
    let answering = objects.clone();
    let server = ApiServer::answering(move |request| answering.answer(request));
    let mut cluster = Cluster::new(crate::testing::KINDS, LabelRules::core());
    for object in known {
        cluster.apply(Change::Applied(object));
    }
    let (operator, _) = operator(&server, cluster);
    (server, operator)
}

fn node() -> Object {
    Object::Node(Box::new(serde_json::from_value(going()).unwrap()))
}

fn claim() -> Object {
    Object::NodeClaim(Box::new(serde_json::from_value(draining()).unwrap()))
}

fn asked(server: &ApiServer, what: &str) -> bool {
    server.requests().iter().any(|it| it.to_string() == what)
}

const TERMINATED: &str = "DELETE /api/v1/nodes/n";
const RELEASED: &str = "PATCH /api/v1/nodes/n";

#[tokio::test]
async fn a_node_is_not_drained_while_the_api_server_has_pods_that_the_watch_has_not_shown() {
    let objects = Objects::default();
    *objects.pods.lock() = vec![pod("late", "Running"), pod("ended", "Succeeded")];
    let (server, operator) = cold(&objects, [node(), claim()]);
    let action = reconcile(&operator, &Evictions::new(), "n").await.unwrap();
    assert_eq!(action, Action::After(CONFIRM));
    assert!(!asked(&server, TERMINATED) && !asked(&server, RELEASED));
    objects.pods.lock().remove(0);
    reconcile(&operator, &Evictions::new(), "n").await.unwrap();
    assert!(asked(&server, TERMINATED) && asked(&server, RELEASED));
}

#[tokio::test]
async fn a_node_without_a_nodeclaim_keeps_its_finalizer_while_the_api_server_has_pods_on_it() {
    let objects = Objects::default();
    *objects.pods.lock() = vec![pod("late", "Running")];
    let (server, operator) = cold(&objects, [node()]);
    reconcile(&operator, &Evictions::new(), "n").await.unwrap();
    assert!(!asked(&server, RELEASED));
    objects.pods.lock().clear();
    reconcile(&operator, &Evictions::new(), "n").await.unwrap();
    assert!(asked(&server, RELEASED));
}

#[tokio::test]
async fn a_node_keeps_its_finalizer_while_the_api_server_has_its_nodeclaim_even_one_that_does_not_parse()
 {
    let objects = Objects::default();
    let mut broken = draining();
    broken["spec"] = json!("unknown");
    for stored in [draining(), broken] {
        *objects.claims.lock() = vec![stored];
        let (server, operator) = cold(&objects, [node()]);
        let action = reconcile(&operator, &Evictions::new(), "n").await.unwrap();
        assert_eq!(action, Action::After(CONFIRM));
        assert!(!asked(&server, RELEASED));
        objects.claims.lock().clear();
        reconcile(&operator, &Evictions::new(), "n").await.unwrap();
        assert!(asked(&server, RELEASED));
    }
}

#[tokio::test]
async fn pods_are_asked_to_go_before_the_api_server_is_asked_whether_they_are_gone() {
    let objects = Objects::default();
    let wire = serde_json::from_value(pod("app", "Running")).unwrap();
    let (server, operator) = cold(&objects, [node(), claim(), Object::Pod(Box::new(wire))]);
    let action = reconcile(&operator, &Evictions::new(), "n").await.unwrap();
    assert_eq!(action, Action::After(DRAIN_POLL));
    assert!(!asked(&server, "GET /api/v1/pods"), "one look a drain, at its end");
}
