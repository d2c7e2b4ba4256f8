//! Eventual consistency: what was just made can stay invisible to other calls for a while, with
//! AWS's own errors.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::request::AwsRequest;
use crate::clock::Clock;

/// What can be fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An IAM role, to other services (EKS, EC2, STS); by name.
    Role,
    /// An instance profile or the role in it, to EC2; by name.
    InstanceProfile,
    /// A launch template, by ID and by name.
    LaunchTemplate,
    /// An instance, to DescribeInstances; by ID.
    Instance,
    /// A tag that was put on an instance, a subnet, a security group or a VPC, to filters; by
    /// `ID/key`.
    Tag,
    /// The name of a deleted queue, to CreateQueue.
    DeletedQueue,
}

/// For how long each kind stays invisible after it was made or changed, in seconds; zero switches
/// it off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Delays {
    /// Roles.
    pub role: f64,
    /// Instance profiles.
    pub instance_profile: f64,
    /// Launch templates.
    pub launch_template: f64,
    /// Instances.
    pub instance: f64,
    /// Tags.
    pub tag: f64,
    /// For how long the name of a deleted queue can't be used again (AWS: 60).
    pub deleted_queue: f64,
}

impl Delays {
    /// As one has to expect it of AWS.
    pub const fn of_aws() -> Self {
        Self {
            role: 5.0,
            instance_profile: 10.0,
            launch_template: 2.0,
            instance: 2.0,
            tag: 2.0,
            deleted_queue: 60.0,
        }
    }

    /// The same delay for all.
    pub fn all(delay: Duration) -> Self {
        let seconds = delay.as_secs_f64();
        Self {
            role: seconds,
            instance_profile: seconds,
            launch_template: seconds,
            instance: seconds,
            tag: seconds,
            deleted_queue: seconds,
        }
    }

    fn of(&self, kind: Kind) -> f64 {
        match kind {
            Kind::Role => self.role,
            Kind::InstanceProfile => self.instance_profile,
            Kind::LaunchTemplate => self.launch_template,
            Kind::Instance => self.instance,
            Kind::Tag => self.tag,
            Kind::DeletedQueue => self.deleted_queue,
        }
    }
}

/// Knows what is still invisible.
#[derive(Debug)]
pub struct Consistency {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    delays: Delays,
    changed: BTreeMap<(Kind, String), Timestamp>,
}

impl Consistency {
    /// Everything visible at once.
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::new(State::default()) }
    }

    /// Sets the delays, also for what is already there.
    pub fn set(&self, delays: Delays) {
        self.state.lock().delays = delays;
    }

    /// How late each kind of change shows now.
    pub(crate) fn delays(&self) -> Delays {
        self.state.lock().delays
    }

    /// Notes that something was made or changed now.
    pub fn changed(&self, kind: Kind, name: &str) {
        let now = self.clock.now();
        self.state.lock().changed.insert((kind, name.to_owned()), now);
    }

    /// Whether other calls can see it.
    pub(crate) fn is_visible(&self, kind: Kind, name: &str) -> bool {
        let state = self.state.lock();
        let delay =
            SignedDuration::try_from_secs_f64(state.delays.of(kind)).unwrap_or(SignedDuration::MAX);
        delay.is_zero()
            || state
                .changed
                .get(&(kind, name.to_owned()))
                .is_none_or(|at| self.clock.now().duration_since(*at) >= delay)
    }

    /// The tags of a resource that filters can see.
    pub(crate) fn visible_tags<'a>(
        &self,
        id: &str,
        tags: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> BTreeMap<String, String> {
        tags.filter(|(key, _)| self.is_visible(Kind::Tag, &format!("{id}/{key}")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    /// Notes what a successful IAM call made or changed.
    pub(super) fn observe(&self, request: &AwsRequest) {
        if request.service != "iam" {
            return;
        }
        let name = |param: &str| request.params.get(param).unwrap_or_default().to_owned();
        match request.action.as_str() {
            "CreateRole" => self.changed(Kind::Role, &name("RoleName")),
            "CreateInstanceProfile" | "AddRoleToInstanceProfile" => {
                self.changed(Kind::InstanceProfile, &name("InstanceProfileName"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_invisible_until_its_delay_is_over() {
        let consistency = Consistency::new(Clock::system());
        consistency.changed(Kind::Role, "r");
        assert!(consistency.is_visible(Kind::Role, "r"), "off by default");
        consistency.set(Delays { role: 5.0, ..Delays::default() });
        assert!(!consistency.is_visible(Kind::Role, "r"));
        assert!(
            consistency.is_visible(Kind::Role, "other")
                && consistency.is_visible(Kind::LaunchTemplate, "r")
        );
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(consistency.is_visible(Kind::Role, "r"));
    }
}
