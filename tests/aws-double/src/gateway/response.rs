//! Answers and errors, rendered as each AWS protocol wants them.

use std::collections::BTreeMap;

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::request::{AwsRequest, Protocol};
use super::xml::escape;

/// An HTTP answer to an AWS call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsResponse {
    /// HTTP status.
    pub status: u16,
    /// Headers: names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Bytes,
    /// The AWS error code that the answer carries, for the call log.
    pub error_code: Option<String>,
    /// ARNs or IDs of what the call made or changed, for the call log.
    pub resources: Vec<String>,
}

impl AwsResponse {
    /// An XML answer with status 200; `body` without the XML declaration.
    pub fn xml(body: &str) -> Self {
        let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}");
        Self {
            status: 200,
            headers: content_type("text/xml;charset=UTF-8"),
            body: body.into(),
            error_code: None,
            resources: vec![],
        }
    }

    /// A JSON answer with status 200, with the content type of the request's protocol.
    pub fn json(request: &AwsRequest, body: &Value) -> Self {
        let kind = match request.protocol {
            Protocol::Json(minor) => format!("application/x-amz-json-1.{minor}"),
            _ => "application/json".to_owned(),
        };
        Self {
            status: 200,
            headers: content_type(&kind),
            body: body.to_string().into(),
            error_code: None,
            resources: vec![],
        }
    }

    /// The answer of an EC2 action: `<{action}Response>` with the request ID around `inner`.
    pub fn ec2(request: &AwsRequest, inner: &str) -> Self {
        let action = &request.action;
        Self::xml(&format!(
            "<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>{}</requestId>{inner}</{action}Response>",
            request.id
        ))
    }

    /// The answer of a query-protocol action (IAM, STS): `<{action}Response><{action}Result>`
    /// around `inner`.
    pub fn query(request: &AwsRequest, inner: &str) -> Self {
        let action = &request.action;
        let namespace = namespace(&request.service);
        Self::xml(&format!(
            "<{action}Response xmlns=\"{namespace}\"><{action}Result>{inner}</{action}Result><ResponseMetadata><RequestId>{}</RequestId></ResponseMetadata></{action}Response>",
            request.id
        ))
    }

    /// The same answer, noting for the call log what it made or changed.
    #[must_use]
    pub(crate) fn with_resources(mut self, resources: impl IntoIterator<Item = String>) -> Self {
        self.resources.extend(resources);
        self
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether the call succeeded.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// An AWS error: code, message and HTTP status, independent of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct AwsError {
    /// The code as the protocol's documents name it (`InvalidInstanceID.NotFound`,
    /// `ResourceNotFoundException`).
    pub code: String,
    /// What is wrong, for people.
    pub message: String,
    /// HTTP status.
    pub status: u16,
    /// Further members of a JSON error body (`clusterName`, `principalArn`).
    pub fields: BTreeMap<String, Value>,
}

impl AwsError {
    /// An error with the usual HTTP status of its code (400 unless it is a refusal, a throttle or a
    /// failure).
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let code = code.into();
        let status = match code.as_str() {
            "AccessDenied"
            | "AccessDeniedException"
            | "UnauthorizedOperation"
            | "MissingAuthenticationToken"
            | "InvalidClientTokenId"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "UnrecognizedClientException" => 403,
            "AuthFailure" => 401,
            "NoSuchEntity" | "ResourceNotFoundException" => 404,
            "EntityAlreadyExists"
            | "DeleteConflict"
            | "LimitExceeded"
            | "ResourceInUseException" => 409,
            "DryRunOperation" => 412,
            "InternalError" | "InternalFailure" | "ServerException" => 500,
            "RequestLimitExceeded" | "ServiceUnavailable" | "Unavailable" => 503,
            _ => 400,
        };
        Self { code, message: message.into(), status, fields: BTreeMap::new() }
    }

    /// The same error with another HTTP status.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// The same error with one more member in a JSON error body.
    #[must_use]
    pub(crate) fn with_field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// The double lacks an action: a status and a code that no client retries or takes for a
    /// missing resource.
    pub(crate) fn not_implemented(request: &AwsRequest) -> Self {
        Self::new(
            "NotImplementedInDouble",
            format!("not implemented in the double: {}", request.iam_action()),
        )
        .with_status(418)
    }

    /// The answer that tells this error in the request's protocol.
    pub(crate) fn render(&self, request: &AwsRequest) -> AwsResponse {
        let (code, message, id) = (escape(&self.code), escape(&self.message), &request.id);
        let mut response = match request.protocol {
            Protocol::Ec2 => AwsResponse::xml(&format!(
                "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>{id}</RequestID></Response>"
            )),
            Protocol::Query => {
                let fault = if self.status >= 500 { "Receiver" } else { "Sender" };
                let namespace = namespace(&request.service);
                AwsResponse::xml(&format!(
                    "<ErrorResponse xmlns=\"{namespace}\"><Error><Type>{fault}</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>{id}</RequestId></ErrorResponse>"
                ))
            }
            Protocol::RestXml => AwsResponse::xml(&format!(
                "<Error><Code>{code}</Code><Message>{message}</Message><RequestId>{id}</RequestId></Error>"
            )),
            Protocol::Json(_) | Protocol::RestJson => {
                let mut body: Map<String, Value> = self.fields.clone().into_iter().collect();
                body.insert("__type".to_owned(), json!(self.code));
                body.insert("message".to_owned(), json!(self.message));
                let mut response = AwsResponse::json(request, &Value::Object(body));
                if request.protocol == Protocol::RestJson {
                    response.headers.push(("x-amzn-errortype".to_owned(), self.code.clone()));
                } else if request.service == "sqs" {
                    response
                        .headers
                        .push(("x-amzn-query-error".to_owned(), format!("{};Sender", self.code)));
                }
                response.headers.push(("x-amzn-requestid".to_owned(), id.clone()));
                response
            }
        };
        response.status = self.status;
        response.error_code = Some(self.code.clone());
        response
    }
}

fn namespace(service: &str) -> &'static str {
    match service {
        "iam" => "https://iam.amazonaws.com/doc/2010-05-08/",
        "sts" => "https://sts.amazonaws.com/doc/2011-06-15/",
        "sqs" => "http://queue.amazonaws.com/doc/2012-11-05/",
        _ => "http://ec2.amazonaws.com/doc/2016-11-15/",
    }
}

fn content_type(kind: &str) -> Vec<(String, String)> {
    vec![("content-type".to_owned(), kind.to_owned())]
}

/// A UUID for an event.
pub(super) fn event_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
