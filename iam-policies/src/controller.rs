//! The controller's policies, in upstream's six parts.
//!
//! Everything that creates must tag in the same call, everything that changes or deletes is limited
//! to what carries the cluster's tags. So the controller can reach nothing that it did not make
//! itself, apart from reading.

use serde::{Deserialize, Serialize};

use crate::document::{Document, Statement};
use crate::scope::{InstanceProfiles, Scope};

const STRING_EQUALS: &str = "StringEquals";
const STRING_LIKE: &str = "StringLike";
const CLUSTER_NAME_TAG: &str = "eks:eks-cluster-name";
const NODE_POOL_TAG: &str = "karpenter.sh/nodepool";
const NODE_CLAIM_TAG: &str = "karpenter.sh/nodeclaim";
const NODE_CLASS_TAG: &str = "karpenter.k8s.aws/ec2nodeclass";
const REGION_TAG: &str = "topology.kubernetes.io/region";

/// Ids of statements that are shortened.
const CREATION_TAGGING: &str = "AllowScopedResourceCreationTagging";
const DELETION: &str = "AllowScopedDeletion";

/// One of the parts that the controller's permissions come in. Upstream split them because one
/// managed policy can't hold them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerPolicy {
    /// Launch, tag and terminate instances; make and delete launch templates.
    NodeLifecycle,
    /// Pass the node role; make and delete instance profiles.
    IamIntegration,
    /// Look up the cluster's endpoint.
    EksIntegration,
    /// Receive and delete interruption messages.
    Interruption,
    /// Read the cluster's zonal shifts.
    ZonalShift,
    /// Describe what EC2, SSM, IAM and the price list offer.
    ResourceDiscovery,
    /// Use customer managed keys for volumes. Not one of upstream's: there users add it by hand.
    VolumeEncryption,
}

/// A policy with the name it is stored under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPolicy {
    /// Which part it is.
    pub part: ControllerPolicy,
    /// What it allows.
    pub document: Document,
}

impl ControllerPolicy {
    /// All parts, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::NodeLifecycle,
        Self::IamIntegration,
        Self::EksIntegration,
        Self::Interruption,
        Self::ZonalShift,
        Self::ResourceDiscovery,
        Self::VolumeEncryption,
    ];

    /// The name of the inline policy, which is upstream's name without the cluster.
    pub fn name(self) -> &'static str {
        match self {
            Self::NodeLifecycle => "KarpenterControllerNodeLifecyclePolicy",
            Self::IamIntegration => "KarpenterControllerIAMIntegrationPolicy",
            Self::EksIntegration => "KarpenterControllerEKSIntegrationPolicy",
            Self::Interruption => "KarpenterControllerInterruptionPolicy",
            Self::ZonalShift => "KarpenterControllerZonalShiftPolicy",
            Self::ResourceDiscovery => "KarpenterControllerResourceDiscoveryPolicy",
            Self::VolumeEncryption => "KarpenterControllerVolumeEncryptionPolicy",
        }
    }

    /// The document of this part, or `None` when the scope has no use for it.
    pub fn document(self, scope: &Scope) -> Option<Document> {
        match self {
            Self::NodeLifecycle => Some(node_lifecycle(scope)),
            Self::IamIntegration => Some(iam_integration(scope)),
            Self::EksIntegration => Some(eks_integration(scope)),
            Self::Interruption => interruption(scope),
            Self::ZonalShift => scope.features.zonal_shift.then(|| zonal_shift(scope)),
            Self::ResourceDiscovery => Some(resource_discovery(scope)),
            Self::VolumeEncryption => {
                (!scope.features.volume_keys.is_empty()).then(|| volume_encryption(scope))
            }
        }
    }
}

/// The policies that the controller's role needs in this scope.
pub fn controller_policies(scope: &Scope) -> Vec<NamedPolicy> {
    ControllerPolicy::ALL
        .into_iter()
        .filter_map(|part| part.document(scope).map(|document| NamedPolicy { part, document }))
        .collect()
}

/// What policies of [`controller_policies`] allow, in one document of fewer characters and without
/// statement ids, for a role whose inline policies have little room left. It differs in two
/// statements:
///
/// - Tagging what a call creates is allowed for every kind of resource, not for a list of kinds.
///   `ec2:CreateAction` names the calls, and these create only what the list names.
/// - Launches from the launch templates of a NodePool, and the removal of what a NodePool owns, are
///   one statement. No launch refers to an instance that exists.
pub fn shortened(policies: impl IntoIterator<Item = NamedPolicy>, scope: &Scope) -> Document {
    let mut short = Vec::<Statement>::new();
    for mut statement in policies.into_iter().flat_map(|one| one.document.statements) {
        let sid = statement.sid.take();
        match sid.as_deref() {
            Some(CREATION_TAGGING) => {
                short.push(statement.on([scope.ec2("*")]));
            }
            Some(DELETION) => {
                match short.iter_mut().find(|one| one.conditions == statement.conditions) {
                    Some(launches) => launches.join(statement),
                    None => short.push(statement),
                }
            }
            _ => short.push(statement),
        }
    }
    Document::new(short)
}

fn node_lifecycle(scope: &Scope) -> Document {
    let made_by_launches = || {
        [
            "fleet",
            "instance",
            "volume",
            "network-interface",
            "launch-template",
            "spot-instances-request",
        ]
        .map(|kind| scope.ec2(kind))
    };
    let used_by_launches = [
        scope.ec2_public("image"),
        scope.ec2_public("snapshot"),
        scope.ec2("security-group"),
        scope.ec2("subnet"),
        scope.ec2("capacity-reservation"),
        scope.ec2("placement-group"),
    ];
    Document::new([
        Statement::allow(
            "AllowScopedEC2InstanceAccessActions",
            ["ec2:RunInstances", "ec2:CreateFleet"],
        )
        .on(used_by_launches),
        owned_by_a_node_pool(
            Statement::allow(
                "AllowScopedEC2LaunchTemplateAccessActions",
                ["ec2:RunInstances", "ec2:CreateFleet"],
            )
            .on([scope.ec2("launch-template")]),
            scope,
        ),
        tagged_for_a_node_pool(
            Statement::allow(
                "AllowScopedEC2InstanceActionsWithTags",
                ["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
            )
            .on(made_by_launches()),
            scope,
        ),
        tagged_for_a_node_pool(
            Statement::allow(CREATION_TAGGING, ["ec2:CreateTags"]).on(made_by_launches()),
            scope,
        )
        .when(
            STRING_EQUALS,
            "ec2:CreateAction",
            ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
        ),
        owned_by_a_node_pool(
            Statement::allow("AllowScopedResourceTagging", ["ec2:CreateTags"])
                .on([scope.ec2("instance")]),
            scope,
        )
        .when("StringEqualsIfExists", request_tag(CLUSTER_NAME_TAG), [&scope.cluster])
        .when(
            "ForAllValues:StringEquals",
            "aws:TagKeys",
            [CLUSTER_NAME_TAG, NODE_CLAIM_TAG, "Name"],
        ),
        owned_by_a_node_pool(
            Statement::allow(DELETION, ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"])
                .on([scope.ec2("instance"), scope.ec2("launch-template")]),
            scope,
        ),
    ])
}

fn iam_integration(scope: &Scope) -> Document {
    let pass_role = Statement::allow("AllowPassingInstanceRole", ["iam:PassRole"])
        .on(&scope.node_roles)
        .when(STRING_EQUALS, "iam:PassedToService", ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]);
    let profiles = match scope.features.instance_profiles {
        InstanceProfiles::Static => return Document::new([pass_role]),
        InstanceProfiles::Tagged => all_instance_profiles(scope),
        InstanceProfiles::OfCluster => {
            format!(
                "arn:{}:iam::{}:instance-profile{}*",
                scope.partition,
                scope.account,
                scope.instance_profile_path()
            )
        }
    };
    let requested = |statement: Statement| {
        statement
            .when(STRING_EQUALS, request_tag(&scope.cluster_tag()), ["owned"])
            .when(STRING_EQUALS, request_tag(CLUSTER_NAME_TAG), [&scope.cluster])
            .when(STRING_EQUALS, request_tag(REGION_TAG), [&scope.region])
            .when(STRING_LIKE, request_tag(NODE_CLASS_TAG), ["*"])
    };
    let existing = |statement: Statement| {
        statement
            .when(STRING_EQUALS, resource_tag(&scope.cluster_tag()), ["owned"])
            .when(STRING_EQUALS, resource_tag(REGION_TAG), [&scope.region])
            .when(STRING_LIKE, resource_tag(NODE_CLASS_TAG), ["*"])
    };
    let write_actions = [
        "iam:AddRoleToInstanceProfile",
        "iam:RemoveRoleFromInstanceProfile",
        "iam:DeleteInstanceProfile",
    ];
    Document::new([
        pass_role,
        requested(
            Statement::allow(
                "AllowScopedInstanceProfileCreationActions",
                ["iam:CreateInstanceProfile"],
            )
            .on([&profiles]),
        ),
        existing(requested(
            Statement::allow("AllowScopedInstanceProfileTagActions", ["iam:TagInstanceProfile"])
                .on([&profiles]),
        )),
        existing(
            Statement::allow("AllowScopedInstanceProfileActions", write_actions).on([&profiles]),
        ),
    ])
}

fn eks_integration(scope: &Scope) -> Document {
    Document::new([Statement::allow("AllowAPIServerEndpointDiscovery", ["eks:DescribeCluster"])
        .on([scope.cluster_arn()])])
}

fn interruption(scope: &Scope) -> Option<Document> {
    let queue = scope.queue_arn()?;
    let actions = ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"];
    let mut document =
        Document::new([Statement::allow("AllowInterruptionQueueActions", actions).on([queue])]);
    if let Some(key) = &scope.features.queue_key {
        document
            .statements
            .push(Statement::allow("AllowInterruptionQueueDecryption", ["kms:Decrypt"]).on([key]));
    }
    Some(document)
}

fn zonal_shift(scope: &Scope) -> Document {
    Document::new([Statement::allow(
        "AllowZonalShiftStatusReadOnly",
        ["arc-zonal-shift:GetManagedResource"],
    )
    .when(STRING_EQUALS, "arc-zonal-shift:ResourceIdentifier", [scope.cluster_arn()])])
}

fn resource_discovery(scope: &Scope) -> Document {
    let reads = [
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeImages",
        "ec2:DescribeInstances",
        "ec2:DescribeInstanceStatus",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeLaunchTemplates",
        "ec2:DescribePlacementGroups",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSpotPriceHistory",
        "ec2:DescribeSubnets",
    ];
    let parameters =
        format!("arn:{}:ssm:{}::parameter/aws/service/*", scope.partition, scope.region);
    let mut statements = vec![
        Statement::allow("AllowRegionalReadActions", reads).when(
            STRING_EQUALS,
            "aws:RequestedRegion",
            [&scope.region],
        ),
        Statement::allow("AllowSSMReadActions", ["ssm:GetParameter"]).on([parameters]),
        Statement::allow("AllowPricingReadActions", ["pricing:GetProducts"]),
    ];
    if scope.features.instance_profiles != InstanceProfiles::Static {
        statements.push(Statement::allow(
            "AllowUnscopedInstanceProfileListAction",
            ["iam:ListInstanceProfiles"],
        ));
    }
    // Never narrowed to the cluster's path: for a profile that does not exist IAM knows the name
    // only, and the controller must be told that it does not exist rather than that it may not ask.
    statements.push(
        Statement::allow("AllowInstanceProfileReadActions", ["iam:GetInstanceProfile"])
            .on([all_instance_profiles(scope)]),
    );
    Document::new(statements)
}

fn volume_encryption(scope: &Scope) -> Document {
    let via_ec2 = format!("ec2.{}.{}", scope.region, scope.partition.dns_suffix());
    let uses =
        ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"];
    Document::new([
        Statement::allow("AllowVolumeKeyGrants", ["kms:CreateGrant"])
            .on(&scope.features.volume_keys)
            .when("Bool", "kms:GrantIsForAWSResource", ["true"]),
        Statement::allow("AllowVolumeKeyUse", uses).on(&scope.features.volume_keys).when(
            STRING_EQUALS,
            "kms:ViaService",
            [via_ec2],
        ),
    ])
}

/// Limits a statement to what the controller made for a NodePool of this cluster.
fn owned_by_a_node_pool(statement: Statement, scope: &Scope) -> Statement {
    statement.when(STRING_EQUALS, resource_tag(&scope.cluster_tag()), ["owned"]).when(
        STRING_LIKE,
        resource_tag(NODE_POOL_TAG),
        ["*"],
    )
}

/// Limits a statement to calls that mark what they make as belonging to a NodePool of this cluster.
fn tagged_for_a_node_pool(statement: Statement, scope: &Scope) -> Statement {
    statement
        .when(STRING_EQUALS, request_tag(&scope.cluster_tag()), ["owned"])
        .when(STRING_EQUALS, request_tag(CLUSTER_NAME_TAG), [&scope.cluster])
        .when(STRING_LIKE, request_tag(NODE_POOL_TAG), ["*"])
}

fn all_instance_profiles(scope: &Scope) -> String {
    format!("arn:{}:iam::{}:instance-profile/*", scope.partition, scope.account)
}

fn request_tag(key: &str) -> String {
    format!("aws:RequestTag/{key}")
}

fn resource_tag(key: &str) -> String {
    format!("aws:ResourceTag/{key}")
}

#[cfg(test)]
mod tests;
