//! Reads a cluster from the state store, and generates its objects, with the installer's clients.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{ArchitectureValues, Image};
use tenon_installer_core::aws::Aws;
use tenon_installer_core::observe::{ec2, facts, iam, parameters};
use tenon_kops::read::{Cloud, FoundImage, State};
use tenon_kops::{Generated, Location, Problem, profile_name, read};

use super::store::{ReadError, Store};

struct Clients<'a>(&'a Aws);

impl Cloud for Clients<'_> {
    type Error = ReadError;
    type Files = Store;

    async fn open(&self, folder: &Location) -> Result<Store, ReadError> {
        Store::open(self.0, folder).await
    }

    async fn parameter(&self, name: &str) -> Result<Option<String>, ReadError> {
        Ok(parameters::parameter(self.0, name).await?)
    }

    async fn image(&self, id: &str) -> Result<Option<FoundImage>, ReadError> {
        match ec2::images(self.0, vec![id.to_owned()]).await {
            Err(error) if error.is_not_found() => Ok(None),
            found => Ok(found?.into_iter().next().map(found_image)),
        }
    }

    async fn newest_image(&self, owner: &str, name: &str) -> Result<Option<FoundImage>, ReadError> {
        Ok(ec2::newest_image(self.0, owner, name).await?.map(found_image))
    }

    async fn instance_types(&self) -> Result<Vec<String>, ReadError> {
        Ok(ec2::type_names(self.0).await?)
    }
}

fn found_image(image: Image) -> FoundImage {
    FoundImage {
        architecture: image.architecture.as_ref().map(ArchitectureValues::as_str).map(Into::into),
        root_device: image.root_device_name,
    }
}

/// Names of the clusters in a state store.
pub(crate) async fn clusters(aws: &Aws, location: &Location) -> Result<Vec<String>, ReadError> {
    read::clusters(&Clients(aws), location).await
}

/// A cluster and its InstanceGroups; only some of them, if any are named. One that cannot be used
/// stops it.
pub(crate) async fn state(
    aws: &Aws,
    location: &Location,
    name: &str,
    wanted: &[String],
) -> Result<State, ReadError> {
    let state = read::state(&Clients(aws), location, name, wanted).await?;
    none_of(&state.problems)?;
    Ok(state)
}

/// The objects of the InstanceGroups that were read. One that cannot be mapped stops it.
pub(crate) async fn objects(aws: &Aws, state: &State) -> Result<Vec<Generated>, ReadError> {
    let objects = read::objects(&Clients(aws), state).await?;
    none_of(&objects.problems)?;
    Ok(objects.generated)
}

fn none_of(problems: &BTreeMap<String, Vec<Problem>>) -> Result<(), ReadError> {
    let problems = problems.values().flatten().cloned().collect::<Vec<_>>();
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Names of the instance profiles of nodes.
pub(crate) fn node_profiles(state: &State) -> BTreeSet<String> {
    let cluster = state.cluster.name.as_str();
    let profiles = state.groups.iter().map(|(group, _)| group.profile(cluster));
    let mut profiles = profiles.collect::<BTreeSet<_>>();
    if profiles.is_empty() {
        profiles.insert(profile_name(cluster));
    }
    profiles
}

/// ARNs of the roles that nodes get by these instance profiles.
pub(crate) async fn profile_roles(
    aws: &Aws,
    profiles: &BTreeSet<String>,
) -> Result<Vec<String>, ReadError> {
    let mut roles = BTreeSet::new();
    for profile in profiles {
        let Some(found) = iam::profile(aws, profile).await? else {
            let why = "does not exist: run `kops update cluster --yes`";
            return Err(unfit(format!("the instance profile {profile} {why}")));
        };
        for role in &found.roles {
            roles.extend(facts::role_arn(aws, role).await?);
        }
    }
    Ok(roles.into_iter().collect())
}

fn unfit(reason: String) -> ReadError {
    ReadError::Unfit(vec![reason])
}
