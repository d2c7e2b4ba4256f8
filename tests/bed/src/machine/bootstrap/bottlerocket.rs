//! Bottlerocket: the user data is a TOML document of settings; values of the wrong type make the
//! boot fail.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use toml::{Table, Value};

use super::{Bootstrap, BootstrapError};

pub(super) fn read(text: &str) -> Result<Bootstrap, BootstrapError> {
    let document: Table =
        text.parse().map_err(|error: toml::de::Error| syntax(error.to_string()))?;
    let empty = Table::new();
    let kubernetes = document
        .get("settings")
        .and_then(|settings| settings.get("kubernetes"))
        .and_then(Value::as_table)
        .unwrap_or(&empty);
    let mut bootstrap = Bootstrap {
        cluster_name: string(kubernetes, "cluster-name")?,
        endpoint: string(kubernetes, "api-server")?,
        certificate_authority: string(kubernetes, "cluster-certificate")?,
        labels: strings(kubernetes, "node-labels")?,
        kube_reserved: strings(kubernetes, "kube-reserved")?,
        system_reserved: strings(kubernetes, "system-reserved")?,
        eviction_hard: strings(kubernetes, "eviction-hard")?,
        ..Bootstrap::default()
    };
    bootstrap.max_pods = match kubernetes.get("max-pods") {
        None => None,
        Some(Value::Integer(pods)) => {
            Some(u32::try_from(*pods).map_err(|_| syntax(format!("max-pods = {pods}")))?)
        }
        Some(other) => {
            return Err(syntax(format!("settings.kubernetes.max-pods: {other} is not an integer")));
        }
    };
    bootstrap.cluster_dns = match kubernetes.get("cluster-dns-ip") {
        None => Vec::new(),
        Some(Value::String(address)) => vec![address.clone()],
        Some(Value::Array(addresses)) => {
            addresses.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(other) => {
            return Err(syntax(format!(
                "settings.kubernetes.cluster-dns-ip: {other} is not an address"
            )));
        }
    };
    bootstrap.taints = taints(kubernetes)?;
    Ok(bootstrap)
}

/// `[settings.kubernetes.node-taints]`: per key a list of `value:Effect`.
fn taints(kubernetes: &Table) -> Result<Vec<Taint>, BootstrapError> {
    let Some(table) = kubernetes.get("node-taints") else { return Ok(Vec::new()) };
    let table = table
        .as_table()
        .ok_or_else(|| syntax("settings.kubernetes.node-taints is not a table".into()))?;
    let mut taints = Vec::new();
    for (key, values) in table {
        let values = values
            .as_array()
            .ok_or_else(|| syntax(format!("node-taints.{key:?} is not a list")))?;
        for value in values {
            let (value, effect) =
                value.as_str().and_then(|text| text.rsplit_once(':')).ok_or_else(|| {
                    syntax(format!("node-taints.{key:?}: {value} is not \"value:Effect\""))
                })?;
            taints.push(Taint {
                key: key.clone(),
                value: (!value.is_empty()).then(|| value.to_owned()),
                effect: effect.to_owned(),
                time_added: None,
            });
        }
    }
    Ok(taints)
}

fn string(table: &Table, key: &str) -> Result<String, BootstrapError> {
    match table.get(key) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(syntax(format!("settings.kubernetes.{key}: {other} is not a string"))),
    }
}

fn strings(table: &Table, key: &str) -> Result<BTreeMap<String, String>, BootstrapError> {
    let Some(value) = table.get(key) else { return Ok(BTreeMap::new()) };
    let value = value
        .as_table()
        .ok_or_else(|| syntax(format!("settings.kubernetes.{key} is not a table")))?;
    value.keys().map(|name| Ok((name.clone(), string(value, name)?))).collect()
}

fn syntax(problem: String) -> BootstrapError {
    BootstrapError::Syntax { program: "Bottlerocket", problem }
}
