use aws_sdk_ec2::operation::describe_subnets::DescribeSubnetsOutput;
use aws_smithy_mocks::{Rule, mock};

use super::*;
use crate::aws::tests::mock_ec2;

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
