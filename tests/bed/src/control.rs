//! A client of the gateway's control API, for the verbs of `sandbox` and for tests: plain JSON over
//! HTTP on loopback.

use std::time::Duration;

use axum::body::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// More than any answer takes, also on a machine whose cores are busy.
const LIMIT: Duration = Duration::from_secs(30);

/// A client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    base: String,
    http: Client<HttpConnector, Full<Bytes>>,
}

/// The control API can't be asked, or refuses.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody answers.
    #[error("no bed answers at {url}: start one with `sandbox up` and load its exports")]
    Unreachable {
        /// The address.
        url: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It refuses.
    #[error("{url} answers {status}: {body}")]
    Refused {
        /// The address.
        url: String,
        /// HTTP status.
        status: u16,
        /// What it says.
        body: String,
    },
}

impl Control {
    /// A client of the control API at `base` (`http://127.0.0.1:1234/_bed`).
    pub fn new(base: impl Into<String>) -> Self {
        let base = base.into();
        Self {
            base: base.trim_end_matches('/').to_owned(),
            http: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Its address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Asks for something.
    ///
    /// # Errors
    /// When nobody answers, or the answer is an error.
    pub async fn get(&self, path: &str) -> Result<Value, ControlError> {
        self.call(Method::GET, path, None).await
    }

    /// Sets something going.
    ///
    /// # Errors
    /// When nobody answers, or the answer is an error.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, ControlError> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Changes something.
    ///
    /// # Errors
    /// When nobody answers, or the answer is an error.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Value, ControlError> {
        self.call(Method::PUT, path, Some(body)).await
    }

    /// Ends something.
    ///
    /// # Errors
    /// When nobody answers, or the answer is an error.
    pub async fn delete(&self, path: &str) -> Result<Value, ControlError> {
        self.call(Method::DELETE, path, None).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ControlError> {
        let url = format!("{}/{}", self.base, path.trim_start_matches('/'));
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| {
            ControlError::Unreachable { url: url.clone(), source }
        };
        let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let request = http::Request::builder()
            .method(method)
            .uri(&url)
            .header("content-type", "application/json")
            .body(Full::new(bytes))
            .map_err(|error| unreachable(error.into()))?;
        let asked = async {
            let answer =
                self.http.request(request).await.map_err(|error| unreachable(error.into()))?;
            let status = answer.status();
            let body =
                answer.into_body().collect().await.map_err(|error| unreachable(error.into()))?;
            Ok((status, body.to_bytes()))
        };
        let (status, body) = tokio::time::timeout(LIMIT, asked)
            .await
            .map_err(|error| unreachable(error.into()))??;
        if !status.is_success() {
            let body = String::from_utf8_lossy(&body).into_owned();
            return Err(ControlError::Refused { url, status: status.as_u16(), body });
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| unreachable(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn says_that_no_bed_runs() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let error =
            Control::new(format!("http://{address}/_bed")).get("calls").await.expect_err("nobody");
        assert!(error.to_string().contains("sandbox up"), "{error}");
    }

    #[tokio::test]
    async fn tells_what_the_gateway_refused() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let app = axum::Router::new()
            .fallback(|| async { (http::StatusCode::BAD_REQUEST, "no such verb") });
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await });
        let error = Control::new(format!("http://{address}")).get("x").await.expect_err("refused");
        assert!(error.to_string().ends_with("answers 400: no such verb"), "{error}");
    }
}
