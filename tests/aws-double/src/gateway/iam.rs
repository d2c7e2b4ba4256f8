//! IAM where moto differs from AWS: lists by path and in pages, service-linked roles, tags of
//! instance profiles, and what may not be made or deleted.

use serde_json::Value;

use super::aws_state::AwsState;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};
use super::xml::{Element, render};

/// The service-linked role of EC2 Spot; seeded, as nearly every account has it.
pub(crate) const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";

/// The service that the role of EC2 Spot is for.
const SPOT_SERVICE: &str = "spot.amazonaws.com";

/// Corrections of moto's IAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Iam;

impl Service for Iam {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "iam"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        match request.action.as_str() {
            "ListInstanceProfiles" => list_instance_profiles(request, aws_state).await,
            "ListInstanceProfileTags" => list_instance_profile_tags(request, aws_state).await,
            "CreateServiceLinkedRole" => create_service_linked_role(request, aws_state).await,
            "DeletePolicy" => delete_policy(request, aws_state).await,
            "CreateRole" => create_role(request, aws_state).await,
            "AddClientIDToOpenIDConnectProvider" => add_client_id(request, aws_state).await,
            "RemoveRoleFromInstanceProfile" => remove_role(request, aws_state).await,
            "CreateInstanceProfile" => create_instance_profile(request, aws_state).await,
            _ => aws_state.moto().forward(request).await,
        }
    }
}

/// moto fails on a role that the profile does not have (any more), where AWS does not find it.
async fn remove_role(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    let answer = aws_state.moto().forward(request).await;
    answer.map_err(|error| match error.code.as_str() {
        "NotImplementedInDouble" => {
            let of = |name| request.params.get(name).unwrap_or_default();
            let (role, profile) = (of("RoleName"), of("InstanceProfileName"));
            AwsError::new(
                "NoSuchEntity",
                format!("The role {role} cannot be found in instance profile {profile}."),
            )
            .with_status(404)
        }
        _ => error,
    })
}

async fn list_instance_profiles(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let answer = aws_state.moto().query("iam", "ListInstanceProfiles", []).await?;
    let prefix = params.get("PathPrefix").unwrap_or("/");
    let all = answer
        .child("ListInstanceProfilesResult")
        .map_or(&[][..], |result| result.items("InstanceProfiles"));
    let found: Vec<&Element> = all
        .iter()
        .filter(|profile| profile.get("Path").unwrap_or("/").starts_with(prefix))
        .collect();
    let size: usize =
        params.get("MaxItems").and_then(|size| size.parse().ok()).unwrap_or(100).clamp(1, 1000);
    let start: usize = match params.get("Marker") {
        None => 0,
        Some(marker) => marker
            .strip_prefix("page-")
            .and_then(|offset| offset.parse().ok())
            .ok_or_else(|| AwsError::new("ValidationError", "Invalid Marker."))?,
    };
    let page = found.iter().skip(start).take(size).map(|profile| (*profile).clone()).collect();
    let end = start + size;
    let mut result = vec![
        Element::node("InstanceProfiles", page),
        Element::leaf("IsTruncated", (end < found.len()).to_string()),
    ];
    if end < found.len() {
        result.push(Element::leaf("Marker", format!("page-{end}")));
    }
    Ok(AwsResponse::query(request, &render(&result)))
}

async fn list_instance_profile_tags(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let name = request.params.get("InstanceProfileName").unwrap_or_default();
    let answer = aws_state
        .moto()
        .query("iam", "GetInstanceProfile", [("InstanceProfileName", name)])
        .await?;
    let tags = answer
        .at(&["GetInstanceProfileResult", "InstanceProfile", "Tags"])
        .cloned()
        .unwrap_or_else(|| Element::node("Tags", vec![]));
    Ok(AwsResponse::query(request, &render(&[tags, Element::leaf("IsTruncated", "false")])))
}

/// Makes the service-linked role of EC2 Spot under AWS's name; moto's has another, and launches
/// look for this one.
pub(crate) async fn create_spot_role(aws_state: &AwsState) -> Result<Element, AwsError> {
    let trust = format!(
        "{{\"Version\":\"2012-10-17\",\"Statement\":[{{\"Effect\":\"Allow\",\"Principal\":{{\"Service\":\"{SPOT_SERVICE}\"}},\"Action\":\"sts:AssumeRole\"}}]}}"
    );
    let path = format!("/aws-service-role/{SPOT_SERVICE}/");
    let params = [
        ("RoleName", SPOT_ROLE),
        ("Path", path.as_str()),
        ("AssumeRolePolicyDocument", trust.as_str()),
    ];
    aws_state.moto().query("iam", "CreateRole", params).await
}

async fn create_service_linked_role(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    if request.params.get("AWSServiceName") != Some(SPOT_SERVICE) {
        return aws_state.moto().forward(request).await;
    }
    match create_spot_role(aws_state).await {
        Ok(mut answer) => {
            let role = answer
                .child_mut("CreateRoleResult")
                .map(|result| std::mem::take(&mut result.children))
                .unwrap_or_default();
            Ok(AwsResponse::query(request, &render(&role)).with_resources([SPOT_ROLE.to_owned()]))
        }
        Err(error) if error.code == "EntityAlreadyExists" => {
            let message = format!(
                "Service role name {SPOT_ROLE} has been taken in this account, please try a different suffix."
            );
            Err(AwsError::new("InvalidInput", message))
        }
        Err(error) => Err(error),
    }
}

/// moto deletes a policy that is attached, after which its role can never be deleted.
async fn delete_policy(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let arn = request.params.get("PolicyArn").unwrap_or_default();
    let moto = aws_state.moto();
    let entities = moto.query("iam", "ListEntitiesForPolicy", [("PolicyArn", arn)]).await?;
    let entities = entities.child("ListEntitiesForPolicyResult");
    let attached = ["PolicyRoles", "PolicyUsers", "PolicyGroups"]
        .iter()
        .any(|kind| entities.is_some_and(|entities| !entities.items(kind).is_empty()));
    if attached {
        return Err(AwsError::new(
            "DeleteConflict",
            "Cannot delete a policy attached to entities.",
        ));
    }
    let versions = moto.query("iam", "ListPolicyVersions", [("PolicyArn", arn)]).await?;
    if versions
        .child("ListPolicyVersionsResult")
        .is_some_and(|versions| versions.items("Versions").len() > 1)
    {
        let message = "This policy has more than one version. Before you delete a policy, you must delete the policy's versions. The default version is deleted with the policy.";
        return Err(AwsError::new("DeleteConflict", message));
    }
    moto.forward(request).await
}

async fn create_role(request: &AwsRequest, aws_state: &AwsState) -> Result<AwsResponse, AwsError> {
    check_name(request.params.get("RoleName"), "roleName", 64)?;
    let trust = request.params.get("AssumeRolePolicyDocument").unwrap_or_default();
    if !serde_json::from_str::<Value>(trust).is_ok_and(|document| document.is_object()) {
        return Err(AwsError::new("MalformedPolicyDocument", "This policy contains invalid Json"));
    }
    aws_state.moto().forward(request).await
}

async fn create_instance_profile(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    check_name(request.params.get("InstanceProfileName"), "instanceProfileName", 128)?;
    aws_state.moto().forward(request).await
}

/// moto lacks it: the provider is made anew with one audience more. An audience that is there
/// already is no error.
async fn add_client_id(
    request: &AwsRequest,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let arn = params.get("OpenIDConnectProviderArn").unwrap_or_default();
    let wanted = params.get("ClientID").unwrap_or_default();
    let of_it = [("OpenIDConnectProviderArn", arn)];
    let moto = aws_state.moto();
    let found = moto.query("iam", "GetOpenIDConnectProvider", of_it).await?;
    let found = found.child("GetOpenIDConnectProviderResult").cloned().unwrap_or_default();
    let texts = |list: &str| -> Vec<String> {
        found.items(list).iter().map(|item| item.text.clone()).collect()
    };
    let mut audiences = texts("ClientIDList");
    if audiences.iter().any(|audience| audience == wanted) {
        return Ok(AwsResponse::query(request, ""));
    }
    audiences.push(wanted.to_owned());
    let url = found.get("Url").unwrap_or_default();
    let url = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    let mut all = vec![("Url".to_owned(), url)];
    for (list, values) in [("ClientIDList", audiences), ("ThumbprintList", texts("ThumbprintList"))]
    {
        let members = values.into_iter().zip(1..);
        all.extend(members.map(|(value, at)| (format!("{list}.member.{at}"), value)));
    }
    for (tag, at) in found.items("Tags").iter().zip(1..) {
        for part in ["Key", "Value"] {
            let value = tag.get(part).unwrap_or_default().to_owned();
            all.push((format!("Tags.member.{at}.{part}"), value));
        }
    }
    moto.query("iam", "DeleteOpenIDConnectProvider", of_it).await?;
    let all = all.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    moto.query("iam", "CreateOpenIDConnectProvider", all).await?;
    Ok(AwsResponse::query(request, ""))
}

fn check_name(name: Option<&str>, field: &str, limit: usize) -> Result<(), AwsError> {
    let name = name.unwrap_or_default();
    let good = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
    if name.is_empty() || name.len() > limit || !name.chars().all(good) {
        let message = format!(
            "1 validation error detected: Value '{name}' at '{field}' failed to satisfy constraint: Member must have length less than or equal to {limit} and match [\\w+=,.@-]+"
        );
        return Err(AwsError::new("ValidationError", message));
    }
    Ok(())
}
