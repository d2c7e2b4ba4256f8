//! Reads a cluster from its state store, and generates its objects. Who reads files and asks AWS is
//! up to the caller.

use std::collections::{BTreeMap, BTreeSet};

use crate::boot::Boot;
use crate::cluster::Cluster;
use crate::generate::{Facts, Generated, generate};
use crate::group::{Group, Manager};
use crate::image::{Image, ImageSource};
use crate::location::{CLUSTER_FILE, GROUPS_FOLDER, Location, node_config_file, script_file};
use crate::problem::Problem;
use crate::region;

/// Longest file that is read, in bytes.
pub const LONGEST_FILE: usize = 4 * 1024 * 1024;

/// What was read can't be used: reasons, each with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit(pub Vec<String>);

/// What EC2 says of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundImage {
    /// By EC2's name, such as `x86_64`.
    pub architecture: Option<String>,
    /// Such as `/dev/xvda`.
    pub root_device: Option<String>,
}

/// A folder of a state store.
pub trait Files: Send + Sync {
    /// Why nothing was read.
    type Error;

    /// The text of a file; `None` if there is none.
    fn read(&self, name: &str) -> impl Future<Output = Result<Option<String>, Self::Error>> + Send;

    /// Names of the files in a folder of it, which ends with a slash or is empty; with a slash at
    /// their end, those of folders.
    fn names(&self, folder: &str) -> impl Future<Output = Result<Vec<String>, Self::Error>> + Send;
}

/// What a state store is read through, and what AWS is asked.
pub trait Cloud: Sync {
    /// Why there is no answer.
    type Error: From<Unfit> + Send;
    /// How files are read.
    type Files: Files<Error = Self::Error>;

    /// A folder of a state store.
    fn open(
        &self,
        folder: &Location,
    ) -> impl Future<Output = Result<Self::Files, Self::Error>> + Send;

    /// The value of a parameter of Systems Manager, if there is one.
    fn parameter(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Option<String>, Self::Error>> + Send;

    /// The image with this id, if there is one.
    fn image(
        &self,
        id: &str,
    ) -> impl Future<Output = Result<Option<FoundImage>, Self::Error>> + Send;

    /// The newest image of an account (or `self`) whose name matches, if there is one.
    fn newest_image(
        &self,
        owner: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<FoundImage>, Self::Error>> + Send;

    /// Names of all instance types of the region.
    fn instance_types(&self) -> impl Future<Output = Result<Vec<String>, Self::Error>> + Send;
}

/// A cluster of a state store.
#[derive(Debug)]
pub struct State {
    /// Its Cluster.
    pub cluster: Cluster,
    /// Those that become NodePools, with what boots their nodes.
    pub groups: Vec<(Group, Boot)>,
    /// Names of all InstanceGroups that become NodePools, also of those that were not asked for.
    pub all: Vec<String>,
    /// How many nodes the control plane has.
    pub control_planes: i64,
    /// Names of their instance profiles.
    pub control_plane_profiles: BTreeSet<String>,
    /// Names of the InstanceGroups of nodes that are Auto Scaling groups.
    pub others: Vec<String>,
    /// What is wrong with InstanceGroups, by name.
    pub problems: BTreeMap<String, Vec<Problem>>,
}

impl State {
    /// The region of its subnets.
    pub fn region(&self) -> Option<String> {
        let mut zones = self.cluster.subnets.iter().filter_map(|subnet| subnet.zone.as_deref());
        zones.find_map(region::of_zone)
    }

    /// Where the scripts of its nodes are, in the folder of the cluster or elsewhere.
    ///
    /// # Errors
    /// If the Cluster names a place that cannot be read.
    pub fn config_base(&self, folder: &Location) -> Result<Location, Unfit> {
        config_base(&self.cluster, folder)
    }
}

fn config_base(cluster: &Cluster, folder: &Location) -> Result<Location, Unfit> {
    match &cluster.config_base {
        Some(base) => {
            Location::parse(base).map_err(|error| unfit(format!("spec.configBase: {error}")))
        }
        None => Ok(folder.clone()),
    }
}

/// What InstanceGroups become.
#[derive(Debug, Default)]
pub struct Objects {
    /// The objects of those that can be mapped.
    pub generated: Vec<Generated>,
    /// What is wrong with the others, by name.
    pub problems: BTreeMap<String, Vec<Problem>>,
}

/// Names of the clusters in a state store.
///
/// # Errors
/// If it cannot be read.
pub async fn clusters<C: Cloud>(cloud: &C, location: &Location) -> Result<Vec<String>, C::Error> {
    let store = cloud.open(location).await?;
    let mut clusters = Vec::new();
    for name in store.names("").await?.iter().filter_map(|name| name.strip_suffix('/')) {
        if store.read(&format!("{name}/{CLUSTER_FILE}")).await?.is_some() {
            clusters.push(name.to_owned());
        }
    }
    Ok(clusters)
}

/// A cluster and its InstanceGroups; only some of them, if any are named.
///
/// # Errors
/// If it cannot be read, or is not the whole state store of this cluster.
pub async fn state<C: Cloud>(
    cloud: &C,
    location: &Location,
    name: &str,
    wanted: &[String],
) -> Result<State, C::Error> {
    let folder = location.join(name);
    let store = cloud.open(&folder).await?;
    let Some(cluster) = store.read(CLUSTER_FILE).await? else {
        // Who may read a cluster need not be allowed to list the others.
        let there = match clusters(cloud, location).await.as_deref() {
            Ok([]) => "; it holds no cluster".to_owned(),
            Ok(known) => format!("; it has {}", known.join(", ")),
            Err(_) => String::new(),
        };
        return Err(unfit(format!("there is no cluster {name} in {location}{there}")).into());
    };
    let cluster = Cluster::parse(&cluster).map_err(|problem| Unfit(vec![problem.to_string()]))?;
    if cluster.name != name {
        return Err(unfit(format!("{folder} holds cluster {}", cluster.name)).into());
    }
    let base = config_base(&cluster, &folder)?;
    let config = cloud.open(&base).await?;
    let mut state = State {
        cluster,
        groups: Vec::new(),
        all: Vec::new(),
        control_planes: 0,
        control_plane_profiles: BTreeSet::new(),
        others: Vec::new(),
        problems: BTreeMap::new(),
    };
    let names = store.names(GROUPS_FOLDER).await?;
    if names.is_empty() {
        // Every cluster has one for its control plane. Believed, it would make every NodePool
        // surplus.
        let why = "not even one of the control plane: this is not the whole state store";
        return Err(unfit(format!("{folder}/{GROUPS_FOLDER} holds no InstanceGroup, {why}")).into());
    }
    for name in names.iter().filter(|name| !name.ends_with('/')) {
        let text = store.read(&format!("{GROUPS_FOLDER}{name}")).await?.unwrap_or_default();
        let group = match Group::parse(name, &text) {
            Ok(group) => group,
            Err(problem) => {
                state.problems.entry(name.clone()).or_default().push(problem);
                continue;
            }
        };
        state.control_planes += group.control_planes();
        if group.is_of_control_plane() {
            state.control_plane_profiles.insert(group.profile(&state.cluster.name));
        }
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
            Err(problem) => state.problems.entry(group.name).or_default().push(problem),
        }
    }
    for name in wanted.iter().filter(|name| !state.all.contains(name)) {
        let why = if state.others.contains(name) {
            "it is an Auto Scaling group: set `manager: Karpenter`, then run `kops update cluster \
             --yes`"
        } else {
            "there is no such InstanceGroup of nodes"
        };
        let problem = Problem::new(&format!("InstanceGroup {name}"), "", why);
        state.problems.entry(name.clone()).or_default().push(problem);
    }
    Ok(state)
}

async fn boot<F: Files>(
    config: &F,
    base: &Location,
    cluster: &str,
    group: &str,
) -> Result<Result<Boot, Problem>, F::Error> {
    let (script, node_config) = (script_file(group), node_config_file(group));
    let texts = (config.read(&script).await?, config.read(&node_config).await?);
    let missing = |file: &str| {
        let why = format!("{base}/{file} is missing: run `kops update cluster --yes`");
        Problem::new(&format!("InstanceGroup {group}"), "", why)
    };
    Ok(match texts {
        (Some(script), Some(node_config)) => Boot::parse((cluster, group), &script, &node_config),
        (None, _) => Err(missing(&script)),
        (_, None) => Err(missing(&node_config)),
    })
}

/// The objects of the InstanceGroups that were read.
///
/// # Errors
/// If AWS does not answer what has to be known of images and instance types.
pub async fn objects<C: Cloud>(cloud: &C, state: &State) -> Result<Objects, C::Error> {
    let mut types = None;
    let mut images = BTreeMap::<&str, Result<Image, String>>::new();
    let mut objects = Objects::default();
    for (group, boot) in &state.groups {
        let text = group.image();
        if !images.contains_key(text) {
            images.insert(text, image(cloud, text).await?);
        }
        let image = match &images[text] {
            Ok(image) => image.clone(),
            Err(message) => {
                let document = format!("InstanceGroup {}", group.name);
                let problem = Problem::new(&document, "spec.image", message.as_str());
                objects.problems.entry(group.name.clone()).or_default().push(problem);
                continue;
            }
        };
        if types.is_none() && group.has_patterns() {
            types = Some(cloud.instance_types().await?);
        }
        let facts = Facts { image, instance_types: types.clone().unwrap_or_default() };
        match generate(&state.cluster, group, boot, &facts) {
            Ok(generated) => objects.generated.push(generated),
            Err(found) => {
                objects.problems.entry(group.name.clone()).or_default().extend(found);
            }
        }
    }
    Ok(objects)
}

/// What EC2 knows of an image, or why it can't be used.
async fn image<C: Cloud>(cloud: &C, text: &str) -> Result<Result<Image, String>, C::Error> {
    let found = match ImageSource::parse(text) {
        None if text.trim().is_empty() => {
            return Ok(Err("the image is missing: name one with `kops edit ig`".to_owned()));
        }
        None => return Ok(Err("write ami-ID, ssm:PARAMETER, NAME, or OWNER/NAME".to_owned())),
        Some(ImageSource::Name { owner, name }) => cloud.newest_image(&owner, &name).await?,
        Some(ImageSource::Id(id)) => cloud.image(&id).await?,
        Some(ImageSource::Parameter(name)) => match cloud.parameter(&name).await? {
            Some(id) => cloud.image(&id).await?,
            None => return Ok(Err(format!("there is no parameter {name} in this region"))),
        },
    };
    let Some(FoundImage { architecture, root_device }) = found else {
        return Ok(Err(format!("EC2 has no image {text} in this region")));
    };
    let architecture = match architecture.as_deref() {
        Some("x86_64") => "amd64",
        Some("arm64") => "arm64",
        other => {
            let other = other.unwrap_or("unknown");
            return Ok(Err(format!("nodes cannot run on the architecture {other} of {text}")));
        }
    };
    let Some(root_device) = root_device.filter(|device| !device.is_empty()) else {
        return Ok(Err(format!("image {text} has no root device")));
    };
    Ok(Ok(Image { architecture: architecture.to_owned(), root_device }))
}

fn unfit(reason: String) -> Unfit {
    Unfit(vec![reason])
}
