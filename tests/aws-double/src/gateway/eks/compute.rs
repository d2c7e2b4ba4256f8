//! Fargate profiles and node groups.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Eks, Lifetime, OnCluster, Tags, in_use, not_found, page, seconds, strings};
use crate::gateway::response::AwsError;

/// A Fargate profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FargateProfile {
    pub(super) arn: String,
    pub(super) tags: Tags,
    pub(super) lifetime: Lifetime,
    role_arn: String,
    subnets: Vec<String>,
    selectors: Value,
}

/// A managed node group: the nodes on which the operator itself runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeGroup {
    pub(super) arn: String,
    pub(super) tags: Tags,
    created: jiff::Timestamp,
    role_arn: String,
    instance_types: Vec<String>,
    n_nodes: u32,
}

impl Eks {
    /// Adds a managed node group of so many nodes, active at once. Call it when the cluster is
    /// announced.
    pub fn add_node_group(
        &self,
        arn_prefix: &str,
        cluster: &str,
        name: &str,
        role_arn: &str,
        instance_types: Vec<String>,
        n_nodes: u32,
    ) {
        let group = NodeGroup {
            arn: format!("{arn_prefix}nodegroup/{cluster}/{name}/{}", Uuid::new_v4()),
            tags: Tags::new(),
            created: self.clock.now(),
            role_arn: role_arn.to_owned(),
            instance_types,
            n_nodes,
        };
        self.state.lock().node_groups.insert(name.to_owned(), group);
    }

    pub(super) fn fargate_profile(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let takes = state.takes;
        match call.request.action.as_str() {
            "ListFargateProfiles" => {
                let names = state.fargate_profiles.keys().map(|name| json!(name)).collect();
                page::page(call.request, "fargateProfileNames", names)
            }
            "CreateFargateProfile" => {
                let name = call.required("fargateProfileName")?;
                if state.fargate_profiles.contains_key(name) {
                    return Err(in_use(format!(
                        "Fargate Profile already exists with this name {name} in this cluster"
                    )));
                }
                // One change at a time for the whole cluster.
                let busy = state
                    .fargate_profiles
                    .values()
                    .any(|profile| profile.lifetime.status(now, takes) != "ACTIVE");
                if busy {
                    return Err(in_use(format!(
                        "Cannot create Fargate Profile {name} because cluster {} currently has a Fargate profile in status CREATING or DELETING",
                        call.cluster.name
                    )));
                }
                let profile = FargateProfile {
                    arn: call.arn(&format!(
                        "fargateprofile/{}/{name}/{}",
                        call.cluster.name,
                        Uuid::new_v4()
                    )),
                    tags: call.tags(),
                    lifetime: Lifetime { created: now, deleted: None },
                    role_arn: call.required("podExecutionRoleArn")?.to_owned(),
                    subnets: strings(&call.request.json["subnets"]),
                    selectors: call.request.json["selectors"].clone(),
                };
                let answer = json!({ "fargateProfile": profile.json(call, name, profile.lifetime.status(now, takes)) });
                state.fargate_profiles.insert(name.to_owned(), profile);
                Ok(answer)
            }
            "DescribeFargateProfile" | "DeleteFargateProfile" => {
                let name = call.name()?;
                let profile = state.fargate_profiles.get_mut(name).ok_or_else(|| {
                    not_found(format!("No Fargate Profile found with name: {name}."))
                })?;
                if call.request.action == "DeleteFargateProfile" {
                    profile.lifetime.deleted.get_or_insert(now);
                }
                Ok(
                    json!({ "fargateProfile": profile.json(call, name, profile.lifetime.status(now, takes)) }),
                )
            }
            _ => Err(AwsError::not_implemented(call.request)),
        }
    }

    pub(super) fn node_group(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        let state = self.state.lock();
        match call.request.action.as_str() {
            "ListNodegroups" => {
                let names = state.node_groups.keys().map(|name| json!(name)).collect();
                page::page(call.request, "nodegroups", names)
            }
            "DescribeNodegroup" => {
                let name = call.name()?;
                let group = state
                    .node_groups
                    .get(name)
                    .ok_or_else(|| not_found(format!("No node group found for name: {name}.")))?;
                Ok(json!({ "nodegroup": group.json(call) }))
            }
            _ => Err(AwsError::not_implemented(call.request)),
        }
    }
}

impl FargateProfile {
    fn json(&self, call: &OnCluster<'_>, name: &str, status: &str) -> Value {
        json!({
            "fargateProfileName": name,
            "fargateProfileArn": self.arn,
            "clusterName": call.cluster.name,
            "createdAt": seconds(self.lifetime.created),
            "podExecutionRoleArn": self.role_arn,
            "subnets": self.subnets,
            "selectors": self.selectors,
            "status": status,
            "tags": self.tags,
            "health": { "issues": [] },
        })
    }
}

impl NodeGroup {
    fn json(&self, call: &OnCluster<'_>) -> Value {
        json!({
            "nodegroupName": call.name,
            "nodegroupArn": self.arn,
            "clusterName": call.cluster.name,
            "version": call.cluster.version,
            "createdAt": seconds(self.created),
            "modifiedAt": seconds(self.created),
            "status": "ACTIVE",
            "capacityType": "ON_DEMAND",
            "scalingConfig": { "minSize": self.n_nodes, "maxSize": self.n_nodes, "desiredSize": self.n_nodes },
            "instanceTypes": self.instance_types,
            "subnets": call.cluster.subnet_ids,
            "amiType": "AL2023_x86_64_STANDARD",
            "nodeRole": self.role_arn,
            "health": { "issues": [] },
            "tags": self.tags,
        })
    }
}
