//! Possible prices of a launch.

use serde::{Deserialize, Serialize};

use crate::resources::MicroUsd;

/// What a launch may come to cost per hour, depending on which of its types and zones it is given.
/// Only the capacity type counts that providers ask for first: reserved, then spot, then on-demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PriceRange {
    /// Price of the cheapest offering.
    pub cheapest: MicroUsd,
    /// On-demand and reserved the cheapest, for providers ask for the lowest price; spot is chosen
    /// by capacity, too, so there it is the mean over the types, each where it is cheapest.
    pub expected: MicroUsd,
    /// Price of the most expensive offering.
    pub dearest: MicroUsd,
}
