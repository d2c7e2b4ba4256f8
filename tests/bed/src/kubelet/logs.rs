//! What the API server asks a kubelet for when somebody wants the logs of a pod:
//! `/containerLogs/<namespace>/<pod>/<container>`, over TLS on loopback.

use std::io;
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

    /// Serves the files of a directory, for ever.
    pub(super) async fn serve(self, logs: PathBuf) {
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
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let answer = service_fn(move |request: Request<Incoming>| {
                    let logs = Arc::clone(&logs);
                    async move { Ok::<_, io::Error>(answer(&logs, request.uri())) }
                });
                // An error is a client that went away.
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
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

fn answer(logs: &Path, uri: &http::Uri) -> Response<Full<Bytes>> {
    let parts: Vec<_> = uri.path().split('/').skip(1).collect();
    let ["containerLogs", namespace, pod, container] = parts[..] else {
        return with_status(StatusCode::NOT_FOUND, "only logs are served here\n".into());
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
