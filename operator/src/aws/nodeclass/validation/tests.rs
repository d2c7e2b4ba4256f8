use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_ec2::operation::create_fleet::{CreateFleetError, CreateFleetInput};
use aws_sdk_ec2::operation::create_launch_template::{
    CreateLaunchTemplateError, CreateLaunchTemplateOutput,
};
use aws_sdk_ec2::operation::run_instances::RunInstancesError;
use aws_smithy_mocks::{Rule, mock};
use tenon_crds::conditions::ec2nodeclass as types;
use tenon_crds::{Condition, ConditionStatus, Timestamp};

use super::*;
use crate::aws::catalog::tests::{mk_catalogs, mk_class};
use crate::aws::tests::{coded, mk_facts, mock_ec2, mock_eks};

fn resolved_class() -> EC2NodeClass {
    let mut class = mk_class();
    class.status.as_mut().unwrap().conditions = [
        types::AMIS_READY,
        types::SUBNETS_READY,
        types::SECURITY_GROUPS_READY,
        types::INSTANCE_PROFILE_READY,
    ]
    .map(|type_| Condition {
        last_transition_time: Timestamp::from_second(0),
        message: String::new(),
        observed_generation: Some(1),
        reason: type_.to_owned(),
        status: ConditionStatus::True,
        type_: type_.to_owned(),
    })
    .into();
    class
}

struct Fixture {
    validator: Validator,
    templates: Templates,
    cluster: Cluster,
    catalog: Arc<Catalog>,
}

impl Fixture {
    fn new(rules: &[&Rule], dry_runs: bool) -> Self {
        let ec2 = mock_ec2(rules);
        Self {
            validator: Validator::new(ec2.clone(), "eu-central-1".to_owned(), dry_runs),
            templates: Templates::new(ec2, Arc::from("demo")),
            cluster: Cluster::known(mock_eks(&[]), mk_facts(), "1.33"),
            catalog: mk_catalogs(&["c5.large", "g4dn.xlarge", "m5.large"])
                .catalog(&mk_class(), None)
                .unwrap(),
        }
    }

    async fn validate(&self, class: &EC2NodeClass) -> Verdict {
        self.judge(class).await.verdict
    }

    async fn judge(&self, class: &EC2NodeClass) -> Judgement {
        let input = ValidationInput {
            class,
            catalog: Some(&self.catalog),
            node_pools: &[],
            placement_group: None,
        };
        self.validator.validate(input, &self.cluster, &self.templates).await
    }
}

fn template() -> Rule {
    mock!(aws_sdk_ec2::Client::create_launch_template)
        .then_output(|| CreateLaunchTemplateOutput::builder().build())
}

fn fleet(code: &'static str, message: &'static str) -> Rule {
    mock!(aws_sdk_ec2::Client::create_fleet)
        .match_requests(|input| input.dry_run() == Some(true))
        .then_error(move || CreateFleetError::generic(coded(code, message)))
}

fn instances(code: &'static str, message: &'static str) -> Rule {
    mock!(aws_sdk_ec2::Client::run_instances)
        .match_requests(|input| input.dry_run() == Some(true))
        .then_error(move || RunInstancesError::generic(coded(code, message)))
}

const WOULD_WORK: (&str, &str) = ("DryRunOperation", "Request would have succeeded");
const DENIED: (&str, &str) = ("UnauthorizedOperation", "You are not authorized");

#[tokio::test(start_paused = true)]
async fn a_class_that_aws_would_launch_with_is_valid_and_not_tried_again() {
    let (template, fleet) = (template(), fleet(WOULD_WORK.0, WOULD_WORK.1));
    let instances = instances(WOULD_WORK.0, WOULD_WORK.1);
    let fixture = Fixture::new(&[&template, &fleet, &instances], true);
    let class = resolved_class();
    assert_eq!(fixture.validate(&class).await, Verdict::Valid);
    assert_eq!(fixture.validate(&class).await, Verdict::Valid);
    assert_eq!((template.num_calls(), fleet.num_calls(), instances.num_calls()), (1, 1, 1));
    let mut changed = class.clone();
    changed.spec.user_data = Some("#!/bin/bash".to_owned());
    fixture.validate(&changed).await;
    assert_eq!(fleet.num_calls(), 2, "another spec is another question");
    tokio::time::advance(Duration::from_secs(31 * 60)).await;
    fixture.validate(&changed).await;
    assert_eq!(fleet.num_calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_reason() {
    let reason = async |rules: [&Rule; 3]| match Fixture::new(&rules, true)
        .validate(&resolved_class())
        .await
    {
        Verdict::Invalid { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let refused_template = mock!(aws_sdk_ec2::Client::create_launch_template)
        .then_error(|| CreateLaunchTemplateError::generic(coded(DENIED.0, DENIED.1)));
    let (template, fleet_ok) = (template(), fleet(WOULD_WORK.0, WOULD_WORK.1));
    let instances_ok = instances(WOULD_WORK.0, WOULD_WORK.1);
    let fleet_denied = fleet(DENIED.0, DENIED.1);
    let instances_denied = instances(DENIED.0, DENIED.1);
    assert_eq!(
        reason([&refused_template, &fleet_ok, &instances_ok]).await,
        "CreateLaunchTemplateAuthCheckFailed"
    );
    assert_eq!(
        reason([&template, &fleet_denied, &instances_ok]).await,
        "CreateFleetAuthCheckFailed"
    );
    assert_eq!(
        reason([&template, &fleet_ok, &instances_denied]).await,
        "RunInstancesAuthCheckFailed"
    );
    let too_large = mock!(aws_sdk_ec2::Client::create_launch_template).then_error(|| {
        CreateLaunchTemplateError::generic(coded(
            "InvalidUserData.Malformed",
            "User data is limited to 16384 bytes",
        ))
    });
    assert_eq!(reason([&too_large, &fleet_ok, &instances_ok]).await, "UserDataSizeLimitExceeded");
}

#[tokio::test(start_paused = true)]
async fn one_subnet_that_works_is_enough() {
    let first = mock!(aws_sdk_ec2::Client::run_instances)
        .match_requests(|input| {
            input.network_interfaces().first().and_then(|nic| nic.subnet_id()) == Some("subnet-a")
        })
        .then_error(|| RunInstancesError::generic(coded(DENIED.0, DENIED.1)));
    let (template, fleet) = (template(), fleet(WOULD_WORK.0, WOULD_WORK.1));
    let second = instances(WOULD_WORK.0, WOULD_WORK.1);
    let fixture = Fixture::new(&[&template, &fleet, &first, &second], true);
    assert_eq!(fixture.validate(&resolved_class()).await, Verdict::Valid);
}

#[tokio::test(start_paused = true)]
async fn what_passes_by_itself_is_no_verdict_and_asked_again_in_seconds() {
    for (code, message) in [
        ("InvalidParameterValue", "Invalid IAM Instance Profile name"),
        ("RequestLimitExceeded", "slow down"),
    ] {
        let (template, fleet) = (template(), fleet(code, message));
        let fixture = Fixture::new(&[&template, &fleet], true);
        let first = fixture.judge(&resolved_class()).await;
        assert_eq!((first.verdict, first.again), (Verdict::Failed, Some(Duration::from_secs(2))));
        assert_eq!(first.profile_unknown, code == "InvalidParameterValue");
        fixture.judge(&resolved_class()).await;
        assert_eq!(fleet.num_calls(), 1, "the wait is kept, whatever wakes the controller");
        tokio::time::advance(Duration::from_secs(2)).await;
        fixture.judge(&resolved_class()).await;
        assert_eq!(fleet.num_calls(), 2);
    }
}

/// Answers fleets with a refusal until it is told that the cause was mended.
fn fleet_until(mended: &Arc<AtomicBool>) -> [Rule; 2] {
    [(false, DENIED), (true, WOULD_WORK)].map(|(wanted, (code, message))| {
        let mended = Arc::clone(mended);
        mock!(aws_sdk_ec2::Client::create_fleet)
            .match_requests(move |_: &CreateFleetInput| mended.load(Ordering::Relaxed) == wanted)
            .then_error(move || CreateFleetError::generic(coded(code, message)))
    })
}

#[tokio::test(start_paused = true)]
async fn a_mended_role_is_noticed_within_a_minute_however_long_it_was_broken() {
    for broken_for in [Duration::from_secs(5), Duration::from_secs(3 * 3600)] {
        let mended = Arc::new(AtomicBool::new(false));
        let [refused, works] = fleet_until(&mended);
        let (template, instances) = (template(), instances(WOULD_WORK.0, WOULD_WORK.1));
        let fixture = Fixture::new(&[&template, &refused, &works, &instances], true);
        let class = resolved_class();
        let started = tokio::time::Instant::now();
        let mut mended_at = None;
        loop {
            let judgement = fixture.judge(&class).await;
            if judgement.verdict == Verdict::Valid {
                break;
            }
            assert!(
                matches!(
                    judgement.verdict,
                    Verdict::Invalid { reason: "CreateFleetAuthCheckFailed", .. }
                ),
                "{judgement:?}"
            );
            if started.elapsed() >= broken_for {
                mended.store(true, Ordering::Relaxed);
                mended_at.get_or_insert_with(tokio::time::Instant::now);
            }
            tokio::time::advance(judgement.again.expect("a refusal is asked about again")).await;
        }
        let healed_after = mended_at.unwrap().elapsed();
        assert!(healed_after <= Duration::from_secs(60), "{healed_after:?}");
        assert!(
            refused.num_calls() as u64 <= 8 + broken_for.as_secs() / 60,
            "{} calls in {broken_for:?}",
            refused.num_calls()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_a_user_names_and_that_does_not_exist_is_told() {
    let (template, fleet) = (template(), fleet(WOULD_WORK.0, WOULD_WORK.1));
    let instances = instances("InvalidParameterValue", "Invalid IAM Instance Profile name");
    let fixture = Fixture::new(&[&template, &fleet, &instances], true);
    let mut class = resolved_class();
    class.spec.instance_profile = Some("mine".to_owned());
    let judgement = fixture.judge(&class).await;
    assert!(
        matches!(
            &judgement.verdict,
            Verdict::Invalid { reason: "InstanceProfileNotFound", message } if message.contains("mine")
        ),
        "{judgement:?}"
    );
    assert_eq!(judgement.again, Some(Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn a_template_that_was_deleted_behind_our_back_is_made_again_for_the_next_try() {
    let (template, gone) = (template(), fleet("InvalidLaunchTemplateName.NotFoundException", ""));
    let fixture = Fixture::new(&[&template, &gone], true);
    for tries in 1..4 {
        let judgement = fixture.judge(&resolved_class()).await;
        assert_eq!(template.num_calls(), tries);
        tokio::time::advance(judgement.again.unwrap()).await;
    }
}

#[test]
fn the_order_of_subnets_asks_no_new_question() {
    let class = resolved_class();
    let mut reordered = class.clone();
    reordered.status.as_mut().unwrap().subnets.reverse();
    assert_eq!(fingerprint(&class), fingerprint(&reordered));
    reordered.status.as_mut().unwrap().subnets.pop();
    assert_ne!(fingerprint(&class), fingerprint(&reordered));
}

#[tokio::test(start_paused = true)]
async fn without_dry_runs_only_tags_and_dependencies_count() {
    let fixture = Fixture::new(&[], false);
    assert_eq!(fixture.validate(&resolved_class()).await, Verdict::Valid);
    let mut tagged = resolved_class();
    tagged.spec.tags = Some([("karpenter.sh/nodepool".to_owned(), "x".to_owned())].into());
    assert!(matches!(
        fixture.validate(&tagged).await,
        Verdict::Invalid { reason: "TagValidationFailed", .. }
    ));
    let mut waiting = resolved_class();
    waiting.status.as_mut().unwrap().conditions.pop();
    assert!(matches!(
        fixture.validate(&waiting).await,
        Verdict::Unknown { reason: "DependenciesNotReady", .. }
    ));
}

#[test]
fn the_smallest_ordinary_type_of_a_node_pool_is_tried() {
    let names = ["c5.12xlarge", "c5.2xlarge", "g4dn.xlarge", "m5.large", "m5.metal", "r5.2xlarge"];
    let catalog = mk_catalogs(&names).catalog(&mk_class(), None).unwrap();
    let status = mk_class().status.unwrap();
    let pool = |key: &str, values: &[&str]| {
        let mut pool: NodePool = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "pool" },
            "spec": { "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                "requirements": [],
            } } },
        }))
        .unwrap();
        pool.spec.template.spec.requirements = vec![tenon_crds::Requirement::new(
            key,
            tenon_crds::Operator::In,
            values.iter().copied(),
        )];
        pool
    };
    let of = |values: &[&str]| pool(tenon_crds::labels::INSTANCE_TYPE, values);
    let chosen = |pools: &[NodePool]| choose(&catalog, &status, pools).unwrap().name.clone();
    assert_eq!(chosen(&[]), "m5.large", "a common one");
    assert_eq!(chosen(&[of(&["c5.12xlarge", "r5.2xlarge", "c5.2xlarge"])]), "c5.2xlarge");
    assert_eq!(chosen(&[of(&["g4dn.xlarge", "c5.12xlarge"])]), "c5.12xlarge", "no GPU");
    assert_eq!(chosen(&[of(&["g4dn.xlarge"])]), "g4dn.xlarge");
    assert_eq!(chosen(&[of(&["c5.12xlarge"]), of(&["r5.2xlarge"])]), "r5.2xlarge", "of any pool");
    let categories = pool(aws::INSTANCE_CATEGORY, &["c"]);
    assert_eq!(chosen(&[categories]), "c5.2xlarge", "and not the first by name");
}
