//! A real Prometheus that discovers what it scrapes in the bed's cluster, and a real Alertmanager
//! that it notifies: for what the chart ships for both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tenon_aws_double::cache;
use tenon_aws_double::process::{Process, ProcessSpec};
use tenon_aws_double::progress::Progress;

use crate::bed::Bed;
use crate::control_plane::programs::PrometheusPrograms;
use crate::failure::Failure;
use crate::http::get;
use crate::ports::Ports;
use crate::registry::ServerError;
use crate::user::LIMIT;
use crate::wait::eventually;

use self::faster::faster;

pub mod dashboards;
mod faster;
pub mod operator;

/// Long enough for a machine whose cores are busy.
const READY_LIMIT: Duration = Duration::from_mins(1);
/// Every second, so that a test sees in seconds what takes minutes elsewhere.
const INTERVAL: &str = "1s";

/// A running Prometheus with its Alertmanager; killed when dropped.
#[derive(Debug)]
pub struct Prometheus {
    address: String,
    alertmanager: String,
    processes: [Process; 2],
    _ports: Ports,
}

/// One element of the result of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its labels, with `__name__` if it has a name.
    pub labels: BTreeMap<String, String>,
    /// Never NaN, which is what quotients of nothing are.
    pub value: f64,
}

impl Prometheus {
    /// Starts both. `scrapes` are Prometheus' `scrape_configs`, whose `kubernetes_sd_configs` need
    /// a `role` only; `rules` is the content of a rule file (`{"groups": […]}`). Everything is
    /// scraped and evaluated every second.
    ///
    /// # Errors
    /// When a program can't be built or does not run.
    pub async fn start(bed: &Bed, scrapes: &[Value], rules: &Value) -> Result<Self, ServerError> {
        let programs = PrometheusPrograms::provide(&Progress::hidden()).await?;
        let mut ports = Ports::reserve(&cache::dir()?)?;
        let [address, alertmanager] =
            [ports.take()?, ports.take()?].map(|port| format!("127.0.0.1:{port}"));
        let dir = bed.dir().join("prometheus");
        let file = |name: &str, content: &Value| {
            let path = dir.join(name);
            // JSON is YAML.
            std::fs::create_dir_all(&dir)
                .and_then(|()| std::fs::write(&path, format!("{content:#}\n")))
                .map_err(|source| ServerError::Write { path: path.clone(), source })?;
            Ok::<PathBuf, ServerError>(path)
        };
        let routes = file(
            "alertmanager.yml",
            &json!({
                "route": { "receiver": "nobody", "group_by": ["alertname"], "group_wait": INTERVAL },
                "receivers": [{ "name": "nobody" }],
            }),
        )?;
        file("rules.yml", rules)?;
        let config = file(
            "prometheus.yml",
            &json!({
                "global": { "scrape_interval": INTERVAL, "evaluation_interval": INTERVAL },
                "rule_files": ["rules.yml"],
                "alerting": {
                    "alertmanagers": [{ "static_configs": [{ "targets": [alertmanager] }] }],
                },
                "scrape_configs": with_kubeconfig(scrapes, bed.control_plane().kubeconfig()),
            }),
        )?;
        let process = |name: &str, program: PathBuf, args: Vec<String>| {
            Process::spawn(ProcessSpec {
                name: name.to_owned(),
                program,
                args: args.into_iter().map(Into::into).collect(),
                env: BTreeMap::new(),
                log: bed.dir().join(format!("logs/{name}.log")),
                dir: dir.clone(),
            })
        };
        let processes = [
            process(
                "alertmanager",
                programs.alertmanager,
                vec![
                    format!("--config.file={}", routes.display()),
                    format!("--storage.path={}", dir.join("alertmanager").display()),
                    format!("--web.listen-address={alertmanager}"),
                    // No cluster of several.
                    "--cluster.listen-address=".to_owned(),
                ],
            )?,
            process(
                "prometheus",
                programs.prometheus,
                vec![
                    format!("--config.file={}", config.display()),
                    format!("--storage.tsdb.path={}", dir.join("data").display()),
                    format!("--web.listen-address={address}"),
                ],
            )?,
        ];
        for (process, address) in processes.iter().zip([&alertmanager, &address]) {
            let ready = async || matches!(get(address, "/-/ready").await, Ok((200, _)));
            process.ready("it answers /-/ready", READY_LIMIT, ready).await?;
        }
        Ok(Self { address, alertmanager, processes, _ports: ports })
    }

    /// Starts both for a bed whose operator was installed with [`values`], as the Prometheus
    /// operator does, but with rules that fire in seconds instead of minutes. Waits until both
    /// replicas are scraped.
    ///
    /// # Errors
    /// As [`start`](Self::start); when the chart's objects are not there, or nothing is scraped in
    /// time.
    pub async fn watch(bed: &Bed) -> Result<Self, Failure> {
        let scrape = operator::scrape(bed).await?;
        let rules = faster(&operator::rules(bed).await?);
        let this = Self::start(bed, &[scrape], &rules).await?;
        eventually("Prometheus scrapes both replicas", LIMIT, async || {
            let targets = this.targets().await?;
            let pods: BTreeSet<_> = targets.iter().filter_map(|labels| labels.get("pod")).collect();
            if pods.len() == 2 { Ok(true) } else { Err(format!("{targets:?}").into()) }
        })
        .await?;
        Ok(this)
    }

    /// What an instant query returns now, without values that are not numbers.
    ///
    /// # Errors
    /// When Prometheus does not answer, or refuses the expression, with what it says.
    pub async fn query(&self, expression: &str) -> Result<Vec<Sample>, Failure> {
        let query = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        let answer = ask(&self.address, &format!("/api/v1/query?query={query}")).await?;
        let result = answer["data"]["result"].as_array().ok_or("no result")?;
        let samples = result.iter().map(|one| {
            let value = one["value"][1].as_str().unwrap_or_default();
            Ok(Sample {
                labels: serde_json::from_value(one["metric"].clone())?,
                value: value.parse()?,
            })
        });
        let samples = samples.collect::<Result<Vec<Sample>, Failure>>()?;
        Ok(samples.into_iter().filter(|sample| !sample.value.is_nan()).collect())
    }

    /// The labels of the targets that Prometheus scrapes at this moment.
    ///
    /// # Errors
    /// When Prometheus does not answer.
    pub async fn targets(&self) -> Result<Vec<BTreeMap<String, String>>, Failure> {
        let answer = ask(&self.address, "/api/v1/targets?state=active").await?;
        let targets = answer["data"]["activeTargets"].as_array().ok_or("no targets")?;
        let up = targets.iter().filter(|target| target["health"] == "up");
        up.map(|target| Ok(serde_json::from_value(target["labels"].clone())?)).collect()
    }

    /// The alerts that Alertmanager has at this moment, because they fire: names and descriptions.
    ///
    /// # Errors
    /// When Alertmanager does not answer.
    pub async fn firing(&self) -> Result<BTreeMap<String, String>, Failure> {
        let answer = ask(&self.alertmanager, "/api/v2/alerts?active=true").await?;
        let alerts = answer.as_array().ok_or("no list of alerts")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let both = alerts.iter().map(|alert| {
            (text(&alert["labels"]["alertname"]), text(&alert["annotations"]["description"]))
        });
        Ok(both.collect())
    }

    /// Ends both.
    pub async fn stop(self) {
        for process in &self.processes {
            process.stop(Duration::from_secs(5)).await;
        }
    }
}

/// Values of the chart with which it creates all that it has for Prometheus and Grafana.
pub fn values() -> Value {
    json!({
        "serviceMonitor": { "enabled": true },
        "prometheusRule": { "enabled": true },
        "dashboards": { "enabled": true },
    })
}

/// The configurations, with this kubeconfig wherever targets are discovered in Kubernetes.
fn with_kubeconfig(scrapes: &[Value], kubeconfig: &Path) -> Vec<Value> {
    let mut scrapes = scrapes.to_vec();
    for scrape in &mut scrapes {
        let discovery = scrape.get_mut("kubernetes_sd_configs").and_then(Value::as_array_mut);
        for source in discovery.into_iter().flatten() {
            source["kubeconfig_file"] = json!(kubeconfig);
        }
    }
    scrapes
}

async fn ask(address: &str, path: &str) -> Result<Value, Failure> {
    let (status, body) = get(address, path).await?;
    if status != 200 {
        return Err(format!("http://{address}{path} answers {status}: {body}").into());
    }
    Ok(serde_json::from_str(&body)?)
}
