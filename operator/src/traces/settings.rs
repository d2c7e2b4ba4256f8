//! Where traces go, and how many: OpenTelemetry's own variables, which count only with
//! `ENABLE_TRACING`.

use std::time::Duration;

use clap::{ArgAction, Args};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use opentelemetry::KeyValue;
use opentelemetry_otlp::Protocol;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::Sampler;
use percent_encoding::percent_decode_str;

/// A collector beside the operator, on the port that OTLP over HTTP has.
const ENDPOINT: &str = "http://localhost:4318";
/// What a resource is called that nobody names.
const SERVICE: &str = "tenon-operator";

/// Options of traces. Those that are empty have OpenTelemetry's defaults.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceOptions {
    /// Send traces of reconciles, plans and calls to a collector by OTLP over HTTP. OpenTelemetry's
    /// variables configure it.
    #[arg(long, env = "ENABLE_TRACING", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub enable_tracing: bool,
    /// URL of the collector; `/v1/traces` is appended.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        default_value = "",
        hide_default_value = true
    )]
    pub otel_exporter_otlp_endpoint: String,
    /// URL to which traces are posted, used as it is.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        default_value = "",
        hide_default_value = true
    )]
    pub otel_exporter_otlp_traces_endpoint: String,
    /// Headers of each request: `key=value`, separated by commas, values percent-encoded.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_HEADERS",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub otel_exporter_otlp_headers: String,
    /// The same for traces alone.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub otel_exporter_otlp_traces_headers: String,
    /// Time limit of a batch in milliseconds, retries included.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TIMEOUT", default_value = "", hide_default_value = true)]
    pub otel_exporter_otlp_timeout: String,
    /// Protocol: `http/protobuf` or `http/json`.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_PROTOCOL",
        default_value = "",
        hide_default_value = true
    )]
    pub otel_exporter_otlp_protocol: String,
    /// Name of the service.
    #[arg(long, env = "OTEL_SERVICE_NAME", default_value = "", hide_default_value = true)]
    pub otel_service_name: String,
    /// Attributes of the process: `key=value`, separated by commas, values percent-encoded.
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES", default_value = "", hide_default_value = true)]
    pub otel_resource_attributes: String,
    /// Sampler: `always_on`, `always_off` or `traceidratio`, each also with the prefix
    /// `parentbased_`.
    #[arg(long, env = "OTEL_TRACES_SAMPLER", default_value = "", hide_default_value = true)]
    pub otel_traces_sampler: String,
    /// Share of traces that `traceidratio` keeps, from 0 to 1.
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", default_value = "", hide_default_value = true)]
    pub otel_traces_sampler_arg: String,
    /// Maximum number of spans that wait.
    #[arg(long, env = "OTEL_BSP_MAX_QUEUE_SIZE", default_value = "", hide_default_value = true)]
    pub otel_bsp_max_queue_size: String,
    /// Maximum number of spans that are sent at once.
    #[arg(
        long,
        env = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        default_value = "",
        hide_default_value = true
    )]
    pub otel_bsp_max_export_batch_size: String,
    /// Time for which spans are collected before they are sent, in milliseconds.
    #[arg(long, env = "OTEL_BSP_SCHEDULE_DELAY", default_value = "", hide_default_value = true)]
    pub otel_bsp_schedule_delay: String,
}

/// What the exporter has to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where spans are posted to.
    pub url: Uri,
    /// Sent with each request.
    pub headers: HeaderMap,
    /// How long a batch may take.
    pub timeout: Duration,
    /// What the process is, as attributes of its resource.
    pub resource: Resource,
    /// How spans are written.
    pub protocol: Protocol,
    /// Which traces are kept.
    pub sampler: Sampler,
    /// Maximum number of spans that wait.
    pub queue: usize,
    /// Maximum number of spans that are sent at once.
    pub batch: usize,
    /// How long spans are collected.
    pub delay: Duration,
}

impl TraceOptions {
    /// What was asked for; nothing where traces are off. All problems at once.
    pub fn settings(&self) -> Result<Option<Settings>, Vec<String>> {
        if !self.enable_tracing {
            return Ok(None);
        }
        let mut problems = Vec::new();
        let settings = self.read(&mut problems);
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    fn read(&self, problems: &mut Vec<String>) -> Option<Settings> {
        let url = self.url().map_err(|problem| problems.push(problem)).ok();
        let headers = self.headers().map_err(|problem| problems.push(problem)).ok();
        let resource = self.resource().map_err(|problem| problems.push(problem)).ok();
        let sampler = self.sampler().map_err(|problem| problems.push(problem)).ok();
        let protocol = match self.otel_exporter_otlp_protocol.as_str() {
            "" | "http/protobuf" => Protocol::HttpBinary,
            "http/json" => Protocol::HttpJson,
            other => {
                problems.push(format!(
                    "OTEL_EXPORTER_OTLP_PROTOCOL is {other}, but traces are sent only by \
                     http/protobuf or http/json: use the port of the collector's HTTP receiver \
                     (4318 by default)"
                ));
                Protocol::HttpBinary
            }
        };
        let mut number = |variable: &str, text: &str, default: u64| match text.trim() {
            "" => default,
            text => text.parse().ok().filter(|number| *number > 0).unwrap_or_else(|| {
                problems.push(format!("{variable} is {text}, and not a whole number above 0"));
                default
            }),
        };
        let timeout =
            number("OTEL_EXPORTER_OTLP_TIMEOUT", &self.otel_exporter_otlp_timeout, 10_000);
        let queue = number("OTEL_BSP_MAX_QUEUE_SIZE", &self.otel_bsp_max_queue_size, 2_048);
        let batch = &self.otel_bsp_max_export_batch_size;
        let batch = number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", batch, 512);
        let delay = number("OTEL_BSP_SCHEDULE_DELAY", &self.otel_bsp_schedule_delay, 5_000);
        // A queue takes some of its memory when it is made.
        let queue = usize::try_from(queue.min(1_000_000)).unwrap_or(2_048);
        Some(Settings {
            url: url?,
            headers: headers?,
            timeout: Duration::from_millis(timeout),
            resource: resource?,
            protocol,
            sampler: sampler?,
            queue,
            batch: usize::try_from(batch).unwrap_or(queue).min(queue),
            delay: Duration::from_millis(delay),
        })
    }

    fn url(&self) -> Result<Uri, String> {
        let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let (variable, text) = match given(&self.otel_exporter_otlp_traces_endpoint) {
            Some(text) => ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", text),
            None => {
                let base = given(&self.otel_exporter_otlp_endpoint);
                let base = base.unwrap_or_else(|| ENDPOINT.to_owned());
                ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{}/v1/traces", base.trim_end_matches('/')))
            }
        };
        let url: Option<Uri> = text.parse().ok();
        let is_http = |url: &Uri| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.host().is_some_and(|host| !host.is_empty())
        };
        url.filter(is_http).ok_or_else(|| {
            format!("{variable} is not a URL with http or https, such as {ENDPOINT}")
        })
    }

    fn headers(&self) -> Result<HeaderMap, String> {
        let own = &self.otel_exporter_otlp_traces_headers;
        let (variable, text) = if own.is_empty() {
            ("OTEL_EXPORTER_OTLP_HEADERS", &self.otel_exporter_otlp_headers)
        } else {
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", own)
        };
        let mut headers = HeaderMap::new();
        for (key, value) in pairs(variable, text)? {
            let problem = || format!("{variable}: {key} can't be a header");
            let name = HeaderName::try_from(key.as_str()).map_err(|_| problem())?;
            if [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, HOST].contains(&name) {
                return Err(problem());
            }
            let mut value = HeaderValue::from_str(&value).map_err(|_| problem())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Ok(headers)
    }

    fn resource(&self) -> Result<Resource, String> {
        let mut all = pairs("OTEL_RESOURCE_ATTRIBUTES", &self.otel_resource_attributes)?;
        if !self.otel_service_name.is_empty() {
            all.retain(|(key, _)| key != "service.name");
            all.push(("service.name".to_owned(), self.otel_service_name.clone()));
        }
        for (key, value) in
            [("service.name", SERVICE), ("service.version", env!("CARGO_PKG_VERSION"))]
        {
            if !all.iter().any(|(given, _)| given == key) {
                all.push((key.to_owned(), value.to_owned()));
            }
        }
        let all = all.into_iter().map(|(key, value)| KeyValue::new(key, value));
        Ok(Resource::builder_empty().with_attributes(all).build())
    }

    fn sampler(&self) -> Result<Sampler, String> {
        let name = self.otel_traces_sampler.trim();
        // Nobody hands the operator a trace: a span without a parent decides for its children.
        let root = match name.strip_prefix("parentbased_").unwrap_or(name) {
            "" | "always_on" => Ok(Sampler::AlwaysOn),
            "always_off" => Ok(Sampler::AlwaysOff),
            "traceidratio" => {
                let text = self.otel_traces_sampler_arg.trim();
                let text = if text.is_empty() { "1" } else { text };
                let share: Option<f64> = text.parse().ok();
                let share = share.filter(|share| (0.0..=1.0).contains(share));
                share.map(Sampler::TraceIdRatioBased).ok_or_else(|| {
                    format!("OTEL_TRACES_SAMPLER_ARG is {text}, and not a number from 0 to 1")
                })
            }
            _ => Err(format!(
                "OTEL_TRACES_SAMPLER is {name}, and not one of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, \
                 parentbased_traceidratio"
            )),
        };
        root.map(|root| Sampler::ParentBased(Box::new(root)))
    }
}

/// `key=value`, separated by commas.
fn pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            // What is wrong is not repeated: it may be a secret.
            let pair = part.split_once('=').filter(|(key, _)| !key.trim().is_empty());
            let (key, value) =
                pair.ok_or_else(|| format!("{variable} is not a list of key=value"))?;
            let value = percent_decode_str(value.trim()).decode_utf8();
            let value = value.map_err(|_| format!("{variable}: {} is not UTF-8", key.trim()))?;
            Ok((key.trim().to_owned(), value.into_owned()))
        })
        .collect()
}
