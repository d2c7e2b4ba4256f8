//! Which encoding a list is requested in, and what becomes of answers in none or another.

use std::sync::{Arc, Mutex};

use kube::api::ListParams;
use kube::client::Body;
use serde_json::{Value, json};
use tenon_simulate::list_page;
use tenon_state::wire::Pod;

/// What the header Accept said in each request.
type Accepted = Arc<Mutex<Vec<String>>>;

/// A server that answers so to what is accepted: code, media type and body.
fn server(
    answer: impl Fn(&str) -> (u16, &'static str, Vec<u8>) + Send + Sync + 'static,
) -> (kube::Client, Accepted) {
    let accepted = Accepted::default();
    let noted = Arc::clone(&accepted);
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let accept = request.headers().get("accept").and_then(|accept| accept.to_str().ok());
        let accept = accept.unwrap_or_default().to_owned();
        let (code, kind, body) = answer(&accept);
        noted.lock().expect("not poisoned").push(accept);
        let response = http::Response::builder().status(code).header("content-type", kind);
        let response = response.body(Body::from(body));
        async move { response }
    });
    (kube::Client::new(service, "default"), accepted)
}

fn list() -> Vec<u8> {
    let pod = json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": {"containers": []}});
    let list = json!({"kind": "PodList", "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "continue": ""}, "items": [pod]});
    list.to_string().into_bytes()
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "pods is forbidden", "reason": "Forbidden", "code": code})
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";

#[tokio::test]
async fn a_server_that_does_not_write_it_is_asked_for_json() {
    let unacceptable = |accept: &str| {
        if accept.contains("protobuf") { (406, JSON, Vec::new()) } else { (200, JSON, list()) }
    };
    let garbled = |accept: &str| {
        if accept.contains("protobuf") {
            (200, PROTOBUF, b"k8s\0garbage".to_vec())
        } else {
            (200, JSON, list())
        }
    };
    for (client, accepted) in [server(unacceptable), server(garbled)] {
        let page = list_page::<Pod>(&client, &ListParams::default()).await.expect("a list");
        assert_eq!((page.items.len(), page.continue_token), (1, None));
        assert_eq!(page.resource_version.as_deref(), Some("7"));
        let accepted = accepted.lock().expect("not poisoned").clone();
        assert_eq!(accepted.len(), 2, "{accepted:?}");
        assert!(accepted[0].contains(PROTOBUF) && !accepted[1].contains(PROTOBUF), "{accepted:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_refused_is_not_repeated_and_says_why() {
    let answers: [(u16, &'static str, Vec<u8>, &str); 3] = [
        (403, JSON, status(403).to_string().into_bytes(), "pods is forbidden"),
        (502, "text/plain", b"no backend\n".to_vec(), "no backend"),
        // It tells of another code than it was sent with.
        (503, JSON, status(403).to_string().into_bytes(), "\"pods is forbidden\""),
    ];
    for (code, kind, body, expected) in answers {
        let (client, accepted) = server(move |_| (code, kind, body.clone()));
        let error = list_page::<Pod>(&client, &ListParams::default()).await.expect_err("refused");
        let kube::Error::Api(status) = error else { panic!("{error:?}") };
        assert_eq!(status.code, code);
        assert!(status.message.contains(expected), "{status:?}");
        assert_eq!(accepted.lock().expect("not poisoned").len(), 1);
    }
}
