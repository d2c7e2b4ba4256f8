//! Tags on what the operator makes in AWS. IAM policies and every clean-up go by them, so they are
//! there from the creation on.

use std::collections::BTreeMap;

use tenon_crds::EC2NodeClass;
use tenon_crds::labels::{self, aws};

/// Tags, sorted by key.
pub(super) type Tags = BTreeMap<String, String>;

/// A tag of an EC2NodeClass that belongs to the operator.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("tag \"{0}\" is reserved for the operator: remove it from spec.tags")]
pub(super) struct ReservedTag(pub String);

/// Key of the tag that says that the cluster owns something.
pub(super) fn cluster_tag(cluster: &str) -> String {
    format!("{}{cluster}", aws::CLUSTER_TAG_PREFIX)
}

/// Tags of instances, volumes, network interfaces, fleets, spot requests and launch templates.
/// `node_pool` is empty for dry runs.
pub(super) fn launch_tags(
    node_class: &EC2NodeClass,
    cluster: &str,
    node_pool: &str,
) -> Result<Tags, ReservedTag> {
    let mut tags = user_tags(node_class)?;
    tags.insert(cluster_tag(cluster), "owned".to_owned());
    tags.insert(labels::NODEPOOL.to_owned(), node_pool.to_owned());
    tags.insert(aws::EKS_CLUSTER_NAME_TAG.to_owned(), cluster.to_owned());
    tags.insert(aws::EC2NODECLASS.to_owned(), node_class.metadata.name.clone().unwrap_or_default());
    Ok(tags)
}

/// Tags of an instance profile. The operator's win over the user's; the validation of the NodeClass
/// says so when they clash.
pub(super) fn profile_tags(node_class: &EC2NodeClass, cluster: &str, region: &str) -> Tags {
    let mut tags = node_class.spec.tags.clone().unwrap_or_default();
    tags.insert(cluster_tag(cluster), "owned".to_owned());
    tags.insert(aws::EKS_CLUSTER_NAME_TAG.to_owned(), cluster.to_owned());
    tags.insert(aws::EC2NODECLASS.to_owned(), node_class.metadata.name.clone().unwrap_or_default());
    tags.insert(labels::REGION.to_owned(), region.to_owned());
    tags
}

fn user_tags(node_class: &EC2NodeClass) -> Result<Tags, ReservedTag> {
    let tags = node_class.spec.tags.clone().unwrap_or_default();
    match tags.keys().find(|key| is_reserved(key)) {
        Some(key) => Err(ReservedTag(key.clone())),
        None => Ok(tags),
    }
}

fn is_reserved(key: &str) -> bool {
    [labels::NODEPOOL, aws::EKS_CLUSTER_NAME_TAG, aws::EC2NODECLASS, aws::NODECLAIM_TAG]
        .contains(&key)
        || key.strip_prefix(aws::CLUSTER_TAG_PREFIX).is_some_and(|cluster| {
            cluster.starts_with(|first: char| first.is_ascii_alphanumeric())
                && cluster.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(tags: &[(&str, &str)]) -> EC2NodeClass {
        let mut class = EC2NodeClass::new("default", tenon_crds::EC2NodeClassSpec::default());
        class.spec.tags = Some(tags.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect());
        class
    }

    #[test]
    fn launch_tags_are_the_users_and_the_operators() {
        let tags = launch_tags(&class(&[("team", "a")]), "demo", "pool").unwrap();
        insta::assert_yaml_snapshot!(tags, @r#"
        "eks:eks-cluster-name": demo
        karpenter.k8s.aws/ec2nodeclass: default
        karpenter.sh/nodepool: pool
        kubernetes.io/cluster/demo: owned
        team: a
        "#);
    }

    #[test]
    fn refuses_tags_that_belong_to_the_operator() {
        for key in [
            "karpenter.sh/nodepool",
            "karpenter.sh/nodeclaim",
            "eks:eks-cluster-name",
            "karpenter.k8s.aws/ec2nodeclass",
            "kubernetes.io/cluster/other",
        ] {
            assert_eq!(
                launch_tags(&class(&[(key, "x")]), "demo", "pool"),
                Err(ReservedTag(key.to_owned()))
            );
        }
        assert!(launch_tags(&class(&[("kubernetes.io/cluster/", "x")]), "demo", "p").is_ok());
    }
}
