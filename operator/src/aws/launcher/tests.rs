use aws_sdk_ec2::Client;
use aws_sdk_ec2::operation::create_fleet::{CreateFleetError, CreateFleetInput, CreateFleetOutput};
use aws_sdk_ec2::operation::create_launch_template::CreateLaunchTemplateOutput;
use aws_sdk_ec2::operation::delete_launch_template::DeleteLaunchTemplateOutput;
use aws_sdk_ec2::types as sdk;
use aws_smithy_mocks::{Rule, mock};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::body::SdkBody;
use parking_lot::Mutex;

use super::*;
use crate::aws::catalog::Catalogs;
use crate::aws::catalog::tests::{mk_catalogs, mk_class};
use crate::aws::tests::{coded, mk_claim, mk_facts, mk_metrics, mock_ec2};

struct Fixture {
    launcher: Launcher,
    catalogs: Catalogs,
    class: EC2NodeClass,
    cluster: ClusterFacts,
}

impl Fixture {
    fn new(rules: &[&Rule]) -> Self {
        let launcher = Launcher::new(
            mock_ec2(rules),
            "eu-central-1".to_owned(),
            Arc::from("demo"),
            Duration::from_secs(60),
            true,
            mk_metrics(),
        );
        Self {
            launcher,
            catalogs: mk_catalogs(&["m5.large"]),
            class: mk_class(),
            cluster: mk_facts(),
        }
    }

    async fn launch(&self, claim: &NodeClaim) -> Result<LaunchedInstance, CloudError> {
        let catalog = self.catalogs.catalog(&self.class, None).unwrap();
        let input = LaunchInput {
            claim,
            class: &self.class,
            catalog: &catalog,
            cluster: &self.cluster,
            placement_group: None,
        };
        self.launcher.launch(&input, &self.catalogs).await
    }
}

fn create_template() -> Rule {
    mock!(Client::create_launch_template)
        .then_output(|| CreateLaunchTemplateOutput::builder().build())
}

fn place(zone: &str) -> sdk::LaunchTemplateAndOverridesResponse {
    sdk::LaunchTemplateAndOverridesResponse::builder()
        .overrides(
            sdk::FleetLaunchTemplateOverrides::builder()
                .instance_type(sdk::InstanceType::M5Large)
                .availability_zone(zone)
                .subnet_id("subnet-a")
                .build(),
        )
        .build()
}

fn answer(ids: &[&str], errors: &[(&str, &str)]) -> CreateFleetOutput {
    let mut output = CreateFleetOutput::builder().fleet_id("fleet-1");
    if !ids.is_empty() {
        output = output.instances(
            sdk::CreateFleetInstance::builder()
                .launch_template_and_overrides(place("eu-central-1a"))
                .set_instance_ids(Some(ids.iter().map(|&id| id.to_owned()).collect()))
                .build(),
        );
    }
    for (code, zone) in errors {
        output = output.errors(
            sdk::CreateFleetError::builder()
                .error_code(*code)
                .error_message("none left")
                .launch_template_and_overrides(place(zone))
                .build(),
        );
    }
    output.build()
}

/// Answers by number of the call, and keeps what was asked.
fn fleets(
    answers: impl Fn(usize) -> CreateFleetOutput + Send + Sync + 'static,
) -> (Rule, Arc<Mutex<Vec<CreateFleetInput>>>) {
    let asked: Arc<Mutex<Vec<CreateFleetInput>>> = Arc::default();
    let kept = Arc::clone(&asked);
    let rule = mock!(Client::create_fleet).then_compute_output(move |input| {
        let mut kept = kept.lock();
        kept.push(input.clone());
        answers(kept.len() - 1)
    });
    (rule, asked)
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_the_instance_of_the_fleet_and_its_name_as_a_tag() {
    let (fleet, asked) = fleets(|_| answer(&["i-1"], &[]));
    let template = create_template();
    let fixture = Fixture::new(&[&fleet, &template]);
    let launched = fixture.launch(&mk_claim("claim-1")).await.unwrap();
    assert_eq!(launched.instance.id, "i-1");
    assert_eq!(launched.instance.zone, "eu-central-1a");
    assert_eq!(launched.capacity_type, CapacityType::Spot);
    let asked = asked.lock();
    let input = &asked[0];
    assert_eq!(input.target_capacity_specification().unwrap().total_target_capacity, Some(1));
    let tag = |kind: sdk::ResourceType| {
        input
            .tag_specifications()
            .iter()
            .find(|tags| tags.resource_type == Some(kind.clone()))
            .unwrap()
            .tags()
            .iter()
            .any(|tag| {
                tag.key() == Some("karpenter.sh/nodeclaim") && tag.value() == Some("claim-1")
            })
    };
    assert!(tag(sdk::ResourceType::Instance));
    assert!(!tag(sdk::ResourceType::Volume));
    assert_eq!(input.client_token().unwrap().len(), 64);
}

#[tokio::test(start_paused = true)]
async fn claims_that_ask_for_the_same_share_one_fleet() {
    let (fleet, asked) =
        fleets(|_| answer(&["i-1", "i-2"], &[("InsufficientInstanceCapacity", "eu-central-1b")]));
    let template = create_template();
    let fixture = Fixture::new(&[&fleet, &template]);
    let claims = ["a", "b", "c"].map(mk_claim);
    let (a, b, c) = tokio::join!(
        fixture.launch(&claims[0]),
        fixture.launch(&claims[1]),
        fixture.launch(&claims[2])
    );
    assert_eq!(a.unwrap().instance.id, "i-1");
    assert_eq!(b.unwrap().instance.id, "i-2");
    assert!(matches!(c, Err(CloudError::InsufficientCapacity(_))), "there were two for three");
    let asked = asked.lock();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].target_capacity_specification().unwrap().total_target_capacity, Some(3));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_had_is_not_asked_for_again() {
    let (fleet, asked) = fleets(|call| match call {
        0 => answer(
            &[],
            &[
                ("InsufficientInstanceCapacity", "eu-central-1a"),
                ("UnfulfillableCapacity", "eu-central-1b"),
            ],
        ),
        _ => answer(&["i-1"], &[]),
    });
    let template = create_template();
    let fixture = Fixture::new(&[&fleet, &template]);
    let first = fixture.launch(&mk_claim("a")).await;
    assert!(matches!(first, Err(CloudError::InsufficientCapacity(_))), "{first:?}");
    let second = fixture.launch(&mk_claim("b")).await.unwrap();
    assert_eq!(second.capacity_type, CapacityType::OnDemand, "what is left");
    let asked = asked.lock();
    assert_eq!(asked[0].launch_template_configs()[0].overrides().len(), 2);
    assert!(asked[1].on_demand_options().is_some());
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_with_the_id_of_their_zone() {
    let (fleet, _) = fleets(|_| answer(&["i-1"], &[("UnfulfillableCapacity", "eu-central-1b")]));
    let template = create_template();
    let fixture = Fixture::new(&[&fleet, &template]);
    fixture.launch(&mk_claim("claim-1")).await.unwrap();
    let (reason, _) = launch_reason("UnfulfillableCapacity", "none left");
    let counted = |zone_id| {
        let labels = ["eu-central-1b", zone_id, "spot", reason];
        fixture.launcher.metrics.launch_failures.get(labels)
    };
    assert_eq!((counted("euc1-az3"), counted("")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_error_beside_an_instance_is_remembered_all_the_same() {
    let (fleet, _) =
        fleets(|_| answer(&["i-1"], &[("InsufficientInstanceCapacity", "eu-central-1b")]));
    let template = create_template();
    let fixture = Fixture::new(&[&fleet, &template]);
    fixture.launch(&mk_claim("a")).await.unwrap();
    let now = fixture.catalogs.unavailable.now();
    assert!(now.contains("m5.large", "eu-central-1b", CapacityType::Spot, &[], None));
    assert!(!now.contains("m5.large", "eu-central-1a", CapacityType::Spot, &[], None));
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_gone_is_created_again_once() {
    let gone =
        || CreateFleetError::generic(coded("InvalidLaunchTemplateName.NotFoundException", "gone"));
    let template = create_template();
    let fleet =
        mock!(Client::create_fleet).sequence().error(gone).output(|| answer(&["i-1"], &[])).build();
    let fixture = Fixture::new(&[&fleet, &template]);
    assert_eq!(fixture.launch(&mk_claim("a")).await.unwrap().instance.id, "i-1");
    assert_eq!((fleet.num_calls(), template.num_calls()), (2, 2));

    let template = create_template();
    let fleet = mock!(Client::create_fleet).then_error(gone);
    let fixture = Fixture::new(&[&fleet, &template]);
    let error = fixture.launch(&mk_claim("a")).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Create { reason, .. } if reason == "LaunchTemplateNotFound"),
        "{error:?}"
    );
    assert_eq!(fleet.num_calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_becomes_the_reason_of_the_condition() {
    let template = create_template();
    let fleet = mock!(Client::create_fleet).then_error(|| {
        CreateFleetError::generic(coded("UnauthorizedOperation", "You are not authorized"))
    });
    let fixture = Fixture::new(&[&fleet, &template]);
    let error = fixture.launch(&mk_claim("a")).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Create { reason, .. } if reason == "Unauthorized"),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_is_repeated_with_the_same_token() {
    let tokens: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&tokens);
    let keep = move |input: &CreateFleetInput| {
        kept.lock().push(input.client_token().unwrap_or_default().to_owned());
        true
    };
    let template = create_template();
    let fleet = mock!(Client::create_fleet)
        .match_requests(keep)
        .sequence()
        .error(|| CreateFleetError::generic(coded("InternalError", "try again")))
        .output(|| answer(&[], &[("InsufficientInstanceCapacity", "eu-central-1a")]))
        .output(|| answer(&["i-1"], &[]))
        .build();
    let fixture = Fixture::new(&[&fleet, &template]);
    let claim = mk_claim("a");
    assert!(fixture.launch(&claim).await.is_err());
    assert!(fixture.launch(&claim).await.is_err());
    assert!(fixture.launch(&claim).await.is_ok());
    let tokens = tokens.lock();
    assert_eq!(tokens[0], tokens[1], "nobody knows what became of the first");
    assert_ne!(tokens[1], tokens[2], "the second was answered");
}

#[tokio::test(start_paused = true)]
async fn a_template_is_created_once_and_deleted_when_nobody_uses_it() {
    let (fleet, _) = fleets(|_| answer(&["i-1"], &[]));
    let template = create_template();
    let deleted = mock!(Client::delete_launch_template)
        .then_output(|| DeleteLaunchTemplateOutput::builder().build());
    let fixture = Fixture::new(&[&fleet, &template, &deleted]);
    fixture.launch(&mk_claim("a")).await.unwrap();
    tokio::time::advance(Duration::from_secs(50)).await;
    fixture.launch(&mk_claim("b")).await.unwrap();
    assert_eq!(template.num_calls(), 1);
    tokio::time::advance(Duration::from_secs(50)).await;
    fixture.launcher.templates.delete_unused().await;
    assert_eq!(deleted.num_calls(), 0, "used 50 seconds ago");
    tokio::time::advance(Duration::from_secs(11)).await;
    fixture.launcher.templates.delete_unused().await;
    assert_eq!(deleted.num_calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shared_call_without_an_answer_is_repeated_as_it_was_for_each_of_its_claims() {
    let calls: Arc<Mutex<Vec<CreateFleetInput>>> = Arc::default();
    let kept = Arc::clone(&calls);
    let keep = move |input: &CreateFleetInput| {
        kept.lock().push(input.clone());
        true
    };
    let template = create_template();
    let fleet = mock!(Client::create_fleet)
        .match_requests(keep)
        .sequence()
        .error(|| CreateFleetError::generic(coded("ServiceUnavailable", "try again")))
        .output(|| answer(&["i-1", "i-2"], &[]))
        .output(|| answer(&["i-1", "i-2"], &[]))
        .build();
    let fixture = Fixture::new(&[&fleet, &template]);
    let claims = ["a", "b"].map(mk_claim);
    let (a, b) = tokio::join!(fixture.launch(&claims[0]), fixture.launch(&claims[1]));
    assert!(a.is_err() && b.is_err());
    assert!(fixture.launcher.is_unfinished("uid-a"));
    // Meanwhile the offerings have changed, and the claims don't come at the same time any more.
    fixture.catalogs.unavailable.mark_offering(
        "m5.large",
        "eu-central-1a",
        CapacityType::Spot,
        None,
        "x",
    );
    let resume = async |uid: &str| {
        let resumed = fixture.launcher.resume(uid, &fixture.catalogs).await;
        resumed.unwrap().unwrap().instance.id
    };
    assert_eq!(resume("uid-b").await, "i-2");
    assert_eq!(resume("uid-a").await, "i-1");
    assert!(!fixture.launcher.is_unfinished("uid-a"));
    let calls = calls.lock();
    assert_eq!(calls[0], calls[1]);
    assert_eq!(calls[0], calls[2]);
}

#[tokio::test(start_paused = true)]
async fn throttling_is_told_with_its_own_reason_and_the_request_id() {
    let template = create_template();
    let fleet = mock!(Client::create_fleet).then_http_response(|| {
        let body = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.</Message></Error></Errors><RequestID>req-1</RequestID></Response>";
        let mut response = HttpResponse::new(503_u16.try_into().unwrap(), SdkBody::from(body));
        response.headers_mut().insert("x-amzn-requestid", "req-1");
        response
    });
    let fixture = Fixture::new(&[&fleet, &template]);
    let error = fixture.launch(&mk_claim("a")).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Create { reason, .. } if reason == "RequestLimitExceeded"),
        "{error:?}"
    );
    let text = crate::text::chain(&error);
    assert!(text.contains("CreateFleet failed with RequestLimitExceeded"), "{text}");
    assert!(text.contains("request id req-1"), "{text}");
    assert!(!fixture.launcher.is_unfinished("uid-a"), "EC2 did not look at it");
}

/// A fixture with a reservation of m5.large in zone a.
fn with_reservation(rules: &[&Rule], left: u32) -> Fixture {
    let mut fixture = Fixture::new(rules);
    let reservation = reserved::tests::reservation_of("cr-1", reserved::Terms::OnDemand);
    fixture.class.status.as_mut().unwrap().capacity_reservations.push(reservation);
    fixture.catalogs.reservations.observe("cr-1", left);
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_machine_in_a_reservation_says_which() {
    let (fleet, asked) = fleets(|_| answer(&["i-1"], &[]));
    let template = create_template();
    let fixture = with_reservation(&[&fleet, &template], 1);
    let launched = fixture.launch(&mk_claim("a")).await.unwrap();
    assert_eq!(launched.capacity_type, CapacityType::Reserved);
    assert_eq!(launched.reservation.unwrap().id, "cr-1");
    let asked = asked.lock();
    assert_eq!(asked[0].launch_template_configs().len(), 1);
    assert_eq!(asked[0].launch_template_configs()[0].overrides().len(), 1, "where it is");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_turns_out_to_be_full_says_nothing_about_other_offerings() {
    let (fleet, _) = fleets(|call| match call {
        0 => answer(&[], &[("ReservationCapacityExceeded", "eu-central-1a")]),
        _ => answer(&["i-1"], &[]),
    });
    let template = create_template();
    let fixture = with_reservation(&[&fleet, &template], 1);
    let first = fixture.launch(&mk_claim("a")).await;
    assert!(matches!(first, Err(CloudError::InsufficientCapacity(_))), "{first:?}");
    assert_eq!(fixture.catalogs.reservations.left("cr-1"), 0);
    let now = fixture.catalogs.unavailable.now();
    for capacity_type in [CapacityType::Reserved, CapacityType::OnDemand] {
        assert!(!now.contains("m5.large", "eu-central-1a", capacity_type, &[], None));
    }
    let second = fixture.launch(&mk_claim("b")).await.unwrap();
    assert_eq!((second.capacity_type, second.reservation), (CapacityType::Spot, None));
}

#[tokio::test(start_paused = true)]
async fn claims_that_wait_for_the_same_fleet_hold_one_request() {
    let (fleet, _) = fleets(|_| answer(&["i-1"], &[]));
    let template = create_template();
    let fixture = Fixture::new(&[&fleet, &template]);
    let claims: Vec<NodeClaim> =
        (0..100).map(|number| mk_claim(&format!("claim-{number}"))).collect();
    let launches = futures::future::join_all(claims.iter().map(|claim| fixture.launch(claim)));
    let mut launches = std::pin::pin!(launches);
    let open = tokio::time::timeout(Duration::from_millis(10), &mut launches).await;
    assert!(open.is_err());
    assert_eq!(fixture.launcher.fleets.holders(), [100]);
    launches.await;
    assert_eq!(fixture.launcher.fleets.holders(), [0; 0], "nothing is kept");
}
