use tenon_crds::{NodeClaimSpec, NodeClaimStatus};

use super::*;
use crate::aws::catalog::tests::{mk_catalogs, mk_class};
use crate::aws::ec2::InReservation;

fn mk_claim() -> NodeClaim {
    let mut claim = NodeClaim::new("claim", NodeClaimSpec::default());
    claim.metadata.labels =
        Some([(labels::INSTANCE_TYPE.to_owned(), "m5.large".to_owned())].into());
    claim.metadata.annotations = Some(annotations("1", "v5"));
    claim.status =
        Some(NodeClaimStatus { image_id: Some("ami-amd".to_owned()), ..Default::default() });
    claim
}

fn annotations(hash: &str, version: &str) -> std::collections::BTreeMap<String, String> {
    [(aws::EC2NODECLASS_HASH, hash), (aws::EC2NODECLASS_HASH_VERSION, version)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn hashed_class() -> EC2NodeClass {
    let mut class = mk_class();
    class.metadata.annotations = Some(annotations("1", "v5"));
    class
}

fn mk_instance() -> Instance {
    Instance {
        id: "i-1".to_owned(),
        security_groups: ["sg-1".to_owned()].into(),
        subnet_id: Some("subnet-a".to_owned()),
        ..Instance::default()
    }
}

fn seen(claim: &NodeClaim, class: &EC2NodeClass) -> Result<Option<Drift>, Unclear> {
    let catalog = mk_catalogs(&["m5.large"]).catalog(&mk_class(), None).unwrap();
    without_instance(claim, class, &catalog)
}

#[test]
fn settings_drift_only_between_hashes_of_one_version() {
    assert_eq!(seen(&mk_claim(), &hashed_class()), Ok(None));
    let mut claim = mk_claim();
    claim.metadata.annotations = Some(annotations("2", "v5"));
    assert_eq!(seen(&claim, &hashed_class()), Ok(Some(Drift::NodeClass)));
    claim.metadata.annotations = Some(annotations("2", "v4"));
    assert_eq!(seen(&claim, &hashed_class()), Ok(None));
    claim.metadata.annotations = None;
    assert_eq!(seen(&claim, &hashed_class()), Ok(None));
}

#[test]
fn another_image_is_drift_and_no_image_is_none() {
    let mut class = hashed_class();
    let amis = &mut class.status.as_mut().unwrap().amis;
    amis[0].id = "ami-new".to_owned();
    assert_eq!(seen(&mk_claim(), &class), Ok(Some(Drift::Ami)));
    class.status.as_mut().unwrap().amis.clear();
    assert_eq!(seen(&mk_claim(), &class), Err(Unclear::Empty("amis")));

    let mut claim = mk_claim();
    claim.status = None;
    assert_eq!(seen(&claim, &hashed_class()), Err(Unclear::NoImage));
    claim.metadata.labels = None;
    assert_eq!(seen(&claim, &hashed_class()), Err(Unclear::Type(String::new())));
}

#[test]
fn network_and_placement_of_the_instance_drift() {
    let check = |change: fn(&mut NodeClaim, &mut EC2NodeClass, &mut Instance)| {
        let (mut claim, mut class, mut instance) = (mk_claim(), hashed_class(), mk_instance());
        change(&mut claim, &mut class, &mut instance);
        of_instance(&claim, &class, &instance, None)
    };
    assert_eq!(check(|_, _, _| {}), Ok(None));
    assert_eq!(
        check(|_, _, instance| {
            instance.security_groups.insert("sg-2".to_owned());
        }),
        Ok(Some(Drift::SecurityGroup))
    );
    assert_eq!(
        check(|_, _, instance| instance.subnet_id = Some("subnet-z".to_owned())),
        Ok(Some(Drift::Subnet))
    );
    assert_eq!(
        check(|_, _, instance| {
            let id = "cr-1".to_owned();
            instance.reservation = Some(InReservation { id, lifecycle: String::new() });
        }),
        Ok(Some(Drift::CapacityReservation))
    );
    assert_eq!(
        check(|claim, _, _| {
            let labels = claim.metadata.labels.as_mut().unwrap();
            labels.insert(aws::PLACEMENT_GROUP_ID.to_owned(), "pg-1".to_owned());
        }),
        Ok(Some(Drift::PlacementGroup))
    );
    assert_eq!(
        check(|_, class, _| class.status.as_mut().unwrap().subnets.clear()),
        Err(Unclear::Empty("subnets"))
    );
    assert_eq!(
        check(|_, class, _| class.status.as_mut().unwrap().security_groups.clear()),
        Err(Unclear::Empty("security groups"))
    );
}

#[test]
fn reasons_are_upstreams() {
    assert_eq!(Drift::NodeClass.reason(), "NodeClassDrift");
    assert_eq!(Drift::Ami.reason(), "AMIDrift");
    assert_eq!(Drift::SecurityGroup.reason(), "SecurityGroupDrift");
    assert_eq!(Drift::Subnet.reason(), "SubnetDrift");
}
