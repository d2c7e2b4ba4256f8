//! Answers by which an API server, or an admission webhook through it, refuses a request.

use axum::body::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::requests::ApiRequest;

/// A refusal, as a `Status` object and its HTTP status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    status: StatusCode,
    reason: String,
    message: String,
    retry_after: Option<u32>,
}

impl Refusal {
    /// A refusal with any HTTP status, reason (`Conflict`, `InternalError`; empty if it has none)
    /// and message.
    pub fn new(status: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        Self { status, reason: reason.to_owned(), message: message.into(), retry_after: None }
    }

    /// 403, as RBAC says it.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// 409: the object has changed since it was read.
    pub fn conflict() -> Self {
        let message = "the object has been modified; please apply your changes to the latest version and try again";
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    /// 429, with so many seconds in `Retry-After`.
    pub fn too_many_requests(retry_after: u32) -> Self {
        let message = "too many requests, please try again later";
        let this = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        Self { retry_after: Some(retry_after), ..this }
    }

    /// 500.
    pub fn internal_error(message: &str) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 403: an admission webhook of this name denies the request, with its own words.
    pub fn denied_by_webhook(webhook: &str, words: &str) -> Self {
        let message = format!("admission webhook \"{webhook}\" denied the request: {words}");
        // The API server gives no reason of its own for what a webhook denies.
        Self::new(StatusCode::FORBIDDEN, "", message)
    }

    /// 500: an admission webhook of this name whose failure policy is `Fail` can't be called.
    pub fn webhook_unreachable(webhook: &str) -> Self {
        let url = format!("https://{webhook}.svc:443/validate?timeout=10s");
        Self::internal_error(&format!(
            "failed calling webhook \"{webhook}\": failed to call webhook: Post \"{url}\": context deadline exceeded"
        ))
    }

    /// 410: what a list would go on from, or a watch begin at, is no longer there.
    pub(super) fn expired() -> Self {
        let message = "The resourceVersion for the provided watch is too old.";
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The `Status` object.
    pub(super) fn object(&self, request: &ApiRequest) -> Value {
        let mut object = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message, "code": self.status.as_u16(),
        });
        if !self.reason.is_empty() {
            object["reason"] = self.reason.clone().into();
        }
        let kind = request.resource.split('/').next().unwrap_or_default();
        let mut details = json!({ "name": request.name, "group": request.group, "kind": kind });
        if let Some(seconds) = self.retry_after {
            details["retryAfterSeconds"] = seconds.into();
        }
        if let Value::Object(details) = &mut details {
            details.retain(|_, value| value != "");
        }
        object["details"] = details;
        object
    }

    /// The whole answer.
    pub(super) fn answer(&self, request: &ApiRequest) -> Response<Bytes> {
        let mut answer = Response::new(self.object(request).to_string().into());
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        answer
    }

    /// A line of a watch that tells the same.
    pub(super) fn event(&self, request: &ApiRequest) -> Bytes {
        let event = json!({ "type": "ERROR", "object": self.object(request) });
        format!("{event}\n").into()
    }
}
