//! Whether the cluster is fit for what was asked, and what "by default" means on it.

use crate::observe::facts::Facts;
use crate::settings::Settings;
use crate::settings::config::{Authorization, Host, IdentityMode};

/// How the operator's pods get their role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mechanism {
    /// EKS Pod Identity.
    PodIdentity,
    /// IAM roles for service accounts.
    Irsa,
}

/// Pod Identity, unless something else is asked for or the pods run where there is none.
pub(super) fn mechanism(settings: &Settings) -> Mechanism {
    match (settings.identity, settings.host) {
        (IdentityMode::PodIdentity, _) | (IdentityMode::Auto, Host::Nodes) => {
            Mechanism::PodIdentity
        }
        (IdentityMode::Irsa, _) | (IdentityMode::Auto, Host::Fargate) => Mechanism::Irsa,
    }
}

/// Whether the operator's pods get their role by EKS Pod Identity; otherwise by IRSA.
pub fn by_pod_identity(settings: &Settings) -> bool {
    mechanism(settings) == Mechanism::PodIdentity
}

/// Whether nodes are let in by the ConfigMap `aws-auth`: only where it is asked for, or where
/// nothing else is known.
pub(super) fn by_aws_auth(settings: &Settings, facts: &Facts) -> bool {
    match settings.authorization {
        Authorization::AwsAuth => true,
        Authorization::AccessEntry => false,
        Authorization::Auto => facts.cluster.authentication_mode == "CONFIG_MAP",
    }
}

/// Every reason why the cluster is not fit.
pub(super) fn unfit(settings: &Settings, facts: &Facts) -> Vec<String> {
    let cluster = &facts.cluster;
    let mut reasons = Vec::new();
    if let Some(account) =
        settings.account_id.as_ref().filter(|account| **account != facts.caller.account)
    {
        reasons.push(format!("the credentials belong to account {}, and cluster.accountId is {account}: use other credentials", facts.caller.account));
    }
    if cluster.status != "ACTIVE" && cluster.status != "UPDATING" {
        reasons.push(format!("the cluster is {}: wait until it is ACTIVE", cluster.status));
    }
    if cluster.authentication_mode == "CONFIG_MAP"
        && settings.authorization == Authorization::AccessEntry
    {
        reasons.push(format!(
            "the cluster does not support access entries: set nodes.authorization to aws-auth, or \
             run `aws eks update-cluster-config --region {} --name {} --access-config \
             authenticationMode=API_AND_CONFIG_MAP` (irreversible)",
            cluster.region, cluster.name
        ));
    }
    if cluster.authentication_mode == "API" && settings.authorization == Authorization::AwsAuth {
        reasons.push(
            "the cluster does not read aws-auth: set nodes.authorization to access-entry"
                .to_owned(),
        );
    }
    if settings.host == Host::Fargate && settings.identity == IdentityMode::PodIdentity {
        reasons.push(
            "Pod Identity is not available on Fargate: set identity.mode to irsa, or omit it"
                .to_owned(),
        );
    }
    if cluster.oidc_issuer.is_none() && mechanism(settings) == Mechanism::Irsa {
        reasons.push("EKS reports no OIDC issuer for the cluster: use Pod Identity".to_owned());
    }
    if let Some(name) = settings.node_role_name.as_ref().filter(|_| facts.node_role_arn.is_none()) {
        reasons.push(format!(
            "there is no role {name}: correct nodes.roleName, or omit it to create a role"
        ));
    }
    if subnets(settings, facts).is_empty() {
        reasons.push("EKS reports no subnets for the cluster: set network.subnetIds".to_owned());
    }
    if security_groups(settings, facts).is_empty() {
        reasons.push(
            "the cluster has no security group of its own: set network.securityGroupIds".to_owned(),
        );
    }
    reasons
}

/// The subnets for nodes.
pub(super) fn subnets(settings: &Settings, facts: &Facts) -> Vec<String> {
    if settings.subnet_ids.is_empty() {
        facts.cluster.subnet_ids.clone()
    } else {
        settings.subnet_ids.clone()
    }
}

/// The security groups for nodes.
pub(super) fn security_groups(settings: &Settings, facts: &Facts) -> Vec<String> {
    if settings.security_group_ids.is_empty() {
        facts.cluster.security_group.clone().into_iter().collect()
    } else {
        settings.security_group_ids.clone()
    }
}
