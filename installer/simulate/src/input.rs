//! The objects that a simulation starts from, sorted by kind, wherever they came from.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use tenon_crds::{EC2NodeClass, NodeClaim, NodePool};
use tenon_state::change::Object;
use tenon_state::wire;

/// Everything that was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Input {
    /// NodePools.
    pub(super) pools: Vec<NodePool>,
    /// NodeClaims.
    pub(super) claims: Vec<NodeClaim>,
    /// Nodes.
    pub(super) nodes: Vec<wire::Node>,
    /// Pods.
    pub(super) pods: Vec<wire::Pod>,
    /// DaemonSets.
    pub(super) daemon_sets: Vec<wire::DaemonSet>,
    /// PodDisruptionBudgets.
    pub(super) budgets: Vec<wire::PodDisruptionBudget>,
    /// Kinds that go into the cluster as they are.
    pub(super) others: Vec<Object>,
    /// What makes pods: Deployments, ReplicaSets, StatefulSets, Jobs.
    pub(super) workloads: Vec<Workload>,
    /// PriorityClasses.
    pub(super) priority_classes: Vec<PriorityClass>,
    /// EC2NodeClasses.
    pub ec2_classes: Vec<EC2NodeClass>,
    /// Events, which only explanations use.
    pub(super) events: Vec<Event>,
    /// How many objects were read.
    pub(super) count: usize,
    /// Kinds that the planner has no use for, and how often they were met.
    pub(super) skipped: BTreeMap<String, usize>,
}

/// Something that makes pods from a template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Workload {
    /// Which kind.
    #[serde(skip)]
    pub(super) kind: WorkloadKind,
    /// Metadata.
    pub(super) metadata: ObjectMeta,
    /// What is wanted.
    pub(super) spec: WorkloadSpec,
    /// What is.
    pub(super) status: WorkloadStatus,
}

/// Kinds of workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkloadKind {
    #[default]
    Deployment,
    ReplicaSet,
    StatefulSet,
    Job,
}

impl WorkloadKind {
    /// Kubernetes' name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
            Self::Job => "Job",
        }
    }

    /// The API that it is in.
    pub(super) fn api_version(self) -> &'static str {
        if self == Self::Job { "batch/v1" } else { "apps/v1" }
    }
}

/// `spec` of a workload, of all kinds together.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WorkloadSpec {
    /// How many pods; absent is 1.
    pub(super) replicas: Option<i32>,
    /// Of a Job: how many pods at once; absent is 1.
    pub(super) parallelism: Option<i32>,
    /// Of a Job: how many pods in all.
    pub(super) completions: Option<i32>,
    /// Which pods are its own.
    pub(super) selector: Option<LabelSelector>,
    /// A suspended Job has no pods.
    pub(super) suspend: bool,
    /// Its pods.
    pub(super) template: wire::PodTemplateSpec,
    /// Of a StatefulSet: one claim of each per pod.
    pub(super) volume_claim_templates: Vec<wire::PersistentVolumeClaim>,
}

/// `status` of a workload.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WorkloadStatus {
    /// Of a Job: pods that have done their work.
    pub(super) succeeded: i32,
}

/// A PriorityClass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PriorityClass {
    /// Metadata.
    pub(super) metadata: ObjectMeta,
    /// The priority that it stands for.
    pub(super) value: i32,
    /// It counts for pods that name none.
    pub(super) global_default: bool,
}

/// One object that was read.
#[derive(Debug)]
pub(super) enum Read {
    /// An object that the state is made of.
    Object(Object),
    /// Something that creates pods.
    Workload(Box<Workload>),
    /// A PriorityClass.
    PriorityClass(Box<PriorityClass>),
    /// An EC2NodeClass.
    Ec2NodeClass(Box<EC2NodeClass>),
    /// An Event.
    Event(Box<Event>),
    /// An object that says nothing that plans depend on, but belongs here.
    Understood,
    /// A kind that the planner has no use for.
    Unknown(String),
}

impl Input {
    pub(super) fn add(&mut self, read: Read) {
        self.count += 1;
        match read {
            Read::Object(Object::NodePool(pool)) => self.pools.push(*pool),
            Read::Object(Object::NodeClaim(claim)) => self.claims.push(*claim),
            Read::Object(Object::Node(node)) => self.nodes.push(*node),
            Read::Object(Object::Pod(pod)) => self.pods.push(*pod),
            Read::Object(Object::DaemonSet(set)) => self.daemon_sets.push(*set),
            Read::Object(Object::PodDisruptionBudget(budget)) => self.budgets.push(*budget),
            Read::Object(other) => self.others.push(other),
            Read::Workload(workload) => self.workloads.push(*workload),
            Read::PriorityClass(class) => self.priority_classes.push(*class),
            Read::Ec2NodeClass(class) => self.ec2_classes.push(*class),
            Read::Event(event) => self.events.push(*event),
            Read::Understood => {}
            Read::Unknown(kind) => {
                self.count -= 1;
                *self.skipped.entry(kind).or_default() += 1;
            }
        }
    }
}

impl Input {
    /// Adds what was read elsewhere. Where both have an object of one name, that of `other` counts.
    pub(super) fn extend(&mut self, other: Self) {
        let Self {
            pools,
            claims,
            nodes,
            pods,
            daemon_sets,
            budgets,
            others,
            workloads,
            priority_classes,
            ec2_classes,
            events,
            count,
            skipped,
        } = other;
        self.pools.extend(pools);
        self.claims.extend(claims);
        self.nodes.extend(nodes);
        self.pods.extend(pods);
        self.daemon_sets.extend(daemon_sets);
        self.budgets.extend(budgets);
        self.others.extend(others);
        self.workloads.extend(workloads);
        self.priority_classes.extend(priority_classes);
        self.ec2_classes.extend(ec2_classes);
        self.events.extend(events);
        self.count += count;
        for (kind, n) in skipped {
            *self.skipped.entry(kind).or_default() += n;
        }
    }
}
