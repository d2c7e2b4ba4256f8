use std::collections::BTreeSet;

use super::*;

#[test]
fn ids_names_and_parameters_are_unique() {
    let amis = amis();
    let unique = |values: Vec<&str>| values.iter().collect::<BTreeSet<_>>().len() == values.len();
    assert!(unique(amis.iter().map(|ami| ami.id.as_str()).collect()));
    assert!(unique(amis.iter().map(|ami| ami.name.as_str()).collect()));
    assert!(unique(
        amis.iter().flat_map(|ami| ami.parameters.iter().map(String::as_str)).collect()
    ));
}

#[test]
fn ids_look_like_those_of_ec2() {
    for ami in amis() {
        let digits = ami.id.strip_prefix("ami-").unwrap();
        assert_eq!(digits.len(), 17, "{}", ami.id);
        assert!(digits.chars().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()));
    }
}

#[test]
fn the_recommended_image_is_also_there_by_its_name() {
    let amis = amis();
    let by = |version: &str| {
        let path = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard";
        by_parameter(&amis, &format!("{path}/{version}/image_id")).map(|ami| ami.id.clone())
    };
    assert!(by("recommended").is_some());
    assert_eq!(by("recommended"), by("amazon-eks-node-al2023-x86_64-standard-1.36-v20261112"));
    let older = by("amazon-eks-node-al2023-x86_64-standard-1.36-v20261015");
    assert!(older.is_some());
    assert_ne!(by("recommended"), older);
}

#[test]
fn amazon_linux_2_ends_with_1_32() {
    let amis = amis();
    let by = |minor: u32| {
        by_parameter(
            &amis,
            &format!(
                "/aws/service/eks/optimized-ami/1.{minor}/amazon-linux-2/recommended/image_id"
            ),
        )
    };
    assert!(by(32).is_some());
    assert!(by(33).is_none());
}

#[test]
fn windows_2025_begins_with_1_35() {
    let amis = amis();
    let by = |minor: u32| {
        let name = format!("Windows_Server-2025-English-Core-EKS_Optimized-1.{minor}");
        by_parameter(&amis, &format!("/aws/service/ami-windows-latest/{name}/image_id")).cloned()
    };
    assert!(by(34).is_none());
    assert_eq!(by(35).unwrap().family, Family::Windows2025);
}

#[test]
fn bottlerocket_versions_have_no_v_in_their_parameters() {
    let amis = amis();
    let path = "/aws/service/bottlerocket/aws-k8s-1.36/arm64";
    let latest = by_parameter(&amis, &format!("{path}/latest/image_id")).unwrap();
    assert_eq!(by_parameter(&amis, &format!("{path}/1.49.0/image_id")), Some(latest));
    assert!(by_parameter(&amis, &format!("{path}/v1.49.0/image_id")).is_none());
    assert_eq!(latest.arch, Arch::Arm64);
}
