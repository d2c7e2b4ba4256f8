use std::collections::BTreeMap;

use tenon_planner::resources::MicroUsd;

use super::*;

/// Nodes in Ireland: type, zone, capacity type, and price in USD.
fn snapshot(nodes: &[(&str, &str, &str, f64)]) -> Snapshot {
    let nodes = nodes.iter().enumerate().map(|(position, (kind, zone, capacity, price))| Node {
        key: format!("node-{position}"),
        labels: [
            (labels::INSTANCE_TYPE, *kind),
            (labels::ZONE, zone),
            (labels::CAPACITY_TYPE, capacity),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        price: Some(MicroUsd::from_usd(*price)),
        ..Node::default()
    });
    Snapshot { nodes: nodes.collect(), ..Snapshot::default() }
}

fn reserved(kind: &str, count: f64, price: f64, zone: Option<&str>) -> ReservedInstances {
    ReservedInstances {
        id: format!("{kind} in {zone:?}"),
        instance_type: kind.to_owned(),
        zone: zone.map(str::to_owned),
        count,
        price,
        end: None,
    }
}

fn plan(kind: CommitmentKind, commitment: f64, rates: &[(&str, f64)]) -> SavingsPlan {
    let rates = rates.iter().map(|(instance_type, rate)| {
        let key = RateKey {
            region: "eu-west-1".to_owned(),
            instance_type: (*instance_type).to_owned(),
            dedicated: false,
        };
        (key, *rate)
    });
    SavingsPlan {
        id: format!("{kind:?}"),
        kind,
        commitment,
        end: None,
        rates: rates.collect::<BTreeMap<_, _>>(),
    }
}

/// Files without anything that is active.
fn none() -> Commitments {
    Commitments { are_known: true, ..Commitments::default() }
}

fn bill(snapshot: &Snapshot, with: &Commitments) -> Bill {
    Bill::new(snapshot, &Prices::new(snapshot), with)
}

/// What each node costs, in thousandths of a dollar.
fn costs(bill: &Bill) -> Vec<i64> {
    let cost = |node: &Option<NodeBill>| node.as_ref().map_or(-1.0, NodeBill::cost);
    #[expect(clippy::cast_possible_truncation, reason = "small numbers")]
    let thousandths = |cost: f64| (1000.0 * cost).round() as i64;
    bill.nodes.iter().map(cost).map(thousandths).collect()
}

const A: &str = "eu-west-1a";
const B: &str = "eu-west-1b";
const OD: &str = "on-demand";

/// The examples of AWS's whitepaper on reservation models.
#[test]
fn regional_reserved_instances_cover_other_sizes_of_their_family() {
    let one = Commitments { reserved: vec![reserved("t2.medium", 1.0, 0.03, None)], ..none() };
    let two_smaller = snapshot(&[("t2.small", A, OD, 0.025), ("t2.small", B, OD, 0.025)]);
    assert_eq!(costs(&bill(&two_smaller, &one)), [15, 15]);
    let larger = snapshot(&[("t2.large", A, OD, 0.1)]);
    let half = bill(&larger, &one);
    assert_eq!(costs(&half), [80]);
    let committed = half.committed.expect("there is one");
    assert!((committed.on_demand_per_hour - 0.05).abs() < 1e-9, "{committed:?}");
    // All sizes are there: the smallest comes first.
    let mixed = snapshot(&[("t2.large", A, OD, 0.1), ("t2.small", A, OD, 0.025)]);
    assert_eq!(costs(&bill(&mixed, &one)), [75 + 15, 15]);
}

#[test]
fn zonal_reserved_instances_cover_their_type_in_their_zone() {
    let nodes = snapshot(&[
        ("m7i.large", A, OD, 0.1),
        ("m7i.large", A, OD, 0.1),
        ("m7i.large", B, OD, 0.1),
        ("m7i.xlarge", A, OD, 0.2),
        ("m7i.large", A, "spot", 0.04),
    ]);
    let zonal = reserved("m7i.large", 3.0, 0.06, Some(A));
    let with = Commitments { reserved: vec![zonal], ..none() };
    let bill = bill(&nodes, &with);
    assert_eq!(costs(&bill), [60, 60, 100, 200, 40]);
    let committed = bill.committed.expect("there are some");
    assert!((committed.committed_per_hour - 0.18).abs() < 1e-9, "{committed:?}");
    assert!((committed.used_per_hour - 0.12).abs() < 1e-9, "{committed:?}");
    // Neither the spot instance nor what is covered is left out of what could be.
    assert!((committed.eligible_per_hour - 0.5).abs() < 1e-9, "{committed:?}");
}

#[test]
fn accelerated_instances_are_not_divided() {
    let nodes = snapshot(&[("g5.xlarge", A, OD, 1.0), ("g5.2xlarge", A, OD, 1.2)]);
    let with = Commitments { reserved: vec![reserved("g5.2xlarge", 2.0, 0.7, None)], ..none() };
    assert_eq!(costs(&bill(&nodes, &with)), [1000, 700]);
}

/// With the prices of the example in AWS's guide to Savings Plans: 50 and 20 percent off, and 75
/// and 40 percent with a plan for one family.
#[test]
fn savings_plans_pay_first_where_they_save_most() {
    let nodes = snapshot(&[("c5.24xlarge", A, OD, 10.0), ("c5.9xlarge", A, OD, 4.0)]);
    let compute = [("c5.9xlarge", 2.0), ("c5.24xlarge", 8.0)];
    let family = [("c5.9xlarge", 1.0), ("c5.24xlarge", 6.0)];
    let of = |plans| Commitments { plans, ..none() };
    let all = of(vec![plan(CommitmentKind::ComputeSavingsPlan, 25.0, &compute)]);
    assert_eq!(costs(&bill(&nodes, &all)), [8000, 2000]);
    // 2 of the 6 dollars pay for the smaller one, 4 for half of the larger.
    let some = of(vec![plan(CommitmentKind::ComputeSavingsPlan, 6.0, &compute)]);
    assert_eq!(costs(&bill(&nodes, &some)), [4000 + 5000, 2000]);
    // The plan for the family pays for the smaller one and a third of the larger; the other plan,
    // although it is the first, pays for a quarter.
    let both = of(vec![
        plan(CommitmentKind::ComputeSavingsPlan, 2.0, &compute),
        plan(CommitmentKind::Ec2InstanceSavingsPlan, 3.0, &family),
    ]);
    let both = bill(&nodes, &both);
    assert_eq!(costs(&both), [2000 + 2000 + 4167, 1000]);
    let committed = both.committed.expect("there are two");
    let kinds: Vec<CommitmentKind> = committed.commitments.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [CommitmentKind::Ec2InstanceSavingsPlan, CommitmentKind::ComputeSavingsPlan]);
    assert!((committed.used_per_hour - 5.0).abs() < 1e-9, "{committed:?}");
}

#[test]
fn reserved_instances_come_before_savings_plans() {
    let nodes = snapshot(&[("m7i.large", A, OD, 0.1), ("m7i.large", B, OD, 0.1)]);
    let with = Commitments {
        reserved: vec![reserved("m7i.large", 1.0, 0.07, None)],
        plans: vec![plan(CommitmentKind::ComputeSavingsPlan, 1.0, &[("m7i.large", 0.05)])],
        ..none()
    };
    let bill = bill(&nodes, &with);
    assert_eq!(costs(&bill), [70, 50]);
    assert_eq!(bill.committed.expect("there are two").nodes, 2);
}

#[test]
fn windows_and_dedicated_instances_are_not_covered() {
    let mut nodes = snapshot(&[("m7i.large", A, OD, 0.1), ("m7i.large", A, OD, 0.1)]);
    nodes.nodes[0].labels.insert(labels::OS.to_owned(), "windows".to_owned());
    nodes.nodes[1].labels.insert(labels::aws::INSTANCE_TENANCY.to_owned(), "dedicated".to_owned());
    let with = Commitments {
        reserved: vec![reserved("m7i.large", 9.0, 0.01, None)],
        plans: vec![plan(CommitmentKind::ComputeSavingsPlan, 1.0, &[("m7i.large", 0.05)])],
        ..none()
    };
    assert_eq!(costs(&bill(&nodes, &with)), [100, 100]);
}

/// Whatever there is, nothing is paid twice, no commitment pays more than it is worth, and what
/// it saves is missing from the bill.
#[test]
fn every_dollar_is_counted_once() {
    let kinds = ["m7i.large", "m7i.xlarge", "m7i.4xlarge", "c7i.large", "g5.xlarge"];
    let price = |kind: usize| 0.1 * [1.0, 2.0, 8.0, 0.9, 10.0][kind];
    // A linear congruential generator: the same cases every time.
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    let number = |n: usize| f64::from(u32::try_from(n).expect("it is small"));
    for _ in 0..2000 {
        let nodes: Vec<_> = (0..next(8))
            .map(|_| {
                let kind = next(kinds.len());
                let capacity = [OD, OD, "spot"][next(3)];
                (kinds[kind], [A, B][next(2)], capacity, price(kind))
            })
            .collect();
        let reserved = (0..next(4)).map(|_| {
            let kind = next(kinds.len());
            let zone = [None, Some(A), Some(B)][next(3)];
            let part = 0.5 + 0.1 * number(next(5));
            reserved(kinds[kind], number(1 + next(3)), price(kind) * part, zone)
        });
        let reserved = reserved.collect();
        let plans = (0..next(4)).map(|_| {
            let rates: Vec<_> = (0..kinds.len())
                .map(|kind| (kinds[kind], price(kind) * (0.4 + 0.1 * number(next(7)))))
                .collect();
            let kind = [CommitmentKind::ComputeSavingsPlan, CommitmentKind::Ec2InstanceSavingsPlan];
            plan(kind[next(2)], 0.05 * number(next(20)), &rates)
        });
        let with = Commitments { reserved, plans: plans.collect(), ..none() };
        let snapshot = snapshot(&nodes);
        let bill = bill(&snapshot, &with);
        let Some(committed) = &bill.committed else { continue };
        let mut total = 0.0;
        for (node, (_, _, capacity, price)) in bill.nodes.iter().zip(&nodes) {
            let node = node.as_ref().expect("its price is known");
            let shares: f64 = node.covered.iter().map(|it| it.share).sum();
            assert!(shares <= 1.0 + 1e-9, "{node:?}");
            assert!(node.cost() <= price + 1e-9, "{node:?}");
            assert!(*capacity == OD || node.covered.is_empty(), "{node:?}");
            total += node.cost();
        }
        for it in &committed.commitments {
            assert!(it.used_per_hour <= it.committed_per_hour + 1e-9, "{it:?}");
        }
        let without: f64 = nodes.iter().map(|(_, _, _, price)| price).sum();
        let saved = committed.on_demand_per_hour - committed.used_per_hour;
        assert!((without - saved - total).abs() < 1e-6, "{committed:?}");
    }
}
