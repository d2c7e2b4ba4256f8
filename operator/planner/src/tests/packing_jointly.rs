//! A few machines for pods that are spread over zones, against the cheapest plan that there is.
//!
//! The oracle tries all ways to put each pod into a zone that the spread constraints allow, and all
//! ways to share machines there. It knows nothing of how plans are made.

use super::behaviour::{HOSTNAME, ZONE, app, near, spread};
use super::fixtures::*;
use crate::policy::Policy;
use crate::provision;
use crate::resources::MicroUsd;
use crate::snapshot::{PodShape, Snapshot};
use crate::testing::mixes::Draw;
use crate::testing::usd;

/// A service: what a replica requests, in millicores and MiB, and whether replicas keep off each
/// other's hosts.
#[derive(Clone, Copy, Debug)]
struct Service {
    cpu: i64,
    mebibytes: i64,
    replicas: usize,
    alone: bool,
}

/// Ten pods of three services.
fn draw(seed: u64) -> Vec<Service> {
    let mut draw = Draw(seed);
    // The first numbers of neighbouring seeds are alike.
    (0..9).for_each(|_| _ = draw.number());
    [4, 4, 2]
        .map(|replicas| Service {
            cpu: *draw.from(&[300, 600, 900, 1_300, 1_700, 2_100]),
            mebibytes: *draw.from(&[500, 1_500, 3_000, 6_000, 9_000]),
            replicas,
            alone: *draw.from(&[true, false, false]),
        })
        .to_vec()
}

fn world(services: &[Service]) -> Snapshot {
    let mut world = builder().pool(on_demand("default"));
    for (number, service) in services.iter().enumerate() {
        let name = format!("service-{number}");
        let mut shape: PodShape = spread(app(&name, service.cpu), ZONE, 1);
        shape.requests.memory = service.mebibytes << 20;
        if service.alone {
            shape = near(shape, HOSTNAME, &name, true);
        }
        for replica in 0..service.replicas {
            world = world.pending(&format!("{name}-{replica}"), shape.clone());
        }
    }
    world.build()
}

/// The price of the cheapest plan, in micro-dollars.
fn optimum(services: &[Service], node_price: i64) -> i64 {
    let types: Vec<(i64, i64, i64)> = [(2, 42_500), (4, 48_000), (8, 63_000)]
        .iter()
        .flat_map(|&(per_core, price)| {
            [2, 4, 8, 16, 32].map(|cores| {
                // What a node keeps for itself.
                (cores * 1_000 - 100, cores * per_core * 1_024 - 10, cores * price + node_price)
            })
        })
        .collect();
    let pods: Vec<usize> = services
        .iter()
        .enumerate()
        .flat_map(|(service, it)| std::iter::repeat_n(service, it.replicas))
        .collect();
    let sets = 1 << pods.len();
    let of = |set: usize| (0..pods.len()).filter(move |pod| set >> pod & 1 == 1);
    // The cheapest machine for each set of pods, then the cheapest machines in one zone.
    let one: Vec<Option<i64>> = (0..sets)
        .map(|set| {
            let members: Vec<&Service> = of(set).map(|pod| &services[pods[pod]]).collect();
            let cpu: i64 = members.iter().map(|it| it.cpu).sum();
            let memory: i64 = members.iter().map(|it| it.mebibytes).sum();
            let together = |service: &usize| of(set).filter(|&pod| pods[pod] == *service).count();
            let apart = (0..services.len()).all(|it| !services[it].alone || together(&it) <= 1);
            let holding = types.iter().filter(|it| apart && it.0 >= cpu && it.1 >= memory);
            holding.map(|it| it.2).min()
        })
        .collect();
    let mut zone = vec![0; sets];
    for set in 1..sets {
        let first = set & set.wrapping_neg();
        let mut least = i64::MAX;
        let mut part = set;
        while part > 0 {
            if part & first != 0
                && let Some(price) = one[part]
            {
                least = least.min(price + zone[set ^ part]);
            }
            part = (part - 1) & set;
        }
        zone[set] = least;
    }
    // Each pod in each zone; no zone has more than one pod of a service more than another.
    let mut least = i64::MAX;
    for ways in 0..3_usize.pow(u32::try_from(pods.len()).unwrap_or(0)) {
        let (mut rest, mut sets, mut counts) = (ways, [0; 3], [[0; 3]; 3]);
        for (pod, &service) in pods.iter().enumerate() {
            sets[rest % 3] |= 1 << pod;
            counts[service][rest % 3] += 1;
            rest /= 3;
        }
        let even =
            |of: &[i32; 3]| of.iter().max() <= of.iter().min().map(|least| least + 1).as_ref();
        if counts.iter().all(even) {
            least = least.min(sets.iter().map(|&set| zone[set]).sum());
        }
    }
    least
}

#[test]
fn few_machines_over_zones_cost_hardly_ever_more_than_the_cheapest_plan() {
    let policy = Policy { node_price: usd(0.0), ..Policy::default() };
    let (mut cheapest, mut above) = (0, 0.0_f64);
    for seed in 0..DRAWN {
        let services = draw(seed);
        let world = world(&services);
        let plan = provision(&world, &policy, now(), 1, &());
        assert_eq!(plan.report.pods, [], "{services:?}");
        assert_eq!(crate::check(&world, &plan), [], "{services:?}");
        let price: MicroUsd = plan.launches.iter().map(|launch| launch.price).sum();
        let optimum = optimum(&services, 0);
        assert!(optimum <= price.0, "the oracle missed a plan for {services:?}");
        cheapest += usize::from(optimum == price.0);
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let ratio = price.0 as f64 / optimum as f64;
        above += ratio - 1.0;
    }
    let above = above / f64::from(u32::try_from(DRAWN).unwrap_or(1));
    assert!(
        cheapest >= 95,
        "{cheapest} of {DRAWN} plans are the cheapest, {above} above on average"
    );
    assert!(above < 0.002, "{above} above on average");
}

/// How many worlds are drawn.
const DRAWN: u64 = 100;
