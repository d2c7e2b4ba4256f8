//! Churn for as long as is asked for: NodeClasses, NodePools, workloads and nodes come and go on a
//! bed with the provider `aws` and two replicas, and what each replica keeps in memory and tells in
//! metrics should not grow with what has been.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use tenon_aws_double::progress::Progress;
use tokio::time::{Instant, sleep};

use super::{Failure, MeasureArgs, resident_mib};
use crate::bed::Bed;
use crate::installation::Installation;
use crate::user::{LIMIT, one_of};
use crate::wait::eventually;

/// Pods of each NodePool.
const PODS: usize = 6;

/// After the end of a round the operator still forgets what was in it; medians over many rounds
/// hide what takes longer.
const SETTLES: Duration = Duration::from_secs(2);

/// What `cargo sandbox measure soak` prints.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// NodePools that came and went, each with an EC2NodeClass, pods and nodes.
    rounds: u64,
    /// How long that took, seconds.
    seconds: f64,
    /// By pod of the operator.
    replicas: BTreeMap<String, Replica>,
}

/// What became of a replica: medians over the second and the last quarter of its samples, because
/// in the first one caches fill.
#[derive(Debug, Serialize)]
struct Replica {
    /// Resident memory early, MiB.
    rss_early_mib: f64,
    /// Resident memory in the end, MiB.
    rss_late_mib: f64,
    /// The most that was seen, MiB.
    rss_most_mib: f64,
    /// Resident memory in each tenth of the samples, MiB: medians.
    rss_by_tenth_mib: Vec<f64>,
    /// Series in its metrics early.
    series_early: f64,
    /// Series in its metrics in the end.
    series_late: f64,
    /// How often it was restarted.
    restarts: i32,
}

/// Memory and metrics of a replica between two rounds.
struct Sample {
    rss_mib: f64,
    series: f64,
    restarts: i32,
}

pub(super) async fn measure(
    bed: &Arc<Bed>,
    args: &MeasureArgs,
    progress: &Progress,
) -> Result<Figures, Failure> {
    let tenon = Installation::ensure(bed, &json!({})).await?;
    let started = Instant::now();
    let until = started + Duration::from_secs(args.minutes * 60);
    let step = progress.step(format!("{} minutes of churn", args.minutes));
    let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    let mut rounds = 0;
    while Instant::now() < until {
        let lanes = (0..args.lanes).map(|lane| round(&tenon, format!("soak-{}", rounds + lane)));
        futures::future::try_join_all(lanes).await?;
        rounds += args.lanes;
        for (pod, sample) in sample(&tenon).await? {
            samples.entry(pod).or_default().push(sample);
        }
    }
    step.done();
    Ok(Figures {
        rounds,
        seconds: started.elapsed().as_secs_f64(),
        replicas: samples.iter().map(|(pod, samples)| (pod.clone(), summary(samples))).collect(),
    })
}

/// A NodeClass, a NodePool and its pods come, and go again.
async fn round(tenon: &Installation, name: String) -> Result<(), Failure> {
    let user = tenon.user();
    let classes = user.objects("EC2NodeClass");
    let default = classes.get("default").await?;
    let mut spec = default.data["spec"].clone();
    // Another launch template for each.
    spec["tags"]["soak"] = json!(name);
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": { "name": name }, "spec": spec,
    });
    user.apply(&class).await?;
    user.ready("EC2NodeClass", &name).await?;
    let requirements: Value = json!([one_of("karpenter.k8s.aws/instance-category", &["c", "m"])]);
    let reference = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name });
    let template = json!({ "spec": { "nodeClassRef": reference } });
    let disruption = json!({ "consolidateAfter": "0s" });
    user.pool(&name, &requirements, &json!({ "template": template, "disruption": disruption }))
        .await?;
    user.scale(&name, PODS, &json!({ "scenario": name })).await?;
    user.runs(&name, PODS).await?;
    user.remove(&name).await?;
    for kind in ["NodePool", "EC2NodeClass"] {
        user.objects(kind).delete(&name, &DeleteParams::default()).await?;
    }
    eventually(&format!("{name} is gone"), LIMIT, async || {
        for kind in ["NodePool", "EC2NodeClass"] {
            if user.objects(kind).get_opt(&name).await?.is_some() {
                return Err(format!("the {kind} is there").into());
            }
        }
        Ok(true)
    })
    .await?;
    let old = SignedDuration::from_mins(10);
    forget_events(tenon, tenon.bed().clock().now() - old).await
}

/// The bed's API server keeps events for an hour, as others do: of no use here, and each list of
/// them grows.
async fn forget_events(tenon: &Installation, before: Timestamp) -> Result<(), Failure> {
    let events: Api<Event> = Api::all(tenon.bed().client());
    for event in events.list_metadata(&ListParams::default().limit(500)).await?.items {
        let Some(namespace) = event.namespace() else { continue };
        if event.creation_timestamp().is_some_and(|at| at.0 < before) {
            let events: Api<Event> = Api::namespaced(tenon.bed().client(), &namespace);
            events.delete(&event.name_any(), &DeleteParams::default()).await.ok();
        }
    }
    Ok(())
}

async fn sample(tenon: &Installation) -> Result<BTreeMap<String, Sample>, Failure> {
    sleep(SETTLES).await;
    let mut found = BTreeMap::new();
    for operator in tenon.operators() {
        let metrics = Installation::metrics(&operator).await?;
        let series = metrics.lines().filter(|line| !line.starts_with('#')).count();
        let sample = Sample {
            rss_mib: resident_mib(operator.pid())?,
            series: f64::from(u32::try_from(series)?),
            restarts: operator.restarts,
        };
        found.insert(operator.pod.clone(), sample);
    }
    Ok(found)
}

fn summary(samples: &[Sample]) -> Replica {
    let quarter = samples.len().div_ceil(4);
    let early = &samples[quarter.min(samples.len() - 1)..(2 * quarter).min(samples.len()).max(1)];
    let late = &samples[samples.len() - quarter..];
    let rss = |sample: &Sample| sample.rss_mib;
    let series = |sample: &Sample| sample.series;
    Replica {
        rss_early_mib: median(early, rss),
        rss_late_mib: median(late, rss),
        rss_most_mib: samples.iter().map(rss).fold(0.0, f64::max),
        rss_by_tenth_mib: samples
            .chunks(samples.len().div_ceil(10).max(1))
            .map(|some| median(some, rss))
            .collect(),
        series_early: median(early, series),
        series_late: median(late, series),
        restarts: samples.iter().map(|sample| sample.restarts).max().unwrap_or(0),
    }
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_shows() {
        let samples = |rss: &dyn Fn(u32) -> f64| -> Vec<Sample> {
            let sample = |at| Sample { rss_mib: rss(at), series: f64::from(at), restarts: 0 };
            (0..40).map(sample).collect()
        };
        let grown = summary(&samples(&|at| 100.0 + f64::from(at)));
        assert_eq!((grown.rss_early_mib, grown.rss_late_mib), (115.0, 135.0));
        assert_eq!(grown.rss_by_tenth_mib.len(), 10);
        assert_eq!((grown.rss_by_tenth_mib[0], grown.rss_by_tenth_mib[9]), (102.0, 138.0));
        assert_eq!((grown.series_early, grown.series_late), (15.0, 35.0));
        let flat = summary(&samples(&|at| if at < 10 { f64::from(at) } else { 60.0 }));
        assert_eq!((flat.rss_early_mib, flat.rss_late_mib, flat.rss_most_mib), (60.0, 60.0, 60.0));
        let short = summary(&samples(&|_| 5.0)[..1]);
        assert_eq!((short.rss_early_mib, short.rss_late_mib), (5.0, 5.0));
    }
}
