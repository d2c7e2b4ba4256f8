//! What the API server asks a kubelet for, over TLS on loopback: the logs of a pod at
//! `/containerLogs/<namespace>/<pod>/<container>`, and its ports (see [`super::portforward`]).

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tenon_aws_double::request::Params;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::portforward;

/// The address of the pod with this namespace and name, if it runs here.
pub(super) type Address = Arc<dyn Fn(&str, &str) -> Option<Ipv4Addr> + Send + Sync>;

/// Listens from when it is made; answers once it is served.
pub struct LogServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    port: u16,
}

/// Logs can't be served.
#[derive(Debug, thiserror::Error)]
pub enum LogServerError {
    /// The certificate can't be used.
    #[error("the certificate in {} can't be used", .dir.display())]
    Certificate {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No port of loopback can be bound.
    #[error("no port of loopback can be bound")]
    Listen(#[source] io::Error),
}

impl LogServer {
    /// On a free port of loopback, with the API server's own certificate, which nobody checks here.
    ///
    /// # Errors
    /// When the certificate can't be read or the port not bound.
    pub async fn bind(certificates: &Path) -> Result<Self, LogServerError> {
        let failed = |source| LogServerError::Certificate { dir: certificates.to_owned(), source };
        let config = config(certificates).map_err(failed)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(LogServerError::Listen)?;
        let port = listener.local_addr().map_err(LogServerError::Listen)?.port();
        Ok(Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)), port })
    }

    /// On loopback.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Serves the files of a directory, and the ports of pods, for ever.
    pub(super) async fn serve(self, logs: PathBuf, pods: Address) {
        let Self { listener, acceptor, .. } = self;
        let logs = Arc::new(logs);
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let Ok((stream, _)) = stream else { continue };
            let (acceptor, logs) = (acceptor.clone(), Arc::clone(&logs));
            let pods = Arc::clone(&pods);
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                // What a connection is upgraded to ends with the kubelet, too.
                let (upgraded, mut upgrades) = tokio::sync::mpsc::unbounded_channel();
                let answer = service_fn(move |request: Request<Incoming>| {
                    let (logs, pods) = (Arc::clone(&logs), Arc::clone(&pods));
                    let upgraded = upgraded.clone();
                    async move {
                        let Some(address) = forwarded(&request, &pods) else {
                            return Ok::<_, io::Error>(answer(&logs, request.uri()));
                        };
                        Ok(match portforward::accept(request, address) {
                            Ok((response, forwarding)) => {
                                // Its receiver lives as long as this connection.
                                drop(upgraded.send(forwarding));
                                response
                            }
                            Err(why) => with_status(StatusCode::BAD_REQUEST, format!("{why}\n")),
                        })
                    }
                });
                let connection = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .with_upgrades();
                // An error is a client that went away.
                drop(connection.await);
                while let Some(forwarding) = upgrades.recv().await {
                    forwarding.await;
                }
            });
        }
    }
}

fn config(certificates: &Path) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
    let chain = CertificateDer::pem_file_iter(certificates.join("apiserver.crt"))?
        .collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(certificates.join("apiserver.key"))?;
    Ok(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?)
}

/// The address of the pod whose port is to be forwarded.
fn forwarded(request: &Request<Incoming>, pods: &Address) -> Option<Ipv4Addr> {
    let parts: Vec<_> = request.uri().path().split('/').skip(1).collect();
    match parts[..] {
        ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
            pods(namespace, pod)
        }
        _ => None,
    }
}

fn answer(logs: &Path, uri: &http::Uri) -> Response<Full<Bytes>> {
    let parts: Vec<_> = uri.path().split('/').skip(1).collect();
    let ["containerLogs", namespace, pod, container] = parts[..] else {
        return with_status(
            StatusCode::NOT_FOUND,
            "only logs and ports of running pods are served here\n".into(),
        );
    };
    let file = logs.join(format!("{namespace}_{pod}_{container}.log"));
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            let params = Params::of_query(uri.query().unwrap_or_default());
            let lines = params.get("tailLines").and_then(|lines| lines.parse().ok());
            with_status(StatusCode::OK, lines.map_or(&*text, |lines| tail(&text, lines)).to_owned())
        }
        Err(error) => with_status(
            StatusCode::NOT_FOUND,
            format!("{container} of {pod} has no log: {error}\n"),
        ),
    }
}

fn with_status(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

/// The last so many lines.
fn tail(text: &str, lines: usize) -> &str {
    let Some(last) = lines.checked_sub(1) else { return "" };
    let whole = text.trim_end_matches('\n');
    match whole.rmatch_indices('\n').nth(last) {
        Some((end, _)) => &text[end + 1..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(tail("a\nb", 2), "a\nb");
        assert_eq!(tail("a\nb\n", 1), "b\n");
        assert_eq!(tail("a\n", 9), "a\n");
        assert_eq!(tail("a\n", 0), "");
    }
}
