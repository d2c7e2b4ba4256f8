use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use tenon_crds::NodeClaim;
use tower::ServiceExt as _;

use super::*;
use crate::clock::Clock;
use crate::decisions::Cause;
use crate::testing::{ApiServer, spawn};

/// An API server that knows `reader`, who may read, and `other`, who may not, and the Lease.
fn api() -> ApiServer {
    ApiServer::answering(|request| match request.path.as_str() {
        "/apis/authentication.k8s.io/v1/tokenreviews" => {
            let token = request.body["spec"]["token"].as_str().unwrap();
            let known = ["reader", "other"].contains(&token);
            let status = json!({"authenticated": known, "user": {"username": token}});
            (201, json!({"spec": {}, "status": status}))
        }
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let allowed = request.body["spec"]["user"] == "reader";
            (201, json!({"spec": {}, "status": {"allowed": allowed}}))
        }
        "/apis/coordination.k8s.io/v1/namespaces/n/leases/l" => {
            (200, json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "pod-b_1"}}))
        }
        other => panic!("{other}"),
    })
}

struct Served {
    router: Router,
    decisions: Decisions,
    stop: CancellationToken,
}

fn served() -> Served {
    let client = api().client();
    let clock = Clock::anchored(Timestamp::UNIX_EPOCH);
    let decisions = Decisions::new(clock);
    let election = Election::new(client.clone(), "n", "l".to_owned(), "pod-a_1".to_owned(), clock);
    let ledger = Ledger { decisions: decisions.clone(), client, election: Some(election) };
    let stop = CancellationToken::new();
    Served { router: router(ledger, stop.clone()), decisions, stop }
}

async fn ask(router: &Router, token: Option<&str>, query: &str) -> (u16, Value) {
    let mut request = Request::builder().uri(format!("{PATH}{query}"));
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let answer = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn claim(name: &str) -> NodeClaim {
    NodeClaim::new(name, tenon_crds::NodeClaimSpec::default())
}

#[tokio::test(start_paused = true)]
async fn nothing_is_served_to_who_may_not_read() {
    let Served { router, decisions, .. } = served();
    decisions.lead("pod-a_1".to_owned());
    decisions.deleted(&claim("a"), Cause::Surplus);
    for (token, status, error) in [
        (None, 401, "unauthorized"),
        (Some(""), 401, "unauthorized"),
        (Some("made up"), 401, "unauthorized"),
        (Some("other"), 403, "forbidden"),
    ] {
        let (answered, body) = ask(&router, token, "").await;
        assert_eq!((answered, body["error"].as_str()), (status, Some(error)), "{token:?}");
        assert_eq!(body.get("decisions"), None);
    }
    let (status, body) = ask(&router, Some("reader"), "").await;
    assert_eq!((status, &body["decisions"][0]["nodeClaims"]["names"][0]), (200, &json!("a")));
}

#[tokio::test(start_paused = true)]
async fn questions_that_make_no_sense_are_refused() {
    let Served { router, decisions, .. } = served();
    decisions.lead("pod-a_1".to_owned());
    for query in ["?limit=0", "?limit=1001", "?wait=56", "?kind=magic", "?after=x", "?nodepol=a"] {
        let (status, body) = ask(&router, Some("reader"), query).await;
        assert_eq!((status, body["error"].as_str()), (400, Some("badRequest")), "{query}: {body}");
    }
    let query = "?limit=1000&wait=0&kind=drift&after=0&nodepool=a%20b&node=n&pod=p";
    assert_eq!(ask(&router, Some("reader"), query).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_answered_at_the_next_change_or_after_the_time() {
    let Served { router, decisions, stop } = served();
    decisions.lead("pod-a_1".to_owned());
    let (_, empty) = ask(&router, Some("reader"), "?after=0&wait=5").await;
    assert_eq!((&empty["decisions"], &empty["revision"]), (&json!([]), &json!(0)));
    let waiting = spawn({
        let router = router.clone();
        async move { ask(&router, Some("reader"), "?after=0&wait=50").await.1 }
    });
    tokio::task::yield_now().await;
    decisions.deleted(&claim("a"), Cause::Surplus);
    assert_eq!(waiting.await.unwrap()["decisions"][0]["seq"], 1);
    // A revision of a former leader is not waited for.
    let (_, stale) = ask(&router, Some("reader"), "?after=900&wait=50").await;
    assert_eq!((&stale["decisions"], &stale["revision"]), (&json!([]), &json!(1)));
    // Nor is the end of the operator held up.
    let waiting = spawn({
        let router = router.clone();
        async move { ask(&router, Some("reader"), "?after=1&wait=50").await.0 }
    });
    tokio::task::yield_now().await;
    stop.cancel();
    assert_eq!(waiting.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_lead_names_the_one_that_does() {
    let Served { router, decisions, .. } = served();
    let (status, body) = ask(&router, Some("reader"), "").await;
    assert_eq!((status, &body["error"]), (503, &json!("notLeader")));
    assert_eq!(body["leader"], "pod-b_1");
    decisions.lead("pod-a_1".to_owned());
    decisions.deleted(&claim("a"), Cause::Surplus);
    let waiting = spawn({
        let router = router.clone();
        async move { ask(&router, Some("reader"), "?after=1&wait=50").await.0 }
    });
    tokio::task::yield_now().await;
    decisions.step_down();
    assert_eq!(waiting.await.unwrap(), 503);
    assert_eq!(ask(&router, None, "").await.0, 401, "others are not even told that");
}

#[test]
fn it_listens_on_loopback_only() {
    let address = |text: &str| address(text.parse().unwrap()).to_string();
    assert_eq!(address("0.0.0.0"), "127.0.0.1");
    assert_eq!(address("::"), "127.0.0.1");
    assert_eq!(address("10.0.0.7"), "127.0.0.1");
    assert_eq!(address("127.3.4.5"), "127.3.4.5");
}
