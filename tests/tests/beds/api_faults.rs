//! Faults between a client and a real API server do what they say, for HTTP/1.1 as for HTTP/2, and
//! nothing else.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures::{FutureExt, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tenon_aws_double::progress::Progress;
use tenon_bed::api_faults::{ApiFaults, Fault, Refusal, Requests};
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::control_plane::ControlPlane;
use tenon_bed::kwok_operators::KwokOperators;
use tenon_bed::programs::TenonPrograms;
use tenon_bed::user::LIMIT;
use tenon_bed::wait::{eventually, must};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// So long nothing must come; what comes at all comes within milliseconds.
const QUIET: Duration = Duration::from_millis(500);

async fn control_plane_only() -> Bed {
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    must(Bed::start(config).await)
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

fn map(name: &str) -> ConfigMap {
    must(serde_json::from_value(json!({ "metadata": { "name": name } })))
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    maps.create(&PostParams::default(), &map(name)).await
}

/// What must happen, in time.
async fn soon<T>(what: &str, it: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, it).await.unwrap_or_else(|_| panic!("{what}: nothing came"))
}

/// Status and message of a refusal.
fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("not refused: {other:?}"),
    }
}

async fn held_lists_and_watches_come_when_they_are_let_go(faults: &ApiFaults, direct: &Client) {
    let client = must(faults.client().await);
    let (behind, direct) = (maps(&client), maps(direct));
    let rule = faults.add(Requests::lists("configmaps"), Fault::Hold);
    let everything = ListParams::default();
    let list = behind.list(&everything);
    let streamed = WatchParams { send_initial_events: true, ..WatchParams::default() };
    let mut streamed = pin!(must(behind.watch(&streamed, "").await));
    let mut plain = pin!(must(behind.watch(&WatchParams::default(), "0").await));
    let mut list = pin!(list);
    let newest = must(direct.list(&ListParams::default()).await).metadata.resource_version;
    let newest = newest.expect("a list has a version");
    let mut later = pin!(must(behind.watch(&WatchParams::default(), &newest).await));
    must(create(&direct, "held").await);
    let event = soon("a watch from now on", later.next()).await.expect("it goes on");
    assert!(matches!(must(event), WatchEvent::Added(it) if it.name_any() == "held"));
    tokio::select! {
        biased;
        _ = &mut list => panic!("the list is not held"),
        _ = streamed.next() => panic!("the streamed list is not held"),
        _ = plain.next() => panic!("the initial events are not held"),
        () = tokio::time::sleep(QUIET) => {}
    }
    must(behind.get("held").await);
    assert_eq!(rule.met(), 3);
    rule.lift();
    must(soon("the list", list).await);
    for (what, stream) in [("streamed", &mut streamed), ("plain", &mut plain)] {
        let event = soon(what, stream.next()).await.expect("it goes on");
        assert!(matches!(must(event), WatchEvent::Added(_)), "{what}");
    }
    // A watch that is under way lags, too.
    let rule = faults.add(Requests::watches("configmaps"), Fault::Hold);
    must(create(&direct, "lags").await);
    assert!(tokio::time::timeout(QUIET, later.next()).await.is_err());
    rule.lift();
    let event = soon("the late event", later.next()).await.expect("it goes on");
    assert!(matches!(must(event), WatchEvent::Added(it) if it.name_any() == "lags"));
}

async fn refusals_hit_what_they_name_as_often_as_they_say(faults: &ApiFaults) {
    let client = must(faults.client().await);
    let maps = maps(&client);
    for name in ["web-1", "web-2", "db-1"] {
        must(create(&maps, name).await);
    }
    let delete = async |name: &str| maps.delete(name, &DeleteParams::default()).await;
    let denial = Refusal::denied_by_webhook("policy.example", "not today");
    let web = Requests::of("delete", "configmaps").named("web-*").in_namespace("default");
    let rule = faults.add_times(2, web, Fault::Refuse(denial));
    must(delete("db-1").await);
    for _ in 0..2 {
        let (status, message) = refused(delete("web-1").await);
        assert_eq!(status, 403);
        assert_eq!(message, "admission webhook \"policy.example\" denied the request: not today");
    }
    must(delete("web-1").await);
    assert_eq!(rule.met(), 2);
    for (refusal, status) in [
        (Refusal::forbidden("no"), 403),
        (Refusal::conflict(), 409),
        (Refusal::too_many_requests(1), 429),
        (Refusal::internal_error("etcd"), 500),
        (Refusal::webhook_unreachable("policy.example"), 500),
    ] {
        let rule = faults.add(Requests::of("delete", "configmaps"), Fault::Refuse(refusal));
        assert_eq!(refused(delete("web-2").await).0, status);
        rule.lift();
    }
    must(delete("web-2").await);
    let deletions = faults.requests(&Requests::of("delete", "configmaps"));
    assert_eq!(deletions.iter().filter(|it| it.name == "web-1").count(), 3);
    assert_eq!(faults.count(&Requests::of("create", "configmaps")), 3);
    assert_eq!(faults.count(&Requests::of("create", "pods/eviction")), 0);
}

async fn a_watch_gets_410_in_its_midst_at_its_start_and_as_a_list(
    faults: &ApiFaults,
    direct: &Client,
) {
    let client = must(faults.client().await);
    let (behind, direct) = (maps(&client), maps(direct));
    let mut watch = pin!(must(behind.watch(&WatchParams::default(), "0").await));
    must(soon("the initial events", watch.next()).await.expect("it goes on"));
    let rule = faults.add_times(2, Requests::watches("configmaps"), Fault::Expire);
    let ended = soon("the error event", async {
        loop {
            let event = must(watch.next().await.expect("an error comes before the end"));
            if let WatchEvent::Error(status) = event {
                return status.code;
            }
        }
    });
    assert_eq!(ended.await, 410);
    assert!(soon("its end", watch.next()).await.is_none());
    let mut again = pin!(must(behind.watch(&WatchParams::default(), "0").await));
    let event = must(soon("the error event", again.next()).await.expect("it comes"));
    assert!(matches!(event, WatchEvent::Error(status) if status.code == 410));
    assert_eq!(rule.met(), 2);
    let mut third = pin!(must(behind.watch(&WatchParams::default(), "0").await));
    let event = must(soon("the third", third.next()).await.expect("it goes on"));
    assert!(matches!(event, WatchEvent::Added(_)));
    let rule = faults.add(Requests::of("list", "configmaps"), Fault::Expire);
    assert_eq!(refused(behind.list(&ListParams::default()).await).0, 410);
    rule.lift();
    must(direct.list(&ListParams::default()).await);
}

async fn answers_get_lost_and_watches_fall_silent(faults: &ApiFaults, direct: &Client) {
    let client = must(faults.client().await);
    let (behind, direct) = (maps(&client), maps(direct));
    let newest = must(direct.list(&ListParams::default()).await).metadata.resource_version;
    let mut watch =
        pin!(must(behind.watch(&WatchParams::default(), &newest.expect("a version")).await));
    let creations = Requests::of("create", "configmaps");
    faults.add(creations.clone().with_url("*fieldManager=silent*"), Fault::Silence);
    faults.add(creations, Fault::LoseAnswer);
    let silent = PostParams { field_manager: Some("silent".to_owned()), ..PostParams::default() };
    let (silenced, lost, plain) = (map("silenced"), map("lost"), PostParams::default());
    let calls =
        futures::future::join(behind.create(&silent, &silenced), behind.create(&plain, &lost));
    assert!(tokio::time::timeout(QUIET, calls).await.is_err(), "nobody answers");
    must(
        eventually("the lost one is made", LIMIT, async || {
            Ok(direct.get_opt("lost").await?.is_some())
        })
        .await,
    );
    assert!(must(direct.get_opt("silenced").await).is_none(), "the API server has not seen it");
    let event = must(soon("the watch still tells", watch.next()).await.expect("it goes on"));
    assert!(matches!(event, WatchEvent::Added(it) if it.name_any() == "lost"));
    let rule = faults.add(Requests::watches("configmaps"), Fault::Silence);
    must(create(&direct, "unheard").await);
    assert!(tokio::time::timeout(QUIET, watch.next()).await.is_err());
    rule.lift();
    must(create(&direct, "unheard-still").await);
    assert!(tokio::time::timeout(QUIET, watch.next()).await.is_err(), "what is lost stays lost");
    faults.heal();
    must(create(&behind, "heard").await);
}

async fn connections_hang_and_new_ones_work(faults: &ApiFaults) {
    let old = must(faults.client().await);
    let mut watch = pin!(must(maps(&old).watch(&WatchParams::default(), "0").await));
    must(soon("the initial events", watch.next()).await.expect("it goes on"));
    faults.hang_connections();
    let new = must(faults.client().await);
    must(create(&maps(&new), "after-the-hang").await);
    let heard = async {
        loop {
            match watch.next().await {
                Some(Ok(WatchEvent::Added(it))) if it.name_any() == "after-the-hang" => return,
                Some(Ok(_)) => {}
                other => panic!("a hung connection stays open: {other:?}"),
            }
        }
    };
    assert!(tokio::time::timeout(QUIET, heard).await.is_err(), "the old watch is dead");
    faults.partition();
    let cut_off = must(faults.client().await);
    assert!(tokio::time::timeout(QUIET, maps(&cut_off).get("heard")).await.is_err());
    faults.heal();
    must(maps(&must(faults.client().await)).get("heard").await);
    faults.cut_connections();
    let ended = soon("the old watch ends", async {
        loop {
            match watch.next().await {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    ended.await;
}

/// One connection of a client of our own that speaks HTTP/2.
struct Http2 {
    sender: SendRequest<Empty<Bytes>>,
    _connection: JoinSet<hyper::Result<()>>,
}

async fn http2(faults: &ApiFaults, plane: &ControlPlane) -> Http2 {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(plane.ca().as_bytes()) {
        must(roots.add(must(certificate)));
    }
    let mut config =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = must(TcpStream::connect(("127.0.0.1", faults.port())).await);
    let name = must(ServerName::try_from("127.0.0.1"));
    let stream = must(TlsConnector::from(Arc::new(config)).connect(name, stream).await);
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) = must(handshake(TokioExecutor::new(), TokioIo::new(stream)).await);
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    Http2 { sender, _connection: tasks }
}

/// Asks for a path as whoever has this token.
fn ask(
    connection: &Http2,
    faults: &ApiFaults,
    path: &str,
    token: &str,
) -> impl Future<Output = hyper::Result<http::Response<Incoming>>> + use<> {
    let request = http::Request::get(format!("https://127.0.0.1:{}{path}", faults.port()))
        .header("authorization", format!("Bearer {token}"))
        .body(Empty::new());
    connection.sender.clone().send_request(must(request))
}

async fn http2_is_spoken_and_one_silent_answer_holds_up_no_other(
    faults: &ApiFaults,
    plane: &ControlPlane,
) {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let connection = http2(faults, plane).await;
    let status = async |path: &str, token: &str| {
        must(soon(path, ask(&connection, faults, path, token)).await).status().as_u16()
    };
    assert_eq!(status(MAPS, "nobody's").await, 401, "the API server sees whose token it is");
    faults.add(Requests::of("get", "configmaps"), Fault::Silence);
    let mut silent = Box::pin(ask(&connection, faults, &format!("{MAPS}/heard"), plane.token()));
    let watch = format!("{MAPS}?watch=true&resourceVersion=0");
    let mut watch =
        must(soon("a watch", ask(&connection, faults, &watch, plane.token())).await).into_body();
    let first = must(soon("the first event", watch.frame()).await.expect("it goes on"));
    assert!(first.data_ref().is_some_and(|it| it.starts_with(b"{\"type\":\"ADDED\"")));
    assert_eq!(status(MAPS, plane.token()).await, 200);
    assert!((&mut silent).now_or_never().is_none());
    // Now the connection hangs as a whole, by one request on it.
    faults.add_times(1, Requests::of("list", "configmaps"), Fault::Hang);
    for path in [MAPS, "/readyz"] {
        let asked = ask(&connection, faults, path, plane.token());
        assert!(tokio::time::timeout(QUIET, asked).await.is_err(), "{path} was answered");
    }
    let fresh = http2(faults, plane).await;
    assert!(
        must(soon("another", ask(&fresh, faults, MAPS, plane.token())).await).status().is_success()
    );
    faults.heal();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_the_api_server_meet_the_faults_that_a_test_sets() {
    let bed = control_plane_only().await;
    let (plane, direct) = (bed.control_plane(), bed.client());
    // One each: the rules of one scenario must not meet the last watches of another.
    let faults = async || must(ApiFaults::start(plane).await);
    held_lists_and_watches_come_when_they_are_let_go(&faults().await, &direct).await;
    refusals_hit_what_they_name_as_often_as_they_say(&faults().await).await;
    a_watch_gets_410_in_its_midst_at_its_start_and_as_a_list(&faults().await, &direct).await;
    answers_get_lost_and_watches_fall_silent(&faults().await, &direct).await;
    connections_hang_and_new_ones_work(&faults().await).await;
    http2_is_spoken_and_one_silent_answer_holds_up_no_other(&faults().await, plane).await;
    must(bed.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_behind_its_own_faults_and_comes_back_after_a_kill() {
    let programs = must(TenonPrograms::provide(&Progress::hidden()).await);
    let bed = control_plane_only().await;
    let tenon = must(KwokOperators::prepare(&bed, programs).await);
    let faults = must(ApiFaults::start(bed.control_plane()).await);
    let lists = Requests::lists("nodeclaims");
    let held = faults.add(lists.clone(), Fault::Hold);
    let mut operator = must(tenon.start_behind(&faults, "one", &[]));
    must(eventually("it lists NodeClaims", LIMIT, async || Ok(faults.count(&lists) > 0)).await);
    held.lift();
    must(operator.ready(LIMIT).await);
    let (pid, before) = (operator.process().pid(), faults.count(&lists));
    must(operator.kill_and_restart().await);
    must(operator.ready(LIMIT).await);
    assert_ne!(operator.process().pid(), pid);
    assert!(faults.count(&lists) > before, "it has read its NodeClaims anew");
    drop((operator, tenon));
    must(bed.stop().await);
}
