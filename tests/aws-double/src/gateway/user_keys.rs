//! Access keys of IAM's users: moto makes and keeps them, the gate must know them, too.

use std::sync::Arc;

use super::aws_state::AwsState;
use super::identity::Identities;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service, signed};
use super::xml::{Element, render};

/// Tells [`Identities`] of every access key that is made, changed or deleted.
#[derive(Debug)]
pub(crate) struct UserKeys {
    identities: Arc<Identities>,
}

impl UserKeys {
    /// For these users and sessions.
    pub(crate) const fn new(identities: Arc<Identities>) -> Self {
        Self { identities }
    }

    async fn create(
        &self,
        request: &AwsRequest,
        principal: &Principal,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let params = with_user(request, principal);
        let mut answer = aws_state.moto().query_params("iam", "CreateAccessKey", &params).await?;
        let Some(result) = answer.child_mut("CreateAccessKeyResult") else {
            return Err(AwsError::new("InternalError", "moto has made no access key"));
        };
        let text = |name: &str| {
            result.at(&["AccessKey", name]).map(|it| it.text.clone()).unwrap_or_default()
        };
        let (name, access_key, secret_key) =
            (text("UserName"), text("AccessKeyId"), text("SecretAccessKey"));
        let user = aws_state.moto().query("iam", "GetUser", [("UserName", name.as_str())]).await?;
        let user = user.at(&["GetUserResult", "User"]);
        let of_user =
            |field: &str| user.and_then(|it| it.get(field)).unwrap_or_default().to_owned();
        let owner = Principal {
            arn: of_user("Arn"),
            account: aws_state.account().to_owned(),
            user_id: of_user("UserId"),
            role_arn: None,
            session_tags: vec![],
        };
        self.identities.add_key(owner, &name, &access_key, &secret_key);
        let children: Vec<Element> = std::mem::take(&mut result.children);
        Ok(AwsResponse::query(request, &render(&children)))
    }

    async fn change(
        &self,
        request: &AwsRequest,
        principal: &Principal,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let params = with_user(request, principal);
        aws_state.moto().query_params("iam", &request.action, &params).await?;
        let key = params.get("AccessKeyId").unwrap_or_default();
        match params.get("Status") {
            Some(status) => self.identities.set_active(key, status == "Active"),
            None => self.identities.remove_key(key),
        }
        Ok(AwsResponse::query(request, ""))
    }
}

/// The call's parameters; without a user it is about the caller's own.
fn with_user(request: &AwsRequest, principal: &Principal) -> super::request::Params {
    let mut params = request.params.clone();
    if params.get("UserName").is_none()
        && let Some((_, path)) = principal.arn.split_once(":user/")
    {
        params.set("UserName", path.rsplit('/').next().unwrap_or(path));
    }
    params
}

impl Service for UserKeys {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "iam"
            && matches!(
                request.action.as_str(),
                "CreateAccessKey" | "DeleteAccessKey" | "UpdateAccessKey"
            )
    }

    async fn call(
        &self,
        request: &AwsRequest,
        caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        if request.action == "CreateAccessKey" {
            self.create(request, signed(caller)?, aws_state).await
        } else {
            self.change(request, signed(caller)?, aws_state).await
        }
    }
}
