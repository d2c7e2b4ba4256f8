//! The border between the operator and the clouds: what a provider must be able to do, and what it
//! answers.
//!
//! Two implementations: `aws` (EC2 and its neighbours) and `kwok` (plain Node objects, needs no
//! cloud). The operator is generic over [`CloudProvider`]; only the wiring in `main` knows which
//! one runs. A provider decides nothing that the planner decides: it is told which instance types
//! may be launched, and picks among their offerings only as the cloud's own allocation does.

pub(crate) mod metered;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tenon_planner::resources::Resources;
pub(crate) use tenon_planner::snapshot::RepairPolicy;
use tenon_planner::snapshot::{Catalog, NodeClassRef};

use tenon_crds::labels::LabelRules;
use tenon_crds::nodeclaim::NodeClaim;
pub(crate) use tenon_state::node_class::NodeClassKind;

use crate::context::Context;
use crate::state::State;
use crate::tasks::Tasks;
use crate::work_queue::Concern;
use crate::write::Writer;

/// A machine of the cloud, as it is there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instance {
    /// `status.providerID`, e.g. `aws:///eu-central-1a/i-0123456789abcdef0`.
    pub provider_id: String,
    /// The NodeClaim that it was launched for, as its tags say; `None` when they don't (yet).
    pub claim: Option<String>,
    /// The NodePool in its tags.
    pub node_pool: Option<String>,
    /// When it was launched.
    pub created_at: Option<Timestamp>,
    /// It is on its way out: shutting down.
    pub terminating: bool,
    /// Labels that its nature gives it: instance type, zone, capacity type, architecture, ….
    pub labels: BTreeMap<String, String>,
    /// Image that it was launched from.
    pub image_id: Option<String>,
}

/// The result of a launch: what is merged into the NodeClaim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launched {
    /// The launched instance.
    pub instance: Instance,
    /// Annotations for the NodeClaim (hash of the NodeClass and its version, …).
    pub annotations: BTreeMap<String, String>,
    /// `status.capacity`.
    pub capacity: Resources,
    /// `status.allocatable`.
    pub allocatable: Resources,
}

/// One thing that a provider sees to before a Node is registered.
#[derive(Debug)]
pub(crate) struct Hook {
    /// As the condition Registered lists it.
    pub name: &'static str,
    /// How far it is; an error is tried again with back-off.
    pub progress: Result<HookProgress, CloudError>,
}

/// How far a [`Hook`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookProgress {
    /// The Node may be registered. These labels became known on the way; they replace the
    /// NodeClaim's.
    Done(BTreeMap<String, String>),
    /// Not yet; ask again after this time.
    Pending(Duration),
}

/// What a NodeClass says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeClassState {
    /// Its `Ready` condition: `Ok` when True, else reason and message.
    pub ready: Result<(), (String, String)>,
    /// `Ready` is Unknown rather than False.
    pub unknown: bool,
    /// Has a deletion timestamp.
    pub deleting: bool,
    /// `metadata.generation`.
    pub generation: i64,
}

/// Why a call to the cloud failed, by what the caller has to do next.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CloudError {
    /// The machine does not exist (any more). The normal end of a deletion.
    #[error("no instance {0} exists in the cloud")]
    NotFound(String),
    /// Nothing of what the claim allows can be had now: delete the claim, plan again without these
    /// offerings.
    #[error("insufficient capacity, {0}")]
    InsufficientCapacity(String),
    /// The NodeClass is not ready: delete the claim, its pods wait for the NodeClass.
    #[error("NodeClass not ready, {0}")]
    NodeClassNotReady(String),
    /// The launch failed for a reason that is worth a condition: `reason` is a CamelCase word,
    /// `message` is for people.
    #[error("creating the instance, {message}")]
    Create {
        /// Reason of the condition Launched.
        reason: String,
        /// For the message of the condition `Launched`.
        message: String,
        /// The error of the provider's client.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Machines of this cloud can't be restarted in place.
    #[error("the cloud does not reboot instances")]
    RebootNotSupported,
    /// The cloud refuses to restart the machine, and asking again does not help.
    #[error("{0}")]
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "EC2 only fails for reasons that pass; other clouds refuse")
    )]
    RebootRefused(String),
    /// Anything else; tried again with back-off.
    #[error("{operation}")]
    Other {
        /// What was being done, with the names involved.
        operation: String,
        /// The error of the provider's client.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Reason of a launch that waits until more is known about its NodeClass.
pub(crate) const READINESS_UNKNOWN: &str = "NodeClassReadinessUnknown";

impl CloudError {
    /// As metrics label it.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "NodeClaimNotFoundError",
            Self::InsufficientCapacity(_) => "InsufficientCapacityError",
            Self::NodeClassNotReady(_) => "NodeClassNotReadyError",
            Self::RebootNotSupported => "NodeRebootNotImplementedError",
            Self::RebootRefused(_) => "NodeRebootFailedError",
            Self::Create { .. } | Self::Other { .. } => "unknown",
        }
    }

    /// Who has to know.
    pub(crate) fn concern(&self) -> Concern {
        match self {
            Self::NotFound(_) => Concern::Nobody,
            // Capacity comes back, and what a NodeClass lacks is in its conditions.
            Self::InsufficientCapacity(_) | Self::NodeClassNotReady(_) => Concern::Passing,
            // The machine is cured in another way then.
            Self::RebootNotSupported | Self::RebootRefused(_) => Concern::Passing,
            Self::Create { reason, .. } if reason == READINESS_UNKNOWN => Concern::Passing,
            Self::Create { .. } | Self::Other { .. } => Concern::Administrator,
        }
    }
}

/// A cloud.
pub(crate) trait CloudProvider: Send + Sync + 'static {
    /// Label of metrics: `aws`, `kwok`.
    fn name(&self) -> &'static str;

    /// The kinds of NodeClass that it serves; the first is the default.
    fn node_class_kinds(&self) -> &'static [NodeClassKind];

    /// What makes a machine sick, how long that is tolerated, and what helps: a set that
    /// [`tenon_planner::repair::validate`] accepts.
    fn repair_policies(&self) -> Vec<RepairPolicy>;

    /// What this cloud knows about labels.
    fn label_rules(&self) -> LabelRules {
        LabelRules::core()
    }

    /// Waits until the provider's own watches ([`Self::start_watching`]) have listed everything
    /// once: before that, what they don't have may well exist.
    fn synced(&self) -> impl Future<Output = ()> + Send;

    /// State of a NodeClass, from the provider's watch; `None` when it does not exist. When it
    /// changes the provider calls [`Context::wake`].
    fn node_class(&self, reference: &NodeClassRef) -> Option<NodeClassState>;

    /// All instance types for a NodeClass, also those without available offerings; from memory,
    /// refreshed by the provider's own tasks. `Err` carries why nothing is known yet.
    fn catalog(&self, reference: &NodeClassRef) -> Result<Arc<Catalog>, CloudError>;

    /// Launches a machine that satisfies the claim's requirements and requests. The claim exists in
    /// Kubernetes, with its finalizer. Called again for the same claim (same uid) after a crash it
    /// finds the machine that it launched before, instead of launching a second one. `overlaid` is
    /// what can be launched where NodeOverlays change what [`Self::catalog`] says.
    fn create(
        &self,
        claim: &NodeClaim,
        overlaid: Option<Arc<Catalog>>,
    ) -> impl Future<Output = Result<Launched, CloudError>> + Send;

    /// Starts the deletion of the claim's machine. Called again until it answers
    /// [`CloudError::NotFound`].
    fn delete(&self, claim: &NodeClaim) -> impl Future<Output = Result<(), CloudError>> + Send;

    /// The machine with this provider id.
    fn get(&self, provider_id: &str) -> impl Future<Output = Result<Instance, CloudError>> + Send;

    /// All machines of this cluster that the operator launched, those on their way out too.
    fn list(&self) -> impl Future<Output = Result<Vec<Instance>, CloudError>> + Send;

    /// Restarts the claim's machine in place, and answers as soon as the cloud has accepted that.
    /// Asked for again with the same `operation` it is the same restart.
    fn reboot(
        &self,
        _claim: &NodeClaim,
        _operation: &str,
    ) -> impl Future<Output = Result<(), CloudError>> + Send {
        async { Err(CloudError::RebootNotSupported) }
    }

    /// What has to be seen to before the Node of a launched claim is registered, which lets pods
    /// onto it: asked for while the Node waits with its taint, until everything is done.
    fn before_registration(&self, _claim: &NodeClaim) -> impl Future<Output = Vec<Hook>> + Send {
        async { Vec::new() }
    }

    /// Why the claim's machine differs from what its NodeClass now asks for; `None` when it does
    /// not. The reason becomes the condition's reason.
    fn is_drifted(
        &self,
        claim: &NodeClaim,
    ) -> impl Future<Output = Result<Option<String>, CloudError>> + Send;

    /// Starts what the provider does all the time, on any replica: its watches and refreshes
    /// (NodeClass store, prices, catalog), which only read. What it has to know of NodeClaims and
    /// Nodes is in `state`: a provider does not watch them again.
    fn start_watching(self: &Arc<Self>, context: &Context, state: &State, tasks: &mut Tasks);

    /// Starts the provider's own controllers (status of NodeClasses, interruption, tagging, garbage
    /// collection), which write to Kubernetes through `write`. Only on the leader, and after
    /// [`Self::start_watching`].
    fn start_controllers(self: &Arc<Self>, context: &Context, write: &Writer, tasks: &mut Tasks);
}
