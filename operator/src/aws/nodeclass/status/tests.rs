use tenon_crds::ConditionStatus;

use super::*;
use crate::aws::catalog::tests::mk_class;

fn now() -> Timestamp {
    "2026-11-20T00:00:00Z".parse().unwrap()
}

fn fresh_class() -> EC2NodeClass {
    let mut class = mk_class();
    class.status = None;
    class
}

fn mk_resolution() -> Resolution {
    let status = mk_class().status.unwrap();
    Resolution {
        amis: Resolved::Some(status.amis),
        capacity_reservations: Resolved::Some(Vec::new()),
        subnets: Resolved::Some(status.subnets),
        security_groups: Resolved::Some(status.security_groups),
        instance_profile: Resolved::Some("demo_1".to_owned()),
        placement_group: Resolved::Some(()),
    }
}

fn lines(status: &EC2NodeClassStatus) -> Vec<String> {
    status
        .conditions
        .iter()
        .map(|c| format!("{} {} {} {}", c.type_, c.status, c.reason, c.message))
        .collect()
}

fn status_of(status: &EC2NodeClassStatus, type_: &str) -> ConditionStatus {
    status.conditions.iter().find(|c| c.type_ == type_).unwrap().status
}

#[test]
fn a_class_that_is_resolved_and_valid_is_ready() {
    let class = fresh_class();
    let status = resolved(&class, mk_resolution(), now());
    assert_eq!(dependencies(&status), None);
    assert_eq!(status_of(&status, "Ready"), ConditionStatus::Unknown);
    let status = validated(&class, status, &Verdict::Valid, now());
    insta::assert_yaml_snapshot!(lines(&status), @r#"
    - "AMIsReady True AMIsReady "
    - "CapacityReservationsReady True CapacityReservationsReady "
    - "PlacementGroupReady True PlacementGroupReady "
    - "SubnetsReady True SubnetsReady "
    - "SecurityGroupsReady True SecurityGroupsReady "
    - "InstanceProfileReady True InstanceProfileReady "
    - "ValidationSucceeded True ValidationSucceeded "
    - "Ready True Ready "
    "#);
    assert_eq!(status.instance_profile.as_deref(), Some("demo_1"));
    assert_eq!(status.amis.len(), 2);
}

#[test]
fn what_is_not_found_is_taken_out_and_named() {
    let mut class = mk_class();
    class.status.as_mut().unwrap().instance_profile = None;
    let mut resolution = mk_resolution();
    resolution.subnets = Resolved::Nothing {
        reason: "SubnetsNotFound",
        message: "SubnetSelector did not match any Subnets".to_owned(),
    };
    let status = resolved(&class, resolution, now());
    assert_eq!(status.subnets, vec![]);
    assert_eq!(status_of(&status, "Ready"), ConditionStatus::False);
    let verdict = dependencies(&status).unwrap();
    assert!(matches!(verdict, Verdict::Invalid { reason: "DependenciesNotReady", .. }));
}

#[test]
fn what_could_not_be_asked_stays_as_it_was() {
    let class = fresh_class();
    let first = resolved(&class, mk_resolution(), now());
    let mut known = class.clone();
    known.status = Some(validated(&class, first, &Verdict::Valid, now()));
    let failed = Resolution {
        capacity_reservations: Resolved::Failed,
        amis: Resolved::Failed,
        subnets: Resolved::Failed,
        security_groups: Resolved::Failed,
        instance_profile: Resolved::Failed,
        placement_group: Resolved::Failed,
    };
    let status = resolved(&known, failed, now());
    assert_eq!(Some(&status), known.status.as_ref());
    assert_eq!(patch(&known, &status), None);
}

#[test]
fn nothing_resolved_yet_is_unknown() {
    let resolution = Resolution { instance_profile: Resolved::Failed, ..mk_resolution() };
    let status = resolved(&fresh_class(), resolution, now());
    assert!(matches!(dependencies(&status), Some(Verdict::Unknown { .. })));
}

#[test]
fn the_patch_names_what_is_gone() {
    let class = mk_class();
    let mut status = class.status.clone().unwrap();
    status.subnets.clear();
    status.instance_profile = None;
    let patch = patch(&class, &status).unwrap();
    for gone in ["subnets", "instanceProfile"] {
        assert_eq!(patch.get(gone), Some(&serde_json::Value::Null), "{gone}");
    }
    assert_eq!(patch["amis"][0]["id"], "ami-amd");
}
