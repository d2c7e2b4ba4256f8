//! The managed node groups of a cluster: what its nodes are like before Tenon launches any.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::Filter;
use aws_sdk_eks::types::{CapacityTypes, Nodegroup, Taint as NodeGroupTaint, TaintEffect};

use crate::aws::{Aws, AwsError, Calling, all};
use crate::settings::config::Architecture;

use super::templates::TemplateRef;

/// The tags that EKS puts on instances of a node group.
const CLUSTER_TAG: &str = "tag:eks:cluster-name";
const GROUP_TAG: &str = "eks:nodegroup-name";

/// A managed node group of EKS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeGroup {
    /// Its name in EKS.
    pub name: String,
    /// Its subnets.
    pub subnet_ids: Vec<String>,
    /// EKS's name of its image, such as `AL2023_x86_64_STANDARD`; `CUSTOM` where a launch template
    /// chooses.
    pub image: String,
    /// The types that it may launch; none where its launch template says it.
    pub instance_types: Vec<String>,
    /// It buys spot instances.
    pub is_spot: bool,
    /// What its nodes are labelled with, beside EKS's own labels.
    pub labels: BTreeMap<String, String>,
    /// What its nodes are tainted with.
    pub taints: Vec<Taint>,
    /// Size of the disk, in GiB, where no launch template says it.
    pub disk_gib: Option<i32>,
    /// What the user gave to launch from; EKS makes its own of it.
    pub template: Option<TemplateRef>,
}

/// A taint as Kubernetes spells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Taint {
    /// Such as `example.com/dedicated`.
    pub key: String,
    /// Empty for a taint without a value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl NodeGroup {
    /// The architecture of its image, if the image's name has it.
    pub fn architecture(&self) -> Option<Architecture> {
        if self.image.contains("ARM_64") {
            Some(Architecture::Arm64)
        } else if self.image.contains("x86_64") {
            Some(Architecture::Amd64)
        } else {
            None
        }
    }

    /// The alias under which an EC2NodeClass selects such images, if Tenon supports them.
    pub fn ami_alias(&self) -> Option<&'static str> {
        let alias = [("AL2023", "al2023@latest"), ("BOTTLEROCKET", "bottlerocket@latest")];
        alias.into_iter().find(|(family, _)| self.image.starts_with(family)).map(|(_, alias)| alias)
    }
}

/// All node groups of a cluster, by name.
pub async fn read(aws: &Aws, cluster: &str) -> Result<Vec<NodeGroup>, AwsError> {
    let pages = aws.eks.list_nodegroups().cluster_name(cluster).into_paginator().items().send();
    let names = all(pages).await;
    let names = names.calling("eks:ListNodegroups", format!("cluster {cluster}"))?;
    let groups = names.iter().map(|name| async move {
        let call = aws.eks.describe_nodegroup().cluster_name(cluster).nodegroup_name(name);
        let found = call.send().await;
        let found = found.calling("eks:DescribeNodegroup", format!("node group {name}"))?;
        Ok::<_, AwsError>(found.nodegroup.map(|group| view(name, group)))
    });
    Ok(futures::future::try_join_all(groups).await?.into_iter().flatten().collect())
}

fn view(name: &str, group: Nodegroup) -> NodeGroup {
    let template = group.launch_template.and_then(|it| Some((it.id?, it.version)));
    NodeGroup {
        name: name.to_owned(),
        subnet_ids: group.subnets.unwrap_or_default(),
        image: group.ami_type.map_or_else(String::new, |image| image.as_str().to_owned()),
        instance_types: group.instance_types.unwrap_or_default(),
        is_spot: group.capacity_type == Some(CapacityTypes::Spot),
        labels: group.labels.unwrap_or_default().into_iter().collect(),
        taints: group.taints.unwrap_or_default().into_iter().map(taint).collect(),
        disk_gib: group.disk_size,
        template: template.map(|(id, version)| TemplateRef {
            id,
            version: version.unwrap_or_else(|| "$Default".to_owned()),
        }),
    }
}

fn taint(taint: NodeGroupTaint) -> Taint {
    let effect = match taint.effect.as_ref().map(TaintEffect::as_str) {
        Some("NO_EXECUTE") => "NoExecute",
        Some("PREFER_NO_SCHEDULE") => "PreferNoSchedule",
        _ => "NoSchedule",
    };
    Taint {
        key: taint.key.unwrap_or_default(),
        value: taint.value.unwrap_or_default(),
        effect: effect.to_owned(),
    }
}

/// The security groups that instances of a cluster's node groups have, each once.
pub async fn security_groups(aws: &Aws, cluster: &str) -> Result<Vec<String>, AwsError> {
    let filter = |name: &str, value: &str| Filter::builder().name(name).values(value).build();
    let pages = aws
        .ec2
        .describe_instances()
        .filters(filter(CLUSTER_TAG, cluster))
        .filters(filter("tag-key", GROUP_TAG))
        .filters(filter("instance-state-name", "running"))
        .into_paginator()
        .items()
        .send();
    let found = all(pages).await;
    let found = found.calling("ec2:DescribeInstances", "*")?;
    let instances = found.into_iter().flat_map(|one| one.instances.unwrap_or_default());
    let groups = instances.flat_map(|one| one.security_groups.unwrap_or_default());
    let ids = groups.filter_map(|group| group.group_id).collect::<BTreeSet<_>>();
    Ok(ids.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_says_architecture_and_alias() {
        let group = |image: &str| NodeGroup { image: image.to_owned(), ..NodeGroup::default() };
        for (image, architecture, alias) in [
            ("AL2023_x86_64_STANDARD", Some(Architecture::Amd64), Some("al2023@latest")),
            ("AL2023_ARM_64_STANDARD", Some(Architecture::Arm64), Some("al2023@latest")),
            ("BOTTLEROCKET_ARM_64", Some(Architecture::Arm64), Some("bottlerocket@latest")),
            ("AL2_x86_64", Some(Architecture::Amd64), None),
            ("WINDOWS_CORE_2022_x86_64", Some(Architecture::Amd64), None),
            ("CUSTOM", None, None),
        ] {
            let group = group(image);
            assert_eq!((group.architecture(), group.ami_alias()), (architecture, alias), "{image}");
        }
    }
}
