//! Pods that the same rules count change zones with each other where that is cheaper.

use super::behaviour::ZONE;
use super::fixtures::*;
use crate::snapshot::{CapacityType, InstanceType, Offering, PodShape, Snapshot};
use crate::testing::{Builder, instance_type, mixes, usd};

/// Machines with 8 cores: with little memory they are cheap in one zone, with much in the other.
fn kinds() -> Vec<InstanceType> {
    [("lean", 16, [0.2, 0.5]), ("rich", 64, [0.6, 0.25])]
        .map(|(name, memory, prices)| {
            let offering = |(zone, price): (&str, f64)| Offering {
                zone: zone.to_owned(),
                capacity_type: CapacityType::OnDemand,
                requirements: Vec::new(),
                price: usd(price),
                available: true,
                reservation_capacity: None,
                unpriced: None,
            };
            let offerings = ["zone-a", "zone-b"].into_iter().zip(prices).map(offering);
            instance_type(name, 8_000, memory * GI, 110, offerings.collect())
        })
        .to_vec()
}

/// As many pods with little memory as with much; eight of either fill a machine of theirs. All of
/// them count for the spread that some carry.
fn world(carries: impl Fn(usize) -> bool) -> Snapshot {
    let mut world = Builder::new(catalog(kinds())).pool(on_demand("default"));
    for index in 0..400 {
        let memory = if index % 2 == 0 { 1_700 } else { 6_500 };
        let mut shape: PodShape = mixes::shape(900, memory);
        shape.labels.insert("my-label".to_owned(), "a".to_owned());
        if carries(index) {
            shape.topology_spread.push(mixes::spread(ZONE, "a"));
        }
        world = world.pending(&format!("pod-{index:03}"), shape);
    }
    world.build()
}

/// What the launches cost, in dollars.
fn price(snapshot: &Snapshot) -> f64 {
    plan(snapshot).launches.iter().map(|launch| launch.price.as_usd()).sum()
}

/// 25 machines of either type, each where it is cheap.
const LEAST: f64 = 25.0 * 0.2 + 25.0 * 0.25;

#[test]
fn pods_go_where_their_machines_are_cheap_though_zones_stay_even() {
    // Half of either kind in each zone would cost 16 dollars.
    for (name, price) in [
        ("all carry it", price(&world(|_| true))),
        ("one in four of either kind does", price(&world(|index| index % 8 < 2))),
    ] {
        assert!((LEAST * 0.999..LEAST * 1.03).contains(&price), "{name}: {price}");
    }
}
