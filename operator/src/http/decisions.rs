//! `GET /decisions`: the decision ledger, for those who may read it.
//!
//! It listens on the pod's loopback address only, so that no token crosses a network in the clear:
//! `kubectl port-forward` and `tenon` reach it through the API server. `docs/src/design/ledger.md`
//! says why.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as Parameters, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tenon_state::decision::{Kind, LONGEST_WAIT, MOST, PATH};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::access::{Access, Verdict};
use super::serve;
use crate::decisions::{Decisions, Query};
use crate::leader::Election;

/// Decisions in an answer that asks for no other number.
const LIMIT: usize = 200;
/// Questions that are answered, or wait for a change, at the same time.
const READERS: usize = 64;
/// Longer tokens are nobody's.
pub(crate) const LONGEST_TOKEN: usize = 32 << 10;

/// The address to listen on: the loopback address that the operator is bound to, if it is.
pub(crate) fn address(bound: IpAddr) -> IpAddr {
    if bound.is_loopback() { bound } else { Ipv4Addr::LOCALHOST.into() }
}

/// What answers need.
#[derive(Clone)]
pub(crate) struct Ledger {
    /// What is served.
    pub(crate) decisions: Decisions,
    /// The API server.
    pub(crate) client: Client,
    /// Tells who leads instead; none where this replica always does.
    pub(crate) election: Option<Election>,
}

/// Answers `/decisions` until `stop`.
pub(crate) async fn serve_decisions(
    listener: TcpListener,
    ledger: Ledger,
    stop: CancellationToken,
) {
    serve("decisions", listener, router(ledger, stop.clone()), stop).await;
}

fn router(ledger: Ledger, stop: CancellationToken) -> Router {
    let server = Server {
        ledger,
        access: Arc::new(Access::new(PATH)),
        room: Arc::new(Semaphore::new(READERS)),
        stop,
    };
    Router::new().route(PATH, get(answer)).with_state(server)
}

#[derive(Clone)]
struct Server {
    ledger: Ledger,
    access: Arc<Access>,
    room: Arc<Semaphore>,
    stop: CancellationToken,
}

/// What can be asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    after: Option<u64>,
    limit: Option<usize>,
    nodepool: Option<String>,
    node: Option<String>,
    pod: Option<String>,
    kind: Option<Kind>,
    wait: Option<u64>,
}

/// An answer without decisions: what is wrong, for programs and for people.
fn refusal(status: StatusCode, error: &str, message: &str, more: &Value) -> Response {
    let mut body = json!({"error": error, "message": message});
    json_patch::merge(&mut body, more);
    (status, Json(body)).into_response()
}

fn refused(status: StatusCode, error: &str, message: &str) -> Response {
    refusal(status, error, message, &json!({}))
}

async fn answer(
    Shared(server): Shared<Server>,
    headers: HeaderMap,
    asked: Result<Parameters<Asked>, QueryRejection>,
) -> Response {
    let Ok(_permit) = server.room.try_acquire() else {
        return refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too many requests are in progress, try again later",
        );
    };
    if let Some(refusal) = authorize(&server, &headers).await {
        return refusal;
    }
    let asked = match asked.map_err(|error| error.body_text()).and_then(|it| checked(it.0)) {
        Ok(asked) => asked,
        Err(message) => return refused(StatusCode::BAD_REQUEST, "badRequest", &message),
    };
    let (query, wait) = asked;
    let decisions = &server.ledger.decisions;
    let mut changes = decisions.changes();
    let waiting = tokio::time::sleep(wait);
    tokio::pin!(waiting);
    loop {
        changes.mark_unchanged();
        if !decisions.leads() {
            return not_leading(&server).await;
        }
        let answer = decisions.answer(&query);
        // Who knows a later revision knows another leader's.
        let is_stale = query.after.is_some_and(|after| after > answer.revision);
        if !answer.decisions.is_empty() || is_stale || waiting.is_elapsed() {
            return Json(answer).into_response();
        }
        tokio::select! {
            Ok(()) = changes.changed() => {}
            () = &mut waiting => {}
            () = server.stop.cancelled() => return Json(answer).into_response(),
        }
    }
}

/// What is asked for, and how long it may be waited for.
fn checked(asked: Asked) -> Result<(Query, Duration), String> {
    let Asked { after, limit, nodepool, node, pod, kind, wait } = asked;
    let limit = limit.unwrap_or(LIMIT);
    if limit == 0 || limit > MOST {
        return Err(format!("limit has to be between 1 and {MOST}"));
    }
    let wait = wait.unwrap_or(0);
    if wait > LONGEST_WAIT {
        return Err(format!("wait has to be at most {LONGEST_WAIT} seconds"));
    }
    if kind == Some(Kind::Other) {
        let kinds = Kind::ALL.map(Kind::as_str).join(", ");
        return Err(format!("kind has to be one of {kinds}"));
    }
    let query = Query { after, limit, node_pool: nodepool, node, pod, kind };
    Ok((query, Duration::from_secs(wait)))
}

/// Why the caller may not read; none if it may.
async fn authorize(server: &Server, headers: &HeaderMap) -> Option<Response> {
    let unauthorized = |message| {
        let mut refused = refused(StatusCode::UNAUTHORIZED, "unauthorized", message);
        let scheme = header::HeaderValue::from_static("Bearer");
        refused.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        Some(refused)
    };
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header
        .and_then(|value| value.split_once(' '))
        .and_then(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer").then_some(token.trim()));
    let token = token.filter(|token| !token.is_empty() && token.len() <= LONGEST_TOKEN);
    let Some(token) = token else {
        return unauthorized("a bearer token of the Kubernetes API is required");
    };
    match server.access.check(&server.ledger.client, token).await {
        Ok(Verdict::Allowed) => None,
        Ok(Verdict::Unknown) => unauthorized("the API server does not accept the token"),
        Ok(Verdict::Forbidden { user }) => Some(refusal(
            StatusCode::FORBIDDEN,
            "forbidden",
            &format!("user {user:?} may not get the non-resource URL {PATH}"),
            &json!({"user": user}),
        )),
        Err(error) => {
            let error = crate::text::chain(&error);
            tracing::warn!(error, "can't check who asks for decisions");
            Some(refused(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                &format!("the operator can't check the token: {error}"),
            ))
        }
    }
}

async fn not_leading(server: &Server) -> Response {
    let leader = match &server.ledger.election {
        Some(election) => election.holder().await,
        None => None,
    };
    let message = match &leader {
        Some(leader) => format!("this replica does not lead; {leader} does"),
        None => "this replica does not lead, and no replica does".to_owned(),
    };
    let more = json!({"leader": leader.unwrap_or_default()});
    refusal(StatusCode::SERVICE_UNAVAILABLE, "notLeader", &message, &more)
}

#[cfg(test)]
mod tests;
