use serde_json::Value;
use tenon_crds::labels::LabelRules;

use super::*;
use crate::kwok::Kwok;
use crate::state::change::{Change, Object};
use crate::state::cluster::Cluster;
use crate::testing::{ApiServer, operator};

/// A NodeClaim that is being deleted; its machine has the provider ID `kwok://n`.
fn going(conditions: &[&str]) -> NodeClaim {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|type_| {
            json!({
                "type": type_, "status": "True", "reason": type_, "message": "",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            })
        })
        .collect();
    let claim = json!({
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
        "status": {"providerID": "kwok://n", "nodeName": "n", "conditions": conditions},
    });
    serde_json::from_value(claim).unwrap()
}

/// An operator whose state knows the NodeClaim and no Node, and an API server that may have a Node
/// as well.
fn cold(claim: &NodeClaim, node: Option<Value>) -> (ApiServer, Arc<Operator<Kwok>>) {
    let server = ApiServer::default();
    server.put_at("/apis/karpenter.sh/v1/nodeclaims/a", serde_json::to_value(claim).unwrap());
    if let Some(node) = node {
        server.put_at(NODE, node);
    }
    let mut cluster = Cluster::new(crate::testing::KINDS, LabelRules::core());
    cluster.apply(Change::Applied(Object::NodeClaim(Box::new(claim.clone()))));
    let (operator, _) = operator(&server, cluster);
    (server, operator)
}

/// Methods and paths of what was asked of the API server, from the last look on.
fn asked(server: &ApiServer) -> Vec<String> {
    server.requests().iter().map(ToString::to_string).collect()
}

const NODE: &str = "/api/v1/nodes/n";
const TERMINATED: &str = "DELETE /api/v1/nodes/n";

#[tokio::test]
async fn a_machine_is_not_terminated_while_the_api_server_has_a_node_that_the_watch_has_not_shown()
{
    let claim = going(&[REGISTERED]);
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n"}, "spec": {"providerID": "kwok://n"},
    });
    let (server, operator) = cold(&claim, Some(node));
    let action = reconcile(&operator, claim.clone(), &[]).await.unwrap();
    assert_eq!(action, Action::After(CONFIRM));
    assert_eq!(asked(&server), ["GET /api/v1/nodes/n"]);
    server.take_at(NODE);
    let action = reconcile(&operator, claim, &[]).await.unwrap();
    assert_eq!(action, Action::Wait);
    assert!(asked(&server).iter().any(|it| it == TERMINATED), "{:?}", asked(&server));
}

#[tokio::test]
async fn a_node_of_the_same_name_that_is_another_machine_holds_nothing_up() {
    let claim = going(&[REGISTERED]);
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n"}, "spec": {"providerID": "kwok://another"},
    });
    let (server, operator) = cold(&claim, Some(node));
    reconcile(&operator, claim, &[]).await.unwrap();
    assert!(asked(&server).iter().any(|it| it == TERMINATED), "{:?}", asked(&server));
}

#[tokio::test]
async fn the_api_server_is_not_asked_for_nodes_of_a_machine_that_never_joined_or_is_going() {
    for conditions in [&[][..], &[REGISTERED, INSTANCE_TERMINATING][..]] {
        let claim = going(conditions);
        let (server, operator) = cold(&claim, None);
        reconcile(&operator, claim, &[]).await.unwrap();
        assert!(asked(&server).iter().all(|it| !it.starts_with("GET")), "{:?}", asked(&server));
        assert!(asked(&server).iter().any(|it| it == TERMINATED));
    }
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_proves_nothing() {
    let claim = going(&[REGISTERED]);
    let server = ApiServer::answering(|_| {
        (
            500,
            json!({"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500}),
        )
    });
    let (operator, _) = operator(&server, Cluster::new(crate::testing::KINDS, LabelRules::core()));
    let error = reconcile(&operator, claim, &[]).await.unwrap_err();
    assert!(matches!(error, Error::Read(_)), "{error}");
    assert_eq!(asked(&server), ["GET /api/v1/nodes/n"]);
}
