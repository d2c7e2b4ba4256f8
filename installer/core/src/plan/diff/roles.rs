//! Roles with their policies.

use super::{Differ, has_tags, same_document, views};
use crate::desired::{Role, RoleUse};
use crate::observe::state::RoleState;
use crate::plan::change::Change;
use crate::plan::{Action, Op, RoleChanges, Step};

impl Differ<'_> {
    /// Whether the role has to be made.
    pub(super) fn role(&mut self, id: &str, role: &RoleUse) -> bool {
        let Some(spec) = &role.spec else { return false };
        let state = self.actual.roles.get(&spec.name);
        if state.is_some_and(|state| !self.owns(&format!("IAM role {}", spec.name), &state.tags)) {
            return false;
        }
        if let Some(state) = state.filter(|state| state.arn != role.arn) {
            self.conflicts.push(format!(
                "IAM role {} exists as {}, and its path can't be changed",
                spec.name, state.arn
            ));
            return false;
        }
        let changes = changes(spec, state);
        if changes == RoleChanges::default() {
            return false;
        }
        let create = changes.create;
        let op = if create { Op::Create } else { Op::Update };
        let (actions, reasons) = calls(spec, &changes);
        let action = Action::EnsureRole { role: spec.clone(), changes };
        let step = Step::new(id, "IAM role", &role.arn, op, action).needs(&actions, &role.arn);
        self.add(match state {
            None => step.because(reasons),
            Some(state) => step.changing(role_changes(spec, state)),
        });
        create
    }
}

/// What has to be done to a role.
pub fn changes(spec: &Role, state: Option<&RoleState>) -> RoleChanges {
    let Some(state) = state else {
        return RoleChanges {
            create: true,
            attach: spec.attached.clone(),
            put: spec.inline.keys().cloned().collect(),
            ..RoleChanges::default()
        };
    };
    let missing = |arn: &&String| !state.attached.contains(*arn);
    let differs = |name: &str, wanted| {
        !state.inline.get(name).is_some_and(|live| same_document(live, wanted))
    };
    RoleChanges {
        create: false,
        trust: !same_document(&state.trust, &spec.trust),
        boundary: state.boundary != spec.boundary,
        tags: !has_tags(&state.tags, &spec.tags),
        attach: spec.attached.iter().filter(missing).cloned().collect(),
        detach: state.attached.iter().filter(|arn| !spec.attached.contains(arn)).cloned().collect(),
        put: spec
            .inline
            .iter()
            .filter(|(name, wanted)| differs(name, wanted))
            .map(|(name, _)| name.clone())
            .collect(),
        delete: state
            .inline
            .keys()
            .filter(|name| !spec.inline.contains_key(*name))
            .cloned()
            .collect(),
    }
}

/// What becomes of a role, field by field.
pub fn role_changes(spec: &Role, state: &RoleState) -> Vec<Change> {
    let (before, after) = (views::role_state(state), views::role(spec, state));
    let covered = ["trust", "attached", "inline"];
    views::changed((&before, &after), &state.tags, &spec.tags, &covered)
}

/// The calls that it takes, and in words what they do.
pub fn calls(spec: &Role, changes: &RoleChanges) -> (Vec<&'static str>, Vec<String>) {
    let mut actions = Vec::new();
    let mut reasons = Vec::new();
    let short = |arns: &[String]| {
        arns.iter().map(|arn| arn.rsplit('/').next().unwrap_or(arn)).collect::<Vec<_>>().join(", ")
    };
    if changes.create {
        actions.extend(["iam:CreateRole", "iam:TagRole"]);
        if spec.boundary.is_some() {
            actions.push("iam:PutRolePermissionsBoundary");
        }
    }
    if changes.trust {
        actions.push("iam:UpdateAssumeRolePolicy");
        reasons.push("trust policy".to_owned());
    }
    if changes.boundary {
        actions.push(if spec.boundary.is_some() {
            "iam:PutRolePermissionsBoundary"
        } else {
            "iam:DeleteRolePermissionsBoundary"
        });
        reasons.push("permissions boundary".to_owned());
    }
    if changes.tags {
        actions.push("iam:TagRole");
        reasons.push("tags".to_owned());
    }
    if !changes.attach.is_empty() {
        actions.push("iam:AttachRolePolicy");
        reasons.push(format!("attach {}", short(&changes.attach)));
    }
    if !changes.detach.is_empty() {
        actions.push("iam:DetachRolePolicy");
        reasons.push(format!("detach {}", short(&changes.detach)));
    }
    if !changes.put.is_empty() {
        actions.push("iam:PutRolePolicy");
        reasons.push(format!("inline {}", changes.put.join(", ")));
    }
    if !changes.delete.is_empty() {
        actions.push("iam:DeleteRolePolicy");
        reasons.push(format!("remove {}", changes.delete.join(", ")));
    }
    (actions, reasons)
}
