//! What a simulation starts from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use tenon_planner::Policy;
use tenon_state::ec2::offered::VM_MEMORY_OVERHEAD;
use tenon_state::options::FeatureGates;
use tenon_state::scheduler::SchedulerConfig;

use super::error::SimulateError;

/// Where the objects come from, and what the operator's administrator chose.
#[derive(Debug, Clone)]
pub struct Options {
    /// Manifests, folders of them, `-` for standard input, or one saved snapshot.
    pub files: Vec<PathBuf>,
    /// What can be launched.
    pub catalog: CatalogOptions,
    /// The moment that is planned for.
    pub now: Timestamp,
    /// What breaks ties.
    pub seed: u64,
    /// Pods with resource claims wait.
    pub ignore_dra_requests: bool,
    /// The operator's feature gates.
    pub feature_gates: FeatureGates,
    /// The topology spread of pods without constraints of their own.
    pub scheduler_config: SchedulerConfig,
    /// The planner's policy.
    pub policy: Policy,
    /// How recent a running cluster's answers are.
    pub freshness: Freshness,
    /// Nodes that are taken as drained, by their labels.
    pub drain: Vec<Drain>,
}

/// Nodes to take as drained.
#[derive(Debug, Clone, PartialEq)]
pub struct Drain {
    /// As it was typed.
    pub text: String,
    /// Which nodes.
    pub(crate) which: Which,
}

/// Which nodes are taken as drained.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Which {
    /// Those whose labels are selected; there must be one.
    Labels(LabelSelector),
    /// Those with these names, as far as they are there.
    Names(BTreeSet<String>),
}

impl Drain {
    /// By their names.
    pub fn nodes(names: impl IntoIterator<Item = String>) -> Self {
        let names = names.into_iter().collect::<BTreeSet<_>>();
        let text = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        Self { text, which: Which::Names(names) }
    }
}

impl std::str::FromStr for Drain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let selector = tenon_crds::selector::parse(text)?;
        Ok(Self { text: text.to_owned(), which: Which::Labels(selector) })
    }
}

/// How recent the answers of an API server are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Everything that was written before is in them.
    Latest,
    /// They come from the API server's watch cache, which may be behind by moments: of large
    /// clusters they come much faster.
    Cached,
}

/// What can be launched.
#[derive(Debug, Clone)]
pub struct CatalogOptions {
    /// Instance types and capacity reservations; without them, list prices.
    pub files: Vec<PathBuf>,
    /// The share of EC2's memory that nodes don't show.
    pub vm_memory_overhead_percent: f64,
    /// Network interfaces that pods get no addresses of.
    pub reserved_enis: u32,
}

/// Which of the operator's two loops are planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loops {
    /// Machines for pending pods.
    Provision,
    /// Nodes that could go.
    Disrupt,
    /// Both.
    Both,
}

/// An object to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// What it is.
    pub kind: Kind,
    /// Namespace, of a pod.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Kinds that can be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Where it runs, or where it would go, or why it waits.
    Pod,
    /// Why it stays, or why it would go.
    Node,
    /// As for its Node.
    NodeClaim,
    /// What it has, what it may have, what it would launch, and whom it keeps out.
    NodePool,
}

impl Options {
    /// What a running cluster shows, with the operator's defaults for the rest.
    pub fn live(now: Timestamp, feature_gates: FeatureGates) -> Self {
        Self {
            files: Vec::new(),
            catalog: CatalogOptions {
                files: Vec::new(),
                vm_memory_overhead_percent: VM_MEMORY_OVERHEAD,
                reserved_enis: 0,
            },
            now,
            seed: 0,
            ignore_dra_requests: true,
            policy: feature_gates.policy(),
            feature_gates,
            scheduler_config: SchedulerConfig::default(),
            freshness: Freshness::Cached,
            drain: Vec::new(),
        }
    }

    /// Whether the input can be read more than once, which standard input can't.
    pub fn check_repeatable(&self) -> Result<(), SimulateError> {
        let is_once = self.files.iter().any(|file| file == Path::new("-"));
        if is_once { Err(SimulateError::ReadOnce) } else { Ok(()) }
    }

    /// Whether anything is named to read from; `live` is a running cluster.
    pub fn check(&self, live: bool) -> Result<(), SimulateError> {
        if self.files.is_empty() && !live { Err(SimulateError::NoInput) } else { Ok(()) }
    }
}
