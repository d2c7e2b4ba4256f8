//! What EC2 says about instance types and capacity reservations: the JSON that `aws ec2
//! describe-instance-types` and `aws ec2 describe-capacity-reservations` print.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::type_info::{Device, NetworkInfo, Neuron, TypeInfo};

/// An answer of DescribeInstanceTypes or DescribeCapacityReservations.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Answer {
    instance_types: Option<Vec<Described>>,
    capacity_reservations: Option<Vec<Reservation>>,
}

impl Answer {
    /// The types that can be nodes; `None` when the answer is not about types.
    pub fn types(&mut self) -> Option<Vec<TypeInfo>> {
        let described = self.instance_types.take()?;
        Some(described.into_iter().filter_map(Described::type_info).collect())
    }

    /// How many more instances each capacity reservation has room for, by its id; `None` when the
    /// answer is not about reservations.
    pub fn room(&mut self) -> Option<BTreeMap<String, u32>> {
        let reservations = self.capacity_reservations.take()?;
        Some(reservations.into_iter().map(|it| (it.id, it.available_instance_count)).collect())
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Reservation {
    #[serde(rename = "CapacityReservationId")]
    id: String,
    #[serde(default)]
    available_instance_count: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Described {
    instance_type: String,
    supported_usage_classes: Vec<String>,
    supported_virtualization_types: Option<Vec<String>>,
    hypervisor: Option<String>,
    processor_info: Processor,
    v_cpu_info: VCpu,
    memory_info: Memory,
    ebs_info: Ebs,
    instance_storage_info: Option<Storage>,
    network_info: Option<Network>,
    gpu_info: Gpus,
    neuron_info: Option<Neurons>,
    inference_accelerator_info: Accelerators,
    placement_group_info: Placement,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Processor {
    supported_architectures: Vec<String>,
    sustained_clock_speed_in_ghz: Option<f64>,
    supported_features: Vec<String>,
    manufacturer: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VCpu {
    #[serde(rename = "DefaultVCpus")]
    default: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Memory {
    #[serde(rename = "SizeInMiB")]
    mib: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Ebs {
    ebs_optimized_support: String,
    ebs_optimized_info: Option<EbsBandwidth>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct EbsBandwidth {
    maximum_bandwidth_in_mbps: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Storage {
    #[serde(rename = "TotalSizeInGB")]
    gb: Option<i64>,
    #[serde(rename = "NvmeSupport")]
    nvme: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Network {
    maximum_network_interfaces: i64,
    default_network_card_index: usize,
    network_cards: Vec<Card>,
    ipv4_addresses_per_interface: i64,
    encryption_in_transit_supported: bool,
    efa_info: Efa,
    ena_support: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Card {
    maximum_network_interfaces: i64,
    baseline_bandwidth_in_gbps: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Efa {
    maximum_efa_interfaces: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Gpus {
    gpus: Vec<Gpu>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Gpu {
    name: String,
    manufacturer: String,
    count: i64,
    memory_info: Memory,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Neurons {
    neuron_devices: Vec<NeuronDevice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct NeuronDevice {
    name: String,
    count: i64,
    core_info: Cores,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Cores {
    count: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Accelerators {
    accelerators: Vec<Gpu>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Placement {
    supported_strategies: Vec<String>,
}

impl Described {
    /// `None` for types that can't be nodes: no name, no memory, no known architecture, no hardware
    /// virtualisation.
    fn type_info(self) -> Option<TypeInfo> {
        let architectures = &self.processor_info.supported_architectures;
        let arch = architectures.iter().find_map(|arch| match arch.as_str() {
            "x86_64" => Some("amd64"),
            "arm64" => Some("arm64"),
            _ => None,
        })?;
        let hvm =
            self.supported_virtualization_types.is_none_or(|all| all.iter().any(|it| it == "hvm"));
        let storage = self.instance_storage_info.as_ref();
        let has_nvme = |storage: &&Storage| {
            storage.nvme.as_deref().is_some_and(|support| support != "unsupported")
        };
        let device = |gpu: Gpu| Device {
            name: gpu.name,
            manufacturer: gpu.manufacturer,
            count: gpu.count,
            memory_mib: gpu.memory_info.mib.unwrap_or(0),
        };
        let info = TypeInfo {
            arch: arch.to_owned(),
            arm_firmware: architectures.first().is_some_and(|arch| arch == "arm64"),
            usage_classes: self
                .supported_usage_classes
                .into_iter()
                .filter(|class| class == "on-demand" || class == "spot")
                .collect(),
            vcpus: self.v_cpu_info.default?,
            memory_mib: self.memory_info.mib?,
            cpu_manufacturer: self.processor_info.manufacturer,
            clock_ghz: self.processor_info.sustained_clock_speed_in_ghz,
            nested_virtualization: self
                .processor_info
                .supported_features
                .iter()
                .any(|feature| feature == "nested-virtualization"),
            hypervisor: self.hypervisor,
            ebs_mbps: (self.ebs_info.ebs_optimized_support == "default")
                .then_some(self.ebs_info.ebs_optimized_info)
                .flatten()
                .and_then(|info| info.maximum_bandwidth_in_mbps),
            nvme_gb: storage.filter(has_nvme).and_then(|storage| storage.gb),
            instance_store_gb: storage.and_then(|storage| storage.gb),
            network: self.network_info.map(Network::info),
            gpus: self.gpu_info.gpus.into_iter().map(device).collect(),
            neurons: self.neuron_info.map(|info| {
                let devices = info.neuron_devices.into_iter();
                devices
                    .map(|it| Neuron { name: it.name, count: it.count, cores: it.core_info.count })
                    .collect()
            }),
            inference_accelerators: self
                .inference_accelerator_info
                .accelerators
                .into_iter()
                .map(|it| Device { memory_mib: 0, ..device(it) })
                .collect(),
            placement_strategies: self.placement_group_info.supported_strategies,
            name: self.instance_type,
        };
        (hvm && !info.name.is_empty()).then_some(info)
    }
}

impl Network {
    fn info(self) -> NetworkInfo {
        let cards: Vec<i64> =
            self.network_cards.iter().map(|card| card.maximum_network_interfaces).collect();
        let of_default_card = cards.get(self.default_network_card_index).copied();
        NetworkInfo {
            default_card_interfaces: of_default_card.unwrap_or(self.maximum_network_interfaces),
            ipv4_per_interface: self.ipv4_addresses_per_interface,
            encryption_in_transit: self.encryption_in_transit_supported,
            max_efa: self.efa_info.maximum_efa_interfaces,
            ena: self.ena_support,
            baseline_mbps: baseline_mbps(&self.network_cards),
            cards,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bandwidths are below 2^53 Mbps")]
fn baseline_mbps(cards: &[Card]) -> Option<i64> {
    let gbps: Option<f64> = cards.iter().map(|card| card.baseline_bandwidth_in_gbps).sum();
    gbps.map(|gbps| (gbps * 1000.0).round() as i64).filter(|&mbps| mbps > 0)
}
