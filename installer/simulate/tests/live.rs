//! What is read of a running cluster: which requests are made, and what becomes of their answers.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tenon_simulate::{Freshness, Loops, Options, read};
use tenon_state::options::FeatureGates;

/// A cluster with these pods and nothing else, and the requests that it got.
fn cluster(pods: Value) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let uri = request.uri().to_string();
        let items = if uri.contains("/pods") { pods.clone() } else { json!([]) };
        requests.lock().expect("not poisoned").push(uri);
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
        let body = kube::client::Body::from(list.to_string().into_bytes());
        let response = http::Response::builder().status(200).body(body);
        async move { response }
    });
    (kube::Client::new(service, "default"), asked)
}

fn pod(name: &str, containers: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"containers": containers},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ]},
    })
}

async fn pending(freshness: Freshness, pods: Value) -> (Vec<String>, Vec<String>) {
    let (client, asked) = cluster(pods);
    let now = "2026-01-01T12:00:00Z".parse().expect("a time");
    let options = Options { freshness, ..Options::live(now, FeatureGates::default()) };
    let mut simulation = read(options, Some(&client), &|_| ()).await.expect("it can be read");
    let outcome = serde_json::to_value(simulation.outcome(Loops::Provision)).expect("data");
    let names = outcome["unschedulable"].as_array().expect("a list").iter();
    let names = names.map(|pod| pod["name"].as_str().expect("a name").to_owned());
    let (names, asked) = (names.collect(), asked.lock().expect("not poisoned").clone());
    (names, asked.into_iter().filter(|uri| uri.contains("/pods")).collect())
}

#[tokio::test]
async fn the_watch_cache_is_asked_once_and_the_latest_state_by_pages() {
    let pods = json!([pod("a", &json!([{"name": "main"}]))]);
    let (names, asked) = pending(Freshness::Cached, pods.clone()).await;
    assert_eq!((names, asked.len()), (vec!["a".to_owned()], 1));
    assert!(asked[0].contains("resourceVersion=0") && !asked[0].contains("limit="), "{asked:?}");
    let (names, asked) = pending(Freshness::Latest, pods).await;
    assert_eq!(names, ["a"]);
    assert!(asked[0].contains("limit=1000") && !asked[0].contains("resourceVersion"), "{asked:?}");
}

#[tokio::test]
async fn an_object_that_does_not_parse_is_left_out_and_the_others_count() {
    let good = json!([{"name": "main"}]);
    let pods = json!([pod("a", &good), pod("broken", &json!("no list")), pod("b", &good)]);
    let (names, asked) = pending(Freshness::Cached, pods).await;
    assert_eq!(names, ["a", "b"]);
    assert_eq!(asked.len(), 1, "{asked:?}");
}
