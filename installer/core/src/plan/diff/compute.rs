//! What nodes and the operator's pods run on: the instance profile, the role of EC2 Spot, the
//! Fargate profile.

use serde_json::json;

use super::{Differ, has_tags, views};
use crate::observe::iam::SPOT_ROLE;
use crate::plan::change::changes;
use crate::plan::{Action, Op, Step};

const PROFILE: &str = "instance profile";
const FARGATE: &str = "Fargate profile";

impl Differ<'_> {
    pub(super) fn instance_profile(&mut self) {
        let name = self.desired.profile_name.as_str();
        let state = self.actual.profile.as_ref();
        let Some(wanted) = &self.desired.profile else {
            if state.is_some_and(|state| self.desired.installation.owns(&state.tags)) {
                // Removed, it would take the credentials of nodes that were launched with it.
                self.plan.warnings.push(format!(
                    "{PROFILE} {name} stays until `tenon uninstall`: nodes may still use it"
                ));
            }
            return;
        };
        let step = |op, create, replaces| {
            let action = Action::EnsureProfile { profile: wanted.clone(), create, replaces };
            Step::new("instance-profile", PROFILE, &wanted.arn, op, action)
                .after(["node-role"])
                .needs(&["iam:AddRoleToInstanceProfile"], &wanted.arn)
                .needs(&["iam:PassRole"], &wanted.role_arn)
        };
        let Some(state) = state else {
            self.add(
                step(Op::Create, true, None)
                    .needs(&["iam:CreateInstanceProfile", "iam:TagInstanceProfile"], &wanted.arn),
            );
            return;
        };
        if !self.owns(&format!("{PROFILE} {name}"), &state.tags) {
            return;
        }
        if state.arn != wanted.arn {
            self.conflicts.push(format!(
                "{PROFILE} {name} exists as {}, and its path can't be changed",
                state.arn
            ));
        } else if state.roles != [wanted.role.clone()] {
            let replaces = state.roles.first().cloned();
            let before = json!({"roles": state.roles});
            let changes = changes(&before, &json!({"roles": [wanted.role]}));
            self.add(
                step(Op::Update, false, replaces)
                    .changing(changes)
                    .needs(&["iam:RemoveRoleFromInstanceProfile"], &wanted.arn),
            );
        }
    }

    /// The account's, not ours: made when it is missing, and never removed.
    pub(super) fn spot_role(&mut self) {
        if self.desired.spot_role && !self.actual.spot_role {
            self.add(
                Step::new(
                    "spot-role",
                    "service-linked role",
                    SPOT_ROLE,
                    Op::Create,
                    Action::CreateSpotRole,
                )
                .because(["EC2 Spot needs it, once per account"])
                .needs(&["iam:CreateServiceLinkedRole"], SPOT_ROLE),
            );
        }
    }

    pub(super) fn fargate(&mut self) {
        let name = self.desired.fargate_name.as_str();
        let profile = format!("{FARGATE} {name}");
        let step = |op, action| Step::new("fargate", FARGATE, name, op, action);
        let state = self.actual.fargate.as_ref();
        let Some(wanted) = &self.desired.fargate else {
            if state.is_some_and(|state| self.desired.installation.owns(&state.tags)) {
                let action = Action::DeleteFargate { name: name.to_owned() };
                let deployment = self.desired.deployment().map(super::objects::step_id);
                self.add(
                    Step::new("old-fargate", FARGATE, name, Op::Delete, action)
                        .because(["the operator is running on nodes"])
                        .after(deployment)
                        .needs(&["eks:DeleteFargateProfile"], &profile),
                );
            }
            self.unwanted_fargate_role();
            return;
        };
        self.role("fargate-role", &self.desired.fargate_role);
        let create = |replace| Action::CreateFargate { profile: wanted.clone(), replace };
        let needs = ["eks:CreateFargateProfile", "eks:TagResource"];
        let Some(state) = state else {
            self.add(
                step(Op::Create, create(false))
                    .after(["fargate-role"])
                    .needs(&needs, &profile)
                    .needs(&["iam:PassRole"], &wanted.role_arn),
            );
            return;
        };
        if !self.owns(&profile, &state.tags) {
            return;
        }
        let differs = changes(&views::fargate_state(state), &views::fargate(wanted));
        if !differs.is_empty() {
            self.add(
                step(Op::Update, create(true))
                    .because(["deleted and created again, because it is immutable"])
                    .changing(views::changed(
                        (&views::fargate_state(state), &views::fargate(wanted)),
                        &state.tags,
                        &wanted.tags,
                        &["podExecutionRoleArn"],
                    ))
                    .after(["fargate-role"])
                    .needs(&["eks:DeleteFargateProfile"], &profile)
                    .needs(&needs, &profile)
                    .needs(&["iam:PassRole"], &wanted.role_arn),
            );
        } else if !has_tags(&state.tags, &wanted.tags) {
            let action = Action::TagEks { arn: state.arn.clone(), tags: wanted.tags.clone() };
            let (before, after) = (
                json!({"tags": state.tags}),
                json!({"tags": views::with(&state.tags, &wanted.tags)}),
            );
            self.add(
                step(Op::Update, action)
                    .changing(views::changed((&before, &after), &state.tags, &wanted.tags, &[]))
                    .needs(&["eks:TagResource"], &profile),
            );
        }
    }

    fn unwanted_fargate_role(&mut self) {
        let name = self.desired.fargate_role.name.as_str();
        let state = self.actual.roles.get(name);
        if state.is_some_and(|state| self.desired.installation.owns(&state.tags)) {
            let arn = &self.desired.fargate_role.arn;
            self.add(
                Step::new(
                    "old-fargate-role",
                    "IAM role",
                    arn,
                    Op::Delete,
                    Action::DeleteRole { name: name.to_owned() },
                )
                .because(["the operator is running on nodes"])
                .after(["old-fargate"])
                .needs(&["iam:DetachRolePolicy", "iam:DeleteRole"], arn),
            );
        }
    }
}
