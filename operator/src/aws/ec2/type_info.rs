//! What EC2 says about an instance type, from the SDK's types.

use aws_sdk_ec2::types as sdk;
use tenon_state::ec2::type_info::{Device, NetworkInfo, Neuron, TypeInfo};

/// `None` for types that can't be nodes: no name, no memory, no known architecture.
pub(super) fn from_sdk(info: &sdk::InstanceTypeInfo) -> Option<TypeInfo> {
    let processor = info.processor_info.as_ref()?;
    let architectures = processor.supported_architectures();
    let arch = architectures.iter().find_map(|arch| match arch.as_str() {
        "x86_64" => Some("amd64"),
        "arm64" => Some("arm64"),
        _ => None,
    })?;
    let ebs = info.ebs_info.as_ref();
    let storage = info.instance_storage_info.as_ref();
    Some(TypeInfo {
        name: info.instance_type.as_ref()?.as_str().to_owned(),
        arch: arch.to_owned(),
        arm_firmware: architectures.first().is_some_and(|arch| arch.as_str() == "arm64"),
        usage_classes: info
            .supported_usage_classes()
            .iter()
            .map(|class| class.as_str().to_owned())
            .filter(|class| class == "on-demand" || class == "spot")
            .collect(),
        vcpus: info.v_cpu_info.as_ref()?.default_v_cpus?.into(),
        memory_mib: info.memory_info.as_ref()?.size_in_mib?,
        cpu_manufacturer: processor.manufacturer.clone(),
        clock_ghz: processor.sustained_clock_speed_in_ghz,
        nested_virtualization: processor
            .supported_features()
            .iter()
            .any(|feature| feature.as_str() == "nested-virtualization"),
        hypervisor: info.hypervisor.as_ref().map(|hypervisor| hypervisor.as_str().to_owned()),
        ebs_mbps: ebs
            .filter(|ebs| {
                ebs.ebs_optimized_support
                    .as_ref()
                    .is_some_and(|support| support.as_str() == "default")
            })
            .and_then(|ebs| ebs.ebs_optimized_info.as_ref()?.maximum_bandwidth_in_mbps)
            .map(i64::from),
        nvme_gb: storage
            .filter(|storage| {
                storage
                    .nvme_support
                    .as_ref()
                    .is_some_and(|support| support.as_str() != "unsupported")
            })
            .and_then(|storage| storage.total_size_in_gb),
        instance_store_gb: storage.and_then(|storage| storage.total_size_in_gb),
        network: info.network_info.as_ref().map(network_from_sdk),
        gpus: info
            .gpu_info
            .iter()
            .flat_map(aws_sdk_ec2::types::GpuInfo::gpus)
            .map(|gpu| Device {
                name: gpu.name.clone().unwrap_or_default(),
                manufacturer: gpu.manufacturer.clone().unwrap_or_default(),
                count: gpu.count.unwrap_or(0).into(),
                memory_mib: gpu
                    .memory_info
                    .as_ref()
                    .and_then(|memory| memory.size_in_mib)
                    .unwrap_or(0)
                    .into(),
            })
            .collect(),
        neurons: info.neuron_info.as_ref().map(|neuron| {
            neuron
                .neuron_devices()
                .iter()
                .map(|device| Neuron {
                    name: device.name.clone().unwrap_or_default(),
                    count: device.count.unwrap_or(0).into(),
                    cores: device
                        .core_info
                        .as_ref()
                        .and_then(|cores| cores.count)
                        .unwrap_or(0)
                        .into(),
                })
                .collect()
        }),
        inference_accelerators: info
            .inference_accelerator_info
            .iter()
            .flat_map(aws_sdk_ec2::types::InferenceAcceleratorInfo::accelerators)
            .map(|device| Device {
                name: device.name.clone().unwrap_or_default(),
                manufacturer: device.manufacturer.clone().unwrap_or_default(),
                count: device.count.unwrap_or(0).into(),
                memory_mib: 0,
            })
            .collect(),
        placement_strategies: info
            .placement_group_info
            .iter()
            .flat_map(aws_sdk_ec2::types::PlacementGroupInfo::supported_strategies)
            .map(|strategy| strategy.as_str().to_owned())
            .collect(),
    })
}

fn network_from_sdk(network: &sdk::NetworkInfo) -> NetworkInfo {
    let cards: Vec<i64> = network
        .network_cards()
        .iter()
        .map(|card| card.maximum_network_interfaces.unwrap_or(0).into())
        .collect();
    let default_card = network.default_network_card_index.unwrap_or(0);
    let default_card_interfaces = usize::try_from(default_card)
        .ok()
        .and_then(|index| cards.get(index).copied())
        .unwrap_or_else(|| network.maximum_network_interfaces.unwrap_or(0).into());
    NetworkInfo {
        default_card_interfaces,
        ipv4_per_interface: network.ipv4_addresses_per_interface.unwrap_or(0).into(),
        encryption_in_transit: network.encryption_in_transit_supported.unwrap_or(false),
        max_efa: network
            .efa_info
            .as_ref()
            .and_then(|efa| efa.maximum_efa_interfaces)
            .unwrap_or(0)
            .into(),
        ena: network.ena_support.as_ref().map(|support| support.as_str().to_owned()),
        cards,
        baseline_mbps: baseline_mbps(network),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bandwidths are below 2^53 Mbps")]
fn baseline_mbps(network: &sdk::NetworkInfo) -> Option<i64> {
    let gbps: Option<f64> =
        network.network_cards().iter().map(|card| card.baseline_bandwidth_in_gbps).sum();
    gbps.map(|gbps| (gbps * 1000.0).round() as i64).filter(|&mbps| mbps > 0)
}
