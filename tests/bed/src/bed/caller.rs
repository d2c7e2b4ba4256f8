//! AWS calls of the bed's administrator, through the gateway as anybody's: for tests that prepare
//! an account or look at it.

use axum::body::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tenon_aws_double::clock::Clock;
use tenon_aws_double::identity::Credentials;
use tenon_aws_double::moto_client::version;
use tenon_aws_double::signature::sign;
use tenon_aws_double::xml::Element;

/// Makes calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller {
    base: String,
    region: String,
    credentials: Credentials,
    clock: Clock,
    http: Client<HttpConnector, Full<Bytes>>,
}

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The gateway does not answer.
    #[error("no answer to {call}")]
    Unreachable {
        /// As errors show it.
        call: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The call is refused.
    #[error("{call} is answered with {status}: {body}")]
    Refused {
        /// As errors show it.
        call: String,
        /// HTTP status.
        status: u16,
        /// The answer.
        body: String,
    },
}

impl Caller {
    pub(super) fn new(url: &str, region: &str, credentials: &Credentials, clock: Clock) -> Self {
        Self {
            base: url.to_owned(),
            region: region.to_owned(),
            credentials: credentials.clone(),
            clock,
            http: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// A call of EC2, Auto Scaling, IAM, SQS or STS: their query protocol.
    ///
    /// # Errors
    /// When the call is refused.
    pub async fn query(
        &self,
        service: &str,
        action: &str,
        parameters: &[(&str, &str)],
    ) -> Result<Element, CallError> {
        let escape = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
                .to_string()
        };
        let mut form = format!("Action={action}&Version={}", version(service));
        for (name, value) in parameters {
            form = form + "&" + &escape(name) + "=" + &escape(value);
        }
        let call = format!("{service}:{action}");
        let body = self
            .send(service, &call, Method::POST, "/", "application/x-www-form-urlencoded", form)
            .await?;
        Element::parse(&body)
            .map_err(|source| CallError::Unreachable { call, source: source.into() })
    }

    /// A call of EKS: REST with JSON.
    ///
    /// # Errors
    /// When the call is refused.
    pub async fn rest(
        &self,
        service: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, CallError> {
        let call = format!("{service}: {method} {path}");
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let body = self.send(service, &call, method, path, "application/json", text).await?;
        serde_json::from_str(&body)
            .map_err(|source| CallError::Unreachable { call, source: source.into() })
    }

    async fn send(
        &self,
        service: &str,
        call: &str,
        method: Method,
        path: &str,
        content_type: &str,
        body: String,
    ) -> Result<String, CallError> {
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| {
            CallError::Unreachable { call: call.to_owned(), source }
        };
        let uri: Uri =
            format!("{}{path}", self.base).parse().map_err(|error| unreachable(Box::new(error)))?;
        let body = Bytes::from(body);
        let content_type = [("content-type", content_type)];
        let signed = sign(
            &self.credentials,
            (service, &self.region),
            method.as_str(),
            &uri,
            &content_type,
            &body,
            self.clock.now(),
        );
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in content_type {
            request = request.header(name, value);
        }
        for (name, value) in signed {
            request = request.header(name, value);
        }
        let request = request.body(Full::from(body)).map_err(|error| unreachable(error.into()))?;
        let answer = self.http.request(request).await.map_err(|error| unreachable(error.into()))?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| unreachable(error.into()))?;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        if status.is_success() {
            Ok(body)
        } else {
            Err(CallError::Refused { call: call.to_owned(), status: status.as_u16(), body })
        }
    }
}
