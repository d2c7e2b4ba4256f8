//! What the documents are rendered for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An AWS partition: a world of its own, with its own ARNs and DNS suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Partition {
    /// All regions outside of China and GovCloud.
    #[default]
    #[serde(rename = "aws")]
    Aws,
    /// The regions in China.
    #[serde(rename = "aws-cn")]
    AwsCn,
    /// The GovCloud regions.
    #[serde(rename = "aws-us-gov")]
    AwsUsGov,
}

/// A partition that Tenon has no documents for.
#[derive(Debug, thiserror::Error)]
#[error("unknown partition {0:?}: Tenon knows aws, aws-cn and aws-us-gov")]
pub struct UnknownPartition(String);

/// What the documents are rendered for: one cluster in one region of one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The partition of the account.
    pub partition: Partition,
    /// The region of the cluster, such as `eu-central-1`.
    pub region: String,
    /// The account id: 12 digits.
    pub account: String,
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the interruption queue. Without it there is no interruption policy.
    pub queue: Option<String>,
    /// The ARNs of the roles that nodes may be given.
    pub node_roles: Vec<String>,
    /// What the controller is to do beyond the minimum.
    pub features: Features,
}

/// What the controller is to do, as far as its permissions depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// Whose instance profiles the controller uses, and which of them it may write.
    pub instance_profiles: InstanceProfiles,
    /// Watches the zonal shifts of the cluster.
    pub zonal_shift: bool,
    /// ARNs of customer managed KMS keys that encrypt node volumes.
    pub volume_keys: Vec<String>,
    /// ARN of the customer managed KMS key that encrypts the interruption queue.
    pub queue_key: Option<String>,
}

/// Whose instance profiles the controller uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceProfiles {
    /// The controller makes them, and may write those under its cluster's path
    /// `/karpenter/<region>/<cluster>/` only.
    #[default]
    OfCluster,
    /// The controller makes them and may write any that carries the cluster's tags, as upstream:
    /// needed while profiles of upstream before v1.7, which have no path, are still about.
    Tagged,
    /// Somebody else makes them and the NodeClasses name them: the controller only reads and passes
    /// the role.
    Static,
}

impl Features {
    /// Exactly what upstream's v1.14.1 policies allow.
    pub fn upstream() -> Self {
        Self {
            instance_profiles: InstanceProfiles::Tagged,
            zonal_shift: true,
            volume_keys: Vec::new(),
            queue_key: None,
        }
    }
}

impl Default for Features {
    /// Upstream's permissions with instance profiles narrowed to the cluster's own path.
    fn default() -> Self {
        Self { instance_profiles: InstanceProfiles::OfCluster, ..Self::upstream() }
    }
}

impl Partition {
    /// The partition that a region belongs to.
    pub fn of_region(region: &str) -> Self {
        if region.starts_with("cn-") {
            Self::AwsCn
        } else if region.starts_with("us-gov-") {
            Self::AwsUsGov
        } else {
            Self::Aws
        }
    }

    /// The partition as ARNs spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::AwsCn => "aws-cn",
            Self::AwsUsGov => "aws-us-gov",
        }
    }

    /// The suffix of service endpoints, such as `amazonaws.com`.
    pub fn dns_suffix(self) -> &'static str {
        match self {
            Self::Aws | Self::AwsUsGov => "amazonaws.com",
            Self::AwsCn => "amazonaws.com.cn",
        }
    }

    /// The ARN of a policy that AWS manages, such as `AmazonEKSWorkerNodePolicy`.
    pub fn managed_policy(self, name: &str) -> String {
        format!("arn:{self}:iam::aws:policy/{name}")
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Partition {
    type Err = UnknownPartition;

    fn from_str(text: &str) -> Result<Self, UnknownPartition> {
        [Self::Aws, Self::AwsCn, Self::AwsUsGov]
            .into_iter()
            .find(|p| p.as_str() == text)
            .ok_or_else(|| UnknownPartition(text.to_owned()))
    }
}

impl Scope {
    /// ARN of the cluster.
    pub fn cluster_arn(&self) -> String {
        format!(
            "arn:{}:eks:{}:{}:cluster/{}",
            self.partition, self.region, self.account, self.cluster
        )
    }

    /// ARN of the interruption queue, if there is one.
    pub fn queue_arn(&self) -> Option<String> {
        self.queue.as_ref().map(|queue| {
            format!("arn:{}:sqs:{}:{}:{queue}", self.partition, self.region, self.account)
        })
    }

    /// ARN of a rule on the default event bus.
    pub fn rule_arn(&self, rule: &str) -> String {
        format!("arn:{}:events:{}:{}:rule/{rule}", self.partition, self.region, self.account)
    }

    /// ARN of a role. `path` starts and ends with a slash.
    pub fn role_arn(&self, path: &str, name: &str) -> String {
        format!("arn:{}:iam::{}:role{path}{name}", self.partition, self.account)
    }

    /// ARN of an instance profile. `path` starts and ends with a slash.
    pub fn instance_profile_arn(&self, path: &str, name: &str) -> String {
        format!("arn:{}:iam::{}:instance-profile{path}{name}", self.partition, self.account)
    }

    /// ARN pattern of the cluster's Fargate profiles.
    pub(crate) fn fargate_profiles_arn(&self) -> String {
        format!(
            "arn:{}:eks:{}:{}:fargateprofile/{}/*",
            self.partition, self.region, self.account, self.cluster
        )
    }

    /// ARN of the cluster's identity provider. `issuer` is the cluster's OIDC issuer, with or
    /// without `https://`.
    pub fn oidc_provider_arn(&self, issuer: &str) -> String {
        let issuer = issuer.trim_start_matches("https://");
        format!("arn:{}:iam::{}:oidc-provider/{issuer}", self.partition, self.account)
    }

    /// Path of the instance profiles that the controller makes for this cluster, with slashes at
    /// both ends.
    pub fn instance_profile_path(&self) -> String {
        format!("/karpenter/{}/{}/", self.region, self.cluster)
    }

    /// The tag key that marks what belongs to the cluster; its value is `owned`.
    pub fn cluster_tag(&self) -> String {
        format!("kubernetes.io/cluster/{}", self.cluster)
    }

    /// ARN pattern of all EC2 resources of a type that have an owner account.
    pub(crate) fn ec2(&self, kind: &str) -> String {
        format!("arn:{}:ec2:{}:*:{kind}/*", self.partition, self.region)
    }

    /// ARN pattern of all EC2 resources of a type that have no owner account in their ARN: images
    /// and snapshots.
    pub(crate) fn ec2_public(&self, kind: &str) -> String {
        format!("arn:{}:ec2:{}::{kind}/*", self.partition, self.region)
    }
}
