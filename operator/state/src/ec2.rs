//! What EC2's instance types are to the planner: labels, capacity and overhead, computed from plain
//! data. The operator and `tenon simulate` share it, so that both plan on the same machines.

use std::collections::BTreeMap;

use tenon_crds::ec2nodeclass::{
    AmiFamily, EC2NodeClassSpec, InterfaceType, NetworkInterface, Switch,
};
use tenon_crds::labels::{self as core, aws as keys};
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{InstanceType, Operator, Requirement};

use self::capacity::{Capacity, CapacityScope};
use self::family::Family as _;
use self::labels::LabelScope;
use self::network::NetworkTable;
use self::type_info::TypeInfo;

pub mod capacity;
pub mod describe;
pub mod facts;
pub mod family;
pub mod labels;
mod name;
pub mod network;
pub mod offered;
pub mod prices;
pub mod reserved;
pub mod type_info;

pub use name::define_ec2_labels;
pub(crate) use name::labels_of_name;

/// What labels, capacity and overhead of a type depend on beside the type itself.
#[derive(Clone, Copy, Debug)]
pub struct TypeScope<'a> {
    /// The NodeClass.
    pub class: &'a EC2NodeClassSpec,
    /// Figures about networks that EC2's API doesn't tell.
    pub network: &'a NetworkTable,
    /// The region; `None` when it is not known.
    pub region: Option<&'a str>,
    /// Zones in which the type is offered and the NodeClass has a subnet, with the zone's id when
    /// it is known.
    pub zones: &'a BTreeMap<String, Option<String>>,
    /// The id of the placement group that machines are launched into.
    pub placement_group: Option<&'a str>,
    /// How many partitions that placement group has; zero where its strategy is another.
    pub partitions: u32,
    /// `--vm-memory-overhead-percent`.
    pub vm_memory_overhead: f64,
    /// `--reserved-enis`.
    pub reserved_enis: u32,
    /// Bytes of memory that a node of this type and image had.
    pub seen_memory: Option<i64>,
}

/// A type as a NodeClass gets it, without offerings.
pub fn instance_type(info: &TypeInfo, scope: &TypeScope<'_>) -> InstanceType {
    let network_mbps =
        scope.network.baseline_mbps(&info.name).or_else(|| info.network.as_ref()?.baseline_mbps);
    let requirements = labels::requirements(
        info,
        &LabelScope {
            region: scope.region,
            zones: scope.zones,
            windows_build: scope.class.resolved_ami_family().windows_build(),
            network_mbps,
            placement_group: scope.placement_group,
            partitions: scope.partitions,
        },
    );
    let Capacity { capacity, overhead } = capacity::capacity(
        info,
        scope.class,
        CapacityScope {
            vm_memory_overhead: scope.vm_memory_overhead,
            reserved_enis: scope.reserved_enis.into(),
            seen_memory: scope.seen_memory,
            branch_interfaces: scope.network.branch_interfaces(&info.name),
        },
    );
    InstanceType {
        name: info.name.clone(),
        requirements,
        capacity,
        overhead,
        ..InstanceType::default()
    }
}

/// What a NodeClass' operating system costs per hour on a type, on top of the type's price for
/// Linux.
pub fn license(
    class: &EC2NodeClassSpec,
    (instance_type, vcpus): (&str, i64),
    region: &str,
) -> MicroUsd {
    match class.resolved_ami_family().windows_build() {
        Some(_) => prices::windows_license(instance_type, vcpus, region),
        None => MicroUsd(0),
    }
}

/// Whether a type's nodes run Windows and nothing else: then its prices are those of Windows.
pub fn is_for_windows(kind: &InstanceType) -> bool {
    kind.requirements.iter().any(|it| it.key == core::OS && it.values == ["windows"])
}

/// What an offering that is no reservation defines beside zone and capacity type, sorted by key.
pub fn offering_requirements(zone_id: Option<&str>) -> Vec<Requirement> {
    let mut requirements = vec![
        labels::does_not_exist(keys::CAPACITY_RESERVATION_ID),
        labels::does_not_exist(keys::CAPACITY_RESERVATION_INTERRUPTIBLE),
        labels::does_not_exist(keys::CAPACITY_RESERVATION_TYPE),
    ];
    if let Some(id) = zone_id {
        requirements.push(Requirement {
            key: keys::ZONE_ID.to_owned(),
            operator: Operator::In,
            values: vec![id.to_owned()],
            min_values: None,
        });
    }
    requirements.sort();
    requirements
}

/// Adds the partitions of a placement group that an offering is for. Requirements stay sorted by
/// key.
pub fn restrict_to_partitions(requirements: &mut Vec<Requirement>, partitions: Vec<String>) {
    requirements.push(Requirement {
        key: keys::PLACEMENT_GROUP_PARTITION.to_owned(),
        operator: Operator::In,
        values: partitions,
        min_values: None,
    });
    requirements.sort();
}

/// Whether the type can be launched with what the NodeClass asks of the hardware.
pub fn is_compatible(info: &TypeInfo, class: &EC2NodeClassSpec) -> bool {
    let interfaces = class.network_interfaces.as_deref().unwrap_or_default();
    if !interfaces.is_empty() {
        let Some(network) = &info.network else { return false };
        let n_efa = interfaces
            .iter()
            .filter(|interface| interface.interface_type == InterfaceType::EfaOnly)
            .count();
        let fits = |interface: &NetworkInterface| {
            usize::try_from(interface.network_card_index)
                .ok()
                .and_then(|card| network.cards.get(card))
                .is_some_and(|&devices| i64::from(interface.device_index) < devices)
        };
        if network.ena.as_deref() == Some("unsupported")
            || !interfaces.iter().all(fits)
            || i64::try_from(n_efa).unwrap_or(i64::MAX) > network.max_efa
        {
            return false;
        }
    }
    // Amazon Linux 2023 needs instructions that the first Graviton lacks.
    if info.name.starts_with("a1.") && class.resolved_ami_family() == AmiFamily::Al2023 {
        return false;
    }
    let nested = class.cpu_options.and_then(|options| options.nested_virtualization);
    if nested == Some(Switch::Enabled) && !info.nested_virtualization {
        return false;
    }
    class.connection_tracking.is_none() || info.hypervisor.as_deref() == Some("nitro")
}
