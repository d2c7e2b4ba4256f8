//! From a NodeClass and a claim to launch templates: types that need the same image and the same
//! settings share one.
//!
//! Pure. The name of a template is a hash of its content, so that equal launches find each other's.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};
use tenon_crds::ec2nodeclass::{Ami, AmiFamily, InstanceStorePolicy, KubeletConfiguration};
use tenon_crds::{EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus, Quantity, Taint};
use tenon_planner::snapshot::{CapacityType, InstanceType};
use tenon_state::ec2::family::Family as _;

use super::candidate::Candidate;
use super::placement::Placed;
use super::reserved::Reservation;
use crate::aws::ec2::requests::{
    BlockDeviceMapping, CapacityReservationSpecification, CapacityReservationTarget,
    ConnectionTracking, CpuOptions, CreateLaunchTemplate, Ebs, Enabled, InstanceMarketOptions,
    LaunchTemplateData, MetadataOptions, Named, NetworkInterface, Placement, TagSpecification,
};
use crate::aws::matching::image_fits;
use crate::aws::tags::Tags;
use crate::aws::user_data::{self, Bootstrap, ClusterFacts, UserDataError};

/// Prefix of the names of launch templates; operators look for it.
pub(crate) const NAME_PREFIX: &str = "karpenter.k8s.aws/";

/// Asking for this resource turns on Nitro enclaves.
const ENCLAVE_RESOURCE: &str = "eks.amazonaws.com/nip-slots";
/// Network interfaces for EFA.
pub(crate) const EFA_RESOURCE: &str = "vpc.amazonaws.com/efa";

/// Regions whose EC2 does not know the metadata service's IPv6 switch.
const NO_METADATA_IPV6: [&str; 6] = [
    "us-iso-east-1",
    "us-iso-west-1",
    "us-isob-east-1",
    "us-isob-west-1",
    "us-isof-south-1",
    "us-isof-east-1",
];

/// What a launch template is made from, beside the types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateScope<'a> {
    /// The NodeClass, resolved.
    pub class: &'a EC2NodeClass,
    pub cluster: &'a ClusterFacts,
    /// Region, for the names of images and endpoints.
    pub region: &'a str,
    /// Tags of everything that is made.
    pub tags: &'a Tags,
    /// Labels of the claim.
    pub labels: &'a BTreeMap<String, String>,
    /// `spec.taints` of the claim.
    pub taints: &'a [Taint],
    /// `spec.startupTaints` of the claim.
    pub startup_taints: &'a [Taint],
    /// Whether the claim requests EFA.
    pub wants_efa: bool,
    /// Whether the claim requests an enclave.
    pub wants_enclave: bool,
    /// `default` or `dedicated`.
    pub tenancy: &'static str,
    /// What is bought.
    pub capacity_type: CapacityType,
    /// The feature gate `ReservedCapacity`: launches use the reservations that they name, and no
    /// others.
    pub reserved_capacity: bool,
    /// The placement group that the NodeClass names, and the partition that the claim asks for.
    pub placed: Option<&'a Placed>,
}

/// A launch template and the types that it is for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template<'t> {
    /// The request that creates it.
    pub request: CreateLaunchTemplate,
    /// Types, in the order given.
    pub instance_types: Vec<&'t InstanceType>,
    /// The reservation that all of them are launched into.
    pub reservation: Option<Reservation>,
}

/// A type, and the reservation that it is launched into.
#[derive(Clone, Debug)]
pub(crate) struct Place<'t> {
    instance_type: &'t InstanceType,
    reservation: Option<Reservation>,
}

impl<'t> Place<'t> {
    /// A candidate for each of its reservations; once when it has none.
    pub(crate) fn all_of(candidate: &Candidate<'t>) -> Vec<Self> {
        let reservations: BTreeSet<Option<Reservation>> =
            candidate.offerings.iter().map(|offering| Reservation::of(offering)).collect();
        let instance_type = candidate.instance_type;
        reservations.into_iter().map(|reservation| Self { instance_type, reservation }).collect()
    }
}

impl<'t> From<&'t InstanceType> for Place<'t> {
    fn from(instance_type: &'t InstanceType) -> Self {
        Self { instance_type, reservation: None }
    }
}

/// Why no launch template can be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TemplateError {
    /// The NodeClass has no status yet.
    #[error("no amis exist given constraints")]
    NoAmis,
    /// No image fits any of the types.
    #[error("no instance types satisfy requirements of amis {0}")]
    NoAmiFits(String),
    /// Launching without security groups would use the VPC's default one.
    #[error("no security groups are present in the status")]
    NoSecurityGroups,
    /// The status has no instance profile.
    #[error("no instance profile is present in the status")]
    NoInstanceProfile,
    /// The user data of the NodeClass can't be used.
    #[error(transparent)]
    UserData(#[from] UserDataError),
}

/// Whether a resource request turns on Nitro enclaves.
pub(crate) fn wants_enclave(requests: &tenon_planner::resources::Resources) -> bool {
    requests.get(ENCLAVE_RESOURCE) > 0
}

/// The first image that fits a type. Images are in the order of the status: newest first.
pub(crate) fn ami_for<'a>(amis: &'a [Ami], instance_type: &InstanceType) -> Option<&'a Ami> {
    amis.iter().find(|ami| image_fits(&ami.requirements, &instance_type.requirements))
}

/// What the types of a launch template have in common: the image (by its place in the status),
/// pods, EFA interfaces, reservation.
type Common = (usize, i64, i64, Option<Reservation>);

/// The launch templates for these types.
pub(crate) fn templates<'t>(
    scope: TemplateScope<'_>,
    places: impl IntoIterator<Item = impl Into<Place<'t>>>,
) -> Result<Vec<Template<'t>>, TemplateError> {
    let status = scope.class.status.as_ref().ok_or(TemplateError::NoAmis)?;
    if status.amis.is_empty() {
        return Err(TemplateError::NoAmis);
    }
    if status.security_groups.is_empty() {
        return Err(TemplateError::NoSecurityGroups);
    }
    let mut groups: BTreeMap<Common, Vec<&InstanceType>> = BTreeMap::new();
    for place in places {
        let Place { instance_type, reservation } = place.into();
        let fits = |ami: &Ami| image_fits(&ami.requirements, &instance_type.requirements);
        let Some(ami) = status.amis.iter().position(fits) else { continue };
        let efa = if scope.wants_efa { instance_type.capacity.get(EFA_RESOURCE) } else { 0 };
        let common = (ami, instance_type.capacity.pods, efa, reservation);
        groups.entry(common).or_default().push(instance_type);
    }
    if groups.is_empty() {
        let ids: Vec<&str> = status.amis.iter().map(|ami| ami.id.as_str()).collect();
        return Err(TemplateError::NoAmiFits(ids.join(", ")));
    }
    groups
        .into_iter()
        .map(|(common, instance_types)| {
            let request = create_request(scope, status, &common)?;
            Ok(Template { request, instance_types, reservation: common.3 })
        })
        .collect()
}

fn create_request(
    scope: TemplateScope<'_>,
    status: &EC2NodeClassStatus,
    (ami, pods, n_efa, reservation): &Common,
) -> Result<CreateLaunchTemplate, TemplateError> {
    let spec = &scope.class.spec;
    let groups: Vec<String> = status.security_groups.iter().map(|group| group.id.clone()).collect();
    let profile = status.instance_profile.clone().ok_or(TemplateError::NoInstanceProfile)?;
    let mut tag_specifications = vec![tagged("network-interface", scope.tags)];
    if scope.capacity_type == CapacityType::Spot {
        tag_specifications.push(tagged("spot-instances-request", scope.tags));
    }
    let data = LaunchTemplateData {
        block_device_mappings: disks(spec),
        cpu_options: spec
            .cpu_options
            .and_then(|options| options.nested_virtualization)
            .map(|nested| CpuOptions { nested_virtualization: nested.as_str().to_owned() }),
        iam_instance_profile: Named { name: profile },
        monitoring: Enabled { enabled: spec.detailed_monitoring.unwrap_or(false) },
        image_id: status.amis[*ami].id.clone(),
        instance_market_options: reservation.as_ref().and_then(market),
        user_data: user_data(scope, status, *pods)?,
        metadata_options: metadata_options(spec, scope.region),
        network_interfaces: network_interfaces(
            spec,
            &groups,
            *n_efa,
            scope.cluster.dns_ip.is_some_and(|ip| ip.is_ipv6()),
        ),
        tag_specifications,
        placement: Placement {
            tenancy: scope.tenancy.to_owned(),
            group_id: scope.placed.map(|placed| placed.group.clone()),
            partition_number: scope.placed.and_then(|placed| placed.partition),
        },
        enclave_options: Enabled { enabled: scope.wants_enclave },
        capacity_reservation_specification: scope
            .reserved_capacity
            .then(|| reservation_specification(reservation.as_ref())),
    };
    let tag_specifications = vec![tagged("launch-template", scope.tags)];
    let launch_template_name = format!("{NAME_PREFIX}{}", hash(&(&data, &tag_specifications)));
    Ok(CreateLaunchTemplate {
        launch_template_name,
        launch_template_data: data,
        tag_specifications,
    })
}

/// Launches go into the reservation that they name, or into none: they must not slip into open
/// reservations that nobody asked for.
fn reservation_specification(
    reservation: Option<&Reservation>,
) -> CapacityReservationSpecification {
    let preference = if reservation.is_some() { "capacity-reservations-only" } else { "none" };
    CapacityReservationSpecification {
        capacity_reservation_preference: preference.to_owned(),
        capacity_reservation_target: reservation.map(|reservation| CapacityReservationTarget {
            capacity_reservation_id: reservation.id.clone(),
        }),
    }
}

fn market(reservation: &Reservation) -> Option<InstanceMarketOptions> {
    let market_type = reservation.terms.market_type()?.to_owned();
    Some(InstanceMarketOptions { market_type })
}

/// Tags of one kind of resource.
pub(crate) fn tagged(resource_type: &str, tags: &Tags) -> TagSpecification {
    TagSpecification { resource_type: resource_type.to_owned(), tags: tags.clone() }
}

/// The first 64 bits of the content's SHA-256, in decimal.
fn hash(content: &impl serde::Serialize) -> u64 {
    let json = serde_json::to_vec(content).expect("plain structs with text keys always serialise");
    let digest = Sha256::digest(json);
    let first: [u8; 8] = digest[..8].try_into().expect("SHA-256 has 32 bytes");
    u64::from_be_bytes(first)
}

fn user_data(
    scope: TemplateScope<'_>,
    status: &EC2NodeClassStatus,
    pods: i64,
) -> Result<String, UserDataError> {
    let spec = &scope.class.spec;
    let family = spec.resolved_ami_family();
    let mut kubelet = spec.kubelet.clone().unwrap_or_default();
    fill_in(&mut kubelet, pods, scope.cluster);
    let bootstrap = Bootstrap {
        cluster: scope.cluster.clone(),
        labels: user_data::kubelet_labels(family, scope.labels, scope.capacity_type.as_str()),
        taints: user_data::kubelet_taints(scope.taints, scope.startup_taints),
        kubelet,
        raid0: spec.instance_store_policy == Some(InstanceStorePolicy::Raid0),
        names_local_storage_dirs: family == AmiFamily::Bottlerocket
            && names_local_storage_dirs(spec, &status.amis),
        custom: spec.user_data.clone(),
    };
    user_data::render(family, &bootstrap)
}

/// The kubelet's own defaults for pods and DNS don't fit EKS: both are always said.
fn fill_in(kubelet: &mut KubeletConfiguration, pods: i64, cluster: &ClusterFacts) {
    if kubelet.max_pods.is_none() {
        kubelet.max_pods = Some(i32::try_from(pods).unwrap_or(i32::MAX));
    }
    if kubelet.cluster_dns.is_none() {
        kubelet.cluster_dns = cluster.dns_ip.map(|ip| vec![ip.to_string()]);
    }
}

/// Bottlerocket learnt in 1.46 which directories belong on local disks. An unknown version is
/// treated as an old one.
fn names_local_storage_dirs(spec: &EC2NodeClassSpec, amis: &[Ami]) -> bool {
    let version = match spec.alias() {
        Some(alias) if alias.version == "latest" => return false,
        Some(alias) => Some(alias.version),
        None => amis
            .iter()
            .filter_map(|ami| ami.name.as_deref())
            .filter(|name| name.contains("bottlerocket"))
            .find_map(|name| {
                name.split('-').find(|token| token.starts_with('v') && token.contains('.'))
            })
            .map(str::to_owned),
    };
    let numbers: Option<(u32, u32)> = version.and_then(|version| {
        let mut numbers = version.trim_start_matches('v').split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    numbers.is_none_or(|numbers| numbers < (1, 46))
}

fn disks(spec: &EC2NodeClassSpec) -> Vec<BlockDeviceMapping> {
    let disks = match &spec.block_device_mappings {
        Some(disks) if !disks.is_empty() => disks.clone(),
        _ => spec.resolved_ami_family().default_disks(),
    };
    // EC2 takes zero for a figure, not for "unset".
    let positive = |figure: Option<i64>| {
        figure.filter(|&figure| figure > 0).and_then(|figure| i32::try_from(figure).ok())
    };
    disks
        .into_iter()
        .map(|disk| BlockDeviceMapping {
            device_name: disk.device_name,
            ebs: disk.ebs.map(|ebs| Ebs {
                delete_on_termination: ebs.delete_on_termination,
                encrypted: ebs.encrypted,
                iops: positive(ebs.iops),
                kms_key_id: ebs.kms_key_id,
                snapshot_id: ebs.snapshot_id,
                throughput: positive(ebs.throughput),
                volume_initialization_rate: ebs.volume_initialization_rate,
                volume_size: ebs.volume_size.as_deref().and_then(gibibytes),
                volume_type: ebs.volume_type.map(|kind| kind.as_str().to_owned()),
            }),
        })
        .collect()
}

fn gibibytes(size: &str) -> Option<i32> {
    let bytes = size.parse::<Quantity>().ok()?.units();
    i32::try_from((bytes + (1 << 30) - 1) >> 30).ok()
}

fn metadata_options(spec: &EC2NodeClassSpec, region: &str) -> MetadataOptions {
    let options = spec.metadata_options.unwrap_or_default();
    let ipv6 = options.http_protocol_ipv6.filter(|_| !NO_METADATA_IPV6.contains(&region));
    MetadataOptions {
        http_endpoint: options.http_endpoint.map(|switch| switch.as_str().to_owned()),
        http_protocol_ipv6: ipv6.map(|switch| switch.as_str().to_owned()),
        http_put_response_hop_limit: options
            .http_put_response_hop_limit
            .and_then(|hops| i32::try_from(hops).ok()),
        http_tokens: options.http_tokens.map(|tokens| tokens.as_str().to_owned()),
        instance_metadata_tags: "disabled".to_owned(),
    }
}

fn network_interfaces(
    spec: &EC2NodeClassSpec,
    groups: &[String],
    n_efa: i64,
    ipv6: bool,
) -> Vec<NetworkInterface> {
    let ordinary = NetworkInterface {
        groups: groups.to_vec(),
        associate_public_ip_address: spec.associate_public_ip_address,
        ipv4_prefix_count: spec.ip_prefix_count.filter(|_| !ipv6),
        ipv6_prefix_count: spec.ip_prefix_count.filter(|_| ipv6),
        primary_ipv6: ipv6.then_some(true),
        ipv6_address_count: ipv6.then_some(1),
        connection_tracking_specification: spec.connection_tracking.map(|tracking| {
            ConnectionTracking {
                tcp_established_timeout: tracking.tcp_established_timeout,
                udp_stream_timeout: tracking.udp_stream_timeout,
                udp_timeout: tracking.udp_timeout,
            }
        }),
        ..NetworkInterface::default()
    };
    let configured = spec.network_interfaces.as_deref().unwrap_or_default();
    if !configured.is_empty() {
        return configured
            .iter()
            .map(|interface| {
                let place = NetworkInterface {
                    network_card_index: Some(interface.network_card_index),
                    device_index: interface.device_index,
                    interface_type: Some(interface.interface_type.as_str().to_owned()),
                    ..NetworkInterface::default()
                };
                match interface.interface_type {
                    // An interface without IP takes nothing but security groups.
                    tenon_crds::ec2nodeclass::InterfaceType::EfaOnly => {
                        NetworkInterface { groups: groups.to_vec(), ..place }
                    }
                    tenon_crds::ec2nodeclass::InterfaceType::Interface => NetworkInterface {
                        network_card_index: place.network_card_index,
                        device_index: place.device_index,
                        interface_type: place.interface_type,
                        ..ordinary.clone()
                    },
                }
            })
            .collect();
    }
    if n_efa > 0 {
        return (0..i32::try_from(n_efa).unwrap_or(i32::MAX))
            .map(|card| NetworkInterface {
                network_card_index: Some(card),
                device_index: i32::from(card > 0),
                interface_type: Some("efa".to_owned()),
                ..ordinary.clone()
            })
            .collect();
    }
    vec![ordinary]
}

#[cfg(test)]
mod tests;
