//! What has to be done: steps with their order, and everything a person should know before saying yes.

mod diff;
pub mod outlook;
pub mod saved;

use serde::Serialize;
use tenon_iam_policies::Document;

use crate::desired::{
    AccessEntry, Association, FargateProfile, Profile, Provider, Queue, Role, Rule,
};
use crate::kubernetes::aws_auth::Mapping;
use crate::kubernetes::helm;
use crate::kubernetes::object::Object;
use crate::ownership::Tags;

pub(crate) use diff::{CANARY_GOES, calls, changes, step_id};

pub use diff::diff;

/// Version of the JSON form of a plan.
pub const SCHEMA: &str = "tenon.sh/plan/v1alpha1";

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// What is to be done, in an order in which it can be done.
    #[serde(rename = "actions")]
    pub steps: Vec<Step>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// One thing to be done. Doing it twice does no harm.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Unique in the plan, and the same in every plan for the same thing.
    pub id: String,
    /// What kind of thing, such as `IAM role`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Which one.
    pub resource: String,
    /// What happens to it.
    pub op: Op,
    /// Why, or what exactly.
    #[serde(rename = "reason")]
    pub reasons: Vec<String>,
    /// Steps that must be done before.
    pub depends_on: Vec<String>,
    /// What the caller must be allowed to do.
    #[serde(rename = "callerActions")]
    pub needs: Vec<CallerAction>,
    /// What exactly is done.
    #[serde(skip)]
    pub action: Action,
}

impl Step {
    /// A step that waits for nothing and needs nothing.
    pub(crate) fn new(id: &str, kind: &str, resource: &str, op: Op, action: Action) -> Self {
        Self {
            id: id.to_owned(),
            kind: kind.to_owned(),
            resource: resource.to_owned(),
            op,
            reasons: Vec::new(),
            depends_on: Vec::new(),
            needs: Vec::new(),
            action,
        }
    }

    /// With reasons.
    pub(crate) fn because(mut self, reasons: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.reasons.extend(reasons.into_iter().map(Into::into));
        self
    }

    /// After other steps, as far as they are in the plan.
    pub(crate) fn after(mut self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.depends_on.extend(ids.into_iter().map(Into::into));
        self
    }

    /// For a caller who may do these to a resource.
    pub(crate) fn needs(mut self, actions: &[&str], resource: &str) -> Self {
        self.needs.extend(actions.iter().map(|action| CallerAction {
            action: (*action).to_owned(),
            resource: resource.to_owned(),
        }));
        self
    }
}

/// What happens to a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// It is made.
    Create,
    /// It is brought to what it should be.
    Update,
    /// It gets a tag; otherwise it is not ours.
    Tag,
    /// Somebody else's is used from now on, and marked so.
    Adopt,
    /// It is removed.
    Delete,
}

impl Op {
    /// One character for tables.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Create => "+",
            Self::Update => "~",
            Self::Tag => "#",
            Self::Adopt => "=",
            Self::Delete => "-",
        }
    }
}

/// A permission that the caller needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CallerAction {
    /// As IAM spells it, or a Kubernetes verb.
    pub action: String,
    /// On what.
    pub resource: String,
}

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
        /// Its name.
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
        /// Its name.
        name: String,
    },
    /// Install the Pod Identity agent.
    InstallAgent,
    /// Make an association.
    CreateAssociation(Association),
    /// Give an association our role.
    UpdateAssociation {
        /// Its id.
        id: String,
        /// Its ARN.
        arn: String,
        /// What it should be.
        association: Association,
    },
    /// Remove an association of ours that is no longer wanted.
    DeleteAssociation {
        /// Its id.
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
        /// Its name.
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
        /// Its name.
        name: String,
        /// Ids of its targets.
        targets: Vec<String>,
    },
    /// Add tags to a subnet or security group.
    Tag {
        /// Its id.
        id: String,
        /// The tags.
        tags: Tags,
    },
    /// Take our tags off a subnet or security group.
    Untag {
        /// Its id.
        id: String,
        /// The tags, key and value.
        tags: Tags,
    },
    /// Bring a tag set of an EKS resource to what it should be.
    TagEks {
        /// Its ARN.
        arn: String,
        /// The tags.
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
        /// Its namespace.
        namespace: String,
        /// Names of the revisions.
        secrets: Vec<String>,
    },
    /// Start one pod of the new version beside the old ones, and see whether it can take over. One that can't is removed.
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
    },
    /// Wait until a pod of a Deployment leads.
    AwaitLeader {
        /// Namespace of the Lease.
        namespace: String,
        /// Name of the Deployment.
        deployment: String,
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

/// A thing in AWS that is somebody else's, and used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Adoptee {
    /// A role.
    Role {
        /// Its name.
        name: String,
    },
    /// A queue.
    Queue {
        /// Its name.
        name: String,
        /// How it is called.
        url: String,
    },
    /// A rule.
    Rule {
        /// Its name.
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
    pub(crate) fn tagging(&self) -> (&'static str, String) {
        let call = match self {
            Self::Role { .. } => "iam:TagRole",
            Self::Queue { .. } => "sqs:TagQueue",
            Self::Rule { .. } => "events:TagResource",
        };
        (call, self.name())
    }

    /// The call that takes the mark off, and its name.
    pub(crate) fn untagging(&self) -> (&'static str, String) {
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
    /// Its boundary.
    pub boundary: bool,
    /// Its tags.
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

impl Plan {
    /// How many steps create, update, tag and delete; and adopt, where any does.
    pub fn counts(&self) -> Vec<(Op, usize)> {
        [Op::Create, Op::Update, Op::Tag, Op::Delete, Op::Adopt]
            .map(|op| (op, self.steps.iter().filter(|step| step.op == op).count()))
            .into_iter()
            .filter(|(op, n)| *op != Op::Adopt || *n > 0)
            .collect()
    }

    /// What another plan for the same settings does differently, one line each.
    pub fn changes_to(&self, other: &Self) -> Vec<String> {
        let of = |plan: &Self, id: &str| plan.steps.iter().find(|step| step.id == id).cloned();
        let line = |word: &str, step: &Step| format!("{word}: {} {}", step.kind, step.resource);
        let gone = self.steps.iter().filter(|step| of(other, &step.id).is_none());
        let mut changes = gone.map(|step| line("no longer needed", step)).collect::<Vec<_>>();
        for step in &other.steps {
            match of(self, &step.id) {
                None => changes.push(line("needed now", step)),
                Some(before) if before != *step => changes.push(line("differs", step)),
                Some(_) => {}
            }
        }
        if changes.is_empty() && self != other {
            changes.push("the warnings or the order of steps differ".to_owned());
        }
        changes
    }

    /// Everything that the caller must be allowed to do, once each.
    pub fn caller_actions(&self) -> Vec<CallerAction> {
        let mut actions =
            self.steps.iter().flat_map(|step| step.needs.iter().cloned()).collect::<Vec<_>>();
        actions.sort();
        actions.dedup();
        actions
    }
}

#[cfg(test)]
pub(crate) mod tests;
