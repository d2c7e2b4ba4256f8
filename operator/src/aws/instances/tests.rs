use aws_sdk_ec2::Client;
use aws_sdk_ec2::operation::describe_instances::{
    DescribeInstancesError, DescribeInstancesInput, DescribeInstancesOutput,
};
use aws_sdk_ec2::operation::terminate_instances::{
    TerminateInstancesError, TerminateInstancesOutput,
};
use aws_sdk_ec2::types as sdk;
use aws_smithy_mocks::{Rule, mock};

use super::*;
use crate::aws::tests::{coded, mk_metrics, mock_ec2};

fn mk_instances(rules: &[&Rule]) -> Instances {
    Instances::new(mock_ec2(rules), Arc::from("demo"), mk_metrics(), Arc::default())
}

fn instance(id: &str) -> sdk::Instance {
    sdk::Instance::builder()
        .instance_id(id)
        .instance_type(sdk::InstanceType::M5Large)
        .state(sdk::InstanceState::builder().name(sdk::InstanceStateName::Running).build())
        .placement(sdk::Placement::builder().availability_zone("eu-central-1a").build())
        .build()
}

fn described(ids: &[&str]) -> DescribeInstancesOutput {
    let instances = ids.iter().map(|id| instance(id)).collect();
    DescribeInstancesOutput::builder()
        .reservations(sdk::Reservation::builder().set_instances(Some(instances)).build())
        .build()
}

#[tokio::test(start_paused = true)]
async fn readers_share_one_call_with_each_id_once() {
    let rule = mock!(Client::describe_instances)
        .match_requests(|input| input.instance_ids() == ["i-1", "i-2", "i-3"])
        .then_output(|| described(&["i-1", "i-2"]));
    let instances = mk_instances(&[&rule]);
    let (a, b, again, gone) = tokio::join!(
        instances.get("i-2"),
        instances.get("i-1"),
        instances.get("i-2"),
        instances.get("i-3")
    );
    assert_eq!(a.unwrap().unwrap().id, "i-2");
    assert_eq!(b.unwrap().unwrap().id, "i-1");
    assert_eq!(again.unwrap().unwrap().id, "i-2");
    assert_eq!(gone.unwrap(), None, "terminated: filtered out");
    assert_eq!(rule.num_calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_ec2_does_not_know_spoils_nothing_for_the_others() {
    let many = |input: &DescribeInstancesInput| input.instance_ids().contains(&"i-9".to_owned());
    let unknown = mock!(Client::describe_instances)
        .match_requests(many)
        .then_error(|| DescribeInstancesError::generic(coded("InvalidInstanceID.NotFound", "i-9")));
    let known = mock!(Client::describe_instances).then_output(|| described(&["i-1"]));
    let instances = mk_instances(&[&unknown, &known]);
    let (a, b) = tokio::join!(instances.get("i-1"), instances.get("i-9"));
    assert_eq!(a.unwrap().unwrap().id, "i-1");
    assert_eq!(b.unwrap(), None);
    assert_eq!(instances.get("i-9").await.unwrap(), None, "alone too");
}

#[tokio::test(start_paused = true)]
async fn what_was_listed_is_not_asked_for_again() {
    let rule = mock!(Client::describe_instances)
        .match_requests(|input| {
            input.filters().iter().any(|filter| {
                filter.name() == Some("tag:eks:eks-cluster-name") && filter.values() == ["demo"]
            })
        })
        .then_output(|| described(&["i-1"]));
    let instances = mk_instances(&[&rule]);
    assert_eq!(instances.list().await.unwrap().len(), 1);
    assert_eq!(instances.get_known("i-1").await.unwrap().unwrap().id, "i-1");
    assert_eq!(rule.num_calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn terminations_are_collected_and_what_was_not_taken_is_tried_alone() {
    let change = |id: &str| {
        sdk::InstanceStateChange::builder()
            .instance_id(id)
            .current_state(
                sdk::InstanceState::builder().name(sdk::InstanceStateName::ShuttingDown).build(),
            )
            .build()
    };
    let both = mock!(Client::terminate_instances)
        .match_requests(|input| input.instance_ids().len() == 2)
        .then_output(move || {
            TerminateInstancesOutput::builder().terminating_instances(change("i-1")).build()
        });
    let alone = mock!(Client::terminate_instances)
        .match_requests(|input| input.instance_ids() == ["i-2"])
        .then_output(|| TerminateInstancesOutput::builder().build());
    let instances = mk_instances(&[&both, &alone]);
    let mk = |id: &str| Instance { id: id.to_owned(), ..Instance::default() };
    let (first, second) = (mk("i-1"), mk("i-2"));
    let (a, b) = tokio::join!(instances.terminate(&first), instances.terminate(&second));
    assert!(a.is_ok() && b.is_ok());
    assert_eq!((both.num_calls(), alone.num_calls()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_termination_is_counted_with_the_id_of_its_zone() {
    let rule = mock!(Client::terminate_instances).then_error(|| {
        TerminateInstancesError::generic(coded("UnauthorizedOperation", "you may not"))
    });
    let shifts: Arc<ZonalShifts> = Arc::default();
    shifts.learn(&[tenon_crds::ec2nodeclass::Subnet {
        id: "subnet-a".to_owned(),
        zone: "eu-central-1a".to_owned(),
        zone_id: Some("euc1-az2".to_owned()),
    }]);
    let metrics = mk_metrics();
    let instances = Instances::new(mock_ec2(&[&rule]), Arc::from("demo"), metrics.clone(), shifts);
    for zone in ["eu-central-1a", "eu-central-1z"] {
        let instance =
            Instance { id: "i-1".to_owned(), zone: zone.to_owned(), ..Instance::default() };
        instances.terminate(&instance).await.unwrap_err();
    }
    assert_eq!(metrics.termination_failures.get(["eu-central-1a", "euc1-az2"]), 1);
    assert_eq!(metrics.termination_failures.get(["eu-central-1z", ""]), 1, "no subnet tells it");
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_shifted_zone_outlives_what_ec2_says() {
    let rule = mock!(Client::describe_instances)
        .sequence()
        .output(|| described(&["i-1"]))
        .output(|| DescribeInstancesOutput::builder().build())
        .output(|| DescribeInstancesOutput::builder().build())
        .build();
    let shifts: Arc<ZonalShifts> = Arc::default();
    shifts.learn(&[tenon_crds::ec2nodeclass::Subnet {
        id: "subnet-a".to_owned(),
        zone: "eu-central-1a".to_owned(),
        zone_id: Some("euc1-az2".to_owned()),
    }]);
    let instances =
        Instances::new(mock_ec2(&[&rule]), Arc::from("demo"), mk_metrics(), Arc::clone(&shifts));
    let listed = instances.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    let now = jiff::Timestamp::UNIX_EPOCH;
    let away = crate::aws::zonal_shift::Shift { away_from: "euc1-az2".to_owned(), until: None };
    shifts.set(&[away], now);
    assert_eq!(instances.list().await.unwrap(), listed, "EC2 did not list it");
    assert_eq!(instances.get("i-1").await.unwrap().as_ref(), listed.first(), "nor is it asked");
    assert!(instances.terminate(&listed[0]).await.is_err());
    assert!(instances.tag("i-1", &BTreeMap::new()).await.is_err());
    shifts.set(&[], now);
    assert_eq!(instances.list().await.unwrap(), [], "the shift has ended");
}
