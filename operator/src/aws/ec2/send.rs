//! Sends the requests that launch.

use aws_sdk_ec2::types as sdk;

use super::Ec2;
use super::requests::{
    BlockDeviceMapping, CapacityReservationSpecification, CreateFleet, CreateLaunchTemplate,
    DryRunInstances, LaunchTemplateData, NetworkInterface, tag_specifications, tags,
};
use crate::aws::error::{Kind, Result};

/// What CreateFleet answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FleetAnswer {
    /// `FleetId` of the answer.
    pub fleet_id: String,
    /// Instances, in the order of the answer.
    pub instances: Vec<FleetInstance>,
    /// What could not be launched.
    pub errors: Vec<FleetError>,
}

/// An instance of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetInstance {
    /// ID.
    pub id: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone of the override.
    pub zone: String,
    /// Subnet of the override.
    pub subnet_id: String,
    /// Image of the override.
    pub image_id: Option<String>,
}

/// Why a part of a fleet was not launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetError {
    /// AWS's code.
    pub code: String,
    /// AWS's message.
    pub message: String,
    /// Instance type of the override.
    pub instance_type: Option<String>,
    /// Zone of the override.
    pub zone: Option<String>,
    /// Subnet of the override.
    pub subnet_id: Option<String>,
}

/// Launches a fleet. `token` makes a repetition of the same call harmless.
pub(crate) async fn create_fleet(
    ec2: &Ec2,
    request: &CreateFleet,
    token: Option<&str>,
) -> Result<FleetAnswer> {
    const OPERATION: &str = "CreateFleet";
    let configs = request
        .launch_template_configs
        .iter()
        .map(|config| {
            let template = &config.launch_template_specification;
            let overrides = config.overrides.iter().map(|place| {
                sdk::FleetLaunchTemplateOverridesRequest::builder()
                    .instance_type(place.instance_type.as_str().into())
                    .subnet_id(&place.subnet_id)
                    .set_image_id(place.image_id.clone())
                    .set_availability_zone(place.availability_zone.clone())
                    .set_priority(place.priority)
                    .build()
            });
            sdk::FleetLaunchTemplateConfigRequest::builder()
                .launch_template_specification(
                    sdk::FleetLaunchTemplateSpecificationRequest::builder()
                        .launch_template_name(&template.launch_template_name)
                        .version(&template.version)
                        .build(),
                )
                .set_overrides(Some(overrides.collect()))
                .build()
        })
        .collect();
    let target = &request.target_capacity_specification;
    let spot = request.spot_options.as_ref().map(|options| {
        sdk::SpotOptionsRequest::builder()
            .allocation_strategy(options.allocation_strategy.as_str().into())
            .build()
    });
    let on_demand = request.on_demand_options.as_ref().map(|options| {
        sdk::OnDemandOptionsRequest::builder()
            .allocation_strategy(options.allocation_strategy.as_str().into())
            .build()
    });
    let reserved = request.reserved_capacity_options.as_ref().map(|options| {
        let kinds = options.reservation_types.iter().map(|kind| kind.as_str().into());
        sdk::ReservedCapacityOptionsRequest::builder()
            .set_reservation_types(Some(kinds.collect()))
            .build()
    });
    let sent = ec2
        .create_fleet()
        .r#type(request.kind.as_str().into())
        .set_context(request.context.clone())
        .set_client_token(token.map(str::to_owned))
        .set_launch_template_configs(Some(configs))
        .target_capacity_specification(
            sdk::TargetCapacitySpecificationRequest::builder()
                .default_target_capacity_type(target.default_target_capacity_type.as_str().into())
                .total_target_capacity(target.total_target_capacity)
                .build(),
        )
        .set_spot_options(spot)
        .set_on_demand_options(on_demand)
        .set_reserved_capacity_options(reserved)
        .set_tag_specifications(Some(tag_specifications(&request.tag_specifications)))
        .set_dry_run(request.dry_run.then_some(true))
        .send();
    let answer = ec2.call(OPERATION, sent).await?;
    Ok(read_fleet(&answer))
}

fn read_fleet(answer: &aws_sdk_ec2::operation::create_fleet::CreateFleetOutput) -> FleetAnswer {
    let mut instances = Vec::new();
    for group in answer.instances() {
        let place = group
            .launch_template_and_overrides
            .as_ref()
            .and_then(|template| template.overrides.as_ref());
        for id in group.instance_ids() {
            instances.push(FleetInstance {
                id: id.clone(),
                instance_type: group
                    .instance_type
                    .as_ref()
                    .or_else(|| place?.instance_type.as_ref())
                    .map_or_else(String::new, |name| name.as_str().to_owned()),
                zone: place
                    .and_then(|place| place.availability_zone.clone())
                    .or_else(|| group.availability_zone.clone())
                    .unwrap_or_default(),
                subnet_id: place
                    .and_then(|place| place.subnet_id.clone())
                    .or_else(|| group.subnet_id.clone())
                    .unwrap_or_default(),
                image_id: place.and_then(|place| place.image_id.clone()),
            });
        }
    }
    let errors = answer
        .errors()
        .iter()
        .map(|error| {
            let place = error
                .launch_template_and_overrides
                .as_ref()
                .and_then(|template| template.overrides.as_ref());
            FleetError {
                code: error.error_code.clone().unwrap_or_default(),
                message: error.error_message.clone().unwrap_or_default(),
                instance_type: place
                    .and_then(|place| place.instance_type.as_ref())
                    .map(|name| name.as_str().to_owned()),
                zone: place.and_then(|place| place.availability_zone.clone()),
                subnet_id: place.and_then(|place| place.subnet_id.clone()),
            }
        })
        .collect();
    FleetAnswer { fleet_id: answer.fleet_id.clone().unwrap_or_default(), instances, errors }
}

/// Creates a launch template; one that exists under the name is fine, as the name tells the
/// content.
pub(crate) async fn create_launch_template(
    ec2: &Ec2,
    request: &CreateLaunchTemplate,
) -> Result<()> {
    let sent = ec2
        .create_launch_template()
        .launch_template_name(&request.launch_template_name)
        .launch_template_data(template_data(&request.launch_template_data))
        .set_tag_specifications(Some(tag_specifications(&request.tag_specifications)))
        .send();
    match ec2.call("CreateLaunchTemplate", sent).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind == Kind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Tries out a launch. `Ok` means that it would be allowed.
pub(crate) async fn dry_run_instances(ec2: &Ec2, request: &DryRunInstances) -> Result<()> {
    let interfaces = request
        .network_interfaces
        .iter()
        .map(|interface| {
            sdk::InstanceNetworkInterfaceSpecification::builder()
                .set_network_card_index(interface.network_card_index)
                .device_index(interface.device_index)
                .set_interface_type(interface.interface_type.clone())
                .subnet_id(&interface.subnet_id)
                .build()
        })
        .collect();
    let template = &request.launch_template;
    let sent = ec2
        .run_instances()
        .dry_run(true)
        .min_count(1)
        .max_count(1)
        .launch_template(
            sdk::LaunchTemplateSpecification::builder()
                .launch_template_name(&template.launch_template_name)
                .version(&template.version)
                .build(),
        )
        .instance_type(request.instance_type.as_str().into())
        .set_network_interfaces(Some(interfaces))
        .set_tag_specifications(Some(tag_specifications(&request.tag_specifications)))
        .send();
    match ec2.call("RunInstances", sent).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind == Kind::DryRun => Ok(()),
        Err(error) => Err(error),
    }
}

fn template_data(data: &LaunchTemplateData) -> sdk::RequestLaunchTemplateData {
    let LaunchTemplateData {
        block_device_mappings,
        cpu_options,
        iam_instance_profile,
        monitoring,
        image_id,
        instance_market_options,
        user_data,
        metadata_options,
        network_interfaces,
        tag_specifications: specifications,
        placement,
        enclave_options,
        capacity_reservation_specification,
    } = data;
    let metadata = sdk::LaunchTemplateInstanceMetadataOptionsRequest::builder()
        .set_http_endpoint(metadata_options.http_endpoint.as_deref().map(Into::into))
        .set_http_protocol_ipv6(metadata_options.http_protocol_ipv6.as_deref().map(Into::into))
        .set_http_put_response_hop_limit(metadata_options.http_put_response_hop_limit)
        .set_http_tokens(metadata_options.http_tokens.as_deref().map(Into::into))
        .instance_metadata_tags(metadata_options.instance_metadata_tags.as_str().into())
        .build();
    let specifications = specifications
        .iter()
        .map(|specification| {
            sdk::LaunchTemplateTagSpecificationRequest::builder()
                .resource_type(specification.resource_type.as_str().into())
                .set_tags(Some(tags(&specification.tags)))
                .build()
        })
        .collect();
    sdk::RequestLaunchTemplateData::builder()
        .set_block_device_mappings(
            (!block_device_mappings.is_empty())
                .then(|| block_device_mappings.iter().map(disk).collect()),
        )
        .set_cpu_options(cpu_options.as_ref().map(|options| {
            sdk::LaunchTemplateCpuOptionsRequest::builder()
                .nested_virtualization(options.nested_virtualization.as_str().into())
                .build()
        }))
        .iam_instance_profile(
            sdk::LaunchTemplateIamInstanceProfileSpecificationRequest::builder()
                .name(&iam_instance_profile.name)
                .build(),
        )
        .monitoring(
            sdk::LaunchTemplatesMonitoringRequest::builder().enabled(monitoring.enabled).build(),
        )
        .image_id(image_id)
        .set_instance_market_options(instance_market_options.as_ref().map(|options| {
            sdk::LaunchTemplateInstanceMarketOptionsRequest::builder()
                .market_type(options.market_type.as_str().into())
                .build()
        }))
        .user_data(user_data)
        .metadata_options(metadata)
        .set_network_interfaces(Some(network_interfaces.iter().map(interface).collect()))
        .set_tag_specifications(Some(specifications))
        .placement(
            sdk::LaunchTemplatePlacementRequest::builder()
                .tenancy(placement.tenancy.as_str().into())
                .set_group_id(placement.group_id.clone())
                .set_partition_number(placement.partition_number)
                .build(),
        )
        .enclave_options(
            sdk::LaunchTemplateEnclaveOptionsRequest::builder()
                .enabled(enclave_options.enabled)
                .build(),
        )
        .set_capacity_reservation_specification(
            capacity_reservation_specification.as_ref().map(reservation_specification),
        )
        .build()
}

fn reservation_specification(
    specification: &CapacityReservationSpecification,
) -> sdk::LaunchTemplateCapacityReservationSpecificationRequest {
    let target = specification.capacity_reservation_target.as_ref().map(|target| {
        sdk::CapacityReservationTarget::builder()
            .capacity_reservation_id(&target.capacity_reservation_id)
            .build()
    });
    sdk::LaunchTemplateCapacityReservationSpecificationRequest::builder()
        .capacity_reservation_preference(
            specification.capacity_reservation_preference.as_str().into(),
        )
        .set_capacity_reservation_target(target)
        .build()
}

fn disk(disk: &BlockDeviceMapping) -> sdk::LaunchTemplateBlockDeviceMappingRequest {
    let ebs = disk.ebs.as_ref().map(|ebs| {
        sdk::LaunchTemplateEbsBlockDeviceRequest::builder()
            .set_delete_on_termination(ebs.delete_on_termination)
            .set_encrypted(ebs.encrypted)
            .set_iops(ebs.iops)
            .set_kms_key_id(ebs.kms_key_id.clone())
            .set_snapshot_id(ebs.snapshot_id.clone())
            .set_throughput(ebs.throughput)
            .set_volume_initialization_rate(ebs.volume_initialization_rate)
            .set_volume_size(ebs.volume_size)
            .set_volume_type(ebs.volume_type.as_deref().map(Into::into))
            .build()
    });
    sdk::LaunchTemplateBlockDeviceMappingRequest::builder()
        .set_device_name(disk.device_name.clone())
        .set_ebs(ebs)
        .build()
}

fn interface(
    interface: &NetworkInterface,
) -> sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    let tracking = interface.connection_tracking_specification.map(|tracking| {
        sdk::ConnectionTrackingSpecificationRequest::builder()
            .set_tcp_established_timeout(tracking.tcp_established_timeout)
            .set_udp_stream_timeout(tracking.udp_stream_timeout)
            .set_udp_timeout(tracking.udp_timeout)
            .build()
    });
    sdk::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .set_network_card_index(interface.network_card_index)
        .device_index(interface.device_index)
        .set_interface_type(interface.interface_type.clone())
        .set_groups(Some(interface.groups.clone()))
        .set_associate_public_ip_address(interface.associate_public_ip_address)
        .set_ipv4_prefix_count(interface.ipv4_prefix_count)
        .set_ipv6_prefix_count(interface.ipv6_prefix_count)
        .set_primary_ipv6(interface.primary_ipv6)
        .set_ipv6_address_count(interface.ipv6_address_count)
        .set_connection_tracking_specification(tracking)
        .build()
}
