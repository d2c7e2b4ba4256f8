//! The metadata service of instances (IMDSv2), as far as credentials come from it. A real one knows
//! by its network who asks; here the path names the instance. Only the system nodes of a bed run
//! anything that asks, and EC2's double does not have these; so their profiles are given here.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{Method, Request, Response};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use super::aws_state::AwsState;
use super::credentials::SessionIssuer;
use super::service::{Endpoint, json_response};

/// How paths begin; the id of the instance follows.
const PREFIX: &str = "/metadata/";
/// The header of a token, in answers to requests for one how long it lasts.
const TOKEN: &str = "x-aws-ec2-metadata-token";
const TOKEN_SECONDS: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const ROLES: &str = "latest/meta-data/iam/security-credentials/";

/// Where an instance asks for its metadata, for a gateway at `url`:
/// `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
pub fn metadata_url(url: &str, instance: &str) -> String {
    format!("{url}{PREFIX}{instance}")
}

/// The service.
pub struct Metadata {
    sessions: Arc<SessionIssuer>,
    /// Names of instance profiles by the instance's id.
    profiles: Mutex<BTreeMap<String, String>>,
}

impl Metadata {
    pub(super) const fn new(sessions: Arc<SessionIssuer>) -> Self {
        Self { sessions, profiles: Mutex::new(BTreeMap::new()) }
    }

    /// Gives an instance an instance profile.
    pub fn give_profile(&self, instance: &str, profile: &str) {
        self.profiles.lock().insert(instance.to_owned(), profile.to_owned());
    }

    async fn answer(&self, request: &Request<Bytes>, aws_state: &AwsState) -> Response<Bytes> {
        let not_found = || text(404, "Not Found");
        let path = request.uri().path().strip_prefix(PREFIX).unwrap_or_default();
        let Some((id, path)) = path.split_once('/') else { return not_found() };
        if request.method() == Method::PUT && path == "latest/api/token" {
            let mut answer = text(200, &format!("token-of-{id}"));
            if let Some(lasts) = request.headers().get(TOKEN_SECONDS) {
                answer.headers_mut().insert(TOKEN_SECONDS, lasts.clone());
            }
            return answer;
        }
        let token = request.headers().get(TOKEN).and_then(|token| token.to_str().ok());
        if token != Some(&format!("token-of-{id}")) {
            return text(401, "Unauthorized");
        }
        let Some(name) = path.strip_prefix(ROLES) else { return not_found() };
        let profile = self.profiles.lock().get(id).cloned();
        let Some(profile) = profile else { return not_found() };
        let role = match self.sessions.role_of_profile(&profile, aws_state).await {
            Ok(Some(role)) => role,
            Ok(None) => return not_found(),
            Err(error) => return text(500, &error.to_string()),
        };
        let of_role = role.arn.rsplit('/').next().unwrap_or_default();
        if name.is_empty() {
            return text(200, of_role);
        }
        if name != of_role {
            return not_found();
        }
        match self.sessions.for_instance(id, &role, aws_state) {
            Some(credentials) => json_response(
                200,
                &json!({
                    "Code": "Success",
                    "LastUpdated": aws_state.clock().now().to_string(),
                    "Type": "AWS-HMAC",
                    "AccessKeyId": credentials.access_key,
                    "SecretAccessKey": credentials.secret_key,
                    "Token": credentials.session_token,
                    "Expiration": credentials.expires.map(|at| at.to_string()),
                }),
            ),
            None => json_response(
                200,
                &json!({
                    "Code": "AssumeRoleUnauthorizedAccess",
                    "Message": "EC2 cannot assume the role. Please see documentation at \
                                https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-iam.html",
                }),
            ),
        }
    }
}

impl Endpoint for Metadata {
    fn handles(&self, path: &str) -> bool {
        path.starts_with(PREFIX)
    }

    fn call<'a>(
        &'a self,
        request: Request<Bytes>,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Response<Bytes>> {
        Box::pin(async move { self.answer(&request, aws_state).await })
    }
}

fn text(status: u16, body: &str) -> Response<Bytes> {
    let answer = Response::builder().status(status).header("content-type", "text/plain");
    answer.body(Bytes::copy_from_slice(body.as_bytes())).expect("a valid answer")
}
