//! The first NodePool and EC2NodeClass: either the pair named `default`, or what the user's files
//! hold.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::object::Object;
use crate::ownership::DISCOVERY;
use crate::settings::config::{Architecture, CapacityType, Discovery};
use crate::settings::{DefaultPair, Defaults};

/// What an EC2NodeClass has to know of the account.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// What gives nodes their permissions.
    pub nodes: NodeIdentity,
    /// Name of the cluster: the value of the discovery tag.
    pub cluster: String,
    /// How subnets and groups are found.
    pub discovery: Discovery,
    /// Subnets.
    pub subnet_ids: Vec<String>,
    /// Security groups.
    pub security_group_ids: Vec<String>,
    /// Tags of the user, for instances too.
    pub tags: BTreeMap<String, String>,
}

/// What gives nodes their permissions: an EC2NodeClass names either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeIdentity {
    /// Name of a role, for which the operator makes instance profiles.
    Role(String),
    /// Name of an instance profile.
    Profile(String),
}

/// The objects to apply: NodeClasses first, because NodePools refer to them.
pub fn objects(defaults: &Defaults, account: &Account) -> Vec<Object> {
    let mut bodies = match defaults {
        Defaults::None => Vec::new(),
        Defaults::Pair(pair) => vec![node_class(pair, account), node_pool(pair)],
        Defaults::Manifests(manifests) => {
            manifests.iter().map(|manifest| manifest.body.clone()).collect()
        }
    };
    bodies.sort_by_key(|body| body["kind"] != "EC2NodeClass");
    bodies
        .into_iter()
        .map(|body| {
            let plural =
                if body["kind"] == "EC2NodeClass" { "ec2nodeclasses" } else { "nodepools" };
            Object::from_json(body, plural)
        })
        .collect()
}

fn node_class(pair: &DefaultPair, account: &Account) -> Value {
    let terms = |ids: &[String]| match account.discovery {
        Discovery::Tags => json!([{"tags": {DISCOVERY: account.cluster}}]),
        Discovery::Ids => ids.iter().map(|id| json!({"id": id})).collect(),
    };
    let mut body = json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": pair.ami_alias}],
            "subnetSelectorTerms": terms(&account.subnet_ids),
            "securityGroupSelectorTerms": terms(&account.security_group_ids),
            "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required"},
        },
    });
    match &account.nodes {
        NodeIdentity::Role(name) => body["spec"]["role"] = json!(name),
        NodeIdentity::Profile(name) => body["spec"]["instanceProfile"] = json!(name),
    }
    if !account.tags.is_empty() {
        body["spec"]["tags"] = json!(account.tags);
    }
    body
}

fn node_pool(pair: &DefaultPair) -> Value {
    let capacity_types = pair.capacity_types.iter().map(|kind| match kind {
        CapacityType::Spot => "spot",
        CapacityType::OnDemand => "on-demand",
    });
    let architectures = pair.architectures.iter().map(|architecture| match architecture {
        Architecture::Amd64 => "amd64",
        Architecture::Arm64 => "arm64",
    });
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [
                        {"key": "kubernetes.io/arch", "operator": "In", "values": architectures.collect::<Vec<_>>()},
                        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacity_types.collect::<Vec<_>>()},
                        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
                        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["4"]},
                    ],
                    "expireAfter": "720h",
                },
            },
            "limits": {"cpu": pair.cpu_limit.to_string()},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5m", "budgets": [{"nodes": "10%"}]},
        },
    })
}
