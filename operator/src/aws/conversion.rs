//! EC2's instances in the operator's words. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_crds::labels::{self, aws};
use tenon_crds::{EC2NodeClass, NodeClaim};
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{CapacityType, Catalog, InstanceType, Operator};

use super::ec2;
use super::launcher::LaunchedInstance;
use super::launcher::placement::UNKNOWN_PARTITION;
use super::launcher::reserved::{Reservation, Terms};
use super::launcher::template::{EFA_RESOURCE, ami_for};
use super::provider_id::provider_id;
use crate::cloud_provider::{Instance, Launched};
use crate::state::resources;

/// What an instance is, wherever it was learnt from.
struct Facts<'a> {
    id: &'a str,
    zone: &'a str,
    type_name: &'a str,
    capacity_type: CapacityType,
    tenancy: Option<&'a str>,
    reservation: Option<Reservation>,
    partition: Option<i32>,
}

/// An instance that was read.
pub(super) fn instance(
    found: &ec2::Instance,
    instance_type: Option<&InstanceType>,
    class: Option<&EC2NodeClass>,
) -> Instance {
    let tag = |key: &str| found.tag(key).map(str::to_owned);
    let facts = Facts {
        id: &found.id,
        zone: &found.zone,
        type_name: &found.instance_type,
        capacity_type: capacity_type(found),
        tenancy: found.tenancy.as_deref(),
        reservation: found.reservation.as_ref().map(reservation),
        partition: found.partition,
    };
    let node_pool = tag(labels::NODEPOOL);
    let mut labels = labels_of(&facts, instance_type, class);
    labels.extend(node_pool.clone().map(|name| (labels::NODEPOOL.to_owned(), name)));
    Instance {
        provider_id: provider_id(&found.zone, &found.id),
        claim: tag(aws::NODECLAIM_TAG),
        node_pool,
        created_at: found.launched_at,
        terminating: found.is_terminating(),
        labels,
        image_id: Some(found.image_id.clone()).filter(|image| !image.is_empty()),
    }
}

/// The result of a launch, from an instance that was found later.
pub(super) fn launched_instance(
    found: &ec2::Instance,
    claim: &NodeClaim,
    class: &EC2NodeClass,
    catalog: &Catalog,
) -> Launched {
    let instance_type = find(catalog, &found.instance_type);
    let mut instance = instance(found, instance_type, Some(class));
    instance.claim.clone_from(&claim.metadata.name);
    finish(instance, class, instance_type, found.n_efa > 0)
}

/// The result of a launch, from the fleet's answer. `now` is when that came.
pub(super) fn launched_fleet(
    launched: &LaunchedInstance,
    claim: &NodeClaim,
    class: &EC2NodeClass,
    catalog: &Catalog,
    now: Timestamp,
) -> Launched {
    let LaunchedInstance { instance: found, capacity_type, tenancy, reservation, partition } =
        launched;
    let instance_type = find(catalog, &found.instance_type);
    let facts = Facts {
        id: &found.id,
        zone: &found.zone,
        type_name: &found.instance_type,
        capacity_type: *capacity_type,
        tenancy: Some(tenancy),
        reservation: reservation.clone(),
        partition: *partition,
    };
    let amis = class.status.as_ref().map(|status| status.amis.as_slice()).unwrap_or_default();
    // The answer repeats the override's image only in newer versions of the API; it is the one that
    // the template was made with.
    let image_id = found
        .image_id
        .clone()
        .or_else(|| instance_type.and_then(|it| ami_for(amis, it)).map(|ami| ami.id.clone()));
    let node_pool = claim.metadata.labels.as_ref().and_then(|all| all.get(labels::NODEPOOL));
    let instance = Instance {
        provider_id: provider_id(facts.zone, facts.id),
        claim: claim.metadata.name.clone(),
        node_pool: node_pool.cloned(),
        created_at: Some(now),
        terminating: false,
        labels: labels_of(&facts, instance_type, Some(class)),
        image_id,
    };
    let requests = resources::from_list(&claim.spec.resources.requests);
    let efa = requests.get(EFA_RESOURCE) > 0
        || class.spec.network_interfaces.as_ref().is_some_and(|list| !list.is_empty());
    finish(instance, class, instance_type, efa)
}

fn finish(
    instance: Instance,
    class: &EC2NodeClass,
    instance_type: Option<&InstanceType>,
    has_efa: bool,
) -> Launched {
    let trim = |mut resources: Resources| {
        // A machine has EFA only when interfaces for it were attached.
        if !has_efa {
            resources.extended.remove(EFA_RESOURCE);
        }
        resources.extended.retain(|_, amount| *amount != 0);
        resources
    };
    let capacity = instance_type.map(|known| trim(known.capacity.clone())).unwrap_or_default();
    let allocatable = instance_type.map(|known| trim(known.allocatable())).unwrap_or_default();
    let mut annotations = BTreeMap::new();
    let stored = class.metadata.annotations.as_ref();
    for key in [aws::EC2NODECLASS_HASH, aws::EC2NODECLASS_HASH_VERSION] {
        if let Some(value) = stored.and_then(|all| all.get(key)) {
            annotations.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(profile) = class.status.as_ref().and_then(|status| status.instance_profile.clone())
    {
        annotations.insert(aws::INSTANCE_PROFILE_NAME.to_owned(), profile);
    }
    Launched { instance, annotations, capacity, allocatable }
}

/// The labels that a machine's nature gives it.
fn labels_of(
    facts: &Facts<'_>,
    instance_type: Option<&InstanceType>,
    class: Option<&EC2NodeClass>,
) -> BTreeMap<String, String> {
    const RESERVATION: [&str; 3] = [
        aws::CAPACITY_RESERVATION_ID,
        aws::CAPACITY_RESERVATION_TYPE,
        aws::CAPACITY_RESERVATION_INTERRUPTIBLE,
    ];
    let mut labels: BTreeMap<String, String> = instance_type
        .iter()
        .flat_map(|known| &known.requirements)
        .filter(|requirement| requirement.operator == Operator::In)
        .filter(|requirement| !RESERVATION.contains(&requirement.key.as_str()))
        .filter_map(|requirement| match requirement.values.as_slice() {
            [value] => Some((requirement.key.clone(), value.clone())),
            _ => None,
        })
        .collect();
    let is_partitioned = instance_type
        .iter()
        .flat_map(|known| &known.requirements)
        .any(|it| it.key == aws::PLACEMENT_GROUP_PARTITION && it.operator == Operator::In);
    let mut set = |key: &str, value: &str| {
        labels.insert(key.to_owned(), value.to_owned());
    };
    if let Some(number) = facts.partition {
        set(aws::PLACEMENT_GROUP_PARTITION, &number.to_string());
    } else if is_partitioned {
        // EC2 chooses the partition: it is asked for before the Node is registered.
        set(aws::PLACEMENT_GROUP_PARTITION, UNKNOWN_PARTITION);
    }
    set(labels::INSTANCE_TYPE, facts.type_name);
    set(labels::ZONE, facts.zone);
    set(labels::CAPACITY_TYPE, facts.capacity_type.as_str());
    if let Some(tenancy) = facts.tenancy {
        set(aws::INSTANCE_TENANCY, tenancy);
    }
    for (key, value) in facts.reservation.iter().flat_map(Reservation::labels) {
        set(key, &value);
    }
    let subnets = class
        .and_then(|class| class.status.as_ref())
        .map(|status| status.subnets.as_slice())
        .unwrap_or_default();
    let zone_id = subnets
        .iter()
        .find(|subnet| subnet.zone == facts.zone)
        .and_then(|subnet| subnet.zone_id.as_deref());
    match zone_id {
        Some(id) => set(aws::ZONE_ID, id),
        // The type's only value may be another zone's.
        None => {
            labels.remove(aws::ZONE_ID);
        }
    }
    labels
}

fn find<'c>(catalog: &'c Catalog, name: &str) -> Option<&'c InstanceType> {
    catalog.instance_types.iter().find(|known| known.name == name)
}

/// How an instance was bought.
pub(super) fn capacity_type(found: &ec2::Instance) -> CapacityType {
    if found.spot {
        CapacityType::Spot
    } else if found.reservation.is_some() {
        CapacityType::Reserved
    } else {
        CapacityType::OnDemand
    }
}

fn reservation(found: &ec2::InReservation) -> Reservation {
    let kinds = [Terms::CapacityBlock, Terms::Interruptible];
    let terms = kinds.into_iter().find(|terms| terms.market_type() == Some(&found.lifecycle));
    Reservation { id: found.id.clone(), terms: terms.unwrap_or(Terms::OnDemand) }
}
