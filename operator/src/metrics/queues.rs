//! What work queues count, under the names of client-go. The queue's name is that of the task that
//! runs it.

use std::time::Duration;

use parking_lot::Mutex;

use super::{Counters, Families, Gauges, Histograms, counters, gauges, histograms};

/// From 10 ns to 1,000 s in powers of ten, as controller-runtime has them.
const BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];

/// The families of all queues, with the labels `name` and `controller`, which are the same.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    /// `workqueue_depth`
    depth: Gauges<2>,
    /// `workqueue_adds_total`
    adds: Counters<2>,
    /// `workqueue_retries_total`
    retries: Counters<2>,
    /// `workqueue_queue_duration_seconds`
    waited: Histograms<2>,
    /// `workqueue_work_duration_seconds`
    worked: Histograms<2>,
}

impl QueueMetrics {
    pub(super) fn new(registry: &Mutex<Families>) -> Self {
        const LABELS: [&str; 2] = ["name", "controller"];
        Self {
            depth: gauges(
                registry,
                "workqueue_depth",
                "Number of keys that wait to be processed",
                LABELS,
            ),
            adds: counters(registry, "workqueue_adds", "Number of keys added to the queue", LABELS),
            retries: counters(
                registry,
                "workqueue_retries",
                "Number of keys that are retried because their processing failed",
                LABELS,
            ),
            waited: histograms(
                registry,
                "workqueue_queue_duration_seconds",
                "Time that keys waited until their processing started",
                LABELS,
                BUCKETS,
            ),
            worked: histograms(
                registry,
                "workqueue_work_duration_seconds",
                "Duration of the processing of a key",
                LABELS,
                BUCKETS,
            ),
        }
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
    pub fn queued(&self, depth: usize, added: u64) {
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
