//! What a step does, as a value: everything that it takes is in it, so that carrying it out needs
//! no choice.

use std::collections::BTreeMap;

use serde::Serialize;
use tenon_iam_policies::Document;

use crate::desired::{
    AccessEntry, Association, FargateProfile, Profile, Provider, Queue, Role, Rule,
};
use crate::kubernetes::aws_auth::Mapping;
use crate::kubernetes::helm;
use crate::kubernetes::lease::Place;
use crate::kubernetes::object::Object;
use crate::ownership::Tags;

/// What exactly is done.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Make a role, or bring it to what it should be.
    EnsureRole {
        /// What it should be.
        role: Role,
        /// What is different.
        changes: RoleChanges,
    },
    /// Remove a role of ours that is no longer wanted.
    DeleteRole {
        /// Name in IAM.
        name: String,
    },
    /// Make an instance profile, or put its role into it.
    EnsureProfile {
        /// What it should be.
        profile: Profile,
        /// It is not there yet.
        create: bool,
        /// Another role in it.
        replaces: Option<String>,
    },
    /// Make the service-linked role of EC2 Spot.
    CreateSpotRole,
    /// Make an identity provider, or let it take our audience.
    EnsureProvider {
        /// What it should be.
        provider: Provider,
        /// It is not there yet.
        create: bool,
    },
    /// Let nodes in by the ConfigMap `aws-auth`.
    MapRole(Mapping),
    /// Take our element out of the ConfigMap `aws-auth`.
    UnmapRole,
    /// Make a Fargate profile.
    CreateFargate {
        /// What it should be.
        profile: FargateProfile,
        /// One is there that can't be changed: remove it first.
        replace: bool,
    },
    /// Remove a Fargate profile of ours that is no longer wanted.
    DeleteFargate {
        /// Name in the cluster.
        name: String,
    },
    /// Install the Pod Identity agent.
    InstallAgent,
    /// Make an association.
    CreateAssociation(Association),
    /// Give an association our role.
    UpdateAssociation {
        /// Id that EKS gave the association.
        id: String,
        /// Its ARN.
        arn: String,
        /// What it should be.
        association: Association,
    },
    /// Remove an association of ours that is no longer wanted.
    DeleteAssociation {
        /// Id that EKS gave the association.
        id: String,
    },
    /// Remove an access entry of ours that is no longer wanted.
    DeleteAccessEntry {
        /// Its principal.
        arn: String,
    },
    /// Make an access entry.
    CreateAccessEntry {
        /// What it should be.
        entry: AccessEntry,
        /// One is there, for a role that is no more: remove it first.
        replace: bool,
    },
    /// Make a queue.
    CreateQueue(Queue),
    /// Bring a queue to what it should be.
    UpdateQueue {
        /// How it is called.
        url: String,
        /// What it should be.
        queue: Queue,
    },
    /// Remove a queue that is no longer wanted.
    DeleteQueue {
        /// How it is called.
        url: String,
        /// Name in SQS.
        name: String,
    },
    /// Make a rule and its target, or bring them to what they should be.
    EnsureRule {
        /// What it should be.
        rule: Rule,
        /// It is not there yet.
        create: bool,
    },
    /// Remove a rule that is no longer wanted.
    DeleteRule {
        /// Name in EventBridge.
        name: String,
        /// Ids of its targets.
        targets: Vec<String>,
    },
    /// Add tags to a subnet or security group.
    Tag {
        /// `subnet-…` or `sg-…`
        id: String,
        /// What is added; other tags stay.
        tags: Tags,
    },
    /// Take our tags off a subnet or security group.
    Untag {
        /// `subnet-…` or `sg-…`
        id: String,
        /// The tags, key and value.
        tags: Tags,
    },
    /// Bring a tag set of an EKS resource to what it should be.
    TagEks {
        /// Its ARN.
        arn: String,
        /// What is added; other tags stay.
        tags: Tags,
    },
    /// Write a revision of the Helm release.
    WriteRelease {
        /// What it holds.
        record: helm::Record,
        /// Its number.
        revision: u32,
        /// Revisions that count as deployed until then.
        deployed: Vec<String>,
        /// Revisions that are too old to be kept.
        old: Vec<String>,
    },
    /// Remove the Helm release's record.
    DeleteRelease {
        /// Where Helm's Secrets are.
        namespace: String,
        /// Names of the revisions.
        secrets: Vec<String>,
    },
    /// Start one pod of the new version beside the old ones, and see whether it can take over. One
    /// that can't is removed.
    ProveCanary {
        /// Its Deployment.
        canary: Object,
        /// How long it may take to become ready, in seconds.
        seconds: u64,
    },
    /// Wait until all pods of the operator are those of its Deployment as it is.
    AwaitRollout {
        /// The Deployment.
        deployment: Object,
        /// How long it may take, in seconds.
        seconds: u64,
    },
    /// Remove the canary, and wait until its pod is gone.
    RemoveCanary {
        /// Its Deployment.
        canary: Object,
    },
    /// Mark a thing of somebody else's as used.
    Adopt {
        /// What it is.
        what: Adoptee,
        /// By whom.
        install_id: String,
    },
    /// Take that mark off.
    Release {
        /// What it is.
        what: Adoptee,
    },
    /// Add one inline policy to a role of somebody else's.
    AddPolicy {
        /// Name of the role.
        role: String,
        /// Name of the policy.
        name: String,
        /// What it allows.
        document: Document,
    },
    /// Take it away again.
    RemovePolicy {
        /// Name of the role.
        role: String,
        /// Name of the policy.
        name: String,
    },
    /// Scale Karpenter's Deployment to 0, and remember how many replicas it had.
    HandOver {
        /// Where it is.
        deployment: Object,
        /// How many it had.
        replicas: i64,
        /// To whom.
        install_id: String,
        /// How long its pods may take to end, in seconds.
        seconds: u64,
    },
    /// Scale it up again.
    HandBack {
        /// Where it is.
        deployment: Object,
        /// How many it had.
        replicas: i64,
        /// How long its pods may take to be ready, in seconds.
        seconds: u64,
    },
    /// Take our annotations off it.
    ForgetHandOver {
        /// Where it is.
        deployment: Object,
        /// How many replicas it gets back in the same moment, if it did not get them before.
        replicas: Option<i64>,
    },
    /// Keep the pods of somebody else's DaemonSet off all nodes, and wait until they are gone.
    StopDaemonSet {
        /// Where it is.
        daemon_set: Object,
        /// By whom.
        install_id: String,
        /// How long its pods may take to end, in seconds.
        seconds: u64,
    },
    /// Let its pods onto their nodes again, and take our annotation off.
    StartDaemonSet {
        /// Where it is.
        daemon_set: Object,
    },
    /// Take targets off a rule of somebody else's that stays.
    RemoveTargets {
        /// Name in EventBridge.
        rule: String,
        /// Ids of the targets.
        targets: Vec<String>,
    },
    /// Remove a lifecycle hook of an Auto Scaling group.
    DeleteHook {
        /// Name of the group.
        group: String,
        /// Name of the hook.
        name: String,
    },
    /// Move all messages of one queue into another, until none is left or in flight.
    MoveMessages {
        /// URL of the queue that ends up empty.
        from: String,
        /// URL of the queue that gets them.
        to: String,
        /// How long it may take, in seconds.
        seconds: u64,
        /// Something still sends to it, so that it is never empty: what turns up for so many
        /// seconds is moved.
        fed: Option<u64>,
    },
    /// Write annotations of an object that may be somebody else's; without a value, one goes.
    Annotate {
        /// Where it is.
        object: Object,
        /// Those that change; the others stay.
        annotations: BTreeMap<String, Option<String>>,
    },
    /// Wait until the condition `Ready` of an object is true.
    AwaitReady {
        /// Where it is.
        object: Object,
        /// How long it may take, in seconds.
        seconds: u64,
    },
    /// Keep new pods off nodes, and remember which were not cordoned before.
    Cordon {
        /// Names of the nodes.
        nodes: Vec<String>,
        /// By whom.
        install_id: String,
    },
    /// Let pods onto nodes again.
    Uncordon {
        /// Names of the nodes.
        nodes: Vec<String>,
    },
    /// Keep an Auto Scaling group from moving instances between zones, or let it again.
    SetRebalance {
        /// Name of the group.
        group: String,
        /// Whether it is kept from it.
        is_suspended: bool,
    },
    /// Change the sizes of an Auto Scaling group.
    ResizeGroup(GroupSize),
    /// Evict the pods of a node, and terminate its instance.
    EmptyNode(NodeMove),
    /// Wait until a pod of a Deployment leads.
    AwaitLeader {
        /// The Lease.
        lease: Place,
        /// Where the Deployment is.
        deployment: Object,
        /// How long it may take, in seconds.
        seconds: u64,
    },
    /// Delete a Kubernetes object of ours.
    Delete(Object),
    /// Apply a Kubernetes object.
    Apply(Object),
    /// Apply a Deployment and start its pods anew, because what they get at admission changed.
    Restart(Object),
}

/// The sizes that an Auto Scaling group is to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupSize {
    /// Name of the group.
    pub group: String,
    /// The managed node group that it belongs to, through which its sizes are changed.
    pub node_group: Option<String>,
    /// The least number of instances.
    pub min: i32,
    /// How many there should be, if that changes.
    pub desired: Option<i32>,
    /// How long it may take, in seconds.
    pub seconds: u64,
}

/// A node that is emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMove {
    /// Name of its Auto Scaling group.
    pub group: String,
    /// `i-…`
    pub instance: String,
    /// Its name in the cluster; none if the instance never joined.
    pub node: Option<String>,
    /// Pods go that are protected, or that nothing starts again.
    pub is_forced: bool,
    /// How long one pod may take to leave it, in seconds.
    pub pod_seconds: u64,
    /// How long all of them may take, in seconds.
    pub seconds: u64,
}

/// A thing in AWS that is somebody else's, and used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Adoptee {
    /// In IAM.
    Role {
        /// Name in IAM.
        name: String,
    },
    /// In SQS.
    Queue {
        /// Name in SQS.
        name: String,
        /// How it is called.
        url: String,
    },
    /// In EventBridge.
    Rule {
        /// Name in EventBridge.
        name: String,
        /// Its ARN.
        arn: String,
    },
}

impl Adoptee {
    fn name(&self) -> String {
        let (Self::Role { name } | Self::Queue { name, .. } | Self::Rule { name, .. }) = self;
        name.clone()
    }

    /// The call that marks it, and its name.
    pub fn tagging(&self) -> (&'static str, String) {
        let call = match self {
            Self::Role { .. } => "iam:TagRole",
            Self::Queue { .. } => "sqs:TagQueue",
            Self::Rule { .. } => "events:TagResource",
        };
        (call, self.name())
    }

    /// The call that takes the mark off, and its name.
    pub fn untagging(&self) -> (&'static str, String) {
        let call = match self {
            Self::Role { .. } => "iam:UntagRole",
            Self::Queue { .. } => "sqs:UntagQueue",
            Self::Rule { .. } => "events:UntagResource",
        };
        (call, self.name())
    }
}

/// What about a role is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a part of the role that differs or not")]
pub struct RoleChanges {
    /// It is not there.
    pub create: bool,
    /// Its trust policy.
    pub trust: bool,
    /// The permissions boundary differs.
    pub boundary: bool,
    /// A tag is missing or has another value.
    pub tags: bool,
    /// Policies to attach.
    pub attach: Vec<String>,
    /// Policies to detach.
    pub detach: Vec<String>,
    /// Inline policies to write.
    pub put: Vec<String>,
    /// Inline policies to remove.
    pub delete: Vec<String>,
}
