//! The settings that follow from what Karpenter uses: its role, its nodes' role, its queue and its
//! options, all of them used and never changed; and what of it can't be carried over, with what to
//! do about that.

use serde_json::{Value, json};
use tenon_installer_core::settings::config::{
    Authorization, Config, Discovery, IdentityMode, Switch,
};
use tenon_installer_core::settings::values::merge;

use super::carried::Carried;
use super::{Karpenter, NAME, pods, variables};

/// Lays what was found over settings. What they say of image, version and tags stays.
pub(crate) fn adopted(mut config: Config, found: &Karpenter) -> Config {
    let operator = &found.operator;
    config.identity.controller_role_arn = Some(found.role.1.arn.clone());
    config.identity.mode = Some(match found.association {
        Some(_) => IdentityMode::PodIdentity,
        None => IdentityMode::Irsa,
    });
    config.nodes.role_name = found.node_roles.keys().next().cloned();
    config.nodes.authorization = Some(if found.has_access_entry {
        Authorization::AccessEntry
    } else {
        Authorization::AwsAuth
    });
    config.nodes.spot_role = Some(Switch::Skip);
    config.interruption.enabled = Some(found.queue.is_some());
    config.interruption.queue_name = found.queue.as_ref().map(|(name, _)| name.clone());
    config.interruption.manage = Some(Switch::Skip);
    config.network.discovery = Some(Discovery::Ids);
    config.deploy.namespace = Some(operator.service_account.namespace.clone());
    config.deploy.crds = Some(Switch::Skip);
    config.deploy.replicas = i32::try_from(operator.replicas).ok().filter(|n| (1..=10).contains(n));
    config.defaults.enabled = Some(false);
    let mut values = carried(found).values;
    let mut given = Value::Object(std::mem::take(&mut config.deploy.values));
    pods::join_lists(&values, &mut given);
    merge(&mut values, &given);
    if let Value::Object(values) = values {
        config.deploy.values = values;
    }
    config
}

/// What of Karpenter's Deployment becomes a value of the chart, and what does not.
pub(crate) fn carried(found: &Karpenter) -> Carried {
    let mut carried = Carried {
        values: json!({
            "fullnameOverride": NAME,
            "serviceAccount": {"create": false, "name": found.operator.service_account.name},
            "podDisruptionBudget": {"name": NAME},
        }),
        told: Vec::new(),
    };
    variables::carry(found, &mut carried);
    pods::carry(found, &mut carried);
    carried
}
