//! SDK clients whose answers are scripted, and tests of the provider as the operator sees it.

use std::time::Duration;

use aws_credential_types::Credentials;
use aws_sdk_ec2::config::{BehaviorVersion, Region};
use aws_smithy_mocks::{MockResponseInterceptor, Rule, RuleMode, create_mock_http_client};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::error::ErrorMetadata;
use aws_smithy_types::retry::RetryConfig;
use parking_lot::Mutex;
use tenon_crds::labels::aws as keys;
use tenon_crds::{Condition, NodeClaimSpec, Timestamp};
use tokio::time::Instant;

use super::catalog::tests::{mk_catalogs, mk_class, mk_unpriced_catalogs};
use super::user_data::ClusterFacts;
use super::*;
use crate::cloud_provider::CloudProvider;
use crate::testing::bench::Bench;

/// A client of an SDK crate that is answered by rules: the first rule that matches counts.
macro_rules! mock_client {
    ($sdk:ident, $rules:expr) => {{
        let rules: &[&Rule] = $rules;
        let mut interceptor = MockResponseInterceptor::new().rule_mode(RuleMode::MatchAny);
        for rule in rules {
            interceptor = interceptor.with_rule(rule);
        }
        let config = $sdk::config::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .retry_config(RetryConfig::disabled())
            .http_client(create_mock_http_client())
            .interceptor(interceptor)
            .build();
        $sdk::Client::from_conf(config)
    }};
}

/// EC2, answered by rules.
pub(super) fn mock_ec2(rules: &[&Rule]) -> ec2::Ec2 {
    ec2::Ec2::new(mock_client!(aws_sdk_ec2, rules).config().to_builder())
}

/// IAM, answered by rules.
pub(super) fn mock_iam(rules: &[&Rule]) -> aws_sdk_iam::Client {
    mock_client!(aws_sdk_iam, rules)
}

/// Systems Manager, answered by rules.
pub(super) fn mock_ssm(rules: &[&Rule]) -> aws_sdk_ssm::Client {
    mock_client!(aws_sdk_ssm, rules)
}

/// Zonal shifts, answered by rules.
pub(super) fn mock_arc(rules: &[&Rule]) -> aws_sdk_arczonalshift::Client {
    mock_client!(aws_sdk_arczonalshift, rules)
}

/// S3, answered by rules.
pub(super) fn mock_s3(rules: &[&Rule]) -> aws_sdk_s3::Client {
    mock_client!(aws_sdk_s3, rules)
}

/// EKS, answered by rules.
pub(super) fn mock_eks(rules: &[&Rule]) -> aws_sdk_eks::Client {
    mock_client!(aws_sdk_eks, rules)
}

/// EC2 whose answers take a while and say that all went well: calls that are made at the same time
/// are under way at the same time, as in reality.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowEc2 {
    actions: Arc<Mutex<Vec<(Instant, String)>>>,
    to_throttle: Arc<Mutex<u32>>,
}

impl SlowEc2 {
    /// How long an answer takes.
    pub(super) const LATENCY: Duration = Duration::from_millis(200);

    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn client(&self) -> ec2::Ec2 {
        self.client_with(RetryConfig::disabled())
    }

    pub(super) fn client_with(&self, retries: RetryConfig) -> ec2::Ec2 {
        let connector = SharedHttpConnector::new(self.clone());
        let config = aws_sdk_ec2::config::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .retry_config(retries)
            .http_client(http_client_fn(move |_, _| connector.clone()));
        ec2::Ec2::new(config)
    }

    /// Throttles the next calls.
    pub(super) fn throttle(&self, count: u32) {
        *self.to_throttle.lock() = count;
    }

    /// When the first calls were made, since the very first.
    pub(super) fn times(&self) -> Vec<Duration> {
        let actions = self.actions.lock();
        let first = actions.first().map(|(at, _)| *at);
        first.map_or_else(Vec::new, |first| actions.iter().map(|(at, _)| *at - first).collect())
    }

    /// What was called, in order.
    pub(super) fn actions(&self) -> Vec<String> {
        self.actions.lock().iter().map(|(_, action)| action.clone()).collect()
    }

    /// How often something was called.
    pub(super) fn calls(&self, action: &str) -> usize {
        self.actions().iter().filter(|called| *called == action).count()
    }
}

impl HttpConnector for SlowEc2 {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = String::from_utf8_lossy(request.body().bytes().unwrap_or_default()).into_owned();
        let action = body.split('&').find_map(|pair| pair.strip_prefix("Action="));
        let action = action.unwrap_or_default().to_owned();
        self.actions.lock().push((Instant::now(), action.clone()));
        let mut to_throttle = self.to_throttle.lock();
        let (status, body) = if *to_throttle > 0 {
            *to_throttle -= 1;
            let error =
                "<Error><Code>RequestLimitExceeded</Code><Message>slow down</Message></Error>";
            (503_u16, format!("<Response><Errors>{error}</Errors></Response>"))
        } else {
            (200, format!("<{action}Response></{action}Response>"))
        };
        HttpConnectorFuture::new(async move {
            tokio::time::sleep(Self::LATENCY).await;
            Ok(HttpResponse::new(status.try_into().expect("a status"), SdkBody::from(body)))
        })
    }
}

/// An error as AWS answers it.
pub(super) fn coded(code: &str, message: &str) -> ErrorMetadata {
    ErrorMetadata::builder().code(code).message(message).build()
}

/// Metrics of a registry of their own.
pub(super) fn mk_metrics() -> AwsMetrics {
    AwsMetrics::new(&Metrics::new())
}

/// What machines are told about the cluster.
pub(super) fn mk_facts() -> ClusterFacts {
    ClusterFacts {
        name: "demo".to_owned(),
        endpoint: "https://example.com".to_owned(),
        ca_bundle: Some("Y2E=".to_owned()),
        service_cidr: Some("10.100.0.0/16".to_owned()),
        dns_ip: None,
    }
}

/// A claim of the class `default` in the pool `default`.
pub(super) fn mk_claim(name: &str) -> NodeClaim {
    let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
    claim.metadata.uid = Some(format!("uid-{name}"));
    claim.metadata.labels =
        Some([("karpenter.sh/nodepool".to_owned(), "default".to_owned())].into());
    claim.spec.node_class_ref.group = KIND.group.to_owned();
    claim.spec.node_class_ref.kind = KIND.kind.to_owned();
    claim.spec.node_class_ref.name = "default".to_owned();
    claim
}

fn class_with_ready(status: ConditionStatus, observed_generation: i64) -> EC2NodeClass {
    let mut class = mk_class();
    class.status.as_mut().unwrap().conditions = vec![Condition {
        last_transition_time: Timestamp::from_second(0),
        message: "SubnetsReady=False".to_owned(),
        observed_generation: Some(observed_generation),
        reason: "UnhealthyDependents".to_owned(),
        status,
        type_: "Ready".to_owned(),
    }];
    class
}

#[test]
fn only_a_ready_class_that_was_looked_at_since_its_last_change_can_launch() {
    assert!(check_ready(&class_with_ready(ConditionStatus::True, 1)).is_ok());
    let not_ready =
        |class: &EC2NodeClass| matches!(check_ready(class), Err(CloudError::NodeClassNotReady(_)));
    assert!(not_ready(&class_with_ready(ConditionStatus::False, 1)));
    assert!(not_ready(&class_with_ready(ConditionStatus::True, 0)), "stale");
    let unknown = |class: &EC2NodeClass| match check_ready(class) {
        Err(CloudError::Create { reason, .. }) => reason == "NodeClassReadinessUnknown",
        _ => false,
    };
    assert!(unknown(&class_with_ready(ConditionStatus::Unknown, 1)));
    assert!(unknown(&mk_class()), "no condition yet");
}

#[test]
fn an_instance_is_presented_with_the_labels_of_its_type() {
    let class = mk_class();
    let catalog = mk_catalogs(&["m5.large"]).catalog(&class, None).unwrap();
    let found = ec2::Instance {
        id: "i-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "eu-central-1b".to_owned(),
        state: "running".to_owned(),
        image_id: "ami-amd".to_owned(),
        spot: true,
        tenancy: Some("default".to_owned()),
        tags: [("karpenter.sh/nodepool", "default"), ("karpenter.sh/nodeclaim", "claim-1")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..ec2::Instance::default()
    };
    let shown = conversion::instance(&found, catalog.instance_types.first(), Some(&class));
    assert_eq!(shown.provider_id, "aws:///eu-central-1b/i-1");
    assert_eq!(shown.claim.as_deref(), Some("claim-1"));
    let label = |key: &str| shown.labels.get(key).map(String::as_str);
    assert_eq!(label("karpenter.sh/capacity-type"), Some("spot"));
    assert_eq!(label("topology.kubernetes.io/zone"), Some("eu-central-1b"));
    assert_eq!(label("topology.k8s.aws/zone-id"), Some("euc1-az3"));
    assert_eq!(label("karpenter.k8s.aws/instance-tenancy"), Some("default"));
    assert_eq!(label("karpenter.k8s.aws/instance-family"), Some("m5"));
    assert_eq!(label("karpenter.k8s.aws/capacity-reservation-id"), None);
    assert_eq!(label("karpenter.sh/nodepool"), Some("default"));

    let unknown = conversion::instance(&found, None, None);
    assert_eq!(unknown.labels.len(), 5, "what the instance itself says: {:?}", unknown.labels);
}

#[test]
fn a_machine_in_a_partition_is_labelled_with_it_or_waits_for_it() {
    let mut class = mk_class();
    class.spec.placement_group_selector =
        Some(tenon_crds::ec2nodeclass::PlacementGroupSelector::default());
    let catalogs = mk_catalogs(&["m5.large"]);
    let of = |strategy: &str, partitions, partition| {
        let group = catalog::tests::mk_group(strategy, partitions);
        let catalog = catalogs.catalog(&class, Some(&group)).unwrap();
        let found = ec2::Instance {
            instance_type: "m5.large".to_owned(),
            zone: "eu-central-1a".to_owned(),
            partition,
            ..ec2::Instance::default()
        };
        let shown = conversion::instance(&found, catalog.instance_types.first(), Some(&class));
        shown.labels.get(keys::PLACEMENT_GROUP_PARTITION).cloned()
    };
    assert_eq!(of("partition", 3, Some(2)).as_deref(), Some("2"));
    assert_eq!(of("partition", 3, None).as_deref(), Some(""), "EC2 has not told yet");
    assert_eq!(of("cluster", 0, None), None);
}

#[test]
fn a_machine_in_a_reservation_is_labelled_with_it() {
    let found = |lifecycle: &str| ec2::Instance {
        instance_type: "m5.large".to_owned(),
        zone: "eu-central-1a".to_owned(),
        reservation: Some(ec2::InReservation {
            id: "cr-1".to_owned(),
            lifecycle: lifecycle.to_owned(),
        }),
        ..ec2::Instance::default()
    };
    for (lifecycle, kind, interruptible) in [
        ("", "default", "false"),
        ("capacity-block", "capacity-block", "false"),
        ("interruptible-capacity-reservation", "default", "true"),
    ] {
        let labels = conversion::instance(&found(lifecycle), None, None).labels;
        assert_eq!(labels[tenon_crds::labels::CAPACITY_TYPE], "reserved");
        assert_eq!(labels[keys::CAPACITY_RESERVATION_ID], "cr-1");
        assert_eq!(labels[keys::CAPACITY_RESERVATION_TYPE], kind);
        assert_eq!(labels[keys::CAPACITY_RESERVATION_INTERRUPTIBLE], interruptible);
    }
}

#[test]
fn a_launched_machine_carries_hash_profile_and_what_it_has() {
    let mut class = mk_class();
    class.metadata.annotations = Some(
        [(keys::EC2NODECLASS_HASH, "1"), (keys::EC2NODECLASS_HASH_VERSION, "v5")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    );
    let catalog = mk_catalogs(&["p4d.24xlarge"]).catalog(&class, None).unwrap();
    let fleet = launcher::LaunchedInstance {
        instance: ec2::send::FleetInstance {
            id: "i-1".to_owned(),
            instance_type: "p4d.24xlarge".to_owned(),
            zone: "eu-central-1a".to_owned(),
            ..Default::default()
        },
        capacity_type: tenon_planner::snapshot::CapacityType::OnDemand,
        tenancy: "default",
        reservation: None,
        partition: None,
    };
    let now = "2026-11-20T00:00:00Z".parse().unwrap();
    let launched = conversion::launched_fleet(&fleet, &mk_claim("c"), &class, &catalog, now);
    assert_eq!(launched.annotations.len(), 3);
    assert_eq!(launched.annotations[keys::INSTANCE_PROFILE_NAME], "demo_123");
    assert_eq!(launched.instance.image_id.as_deref(), Some("ami-amd"));
    assert_eq!(launched.capacity.get("nvidia.com/gpu"), 8);
    assert_eq!(launched.capacity.get("vpc.amazonaws.com/efa"), 0, "none was attached");
    assert!(launched.allocatable.memory < launched.capacity.memory);
}

pub(super) fn mk_settings() -> AwsSettings {
    AwsSettings {
        cluster_name: "demo".to_owned(),
        cluster_endpoint: String::new(),
        cluster_ca_bundle: String::new(),
        isolated_vpc: false,
        static_instance_profiles: false,
        eks_control_plane: false,
        vm_memory_overhead_percent: 0.075,
        interruption_queue: String::new(),
        reserved_enis: 0,
        disable_dry_run: false,
        enable_zonal_shift: false,
        reserved_capacity: true,
        ami_refresh_interval: Duration::from_secs(60),
        subnet_refresh_interval: Duration::from_secs(60),
        kops_state_store: None,
    }
}

/// A provider whose EC2 is answered by rules and that knows nothing yet.
pub(super) fn mk_provider(rules: &[&Rule]) -> AwsProvider {
    let clients = Clients {
        ec2: mock_ec2(rules),
        iam: mock_iam(&[]),
        ssm: mock_ssm(&[]),
        sqs: mock_client!(aws_sdk_sqs, &[]),
        eks: mock_eks(&[]),
        zonal_shift: mock_arc(&[]),
        s3: mock_s3(&[]).config().clone(),
        pricing: mock_client!(aws_sdk_pricing, &[]),
        region: "eu-central-1".to_owned(),
    };
    let cluster = Cluster::known(clients.eks.clone(), mk_facts(), "1.33");
    let clock = Clock::anchored("2026-11-20T00:00:00Z".parse().unwrap());
    AwsProvider::assemble(mk_settings(), clients, cluster, clock, &Metrics::new())
}

/// The reason of a launch that is tried again; `None` when the claim is given up or launched.
async fn retried(provider: &AwsProvider, claim: &NodeClaim) -> Option<String> {
    match provider.create(claim, None).await {
        Err(CloudError::Create { reason, .. }) => Some(reason),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_yet_is_no_lack_of_capacity() {
    let mut provider = mk_provider(&[]);
    let claim = mk_claim("a");
    assert_eq!(retried(&provider, &claim).await.as_deref(), Some("NodeClassReadinessUnknown"));
    provider.classes.apply(class_with_ready(ConditionStatus::True, 1));
    provider.classes.set_synced();
    assert_eq!(retried(&provider, &claim).await.as_deref(), Some("InstanceTypeResolutionFailed"));
    provider.catalogs = mk_unpriced_catalogs(&["m5.large"]);
    assert_eq!(retried(&provider, &claim).await.as_deref(), Some("InstanceTypeResolutionFailed"));
    let mut elsewhere = mk_claim("b");
    elsewhere.spec.node_class_ref.name = "gone".to_owned();
    let gone = provider.create(&elsewhere, None).await;
    assert!(matches!(gone, Err(CloudError::InsufficientCapacity(_))), "there is no such class");
}

#[tokio::test(start_paused = true)]
async fn instance_profiles_are_listed_only_where_the_operator_may_have_made_some() {
    let class = |role: Option<&str>| {
        let mut class = mk_class();
        class.spec.role = role.map(str::to_owned);
        class
    };
    for (made_elsewhere, isolated, role, expected) in [
        (false, false, Some("node"), true),
        (false, false, None, true),
        (true, false, None, false),
        (true, false, Some("node"), true),
        (false, true, Some("node"), false),
    ] {
        let mut provider = mk_provider(&[]);
        provider.options.static_instance_profiles = made_elsewhere;
        provider.options.isolated_vpc = isolated;
        assert_eq!(
            provider.may_own_profiles(&class(role)),
            expected,
            "{made_elsewhere} {isolated} {role:?}"
        );
    }
}

/// A provider that knows a class, prices and types, over the same rules.
pub(super) fn mk_ready_provider(rules: &[&Rule]) -> AwsProvider {
    let mut provider = mk_provider(rules);
    provider.catalogs = mk_catalogs(&["m5.large"]);
    let shifts = Arc::clone(&provider.catalogs.shifts);
    provider.zonal_shifts = Arc::clone(&shifts);
    provider.instances =
        Instances::new(provider.clients.ec2.clone(), "demo".into(), mk_metrics(), shifts);
    provider.classes.apply(class_with_ready(ConditionStatus::True, 1));
    provider.classes.set_synced();
    provider
}

#[tokio::test(start_paused = true)]
async fn drift_is_told_once_prices_are_known_and_is_no_error_before() {
    let mut provider = mk_ready_provider(&[]);
    provider.catalogs = mk_unpriced_catalogs(&["m5.large"]);
    let mut claim = mk_claim("a");
    claim
        .metadata
        .labels
        .get_or_insert_default()
        .insert(tenon_crds::labels::INSTANCE_TYPE.to_owned(), "m5.large".to_owned());
    claim.status.get_or_insert_default().image_id = Some("ami-old".to_owned());
    let prices = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        provider.catalogs.prices.fall_back();
    };
    let (drifted, ()) = tokio::join!(provider.is_drifted(&claim), prices);
    assert_eq!(drifted.unwrap().as_deref(), Some("AMIDrift"));
}

#[tokio::test(start_paused = true)]
async fn a_standby_keeps_nothing_of_nodeclasses_that_have_come_and_gone() {
    let bench = Bench::new().await;
    let mut provider = mk_provider(&[]);
    provider.catalogs = mk_catalogs(&["m5.large"]);
    let class = |number: usize| {
        let mut class = mk_class();
        class.metadata.name = Some(format!("class-{number}"));
        class.metadata.uid = Some(format!("uid-{number}"));
        class
    };
    provider.classes.apply(class(0));
    for number in 1..=50 {
        provider.classes.apply(class(number));
        refresh::classes_changed(&provider, &bench.context);
        provider.catalog_of(&class(0)).unwrap();
        provider.catalog_of(&class(number)).unwrap();
        provider.classes.delete(&format!("class-{number}"));
        refresh::classes_changed(&provider, &bench.context);
        assert_eq!(provider.catalogs.n_computed(), 1, "after {number} classes");
    }
    // A snapshot that began before the class went may compute its catalog afterwards; that does not
    // stay either.
    provider.catalog_of(&class(50)).unwrap();
    provider.classes.apply(class(51));
    refresh::classes_changed(&provider, &bench.context);
    assert_eq!(provider.catalogs.n_computed(), 1);
}
