//! Who calls, and what the cluster is like: what cannot be chosen, only found.

use aws_sdk_eks::types::{ComputeConfigResponse, VpcConfigResponse};
use serde::Serialize;
use tenon_iam_policies::Partition;

use crate::aws::{Aws, AwsError, Calling, IfThere};
use crate::ownership::Tags;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// 12 digits.
    pub account: String,
    /// ARN of the user or session.
    pub arn: String,
}

/// What EKS says of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterFacts {
    /// Name in EKS, unique in account and region.
    pub name: String,
    /// Region by which it was asked for.
    pub region: String,
    /// The region's partition.
    pub partition: Partition,
    /// Its ARN.
    pub arn: String,
    /// When it was made, Unix seconds.
    pub created_at: i64,
    /// `ACTIVE`, `CREATING`, ….
    pub status: String,
    /// Kubernetes' version, such as `1.34`.
    pub version: String,
    /// The API server's address.
    pub endpoint: Option<String>,
    /// Its certificate authority, base64.
    #[serde(skip)]
    pub certificate_authority: Option<String>,
    /// URL of the issuer of its service accounts' tokens.
    pub oidc_issuer: Option<String>,
    /// `API`, `API_AND_CONFIG_MAP` or `CONFIG_MAP`.
    pub authentication_mode: String,
    /// Its subnets.
    pub subnet_ids: Vec<String>,
    /// The security group that EKS made for it.
    pub security_group: Option<String>,
    /// EKS Auto Mode runs its nodes.
    pub auto_mode: bool,
    /// Its network is IPv6.
    pub ipv6: bool,
    /// Tags in EKS.
    pub tags: Tags,
}

/// Caller and cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Who calls.
    pub caller: Caller,
    /// As EKS describes it.
    pub cluster: ClusterFacts,
    /// ARN of somebody else's node role, if the settings name one and it exists.
    pub node_role_arn: Option<String>,
}

/// Asks STS, EKS and, about a node role that is not ours, IAM.
pub async fn read(
    aws: &Aws,
    cluster: &str,
    region: &str,
    node_role: Option<&str>,
) -> Result<Facts, AwsError> {
    let (caller, cluster, node_role_arn) = tokio::try_join!(
        read_caller(aws),
        read_cluster(aws, cluster, region),
        read_node_role(aws, node_role)
    )?;
    Ok(Facts { caller, cluster, node_role_arn })
}

async fn read_node_role(aws: &Aws, name: Option<&str>) -> Result<Option<String>, AwsError> {
    match name {
        Some(name) => role_arn(aws, name).await,
        None => Ok(None),
    }
}

/// ARN of a role, if it exists.
pub async fn role_arn(aws: &Aws, name: &str) -> Result<Option<String>, AwsError> {
    let role = aws
        .iam
        .get_role()
        .role_name(name)
        .send()
        .await
        .calling("iam:GetRole", format!("role {name}"))
        .if_there()?;
    Ok(role.and_then(|role| role.role).map(|role| role.arn))
}

/// Asks STS who calls.
pub async fn read_caller(aws: &Aws) -> Result<Caller, AwsError> {
    let identity =
        aws.sts.get_caller_identity().send().await.calling("sts:GetCallerIdentity", "*")?;
    Ok(Caller {
        account: identity.account.unwrap_or_default(),
        arn: identity.arn.unwrap_or_default(),
    })
}

async fn read_cluster(aws: &Aws, name: &str, region: &str) -> Result<ClusterFacts, AwsError> {
    let described = aws
        .eks
        .describe_cluster()
        .name(name)
        .send()
        .await
        .calling("eks:DescribeCluster", format!("cluster {name}"))?;
    let cluster =
        described.cluster.unwrap_or_else(|| aws_sdk_eks::types::Cluster::builder().build());
    let vpc = cluster.resources_vpc_config();
    let text = |value: Option<&str>| value.filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(ClusterFacts {
        name: name.to_owned(),
        region: region.to_owned(),
        partition: Partition::of_region(region),
        arn: cluster.arn().unwrap_or_default().to_owned(),
        created_at: cluster.created_at().map_or(0, aws_smithy_types::DateTime::secs),
        status: cluster
            .status()
            .map_or_else(|| "UNKNOWN".to_owned(), |status| status.as_str().to_owned()),
        version: cluster.version().unwrap_or_default().to_owned(),
        endpoint: text(cluster.endpoint()),
        certificate_authority: text(
            cluster.certificate_authority().and_then(|certificate| certificate.data()),
        ),
        oidc_issuer: text(
            cluster.identity().and_then(|identity| identity.oidc()).and_then(|oidc| oidc.issuer()),
        ),
        // Clusters from before access entries say nothing.
        authentication_mode: cluster
            .access_config()
            .and_then(|access| access.authentication_mode())
            .map_or_else(|| "CONFIG_MAP".to_owned(), |mode| mode.as_str().to_owned()),
        subnet_ids: vpc.map(|vpc| vpc.subnet_ids().to_vec()).unwrap_or_default(),
        security_group: text(vpc.and_then(VpcConfigResponse::cluster_security_group_id)),
        auto_mode: cluster
            .compute_config()
            .and_then(ComputeConfigResponse::enabled)
            .unwrap_or(false),
        ipv6: cluster
            .kubernetes_network_config()
            .and_then(|network| network.ip_family())
            .is_some_and(|family| *family == aws_sdk_eks::types::IpFamily::Ipv6),
        tags: cluster.tags().map(|tags| tags.clone().into_iter().collect()).unwrap_or_default(),
    })
}
