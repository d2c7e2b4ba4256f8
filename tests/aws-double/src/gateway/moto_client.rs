//! The way to moto: forwards calls as they came, and makes calls of our own.

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::request::{AwsRequest, Params};
use super::response::{AwsError, AwsResponse};
use super::xml::Element;

/// A client of one moto server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MotoClient {
    base: String,
    region: String,
    http: Client<HttpConnector, Full<Bytes>>,
}

/// moto could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("moto did not answer {action}: {reason}; see its log in the bed's directory")]
pub struct MotoUnreachable {
    /// The call.
    pub action: String,
    /// What happened.
    pub reason: String,
}

impl From<MotoUnreachable> for AwsError {
    fn from(error: MotoUnreachable) -> Self {
        Self::new("InternalError", error.to_string())
    }
}

impl MotoClient {
    /// A client of the server at `base` (`http://127.0.0.1:1234`), whose own calls are made in
    /// `region`.
    pub fn new(base: impl Into<String>, region: impl Into<String>) -> Self {
        Self {
            base: base.into(),
            region: region.into(),
            http: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// A client of the same server, whose own calls are made in another region.
    #[must_use]
    pub fn in_region(&self, region: &str) -> Self {
        Self { region: region.to_owned(), ..self.clone() }
    }

    /// Forwards a call as it came; moto's answer for an action that it lacks (an HTML page) becomes
    /// [`AwsError::not_implemented`].
    pub(crate) async fn forward(&self, request: &AwsRequest) -> Result<AwsResponse, AwsError> {
        let uri = match &request.query {
            Some(query) => format!("{}{}?{query}", self.base, request.path),
            None => format!("{}{}", self.base, request.path),
        };
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (name, value) in &request.headers {
            if !matches!(
                name.as_str(),
                "connection" | "transfer-encoding" | "content-length" | "expect"
            ) {
                headers.push((name.clone(), value.clone()));
            }
        }
        let response = self
            .send(
                request.method.clone(),
                &uri,
                headers,
                request.body.clone(),
                &request.iam_action(),
            )
            .await?;
        let is_html = response
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/html"))
            && response.body.trim_ascii_start().to_ascii_lowercase().starts_with(b"<!doctype html");
        if matches!(response.status, 404 | 405 | 500 | 501) && is_html {
            return Err(AwsError::not_implemented(request));
        }
        Ok(response)
    }

    /// Makes an EC2 or query-protocol call of our own and reads the answer's root element.
    pub async fn query<'a>(
        &self,
        service: &str,
        action: &str,
        params: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Element, AwsError> {
        let mut form = Params::of(params);
        form.set("Action", action);
        form.set("Version", version(service));
        self.query_params(service, action, &form).await
    }

    /// The same, with parameters that are complete (`Action` and `Version` included).
    pub async fn query_params(
        &self,
        service: &str,
        action: &str,
        form: &Params,
    ) -> Result<Element, AwsError> {
        let headers = self.headers(service, "application/x-www-form-urlencoded");
        let label = format!("{service}:{action}");
        let uri = format!("{}/", self.base);
        let response =
            self.send(Method::POST, &uri, headers, form.to_form().into(), &label).await?;
        let text = String::from_utf8_lossy(&response.body);
        let root = Element::parse(&text).map_err(|error| {
            AwsError::new("InternalError", format!("moto answered {label} with {error}"))
        })?;
        if response.is_success() {
            return Ok(root);
        }
        let error = root.at(&["Errors", "Error"]).or_else(|| root.child("Error")).unwrap_or(&root);
        Err(AwsError::new(
            error.get("Code").unwrap_or("InternalError"),
            error.get("Message").unwrap_or_default(),
        )
        .with_status(response.status))
    }

    /// Makes a JSON-protocol call of our own (`target` is `AWSEvents.PutEvents`).
    pub async fn json(&self, service: &str, target: &str, body: &Value) -> Result<Value, AwsError> {
        let mut headers = self.headers(service, "application/x-amz-json-1.1");
        headers.push(pair("x-amz-target", target));
        let uri = format!("{}/", self.base);
        let response =
            self.send(Method::POST, &uri, headers, body.to_string().into(), target).await?;
        let answer: Value = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
        if response.is_success() {
            return Ok(answer);
        }
        let code = answer["__type"].as_str().unwrap_or("InternalError");
        let message =
            answer["message"].as_str().or_else(|| answer["Message"].as_str()).unwrap_or_default();
        Err(AwsError::new(code.rsplit('#').next().unwrap_or(code), message)
            .with_status(response.status))
    }

    /// Puts an object into a bucket, which is made if it is not there.
    pub async fn put_object(&self, bucket: &str, key: &str, text: &str) -> Result<(), AwsError> {
        // Only the first region has buckets that name none.
        let place = match self.region.as_str() {
            "us-east-1" => String::new(),
            region => format!(
                "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
            ),
        };
        for (path, body) in [(bucket.to_owned(), place), (format!("{bucket}/{key}"), text.into())] {
            let uri = format!("{}/{path}", self.base);
            let headers = self.headers("s3", "application/octet-stream");
            let body = Bytes::from(body);
            let response = self.send(Method::PUT, &uri, headers, body, "s3:PutObject").await?;
            // A bucket of one's own that is there already.
            if !response.is_success() && response.status != 409 {
                let text = String::from_utf8_lossy(&response.body).into_owned();
                return Err(AwsError::new("InternalError", text).with_status(response.status));
            }
        }
        Ok(())
    }

    /// The region of a bucket; `None` if there is no such bucket.
    pub(super) async fn bucket_region(&self, bucket: &str) -> Result<Option<String>, AwsError> {
        let uri = format!("{}/{bucket}", self.base);
        let headers = self.headers("s3", "application/octet-stream");
        let found = self.send(Method::HEAD, &uri, headers, Bytes::new(), "s3:ListBucket").await?;
        Ok(found.header("x-amz-bucket-region").map(str::to_owned))
    }

    /// Removes an object.
    pub async fn delete_object(&self, bucket: &str, key: &str) -> Result<(), AwsError> {
        let uri = format!("{}/{bucket}/{key}", self.base);
        let headers = self.headers("s3", "application/octet-stream");
        self.send(Method::DELETE, &uri, headers, Bytes::new(), "s3:DeleteObject").await?;
        Ok(())
    }

    async fn send(
        &self,
        method: Method,
        uri: &str,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Bytes,
        action: &str,
    ) -> Result<AwsResponse, MotoUnreachable> {
        let fail = |reason: String| MotoUnreachable { action: action.to_owned(), reason };
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(|error| fail(error.to_string()))?;
        let response =
            self.http.request(request).await.map_err(|error| fail(format!("{error:?}")))?;
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .filter(|(name, _)| {
                !matches!(
                    name.as_str(),
                    "connection" | "transfer-encoding" | "content-length" | "date" | "server"
                )
            })
            .filter_map(|(name, value)| {
                Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
            })
            .collect();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| fail(error.to_string()))?
            .to_bytes();
        Ok(AwsResponse { status, headers, body, error_code: None, resources: vec![] })
    }

    fn headers(&self, service: &str, content_type: &str) -> Vec<(HeaderName, HeaderValue)> {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=BED/20260101/{}/{service}/aws4_request, SignedHeaders=host, Signature=0",
            self.region
        );
        vec![pair("authorization", &authorization), pair("content-type", content_type)]
    }
}

fn pair(name: &'static str, value: &str) -> (HeaderName, HeaderValue) {
    (
        HeaderName::from_static(name),
        HeaderValue::from_str(value).expect("our own header values are plain ASCII"),
    )
}

/// The version of a query service's API.
pub fn version(service: &str) -> &'static str {
    match service {
        "iam" => "2010-05-08",
        "sts" => "2011-06-15",
        "sqs" => "2012-11-05",
        "autoscaling" => "2011-01-01",
        _ => "2016-11-15",
    }
}
