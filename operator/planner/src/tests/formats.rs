//! Snapshots and plans as files: what is written is read again, and other versions are refused.

use std::collections::BTreeMap;

use super::fixtures::*;
use crate::plan::{Exclusion, Plan};
use crate::policy::{Policy, PolicyError};
use crate::resources::MicroUsd;
use crate::snapshot::{NodeOverlay, SNAPSHOT_VERSION, Snapshot};
use crate::validate::{ReadError, SnapshotError};

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data")
}

#[test]
fn a_snapshot_and_its_plan_survive_a_file() {
    let mut snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.large", "zone-a"))
        .pending("web", shape(500, GI))
        .pending("huge", shape(500_000, GI))
        .build();
    snapshot.overlays = vec![NodeOverlay { name: "one".to_owned(), ..NodeOverlay::default() }];
    assert_eq!(Snapshot::from_json(&json(&snapshot)).expect("it was written"), snapshot);
    let plan = plan(&snapshot);
    assert_eq!(Plan::from_json(&json(&plan)).expect("it was written"), plan);
}

#[test]
fn another_version_is_refused_before_its_fields_are_looked_at() {
    let error = Snapshot::from_json(r#"{"version": 99, "nodes": 5}"#).expect_err("too new");
    assert!(matches!(error, ReadError::Version { found: 99, known: SNAPSHOT_VERSION, .. }));
    assert!(error.to_string().contains("write it again"), "{error}");
    assert!(matches!(Plan::from_json("{}"), Err(ReadError::Json { .. })));
    assert!(matches!(Plan::from_json(r#"{"version": 0}"#), Err(ReadError::Version { .. })));
}

#[test]
fn overlays_out_of_order_are_refused() {
    let overlay = |name: &str, weight| NodeOverlay {
        name: name.to_owned(),
        weight,
        ..NodeOverlay::default()
    };
    let mut snapshot = builder().build();
    snapshot.overlays = vec![overlay("b", 5), overlay("z", 1), overlay("a", 1)];
    assert_eq!(snapshot.validate(), Ok(()));
    snapshot.overlays.reverse();
    let expected = |at: &str| SnapshotError::Order { list: "overlays", at: at.to_owned() };
    assert_eq!(snapshot.validate(), Err(vec![expected("z"), expected("b")]));
}

#[test]
fn reasons_keep_their_form() {
    let amounts = BTreeMap::from([("cpu".to_owned(), 500)]);
    let text = |text: &str| text.to_owned();
    for (reason, expected) in [
        (Exclusion::PoolNotReady(text("x")), r#"{"poolNotReady":"x"}"#),
        (
            Exclusion::Taint { key: text("a"), value: None, effect: text("NoSchedule") },
            r#"{"taint":{"key":"a","value":null,"effect":"NoSchedule"}}"#,
        ),
        (
            Exclusion::Requirement { key: text("a"), pod: text("In [b]"), pool: text("In [c]") },
            r#"{"requirement":{"key":"a","pod":"In [b]","pool":"In [c]"}}"#,
        ),
        (
            Exclusion::NoInstanceType { closest: Some(text("c.large")), differs: vec![text("a")] },
            r#"{"noInstanceType":{"closest":"c.large","differs":["a"]}}"#,
        ),
        (
            Exclusion::Resources {
                resource: text("cpu"),
                requested: 2500,
                largest: 2000,
                closest: Some(text("c.large")),
                missing: amounts,
            },
            r#"{"resources":{"resource":"cpu","requested":2500,"largest":2000,"closest":"c.large","missing":{"cpu":500}}}"#,
        ),
        (
            Exclusion::NoOffering { closest: Some(text("a")), sold_out: vec![text("spot/z")] },
            r#"{"noOffering":{"closest":"a","soldOut":["spot/z"]}}"#,
        ),
        (
            Exclusion::Reserved { reservations: vec![text("cr-1")] },
            r#"{"reserved":{"reservations":["cr-1"]}}"#,
        ),
        (
            Exclusion::Limit { resource: text("nodes"), limit: 3, used: 3 },
            r#"{"limit":{"resource":"nodes","limit":3,"used":3}}"#,
        ),
        (
            Exclusion::MinValues { key: text("a"), required: 3, found: 1 },
            r#"{"minValues":{"key":"a","required":3,"found":1}}"#,
        ),
        (
            Exclusion::Topology { key: text("a"), rule: text("b") },
            r#"{"topology":{"key":"a","rule":"b"}}"#,
        ),
        (
            Exclusion::Devices {
                claim: text("a"),
                request: text("b"),
                class: text("c"),
                requested: 2,
                found: 1,
                closest: Some(text("c.large")),
                constraint: Some(text("d/e")),
            },
            r#"{"devices":{"claim":"a","request":"b","class":"c","requested":2,"found":1,"closest":"c.large","constraint":"d/e"}}"#,
        ),
        (Exclusion::ClaimElsewhere { claim: text("a") }, r#"{"claimElsewhere":{"claim":"a"}}"#),
        (Exclusion::Pod(text("x")), r#"{"pod":"x"}"#),
    ] {
        assert_eq!(json(&reason), expected);
        assert_eq!(serde_json::from_str::<Exclusion>(expected).expect("it was written"), reason);
    }
}

#[test]
fn what_excludes_a_pod_names_the_closest_type() {
    let mut other = shape(500, GI);
    other.node_selector.insert("kubernetes.io/arch".to_owned(), "arm64".to_owned());
    let plan = plan(&builder().pool(on_demand("default")).pending("web", other).build());
    assert_eq!(
        *only_reason(&plan),
        Exclusion::NoInstanceType {
            closest: Some("c.2xlarge".to_owned()),
            differs: vec!["kubernetes.io/arch".to_owned()],
        }
    );
    let mut kinds = kinds();
    for offer in kinds.iter_mut().flat_map(|kind| &mut kind.offerings) {
        offer.available = offer.zone != "zone-b";
    }
    let mut pinned = shape(500, GI);
    pinned.node_selector.insert(super::behaviour::ZONE.to_owned(), "zone-b".to_owned());
    let world = crate::testing::Builder::new(catalog(kinds)).pool(on_demand("default"));
    let plan = super::fixtures::plan(&world.pending("web", pinned).build());
    assert_eq!(
        *only_reason(&plan),
        Exclusion::NoOffering {
            closest: Some("c.2xlarge".to_owned()),
            sold_out: vec!["on-demand/zone-b".to_owned()],
        }
    );
}

#[test]
fn a_pod_that_needs_too_much_of_two_things_is_told_what_the_closest_type_misses() {
    // One has the cores, the other one the memory.
    let kinds =
        kinds().into_iter().filter(|kind| ["c.4xlarge", "r.2xlarge"].contains(&&*kind.name));
    let world = crate::testing::Builder::new(catalog(kinds.collect())).pool(on_demand("default"));
    let plan = plan(&world.pending("web", shape(12_000, 40 * GI)).build());
    let Exclusion::Resources { closest, missing, .. } = only_reason(&plan) else {
        panic!("{:?}", plan.report.pods)
    };
    assert_eq!(closest.as_deref(), Some("c.4xlarge"));
    assert_eq!(*missing, [("memory".to_owned(), 8 * GI + (10 << 20))].into());
}

#[test]
fn a_policy_that_makes_no_sense_is_refused() {
    let read = |text: &str| serde_json::from_str::<Policy>(text).map_err(|error| error.to_string());
    assert_eq!(read(r#"{"largestShare": 25}"#).map(|policy| policy.largest_share), Ok(25));
    for share in [0, 101] {
        let error = read(&format!(r#"{{"largestShare": {share}}}"#)).expect_err("no share");
        assert!(error.contains(&format!("largestShare is {share}: use 1 to 100")), "{error}");
    }
    assert_eq!(Policy::default().validate(), Ok(()));
    for (policy, error) in [
        (Policy { largest_share: 0, ..Policy::default() }, PolicyError::LargestShare(0)),
        (Policy { few_nodes: 101, ..Policy::default() }, PolicyError::FewNodes(101)),
        (Policy { max_instance_types: 0, ..Policy::default() }, PolicyError::NoInstanceTypes),
        (
            Policy { node_price: MicroUsd(-1), ..Policy::default() },
            PolicyError::Negative { field: "nodePrice" },
        ),
        (
            Policy { eviction_price: MicroUsd(-1), ..Policy::default() },
            PolicyError::Negative { field: "evictionPrice" },
        ),
    ] {
        let text = serde_json::to_string(&policy).expect("it can be written");
        let read = read(&text).expect_err("it can't be read");
        assert!(read.contains(&error.to_string()), "{read}");
        assert_eq!(policy.validate(), Err(error));
    }
}
