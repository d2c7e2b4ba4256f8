//! The servers for probes and metrics.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::state::State;

/// A server that can't listen.
#[derive(Debug, thiserror::Error)]
#[error(
    "listening on {address} for {purpose}; is another program using the port? (--metrics-port, --health-probe-port, --bind-address)"
)]
pub struct ListenError {
    purpose: &'static str,
    address: SocketAddr,
    source: std::io::Error,
}

/// Takes a port.
pub async fn listen(
    purpose: &'static str,
    address: IpAddr,
    port: u16,
) -> Result<TcpListener, ListenError> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address).await.map_err(|source| ListenError { purpose, address, source })
}

/// Answers `/healthz` and `/readyz` until `stop`. Ready means that the CRDs are there and everything was listed once; a standby is ready too.
pub async fn serve_health(listener: TcpListener, state: State, stop: CancellationToken) {
    async fn ready(Shared(state): Shared<State>) -> (StatusCode, &'static str) {
        let state = state.read();
        if !state.has_found_crds() {
            (StatusCode::SERVICE_UNAVAILABLE, "the CRDs of NodePool and NodeClaim are not found\n")
        } else if !state.has_listed_all() {
            (StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet\n")
        } else {
            (StatusCode::OK, "ok\n")
        }
    }
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(state);
    serve("health", listener, router, stop).await;
}

/// Answers `/metrics` until `stop`.
pub async fn serve_metrics(listener: TcpListener, metrics: Metrics, stop: CancellationToken) {
    async fn encode(Shared(metrics): Shared<Arc<Metrics>>) -> impl IntoResponse {
        const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        match metrics.encode() {
            Ok(text) => ([(header::CONTENT_TYPE, TYPE)], text).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
    let router = Router::new().route("/metrics", get(encode)).with_state(Arc::new(metrics));
    serve("metrics", listener, router, stop).await;
}

async fn serve(
    purpose: &'static str,
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) {
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::error!(purpose, error = %crate::logging::chain(&error), "server ended");
    }
}
