//! Pod identity associations: which service account gets which role.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Eks, OnCluster, Tags, in_use, invalid, not_found, page, seconds};
use crate::gateway::aws_state::AwsState;
use crate::gateway::policy::{Call, Caller, Context, evaluate_resource_policy};
use crate::gateway::policy_store::Role;
use crate::gateway::response::AwsError;
use tenon_iam_policies::identity::POD_IDENTITY_SERVICE;

/// A service account and its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Association {
    /// `a-` and 17 letters and digits.
    pub id: String,
    /// ARN of the association.
    pub arn: String,
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub service_account: String,
    /// ARN of the role.
    pub role_arn: String,
    /// Sessions don't carry the tags of EKS.
    pub disable_session_tags: bool,
    /// Tags.
    pub tags: Tags,
    token: Option<String>,
    created: Timestamp,
    modified: Timestamp,
}

impl Eks {
    /// The association of a service account.
    pub fn association(&self, namespace: &str, service_account: &str) -> Option<Association> {
        let state = self.state.lock();
        state
            .associations
            .values()
            .find(|of| of.namespace == namespace && of.service_account == service_account)
            .cloned()
    }

    pub(super) async fn pod_identity(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        match call.request.action.as_str() {
            "CreatePodIdentityAssociation" => self.create_association(call).await,
            "UpdatePodIdentityAssociation" => {
                if let Some(role_arn) = call.text("roleArn") {
                    self.trusted(role_arn, call.aws_state).await?;
                }
                let now = self.clock.now();
                self.on_association(call, |association| {
                    if let Some(role_arn) = call.text("roleArn") {
                        role_arn.clone_into(&mut association.role_arn);
                    }
                    if let Some(disable) = call.request.json["disableSessionTags"].as_bool() {
                        association.disable_session_tags = disable;
                    }
                    association.modified = now;
                    association.json(call)
                })
            }
            "DescribePodIdentityAssociation" => {
                self.on_association(call, |association| association.json(call))
            }
            "DeletePodIdentityAssociation" => {
                let id = call.name()?;
                let removed = self.state.lock().associations.remove(id);
                removed
                    .map(|association| json!({ "association": association.json(call) }))
                    .ok_or_else(|| no_association(id))
            }
            "ListPodIdentityAssociations" => {
                let is_wanted = |name: &str, value: &str| {
                    call.request.params.get(name).is_none_or(|wanted| wanted == value)
                };
                let state = self.state.lock();
                let associations = state.associations.values().filter(|association| {
                    is_wanted("namespace", &association.namespace)
                        && is_wanted("serviceAccount", &association.service_account)
                });
                let summaries = associations.map(|association| {
                    json!({
                        "clusterName": call.cluster.name,
                        "namespace": association.namespace,
                        "serviceAccount": association.service_account,
                        "associationArn": association.arn,
                        "associationId": association.id,
                    })
                });
                page::page(call.request, "associations", summaries.collect())
            }
            _ => Err(AwsError::not_implemented(call.request)),
        }
    }

    async fn create_association(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        let (namespace, service_account) =
            (call.required("namespace")?, call.required("serviceAccount")?);
        let role_arn = call.required("roleArn")?;
        let token = call.text("clientRequestToken").map(str::to_owned);
        if let Some(existing) = self.association(namespace, service_account) {
            if token.is_some() && existing.token == token && existing.role_arn == role_arn {
                return Ok(json!({ "association": existing.json(call) }));
            }
            return Err(in_use(format!("Association already exists: {}", existing.id)));
        }
        self.trusted(role_arn, call.aws_state).await?;
        let id = format!("a-{}", &Uuid::new_v4().simple().to_string()[..17]);
        let now = self.clock.now();
        let association = Association {
            arn: call.arn(&format!("podidentityassociation/{}/{id}", call.cluster.name)),
            namespace: namespace.to_owned(),
            service_account: service_account.to_owned(),
            role_arn: role_arn.to_owned(),
            disable_session_tags: call.request.json["disableSessionTags"]
                .as_bool()
                .unwrap_or(false),
            tags: call.tags(),
            token,
            created: now,
            modified: now,
            id: id.clone(),
        };
        let answer = json!({ "association": association.json(call) });
        let mut state = self.state.lock();
        // Two calls at once: the second finds what the first made while both asked for the role.
        let same =
            |of: &&Association| of.namespace == namespace && of.service_account == service_account;
        if let Some(existing) = state.associations.values().find(same) {
            return Err(in_use(format!("Association already exists: {}", existing.id)));
        }
        state.associations.insert(id, association);
        Ok(answer)
    }

    /// A role that exists and that EKS may take; else the error that EKS gives.
    async fn trusted(&self, role_arn: &str, aws_state: &AwsState) -> Result<(), AwsError> {
        let role = self
            .role(role_arn, aws_state)
            .await?
            .ok_or_else(|| invalid("Role provided in the request does not exist."))?;
        if trusts_pod_identity(&role) {
            Ok(())
        } else {
            Err(invalid("Trust policy of role provided in the request is invalid."))
        }
    }

    fn on_association(
        &self,
        call: &OnCluster<'_>,
        action: impl FnOnce(&mut Association) -> Value,
    ) -> Result<Value, AwsError> {
        let id = call.name()?;
        let mut state = self.state.lock();
        let association = state.associations.get_mut(id).ok_or_else(|| no_association(id))?;
        Ok(json!({ "association": action(association) }))
    }
}

impl Association {
    fn json(&self, call: &OnCluster<'_>) -> Value {
        json!({
            "clusterName": call.cluster.name,
            "namespace": self.namespace,
            "serviceAccount": self.service_account,
            "roleArn": self.role_arn,
            "associationArn": self.arn,
            "associationId": self.id,
            "tags": self.tags,
            "createdAt": seconds(self.created),
            "modifiedAt": seconds(self.modified),
            "disableSessionTags": self.disable_session_tags,
        })
    }
}

/// Whether a role lets EKS take it for pods at all. Conditions are left out, as they depend on the
/// pod: what EKS checks here is that the service is named with both actions.
fn trusts_pod_identity(role: &Role) -> bool {
    let mut trust = role.trust.clone();
    for statement in &mut trust.document.statements {
        statement.conditions.clear();
    }
    ["sts:AssumeRole", "sts:TagSession"].into_iter().all(|action| {
        let call = Call { action, resource: &role.arn, context: &Context::new() };
        evaluate_resource_policy(&trust, Caller::Service(POD_IDENTITY_SERVICE), call).is_allowed()
    })
}

fn no_association(id: &str) -> AwsError {
    not_found(format!("The association ID {id} was not found."))
}
