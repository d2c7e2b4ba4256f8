//! What is computed at each scrape from the process itself: work that is under way, and tokio's
//! runtime.

use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::runtime::Handle;

use super::declare::Declared;
use crate::liveness::{Liveness, Unfinished};

const UNFINISHED: Declared = Declared {
    name: "workqueue_unfinished_work_seconds",
    labels: &["name", "controller"],
    help: "Total duration in seconds of the work in progress",
};
const LONGEST: Declared = Declared {
    name: "workqueue_longest_running_processor_seconds",
    labels: &["name", "controller"],
    help: "Duration in seconds of the longest work in progress",
};
const WORKERS: Declared = Declared {
    name: "tenon_runtime_workers",
    labels: &[],
    help: "Number of threads that run tasks",
};
const TASKS: Declared = Declared {
    name: "tenon_runtime_alive_tasks",
    labels: &[],
    help: "Number of tasks that have not ended",
};
const WAITING: Declared = Declared {
    name: "tenon_runtime_global_queue_depth",
    labels: &[],
    help: "Number of tasks that wait for a thread",
};
const BUSY: Declared = Declared {
    name: "tenon_runtime_busy_seconds_total",
    labels: &[],
    help: "Busy time of the threads in seconds",
};

/// All of them.
#[cfg(test)]
pub(crate) const DECLARED: [Declared; 6] = [UNFINISHED, LONGEST, WORKERS, TASKS, WAITING, BUSY];

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
        let mut by_task = |metric: Declared, seconds: fn(&Unfinished) -> f64| {
            let Declared { name, help, .. } = metric;
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
        by_task(UNFINISHED, |it| it.total.as_secs_f64())?;
        by_task(LONGEST, |it| it.longest.as_secs_f64())?;

        let runtime = self.runtime.metrics();
        let workers = runtime.num_workers();
        for (Declared { name, help, .. }, count) in [
            (WORKERS, workers),
            (TASKS, runtime.num_alive_tasks()),
            (WAITING, runtime.global_queue_depth()),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(metric)?;
        }
        let busy: Duration =
            (0..workers).map(|worker| runtime.worker_total_busy_duration(worker)).sum();
        // The encoder appends the ending of counters.
        let name = BUSY.name.trim_end_matches("_total");
        let metric = encoder.encode_descriptor(name, BUSY.help, None, MetricType::Counter)?;
        ConstCounter::new(busy.as_secs_f64()).encode(metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::metrics::declare::assert_exposed_as_declared;

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
        assert_exposed_as_declared(&text, &DECLARED);
    }
}
