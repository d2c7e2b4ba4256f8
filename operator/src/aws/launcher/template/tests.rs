use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tenon_crds::ec2nodeclass::{
    BlockDevice, BlockDeviceMapping as ApiDisk, ConnectionTracking as ApiTracking, InterfaceType,
    NetworkInterface as ApiInterface,
};

use super::*;
use crate::aws::catalog::tests::{mk_catalogs, mk_class};
use crate::aws::launcher::reserved::Terms;
use crate::aws::tags::launch_tags;

struct Fixture {
    class: EC2NodeClass,
    cluster: ClusterFacts,
    labels: BTreeMap<String, String>,
    capacity_type: CapacityType,
    wants_efa: bool,
    reserved_capacity: bool,
}

impl Fixture {
    fn new() -> Self {
        Self {
            class: mk_class(),
            cluster: ClusterFacts {
                name: "my-cluster".to_owned(),
                endpoint: "https://example.com".to_owned(),
                ca_bundle: Some("Y2E=".to_owned()),
                service_cidr: Some("10.100.0.0/16".to_owned()),
                dns_ip: Some(IpAddr::from([10, 100, 0, 10])),
            },
            labels: [("karpenter.sh/nodepool".to_owned(), "default".to_owned())].into(),
            capacity_type: CapacityType::OnDemand,
            wants_efa: false,
            reserved_capacity: true,
        }
    }

    fn requests(
        &self,
        types: &[&str],
    ) -> Result<Vec<(CreateLaunchTemplate, Vec<String>)>, TemplateError> {
        let catalog = mk_catalogs(types).catalog(&mk_class(), None).unwrap();
        let tags = launch_tags(&self.class, "my-cluster", "default").unwrap();
        let made = templates(self.scope(&tags), &catalog.instance_types)?;
        Ok(made
            .into_iter()
            .map(|template| {
                let names =
                    template.instance_types.iter().map(|known| known.name.clone()).collect();
                (template.request, names)
            })
            .collect())
    }

    /// The launch template of machines in a reservation.
    fn reserved(&self, terms: Terms) -> LaunchTemplateData {
        let catalog = mk_catalogs(&["m5.large"]).catalog(&mk_class(), None).unwrap();
        let reservation = Some(Reservation { id: "cr-1".to_owned(), terms });
        let instance_type = &catalog.instance_types[0];
        let tags = launch_tags(&self.class, "my-cluster", "default").unwrap();
        let place = Place { instance_type, reservation: reservation.clone() };
        let mut made = templates(self.scope(&tags), [place, instance_type.into()]).unwrap();
        assert_eq!(made.len(), 2, "one with the reservation, one without");
        assert_eq!(made[1].reservation, reservation);
        made.remove(1).request.launch_template_data
    }

    fn scope<'a>(&'a self, tags: &'a Tags) -> TemplateScope<'a> {
        TemplateScope {
            class: &self.class,
            cluster: &self.cluster,
            region: "eu-central-1",
            tags,
            labels: &self.labels,
            taints: &[],
            startup_taints: &[],
            wants_efa: self.wants_efa,
            wants_enclave: false,
            tenancy: "default",
            capacity_type: self.capacity_type,
            reserved_capacity: self.reserved_capacity,
            placed: None,
        }
    }

    fn data(&self) -> LaunchTemplateData {
        self.requests(&["m5.large"]).unwrap().remove(0).0.launch_template_data
    }

    fn name(&self) -> String {
        self.requests(&["m5.large"]).unwrap().remove(0).0.launch_template_name
    }
}

#[test]
fn the_request_has_the_reference_shape() {
    let fixture = Fixture::new();
    let (mut request, _) = fixture.requests(&["m5.large"]).unwrap().remove(0);
    assert!(request.launch_template_name.starts_with("karpenter.k8s.aws/"));
    request.launch_template_name = "<name>".to_owned();
    request.launch_template_data.user_data = "<base64>".to_owned();
    insta::assert_json_snapshot!("create_launch_template", request);
}

#[test]
fn spot_requests_are_tagged_through_the_template() {
    let kinds = |capacity_type| {
        let data = Fixture { capacity_type, ..Fixture::new() }.data();
        data.tag_specifications.into_iter().map(|tags| tags.resource_type).collect::<Vec<_>>()
    };
    assert_eq!(kinds(CapacityType::OnDemand), ["network-interface"]);
    assert_eq!(kinds(CapacityType::Spot), ["network-interface", "spot-instances-request"]);
}

#[test]
fn types_with_the_same_image_and_pods_share_a_template() {
    let made = Fixture::new()
        .requests(&["m5.large", "c5.large", "m6g.large", "t3.large", "g4dn.xlarge"])
        .unwrap();
    let groups: Vec<(String, Vec<String>)> = made
        .into_iter()
        .map(|(request, names)| (request.launch_template_data.image_id, names))
        .collect();
    let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        groups,
        [
            ("ami-amd".to_owned(), strings(&["c5.large", "g4dn.xlarge", "m5.large"])),
            ("ami-amd".to_owned(), strings(&["t3.large"])),
            ("ami-arm".to_owned(), strings(&["m6g.large"])),
        ]
    );
}

#[test]
fn the_name_tells_the_content() {
    let name = Fixture::new().name();
    assert_eq!(Fixture::new().name(), name);
    let changes: [fn(&mut Fixture); 5] = [
        |fixture| fixture.class.spec.user_data = Some("x: y".to_owned()),
        |fixture| fixture.class.spec.detailed_monitoring = Some(true),
        |fixture| fixture.capacity_type = CapacityType::Spot,
        |fixture| {
            fixture.labels.insert("team".to_owned(), "a".to_owned());
        },
        |fixture| {
            fixture.class.spec.tags = Some([("a".to_owned(), "b".to_owned())].into());
        },
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut fixture = Fixture::new();
        change(&mut fixture);
        assert_ne!(fixture.name(), name, "change {index}");
    }
    let mut selectors = Fixture::new();
    selectors.class.spec.subnet_selector_terms =
        vec![tenon_crds::ec2nodeclass::SubnetSelectorTerm::default()];
    assert_eq!(selectors.name(), name, "what is resolved already does not count");
}

#[test]
fn user_data_says_pods_dns_and_how_the_machine_is_bought() {
    let fixture = Fixture { capacity_type: CapacityType::Spot, ..Fixture::new() };
    let user_data = String::from_utf8(BASE64.decode(fixture.data().user_data).unwrap()).unwrap();
    for part in [
        "maxPods: 29",
        "10.100.0.10",
        "karpenter.sh/capacity-type=spot",
        "karpenter.sh/nodepool=default",
        "karpenter.sh/unregistered",
    ] {
        assert!(user_data.contains(part), "{part} in {user_data}");
    }
}

#[test]
fn disks_of_the_node_class_replace_those_of_the_family() {
    let mut fixture = Fixture::new();
    fixture.class.spec.block_device_mappings = Some(vec![ApiDisk {
        device_name: Some("/dev/xvda".to_owned()),
        ebs: Some(BlockDevice {
            volume_size: Some("100G".to_owned()),
            iops: Some(0),
            throughput: Some(250),
            kms_key_id: Some("key".to_owned()),
            delete_on_termination: Some(true),
            ..BlockDevice::default()
        }),
        root_volume: None,
    }]);
    let disks = fixture.data().block_device_mappings;
    insta::assert_json_snapshot!(disks, @r#"
    [
      {
        "DeviceName": "/dev/xvda",
        "Ebs": {
          "DeleteOnTermination": true,
          "KmsKeyId": "key",
          "Throughput": 250,
          "VolumeSize": 94
        }
      }
    ]
    "#);
}

#[test]
fn network_interfaces_follow_the_node_class_the_claim_and_the_ip_family() {
    let mut fixture = Fixture::new();
    fixture.class.spec.associate_public_ip_address = Some(false);
    fixture.class.spec.ip_prefix_count = Some(2);
    fixture.class.spec.connection_tracking =
        Some(ApiTracking { udp_timeout: Some(30), ..ApiTracking::default() });
    insta::assert_json_snapshot!("interface_ipv4", fixture.data().network_interfaces);
    fixture.cluster.dns_ip = Some("fd00::a".parse().unwrap());
    insta::assert_json_snapshot!("interface_ipv6", fixture.data().network_interfaces);

    let mut fixture = Fixture { wants_efa: true, ..Fixture::new() };
    let (request, _) = fixture.requests(&["p4d.24xlarge"]).unwrap().remove(0);
    insta::assert_json_snapshot!("interfaces_efa", request.launch_template_data.network_interfaces);

    fixture.class.spec.network_interfaces = Some(vec![
        ApiInterface {
            network_card_index: 0,
            device_index: 0,
            interface_type: InterfaceType::Interface,
        },
        ApiInterface {
            network_card_index: 1,
            device_index: 1,
            interface_type: InterfaceType::EfaOnly,
        },
    ]);
    insta::assert_json_snapshot!("interfaces_configured", fixture.data().network_interfaces);
}

#[test]
fn bottlerocket_is_told_its_directories_before_1_46() {
    let spec = |alias: Option<&str>| {
        let term = tenon_crds::ec2nodeclass::AmiSelectorTerm {
            alias: alias.map(str::to_owned),
            ..Default::default()
        };
        EC2NodeClassSpec { ami_selector_terms: vec![term], ..EC2NodeClassSpec::default() }
    };
    let amis = |name: &str| {
        vec![Ami { id: "ami-1".to_owned(), name: Some(name.to_owned()), ..Ami::default() }]
    };
    let none: Vec<Ami> = Vec::new();
    assert!(!names_local_storage_dirs(&spec(Some("bottlerocket@latest")), &none));
    assert!(!names_local_storage_dirs(&spec(Some("bottlerocket@v1.46.0")), &none));
    assert!(!names_local_storage_dirs(&spec(Some("bottlerocket@1.50.1")), &none));
    assert!(names_local_storage_dirs(&spec(Some("bottlerocket@v1.45.9")), &none));
    let named = "bottlerocket-aws-k8s-1.33-x86_64-v1.47.0-abc";
    assert!(!names_local_storage_dirs(&spec(None), &amis(named)));
    assert!(names_local_storage_dirs(&spec(None), &amis("mine")));
}

#[test]
fn a_class_that_is_not_resolved_cannot_launch() {
    let fails = |change: fn(&mut EC2NodeClassStatus)| {
        let mut fixture = Fixture::new();
        change(fixture.class.status.as_mut().unwrap());
        fixture.requests(&["m5.large"]).unwrap_err().to_string()
    };
    assert_eq!(fails(|status| status.amis.clear()), "no amis exist given constraints");
    assert_eq!(
        fails(|status| {
            status.amis.remove(0);
        }),
        "no instance types satisfy requirements of amis ami-arm"
    );
    assert_eq!(
        fails(|status| status.security_groups.clear()),
        "no security groups are present in the status"
    );
}

#[test]
fn machines_go_into_the_reservation_that_they_are_for_and_never_into_another() {
    let specification = |data: &LaunchTemplateData| {
        serde_json::to_value(data.capacity_reservation_specification.as_ref().unwrap()).unwrap()
    };
    let fixture = Fixture::new();
    assert_eq!(
        specification(&fixture.data()),
        serde_json::json!({ "CapacityReservationPreference": "none" })
    );
    for (terms, market) in [
        (Terms::OnDemand, None),
        (Terms::CapacityBlock, Some("capacity-block")),
        (Terms::Interruptible, Some("interruptible-capacity-reservation")),
    ] {
        let data = fixture.reserved(terms);
        assert_eq!(
            specification(&data),
            serde_json::json!({
                "CapacityReservationPreference": "capacity-reservations-only",
                "CapacityReservationTarget": { "CapacityReservationId": "cr-1" },
            })
        );
        let bought = data.instance_market_options.map(|options| options.market_type);
        assert_eq!(bought.as_deref(), market);
    }
}

#[test]
fn without_the_feature_it_is_up_to_ec2_whether_an_open_reservation_is_used() {
    let data = Fixture { reserved_capacity: false, ..Fixture::new() }.data();
    assert_eq!(data.capacity_reservation_specification, None);
}
