//! How the operator's pods get their role.

use serde_json::json;

use super::{Differ, has_tags, views};
use crate::names::AGENT;
use crate::observe::state::AgentState;
use crate::plan::change::changes;
use crate::plan::{Action, Op, Step};

const ASSOCIATION: &str = "Pod Identity association";
const PROVIDER: &str = "IAM identity provider";

impl Differ<'_> {
    /// Shared with every other service account of the cluster: what is there is used, whoever made
    /// it.
    pub(super) fn provider(&mut self) {
        let Some(wanted) = self.desired.provider() else { return };
        let step = |op, create| {
            let action = Action::EnsureProvider { provider: wanted.clone(), create };
            Step::new("oidc-provider", PROVIDER, &wanted.arn, op, action)
        };
        match &self.actual.provider {
            None => self.add(step(Op::Create, true).needs(
                &["iam:CreateOpenIDConnectProvider", "iam:TagOpenIDConnectProvider"],
                &wanted.arn,
            )),
            Some(state) if !state.audiences.contains(&wanted.audience) => self.add(
                step(Op::Update, false)
                    .changing(changes(
                        &json!({"audiences": state.audiences}),
                        &json!({"audiences": with(&state.audiences, &wanted.audience)}),
                    ))
                    .needs(&["iam:AddClientIDToOpenIDConnectProvider"], &wanted.arn),
            ),
            Some(_) => {}
        }
    }

    pub(super) fn agent(&mut self) {
        if self.desired.association().is_none() {
            return;
        }
        match &self.actual.agent {
            AgentState::BuiltIn => {}
            AgentState::Addon(status) if status == "ACTIVE" => {}
            AgentState::Addon(status) => {
                self.plan.warnings.push(format!("the add-on {AGENT} is {status}: the operator gets no credentials until it is ACTIVE"));
            }
            AgentState::Missing if self.desired.installs_agent() => {
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
        let of = &self.desired.service_account;
        let resource = format!("{}/{}", of.namespace, of.name);
        let association = format!("association of {resource}");
        let step = |op, action| Step::new("association", ASSOCIATION, &resource, op, action);
        let first = ["controller-role", "agent-addon"];
        let Some(wanted) = self.desired.association() else {
            if let Some(state) = &self.actual.association {
                // Both at once: SDKs would take the web identity, and nobody would know which role
                // it is.
                if self.owns(&format!("{ASSOCIATION} of {resource}"), &state.tags) {
                    self.add(
                        step(Op::Delete, Action::DeleteAssociation { id: state.id.clone() })
                            .because(["the service account gets its role through IRSA"])
                            .needs(&["eks:DeletePodIdentityAssociation"], &association),
                    );
                }
            }
            return;
        };
        let Some(state) = &self.actual.association else {
            self.add(
                step(Op::Create, Action::CreateAssociation(wanted.clone()))
                    .after(first)
                    .needs(&["eks:CreatePodIdentityAssociation", "eks:TagResource"], &association)
                    .needs(&["iam:PassRole"], &wanted.role_arn),
            );
            return;
        };
        let is_ours = self.desired.installation.owns(&state.tags);
        if !is_ours
            && self.desired.controller_role.spec.is_none()
            && state.role_arn == wanted.role_arn
        {
            // Somebody else's role, and its association is there as well: used, never touched.
            return;
        }
        if !self.owns(&format!("{ASSOCIATION} of {resource}"), &state.tags) {
            return;
        }
        let before = json!({"roleArn": state.role_arn, "tags": state.tags});
        let after =
            json!({"roleArn": wanted.role_arn, "tags": views::with(&state.tags, &wanted.tags)});
        let changes = views::changed((&before, &after), &state.tags, &wanted.tags, &["roleArn"]);
        if state.role_arn != wanted.role_arn {
            let action = Action::UpdateAssociation {
                id: state.id.clone(),
                arn: state.arn.clone(),
                association: wanted.clone(),
            };
            self.add(
                step(Op::Update, action)
                    .changing(changes)
                    .after(first)
                    .needs(&["eks:UpdatePodIdentityAssociation"], &association)
                    .needs(&["iam:PassRole"], &wanted.role_arn),
            );
        } else if !has_tags(&state.tags, &wanted.tags) {
            let action = Action::TagEks { arn: state.arn.clone(), tags: wanted.tags.clone() };
            self.add(
                step(Op::Update, action)
                    .changing(changes)
                    .needs(&["eks:TagResource"], &association),
            );
        }
    }
}

fn with(audiences: &[String], one: &str) -> Vec<String> {
    audiences.iter().cloned().chain([one.to_owned()]).collect()
}
