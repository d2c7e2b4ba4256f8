use super::*;
use crate::aws::tests::mk_claim;

fn registered() -> NodeClaim {
    let mut claim = mk_claim("claim-1");
    claim.status = Some(tenon_crds::NodeClaimStatus {
        node_name: Some("node-1".to_owned()),
        ..Default::default()
    });
    claim
}

#[test]
fn an_instance_is_tagged_once_its_node_has_joined() {
    let tags = late_tags(&registered(), "demo").unwrap();
    let tags: Vec<_> = tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(
        tags,
        [
            ("Name", "node-1"),
            ("eks:eks-cluster-name", "demo"),
            ("karpenter.sh/nodeclaim", "claim-1"),
        ]
    );
    assert_eq!(late_tags(&mk_claim("claim-1"), "demo"), None, "not joined");
    let mut other = registered();
    other.spec.node_class_ref.group = "karpenter.kwok.sh".to_owned();
    assert_eq!(late_tags(&other, "demo"), None, "another provider's");
}

#[test]
fn both_annotations_say_that_it_is_done() {
    let mut claim = registered();
    let mut annotations = BTreeMap::from([(keys::TAGGED.to_owned(), "true".to_owned())]);
    claim.metadata.annotations = Some(annotations.clone());
    assert!(late_tags(&claim, "demo").is_some());
    annotations.insert(keys::CLUSTER_NAME_TAGGED.to_owned(), "true".to_owned());
    claim.metadata.annotations = Some(annotations);
    assert_eq!(late_tags(&claim, "demo"), None);
}
