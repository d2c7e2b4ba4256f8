use std::time::Duration;

use aws_sdk_ec2::operation::describe_subnets::DescribeSubnetsOutput;
use aws_smithy_mocks::{Rule, mock};
use aws_smithy_types::retry::RetryConfig;

use super::*;
use crate::aws::tests::{SlowEc2, mock_ec2};

fn page(asked_by: Option<&'static str>, subnet: &'static str, next: Option<&'static str>) -> Rule {
    mock!(Client::describe_subnets)
        .match_requests(move |input| input.next_token() == asked_by)
        .then_output(move || {
            DescribeSubnetsOutput::builder()
                .subnets(
                    sdk::Subnet::builder().subnet_id(subnet).availability_zone("zone-a").build(),
                )
                .set_next_token(next.map(str::to_owned))
                .build()
        })
}

#[tokio::test]
async fn pages_are_followed_until_there_is_no_token() {
    let rules = [
        page(None, "subnet-1", Some("second")),
        page(Some("second"), "subnet-2", Some("third")),
        page(Some("third"), "subnet-3", Some("")),
    ];
    let client = mock_ec2(&[&rules[0], &rules[1], &rules[2]]);
    let found = subnets(&client, &[]).await.unwrap();
    let ids: Vec<&str> = found.iter().map(|subnet| subnet.id.as_str()).collect();
    assert_eq!(ids, ["subnet-1", "subnet-2", "subnet-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_calls_is_as_fast_as_ec2_grants_and_no_faster() {
    let slow = SlowEc2::new();
    let ec2 = slow.client();
    let deleted =
        (0..60).map(|number| delete_launch_template(&ec2, if number % 2 == 0 { "a" } else { "b" }));
    for result in futures::future::join_all(deleted).await {
        result.unwrap();
    }
    let times = slow.times();
    assert_eq!(times[49], Duration::ZERO, "what was saved up");
    assert!(times[50] >= Duration::from_millis(199), "{:?}", times[50]);
    assert!((1.99..2.2).contains(&times[59].as_secs_f64()), "five a second: {:?}", times[59]);
}

#[tokio::test(start_paused = true)]
async fn throttled_attempts_that_the_sdk_repeats_slow_the_calls_that_follow() {
    let slow = SlowEc2::new();
    let ec2 = slow.client_with(RetryConfig::standard().with_max_attempts(3));
    slow.throttle(2);
    delete_launch_template(&ec2, "a").await.unwrap();
    assert_eq!(slow.calls("DeleteLaunchTemplate"), 3, "the third attempt succeeded");
    // The SDK waits between attempts for a time that it draws, in which some turns come back; most
    // of the burst does not.
    let started = tokio::time::Instant::now();
    let burst = (0..40).map(|_| delete_launch_template(&ec2, "b"));
    futures::future::join_all(burst).await;
    assert!(started.elapsed() > Duration::from_secs(4), "it is over: {:?}", started.elapsed());
}

#[tokio::test]
async fn placement_groups_are_asked_for_by_what_ec2_knows_them_by() {
    use aws_sdk_ec2::operation::describe_placement_groups::{
        DescribePlacementGroupsError, DescribePlacementGroupsInput, DescribePlacementGroupsOutput,
    };
    let answer = || {
        let group = sdk::PlacementGroup::builder().group_id("pg-1").partition_count(3);
        let group = group.strategy(sdk::PlacementStrategy::Partition).build();
        DescribePlacementGroupsOutput::builder().placement_groups(group).build()
    };
    // EC2 refuses filters that it does not know, and it knows none for the ID.
    let asks_for_available = |input: &DescribePlacementGroupsInput| {
        let filters: Vec<_> = input.filters().iter().filter_map(sdk::Filter::name).collect();
        filters == ["state"]
    };
    let by_id = mock!(Client::describe_placement_groups)
        .match_requests(move |input| {
            asks_for_available(input)
                && input.group_ids() == ["pg-1"]
                && input.group_names().is_empty()
        })
        .then_output(answer);
    let by_name = mock!(Client::describe_placement_groups)
        .match_requests(move |input| {
            asks_for_available(input)
                && input.group_names() == ["parts"]
                && input.group_ids().is_empty()
        })
        .then_output(answer);
    let gone = mock!(Client::describe_placement_groups)
        .match_requests(|input| input.group_names() == ["gone"])
        .then_error(|| {
            let code = "InvalidPlacementGroup.Unknown";
            DescribePlacementGroupsError::generic(
                aws_sdk_ec2::error::ErrorMetadata::builder().code(code).build(),
            )
        });
    let client = mock_ec2(&[&by_id, &by_name, &gone]);
    let group =
        PlacementGroup { id: "pg-1".to_owned(), strategy: "partition".to_owned(), partitions: 3 };
    for key in [GroupKey::Id("pg-1"), GroupKey::Name("parts")] {
        let found = placement_groups(&client, key).await.unwrap();
        assert_eq!(found, std::slice::from_ref(&group), "{key:?}");
    }
    assert_eq!(placement_groups(&client, GroupKey::Name("gone")).await.unwrap(), []);
}
