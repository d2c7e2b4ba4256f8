//! The EC2NodeClass of an InstanceGroup.
//!
//! What kOps' own add-on would write is written as it writes it, so that a cluster that leaves the
//! add-on does not replace its nodes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Subnet, SubnetType};
use crate::group::Volume;
use crate::image::ImageSource;
use crate::input::{Input, Report};

/// Size of the root volume of nodes, unless the group says another.
const ROOT_GIB: i64 = 128;

/// What kubelet and the operator take for granted: amounts that change nothing if they are said.
const USUAL_EVICTION: [(&str, &str); 2] =
    [("memory.available", "100Mi"), ("nodefs.available", "10%")];

/// Tags that the operator sets itself.
fn is_reserved(tag: &str) -> bool {
    tag.starts_with("kubernetes.io/cluster")
        || [
            "eks:eks-cluster-name",
            "karpenter.sh/nodepool",
            "karpenter.sh/nodeclaim",
            "karpenter.k8s.aws/ec2nodeclass",
        ]
        .contains(&tag)
}

/// `spec` of the EC2NodeClass.
pub(crate) fn spec(input: &Input<'_>, report: &mut Report) -> Value {
    let Input { cluster, group, boot, subnets, .. } = input;
    let mut spec = Map::new();
    let mut set = |key: &str, value: Value| {
        spec.insert(key.to_owned(), value);
    };
    set("amiFamily", "Custom".into());
    set("amiSelectorTerms", json!([image(input, report)]));
    let first = subnets.first().map(|subnet| subnet.kind).unwrap_or_default();
    let public = match first {
        SubnetType::Public | SubnetType::Utility => group.spec.associate_public_ip.unwrap_or(true),
        SubnetType::Private | SubnetType::DualStack => false,
    };
    set("associatePublicIPAddress", public.into());
    set("blockDeviceMappings", disks(input, report));
    set("tags", json!(tags(input)));
    set("subnetSelectorTerms", subnet_terms(cluster, &group.name, subnets, report));
    set("securityGroupSelectorTerms", security_groups(input));
    set("instanceProfile", profile(input).into());
    set("userData", boot.user_data.as_str().into());
    if let Some(kubelet) = kubelet(input, report) {
        set("kubelet", kubelet);
    }
    if let Some(options) = metadata(input) {
        set("metadataOptions", options);
    }
    if group.spec.detailed_instance_monitoring == Some(true) {
        set("detailedMonitoring", true.into());
    }
    Value::Object(spec)
}

fn image(input: &Input<'_>, report: &mut Report) -> Value {
    match ImageSource::parse(&input.group.spec.image) {
        Some(ImageSource::Id(id)) => json!({"id": id}),
        Some(ImageSource::Parameter(parameter)) => json!({"ssmParameter": parameter}),
        Some(ImageSource::Name { owner, name }) => json!({"name": name, "owner": owner}),
        None => {
            report.problem(
                "spec.image",
                "write ami-ID, ssm:PARAMETER, NAME, or OWNER/NAME".to_owned(),
            );
            Value::Null
        }
    }
}

/// Of the root volume and of all others.
fn disks(input: &Input<'_>, report: &mut Report) -> Value {
    let root = &input.group.spec.root_volume;
    // A key counts only where encryption is asked for in words.
    let key =
        root.encryption_key.clone().filter(|key| root.encryption == Some(true) && !key.is_empty());
    let volume = Volume {
        delete_on_termination: None,
        device: input.image.root_device.clone(),
        encrypted: root.encryption,
        iops: root.iops,
        throughput: root.throughput,
        key,
        size: root.size.filter(|size| *size > 0).unwrap_or(ROOT_GIB),
        kind: root.kind.clone().unwrap_or_default(),
    };
    let mut mappings = vec![mapping(&volume)];
    mappings[0]["rootVolume"] = true.into();
    for (at, volume) in input.group.spec.volumes.iter().enumerate() {
        let field = |name: &str| format!("spec.volumes[{at}].{name}");
        if volume.device.is_empty() {
            report.problem(&field("device"), "name the device, such as /dev/xvdb".to_owned());
        }
        if volume.size <= 0 {
            report.problem(&field("size"), "write the size in GiB".to_owned());
        }
        mappings.push(mapping(volume));
    }
    mappings.into()
}

/// With the least performance that EC2 takes for the type.
fn mapping(volume: &Volume) -> Value {
    let kind = if volume.kind.is_empty() { "gp3" } else { volume.kind.as_str() };
    let at_least = |given: Option<i64>, least: i64| Some(given.unwrap_or(0).max(least));
    let (iops, throughput) = match kind {
        "io1" | "io2" => (at_least(volume.iops, 100), None),
        "gp3" => (at_least(volume.iops, 3000), at_least(volume.throughput, 125)),
        _ => (None, None),
    };
    let mut ebs = json!({
        "deleteOnTermination": volume.delete_on_termination.unwrap_or(true),
        "encrypted": volume.encrypted.unwrap_or(true),
        "volumeSize": format!("{}Gi", volume.size),
        "volumeType": kind,
    });
    let optional = [
        ("iops", iops.map(Value::from)),
        ("throughput", throughput.map(Value::from)),
        ("kmsKeyID", volume.key.clone().map(Value::from)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            ebs[name] = value;
        }
    }
    json!({"deviceName": volume.device, "ebs": ebs})
}

/// kops-controller takes no node whose instance lacks these tags, and labels it by them.
fn tags(input: &Input<'_>) -> BTreeMap<String, String> {
    let Input { cluster, group, labels, own_taints: taints, .. } = input;
    let of_template = "k8s.io/cluster-autoscaler/node-template";
    let mut tags = BTreeMap::from([
        ("Name".to_owned(), format!("{}.{}", group.name, cluster.name)),
        ("KubernetesCluster".to_owned(), cluster.name.clone()),
    ]);
    tags.extend(cluster.cloud_labels.clone());
    tags.extend(group.spec.cloud_labels.clone());
    tags.extend(
        labels.iter().map(|(key, value)| (format!("{of_template}/label/{key}"), value.clone())),
    );
    tags.extend(taints.iter().map(|taint| {
        (
            format!("{of_template}/taint/{}", taint.key),
            format!("{}:{}", taint.value(), taint.effect),
        )
    }));
    tags.insert("k8s.io/role/node".to_owned(), "1".to_owned());
    tags.insert("kops.k8s.io/instancegroup".to_owned(), group.name.clone());
    tags.retain(|key, _| !key.is_empty() && !is_reserved(key));
    tags
}

/// By kOps' own tag; where kOps tags no subnets, by id.
fn subnet_terms(cluster: &Cluster, group: &str, subnets: &[&Subnet], report: &mut Report) -> Value {
    if cluster.tags_subnets {
        let tag = format!("kops.k8s.io/instance-group/{group}");
        return json!([{"tags": {"KubernetesCluster": cluster.name, tag: "true"}}]);
    }
    let mut terms = Vec::new();
    for subnet in subnets {
        match &subnet.id {
            Some(id) => terms.push(json!({"id": id})),
            None => report.problem(
                "spec.subnets",
                format!(
                    "the Cluster says that kOps tags no subnets, and subnet {} has no id there",
                    subnet.name
                ),
            ),
        }
    }
    terms.into()
}

fn security_groups(input: &Input<'_>) -> Value {
    let Input { cluster, group, .. } = input;
    let first = match &group.spec.security_group_override {
        Some(id) => json!({"id": id}),
        None => {
            let name = format!("nodes.{}", cluster.name);
            json!({"tags": {"KubernetesCluster": cluster.name, "Name": name}})
        }
    };
    let more = group.spec.additional_security_groups.iter().map(|id| json!({"id": id}));
    std::iter::once(first).chain(more).collect()
}

/// Whose role kops-controller trusts.
fn profile(input: &Input<'_>) -> String {
    input.group.profile(&input.cluster.name)
}

/// What makes the operator's idea of a node's size the node's own.
fn kubelet(input: &Input<'_>, report: &mut Report) -> Option<Value> {
    let given = &input.boot.kubelet;
    let mut kubelet = Map::new();
    if let Some(pods) = given.max_pods {
        kubelet.insert("maxPods".to_owned(), pods.into());
    }
    for (name, reserved) in
        [("systemReserved", &given.system_reserved), ("kubeReserved", &given.kube_reserved)]
    {
        if !reserved.is_empty() {
            kubelet.insert(name.to_owned(), json!(reserved));
        }
    }
    let signals = given.eviction_hard.as_deref().unwrap_or_default().split(',');
    let mut eviction = BTreeMap::new();
    for signal in signals.map(str::trim).filter(|signal| !signal.is_empty()) {
        match signal.split_once('<') {
            Some((signal, amount)) => {
                eviction.insert(signal.to_owned(), amount.to_owned());
            }
            None => report.problem(
                "spec.kubelet.evictionHard",
                format!("{signal:?} is no threshold: write SIGNAL<AMOUNT"),
            ),
        }
    }
    let is_usual = USUAL_EVICTION
        .iter()
        .all(|(signal, amount)| eviction.get(*signal).is_none_or(|given| given == amount));
    if !is_usual {
        kubelet.insert("evictionHard".to_owned(), json!(eviction));
    }
    (!kubelet.is_empty()).then_some(Value::Object(kubelet))
}

/// Only if they are not the usual ones.
fn metadata(input: &Input<'_>) -> Option<Value> {
    let given = &input.group.spec.instance_metadata;
    let ipv6 = input.subnets.iter().any(|subnet| subnet.ipv6_cidr.is_some());
    let (tokens, hops) = (given.http_tokens.as_deref(), given.http_put_response_hop_limit);
    if tokens.is_none() && hops.is_none() && !ipv6 {
        return None;
    }
    Some(json!({
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": if ipv6 { "enabled" } else { "disabled" },
        "httpTokens": tokens.unwrap_or("required"),
        "httpPutResponseHopLimit": hops.unwrap_or(1),
    }))
}
