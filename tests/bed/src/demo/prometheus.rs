//! The story of Prometheus: what the chart ships for it, in a real Prometheus with a real
//! Alertmanager. An alert fires when EC2 has no capacity, and ends when it has.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenon_aws_double::faults::Shortage;
use tokio::time::Instant;

use super::chapters::{install_with, note_created};
use super::inventory::Inventory;
use super::{Chapter, Scene, StoryError, bed, user};
use crate::prometheus::{self, Prometheus, dashboards, operator};
use crate::user::{LIMIT, one_of};
use crate::wait::eventually;

pub(super) const CHAPTERS: &[Chapter] = &[
    Chapter {
        title: "Install",
        shows: "`tenon install` with a ServiceMonitor, a PrometheusRule and the dashboards, which are off by default.",
        tell: |scene| Box::pin(install(scene)),
    },
    Chapter {
        title: "Prometheus",
        shows: "Prometheus and Alertmanager start. Prometheus scrapes both replicas of the operator and evaluates the rules of the chart, with minutes made seconds. Nothing fires.",
        tell: |scene| Box::pin(start(scene)),
    },
    Chapter {
        title: "No capacity",
        shows: "EC2 has no instances of the families of four NodePools. Their pods wait, and an alert reaches Alertmanager.",
        tell: |scene| Box::pin(no_capacity(scene)),
    },
    Chapter {
        title: "More instance types",
        shows: "The NodePools allow another instance family. The pods run, and the alert ends.",
        tell: |scene| Box::pin(more_types(scene)),
    },
    Chapter {
        title: "Dashboards",
        shows: "Prometheus evaluates every expression of every panel of both dashboards.",
        tell: |scene| Box::pin(panels(scene)),
    },
];

const ALERT: &str = "TenonCapacityMissing";
/// NodePools, each of one instance family, and the apps that need their nodes.
const FAMILIES: [&str; 4] = ["c5", "c6i", "r5", "r6i"];
/// The family that EC2 has instances of.
const OTHER: &str = "m5";
/// Longer than any rule waits here.
const REST: Duration = Duration::from_secs(12);

fn prometheus<'a>(scene: &'a Scene<'_>) -> &'a Prometheus {
    scene.prometheus.as_ref().expect("an earlier chapter starts it")
}

async fn install(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let defined = operator::definitions(&scene.client).await;
    defined.map_err(bed("define ServiceMonitor and PrometheusRule"))?;
    scene.before = Some(Inventory::take(scene.bed).await?);
    install_with(scene.bed, &prometheus::values(), &scene.narrator.progress).await?;
    note_created(scene).await
}

async fn start(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let started = Instant::now();
    let watching = Prometheus::watch(scene.bed).await.map_err(bed("start Prometheus"))?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("Prometheus scrapes both replicas after {seconds:.1} s"));
    scene.prometheus = Some(watching);
    tokio::time::sleep(REST).await;
    let mut firing = prometheus(scene).firing().await.map_err(bed("ask Alertmanager"))?;
    // True on a machine that does other work, too.
    firing.remove("TenonLacksCpu");
    if firing.is_empty() {
        scene.note(format!("nothing fires in {} s", REST.as_secs()));
        return Ok(());
    }
    Err(StoryError::Unexpected(format!("alerts at rest: {firing:?}")))
}

/// What nodes of a NodePool may be.
fn machines(families: &[&str]) -> Value {
    json!([one_of("karpenter.k8s.aws/instance-family", families)])
}

async fn no_capacity(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let aws = scene.bed.aws().map_err(bed("use AWS"))?;
    let started = Instant::now();
    for family in FAMILIES {
        aws.gateway().control().ice(Shortage {
            instance_type: format!("{family}.*"),
            zone: "*".to_owned(),
            capacity_type: None,
            left: 0,
            code: "InsufficientInstanceCapacity".to_owned(),
        });
        let pool = user.pool(family, &machines(&[family]), &json!({})).await;
        pool.map_err(bed("create a NodePool"))?;
        let selector = json!({ "scenario": family });
        user.scale(family, 1, &selector).await.map_err(bed("create a pod"))?;
        // Prometheus sees only the increase after the first value of a counter.
        let errors =
            format!("count(karpenter_cloudprovider_errors_total{{nodepool=\"{family}\"}})");
        eventually("Prometheus has the error of the launch", LIMIT, async || {
            Ok(!prometheus(scene).query(&errors).await?.is_empty())
        })
        .await?;
    }
    let said = Mutex::new(String::new());
    eventually("the alert reaches Alertmanager", LIMIT, async || {
        let firing = prometheus(scene).firing().await?;
        let Some(text) = firing.get(ALERT) else {
            return Err(format!("firing: {firing:?}").into());
        };
        text.clone_into(&mut said.lock());
        Ok(true)
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("{ALERT} after {seconds:.1} s: {}", said.into_inner()));
    Ok(())
}

async fn more_types(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let started = Instant::now();
    for family in FAMILIES {
        let pool = user.pool(family, &machines(&[family, OTHER]), &json!({})).await;
        pool.map_err(bed("change a NodePool"))?;
    }
    for family in FAMILIES {
        user.runs(family, 1).await?;
    }
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("the pods run on {OTHER} after {seconds:.1} s"));
    eventually("the alert ends", LIMIT, async || {
        Ok(!prometheus(scene).firing().await?.contains_key(ALERT))
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("{ALERT} ends after {seconds:.1} s"));
    Ok(())
}

async fn panels(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let queries = dashboards::queries(scene.bed).await.map_err(bed("read the dashboards"))?;
    let (mut with_data, mut without) = (0, Vec::new());
    for query in &queries {
        let asked = format!("max_over_time(({})[20m:2s])", query.expression);
        let samples = prometheus(scene).query(&asked).await;
        let samples = samples.map_err(bed(&format!("evaluate panel {}", query.panel)))?;
        if samples.is_empty() {
            without.push(query.panel.as_str());
        } else {
            with_data += 1;
        }
    }
    without.dedup();
    scene.note(format!("{with_data} of {} expressions have data", queries.len()));
    scene.note(format!("nothing to show yet: {}", without.join(", ")));
    // The rest are about interruptions, disruption and failures, of which there were none.
    if 2 * with_data < queries.len() {
        return Err(StoryError::Unexpected("most panels are empty".to_owned()));
    }
    Ok(())
}
