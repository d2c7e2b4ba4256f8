//! What whoever runs `tenon kops` must be allowed in AWS, limited to one cluster.

use tenon_iam_policies::interruption::InterruptionRule;
use tenon_iam_policies::{Document, Statement};
use tenon_installer_core::observe::ec2::NODE_POOL_TAG;
use tenon_kops::{queue_name, role_name, rule_name};

use super::operator::Place;
use super::permissions::roles;

/// What `tenon kops` is run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Everything but `augment`.
    Sync,
    /// `augment`, which writes a policy of the add-on's role.
    Augment,
}

/// The policy. `profiles` are the names of the instance profiles of nodes.
pub(crate) fn caller_policy(place: &Place, profiles: &[String], purpose: Purpose) -> Document {
    let scope = place.scope();
    let (cluster, region) = (&place.cluster, &place.region);
    let (partition, account) = (scope.partition, &place.account);
    let mut statements = place.reads_store();
    // The prices are for `tenon status`, instances and launch templates for `uninstall`.
    let reads = [
        "ec2:DescribeImages",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeInstances",
        "ec2:DescribeLaunchTemplates",
        "ec2:DescribeSpotPriceHistory",
    ];
    statements.push(Statement::allow("AllowReadingEC2", reads).when(
        "StringEquals",
        "aws:RequestedRegion",
        [region],
    ));
    statements.push(Statement::allow("AllowReadingImageParameters", ["ssm:GetParameter"]).on([
        format!("arn:{partition}:ssm:{region}::parameter/aws/service/*"),
        format!("arn:{partition}:ssm:{region}:{account}:parameter/*"),
    ]));
    let queue = [
        "sqs:CreateQueue",
        "sqs:DeleteQueue",
        "sqs:GetQueueAttributes",
        "sqs:GetQueueUrl",
        "sqs:ListQueueTags",
        // For `install --canary`.
        "sqs:SendMessage",
        "sqs:SetQueueAttributes",
        "sqs:TagQueue",
    ];
    let queue_arn = format!("arn:{partition}:sqs:{region}:{account}:{}", queue_name(cluster));
    statements.push(Statement::allow("AllowInterruptionQueue", queue).on([queue_arn]));
    let rules = [
        "events:DeleteRule",
        "events:DescribeRule",
        "events:ListTagsForResource",
        "events:ListTargetsByRule",
        "events:PutRule",
        "events:PutTargets",
        "events:RemoveTargets",
        "events:TagResource",
    ];
    let rule_arns = InterruptionRule::ALL.map(|rule| rule_name(cluster, rule.suffix()));
    let rule_arns = rule_arns.map(|rule| scope.rule_arn(&rule));
    statements.push(Statement::allow("AllowInterruptionRules", rules).on(rule_arns));
    match purpose {
        Purpose::Sync => {
            let profiles = profiles.iter().map(|name| scope.instance_profile_arn("/", name));
            let read_profiles =
                Statement::allow("AllowReadingNodeProfiles", ["iam:GetInstanceProfile"]);
            statements.push(read_profiles.on(profiles));
            let read_role = [
                "iam:GetRole",
                "iam:GetRolePolicy",
                "iam:ListAttachedRolePolicies",
                "iam:ListRolePolicies",
            ];
            let operator = Statement::allow("AllowReadingOperatorRole", read_role);
            statements.push(operator.on(roles(place)));
            let templates = format!("arn:{partition}:ec2:{region}:{account}:launch-template/*");
            let of_cluster = format!("aws:ResourceTag/{}", scope.cluster_tag());
            statements.push(
                Statement::allow("AllowRemovingLaunchTemplates", ["ec2:DeleteLaunchTemplate"])
                    .on([templates])
                    .when("StringEquals", of_cluster.clone(), ["owned"]),
            );
            // For an operator that does not run: else it terminates them itself.
            let instances = format!("arn:{partition}:ec2:{region}:{account}:instance/*");
            statements.push(
                Statement::allow("AllowTerminatingNodes", ["ec2:TerminateInstances"])
                    .on([instances])
                    .when("StringEquals", of_cluster, ["owned"])
                    .when("StringLike", format!("aws:ResourceTag/{NODE_POOL_TAG}"), ["*"]),
            );
            if !place.node_roles.is_empty() {
                let read_roles = Statement::allow("AllowReadingNodeRoles", ["iam:GetRole"]);
                statements.push(read_roles.on(place.node_roles.clone()));
            }
        }
        Purpose::Augment => {
            let role = [
                "iam:DeleteRolePolicy",
                "iam:GetRole",
                "iam:GetRolePolicy",
                "iam:ListAttachedRolePolicies",
                "iam:ListRolePolicies",
                "iam:PutRolePolicy",
            ];
            let addon = scope.role_arn("/", &role_name("karpenter", "kube-system", cluster));
            statements.push(Statement::allow("AllowPolicyOfKarpentersRole", role).on([addon]));
        }
    }
    Document::new(statements)
}

#[cfg(test)]
mod tests {
    use tenon_kops::Location;

    use super::super::operator::Identity;
    use super::*;

    /// The statements, as JSON.
    fn policy(store: &str, purpose: Purpose) -> String {
        let store = Location::parse(store).expect("a state store");
        let place = Place {
            cluster: "shop.example.com".to_owned(),
            region: "eu-west-1".to_owned(),
            account: "123456789012".to_owned(),
            control_planes: 1,
            identity: Identity::ServiceAccount,
            node_roles: vec!["arn:aws:iam::123456789012:role/nodes.shop.example.com".to_owned()],
            config_base: store.join("shop.example.com"),
            store,
        };
        caller_policy(&place, &["nodes.shop.example.com".to_owned()], purpose).to_json()
    }

    #[test]
    fn only_augment_may_write_a_policy_and_only_that_of_the_add_on() {
        let sync = policy("s3://states", Purpose::Sync);
        assert!(!sync.contains("iam:Put") && !sync.contains("iam:Delete"), "{sync}");
        assert!(sync.contains("instance-profile/nodes.shop.example.com"), "{sync}");
        let augment = policy("s3://states", Purpose::Augment);
        assert!(augment.contains("role/karpenter.kube-system.sa.shop.example.com"), "{augment}");
        assert_eq!(augment.matches(":iam::").count(), 1, "{augment}");
    }

    #[test]
    fn keys_of_the_cluster_are_never_readable() {
        for purpose in [Purpose::Sync, Purpose::Augment] {
            let read = policy("s3://states/of/ours", purpose);
            assert!(read.contains("s3:::states/of/ours/shop.example.com/config"), "{read}");
            assert!(!read.contains("shop.example.com/*"), "{read}");
            assert!(!policy("file:///states", purpose).contains("s3:"));
        }
    }
}
