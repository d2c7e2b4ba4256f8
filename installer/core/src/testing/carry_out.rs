//! Plans carried out in memory.

use std::collections::BTreeSet;

use crate::desired::Desired;
use crate::kubernetes::aws_auth::{self, Removal};
use crate::kubernetes::helm::{self, Revision};
use crate::kubernetes::merge_patch::merged;
use crate::kubernetes::object::Object;
use crate::observe::actual::Actual;
use crate::observe::state::{
    AccessEntryState, AgentState, AssociationState, FargateState, ProfileState,
};
use crate::plan::{Action, Plan, Step};

/// Changes an actual state as a plan changes AWS and Kubernetes.
pub fn carry_out(plan: &Plan, desired: &Desired, actual: &mut Actual) {
    carry_out_some(plan, (usize::MAX, 0), desired, actual);
}

/// The same, and dies after so many steps. Which one of several steps that could be done is the
/// next one follows from the second number.
pub fn carry_out_some(
    plan: &Plan,
    (at_most, order): (usize, usize),
    desired: &Desired,
    actual: &mut Actual,
) {
    let mut done = BTreeSet::new();
    while done.len() < plan.steps.len().min(at_most) {
        let is_ready = |step: &&Step| {
            !done.contains(&step.id) && step.depends_on.iter().all(|id| done.contains(id))
        };
        let ready = plan.steps.iter().filter(is_ready).collect::<Vec<_>>();
        assert!(!ready.is_empty(), "the plan is runnable");
        let next = ready[order % ready.len()];
        perform(&next.action, desired, actual);
        done.insert(next.id.clone());
    }
}

/// Does what one step does.
pub fn perform(action: &Action, desired: &Desired, actual: &mut Actual) {
    let id = &desired.installation.id;
    match action {
        Action::EnsureRole { role, changes } => {
            let arn = desired.scope.role_arn(&role.path, &role.name);
            let state = actual.roles.entry(role.name.clone()).or_default();
            if changes.create {
                state.arn = arn;
            }
            if changes.create || changes.trust {
                state.trust = role.trust.to_json_pretty();
            }
            if changes.create || changes.boundary {
                state.boundary.clone_from(&role.boundary);
            }
            if changes.create || changes.tags {
                state.tags.extend(role.tags.clone());
            }
            state.attached.extend(changes.attach.iter().cloned());
            state.attached.retain(|arn| !changes.detach.contains(arn));
            for name in &changes.put {
                state.inline.insert(name.clone(), role.inline[name].to_json_pretty());
            }
            state.inline.retain(|name, _| !changes.delete.contains(name));
        }
        Action::ProveCanary { canary, .. } => {
            actual.objects.insert(canary.key(), canary.body.clone());
            serve(canary, actual);
        }
        Action::AwaitRollout { deployment, .. } => serve(deployment, actual),
        Action::Adopt { .. }
        | Action::Release { .. }
        | Action::AddPolicy { .. }
        | Action::RemovePolicy { .. }
        | Action::HandOver { .. }
        | Action::HandBack { .. }
        | Action::ForgetHandOver { .. }
        | Action::AwaitLeader { .. } => panic!("an adoption is no part of an installation"),
        Action::StopDaemonSet { .. }
        | Action::StartDaemonSet { .. }
        | Action::RemoveTargets { .. }
        | Action::DeleteHook { .. }
        | Action::MoveMessages { .. }
        | Action::Annotate { .. }
        | Action::AwaitReady { .. }
        | Action::Cordon { .. }
        | Action::Uncordon { .. }
        | Action::SetRebalance { .. }
        | Action::ResizeGroup(_)
        | Action::EmptyNode(_) => panic!("a migration is no part of an installation"),
        Action::Delete(object) => {
            actual.objects.remove(&object.key());
            actual.labelled.retain(|other| other.key() != object.key());
        }
        Action::RemoveCanary { canary } => drop(actual.objects.remove(&canary.key())),
        Action::DeleteRole { name } => drop(actual.roles.remove(name)),
        Action::EnsureProfile { profile, .. } => {
            actual.profile = Some(ProfileState {
                arn: profile.arn.clone(),
                roles: vec![profile.role.clone()],
                tags: profile.tags.clone(),
            });
        }
        Action::CreateSpotRole => actual.spot_role = true,
        Action::EnsureProvider { provider, create } => {
            let state = actual.provider.get_or_insert_default();
            if *create {
                state.tags = provider.tags.clone();
            }
            state.audiences.push(provider.audience.clone());
        }
        Action::MapRole(mapping) => {
            let change = aws_auth::with(actual.aws_auth.as_ref(), mapping, id).expect("it parses");
            let change = change.expect("a change");
            actual.aws_auth = Some(match actual.aws_auth.take() {
                Some(live) => merged(live, &change),
                None => change,
            });
        }
        Action::UnmapRole => match aws_auth::without(actual.aws_auth.as_ref(), id) {
            Ok(Removal::Delete) => actual.aws_auth = None,
            Ok(Removal::Patch(patch)) => {
                actual.aws_auth = actual.aws_auth.take().map(|live| merged(live, &patch));
            }
            other => panic!("{other:?}"),
        },
        Action::CreateFargate { profile, .. } => {
            actual.fargate = Some(FargateState {
                arn: "arn:fargate".to_owned(),
                status: "ACTIVE".to_owned(),
                role_arn: profile.role_arn.clone(),
                subnet_ids: profile.subnet_ids.iter().cloned().collect(),
                selectors: vec![(profile.namespace.clone(), profile.labels.clone())],
                tags: profile.tags.clone(),
            });
        }
        Action::DeleteFargate { .. } => actual.fargate = None,
        Action::InstallAgent => actual.agent = AgentState::Addon("ACTIVE".to_owned()),
        Action::CreateAssociation(association) | Action::UpdateAssociation { association, .. } => {
            actual.association = Some(AssociationState {
                id: "a-1".to_owned(),
                arn: "arn:association".to_owned(),
                role_arn: association.role_arn.clone(),
                tags: association.tags.clone(),
            });
        }
        Action::DeleteAssociation { .. } => actual.association = None,
        Action::CreateAccessEntry { entry, .. } => {
            actual.access_entry = Some(AccessEntryState {
                arn: "arn:entry".to_owned(),
                kind: entry.kind.to_owned(),
                tags: entry.tags.clone(),
            });
        }
        Action::DeleteAccessEntry { .. } => actual.access_entry = None,
        Action::CreateQueue(queue) | Action::UpdateQueue { queue, .. } => {
            let state = actual.queue.get_or_insert_default();
            state.attributes.extend(queue.attributes.clone());
            state.attributes.insert("Policy".to_owned(), queue.policy.to_json());
            // What is empty SQS does not say.
            state.attributes.retain(|_, value| !value.is_empty());
            state.tags.extend(queue.tags.clone());
        }
        Action::DeleteQueue { .. } => actual.queue = None,
        Action::EnsureRule { rule, .. } => {
            let state = actual.rules.entry(rule.name.clone()).or_default();
            state.arn.clone_from(&rule.arn);
            state.pattern = Some(rule.pattern.clone());
            state.enabled = true;
            state.targets.insert(rule.target_id.clone(), rule.target_arn.clone());
            state.tags.extend(rule.tags.clone());
        }
        Action::DeleteRule { name, .. } => drop(actual.rules.remove(name)),
        Action::Tag { id, tags } => {
            actual.network.entry(id.clone()).or_default().extend(tags.clone());
            actual.marked.insert(id.clone());
        }
        Action::Untag { id, tags } => {
            actual.marked.remove(id);
            if let Some(live) = actual.network.get_mut(id) {
                live.retain(|key, value| tags.get(key) != Some(value));
            }
        }
        Action::TagEks { arn, tags } => {
            let (association, entry, fargate) =
                (&mut actual.association, &mut actual.access_entry, &mut actual.fargate);
            if let Some(state) = association.as_mut().filter(|state| state.arn == *arn) {
                state.tags.extend(tags.clone());
            }
            if let Some(state) = entry.as_mut().filter(|state| state.arn == *arn) {
                state.tags.extend(tags.clone());
            }
            if let Some(state) = fargate.as_mut().filter(|state| state.arn == *arn) {
                state.tags.extend(tags.clone());
            }
        }
        Action::WriteRelease { record, revision, deployed, old } => {
            for state in &mut actual.releases {
                if deployed.contains(&state.secret) {
                    "superseded".clone_into(&mut state.status);
                }
            }
            actual.releases.retain(|state| !old.contains(&state.secret));
            actual.releases.push(Revision {
                secret: helm::secret_name(*revision),
                number: *revision,
                status: "deployed".to_owned(),
                hash: Some(record.hash.clone()),
                install_id: Some(record.install_id.clone()),
            });
        }
        Action::DeleteRelease { secrets, .. } => {
            actual.releases.retain(|state| !secrets.contains(&state.secret));
        }
        Action::Apply(object) | Action::Restart(object) => {
            actual.objects.insert(object.key(), object.body.clone());
        }
    }
}

/// All pods of a Deployment run.
fn serve(deployment: &Object, actual: &mut Actual) {
    let live = actual.objects.get_mut(&deployment.key()).expect("it was applied");
    let n = live["spec"]["replicas"].clone();
    live["status"] =
        serde_json::json!({"replicas": n, "updatedReplicas": n, "availableReplicas": n});
}
