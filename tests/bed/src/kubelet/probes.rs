//! Probes over HTTP and TCP, with a kubelet's thresholds and periods.

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::environment::ConfigError;

/// What a probe asks.
#[derive(Clone, Debug)]
enum Question {
    Http { uri: String, headers: Vec<(String, String)> },
    Tcp(u16),
}

/// A probe that is ready to be asked.
#[derive(Clone, Debug)]
pub(super) struct Prober {
    question: Question,
    address: Ipv4Addr,
    pub(super) initial_delay: Duration,
    pub(super) period: Duration,
    timeout: Duration,
    failures_needed: u32,
    successes_needed: u32,
    http: Client<HttpConnector, Full<Bytes>>,
}

/// Counts answers until one of the thresholds is reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streak {
    passed: u32,
    failed: u32,
}

impl Prober {
    /// Reads a container's probe; an error names what the bed can't do.
    pub(super) fn new(
        container: &Container,
        probe: &Probe,
        address: Ipv4Addr,
    ) -> Result<Self, ConfigError> {
        let question = if let Some(get) = &probe.http_get {
            http_question(container, get, address)?
        } else if let Some(tcp) = &probe.tcp_socket {
            Question::Tcp(port(container, &tcp.port)?)
        } else {
            let text = format!(
                "container {}: the bed's kubelet knows HTTP and TCP probes only",
                container.name
            );
            return Err(ConfigError(text));
        };
        let count = |value: Option<i32>, default: u32| {
            value
                .and_then(|value| u32::try_from(value).ok())
                .filter(|value| *value > 0)
                .unwrap_or(default)
        };
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(
                value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default),
            )
        };
        Ok(Self {
            question,
            address,
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds.filter(|it| *it > 0), 10),
            timeout: seconds(probe.timeout_seconds.filter(|it| *it > 0), 1),
            failures_needed: count(probe.failure_threshold, 3),
            successes_needed: count(probe.success_threshold, 1),
            http: Client::builder(TokioExecutor::new()).build_http(),
        })
    }

    /// Asks once.
    pub(super) async fn ask(&self) -> bool {
        match &self.question {
            Question::Tcp(port) => {
                let connect = tokio::net::TcpStream::connect((self.address, *port));
                tokio::time::timeout(self.timeout, connect).await.is_ok_and(|it| it.is_ok())
            }
            Question::Http { uri, headers } => {
                let mut request = http::Request::get(uri).header("User-Agent", "kube-probe/1.36");
                for (name, value) in headers {
                    request = request.header(name, value);
                }
                let Ok(request) = request.body(Full::default()) else { return false };
                match tokio::time::timeout(self.timeout, self.http.request(request)).await {
                    Ok(Ok(response)) => (200..400).contains(&response.status().as_u16()),
                    Ok(Err(_)) | Err(_) => false,
                }
            }
        }
    }

    /// Counts an answer; `Some` when enough in a row were the same.
    pub(super) fn count(&self, streak: &mut Streak, passed: bool) -> Option<bool> {
        if passed {
            *streak = Streak { passed: streak.passed + 1, failed: 0 };
            (streak.passed >= self.successes_needed).then_some(true)
        } else {
            *streak = Streak { passed: 0, failed: streak.failed + 1 };
            (streak.failed >= self.failures_needed).then_some(false)
        }
    }
}

fn http_question(
    container: &Container,
    get: &HTTPGetAction,
    address: Ipv4Addr,
) -> Result<Question, ConfigError> {
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    if scheme != "http" {
        let text =
            format!("container {}: the bed's kubelet does not probe over {scheme}", container.name);
        return Err(ConfigError(text));
    }
    let port = port(container, &get.port)?;
    let host =
        get.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_string());
    let path = get.path.as_deref().unwrap_or("/");
    let separator = if path.starts_with('/') { "" } else { "/" };
    let headers =
        get.http_headers.iter().flatten().map(|it| (it.name.clone(), it.value.clone())).collect();
    Ok(Question::Http { uri: format!("http://{host}:{port}{separator}{path}"), headers })
}

fn port(container: &Container, port: &IntOrString) -> Result<u16, ConfigError> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_ref() == Some(name))
            .map(|port| port.container_port)
            .or_else(|| name.parse().ok()),
    };
    number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| {
        ConfigError(format!("container {}: a probe names no port of it", container.name))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prober(probe: serde_json::Value) -> Result<Prober, ConfigError> {
        let container =
            json!({ "name": "main", "ports": [{ "name": "http", "containerPort": 8081 }] });
        let container: Container = serde_json::from_value(container).expect("a container");
        let probe: Probe = serde_json::from_value(probe).expect("a probe");
        Prober::new(&container, &probe, Ipv4Addr::new(127, 1, 1, 1))
    }

    #[test]
    fn a_named_port_is_looked_up_in_the_container() {
        let prober =
            prober(json!({ "httpGet": { "path": "healthz", "port": "http" } })).expect("valid");
        let Question::Http { uri, .. } = prober.question else { panic!("an HTTP probe") };
        assert_eq!(uri, "http://127.1.1.1:8081/healthz");
    }

    #[test]
    fn only_a_streak_of_failures_counts() {
        let prober =
            prober(json!({ "tcpSocket": { "port": 1 }, "failureThreshold": 2 })).expect("valid");
        let mut streak = Streak::default();
        let answers = [false, true, false, false].map(|passed| prober.count(&mut streak, passed));
        assert_eq!(answers, [None, Some(true), None, Some(false)]);
    }

    #[test]
    fn says_what_it_can_not_do() {
        let error =
            prober(json!({ "exec": { "command": ["true"] } })).expect_err("not a kind it knows");
        assert!(error.to_string().contains("HTTP and TCP"), "{error}");
    }
}
