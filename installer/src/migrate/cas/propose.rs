//! What a node group is as a NodePool and an EC2NodeClass. Pure.
//!
//! What a pod could see of its node stays: labels, taints, zones, capacity type, image, disks. What
//! only limited Cluster Autoscaler is widened: a group had one type, the NodePool has its family.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tenon_crds::labels;
use tenon_installer_core::names::hash;
use tenon_installer_core::observe::auto_scaling::Market;
use tenon_installer_core::observe::node_groups::Taint;

use super::{Autoscaler, Found, Group};

/// Tags of a group from which Cluster Autoscaler knows the labels of nodes that are not there yet.
const LABEL_TAG: &str = "k8s.io/cluster-autoscaler/node-template/label/";
/// The same for taints, as `VALUE:EFFECT`.
const TAINT_TAG: &str = "k8s.io/cluster-autoscaler/node-template/taint/";

/// How long Cluster Autoscaler waits before it removes a node, unless it is told otherwise.
const UNNEEDED: &str = "10m";

/// Length of a name that may be the value of a label.
const LONGEST: usize = 63;

/// Taints that come and go with what happens to a node.
const PASSING: [&str; 5] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "ebs.csi.aws.com/",
];

/// Whose labels say what a node is, and not what it is for.
const OF_PLATFORM: [&str; 7] = [
    "kubernetes.io",
    "k8s.io",
    "k8s.aws",
    "amazonaws.com",
    "karpenter.sh",
    "eksctl.io",
    "csi.aws.com",
];

/// Manifests, and what to know about them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Proposal {
    /// EC2NodeClasses and NodePools, in the order in which they are applied.
    pub objects: Vec<Value>,
    /// What differs from the group, by the NodePool's name.
    pub notes: BTreeMap<String, Vec<String>>,
}

/// What the installation knows of nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Base {
    /// `spec` of its EC2NodeClass, or what its settings say of one.
    pub class: Map<String, Value>,
    /// Names that NodePools and EC2NodeClasses of the installation have.
    pub taken: BTreeSet<String>,
}

/// A NodePool and an EC2NodeClass for each group; groups that share all settings of EC2 share the
/// class.
pub(crate) fn propose(found: &Found, autoscaler: &Autoscaler, base: &Base) -> Proposal {
    let (mut classes, mut pools) = (Vec::<(String, Value)>::new(), Vec::new());
    let mut proposal = Proposal::default();
    let mut taken = base.taken.clone();
    for group in &found.groups {
        let name = free_name(&group.name, &taken);
        taken.insert(name.clone());
        let mut notes = Vec::new();
        let spec = Value::Object(class(group, base, &mut notes));
        let same = classes.iter().find(|(_, other)| *other == spec);
        let class = same.map_or_else(|| name.clone(), |(class, _)| class.clone());
        if same.is_none() {
            classes.push((name.clone(), spec));
        }
        pools.push(pool(found, group, autoscaler, (&name, &class), &mut notes));
        proposal.notes.insert(name, notes);
    }
    let classes = classes.into_iter().map(|(name, spec)| {
        json!({
            "apiVersion": "karpenter.k8s.aws/v1",
            "kind": "EC2NodeClass",
            "metadata": {"name": name},
            "spec": spec,
        })
    });
    proposal.objects.extend(classes);
    proposal.objects.extend(pools);
    proposal
}

/// The proposal as people would write it, with the notes as comments.
pub(crate) fn yaml(proposal: &Proposal) -> String {
    let documents = proposal.objects.iter().map(|object| {
        let text = serde_saphyr::to_string(object).expect("JSON always goes into YAML");
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let notes = proposal.notes.get(name).filter(|_| object["kind"] == "NodePool");
        let notes = notes.into_iter().flatten().map(|note| format!("# {note}\n"));
        format!("{}{text}", notes.collect::<String>())
    });
    documents.collect::<Vec<_>>().join("---\n")
}

/// A name that no other NodePool has, and that is valid as one.
fn free_name(group: &str, taken: &BTreeSet<String>) -> String {
    let valid = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name = group.chars().map(valid).collect::<String>();
    let mut name = name.trim_matches('-').to_owned();
    if name.is_empty() || name.len() > LONGEST {
        name.truncate(LONGEST - 9);
        name = format!("{}-{}", name.trim_end_matches('-'), hash(group, 8));
        name = name.trim_start_matches('-').to_owned();
    }
    let mut free = name.clone();
    if taken.contains(&free) {
        name.truncate(LONGEST - 6);
        free = format!("{name}-group");
    }
    if taken.contains(&free) {
        name.truncate(LONGEST - 9);
        free = format!("{name}-{}", hash(group, 8));
    }
    free
}

/// `spec` of the EC2NodeClass.
fn class(group: &Group, base: &Base, notes: &mut Vec<String>) -> Map<String, Value> {
    let mut spec = base.class.clone();
    let subnets = group.subnet_ids().iter().map(|id| json!({"id": id}));
    spec.insert("subnetSelectorTerms".to_owned(), subnets.collect());
    image(group, &mut spec, notes);
    let of_group = group.managed.as_ref().and_then(|managed| managed.disk_gib);
    // Without a template of its own, a managed group has one disk of this size.
    if let Some(gibibytes) = of_group {
        let windows = group.image().starts_with("WINDOWS");
        let device = if windows { "/dev/sda1" } else { data_device(group) };
        let ebs = json!({"volumeSize": format!("{gibibytes}Gi"), "volumeType": "gp3"});
        let mapping = json!([{"deviceName": device, "ebs": ebs}]);
        spec.insert("blockDeviceMappings".to_owned(), mapping);
    }
    let Some(template) = &group.template else {
        if group.managed.is_none() {
            notes.push(
                "the launch configuration is not read: check image, disks and security groups"
                    .to_owned(),
            );
        }
        return spec;
    };
    if !template.security_groups.is_empty() {
        let terms = template.security_groups.iter().map(|id| json!({"id": id}));
        spec.insert("securityGroupSelectorTerms".to_owned(), terms.collect());
    }
    if !template.disks.is_empty() {
        let disks = serde_json::to_value(&template.disks).unwrap_or_default();
        spec.insert("blockDeviceMappings".to_owned(), disks);
    }
    if let Some(options) = &template.metadata_options {
        let options = serde_json::to_value(options).unwrap_or_default();
        spec.insert("metadataOptions".to_owned(), options);
    }
    if template.is_monitored {
        spec.insert("detailedMonitoring".to_owned(), true.into());
    }
    let ours = |key: &str| {
        ["kubernetes.io/cluster/", "aws:", "eks:", "karpenter", "k8s.io/cluster-autoscaler/"]
            .iter()
            .any(|prefix| key.starts_with(prefix))
            || key == "Name"
    };
    let tags = template.tags.iter().filter(|(key, _)| !ours(key));
    let tags = tags.map(|(key, value)| (key.clone(), json!(value))).collect::<Map<_, _>>();
    if !tags.is_empty() {
        let all = spec.entry("tags").or_insert_with(|| json!({}));
        if let Some(all) = all.as_object_mut() {
            all.extend(tags);
        }
    }
    if template.user_data.is_some() {
        notes.push(
            "the user data of the launch template is not copied: Tenon writes the part that joins \
             the cluster; add what else it does as userData"
                .to_owned(),
        );
    }
    spec
}

/// The device that holds images and containers, where the image is Linux.
fn data_device(group: &Group) -> &'static str {
    if family(group) == Some("bottlerocket") { "/dev/xvdb" } else { "/dev/xvda" }
}

/// Which images: those of the launch template, else the latest of the same family.
fn image(group: &Group, spec: &mut Map<String, Value>, notes: &mut Vec<String>) {
    let family = family(group);
    let own = group.template.as_ref().and_then(|template| template.image_id.as_deref());
    let by_template = own.filter(|id| id.starts_with("ami-"));
    spec.remove("amiFamily");
    let terms = match (by_template, family) {
        (Some(id), family) => {
            if let Some(name) = family.and_then(family_name) {
                spec.insert("amiFamily".to_owned(), name.into());
            }
            if let Some(family) = family {
                notes.push(format!(
                    "the image is that of the launch template; `alias: {family}@latest` would \
                     follow the releases of EKS"
                ));
            } else {
                spec.insert("amiFamily".to_owned(), "Custom".into());
                notes.push(
                    "the family of the image is not known: amiFamily Custom needs userData that \
                     joins the cluster"
                        .to_owned(),
                );
            }
            json!([{"id": id}])
        }
        (None, Some(family)) => json!([{"alias": format!("{family}@latest")}]),
        (None, None) => {
            notes.push(
                "the image is not known: amiSelectorTerms are those of the installation".to_owned(),
            );
            return;
        }
    };
    spec.insert("amiSelectorTerms".to_owned(), terms);
}

/// The family of its images, as an alias begins.
fn family(group: &Group) -> Option<&'static str> {
    let of_eks = [
        ("AL2023_", "al2023"),
        ("AL2_", "al2"),
        ("BOTTLEROCKET_", "bottlerocket"),
        ("WINDOWS_CORE_2019", "windows2019"),
        ("WINDOWS_FULL_2019", "windows2019"),
        ("WINDOWS_CORE_2022", "windows2022"),
        ("WINDOWS_FULL_2022", "windows2022"),
        ("WINDOWS_CORE_2025", "windows2025"),
        ("WINDOWS_FULL_2025", "windows2025"),
    ];
    let image = group.image();
    let by_type = of_eks.into_iter().find(|(prefix, _)| image.starts_with(prefix));
    if let Some((_, family)) = by_type {
        return Some(family);
    }
    let of_name = [
        ("amazon-eks-node-al2023-", "al2023"),
        ("amazon-eks-node-", "al2"),
        ("amazon-eks-arm64-node-", "al2"),
        ("amazon-eks-gpu-node-", "al2"),
        ("bottlerocket-", "bottlerocket"),
        ("Windows_Server-2019-", "windows2019"),
        ("Windows_Server-2022-", "windows2022"),
        ("Windows_Server-2025-", "windows2025"),
    ];
    let name = group.template.as_ref().and_then(|template| template.image_name.as_deref());
    let by_name =
        name.and_then(|name| of_name.into_iter().find(|(prefix, _)| name.starts_with(prefix)));
    if let Some((_, family)) = by_name {
        return Some(family);
    }
    let of_system = [
        ("Amazon Linux 2023", "al2023"),
        ("Amazon Linux 2", "al2"),
        ("Bottlerocket", "bottlerocket"),
        ("Windows Server 2019", "windows2019"),
        ("Windows Server 2022", "windows2022"),
        ("Windows Server 2025", "windows2025"),
    ];
    let mut systems = group
        .nodes
        .iter()
        .filter_map(|node| Some(node.status.as_ref()?.node_info.as_ref()?.os_image.as_str()));
    let known = |system: &str| {
        let found = of_system.into_iter().find(|(prefix, _)| system.starts_with(prefix));
        found.map(|(_, family)| family)
    };
    systems.find_map(known)
}

fn family_name(alias: &str) -> Option<&'static str> {
    let names = [
        ("al2023", "AL2023"),
        ("al2", "AL2"),
        ("bottlerocket", "Bottlerocket"),
        ("windows2019", "Windows2019"),
        ("windows2022", "Windows2022"),
        ("windows2025", "Windows2025"),
    ];
    names.into_iter().find(|(known, _)| *known == alias).map(|(_, name)| name)
}

fn pool(
    found: &Found,
    group: &Group,
    autoscaler: &Autoscaler,
    (name, class): (&str, &str),
    notes: &mut Vec<String>,
) -> Value {
    let mut template = json!({
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class},
            "requirements": requirements(found, group, notes),
        },
    });
    let labels = group_labels(group);
    if !labels.is_empty() {
        template["metadata"] = json!({"labels": labels});
    }
    let taints = taints(group);
    if !taints.is_empty() {
        let taints = taints.iter().map(|taint| {
            let mut one = json!({"key": taint.key, "effect": taint.effect});
            if !taint.value.is_empty() {
                one["value"] = taint.value.as_str().into();
            }
            one
        });
        template["spec"]["taints"] = taints.collect();
    }
    let removes = autoscaler.flag("scale-down-enabled") != Some("false");
    let after = autoscaler.flag("scale-down-unneeded-time").unwrap_or(UNNEEDED);
    let disruption = if removes {
        json!({"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": after})
    } else {
        json!({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"})
    };
    let mut spec = json!({"template": template, "disruption": disruption});
    if let Some(limits) = limits(found, group) {
        spec["limits"] = limits;
    }
    if group.scaling.min > 0 {
        notes.push(format!(
            "minimum size {}: a NodePool has none; its nodes exist as long as pods need them",
            group.scaling.min
        ));
    }
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": spec,
    })
}

fn requirements(found: &Found, group: &Group, notes: &mut Vec<String>) -> Vec<Value> {
    let is_in =
        |key: &str, values: Vec<&str>| json!({"key": key, "operator": "In", "values": values});
    let market = match group.market() {
        Market::OnDemand => vec!["on-demand"],
        Market::Spot => vec!["spot"],
        Market::Both => {
            notes.push(
                "the group buys a fixed share on demand; the NodePool takes what is cheaper, which \
                 is spot"
                    .to_owned(),
            );
            vec!["on-demand", "spot"]
        }
    };
    let mut requirements = vec![is_in(labels::CAPACITY_TYPE, market)];
    let types = group.instance_types();
    let family = |kind: &'_ str| kind.split('.').next().unwrap_or_default().to_owned();
    let families = types.iter().map(|kind| family(kind)).collect::<BTreeSet<_>>();
    if families.is_empty() {
        let why = if group.scaling.by_attributes { "chosen by attributes" } else { "not known" };
        notes.push(format!("the instance types are {why}: check the requirements"));
        requirements.push(is_in(labels::aws::INSTANCE_CATEGORY, vec!["c", "m", "r"]));
        requirements.push(json!({
            "key": labels::aws::INSTANCE_GENERATION, "operator": "Gt", "values": ["4"],
        }));
    } else {
        let families = families.iter().map(String::as_str).collect();
        requirements.push(is_in(labels::aws::INSTANCE_FAMILY, families));
    }
    if group.image().starts_with("WINDOWS") {
        requirements.push(is_in(labels::OS, vec!["windows"]));
    }
    let subnets = group.subnet_ids();
    let zones = subnets.iter().filter_map(|id| found.zones.get(id).map(String::as_str));
    let zones = zones.collect::<BTreeSet<_>>();
    if !zones.is_empty() {
        requirements.push(is_in(labels::ZONE, zones.into_iter().collect()));
    }
    requirements
}

/// What the group could grow to.
fn limits(found: &Found, group: &Group) -> Option<Value> {
    let types = group.instance_types();
    let known = types.iter().map(|kind| found.types.get(kind).copied());
    let known = known.collect::<Option<Vec<_>>>()?;
    let (cpu, memory) =
        known.iter().fold((0, 0), |(cpu, memory), it| (cpu.max(it.cpu), memory.max(it.memory_mib)));
    let n = i64::from(group.scaling.max);
    if n == 0 || cpu == 0 {
        return None;
    }
    let gibibytes = (n * memory).div_euclid(1024);
    Some(json!({"cpu": (n * cpu).to_string(), "memory": format!("{gibibytes}Gi")}))
}

/// Whether a label says what a node is, and not what it is for.
fn is_of_platform(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    OF_PLATFORM.iter().any(|platform| {
        domain.strip_suffix(platform).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Labels that all nodes of the group have, and those that it gives to new ones.
fn group_labels(group: &Group) -> BTreeMap<String, String> {
    let mut nodes = group.nodes.iter().map(|node| node.metadata.labels.clone().unwrap_or_default());
    let mut labels = nodes.next().unwrap_or_default();
    for other in nodes {
        labels.retain(|key, value| other.get(key) == Some(value));
    }
    let tags = group.scaling.tags.iter();
    labels.extend(
        tags.filter_map(|(key, value)| {
            Some((key.strip_prefix(LABEL_TAG)?.to_owned(), value.clone()))
        }),
    );
    if let Some(managed) = &group.managed {
        labels.extend(managed.labels.clone());
    }
    labels.retain(|key, _| !is_of_platform(key));
    labels
}

/// Taints that all nodes of the group have, and those that it gives to new ones.
fn taints(group: &Group) -> BTreeSet<Taint> {
    let of_node = |node: &k8s_openapi::api::core::v1::Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let taints = taints.into_iter().map(|taint| Taint {
            key: taint.key,
            value: taint.value.unwrap_or_default(),
            effect: taint.effect,
        });
        taints.collect::<BTreeSet<_>>()
    };
    let mut nodes = group.nodes.iter().map(of_node);
    let mut taints = nodes.next().unwrap_or_default();
    for other in nodes {
        taints = taints.intersection(&other).cloned().collect();
    }
    for (key, text) in &group.scaling.tags {
        let Some(key) = key.strip_prefix(TAINT_TAG) else { continue };
        let (value, effect) = text.rsplit_once(':').unwrap_or(("", text));
        let (value, effect) = (value.to_owned(), effect.to_owned());
        taints.insert(Taint { key: key.to_owned(), value, effect });
    }
    taints.extend(group.managed.iter().flat_map(|managed| managed.taints.clone()));
    taints.retain(|taint| !PASSING.iter().any(|prefix| taint.key.starts_with(prefix)));
    taints
}
