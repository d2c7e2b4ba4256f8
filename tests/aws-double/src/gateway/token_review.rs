//! EKS authentication: turns a `k8s-aws-v1.` token into a Kubernetes user, for the API server's
//! webhook.
//!
//! Such a token is a presigned `sts:GetCallerIdentity` URL. Its signature covers the cluster's
//! name, so a token for one cluster is no good for another. Who signed it is looked up in the
//! access entries, and in the ConfigMap `kube-system/aws-auth` where the cluster still uses it.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{Request, Response};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewStatus, UserInfo};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::aws_state::AwsState;
use super::eks::access::AccessEntry;
use super::eks::{AuthenticationMode, Eks};
use super::identity::{self, Credentials, Identities};
use super::service::{Endpoint, Principal, json_response};
use aws_auth::AwsAuth;

pub mod aws_auth;
mod presigned;

/// The path of the webhook: `POST` with a TokenReview.
pub(crate) const TOKEN_REVIEW_PATH: &str = "/token-review";

/// What every token begins with.
const PREFIX: &str = "k8s-aws-v1.";

/// The group whose members RBAC lets do everything.
const MASTERS: &str = "system:masters";

/// Why a token is refused; said to the API server, which logs it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not a token of this kind. Other authenticators of the API server may know it.
    #[error("not a token of EKS")]
    OtherKind,
    /// It does not decode to a presigned URL of `sts:GetCallerIdentity`.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// It was signed too long ago, or for too long.
    #[error("the token has expired")]
    Expired,
    /// Nobody has the access key that signed it.
    #[error("the access key {0} is unknown")]
    UnknownKey(String),
    /// The signature does not match: a wrong secret, or a token for another cluster.
    #[error("the signature does not match; is the token for another cluster?")]
    Signature,
    /// Whoever signed it may not get into the cluster.
    #[error("{0} has neither an access entry nor a mapping in aws-auth")]
    NoAccess(String),
}

/// Resolves tokens to users.
#[derive(Debug)]
pub struct Authenticator {
    identities: Arc<Identities>,
    eks: Arc<Eks>,
    aws_auth: AwsAuth,
}

/// Why the nodes of a role may not join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// Its access entry was made for an earlier role of that name.
    #[error(
        "the access entry of {0} is for an older role of the same name: delete it and create it \
         again"
    )]
    Stale(String),
    /// Its access entry is for something else.
    #[error("the access entry of {role} has the type {kind}, which is not for nodes")]
    Kind {
        /// The role's ARN.
        role: String,
        /// The entry's type.
        kind: String,
    },
    /// Access entries alone count, and it has none.
    #[error("{0} has no access entry")]
    NoEntry(String),
    /// It has neither.
    #[error("{0} has neither an access entry nor a mapping in aws-auth")]
    Unknown(String),
    /// It is mapped to groups that are not those of nodes.
    #[error("aws-auth maps {0}, but not to the group system:nodes")]
    Groups(String),
}

impl Authenticator {
    /// An authenticator for the bed's cluster.
    pub fn new(identities: Arc<Identities>, eks: Arc<Eks>) -> Self {
        Self { identities, eks, aws_auth: AwsAuth::default() }
    }

    /// The ConfigMap `kube-system/aws-auth`, as last seen; have it followed once the API server
    /// runs.
    pub fn aws_auth(&self) -> &AwsAuth {
        &self.aws_auth
    }

    /// The user that a token stands for.
    pub(crate) fn authenticate(
        &self,
        token: &str,
        aws_state: &AwsState,
    ) -> Result<UserInfo, Refusal> {
        let url = token.strip_prefix(PREFIX).ok_or(Refusal::OtherKind)?;
        let cluster = aws_state.cluster().map(|cluster| cluster.name).unwrap_or_default();
        let request = presigned::Request::decode(url)?;
        request.check_time(aws_state.clock().now())?;
        let credential = request.credential();
        let identity =
            self.identities.identify(Some(&credential)).map_err(|refusal| match refusal {
                identity::Refusal::Expired => Refusal::Expired,
                identity::Refusal::Unknown | identity::Refusal::Unsigned => {
                    Refusal::UnknownKey(credential.access_key.clone())
                }
            })?;
        request.check_signature(&identity.secret_key, &cluster)?;
        self.user(&identity.principal, &credential.access_key, aws_state)
    }

    /// The Kubernetes user of somebody in AWS.
    pub fn user(
        &self,
        principal: &Principal,
        access_key: &str,
        aws_state: &AwsState,
    ) -> Result<UserInfo, Refusal> {
        let mode = self.eks.authentication_mode();
        let arn = principal.role_arn.as_deref().unwrap_or(&principal.arn);
        let session = principal.arn.rsplit('/').next().unwrap_or_default();
        let found = if mode == AuthenticationMode::ConfigMap {
            None
        } else {
            self.eks.access_entry(arn).filter(|entry| !entry.stale)
        };
        let (username, groups) = match found {
            Some(entry) => (entry.username.clone(), groups(&entry)),
            None if mode == AuthenticationMode::Api => {
                return Err(Refusal::NoAccess(arn.to_owned()));
            }
            None => {
                let mapping = self
                    .aws_auth
                    .mapping(&without_path(arn))
                    .ok_or_else(|| Refusal::NoAccess(arn.to_owned()))?;
                (mapping.username, mapping.groups)
            }
        };
        let host_name = || {
            let instances = aws_state.instances().get(session);
            instances.map(|instance| instance.private_dns_name.clone()).unwrap_or_default()
        };
        let mut username = username
            .replace("{{AccountID}}", &principal.account)
            .replace("{{SessionName}}", &session.replace('@', "-"))
            .replace("{{SessionNameRaw}}", session)
            .replace("{{AccessKeyID}}", access_key);
        if username.contains("{{EC2PrivateDNSName}}") {
            username = username.replace("{{EC2PrivateDNSName}}", &host_name());
        }
        let extra = [
            ("arn", &principal.arn),
            ("canonicalArn", &arn.to_owned()),
            ("accessKeyId", &access_key.to_owned()),
            ("principalId", &principal.user_id),
            ("sessionName", &session.to_owned()),
        ];
        Ok(UserInfo {
            username: Some(username),
            uid: Some(format!("aws-iam-authenticator:{}:{}", principal.account, principal.user_id)),
            groups: Some(groups),
            extra: Some(
                extra
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), vec![value.clone()]))
                    .collect(),
            ),
        })
    }

    /// Whether the nodes of a role may join the cluster.
    ///
    /// # Errors
    /// What is missing.
    pub fn admits_nodes_of(&self, role_arn: &str) -> Result<(), NotAdmitted> {
        let role = || role_arn.to_owned();
        let mode = self.eks.authentication_mode();
        if mode != AuthenticationMode::ConfigMap {
            match self.eks.access_entry(role_arn) {
                Some(entry) if entry.stale => {
                    return Err(NotAdmitted::Stale(role()));
                }
                Some(entry) if entry.entry_type.is_for_ec2_nodes() => return Ok(()),
                Some(entry) => {
                    let kind = format!("{:?}", entry.entry_type);
                    return Err(NotAdmitted::Kind { role: role(), kind });
                }
                None if mode == AuthenticationMode::Api => {
                    return Err(NotAdmitted::NoEntry(role()));
                }
                None => {}
            }
        }
        let mapping = self.aws_auth.mapping(&without_path(role_arn));
        let mapping = mapping.ok_or_else(|| NotAdmitted::Unknown(role()))?;
        if mapping.groups.iter().any(|group| group == "system:nodes") {
            Ok(())
        } else {
            Err(NotAdmitted::Groups(role()))
        }
    }
}

impl Endpoint for Authenticator {
    fn handles(&self, path: &str) -> bool {
        path == TOKEN_REVIEW_PATH
    }

    fn call<'a>(
        &'a self,
        request: Request<Bytes>,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Response<Bytes>> {
        Box::pin(async move {
            let mut review: TokenReview = match serde_json::from_slice(request.body()) {
                Ok(review) => review,
                Err(error) => {
                    return json_response(
                        400,
                        &json!({ "message": format!("not a TokenReview: {error}") }),
                    );
                }
            };
            // The answer repeats the question, except for the secret in it.
            let token = std::mem::take(&mut review.spec.token);
            review.status = Some(match self.authenticate(&token, aws_state) {
                Ok(user) => TokenReviewStatus {
                    authenticated: Some(true),
                    user: Some(user),
                    ..TokenReviewStatus::default()
                },
                Err(refusal) => {
                    if refusal != Refusal::OtherKind {
                        tracing::info!(%refusal, "refused a token");
                    }
                    TokenReviewStatus {
                        authenticated: Some(false),
                        error: Some(refusal.to_string()),
                        ..TokenReviewStatus::default()
                    }
                }
            });
            json_response(200, &json!(review))
        })
    }
}

/// The groups of an entry's own, and those that stand for its access policies. EKS has an
/// authorizer for access policies; here they are groups: for the administrator of the cluster the
/// one that may do everything, for the others `eks:access-policy:<name>`, to be bound by
/// [`policy_bindings`].
fn groups(entry: &AccessEntry) -> Vec<String> {
    let of_policies =
        entry.policies.iter().filter(|policy| policy.namespaces.is_empty()).map(|policy| {
            if policy.name == "AmazonEKSClusterAdminPolicy" {
                MASTERS.to_owned()
            } else {
                format!("eks:access-policy:{}", policy.name)
            }
        });
    entry.groups.iter().cloned().chain(of_policies).collect()
}

/// A token for a cluster, as `aws eks get-token` makes it.
pub fn token(credentials: &Credentials, region: &str, cluster: &str, now: Timestamp) -> String {
    format!("{PREFIX}{}", presigned::Request::sign(credentials, region, cluster, now))
}

/// The role bindings by which the groups of access policies get their rights; the bed applies them
/// once.
pub fn policy_bindings() -> Vec<ClusterRoleBinding> {
    [
        ("AmazonEKSAdminPolicy", "admin"),
        ("AmazonEKSEditPolicy", "edit"),
        ("AmazonEKSViewPolicy", "view"),
    ]
    .into_iter()
    .map(|(policy, role)| ClusterRoleBinding {
        metadata: ObjectMeta {
            name: Some(format!("eks:access-policy:{policy}")),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".into()),
            kind: "ClusterRole".into(),
            name: role.into(),
        },
        subjects: Some(vec![Subject {
            api_group: Some("rbac.authorization.k8s.io".into()),
            kind: "Group".into(),
            name: format!("eks:access-policy:{policy}"),
            namespace: None,
        }]),
    })
    .collect()
}

/// An ARN as aws-auth wants it: without the role's path.
fn without_path(arn: &str) -> String {
    match arn.split_once(":role/") {
        Some((prefix, path)) => {
            format!("{prefix}:role/{}", path.rsplit('/').next().unwrap_or(path))
        }
        None => arn.to_owned(),
    }
}

#[cfg(test)]
mod tests;
