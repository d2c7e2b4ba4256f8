//! What a machine of a type has, and what of it is not for pods.
//!
//! The figures are a contract: nodes register with what the kubelet finds, and a machine that turns
//! out smaller than promised leaves pods pending.

use tenon_crds::Quantity;
use tenon_crds::ec2nodeclass::{
    AmiFamily, BlockDeviceMapping, EC2NodeClassSpec, InstanceStorePolicy, InterfaceType,
    KubeletConfiguration,
};
use tenon_planner::resources::Resources;

use super::family::Family;
use super::type_info::{NetworkInfo, TypeInfo};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

/// Firmware of arm64 machines keeps this much memory from the operating system.
const ARM_FIRMWARE_MIB: i64 = 64;

/// Settings of the operator and observations that shape capacity.
#[derive(Clone, Copy, Debug)]
pub struct CapacityScope {
    /// `--vm-memory-overhead-percent`.
    pub vm_memory_overhead: f64,
    /// `--reserved-enis`.
    pub reserved_enis: i64,
    /// Bytes of memory that a node of this type and image had.
    pub seen_memory: Option<i64>,
    /// Branch network interfaces (security groups for pods).
    pub branch_interfaces: i64,
}

/// What the machine has and what of it is kept from pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// `status.capacity`.
    pub capacity: Resources,
    /// Kube-reserved, system-reserved and eviction thresholds, summed.
    pub overhead: Resources,
}

/// Capacity and overhead of a type for a NodeClass.
pub fn capacity(info: &TypeInfo, class: &EC2NodeClassSpec, scope: CapacityScope) -> Capacity {
    let family = class.resolved_ami_family();
    let unset = KubeletConfiguration::default();
    let kubelet = class.kubelet.as_ref().unwrap_or(&unset);

    let computed_memory = memory(info, scope.vm_memory_overhead);
    let storage = ephemeral_storage(info, class, family);
    let pods = pods(info, class, family, kubelet, scope.reserved_enis);
    let mut capacity = Resources {
        cpu: info.vcpus * 1000,
        memory: scope.seen_memory.unwrap_or(computed_memory),
        ephemeral_storage: storage,
        pods,
        ..Resources::default()
    };
    for (name, amount) in extended(info, class, family, scope.branch_interfaces) {
        if amount > 0 {
            capacity.extended.insert(name.to_owned(), amount);
        }
    }

    let reserved_for_pods = if family.reserves_for_eni_pods() {
        eni_limited_pods(info.network.as_ref(), 0, n_efa_only_on_first_card(class))
    } else {
        pods
    };
    let mut overhead = kube_reserved(info.vcpus * 1000, reserved_for_pods, kubelet);
    overhead.add(&quantities(kubelet.system_reserved.as_ref()));
    // Percentages are of the memory as computed, also where a node has shown another figure.
    overhead.add(&eviction(computed_memory, storage, kubelet));
    Capacity { capacity, overhead }
}

/// Bytes of memory that the operating system will see, rounded down to whole MiB.
#[expect(clippy::cast_possible_truncation, reason = "memory in MiB is far below 2^53")]
#[expect(clippy::cast_precision_loss, reason = "memory in MiB is far below 2^53")]
fn memory(info: &TypeInfo, overhead: f64) -> i64 {
    let mib = info.memory_mib - if info.arm_firmware { ARM_FIRMWARE_MIB } else { 0 };
    let kept = (mib as f64 * overhead).ceil() as i64;
    (mib - kept).max(0) * MIB
}

/// How many pods get an address: every interface keeps one address for itself; two pods use the
/// host's network.
pub(crate) fn eni_limited_pods(
    network: Option<&NetworkInfo>,
    reserved_enis: i64,
    efa_only: i64,
) -> i64 {
    let Some(network) = network else { return 0 };
    let interfaces = (network.default_card_interfaces - reserved_enis - efa_only).max(0);
    if interfaces == 0 {
        return 0;
    }
    interfaces * (network.ipv4_per_interface - 1) + 2
}

fn pods(
    info: &TypeInfo,
    class: &EC2NodeClassSpec,
    family: AmiFamily,
    kubelet: &KubeletConfiguration,
    reserved_enis: i64,
) -> i64 {
    let pods = match kubelet.max_pods {
        Some(pods) => pods.into(),
        None if family.limits_pods_by_eni() => {
            eni_limited_pods(info.network.as_ref(), reserved_enis, n_efa_only_on_first_card(class))
        }
        None => 110,
    };
    match kubelet.pods_per_core {
        Some(per_core) if per_core > 0 && family.honours_pods_per_core() => {
            pods.min(i64::from(per_core) * info.vcpus)
        }
        _ => pods,
    }
}

fn n_efa_only_on_first_card(class: &EC2NodeClassSpec) -> i64 {
    let interfaces = class.network_interfaces.as_deref().unwrap_or_default();
    let count = interfaces
        .iter()
        .filter(|interface| {
            interface.interface_type == InterfaceType::EfaOnly && interface.network_card_index == 0
        })
        .count();
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn ephemeral_storage(info: &TypeInfo, class: &EC2NodeClassSpec, family: AmiFamily) -> i64 {
    const DEFAULT: i64 = 20 * GIB;
    if class.instance_store_policy == Some(InstanceStorePolicy::Raid0)
        && family.can_use_local_disks()
        && let Some(gb) = info.instance_store_gb
    {
        return gb * 1_000_000_000;
    }
    let disks = class.block_device_mappings.as_deref().unwrap_or_default();
    let root = disks.iter().filter(|disk| disk.root_volume == Some(true)).find_map(volume_bytes);
    if let Some(bytes) = root {
        return bytes;
    }
    let Some(device) = family.ephemeral_device() else {
        return disks.last().and_then(volume_bytes).unwrap_or(DEFAULT);
    };
    let of_device = |disks: &[BlockDeviceMapping]| {
        disks
            .iter()
            .filter(|disk| disk.device_name.as_deref() == Some(device))
            .find_map(volume_bytes)
    };
    of_device(disks).or_else(|| of_device(&family.default_disks())).unwrap_or(DEFAULT)
}

fn volume_bytes(disk: &BlockDeviceMapping) -> Option<i64> {
    let size: Quantity = disk.ebs.as_ref()?.volume_size.as_deref()?.parse().ok()?;
    Some(size.units())
}

fn extended(
    info: &TypeInfo,
    class: &EC2NodeClassSpec,
    family: AmiFamily,
    branch_interfaces: i64,
) -> [(&'static str, i64); 8] {
    let gpus = |manufacturer: &str| {
        info.gpus.iter().filter(|gpu| gpu.manufacturer == manufacturer).map(|gpu| gpu.count).sum()
    };
    let neurons = info.neurons.as_deref().unwrap_or_default();
    let efa = match class.network_interfaces.as_deref() {
        Some(interfaces) if !interfaces.is_empty() => {
            let count = interfaces
                .iter()
                .filter(|interface| interface.interface_type == InterfaceType::EfaOnly)
                .count();
            i64::try_from(count).unwrap_or(i64::MAX)
        }
        _ => info.network.as_ref().map_or(0, |network| network.max_efa),
    };
    // Pods on Windows get secondary addresses of the first network interface, and request one each.
    let addresses = match family.windows_build() {
        Some(_) => info.network.as_ref().map_or(0, |network| network.ipv4_per_interface - 1),
        None => 0,
    };
    // Inferentia 1 is described as an inference accelerator where there is no Neuron information.
    [
        ("nvidia.com/gpu", gpus("NVIDIA")),
        ("amd.com/gpu", gpus("AMD")),
        ("habana.ai/gaudi", gpus("Habana")),
        ("aws.amazon.com/neuron", neurons.iter().map(|device| device.count).sum()),
        (
            "aws.amazon.com/neuroncore",
            neurons.first().map_or(0, |device| device.count * device.cores),
        ),
        ("vpc.amazonaws.com/efa", efa),
        ("vpc.amazonaws.com/pod-eni", branch_interfaces),
        ("vpc.amazonaws.com/PrivateIPv4Address", addresses),
    ]
}

/// What Kubernetes' own programs need: by the number of pods and the number of cores, unless the
/// NodeClass says it.
fn kube_reserved(millicores: i64, pods: i64, kubelet: &KubeletConfiguration) -> Resources {
    let mut reserved = Resources {
        cpu: kube_reserved_cpu(millicores),
        memory: (11 * pods + 255) * MIB,
        ephemeral_storage: GIB,
        ..Resources::default()
    };
    let own = quantities(kubelet.kube_reserved.as_ref());
    for name in kubelet.kube_reserved.iter().flatten().map(|(name, _)| name.as_str()) {
        match name {
            "cpu" | "memory" | "ephemeral-storage" => reserved.set(name, own.get(name)),
            _ => {}
        }
    }
    reserved
}

/// Per tier of cores a share of the tier, in hundredths of a percent; each truncated to whole
/// millicores.
fn kube_reserved_cpu(millicores: i64) -> i64 {
    const TIERS: [(i64, i64, i64); 4] =
        [(0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, i64::MAX, 25)];
    TIERS.iter().map(|&(from, to, share)| (millicores.min(to) - from).max(0) * share / 10_000).sum()
}

fn eviction(memory: i64, storage: i64, kubelet: &KubeletConfiguration) -> Resources {
    let thresholds = kubelet.eviction_hard.as_ref();
    let threshold = |signal: &str, capacity: i64, default: i64| {
        thresholds
            .and_then(|thresholds| thresholds.get(signal))
            .and_then(|value| eviction_bytes(value, capacity))
            .unwrap_or(default)
    };
    Resources {
        memory: threshold("memory.available", memory, 100 * MIB),
        // ceil(size / 100 × 10)
        ephemeral_storage: threshold("nodefs.available", storage, (storage * 10 + 99) / 100),
        ..Resources::default()
    }
}

/// `5%` of the capacity, rounded up, or a quantity. 100 % turns the threshold off.
#[expect(clippy::cast_possible_truncation, reason = "bytes are far below 2^63")]
#[expect(clippy::cast_precision_loss, reason = "a percentage needs no more precision")]
fn eviction_bytes(value: &str, capacity: i64) -> Option<i64> {
    match value.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.parse().ok()?;
            if percent >= 100.0 {
                return Some(0);
            }
            Some((capacity as f64 / 100.0 * percent).ceil() as i64)
        }
        None => value.parse::<Quantity>().ok().map(Quantity::units),
    }
}

/// CPU, memory and storage of a map of quantities; process ids are no resource of pods. What does
/// not parse is left out: the API server has checked it.
fn quantities(map: Option<&std::collections::BTreeMap<String, String>>) -> Resources {
    let mut resources = Resources::default();
    for (name, value) in map.into_iter().flatten() {
        let Ok(quantity) = value.parse::<Quantity>() else { continue };
        match name.as_str() {
            "cpu" => resources.cpu = quantity.millis(),
            "memory" | "ephemeral-storage" => resources.set(name, quantity.units()),
            _ => {}
        }
    }
    resources
}

#[cfg(test)]
mod tests;
