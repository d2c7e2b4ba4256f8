//! Fargate profiles and node groups. A node group that is created has an Auto Scaling group, which
//! launches from the launch template that it names.

use json_patch::merge;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Eks, Lifetime, OnCluster, Tags, in_use, not_found, page, seconds, strings};
use crate::gateway::auto_scaling;
use crate::gateway::request::Params;
use crate::gateway::response::AwsError;
use crate::gateway::scaling_groups::Group;
use crate::gateway::service::Principal;

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
    /// What it was created with, and its Auto Scaling group; null for the one that is always there.
    settings: Value,
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
            settings: Value::Null,
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

    pub(super) async fn node_group(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        let missing = |name: &str| not_found(format!("No node group found for name: {name}."));
        match call.request.action.as_str() {
            "ListNodegroups" => {
                let names = self.state.lock().node_groups.keys().map(|name| json!(name)).collect();
                page::page(call.request, "nodegroups", names)
            }
            "DescribeNodegroup" => {
                let name = call.name()?;
                let group = self.state.lock().node_groups.get(name).cloned();
                Ok(json!({ "nodegroup": group.ok_or_else(|| missing(name))?.json(call) }))
            }
            "CreateNodegroup" => self.create_node_group(call).await,
            "UpdateNodegroupConfig" => {
                let name = call.name()?;
                let group = self.state.lock().node_groups.get(name).cloned();
                let group = group.ok_or_else(|| missing(name))?;
                let scaling = &call.request.json["scalingConfig"];
                let size =
                    |key: &str| scaling[key].as_u64().and_then(|size| usize::try_from(size).ok());
                let sizes = (size("minSize"), size("maxSize"), size("desiredSize"));
                let principal = Principal::administrator(call.aws_state);
                let its = group.auto_scaling_group();
                auto_scaling::resize(call.request, &principal, call.aws_state, its, sizes).await?;
                let id = Uuid::new_v4().to_string();
                Ok(json!({ "update": {
                    "id": id,
                    "status": "Successful",
                    "type": "ConfigUpdate",
                    "params": [],
                    "createdAt": seconds(self.clock.now()),
                    "errors": [],
                } }))
            }
            _ => Err(AwsError::not_implemented(call.request)),
        }
    }

    async fn create_node_group(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        let name = call.required("nodegroupName")?;
        if self.state.lock().node_groups.contains_key(name) {
            return Err(in_use(format!("NodeGroup already exists with name {name}")));
        }
        let mut settings = call.request.json.clone();
        let Some(template) = settings["launchTemplate"]["id"].as_str() else {
            return Err(AwsError::not_implemented(call.request));
        };
        let version = settings["launchTemplate"]["version"].as_str().unwrap_or("$Default");
        let template = [("LaunchTemplateId", template), ("Version", version)];
        let size = |key: &str| {
            let size = settings["scalingConfig"][key].as_u64().unwrap_or(0);
            usize::try_from(size).unwrap_or_default()
        };
        let tags = [
            ("eks:cluster-name", call.cluster.name.as_str()),
            ("eks:nodegroup-name", name),
            ("k8s.io/cluster-autoscaler/enabled", "true"),
        ];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let group = Group {
            min: size("minSize"),
            max: size("maxSize"),
            desired: size("desiredSize"),
            template: Params::of(template),
            subnets: strings(&settings["subnets"]),
            tags: tags.into(),
            ..Group::default()
        };
        let its = format!("eks-{name}-{}", Uuid::new_v4());
        let principal = Principal::administrator(call.aws_state);
        auto_scaling::create(call.request, &principal, call.aws_state, &its, group).await?;
        settings["resources"] = json!({ "autoScalingGroups": [{ "name": its }] });
        let group = NodeGroup {
            arn: call.arn(&format!("nodegroup/{}/{name}/{}", call.cluster.name, Uuid::new_v4())),
            tags: call.tags(),
            created: self.clock.now(),
            role_arn: call.required("nodeRole")?.to_owned(),
            instance_types: strings(&settings["instanceTypes"]),
            n_nodes: 0,
            settings,
        };
        let answer = json!({ "nodegroup": group.json(call) });
        self.state.lock().node_groups.insert(name.to_owned(), group);
        Ok(answer)
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
    /// Name of its Auto Scaling group.
    fn auto_scaling_group(&self) -> &str {
        let name = self.settings.pointer("/resources/autoScalingGroups/0/name");
        name.and_then(Value::as_str).unwrap_or_default()
    }

    fn json(&self, call: &OnCluster<'_>) -> Value {
        let mut answer = json!({
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
        });
        let groups = call.aws_state.auto_scaling.lock();
        if let Some(group) = groups.get(self.auto_scaling_group()) {
            merge(&mut answer, &self.settings);
            answer["scalingConfig"] = json!({
                "minSize": group.min, "maxSize": group.max, "desiredSize": group.desired,
            });
        }
        answer
    }
}
