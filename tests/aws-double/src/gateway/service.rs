//! The seams by which services and the gate plug into the gateway.

use axum::body::Bytes;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use futures::future::BoxFuture;
use serde_json::Value;

use super::aws_state::AwsState;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};

/// A service, or a part of one, that the gateway answers itself instead of forwarding it to moto.
pub trait Service: Send + Sync + 'static {
    /// Whether it answers this call. The first service that says yes gets the call; what nobody
    /// wants goes to moto.
    fn handles(&self, request: &AwsRequest) -> bool;

    /// Answers a call that was authenticated and authorised. A call that needs no signature has no
    /// caller. Errors are rendered by the gateway in the call's protocol.
    fn call(
        &self,
        request: &AwsRequest,
        caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> impl Future<Output = Result<AwsResponse, AwsError>> + Send;
}

/// Any [`Service`]. A trait with an `async fn` has no trait objects; here the future is boxed, so
/// that the gateway can keep all services in one list.
pub(crate) trait AnyService: Send + Sync + 'static {
    /// As [`Service::handles`].
    fn handles(&self, request: &AwsRequest) -> bool;

    /// As [`Service::call`].
    fn call<'a>(
        &'a self,
        request: &'a AwsRequest,
        caller: Option<&'a Principal>,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Result<AwsResponse, AwsError>>;
}

impl<S: Service> AnyService for S {
    fn handles(&self, request: &AwsRequest) -> bool {
        Service::handles(self, request)
    }

    fn call<'a>(
        &'a self,
        request: &'a AwsRequest,
        caller: Option<&'a Principal>,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Result<AwsResponse, AwsError>> {
        Box::pin(Service::call(self, request, caller, aws_state))
    }
}

/// A route of the gateway that is no AWS API call: the container credential endpoint, the token
/// webhook.
pub trait Endpoint: Send + Sync + 'static {
    /// Whether it answers requests to this path.
    fn handles(&self, path: &str) -> bool;

    /// Answers a request.
    fn call<'a>(
        &'a self,
        request: Request<Bytes>,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Response<Bytes>>;
}

/// A JSON answer of an endpoint.
pub(super) fn json_response(status: u16, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

/// Who makes a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// `arn:aws:sts::…:assumed-role/Role/session`, `arn:aws:iam::…:user/name`.
    pub arn: String,
    /// Account ID.
    pub account: String,
    /// The unique ID (`AROA…:session`, `AIDA…`), as `sts:GetCallerIdentity` tells it.
    pub user_id: String,
    /// The ARN of the role behind a session.
    pub role_arn: Option<String>,
    /// Tags of the session (Pod Identity sets them).
    pub session_tags: Vec<(String, String)>,
}

impl Principal {
    /// The administrator of the bed: may do everything, and stands for a person with full rights.
    pub fn administrator(aws_state: &AwsState) -> Self {
        Self {
            arn: aws_state.iam_arn("user/administrator"),
            account: aws_state.account().to_owned(),
            user_id: "AIDAADMINISTRATOROFBED".to_owned(),
            role_arn: None,
            session_tags: vec![],
        }
    }
}

/// The caller of an action that the gate lets only signed calls reach.
pub(super) fn signed(caller: Option<&Principal>) -> Result<&Principal, AwsError> {
    caller
        .ok_or_else(|| AwsError::new("MissingAuthenticationToken", "The request has no signature"))
}

/// What the gate checked, for the call log, and what it decided.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    /// ARNs (or `*`) that the call was checked against.
    pub resources: Vec<String>,
    /// The refusal to answer with.
    pub denied: Option<AwsError>,
}

/// Finds out who calls, and whether they may.
pub(crate) trait Gate: Send + Sync + 'static {
    /// Who signed this call, or `None` when it needs no signature; an error when the credentials
    /// are unknown or have expired.
    fn authenticate<'a>(
        &'a self,
        request: &'a AwsRequest,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Result<Option<Principal>, AwsError>>;

    /// Whether the caller may make it. Resolves the resources that the call touches by itself, from
    /// the request and the state.
    fn authorise<'a>(
        &'a self,
        request: &'a AwsRequest,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Decision>;

    /// Told after a call was answered: what it may have changed must be looked at anew.
    fn answered(&self, _request: &AwsRequest, _response: &AwsResponse) {}
}

/// Lets everybody do everything, as [`Principal::administrator`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllowAll;

impl Gate for AllowAll {
    fn authenticate<'a>(
        &'a self,
        _request: &'a AwsRequest,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Result<Option<Principal>, AwsError>> {
        Box::pin(async { Ok(Some(Principal::administrator(aws_state))) })
    }

    fn authorise<'a>(
        &'a self,
        _request: &'a AwsRequest,
        _aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Decision> {
        Box::pin(async { Decision::default() })
    }
}
