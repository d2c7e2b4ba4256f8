//! Flags over the settings file.

use serde_json::Value;

use super::config::Config;
use super::document;
use super::problem::Problem;
use crate::cli::{GlobalArgs, SettingArgs};
use crate::kubernetes::values::merge;

/// Overlays the file with the flags. Flags that are not given change nothing.
pub fn overlay(
    mut config: Config,
    global: &GlobalArgs,
    args: &SettingArgs,
) -> (Config, Vec<Problem>) {
    let mut problems = Vec::new();
    let set = |slot: &mut Option<String>, value: &Option<String>| {
        if let Some(value) = value {
            *slot = Some(value.clone());
        }
    };
    set(&mut config.cluster.name, &global.cluster);
    set(&mut config.cluster.region, &global.region);
    set(&mut config.cluster.account_id, &args.account_id);
    set(&mut config.identity.name_prefix, &args.name_prefix);
    set(&mut config.identity.boundary, &args.permissions_boundary);
    set(&mut config.identity.controller_role_arn, &args.controller_role_arn);
    set(&mut config.nodes.role_name, &args.node_role_name);
    set(&mut config.deploy.namespace, &args.namespace);
    set(&mut config.deploy.image, &args.image);
    set(&mut config.deploy.version, &args.image_tag);
    set(&mut config.defaults.ami_alias, &args.ami_alias);
    set(&mut config.identity.role_path, &args.role_path);
    set(&mut config.interruption.kms_key, &args.queue_kms_key);
    config.identity.mode = args.identity.or(config.identity.mode);
    config.nodes.authorization = args.node_authorization.or(config.nodes.authorization);
    config.nodes.instance_profile = args.instance_profile.or(config.nodes.instance_profile);
    config.deploy.host = args.host_on.or(config.deploy.host);
    if args.install_agent {
        config.identity.install_agent = Some(true);
    }
    if args.no_interruption {
        config.interruption.enabled = Some(false);
    }
    if let Some(discovery) = args.discovery {
        config.network.discovery = Some(discovery);
    }
    if !args.subnets.is_empty() {
        config.network.subnet_ids.clone_from(&args.subnets);
    }
    if !args.security_groups.is_empty() {
        config.network.security_group_ids.clone_from(&args.security_groups);
    }
    if let Some(replicas) = args.replicas {
        config.deploy.replicas = Some(replicas);
    }
    if args.no_defaults {
        config.defaults.enabled = Some(false);
    }
    if !args.capacity.is_empty() {
        config.defaults.capacity_types.clone_from(&args.capacity);
    }
    if !args.arch.is_empty() {
        config.defaults.arch.clone_from(&args.arch);
    }
    if let Some(cores) = args.cpu_limit {
        config.defaults.cpu_limit = Some(cores);
    }
    if !args.nodepool_files.is_empty() {
        config.defaults.manifests.clone_from(&args.nodepool_files);
    }
    problems.extend(merge_values(&mut config, args));
    for tag in &args.tags {
        match tag.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                config.tags.insert(key.to_owned(), value.to_owned());
            }
            _ => problems.push(Problem::of_flag("--tag", format!("{tag:?} is not KEY=VALUE"))),
        }
    }
    (config, problems)
}

/// Lays `--values` files and then `--set` over the file's values.
fn merge_values(config: &mut Config, args: &SettingArgs) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut all = Value::Object(std::mem::take(&mut config.deploy.values));
    for file in &args.values_files {
        let read = std::fs::read_to_string(file).map_err(|error| error.to_string());
        let parsed = read.and_then(|text| {
            serde_saphyr::from_str::<Value>(&text)
                .map_err(|error| document::first_line(&error.to_string()))
        });
        match parsed {
            Ok(Value::Null) => {}
            Ok(values) if values.is_object() => merge(&mut all, &values),
            Ok(_) => problems.push(Problem::in_file(file, None, "", "is no map of values".into())),
            Err(why) => problems.push(Problem::in_file(file, None, "", why)),
        }
    }
    for text in &args.set {
        match parse_set(text) {
            Some(values) => merge(&mut all, &values),
            None => {
                problems.push(Problem::of_flag("--set", format!("{text:?} is not path=value")));
            }
        }
    }
    if let Value::Object(values) = all {
        config.deploy.values = values;
    }
    problems
}

/// `a.b=value` as a map; the value is YAML, and `\.` is a dot in a key.
fn parse_set(text: &str) -> Option<Value> {
    let (path, value) = text.split_once('=')?;
    let value = match value {
        "" => Value::String(String::new()),
        value => serde_saphyr::from_str(value).ok()?,
    };
    let path = path.replace("\\.", "\0");
    path.split('.').rev().try_fold(value, |value, key| {
        let key = key.replace('\0', ".");
        (!key.is_empty()).then(|| serde_json::json!({key: value}))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_value_is_yaml_under_a_path() {
        assert_eq!(parse_set("replicas=1"), Some(json!({"replicas": 1})));
        assert_eq!(parse_set("a.b=[x]"), Some(json!({"a": {"b": ["x"]}})));
        assert_eq!(
            parse_set(r"podLabels.a\.b/c=x=y"),
            Some(json!({"podLabels": {"a.b/c": "x=y"}}))
        );
        assert_eq!(parse_set("logLevel="), Some(json!({"logLevel": ""})));
        assert_eq!(parse_set("replicas"), None);
        assert_eq!(parse_set("a..b=1"), None);
    }
}
