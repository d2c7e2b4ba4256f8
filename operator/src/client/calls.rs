//! Every call gets a deadline, from the question to the last byte of the answer. A watch only has
//! to begin in time: how long it may stay silent is the business of the connection's pings.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tower::{BoxError, Service};
use tracing::Span;
use tracing::field::Empty;

use super::Deadlines;
use super::target::Target;
use crate::liveness;
use crate::metrics::declare::families;
use crate::traces::{fail, is_traced, span};

/// 0.001·1.5^k seconds, as upstream has them; further ones up to the longest deadline.
const LATENCY_BUCKETS: &[f64] = &[
    0.001,
    0.0015,
    0.002_25,
    0.003_375,
    0.005_062_5,
    0.007_593_75,
    0.011_390_625,
    0.017_085_938,
    0.025_628_906,
    0.038_443_359,
    0.057_665_039,
    0.086_497_559,
    0.129_746_338,
    0.194_619_507,
    0.291_929_26,
    0.437_893_89,
    0.656_840_836,
    0.985_261_253,
    1.477_891_88,
    2.216_837_82,
    5.0,
    10.0,
    20.0,
    30.0,
    60.0,
];

/// In the place of a status where the API server did not answer, as client-go has it.
const NO_ANSWER: &str = "<error>";

families! {
    /// What calls to the API server are counted in.
    #[derive(Clone, Debug)]
    pub(crate) struct CallMetrics {
        /// Number of calls to the API server, by HTTP status
        requests: counters(
            "client_go_request_total",
            ["code", "method", "group", "version", "kind", "subresource"],
        ),
        /// Duration of calls to the API server, until they were answered or watches started
        duration: histograms(
            "client_go_request_duration_seconds",
            ["verb", "group", "version", "kind", "subresource"],
            LATENCY_BUCKETS,
        ),
    }
}

/// A call that is under way.
#[derive(Debug)]
struct Call {
    metrics: CallMetrics,
    target: Target,
    method: Method,
    began: Instant,
    /// Ends with the call.
    span: Span,
}

impl Call {
    fn ended(self, code: &str) {
        let Self { metrics, target, method, began, span } = self;
        span.record("status", code);
        if !code.starts_with('2') {
            fail(&span, code);
        }
        let Target { verb, group, version, resource, subresource } = &target;
        metrics.requests.inc([code, method.as_str(), group, version, resource, subresource]);
        let labels = [verb, group.as_str(), version, resource, subresource];
        metrics.duration.observe(labels, began.elapsed().as_secs_f64());
    }
}

/// The API server did not answer in time, or not to the end.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the API server has not answered {target} within {within:?}")]
pub(crate) struct TimedOut {
    /// What was asked for.
    pub target: Target,
    /// The limit that has passed.
    pub within: Duration,
}

/// A service whose calls end in time.
#[derive(Clone, Debug)]
pub(crate) struct Bounded<S> {
    inner: S,
    deadlines: Deadlines,
    metrics: CallMetrics,
}

impl<S> Bounded<S> {
    /// Bounds the calls of `inner`, and counts them.
    pub(crate) fn new(inner: S, deadlines: Deadlines, metrics: CallMetrics) -> Self {
        Self { inner, deadlines, metrics }
    }
}

impl<S, Q, B> Service<Request<Q>> for Bounded<S>
where
    S: Service<Request<Q>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<BoundedBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let target = Target::of(request.method(), request.uri());
        let within = if target.is_list() { self.deadlines.list } else { self.deadlines.call };
        let began = Instant::now();
        let until = began + within;
        let (metrics, method) = (self.metrics.clone(), request.method().clone());
        // Leases, events and watches belong to no piece of work.
        let span = if is_traced() {
            span!("API server", otel.name = %target, otel.kind = "client", status = Empty, otel.status_description = Empty)
        } else {
            Span::none()
        };
        let call = Call { metrics, target: target.clone(), method, began, span };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let late = TimedOut { target, within };
            let answer = tokio::time::timeout_at(until, answer).await;
            liveness::progressed();
            let answer = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => {
                    call.ended(NO_ANSWER);
                    return Err(error);
                }
                Err(_) => {
                    call.ended(NO_ANSWER);
                    return Err(late.into());
                }
            };
            let status = answer.status();
            let mut call = Some(call);
            if late.target.is_watch()
                && let Some(call) = call.take()
            {
                call.ended(status.as_str());
            }
            let until = call.is_some().then(|| Box::pin(tokio::time::sleep_until(until)));
            Ok(answer.map(|body| BoundedBody { inner: body, until, late, status, call }))
        })
    }
}

/// The body of an answer, which fails when its end has not come in time.
#[derive(Debug)]
pub(crate) struct BoundedBody<B> {
    inner: B,
    /// `None` for watches.
    until: Option<Pin<Box<Sleep>>>,
    late: TimedOut,
    status: StatusCode,
    /// `None` once it is counted.
    call: Option<Call>,
}

impl<B> BoundedBody<B> {
    fn ended(&mut self, code: &str) {
        if let Some(call) = self.call.take() {
            call.ended(code);
        }
    }
}

impl<B> Body for BoundedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // What is there already is taken first: an answer that is complete is not late because
        // nobody read it.
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            match &frame {
                Some(Ok(_)) => {}
                Some(Err(_)) => self.ended(NO_ANSWER),
                None => {
                    let status = self.status;
                    self.ended(status.as_str());
                }
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let is_late = match &mut self.until {
            Some(until) => until.as_mut().poll(cx).is_ready(),
            None => false,
        };
        if !is_late {
            return Poll::Pending;
        }
        self.ended(NO_ANSWER);
        Poll::Ready(Some(Err(self.late.clone().into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
