//! Access entries: who may get into the cluster, as whom, and with which access policies.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    AuthenticationMode, Eks, OnCluster, Tags, in_use, invalid, not_found, page, seconds, strings,
};
use crate::gateway::aws_state::AwsState;
use crate::gateway::response::AwsError;

/// The access policies that EKS has, by name.
const POLICIES: [&str; 6] = [
    "AmazonEKSAdminPolicy",
    "AmazonEKSAdminViewPolicy",
    "AmazonEKSClusterAdminPolicy",
    "AmazonEKSEditPolicy",
    "AmazonEKSSecretReaderPolicy",
    "AmazonEKSViewPolicy",
];

/// What ARNs of access policies begin with.
fn policy_prefix(aws_state: &AwsState) -> String {
    format!("arn:{}:eks::aws:cluster-access-policy/", aws_state.partition())
}

/// What kind of principal an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EntryType {
    /// People and programs.
    Standard,
    /// Linux nodes on EC2.
    #[serde(rename = "EC2_LINUX")]
    Ec2Linux,
    /// Windows nodes on EC2.
    #[serde(rename = "EC2_WINDOWS")]
    Ec2Windows,
    /// Fargate.
    FargateLinux,
    /// Nodes of EKS Auto Mode.
    #[serde(rename = "EC2")]
    Ec2,
    /// Nodes outside of AWS.
    HybridLinux,
}

impl EntryType {
    /// Whether nodes on EC2 that are not in Auto Mode get in by entries of this type.
    pub(crate) fn is_for_ec2_nodes(self) -> bool {
        matches!(self, Self::Ec2Linux | Self::Ec2Windows)
    }
}

/// Who may get into the cluster, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEntry {
    /// ARN of the role or user.
    pub principal_arn: String,
    /// The role was deleted since. EKS remembers its unique id, so the entry does not hold for a
    /// role that is made anew under the same name.
    pub stale: bool,
    /// The entry's own ARN.
    pub arn: String,
    /// What it is for.
    pub entry_type: EntryType,
    /// The user name in Kubernetes, with variables in double braces.
    pub username: String,
    /// The groups in Kubernetes.
    pub groups: Vec<String>,
    /// What it may do beyond what RBAC gives to name and groups.
    pub policies: Vec<AssociatedPolicy>,
    /// Tags.
    pub tags: Tags,
    created: Timestamp,
    modified: Timestamp,
}

/// An access policy of an entry, and where it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssociatedPolicy {
    /// The policy's name.
    pub name: String,
    /// The namespaces in which it holds; empty means the whole cluster.
    pub namespaces: Vec<String>,
    associated: Timestamp,
}

/// The access policies as ListAccessPolicies tells them.
pub(super) fn policies(aws_state: &AwsState) -> Vec<Value> {
    let prefix = policy_prefix(aws_state);
    POLICIES
        .into_iter()
        .map(|name| json!({ "name": name, "arn": format!("{prefix}{name}") }))
        .collect()
}

impl Eks {
    /// The access entry of a principal.
    pub(crate) fn access_entry(&self, principal_arn: &str) -> Option<AccessEntry> {
        self.state.lock().entries.get(principal_arn).cloned()
    }

    /// Makes somebody an administrator of the cluster, as EKS does for who made it.
    pub(crate) fn grant_cluster_admin(&self, principal_arn: &str, aws_state: &AwsState) {
        let now = self.clock.now();
        let policy = AssociatedPolicy {
            name: "AmazonEKSClusterAdminPolicy".to_owned(),
            namespaces: vec![],
            associated: now,
        };
        let entry = AccessEntry {
            principal_arn: principal_arn.to_owned(),
            stale: false,
            arn: entry_arn(
                &aws_state.arn("eks", ""),
                &aws_state.cluster().map(|cluster| cluster.name).unwrap_or_default(),
                principal_arn,
            ),
            entry_type: EntryType::Standard,
            username: default_username(principal_arn, EntryType::Standard),
            groups: vec![],
            policies: vec![policy],
            tags: Tags::new(),
            created: now,
            modified: now,
        };
        self.state.lock().entries.insert(principal_arn.to_owned(), entry);
    }

    /// Told that a role was deleted.
    pub(crate) fn role_deleted(&self, name: &str) {
        for entry in self.state.lock().entries.values_mut() {
            let of_role = entry
                .principal_arn
                .split_once(":role/")
                .and_then(|(_, path)| path.rsplit('/').next());
            entry.stale |= of_role == Some(name);
        }
    }

    pub(super) async fn access(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        if self.authentication_mode() == AuthenticationMode::ConfigMap {
            return Err(AwsError::new(
                "InvalidRequestException",
                "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.",
            ));
        }
        match call.request.action.as_str() {
            "CreateAccessEntry" => self.create_entry(call).await,
            "ListAccessEntries" => {
                let wanted = call.request.params.get("associatedPolicyArn");
                let state = self.state.lock();
                let has = |entry: &AccessEntry, arn: &str| {
                    entry.policies.iter().any(|policy| policy.arn(call.aws_state) == arn)
                };
                let entries =
                    state.entries.values().filter(|entry| wanted.is_none_or(|arn| has(entry, arn)));
                page::page(
                    call.request,
                    "accessEntries",
                    entries.map(|entry| json!(entry.principal_arn)).collect(),
                )
            }
            "DescribeAccessEntry" => {
                self.on_entry(call, |_, entry| Ok(json!({ "accessEntry": entry.json(call) })))
            }
            "UpdateAccessEntry" => self.on_entry(call, |now, entry| {
                let (username, groups) = validated(call, entry.entry_type)?;
                if let Some(username) = username {
                    entry.username = username;
                }
                if let Some(groups) = groups {
                    entry.groups = groups;
                }
                entry.modified = now;
                Ok(json!({ "accessEntry": entry.json(call) }))
            }),
            "DeleteAccessEntry" => {
                let removed = self.state.lock().entries.remove(call.name()?);
                removed.map(|_| json!({})).ok_or_else(no_entry)
            }
            "AssociateAccessPolicy" => self.on_entry(call, |now, entry| {
                let policy = associated(call, entry, now)?;
                entry.policies.retain(|other| other.name != policy.name);
                entry.policies.push(policy.clone());
                entry.modified = now;
                Ok(json!({
                    "clusterName": call.cluster.name,
                    "principalArn": entry.principal_arn,
                    "associatedAccessPolicy": policy.json(call.aws_state),
                }))
            }),
            "DisassociateAccessPolicy" => self.on_entry(call, |_, entry| {
                let n_before = entry.policies.len();
                entry
                    .policies
                    .retain(|policy| Some(policy.arn(call.aws_state).as_str()) != call.policy_arn);
                if entry.policies.len() == n_before {
                    return Err(not_found(
                        "The specified policyArn is not associated with the access entry.",
                    ));
                }
                Ok(json!({}))
            }),
            "ListAssociatedAccessPolicies" => self.on_entry(call, |_, entry| {
                let policies =
                    entry.policies.iter().map(|policy| policy.json(call.aws_state)).collect();
                let mut answer = page::page(call.request, "associatedAccessPolicies", policies)?;
                answer["clusterName"] = json!(call.cluster.name);
                answer["principalArn"] = json!(entry.principal_arn);
                Ok(answer)
            }),
            _ => Err(AwsError::not_implemented(call.request)),
        }
    }

    async fn create_entry(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        let principal_arn = call.required("principalArn")?;
        let entry_type: EntryType = match call.request.json.get("type") {
            None | Some(Value::Null) => EntryType::Standard,
            Some(kind) => serde_json::from_value(kind.clone())
                .map_err(|_| invalid(&format!("The specified type {kind} is invalid.")))?,
        };
        let (username, groups) = validated(call, entry_type)?;
        let role = self.role(principal_arn, call.aws_state).await?;
        let is_user = principal_arn.contains(":user/");
        if role.is_none() && !(is_user && entry_type == EntryType::Standard) {
            return Err(invalid("The specified principalArn is invalid: invalid principal."));
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.entries.contains_key(principal_arn) {
            return Err(in_use(
                "The specified access entry resource is already in use on this cluster.",
            )
            .with_field("clusterName", call.cluster.name.as_str()));
        }
        let entry = AccessEntry {
            principal_arn: principal_arn.to_owned(),
            stale: false,
            arn: entry_arn(&call.arn(""), &call.cluster.name, principal_arn),
            entry_type,
            username: username.unwrap_or_else(|| default_username(principal_arn, entry_type)),
            groups: groups.unwrap_or_else(|| default_groups(entry_type)),
            policies: vec![],
            tags: call.tags(),
            created: now,
            modified: now,
        };
        let answer = json!({ "accessEntry": entry.json(call) });
        state.entries.insert(principal_arn.to_owned(), entry);
        Ok(answer)
    }

    fn on_entry(
        &self,
        call: &OnCluster<'_>,
        action: impl FnOnce(Timestamp, &mut AccessEntry) -> Result<Value, AwsError>,
    ) -> Result<Value, AwsError> {
        let now = self.clock.now();
        action(now, self.state.lock().entries.get_mut(call.name()?).ok_or_else(no_entry)?)
    }
}

impl AccessEntry {
    fn json(&self, call: &OnCluster<'_>) -> Value {
        json!({
            "clusterName": call.cluster.name,
            "principalArn": self.principal_arn,
            "kubernetesGroups": self.groups,
            "accessEntryArn": self.arn,
            "createdAt": seconds(self.created),
            "modifiedAt": seconds(self.modified),
            "tags": self.tags,
            "username": self.username,
            "type": self.entry_type,
        })
    }
}

impl AssociatedPolicy {
    fn arn(&self, aws_state: &AwsState) -> String {
        format!("{}{}", policy_prefix(aws_state), self.name)
    }

    fn json(&self, aws_state: &AwsState) -> Value {
        let scope = if self.namespaces.is_empty() { "cluster" } else { "namespace" };
        json!({
            "policyArn": self.arn(aws_state),
            "accessScope": { "type": scope, "namespaces": self.namespaces },
            "associatedAt": seconds(self.associated),
            "modifiedAt": seconds(self.associated),
        })
    }
}

/// User name and groups that a call asks for, if it may.
fn validated(
    call: &OnCluster<'_>,
    entry_type: EntryType,
) -> Result<(Option<String>, Option<Vec<String>>), AwsError> {
    let username = call.text("username").map(str::to_owned);
    let groups = Some(&call.request.json["kubernetesGroups"])
        .filter(|groups| groups.is_array())
        .map(strings);
    let has_groups = groups.as_ref().is_some_and(|groups| !groups.is_empty());
    if entry_type != EntryType::Standard && (username.is_some() || has_groups) {
        return Err(invalid(
            "The username and kubernetesGroups can only be specified for access entries of the type STANDARD.",
        ));
    }
    if let Some(name) = &username
        && ["system:", "eks:", "aws:", "amazon:", "iam:"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    {
        return Err(invalid(
            "The username cannot start with system:, eks:, aws:, amazon:, or iam:.",
        ));
    }
    if let Some(group) = groups.iter().flatten().find(|group| group.starts_with("system:")) {
        return Err(invalid(&format!(
            "The kubernetes group name {group} is invalid, it cannot start with system:"
        )));
    }
    Ok((username, groups))
}

fn associated(
    call: &OnCluster<'_>,
    entry: &AccessEntry,
    now: Timestamp,
) -> Result<AssociatedPolicy, AwsError> {
    let arn = call.required("policyArn")?;
    let prefix = policy_prefix(call.aws_state);
    let name = arn.strip_prefix(&prefix).filter(|name| POLICIES.contains(name));
    let name = name.ok_or_else(|| invalid("The specified policyArn is invalid."))?.to_owned();
    if entry.entry_type != EntryType::Standard {
        return Err(AwsError::new(
            "InvalidRequestException",
            "Access policies can only be associated with access entries of the type STANDARD.",
        ));
    }
    let scope = &call.request.json["accessScope"];
    let namespaces = strings(&scope["namespaces"]);
    match scope["type"].as_str() {
        Some("cluster") if namespaces.is_empty() => {}
        Some("namespace") if !namespaces.is_empty() => {}
        Some("cluster") => {
            return Err(invalid(
                "Namespaces can't be specified with the access scope type cluster.",
            ));
        }
        Some("namespace") => {
            return Err(invalid("The access scope type namespace needs at least one namespace."));
        }
        _ => return Err(invalid("The access scope type must be cluster or namespace.")),
    }
    Ok(AssociatedPolicy { name, namespaces, associated: now })
}

fn entry_arn(prefix: &str, cluster: &str, principal_arn: &str) -> String {
    let account = principal_arn.split(':').nth(4).unwrap_or_default();
    let kind = if principal_arn.contains(":user/") { "user" } else { "role" };
    let name = principal_arn.rsplit('/').next().unwrap_or_default();
    format!("{prefix}access-entry/{cluster}/{kind}/{account}/{name}/{}", Uuid::new_v4())
}

/// The user name that an entry has when none is asked for. Of a role it is the session, without the
/// role's path.
fn default_username(principal_arn: &str, entry_type: EntryType) -> String {
    match entry_type {
        EntryType::Standard => match principal_arn.split_once(":role/") {
            Some((prefix, path)) => {
                let name = path.rsplit('/').next().unwrap_or(path);
                format!(
                    "{}:assumed-role/{name}/{{{{SessionName}}}}",
                    prefix.replacen(":iam:", ":sts:", 1)
                )
            }
            None => principal_arn.to_owned(),
        },
        EntryType::FargateLinux => "system:node:{{SessionName}}".to_owned(),
        EntryType::HybridLinux => "system:node:{{SessionName}}".to_owned(),
        EntryType::Ec2Linux | EntryType::Ec2Windows | EntryType::Ec2 => {
            "system:node:{{EC2PrivateDNSName}}".to_owned()
        }
    }
}

fn default_groups(entry_type: EntryType) -> Vec<String> {
    let groups: &[&str] = match entry_type {
        EntryType::Standard => &[],
        EntryType::Ec2Windows => {
            &["eks:kube-proxy-windows", "system:bootstrappers", "system:nodes"]
        }
        EntryType::FargateLinux => &["system:bootstrappers", "system:node-proxier", "system:nodes"],
        EntryType::Ec2Linux | EntryType::Ec2 | EntryType::HybridLinux => {
            &["system:bootstrappers", "system:nodes"]
        }
    };
    groups.iter().map(|group| (*group).to_owned()).collect()
}

fn no_entry() -> AwsError {
    not_found(
        "The specified principalArn could not be found. You can view your available access entries with 'eks list-access-entries'.",
    )
}
