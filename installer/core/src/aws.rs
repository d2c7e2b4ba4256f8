//! The AWS clients, and one error for all their calls: which action on which resource failed, and
//! what kind of failure it was.

mod answer;
pub mod profiles;

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_smithy_async::future::pagination_stream::PaginationStream;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_smithy_types::timeout::TimeoutConfig;

pub use self::answer::NoAnswer;
use crate::audit::Audit;

/// No endpoint may keep a call waiting for ever: a network that drops packets does not say so.
/// Every attempt has this long, as the operator's.
fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(10))
        .operation_attempt_timeout(Duration::from_secs(60))
        .build()
}

/// How AWS is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsOptions {
    /// Profile of the AWS configuration.
    pub profile: Option<String>,
    /// How often a call is tried.
    pub max_attempts: u32,
}

/// One client per service.
#[derive(Debug, Clone)]
pub struct Aws {
    /// The configuration behind them.
    pub config: SdkConfig,
    /// Where calls that delete are written down.
    pub audit: Audit,
    /// EC2 Auto Scaling.
    pub auto_scaling: aws_sdk_autoscaling::Client,
    /// EC2.
    pub ec2: aws_sdk_ec2::Client,
    /// EKS.
    pub eks: aws_sdk_eks::Client,
    /// EventBridge.
    pub events: aws_sdk_eventbridge::Client,
    /// IAM.
    pub iam: aws_sdk_iam::Client,
    /// S3, for buckets of any region.
    pub s3: aws_sdk_s3::Client,
    /// SQS.
    pub sqs: aws_sdk_sqs::Client,
    /// Systems Manager.
    pub ssm: aws_sdk_ssm::Client,
    /// STS.
    pub sts: aws_sdk_sts::Client,
}

impl Aws {
    /// Clients for a region, with the credentials of the usual chain.
    pub async fn connect(options: &AwsOptions, region: &str) -> Self {
        let retry = RetryConfig::standard()
            .with_max_attempts(options.max_attempts)
            .with_max_backoff(Duration::from_secs(10));
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new(region.to_owned()))
            .retry_config(retry)
            .timeout_config(timeouts());
        if let Some(profile) = &options.profile {
            loader = loader.profile_name(profile);
        }
        Self::new(loader.load().await)
    }

    fn new(config: SdkConfig) -> Self {
        let audit = Audit::default();
        macro_rules! client {
            ($service:ident) => {
                $service::Client::from_conf(
                    $service::config::Builder::from(&config).interceptor(audit.clone()).build(),
                )
            };
        }
        Self {
            auto_scaling: client!(aws_sdk_autoscaling),
            ec2: client!(aws_sdk_ec2),
            eks: client!(aws_sdk_eks),
            events: client!(aws_sdk_eventbridge),
            iam: client!(aws_sdk_iam),
            s3: aws_sdk_s3::Client::from_conf(
                aws_sdk_s3::config::Builder::from(&config)
                    // An endpoint of one's own has no host name per bucket.
                    .force_path_style(config.endpoint_url().is_some())
                    .interceptor(audit.clone())
                    .build(),
            ),
            sqs: client!(aws_sdk_sqs),
            ssm: client!(aws_sdk_ssm),
            sts: client!(aws_sdk_sts),
            audit,
            config,
        }
    }

    /// Clients for tests that make no call.
    #[cfg(any(test, feature = "testing"))]
    pub fn nowhere() -> Self {
        Self::new(SdkConfig::builder().behavior_version(BehaviorVersion::latest()).build())
    }
}

/// A call to AWS failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.in_words())]
pub struct AwsError {
    /// As IAM spells it, such as `iam:CreateRole`.
    pub action: &'static str,
    /// What it was tried on: an ARN, a name, or `*`.
    pub resource: String,
    /// AWS's code, if it answered with one.
    pub code: Option<String>,
    /// AWS's message, or why there was no answer.
    pub message: String,
    /// Why AWS did not answer, if it did not.
    pub no_answer: Option<NoAnswer>,
}

impl AwsError {
    fn in_words(&self) -> String {
        let Self { action, resource, message, .. } = self;
        match &self.code {
            // Every other call would have failed as well.
            _ if self.lacks_credentials() => message.clone(),
            Some(code) if message.is_empty() => format!("{action} on {resource}: {code}"),
            Some(code) => format!("{action} on {resource}: {code}: {message}"),
            None => format!("{action} on {resource}: {message}"),
        }
    }

    /// Nothing was sent, for want of credentials.
    pub fn lacks_credentials(&self) -> bool {
        matches!(self.no_answer, Some(answer) if answer != NoAnswer::Unreached)
    }

    /// The caller may not do it.
    pub fn is_denied(&self) -> bool {
        self.has_code(&[
            "AccessDenied",
            "AccessDeniedException",
            "UnauthorizedOperation",
            "AuthorizationError",
            "UnauthorizedException",
        ])
    }

    /// A policy of the organisation denies it, whatever the caller's own policies say.
    pub fn is_denied_by_organization(&self) -> bool {
        let kinds = ["service control policy", "resource control policy"];
        let is_named = |kind| self.message.contains(&format!("explicit deny in a {kind}"));
        self.is_denied() && kinds.into_iter().any(is_named)
    }

    /// AWS does not know the caller: the credentials are wrong or expired.
    pub fn is_unknown_caller(&self) -> bool {
        self.has_code(&[
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "IncompleteSignatureException",
            "InvalidClientTokenId",
            "InvalidAccessKeyId",
            "InvalidSignatureException",
            "RequestExpired",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
        ])
    }

    /// There is no such thing.
    pub fn is_not_found(&self) -> bool {
        self.has_code(&[
            "NoSuchEntity",
            "ResourceNotFoundException",
            "NoSuchKey",
            "ParameterNotFound",
            "QueueDoesNotExist",
            "AWS.SimpleQueueService.NonExistentQueue",
            "InvalidLaunchTemplateName.NotFoundException",
            "InvalidLaunchTemplateId.NotFound",
            "InvalidInstanceID.NotFound",
            "InvalidNetworkInterfaceID.NotFound",
            "InvalidSpotInstanceRequestID.NotFound",
            "InvalidSubnetID.NotFound",
            "InvalidGroup.NotFound",
        ])
    }

    /// A thing of that name is there already.
    pub(crate) fn is_there_already(&self) -> bool {
        self.has_code(&[
            "EntityAlreadyExists",
            "ResourceInUseException",
            "ResourceAlreadyExistsException",
            "QueueNameExists",
            "QueueAlreadyExists",
        ])
    }

    /// Whether AWS answered with one of these codes.
    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        self.code.as_deref().is_some_and(|code| codes.contains(&code))
    }
}

/// All items of all pages, in their order.
///
/// # Errors
/// That of the first page that could not be read.
pub async fn all<T, E>(pages: PaginationStream<Result<T, E>>) -> Result<Vec<T>, E> {
    pages.collect().await
}

/// Says what a call was for when it failed.
pub trait Calling<T> {
    /// `action` as IAM spells it; `resource` as the policy would name it.
    fn calling(self, action: &'static str, resource: impl Into<String>) -> Result<T, AwsError>;
}

impl<T, E, R> Calling<T> for Result<T, SdkError<E, R>>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    fn calling(self, action: &'static str, resource: impl Into<String>) -> Result<T, AwsError> {
        self.map_err(|error| {
            let answered = error.as_service_error();
            let code = answered.and_then(ProvideErrorMetadata::code).map(str::to_owned);
            let (no_answer, message) =
                match (answered.and_then(ProvideErrorMetadata::message), &code) {
                    (Some(message), _) => (None, message.to_owned()),
                    (None, Some(_)) => (None, String::new()),
                    (None, None) => {
                        let (kind, text) = answer::explain(&error);
                        (Some(kind), text)
                    }
                };
            AwsError { action, resource: resource.into(), code, message, no_answer }
        })
    }
}

/// Turns "there is no such thing" into `None`.
pub trait IfThere<T> {
    /// `None` when there is no such thing.
    fn if_there(self) -> Result<Option<T>, AwsError>;
}

impl<T> IfThere<T> for Result<T, AwsError> {
    fn if_there(self) -> Result<Option<T>, AwsError> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;
    use aws_credential_types::provider::SharedCredentialsProvider;

    use super::*;

    fn error(code: Option<&str>) -> AwsError {
        AwsError {
            action: "iam:GetRole",
            resource: "x".into(),
            code: code.map(str::to_owned),
            message: "m".into(),
            no_answer: None,
        }
    }

    #[test]
    fn kinds_follow_the_code() {
        assert!(error(Some("UnauthorizedOperation")).is_denied());
        assert!(error(Some("AWS.SimpleQueueService.NonExistentQueue")).is_not_found());
        assert!(error(Some("EntityAlreadyExists")).is_there_already());
        // A wrong secret, as EKS and STS word it, and a session that is over, as EC2 does.
        for code in ["InvalidSignatureException", "SignatureDoesNotMatch", "RequestExpired"] {
            assert!(error(Some(code)).is_unknown_caller(), "{code}");
        }
        // An emulator that doesn't know an action answers 404 without a code: that is no "not
        // found".
        assert!(!error(None).is_not_found());
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_accepts_and_never_answers_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(async move {
            let mut open = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.push(stream);
            }
        });
        let credentials = Credentials::new("key", "secret", None, None, "test");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .endpoint_url(url)
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts())
            .build();
        let began = tokio::time::Instant::now();
        let asked = Aws::new(config).sts.get_caller_identity().send().await;
        let error = asked.calling("sts:GetCallerIdentity", "*").expect_err("nobody answers");
        assert_eq!(began.elapsed().as_secs(), 60, "{error}");
        assert_eq!((error.code, error.no_answer), (None, Some(NoAnswer::Unreached)));
        assert_eq!(error.message, "AWS did not answer in time");
    }

    #[test]
    fn the_message_names_action_resource_and_code() {
        assert_eq!(error(Some("AccessDenied")).to_string(), "iam:GetRole on x: AccessDenied: m");
        assert_eq!(error(None).to_string(), "iam:GetRole on x: m");
    }
}
