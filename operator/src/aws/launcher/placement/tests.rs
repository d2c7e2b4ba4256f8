use aws_sdk_ec2::Client;
use aws_sdk_ec2::operation::describe_instances::DescribeInstancesOutput;
use aws_sdk_ec2::types as sdk;
use aws_smithy_mocks::mock;
use serde_json::json;
use tenon_crds::ec2nodeclass::PlacementGroupSelector;
use tenon_crds::labels::LabelRules;
use tenon_crds::{Operator, Requirement};
use tenon_planner::Policy;
use tenon_planner::snapshot::{CapacityType, Catalog, NodeClassRef};

use super::super::filters::{Wanted, candidates};
use super::*;
use crate::aws::catalog::Catalogs;
use crate::aws::catalog::tests::{mk_catalogs, mk_class, mk_group};
use crate::aws::tests::{mk_claim, mk_metrics, mock_ec2};
use crate::state::change::{Change, Object};
use crate::state::cluster::Cluster;
use crate::testing::idle;

fn wanted(operator: Operator, values: &[&str]) -> Wanted {
    let values = values.iter().copied();
    let requirement = Requirement::new(aws::PLACEMENT_GROUP_PARTITION, operator, values);
    Wanted { requirements: Requirements::from_api(&[requirement]), ..Wanted::default() }
}

fn catalog(catalogs: &Catalogs) -> std::sync::Arc<Catalog> {
    let mut class = mk_class();
    class.spec.placement_group_selector = Some(PlacementGroupSelector::default());
    catalogs.catalog(&class, Some(&mk_group("partition", 3))).unwrap()
}

fn placed(catalogs: &Catalogs, wanted: &Wanted) -> Option<(Option<i32>, usize)> {
    let catalog = catalog(catalogs);
    let mut candidates = candidates(&catalog, wanted).ok()?;
    let placed = place(&mk_group("partition", 3), &wanted.requirements, &mut candidates);
    Some((placed.partition, candidates.len()))
}

#[test]
fn a_claim_is_launched_into_the_first_partition_that_it_allows() {
    let catalogs = mk_catalogs(&["m5.large"]);
    let chosen = |operator, values: &[&str]| {
        placed(&catalogs, &wanted(operator, values)).map(|(partition, _)| partition)
    };
    assert_eq!(chosen(Operator::In, &["3", "2"]), Some(Some(2)));
    assert_eq!(chosen(Operator::NotIn, &["1"]), Some(Some(2)));
    assert_eq!(chosen(Operator::Gt, &["2"]), Some(Some(3)));
    assert_eq!(chosen(Operator::Exists, &[]), Some(None), "EC2 spreads what may go anywhere");
    assert_eq!(chosen(Operator::In, &["4"]), None, "there are three");
}

#[tokio::test(start_paused = true)]
async fn what_one_partition_lacks_can_be_had_in_the_others() {
    let catalogs = mk_catalogs(&["m5.large", "m5.xlarge"]);
    let group = placement_scope("pg-1", Some("2"));
    for zone in ["eu-central-1a", "eu-central-1b"] {
        for kind in [CapacityType::Spot, CapacityType::OnDemand] {
            catalogs.unavailable.mark_offering("m5.large", zone, kind, Some(&group), "ICE");
        }
    }
    let one = wanted(Operator::In, &["2"]);
    assert_eq!(placed(&catalogs, &one), Some((Some(2), 1)), "the other type");
    let two = wanted(Operator::In, &["2", "3"]);
    assert_eq!(placed(&catalogs, &two), Some((Some(3), 2)), "the cheapest type decides");
    let offered = catalog(&catalogs);
    let large = &offered.instance_types[0];
    let of = |available: bool| {
        let offerings = large.offerings.iter().filter(|offering| offering.available == available);
        offerings.map(|offering| partitions_of(offering).join(",")).collect::<BTreeSet<_>>()
    };
    assert!(of(true).contains("1,3"), "{:?}", of(true));
    assert!(of(false).contains("2"), "machines that run there are still priced");
}

#[tokio::test(start_paused = true)]
async fn the_partition_that_ec2_chose_is_read_from_the_instance() {
    let answers = std::sync::atomic::AtomicI32::new(0);
    let rule = mock!(Client::describe_instances).then_compute_output(move |_| {
        let number = answers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let placement = sdk::Placement::builder()
            .availability_zone("eu-central-1a")
            .set_partition_number((number > 0).then_some(3));
        let instance = sdk::Instance::builder()
            .instance_id("i-1")
            .instance_type(sdk::InstanceType::M5Large)
            .state(sdk::InstanceState::builder().name(sdk::InstanceStateName::Running).build())
            .placement(placement.build());
        let reservation = sdk::Reservation::builder().instances(instance.build()).build();
        DescribeInstancesOutput::builder().reservations(reservation).build()
    });
    let shifts = std::sync::Arc::default();
    let instances = Instances::new(mock_ec2(&[&rule]), "demo".into(), mk_metrics(), shifts);
    let progress = async |claim: &NodeClaim| {
        let hook = hook(&instances, claim).await;
        hook.map(|hook| (hook.name, hook.progress.unwrap()))
    };
    let mut claim = mk_claim("a");
    assert_eq!(progress(&claim).await, None, "in no placement group");
    let labels = claim.metadata.labels.get_or_insert_default();
    labels.insert(aws::PLACEMENT_GROUP_ID.to_owned(), "pg-1".to_owned());
    assert_eq!(progress(&claim).await, None, "in one without partitions");
    let labels = claim.metadata.labels.get_or_insert_default();
    labels.insert(aws::PLACEMENT_GROUP_PARTITION.to_owned(), UNKNOWN_PARTITION.to_owned());
    let pending = (HOOK, HookProgress::Pending(AGAIN));
    assert_eq!(progress(&claim).await, Some(pending.clone()), "not launched");
    claim.status.get_or_insert_default().provider_id = Some("aws:///eu-central-1a/i-1".to_owned());
    assert_eq!(progress(&claim).await, Some(pending), "EC2 does not tell yet");
    let learnt = [(aws::PLACEMENT_GROUP_PARTITION.to_owned(), "3".to_owned())];
    assert_eq!(progress(&claim).await, Some((HOOK, HookProgress::Done(learnt.into()))));
    let labels = claim.metadata.labels.get_or_insert_default();
    labels.insert(aws::PLACEMENT_GROUP_PARTITION.to_owned(), "3".to_owned());
    assert_eq!(progress(&claim).await, None, "known");
}

/// The partitions that launches ask for, of three pods that are to be in different ones.
fn planned(catalogs: &Catalogs, constraint: &serde_json::Value) -> Vec<Vec<String>> {
    let mut cluster = Cluster::new(&[crate::aws::KIND], LabelRules::aws());
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let mut pool = idle::pool("default", json!({}));
    pool["spec"]["template"]["spec"]["nodeClassRef"] = class;
    let pool = serde_json::from_value(pool).unwrap();
    cluster.apply(Change::Applied(Object::NodePool(Box::new(pool))));
    for name in ["a", "b", "c"] {
        let mut pod = idle::pending(name, "500m");
        pod["metadata"]["labels"] = json!({"app": "db"});
        pod["spec"]["topologySpreadConstraints"] = json!([constraint]);
        let pod = serde_json::from_value(pod).unwrap();
        cluster.apply(Change::Applied(Object::Pod(Box::new(pod))));
    }
    let offered = catalog(catalogs);
    let now = jiff::Timestamp::UNIX_EPOCH;
    let snapshot = cluster.snapshot(&|_: &NodeClassRef| Some(std::sync::Arc::clone(&offered)), now);
    let plan = tenon_planner::provision(&snapshot, &Policy::default(), now, 1, &());
    let asked = plan.launches.iter().map(|launch| {
        let of_partition =
            |it: &&tenon_planner::snapshot::Requirement| it.key == aws::PLACEMENT_GROUP_PARTITION;
        let asked = launch.requirements.iter().find(of_partition);
        asked.map(|it| it.values.clone()).unwrap_or_default()
    });
    let mut asked: Vec<_> = asked.collect();
    asked.sort();
    asked
}

#[test]
fn pods_can_be_spread_over_partitions() {
    let catalogs = mk_catalogs(&["m5.large"]);
    let constraint = json!({
        "maxSkew": 1, "topologyKey": aws::PLACEMENT_GROUP_PARTITION, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}},
    });
    assert_eq!(planned(&catalogs, &constraint), [["1"], ["2"], ["3"]]);
}
