use aws_sdk_arczonalshift::operation::get_managed_resource::GetManagedResourceOutput;
use aws_sdk_arczonalshift::types as sdk;
use aws_sdk_ec2::operation::describe_instances::DescribeInstancesOutput;
use aws_smithy_mocks::{Rule, mock};
use aws_smithy_types::DateTime;
use tenon_planner::snapshot::CapacityType;

use super::*;
use crate::aws::catalog::tests::{mk_catalogs, mk_class};
use crate::aws::tests::{mk_claim, mk_ready_provider, mock_arc};
use crate::cloud_provider::{CloudError, CloudProvider as _};

const NOW: &str = "2026-11-20T12:00:00Z";
const ARN: &str = "arn:aws:eks:eu-central-1:111122223333:cluster/demo";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn in_seconds(seconds: i64) -> Timestamp {
    now().checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap()
}

fn shift(zone_id: &str, seconds: Option<i64>) -> Shift {
    Shift { away_from: zone_id.to_owned(), until: seconds.map(in_seconds) }
}

fn ids(shifts: &ZonalShifts) -> Vec<String> {
    shifts.zone_ids().into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn a_shift_ends_by_its_time_or_when_it_is_not_told_of_any_more() {
    let shifts = ZonalShifts::default();
    shifts.set(&[shift("euc1-az1", Some(10)), shift("euc1-az2", None)], now());
    assert_eq!(ids(&shifts), ["euc1-az1", "euc1-az2"]);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(ids(&shifts), ["euc1-az2"], "by its time");
    shifts.set(&[shift("euc1-az3", Some(60)), shift("euc1-az1", Some(-1))], now());
    assert_eq!(ids(&shifts), ["euc1-az3"], "cancelled, or over when it was told");
    shifts.set(&[], now());
    assert_eq!(ids(&shifts), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn shifts_of_people_and_of_aws_count_when_they_are_applied() {
    let by_people = |zone: &str, status| {
        sdk::ZonalShiftInResource::builder()
            .applied_status(status)
            .zonal_shift_id("id")
            .resource_identifier(ARN)
            .away_from(zone)
            .expiry_time(DateTime::from_secs(in_seconds(600).as_second()))
            .start_time(DateTime::from_secs(0))
            .comment("a test")
            .build()
            .unwrap()
    };
    let by_aws = |zone: &str, status| {
        sdk::AutoshiftInResource::builder()
            .applied_status(status)
            .away_from(zone)
            .start_time(DateTime::from_secs(0))
            .build()
            .unwrap()
    };
    let rule = mock!(Client::get_managed_resource)
        .match_requests(|input| input.resource_identifier() == Some(ARN))
        .then_output(move || {
            GetManagedResourceOutput::builder()
                .set_applied_weights(Some([].into()))
                .zonal_shifts(by_people("euc1-az1", AppliedStatus::Applied))
                .zonal_shifts(by_people("euc1-az2", AppliedStatus::NotApplied))
                .autoshifts(by_aws("euc1-az3", AutoshiftAppliedStatus::Applied))
                .autoshifts(by_aws("euc1-az4", AutoshiftAppliedStatus::NotApplied))
                .build()
                .unwrap()
        });
    let found = ask(&mock_arc(&[&rule]), ARN).await.unwrap();
    assert_eq!(found, [shift("euc1-az1", Some(600)), shift("euc1-az3", None)]);
}

#[tokio::test(start_paused = true)]
async fn nothing_can_be_launched_where_a_shift_leads_away_from() {
    let catalogs = mk_catalogs(&["m5.large"]);
    let zones = || {
        let catalog = catalogs.catalog(&mk_class(), None).unwrap();
        let offerings = &catalog.instance_types[0].offerings;
        offerings
            .iter()
            .filter(|offering| offering.available && offering.capacity_type == CapacityType::Spot)
            .map(|offering| offering.zone.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(zones(), ["eu-central-1a", "eu-central-1b"]);
    catalogs.shifts.set(&[shift("euc1-az2", Some(60))], now());
    assert_eq!(zones(), ["eu-central-1b"]);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(zones(), ["eu-central-1a", "eu-central-1b"]);
}

/// EC2 that does not know any instance.
fn no_instances() -> Rule {
    mock!(aws_sdk_ec2::Client::describe_instances)
        .then_output(|| DescribeInstancesOutput::builder().build())
}

#[tokio::test(start_paused = true)]
async fn a_machine_in_a_shifted_zone_is_neither_terminated_nor_taken_for_gone() {
    let rule = no_instances();
    let provider = mk_ready_provider(&[&rule]);
    provider.catalogs.catalog(&mk_class(), None).unwrap();
    provider.zonal_shifts.set(&[shift("euc1-az2", Some(60))], now());
    let mut claim = mk_claim("a");
    let provider_id = "aws:///eu-central-1a/i-1";
    claim.status.get_or_insert_default().provider_id = Some(provider_id.to_owned());
    let refused = provider.delete(&claim).await;
    assert!(matches!(refused, Err(CloudError::Other { .. })), "{refused:?}");
    let unclear = provider.get(provider_id).await;
    assert!(matches!(unclear, Err(CloudError::Other { .. })), "{unclear:?}");
    let elsewhere = provider.get("aws:///eu-central-1b/i-2").await;
    assert!(matches!(elsewhere, Err(CloudError::NotFound(_))), "{elsewhere:?}");
    tokio::time::advance(Duration::from_secs(61)).await;
    let gone = provider.delete(&claim).await;
    assert!(matches!(gone, Err(CloudError::NotFound(_))), "{gone:?}");
}

#[test]
fn a_pool_is_told_when_it_could_launch_in_the_zone() {
    let subnets = mk_class().status.unwrap().subnets;
    let pool = |key: &str, values: &[&str]| -> NodePool {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "pool" },
            "spec": { "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                "requirements": [{ "key": key, "operator": "In", "values": values }],
            } } },
        }))
        .unwrap()
    };
    let any = pool(labels::ARCH, &["amd64"]);
    assert_eq!(reachable(&any, &subnets, "euc1-az2").as_deref(), Some("eu-central-1a"));
    assert_eq!(reachable(&any, &subnets, "euc1-az9"), None, "no subnet there");
    let only_b = pool(labels::ZONE, &["eu-central-1b"]);
    assert_eq!(reachable(&only_b, &subnets, "euc1-az2"), None);
    let by_id = pool(labels::aws::ZONE_ID, &["euc1-az2"]);
    assert_eq!(reachable(&by_id, &subnets, "euc1-az2").as_deref(), Some("eu-central-1a"));
}

#[test]
fn what_began_and_what_ended_is_told() {
    let zones = |zones: &[&str]| zones.iter().map(|&zone| zone.to_owned()).collect();
    let (before, after): (BTreeSet<String>, BTreeSet<String>) =
        (zones(&["a", "b"]), zones(&["b", "c"]));
    assert_eq!(news(&before, &after).collect::<Vec<_>>(), [("c", true), ("a", false)]);
}
