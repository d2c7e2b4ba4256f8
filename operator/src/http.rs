//! The servers for probes and metrics, and the one for whoever has to find out what the operator
//! does.
//!
//! Probes and metrics listen where the cluster reaches them, and so do its tenants: they tell, and
//! change nothing. What changes something, or costs much, listens on the pod's own loopback
//! address: `kubectl port-forward` reaches it, for those who may. So does the server for decisions,
//! which also asks the API server who the caller is.

#[expect(clippy::disallowed_methods, reason = "reviews are questions, and nothing is stored")]
pub(crate) mod access;
pub(crate) mod decisions;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use clap::ValueEnum as _;
use futures::{Stream, stream};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::liveness::Liveness;
use crate::logging::Level;
use crate::metrics::Metrics;
use crate::metrics::exposition::Gone;
use crate::options::LogLevel;
use crate::state::State;
use crate::tasks::blocking;

/// A server that can't listen.
#[derive(Debug, thiserror::Error)]
#[error(
    "listening on {address} for {purpose}; is another program using the port? (--metrics-port, --health-probe-port, --decisions-port, --dashboard-port, --debug-port, --bind-address)"
)]
pub struct ListenError {
    purpose: &'static str,
    address: SocketAddr,
    source: std::io::Error,
}

/// Takes a port.
pub(crate) async fn listen(
    purpose: &'static str,
    address: IpAddr,
    port: u16,
) -> Result<TcpListener, ListenError> {
    let address = SocketAddr::new(address, port);
    TcpListener::bind(address).await.map_err(|source| ListenError { purpose, address, source })
}

/// Answers `/healthz` and `/readyz` until `stop`. Healthy means that no loop is stuck. Ready means
/// that the CRDs are there and everything was listed once; a standby is ready too.
pub(crate) async fn serve_health(
    listener: TcpListener,
    state: State,
    liveness: Liveness,
    stop: CancellationToken,
) {
    async fn ready(Shared(state): Shared<State>) -> (StatusCode, &'static str) {
        let state = state.read();
        if !state.has_found_crds() {
            (StatusCode::SERVICE_UNAVAILABLE, "the CRDs of NodePool and NodeClaim do not exist\n")
        } else if !state.has_listed_all() {
            (StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet\n")
        } else {
            (StatusCode::OK, "ok\n")
        }
    }
    let router = Router::new()
        .route("/readyz", get(ready))
        .with_state(state)
        .route("/healthz", get(async move || health(&liveness)));
    serve("health", listener, router, stop).await;
}

/// Scrapes that are answered at the same time: a pair of Prometheus servers, and somebody who
/// looks.
const SCRAPES: usize = 4;

/// A scraper that takes no piece for so long is given up.
const SCRAPER_PATIENCE: Duration = Duration::from_secs(10);

/// Answers `/metrics` until `stop`. The answer is written while it is read: a large cluster's is
/// never in memory as a whole.
pub(crate) async fn serve_metrics(
    listener: TcpListener,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let scrapes = Scrapes { metrics, room: Arc::new(Semaphore::new(SCRAPES)), stop: stop.clone() };
    let router = Router::new().route("/metrics", get(scrape)).with_state(scrapes);
    serve("metrics", listener, router, stop).await;
}

#[derive(Clone)]
struct Scrapes {
    metrics: Metrics,
    room: Arc<Semaphore>,
    stop: CancellationToken,
}

async fn scrape(Shared(scrapes): Shared<Scrapes>) -> Response {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let Scrapes { metrics, room, stop } = scrapes;
    let Ok(permit) = room.try_acquire_owned() else {
        let message = "other scrapes are in progress, try again later\n";
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    // One piece waits while the next is written.
    let (sender, receiver) = mpsc::channel::<String>(1);
    let runtime = Handle::current();
    let written = blocking(move || {
        let _permit = permit;
        metrics.write(&mut |piece| {
            if stop.is_cancelled() {
                return Err(Gone);
            }
            let send = stop.run_until_cancelled(sender.send_timeout(piece, SCRAPER_PATIENCE));
            runtime.block_on(send).and_then(Result::ok).ok_or(Gone)
        })
    });
    let body = Body::from_stream(pieces(receiver, written));
    ([(header::CONTENT_TYPE, TYPE)], body).into_response()
}

/// Which loops are stuck, one a line. Kubernetes starts the operator anew when it has heard of one
/// three times, so it is logged as well.
fn health(liveness: &Liveness) -> (StatusCode, String) {
    use std::fmt::Write as _;
    let mut text = String::new();
    for stuck in liveness.stuck() {
        tracing::error!(task = stuck.name, "{stuck}");
        // Writing to a string does not fail.
        writeln!(text, "{stuck}").ok();
    }
    if text.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

/// What is written, piece by piece. A scrape that was cut off ends with an error: no scraper takes
/// a part for the whole.
fn pieces(
    receiver: mpsc::Receiver<String>,
    written: impl Future<Output = Option<Result<(), Gone>>>,
) -> impl Stream<Item = Result<String, Gone>> {
    let running = Some((receiver, Box::pin(written), None));
    stream::unfold(running, async |running| {
        let (mut receiver, mut written, mut ended) = running?;
        loop {
            tokio::select! {
                biased;
                piece = receiver.recv() => {
                    if let Some(piece) = piece {
                        return Some((Ok(piece), Some((receiver, written, ended))));
                    }
                    let ended = match ended {
                        Some(ended) => ended,
                        None => written.await,
                    };
                    return if ended == Some(Ok(())) { None } else { Some((Err(Gone), None)) };
                }
                // The writing gets on only while it is waited for.
                end = &mut written, if ended.is_none() => ended = Some(end),
            }
        }
    })
}

/// Answers `/debug/…` until `stop`: the log level, and with `profiles` what the allocator knows.
pub(crate) async fn serve_debug(
    listener: TcpListener,
    level: Level,
    profiles: bool,
    stop: CancellationToken,
) {
    serve("debugging", listener, debug_router(level, profiles), stop).await;
}

fn debug_router(level: Level, profiles: bool) -> Router {
    async fn show(Shared(level): Shared<Level>) -> String {
        format!("{}\n", level.get().as_filter())
    }
    async fn change(Shared(level): Shared<Level>, text: String) -> (StatusCode, String) {
        let Ok(wanted) = LogLevel::from_str(text.trim(), true) else {
            let told = "the body has to be one of debug, info, warn, error\n".to_owned();
            return (StatusCode::BAD_REQUEST, told);
        };
        let before = level.get().as_filter();
        match level.set(wanted) {
            Ok(()) => {
                tracing::warn!(before, now = wanted.as_filter(), "log level changed");
                (StatusCode::OK, format!("{}\n", wanted.as_filter()))
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
    async fn heap() -> Response {
        let stats = mimalloc::MiMalloc::stats_json();
        let stats = stats.map(|stats| stats.to_string_lossy().into_owned());
        match stats {
            Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
        }
    }
    let router = Router::new().route("/debug/log-level", get(show).put(change)).with_state(level);
    if profiles { router.route("/debug/pprof/heap", get(heap)) } else { router }
}

async fn serve(
    purpose: &'static str,
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) {
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::error!(purpose, error = %crate::text::chain(&error), "server ended");
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use futures::StreamExt as _;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    fn scrapes() -> Scrapes {
        let metrics = Metrics::new();
        for i in 0..20_000 {
            metrics.eviction_requests.inc([&format!("{i}")]);
        }
        let room = Arc::new(Semaphore::new(SCRAPES));
        Scrapes { metrics, room, stop: CancellationToken::new() }
    }

    #[tokio::test]
    async fn a_scrape_comes_in_pieces_and_has_an_end() {
        let scrapes = scrapes();
        let mut body = scrape(Shared(scrapes.clone())).await.into_body().into_data_stream();
        let (mut text, mut pieces) = (String::new(), 0);
        while let Some(piece) = body.next().await {
            text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
            pieces += 1;
        }
        assert!(pieces > 3, "{pieces}");
        assert_eq!(text, scrapes.metrics.encode().unwrap());
        assert!(text.ends_with("# EOF\n"));
    }

    #[tokio::test]
    async fn scrapers_that_do_not_read_hold_up_neither_the_metrics_nor_the_end_of_the_operator() {
        let scrapes = scrapes();
        let mut slow = Vec::new();
        for _ in 0..SCRAPES {
            let mut body = scrape(Shared(scrapes.clone())).await.into_body().into_data_stream();
            body.next().await.unwrap().unwrap();
            slow.push(body);
        }
        let refused = scrape(Shared(scrapes.clone())).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        scrapes.metrics.eviction_requests.inc(["new"]);
        scrapes.stop.cancel();
        for mut body in slow {
            let mut last = None;
            while let Some(piece) = body.next().await {
                last = Some(piece);
            }
            assert!(last.unwrap().is_err(), "a part is not taken for the whole");
        }
        let _all = scrapes.room.acquire_many(4).await.unwrap();
    }

    async fn ask(router: &Router, method: &str, path: &str, body: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).body(Body::from(body.to_owned()));
        let answer = router.clone().oneshot(request.unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_log_level_is_told_and_changed_over_http() {
        let (level, _logs) = crate::logging::tests::mk_level();
        let router = debug_router(level.clone(), false);
        let path = "/debug/log-level";
        assert_eq!(ask(&router, "GET", path, "").await, (200, "info\n".to_owned()));
        assert_eq!(ask(&router, "PUT", path, "debug\n").await, (200, "debug\n".to_owned()));
        assert_eq!(level.get(), LogLevel::Debug);
        let (status, told) = ask(&router, "PUT", path, "loud").await;
        assert_eq!((status, told.contains("debug, info, warn, error")), (400, true), "{told}");
        assert_eq!(level.get(), LogLevel::Debug);
    }

    #[tokio::test]
    async fn profiles_are_there_only_when_they_are_asked_for() {
        let (level, _logs) = crate::logging::tests::mk_level();
        let path = "/debug/pprof/heap";
        assert_eq!(ask(&debug_router(level.clone(), false), "GET", path, "").await.0, 404);
        let (status, text) = ask(&debug_router(level, true), "GET", path, "").await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_loop_fails_the_health_check_until_it_gets_on() {
        let liveness = Liveness::default();
        let turn = liveness.begin("state", Duration::from_mins(5));
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(health(&liveness), (StatusCode::OK, "ok\n".to_owned()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let told = "state has been stuck for 301 s (limit 300 s)\n".to_owned();
        assert_eq!(health(&liveness), (StatusCode::SERVICE_UNAVAILABLE, told));
        turn.progressed();
        assert_eq!(health(&liveness).0, StatusCode::OK);
        drop(turn);
    }
}
