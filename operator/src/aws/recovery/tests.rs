use aws_sdk_ec2::Client;
use aws_sdk_ec2::operation::describe_instances::DescribeInstancesOutput;
use aws_sdk_ec2::types as sdk;
use aws_smithy_mocks::{Rule, mock};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use tenon_crds::{Operator, Requirement};

use super::*;
use crate::aws::catalog::tests::{mk_catalogs, mk_class};
use crate::aws::tests::{mk_claim, mk_metrics, mock_ec2};
use crate::testing::apiserver::ApiServer;

const CREATED: &str = "2026-11-20T12:00:00Z";
const LAUNCHED: i64 = 5;
const LED: i64 = 20;

fn after(seconds: i64) -> Timestamp {
    let created: Timestamp = CREATED.parse().unwrap();
    created.checked_add(SignedDuration::from_secs(seconds)).unwrap()
}

fn claim(name: &str) -> NodeClaim {
    let mut claim = mk_claim(name);
    claim.metadata.creation_timestamp = Some(Time(after(0)));
    claim
}

fn instance(id: &str, claim: Option<&str>) -> sdk::Instance {
    let tag = |key: &str, value: &str| sdk::Tag::builder().key(key).value(value).build();
    let mut tags = vec![tag("karpenter.sh/nodepool", "default")];
    tags.push(tag("karpenter.k8s.aws/ec2nodeclass", "default"));
    tags.extend(claim.map(|claim| tag("karpenter.sh/nodeclaim", claim)));
    let placement = sdk::Placement::builder().availability_zone("eu-central-1a").build();
    let running = sdk::InstanceState::builder().name(sdk::InstanceStateName::Running).build();
    sdk::Instance::builder()
        .instance_id(id)
        .instance_type(sdk::InstanceType::M5Large)
        .placement(placement)
        .state(running)
        .launch_time(aws_smithy_types::DateTime::from_secs(after(LAUNCHED).as_second()))
        .set_tags(Some(tags))
        .build()
}

fn described(instances: &[(&'static str, Option<&'static str>)]) -> Rule {
    let instances = instances.to_vec();
    mock!(Client::describe_instances).then_output(move || {
        let found = instances.iter().map(|&(id, claim)| instance(id, claim)).collect();
        let group = sdk::Reservation::builder().set_instances(Some(found)).build();
        DescribeInstancesOutput::builder().reservations(group).build()
    })
}

struct Fixture {
    recovery: Recovery,
    instances: Instances,
    class: EC2NodeClass,
    api: ApiServer,
}

impl Fixture {
    fn new(rule: &Rule) -> Self {
        let recovery = Recovery::default();
        recovery.lead_since(after(LED));
        let instances =
            Instances::new(mock_ec2(&[rule]), "demo".into(), mk_metrics(), Arc::default());
        Self { recovery, instances, class: mk_class(), api: ApiServer::default() }
    }

    /// From now on the API server says that the claim has the instance.
    fn gave(&self, claim: &str, instance: &str) {
        let provider_id = format!("aws:///eu-central-1a/{instance}");
        self.api.put::<NodeClaim>(json!({
            "metadata": {"name": claim, "uid": format!("uid-{claim}")},
            "status": {"providerID": provider_id},
        }));
    }

    async fn look(&self, claim: &NodeClaim) -> Result<Option<Instance>, RecoveryError> {
        let catalog = mk_catalogs(&["m5.large"]).catalog(&self.class, None).unwrap();
        let scope = AdoptionScope {
            kubernetes: &self.api.client(),
            instances: &self.instances,
            class: &self.class,
            catalog: &catalog,
        };
        self.recovery.find_or_adopt(claim, scope).await
    }

    async fn adopt(&self, claim: &NodeClaim) -> Option<String> {
        self.look(claim).await.unwrap().map(|instance| instance.id)
    }
}

#[tokio::test(start_paused = true)]
async fn claims_that_were_launched_together_share_out_what_was_launched() {
    let rule = described(&[("i-1", None), ("i-2", None), ("i-3", None), ("i-4", Some("d"))]);
    let fixture = Fixture::new(&rule);
    fixture.gave("other", "i-2");
    let claims = ["a", "b", "c", "d"].map(claim);
    let (a, b, c, d) = tokio::join!(
        fixture.adopt(&claims[0]),
        fixture.adopt(&claims[1]),
        fixture.adopt(&claims[2]),
        fixture.adopt(&claims[3])
    );
    assert_eq!((a.as_deref(), b.as_deref()), (Some("i-1"), Some("i-3")));
    assert_eq!(c, None, "i-2 is another claim's");
    assert_eq!(d.as_deref(), Some("i-4"), "it carries the name");
    assert_eq!(rule.num_calls(), 1, "one list for all");
    assert_eq!(fixture.adopt(&claims[0]).await.as_deref(), Some("i-1"), "it stays with its claim");
}

#[tokio::test(start_paused = true)]
async fn a_claim_adopts_only_what_it_waited_for_and_can_use() {
    let rule = described(&[("i-1", None)]);
    let fixture = Fixture::new(&rule);
    let mut later = claim("later");
    later.metadata.creation_timestamp = Some(Time(after(LAUNCHED + 1)));
    assert_eq!(fixture.adopt(&later).await, None, "it was created after the launch");
    let mut other = claim("other");
    other.metadata.labels = Some([("karpenter.sh/nodepool".to_owned(), "other".to_owned())].into());
    assert_eq!(fixture.adopt(&other).await, None, "another NodePool");
    let mut elsewhere = claim("elsewhere");
    elsewhere.spec.requirements =
        [Requirement::new(labels::ZONE, Operator::In, ["eu-central-1b"])].into();
    assert_eq!(fixture.adopt(&elsewhere).await, None, "another zone");
    let mut large = claim("large");
    Arc::make_mut(&mut large.spec.resources.requests)
        .insert("cpu".to_owned(), "3".parse().unwrap());
    assert_eq!(fixture.adopt(&large).await, None, "too small");
    assert_eq!(fixture.adopt(&claim("a")).await.as_deref(), Some("i-1"));
}

#[tokio::test(start_paused = true)]
async fn what_this_process_launched_in_any_of_its_terms_is_not_adopted() {
    let rule = described(&[("i-1", None)]);
    let adopts = async |terms: &[(i64, Option<i64>)]| {
        let fixture = Fixture::new(&rule);
        fixture.recovery.terms.lock().clear();
        for &(began, ended) in terms {
            fixture.recovery.lead_since(after(began));
            if let Some(ended) = ended {
                fixture.recovery.lead_until(after(ended));
            }
        }
        fixture.adopt(&claim("a")).await.is_some()
    };
    assert!(!adopts(&[(LAUNCHED, None)]).await, "it leads since then");
    assert!(adopts(&[(LAUNCHED + 1, None)]).await, "another launched it before");
    assert!(!adopts(&[(0, Some(LED)), (LED, None)]).await, "it led before");
    assert!(!adopts(&[(0, Some(1)), (LED, None)]).await, "asked for at the end of its term");
    assert!(adopts(&[(-120, Some(-60)), (LED, None)]).await, "long after its term");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_machine_the_watch_has_not_told_of_gets_no_other() {
    let rule = described(&[("i-1", None), ("i-2", None)]);
    let fixture = Fixture::new(&rule);
    fixture.gave("a", "i-2");
    let error = fixture.look(&claim("a")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "NodeClaim a has instance i-2, which the watch has not reported yet"
    );
    // Asked at the same time as others: theirs is what is left.
    assert_eq!(fixture.adopt(&claim("b")).await.as_deref(), Some("i-1"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_adopted_while_the_api_server_does_not_say_what_is_taken() {
    let rule = described(&[("i-1", None)]);
    let mut fixture = Fixture::new(&rule);
    fixture.api = ApiServer::answering(|_| (500, json!({"kind": "Status", "code": 500})));
    let error = fixture.look(&claim("a")).await.unwrap_err();
    assert!(matches!(error, RecoveryError::Kubernetes(_)), "{error}");
}

#[test]
fn claims_from_before_this_process_led_may_have_been_launched() {
    let recovery = Recovery::default();
    assert!(!recovery.may_have_been_launched(&claim("a")), "it does not lead");
    recovery.lead_since(after(LED));
    assert!(recovery.may_have_been_launched(&claim("a")));
    let mut later = claim("b");
    later.metadata.creation_timestamp = Some(Time(after(LED + 60)));
    assert!(!recovery.may_have_been_launched(&later));
}
