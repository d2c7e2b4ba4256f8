use tenon_crds::EC2NodeClassStatus;
use tenon_crds::ec2nodeclass::{
    AmiFamily, ConnectionTracking, CpuOptions, PlacementGroupSelector, Switch,
};
use tenon_crds::labels as core_labels;
use tenon_crds::labels::aws as keys;
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_state::ec2::facts;
use tenon_state::ec2::offered::{self, ClassScope};

use super::*;
use crate::aws::matching::single_value;

impl Catalogs {
    /// How many catalogs are kept.
    pub(crate) fn n_computed(&self) -> usize {
        self.computed.lock().len()
    }
}

/// What EC2 says about a type.
pub(crate) fn type_info(name: &str) -> TypeInfo {
    facts::find(name).unwrap_or_else(|| panic!("no type {name}"))
}

/// Catalogs over real types, all of them offered in zones a and b; their prices are not known yet.
pub(in crate::aws) fn mk_unpriced_catalogs(names: &[&str]) -> Catalogs {
    let catalogs = Catalogs::new(CatalogSettings {
        region: "eu-central-1".to_owned(),
        vm_memory_overhead: 0.075,
        reserved_enis: 0,
        reserved_capacity: true,
    });
    let mut infos: Vec<TypeInfo> = names.iter().map(|name| type_info(name)).collect();
    infos.sort_by(|a, b| a.name.cmp(&b.name));
    let zones = |info: &TypeInfo| {
        (info.name.clone(), ["eu-central-1a", "eu-central-1b"].map(str::to_owned).into())
    };
    let by_zone = infos.iter().map(zones).collect();
    catalogs.set_types(infos, by_zone);
    catalogs
}

/// [`mk_unpriced_catalogs`] at a price of 100 (spot in a: 40, in b: 50) times the number of cores.
pub(in crate::aws) fn mk_catalogs(names: &[&str]) -> Catalogs {
    let catalogs = mk_unpriced_catalogs(names);
    let infos = Arc::clone(&catalogs.types.read().infos);
    catalogs.prices.set_on_demand(
        infos.iter().map(|info| (info.name.clone(), MicroUsd(info.vcpus * 100))).collect(),
    );
    catalogs.prices.set_spot(
        infos
            .iter()
            .map(|info| {
                let zones = [
                    ("eu-central-1a".to_owned(), MicroUsd(info.vcpus * 40)),
                    ("eu-central-1b".to_owned(), MicroUsd(info.vcpus * 50)),
                ];
                (info.name.clone(), zones.into())
            })
            .collect(),
    );
    catalogs
}

/// A NodeClass that is resolved: a subnet in zone a and one in zone b, an image per architecture.
pub(crate) fn mk_class() -> EC2NodeClass {
    let mut class = EC2NodeClass::new("default", EC2NodeClassSpec::default());
    class.metadata.uid = Some("class-uid".to_owned());
    class.metadata.generation = Some(1);
    class.spec.ami_family = Some(AmiFamily::Al2023);
    let subnet = |id: &str, zone: &str, zone_id: &str| Subnet {
        id: id.to_owned(),
        zone: zone.to_owned(),
        zone_id: Some(zone_id.to_owned()),
    };
    let ami = |id: &str, arch: &str| Ami {
        id: id.to_owned(),
        name: Some(format!("al2023-{arch}")),
        deprecated: false,
        requirements: vec![tenon_crds::Requirement::new(
            core_labels::ARCH,
            tenon_crds::Operator::In,
            [arch],
        )],
    };
    class.status = Some(EC2NodeClassStatus {
        subnets: vec![
            subnet("subnet-a", "eu-central-1a", "euc1-az2"),
            subnet("subnet-b", "eu-central-1b", "euc1-az3"),
        ],
        security_groups: vec![tenon_crds::ec2nodeclass::SecurityGroup {
            id: "sg-1".to_owned(),
            name: None,
        }],
        amis: vec![ami("ami-amd", "amd64"), ami("ami-arm", "arm64")],
        instance_profile: Some("demo_123".to_owned()),
        ..EC2NodeClassStatus::default()
    });
    class
}

/// A placement group.
pub(crate) fn mk_group(strategy: &str, partitions: u32) -> PlacementGroup {
    PlacementGroup { id: "pg-1".to_owned(), strategy: strategy.to_owned(), partitions }
}

fn find<'c>(catalog: &'c Catalog, name: &str) -> &'c InstanceType {
    catalog.instance_types.iter().find(|found| found.name == name).unwrap()
}

#[test]
fn labels_are_those_of_the_published_table() {
    let catalogs = mk_catalogs(&["m5.large", "g4dn.xlarge", "m5.metal", "c7i-flex.large"]);
    let catalog = catalogs.catalog(&mk_class(), None).unwrap();
    let lines = |name: &str| {
        find(&catalog, name)
            .requirements
            .iter()
            .map(|r| format!("{} {:?} {}", r.key, r.operator, r.values.join(",")))
            .collect::<Vec<_>>()
    };
    insta::assert_yaml_snapshot!("labels_m5_large", lines("m5.large"));
    insta::assert_yaml_snapshot!("labels_g4dn_xlarge", lines("g4dn.xlarge"));
    let value = |name: &str, key: &str| {
        single_value(&find(&catalog, name).requirements, key).map(str::to_owned)
    };
    assert_eq!(value("m5.metal", keys::INSTANCE_HYPERVISOR).as_deref(), Some(""));
    assert_eq!(value("c7i-flex.large", keys::INSTANCE_CAPABILITY_FLEX).as_deref(), Some("true"));
    assert_eq!(value("c7i-flex.large", keys::INSTANCE_FAMILY).as_deref(), Some("c7i-flex"));
}

#[test]
fn labels_of_special_types() {
    let value = |name: &str, key: &str| {
        let catalog = mk_catalogs(&[name]).catalog(&mk_class(), None).unwrap();
        single_value(&find(&catalog, name).requirements, key).map(str::to_owned)
    };
    let table = [
        ("g6f.large", keys::INSTANCE_GPU_COUNT, Some("0")),
        ("g6f.large", keys::INSTANCE_GPU_MEMORY, Some("2861")),
        ("g4ad.xlarge", keys::INSTANCE_GPU_NAME, Some("radeon-pro-v520")),
        ("inf2.xlarge", keys::INSTANCE_ACCELERATOR_NAME, Some("inferentia2")),
        ("inf1.xlarge", keys::INSTANCE_ACCELERATOR_MANUFACTURER, Some("aws")),
        ("p4d.24xlarge", keys::INSTANCE_NETWORK_BANDWIDTH, Some("400000")),
        ("p4d.24xlarge", keys::INSTANCE_GPU_MEMORY, Some("40960")),
        ("u-6tb1.112xlarge", keys::INSTANCE_CATEGORY, Some("u")),
        ("c1.medium", keys::INSTANCE_NETWORK_BANDWIDTH, Some("300")),
        ("c1.medium", keys::INSTANCE_EBS_BANDWIDTH, None),
        ("c1.medium", keys::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ, Some("0")),
        ("c1.medium", keys::INSTANCE_HYPERVISOR, Some("xen")),
        ("m6idn.32xlarge", keys::INSTANCE_LOCAL_NVME, Some("7600")),
        ("a1.medium", keys::INSTANCE_EBS_BANDWIDTH, Some("3500")),
    ];
    for (name, key, expected) in table {
        assert_eq!(value(name, key).as_deref(), expected, "{name} {key}");
    }
}

#[test]
fn offerings_are_available_where_the_node_class_has_a_subnet() {
    let catalogs = mk_catalogs(&["m5.large"]);
    let mut class = mk_class();
    class.status.as_mut().unwrap().subnets.pop();
    let catalog = catalogs.catalog(&class, None).unwrap();
    let offered: Vec<_> = find(&catalog, "m5.large")
        .offerings
        .iter()
        .map(|o| (o.zone.as_str(), o.capacity_type.as_str(), o.price.0, o.available))
        .collect();
    assert_eq!(
        offered,
        [
            ("eu-central-1a", "spot", 80, true),
            ("eu-central-1a", "on-demand", 200, true),
            ("eu-central-1b", "spot", 100, false),
            ("eu-central-1b", "on-demand", 200, false),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_catalog_is_computed_again_only_when_something_changed() {
    let catalogs = mk_catalogs(&["m5.large"]);
    let class = mk_class();
    let first = catalogs.catalog(&class, None).unwrap();
    assert!(Arc::ptr_eq(&first, &catalogs.catalog(&class, None).unwrap()));

    catalogs.unavailable.mark_offering(
        "m5.large",
        "eu-central-1a",
        CapacityType::Spot,
        None,
        "ICE",
    );
    let marked = catalogs.catalog(&class, None).unwrap();
    assert!(!find(&marked, "m5.large").offerings[0].available);
    tokio::time::advance(Duration::from_secs(181)).await;
    let back = catalogs.catalog(&class, None).unwrap();
    assert!(find(&back, "m5.large").offerings[0].available);

    let amis = class.status.as_ref().unwrap().amis.clone();
    catalogs.observe_memory("m5.large", &amis, 7_800 << 20);
    assert_eq!(
        find(&catalogs.catalog(&class, None).unwrap(), "m5.large").capacity.memory,
        7_800 << 20
    );
    catalogs.observe_memory("m5.large", &amis, 7_900 << 20);
    assert_eq!(
        find(&catalogs.catalog(&class, None).unwrap(), "m5.large").capacity.memory,
        7_800 << 20
    );
    let mut other = class.clone();
    other.status.as_mut().unwrap().amis.pop();
    assert_eq!(
        find(&catalogs.catalog(&other, None).unwrap(), "m5.large").capacity.memory,
        7_577 << 20
    );
}

#[test]
fn types_that_the_node_class_cannot_use_are_not_available() {
    let catalogs = mk_catalogs(&["m5.large", "a1.medium", "c1.medium", "m5.metal"]);
    let available = |class: &EC2NodeClass| -> Vec<String> {
        let catalog = catalogs.catalog(class, None).unwrap();
        catalog
            .instance_types
            .iter()
            .filter(|found| found.offerings.iter().any(|offering| offering.available))
            .map(|found| found.name.clone())
            .collect()
    };
    let mut class = mk_class();
    assert_eq!(available(&class), ["c1.medium", "m5.large", "m5.metal"], "not a1 with AL2023");
    class.spec.ami_family = Some(AmiFamily::Al2);
    assert_eq!(available(&class), ["a1.medium", "c1.medium", "m5.large", "m5.metal"]);
    class.spec.connection_tracking = Some(ConnectionTracking::default());
    assert_eq!(available(&class), ["a1.medium", "m5.large"], "only nitro");
    class.spec.cpu_options = Some(CpuOptions { nested_virtualization: Some(Switch::Enabled) });
    assert_eq!(available(&class), Vec::<String>::new());
}

#[test]
fn machines_in_a_placement_group_are_labelled_with_it_and_only_types_that_support_it_can_be_had() {
    let catalogs = mk_catalogs(&["m5.large"]);
    let mut class = mk_class();
    class.spec.placement_group_selector = Some(PlacementGroupSelector {
        id: Some("pg-1".to_owned()),
        ..PlacementGroupSelector::default()
    });
    assert_eq!(catalogs.catalog(&class, None), Err(NoCatalog::PlacementGroup));
    let placed = |strategy: &str| {
        let group = mk_group(strategy, 0);
        let catalog = catalogs.catalog(&class, Some(&group)).unwrap();
        let found = find(&catalog, "m5.large");
        let label = single_value(&found.requirements, keys::PLACEMENT_GROUP_ID).map(str::to_owned);
        (label, found.offerings.iter().any(|offering| offering.available))
    };
    assert_eq!(placed("cluster"), (Some("pg-1".to_owned()), true));
    assert_eq!(placed("unheard-of"), (Some("pg-1".to_owned()), false));
    class.spec.placement_group_selector = None;
    let plain = catalogs.catalog(&class, None).unwrap();
    assert_eq!(
        single_value(&find(&plain, "m5.large").requirements, keys::PLACEMENT_GROUP_ID),
        None
    );
}

#[test]
fn what_has_no_price_is_offered_for_whoever_sets_one_and_can_not_be_had_until_then() {
    let catalogs = mk_unpriced_catalogs(&["m5.large"]);
    catalogs.prices.set_on_demand([("m5.large".to_owned(), MicroUsd(200))].into());
    let by_zone = BTreeMap::from([("eu-central-1a".to_owned(), MicroUsd(80))]);
    catalogs.prices.set_spot([("m5.large".to_owned(), by_zone)].into());
    let mut class = mk_class();
    let in_b = |class: &EC2NodeClass| {
        let catalog = catalogs.catalog(class, None).unwrap();
        let offerings = find(&catalog, "m5.large").offerings.iter();
        let mut offerings = offerings
            .filter(|it| it.zone == "eu-central-1b" && it.capacity_type == CapacityType::Spot);
        let offering = offerings.next().expect("machines that run there are not drifted");
        (offering.available, offering.unpriced, offering.known_price())
    };
    assert_eq!(in_b(&class), (false, Some(true), None));
    class.spec.connection_tracking = Some(ConnectionTracking::default());
    class.spec.cpu_options = Some(CpuOptions { nested_virtualization: Some(Switch::Enabled) });
    assert_eq!(in_b(&class), (false, Some(false), None), "the class can't use it anyway");
}

#[test]
fn windows_costs_its_license_on_top_of_the_price_of_linux() {
    let catalogs = mk_catalogs(&["m5.large"]);
    let mut class = mk_class();
    class.spec.ami_family = Some(AmiFamily::Windows2022);
    let catalog = catalogs.catalog(&class, None).unwrap();
    let offerings = find(&catalog, "m5.large").offerings.iter();
    let prices: Vec<_> = offerings.map(|it| (it.capacity_type.as_str(), it.price.0)).collect();
    assert_eq!(
        prices,
        [("spot", 92_080), ("on-demand", 92_200), ("spot", 92_100), ("on-demand", 92_200)]
    );
}

#[test]
fn says_what_is_missing() {
    let catalogs = mk_catalogs(&["m5.large"]);
    let mut class = mk_class();
    class.status = None;
    assert_eq!(catalogs.catalog(&class, None), Err(NoCatalog::Subnets));
    let empty = Catalogs::new(catalogs.settings.clone());
    assert_eq!(empty.catalog(&mk_class(), None), Err(NoCatalog::Types));
    let unpriced = mk_unpriced_catalogs(&["m5.large"]);
    assert_eq!(unpriced.catalog(&mk_class(), None), Err(NoCatalog::Prices));
    unpriced.prices.fall_back();
    assert!(unpriced.catalog(&mk_class(), None).is_ok());
}

/// What `tenon simulate` plans on is computed from files; it has to be what the operator computes
/// from EC2's answers.
#[test]
fn a_file_with_the_same_types_gives_the_same_catalog() {
    // A file has no types that are sold in no way.
    let is_sold = |name: &&str| !type_info(name).usage_classes.is_empty();
    let names: Vec<&str> = facts::names().filter(is_sold).collect();
    let catalogs = mk_catalogs(&names);
    let mut class = mk_class();
    // Its prices are those of Linux.
    let computed = catalogs.catalog(&class, None).unwrap();
    let listed: Vec<InstanceType> = computed.instance_types.iter().map(as_in_a_file).collect();
    for family in [AmiFamily::Al2023, AmiFamily::Bottlerocket, AmiFamily::Windows2022] {
        class.spec.ami_family = Some(family);
        let computed = catalogs.catalog(&class, None).unwrap();
        let scope = ClassScope {
            class: &class.spec,
            subnets: &class.status.as_ref().unwrap().subnets,
            region: offered::region_of_zone("eu-central-1a"),
            described: &BTreeMap::new(),
            vm_memory_overhead: catalogs.settings.vm_memory_overhead,
            reserved_enis: catalogs.settings.reserved_enis,
            seen_memory: &BTreeMap::new(),
            reservations: &[],
            room: &BTreeMap::new(),
        };
        let from_file = offered::instance_types(&listed, &scope);
        assert_eq!(from_file.unknown, Vec::<String>::new());
        for (mine, theirs) in from_file.instance_types.iter().zip(&computed.instance_types) {
            assert_eq!(mine, theirs, "{} with {family:?}", theirs.name);
        }
        assert_eq!(from_file.instance_types.len(), names.len());
    }
}

/// What the kwok provider's format tells: name, EC2's processors and memory, and offerings.
fn as_in_a_file(kind: &InstanceType) -> InstanceType {
    let info = type_info(&kind.name);
    let offerings = kind.offerings.iter().map(|offering| Offering {
        requirements: Vec::new(),
        available: true,
        ..offering.clone()
    });
    InstanceType {
        name: kind.name.clone(),
        capacity: Resources {
            cpu: info.vcpus * 1000,
            memory: info.memory_mib << 20,
            pods: 110,
            ..Resources::default()
        },
        offerings: offerings.collect(),
        ..InstanceType::default()
    }
}
