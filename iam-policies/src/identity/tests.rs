use super::*;
use crate::scope::Features;
use crate::size::check_trust;

fn scope() -> Scope {
    Scope {
        partition: Partition::Aws,
        region: "eu-central-1".into(),
        account: "123456789012".into(),
        cluster: "c".into(),
        queue: None,
        node_roles: Vec::new(),
        features: Features::default(),
    }
}

fn account() -> ServiceAccount {
    ServiceAccount { namespace: "kube-system".into(), name: "karpenter".into() }
}

#[test]
fn in_china_nodes_are_trusted_under_both_names_of_ec2() {
    assert_eq!(
        node_trust(Partition::AwsCn).to_json(),
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":["ec2.amazonaws.com","ec2.amazonaws.com.cn"]},"Action":"sts:AssumeRole"}]}"#
    );
}

#[test]
fn managed_policies_are_those_of_the_partition() {
    assert!(
        node_managed_policies(Partition::AwsUsGov)
            .contains(&"arn:aws-us-gov:iam::aws:policy/AmazonEKSWorkerNodePolicy".to_owned())
    );
}

#[test]
fn irsa_trusts_one_service_account_of_one_issuer_with_or_without_scheme() {
    let with =
        irsa_trust(&scope(), "https://oidc.eks.eu-central-1.amazonaws.com/id/ABC", &account());
    let without = irsa_trust(&scope(), "oidc.eks.eu-central-1.amazonaws.com/id/ABC", &account());
    assert_eq!(with, without);
    let conditions = &with.statements[0].conditions["StringEquals"];
    assert_eq!(
        conditions["oidc.eks.eu-central-1.amazonaws.com/id/ABC:sub"],
        ["system:serviceaccount:kube-system:karpenter"]
    );
    assert_eq!(conditions["oidc.eks.eu-central-1.amazonaws.com/id/ABC:aud"], ["sts.amazonaws.com"]);
}

#[test]
fn trust_policies_fit_for_the_longest_names() {
    let scope = Scope { cluster: "x".repeat(100), ..scope() };
    let account = ServiceAccount { namespace: "n".repeat(63), name: "s".repeat(253) };
    check_trust(&pod_identity_trust(&scope, &account)).unwrap();
    check_trust(&irsa_trust(
        &scope,
        &format!("https://oidc.eks.eu-central-1.amazonaws.com/id/{}", "A".repeat(32)),
        &account,
    ))
    .unwrap();
}
