//! What EC2 may be asked to launch for a NodeClaim.

use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{InstanceType, Offering};

/// A type and those of its offerings that the claim may use now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate<'c> {
    /// The instance type, from the catalog of the NodeClass.
    pub instance_type: &'c InstanceType,
    /// Available offerings that the claim allows. Not empty.
    pub offerings: Vec<&'c Offering>,
}

impl Candidate<'_> {
    /// The cheapest offering's price.
    pub(crate) fn price(&self) -> MicroUsd {
        self.offerings.iter().map(|offering| offering.price).min().unwrap_or_default()
    }
}
