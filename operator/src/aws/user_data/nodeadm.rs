//! Amazon Linux 2023: a MIME archive with a NodeConfig for nodeadm.

use serde_json::{Map, Value, json};

use super::mime::{self, Part};
use super::{Bootstrap, UserDataError, go_duration, node_labels_flag, yaml};

const NODE_CONFIG: &str = "application/node.eks.aws";

pub(super) fn render(bootstrap: &Bootstrap) -> Result<String, UserDataError> {
    let mut parts = custom_parts(bootstrap.custom.as_deref())?;
    // The last part wins when nodeadm merges.
    parts.push(Part::new(NODE_CONFIG, node_config(bootstrap)?));
    Ok(mime::write(&parts))
}

fn custom_parts(custom: Option<&str>) -> Result<Vec<Part>, UserDataError> {
    let Some(custom) = custom.filter(|custom| !custom.is_empty()) else { return Ok(Vec::new()) };
    if mime::is_archive(custom) {
        let parts = mime::read(custom)?;
        return Ok(parts.into_iter().map(Part::with_content_type_only).collect());
    }
    // `echo "a: b"` reads as a YAML map. Upstream ships such a script as NodeConfig, and the
    // machine never joins; what says that it is a script is one.
    if custom.trim_start().starts_with("#!") {
        return Ok(vec![Part::new(mime::SHELL, custom)]);
    }
    // A text of nothing but comments reads as an empty document, and is shipped as NodeConfig, as
    // upstream does.
    let content_type = match serde_saphyr::from_str::<Value>(custom) {
        Ok(Value::Object(_) | Value::Null) => NODE_CONFIG,
        _ => mime::SHELL,
    };
    Ok(vec![Part::new(content_type, custom)])
}

fn node_config(bootstrap: &Bootstrap) -> Result<String, UserDataError> {
    let Bootstrap {
        cluster,
        labels,
        taints: _,
        kubelet: _,
        raid0,
        names_local_storage_dirs: _,
        custom: _,
    } = bootstrap;
    let cidr = cluster.service_cidr.as_deref().ok_or(UserDataError::NoServiceCidr)?;
    let mut cluster_section = json!({
        "apiServerEndpoint": cluster.endpoint,
        "cidr": cidr,
        "name": cluster.name,
    });
    if let Some(ca) = &cluster.ca_bundle {
        cluster_section["certificateAuthority"] = json!(ca);
    }
    let mut kubelet_section = json!({ "config": kubelet_config(bootstrap) });
    if let Some(flag) = node_labels_flag(labels) {
        kubelet_section["flags"] = json!([flag]);
    }
    let local_storage = if *raid0 { json!({ "strategy": "RAID0" }) } else { json!({}) };
    let config = json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": cluster_section,
            "containerd": {},
            "instance": { "localStorage": local_storage },
            "kubelet": kubelet_section,
        },
    });
    Ok(format!("# Karpenter Generated NodeConfig\n{}", yaml::write(&config)))
}

fn kubelet_config(bootstrap: &Bootstrap) -> Value {
    let kubelet = &bootstrap.kubelet;
    let mut config = match serde_json::to_value(kubelet) {
        Ok(Value::Object(config)) => config,
        _ => Map::new(),
    };
    // Durations in Go's own notation, as the kubelet's reader wants them.
    if let Some(periods) = &kubelet.eviction_soft_grace_period {
        let periods: Map<String, Value> = periods
            .iter()
            .map(|(signal, period)| (signal.clone(), go_duration(period).into()))
            .collect();
        config.insert("evictionSoftGracePeriod".to_owned(), periods.into());
    }
    if !bootstrap.taints.is_empty() {
        let taints: Vec<Value> = bootstrap
            .taints
            .iter()
            .map(|taint| {
                let mut entry = json!({ "effect": taint.effect.as_str(), "key": taint.key });
                if !taint.value().is_empty() {
                    entry["value"] = taint.value().into();
                }
                entry
            })
            .collect();
        config.insert("registerWithTaints".to_owned(), taints.into());
    }
    config.into()
}
