//! A signed call of a service that this program has no client for, in the JSON protocol that most
//! of them speak.
//!
//! Three services are asked one question each, and their clients would cost more than all the rest
//! of the program.

use std::time::{Duration, SystemTime};

use aws_credential_types::provider::ProvideCredentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use http::{Method, Request};
use kube::client::Body;
use serde_json::Value;
use tenon_installer_core::aws::Aws;
use tenon_installer_core::clock;

use super::unread::Unread;

/// Longer than any of these calls takes, and short enough not to hold up the other checks.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One action of one service.
pub(super) struct Call<'a> {
    /// As the service signs its calls, such as `ssm`.
    service: &'a str,
    host: String,
    /// The region that signs.
    region: &'a str,
    target: &'a str,
    input: Value,
}

/// What came back.
pub(super) struct Answer {
    /// HTTP status.
    pub(super) status: u16,
    /// Unix seconds by the service's own clock.
    pub(super) date: Option<i64>,
    /// The output, or the error.
    pub(super) body: Value,
}

impl Answer {
    /// The output, or the error's code and message.
    pub(super) fn output(self) -> Result<Value, Unread> {
        if self.status < 300 {
            return Ok(self.body);
        }
        let text =
            |key: &str| self.body.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let code = text("__type");
        let code = code.rsplit('#').next().unwrap_or_default();
        Err(Unread::Refused {
            code: code.to_owned(),
            message: text("message") + &text("Message"),
            status: self.status,
        })
    }
}

impl<'a> Call<'a> {
    /// An action (`X-Amz-Target`) of a service, at its endpoint in a region.
    pub(super) fn new(region: &'a str, service: &'a str, target: &'a str, input: Value) -> Self {
        let suffix = tenon_iam_policies::Partition::of_region(region).dns_suffix();
        Self { service, host: format!("{service}.{region}.{suffix}"), region, target, input }
    }

    /// Makes the call.
    pub(super) async fn send(&self, aws: &Aws) -> Result<Answer, Unread> {
        tokio::time::timeout(TIMEOUT, self.send_and_wait(aws))
            .await
            .map_err(|_| format!("no answer from {} in {} s", self.host, TIMEOUT.as_secs()))?
    }

    async fn send_and_wait(&self, aws: &Aws) -> Result<Answer, Unread> {
        let base = match aws.config.endpoint_url() {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("https://{}", self.host),
        };
        let request = self.request(aws, &base).await?;
        let uri = base.parse::<http::Uri>().map_err(|error| format!("{base}: {error}"))?;
        let client = kube::Client::try_from(kube::Config::new(uri)).map_err(Unread::of)?;
        let response =
            client.send(request).await.map_err(|error| format!("{}: {error}", self.host))?;
        let status = response.status().as_u16();
        let date = response
            .headers()
            .get("date")
            .and_then(|date| date.to_str().ok())
            .and_then(|date| jiff::fmt::rfc2822::parse(date).ok())
            .map(|date| date.timestamp().as_second());
        let body = response.into_body().collect_bytes().await.map_err(Unread::of)?;
        Ok(Answer { status, date, body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    async fn request(&self, aws: &Aws, base: &str) -> Result<Request<Body>, Unread> {
        let provider = aws.config.credentials_provider().ok_or("there are no AWS credentials")?;
        let credentials = provider.provide_credentials().await.map_err(Unread::of)?;
        let identity = credentials.into();
        let body = self.input.to_string();
        let url = format!("{base}/");
        let host = url.split('/').nth(2).unwrap_or_default().to_owned();
        let headers = [
            ("content-type", "application/x-amz-json-1.1"),
            ("host", host.as_str()),
            ("x-amz-target", self.target),
        ];
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(self.region)
            .name(self.service)
            .time(SystemTime::from(clock::now()))
            .settings(SigningSettings::default())
            .build()
            .map_err(Unread::of)?
            .into();
        let signable = SignableRequest::new(
            "POST",
            &url,
            headers.into_iter(),
            SignableBody::Bytes(body.as_bytes()),
        )
        .map_err(Unread::of)?;
        let (instructions, _signature) = sign(signable, &params).map_err(Unread::of)?.into_parts();
        let mut request = Request::builder().method(Method::POST).uri("/");
        for (name, value) in headers.into_iter().filter(|(name, _)| *name != "host") {
            request = request.header(name, value);
        }
        for (name, value) in instructions.headers() {
            request = request.header(name, value);
        }
        request.body(Body::from(body.into_bytes())).map_err(Unread::of)
    }
}
