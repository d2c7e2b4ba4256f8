//! Flags over the settings file.

use std::path::PathBuf;

use serde_json::Value;
use tenon_installer_core::settings::config::{Config, Deploy, Switch};
use tenon_installer_core::settings::problem::Problem;
use tenon_installer_core::settings::values::merge;
use tenon_installer_core::settings::{Inferred, Settings, SettingsError, Source, document};

use super::settings::DeployArgs;
use super::{GlobalArgs, SettingArgs};

/// The settings of a file, with flags and environment over it. Calls nothing.
pub fn resolve(
    mut source: Source,
    global: &GlobalArgs,
    args: &SettingArgs,
    inferred: &Inferred,
) -> Result<Settings, SettingsError> {
    let (config, problems) = overlay(source.config, global, args);
    source.config = config;
    source.problems.extend(problems);
    source.allow_unknown_region = global.allow_unknown_region;
    if !args.nodepool_files.is_empty() {
        // Those of the command line are found from where it was typed.
        source.directory = PathBuf::new();
    }
    let region = inferred.region.clone().or_else(|| global.default_region.clone());
    Settings::resolve(source, &Inferred { cluster: inferred.cluster.clone(), region })
}

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
    set(&mut config.cluster.account_id, &args.aws.installation.account_id);
    set(&mut config.identity.name_prefix, &args.aws.installation.name_prefix);
    set(&mut config.identity.boundary, &args.aws.permissions_boundary);
    set(&mut config.identity.controller_role_arn, &args.aws.controller_role_arn);
    set(&mut config.nodes.role_name, &args.aws.node_role_name);
    set(&mut config.deploy.namespace, &args.aws.installation.namespace);
    set(&mut config.defaults.ami_alias, &args.ami_alias);
    set(&mut config.identity.role_path, &args.aws.installation.role_path);
    set(&mut config.interruption.kms_key, &args.aws.queue_kms_key);
    config.identity.mode = args.aws.identity.or(config.identity.mode);
    config.nodes.authorization = args.aws.node_authorization.or(config.nodes.authorization);
    config.nodes.instance_profile = args.aws.instance_profile.or(config.nodes.instance_profile);
    config.deploy.host = args.aws.host_on.or(config.deploy.host);
    if args.aws.windows_nodes {
        config.nodes.windows = Some(true);
    }
    if args.aws.install_agent {
        config.identity.install_agent = Some(true);
    }
    if args.aws.no_interruption {
        config.interruption.enabled = Some(false);
    }
    if let Some(discovery) = args.aws.discovery {
        config.network.discovery = Some(discovery);
    }
    if !args.aws.subnets.is_empty() {
        config.network.subnet_ids.clone_from(&args.aws.subnets);
    }
    if !args.aws.security_groups.is_empty() {
        config.network.security_group_ids.clone_from(&args.aws.security_groups);
    }
    if args.aws_only {
        config.deploy.operator = Some(Switch::Skip);
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
    problems.extend(overlay_deploy(&mut config.deploy, &args.deploy));
    for tag in &args.aws.tags {
        match tag.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                config.tags.insert(key.to_owned(), value.to_owned());
            }
            _ => problems.push(Problem::of_flag("--tag", format!("{tag:?} is not KEY=VALUE"))),
        }
    }
    (config, problems)
}

/// The same of what deploys the operator: the image, `--values` files, and then `--set`.
pub fn overlay_deploy(deploy: &mut Deploy, args: &DeployArgs) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (slot, value) in [(&mut deploy.image, &args.image), (&mut deploy.version, &args.image_tag)]
    {
        *slot = value.clone().or(slot.take());
    }
    deploy.replicas = args.replicas.or(deploy.replicas);
    let mut all = Value::Object(std::mem::take(&mut deploy.values));
    for file in &args.values_files {
        let read = std::fs::read_to_string(file).map_err(|error| error.to_string());
        let parsed = read.and_then(|text| {
            serde_saphyr::from_str::<Value>(&text)
                .map_err(|error| document::first_line(&error.to_string()))
        });
        match parsed {
            Ok(Value::Null) => {}
            Ok(values) if values.is_object() => merge(&mut all, &values),
            Ok(_) => {
                problems.push(Problem::in_file(file, None, "", "is not a map of values".into()));
            }
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
        deploy.values = values;
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
    use std::path::Path;

    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::cli::{Cli, Command};

    const MINIMAL: &str = "apiVersion: tenon.sh/v1alpha1\nkind: Installation\ncluster:\n  name: prod\n  region: eu-central-1\n";

    fn resolved(text: &str, arguments: &[&str]) -> Result<Settings, String> {
        let cli =
            Cli::try_parse_from(["tenon", "plan", "--output", "text"].iter().chain(arguments))
                .expect("valid arguments");
        let Command::Plan(args) = &cli.command else { panic!("the command is plan") };
        let mut global = cli.global.clone();
        // The machine's own environment must not matter.
        if !arguments.contains(&"--cluster") {
            global.cluster = None;
        }
        if !arguments.contains(&"--region") {
            global.region = None;
            global.default_region = None;
        }
        let source = Source::parse(Path::new("tenon.yaml"), text);
        resolve(source, &global, &args.settings, &Inferred::default()).map_err(|error| {
            error.problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
        })
    }

    #[test]
    fn a_flag_wins_over_the_file_and_defaults_fill_the_rest() {
        let settings = resolved(
            MINIMAL,
            &["--cluster", "test", "--replicas", "1", "--no-interruption", "--tag", "team=x"],
        )
        .expect("valid");
        assert_eq!(settings.cluster, "test");
        assert_eq!(settings.region, "eu-central-1");
        assert_eq!(settings.values.replicas, 1);
        assert_eq!(settings.role_path, "/tenon/test/");
        assert_eq!(settings.queue_name, None);
        assert!(settings.events.is_empty());
        assert_eq!(settings.tags["team"], "x");
    }

    #[test]
    fn flags_are_checked_like_the_file() {
        let error = resolved(MINIMAL, &["--region", "nowhere", "--tag", "novalue"])
            .expect_err("wrong flags");
        insta::assert_snapshot!(error, @r#"
        --tag: "novalue" is not KEY=VALUE
        cluster.region: "nowhere" is not allowed; allowed: a region such as eu-central-1
        "#);
    }

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
