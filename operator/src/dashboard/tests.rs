use axum::body::{Body, Bytes};
use axum::http::Request;
use axum::http::request::Builder;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use super::*;
use crate::clock::Clock;
use crate::context::Context;
use crate::testing::ApiServer;
use crate::testing::idle::{Idle, machine, operator, pending, pool};

/// An API server that knows `reader`, who may see the dashboard, and `other`, who may not, and the
/// Lease.
fn reviews() -> ApiServer {
    ApiServer::answering(|request| match request.path.as_str() {
        "/apis/authentication.k8s.io/v1/tokenreviews" => {
            let token = request.body["spec"]["token"].as_str().unwrap();
            let known = ["reader", "other"].contains(&token);
            let status = json!({"authenticated": known, "user": {"username": token}});
            (201, json!({"spec": {}, "status": status}))
        }
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let spec = &request.body["spec"];
            let attributes = &spec["nonResourceAttributes"];
            assert_eq!(*attributes, json!({"path": "/dashboard", "verb": "get"}));
            (201, json!({"spec": {}, "status": {"allowed": spec["user"] == "reader"}}))
        }
        "/apis/coordination.k8s.io/v1/namespaces/n/leases/l" => {
            (200, json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "pod-b_1"}}))
        }
        other => panic!("{other}"),
    })
}

struct Served {
    app: App<Page<Idle>>,
    context: Context,
    /// Of the cluster; without it there is none to read from.
    api: ApiServer,
    _reviews: ApiServer,
}

async fn served(objects: Vec<Value>) -> Served {
    let (operator, api) = operator(objects).await;
    let reviews = reviews();
    let client = reviews.client();
    let clock = Clock::system();
    let election = Election::new(client.clone(), "n", "l".to_owned(), "pod-a_1".to_owned(), clock);
    let context = operator.context.clone();
    let fleet = Fleet {
        operator,
        client,
        election: Some(election),
        namespace: "karpenter".to_owned(),
        port: 9000,
        reader: "karpenter-dashboard-reader".to_owned(),
    };
    let app = App::new(Page(Arc::new((fleet, Access::new(PATH)))));
    Served { app, context, api, _reviews: reviews }
}

async fn send(app: &App<Page<Idle>>, request: Request<Body>) -> (u16, Value) {
    let (head, body) = request.into_parts();
    let body = Full::new(body.collect().await.unwrap().to_bytes());
    let answer = app.answer(Request::from_parts(head, body)).await;
    let status = answer.status().as_u16();
    let body: Bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn request(token: &str, path: &str) -> Builder {
    let request = Request::builder().uri(path).header("Host", "127.0.0.1:7070");
    if token.is_empty() { request } else { request.header("Authorization", token) }
}

async fn get(app: &App<Page<Idle>>, path: &str) -> (u16, Value) {
    send(app, request("Bearer reader", path).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn data_is_for_those_whom_the_api_server_lets() {
    let Served { app, context, .. } = served(Vec::new()).await;
    context.decisions.lead("pod-a_1".to_owned());
    for (token, status, hint) in [
        ("", 401, "kubectl -n karpenter create token karpenter-dashboard-reader"),
        ("Bearer made up", 401, "kubectl -n karpenter create token karpenter-dashboard-reader"),
        ("Bearer other", 403, "bind the ClusterRole karpenter-dashboard-reader"),
    ] {
        for path in ["/api/state", "/api/decisions", "/api/nodepool?name=a"] {
            let answer = send(&app, request(token, path).body(Body::empty()).unwrap()).await;
            assert_eq!(answer.0, status, "{token:?} {path}");
            let hints = answer.1["error"]["hints"].to_string();
            assert!(hints.contains(hint), "{hints}");
        }
    }
    assert_eq!(get(&app, "/api/state").await.0, 200);
    // The page itself has nothing to hide, but not for every name of this address.
    let page = request("", "/").body(Body::empty()).unwrap();
    assert_eq!(send(&app, page).await.0, 200);
    let foreign = Request::builder().uri("/").header("Host", "example.com:7070");
    assert_eq!(send(&app, foreign.body(Body::empty()).unwrap()).await.0, 421);
}

#[tokio::test]
async fn a_replica_that_does_not_lead_says_which_one_does() {
    let Served { app, .. } = served(Vec::new()).await;
    let (status, body) = get(&app, "/api/state").await;
    assert_eq!(status, 503);
    assert_eq!(body["error"]["message"], "this replica does not lead; pod-b does");
    let hint = "kubectl -n karpenter port-forward pod/pod-b 7070:9000";
    assert_eq!(body["error"]["hints"], json!([hint]));
}

#[tokio::test]
async fn the_page_is_drawn_from_memory() {
    let [claim, node] = machine("a", "default");
    let objects = vec![pool("default", json!({})), claim, node, pending("web", "6")];
    let Served { app, context, api, .. } = served(objects).await;
    context.decisions.lead("pod-a_1".to_owned());
    let before = api.requests().len();
    let (status, state) = get(&app, "/api/state").await;
    assert_eq!(status, 200, "{state}");
    assert_eq!(state["source"], "operator");
    assert_eq!(state["fleet"]["total"]["nodes"], 1);
    assert_eq!(state["nodes"][0]["nodePool"], "default");
    let (status, pod) = get(&app, "/api/explain?kind=pod&namespace=default&name=web").await;
    assert_eq!(status, 200, "{pod}");
    assert_eq!(pod["answer"]["kind"], "Pod");
    let (status, missing) = get(&app, "/api/explain?kind=node&name=b").await;
    assert_eq!(status, 404, "{missing}");
    let (status, decisions) = get(&app, "/api/decisions").await;
    assert_eq!((status, &decisions["leader"]), (200, &json!("pod-a_1")));
    let (status, pool) = get(&app, "/api/nodepool?name=default").await;
    assert_eq!(status, 200, "{pool}");
    assert!(pool["yaml"].as_str().unwrap().contains("kind: NodePool"), "{pool}");
    assert_eq!(api.requests().len(), before, "nothing is asked of the API server");
}

#[tokio::test]
async fn a_changed_nodepool_is_compared_and_nothing_changes() {
    let [claim, node] = machine("a", "default");
    let objects = vec![pool("default", json!({})), claim, node, pending("web", "6")];
    let Served { app, context, .. } = served(objects).await;
    context.decisions.lead("pod-a_1".to_owned());
    let (_, manifest) = get(&app, "/api/nodepool?name=default").await;
    let manifest = manifest["yaml"].as_str().unwrap();
    let ask = async |manifest: String| {
        let request = request("Bearer reader", "/api/what-if").method("POST");
        let request = request.header("Content-Type", "application/yaml");
        let (status, mut answer) = send(&app, request.body(Body::from(manifest)).unwrap()).await;
        for side in ["before", "after"] {
            // How long it took is another time another.
            if let Some(totals) = answer[side]["totals"].as_object_mut() {
                totals.remove("planSeconds");
            }
        }
        (status, answer)
    };
    let (status, same) = ask(manifest.to_owned()).await;
    assert_eq!(status, 200, "{same}");
    assert_eq!(same["before"], same["after"]);
    // Nothing may be launched any more, and the template has another hash.
    let frozen = manifest.replacen("spec:", "spec:\n  limits:\n    nodes: \"0\"", 1);
    let labelled =
        frozen.replacen("    spec:", "    metadata:\n      labels: {team: a}\n    spec:", 1);
    let (status, other) = ask(labelled).await;
    assert_eq!(status, 200, "{other}");
    assert_eq!(other["before"], same["before"]);
    assert_eq!(other["after"]["launched"], 0, "{other}");
    assert_eq!(other["after"]["unschedulable"], 1, "{other}");
    assert_eq!(other["drift"][0]["nodeClaims"], 1, "{other}");
    assert_eq!(other["drift"][0]["reason"], "NodePoolDrifted", "{other}");
    // What is known is what it was.
    assert_eq!(ask(manifest.to_owned()).await.1, same);
    let (status, wrong) = ask("kind: Pod".to_owned()).await;
    assert_eq!(status, 422, "{wrong}");
}
