//! Instance profiles: made from the role of a NodeClass, never changed while machines may use them,
//! deleted when nothing does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_iam::Client;
use tenon_crds::EC2NodeClass;

use crate::aws::backoff::{Backoff, Waits};
use crate::aws::error::{Error, Kind, Result};
use crate::aws::tags::Tags;
use crate::aws::ttl::TtlMap;

/// How long what IAM said about a profile is believed.
const PROFILE_TTL: Duration = Duration::from_secs(15 * 60);
/// How long a role that did not exist is not tried again: each try makes and deletes a profile.
const MISSING_ROLE: Waits = Waits { first: Duration::from_secs(5), last: Duration::from_secs(60) };
/// How long garbage collection leaves a profile alone that was in use lately: claims that use it
/// may not be seen yet.
const PROTECTED_TTL: Duration = Duration::from_secs(60 * 60);

/// Makes and deletes instance profiles.
#[derive(Debug)]
pub(crate) struct Profiles {
    iam: Client,
    cluster: Arc<str>,
    region: String,
    known: TtlMap<String, Profile>,
    missing_roles: Backoff<String>,
    protected: TtlMap<String, ()>,
}

/// An instance profile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Profile {
    path: String,
    role: Option<String>,
}

impl Profiles {
    /// Profiles of a cluster.
    pub(crate) fn new(iam: Client, cluster: Arc<str>, region: String) -> Self {
        Self {
            iam,
            cluster,
            region,
            known: TtlMap::new(PROFILE_TTL),
            missing_roles: Backoff::new(MISSING_ROLE),
            protected: TtlMap::new(PROTECTED_TTL),
        }
    }

    /// The profile for machines of the class: the one that it names, or one that carries its role.
    pub(crate) async fn ensure(&self, class: &EC2NodeClass, tags: &Tags) -> Result<String> {
        let current = class.status.as_ref().and_then(|status| status.instance_profile.clone());
        if let Some(name) = &class.spec.instance_profile {
            if let Some(old) = current.filter(|old| old != name) {
                self.protected.insert(old, ());
            }
            return Ok(name.clone());
        }
        let role = role_name(class.spec.role.as_deref().unwrap_or_default());
        if role.is_empty() {
            return Err(Error::unexpected(
                "GetInstanceProfile",
                "neither spec.role nor spec.instanceProfile is set",
            ));
        }
        let path = self.class_path(class);
        if let Some(current) = &current {
            let known = self.get(current).await?;
            // One outside of our path was named by the user before: it is not ours to keep using.
            if known.is_some_and(|profile| {
                profile.role.as_deref() == Some(role) && profile.path == path
            }) {
                self.protected.insert(current.clone(), ());
                return Ok(current.clone());
            }
            self.protected.insert(current.clone(), ());
        }
        let name = self.name(class, role);
        self.protected.insert(name.clone(), ());
        self.create(&name, &path, role, tags).await?;
        Ok(name)
    }

    /// How long until the role of a class that did not exist is tried again.
    pub(crate) fn missing_role(&self, class: &EC2NodeClass) -> Option<Duration> {
        let role = role_name(class.spec.role.as_deref()?);
        self.missing_roles.wait(&role.to_owned())
    }

    /// EC2 does not know a profile: IAM is asked about it again.
    pub(crate) fn doubt(&self, name: &str) {
        self.known.remove(name);
    }

    /// Deletes all profiles of a class that goes.
    pub(crate) async fn delete_all(&self, class: &EC2NodeClass) -> Result<()> {
        for name in self.list(&self.class_path(class)).await? {
            self.delete(&name).await?;
        }
        Ok(())
    }

    /// Deletes the profiles of the cluster that neither a NodeClass nor a NodeClaim uses.
    pub(crate) async fn collect_garbage(&self, used: &BTreeSet<String>) -> Result<()> {
        let prefix = format!("/karpenter/{}/{}/", self.region, self.cluster);
        for name in self.list(&prefix).await? {
            if !used.contains(&name) && self.protected.get(&name).is_none() {
                self.delete(&name).await?;
                tracing::info!(instance_profile = name, "deleted unused instance profile");
            }
        }
        Ok(())
    }

    /// Always the same for the same class and role, so that a creation that was cut short is
    /// continued.
    fn name(&self, class: &EC2NodeClass, role: &str) -> String {
        let class_name = class.metadata.name.as_deref().unwrap_or_default();
        let uid = class.metadata.uid.as_deref().unwrap_or_default();
        let hash = fnv1_64(&format!("{}{class_name}{uid}{role}", self.region));
        format!("{}_{hash}", self.cluster)
    }

    fn class_path(&self, class: &EC2NodeClass) -> String {
        let uid = class.metadata.uid.as_deref().unwrap_or_default();
        format!("/karpenter/{}/{}/{uid}/", self.region, self.cluster)
    }

    async fn create(&self, name: &str, path: &str, role: &str, tags: &Tags) -> Result<()> {
        let key = role.to_owned();
        if self.missing_roles.wait(&key).is_some() {
            let message = format!("role {role} does not exist: create it or correct spec.role");
            return Err(Error::from_code("AddRoleToInstanceProfile", "NoSuchEntity", &message));
        }
        let found = self.get(name).await?;
        let attached = match found {
            Some(profile) => profile.role,
            None => {
                self.create_profile(name, path, tags).await?;
                None
            }
        };
        if attached.as_deref() == Some(role) {
            return Ok(());
        }
        if let Some(other) = attached {
            self.remove_role(name, &other).await?;
        }
        if let Err(error) = self.add_role(name, role).await {
            if error.is_role_not_found() {
                self.missing_roles.failed(key);
            }
            if let Err(error) = self.delete(name).await {
                tracing::warn!(instance_profile = name, %error, "failed to delete the unfinished instance profile");
            }
            return Err(error);
        }
        self.missing_roles.succeeded(&key);
        let profile = Profile { path: path.to_owned(), role: Some(role.to_owned()) };
        self.known.insert(name.to_owned(), profile);
        tracing::info!(instance_profile = name, role, "created instance profile");
        Ok(())
    }

    async fn get(&self, name: &str) -> Result<Option<Profile>> {
        if let Some(profile) = self.known.get(name) {
            return Ok(Some(profile));
        }
        let answer = match self.iam.get_instance_profile().instance_profile_name(name).send().await
        {
            Ok(answer) => answer,
            Err(error) => {
                return match Error::from_sdk("GetInstanceProfile", &error) {
                    error if error.is_not_found() => Ok(None),
                    error => Err(error),
                };
            }
        };
        let profile = answer.instance_profile.map(|profile| Profile {
            role: profile.roles.first().map(|role| role.role_name.clone()),
            path: profile.path,
        });
        if let Some(profile) = &profile {
            self.known.insert(name.to_owned(), profile.clone());
        }
        Ok(profile)
    }

    async fn create_profile(&self, name: &str, path: &str, tags: &Tags) -> Result<()> {
        const OPERATION: &str = "CreateInstanceProfile";
        let tags = tags
            .iter()
            .map(|(key, value)| {
                aws_sdk_iam::types::Tag::builder()
                    .key(key)
                    .value(value)
                    .build()
                    .map_err(|error| Error::unexpected(OPERATION, error.to_string()))
            })
            .collect::<Result<Vec<_>>>()?;
        let created = self
            .iam
            .create_instance_profile()
            .instance_profile_name(name)
            .path(path)
            .set_tags(Some(tags))
            .send()
            .await;
        match created {
            Ok(_) => Ok(()),
            Err(error) => match Error::from_sdk(OPERATION, &error) {
                error if error.kind == Kind::AlreadyExists => Ok(()),
                error => Err(error),
            },
        }
    }

    async fn add_role(&self, name: &str, role: &str) -> Result<()> {
        self.iam
            .add_role_to_instance_profile()
            .instance_profile_name(name)
            .role_name(role)
            .send()
            .await
            .map(|_| ())
            .map_err(|error| Error::from_sdk("AddRoleToInstanceProfile", &error))
    }

    async fn remove_role(&self, name: &str, role: &str) -> Result<()> {
        self.known.remove(name);
        let removed = self
            .iam
            .remove_role_from_instance_profile()
            .instance_profile_name(name)
            .role_name(role)
            .send()
            .await;
        match removed {
            Ok(_) => Ok(()),
            Err(error) => match Error::from_sdk("RemoveRoleFromInstanceProfile", &error) {
                error if error.is_not_found() => Ok(()),
                error => Err(error),
            },
        }
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.known.remove(name);
        let Some(profile) = self.get(name).await? else {
            self.protected.remove(name);
            return Ok(());
        };
        if let Some(role) = &profile.role {
            self.remove_role(name, role).await?;
        }
        self.known.remove(name);
        self.protected.remove(name);
        match self.iam.delete_instance_profile().instance_profile_name(name).send().await {
            Ok(_) => Ok(()),
            Err(error) => match Error::from_sdk("DeleteInstanceProfile", &error) {
                error if error.is_not_found() => Ok(()),
                error => Err(error),
            },
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut pages =
            self.iam.list_instance_profiles().path_prefix(prefix).into_paginator().send();
        let mut names = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| Error::from_sdk("ListInstanceProfiles", &error))?;
            // What is deleted on this list's word must not depend on how well the service filters.
            let own = page.instance_profiles.iter().filter(|known| known.path.starts_with(prefix));
            names.extend(own.map(|known| known.instance_profile_name.clone()));
        }
        Ok(names)
    }
}

/// IAM knows a role by its name; `spec.role` may carry its path.
fn role_name(role: &str) -> &str {
    role.rsplit('/').next().unwrap_or(role)
}

fn fnv1_64(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte)
    })
}

#[cfg(test)]
mod tests;
