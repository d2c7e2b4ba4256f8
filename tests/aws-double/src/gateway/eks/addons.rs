//! Add-ons: the four that the installer looks at.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Eks, Lifetime, OnCluster, Tags, in_use, invalid, not_found, page, seconds};
use crate::gateway::amis::MINORS;
use crate::gateway::request::AwsRequest;
use crate::gateway::response::AwsError;

/// Name and version of each add-on that there is.
const KNOWN: [(&str, &str); 4] = [
    ("coredns", "v1.13.1-eksbuild.1"),
    ("eks-pod-identity-agent", "v1.3.9-eksbuild.3"),
    ("kube-proxy", "v1.36.0-eksbuild.2"),
    ("vpc-cni", "v1.21.1-eksbuild.1"),
];

/// An add-on of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addon {
    pub(super) arn: String,
    pub(super) tags: Tags,
    pub(super) lifetime: Lifetime,
    version: String,
    role_arn: Option<String>,
    configuration: Option<String>,
}

/// The add-ons of a new cluster.
pub(super) fn installed(now: Timestamp) -> BTreeMap<String, Addon> {
    let long_ago = Lifetime { created: now - jiff::SignedDuration::from_hours(1), deleted: None };
    KNOWN
        .into_iter()
        .map(|(name, version)| {
            let addon = Addon {
                // Completed with region, account and cluster once there is a cluster.
                arn: format!("addon/{name}/{}", Uuid::new_v4()),
                tags: Tags::new(),
                lifetime: long_ago,
                version: version.to_owned(),
                role_arn: None,
                configuration: None,
            };
            (name.to_owned(), addon)
        })
        .collect()
}

/// Which versions of which add-ons there are: one each, for every Kubernetes version.
pub(super) fn describe_versions(request: &AwsRequest) -> Result<Value, AwsError> {
    let wanted = request.params.get("addonName");
    let kubernetes = request.params.get("kubernetesVersion");
    let minors: Vec<String> = MINORS
        .map(|minor| format!("1.{minor}"))
        .filter(|minor| kubernetes.is_none_or(|wanted| wanted == minor))
        .collect();
    if request.action != "DescribeAddonVersions" {
        return Err(AwsError::not_implemented(request));
    }
    let addons = KNOWN.into_iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name)).map(|(name, version)| {
        let compatible: Vec<Value> = minors
            .iter()
            .map(|minor| json!({ "clusterVersion": minor, "platformVersions": ["*"], "defaultVersion": true }))
            .collect();
        json!({
            "addonName": name,
            "type": "networking",
            "addonVersions": [{
                "addonVersion": version,
                "architecture": ["amd64", "arm64"],
                "computeTypes": ["ec2", "auto", "hybrid"],
                "compatibilities": compatible,
                "requiresConfiguration": false,
                "requiresIamPermissions": name == "vpc-cni",
            }],
            "publisher": "eks",
            "owner": "aws",
        })
    });
    page::page(request, "addons", addons.collect())
}

/// Completes the ARNs of the add-ons that were there before the cluster had a name.
pub(super) fn complete_arns(addons: &mut BTreeMap<String, Addon>, call: &OnCluster<'_>) {
    for addon in addons.values_mut() {
        if let Some(rest) = addon.arn.strip_prefix("addon/") {
            addon.arn = call.arn(&format!("addon/{}/{rest}", call.cluster.name));
        }
    }
}

impl Eks {
    pub(super) fn addon(&self, call: &OnCluster<'_>) -> Result<Value, AwsError> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let takes = state.takes;
        match call.request.action.as_str() {
            "ListAddons" => {
                let names = state.addons.keys().map(|name| json!(name)).collect();
                page::page(call.request, "addons", names)
            }
            "CreateAddon" => {
                let name = call.required("addonName")?;
                let Some((_, known)) = KNOWN.into_iter().find(|(known, _)| *known == name) else {
                    return Err(invalid(&format!(
                        "Addon {name} specified is not supported in {} kubernetes version",
                        call.cluster.version
                    ))
                    .with_field("clusterName", call.cluster.name.as_str())
                    .with_field("addonName", name));
                };
                let version = call.text("addonVersion").unwrap_or(known);
                if version != known {
                    return Err(invalid(&format!(
                        "Addon version specified is not supported: {version}"
                    )));
                }
                if state.addons.contains_key(name) {
                    return Err(in_use("Addon already exists.")
                        .with_field("clusterName", call.cluster.name.as_str())
                        .with_field("addonName", name));
                }
                let addon = Addon {
                    arn: call.arn(&format!(
                        "addon/{}/{name}/{}",
                        call.cluster.name,
                        Uuid::new_v4()
                    )),
                    tags: call.tags(),
                    lifetime: Lifetime { created: now, deleted: None },
                    version: version.to_owned(),
                    role_arn: call.text("serviceAccountRoleArn").map(str::to_owned),
                    configuration: call.text("configurationValues").map(str::to_owned),
                };
                let answer =
                    json!({ "addon": addon.json(call, name, addon.lifetime.status(now, takes)) });
                state.addons.insert(name.to_owned(), addon);
                Ok(answer)
            }
            "DescribeAddon" | "DeleteAddon" => {
                let name = call.name()?;
                let addon = state.addons.get_mut(name).ok_or_else(|| {
                    not_found(format!("No addon: {name} found in cluster: {}", call.cluster.name))
                        .with_field("clusterName", call.cluster.name.as_str())
                        .with_field("addonName", name)
                })?;
                if call.request.action == "DeleteAddon" {
                    addon.lifetime.deleted.get_or_insert(now);
                }
                Ok(json!({ "addon": addon.json(call, name, addon.lifetime.status(now, takes)) }))
            }
            _ => Err(AwsError::not_implemented(call.request)),
        }
    }
}

impl Addon {
    fn json(&self, call: &OnCluster<'_>, name: &str, status: &str) -> Value {
        let mut addon = json!({
            "addonName": name,
            "clusterName": call.cluster.name,
            "status": status,
            "addonVersion": self.version,
            "health": { "issues": [] },
            "addonArn": self.arn,
            "createdAt": seconds(self.lifetime.created),
            "modifiedAt": seconds(self.lifetime.created),
            "tags": self.tags,
        });
        if let Some(role) = &self.role_arn {
            addon["serviceAccountRoleArn"] = json!(role);
        }
        if let Some(configuration) = &self.configuration {
            addon["configurationValues"] = json!(configuration);
        }
        addon
    }
}
