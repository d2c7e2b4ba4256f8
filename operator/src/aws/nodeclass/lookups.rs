//! Answers of AWS about EC2NodeClasses, remembered for as long as upstream does.

use std::time::Duration;

use tenon_crds::EC2NodeClass;
use tenon_crds::ec2nodeclass::{Ami, SecurityGroup, Subnet};

use super::REFRESH;
use super::status::Resolved;
use crate::aws::backoff::{Backoff, Waits};
use crate::aws::ec2::{self, PlacementGroup};
use crate::aws::error::Error;
use crate::aws::ttl::TtlMap;
use crate::logging::log_failure;

/// What AWS said lately about classes; own patches wake the controller, and must not make it ask
/// again.
#[derive(Debug)]
pub(crate) struct Lookups {
    pub(super) subnets: TtlMap<ClassKey, Vec<Subnet>>,
    pub(super) security_groups: TtlMap<ClassKey, Vec<SecurityGroup>>,
    pub(super) amis: TtlMap<(ClassKey, String), Vec<Ami>>,
    pub(super) placement_groups: TtlMap<ClassKey, PlacementGroup>,
    pub(super) reservations: TtlMap<ClassKey, Vec<ec2::CapacityReservation>>,
    /// Classes that select something that does not exist.
    pub(super) nothing: Backoff<ClassKey>,
}

/// A class as it was written: uid and generation.
type ClassKey = (String, i64);

impl Lookups {
    /// Nothing looked up yet.
    pub(crate) fn new(amis: Duration, subnets: Duration) -> Self {
        Self {
            subnets: TtlMap::new(subnets),
            security_groups: TtlMap::new(Duration::from_secs(60)),
            amis: TtlMap::new(amis),
            // Looked up on every reconcile; launches in between go by the last answer.
            placement_groups: TtlMap::new(Duration::from_secs(600)),
            reservations: TtlMap::new(REFRESH),
            nothing: Backoff::new(Waits::QUESTIONS),
        }
    }

    /// Drops what is too old to be used: that of classes that are gone is not replaced by newer
    /// answers.
    pub(crate) fn drop_ended(&self) {
        self.subnets.retain(|_| true);
        self.security_groups.retain(|_| true);
        self.amis.retain(|_| true);
        self.placement_groups.retain(|_| true);
        self.reservations.retain(|_| true);
    }

    /// The placement group of a class, as it was looked up last.
    pub(crate) fn placement_group(&self, class: &EC2NodeClass) -> Option<PlacementGroup> {
        self.placement_groups.get(&class_key(class))
    }
}

pub(super) fn class_key(class: &EC2NodeClass) -> ClassKey {
    (class.metadata.uid.clone().unwrap_or_default(), class.metadata.generation.unwrap_or_default())
}

/// A question about a class was not answered.
pub(super) fn failed<T>(
    class: &EC2NodeClass,
    what: &'static str,
    error: &(dyn std::error::Error + 'static),
) -> Resolved<T> {
    let nodeclass = class.metadata.name.as_deref().unwrap_or_default();
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut calls = causes.filter_map(|error| error.downcast_ref::<Error>());
    let passing = calls.any(Error::is_retryable);
    log_failure!(passing: passing, nodeclass, error, what, "failed to resolve");
    Resolved::Failed
}
