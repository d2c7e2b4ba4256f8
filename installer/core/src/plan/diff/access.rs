//! What lets nodes into the cluster.

use serde_json::json;

use super::{Differ, has_tags, views};
use crate::kubernetes::aws_auth::{self, State};
use crate::plan::change::changes;
use crate::plan::{Action, Op, Step};

const ACCESS_ENTRY: &str = "EKS access entry";
const CONFIG_MAP: &str = "ConfigMap kube-system/aws-auth";

impl Differ<'_> {
    pub(super) fn access_entry(&mut self, node_role_is_new: bool) {
        let resource = self.desired.node_role.arn.clone();
        let entry = format!("access entry of {resource}");
        let step = |op, action| Step::new("access-entry", ACCESS_ENTRY, &resource, op, action);
        let Some(wanted) = self.desired.access_entry() else {
            self.unwanted_access_entry();
            return;
        };
        let create = |replace: bool| Action::CreateAccessEntry { entry: wanted.clone(), replace };
        let Some(state) = &self.actual.access_entry else {
            self.add(
                step(Op::Create, create(false))
                    .after(["node-role"])
                    .needs(&["eks:CreateAccessEntry", "eks:TagResource"], &entry),
            );
            return;
        };
        let is_ours = self.desired.installation.owns(&state.tags);
        if !is_ours && self.desired.node_role.spec.is_none() && state.kind == wanted.kind {
            // Somebody else's role, and its entry is there as well: used, never touched.
            return;
        }
        if !self.owns(&format!("{ACCESS_ENTRY} of {resource}"), &state.tags) {
            return;
        }
        let before = json!({"type": state.kind, "tags": state.tags});
        let after = json!({"type": wanted.kind, "tags": views::with(&state.tags, &wanted.tags)});
        let changes = views::changed((&before, &after), &state.tags, &wanted.tags, &["type"]);
        if node_role_is_new || state.kind != wanted.kind {
            // An entry keeps the id of the role that it was made for, and its type can't be
            // changed.
            let mut step = step(Op::Update, create(true))
                .because(["created for a role that no longer exists, or of another type"]);
            step.changes = changes;
            self.add(step.after(["node-role"]).needs(
                &["eks:DeleteAccessEntry", "eks:CreateAccessEntry", "eks:TagResource"],
                &entry,
            ));
        } else if !has_tags(&state.tags, &wanted.tags) {
            let action = Action::TagEks { arn: state.arn.clone(), tags: wanted.tags.clone() };
            self.add(
                step(Op::Update, action).changing(changes).needs(&["eks:TagResource"], &entry),
            );
        }
    }

    fn unwanted_access_entry(&mut self) {
        let arn = self.desired.node_role.arn.clone();
        let state = self.actual.access_entry.as_ref();
        if state.is_some_and(|state| self.desired.installation.owns(&state.tags)) {
            let entry = format!("access entry of {arn}");
            self.add(
                Step::new(
                    "access-entry",
                    ACCESS_ENTRY,
                    &arn,
                    Op::Delete,
                    Action::DeleteAccessEntry { arn: arn.clone() },
                )
                .because(["nodes are authorized by aws-auth"])
                .after(["aws-auth"])
                .needs(&["eks:DeleteAccessEntry"], &entry),
            );
        }
    }

    pub(super) fn aws_auth(&mut self) {
        let live = self.actual.aws_auth.as_ref();
        let id = &self.desired.installation.id;
        let step = |op, role: &str, action| {
            let why = format!("role {role}");
            let verb = if live.is_none() { "create" } else { "patch" };
            Step::new("aws-auth", "ConfigMap", "kube-system/aws-auth", op, action)
                .because([why])
                .needs(&[verb], CONFIG_MAP)
        };
        let Some(wanted) = self.desired.aws_auth() else {
            if let Some(role) = live.and_then(|live| aws_auth::added_by(live, id)) {
                let step = step(Op::Delete, &role, Action::UnmapRole).after(["access-entry"]);
                self.add(step);
            }
            return;
        };
        match aws_auth::state(live, wanted, id) {
            State::Ours | State::Foreign => {}
            State::Missing => {
                let mapping = json!({
                    "mapRoles": [{"rolearn": wanted.role_arn, "groups": wanted.groups}],
                });
                let mut step = step(Op::Update, &wanted.role_arn, Action::MapRole(wanted.clone()))
                    .after(["node-role"]);
                step.changes = changes(&json!({}), &mapping);
                self.add(step);
            }
            State::Useless => self.conflicts.push(format!(
                "{CONFIG_MAP} maps {} to other groups than {}",
                wanted.role_arn,
                wanted.groups.join(" and ")
            )),
            State::Broken(why) => self
                .conflicts
                .push(format!("{CONFIG_MAP} can't be read, so it can't be extended: {why}")),
        }
    }
}
