//! What the parts of the operator are handed instead of making it.

use std::sync::Arc;

use kube::Client;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::decisions::Decisions;
use crate::events::Recorder;
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::tasks::Observer;

/// What every part of the operator, a provider's controllers among them, is handed instead of
/// making it.
#[derive(Clone)]
pub struct Context {
    /// The Kubernetes API.
    pub client: Client,
    /// The only source of time.
    pub clock: Clock,
    /// Publishes Kubernetes events, without repeating itself.
    pub recorder: Recorder,
    /// Keeps the last decisions.
    pub decisions: Decisions,
    /// Counters and histograms.
    pub metrics: Metrics,
    /// Which loops are in the middle of something.
    pub liveness: Liveness,
    /// Wakes the provisioner, the disruption loop and the NodePools' readiness early, e.g. after an
    /// interruption, or when a catalog or the state of a NodeClass changed. Call `notify_one`: the
    /// permit is kept, nothing is lost.
    pub wake: Arc<Notify>,
    /// Tells the provisioner that machines are being taken away, once their NodeClaims are deleted:
    /// it plans for their pods without waiting for others to come. Call `notify_one`.
    pub interrupted: Arc<Notify>,
    /// The cluster's name (`--cluster-name`): part of tags, user data and names in the cloud.
    pub cluster_name: Arc<str>,
}

impl Context {
    /// Who is told what the operator's tasks do.
    pub(crate) fn observer(&self) -> Observer {
        Observer { metrics: self.metrics.clone(), liveness: self.liveness.clone() }
    }
}
