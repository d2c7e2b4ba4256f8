//! Faults between one client and the API server: a proxy on loopback, of which every operator may
//! have its own.
//!
//! What passes through it is the client's own traffic: the proxy has the API server's certificate,
//! so that the client trusts it, speaks HTTP/2 or HTTP/1.1 as the client likes, and hands the
//! client's bearer token on, so that the API server knows who asks. (Client certificates would end
//! here; the bed's API server accepts none.) A test says which [`Requests`] meet which [`Fault`],
//! how often, and when it is over; what it does not mention passes. The oldest rule in force that
//! means a request decides. Rules reach watches that are under way, too.
//!
//! The proxy remembers every request, so that a test can say what was sent, how often, and what was
//! not.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use axum::body::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::control_plane::ControlPlane;

mod gate;
mod refusal;
mod requests;
mod rules;
mod under_way;

pub use refusal::Refusal;
pub use requests::{ApiRequest, Requests};
pub use rules::Rule;

use gate::{Gate, Gated};
use rules::{Met, Rules};
use under_way::UnderWay;

/// As kube-apiserver: so many requests at once on one HTTP/2 connection.
const MAX_STREAMS: u32 = 100;

type AnswerBody = UnsyncBoxBody<Bytes, kube::Error>;

/// What happens to a request, or to a watch that is under way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The API server answers, and the proxy keeps the answer until the rule is lifted; then all of
    /// it is given. A watch lags behind in the same way.
    Hold,
    /// The API server does not see the request, and nobody ever answers. A watch falls silent.
    /// Lifting the rule brings neither back.
    Silence,
    /// The API server does what it is asked for; the answer is lost, and the client waits for ever.
    LoseAnswer,
    /// The whole connection that the request came on hangs, for good: it stays open, and no byte
    /// passes in either direction. With HTTP/2 that is everything that the client has under way.
    /// The kernel still acknowledges what the client sends, so TCP's own keep-alive notices
    /// nothing.
    Hang,
    /// The connection that the request came on is closed.
    Cut,
    /// The API server does not see the request, and this is the answer. A watch that is under way
    /// ends with it as an error event.
    Refuse(Refusal),
    /// 410 Gone: a watch gets it as an error event, at its start or in its midst, as from a real
    /// API server; a list as its HTTP status.
    Expire,
}

/// The proxy can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiFaultsError {
    /// The API server's certificate can't be used.
    #[error("can't serve with the API server's certificate in {}", .dir.display())]
    Certificate {
        /// Its directory.
        dir: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No port of loopback can be bound.
    #[error("no port of loopback can be bound")]
    Listen(#[source] io::Error),
    /// A kubeconfig can't be read, written or used.
    #[error("can't use the kubeconfig {}", .path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A running proxy before the API server; gone when dropped, with all its connections.
#[derive(Debug)]
pub struct ApiFaults {
    port: u16,
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

/// What all connections share.
struct Shared {
    rules: Arc<Rules>,
    upstream: Client,
    connections: Mutex<Connections>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("rules", &self.rules).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Connections {
    /// New ones hang from their first byte.
    partitioned: bool,
    gates: Vec<Weak<Gate>>,
}

impl ApiFaults {
    /// Starts a proxy without any rule before a control plane's API server.
    ///
    /// # Errors
    /// When the control plane's certificate or kubeconfig can't be used, or no port is free.
    pub async fn start(plane: &ControlPlane) -> Result<Self, ApiFaultsError> {
        let dir = plane.certificates();
        let tls = server_config(&dir)
            .map_err(|source| ApiFaultsError::Certificate { dir: dir.clone(), source })?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(ApiFaultsError::Listen)?;
        let port = listener.local_addr().map_err(ApiFaultsError::Listen)?.port();
        let kubeconfig = plane.kubeconfig().with_file_name(format!("kubeconfig-behind-{port}"));
        write_kubeconfig(plane.kubeconfig(), &kubeconfig, port)
            .map_err(|source| ApiFaultsError::Kubeconfig { path: kubeconfig.clone(), source })?;
        let mut config = config(plane.kubeconfig()).await?;
        // Each request says itself who asks.
        config.auth_info = AuthInfo::default();
        config.default_retry = false;
        (config.read_timeout, config.write_timeout) = (None, None);
        let shared = Arc::new(Shared {
            rules: Rules::new(),
            upstream: client(config, plane.kubeconfig())?,
            connections: Mutex::default(),
        });
        let mut server = JoinSet::new();
        server.spawn(serve(Arc::clone(&shared), listener, TlsAcceptor::from(Arc::new(tls))));
        Ok(Self { port, kubeconfig, shared, _server: server })
    }

    /// Its port on loopback.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// A kubeconfig of the bed's administrator that leads through the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// An administrator's client that goes through the proxy, and repeats nothing by itself.
    ///
    /// # Errors
    /// When the kubeconfig can't be used.
    pub async fn client(&self) -> Result<Client, ApiFaultsError> {
        let mut config = config(&self.kubeconfig).await?;
        config.default_retry = false;
        client(config, &self.kubeconfig)
    }

    /// From now on these requests meet this fault, until the rule is lifted.
    pub fn add(&self, requests: Requests, fault: Fault) -> Rule {
        self.shared.rules.add(requests, fault, None)
    }

    /// The next `times` of these requests, and watches under way, meet this fault.
    pub fn add_times(&self, times: usize, requests: Requests, fault: Fault) -> Rule {
        self.shared.rules.add(requests, fault, Some(times))
    }

    /// The connections that are open hang, for good: they stay open and nobody answers on them. New
    /// ones work.
    pub fn hang_connections(&self) {
        self.each_connection(Gate::hang);
    }

    /// All connections hang, also those that are opened from now on, until [`Self::heal`]; what
    /// hung stays so.
    pub fn partition(&self) {
        self.shared.connections.lock().partitioned = true;
        self.hang_connections();
    }

    /// The connections that are open are closed, also those that hang. New ones work.
    pub fn cut_connections(&self) {
        self.each_connection(Gate::cut);
    }

    /// Lifts all rules and ends a partition.
    pub fn heal(&self) {
        self.shared.connections.lock().partitioned = false;
        self.shared.rules.lift_all();
    }

    /// How many of these requests have come so far, whatever became of them.
    pub fn count(&self, which: &Requests) -> usize {
        self.shared.rules.count(which)
    }

    /// These requests, oldest first, whatever became of them.
    pub fn requests(&self, which: &Requests) -> Vec<ApiRequest> {
        self.shared.rules.passed(which)
    }

    fn each_connection(&self, tell: impl Fn(&Gate)) {
        self.shared
            .connections
            .lock()
            .gates
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|it| tell(&it));
    }
}

impl Shared {
    /// A gate for a new connection.
    fn gate(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let mut connections = self.connections.lock();
        connections.gates.retain(|it| it.strong_count() > 0);
        connections.gates.push(Arc::downgrade(&gate));
        if connections.partitioned {
            gate.hang();
        }
        gate
    }

    async fn answer(
        &self,
        gate: &Arc<Gate>,
        request: Request<Incoming>,
    ) -> anyhow::Result<Response<AnswerBody>> {
        let (parts, body) = request.into_parts();
        let asked = ApiRequest::read(&parts.method, &parts.uri);
        let body = body.collect().await?.to_bytes();
        let met = self.rules.meet(&asked);
        match met.as_ref().map(|it| &it.fault) {
            None | Some(Fault::Hold | Fault::LoseAnswer) => {}
            Some(Fault::Refuse(refusal)) => return Ok(whole(refusal.answer(&asked))),
            Some(Fault::Expire) if asked.is_watch() => {
                return Ok(whole(Response::new(Refusal::expired().event(&asked))));
            }
            Some(Fault::Expire) => return Ok(whole(Refusal::expired().answer(&asked))),
            Some(Fault::Silence) => return std::future::pending().await,
            Some(Fault::Hang) => {
                gate.hang();
                return std::future::pending().await;
            }
            Some(Fault::Cut) => {
                gate.cut();
                return std::future::pending().await;
            }
        }
        let mut forwarded = Request::new(Body::from(body));
        *forwarded.method_mut() = parts.method;
        *forwarded.uri_mut() = asked.url.parse()?;
        *forwarded.headers_mut() = end_to_end(parts.headers);
        let (mut head, body) = self.upstream.send(forwarded).await?.into_parts();
        head.headers = end_to_end(head.headers);
        if asked.is_watch() && head.status.is_success() && !lost(met.as_ref()) {
            let held_by = met.map(|it| it.id);
            let body = UnderWay::new(asked, &self.rules, gate, body, held_by).into_stream();
            return Ok(Response::from_parts(head, StreamBody::new(body).boxed_unsync()));
        }
        let body = body.collect().await?.to_bytes();
        if lost(met.as_ref()) {
            return std::future::pending().await;
        }
        if let Some(met) = met {
            let mut changes = self.rules.changes();
            while self.rules.holds(met.id) {
                changes.changed().await?;
            }
        }
        Ok(whole(Response::from_parts(head, body)))
    }
}

fn lost(met: Option<&Met>) -> bool {
    met.is_some_and(|it| it.fault == Fault::LoseAnswer)
}

fn whole(answer: Response<Bytes>) -> Response<AnswerBody> {
    answer.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync())
}

/// The headers without those that are about one connection. Lengths are set anew, as a body may
/// come in one piece that was in several.
fn end_to_end(mut headers: HeaderMap<HeaderValue>) -> HeaderMap<HeaderValue> {
    for name in [CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    headers
}

async fn serve(shared: Arc<Shared>, listener: TcpListener, acceptor: TlsAcceptor) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else { continue };
        // Events are small, and their time is what tests look at.
        drop(stream.set_nodelay(true));
        let (shared, acceptor, gate) = (Arc::clone(&shared), acceptor.clone(), shared.gate());
        connections.spawn(async move {
            tokio::select! {
                () = gate.is_cut() => {}
                () = connection(&shared, &gate, &acceptor, stream) => {}
            }
        });
    }
}

/// Serves one connection to its end. Errors are of clients that went away, or of an API server that
/// did: then the client's connection ends, too.
async fn connection(
    shared: &Arc<Shared>,
    gate: &Arc<Gate>,
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) {
    let Ok(stream) = acceptor.accept(Gated::new(stream, Arc::clone(gate))).await else { return };
    let multiplexed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let (shared, gate) = (Arc::clone(shared), Arc::clone(gate));
    let answer = service_fn(move |request| {
        let (shared, gate) = (Arc::clone(&shared), Arc::clone(&gate));
        async move { shared.answer(&gate, request).await }
    });
    let io = TokioIo::new(stream);
    let served = if multiplexed {
        let mut server = http2::Builder::new(TokioExecutor::new());
        server.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
        server.serve_connection(io, answer).await
    } else {
        http1::Builder::new().serve_connection(io, answer).await
    };
    if let Err(error) = served {
        tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended");
    }
}

fn server_config(dir: &Path) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
    let chain =
        CertificateDer::pem_file_iter(dir.join("apiserver.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(dir.join("apiserver.key"))?;
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Writes a copy of a kubeconfig whose cluster is at this port.
fn write_kubeconfig(
    original: &Path,
    copy: &Path,
    port: u16,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(original)?)?;
    config["clusters"][0]["cluster"]["server"] = format!("https://127.0.0.1:{port}").into();
    Ok(std::fs::write(copy, config.to_string())?)
}

async fn config(kubeconfig: &Path) -> Result<Config, ApiFaultsError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ApiFaultsError::Kubeconfig {
        path: kubeconfig.to_path_buf(),
        source,
    };
    let read = Kubeconfig::read_from(kubeconfig).map_err(|error| failed(error.into()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    config.map_err(|error| failed(error.into()))
}

fn client(config: Config, kubeconfig: &Path) -> Result<Client, ApiFaultsError> {
    Client::try_from(config).map_err(|error| ApiFaultsError::Kubeconfig {
        path: kubeconfig.to_path_buf(),
        source: error.into(),
    })
}
