//! What has to be done: steps with their order, and everything a person should know before saying
//! yes.

mod action;
pub mod change;
mod diff;
pub mod impact;
pub mod saved;
pub mod text;

use std::collections::BTreeSet;

use serde::Serialize;

use self::change::{Change, Origin};
use crate::kubernetes::object::Object;
use crate::words::count;

pub use action::{Action, Adoptee, GroupSize, NodeMove, RoleChanges};
pub use diff::{
    CANARY_GOES, calls, changes, object_changes, object_step, policy, queue_step, role_changes,
    rule_step, step_id,
};

pub use diff::diff;

/// Version of the JSON form of a plan.
pub const SCHEMA: &str = "tenon.sh/plan/v1alpha1";

/// What was planned no longer fits what is there.
#[derive(Debug, thiserror::Error)]
#[error("the cluster or account changed since the plan was made; nothing was changed")]
pub struct Moved {
    /// What is planned differently now.
    pub changes: Vec<String>,
}

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

impl Plan {
    /// Lets steps wait only for steps of this plan: what needs no step is done already.
    pub fn drop_unknown_dependencies(&mut self) {
        let ids = self.steps.iter().map(|step| step.id.clone()).collect::<BTreeSet<_>>();
        for step in &mut self.steps {
            step.depends_on.retain(|id| ids.contains(id));
        }
    }

    /// The Kubernetes objects that are applied, in their order.
    pub fn applied_objects(&self) -> Vec<&Object> {
        let objects = self.steps.iter().filter_map(|step| match &step.action {
            Action::Apply(object)
            | Action::Restart(object)
            | Action::ProveCanary { canary: object, .. } => Some(object),
            _ => None,
        });
        objects.collect()
    }
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
    /// Why, as far as the changes don't say it.
    #[serde(rename = "reason")]
    pub reasons: Vec<String>,
    /// What becomes of the fields of something that is there.
    pub changes: Vec<Change>,
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
    pub fn new(id: &str, kind: &str, resource: &str, op: Op, action: Action) -> Self {
        Self {
            id: id.to_owned(),
            kind: kind.to_owned(),
            resource: resource.to_owned(),
            op,
            reasons: Vec::new(),
            changes: Vec::new(),
            depends_on: Vec::new(),
            needs: Vec::new(),
            action,
        }
    }

    /// With reasons.
    #[must_use]
    pub fn because(mut self, reasons: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.reasons.extend(reasons.into_iter().map(Into::into));
        self
    }

    /// With what it changes, field by field.
    #[must_use]
    pub fn changing(mut self, changes: Vec<Change>) -> Self {
        self.changes = changes;
        self
    }

    /// The paths of what was changed outside and is changed back, with who did that where it is
    /// known.
    pub fn outside(&self) -> Vec<String> {
        let outside = self.changes.iter().filter_map(|change| match &change.origin {
            Origin::Outside { by } if by.is_empty() => Some(change.path.to_string()),
            Origin::Outside { by } => Some(format!("{}, by {}", change.path, by.join(" and "))),
            Origin::Settings => None,
        });
        outside.collect()
    }

    /// After other steps, as far as they are in the plan.
    #[must_use]
    pub fn after(mut self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.depends_on.extend(ids.into_iter().map(Into::into));
        self
    }

    /// It changes something in AWS, where no field says who wrote it.
    fn is_in_aws(&self) -> bool {
        let of_kubernetes = matches!(self.action, Action::Apply(_) | Action::Restart(_));
        !of_kubernetes
    }

    /// For a caller who may do these to a resource.
    #[must_use]
    pub fn needs(mut self, actions: &[&str], resource: &str) -> Self {
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
                None => changes.push(line("now needed", step)),
                Some(before) if before != *step => changes.push(line("differs", step)),
                Some(_) => {}
            }
        }
        if changes.is_empty() && self != other {
            changes.push("the warnings or the order of steps differ".to_owned());
        }
        changes
    }

    /// What was changed outside and is changed back, in words; `None` if nothing was.
    pub fn outside(&self) -> Option<String> {
        let mut n = 0;
        let mut of_steps = Vec::new();
        for step in &self.steps {
            let outside = step.outside();
            if !outside.is_empty() {
                n += outside.len();
                of_steps.push(format!("{} {} ({})", step.kind, step.resource, outside.join("; ")));
            }
        }
        let verb = if n == 1 { "is" } else { "are" };
        (n > 0).then(|| {
            format!(
                "{} made outside tenon {verb} overwritten: {}",
                count(n, "change"),
                of_steps.join("; ")
            )
        })
    }

    /// Takes back what was said of changes from outside in AWS: after a run that was interrupted,
    /// what differs there may be what it did not come to.
    pub fn blame_interruption(&mut self) {
        let in_aws = self.steps.iter_mut().filter(|step| step.is_in_aws());
        for change in in_aws.flat_map(|step| &mut step.changes) {
            change.origin = Origin::Settings;
        }
    }

    /// Whether a step brings something in AWS to what it should be that EC2NodeClasses need to be
    /// ready.
    pub fn mends_for_nodes(&self) -> bool {
        self.steps.iter().any(|step| {
            matches!(
                step.action,
                Action::EnsureRole { .. }
                    | Action::EnsureProfile { .. }
                    | Action::CreateAssociation(_)
                    | Action::UpdateAssociation { .. }
                    | Action::EnsureProvider { .. }
                    | Action::CreateAccessEntry { .. }
                    | Action::MapRole(_)
                    | Action::CreateQueue(_)
                    | Action::UpdateQueue { .. }
                    | Action::Tag { .. }
                    | Action::AddPolicy { .. }
            )
        })
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
mod tests;
