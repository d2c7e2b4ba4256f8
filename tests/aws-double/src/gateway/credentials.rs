//! Sessions of roles: STS, and the endpoint that the EKS Pod Identity agent offers to pods.
//!
//! Nobody gets a session on their word: tokens of service accounts are shown to the API server,
//! roles must exist, and their trust policies must let the caller in with the conditions that they
//! name.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{Request, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_iam_policies::identity::{IRSA_AUDIENCE, POD_IDENTITY_SERVICE, ec2_services};
use tenon_iam_policies::{Document, Partition};

use super::aws_state::AwsState;
use super::consistency::Kind;
use super::eks::Eks;
use super::identity::{Credentials, Identities, SessionOf};
use super::policy::{Call, Caller, Context, evaluate_resource_policy};
use super::policy_store::{PolicyStore, Role};
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Endpoint, Principal, Service, json_response, signed};
use super::xml::escape;
use service_account::{ReviewTokens, ServiceAccountToken, TokenRefusal};

pub mod service_account;

/// The path of the endpoint for pods: `GET` with the token as `Authorization`.
pub(crate) const POD_CREDENTIALS_PATH: &str = "/v1/credentials";

/// Sessions of pods and of instances last six hours.
const SESSION: SignedDuration = SignedDuration::from_hours(6);

/// Opens sessions.
pub struct SessionIssuer {
    identities: Arc<Identities>,
    policies: Arc<PolicyStore>,
    eks: Arc<Eks>,
    tokens: Arc<dyn ReviewTokens>,
}

impl SessionIssuer {
    /// An issuer whose tokens are reviewed by `tokens`.
    pub fn new(
        identities: Arc<Identities>,
        policies: Arc<PolicyStore>,
        eks: Arc<Eks>,
        tokens: Arc<dyn ReviewTokens>,
    ) -> Self {
        Self { identities, policies, eks, tokens }
    }

    /// Credentials for the pod that has this token.
    pub async fn for_pod(
        &self,
        token: &str,
        aws_state: &AwsState,
    ) -> Result<(Principal, Credentials), AwsError> {
        let of =
            self.tokens.review(token, POD_IDENTITY_SERVICE).await.map_err(
                |refusal| match refusal {
                    TokenRefusal::NotAuthenticated(reason) => AwsError::new(
                        "InvalidTokenException",
                        format!("The token included in the request is invalid: {reason}"),
                    ),
                    TokenRefusal::Unavailable(reason) => {
                        AwsError::new("ServiceUnavailableException", reason).with_status(503)
                    }
                },
            )?;
        let association = self.eks.association(&of.namespace, &of.name).ok_or_else(|| {
            let message = format!(
                "No association found for service account {} in namespace {}.",
                of.name, of.namespace
            );
            AwsError::new("ResourceNotFoundException", message)
        })?;
        let denied = || {
            let message = format!(
                "Unauthorized Exception! EKS does not have permissions to assume the associated role {}.",
                association.role_arn
            );
            AwsError::new("AccessDeniedException", message)
        };
        let role = self.role(&association.role_arn, aws_state).await?.ok_or_else(denied)?;
        let cluster = aws_state.cluster().ok_or_else(denied)?;
        let cluster_arn = aws_state.arn("eks", &format!("cluster/{}", cluster.name));
        let tags: Vec<(String, String)> = if association.disable_session_tags {
            vec![]
        } else {
            [
                ("eks-cluster-arn", &cluster_arn),
                ("eks-cluster-name", &cluster.name),
                ("kubernetes-namespace", &of.namespace),
                ("kubernetes-service-account", &of.name),
                ("kubernetes-pod-name", &of.pod),
                ("kubernetes-pod-uid", &of.pod_uid),
            ]
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .to_vec()
        };
        let mut context = tag_context(&tags)
            .with("aws:SourceArn", &cluster_arn)
            .with("aws:SourceAccount", aws_state.account());
        context.add("aws:RequestedRegion", aws_state.region());
        let needed: &[&str] = if tags.is_empty() {
            &["sts:AssumeRole"]
        } else {
            &["sts:AssumeRole", "sts:TagSession"]
        };
        if !trusts(&role, Caller::Service(POD_IDENTITY_SERVICE), needed, &context) {
            return Err(denied());
        }
        let session_name = session_name(&cluster.name, &of);
        Ok(self.identities.open_session(SessionOf {
            role_arn: &role.arn,
            role_id: &role.id,
            session_name: &session_name,
            tags,
            policy: None,
            lasts: SESSION,
        }))
    }

    /// The role of an instance profile.
    pub(super) async fn role_of_profile(
        &self,
        name: &str,
        aws_state: &AwsState,
    ) -> Result<Option<Arc<Role>>, AwsError> {
        let profile = self.policies.instance_profile(name, aws_state).await?;
        match profile.and_then(|profile| profile.role_arn) {
            Some(arn) => self.role(&arn, aws_state).await,
            None => Ok(None),
        }
    }

    /// Credentials for what runs on an instance, if EC2 may assume the role.
    pub(super) fn for_instance(
        &self,
        instance: &str,
        role: &Role,
        aws_state: &AwsState,
    ) -> Option<Credentials> {
        let context = Context::new().with("aws:SourceAccount", aws_state.account());
        let partition = Partition::of_region(aws_state.region());
        let is_trusted =
            |service: &&str| trusts(role, Caller::Service(service), &["sts:AssumeRole"], &context);
        ec2_services(partition).iter().find(|service| is_trusted(service))?;
        let (_, credentials) = self.identities.open_session(SessionOf {
            role_arn: &role.arn,
            role_id: &role.id,
            session_name: instance,
            tags: vec![],
            policy: None,
            lasts: SESSION,
        });
        Some(credentials)
    }

    async fn with_web_identity(
        &self,
        request: &AwsRequest,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let param = |name: &str| required(request, name);
        let (role_arn, session_name, token) =
            (param("RoleArn")?, param("RoleSessionName")?, param("WebIdentityToken")?);
        let claims = claims(token).ok_or_else(|| AwsError::new("InvalidIdentityToken", "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)"))?;
        let issuer = claims["iss"].as_str().unwrap_or_default();
        let host_and_path = issuer.trim_start_matches("https://");
        let provider = aws_state.iam_arn(&format!("oidc-provider/{host_and_path}"));
        let answer = aws_state
            .moto()
            .query(
                "iam",
                "GetOpenIDConnectProvider",
                [("OpenIDConnectProviderArn", provider.as_str())],
            )
            .await;
        let answer = match answer {
            Err(error)
                if matches!(
                    error.code.as_str(),
                    "NoSuchEntity" | "ValidationError" | "InvalidInput"
                ) =>
            {
                return Err(AwsError::new(
                    "InvalidIdentityToken",
                    format!("No OpenIDConnect provider found in your account for {issuer}"),
                ));
            }
            answer => answer?,
        };
        let known = answer
            .child("GetOpenIDConnectProviderResult")
            .map_or(&[][..], |result| result.items("ClientIDList"));
        let claimed = audiences(&claims);
        let audience = claimed.iter().find(|audience| known.iter().any(|of| &of.text == *audience));
        let audience = audience
            .ok_or_else(|| AwsError::new("InvalidIdentityToken", "Incorrect token audience"))?;
        let reviewed =
            self.tokens.review(token, audience).await.map_err(|refusal| match refusal {
                TokenRefusal::NotAuthenticated(reason) => AwsError::new(
                    "InvalidIdentityToken",
                    format!(
                        "Couldn't verify the token's signature with the provider's keys: {reason}"
                    ),
                ),
                TokenRefusal::Unavailable(reason) => AwsError::new("IDPCommunicationError", reason),
            })?;
        let subject = format!("system:serviceaccount:{}:{}", reviewed.namespace, reviewed.name);
        let context = Context::new()
            .with(&format!("{host_and_path}:aud"), audience)
            .with(&format!("{host_and_path}:sub"), &subject)
            .with("aws:RequestedRegion", &request.region);
        let denied = || {
            AwsError::new("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
        };
        let role = self.role(role_arn, aws_state).await?.ok_or_else(denied)?;
        if !trusts(
            &role,
            Caller::Federated(&provider),
            &["sts:AssumeRoleWithWebIdentity"],
            &context,
        ) {
            return Err(denied());
        }
        let (principal, credentials) = self.identities.open_session(SessionOf {
            role_arn: &role.arn,
            role_id: &role.id,
            session_name,
            tags: vec![],
            policy: session_policy(request)?,
            lasts: duration(request)?,
        });
        let mut inner = session_xml(&principal, &credentials);
        for (name, value) in [
            ("SubjectFromWebIdentityToken", subject.as_str()),
            ("Audience", audience),
            ("Provider", &provider),
        ] {
            write!(inner, "<{name}>{}</{name}>", escape(value)).expect("a String takes any text");
        }
        Ok(AwsResponse::query(request, &inner))
    }

    async fn assume_role(
        &self,
        request: &AwsRequest,
        principal: &Principal,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let (role_arn, session_name) =
            (required(request, "RoleArn")?, required(request, "RoleSessionName")?);
        let denied = || {
            let message = format!(
                "User: {} is not authorized to perform: sts:AssumeRole on resource: {role_arn}",
                principal.arn
            );
            AwsError::new("AccessDenied", message)
        };
        let role = self.role(role_arn, aws_state).await?.ok_or_else(denied)?;
        let tags = request.params.tags("Tags.member");
        let mut context = tag_context(&tags).with("aws:PrincipalAccount", &principal.account);
        context.add("aws:PrincipalArn", principal.role_arn.as_ref().unwrap_or(&principal.arn));
        if let Some(id) = request.params.get("ExternalId") {
            context.add("sts:ExternalId", id);
        }
        let caller = Caller::Aws {
            arn: &principal.arn,
            role: principal.role_arn.as_deref(),
            account: &principal.account,
        };
        let needed: &[&str] = if tags.is_empty() {
            &["sts:AssumeRole"]
        } else {
            &["sts:AssumeRole", "sts:TagSession"]
        };
        if !trusts(&role, caller, needed, &context) {
            return Err(denied());
        }
        let (principal, credentials) = self.identities.open_session(SessionOf {
            role_arn: &role.arn,
            role_id: &role.id,
            session_name,
            tags,
            policy: session_policy(request)?,
            lasts: duration(request)?,
        });
        Ok(AwsResponse::query(request, &session_xml(&principal, &credentials)))
    }

    async fn assume_role_for_pod_identity(
        &self,
        request: &AwsRequest,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let token = request.json["token"].as_str().unwrap_or_default();
        let (principal, credentials) = self.for_pod(token, aws_state).await?;
        Ok(AwsResponse::json(
            request,
            &json!({
                "assumedRoleUser": { "arn": principal.arn, "assumeRoleId": principal.user_id },
                "audience": POD_IDENTITY_SERVICE,
                "credentials": {
                    "accessKeyId": credentials.access_key,
                    "secretAccessKey": credentials.secret_key,
                    "sessionToken": credentials.session_token,
                    "expiration": credentials.expires.map(jiff::Timestamp::as_second),
                },
            }),
        ))
    }

    /// A role by its ARN, once STS can see it.
    async fn role(&self, arn: &str, aws_state: &AwsState) -> Result<Option<Arc<Role>>, AwsError> {
        let Some(name) = arn.split_once(":role/").and_then(|(_, path)| path.rsplit('/').next())
        else {
            return Ok(None);
        };
        if !aws_state.consistency().is_visible(Kind::Role, name) {
            return Ok(None);
        }
        match self.policies.role(name, aws_state).await {
            Ok(role) => Ok(Some(role).filter(|role| role.arn == arn)),
            Err(error) if error.code == "NoSuchEntity" => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Service for SessionIssuer {
    fn handles(&self, request: &AwsRequest) -> bool {
        matches!(request.service.as_str(), "sts" | "eks-auth")
    }

    async fn call(
        &self,
        request: &AwsRequest,
        caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        match request.action.as_str() {
            "GetCallerIdentity" => {
                let caller = signed(caller)?;
                let inner = format!(
                    "<Arn>{}</Arn><UserId>{}</UserId><Account>{}</Account>",
                    escape(&caller.arn),
                    escape(&caller.user_id),
                    escape(&caller.account)
                );
                Ok(AwsResponse::query(request, &inner))
            }
            "AssumeRole" => self.assume_role(request, signed(caller)?, aws_state).await,
            "AssumeRoleWithWebIdentity" => self.with_web_identity(request, aws_state).await,
            "AssumeRoleForPodIdentity" => {
                self.assume_role_for_pod_identity(request, aws_state).await
            }
            _ => Err(AwsError::not_implemented(request)),
        }
    }
}

impl Endpoint for SessionIssuer {
    fn handles(&self, path: &str) -> bool {
        path == POD_CREDENTIALS_PATH
    }

    fn call<'a>(
        &'a self,
        request: Request<Bytes>,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Response<Bytes>> {
        Box::pin(async move {
            let token = request
                .headers()
                .get("authorization")
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default();
            match self.for_pod(token, aws_state).await {
                Ok((principal, credentials)) => json_response(
                    200,
                    &json!({
                        "AccessKeyId": credentials.access_key,
                        "SecretAccessKey": credentials.secret_key,
                        "Token": credentials.session_token,
                        "Expiration": credentials.expires.map(|at| at.to_string()),
                        "AccountId": principal.account,
                    }),
                ),
                Err(error) => {
                    tracing::info!(%error, "no credentials for a pod");
                    json_response(
                        error.status,
                        &json!({ "code": error.code, "message": error.message }),
                    )
                }
            }
        })
    }
}

/// Whether a role's trust policy lets the caller do all of these.
fn trusts(role: &Role, caller: Caller<'_>, actions: &[&str], context: &Context) -> bool {
    actions.iter().all(|action| {
        let call = Call { action, resource: &role.arn, context };
        evaluate_resource_policy(&role.trust, caller, call).is_allowed()
    })
}

fn tag_context(tags: &[(String, String)]) -> Context {
    tags.iter().fold(Context::new(), |context, (key, value)| {
        context.with(&format!("aws:RequestTag/{key}"), value).with("aws:TagKeys", key)
    })
}

/// The session's name: `eks-<cluster>-<pod>-<uid>`, each part cut so that it keeps to 64
/// characters.
fn session_name(cluster: &str, of: &ServiceAccountToken) -> String {
    let cut = |text: &str, length: usize| text.chars().take(length).collect::<String>();
    format!("eks-{}-{}-{}", cut(cluster, 20), cut(&of.pod, 20), cut(&of.pod_uid, 16))
}

fn required<'a>(request: &'a AwsRequest, name: &str) -> Result<&'a str, AwsError> {
    request.params.get(name).filter(|value| !value.is_empty()).ok_or_else(|| {
        AwsError::new("ValidationError", format!("1 validation error detected: Value null at '{name}' failed to satisfy constraint: Member must not be null"))
    })
}

fn duration(request: &AwsRequest) -> Result<SignedDuration, AwsError> {
    let Some(text) = request.params.get("DurationSeconds") else {
        return Ok(SignedDuration::from_hours(1));
    };
    let seconds = text.parse().ok().filter(|seconds| (900..=43_200).contains(seconds)).ok_or_else(|| {
        AwsError::new("ValidationError", format!("1 validation error detected: Value '{text}' at 'durationSeconds' failed to satisfy constraint: Member must be between 900 and 43200"))
    })?;
    Ok(SignedDuration::from_secs(seconds))
}

fn session_policy(request: &AwsRequest) -> Result<Option<Document>, AwsError> {
    let policy = request.params.get("Policy").map(Document::parse).transpose();
    policy.map_err(|error| {
        AwsError::new("MalformedPolicyDocument", format!("Syntax errors in policy: {error}"))
    })
}

/// The claims of a token, unverified.
fn claims(token: &str) -> Option<Value> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

fn audiences(claims: &Value) -> Vec<String> {
    match &claims["aud"] {
        Value::String(audience) => vec![audience.clone()],
        Value::Array(audiences) => {
            audiences.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => vec![IRSA_AUDIENCE.to_owned()],
    }
}

fn session_xml(principal: &Principal, credentials: &Credentials) -> String {
    format!(
        "<AssumedRoleUser><Arn>{}</Arn><AssumedRoleId>{}</AssumedRoleId></AssumedRoleUser><Credentials><AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}</SecretAccessKey><SessionToken>{}</SessionToken><Expiration>{}</Expiration></Credentials>",
        escape(&principal.arn),
        escape(&principal.user_id),
        credentials.access_key,
        credentials.secret_key,
        credentials.session_token.as_deref().unwrap_or_default(),
        credentials.expires.map(|at| at.to_string()).unwrap_or_default(),
    )
}
