//! Instances, volumes and interfaces in EC2's XML.

use std::collections::BTreeMap;

use super::super::aws_state::AwsState;
use super::super::instance::{Instance, Interface, State, Volume};
use super::super::xml::Element;
use super::time;

fn leaf(name: &str, text: impl Into<String>) -> Element {
    Element::leaf(name, text)
}

fn flag(name: &str, value: bool) -> Element {
    Element::leaf(name, value.to_string())
}

/// `<instanceState>` and its like.
pub(super) fn state_element(name: &str, state: State) -> Element {
    Element::node(name, vec![leaf("code", state.code().to_string()), leaf("name", state.as_str())])
}

fn groups(instance: &Instance) -> Element {
    Element::list(
        "groupSet",
        instance
            .security_groups
            .iter()
            .map(|(id, name)| vec![leaf("groupId", id), leaf("groupName", name)]),
    )
}

/// The parts of a reservation around its instances.
pub(super) fn reservation_elements(
    account: &str,
    id: &str,
    instances: Vec<Vec<Element>>,
) -> Vec<Element> {
    vec![
        leaf("reservationId", id),
        leaf("ownerId", account),
        Element::node("groupSet", vec![]),
        Element::list("instancesSet", instances),
    ]
}

/// The content of an instance's `<item>`.
pub(super) fn instance_element(aws_state: &AwsState, instance: &Instance) -> Vec<Element> {
    let gone = instance.state == State::Terminated;
    let vcpus = aws_state.catalog().get(&instance.instance_type).map_or(2, |known| known.vcpus);
    let metal =
        aws_state.catalog().get(&instance.instance_type).is_some_and(|known| known.bare_metal);
    let launched = time(instance.launched);
    let mut item = vec![
        leaf("instanceId", &instance.id),
        leaf("imageId", &instance.image_id),
        state_element("instanceState", instance.state),
        leaf("privateDnsName", if gone { "" } else { &instance.private_dns_name }),
        leaf("dnsName", ""),
        leaf("reason", instance.state_reason.as_ref().map_or("", |(_, message)| message)),
        leaf("amiLaunchIndex", "0"),
        Element::node("productCodes", vec![]),
        leaf("instanceType", &instance.instance_type),
        leaf("launchTime", &launched),
        Element::node("placement", placement(instance)),
        Element::node(
            "monitoring",
            vec![leaf("state", if instance.monitoring { "enabled" } else { "disabled" })],
        ),
    ];
    if !gone {
        item.extend([leaf("subnetId", &instance.subnet_id), leaf("vpcId", &instance.vpc_id)]);
        item.push(leaf("privateIpAddress", instance.private_ip.to_string()));
        item.push(flag("sourceDestCheck", true));
    }
    item.push(if gone { Element::node("groupSet", vec![]) } else { groups(instance) });
    if let Some((code, message)) = &instance.state_reason {
        item.push(Element::node("stateReason", vec![leaf("code", code), leaf("message", message)]));
    }
    item.extend([
        leaf("architecture", &instance.architecture),
        leaf("rootDeviceType", "ebs"),
        leaf(
            "rootDeviceName",
            instance.volumes.first().map_or("/dev/xvda", |volume| &volume.device),
        ),
    ]);
    let attached = instance.volumes.iter().filter(|_| !gone).map(|volume| {
        let ebs = vec![
            leaf("volumeId", &volume.id),
            leaf("status", "attached"),
            leaf("attachTime", &launched),
            flag("deleteOnTermination", volume.delete_on_termination),
        ];
        vec![leaf("deviceName", &volume.device), Element::node("ebs", ebs)]
    });
    item.push(Element::list("blockDeviceMapping", attached));
    item.push(leaf("virtualizationType", "hvm"));
    if let Some(id) = &instance.spot_request_id {
        item.extend([leaf("instanceLifecycle", "spot"), leaf("spotInstanceRequestId", id)]);
    }
    item.extend(instance.market_type.as_ref().map(|market| leaf("instanceLifecycle", market)));
    if let Some(id) = &instance.capacity_reservation {
        item.push(leaf("capacityReservationId", id));
    }
    item.extend([leaf("clientToken", &instance.client_token), tag_set(&instance.tags)]);
    if !metal {
        item.push(leaf("hypervisor", "xen"));
    }
    let interfaces = instance
        .interfaces
        .iter()
        .filter(|_| !gone)
        .map(|interface| interface_element(aws_state, instance, interface, false));
    item.push(Element::list("networkInterfaceSet", interfaces));
    if let Some(profile) = &instance.profile {
        item.push(Element::node(
            "iamInstanceProfile",
            vec![leaf("arn", &profile.arn), leaf("id", &profile.id)],
        ));
    }
    let options = &instance.metadata_options;
    item.extend([
        flag("ebsOptimized", true),
        flag("enaSupport", true),
        Element::node(
            "cpuOptions",
            vec![
                leaf("coreCount", (vcpus / 2).max(1).to_string()),
                leaf("threadsPerCore", if vcpus > 1 { "2" } else { "1" }),
            ],
        ),
        Element::node("capacityReservationSpecification", reservation_specification(instance)),
        Element::node("hibernationOptions", vec![flag("configured", false)]),
        Element::node(
            "metadataOptions",
            vec![
                leaf("state", "applied"),
                leaf("httpTokens", &options.http_tokens),
                leaf("httpPutResponseHopLimit", options.http_put_response_hop_limit.to_string()),
                leaf("httpEndpoint", &options.http_endpoint),
                leaf("httpProtocolIpv6", &options.http_protocol_ipv6),
                leaf("instanceMetadataTags", &options.instance_metadata_tags),
            ],
        ),
        Element::node("enclaveOptions", vec![flag("enabled", false)]),
        leaf("platformDetails", "Linux/UNIX"),
        leaf("usageOperation", "RunInstances"),
        Element::node("maintenanceOptions", vec![leaf("autoRecovery", "default")]),
    ]);
    item
}

fn placement(instance: &Instance) -> Vec<Element> {
    let placed = instance.placement_group.as_ref();
    let mut placement = vec![
        leaf("availabilityZone", &instance.zone),
        leaf("groupName", placed.map_or("", |placed| &placed.group_name)),
        leaf("tenancy", &instance.tenancy),
    ];
    placement.extend(placed.map(|placed| leaf("groupId", &placed.group_id)));
    let partition = placed.and_then(|placed| placed.partition);
    placement.extend(partition.map(|number| leaf("partitionNumber", number.to_string())));
    placement
}

fn reservation_specification(instance: &Instance) -> Vec<Element> {
    let mut specification =
        vec![leaf("capacityReservationPreference", &instance.reservation_preference)];
    specification.extend(instance.capacity_reservation.as_ref().map(|id| {
        Element::node("capacityReservationTarget", vec![leaf("capacityReservationId", id)])
    }));
    specification
}

fn tag_set(tags: &BTreeMap<String, String>) -> Element {
    Element::tag_set(tags)
}

/// A network interface: as part of an instance, or listed by itself.
pub(super) fn interface_element(
    aws_state: &AwsState,
    instance: &Instance,
    interface: &Interface,
    alone: bool,
) -> Vec<Element> {
    let attachment = vec![
        leaf("attachmentId", interface.id.replacen("eni-", "eni-attach-", 1)),
        leaf("deviceIndex", interface.device_index.to_string()),
        leaf("networkCardIndex", interface.card_index.to_string()),
        leaf("status", "attached"),
        leaf("attachTime", time(instance.launched)),
        flag("deleteOnTermination", true),
    ];
    let mut attachment = attachment;
    let mut item = vec![
        leaf("networkInterfaceId", &interface.id),
        leaf("subnetId", &instance.subnet_id),
        leaf("vpcId", &instance.vpc_id),
        leaf("ownerId", aws_state.account()),
        leaf("status", "in-use"),
        leaf("privateIpAddress", interface.private_ip.to_string()),
        leaf("privateDnsName", &instance.private_dns_name),
        flag("sourceDestCheck", true),
        leaf("interfaceType", &interface.interface_type),
        groups(instance),
        Element::list(
            "privateIpAddressesSet",
            [vec![
                leaf("privateIpAddress", interface.private_ip.to_string()),
                flag("primary", true),
            ]],
        ),
    ];
    if alone {
        attachment.extend([
            leaf("instanceId", &instance.id),
            leaf("instanceOwnerId", aws_state.account()),
        ]);
        item.push(leaf("availabilityZone", &instance.zone));
        item.push(tag_set(&interface.tags));
    }
    item.push(Element::node("attachment", attachment));
    item
}

/// A volume.
pub(super) fn volume_element(instance: &Instance, volume: &Volume) -> Vec<Element> {
    let attached = time(instance.launched);
    let mut item = vec![
        leaf("volumeId", &volume.id),
        leaf("size", volume.size_gib.to_string()),
        leaf("snapshotId", ""),
        leaf("availabilityZone", &instance.zone),
        leaf("status", "in-use"),
        leaf("createTime", &attached),
        Element::list(
            "attachmentSet",
            [vec![
                leaf("volumeId", &volume.id),
                leaf("instanceId", &instance.id),
                leaf("device", &volume.device),
                leaf("status", "attached"),
                leaf("attachTime", &attached),
                flag("deleteOnTermination", volume.delete_on_termination),
            ]],
        ),
        leaf("volumeType", &volume.volume_type),
        flag("encrypted", volume.encrypted),
        flag("multiAttachEnabled", false),
        tag_set(&volume.tags),
    ];
    item.extend(volume.iops.map(|iops| leaf("iops", iops.to_string())));
    item.extend(volume.throughput.map(|throughput| leaf("throughput", throughput.to_string())));
    item
}
