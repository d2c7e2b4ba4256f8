//! Launches: from launch parameters (a template's, overlaid by the request's) and one pool of
//! capacity to instances that keep all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::super::aws_state::AwsState;
use super::super::consistency::Kind;
use super::super::instance::{
    Health, Instance, Interface, MetadataOptions, State, TemplateRef, Volume,
};
use super::super::prices::CapacityType;
use super::super::request::{AwsRequest, Params};
use super::super::response::{AwsError, AwsResponse};
use super::super::service::Principal;
use super::super::xml::render;
use super::pool::{Facts, Pool, pool};
use super::render::{instance_element, reservation_elements};
use super::wish::{Wish, overlay, overlay_tags, tag_specs};
use super::{dry_run, placement_groups, reservations};

/// What the instances of one call share.
pub(super) struct Call<'a> {
    pub(super) aws_state: &'a AwsState,
    pub(super) principal: &'a Principal,
    pub(super) client_token: String,
    pub(super) fleet_id: Option<String>,
    pub(super) reservation_id: String,
    /// Addresses that this call has taken, by subnet.
    pub(super) taken: BTreeMap<String, BTreeSet<Ipv4Addr>>,
    /// Places in capacity reservations that this call has taken, by reservation.
    pub(super) reserved: BTreeMap<String, u32>,
    /// Places in the placement group that this call has taken, by zone.
    pub(super) placed: BTreeMap<String, u32>,
}

/// A capacity reservation has no room.
pub(super) const NO_ROOM: &str = "ReservationCapacityExceeded";
pub(super) const NO_ROOM_MESSAGE: &str =
    "Your requested capacity exceeds the available capacity of the reservation.";

impl Call<'_> {
    /// How many of `wanted` instances a reservation has room for, and the code of the error when
    /// these are too few.
    pub(super) fn room(&mut self, id: &str, pool: &Pool, wanted: u32) -> (u32, Option<String>) {
        let found = self.aws_state.reservations().get(id).filter(|it| {
            !it.cancelled && it.instance_type == pool.instance_type && it.zone == pool.subnet.zone
        });
        let taken = self.reserved.entry(id.to_owned()).or_default();
        let free = found.map_or(0, |it| reservations::available(self.aws_state, &it));
        let left = free.saturating_sub(*taken);
        let given = left.min(wanted);
        *taken += given;
        (given, (given < wanted).then(|| NO_ROOM.to_owned()))
    }

    /// How many of `wanted` instances the placement group takes in the pool's zone, and the error
    /// when these are too few.
    pub(super) fn spread(&mut self, pool: &Pool, wanted: u32) -> (u32, Option<AwsError>) {
        let Some(target) = &pool.placement else { return (wanted, None) };
        let taken = self.placed.entry(pool.subnet.zone.clone()).or_default();
        let given = target.room(self.aws_state, &pool.subnet.zone, *taken, wanted);
        *taken += given;
        (given, (given < wanted).then(placement_groups::is_full))
    }

    /// Makes up to `wanted` instances, fewer when the subnet has no more addresses.
    pub(super) fn make(&mut self, wish: &Wish, pool: &Pool, wanted: u32) -> Vec<Instance> {
        let aws_state = self.aws_state;
        let taken = self
            .taken
            .entry(pool.subnet.id.clone())
            .or_insert_with(|| aws_state.instances().addresses(&pool.subnet.id));
        let mut interfaces = wish.params.structs("NetworkInterface");
        if interfaces.is_empty() {
            interfaces.push(Params::default());
        }
        let mut made = Vec::new();
        for _ in 0..wanted {
            let addresses = aws_state.instances().next_addresses(
                &pool.subnet.id,
                pool.subnet.addresses(),
                taken,
                interfaces.len(),
            );
            if addresses.len() < interfaces.len() {
                break;
            }
            taken.extend(&addresses);
            made.push(instance(aws_state, wish, pool, &interfaces, &addresses));
        }
        if let Some(target) = &pool.placement {
            target.place(aws_state, &mut made);
        }
        for instance in &mut made {
            instance.reservation_id.clone_from(&self.reservation_id);
            instance.client_token.clone_from(&self.client_token);
            instance.launched_by.clone_from(&self.principal.arn);
            instance.fleet_id.clone_from(&self.fleet_id);
            if let Some(id) = &self.fleet_id {
                instance.tags.insert("aws:ec2:fleet-id".to_owned(), id.clone());
            }
        }
        made
    }
}

fn instance(
    aws_state: &AwsState,
    wish: &Wish,
    pool: &Pool,
    interfaces: &[Params],
    addresses: &[Ipv4Addr],
) -> Instance {
    let params = &wish.params;
    let tags_of = |resource: &str| wish.tags.get(resource).cloned().unwrap_or_default();
    let mut tags = tags_of("instance");
    if let Some(template) = &wish.template {
        tags.insert("aws:ec2launchtemplate:id".to_owned(), template.id.clone());
        tags.insert("aws:ec2launchtemplate:version".to_owned(), template.version.to_string());
    }
    let text = |name: &str, default: &str| params.get(name).unwrap_or(default).to_owned();
    let number = |name: &str| params.get(name).and_then(|value| value.parse::<u32>().ok());
    let ip = addresses[0];
    let domain = match aws_state.region() {
        "us-east-1" => "ec2.internal".to_owned(),
        region => format!("{region}.compute.internal"),
    };
    let now = aws_state.clock().now();
    Instance {
        id: aws_state.id("i"),
        reservation_id: String::new(),
        instance_type: pool.instance_type.clone(),
        capacity_type: wish.capacity_type,
        state: State::Pending,
        state_reason: None,
        launched: now,
        changed: now,
        zone: pool.subnet.zone.clone(),
        subnet_id: pool.subnet.id.clone(),
        vpc_id: pool.subnet.vpc_id.clone(),
        image_id: pool.image.id.clone(),
        architecture: pool.image.architecture.clone(),
        private_ip: ip,
        private_dns_name: format!("ip-{}.{domain}", ip.to_string().replace('.', "-")),
        security_groups: pool.groups.clone(),
        profile: pool.profile.clone(),
        metadata_options: MetadataOptions {
            http_endpoint: text("MetadataOptions.HttpEndpoint", "enabled"),
            http_protocol_ipv6: text("MetadataOptions.HttpProtocolIpv6", "disabled"),
            http_put_response_hop_limit: number("MetadataOptions.HttpPutResponseHopLimit")
                .unwrap_or(1),
            http_tokens: text("MetadataOptions.HttpTokens", "optional"),
            instance_metadata_tags: text("MetadataOptions.InstanceMetadataTags", "disabled"),
        },
        user_data: params.get("UserData").map(str::to_owned),
        volumes: volumes(aws_state, params, pool, &tags_of("volume")),
        interfaces: interfaces
            .iter()
            .zip(addresses)
            .map(|(interface, address)| Interface {
                id: aws_state.id("eni"),
                device_index: interface
                    .get("DeviceIndex")
                    .and_then(|index| index.parse().ok())
                    .unwrap_or(0),
                card_index: interface
                    .get("NetworkCardIndex")
                    .and_then(|index| index.parse().ok())
                    .unwrap_or(0),
                interface_type: interface.get("InterfaceType").unwrap_or("interface").to_owned(),
                private_ip: *address,
                tags: tags_of("network-interface"),
            })
            .collect(),
        tenancy: text("Placement.Tenancy", "default"),
        monitoring: params.get("Monitoring.Enabled") == Some("true"),
        tags,
        capacity_reservation: reservations::target(params).map(str::to_owned),
        placement_group: None,
        reservation_preference: text(
            "CapacityReservationSpecification.CapacityReservationPreference",
            "open",
        ),
        market_type: params
            .get("InstanceMarketOptions.MarketType")
            .filter(|market| *market != "spot")
            .map(str::to_owned),
        spot_request_id: (wish.capacity_type == CapacityType::Spot).then(|| aws_state.id("sir")),
        fleet_id: None,
        template: wish.template.clone(),
        client_token: String::new(),
        launched_by: String::new(),
        health: Health::default(),
    }
}

/// The image's devices, changed and added to by the block device mappings.
fn volumes(
    aws_state: &AwsState,
    params: &Params,
    pool: &Pool,
    tags: &BTreeMap<String, String>,
) -> Vec<Volume> {
    let mut sizes = pool.image.devices.clone();
    let mappings = params.structs("BlockDeviceMapping");
    for mapping in &mappings {
        let device = mapping.get("DeviceName").unwrap_or(&pool.image.root_device).to_owned();
        if !sizes.iter().any(|(known, _)| *known == device) {
            sizes.push((device, 8));
        }
    }
    sizes
        .into_iter()
        .map(|(device, size)| {
            let mapping = mappings.iter().find(|mapping| {
                mapping.get("DeviceName").unwrap_or(&pool.image.root_device) == device
            });
            let ebs = mapping.map(|mapping| mapping.structure("Ebs")).unwrap_or_default();
            let number = |name: &str| ebs.get(name).and_then(|value| value.parse().ok());
            Volume {
                id: aws_state.id("vol"),
                device,
                size_gib: number("VolumeSize").unwrap_or(size),
                volume_type: ebs.get("VolumeType").unwrap_or("gp3").to_owned(),
                encrypted: ebs.get("Encrypted") == Some("true"),
                iops: number("Iops"),
                throughput: number("Throughput"),
                delete_on_termination: ebs.get("DeleteOnTermination") != Some("false"),
                tags: tags.clone(),
            }
        })
        .collect()
}

/// The message of an error item for a pool without capacity.
pub(super) fn shortage_message(code: &str, wish: &Wish, pool: &Pool) -> String {
    let (kind, zone) = (&pool.instance_type, &pool.subnet.zone);
    match code {
        "InsufficientInstanceCapacity" if wish.capacity_type == CapacityType::Spot => {
            "There is no Spot capacity available that matches your request.".to_owned()
        }
        "InsufficientInstanceCapacity" => format!(
            "We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone}). Our system will be working on provisioning additional capacity. You can currently get {kind} capacity by not specifying an Availability Zone in your request or choosing other zones."
        ),
        NO_ROOM => NO_ROOM_MESSAGE.to_owned(),
        "MaxSpotInstanceCountExceeded" => "Max spot instance count exceeded".to_owned(),
        "VcpuLimitExceeded" => "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.".to_owned(),
        "UnfulfillableCapacity" => "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again.".to_owned(),
        "InsufficientFreeAddressesInSubnet" => format!("There are not enough free addresses in subnet '{}' to satisfy the requested number of instances.", pool.subnet.id),
        other => format!("{other} for {kind} in {zone}"),
    }
}

/// RunInstances: one pool, all or nothing.
pub(super) async fn run(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
) -> Result<AwsResponse, AwsError> {
    let params = &request.params;
    let named = params.structure("LaunchTemplate");
    let (template, base) = if named.is_empty() {
        (None, Params::default())
    } else {
        let template = super::templates::visible(aws_state, &named)?;
        let (version, data) = template.version(named.get("Version"))?;
        (
            Some(TemplateRef { id: template.id.clone(), name: template.name.clone(), version }),
            data.clone(),
        )
    };
    let merged = overlay(&base, params);
    let spot = merged.get("InstanceMarketOptions.MarketType") == Some("spot");
    let wish = Wish {
        tags: overlay_tags(tag_specs(&base), &tag_specs(params)),
        params: merged,
        template,
        capacity_type: if spot { CapacityType::Spot } else { CapacityType::OnDemand },
    };
    let facts = Facts::read(aws_state, std::iter::once(&wish)).await?;
    let pool = pool(aws_state, &facts, &wish)?;
    if request.is_dry_run() {
        return Err(dry_run());
    }
    let count = |name: &str| params.get(name).and_then(|count| count.parse::<u32>().ok());
    let most = count("MaxCount").unwrap_or(1).max(1);
    let least = count("MinCount").unwrap_or(most);
    let (given, short) = aws_state.faults().take_capacity(
        &pool.instance_type,
        &pool.subnet.zone,
        wish.capacity_type,
        most,
    );
    let mut call = Call {
        aws_state,
        principal,
        client_token: params.get("ClientToken").unwrap_or_default().to_owned(),
        fleet_id: None,
        reservation_id: aws_state.id("r"),
        taken: BTreeMap::new(),
        reserved: BTreeMap::new(),
        placed: BTreeMap::new(),
    };
    let (given, full) = call.spread(&pool, given);
    let made = call.make(&wish, &pool, given);
    if u32::try_from(made.len()).unwrap_or(u32::MAX) < least {
        if let Some(full) = full {
            return Err(full);
        }
        let code = short.unwrap_or_else(|| "InsufficientFreeAddressesInSubnet".to_owned());
        let message = shortage_message(&code, &wish, &pool);
        return Err(AwsError::new(code, message));
    }
    let reservation_id = call.reservation_id;
    let items = made.iter().map(|instance| instance_element(aws_state, instance)).collect();
    let inner = render(&reservation_elements(aws_state.account(), &reservation_id, items));
    let ids: Vec<String> = made.iter().map(|instance| instance.id.clone()).collect();
    for id in &ids {
        aws_state.consistency().changed(Kind::Instance, id);
    }
    aws_state.instances().insert(made);
    Ok(AwsResponse::ec2(request, &inner).with_resources(ids))
}
