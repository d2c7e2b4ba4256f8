//! The Cluster: names, subnets, and what all InstanceGroups share.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::document;
use crate::problem::Problem;

/// What kOps knows of a cluster, as far as nodes depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its full name, which kOps takes for a DNS name.
    pub name: String,
    /// Where the files of nodes are, if not in the cluster's folder of the state store.
    pub config_base: Option<String>,
    /// Those of `spec`, whoever created them.
    pub subnets: Vec<Subnet>,
    /// kOps tags the subnets with the InstanceGroups that use them.
    pub tags_subnets: bool,
    /// Tags of everything in AWS.
    pub cloud_labels: BTreeMap<String, String>,
    /// Labels of all nodes that are not control-plane nodes.
    pub node_labels: BTreeMap<String, String>,
    /// kOps' own add-on for Karpenter is on.
    pub has_karpenter_addon: bool,
    /// AWS trusts the cluster's tokens, so that ServiceAccounts can have roles.
    pub has_oidc_provider: bool,
    /// What the role of the control plane has beside kOps' own statements.
    pub control_plane_policy: Option<AdditionalPolicy>,
}

/// Permissions of nodes that a Cluster adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdditionalPolicy {
    /// The key in `spec.additionalPolicies`.
    pub key: String,
    /// Statements of a policy: a list in JSON.
    pub statements: String,
}

/// A subnet of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    /// kOps' name for it.
    pub name: String,
    /// Its availability zone.
    #[serde(default)]
    pub zone: Option<String>,
    /// What it is for.
    #[serde(default, rename = "type")]
    pub kind: SubnetType,
    /// Its id in AWS, if kOps did not create it.
    #[serde(default)]
    pub id: Option<String>,
    /// Its IPv6 addresses, if it has any.
    #[serde(default, rename = "ipv6CIDR")]
    pub ipv6_cidr: Option<String>,
}

/// What a subnet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum SubnetType {
    /// Instances have public addresses.
    #[default]
    Public,
    /// Instances reach the internet through a NAT gateway.
    Private,
    /// Load balancers and NAT gateways.
    Utility,
    /// Private, with both families of addresses.
    DualStack,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    cloud_provider: Value,
    config_base: Option<String>,
    config_store: Value,
    subnets: Vec<Subnet>,
    networking: Networking,
    cloud_labels: BTreeMap<String, String>,
    kubelet: Kubelet,
    karpenter: Karpenter,
    service_account_issuer_discovery: IssuerDiscovery,
    additional_policies: BTreeMap<String, String>,
    #[serde(rename = "DisableSubnetTags")]
    disable_subnet_tags: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Networking {
    subnets: Vec<Subnet>,
    tag_subnets: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Kubelet {
    node_labels: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Karpenter {
    enabled: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IssuerDiscovery {
    #[serde(rename = "enableAWSOIDCProvider")]
    enables_aws_oidc_provider: bool,
}

impl Cluster {
    /// Reads the file `config`.
    ///
    /// # Errors
    /// If it is no Cluster, or one of another cloud.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let document = document::parse(text, "Cluster", "Cluster")?;
        let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let what = format!("Cluster {name}");
        let spec: Spec = document::typed(&document["spec"], "spec", &what)?;
        // A word in v1alpha2, the cloud's settings below its name in v1alpha3.
        let is_aws = spec.cloud_provider == "aws" || !spec.cloud_provider["aws"].is_null();
        if !is_aws {
            let message = "Tenon launches nodes on AWS only";
            return Err(Problem::new(&what, "spec.cloudProvider", message));
        }
        let subnets = match spec.networking.subnets {
            empty if empty.is_empty() => spec.subnets,
            subnets => subnets,
        };
        let tagged = spec.networking.tag_subnets.unwrap_or(!spec.disable_subnet_tags);
        // kOps accepts both keys in v1alpha2, and stores the second one.
        let mut policies = spec.additional_policies.into_iter();
        let control_plane_policy = policies.find(|(key, statements)| {
            ["control-plane", "master"].contains(&key.as_str()) && !statements.is_empty()
        });
        let base = spec.config_store["base"].as_str().map(str::to_owned);
        Ok(Self {
            name,
            config_base: base.or(spec.config_base).filter(|base| !base.is_empty()),
            subnets,
            tags_subnets: tagged,
            cloud_labels: spec.cloud_labels,
            node_labels: spec.kubelet.node_labels,
            has_karpenter_addon: spec.karpenter.enabled,
            has_oidc_provider: spec.service_account_issuer_discovery.enables_aws_oidc_provider,
            control_plane_policy: control_plane_policy
                .map(|(key, statements)| AdditionalPolicy { key, statements }),
        })
    }
}
