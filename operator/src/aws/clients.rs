//! The SDK clients, made once from the default chain, and what is known about the region.
//!
//! Credentials (Pod Identity, IRSA, profile, instance role), endpoint (`AWS_ENDPOINT_URL`) and
//! region come from aws-config's default chain.

use std::time::Duration;

use aws_config::{AppName, BehaviorVersion, Region, SdkConfig};
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;

use super::calls::CallMetrics;
use super::ec2::Ec2;

/// How long SQS is asked to wait for messages at most.
const LONG_POLL: Duration = Duration::from_secs(20);

/// One client per service.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// EC2.
    pub ec2: Ec2,
    /// IAM.
    pub iam: aws_sdk_iam::Client,
    /// Systems Manager parameters.
    pub ssm: aws_sdk_ssm::Client,
    /// SQS.
    pub sqs: aws_sdk_sqs::Client,
    /// EKS.
    pub eks: aws_sdk_eks::Client,
    /// Zonal shifts.
    pub zonal_shift: aws_sdk_arczonalshift::Client,
    /// S3, from which clients are made for the regions of buckets.
    pub s3: aws_sdk_s3::Config,
    /// Price lists, in a region that serves them.
    pub pricing: aws_sdk_pricing::Client,
    /// The region of the cluster.
    pub region: String,
}

/// No region is known.
#[derive(Debug, thiserror::Error)]
#[error(
    "no AWS region is configured and instance metadata does not provide one: set AWS_REGION on the \
     operator"
)]
pub struct NoRegion;

/// No call may hang a controller for longer than four minutes, as upstream, nor a single attempt
/// for longer than one.
fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(10))
        .operation_attempt_timeout(Duration::from_secs(60))
        .operation_timeout(Duration::from_secs(240))
        .build()
}

/// SQS waits up to twenty seconds for messages by design and answers at once otherwise. Spot
/// machines are told two minutes ahead that they go: a lost answer must not cost half of that.
fn sqs_timeouts(config: &SdkConfig) -> TimeoutConfig {
    let mut timeouts = config.timeout_config().map(TimeoutConfig::to_builder).unwrap_or_default();
    timeouts.set_operation_attempt_timeout(Some(LONG_POLL + Duration::from_secs(10)));
    timeouts.build()
}

impl Clients {
    /// From the default chain.
    pub(crate) async fn from_default_chain(calls: &CallMetrics) -> Result<Self, NoRegion> {
        let name = AppName::new(concat!("tenon-", env!("CARGO_PKG_VERSION")))
            .expect("letters, digits, dots and dashes");
        let config = aws_config::defaults(BehaviorVersion::latest())
            .app_name(name)
            .retry_config(RetryConfig::standard().with_max_attempts(3))
            .timeout_config(timeouts())
            .load()
            .await;
        Self::counted(&config, Some(calls))
    }

    /// With a configuration that is made already.
    pub(crate) fn new(config: &SdkConfig) -> Result<Self, NoRegion> {
        Self::counted(config, None)
    }

    fn counted(config: &SdkConfig, calls: Option<&CallMetrics>) -> Result<Self, NoRegion> {
        /// The configuration of an SDK crate's client, with what makes this service another.
        macro_rules! config_of {
            ($sdk:ident $(, $set:ident($value:expr))*) => {{
                let mut own = $sdk::config::Builder::from(config)$(.$set($value))*;
                if let Some(calls) = calls {
                    own = own.interceptor(calls.clone());
                }
                own
            }};
        }
        /// A client with that configuration.
        macro_rules! client {
            ($sdk:ident $($more:tt)*) => {
                $sdk::Client::from_conf(config_of!($sdk $($more)*).build())
            };
        }
        let region = config.region().ok_or(NoRegion)?.to_string();
        Ok(Self {
            ec2: Ec2::new(config_of!(aws_sdk_ec2)),
            iam: client!(aws_sdk_iam),
            ssm: client!(aws_sdk_ssm),
            sqs: client!(aws_sdk_sqs, timeout_config(sqs_timeouts(config))),
            eks: client!(aws_sdk_eks),
            zonal_shift: client!(aws_sdk_arczonalshift),
            // An endpoint of one's own has no host name per bucket.
            s3: config_of!(aws_sdk_s3, force_path_style(config.endpoint_url().is_some())).build(),
            pricing: client!(
                aws_sdk_pricing,
                region(Region::new(pricing_region(&region).unwrap_or(NO_PRICES)))
            ),
            region,
        })
    }
}

/// Where the client of price lists points that is never asked.
const NO_PRICES: &str = "us-east-1";

/// The region whose endpoint serves the price lists of `region`; `None` where there is none to ask:
/// credentials of a partition are unknown in every other one, and of all partitions only AWS's own
/// and that of China serve price lists.
pub(super) fn pricing_region(region: &str) -> Option<&'static str> {
    let mut parts = region.split('-');
    match (parts.next()?, parts.next()?) {
        ("eusc", _) | (_, "gov") => None,
        (_, isolated) if isolated.starts_with("iso") => None,
        ("ap", _) => Some("ap-south-1"),
        ("cn", _) => Some("cn-northwest-1"),
        ("eu", _) => Some("eu-central-1"),
        _ => Some("us-east-1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_poll_that_is_lost_is_given_up_soon_after_its_wait() {
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .timeout_config(timeouts())
            .build();
        let clients = Clients::new(&config).unwrap();
        let sqs = clients.sqs.config().timeout_config().unwrap();
        assert_eq!(sqs.operation_attempt_timeout(), Some(Duration::from_secs(30)));
        assert_eq!(sqs.connect_timeout(), Some(Duration::from_secs(10)));
        assert_eq!(sqs.operation_timeout(), Some(Duration::from_secs(240)));
    }

    #[test]
    fn price_lists_come_from_the_nearest_region_of_the_partition_that_serves_them() {
        let table = [
            ("ap-southeast-2", Some("ap-south-1")),
            ("cn-north-1", Some("cn-northwest-1")),
            ("eu-west-1", Some("eu-central-1")),
            ("us-west-2", Some("us-east-1")),
            ("sa-east-1", Some("us-east-1")),
            ("us-gov-west-1", None),
            ("us-iso-east-1", None),
            ("us-isob-east-1", None),
            ("eu-isoe-west-1", None),
            ("eusc-de-east-1", None),
        ];
        for (region, pricing) in table {
            assert_eq!(pricing_region(region), pricing);
        }
    }
}
