//! What can be launched with an EC2NodeClass: types with labels, capacity and overhead, offerings
//! with prices and availability.
//!
//! Sources are refreshed by tasks of the provider; a [`Catalog`] is computed from them when the
//! planner or a launch asks and something changed since the last time. Nothing here calls AWS but
//! [`refresh_types`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tenon_crds::EC2NodeClass;
use tenon_crds::ec2nodeclass::{Ami, CapacityReservation, EC2NodeClassSpec, Subnet};
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{CapacityType, Catalog, InstanceType, NodeClassRef, Offering};
use tenon_state::ec2::labels::partition_values;
use tenon_state::ec2::network::NetworkTable;
use tenon_state::ec2::reserved;
use tenon_state::ec2::type_info::TypeInfo;
use tenon_state::ec2::{self as ec2_types, TypeScope};

use self::pricing::{PriceTable, Prices};
use self::unavailable::{Unavailable, UnavailableNow, placement_scope};
use super::ec2::PlacementGroup;
use super::error::{Error, Result};
use super::reservations::Reservations;
use super::ttl::TtlMap;
use super::zonal_shift::ZonalShifts;
use super::{KIND, ec2};

pub(crate) mod pricing;
pub(crate) mod unavailable;

/// How long the memory that a node has shown is believed.
const SEEN_MEMORY_TTL: Duration = Duration::from_secs(60 * 24 * 60 * 60);

/// Settings that shape catalogs.
#[derive(Clone, Debug)]
pub(super) struct CatalogSettings {
    pub region: String,
    /// `--vm-memory-overhead-percent`.
    pub vm_memory_overhead: f64,
    /// `--reserved-enis`.
    pub reserved_enis: u32,
    /// The feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
}

/// All sources of catalogs, and the catalogs that were computed last.
#[derive(Debug)]
pub(super) struct Catalogs {
    settings: CatalogSettings,
    network: NetworkTable,
    types: RwLock<Types>,
    /// Prices; refreshed by [`pricing`].
    pub prices: Prices,
    /// What could not be had lately.
    pub unavailable: Unavailable,
    /// What reservations still have room for.
    pub reservations: Reservations,
    /// Zones that are shifted away from.
    pub shifts: Arc<ZonalShifts>,
    seen_memory: TtlMap<(String, String), i64>,
    seen_version: Mutex<u64>,
    computed: Mutex<BTreeMap<String, (Basis, Arc<Catalog>)>>,
}

/// What EC2 says about types, at one moment.
#[derive(Clone, Debug, Default)]
struct Types {
    version: u64,
    infos: Arc<Vec<TypeInfo>>,
    zones: Arc<BTreeMap<String, BTreeSet<String>>>,
}

/// Everything that a computed catalog depends on. Two catalogs with equal bases are equal.
#[derive(Clone, Debug, PartialEq)]
struct Basis {
    types: u64,
    prices: u64,
    unavailable: u64,
    seen_memory: u64,
    uid: Option<String>,
    spec: Box<EC2NodeClassSpec>,
    subnets: Vec<Subnet>,
    amis: String,
    placement_group: Option<PlacementGroup>,
    reservations: Vec<CapacityReservation>,
    reservations_left: u64,
    shifted: BTreeSet<String>,
}

/// Why there is no catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoCatalog {
    /// EC2 has not been asked yet, or told nothing.
    #[error("no instance types are known yet")]
    Types,
    /// EC2 has not been asked yet, or told nothing.
    #[error("no instance type offerings are known yet")]
    Offerings,
    /// The price list was not asked for yet.
    #[error("no prices are known yet")]
    Prices,
    /// The NodeClass has no subnets in its status.
    #[error("no subnets found")]
    Subnets,
    /// The NodeClass names a placement group, which was not looked up yet.
    #[error("the placement group is not known yet")]
    PlacementGroup,
}

impl Catalogs {
    /// Without any data.
    pub(super) fn new(settings: CatalogSettings) -> Self {
        Self {
            settings,
            network: NetworkTable::bundled(),
            types: RwLock::default(),
            prices: Prices::default(),
            unavailable: Unavailable::default(),
            reservations: Reservations::default(),
            shifts: Arc::default(),
            seen_memory: TtlMap::new(SEEN_MEMORY_TTL),
            seen_version: Mutex::default(),
            computed: Mutex::default(),
        }
    }

    /// The catalog of a NodeClass, with the placement group that it names.
    pub(super) fn catalog(
        &self,
        class: &EC2NodeClass,
        placement_group: Option<&PlacementGroup>,
    ) -> std::result::Result<Arc<Catalog>, NoCatalog> {
        let types = self.types.read().clone();
        if types.infos.is_empty() {
            return Err(NoCatalog::Types);
        }
        if types.zones.is_empty() {
            return Err(NoCatalog::Offerings);
        }
        // What has no price has no offering: without any, every launch would look like a lack of
        // capacity.
        if self.prices.with(PriceTable::is_empty) {
            return Err(NoCatalog::Prices);
        }
        let status = class.status.as_ref();
        let subnets = status.map(|status| status.subnets.as_slice()).unwrap_or_default();
        if subnets.is_empty() {
            return Err(NoCatalog::Subnets);
        }
        if class.spec.placement_group_selector.is_some() && placement_group.is_none() {
            return Err(NoCatalog::PlacementGroup);
        }
        self.shifts.learn(subnets);
        let name = class.metadata.name.clone().unwrap_or_default();
        let basis = Basis {
            types: types.version,
            prices: self.prices.version(),
            unavailable: self.unavailable.version(),
            seen_memory: *self.seen_version.lock(),
            uid: class.metadata.uid.clone(),
            spec: Box::new(class.spec.clone()),
            subnets: subnets.to_vec(),
            amis: ami_key(status.map(|status| status.amis.as_slice()).unwrap_or_default()),
            placement_group: placement_group.cloned(),
            reservations: status
                .filter(|_| self.settings.reserved_capacity)
                .map(|status| status.capacity_reservations.clone())
                .unwrap_or_default(),
            reservations_left: self.reservations.version(),
            shifted: self.shifts.zone_ids(),
        };
        if let Some((_, catalog)) =
            self.computed.lock().get(&name).filter(|(known, _)| *known == basis)
        {
            return Ok(Arc::clone(catalog));
        }
        let scope = ClassScope::new(self, &basis);
        let instance_types = self.prices.with(|prices| scope.instance_types(&types, prices));
        let node_class = NodeClassRef {
            group: KIND.group.to_owned(),
            kind: KIND.kind.to_owned(),
            name: name.clone(),
        };
        let catalog = Arc::new(Catalog { node_class, instance_types });
        self.computed.lock().insert(name, (basis, Arc::clone(&catalog)));
        Ok(catalog)
    }

    /// Keeps what was computed for these NodeClasses, and forgets the others.
    pub(super) fn keep(&self, known: impl Fn(&str) -> bool) {
        self.computed.lock().retain(|class, _| known(class));
    }

    /// Takes note of the memory that a node of a type with one of these images has. The smallest
    /// figure counts, and it changes catalogs.
    pub(super) fn observe_memory(&self, instance_type: &str, amis: &[Ami], bytes: i64) {
        let key = (instance_type.to_owned(), ami_key(amis));
        let known = self.seen_memory.get(&key);
        if known.is_none_or(|known| bytes <= known) {
            self.seen_memory.insert(key, bytes);
        }
        if known.is_none_or(|known| bytes < known) {
            *self.seen_version.lock() += 1;
        }
    }

    /// Whether types and zones are known.
    pub(super) fn has_types(&self) -> bool {
        let types = self.types.read();
        !types.infos.is_empty() && !types.zones.is_empty()
    }

    /// Names of all types of the region.
    pub(super) fn type_names(&self) -> Vec<String> {
        self.types.read().infos.iter().map(|info| info.name.clone()).collect()
    }

    fn set_types(&self, infos: Vec<TypeInfo>, zones: BTreeMap<String, BTreeSet<String>>) {
        let mut types = self.types.write();
        if *types.infos != infos || *types.zones != zones {
            types.version += 1;
            types.infos = Arc::new(infos);
            types.zones = Arc::new(zones);
        }
    }
}

/// Asks EC2 for types and zones. An empty answer is an error: then the old ones stay.
pub(super) async fn refresh_types(client: &ec2::Ec2, catalogs: &Catalogs) -> Result<()> {
    let (infos, zones) =
        tokio::join!(ec2::instance_types(client), ec2::instance_type_zones(client));
    let (mut infos, zones) = (infos?, zones?);
    if infos.is_empty() {
        return Err(Error::unexpected("DescribeInstanceTypes", "no instance type was found"));
    }
    if zones.is_empty() {
        return Err(Error::unexpected("DescribeInstanceTypeOfferings", "no offering was found"));
    }
    infos.sort_by(|a, b| a.name.cmp(&b.name));
    infos.dedup_by(|a, b| a.name == b.name);
    catalogs.set_types(infos, zones);
    Ok(())
}

/// Identifies a set of images.
fn ami_key(amis: &[Ami]) -> String {
    let ids: BTreeSet<&str> = amis.iter().map(|ami| ami.id.as_str()).collect();
    ids.into_iter().collect::<Vec<_>>().join(",")
}

/// What is the same for all types of a NodeClass.
struct ClassScope<'a> {
    catalogs: &'a Catalogs,
    basis: &'a Basis,
    zone_ids: BTreeMap<&'a str, Option<&'a str>>,
    subnets_by_zone: BTreeMap<&'a str, Vec<&'a str>>,
    unavailable: UnavailableNow,
}

impl<'a> ClassScope<'a> {
    fn new(catalogs: &'a Catalogs, basis: &'a Basis) -> Self {
        let mut zone_ids = BTreeMap::new();
        let mut subnets_by_zone: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for subnet in &basis.subnets {
            zone_ids.insert(subnet.zone.as_str(), subnet.zone_id.as_deref());
            subnets_by_zone.entry(&subnet.zone).or_default().push(&subnet.id);
        }
        let unavailable = catalogs.unavailable.now();
        Self { catalogs, basis, zone_ids, subnets_by_zone, unavailable }
    }

    fn instance_types(&self, types: &Types, prices: &PriceTable) -> Vec<InstanceType> {
        let none = BTreeSet::new();
        types
            .infos
            .iter()
            .map(|info| {
                self.instance_type(info, types.zones.get(&info.name).unwrap_or(&none), prices)
            })
            .collect()
    }

    fn instance_type(
        &self,
        info: &TypeInfo,
        offered_in: &BTreeSet<String>,
        prices: &PriceTable,
    ) -> InstanceType {
        let zones: BTreeMap<String, Option<String>> = self
            .zone_ids
            .iter()
            .filter(|(zone, _)| offered_in.contains(**zone))
            .map(|(zone, id)| ((*zone).to_owned(), id.map(str::to_owned)))
            .collect();
        let seen_key = (info.name.clone(), self.basis.amis.clone());
        let mut kind = ec2_types::instance_type(
            info,
            &TypeScope {
                class: &self.basis.spec,
                network: &self.catalogs.network,
                region: Some(&self.catalogs.settings.region),
                zones: &zones,
                placement_group: self.basis.placement_group.as_ref().map(|group| group.id.as_str()),
                partitions: self.n_partitions(),
                vm_memory_overhead: self.catalogs.settings.vm_memory_overhead,
                reserved_enis: self.catalogs.settings.reserved_enis,
                seen_memory: self.catalogs.seen_memory.get(&seen_key),
            },
        );
        let mut offerings = self.offerings(info, offered_in, prices);
        let reservations: Vec<&CapacityReservation> =
            self.basis.reservations.iter().filter(|it| it.instance_type == info.name).collect();
        reserved::extend(&mut kind.requirements, &reservations);
        offerings.extend(reservations.iter().map(|it| self.reserved(info, it, offered_in, prices)));
        InstanceType { offerings, ..kind }
    }

    /// Every way to buy the type in the region, those too that can't be used now: prices of
    /// machines that run there are looked up here. One without a known price is used when a
    /// NodeOverlay sets it.
    fn offerings(
        &self,
        info: &TypeInfo,
        offered_in: &BTreeSet<String>,
        prices: &PriceTable,
    ) -> Vec<Offering> {
        let compatible = self.is_compatible(info);
        let mut offerings = Vec::new();
        for zone in offered_in {
            for capacity_type in [CapacityType::Spot, CapacityType::OnDemand] {
                if !info.supports(capacity_type.as_str()) {
                    continue;
                }
                let price = match capacity_type {
                    CapacityType::Spot => prices.spot(&info.name, zone),
                    _ => prices.on_demand(&info.name),
                };
                let price = price.map(|price| self.with_license(price, info));
                let subnets = self.subnets_by_zone.get(zone.as_str());
                let contains = |group: Option<&str>| {
                    subnets.is_some_and(|subnets| {
                        self.unavailable.contains(&info.name, zone, capacity_type, subnets, group)
                    })
                };
                let usable = compatible && !self.is_shifted(zone) && subnets.is_some();
                for (usable, partitions) in self.places(usable, contains) {
                    let zone_id = self.zone_ids.get(zone.as_str()).copied().flatten();
                    let mut requirements = ec2_types::offering_requirements(zone_id);
                    if !partitions.is_empty() {
                        ec2_types::restrict_to_partitions(&mut requirements, partitions);
                    }
                    offerings.push(Offering {
                        zone: zone.clone(),
                        capacity_type,
                        requirements,
                        price: price.unwrap_or_default(),
                        available: usable && price.is_some(),
                        reservation_capacity: None,
                        unpriced: price.is_none().then_some(usable),
                    });
                }
            }
        }
        offerings
    }

    /// The price lists are those of Linux.
    fn with_license(&self, price: MicroUsd, info: &TypeInfo) -> MicroUsd {
        let region = &self.catalogs.settings.region;
        let machine = (info.name.as_str(), info.vcpus);
        MicroUsd(price.0 + ec2_types::license(&self.basis.spec, machine, region).0)
    }

    /// The way to buy the type from a reservation.
    fn reserved(
        &self,
        info: &TypeInfo,
        reservation: &CapacityReservation,
        offered_in: &BTreeSet<String>,
        prices: &PriceTable,
    ) -> Offering {
        let zone = reservation.availability_zone.as_str();
        let usable = self.is_compatible(info)
            && !self.is_shifted(zone)
            && offered_in.contains(zone)
            && self.subnets_by_zone.get(zone).is_some_and(|subnets| {
                !self.unavailable.contains(&info.name, zone, CapacityType::Reserved, subnets, None)
            });
        let left = self.catalogs.reservations.left(&reservation.id);
        let zone_id = self.zone_ids.get(zone).copied().flatten();
        let price = prices.on_demand(&info.name).map(|price| self.with_license(price, info));
        let mut offering = reserved::offering(reservation, left, price, usable, zone_id);
        if self.n_partitions() > 0 {
            let partitions = partition_values(self.n_partitions()).collect();
            ec2_types::restrict_to_partitions(&mut offering.requirements, partitions);
        }
        offering
    }

    /// Whether machines can be had, and in which partitions of the placement group; these differ
    /// only after a launch into one of them failed. Without partitions there is one answer, for
    /// none.
    fn places(
        &self,
        usable: bool,
        contains: impl Fn(Option<&str>) -> bool,
    ) -> Vec<(bool, Vec<String>)> {
        let Some(group) = &self.basis.placement_group else {
            return vec![(usable && !contains(None), Vec::new())];
        };
        let usable = usable && !contains(Some(&group.id));
        let all = partition_values(group.partitions);
        let (had, lacking): (Vec<_>, Vec<_>) =
            all.partition(|number| !contains(Some(&placement_scope(&group.id, Some(number)))));
        if had.is_empty() && lacking.is_empty() {
            return vec![(usable, Vec::new())];
        }
        let places = [(usable, had), (false, lacking)];
        places.into_iter().filter(|(_, partitions)| !partitions.is_empty()).collect()
    }

    fn n_partitions(&self) -> u32 {
        self.basis.placement_group.as_ref().map_or(0, |group| group.partitions)
    }

    fn is_shifted(&self, zone: &str) -> bool {
        let id = self.zone_ids.get(zone).copied().flatten();
        id.is_some_and(|id| self.basis.shifted.contains(id))
    }

    fn is_compatible(&self, info: &TypeInfo) -> bool {
        let group = self.basis.placement_group.as_ref();
        let placed = group.is_none_or(|group| info.placement_strategies.contains(&group.strategy));
        placed && ec2_types::is_compatible(info, &self.basis.spec)
    }
}

#[cfg(test)]
pub(crate) mod tests;
