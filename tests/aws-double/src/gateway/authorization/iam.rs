//! IAM: resources by name, which IAM looks up with their paths; what does not exist has none.

use super::{Check, Resolver};
use crate::gateway::response::AwsError;

pub(super) async fn checks(resolver: &Resolver<'_>) -> Result<Vec<Check>, AwsError> {
    let request = resolver.request;
    let param = |name: &str| request.params.get(name);
    let tags = request.request_tags().into_iter().map(|(_, key, value)| (key, value));
    let mut checks = match request.action.as_str() {
        "CreateRole" => vec![created(resolver, "role", "RoleName")],
        "CreateInstanceProfile" => {
            vec![created(resolver, "instance-profile", "InstanceProfileName")]
        }
        "CreatePolicy" => vec![created(resolver, "policy", "PolicyName")],
        "CreateUser" => vec![created(resolver, "user", "UserName")],
        "CreateOpenIDConnectProvider" => {
            let url = param("Url").unwrap_or_default().trim_start_matches("https://");
            vec![resolver.own(resolver.iam_arn(&format!("oidc-provider/{url}")))]
        }
        "CreateServiceLinkedRole" => {
            let service = param("AWSServiceName").unwrap_or_default();
            let arn = resolver.iam_arn(&format!(
                "role/aws-service-role/{service}/{}",
                service_linked_role(service)
            ));
            vec![resolver.own(arn).with("iam:AWSServiceName", service)]
        }
        "ListRoles"
        | "ListPolicies"
        | "ListUsers"
        | "ListInstanceProfiles"
        | "ListOpenIDConnectProviders"
        | "ListAccountAliases"
        | "GetAccountSummary" => vec![resolver.own("*")],
        "AddRoleToInstanceProfile" => {
            let mut checks = vec![on_profile(resolver).await?];
            let role = param("RoleName").unwrap_or_default();
            // A role that does not exist is not passed; IAM says that it doesn't.
            if let Some(role) = role_if_there(resolver, role).await? {
                checks.push(resolver.pass_role(&role.arn, &resolver.ec2_service()));
            }
            checks
        }
        _ if param("InstanceProfileName").is_some() => vec![on_profile(resolver).await?],
        _ if param("RoleName").is_some() => vec![on_role(resolver).await?],
        _ => {
            let arn = ["PolicyArn", "OpenIDConnectProviderArn", "PolicySourceArn"]
                .into_iter()
                .find_map(param);
            let user = param("UserName").map(|name| resolver.iam_arn(&format!("user/{name}")));
            vec![resolver.own(arn.map(str::to_owned).or(user).unwrap_or_else(|| "*".to_owned()))]
        }
    };
    if let Some(first) = checks.first_mut() {
        let mut check = first.clone().tagging(tags);
        for key in request.params.list("TagKeys.member") {
            check = check.with("aws:TagKeys", key);
        }
        *first = check;
    }
    Ok(checks)
}

/// What a call makes: the name with the path that the call asks for.
fn created(resolver: &Resolver<'_>, kind: &str, name: &str) -> Check {
    let params = &resolver.request.params;
    let path = params.get("Path").unwrap_or("/");
    let check = resolver
        .own(resolver.iam_arn(&format!("{kind}{path}{}", params.get(name).unwrap_or_default())));
    match params.get("PermissionsBoundary") {
        Some(boundary) => check.with("iam:PermissionsBoundary", boundary),
        None => check,
    }
}

async fn on_role(resolver: &Resolver<'_>) -> Result<Check, AwsError> {
    let params = &resolver.request.params;
    let name = params.get("RoleName").unwrap_or_default();
    let role = role_if_there(resolver, name).await?;
    let mut check = match &role {
        Some(role) => resolver.own(&role.arn).tagged(&role.tags),
        None => resolver.own(resolver.iam_arn(&format!("role/{name}"))),
    };
    let boundary = params
        .get("PermissionsBoundary")
        .or(role.as_ref().and_then(|role| role.boundary.as_deref()));
    if let Some(boundary) = boundary {
        check = check.with("iam:PermissionsBoundary", boundary);
    }
    if let Some(policy) = params.get("PolicyArn") {
        check = check.with("iam:PolicyARN", policy);
    }
    Ok(check)
}

async fn on_profile(resolver: &Resolver<'_>) -> Result<Check, AwsError> {
    let name = resolver.request.params.get("InstanceProfileName").unwrap_or_default();
    Ok(match resolver.policies.instance_profile(name, resolver.aws_state).await? {
        Some(profile) => resolver.own(profile.arn).tagged(profile.tags),
        None => resolver.own(resolver.iam_arn(&format!("instance-profile/{name}"))),
    })
}

async fn role_if_there(
    resolver: &Resolver<'_>,
    name: &str,
) -> Result<Option<std::sync::Arc<crate::gateway::policy_store::Role>>, AwsError> {
    match resolver.policies.role(name, resolver.aws_state).await {
        Ok(role) => Ok(Some(role)),
        Err(error) if error.code == "NoSuchEntity" => Ok(None),
        Err(error) => Err(error),
    }
}

fn service_linked_role(service: &str) -> &str {
    match service {
        "spot.amazonaws.com" => "AWSServiceRoleForEC2Spot",
        "eks-fargate.amazonaws.com" => "AWSServiceRoleForAmazonEKSForFargate",
        _ => "*",
    }
}
