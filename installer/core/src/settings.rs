//! What was asked for: resolved from flags, environment, the settings file and what can be inferred
//! without calling anything.
//!
//! Precedence: flag, environment, file, inferred from the kubeconfig, default. All problems are
//! reported at once.

pub mod config;
pub mod document;
pub mod problem;
pub mod region;
pub mod renamed;
pub mod schema;
mod syntax;
pub mod values;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::files::FileError;
use crate::names;
use crate::ownership::Tags;
use crate::settings::values::{Refused, Values};
use crate::words::{count, without_types};
use config::{
    Architecture, Authorization, CapacityType, Config, Discovery, Event, Host, IdentityMode,
    ProfileMode, Switch,
};
use document::{Document, Node};
use problem::Problem;

/// Everything that was asked for, complete and checked.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own in the file")]
pub struct Settings {
    /// Name of the cluster.
    pub cluster: String,
    /// AWS region of the cluster.
    pub region: String,
    /// The only account to work in.
    pub account_id: Option<String>,
    /// First part of names in AWS.
    pub name_prefix: String,
    /// Path of the roles, with slashes at both ends.
    pub role_path: String,
    /// Boundary of the roles.
    pub permissions_boundary: Option<String>,
    /// How the operator's pods get their role.
    pub identity: IdentityMode,
    /// Install the Pod Identity agent if it is missing.
    pub install_agent: bool,
    /// Somebody else's role for the operator: used, never changed.
    pub controller_role_arn: Option<String>,
    /// Somebody else's role for nodes: used, never changed.
    pub node_role_name: Option<String>,
    /// More managed policies for the node role (ARNs).
    pub node_extra_policies: Vec<String>,
    /// How nodes are let into the cluster.
    pub authorization: Authorization,
    /// Nodes may run Windows.
    pub windows_nodes: bool,
    /// Who makes instance profiles.
    pub instance_profile: ProfileMode,
    /// Make the service-linked role of EC2 Spot when it is needed and missing.
    pub spot_role: bool,
    /// Where the operator runs.
    pub host: Host,
    /// Rules to make; empty without interruption handling.
    pub events: Vec<Event>,
    /// Whether queue and rules are ours to make.
    pub manage_queue: bool,
    /// Name of the queue, if handling interruptions.
    pub queue_name: Option<String>,
    /// ARN of the key that encrypts the queue, if it is the user's.
    pub queue_key: Option<String>,
    /// How NodeClasses find subnets and security groups.
    pub discovery: Discovery,
    /// Subnets; empty: those of the cluster.
    pub subnet_ids: Vec<String>,
    /// Security groups; empty: the cluster's own.
    pub security_group_ids: Vec<String>,
    /// Namespace of the operator.
    pub namespace: String,
    /// Whether the operator, its CRDs and NodePools are ours to write; if not, only what is in AWS
    /// is.
    pub manage_operator: bool,
    /// Whether CRDs are ours to write.
    pub manage_crds: bool,
    /// Whether Helm is to know the installation for a release.
    pub helm_record: bool,
    /// Values of the operator's objects, as in the Helm chart, without what the installer fills in.
    pub values: Values,
    /// Default NodePool and EC2NodeClass.
    pub defaults: Defaults,
    /// Tags of the user.
    pub tags: Tags,
    /// The installation refuses to be removed.
    pub prevent_uninstall: bool,
    /// The configuration that says the same: what the installation records.
    pub config: Config,
}

/// Which NodePools and EC2NodeClasses come with the installation.
#[derive(Debug, Clone, PartialEq)]
pub enum Defaults {
    /// None.
    None,
    /// One pair named `default`.
    Pair(DefaultPair),
    /// What these files hold.
    Manifests(Vec<Manifest>),
}

impl Defaults {
    /// Whether spot instances may come of these NodePools. A pool that does not say launches on
    /// demand only.
    pub(crate) fn may_use_spot(&self) -> bool {
        match self {
            Self::None => false,
            Self::Pair(pair) => pair.capacity_types.contains(&CapacityType::Spot),
            Self::Manifests(manifests) => {
                manifests.iter().any(|manifest| names_spot(&manifest.body))
            }
        }
    }
}

fn names_spot(pool: &Value) -> bool {
    let requirements = pool.pointer("/spec/template/spec/requirements").and_then(Value::as_array);
    requirements.into_iter().flatten().any(|requirement| {
        requirement["key"] == "karpenter.sh/capacity-type"
            && requirement["values"].as_array().is_some_and(|all| all.iter().any(|v| v == "spot"))
    })
}

/// The pair named `default`.
#[derive(Debug, Clone, PartialEq)]
pub struct DefaultPair {
    /// Capacity types, at least one.
    pub capacity_types: Vec<CapacityType>,
    /// Architectures, at least one.
    pub architectures: Vec<Architecture>,
    /// Cores.
    pub cpu_limit: u32,
    /// AMI alias.
    pub ami_alias: String,
}

/// A NodePool or EC2NodeClass out of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Where it came from.
    pub file: PathBuf,
    /// The object.
    pub body: Value,
}

/// What can be asked of the user's machine without calling anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inferred {
    /// Cluster of the kubeconfig's context.
    pub cluster: Option<String>,
    /// Region of that cluster, from the context's or the cluster's name.
    pub region: Option<String>,
}

/// A settings file as it was read: the configuration, and where in the file each part is.
#[derive(Debug, Default)]
pub struct Source {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Where things are in it.
    pub document: Option<Document>,
    /// Where files are found that it names.
    pub directory: PathBuf,
    /// What it says, without what is wrong in it.
    pub config: Config,
    /// What is wrong in it. Kept until everything else is checked, so that all problems are
    /// reported at once.
    pub problems: Vec<Problem>,
    /// The cluster may be in a region that this version does not know.
    pub allow_unknown_region: bool,
}

impl Source {
    /// Reads a settings file.
    pub fn read(file: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(file).map_err(FileError::reading(file))?;
        Ok(Self::parse(file, &text))
    }

    /// Reads the text of a settings file.
    pub fn parse(file: &Path, text: &str) -> Self {
        let directory = file.parent().map(Path::to_owned).unwrap_or_default();
        let document = match Document::parse(text) {
            Ok(document) => document,
            Err(error) => {
                let problems = vec![Problem::in_file(file, error.line, "", error.message)];
                let file = Some(file.to_owned());
                return Self { file, directory, problems, ..Self::default() };
            }
        };
        if matches!(document.node, Node::Scalar(_) | Node::List(_)) {
            let what = match document.node {
                Node::Scalar(Value::Null) => "is empty",
                _ => "is not a settings file",
            };
            let message = format!(
                "{what}; a settings file begins with apiVersion: tenon.sh/v1alpha1 and kind: \
                 Installation, and `tenon config init` prints one"
            );
            let problems = vec![Problem::in_file(file, None, "", message)];
            return Self { file: Some(file.to_owned()), directory, problems, ..Self::default() };
        }
        let mut problems = schema::check(&Config::json_schema(), &document, file);
        let mut json =
            document.to_json_without(&|path| problems.iter().any(|problem| problem.path == path));
        // Said to be missing already; the rest can still be checked.
        if let Some(json) = json.as_object_mut() {
            json.entry("apiVersion").or_insert_with(|| "tenon.sh/v1alpha1".into());
            json.entry("kind").or_insert_with(|| "Installation".into());
        }
        let config = match serde_json::from_value::<Config>(json) {
            Ok(config) => config,
            Err(error) => {
                let message = without_types(&error.to_string());
                problems.push(Problem::in_file(file, None, "", message));
                Config::default()
            }
        };
        let judged = config.check().into_iter();
        problems.extend(judged.map(|(path, message)| {
            Problem::in_file(file, document.line_of(&path), &path, message)
        }));
        problems.sort_by_key(|problem| problem.line.unwrap_or(0));
        let file = Some(file.to_owned());
        Self { file, document: Some(document), directory, config, problems, ..Self::default() }
    }

    /// A configuration that doesn't come from a file, such as an installation's record.
    pub fn recorded(config: Config) -> Self {
        Self { config, ..Self::default() }
    }
}

/// The settings have problems; all of them.
#[derive(Debug, thiserror::Error)]
#[error("the settings have {n}", n = count(problems.len(), "problem"))]
pub struct SettingsError {
    /// What is wrong, in the order of the file.
    pub problems: Vec<Problem>,
}

impl Settings {
    /// Resolves everything, or says all that is wrong or missing. Calls nothing.
    pub fn resolve(source: Source, inferred: &Inferred) -> Result<Self, SettingsError> {
        let Source { mut config, mut problems, allow_unknown_region, .. } = source;
        if source.file.is_some() && source.document.is_none() {
            // Of what the file says nothing is known, so nothing can be missing in it.
            return Err(SettingsError { problems });
        }
        // What the file says was judged with its lines; what is new here came from a flag or a
        // variable.
        let judged =
            config.check().into_iter().map(|(path, message)| Problem::of_value(&path, message));
        for problem in judged {
            if !problems
                .iter()
                .any(|known| known.path == problem.path && known.message == problem.message)
            {
                problems.push(problem);
            }
        }
        for problem in schema::check_value(&Config::json_schema(), config.to_json()) {
            if !problems.iter().any(|known| known.path == problem.path) {
                problems.push(problem);
            }
        }
        config.cluster.name = config.cluster.name.or_else(|| inferred.cluster.clone());
        config.cluster.region = config.cluster.region.or_else(|| inferred.region.clone());
        let mut required = |value: &Option<String>, path: &str, how: &str| {
            let value = value.clone().filter(|value| !value.is_empty());
            if value.is_none() && !problems.iter().any(|problem| problem.path == path) {
                let message = format!("missing: set it in the settings file, or use {how}");
                problems.push(match &source.file {
                    Some(file) => Problem::in_file(
                        file,
                        source.document.as_ref().and_then(|d| d.line_of(path)),
                        path,
                        message,
                    ),
                    None => Problem::of_value(path, message),
                });
            }
            value
        };
        let cluster = required(&config.cluster.name, "cluster.name", "--cluster or TENON_CLUSTER");
        let region = required(&config.cluster.region, "cluster.region", "--region or AWS_REGION");
        if let Some(message) =
            region.as_deref().and_then(|region| region::problem(region, allow_unknown_region))
            && !problems.iter().any(|problem| problem.path == "cluster.region")
        {
            let region = region.as_deref().unwrap_or_default();
            problems.push(Problem::of_setting(
                (source.file.as_deref(), source.document.as_ref()),
                "cluster.region",
                region,
                message,
            ));
        }
        let defaults = defaults(&config, &source.directory, &mut problems);
        let values = match config.values() {
            Ok(values) => values,
            Err(error) => {
                // Said with its field already, if it is of the wrong type.
                if !problems.iter().any(|known| known.path.starts_with("deploy.values.")) {
                    problems.push(Problem::of_value(
                        "deploy.values",
                        without_types(&error.to_string()),
                    ));
                }
                Values::default()
            }
        };
        for Refused { path, value, allowed } in values.check() {
            let path = match path.as_str() {
                "controller.image.repository" if config.deploy.image.is_some() => {
                    "deploy.image".to_owned()
                }
                "controller.image.tag" if config.deploy.version.is_some() => {
                    "deploy.version".to_owned()
                }
                _ => format!("deploy.values.{path}"),
            };
            if !problems.iter().any(|known| known.path == path) {
                let message = format!("{value:?} is not allowed; allowed: {allowed}");
                problems.push(Problem::of_setting(
                    (source.file.as_deref(), source.document.as_ref()),
                    &path,
                    &value,
                    message,
                ));
            }
        }
        let (Some(cluster), Some(region)) = (cluster, region) else {
            return Err(SettingsError { problems });
        };
        if !problems.is_empty() {
            return Err(SettingsError { problems });
        }
        let name_prefix = config.identity.name_prefix.clone().unwrap_or_else(|| "tenon".to_owned());
        let interruption = config.interruption.enabled.unwrap_or(true);
        Ok(Self {
            account_id: config.cluster.account_id.clone(),
            role_path: config
                .identity
                .role_path
                .clone()
                .unwrap_or_else(|| format!("/tenon/{cluster}/")),
            permissions_boundary: config.identity.boundary.clone(),
            identity: config.identity.mode.unwrap_or_default(),
            install_agent: config.identity.install_agent.unwrap_or(false),
            controller_role_arn: config.identity.controller_role_arn.clone(),
            node_role_name: config.nodes.role_name.clone(),
            node_extra_policies: config.nodes.extra_policies.clone(),
            authorization: config.nodes.authorization.unwrap_or_default(),
            windows_nodes: config.nodes.windows.unwrap_or(false),
            instance_profile: config.nodes.instance_profile.unwrap_or_default(),
            spot_role: config.nodes.spot_role.unwrap_or_default() == Switch::Manage,
            host: config.deploy.host.unwrap_or_default(),
            queue_key: config.interruption.kms_key.clone(),
            events: match (interruption, config.interruption.events.is_empty()) {
                (false, _) => Vec::new(),
                (true, true) => Event::ALL.to_vec(),
                (true, false) => config.interruption.events.clone(),
            },
            queue_name: interruption.then(|| {
                config
                    .interruption
                    .queue_name
                    .clone()
                    .unwrap_or_else(|| names::queue_name(&[&name_prefix, &cluster]))
            }),
            manage_queue: config.interruption.manage.unwrap_or_default() == Switch::Manage,
            discovery: config.network.discovery.unwrap_or_default(),
            subnet_ids: config.network.subnet_ids.clone(),
            security_group_ids: config.network.security_group_ids.clone(),
            namespace: config.deploy.namespace.clone().unwrap_or_else(|| "kube-system".to_owned()),
            manage_operator: config.deploy.operator.unwrap_or_default() == Switch::Manage,
            manage_crds: config.deploy.crds.unwrap_or_default() == Switch::Manage,
            helm_record: config.deploy.helm_record.unwrap_or(true),
            values,
            defaults,
            tags: config.tags.clone().into_iter().collect(),
            prevent_uninstall: config.protect.prevent_uninstall.unwrap_or(false),
            name_prefix,
            cluster,
            region,
            config,
        })
    }

    /// The command line that says the same, given a settings file.
    pub fn equivalent_command(file: &Path) -> String {
        format!("tenon install -f {} --yes", file.display())
    }
}

fn defaults(config: &Config, directory: &Path, problems: &mut Vec<Problem>) -> Defaults {
    if !config.defaults.enabled.unwrap_or(true) {
        return Defaults::None;
    }
    if config.defaults.manifests.is_empty() {
        let or = |values: &[CapacityType]| {
            if values.is_empty() {
                vec![CapacityType::Spot, CapacityType::OnDemand]
            } else {
                values.to_vec()
            }
        };
        return Defaults::Pair(DefaultPair {
            capacity_types: or(&config.defaults.capacity_types),
            architectures: if config.defaults.arch.is_empty() {
                vec![Architecture::Amd64]
            } else {
                config.defaults.arch.clone()
            },
            cpu_limit: config.defaults.cpu_limit.unwrap_or(1000),
            ami_alias: config
                .defaults
                .ami_alias
                .clone()
                .unwrap_or_else(|| "al2023@latest".to_owned()),
        });
    }
    let mut manifests = Vec::new();
    for file in &config.defaults.manifests {
        let file = directory.join(file);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => {
                problems.push(Problem::of_value(
                    "defaults.manifests",
                    format!("can't read {}: {error}", file.display()),
                ));
                continue;
            }
        };
        match serde_saphyr::from_multiple::<Value>(&text) {
            Ok(documents) => {
                for body in documents.into_iter().filter(|body| !body.is_null()) {
                    match manifest_problem(&body) {
                        Some(problem) => problems.push(Problem::in_file(&file, None, "", problem)),
                        None => manifests.push(Manifest { file: file.clone(), body }),
                    }
                }
            }
            Err(error) => {
                let line = error.location().map(|location| location.line());
                problems.push(Problem::in_file(
                    &file,
                    line,
                    "",
                    document::first_line(&error.to_string()),
                ));
            }
        }
    }
    Defaults::Manifests(manifests)
}

fn manifest_problem(body: &Value) -> Option<String> {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if !matches!(
        (api_version, kind),
        ("karpenter.sh/v1", "NodePool") | ("karpenter.k8s.aws/v1", "EC2NodeClass")
    ) {
        return Some(format!(
            "{api_version} {kind} is not allowed; allowed: karpenter.sh/v1 NodePool, karpenter.k8s.aws/v1 EC2NodeClass"
        ));
    }
    text("/metadata/name").is_empty().then(|| format!("a {kind} has no metadata.name"))
}

/// What the kubeconfig's context says about cluster and region: EKS names contexts and clusters by
/// ARN, eksctl `<user>@<name>.<region>.eksctl.io`.
pub(crate) fn infer_from_context(context: &str) -> Inferred {
    if let Some(rest) = context.strip_prefix("arn:") {
        let parts = rest.splitn(5, ':').collect::<Vec<_>>();
        if let [_, "eks", region, _, resource] = parts[..]
            && let Some(name) = resource.strip_prefix("cluster/")
        {
            return Inferred { cluster: Some(name.to_owned()), region: Some(region.to_owned()) };
        }
    }
    if let Some(rest) = context.strip_suffix(".eksctl.io")
        && let Some((name, region)) = rest.rsplit_once('.')
    {
        let name = name.rsplit_once('@').map_or(name, |(_, name)| name);
        return Inferred { cluster: Some(name.to_owned()), region: Some(region.to_owned()) };
    }
    Inferred::default()
}

#[cfg(test)]
mod tests;
