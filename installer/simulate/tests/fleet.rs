//! What `tenon status` shows of a cluster, on terminals of different widths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tenon_simulate::{CatalogOptions, Fleet, Freshness, Options, Simulation, read};
use tenon_state::ec2::offered::VM_MEMORY_OVERHEAD;
use tenon_state::options::FeatureGates;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn fleet() -> Fleet {
    simulation(vec![fixture("explain/catalog.json")]).fleet()
}

fn simulation(catalogs: Vec<PathBuf>) -> Simulation {
    simulation_of("fleet/cluster.yaml", catalogs)
}

fn simulation_of(cluster: &str, catalogs: Vec<PathBuf>) -> Simulation {
    let gates: FeatureGates = "".parse().expect("no gates");
    let options = Options {
        files: vec![fixture(cluster)],
        catalog: CatalogOptions {
            files: catalogs,
            vm_memory_overhead_percent: VM_MEMORY_OVERHEAD,
            reserved_enis: 0,
        },
        now: "2026-01-01T12:00:00Z".parse().expect("a time"),
        seed: 0,
        ignore_dra_requests: true,
        policy: gates.policy(),
        feature_gates: gates,
        scheduler_config: "".parse().expect("no configuration"),
        freshness: Freshness::Latest,
        drain: Vec::new(),
    };
    let simulation = read(options, None, &|_| ());
    futures::executor::block_on(simulation).expect("it can be read")
}

fn data() -> Value {
    serde_json::to_value(fleet()).expect("a fleet is data")
}

#[test]
fn all_is_shown_where_there_is_room() {
    insta::assert_snapshot!(fleet().text(Some(120)));
}

#[test]
fn the_screen_of_the_design_is_what_is_printed() {
    let text = fleet().text(Some(80));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/design/face.md");
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains(&text), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn a_narrow_terminal_gets_percentages_instead_of_amounts() {
    insta::assert_snapshot!(fleet().text(Some(60)));
}

#[test]
fn nothing_but_commands_is_wider_than_the_terminal() {
    for width in [60, 80, 120] {
        for line in fleet().text(Some(width)).lines() {
            let columns = line.chars().count();
            assert!(columns <= width || line.contains("tenon explain"), "{width}: {line}");
        }
    }
}

#[test]
fn programs_get_the_same_with_exact_amounts() {
    let data = data();
    let pools = data["nodePools"].as_array().expect("a list");
    let names: Vec<_> = pools.iter().map(|pool| &pool["name"]).collect();
    assert_eq!(names, ["batch", "default", "experiments-of-the-data-team"]);
    assert_eq!(pools[0]["paused"], true);
    assert_eq!(pools[1]["nodes"], 4);
    assert_eq!(pools[1]["spot"], 2);
    assert_eq!(pools[1]["requests"]["cpu"], "11100m");
    assert_eq!(pools[1]["allocatable"]["cpu"], "13700m");
    assert_eq!(pools[2]["problem"], "SubnetsNotFound: no subnets");
    assert_eq!(data["otherNodes"]["nodes"], 1);
    assert_eq!(data["total"]["nodes"], 5);
    let pending: u64 = data["pendingPods"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["count"].as_u64())
        .sum();
    assert_eq!(pending, 6);
    assert_eq!(data["pendingPods"][0]["cause"], "tooLarge");
    assert_eq!(data["disrupting"][0]["reason"], "Underutilized");
    assert_eq!(data["disrupting"][1]["reason"], Value::Null);
    assert_eq!(data["blocked"][0]["nodes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn spot_nodes_cost_what_ec2_says_and_not_what_on_demand_ones_do() {
    assert!(simulation(vec![fixture("explain/catalog.json")]).unpriced_spot_types().is_empty());
    let mut simulation = simulation(Vec::new());
    let assumed = serde_json::to_value(simulation.fleet()).expect("data");
    assert_eq!(simulation.unpriced_spot_types(), BTreeSet::from(["m7i.2xlarge", "m7i.large"]));
    let price = (("m7i.large".to_owned(), "eu-west-1a".to_owned()), 0.02);
    simulation.price_spot(&BTreeMap::from([price]));
    let priced = serde_json::to_value(simulation.fleet()).expect("data");
    insta::assert_json_snapshot!([assumed, priced].map(|fleet| {
        let total = &fleet["total"];
        serde_json::json!([total["spot"], total["pricePerHour"], total["withoutPrice"]])
    }));
    let notes = simulation.notes().concat();
    assert!(notes.contains("spot at EC2's current prices"), "{notes}");
    assert!(!notes.contains("as expensive as on-demand"), "{notes}");
}

#[test]
fn windows_nodes_cost_their_license_as_well() {
    let mut simulation = simulation_of("fleet/windows.yaml", Vec::new());
    let price = |simulation: &mut Simulation| {
        let fleet = serde_json::to_value(simulation.fleet()).expect("data");
        fleet["total"]["pricePerHour"].as_f64().expect("a price")
    };
    // m7i.large, as published for us-east-1: Linux costs 0.1008, Windows 0.1928.
    assert!((price(&mut simulation) - 0.1928).abs() < 1e-9, "{}", price(&mut simulation));
    let spot = (("m7i.large".to_owned(), "eu-west-1a".to_owned()), 0.02);
    simulation.price_spot(&BTreeMap::from([spot]));
    assert!((price(&mut simulation) - 0.112).abs() < 1e-9, "{}", price(&mut simulation));
}
