//! From what a machine is and what its bootstrap says to the Node object that its kubelet
//! registers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenon_crds::quantity::{ParseQuantityError, Quantity as Amount};

use super::bootstrap::{Bootstrap, Family};
use crate::attacher::MANAGED_ANNOTATION;
use crate::kwok::{MACHINE_ANNOTATION, NODE_ANNOTATION};

/// What the machine is, apart from what its bootstrap says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// `i-…`.
    pub instance_id: String,
    /// `m6i.large`.
    pub instance_type: String,
    /// Availability zone.
    pub zone: String,
    /// Zone id, the same in every account.
    pub zone_id: String,
    /// Region.
    pub region: String,
    /// Name under which the kubelet registers.
    pub private_dns_name: String,
    /// Address.
    pub private_ip: String,
    /// `amd64` or `arm64`.
    pub architecture: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory as the catalog of EC2 says, MiB. The machine sees less: see [`visible_memory`].
    pub memory_mib: u64,
    /// Pods that its network interfaces allow.
    pub interface_pods: u32,
    /// Addresses that its first network interface has for pods on Windows.
    pub secondary_addresses: u32,
    /// Root volume, GiB.
    pub root_volume_gib: u64,
    /// Devices by resource name (`nvidia.com/gpu`).
    pub devices: BTreeMap<String, u32>,
}

/// What hypervisor and firmware leave of a machine's memory: 96.5 % of it, less 64 MiB on arm64.
///
/// Karpenter assumes 7.5 % overhead until it has seen a machine; real ones take less, which is what
/// lets the operator learn (aws-provider 4.6).
pub(crate) fn visible_memory(hardware: &Hardware) -> u64 {
    let mib = hardware.memory_mib * 965 / 1000;
    if hardware.architecture == "arm64" { mib.saturating_sub(64) } else { mib }
}

/// The taint that a kubelet with an external cloud provider starts with, until the cloud controller
/// manager has looked at the Node.
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// An amount in a kubelet's configuration that is none.
#[derive(Debug, thiserror::Error)]
pub enum AmountError {
    /// Of what is reserved.
    #[error("reserved {resource}: {text:?}: {why}")]
    Reserved {
        /// Such as `memory`.
        resource: String,
        /// What is there.
        text: String,
        /// What is wrong with it.
        why: ParseQuantityError,
    },
    /// Of a threshold in percent.
    #[error("evictionHard {signal}: {text:?} is not a percentage")]
    Percentage {
        /// Eviction signal, such as `memory.available`.
        signal: String,
        /// What is there.
        text: String,
    },
    /// Of a threshold.
    #[error("evictionHard {signal}: {text:?}: {why}")]
    Threshold {
        /// Eviction signal, such as `memory.available`.
        signal: String,
        /// What is there.
        text: String,
        /// What is wrong with it.
        why: ParseQuantityError,
    },
}

/// The Node as the kubelet registers it: not ready, and not yet seen by the cloud controller
/// manager.
pub fn register(
    hardware: &Hardware,
    family: Family,
    bootstrap: &Bootstrap,
) -> Result<Node, AmountError> {
    let capacity = capacity(hardware, family, bootstrap);
    let allocatable = allocatable(hardware, family, bootstrap, &capacity)?;
    let mut labels = bootstrap.labels.clone();
    labels.insert("kubernetes.io/hostname".into(), hardware.private_dns_name.clone());
    let operating_system = match family {
        Family::Windows(server) => {
            labels.insert("node.kubernetes.io/windows-build".into(), server.build.into());
            "windows"
        }
        Family::Al2023 | Family::Al2 | Family::Bottlerocket | Family::Ubuntu => "linux",
    };
    labels.insert("kubernetes.io/os".into(), operating_system.into());
    labels.insert("kubernetes.io/arch".into(), hardware.architecture.clone());
    let mut taints = bootstrap.taints.clone();
    taints.push(Taint {
        key: UNINITIALIZED.into(),
        value: Some("true".into()),
        effect: "NoSchedule".into(),
        time_added: None,
    });
    Ok(Node {
        metadata: ObjectMeta {
            name: Some(hardware.private_dns_name.clone()),
            labels: Some(labels),
            // kwok keeps the lease and plays the pods; the status stays ours.
            annotations: Some(BTreeMap::from([
                (NODE_ANNOTATION.to_owned(), "fake".to_owned()),
                (MACHINE_ANNOTATION.to_owned(), hardware.instance_id.clone()),
                (MANAGED_ANNOTATION.to_owned(), "true".to_owned()),
            ])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(format!("aws:///{}/{}", hardware.zone, hardware.instance_id)),
            taints: Some(taints),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(capacity),
            allocatable: Some(allocatable),
            node_info: Some(NodeSystemInfo {
                architecture: hardware.architecture.clone(),
                operating_system: operating_system.into(),
                kubelet_version: "v1.36.3".into(),
                os_image: match family {
                    Family::Al2023 => "Amazon Linux 2023".into(),
                    Family::Al2 => "Amazon Linux 2".into(),
                    Family::Bottlerocket => "Bottlerocket OS".into(),
                    Family::Ubuntu => "Ubuntu 24.04 LTS".into(),
                    Family::Windows(server) => format!("Windows Server {} Datacenter", server.year),
                },
                boot_id: format!("boot-{}", hardware.instance_id),
                machine_id: hardware.instance_id.clone(),
                system_uuid: hardware.instance_id.clone(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    })
}

/// What the cloud controller manager adds: labels, addresses. It takes the `uninitialized` taint
/// away.
pub(crate) fn cloud_labels(hardware: &Hardware) -> BTreeMap<String, String> {
    [
        ("node.kubernetes.io/instance-type", &hardware.instance_type),
        ("beta.kubernetes.io/instance-type", &hardware.instance_type),
        ("topology.kubernetes.io/zone", &hardware.zone),
        ("failure-domain.beta.kubernetes.io/zone", &hardware.zone),
        ("topology.kubernetes.io/region", &hardware.region),
        ("failure-domain.beta.kubernetes.io/region", &hardware.region),
        ("topology.k8s.aws/zone-id", &hardware.zone_id),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.clone()))
    .collect()
}

/// Addresses of the Node.
pub fn addresses(hardware: &Hardware) -> Vec<NodeAddress> {
    [
        ("InternalIP", &hardware.private_ip),
        ("InternalDNS", &hardware.private_dns_name),
        ("Hostname", &hardware.private_dns_name),
    ]
    .into_iter()
    .map(|(type_, address)| NodeAddress { type_: type_.into(), address: address.clone() })
    .collect()
}

fn capacity(
    hardware: &Hardware,
    family: Family,
    bootstrap: &Bootstrap,
) -> BTreeMap<String, Quantity> {
    let mut capacity = BTreeMap::from([
        ("cpu".to_owned(), Quantity(hardware.vcpus.to_string())),
        ("memory".to_owned(), Quantity(format!("{}Ki", visible_memory(hardware) * 1024))),
        (
            "ephemeral-storage".to_owned(),
            Quantity(format!("{}Ki", hardware.root_volume_gib * 1024 * 1024)),
        ),
        (
            "pods".to_owned(),
            Quantity(bootstrap.max_pods.unwrap_or(default_pods(hardware, family)).to_string()),
        ),
    ]);
    if let Family::Windows(_) = family {
        // In EKS, the VPC resource controller adds them to the Node's status.
        let addresses = Quantity(hardware.secondary_addresses.to_string());
        capacity.insert("vpc.amazonaws.com/PrivateIPv4Address".to_owned(), addresses);
    }
    capacity.extend(
        hardware.devices.iter().map(|(name, count)| (name.clone(), Quantity(count.to_string()))),
    );
    capacity
}

/// The kubelet's limit when the user data does not set one.
fn default_pods(hardware: &Hardware, family: Family) -> u32 {
    match family {
        Family::Windows(_) | Family::Ubuntu => 110,
        Family::Al2023 | Family::Al2 | Family::Bottlerocket => hardware.interface_pods,
    }
}

/// Capacity less reservations and hard eviction thresholds; what the user data does not say has the
/// family's default.
fn allocatable(
    hardware: &Hardware,
    family: Family,
    bootstrap: &Bootstrap,
    capacity: &BTreeMap<String, Quantity>,
) -> Result<BTreeMap<String, Quantity>, AmountError> {
    let pods = match family {
        Family::Bottlerocket | Family::Windows(_) | Family::Ubuntu => {
            bootstrap.max_pods.unwrap_or(default_pods(hardware, family))
        }
        Family::Al2023 | Family::Al2 => hardware.interface_pods,
    };
    let reserved = |key: &str, default: i128| -> Result<i128, AmountError> {
        let kube = match bootstrap.kube_reserved.get(key) {
            Some(text) => units(key, text)?,
            // kOps reserves what its kubelet settings say, and EKS' images more.
            None if family == Family::Ubuntu => 0,
            None => default,
        };
        let system = bootstrap.system_reserved.get(key).map_or(Ok(0), |text| units(key, text))?;
        Ok(kube + system)
    };
    let memory = i128::from(visible_memory(hardware)) * MIB;
    let storage = i128::from(hardware.root_volume_gib) * 1024 * MIB;
    let evict_memory = threshold(bootstrap, "memory.available", memory, 100 * MIB)?;
    let evict_storage = threshold(bootstrap, "nodefs.available", storage, storage / 10)?;
    let cpu =
        i128::from(hardware.vcpus) * 1000 - reserved("cpu", reserved_millicores(hardware.vcpus))?;
    let memory = memory - reserved("memory", (11 * i128::from(pods) + 255) * MIB)? - evict_memory;
    let storage = storage - reserved("ephemeral-storage", 1024 * MIB)? - evict_storage;
    let mut allocatable = capacity.clone();
    allocatable.insert("cpu".into(), Quantity(format!("{}m", cpu.max(0))));
    allocatable.insert("memory".into(), Quantity(format!("{}Ki", memory.max(0) / 1024)));
    allocatable.insert("ephemeral-storage".into(), Quantity(storage.max(0).to_string()));
    Ok(allocatable)
}

const MIB: i128 = 1024 * 1024;

/// Millicores for CPU, bytes for the rest.
fn units(key: &str, text: &str) -> Result<i128, AmountError> {
    let amount: Amount = text.parse().map_err(|why| AmountError::Reserved {
        resource: key.to_owned(),
        text: text.to_owned(),
        why,
    })?;
    Ok(i128::from(if key == "cpu" { amount.millis() } else { amount.units() }))
}

/// An eviction threshold: a quantity or percent of the capacity.
fn threshold(
    bootstrap: &Bootstrap,
    signal: &str,
    capacity: i128,
    default: i128,
) -> Result<i128, AmountError> {
    let Some(text) = bootstrap.eviction_hard.get(signal) else { return Ok(default) };
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.parse().map_err(|_| AmountError::Percentage {
            signal: signal.to_owned(),
            text: text.clone(),
        })?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "far below 2^53"
        )]
        return Ok((capacity as f64 * percent / 100.0) as i128);
    }
    let amount: Amount = text.parse().map_err(|why| AmountError::Threshold {
        signal: signal.to_owned(),
        text: text.clone(),
        why,
    })?;
    Ok(i128::from(amount.units()))
}

/// 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest, each tier
/// cut to whole millicores.
fn reserved_millicores(vcpus: u32) -> i128 {
    let tier = |from: u32, to: u32, per_ten_thousand: u32| {
        u64::from(vcpus.min(to).saturating_sub(from)) * 1000 * u64::from(per_ten_thousand) / 10_000
    };
    i128::from(tier(0, 1, 600) + tier(1, 2, 100) + tier(2, 4, 50) + tier(4, u32::MAX, 25))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware(vcpus: u32, memory_mib: u64) -> Hardware {
        Hardware {
            instance_id: "i-1".into(),
            instance_type: "m6i.large".into(),
            zone: "eu-north-1a".into(),
            zone_id: "eun1-az1".into(),
            region: "eu-north-1".into(),
            private_dns_name: "ip-10-0-0-4.eu-north-1.compute.internal".into(),
            private_ip: "10.0.0.4".into(),
            architecture: "amd64".into(),
            vcpus,
            memory_mib,
            interface_pods: 29,
            secondary_addresses: 9,
            root_volume_gib: 20,
            devices: BTreeMap::new(),
        }
    }

    #[test]
    fn reserves_cpu_in_the_tiers_of_the_eks_images() {
        let reserved =
            [(1, 60), (2, 70), (4, 80), (8, 90), (16, 110), (96, 310), (192, 550), (448, 1190)];
        for (vcpus, millicores) in reserved {
            assert_eq!(reserved_millicores(vcpus), millicores, "{vcpus} vCPUs");
        }
    }

    #[test]
    fn a_node_registers_not_ready_with_what_its_user_data_says() {
        let bootstrap = Bootstrap {
            labels: BTreeMap::from([("team".into(), "red".into())]),
            max_pods: Some(20),
            kube_reserved: BTreeMap::from([("cpu".into(), "500m".into())]),
            ..Bootstrap::default()
        };
        let node = register(&hardware(2, 8192), Family::Al2023, &bootstrap).unwrap();
        let status = node.status.unwrap();
        assert_eq!(status.allocatable.as_ref().unwrap()["cpu"].0, "1500m");
        assert_eq!(status.capacity.as_ref().unwrap()["pods"].0, "20");
        assert!(status.conditions.is_none(), "nobody has said Ready yet");
        assert_eq!(node.metadata.labels.unwrap()["team"], "red");
        let spec = node.spec.unwrap();
        assert_eq!(spec.provider_id.as_deref(), Some("aws:///eu-north-1a/i-1"));
        assert!(spec.taints.unwrap().iter().any(|taint| taint.key == UNINITIALIZED));
    }

    #[test]
    fn a_windows_node_has_its_build_and_addresses_for_pods() {
        let server = crate::machine::bootstrap::WindowsServer { year: 2022, build: "10.0.20348" };
        let node =
            register(&hardware(2, 8192), Family::Windows(server), &Bootstrap::default()).unwrap();
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["kubernetes.io/os"], "windows");
        assert_eq!(labels["node.kubernetes.io/windows-build"], "10.0.20348");
        let capacity = node.status.unwrap().capacity.unwrap();
        assert_eq!(capacity["pods"].0, "110");
        assert_eq!(capacity["vpc.amazonaws.com/PrivateIPv4Address"].0, "9");
    }

    #[test]
    fn a_reservation_that_is_no_quantity_keeps_the_machine_from_joining() {
        let bootstrap = Bootstrap {
            kube_reserved: BTreeMap::from([("memory".into(), "much".into())]),
            ..Bootstrap::default()
        };
        let error = register(&hardware(2, 8192), Family::Al2023, &bootstrap).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("memory") && error.contains("much"), "{error}");
    }
}
