//! The policies of roles and users as moto stores them; roles' are kept until somebody writes to
//! IAM.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tenon_iam_policies::Document;

use crate::gateway::aws_state::AwsState;
use crate::gateway::policy::{NamedDocument, Policies};
use crate::gateway::response::AwsError;
use crate::gateway::xml::Element;

/// A role with everything that decides what it may do and who may take it.
#[derive(Clone, Debug)]
pub struct Role {
    /// Name.
    pub name: String,
    /// ARN, with path.
    pub arn: String,
    /// Unique id: `AROA…`.
    pub id: String,
    /// Who may take it.
    pub trust: NamedDocument,
    /// What it may do.
    pub policies: Policies,
    /// ARN of its permissions boundary.
    pub boundary: Option<String>,
    /// As moto lists them.
    pub tags: BTreeMap<String, String>,
}

/// As moto has it.
#[derive(Clone, Debug)]
pub(crate) struct InstanceProfile {
    /// ARN, with path.
    pub arn: String,
    /// ARN of the role in it.
    pub role_arn: Option<String>,
    /// As moto lists them.
    pub tags: BTreeMap<String, String>,
}

/// Reads roles from moto, and remembers them.
#[derive(Debug, Default)]
pub struct PolicyStore {
    roles: Mutex<Roles>,
}

#[derive(Debug, Default)]
struct Roles {
    /// Counts the writes to IAM, so that what was read before a write is not remembered after it.
    generation: u64,
    by_name: BTreeMap<String, Arc<Role>>,
    /// Documents of AWS' own policies, which never change, by ARN.
    managed_by_aws: BTreeMap<String, NamedDocument>,
}

impl PolicyStore {
    /// Forgets all roles: something was written to IAM.
    pub(crate) fn invalidate(&self) {
        let mut roles = self.roles.lock();
        roles.generation += 1;
        roles.by_name.clear();
    }

    /// A role by name; `NoSuchEntity` when there is none.
    pub async fn role(&self, name: &str, aws_state: &AwsState) -> Result<Arc<Role>, AwsError> {
        let generation = {
            let roles = self.roles.lock();
            if let Some(role) = roles.by_name.get(name) {
                return Ok(Arc::clone(role));
            }
            roles.generation
        };
        let role = Arc::new(self.read(name, aws_state).await?);
        let mut roles = self.roles.lock();
        if roles.generation == generation {
            roles.by_name.insert(name.to_owned(), Arc::clone(&role));
        }
        Ok(role)
    }

    async fn read(&self, name: &str, aws_state: &AwsState) -> Result<Role, AwsError> {
        let moto = aws_state.moto();
        let answer = moto.query("iam", "GetRole", [("RoleName", name)]).await?;
        let role =
            answer.at(&["GetRoleResult", "Role"]).ok_or_else(|| unreadable("GetRole", name))?;
        let text = |field: &str| role.get(field).unwrap_or_default().to_owned();
        let trust = NamedDocument {
            name: format!("trust policy of {name}"),
            document: parse(&text("AssumeRolePolicyDocument"), name, "its trust policy")?,
        };
        let identity = self.policies_of("Role", name, aws_state).await?;
        let boundary =
            role.at(&["PermissionsBoundary", "PermissionsBoundaryArn"]).map(|arn| arn.text.clone());
        let mut limits = Vec::new();
        if let Some(arn) = &boundary {
            limits.push(self.managed(arn, aws_state).await?);
        }
        Ok(Role {
            name: name.to_owned(),
            arn: text("Arn"),
            id: text("RoleId"),
            trust,
            policies: Policies { identity, limits },
            boundary,
            tags: tags(role),
        })
    }

    /// What a user may do, by their own policies and their groups'; `NoSuchEntity` when there is
    /// none.
    pub async fn user(&self, name: &str, aws_state: &AwsState) -> Result<Policies, AwsError> {
        let moto = aws_state.moto();
        let user = moto.query("iam", "GetUser", [("UserName", name)]).await?;
        let mut identity = self.policies_of("User", name, aws_state).await?;
        let groups = moto.query("iam", "ListGroupsForUser", [("UserName", name)]).await?;
        let groups = groups
            .child("ListGroupsForUserResult")
            .map_or(&[][..], |result| result.items("Groups"));
        for group in groups {
            let name = group.get("GroupName").unwrap_or_default();
            identity.extend(self.policies_of("Group", name, aws_state).await?);
        }
        let mut limits = Vec::new();
        let boundary = ["GetUserResult", "User", "PermissionsBoundary", "PermissionsBoundaryArn"];
        if let Some(arn) = user.at(&boundary) {
            limits.push(self.managed(&arn.text, aws_state).await?);
        }
        Ok(Policies { identity, limits })
    }

    /// The policies in and at a `Role`, `User` or `Group`.
    async fn policies_of(
        &self,
        kind: &str,
        name: &str,
        aws_state: &AwsState,
    ) -> Result<Vec<NamedDocument>, AwsError> {
        let moto = aws_state.moto();
        let parameter = format!("{kind}Name");
        let of = (parameter.as_str(), name);
        let mut found = Vec::new();
        let listed = moto.query("iam", &format!("List{kind}Policies"), [of]).await?;
        let listed = listed
            .child(&format!("List{kind}PoliciesResult"))
            .map_or(&[][..], |result| result.items("PolicyNames"));
        for policy in listed {
            let action = format!("Get{kind}Policy");
            let params = [of, ("PolicyName", policy.text.as_str())];
            let answer = moto.query("iam", &action, params).await?;
            let result = format!("{action}Result");
            let document =
                answer.at(&[result.as_str(), "PolicyDocument"]).map_or("", |text| &text.text);
            found.push(NamedDocument {
                name: policy.text.clone(),
                document: parse(document, name, &policy.text)?,
            });
        }
        let attached = moto.query("iam", &format!("ListAttached{kind}Policies"), [of]).await?;
        let attached = attached
            .child(&format!("ListAttached{kind}PoliciesResult"))
            .map_or(&[][..], |result| result.items("AttachedPolicies"));
        for policy in attached {
            found.push(self.managed(policy.get("PolicyArn").unwrap_or_default(), aws_state).await?);
        }
        Ok(found)
    }

    async fn managed(&self, arn: &str, aws_state: &AwsState) -> Result<NamedDocument, AwsError> {
        if let Some(known) = self.roles.lock().managed_by_aws.get(arn) {
            return Ok(known.clone());
        }
        let moto = aws_state.moto();
        let policy = moto.query("iam", "GetPolicy", [("PolicyArn", arn)]).await?;
        let version = policy
            .at(&["GetPolicyResult", "Policy", "DefaultVersionId"])
            .map_or("v1", |id| &id.text);
        let answer = moto
            .query("iam", "GetPolicyVersion", [("PolicyArn", arn), ("VersionId", version)])
            .await?;
        let document = answer
            .at(&["GetPolicyVersionResult", "PolicyVersion", "Document"])
            .map_or("", |text| &text.text);
        let name = arn.rsplit('/').next().unwrap_or(arn).to_owned();
        let named = NamedDocument { document: parse(document, arn, &name)?, name };
        if arn.contains(":iam::aws:") {
            self.roles.lock().managed_by_aws.insert(arn.to_owned(), named.clone());
        }
        Ok(named)
    }

    /// An instance profile by name; `None` when there is none.
    pub(crate) async fn instance_profile(
        &self,
        name: &str,
        aws_state: &AwsState,
    ) -> Result<Option<InstanceProfile>, AwsError> {
        let answer = aws_state
            .moto()
            .query("iam", "GetInstanceProfile", [("InstanceProfileName", name)])
            .await;
        let answer = match answer {
            Err(error) if error.code == "NoSuchEntity" => return Ok(None),
            answer => answer?,
        };
        let profile = answer
            .at(&["GetInstanceProfileResult", "InstanceProfile"])
            .ok_or_else(|| unreadable("GetInstanceProfile", name))?;
        let role_arn =
            profile.items("Roles").first().and_then(|role| role.get("Arn")).map(str::to_owned);
        Ok(Some(InstanceProfile {
            arn: profile.get("Arn").unwrap_or_default().to_owned(),
            role_arn,
            tags: tags(profile),
        }))
    }
}

fn tags(of: &Element) -> BTreeMap<String, String> {
    of.items("Tags")
        .iter()
        .filter_map(|tag| {
            Some((tag.get("Key")?.to_owned(), tag.get("Value").unwrap_or_default().to_owned()))
        })
        .collect()
}

fn parse(text: &str, owner: &str, policy: &str) -> Result<Document, AwsError> {
    Document::parse(text).map_err(|error| {
        let reason = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        AwsError::new(
            "InternalError",
            format!("the double cannot evaluate {policy} of {owner}: {error}: {reason}; AWS would not have stored it: {text}"),
        )
    })
}

fn unreadable(action: &str, name: &str) -> AwsError {
    AwsError::new(
        "InternalError",
        format!("moto's answer to iam:{action} for {name} lacks its result"),
    )
}
