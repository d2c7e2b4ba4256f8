//! The hash of an EC2NodeClass. Selectors are left out: what they select is compared instead.

use super::structure::{Hash, Structure, set};
use crate::duration::Duration;
use crate::ec2nodeclass::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions, EC2NodeClassSpec, HttpTokens,
    InstanceStorePolicy, KubeletConfiguration, MetadataOptions, NetworkInterface,
    PlacementGroupSelector, Switch, VolumeType,
};
use crate::quantity::Quantity;

/// Version of the algorithm behind [`ec2_node_class`].
pub const EC2_NODE_CLASS_HASH_VERSION: &str = "v5";

/// Where the settings of the kubelet enter the hash; this is what changed between two versions of
/// the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletIn {
    /// As a field of the spec (`v5`).
    Spec,
    /// As JSON next to the spec (`v6`).
    Json,
}

/// The value of the annotation `karpenter.k8s.aws/ec2nodeclass-hash`. `ca_bundle` is the cluster's
/// CA in base64, as it is put into user data; absent counts as empty.
pub fn ec2_node_class(spec: &EC2NodeClassSpec, ca_bundle: Option<&str>) -> String {
    ec2_node_class_with(spec, ca_bundle, KubeletIn::Spec)
}

/// As [`ec2_node_class`], by the version of the algorithm that places the kubelet's settings so.
pub fn ec2_node_class_with(
    spec: &EC2NodeClassSpec,
    ca_bundle: Option<&str>,
    kubelet_in: KubeletIn,
) -> String {
    let kubelet = spec.kubelet.as_ref().filter(|_| kubelet_in == KubeletIn::Spec).map(kubelet);
    let structure = Structure::new("EC2NodeClassSpec")
        .field(
            "PlacementGroupSelector",
            spec.placement_group_selector.as_ref().map(placement_group).as_ref(),
        )
        .field("AssociatePublicIPAddress", spec.associate_public_ip_address.as_ref())
        .field("UserData", spec.user_data.as_ref())
        .text("Role", spec.role.as_deref().unwrap_or_default())
        .field("InstanceProfile", spec.instance_profile.as_ref())
        .field("Tags", spec.tags.as_ref())
        .field("Kubelet", kubelet.as_ref())
        .field(
            "BlockDeviceMappings",
            each(spec.block_device_mappings.as_deref(), block_device_mapping).as_ref(),
        )
        .field("InstanceStorePolicy", spec.instance_store_policy.map(InstanceStorePolicy::as_str))
        .field(
            "NetworkInterfaces",
            each(spec.network_interfaces.as_deref(), network_interface).as_ref(),
        )
        .field("DetailedMonitoring", spec.detailed_monitoring.as_ref())
        .field("MetadataOptions", spec.metadata_options.as_ref().map(metadata_options).as_ref())
        .field(
            "ConnectionTracking",
            spec.connection_tracking.as_ref().map(connection_tracking).as_ref(),
        )
        .field("Context", spec.context.as_ref())
        .field("CPUOptions", spec.cpu_options.map(cpu_options).as_ref());
    let mut parts = vec![
        structure.hash(),
        spec.resolved_ami_family().as_str().hash(),
        ca_bundle.unwrap_or_default().hash(),
    ];
    if kubelet_in == KubeletIn::Json {
        parts.push(kubelet_json(spec.kubelet.as_ref()).hash());
    }
    set(parts).to_string()
}

fn each<T>(list: Option<&[T]>, structure: fn(&T) -> Structure) -> Option<Vec<Structure>> {
    Some(list?.iter().map(structure).collect())
}

fn placement_group(selector: &PlacementGroupSelector) -> Structure {
    Structure::new("PlacementGroupSelector")
        .field("Name", selector.name.as_ref())
        .field("ID", selector.id.as_ref())
}

fn block_device_mapping(mapping: &BlockDeviceMapping) -> Structure {
    Structure::new("BlockDeviceMapping")
        .field("DeviceName", mapping.device_name.as_ref())
        .field("EBS", mapping.ebs.as_ref().map(block_device).as_ref())
        .field("RootVolume", mapping.root_volume.filter(|root| *root).as_ref())
}

fn block_device(device: &BlockDevice) -> Structure {
    let size = device
        .volume_size
        .as_deref()
        .map(|text| text.parse::<Quantity>().map_or(text.to_owned(), |size| size.to_string()));
    Structure::new("BlockDevice")
        .field("DeleteOnTermination", device.delete_on_termination.as_ref())
        .field("Encrypted", device.encrypted.as_ref())
        .field("IOPS", device.iops.as_ref())
        .field("KMSKeyID", device.kms_key_id.as_ref())
        .field("SnapshotID", device.snapshot_id.as_ref())
        .field("Throughput", device.throughput.as_ref())
        .field("VolumeInitializationRate", device.volume_initialization_rate.as_ref())
        .field("VolumeSize", size.as_ref())
        .field("VolumeType", device.volume_type.map(VolumeType::as_str))
}

fn network_interface(interface: &NetworkInterface) -> Structure {
    let non_zero = |index: i32| (index != 0).then_some(index);
    Structure::new("NetworkInterface")
        .field("NetworkCardIndex", non_zero(interface.network_card_index).as_ref())
        .field("DeviceIndex", non_zero(interface.device_index).as_ref())
        .text("InterfaceType", interface.interface_type.as_str())
}

fn metadata_options(options: &MetadataOptions) -> Structure {
    Structure::new("MetadataOptions")
        .field("HTTPEndpoint", options.http_endpoint.map(Switch::as_str))
        .field("HTTPProtocolIPv6", options.http_protocol_ipv6.map(Switch::as_str))
        .field("HTTPPutResponseHopLimit", options.http_put_response_hop_limit.as_ref())
        .field("HTTPTokens", options.http_tokens.map(HttpTokens::as_str))
}

fn connection_tracking(tracking: &ConnectionTracking) -> Structure {
    Structure::new("ConnectionTracking")
        .field("TCPEstablishedTimeout", tracking.tcp_established_timeout.as_ref())
        .field("UDPStreamTimeout", tracking.udp_stream_timeout.as_ref())
        .field("UDPTimeout", tracking.udp_timeout.as_ref())
}

fn cpu_options(options: CpuOptions) -> Structure {
    Structure::new("CPUOptions")
        .field("NestedVirtualization", options.nested_virtualization.map(Switch::as_str))
}

fn kubelet(kubelet: &KubeletConfiguration) -> Structure {
    let grace_periods = kubelet.eviction_soft_grace_period.as_ref().map(|periods| {
        let hashed = |text: &String| {
            let nanos = text.parse::<Duration>().map_or(0, |period| period.as_nanos());
            Structure::new("Duration").field("Duration", (nanos != 0).then_some(&nanos))
        };
        periods
            .iter()
            .map(|(signal, text)| (signal.clone(), hashed(text)))
            .collect::<std::collections::BTreeMap<_, _>>()
    });
    Structure::new("KubeletConfiguration")
        .field("ClusterDNS", kubelet.cluster_dns.as_ref())
        .field("MaxPods", kubelet.max_pods.as_ref())
        .field("PodsPerCore", kubelet.pods_per_core.as_ref())
        .field("SystemReserved", kubelet.system_reserved.as_ref())
        .field("KubeReserved", kubelet.kube_reserved.as_ref())
        .field("EvictionHard", kubelet.eviction_hard.as_ref())
        .field("EvictionSoft", kubelet.eviction_soft.as_ref())
        .field("EvictionSoftGracePeriod", grace_periods.as_ref())
        .field("EvictionMaxPodGracePeriod", kubelet.eviction_max_pod_grace_period.as_ref())
        .field("ImageGCHighThresholdPercent", kubelet.image_gc_high_threshold_percent.as_ref())
        .field("ImageGCLowThresholdPercent", kubelet.image_gc_low_threshold_percent.as_ref())
        .field("CPUCFSQuota", kubelet.cpu_cfs_quota.as_ref())
}

/// Compact JSON with sorted keys, escaped as Go's encoder does for HTML. The fields of
/// [`KubeletConfiguration`] are declared in the order of their keys.
fn kubelet_json(kubelet: Option<&KubeletConfiguration>) -> String {
    let json = kubelet.filter(|kubelet| **kubelet != KubeletConfiguration::default()).map_or_else(
        || "null".to_owned(),
        |kubelet| {
            serde_json::to_string(kubelet).expect("texts, numbers and maps of texts are JSON")
        },
    );
    json.replace('<', r"\u003c").replace('>', r"\u003e").replace('&', r"\u0026")
}
