use tenon_crds::labels;
use tenon_crds::{Operator as ApiOperator, Requirement as ApiRequirement};

use super::*;
use crate::aws::catalog::tests::{mk_catalogs, mk_class};

fn wanted(requirements: &[ApiRequirement]) -> Wanted {
    Wanted {
        requirements: Requirements::from_api(requirements),
        requests: Resources { cpu: 100, memory: 1 << 20, pods: 1, ..Resources::default() },
        min_values_relaxed: false,
    }
}

fn is_in(key: &str, values: &[&str]) -> ApiRequirement {
    ApiRequirement::new(key, ApiOperator::In, values.iter().copied())
}

fn names(types: &[&str], wanted: &Wanted) -> Result<Vec<String>, Exhausted> {
    let catalog = mk_catalogs(types).catalog(&mk_class(), None).unwrap();
    let found = candidates(&catalog, wanted)?;
    Ok(found.iter().map(|candidate| candidate.instance_type.name.clone()).collect())
}

#[test]
fn types_must_be_compatible_large_enough_and_available() {
    let types = ["t3.nano", "m5.large", "m6g.large", "a1.medium"];
    let amd64 = is_in(labels::ARCH, &["amd64"]);
    let mut wanted = wanted(std::slice::from_ref(&amd64));
    assert_eq!(names(&types, &wanted).unwrap(), ["m5.large", "t3.nano"]);
    wanted.requests.memory = 1 << 30;
    assert_eq!(names(&types, &wanted).unwrap(), ["m5.large"]);
    wanted.requests.cpu = 1_931;
    assert_eq!(names(&types, &wanted), Err(Exhausted::Unavailable));
}

#[test]
fn bare_metal_and_accelerators_come_only_when_nothing_else_is_left() {
    let types = ["m5.large", "g4dn.xlarge", "m5.metal", "inf2.xlarge"];
    assert_eq!(names(&types, &wanted(&[])).unwrap(), ["m5.large"]);
    let only = is_in(labels::INSTANCE_TYPE, &["g4dn.xlarge", "m5.metal"]);
    assert_eq!(names(&types, &wanted(&[only])).unwrap(), ["g4dn.xlarge", "m5.metal"]);
    let mut flexible = is_in(labels::INSTANCE_TYPE, &types);
    flexible.min_values = Some(4);
    assert_eq!(names(&types, &wanted(&[flexible])).unwrap().len(), 4, "minValues keeps all");
}

#[test]
fn spot_that_costs_more_than_the_cheapest_on_demand_offering_is_left_out() {
    // Two cores cost 200 on demand; 16 times as many cost 40 × 96 = 3840 as spot.
    let catalog = mk_catalogs(&["m5.large", "m6idn.32xlarge"]).catalog(&mk_class(), None).unwrap();
    let both = wanted(&[is_in(labels::CAPACITY_TYPE, &["spot", "on-demand"])]);
    let found = candidates(&catalog, &both).unwrap();
    let large = found.iter().find(|c| c.instance_type.name == "m6idn.32xlarge").unwrap();
    assert!(large.offerings.iter().all(|o| o.capacity_type == CapacityType::OnDemand));
    assert_eq!(capacity_type(&found), CapacityType::Spot);

    let spot = wanted(&[is_in(labels::CAPACITY_TYPE, &["spot"])]);
    let found = candidates(&catalog, &spot).unwrap();
    assert_eq!(found.len(), 2);
    let on_demand = wanted(&[is_in(labels::CAPACITY_TYPE, &["on-demand"])]);
    let found = candidates(&catalog, &on_demand).unwrap();
    assert_eq!(capacity_type(&found), CapacityType::OnDemand);
}

#[tokio::test(start_paused = true)]
async fn what_is_unavailable_is_not_asked_for() {
    let catalogs = mk_catalogs(&["m5.large"]);
    for zone in ["eu-central-1a", "eu-central-1b"] {
        catalogs.unavailable.mark_offering("m5.large", zone, CapacityType::Spot, None, "ICE");
    }
    let catalog = catalogs.catalog(&mk_class(), None).unwrap();
    let found = candidates(&catalog, &wanted(&[])).unwrap();
    assert_eq!(capacity_type(&found), CapacityType::OnDemand, "falls back");
    let spot = wanted(&[is_in(labels::CAPACITY_TYPE, &["spot"])]);
    assert_eq!(candidates(&catalog, &spot), Err(Exhausted::Unavailable));
}

#[test]
fn too_few_values_for_min_values_is_exhaustion_unless_relaxed() {
    let types = ["m5.large", "m6i.large"];
    let mut flexible = is_in(labels::INSTANCE_TYPE, &["m5.large", "m6i.large", "c5.large"]);
    flexible.min_values = Some(3);
    let mut wanted = wanted(&[flexible]);
    assert_eq!(
        names(&types, &wanted),
        Err(Exhausted::MinValues { key: labels::INSTANCE_TYPE.to_owned(), required: 3, found: 2 })
    );
    wanted.min_values_relaxed = true;
    assert_eq!(names(&types, &wanted).unwrap().len(), 2);
}
