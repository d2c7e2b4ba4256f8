use aws_sdk_ec2::Client;
use aws_sdk_ec2::operation::create_launch_template::CreateLaunchTemplateError;
use aws_smithy_mocks::mock;
use futures::future::join_all;

use super::*;
use crate::aws::tests::{SlowEc2, coded, mock_ec2};

fn request(name: &str) -> CreateLaunchTemplate {
    CreateLaunchTemplate {
        launch_template_name: name.to_owned(),
        ..CreateLaunchTemplate::default()
    }
}

fn over(ec2: &SlowEc2) -> Templates {
    Templates::new(ec2.client(), Arc::from("demo"))
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_claims_makes_one_call_per_template() {
    let ec2 = SlowEc2::new();
    let templates = over(&ec2);
    let requests: Vec<_> = (0..100).map(|number| request(&format!("lt-{}", number % 3))).collect();
    let made = join_all(requests.iter().map(|request| templates.ensure(request))).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    assert_eq!(ec2.calls("CreateLaunchTemplate"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_goes_away_takes_no_other_with_it() {
    let ec2 = SlowEc2::new();
    let (templates, wanted) = (over(&ec2), request("lt"));
    let goes = tokio::time::timeout(SlowEc2::LATENCY / 2, templates.ensure(&wanted));
    let stays = join_all((0..10).map(|_| templates.ensure(&wanted)));
    let (goes, stays) = tokio::join!(goes, stays);
    assert!(goes.is_err());
    assert!(stays.iter().all(Result::is_ok), "{stays:?}");
    assert_eq!(ec2.calls("CreateLaunchTemplate"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_by_those_who_waited_and_forgotten_then() {
    let refused = || CreateLaunchTemplateError::generic(coded("RequestLimitExceeded", "slow down"));
    let rule = mock!(Client::create_launch_template)
        .sequence()
        .error(refused)
        .output(|| {
            aws_sdk_ec2::operation::create_launch_template::CreateLaunchTemplateOutput::builder()
                .build()
        })
        .build();
    let templates = Templates::new(mock_ec2(&[&rule]), Arc::from("demo"));
    assert!(templates.ensure(&request("lt")).await.is_err());
    assert!(templates.ensure(&request("lt")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn claims_that_learn_of_the_same_loss_create_the_template_again_once() {
    let ec2 = SlowEc2::new();
    let (templates, wanted) = (over(&ec2), request("lt"));
    let gone = templates.ensure(&wanted).await.unwrap();
    let again = async |wait: u64| {
        tokio::time::sleep(Duration::from_secs(wait)).await;
        templates.invalidate("lt", gone);
        templates.ensure(&wanted).await
    };
    let made = join_all((0..10).map(again)).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    assert_eq!(ec2.calls("CreateLaunchTemplate"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_launch_during_the_deletion_of_its_template_waits_and_creates_it_again() {
    let ec2 = SlowEc2::new();
    let (templates, wanted) = (over(&ec2), request("lt"));
    templates.ensure(&wanted).await.unwrap();
    tokio::time::advance(TTL + Duration::from_secs(1)).await;
    let launch = async {
        tokio::time::sleep(SlowEc2::LATENCY / 2).await;
        templates.ensure(&wanted).await
    };
    let ((), made) = tokio::join!(templates.delete_unused(), launch);
    made.unwrap();
    assert_eq!(
        ec2.actions(),
        ["CreateLaunchTemplate", "DeleteLaunchTemplate", "CreateLaunchTemplate"]
    );
}
