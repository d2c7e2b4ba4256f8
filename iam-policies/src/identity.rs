//! Who may take which role: trust policies, and what AWS itself provides for nodes.

use crate::document::{Document, Principal, Statement};
use crate::scope::{Partition, Scope};

/// The service that hands out role credentials to pods.
pub const POD_IDENTITY_SERVICE: &str = "pods.eks.amazonaws.com";

/// The audience of service account tokens that STS accepts in return for a role.
pub const IRSA_AUDIENCE: &str = "sts.amazonaws.com";

const ASSUME_ROLE: &str = "sts:AssumeRole";

/// The policies of AWS that every node's role carries, by name; see [`node_managed_policies`] for
/// their ARNs.
pub(crate) const NODE_MANAGED_POLICIES: [&str; 4] = [
    "AmazonEKS_CNI_Policy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
];

/// The Kubernetes service account whose pods assume a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// `metadata.namespace`; the trust policy admits no other.
    pub namespace: String,
    /// `metadata.name`; the trust policy admits no other.
    pub name: String,
}

/// The services that EC2 goes by when it takes a node's role. In China both names are in use.
pub fn ec2_services(partition: Partition) -> Vec<&'static str> {
    match partition {
        Partition::Aws | Partition::AwsUsGov => vec!["ec2.amazonaws.com"],
        Partition::AwsCn => vec!["ec2.amazonaws.com", "ec2.amazonaws.com.cn"],
    }
}

/// The trust policy of the node role: instances may take it.
pub fn node_trust(partition: Partition) -> Document {
    Document::new([Statement::allow("", [ASSUME_ROLE])
        .by(Principal::service(ec2_services(partition)))
        .without_resources()])
}

/// ARNs of the policies of AWS that the node role carries.
pub fn node_managed_policies(partition: Partition) -> Vec<String> {
    NODE_MANAGED_POLICIES.into_iter().map(|name| partition.managed_policy(name)).collect()
}

/// What the VPC CNI needs on an IPv6 cluster, as an inline policy of the node role: AWS manages no
/// policy for it.
pub fn node_ipv6_cni(partition: Partition) -> Document {
    let reads = [
        "ec2:DescribeInstances",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeTags",
    ];
    Document::new([
        Statement::allow(
            "AllowIPv6Assignment",
            ["ec2:AssignIpv6Addresses"].into_iter().chain(reads),
        ),
        Statement::allow("AllowInterfaceTagging", ["ec2:CreateTags"])
            .on([format!("arn:{partition}:ec2:*:*:network-interface/*")]),
    ])
}

/// The trust policy of the controller role under EKS Pod Identity. Only pods of this cluster's
/// service account may take the role: EKS puts cluster, namespace and service account into the
/// session's tags.
pub fn pod_identity_trust(scope: &Scope, service_account: &ServiceAccount) -> Document {
    let tag = |key: &str| format!("aws:RequestTag/{key}");
    Document::new([Statement::allow("AllowPodIdentity", [ASSUME_ROLE, "sts:TagSession"])
        .by(Principal::service([POD_IDENTITY_SERVICE]))
        .without_resources()
        .when("StringEquals", tag("eks-cluster-arn"), [scope.cluster_arn()])
        .when("StringEquals", tag("kubernetes-namespace"), [&service_account.namespace])
        .when("StringEquals", tag("kubernetes-service-account"), [&service_account.name])])
}

/// The policy of AWS that the role of Fargate's pods carries.
pub const FARGATE_MANAGED_POLICY: &str = "AmazonEKSFargatePodExecutionRolePolicy";

/// The trust policy of the role under which Fargate runs pods: only for profiles of this cluster.
pub fn fargate_trust(scope: &Scope) -> Document {
    Document::new([Statement::allow("AllowFargate", [ASSUME_ROLE])
        .by(Principal::service(["eks-fargate-pods.amazonaws.com"]))
        .without_resources()
        .when("ArnLike", "aws:SourceArn", [scope.fargate_profiles_arn()])])
}

/// The trust policy that upstream's guide gives for Pod Identity: any association of the account
/// may use the role.
pub fn pod_identity_trust_upstream() -> Document {
    Document::new([Statement::allow("", [ASSUME_ROLE, "sts:TagSession"])
        .by(Principal::service([POD_IDENTITY_SERVICE]))
        .without_resources()])
}

/// The trust policy of the controller role under IRSA: the service account, by a token of the
/// cluster's own issuer.
pub fn irsa_trust(scope: &Scope, issuer: &str, service_account: &ServiceAccount) -> Document {
    let issuer = issuer.trim_start_matches("https://");
    let subject =
        format!("system:serviceaccount:{}:{}", service_account.namespace, service_account.name);
    Document::new([Statement::allow("AllowServiceAccount", ["sts:AssumeRoleWithWebIdentity"])
        .by(Principal::federated(scope.oidc_provider_arn(issuer)))
        .without_resources()
        .when("StringEquals", format!("{issuer}:aud"), [IRSA_AUDIENCE])
        .when("StringEquals", format!("{issuer}:sub"), [subject])])
}

#[cfg(test)]
mod tests;
