//! What the operator's pods can reach in AWS, asked from inside of one: only there names, routes,
//! proxies and identity are those of the operator.
//!
//! `tenon-operator probe` takes the operator's own options, makes one harmless call of each service
//! that the operator would call with them, and says what came of it as JSON
//! (`tenon.sh/probe/v1alpha1`): on its standard output, and in the file that becomes the message of
//! the pod's end. `tenon preflight --in-cluster` runs it.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_config::{BehaviorVersion, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextRef;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use axum::http::Uri;
use clap::Parser;
use futures::future::{BoxFuture, FutureExt as _, join_all};
use parking_lot::Mutex;
use tenon_kops::Location;
use tenon_state::probe::{ProbeReport, Reach, SCHEMA, ServiceReach};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::clients::{Clients, pricing_region};
use super::error::{Error, Kind};
use super::options::AwsSettings;
use crate::options::Options;

/// A pod's message has 4,096 bytes, for up to nine services.
const MESSAGE: usize = 80;

const CONNECT: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(20);

/// Says what the operator's pods can reach in AWS
#[derive(Debug, Parser)]
#[command(name = "tenon-operator probe", version)]
pub struct Probe {
    /// The operator's own.
    #[command(flatten)]
    pub options: Options,
    /// Where the report is left, besides on the standard output.
    #[arg(long, env = "TENON_PROBE_REPORT", default_value = "/dev/termination-log")]
    pub report: PathBuf,
}

impl Probe {
    /// Makes all calls at the same time, and leaves the report. The exit code says only whether
    /// there is one.
    pub async fn run(&self) -> std::io::Result<()> {
        let report = probe(&AwsSettings::from(&self.options)).await?;
        let text = serde_json::to_string(&report)?;
        writeln!(std::io::stdout(), "{text}")?;
        // Whoever runs it by hand has no such file.
        if self.report.exists() {
            tokio::fs::write(&self.report, text).await?;
        }
        Ok(())
    }
}

async fn probe(settings: &AwsSettings) -> std::io::Result<ProbeReport> {
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT).operation_timeout(CALL);
    let mut config = aws_config::defaults(BehaviorVersion::latest())
        .retry_config(RetryConfig::standard().with_max_attempts(2))
        .timeout_config(timeouts.build())
        .load()
        .await;
    let credentials = match config.credentials_provider() {
        Some(provider) => timeout(CALL, provider.provide_credentials())
            .await
            .map_err(|_| format!("no answer within {} s", CALL.as_secs()))
            .and_then(|found| found.map_err(|error| crate::text::chain(&error))),
        None => Err("no provider of credentials is configured".to_owned()),
    };
    let no_credentials = credentials.err().map(|why| shorten(&why));
    if no_credentials.is_some() {
        // Who is not known is answered as well, by whoever can be reached.
        let nobody = Credentials::new("AKIAIOSFODNN7NOBODY", "nobody", None, None, "probe");
        let nobody = SharedCredentialsProvider::new(nobody);
        config = config.into_builder().credentials_provider(nobody).build();
    }
    let clients = Clients::new(&config).map_err(std::io::Error::other)?;
    let services = join_all(calls(settings, &config, &clients)).await;
    Ok(ProbeReport { schema: SCHEMA.to_owned(), no_credentials, services })
}

/// A service that the operator calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Ec2,
    Ssm,
    Sts,
    Eks,
    Sqs,
    Iam,
    Pricing,
    ZonalShift,
    S3,
}

/// The services that an operator with these settings calls.
fn services(settings: &AwsSettings, region: &str) -> Vec<Service> {
    let mut services = vec![Service::Ec2, Service::Ssm, Service::Sts];
    // ARC is asked by the cluster's ARN, which EKS tells.
    if settings.eks_control_plane
        || settings.cluster_endpoint.is_empty()
        || settings.enable_zonal_shift
    {
        services.push(Service::Eks);
    }
    if !settings.interruption_queue.is_empty() {
        services.push(Service::Sqs);
    }
    if !settings.isolated_vpc {
        if !settings.static_instance_profiles {
            services.push(Service::Iam);
        }
        if pricing_region(region).is_some() {
            services.push(Service::Pricing);
        }
    }
    if settings.enable_zonal_shift {
        services.push(Service::ZonalShift);
    }
    if settings.kops_state_store.is_some() {
        services.push(Service::S3);
    }
    services
}

/// One call of each of them. None of them changes anything.
fn calls<'a>(
    settings: &'a AwsSettings,
    config: &SdkConfig,
    clients: &'a Clients,
) -> Vec<BoxFuture<'a, ServiceReach>> {
    let sts = aws_sdk_sts::Client::new(config);
    let call = |service| match service {
        Service::Ec2 => {
            let ec2 = clients.ec2.describe_instance_types().dry_run(true).customize();
            reach("ec2", |seen| ec2.interceptor(seen).send()).boxed()
        }
        Service::Ssm => {
            let ssm = clients
                .ssm
                .get_parameter()
                .name("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64")
                .customize();
            reach("ssm", |seen| ssm.interceptor(seen).send()).boxed()
        }
        Service::Sts => {
            let sts = sts.get_caller_identity().customize();
            reach("sts", |seen| sts.interceptor(seen).send()).boxed()
        }
        Service::Eks => {
            let eks = clients.eks.describe_cluster().name(&settings.cluster_name).customize();
            reach("eks", |seen| eks.interceptor(seen).send()).boxed()
        }
        Service::Sqs => {
            let queue = clients.sqs.get_queue_url().queue_name(&settings.interruption_queue);
            let sqs = queue.customize();
            reach("sqs", |seen| sqs.interceptor(seen).send()).boxed()
        }
        Service::Iam => {
            let iam = clients.iam.list_instance_profiles().max_items(1).customize();
            reach("iam", |seen| iam.interceptor(seen).send()).boxed()
        }
        Service::Pricing => {
            let prices = clients.pricing.get_products().service_code("AmazonEC2").max_results(1);
            let prices = prices.customize();
            reach("pricing", |seen| prices.interceptor(seen).send()).boxed()
        }
        Service::ZonalShift => zonal_shift(settings, sts.clone(), clients).boxed(),
        Service::S3 => {
            let bucket = match &settings.kops_state_store {
                Some(Location::Bucket { bucket, .. }) => bucket.as_str(),
                _ => "",
            };
            let s3 = aws_sdk_s3::Client::from_conf(clients.s3.clone());
            // Says more than `HeadBucket`, whose refusals have no code.
            let s3 = s3.list_objects_v2().bucket(bucket).max_keys(1).customize();
            reach("s3", |seen| s3.interceptor(seen).send()).boxed()
        }
    };
    services(settings, &clients.region).into_iter().map(call).collect()
}

/// Asks ARC by the cluster's ARN, as the operator does and as its policy has it. It is put together
/// from who calls, so that the way to EKS does not matter here.
async fn zonal_shift(
    settings: &AwsSettings,
    sts: aws_sdk_sts::Client,
    clients: &Clients,
) -> ServiceReach {
    let caller = sts.get_caller_identity().send().await.ok().and_then(|caller| caller.arn);
    let cluster =
        caller.as_deref().and_then(|caller| cluster_arn(caller, &clients.region, settings));
    let is_known = cluster.is_some();
    let resource = cluster.unwrap_or_else(|| settings.cluster_name.clone());
    let shifts = clients.zonal_shift.get_managed_resource().resource_identifier(resource);
    let shifts = shifts.customize();
    let reached = reach("arc-zonal-shift", |seen| shifts.interceptor(seen).send()).await;
    match reached.outcome {
        // Nobody may ask for a cluster of no account: only how far the call comes can be told.
        Reach::Denied if !is_known => {
            ServiceReach { outcome: Reach::Ok, message: String::new(), ..reached }
        }
        _ => reached,
    }
}

/// The ARN of the cluster in the account and partition of who calls.
fn cluster_arn(caller: &str, region: &str, settings: &AwsSettings) -> Option<String> {
    let mut parts = caller.split(':');
    let (partition, account) = (parts.nth(1)?, parts.nth(2)?);
    Some(format!("arn:{partition}:eks:{region}:{account}:cluster/{}", settings.cluster_name))
}

/// Makes a call, and finds out how far it came.
async fn reach<T, E, F>(service: &'static str, call: impl FnOnce(Watch) -> F) -> ServiceReach
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
{
    let began = Instant::now();
    let watch = Watch::default();
    let answer = call(watch.clone()).await;
    let endpoint = watch.endpoint.lock().take();
    let (host, port) = endpoint.unwrap_or_default();
    let found = timeout(CONNECT, lookup_host((host.as_str(), port))).await;
    let mut addresses: Vec<_> = found.ok().and_then(Result::ok).into_iter().flatten().collect();
    addresses.dedup_by_key(|address| address.ip());
    let (outcome, message) = match &answer {
        Ok(_) => (Reach::Ok, String::new()),
        Err(error @ (SdkError::DispatchFailure(_) | SdkError::TimeoutError(_))) => {
            let said = Error::from_sdk(service, error).message;
            match addresses.first() {
                None => (Reach::Unresolved, said),
                Some(address) => match timeout(CONNECT, TcpStream::connect(address)).await {
                    Ok(Ok(_)) => (Reach::Unreachable, said),
                    Ok(Err(why)) => (Reach::Unreachable, format!("{address}: {why}")),
                    Err(_) => (Reach::Unreachable, format!("{address}: no answer")),
                },
            }
        }
        Err(error) => answered(&Error::from_sdk(service, error)),
    };
    ServiceReach {
        service: service.to_owned(),
        host,
        addresses: addresses.iter().take(2).map(std::net::SocketAddr::ip).collect(),
        outcome,
        message: shorten(&message),
        millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

/// What an error says about who calls.
fn answered(error: &Error) -> (Reach, String) {
    const UNKNOWN_CALLER: [&str; 11] = [
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    ];
    let code = error.code.as_deref().unwrap_or_default();
    let said = || format!("{code}: {}", error.message);
    match error.kind {
        _ if UNKNOWN_CALLER.contains(&code) => (Reach::Unauthenticated, said()),
        Kind::Unauthorized => (Reach::Denied, said()),
        Kind::Transient | Kind::Throttled => (Reach::Failed, said()),
        // That something is not there, or would have worked, is an answer.
        _ => (Reach::Ok, String::new()),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Sees which endpoint a call goes to.
#[derive(Clone, Debug, Default)]
struct Watch {
    endpoint: Arc<Mutex<Option<(String, u16)>>>,
}

impl Intercept for Watch {
    fn name(&self) -> &'static str {
        "Watch"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let uri: Uri = context.request().uri().parse()?;
        let port = if uri.scheme_str() == Some("http") { 80 } else { 443 };
        let host = uri.host().unwrap_or_default().to_owned();
        *self.endpoint.lock() = Some((host, uri.port_u16().unwrap_or(port)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::mk_settings;
    use super::*;

    #[test]
    fn those_services_are_asked_that_the_operator_calls() {
        use Service::{Ec2, Eks, Iam, Pricing, S3, Sqs, Ssm, Sts, ZonalShift};
        let isolated = AwsSettings {
            cluster_endpoint: "https://10.0.0.1".to_owned(),
            isolated_vpc: true,
            static_instance_profiles: true,
            ..mk_settings()
        };
        assert_eq!(services(&isolated, "eu-west-1"), [Ec2, Ssm, Sts]);
        let shifted = AwsSettings { enable_zonal_shift: true, ..isolated };
        assert_eq!(services(&shifted, "eu-west-1"), [Ec2, Ssm, Sts, Eks, ZonalShift]);
        let kops = AwsSettings {
            cluster_endpoint: "https://10.0.0.1".to_owned(),
            kops_state_store: Location::parse("s3://states").ok(),
            ..mk_settings()
        };
        assert_eq!(services(&kops, "eu-west-1"), [Ec2, Ssm, Sts, Iam, Pricing, S3]);
        let whole = AwsSettings {
            interruption_queue: "queue".to_owned(),
            enable_zonal_shift: true,
            ..mk_settings()
        };
        let all = [Ec2, Ssm, Sts, Eks, Sqs, Iam, Pricing, ZonalShift];
        assert_eq!(services(&whole, "cn-north-1"), all);
        // There is no price list to ask.
        let gov: Vec<_> = all.into_iter().filter(|service| *service != Pricing).collect();
        assert_eq!(services(&whole, "us-gov-west-1"), gov);
    }

    #[test]
    fn arc_is_asked_for_the_cluster_in_the_caller_s_account_and_partition() {
        let arn = |caller| cluster_arn(caller, "cn-north-1", &mk_settings());
        assert_eq!(
            arn("arn:aws-cn:sts::123456789012:assumed-role/karpenter/eks-demo").as_deref(),
            Some("arn:aws-cn:eks:cn-north-1:123456789012:cluster/demo")
        );
        assert_eq!(arn("nonsense"), None);
    }

    #[test]
    fn an_answer_says_who_calls_and_whether_they_may() {
        let table = [
            ("UnauthorizedOperation", Reach::Denied),
            ("AccessDeniedException", Reach::Denied),
            ("InvalidClientTokenId", Reach::Unauthenticated),
            ("AuthFailure", Reach::Unauthenticated),
            ("ParameterNotFound", Reach::Ok),
            ("DryRunOperation", Reach::Ok),
            ("AWS.SimpleQueueService.NonExistentQueue", Reach::Ok),
            ("InternalError", Reach::Failed),
        ];
        for (code, outcome) in table {
            let error = Error::from_code("X", code, "because");
            assert_eq!(answered(&error).0, outcome, "{code}");
        }
    }

    #[test]
    fn a_full_report_fits_into_the_message_of_a_pod() {
        let reached = |service: &str| ServiceReach {
            service: service.to_owned(),
            host: format!("{service}.ap-southeast-2.amazonaws.com"),
            addresses: vec![[10, 255, 255, 255].into(), [10, 255, 255, 254].into()],
            outcome: Reach::Unauthenticated,
            message: shorten(&"é".repeat(4096)),
            millis: 20_000,
        };
        let services =
            ["ec2", "ssm", "sts", "eks", "sqs", "iam", "pricing", "arc-zonal-shift", "s3"];
        let why = shorten(&"é".repeat(4096));
        let report = ProbeReport {
            schema: SCHEMA.to_owned(),
            no_credentials: Some(why),
            services: services.map(reached).into(),
        };
        let text = serde_json::to_string(&report).expect("plain data");
        assert!(text.len() < 4096, "{} bytes", text.len());
        assert_eq!(serde_json::from_str::<ProbeReport>(&text).expect("a report"), report);
    }
}
