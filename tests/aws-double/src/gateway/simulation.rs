//! `iam:SimulatePrincipalPolicy`, answered by the policies that the gate goes by.

use std::sync::Arc;

use super::aws_state::AwsState;
use super::identity::{Grants, Identities};
use super::policy::{Call, Context, Policies, Verdict};
use super::policy_store::PolicyStore;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};
use super::xml::{Element, render};

/// The most results of one page, as in AWS by default.
const MOST_RESULTS: usize = 100;

/// Asks the policies of users and roles.
#[derive(Debug)]
pub(crate) struct Simulation {
    identities: Arc<Identities>,
    policies: Arc<PolicyStore>,
}

impl Simulation {
    /// Of these users and roles.
    pub(crate) fn new(identities: Arc<Identities>, policies: Arc<PolicyStore>) -> Self {
        Self { identities, policies }
    }

    async fn simulate(
        &self,
        request: &AwsRequest,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let params = &request.params;
        let source = params.get("PolicySourceArn").unwrap_or_default();
        let policies = self.policies_of(source, aws_state).await?;
        let mut context = Context::new();
        for entry in params.structs("ContextEntries.member") {
            for value in entry.list("ContextKeyValues.member") {
                context.add(entry.get("ContextKeyName").unwrap_or_default(), value);
            }
        }
        let mut resources = params.list("ResourceArns.member");
        if resources.is_empty() {
            resources.push("*");
        }
        let mut results = Vec::new();
        for action in params.list("ActionNames.member") {
            for resource in &resources {
                let decision = policies.as_ref().map_or("allowed", |policies| {
                    decision(&policies.evaluate(Call { action, resource, context: &context }))
                });
                results.push(Element::node(
                    "member",
                    vec![
                        Element::leaf("EvalActionName", action),
                        Element::leaf("EvalResourceName", *resource),
                        Element::leaf("EvalDecision", decision),
                    ],
                ));
            }
        }
        let start = match params.get("Marker") {
            None => 0,
            Some(marker) => marker
                .parse()
                .map_err(|_| AwsError::new("InvalidInput", "The marker is none of ours."))?,
        };
        let size = params.get("MaxItems").and_then(|size| size.parse().ok());
        let end = results.len().min(start + size.unwrap_or(MOST_RESULTS).clamp(1, MOST_RESULTS));
        let more = end < results.len();
        let page = results.get(start..end).unwrap_or_default().to_vec();
        let mut answer = vec![
            Element::node("EvaluationResults", page),
            Element::leaf("IsTruncated", more.to_string()),
        ];
        if more {
            answer.push(Element::leaf("Marker", end.to_string()));
        }
        Ok(AwsResponse::query(request, &render(&answer)))
    }

    /// The policies of a user or role; `None` for who may do everything.
    async fn policies_of(
        &self,
        arn: &str,
        aws_state: &AwsState,
    ) -> Result<Option<Policies>, AwsError> {
        let name = arn.rsplit('/').next().unwrap_or_default();
        if arn.contains(":role/") {
            return Ok(Some(self.policies.role(name, aws_state).await?.policies.clone()));
        }
        match self.identities.grants_of(arn) {
            Some(Grants::Everything) => Ok(None),
            Some(Grants::Documents(documents)) => {
                Ok(Some(Policies { identity: documents, limits: vec![] }))
            }
            Some(Grants::User { name }) => self.policies.user(&name, aws_state).await.map(Some),
            Some(Grants::Role { .. }) | None => {
                Err(AwsError::new("NoSuchEntity", format!("{arn} is no user or role.")))
            }
        }
    }
}

fn decision(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allowed(_) => "allowed",
        Verdict::Denied(_) => "explicitDeny",
        Verdict::NotAllowed | Verdict::Limited(_) => "implicitDeny",
    }
}

impl Service for Simulation {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.iam_action() == "iam:SimulatePrincipalPolicy"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        self.simulate(request, aws_state).await
    }
}
