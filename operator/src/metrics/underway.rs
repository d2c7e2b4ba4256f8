//! What is computed at each scrape from the process itself: work that is under way, and tokio's
//! runtime.

use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::Handle;

use crate::liveness::{Liveness, Unfinished};

const UNFINISHED: &str = "workqueue_unfinished_work_seconds";
const LONGEST: &str = "workqueue_longest_running_processor_seconds";
const WORKERS: &str = "tenon_runtime_workers";
const TASKS: &str = "tenon_runtime_alive_tasks";
const WAITING: &str = "tenon_runtime_global_queue_depth";
const BUSY: &str = "tenon_runtime_busy_seconds";

/// The names of all, as they are exposed.
pub const NAMES: [&str; 6] =
    [UNFINISHED, LONGEST, WORKERS, TASKS, WAITING, "tenon_runtime_busy_seconds_total"];

/// Computes them.
#[derive(Debug)]
pub struct Process {
    liveness: Liveness,
    runtime: Handle,
}

impl Process {
    /// Of these turns, and of the runtime that this runs in.
    pub fn new(liveness: Liveness) -> Self {
        Self { liveness, runtime: Handle::current() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let unfinished = self.liveness.unfinished();
        let mut by_task = |name, help, seconds: fn(&Unfinished) -> f64| {
            if unfinished.is_empty() {
                return Ok(());
            }
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (task, it) in &unfinished {
                let labels = [("name", *task), ("controller", *task)];
                ConstGauge::new(seconds(it)).encode(metric.encode_family(&labels)?)?;
            }
            Ok(())
        };
        let help = "Total duration in seconds of the work in progress";
        by_task(UNFINISHED, help, |it| it.total.as_secs_f64())?;
        let help = "Duration in seconds of the longest work in progress";
        by_task(LONGEST, help, |it| it.longest.as_secs_f64())?;

        let runtime = self.runtime.metrics();
        let workers = runtime.num_workers();
        for (name, help, count) in [
            (WORKERS, "Number of threads that run tasks", workers),
            (TASKS, "Number of tasks that have not ended", runtime.num_alive_tasks()),
            (WAITING, "Number of tasks that wait for a thread", runtime.global_queue_depth()),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(metric)?;
        }
        let busy: Duration =
            (0..workers).map(|worker| runtime.worker_total_busy_duration(worker)).sum();
        let help = "Busy time of the threads in seconds";
        let metric = encoder.encode_descriptor(BUSY, help, None, MetricType::Counter)?;
        ConstCounter::new(busy.as_secs_f64()).encode(metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test(start_paused = true)]
    async fn a_key_that_hangs_shows_in_the_metrics_of_its_queue() {
        let (metrics, liveness) = (Metrics::new(), Liveness::default());
        metrics.collector(Box::new(Process::new(liveness.clone())));
        let _turns = [(); 2].map(|()| liveness.begin("nodeclaim.lifecycle", Duration::MAX));
        tokio::time::sleep(Duration::from_secs(7)).await;
        let text = metrics.encode().unwrap();
        for line in [
            r#"workqueue_unfinished_work_seconds{name="nodeclaim.lifecycle",controller="nodeclaim.lifecycle"} 14.0"#,
            r#"workqueue_longest_running_processor_seconds{name="nodeclaim.lifecycle",controller="nodeclaim.lifecycle"} 7.0"#,
            "tenon_runtime_workers 1",
        ] {
            assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
        }
        assert!(text.contains("\ntenon_runtime_busy_seconds_total "), "{text}");
    }
}
