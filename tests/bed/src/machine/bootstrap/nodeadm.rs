//! Amazon Linux 2023: nodeadm merges every NodeConfig document of the user data, later ones over
//! earlier ones.

use k8s_openapi::api::core::v1::Taint;
use serde_json::Value;

use super::{Bootstrap, BootstrapError, mime, read_labels};

const API_VERSION: &str = "node.eks.aws/v1alpha1";

pub(super) fn read(text: &str) -> Result<Bootstrap, BootstrapError> {
    let mut config = Value::Null;
    match mime::parts(text)? {
        Some(parts) => {
            for part in parts.iter().filter(|part| part.content_type == "application/node.eks.aws")
            {
                merge(&mut config, document(&part.body)?);
            }
        }
        None => config = document(text)?,
    }
    if config.is_null() {
        return Err(BootstrapError::Missing("a NodeConfig"));
    }
    bootstrap(&config)
}

fn document(text: &str) -> Result<Value, BootstrapError> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| syntax(error.to_string()))?;
    let (version, kind) = (value["apiVersion"].as_str(), value["kind"].as_str());
    if (version, kind) != (Some(API_VERSION), Some("NodeConfig")) {
        return Err(syntax(format!(
            "expected apiVersion {API_VERSION}, kind NodeConfig, found {version:?}, {kind:?}"
        )));
    }
    Ok(value)
}

/// Objects key by key; anything else is replaced, except that kubelet flags are appended.
fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                match base.get_mut(&key) {
                    Some(Value::Array(flags)) if key == "flags" => {
                        if let Value::Array(more) = value {
                            flags.extend(more);
                        }
                    }
                    Some(present) => merge(present, value),
                    None => {
                        base.insert(key, value);
                    }
                }
            }
        }
        (base, over) => *base = over,
    }
}

fn bootstrap(config: &Value) -> Result<Bootstrap, BootstrapError> {
    let cluster = &config["spec"]["cluster"];
    let kubelet = &config["spec"]["kubelet"];
    let settings = &kubelet["config"];
    let mut labels = std::collections::BTreeMap::new();
    for flag in kubelet["flags"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if let Some(value) = flag.strip_prefix("--node-labels=") {
            labels.extend(read_labels(value));
        }
    }
    let max_pods = match &settings["maxPods"] {
        Value::Null => None,
        value => Some(
            value
                .as_u64()
                .and_then(|pods| u32::try_from(pods).ok())
                .ok_or_else(|| syntax(format!("kubelet.config.maxPods: {value} is not a count")))?,
        ),
    };
    let taints: Vec<Taint> = match &settings["registerWithTaints"] {
        Value::Null => Vec::new(),
        value => serde_json::from_value(value.clone())
            .map_err(|error| syntax(format!("kubelet.config.registerWithTaints: {error}")))?,
    };
    // nodeadm refuses a NodeConfig without the service CIDR, which it needs to know the address of
    // the cluster's DNS.
    if text(&cluster["cidr"]).is_empty() {
        return Err(BootstrapError::Missing("the cluster's service CIDR"));
    }
    Ok(Bootstrap {
        cluster_name: text(&cluster["name"]),
        endpoint: text(&cluster["apiServerEndpoint"]),
        certificate_authority: text(&cluster["certificateAuthority"]),
        labels,
        taints,
        max_pods,
        cluster_dns: settings["clusterDNS"].as_array().into_iter().flatten().map(text).collect(),
        kube_reserved: pairs(&settings["kubeReserved"]),
        system_reserved: pairs(&settings["systemReserved"]),
        eviction_hard: pairs(&settings["evictionHard"]),
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn pairs(value: &Value) -> std::collections::BTreeMap<String, String> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

fn syntax(problem: String) -> BootstrapError {
    BootstrapError::Syntax { program: "nodeadm", problem }
}
