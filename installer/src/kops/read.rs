//! Reads a cluster from the state store, and generates its objects.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{ArchitectureValues, Image as Ec2Image};
use tenon_installer_core::aws::{Aws, AwsError};
use tenon_installer_core::observe::{ec2, facts, iam, parameters};
use tenon_kops::{
    Boot, CLUSTER_FILE, Cluster, Facts, GROUPS_FOLDER, Generated, Group, Image, ImageSource,
    Location, Manager, Problem, generate, node_config_file, profile_name, script_file,
};

use super::region;
use super::store::{ReadError, Store};

/// A cluster of the state store.
#[derive(Debug)]
pub(crate) struct State {
    /// Its Cluster.
    pub cluster: Cluster,
    /// Those that become NodePools, with what boots their nodes.
    pub groups: Vec<(Group, Boot)>,
    /// Names of all InstanceGroups that become NodePools, also of those that were not asked for.
    pub all: Vec<String>,
    /// How many nodes the control plane has.
    pub control_planes: i64,
    /// Names of the InstanceGroups of nodes that are Auto Scaling groups.
    pub others: Vec<String>,
}

impl State {
    /// The region of its subnets.
    pub(crate) fn region(&self) -> Option<String> {
        let mut zones = self.cluster.subnets.iter().filter_map(|subnet| subnet.zone.as_deref());
        zones.find_map(region::of_zone)
    }
}

/// Names of the clusters in a state store.
pub(crate) async fn clusters(aws: &Aws, location: &Location) -> Result<Vec<String>, ReadError> {
    let store = Store::open(aws, location).await?;
    let mut clusters = Vec::new();
    for name in store.names("").await?.iter().filter_map(|name| name.strip_suffix('/')) {
        if store.read(&format!("{name}/{CLUSTER_FILE}")).await?.is_some() {
            clusters.push(name.to_owned());
        }
    }
    Ok(clusters)
}

/// A cluster and its InstanceGroups; only some of them, if any are named.
pub(crate) async fn state(
    aws: &Aws,
    location: &Location,
    name: &str,
    wanted: &[String],
) -> Result<State, ReadError> {
    let folder = location.join(name);
    let store = Store::open(aws, &folder).await?;
    let Some(cluster) = store.read(CLUSTER_FILE).await? else {
        let known = clusters(aws, location).await?;
        let there = match known.as_slice() {
            [] => "it holds no cluster".to_owned(),
            known => format!("it has {}", known.join(", ")),
        };
        return Err(unfit(format!("there is no cluster {name} in {location}; {there}")));
    };
    let cluster = Cluster::parse(&cluster).map_err(|problem| ReadError::from(vec![problem]))?;
    if cluster.name != name {
        return Err(unfit(format!("{folder} holds cluster {}", cluster.name)));
    }
    let base = match &cluster.config_base {
        Some(base) => {
            Location::parse(base).map_err(|error| unfit(format!("spec.configBase: {error}")))?
        }
        None => folder.clone(),
    };
    let config = Store::open(aws, &base).await?;
    let mut state = State {
        cluster,
        groups: Vec::new(),
        all: Vec::new(),
        control_planes: 0,
        others: Vec::new(),
    };
    let mut problems = Vec::<Problem>::new();
    let names = store.names(GROUPS_FOLDER).await?;
    if names.is_empty() {
        // Every cluster has one for its control plane. Believed, it would make every NodePool
        // surplus.
        return Err(unfit(format!(
            "{folder}/{GROUPS_FOLDER} holds no InstanceGroup, not even one of the control plane: \
             this is not the whole state store"
        )));
    }
    for name in names.iter().filter(|name| !name.ends_with('/')) {
        let text = store.read(&format!("{GROUPS_FOLDER}{name}")).await?.unwrap_or_default();
        let group = match Group::parse(name, &text) {
            Ok(group) => group,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        state.control_planes += group.control_planes();
        if !group.is_of_nodes() {
            continue;
        }
        if group.manager != Manager::Karpenter {
            state.others.push(group.name);
            continue;
        }
        state.all.push(group.name.clone());
        if !wanted.is_empty() && !wanted.contains(&group.name) {
            continue;
        }
        match boot(&config, &base, &state.cluster.name, &group.name).await? {
            Ok(boot) => state.groups.push((group, boot)),
            Err(problem) => problems.push(problem),
        }
    }
    let missing = wanted.iter().filter(|name| !state.all.contains(name));
    let missing = missing.map(|name| {
        let why = if state.others.contains(name) {
            "it is an Auto Scaling group: set `manager: Karpenter`, then run `kops update cluster \
             --yes`"
        } else {
            "there is no such InstanceGroup of nodes"
        };
        Problem {
            document: format!("InstanceGroup {name}"),
            field: String::new(),
            message: why.to_owned(),
        }
    });
    problems.extend(missing);
    if problems.is_empty() { Ok(state) } else { Err(problems.into()) }
}

/// ARNs of the roles that nodes get by their instance profiles.
pub(crate) async fn node_roles(aws: &Aws, state: &State) -> Result<Vec<String>, ReadError> {
    let cluster = state.cluster.name.as_str();
    let profiles = state.groups.iter().map(|(group, _)| group.profile(cluster));
    let mut profiles = profiles.collect::<BTreeSet<_>>();
    if profiles.is_empty() {
        profiles.insert(profile_name(cluster));
    }
    let mut roles = BTreeSet::new();
    for profile in profiles {
        let Some(found) = iam::profile(aws, &profile).await? else {
            let why = "does not exist: run `kops update cluster --yes`";
            return Err(unfit(format!("the instance profile {profile} {why}")));
        };
        for role in &found.roles {
            roles.extend(facts::role_arn(aws, role).await?);
        }
    }
    Ok(roles.into_iter().collect())
}

async fn boot(
    config: &Store,
    base: &Location,
    cluster: &str,
    group: &str,
) -> Result<Result<Boot, Problem>, ReadError> {
    let (script, node_config) = (script_file(group), node_config_file(group));
    let texts = (config.read(&script).await?, config.read(&node_config).await?);
    let missing = |file: &str| Problem {
        document: format!("InstanceGroup {group}"),
        field: String::new(),
        message: format!("{base}/{file} is missing: run `kops update cluster --yes`"),
    };
    Ok(match texts {
        (Some(script), Some(node_config)) => Boot::parse((cluster, group), &script, &node_config),
        (None, _) => Err(missing(&script)),
        (_, None) => Err(missing(&node_config)),
    })
}

/// The objects of the InstanceGroups that were read.
pub(crate) async fn objects(aws: &Aws, state: &State) -> Result<Vec<Generated>, ReadError> {
    let mut types = None;
    let mut images = BTreeMap::<&str, Result<Image, String>>::new();
    let (mut generated, mut problems) = (Vec::new(), Vec::new());
    for (group, boot) in &state.groups {
        let text = group.image();
        if !images.contains_key(text) {
            images.insert(text, image(aws, text).await?);
        }
        let image = match &images[text] {
            Ok(image) => image.clone(),
            Err(message) => {
                problems.push(Problem {
                    document: format!("InstanceGroup {}", group.name),
                    field: "spec.image".to_owned(),
                    message: message.clone(),
                });
                continue;
            }
        };
        if types.is_none() && group.has_patterns() {
            types = Some(ec2::type_names(aws).await?);
        }
        let facts = Facts { image, instance_types: types.clone().unwrap_or_default() };
        match generate(&state.cluster, group, boot, &facts) {
            Ok(objects) => generated.push(objects),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(generated) } else { Err(problems.into()) }
}

/// What EC2 knows of an image, or why it can't be used.
async fn image(aws: &Aws, text: &str) -> Result<Result<Image, String>, AwsError> {
    let unknown = || Ok(Err(format!("EC2 has no image {text} in this region")));
    let found = match ImageSource::parse(text) {
        None if text.trim().is_empty() => {
            return Ok(Err("the image is missing: name one with `kops edit ig`".to_owned()));
        }
        None => return Ok(Err("write ami-ID, ssm:PARAMETER, NAME, or OWNER/NAME".to_owned())),
        Some(ImageSource::Name { owner, name }) => ec2::newest_image(aws, &owner, &name).await?,
        Some(ImageSource::Id(id)) => by_id(aws, id).await?,
        Some(ImageSource::Parameter(name)) => match parameters::parameter(aws, &name).await? {
            Some(id) => by_id(aws, id).await?,
            None => return Ok(Err(format!("there is no parameter {name} in this region"))),
        },
    };
    let Some(found) = found else { return unknown() };
    let architecture = match found.architecture.as_ref().map(ArchitectureValues::as_str) {
        Some("x86_64") => "amd64",
        Some("arm64") => "arm64",
        other => {
            let other = other.unwrap_or("unknown");
            return Ok(Err(format!("nodes cannot run on the architecture {other} of {text}")));
        }
    };
    let Some(root_device) = found.root_device_name.filter(|device| !device.is_empty()) else {
        return Ok(Err(format!("image {text} has no root device")));
    };
    Ok(Ok(Image { architecture: architecture.to_owned(), root_device }))
}

async fn by_id(aws: &Aws, id: String) -> Result<Option<Ec2Image>, AwsError> {
    match ec2::images(aws, vec![id]).await {
        Err(error) if error.is_not_found() => Ok(None),
        found => Ok(found?.into_iter().next()),
    }
}

pub(super) fn unfit(reason: String) -> ReadError {
    ReadError::Unfit(vec![reason])
}
