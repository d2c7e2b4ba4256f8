//! The labels of an instance type, as requirements: one for every well-known label, `DoesNotExist`
//! where the type has nothing to say.

use std::collections::{BTreeMap, BTreeSet};

use tenon_crds::labels::{self, aws};
use tenon_planner::snapshot::{Operator, Requirement};

use super::labels_of_name;
use super::type_info::TypeInfo;

/// What the labels depend on beside the type itself.
#[derive(Clone, Debug)]
pub struct LabelScope<'a> {
    /// The region; `None` when it is not known.
    pub region: Option<&'a str>,
    /// Zones in which the type is offered and the NodeClass has a subnet, with the zone's id when
    /// it is known.
    pub zones: &'a BTreeMap<String, Option<String>>,
    /// `amd64`-only Windows family: its build.
    pub windows_build: Option<&'a str>,
    /// Baseline network bandwidth in Mbps.
    pub network_mbps: Option<i64>,
    /// The id of the placement group that machines are launched into.
    pub placement_group: Option<&'a str>,
    /// How many partitions that placement group has; zero where its strategy is another.
    pub partitions: u32,
}

/// The requirements of a type, sorted by key.
pub fn requirements(info: &TypeInfo, scope: &LabelScope<'_>) -> Vec<Requirement> {
    let mut known: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    let mut set = |key: &'static str, value: String| {
        known.insert(key, BTreeSet::from([value]));
    };
    set(labels::INSTANCE_TYPE, info.name.clone());
    set(labels::ARCH, info.arch.clone());
    if let Some(region) = scope.region {
        set(labels::REGION, region.to_owned());
    }
    if let Some(build) = scope.windows_build {
        set(labels::WINDOWS_BUILD, build.to_owned());
    } else {
        set(labels::OS, "linux".to_owned());
    }
    set(aws::INSTANCE_CPU, info.vcpus.to_string());
    set(aws::INSTANCE_MEMORY, info.memory_mib.to_string());
    set(aws::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ, clock_mhz(info).to_string());
    if let Some(manufacturer) = &info.cpu_manufacturer {
        set(aws::INSTANCE_CPU_MANUFACTURER, kebab(manufacturer));
    }
    if let Some(mbps) = info.ebs_mbps {
        set(aws::INSTANCE_EBS_BANDWIDTH, mbps.to_string());
    }
    if let Some(mbps) = scope.network_mbps {
        set(aws::INSTANCE_NETWORK_BANDWIDTH, mbps.to_string());
    }
    for (key, value) in labels_of_name(&info.name) {
        set(key, value);
    }
    if let Some(group) = scope.placement_group {
        set(aws::PLACEMENT_GROUP_ID, group.to_owned());
    }
    if let Some(gb) = info.nvme_gb {
        set(aws::INSTANCE_LOCAL_NVME, gb.to_string());
    }
    // Karpenter's label on bare metal is the empty string: `Exists` matches there, too.
    set(aws::INSTANCE_HYPERVISOR, info.hypervisor.clone().unwrap_or_default());
    if let Some(network) = &info.network {
        set(
            aws::INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
            network.encryption_in_transit.to_string(),
        );
    }
    // Types with several kinds of GPU have no GPU labels: a label has one value.
    if let [gpu] = info.gpus.as_slice() {
        set(aws::INSTANCE_GPU_NAME, kebab(&gpu.name));
        set(aws::INSTANCE_GPU_MANUFACTURER, kebab(&gpu.manufacturer));
        set(aws::INSTANCE_GPU_COUNT, gpu.count.to_string());
        set(aws::INSTANCE_GPU_MEMORY, gpu.memory_mib.to_string());
    }
    if let Some([neuron]) = info.neurons.as_deref() {
        set(aws::INSTANCE_ACCELERATOR_NAME, kebab(&neuron.name));
        set(aws::INSTANCE_ACCELERATOR_MANUFACTURER, "aws".to_owned());
        set(aws::INSTANCE_ACCELERATOR_COUNT, neuron.count.to_string());
    } else if let (None, [device]) = (&info.neurons, info.inference_accelerators.as_slice()) {
        set(aws::INSTANCE_ACCELERATOR_NAME, kebab(&device.name));
        set(aws::INSTANCE_ACCELERATOR_MANUFACTURER, kebab(&device.manufacturer));
        set(aws::INSTANCE_ACCELERATOR_COUNT, device.count.to_string());
    }
    known.insert(
        aws::INSTANCE_TENANCY,
        BTreeSet::from(["default".to_owned(), "dedicated".to_owned()]),
    );
    if scope.partitions > 0 {
        known.insert(aws::PLACEMENT_GROUP_PARTITION, partition_values(scope.partitions).collect());
    }
    known.insert(labels::ZONE, scope.zones.keys().cloned().collect());
    let zone_ids: BTreeSet<String> = scope.zones.values().flatten().cloned().collect();
    let has_zone_ids = !zone_ids.is_empty();
    if has_zone_ids {
        known.insert(aws::ZONE_ID, zone_ids);
    }
    known.insert(labels::CAPACITY_TYPE, info.usage_classes.iter().cloned().collect());
    // A Windows image on an arm64 type never matches: In nothing.
    if scope.windows_build.is_some() {
        let os = (info.arch == labels::ARCH_AMD64).then(|| "windows".to_owned());
        known.insert(labels::OS, os.into_iter().collect());
    }
    let mut all: Vec<Requirement> = EVERY_KEY
        .iter()
        .filter(|&&key| key != aws::ZONE_ID || has_zone_ids)
        .map(|&key| match known.remove(key) {
            Some(values) => Requirement {
                key: key.to_owned(),
                operator: Operator::In,
                values: values.into_iter().collect(),
                min_values: None,
            },
            None => does_not_exist(key),
        })
        .collect();
    all.sort();
    all
}

/// `key DoesNotExist`.
pub fn does_not_exist(key: &str) -> Requirement {
    Requirement {
        key: key.to_owned(),
        operator: Operator::DoesNotExist,
        values: Vec::new(),
        min_values: None,
    }
}

/// The partitions of a placement group, as labels name them: EC2 counts from one.
pub fn partition_values(count: u32) -> impl Iterator<Item = String> {
    (1..=count).map(|number| number.to_string())
}

/// Every key that a type defines, whether it has a value or not: an undefined well-known label
/// would let pods match wrongly.
const EVERY_KEY: &[&str] = &[
    labels::INSTANCE_TYPE,
    labels::ARCH,
    labels::OS,
    labels::ZONE,
    labels::REGION,
    labels::WINDOWS_BUILD,
    labels::CAPACITY_TYPE,
    aws::ZONE_ID,
    aws::INSTANCE_CPU,
    aws::INSTANCE_CPU_MANUFACTURER,
    aws::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
    aws::INSTANCE_MEMORY,
    aws::INSTANCE_EBS_BANDWIDTH,
    aws::INSTANCE_NETWORK_BANDWIDTH,
    aws::INSTANCE_CATEGORY,
    aws::INSTANCE_GENERATION,
    aws::INSTANCE_FAMILY,
    aws::INSTANCE_SIZE,
    aws::INSTANCE_CAPABILITY_FLEX,
    aws::INSTANCE_LOCAL_NVME,
    aws::INSTANCE_HYPERVISOR,
    aws::INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
    aws::INSTANCE_GPU_NAME,
    aws::INSTANCE_GPU_MANUFACTURER,
    aws::INSTANCE_GPU_COUNT,
    aws::INSTANCE_GPU_MEMORY,
    aws::INSTANCE_ACCELERATOR_NAME,
    aws::INSTANCE_ACCELERATOR_MANUFACTURER,
    aws::INSTANCE_ACCELERATOR_COUNT,
    aws::INSTANCE_TENANCY,
    aws::CAPACITY_RESERVATION_ID,
    aws::CAPACITY_RESERVATION_TYPE,
    aws::CAPACITY_RESERVATION_INTERRUPTIBLE,
    aws::PLACEMENT_GROUP_ID,
    aws::PLACEMENT_GROUP_PARTITION,
];

#[expect(clippy::cast_possible_truncation, reason = "clock speeds are a few thousand MHz")]
fn clock_mhz(info: &TypeInfo) -> i64 {
    (info.clock_ghz.unwrap_or(0.0) * 1000.0).round() as i64
}

/// Lower case, words joined by dashes.
fn kebab(name: &str) -> String {
    name.to_ascii_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_well_known_label_of_the_provider_is_defined() {
        let rules = labels::LabelRules::aws();
        let missing: Vec<_> = rules
            .well_known()
            .iter()
            .filter(|key| key.as_str() != labels::NODEPOOL && !EVERY_KEY.contains(&key.as_str()))
            .collect();
        assert_eq!(missing, Vec::<&String>::new());
    }
}
