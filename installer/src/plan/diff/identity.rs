//! Who gets which role: the operator's pods, and the nodes in the cluster.

use super::{Differ, has_tags};
use crate::desired::AGENT;
use crate::observe::world::AgentState;
use crate::plan::{Action, Op, Step};

const ASSOCIATION: &str = "Pod Identity association";
const ACCESS_ENTRY: &str = "EKS access entry";

impl Differ<'_> {
    pub(super) fn agent(&mut self) {
        match &self.world.agent {
            AgentState::BuiltIn => {}
            AgentState::Addon(status) if status == "ACTIVE" => {}
            AgentState::Addon(status) => {
                self.plan.warnings.push(format!("the add-on {AGENT} is {status}: the operator gets no credentials until it is ACTIVE"));
            }
            AgentState::Missing if self.desired.install_agent => {
                let resource = format!("addon {AGENT} of cluster {}", self.desired.scope.cluster);
                self.add(
                    Step::new("agent-addon", "EKS add-on", AGENT, Op::Create, Action::InstallAgent)
                        .needs(&["eks:CreateAddon"], &resource),
                );
            }
            // Said before anything is changed, by `preflight`.
            AgentState::Missing => {}
        }
    }

    pub(super) fn association(&mut self) {
        let wanted = &self.desired.association;
        let resource = format!("{}/{}", wanted.namespace, wanted.service_account);
        let association = format!("association of {resource}");
        let step = |op, action| Step::new("association", ASSOCIATION, &resource, op, action);
        let first = ["controller-role", "agent-addon"];
        let Some(state) = &self.world.association else {
            self.add(
                step(Op::Create, Action::CreateAssociation(wanted.clone()))
                    .after(first)
                    .needs(&["eks:CreatePodIdentityAssociation", "eks:TagResource"], &association)
                    .needs(&["iam:PassRole"], &wanted.role_arn),
            );
            return;
        };
        if !self.owns(&format!("{ASSOCIATION} of {resource}"), &state.tags) {
            return;
        }
        if state.role_arn != wanted.role_arn {
            let action = Action::UpdateAssociation {
                id: state.id.clone(),
                arn: state.arn.clone(),
                association: wanted.clone(),
            };
            self.add(
                step(Op::Update, action)
                    .because([format!("role {} instead of {}", wanted.role_arn, state.role_arn)])
                    .after(first)
                    .needs(&["eks:UpdatePodIdentityAssociation"], &association)
                    .needs(&["iam:PassRole"], &wanted.role_arn),
            );
        } else if !has_tags(&state.tags, &wanted.tags) {
            let action = Action::TagEks { arn: state.arn.clone(), tags: wanted.tags.clone() };
            self.add(
                step(Op::Update, action)
                    .because(["tags"])
                    .needs(&["eks:TagResource"], &association),
            );
        }
    }

    pub(super) fn access_entry(&mut self, node_role_is_new: bool) {
        let wanted = &self.desired.access_entry;
        let resource = wanted.principal_arn.clone();
        let entry = format!("access entry of {resource}");
        let step = |op, action| Step::new("access-entry", ACCESS_ENTRY, &resource, op, action);
        let create = |replace: bool| Action::CreateAccessEntry { entry: wanted.clone(), replace };
        let Some(state) = &self.world.access_entry else {
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
        if node_role_is_new || state.kind != wanted.kind {
            // An entry keeps the id of the role that it was made for, and its type can't be changed.
            self.add(
                step(Op::Update, create(true))
                    .because(["made for a role that is no more, or of another type"])
                    .after(["node-role"])
                    .needs(
                        &["eks:DeleteAccessEntry", "eks:CreateAccessEntry", "eks:TagResource"],
                        &entry,
                    ),
            );
        } else if !has_tags(&state.tags, &wanted.tags) {
            let action = Action::TagEks { arn: state.arn.clone(), tags: wanted.tags.clone() };
            self.add(
                step(Op::Update, action).because(["tags"]).needs(&["eks:TagResource"], &entry),
            );
        }
    }
}
