//! Whether a call may go on: who signed it, what it touches, and what their policies say about it.
//!
//! A call becomes a list of checks, each an action on a resource with its facts: CreateFleet alone
//! is some ten of them. All must be allowed; the first that is not is told as AWS tells it. Which
//! statement allowed each check is kept, so that statements that no scenario ever needs can be
//! listed.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use tenon_iam_policies::Partition;

use super::aws_state::AwsState;
use super::eks::Eks;
use super::identity::{Grants, Identities, Identity};
use super::policy::{Call, Context, NamedDocument, Policies, Verdict};
use super::policy_store::PolicyStore;
use super::request::{AwsRequest, Protocol};
use super::response::{AwsError, AwsResponse};
use super::service::{Decision, Gate, Principal};
use super::signature::{self, Signature};
use usage::Usage;

mod ec2;
mod eks;
mod iam;
mod others;
pub mod usage;

/// One thing that a call wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The action: `ec2:CreateTags`.
    pub action: String,
    /// The resource's ARN, or `*`.
    pub resource: String,
    /// The facts that hold for this resource.
    pub context: Context,
}

/// Tags of a resource.
type Tags = BTreeMap<String, String>;

/// The gate of the gateway: authenticates by [`Identities`] and authorises by the policies that
/// moto holds.
#[derive(Debug)]
pub struct Authorization {
    identities: Arc<Identities>,
    policies: Arc<PolicyStore>,
    eks: Arc<Eks>,
    usage: Usage,
}

impl Authorization {
    /// A gate for these users and sessions.
    pub fn new(identities: Arc<Identities>, policies: Arc<PolicyStore>, eks: Arc<Eks>) -> Self {
        Self { identities, policies, eks, usage: Usage::default() }
    }

    /// Which statements of the roles' policies were needed.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// What a call touches.
    pub async fn checks(
        &self,
        identity: &Identity,
        request: &AwsRequest,
        aws_state: &AwsState,
    ) -> Result<Vec<Check>, AwsError> {
        let resolver = Resolver {
            policies: &self.policies,
            eks: &self.eks,
            request,
            aws_state,
            base: base_context(identity, request, aws_state),
        };
        match request.service.as_str() {
            "ec2" => ec2::checks(&resolver).await,
            "iam" => iam::checks(&resolver).await,
            "eks" => Ok(eks::checks(&resolver)),
            _ => others::checks(&resolver).await,
        }
    }

    async fn decide(
        &self,
        request: &AwsRequest,
        aws_state: &AwsState,
    ) -> Result<Decision, AwsError> {
        if is_free(request) {
            return Ok(Decision { resources: vec!["*".to_owned()], denied: None });
        }
        let identity = self
            .identities
            .identify(request.credential.as_ref())
            .map_err(|refusal| refusal.error(request))?;
        let checks = self.checks(&identity, request, aws_state).await?;
        let mut resources: Vec<String> =
            checks.iter().map(|check| check.resource.clone()).collect();
        resources.sort_unstable();
        resources.dedup();
        let policies = match &identity.grants {
            Grants::Everything => return Ok(Decision { resources, denied: None }),
            Grants::Documents(documents) => {
                Policies { identity: documents.clone(), limits: vec![] }
            }
            Grants::User { name } => match self.policies.user(name, aws_state).await {
                Ok(policies) => policies,
                Err(error) if error.code == "NoSuchEntity" => Policies::default(),
                Err(error) => return Err(error),
            },
            Grants::Role { name, session_policy } => {
                let mut policies = match self.policies.role(name, aws_state).await {
                    Ok(role) => role.policies.clone(),
                    // The role is gone, its sessions live on without any right.
                    Err(error) if error.code == "NoSuchEntity" => Policies::default(),
                    Err(error) => return Err(error),
                };
                self.usage.know(name, &policies);
                policies.limits.extend(session_policy.iter().map(|document| NamedDocument {
                    name: "session policy".to_owned(),
                    document: document.clone(),
                }));
                policies
            }
        };
        let mut allowed = Vec::new();
        for check in &checks {
            let call =
                Call { action: &check.action, resource: &check.resource, context: &check.context };
            match policies.evaluate(call) {
                Verdict::Allowed(statement) => allowed.push(statement),
                verdict => {
                    tracing::info!(
                        action = check.action,
                        resource = check.resource,
                        principal = identity.principal.arn,
                        ?verdict,
                        "denied"
                    );
                    tracing::debug!(context = ?check.context, "facts of the denied check");
                    let denied = Some(denial(request, &identity.principal, check, &verdict));
                    return Ok(Decision { resources, denied });
                }
            }
        }
        if let Grants::Role { name, .. } = &identity.grants {
            self.usage.needed(name, &request.iam_action(), allowed);
        }
        Ok(Decision { resources, denied: None })
    }
}

impl Gate for Authorization {
    fn authenticate<'a>(
        &'a self,
        request: &'a AwsRequest,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Result<Option<Principal>, AwsError>> {
        Box::pin(async {
            if is_unsigned(request) {
                return Ok(None);
            }
            let refused = |refusal: signature::Refusal| refusal.error(request);
            let signature = Signature::read(request).map_err(refused)?;
            if let Some(signature) = &signature {
                signature.check_scope(request, aws_state).map_err(refused)?;
            }
            let identity = self
                .identities
                .identify(request.credential.as_ref())
                .map_err(|refusal| refusal.error(request))?;
            if let Some(signature) = &signature {
                signature.check(request, &identity.secret_key).map_err(refused)?;
            }
            Ok(Some(identity.principal))
        })
    }

    fn authorise<'a>(
        &'a self,
        request: &'a AwsRequest,
        aws_state: &'a AwsState,
    ) -> BoxFuture<'a, Decision> {
        Box::pin(async {
            match self.decide(request, aws_state).await {
                Ok(decision) => decision,
                Err(error) => Decision { resources: vec![], denied: Some(error) },
            }
        })
    }

    fn answered(&self, request: &AwsRequest, response: &AwsResponse) {
        let reads = ["Get", "List", "Simulate"];
        if request.service != "iam" || reads.iter().any(|verb| request.action.starts_with(verb)) {
            return;
        }
        self.policies.invalidate();
        if request.action == "DeleteRole" && response.is_success() {
            self.eks.role_deleted(request.params.get("RoleName").unwrap_or_default());
        }
    }
}

/// What mapping a call to checks may look at.
struct Resolver<'a> {
    policies: &'a PolicyStore,
    eks: &'a Eks,
    request: &'a AwsRequest,
    aws_state: &'a AwsState,
    /// The facts that hold for every check of the call.
    base: Context,
}

impl Resolver<'_> {
    fn check(&self, action: &str, resource: impl Into<String>) -> Check {
        Check { action: action.to_owned(), resource: resource.into(), context: self.base.clone() }
    }

    /// The call's own action on a resource.
    fn own(&self, resource: impl Into<String>) -> Check {
        self.check(&self.request.iam_action(), resource)
    }

    /// ARN of something in the call's region and account.
    fn arn(&self, service: &str, resource: &str) -> String {
        format!(
            "arn:{}:{service}:{}:{}:{resource}",
            self.aws_state.partition(),
            self.request.region,
            self.aws_state.account()
        )
    }

    /// ARN of something in IAM.
    fn iam_arn(&self, resource: &str) -> String {
        self.aws_state.iam_arn(resource)
    }

    /// EC2 as a service that takes roles.
    fn ec2_service(&self) -> String {
        format!("ec2.{}", self.aws_state.partition().dns_suffix())
    }

    /// Passing a role on to a service, or nothing when there is no such role: the called service
    /// will say so itself.
    fn pass_role(&self, role_arn: &str, service: &str) -> Check {
        self.check("iam:PassRole", role_arn).with("iam:PassedToService", service)
    }
}

impl Check {
    /// The same check with one more fact.
    fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.context.add(key, value);
        self
    }

    /// The same check of a resource with these tags.
    fn tagged<K: AsRef<str>, V: AsRef<str>>(
        mut self,
        tags: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        for (key, value) in tags {
            self.context.add(&format!("aws:ResourceTag/{}", key.as_ref()), value.as_ref());
        }
        self
    }

    /// The same check of a call that sets these tags.
    fn tagging<K: AsRef<str>, V: AsRef<str>>(
        mut self,
        tags: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        for (key, value) in tags {
            self.context.add(&format!("aws:RequestTag/{}", key.as_ref()), value.as_ref());
            self.context.add("aws:TagKeys", key.as_ref());
        }
        self
    }
}

/// Calls that AWS takes without a signature.
fn is_unsigned(request: &AwsRequest) -> bool {
    matches!(
        (request.service.as_str(), request.action.as_str()),
        ("sts", "AssumeRoleWithWebIdentity") | ("eks-auth", "AssumeRoleForPodIdentity")
    )
}

/// Calls that need no permission, or whose permission somebody else's policy gives.
fn is_free(request: &AwsRequest) -> bool {
    is_unsigned(request) || (request.service == "sts" && request.action == "GetCallerIdentity")
}

/// Global services live in one region of their partition.
fn home_of_iam(aws_state: &AwsState) -> &'static str {
    match aws_state.partition() {
        Partition::Aws => "us-east-1",
        Partition::AwsCn => "cn-north-1",
        Partition::AwsUsGov => "us-gov-west-1",
    }
}

fn base_context(identity: &Identity, request: &AwsRequest, aws_state: &AwsState) -> Context {
    let principal = &identity.principal;
    let now = aws_state.clock().now();
    let region =
        if request.service == "iam" { home_of_iam(aws_state) } else { request.region.as_str() };
    let mut context = Context::new()
        .with("aws:RequestedRegion", region)
        .with("aws:PrincipalAccount", &principal.account)
        .with("aws:PrincipalArn", principal.role_arn.as_ref().unwrap_or(&principal.arn))
        .with(
            "aws:PrincipalType",
            if principal.role_arn.is_some() { "AssumedRole" } else { "User" },
        )
        .with("aws:userid", &principal.user_id)
        .with("aws:ResourceAccount", aws_state.account())
        .with("aws:CurrentTime", now.to_string())
        .with("aws:EpochTime", now.as_second().to_string())
        .with("aws:SourceIp", "127.0.0.1")
        // The gateway is on loopback, without TLS; it stands for endpoints that have it.
        .with("aws:SecureTransport", "true")
        .with("aws:ViaAWSService", "false");
    if principal.role_arn.is_none() {
        context.add("aws:username", principal.arn.rsplit('/').next().unwrap_or_default());
    }
    for (key, value) in &principal.session_tags {
        context.add(&format!("aws:PrincipalTag/{key}"), value);
    }
    context
}

/// The refusal as the called service words it.
fn denial(
    request: &AwsRequest,
    principal: &Principal,
    check: &Check,
    verdict: &Verdict,
) -> AwsError {
    let Check { action, resource, .. } = check;
    let because = match verdict {
        Verdict::Denied(by) if by.policy == "session policy" => {
            "with an explicit deny in a session policy".to_owned()
        }
        Verdict::Denied(_) => "with an explicit deny in an identity-based policy".to_owned(),
        Verdict::Limited(by) if by == "session policy" => {
            format!("because no session policy allows the {action} action")
        }
        Verdict::Limited(_) => {
            format!("because no permissions boundary allows the {action} action")
        }
        Verdict::NotAllowed | Verdict::Allowed(_) => {
            format!("because no identity-based policy allows the {action} action")
        }
    };
    let on = if resource == "*" { String::new() } else { format!(" on resource: {resource}") };
    let message =
        format!("User: {} is not authorized to perform: {action}{on} {because}", principal.arn);
    match request.protocol {
        Protocol::Ec2 => AwsError::new(
            "UnauthorizedOperation",
            format!("You are not authorized to perform this operation. {message}"),
        ),
        Protocol::Query | Protocol::RestXml => AwsError::new("AccessDenied", message),
        Protocol::Json(_) if request.service == "sqs" => AwsError::new("AccessDenied", message),
        Protocol::Json(_) => AwsError::new("AccessDeniedException", message).with_status(400),
        Protocol::RestJson => AwsError::new("AccessDeniedException", message),
    }
}

#[cfg(test)]
mod tests;
