//! The server: reads HTTP on loopback and leads each call through log, faults, gate and services.

use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::aws_state::AwsState;
use super::calls::{Call, CallLog};
use super::control::{Control, http};
use super::events::{Event, emit};
use super::instances::StateChange;
use super::request::{AwsRequest, Params};
use super::response::{AwsError, AwsResponse};
use super::service::{AnyService, Endpoint, Gate, Principal};
use super::xml::Element;

/// Everything that answers calls.
pub(super) struct Server {
    pub(super) aws_state: Arc<AwsState>,
    pub(super) services: Vec<Arc<dyn AnyService>>,
    pub(super) endpoints: Vec<Arc<dyn Endpoint>>,
    pub(super) gate: Arc<dyn Gate>,
    pub(super) calls: Arc<CallLog>,
    pub(super) control: Control,
}

/// The connection is to be closed without an answer.
#[derive(Debug)]
struct Dropped;

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault drops the connection")
    }
}

impl std::error::Error for Dropped {}

impl Server {
    /// Accepts connections until told to stop; connections that are open then are cut.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let Ok((stream, _)) = accepted else { continue };
            // Answers are small, and clients wait for them.
            drop(stream.set_nodelay(true));
            let server = Arc::clone(&self);
            connections.spawn(async move {
                let answer = service_fn(move |request| {
                    let server = Arc::clone(&server);
                    async move { server.handle(request).await }
                });
                // An error is a client that went away, or a connection that a fault drops.
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
            });
        }
    }

    /// Moves instances on, until told to stop; what changed goes to [`Server::announce`], so that
    /// slow queues don't hold instances up.
    pub(super) async fn tick(
        aws_state: Arc<AwsState>,
        announced: mpsc::UnboundedSender<Vec<StateChange>>,
        stop: CancellationToken,
    ) {
        loop {
            let (changes, due) = aws_state.instances().advance();
            if !changes.is_empty() && announced.send(changes).is_err() {
                return;
            }
            let next = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = next => {}
                () = aws_state.instances().woken() => {}
            }
        }
    }

    /// Announces changes of state through the region's rules, in order, until nobody sends more or
    /// told to stop.
    pub(super) async fn announce(
        aws_state: Arc<AwsState>,
        mut changed: mpsc::UnboundedReceiver<Vec<StateChange>>,
        stop: CancellationToken,
    ) {
        while let Some(Some(changes)) = stop.run_until_cancelled(changed.recv()).await {
            let events: Vec<Event> =
                changes.iter().map(|change| Event::state_change(&aws_state, change)).collect();
            if let Err(error) = emit(&aws_state, &events).await {
                tracing::warn!(%error, "state changes of instances can't be announced");
            }
        }
    }

    async fn handle(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Dropped> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return Err(Dropped) };
        let body = body.to_bytes();
        let path = parts.uri.path();
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| endpoint.handles(path)) {
            let response = endpoint.call(Request::from_parts(parts, body), &self.aws_state).await;
            return Ok(response.map(Full::new));
        }
        if path.starts_with(http::PREFIX) {
            let params = Params::of_query(parts.uri.query().unwrap_or_default());
            return Ok(http::answer(&self.control, &parts.method, path, &params, &body)
                .await
                .map(Full::new));
        }
        let request = AwsRequest::read(
            parts.method,
            &parts.uri,
            parts.headers,
            body,
            self.aws_state.region(),
        );
        let answer = self.answer(&request).await?;
        let mut response = Response::new(Full::new(answer.body));
        *response.status_mut() =
            StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in answer.headers {
            if let (Ok(name), Ok(value)) =
                (axum::http::HeaderName::try_from(name), axum::http::HeaderValue::try_from(value))
            {
                response.headers_mut().append(name, value);
            }
        }
        Ok(response)
    }

    /// One AWS call, from log to log.
    async fn answer(&self, request: &AwsRequest) -> Result<AwsResponse, Dropped> {
        let started = Instant::now();
        let mut call = Call {
            id: request.id.clone(),
            time: self.aws_state.clock().now(),
            caller: String::new(),
            action: request.iam_action(),
            region: request.region.clone(),
            resources: vec![],
            request_tags: request.request_tags(),
            dry_run: request.is_dry_run(),
            status: 0,
            error: None,
            denied: false,
            millis: 0,
        };
        let outcome = self.pass(request, &mut call).await;
        if let Ok(answer) = &outcome {
            call.status = answer.status;
            call.error = answer.error_code.clone().or_else(|| error_code(answer));
            call.resources.extend(answer.resources.iter().cloned());
        }
        call.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.calls.add(call);
        outcome
    }

    async fn pass(&self, request: &AwsRequest, call: &mut Call) -> Result<AwsResponse, Dropped> {
        let aws_state = &*self.aws_state;
        let caller = self.gate.authenticate(request, aws_state).await;
        call.caller = match &caller {
            Ok(caller) => caller.as_ref().map(|caller| caller.arn.clone()).unwrap_or_default(),
            Err(_) => request
                .credential
                .as_ref()
                .map(|credential| credential.access_key.clone())
                .unwrap_or_default(),
        };
        let verdict = aws_state.faults().judge(request, &call.caller);
        if !verdict.delay.is_zero() {
            tokio::time::sleep(verdict.delay).await;
        }
        if verdict.drop {
            return Err(Dropped);
        }
        if let Some(error) = verdict.error {
            return Ok(error.render(request));
        }
        let result = match caller {
            Ok(caller) => {
                let decision = self.gate.authorise(request, aws_state).await;
                call.resources.extend(decision.resources);
                match decision.denied {
                    Some(denied) => {
                        call.denied = true;
                        Err(denied)
                    }
                    None => self.serve_call(request, caller.as_ref()).await,
                }
            }
            Err(error) => Err(error),
        };
        let mut answer = result.unwrap_or_else(|error| {
            if error.code == "NotImplementedInDouble" {
                tracing::error!(action = request.iam_action(), "not implemented in the double");
            }
            error.render(request)
        });
        self.gate.answered(request, &answer);
        for rewrite in &verdict.rewrites {
            rewrite.apply(&mut answer);
        }
        if verdict.drop_answer { Err(Dropped) } else { Ok(answer) }
    }

    async fn serve_call(
        &self,
        request: &AwsRequest,
        caller: Option<&Principal>,
    ) -> Result<AwsResponse, AwsError> {
        let aws_state = &*self.aws_state;
        let answer = match self.services.iter().find(|service| service.handles(request)) {
            Some(service) => service.call(request, caller, aws_state).await?,
            None if request.service.is_empty() => {
                let message = "The request has no signature that names a service";
                return Err(AwsError::new("MissingAuthenticationToken", message));
            }
            None => aws_state.moto().forward(request).await?,
        };
        if answer.is_success() {
            aws_state.consistency().observe(request);
        }
        Ok(answer)
    }
}

/// The AWS error code in an answer of moto's.
fn error_code(answer: &AwsResponse) -> Option<String> {
    if answer.status < 400 {
        return None;
    }
    let text = String::from_utf8_lossy(&answer.body);
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(&text) {
        let code = json["__type"].as_str().map(str::to_owned);
        return code
            .map(|code| code.rsplit('#').next().unwrap_or_default().to_owned())
            .or_else(|| answer.header("x-amzn-errortype").map(str::to_owned));
    }
    let root = Element::parse(&text).ok()?;
    let error = root.at(&["Errors", "Error"]).or_else(|| root.child("Error"))?;
    error.get("Code").map(str::to_owned)
}
