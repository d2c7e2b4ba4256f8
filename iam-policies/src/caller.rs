//! What whoever runs the installer must be allowed, for each thing that it does. Limited to the
//! names that this installation uses, so that a pipeline's role can install Tenon into one cluster
//! and do nothing else.

use std::collections::BTreeSet;

use crate::document::{Actions, Document, Statement};
use crate::identity::{POD_IDENTITY_SERVICE, ec2_services};
use crate::scope::Scope;

/// What the installer is run for. Each includes [`Purpose::Read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// `status`, `doctor`, `preflight`, `plan`, `diff`: nothing is changed.
    Read,
    /// `install` and `upgrade`.
    Install,
    /// `uninstall` and `sweep`.
    Uninstall,
    /// `migrate cas`.
    MigrateCas,
    /// `migrate nth`.
    MigrateNth,
}

/// What the caller's permissions are limited to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerScope {
    /// Cluster, queue, partition.
    pub scope: Scope,
    /// ARN of the node role.
    pub node_role: String,
    /// ARN of the controller's role.
    pub controller_role: String,
    /// ARN of the role that Fargate runs the controller with, or would.
    pub fargate_role: String,
    /// It does.
    pub fargate: bool,
    /// Name of the queue that is, was or would be ours.
    pub queue: String,
    /// Names of the event rules.
    pub rules: Vec<String>,
    /// ARNs of the policies that the node role and the role of Fargate have attached.
    pub attached: Vec<String>,
    /// ARN of the boundary that roles must have.
    pub boundary: Option<String>,
}

impl CallerScope {
    fn roles(&self) -> Vec<&str> {
        vec![&self.node_role, &self.controller_role, &self.fargate_role]
    }

    /// The roles, and how IAM names them while they are not there: without their path, which it
    /// does not know then.
    fn roles_to_read(&self) -> Vec<String> {
        let names = self.roles().into_iter().filter_map(|arn| arn.rsplit('/').next());
        let mut arns = self.roles().into_iter().map(str::to_owned).collect::<Vec<_>>();
        arns.extend(names.map(|name| self.iam(&format!("role/{name}"))));
        arns.sort();
        arns.dedup();
        arns
    }

    fn child(&self, kind: &str) -> String {
        let Scope { partition, region, account, cluster, .. } = &self.scope;
        format!("arn:{partition}:eks:{region}:{account}:{kind}/{cluster}/*")
    }

    fn children(&self) -> Vec<String> {
        ["access-entry", "podidentityassociation", "addon", "nodegroup", "fargateprofile"]
            .map(|kind| self.child(kind))
            .into()
    }

    fn regional(&self, service: &str, resource: &str) -> String {
        let Scope { partition, region, account, .. } = &self.scope;
        format!("arn:{partition}:{service}:{region}:{account}:{resource}")
    }

    /// All Auto Scaling groups: their ids are random, and their names not ours.
    fn groups(&self) -> String {
        self.regional("autoscaling", "autoScalingGroup:*:autoScalingGroupName/*")
    }

    /// For actions that have no resources.
    fn in_region(&self, statement: Statement) -> Statement {
        statement.when("StringEquals", "aws:RequestedRegion", [&self.scope.region])
    }

    fn queue_arn(&self) -> String {
        self.regional("sqs", &self.queue)
    }

    fn rule_arns(&self) -> Vec<String> {
        self.rules.iter().map(|rule| self.scope.rule_arn(rule)).collect()
    }

    fn ec2(&self, kind: &str) -> String {
        self.regional("ec2", &format!("{kind}/*"))
    }

    fn iam(&self, resource: &str) -> String {
        format!("arn:{}:iam::{}:{resource}", self.scope.partition, self.scope.account)
    }

    fn identity_providers(&self) -> String {
        let (region, suffix) = (&self.scope.region, self.scope.partition.dns_suffix());
        self.iam(&format!("oidc-provider/oidc.eks.{region}.{suffix}/id/*"))
    }

    fn own_profiles(&self) -> String {
        self.iam(&format!("instance-profile{}*", self.scope.instance_profile_path()))
    }
}

/// Everything that the caller may have to be allowed, whatever the plan.
pub fn caller_document(purpose: Purpose, of: &CallerScope) -> Document {
    let mut statements = read(of);
    match purpose {
        Purpose::Read => {}
        Purpose::Install => statements.extend(install(of)),
        Purpose::Uninstall => statements.extend(uninstall(of)),
        Purpose::MigrateCas => statements.extend(migrate_cas(of)),
        Purpose::MigrateNth => statements.extend(migrate_nth(of)),
    }
    Document::new(statements)
}

/// What the caller must be allowed for one plan: the reads, and of the writes only these actions.
/// Also tells which of them no statement is about.
pub fn caller_document_for<'a>(
    of: &CallerScope,
    actions: impl IntoIterator<Item = &'a str>,
) -> (Document, Vec<String>) {
    let mut wanted = actions.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    let mut statements = read(of);
    let mut known = names(&statements);
    for mut statement in install(of) {
        known.extend(names(std::slice::from_ref(&statement)));
        if let Actions::Only(actions) = &mut statement.actions {
            actions.retain(|action| wanted.contains(action));
            if !actions.is_empty() {
                statements.push(statement);
            }
        }
    }
    wanted.retain(|action| !known.contains(action));
    (Document::new(statements), wanted.into_iter().collect())
}

fn names(statements: &[Statement]) -> BTreeSet<String> {
    let of = |statement: &Statement| match &statement.actions {
        Actions::Only(actions) => actions.clone(),
        Actions::AllBut(_) => Vec::new(),
    };
    statements.iter().flat_map(of).collect()
}

fn read(of: &CallerScope) -> Vec<Statement> {
    let cluster_and_children = std::iter::once(of.scope.cluster_arn()).chain(of.children());
    let eks = [
        "eks:DescribeCluster",
        "eks:ListAddons",
        "eks:DescribeAddon",
        "eks:ListAccessEntries",
        "eks:DescribeAccessEntry",
        "eks:ListPodIdentityAssociations",
        "eks:DescribePodIdentityAssociation",
        "eks:ListNodegroups",
        "eks:DescribeNodegroup",
        "eks:ListFargateProfiles",
        "eks:DescribeFargateProfile",
    ];
    let roles = [
        "iam:GetRole",
        "iam:ListRolePolicies",
        "iam:GetRolePolicy",
        "iam:ListAttachedRolePolicies",
        "iam:ListInstanceProfilesForRole",
        "iam:SimulatePrincipalPolicy",
    ];
    let account = [
        "iam:GetAccountSummary",
        "iam:GetOpenIDConnectProvider",
        "iam:ListAccountAliases",
        "iam:ListInstanceProfiles",
        "iam:ListOpenIDConnectProviders",
        "iam:ListRoles",
    ];
    let ec2 = [
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeImages",
        "ec2:DescribeInstances",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeLaunchTemplates",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeRouteTables",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSnapshots",
        "ec2:DescribeSpotInstanceRequests",
        "ec2:DescribeSpotPriceHistory",
        "ec2:DescribeSubnets",
        "ec2:DescribeVolumes",
        "ec2:DescribeVpcAttribute",
        "ec2:DescribeVpcEndpoints",
        "ec2:GetEbsDefaultKmsKeyId",
        "ec2:GetEbsEncryptionByDefault",
    ];
    let spot_role = of.iam("role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot");
    let policies = [of.iam("policy/*"), of.scope.partition.managed_policy("*")];
    let mut roles_read = of.roles_to_read();
    roles_read.extend([of.iam("role/AWSServiceRoleForEC2Spot"), spot_role]);
    let Scope { partition, region, account: owner, .. } = &of.scope;
    let mut statements = vec![
        Statement::allow("ReadCluster", eks).on(cluster_and_children),
        Statement::allow("ReadRoles", roles).on(roles_read),
        Statement::allow("ReadPolicies", ["iam:GetPolicy", "iam:GetPolicyVersion"]).on(policies),
        Statement::allow("ReadAccount", account),
        Statement::allow("ReadInstanceProfiles", ["iam:GetInstanceProfile"])
            .on([of.iam("instance-profile/*")]),
        Statement::allow(
            "ReadQueue",
            ["sqs:GetQueueUrl", "sqs:GetQueueAttributes", "sqs:ListQueueTags"],
        )
        .on([of.queue_arn()]),
        Statement::allow(
            "ReadRules",
            ["events:DescribeRule", "events:ListTargetsByRule", "events:ListTagsForResource"],
        )
        .on(of.rule_arns()),
        of.in_region(Statement::allow("ReadNetwork", ec2)),
        Statement::allow("ReadImageParameters", ["ssm:GetParameter"])
            .on([format!("arn:{partition}:ssm:{region}::parameter/aws/service/*")]),
        of.in_region(Statement::allow("ListClusters", ["eks:ListClusters"])),
        of.in_region(Statement::allow("ReadQuotas", ["servicequotas:GetServiceQuota"])),
        Statement::allow("ReadVolumeKeys", ["kms:DescribeKey"])
            .on([format!("arn:{partition}:kms:{region}:{owner}:key/*")]),
    ];
    if let Some(key) = &of.scope.features.queue_key {
        statements.push(Statement::allow("ReadQueueKey", ["kms:GetKeyPolicy"]).on([key]));
    }
    statements
}

fn install(of: &CallerScope) -> Vec<Statement> {
    let roles = of.roles();
    let bounded = |statement: Statement| match &of.boundary {
        Some(boundary) => statement.when("StringEquals", "iam:PermissionsBoundary", [boundary]),
        None => statement,
    };
    let pass = |sid, role: &str, services: &[&str]| {
        Statement::allow(sid, ["iam:PassRole"]).on([role]).when(
            "StringEquals",
            "iam:PassedToService",
            services.iter().copied(),
        )
    };
    let mut statements = vec![
        bounded(
            Statement::allow("MakeRoles", ["iam:CreateRole", "iam:PutRolePermissionsBoundary"])
                .on(roles.clone()),
        ),
        Statement::allow(
            "WriteRoles",
            [
                "iam:DeleteRolePermissionsBoundary",
                "iam:DeleteRolePolicy",
                "iam:PutRolePolicy",
                "iam:TagRole",
                "iam:UntagRole",
                "iam:UpdateAssumeRolePolicy",
            ],
        )
        .on(roles.clone()),
        Statement::allow("AttachPolicies", ["iam:AttachRolePolicy", "iam:DetachRolePolicy"])
            .on(roles)
            .when("ArnEquals", "iam:PolicyARN", &of.attached),
        pass("PassControllerRole", &of.controller_role, &[POD_IDENTITY_SERVICE]),
        pass("PassNodeRole", &of.node_role, &ec2_services(of.scope.partition)),
        Statement::allow(
            "WriteInstanceProfiles",
            ["iam:CreateInstanceProfile", "iam:TagInstanceProfile", "iam:AddRoleToInstanceProfile"],
        )
        .on([of.own_profiles(), of.iam("instance-profile/tenon/*")]),
        Statement::allow(
            "WriteIdentityProvider",
            [
                "iam:CreateOpenIDConnectProvider",
                "iam:AddClientIDToOpenIDConnectProvider",
                "iam:TagOpenIDConnectProvider",
            ],
        )
        .on([of.identity_providers()]),
        Statement::allow("MakeSpotRole", ["iam:CreateServiceLinkedRole"])
            .on([of.iam("role/aws-service-role/spot.amazonaws.com/*")])
            .when("StringEquals", "iam:AWSServiceName", ["spot.amazonaws.com"]),
        Statement::allow(
            "WriteCluster",
            [
                "eks:CreateAccessEntry",
                "eks:CreateAddon",
                "eks:CreateFargateProfile",
                "eks:CreatePodIdentityAssociation",
            ],
        )
        .on([of.scope.cluster_arn()]),
        Statement::allow(
            "WriteClusterParts",
            [
                "eks:DeleteAccessEntry",
                "eks:TagResource",
                "eks:UntagResource",
                "eks:UpdateAccessEntry",
                "eks:UpdatePodIdentityAssociation",
            ],
        )
        .on(of.children()),
        Statement::allow(
            "WriteQueue",
            [
                "sqs:CreateQueue",
                "sqs:DeleteQueue",
                "sqs:SetQueueAttributes",
                "sqs:TagQueue",
                "sqs:UntagQueue",
                "sqs:SendMessage",
            ],
        )
        .on([of.queue_arn()]),
        Statement::allow(
            "WriteRules",
            [
                "events:DeleteRule",
                "events:PutRule",
                "events:PutTargets",
                "events:RemoveTargets",
                "events:TagResource",
                "events:UntagResource",
            ],
        )
        .on(of.rule_arns()),
        discovery_tags(of, "TagNetwork", &["ec2:CreateTags", "ec2:DeleteTags"]),
    ];
    if let Some(key) = &of.scope.features.queue_key {
        let sqs = format!("sqs.{}.{}", of.scope.region, of.scope.partition.dns_suffix());
        statements.push(
            Statement::allow("SendEncrypted", ["kms:Decrypt", "kms:GenerateDataKey"])
                .on([key])
                .when("StringEquals", "kms:ViaService", [sqs]),
        );
    }
    if of.fargate {
        let service = ["eks-fargate-pods.amazonaws.com"];
        statements.push(pass("PassFargateRole", &of.fargate_role, &service));
    }
    statements
}

fn uninstall(of: &CallerScope) -> Vec<Statement> {
    let owned = |statement: Statement| {
        statement
            .when("StringEquals", format!("aws:ResourceTag/{}", of.scope.cluster_tag()), ["owned"])
            .when("StringLike", "aws:ResourceTag/karpenter.sh/nodepool", ["*"])
    };
    let of_cni = |statement: Statement| {
        let tag = "aws:ResourceTag/cluster.k8s.amazonaws.com/name";
        statement.when("StringEquals", tag, [&of.scope.cluster])
    };
    vec![
        of_cni(
            Statement::allow("RemoveInterfaces", ["ec2:DeleteNetworkInterface"])
                .on([of.ec2("network-interface")]),
        ),
        Statement::allow(
            "RemoveRoles",
            ["iam:DeleteRole", "iam:DeleteRolePolicy", "iam:DetachRolePolicy"],
        )
        .on(of.roles()),
        Statement::allow(
            "RemoveInstanceProfiles",
            ["iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"],
        )
        .on([of.own_profiles(), of.iam("instance-profile/tenon/*")]),
        Statement::allow("RemoveIdentityProvider", ["iam:DeleteOpenIDConnectProvider"])
            .on([of.identity_providers()]),
        Statement::allow(
            "RemoveClusterParts",
            [
                "eks:DeleteAccessEntry",
                "eks:DeleteFargateProfile",
                "eks:DeletePodIdentityAssociation",
            ],
        )
        .on(of.children()),
        Statement::allow("RemoveQueue", ["sqs:DeleteQueue"]).on([of.queue_arn()]),
        Statement::allow("RemoveRules", ["events:DeleteRule", "events:RemoveTargets"])
            .on(of.rule_arns()),
        discovery_tags(of, "UntagNetwork", &["ec2:DeleteTags"]),
        owned(
            Statement::allow(
                "RemoveInstances",
                [
                    "ec2:CancelSpotInstanceRequests",
                    "ec2:DeleteLaunchTemplate",
                    "ec2:TerminateInstances",
                ],
            )
            .on([
                of.ec2("instance"),
                of.ec2("launch-template"),
                of.ec2("spot-instances-request"),
            ]),
        ),
    ]
}

/// Whose Auto Scaling groups Cluster Autoscaler scales, and what they are called, is only known
/// when it is read.
fn migrate_cas(of: &CallerScope) -> Vec<Statement> {
    vec![
        of.in_region(Statement::allow(
            "ReadGroups",
            [
                "autoscaling:DescribeAutoScalingGroups",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
            ],
        )),
        Statement::allow(
            "EmptyGroups",
            [
                "autoscaling:ResumeProcesses",
                "autoscaling:SuspendProcesses",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
                "autoscaling:UpdateAutoScalingGroup",
            ],
        )
        .on([of.groups()]),
        Statement::allow("EmptyNodeGroups", ["eks:UpdateNodegroupConfig"])
            .on([of.child("nodegroup")]),
    ]
}

/// What the queue of Node Termination Handler is called, and what feeds it, is only known when it
/// is read.
fn migrate_nth(of: &CallerScope) -> Vec<Statement> {
    vec![
        of.in_region(Statement::allow(
            "ReadHooks",
            ["autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeLifecycleHooks"],
        )),
        Statement::allow("RemoveHooks", ["autoscaling:DeleteLifecycleHook"]).on([of.groups()]),
        Statement::allow(
            "RemoveOtherRules",
            [
                "events:DeleteRule",
                "events:DescribeRule",
                "events:ListRuleNamesByTarget",
                "events:ListTagsForResource",
                "events:ListTargetsByRule",
                "events:RemoveTargets",
            ],
        )
        .on([of.regional("events", "rule/*")]),
        Statement::allow(
            "MoveMessages",
            [
                "sqs:DeleteMessage",
                "sqs:DeleteQueue",
                "sqs:GetQueueAttributes",
                "sqs:GetQueueUrl",
                "sqs:ListQueueTags",
                "sqs:ReceiveMessage",
            ],
        )
        .on([of.regional("sqs", "*")]),
        Statement::allow("ReceiveMessages", ["sqs:SendMessage"]).on([of.queue_arn()]),
    ]
}

fn discovery_tags(of: &CallerScope, sid: &str, actions: &[&str]) -> Statement {
    Statement::allow(sid, actions.iter().copied())
        .on([of.ec2("subnet"), of.ec2("security-group")])
        .when(
            "ForAllValues:StringEquals",
            "aws:TagKeys",
            ["karpenter.sh/discovery", "tenon.sh/discovery"],
        )
}

#[cfg(test)]
mod tests;
