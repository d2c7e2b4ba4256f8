use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::metrics::Metrics;

/// A key and a certificate for 127.0.0.1 that nobody trusts but these tests.
const KEY: &[u8] = include_bytes!("tests/key.pem");
const CERT: &[u8] = include_bytes!("tests/cert.pem");

/// Long enough for what has to succeed on a busy machine, short enough to wait for what has to
/// fail.
const SHORT: Deadlines = Deadlines {
    connect: Duration::from_secs(20),
    call: Duration::from_secs(2),
    list: Duration::from_secs(20),
    ping: Duration::from_millis(500),
    pong: Duration::from_secs(2),
};

/// Something hangs that must not.
const TOO_LONG: Duration = Duration::from_secs(60);

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TOO_LONG, what).await.expect("it hangs")
}

type Answer = UnsyncBoxBody<Bytes, std::io::Error>;

/// An API server that lists namespaces and watches pods, but knows ConfigMaps that it does not tell
/// (`hang`) or only half (`half`). Watches begin with the pod `first`, and go on with `second` once
/// they are told to.
async fn answer(
    request: Request<Incoming>,
    go_on: watch::Receiver<bool>,
) -> Result<Response<Answer>, std::io::Error> {
    fn event(name: &str) -> Bytes {
        let object =
            format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}}}}"#);
        format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n").into()
    }
    let chunks = match request.uri().path() {
        "/api/v1/namespaces" => {
            let list = r#"{"apiVersion":"v1","kind":"NamespaceList","metadata":{},"items":[]}"#;
            futures::stream::iter([Bytes::from(list)]).boxed()
        }
        "/api/v1/pods" => {
            let second = futures::stream::once(async move {
                let mut go_on = go_on;
                go_on.wait_for(|it| *it).await.expect("the test goes on");
                event("second")
            });
            let silence = futures::stream::pending();
            futures::stream::iter([event("first")]).chain(second).chain(silence).boxed()
        }
        path if path.ends_with("/half") => {
            let half = futures::stream::iter([Bytes::from(r#"{"apiVersion":"v1","#)]);
            half.chain(futures::stream::pending()).boxed()
        }
        _ => std::future::pending().await,
    };
    let chunks = chunks.map(|chunk| Ok(Frame::data(chunk)));
    Ok(Response::new(StreamBody::new(chunks).boxed_unsync()))
}

/// Metrics that nobody looks at.
fn unseen() -> CallMetrics {
    CallMetrics::new(&Metrics::new())
}

/// How the API server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    /// TLS, and HTTP/2 as it is agreed on there.
    Http2,
    /// Plain text.
    Http1,
}

/// An API server behind a network that can be cut.
struct Server {
    config: Config,
    /// How often the network was cut. Connections that were open then carry nothing any more,
    /// without being closed.
    cuts: watch::Sender<u64>,
    go_on: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start(protocol: Protocol) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let network = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (behind, address) = (server.local_addr().unwrap(), network.local_addr().unwrap());
        let (cuts, cut) = watch::channel(0);
        let (go_on, told) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(server, protocol, told));
        tasks.spawn(forward(network, behind, cut));
        let scheme = if protocol == Protocol::Http2 { "https" } else { "http" };
        let mut config = Config::new(format!("{scheme}://{address}").parse().unwrap());
        config.root_cert = Some(vec![CertificateDer::from_pem_slice(CERT).unwrap().to_vec()]);
        Self { config, cuts, go_on, _tasks: tasks }
    }

    fn client(&self, deadlines: Deadlines) -> Client {
        connect(&self.config, deadlines, &unseen()).unwrap()
    }

    /// Cuts all connections that are open, and lets new ones through.
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn serve(listener: TcpListener, protocol: Protocol, go_on: watch::Receiver<bool>) {
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(CERT).unwrap()];
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider);
    let tls = tls.with_safe_default_protocol_versions().unwrap();
    let mut tls = tls.with_no_client_auth().with_single_cert(chain, key).unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(tls));
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, go_on) = (tls.clone(), go_on.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, go_on.clone()));
            // How a connection ends is what the tests look at from the other side.
            match protocol {
                Protocol::Http1 => {
                    let server = hyper::server::conn::http1::Builder::new();
                    server.serve_connection(TokioIo::new(stream), service).await.ok();
                }
                Protocol::Http2 => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    server.serve_connection(TokioIo::new(stream), service).await.ok();
                }
            }
        });
    }
}

async fn forward(listener: TcpListener, to: std::net::SocketAddr, cut: watch::Receiver<u64>) {
    let mut connections = JoinSet::new();
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut cut = cut.clone();
        let opened = *cut.borrow();
        connections.spawn(async move {
            let mut far = TcpStream::connect(to).await.unwrap();
            let is_cut = async move {
                cut.wait_for(|cuts| *cuts > opened).await.ok();
            };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                () = is_cut => std::future::pending().await,
            }
        });
    }
}

fn timed_out(error: &kube::Error) -> bool {
    crate::text::chain(error).contains("the API server has not answered GET configmaps")
}

#[tokio::test]
async fn a_call_that_is_not_answered_ends_at_its_deadline() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let server = Server::start(protocol).await;
        let api: Api<ConfigMap> = Api::namespaced(server.client(SHORT), "default");
        let error = in_time(api.get("hang")).await.unwrap_err();
        assert!(timed_out(&error), "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn an_answer_that_stops_in_the_middle_ends_at_the_deadline_of_its_call() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let server = Server::start(protocol).await;
        let api: Api<ConfigMap> = Api::namespaced(server.client(SHORT), "default");
        let error = in_time(api.get("half")).await.unwrap_err();
        assert!(timed_out(&error), "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_takes_connections_and_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let deadlines = Deadlines { connect: SHORT.call, list: TOO_LONG * 2, ..SHORT };
    let client = |scheme: &str| {
        let config = Config::new(format!("{scheme}://{address}").parse().unwrap());
        connect(&config, deadlines, &unseen()).unwrap()
    };
    for scheme in ["http", "https"] {
        let api: Api<ConfigMap> = Api::namespaced(client(scheme), "default");
        in_time(api.get("any")).await.unwrap_err();
    }
    // Also a list, whose own deadline is far away: TLS has to be agreed on within that of the
    // connection.
    let api: Api<Namespace> = Api::all(client("https"));
    in_time(api.list(&ListParams::default())).await.unwrap_err();
}

#[tokio::test]
async fn a_watch_may_be_silent_for_longer_than_a_call_may_take() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let server = Server::start(protocol).await;
        let client = server.client(SHORT);
        let pods: Api<Pod> = Api::all(client.clone());
        let mut events = Box::pin(pods.watch(&WatchParams::default(), "0").await.unwrap());
        let added = |event: Option<WatchEvent<Pod>>| match event {
            Some(WatchEvent::Added(pod)) => pod.name_any(),
            event => panic!("{event:?}"),
        };
        assert_eq!(added(in_time(events.try_next()).await.unwrap()), "first");
        // Asked later, and over already.
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        assert!(timed_out(&in_time(api.get("hang")).await.unwrap_err()));
        server.go_on.send_replace(true);
        assert_eq!(added(in_time(events.try_next()).await.unwrap()), "second");
    }
}

#[tokio::test]
async fn a_dead_connection_ends_its_watches_and_is_not_used_again() {
    let server = Server::start(Protocol::Http2).await;
    let client = server.client(SHORT);
    let pods: Api<Pod> = Api::all(client.clone());
    let mut events = Box::pin(pods.watch(&WatchParams::default(), "0").await.unwrap());
    in_time(events.try_next()).await.unwrap().expect("the first pod");
    server.cut();
    let ended = in_time(events.try_next()).await;
    assert!(!matches!(ended, Ok(Some(_))), "{ended:?}");
    let namespaces: Api<Namespace> = Api::all(client);
    in_time(namespaces.list(&ListParams::default())).await.unwrap();
}

#[test]
fn a_dead_connection_is_noticed_within_thirty_seconds_and_before_the_lease_is_lost() {
    assert!(Deadlines::API.dead_connection() < Duration::from_secs(30));
    let lease = Deadlines::LEASE;
    assert!(lease.dead_connection() + lease.connect < Duration::from_secs(10));
}

#[tokio::test]
async fn calls_are_counted_by_what_they_are_about_and_what_came_of_them() {
    let server = Server::start(Protocol::Http2).await;
    let metrics = Metrics::new();
    let client = connect(&server.config, SHORT, &CallMetrics::new(&metrics)).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    in_time(namespaces.list(&ListParams::default())).await.unwrap();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    in_time(api.get("hang")).await.unwrap_err();
    in_time(api.get("half")).await.unwrap_err();
    let pods: Api<Pod> = Api::all(client);
    let _open = in_time(pods.watch(&WatchParams::default(), "0")).await.unwrap();
    let text = metrics.encode().unwrap();
    for line in [
        r#"client_go_request_total{code="200",method="GET",group="",version="v1",kind="namespaces",subresource=""} 1"#,
        r#"client_go_request_total{code="<error>",method="GET",group="",version="v1",kind="configmaps",subresource=""} 2"#,
        r#"client_go_request_total{code="200",method="GET",group="",version="v1",kind="pods",subresource=""} 1"#,
        r#"client_go_request_duration_seconds_count{verb="LIST",group="",version="v1",kind="namespaces",subresource=""} 1"#,
        r#"client_go_request_duration_seconds_count{verb="WATCH",group="",version="v1",kind="pods",subresource=""} 1"#,
    ] {
        assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
    }
}
