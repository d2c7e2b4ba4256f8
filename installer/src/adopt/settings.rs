//! The settings that follow from what Karpenter uses: its role, its nodes' role, its queue and its options, all of them used and never changed.

use serde_json::{Map, Value, json};

use super::{Found, NAME};
use crate::settings::config::{Authorization, Config, Discovery, IdentityMode, Switch};

/// Options of Karpenter's that keep their meaning: variable, key below `settings` of the chart's values.
const OPTIONS: [(&str, &str); 17] = [
    ("BATCH_MAX_DURATION", "batchMaxDuration"),
    ("BATCH_IDLE_DURATION", "batchIdleDuration"),
    ("PREFERENCE_POLICY", "preferencePolicy"),
    ("MIN_VALUES_POLICY", "minValuesPolicy"),
    ("SCHEDULER_CONFIG", "schedulerConfig"),
    ("CLUSTER_CA_BUNDLE", "clusterCABundle"),
    ("CLUSTER_ENDPOINT", "clusterEndpoint"),
    ("RESERVED_ENIS", "reservedENIs"),
    ("AMI_REFRESH_INTERVAL", "amiRefreshInterval"),
    ("SUBNET_REFRESH_INTERVAL", "subnetRefreshInterval"),
    ("VM_MEMORY_OVERHEAD_PERCENT", "vmMemoryOverheadPercent"),
    ("ISOLATED_VPC", "isolatedVPC"),
    ("EKS_CONTROL_PLANE", "eksControlPlane"),
    ("ENABLE_ZONAL_SHIFT", "enableZonalShift"),
    ("IGNORE_DRA_REQUESTS", "ignoreDRARequests"),
    ("DISABLE_CLUSTER_STATE_OBSERVABILITY", "disableClusterStateObservability"),
    ("DISABLE_DRY_RUN", "disableDryRun"),
];

/// Lays what was found over settings. What they say of image, version and tags stays.
pub fn adopted(mut config: Config, found: &Found) -> Config {
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
    let mut values = json!({
        "fullnameOverride": NAME,
        "serviceAccount": {"create": false, "name": operator.service_account.name},
        "podDisruptionBudget": {"name": NAME},
    });
    let settings = options(found);
    if !settings.is_empty() {
        values["settings"] = Value::Object(settings);
    }
    if let Some(level) = operator.env.get("LOG_LEVEL").filter(|level| !level.is_empty()) {
        values["logLevel"] = level.as_str().into();
    }
    let pod = &operator.live.body["spec"]["template"]["spec"];
    for key in ["nodeSelector", "tolerations", "priorityClassName", "dnsPolicy", "hostNetwork"] {
        if !pod[key].is_null() {
            values[key] = pod[key].clone();
        }
    }
    let mut given = Value::Object(std::mem::take(&mut config.deploy.values));
    crate::kubernetes::values::merge(&mut values, &given.take());
    if let Value::Object(values) = values {
        config.deploy.values = values;
    }
    config
}

/// Karpenter's options, under the keys of the chart's `settings`.
fn options(found: &Found) -> Map<String, Value> {
    let env = &found.operator.env;
    let mut settings = Map::new();
    for (variable, key) in OPTIONS {
        let Some(text) = env.get(variable).filter(|text| !text.is_empty()) else { continue };
        let value = match (text.as_str(), key) {
            ("true", _) => true.into(),
            ("false", _) => false.into(),
            (text, "vmMemoryOverheadPercent") => match text.parse::<f64>() {
                Ok(number) => number.into(),
                Err(_) => continue,
            },
            (text, _) => text.into(),
        };
        settings.insert(key.to_owned(), value);
    }
    let gates = env.get("FEATURE_GATES").map(|text| gates(text)).unwrap_or_default();
    if !gates.is_empty() {
        settings.insert("featureGates".to_owned(), Value::Object(gates));
    }
    settings
}

/// `ReservedCapacity=true,…` as the chart's values have it. Gates that Tenon does not have are left out.
fn gates(text: &str) -> Map<String, Value> {
    let known = crate::kubernetes::values::FeatureGates::default();
    let known = serde_json::to_value(known).unwrap_or_default();
    let gates = text.split(',').filter_map(|gate| {
        let (name, value) = gate.trim().split_once('=')?;
        let mut letters = name.chars();
        let first = letters.next()?.to_ascii_lowercase();
        let key = std::iter::once(first).chain(letters).collect::<String>();
        let value = value.parse::<bool>().ok()?;
        known.get(&key).is_some().then(|| (key, value.into()))
    });
    gates.collect()
}
