use tenon_crds::ec2nodeclass::{BlockDevice, NetworkInterface};

use super::*;
use crate::ec2::facts;
use crate::ec2::network::NetworkTable;

fn type_info(name: &str) -> TypeInfo {
    facts::find(name).unwrap_or_else(|| panic!("no type {name}"))
}

fn scope(name: &str) -> CapacityScope {
    CapacityScope {
        vm_memory_overhead: 0.075,
        reserved_enis: 0,
        seen_memory: None,
        branch_interfaces: NetworkTable::bundled().branch_interfaces(name),
    }
}

fn class(family: AmiFamily) -> EC2NodeClassSpec {
    EC2NodeClassSpec { ami_family: Some(family), ..EC2NodeClassSpec::default() }
}

fn allocatable(name: &str, class: &EC2NodeClassSpec) -> Resources {
    let Capacity { mut capacity, overhead } = capacity(&type_info(name), class, scope(name));
    capacity.subtract(&overhead);
    capacity
}

#[test]
fn allocatable_amounts_are_those_of_the_published_table() {
    // Type, millicores, MiB, pods, other resources.
    type Row<'t> = (&'t str, i64, i64, i64, &'t [(&'t str, i64)]);
    let table: &[Row<'_>] = &[
        ("a1.medium", 940, 1392, 8, &[("vpc.amazonaws.com/pod-eni", 10)]),
        ("m5.large", 1930, 6903, 29, &[("vpc.amazonaws.com/pod-eni", 9)]),
        ("m6g.large", 1930, 6844, 29, &[("vpc.amazonaws.com/pod-eni", 9)]),
        ("t3.nano", 1930, 74, 4, &[("vpc.amazonaws.com/pod-eni", 0)]),
        ("t3.large", 1930, 6837, 35, &[]),
        ("c7i-flex.large", 1930, 3114, 29, &[("vpc.amazonaws.com/pod-eni", 3)]),
        ("g4dn.xlarge", 3920, 14481, 29, &[("nvidia.com/gpu", 1)]),
        ("g4ad.xlarge", 3920, 14712, 8, &[("amd.com/gpu", 1)]),
        ("g6f.large", 1930, 7002, 20, &[("nvidia.com/gpu", 0)]),
        (
            "inf1.xlarge",
            3920,
            6804,
            38,
            &[("aws.amazon.com/neuron", 1), ("aws.amazon.com/neuroncore", 4)],
        ),
        (
            "inf2.xlarge",
            3920,
            14162,
            58,
            &[("aws.amazon.com/neuron", 1), ("aws.amazon.com/neuroncore", 2)],
        ),
        (
            "trn1.32xlarge",
            127_610,
            481_894,
            247,
            &[
                ("aws.amazon.com/neuron", 16),
                ("aws.amazon.com/neuroncore", 32),
                ("vpc.amazonaws.com/efa", 8),
            ],
        ),
        (
            "p4d.24xlarge",
            95_690,
            1_082_712,
            737,
            &[("nvidia.com/gpu", 8), ("vpc.amazonaws.com/efa", 4)],
        ),
        (
            "p5.48xlarge",
            191_450,
            1_938_410,
            100,
            &[("nvidia.com/gpu", 8), ("vpc.amazonaws.com/efa", 32)],
        ),
        ("m6idn.32xlarge", 127_610, 480_277, 394, &[("vpc.amazonaws.com/efa", 2)]),
        ("m5.metal", 95_690, 355_262, 737, &[]),
        ("u-6tb1.112xlarge", 446_810, 5_811_134, 737, &[]),
        ("c1.medium", 1930, 1122, 12, &[]),
    ];
    for &(name, millicores, mib, pods, other) in table {
        let found = allocatable(name, &class(AmiFamily::Al2023));
        assert_eq!(
            (found.cpu, found.memory / MIB, found.pods, found.ephemeral_storage),
            (millicores, mib, pods, 17 * GIB),
            "{name}"
        );
        for &(resource, amount) in other {
            assert_eq!(found.get(resource), amount, "{name} {resource}");
        }
    }
}

#[test]
fn windows_has_addresses_for_pods_and_no_use_for_local_disks() {
    for family in [AmiFamily::Windows2019, AmiFamily::Windows2022, AmiFamily::Windows2025] {
        let mut class = class(family);
        class.instance_store_policy = Some(InstanceStorePolicy::Raid0);
        let found = allocatable("m5d.large", &class);
        assert_eq!(found.pods, 110, "{family}");
        assert_eq!(found.get("vpc.amazonaws.com/PrivateIPv4Address"), 9, "{family}");
        // 50 GiB less a tenth and 1 GiB.
        assert_eq!(found.ephemeral_storage, 44 * GIB, "{family}");
        let reserved = capacity(&type_info("m5.large"), &class, scope("m5.large")).overhead.memory;
        assert_eq!(reserved, (11 * 110 + 255 + 100) * MIB, "{family}");
    }
    let linux = allocatable("m5d.large", &class(AmiFamily::Al2023));
    assert_eq!(linux.get("vpc.amazonaws.com/PrivateIPv4Address"), 0);
}

#[test]
fn reserved_cpu_grows_in_tiers() {
    for (cores, millicores) in
        [(1, 60), (2, 70), (4, 80), (8, 90), (16, 110), (96, 310), (192, 550), (448, 1190)]
    {
        assert_eq!(kube_reserved_cpu(cores * 1000), millicores, "{cores} cores");
    }
}

#[test]
fn no_interface_left_for_pods_means_no_pods() {
    let info = type_info("m5.large");
    assert_eq!(eni_limited_pods(info.network.as_ref(), 1, 0), 20);
    assert_eq!(eni_limited_pods(info.network.as_ref(), 3, 0), 0);
    assert_eq!(eni_limited_pods(info.network.as_ref(), 2, 1), 0);
    assert_eq!(eni_limited_pods(None, 0, 0), 0);
}

#[test]
fn max_pods_changes_what_is_reserved_on_bottlerocket_only() {
    let with = |family| {
        let mut class = class(family);
        class.kubelet =
            Some(KubeletConfiguration { max_pods: Some(10), ..KubeletConfiguration::default() });
        capacity(&type_info("m5.large"), &class, scope("m5.large"))
    };
    let (al2023, bottlerocket) = (with(AmiFamily::Al2023), with(AmiFamily::Bottlerocket));
    assert_eq!((al2023.capacity.pods, bottlerocket.capacity.pods), (10, 10));
    assert_eq!(al2023.overhead.memory, (11 * 29 + 255 + 100) * MIB);
    assert_eq!(bottlerocket.overhead.memory, (11 * 10 + 255 + 100) * MIB);
}

#[test]
fn pods_per_core_limits_pods_but_not_on_bottlerocket() {
    let with = |family| {
        let mut class = class(family);
        class.kubelet = Some(KubeletConfiguration {
            pods_per_core: Some(3),
            ..KubeletConfiguration::default()
        });
        capacity(&type_info("m5.large"), &class, scope("m5.large")).capacity.pods
    };
    assert_eq!((with(AmiFamily::Al2), with(AmiFamily::Bottlerocket)), (6, 29));
}

#[test]
fn kubelet_settings_override_what_is_reserved() {
    let map = |entries: &[(&str, &str)]| {
        Some(entries.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect())
    };
    let mut class = class(AmiFamily::Al2023);
    class.kubelet = Some(KubeletConfiguration {
        kube_reserved: map(&[("cpu", "200m"), ("memory", "1Gi"), ("pid", "100")]),
        system_reserved: map(&[("cpu", "100m"), ("ephemeral-storage", "2Gi")]),
        eviction_hard: map(&[("memory.available", "5%"), ("nodefs.available", "100%")]),
        eviction_soft: map(&[("memory.available", "50%")]),
        ..KubeletConfiguration::default()
    });
    let found = capacity(&type_info("m5.large"), &class, scope("m5.large"));
    let memory = 7577 * MIB;
    assert_eq!(found.overhead.cpu, 300);
    assert_eq!(found.overhead.memory, GIB + (memory + 19) / 20);
    assert_eq!(found.overhead.ephemeral_storage, 3 * GIB);
    assert!(found.overhead.extended.is_empty());
}

#[test]
fn ephemeral_storage_is_the_disk_that_holds_it() {
    let disk = |device: &str, size: &str, root| BlockDeviceMapping {
        device_name: Some(device.to_owned()),
        ebs: Some(BlockDevice { volume_size: Some(size.to_owned()), ..BlockDevice::default() }),
        root_volume: root,
    };
    let storage = |name: &str, class: &EC2NodeClassSpec| {
        capacity(&type_info(name), class, scope(name)).capacity.ephemeral_storage
    };
    let mut custom = class(AmiFamily::Custom);
    assert_eq!(storage("m5.large", &custom), 20 * GIB);
    custom.block_device_mappings =
        Some(vec![disk("/dev/sda1", "10Gi", None), disk("/dev/sdb", "30Gi", None)]);
    assert_eq!(storage("m5.large", &custom), 30 * GIB, "the last disk of a custom image");

    let mut al2023 = class(AmiFamily::Al2023);
    al2023.block_device_mappings = Some(vec![
        BlockDeviceMapping { device_name: Some("/dev/xvda".to_owned()), ..Default::default() },
        disk("/dev/sdb", "40Gi", None),
    ]);
    assert_eq!(storage("m5.large", &al2023), 20 * GIB, "a mapping without a volume has no size");
    al2023.block_device_mappings = Some(vec![disk("/dev/sdb", "40Gi", Some(true))]);
    assert_eq!(storage("m5.large", &al2023), 40 * GIB);

    let mut raid = class(AmiFamily::Al2023);
    raid.instance_store_policy = Some(InstanceStorePolicy::Raid0);
    assert_eq!(storage("g4dn.xlarge", &raid), 125_000_000_000);
    assert_eq!(storage("m5.large", &raid), 20 * GIB);
    assert_eq!(storage("m5.large", &class(AmiFamily::Bottlerocket)), 20 * GIB);
}

#[test]
fn efa_interfaces_of_the_node_class_replace_those_of_the_type() {
    let mut class = class(AmiFamily::Al2023);
    let interface = |card, interface_type| NetworkInterface {
        network_card_index: card,
        device_index: card.min(1),
        interface_type,
    };
    class.network_interfaces = Some(vec![
        interface(0, InterfaceType::Interface),
        interface(1, InterfaceType::EfaOnly),
        interface(2, InterfaceType::EfaOnly),
    ]);
    assert_eq!(allocatable("p4d.24xlarge", &class).get("vpc.amazonaws.com/efa"), 2);
    assert_eq!(allocatable("p4d.24xlarge", &class).pods, 737);
}

#[test]
fn memory_that_a_node_has_shown_replaces_the_estimate() {
    let mut scope = scope("m5.large");
    scope.seen_memory = Some(7_900 * MIB);
    let found = capacity(&type_info("m5.large"), &class(AmiFamily::Al2023), scope);
    assert_eq!(found.capacity.memory, 7_900 * MIB);
}
