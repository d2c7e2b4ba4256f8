//! What an EC2NodeClass selects, asked of AWS: images, subnets, security groups, its placement
//! group, reservations and its instance profile.
//!
//! That something does not exist is not remembered: it is looked for again after seconds, later and
//! later up to a minute, so that a class heals soon after what it names was made.

use std::time::Duration;

use tenon_crds::EC2NodeClass;
use tenon_crds::ec2nodeclass::{Ami, SecurityGroup, Subnet};

use super::amis::AmiError;
use super::lookups::{class_key, failed};
use super::status::{Resolution, Resolved};
use super::{amis, reservations, selectors};
use crate::aws::ec2::{self, GroupKey};
use crate::aws::{AwsProvider, tags};
use crate::context::Context;
use crate::events::{Event, Reason};

/// How far the resolution of a class got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Everything was found.
    Complete,
    /// Something that the class names does not exist; to be looked for again after this time.
    Lacking(Duration),
    /// A question was not answered.
    CallFailed,
}

impl Progress {
    /// When to look again, if something was missing.
    pub(super) fn again(self) -> Option<Duration> {
        match self {
            Self::Lacking(wait) => Some(wait),
            Self::Complete | Self::CallFailed => None,
        }
    }
}

/// What AWS says about a class.
pub(super) async fn resolve(
    provider: &AwsProvider,
    context: &Context,
    class: &EC2NodeClass,
) -> (Resolution, Progress) {
    let (amis, subnets, security_groups, placement_group, capacity_reservations) = tokio::join!(
        resolve_amis(provider, context, class),
        resolve_subnets(provider, class),
        resolve_security_groups(provider, class),
        resolve_placement_group(provider, class),
        reservations::resolve(provider, class, context.clock.now()),
    );
    let instance_profile = resolve_profile(provider, context, class).await;
    let missing_role = provider.profiles.missing_role(class);
    let lacks_something = amis.is_nothing()
        || subnets.is_nothing()
        || security_groups.is_nothing()
        || placement_group.is_nothing();
    let call_failed = amis == Resolved::Failed
        || subnets == Resolved::Failed
        || security_groups == Resolved::Failed
        || placement_group == Resolved::Failed
        || capacity_reservations == Resolved::Failed
        || (instance_profile == Resolved::Failed && missing_role.is_none());
    let key = class_key(class);
    let progress = if call_failed {
        Progress::CallFailed
    } else if lacks_something {
        let wait = provider.lookups.nothing.failed(key);
        Progress::Lacking(missing_role.map_or(wait, |missing| missing.min(wait)))
    } else {
        provider.lookups.nothing.succeeded(&key);
        missing_role.map_or(Progress::Complete, Progress::Lacking)
    };
    let resolution = Resolution {
        amis,
        capacity_reservations,
        subnets,
        security_groups,
        instance_profile,
        placement_group,
    };
    (resolution, progress)
}

async fn resolve_amis(
    provider: &AwsProvider,
    context: &Context,
    class: &EC2NodeClass,
) -> Resolved<Vec<Ami>> {
    let Some(kubernetes) = provider.cluster.version() else {
        tracing::debug!("the version of Kubernetes is not known yet");
        return Resolved::Failed;
    };
    let key = (class_key(class), kubernetes.clone());
    if let Some(amis) = provider.lookups.amis.get(&key) {
        return Resolved::Some(amis);
    }
    let found = amis::resolve(
        &provider.clients.ec2,
        &provider.parameters,
        &class.spec,
        &kubernetes,
        context.clock.now(),
    )
    .await;
    match found {
        Ok(amis) if amis.is_empty() => Resolved::Nothing {
            reason: "AMINotFound",
            message: "AMISelector did not match any AMIs".to_owned(),
        },
        Ok(amis) => {
            provider.lookups.amis.insert(key, amis.clone());
            Resolved::Some(amis)
        }
        Err(error @ AmiError::UnsupportedAlias(_)) => {
            Resolved::Nothing { reason: "UnsupportedAlias", message: error.to_string() }
        }
        Err(error) => failed(class, "amis", &error),
    }
}

async fn resolve_subnets(provider: &AwsProvider, class: &EC2NodeClass) -> Resolved<Vec<Subnet>> {
    let key = class_key(class);
    if let Some(subnets) = provider.lookups.subnets.get(&key) {
        return Resolved::Some(subnets);
    }
    match selectors::subnets(&provider.clients.ec2, &class.spec.subnet_selector_terms).await {
        Ok(found) if found.is_empty() => Resolved::Nothing {
            reason: "SubnetsNotFound",
            message: "SubnetSelector did not match any Subnets".to_owned(),
        },
        Ok(found) => {
            let subnets: Vec<Subnet> = found
                .into_iter()
                .map(|subnet| {
                    provider.launcher.addresses.observe(&subnet.id, subnet.free_ips);
                    Subnet { id: subnet.id, zone: subnet.zone, zone_id: subnet.zone_id }
                })
                .collect();
            provider.lookups.subnets.insert(key, subnets.clone());
            Resolved::Some(subnets)
        }
        Err(error) => failed(class, "subnets", &error),
    }
}

async fn resolve_security_groups(
    provider: &AwsProvider,
    class: &EC2NodeClass,
) -> Resolved<Vec<SecurityGroup>> {
    let key = class_key(class);
    if let Some(groups) = provider.lookups.security_groups.get(&key) {
        return Resolved::Some(groups);
    }
    let terms = &class.spec.security_group_selector_terms;
    match selectors::security_groups(&provider.clients.ec2, terms).await {
        Ok(found) if found.is_empty() => Resolved::Nothing {
            reason: "SecurityGroupsNotFound",
            message: "SecurityGroupSelector did not match any SecurityGroups".to_owned(),
        },
        Ok(found) => {
            let groups: Vec<SecurityGroup> = found
                .into_iter()
                .map(|group| SecurityGroup { id: group.id, name: group.name })
                .collect();
            provider.lookups.security_groups.insert(key, groups.clone());
            Resolved::Some(groups)
        }
        Err(error) => failed(class, "security groups", &error),
    }
}

async fn resolve_placement_group(provider: &AwsProvider, class: &EC2NodeClass) -> Resolved<()> {
    let Some(selector) = &class.spec.placement_group_selector else { return Resolved::Some(()) };
    let (wanted, shown) = match (&selector.id, &selector.name) {
        (Some(id), _) => (GroupKey::Id(id), id),
        (None, Some(name)) => (GroupKey::Name(name), name),
        (None, None) => return Resolved::Some(()),
    };
    let key = class_key(class);
    match ec2::placement_groups(&provider.clients.ec2, wanted).await {
        Ok(found) => match found.into_iter().next() {
            Some(group) => {
                provider.lookups.placement_groups.insert(key, group);
                Resolved::Some(())
            }
            None => {
                provider.lookups.placement_groups.remove(&key);
                Resolved::Nothing {
                    reason: "PlacementGroupNotFound",
                    message: format!("Placement group \"{shown}\" not found"),
                }
            }
        },
        Err(error) => Resolved::Nothing {
            reason: "PlacementGroupResolutionFailed",
            message: format!("Failed to resolve placement group: {error}"),
        },
    }
}

async fn resolve_profile(
    provider: &AwsProvider,
    context: &Context,
    class: &EC2NodeClass,
) -> Resolved<String> {
    let tags = tags::profile_tags(class, &context.cluster_name, &provider.clients.region);
    match provider.profiles.ensure(class, &tags).await {
        Ok(name) => Resolved::Some(name),
        Err(error) => {
            context.recorder.publish(Event::warning(
                class,
                Reason::InstanceProfileFailed,
                format!("Failed to create the instance profile: {}", error.text()),
            ));
            failed(class, "instance profile", &error)
        }
    }
}
