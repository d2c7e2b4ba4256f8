//! One HTTP connection to a replica of the operator: through a forwarded port, or to an address on
//! loopback.

use std::time::Duration;

use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kube::Client;
use tenon_installer_core::kubernetes::client::failed;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::error::LedgerError;
use super::websocket::{Forwarded, forward};

/// An answer is smaller: the operator bounds what it keeps.
const ANSWER: usize = 64 << 20;

/// How long it may take until a broken connection says why.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    /// What moves bytes; ends with the connection.
    _driver: JoinSet<()>,
    /// Where it leads, and what was said when that could not be reached.
    to: To,
}

enum To {
    Address,
    Pod {
        name: String,
        port: u16,
        version: Option<String>,
        failure: oneshot::Receiver<String>,
        _pump: JoinSet<()>,
    },
}

impl Connection {
    /// To a host and port.
    pub(super) async fn to(address: &str) -> Result<Self, LedgerError> {
        let unreached = |why: String| LedgerError::Unreached { address: address.to_owned(), why };
        let stream =
            TcpStream::connect(address).await.map_err(|error| unreached(error.to_string()))?;
        Self::over(stream, To::Address).await
    }

    /// To a port on the loopback address of a pod.
    pub(super) async fn forwarded(
        client: &Client,
        (namespace, pod): (&str, &str),
        port: u16,
        version: Option<String>,
    ) -> Result<Self, LedgerError> {
        let forwarded = forward(client, namespace, pod, port).await;
        let Forwarded { stream, failure, pump } = forwarded
            .map_err(|source| failed("create", format!("pods/portforward of {pod}"), source))?;
        let to = To::Pod { name: pod.to_owned(), port, version, failure, _pump: pump };
        Self::over(stream, to).await
    }

    async fn over<S>(stream: S, to: To) -> Result<Self, LedgerError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broken = |error: hyper::Error| LedgerError::Broken { why: error.to_string() };
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Whoever waits for an answer is told.
            let _ = connection.await;
        });
        Ok(Self { sender, _driver: driver, to })
    }

    /// Whether another question can be asked over it.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Asks a question with a token.
    pub(super) async fn get(
        &mut self,
        path: &str,
        token: &str,
        patience: Duration,
    ) -> Result<(StatusCode, Bytes), LedgerError> {
        let broken = |why: String| LedgerError::Broken { why };
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| broken("the token is no text".to_owned()))?;
        header.set_sensitive(true);
        let request = Request::get(path)
            .header(HOST, "localhost")
            .header(AUTHORIZATION, header)
            .body(Empty::new())
            .map_err(|error| broken(error.to_string()))?;
        let exchange = async {
            let answer = self.sender.send_request(request).await.map_err(|it| it.to_string())?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER).collect().await;
            Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
        };
        match tokio::time::timeout(patience, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(self.failure(why).await),
            Err(_) => Err(broken(format!("no answer within {} s", patience.as_secs()))),
        }
    }

    /// Why the connection broke: what the kubelet says, where it says something.
    async fn failure(&mut self, why: String) -> LedgerError {
        let To::Pod { name, port, version, failure, .. } = &mut self.to else {
            return LedgerError::Broken { why };
        };
        match tokio::time::timeout(LAST_WORDS, failure).await {
            Ok(Ok(said)) => LedgerError::Closed {
                pod: name.clone(),
                port: *port,
                version: version.clone(),
                why: Some(last_words(&said)),
            },
            _ => LedgerError::Broken { why },
        }
    }
}

/// The end of what container runtimes say, who begin with names of sandboxes and addresses.
fn last_words(said: &str) -> String {
    let refused = ["connection refused", "Connection refused"].iter().any(|it| said.contains(it));
    if refused { "connection refused".to_owned() } else { said.trim().to_owned() }
}
