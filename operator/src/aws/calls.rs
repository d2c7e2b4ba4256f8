//! Counts and times every call to AWS, under upstream's names: an interceptor that all clients
//! share.
//!
//! A request is what the operator asked for, an attempt what went over the wire for it: the SDK
//! repeats what was throttled or lost. Errors are told by AWS's own code, since the HTTP status
//! (upstream's only label) is the same for a throttled call and for one that makes no sense.

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeSerializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
    FinalizerInterceptorContextRef,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, Metadata};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use super::error::{Kind, kind_of};
use crate::metrics::declare::families;
use crate::traces::{fail, number, span};

/// 0.01·1.5^k seconds: up to 22 seconds.
const LATENCY_BUCKETS: &[f64] = &[
    0.01,
    0.015,
    0.0225,
    0.03375,
    0.050_625,
    0.075_937_5,
    0.113_906_25,
    0.170_859_375,
    0.256_289_063,
    0.384_433_594,
    0.576_650_391,
    0.864_975_586,
    1.297_463_379,
    1.946_195_068,
    2.919_292_603,
    4.378_938_904,
    6.568_408_356,
    9.852_612_534,
    14.778_918_8,
    22.168_378_2,
];

/// How often a request is repeated.
const RETRY_BUCKETS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];

/// In the place of a status or a code where AWS did not answer: the connection failed, or a
/// deadline was over.
const NO_ANSWER: &str = "<error>";

families! {
    /// What calls to AWS are counted in.
    #[derive(Clone, Debug)]
    pub(crate) struct CallMetrics {
        /// Number of requests to AWS, by the HTTP status of the last attempt
        requests: counters("aws_sdk_go_request_total", ["service", "action", "code"]),
        /// Duration of requests to AWS, including all attempts
        request_duration: histograms(
            "aws_sdk_go_request_duration_seconds", ["service", "action", "code"], LATENCY_BUCKETS,
        ),
        /// Number of retries of requests to AWS
        retries: histograms(
            "aws_sdk_go_request_retry_count", ["service", "action", "code"], RETRY_BUCKETS,
        ),
        /// Number of attempts of requests to AWS, by HTTP status
        attempts: counters("aws_sdk_go_request_attempt_total", ["service", "action", "code"]),
        /// Duration of single attempts of requests to AWS
        attempt_duration: histograms(
            "aws_sdk_go_request_attempt_duration_seconds",
            ["service", "action", "code"],
            LATENCY_BUCKETS,
        ),
        /// Number of failed attempts, by AWS's error code and whether it means throttling
        errors: counters(
            "tenon_aws_attempt_errors_total", ["service", "action", "error", "throttled"],
        ),
    }
}

/// What is remembered of a request while it is under way.
#[derive(Clone, Copy, Debug)]
struct Began {
    request: Instant,
    attempt: Instant,
    attempts: u32,
}

impl Storable for Began {
    type Storer = StoreReplace<Self>;
}

/// The span of a request, with all of its attempts.
#[derive(Clone, Debug)]
struct Traced(Span);

impl Storable for Traced {
    type Storer = StoreReplace<Self>;
}

/// The service and the action of a request.
fn target(cfg: &ConfigBag) -> Option<(&str, &str)> {
    cfg.load::<Metadata>().map(|metadata| (metadata.service(), metadata.name()))
}

fn status(context: &FinalizerInterceptorContextRef<'_>) -> String {
    let response = context.response();
    response.map_or_else(|| NO_ANSWER.to_owned(), |it| it.status().as_u16().to_string())
}

impl Intercept for CallMetrics {
    fn name(&self) -> &'static str {
        "CallMetrics"
    }

    fn read_before_execution(
        &self,
        _: &BeforeSerializationInterceptorContextRef<'_>,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let now = Instant::now();
        cfg.interceptor_state().store_put(Began { request: now, attempt: now, attempts: 0 });
        if let Some((service, action)) = target(cfg) {
            let name = format!("{service} {action}");
            let span = span!(
                "AWS",
                otel.name = name,
                otel.kind = "client",
                status = Empty,
                attempts = Empty,
                otel.status_description = Empty
            );
            cfg.interceptor_state().store_put(Traced(span));
        }
        Ok(())
    }

    fn read_before_attempt(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(&began) = cfg.load::<Began>() {
            let next = Began { attempt: Instant::now(), attempts: began.attempts + 1, ..began };
            cfg.interceptor_state().store_put(next);
        }
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let (Some((service, action)), Some(began)) = (target(cfg), cfg.load::<Began>()) else {
            return Ok(());
        };
        let labels = [service, action, &status(context)];
        self.attempts.inc(labels);
        self.attempt_duration.observe(labels, began.attempt.elapsed().as_secs_f64());
        if context.output_or_error().is_none_or(|result| result.is_err()) {
            let error = context.response().map_or_else(|| NO_ANSWER.to_owned(), error_code);
            let throttled = kind_of(&error) == Kind::Throttled || error == "429";
            let throttled = if throttled { "true" } else { "false" };
            self.errors.inc([service, action, &error, throttled]);
        }
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        crate::liveness::progressed();
        let (Some((service, action)), Some(began)) = (target(cfg), cfg.load::<Began>()) else {
            return Ok(());
        };
        let labels = [service, action, &status(context)];
        self.requests.inc(labels);
        if let Some(Traced(span)) = cfg.load::<Traced>() {
            span.record("status", labels[2]);
            span.record("attempts", number(began.attempts));
            if context.output_or_error().is_none_or(|result| result.is_err()) {
                let error = context.response().map_or_else(|| NO_ANSWER.to_owned(), error_code);
                fail(span, error.as_str());
            }
        }
        self.request_duration.observe(labels, began.request.elapsed().as_secs_f64());
        self.retries.observe(labels, f64::from(began.attempts.saturating_sub(1)));
        Ok(())
    }
}

/// AWS's code for an error: in the header of the JSON protocols, or in the body (`<Code>` in XML,
/// `__type` in JSON). The HTTP status where there is none.
fn error_code(response: &HttpResponse) -> String {
    let header = response.headers().get("x-amzn-errortype").map(ToOwned::to_owned);
    let body = response.body().bytes().and_then(|bytes| std::str::from_utf8(bytes).ok());
    let between = |before: &str, after: char| {
        let (_, rest) = body?.split_once(before)?;
        rest.split_once(after).map(|(code, _)| code.to_owned())
    };
    let code = header
        .or_else(|| between("<Code>", '<'))
        .or_else(|| between("\"__type\":\"", '"'))
        .unwrap_or_default();
    // `com.amazonaws.ssm#ThrottlingException:http://…`
    let code = code.split(':').next().unwrap_or_default();
    let code = code.rsplit('#').next().unwrap_or_default().trim();
    let is_code = code.len() <= 100
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if code.is_empty() || !is_code {
        response.status().as_u16().to_string()
    } else {
        code.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;
    use aws_sdk_ec2::config::retry::RetryConfig;
    use aws_sdk_ec2::config::{BehaviorVersion, Region};
    use aws_smithy_mocks::{MockResponseInterceptor, RuleMode, create_mock_http_client, mock};
    use aws_smithy_runtime_api::http::StatusCode;
    use aws_smithy_types::body::SdkBody;

    use super::*;
    use crate::metrics::Metrics;

    fn answer(status: u16, body: &'static str) -> HttpResponse {
        HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body))
    }

    #[test]
    fn errors_are_told_by_the_code_that_aws_gives_them() {
        let xml = "<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>";
        let json = r#"{"__type":"com.amazonaws.ssm#ThrottlingException","message":"slow"}"#;
        assert_eq!(error_code(&answer(503, xml)), "RequestLimitExceeded");
        assert_eq!(error_code(&answer(400, json)), "ThrottlingException");
        let mut typed = answer(400, "{}");
        typed.headers_mut().insert("x-amzn-errortype", "ResourceNotFoundException:http://aws/");
        assert_eq!(error_code(&typed), "ResourceNotFoundException");
        assert_eq!(error_code(&answer(502, "<html>Bad gateway</html>")), "502");
        assert_eq!(error_code(&answer(500, "<Code>any text at all</Code>")), "500");
    }

    #[tokio::test]
    async fn calls_are_counted_with_each_attempt_and_its_error() {
        const DENIED: &str = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow</Message></Error></Errors><RequestID>1</RequestID></Response>";
        const VPCS: &str = "<DescribeVpcsResponse><requestId>1</requestId></DescribeVpcsResponse>";
        let rule = mock!(aws_sdk_ec2::Client::describe_vpcs)
            .sequence()
            .http_response(|| answer(503, DENIED))
            .http_response(|| answer(200, VPCS))
            .build();
        let metrics = Metrics::new();
        let mocks = MockResponseInterceptor::new().rule_mode(RuleMode::Sequential).with_rule(&rule);
        let config = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .retry_config(RetryConfig::standard().with_max_attempts(3))
            .http_client(create_mock_http_client())
            .interceptor(mocks)
            .interceptor(CallMetrics::new(&metrics))
            .build();
        aws_sdk_ec2::Client::from_conf(config).describe_vpcs().send().await.unwrap();
        let text = metrics.encode().unwrap();
        for line in [
            r#"aws_sdk_go_request_total{service="EC2",action="DescribeVpcs",code="200"} 1"#,
            r#"aws_sdk_go_request_retry_count_sum{service="EC2",action="DescribeVpcs",code="200"} 1.0"#,
            r#"aws_sdk_go_request_attempt_total{service="EC2",action="DescribeVpcs",code="503"} 1"#,
            r#"aws_sdk_go_request_attempt_total{service="EC2",action="DescribeVpcs",code="200"} 1"#,
            r#"tenon_aws_attempt_errors_total{service="EC2",action="DescribeVpcs",error="RequestLimitExceeded",throttled="true"} 1"#,
        ] {
            assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
        }
    }
}
