//! What work queues count, under the names of client-go. The queue's name is that of the task that
//! runs it.

use std::time::Duration;

use super::declare::families;

/// From 10 ns to 1,000 s in powers of ten, as controller-runtime has them.
const BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

families! {
    /// What all queues count; the labels `name` and `controller` have the same value.
    #[derive(Clone, Debug)]
    pub struct QueueMetrics {
        /// Number of keys that wait to be processed
        depth: gauges("workqueue_depth", ["name", "controller"]),
        /// Number of keys added to the queue
        adds: counters("workqueue_adds_total", ["name", "controller"]),
        /// Number of keys that are retried because their processing failed
        retries: counters("workqueue_retries_total", ["name", "controller"]),
        /// Time that keys waited until their processing started
        waited: histograms("workqueue_queue_duration_seconds", ["name", "controller"], BUCKETS),
        /// Duration of the processing of a key
        worked: histograms("workqueue_work_duration_seconds", ["name", "controller"], BUCKETS),
    }
}

/// Counts for one queue.
#[derive(Clone, Debug)]
pub struct QueueMeter {
    metrics: Option<QueueMetrics>,
    name: &'static str,
}

impl QueueMeter {
    /// For the queue of this name; without `metrics` nothing is counted.
    pub fn new(metrics: Option<QueueMetrics>, name: &'static str) -> Self {
        Self { metrics, name }
    }

    /// So many keys wait now, and so many have come since this was said last.
    pub(crate) fn queued(&self, depth: usize, added: u64) {
        let Some(metrics) = &self.metrics else { return };
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        metrics.depth.set([self.name; 2], f64::from(depth));
        if added > 0 {
            metrics.adds.add([self.name; 2], added);
        }
    }

    /// Work on a key begins, which had to wait for it.
    pub fn started(&self, waited: Duration) {
        let Some(metrics) = &self.metrics else { return };
        metrics.waited.observe([self.name; 2], waited.as_secs_f64());
    }

    /// Work on a key has ended.
    pub fn ended(&self, took: Duration, failed: bool) {
        let Some(metrics) = &self.metrics else { return };
        metrics.worked.observe([self.name; 2], took.as_secs_f64());
        if failed {
            metrics.retries.inc([self.name; 2]);
        }
    }
}
