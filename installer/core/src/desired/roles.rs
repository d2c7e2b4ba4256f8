//! Roles, ours or somebody else's.

use std::collections::BTreeMap;

use tenon_iam_policies::controller::controller_policies;
use tenon_iam_policies::{Document, Scope, identity, size};

use super::{Role, RoleUse};
use crate::names;
use crate::observe::facts::Facts;
use crate::ownership::Installation;
use crate::settings::Settings;

/// The nodes' role.
pub(super) fn node_role(
    settings: &Settings,
    facts: &Facts,
    scope: &Scope,
    installation: &Installation,
) -> RoleUse {
    if let (Some(name), Some(arn)) = (&settings.node_role_name, &facts.node_role_arn) {
        return RoleUse { arn: arn.clone(), name: name.clone(), spec: None };
    }
    let mut attached = identity::node_managed_policies(scope.partition);
    let mut inline = BTreeMap::new();
    if facts.cluster.ipv6 {
        attached.retain(|arn| !arn.ends_with("/AmazonEKS_CNI_Policy"));
        inline.insert("TenonIPv6CNI".to_owned(), identity::node_ipv6_cni(scope.partition));
    }
    attached.extend(settings.node_extra_policies.iter().cloned());
    role(
        settings,
        scope,
        installation,
        "node",
        identity::node_trust(scope.partition),
        attached,
        inline,
    )
}

/// The operator's role.
pub(super) fn controller_role(
    settings: &Settings,
    scope: &Scope,
    installation: &Installation,
    trust: Document,
) -> Result<RoleUse, size::SizeError> {
    if let Some(arn) = &settings.controller_role_arn {
        let name = arn.rsplit('/').next().unwrap_or(arn).to_owned();
        return Ok(RoleUse { arn: arn.clone(), name, spec: None });
    }
    let policies = controller_policies(scope);
    size::check_inline(policies.iter().map(|policy| &policy.document))?;
    size::check_trust(&trust)?;
    let inline = policies
        .into_iter()
        .map(|policy| (policy.part.name().to_owned(), policy.document))
        .collect();
    Ok(role(settings, scope, installation, "controller", trust, Vec::new(), inline))
}

/// The role under which Fargate runs pods: it pulls images and writes logs.
pub(super) fn fargate_role(
    settings: &Settings,
    scope: &Scope,
    installation: &Installation,
) -> RoleUse {
    let attached = vec![scope.partition.managed_policy(identity::FARGATE_MANAGED_POLICY)];
    let trust = identity::fargate_trust(scope);
    role(settings, scope, installation, "fargate", trust, attached, BTreeMap::new())
}

/// ARN and name that a role of ours has or would have.
pub(super) fn own(settings: &Settings, scope: &Scope, suffix: &str) -> (String, String) {
    let name = names::name(&[&settings.name_prefix, &settings.cluster, suffix], names::ROLE);
    (scope.role_arn(&settings.role_path, &name), name)
}

fn role(
    settings: &Settings,
    scope: &Scope,
    installation: &Installation,
    suffix: &str,
    trust: Document,
    attached: Vec<String>,
    inline: BTreeMap<String, Document>,
) -> RoleUse {
    let (arn, name) = own(settings, scope, suffix);
    let spec = format!(
        "{trust}{attached:?}{}",
        inline.values().map(Document::to_json).collect::<String>()
    );
    let mut tags = installation.tags(&format!("{suffix}-role"), &spec);
    tags.insert(scope.cluster_tag(), "owned".to_owned());
    RoleUse {
        arn,
        name: name.clone(),
        spec: Some(Role {
            name,
            path: settings.role_path.clone(),
            trust,
            attached,
            inline,
            boundary: settings.permissions_boundary.clone(),
            tags,
        }),
    }
}
