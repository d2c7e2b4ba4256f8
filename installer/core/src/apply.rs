//! Carries out a plan: every step as soon as the steps before it are done, several at once, each
//! written to the journal first.
//!
//! The executor makes no choices; a plan says everything. A step that fails keeps further ones from
//! starting; those that are under way are waited for.

pub mod adopt;
pub mod aws_auth;
pub mod drain;
pub mod ec2;
pub mod eks;
mod groups;
pub mod handler;
pub mod iam;
pub mod messaging;
mod progress;
pub mod release;
mod rollout;
pub mod wait;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

pub use progress::Progress;

use crate::aws::Aws;
use crate::failure::Failure;
use crate::journal::{Journal, State};
use crate::kubernetes::client::Cluster;
use crate::kubernetes::helm;
use crate::kubernetes::object::{Object, label};
use crate::ownership::{INSTALL_ID, Tags};
use crate::plan::{Action, Op, Plan, Step};
use crate::words::count;

/// What steps are carried out with.
#[derive(Clone)]
pub struct Context {
    /// AWS.
    pub aws: Aws,
    /// Kubernetes.
    pub cluster: Cluster,
    /// Name of the cluster.
    pub cluster_name: String,
    /// The installation's id, for checks of ownership when a thing turns up between plan and step.
    pub install_id: String,
}

/// How a plan is carried out.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many steps at once.
    pub parallel: usize,
    /// For tests of resuming: abort right after this many steps.
    pub fault_after: Option<usize>,
}

/// Counts finished steps, and dies where a test wants it.
pub struct FaultCounter {
    after: Option<usize>,
    done: usize,
}

impl FaultCounter {
    /// Dies after this many steps; never, if `None`.
    pub fn new(after: Option<usize>) -> Self {
        Self { after, done: 0 }
    }

    /// How many steps are done.
    pub fn done(&self) -> usize {
        self.done
    }

    /// A step was done, and nobody knows yet.
    pub fn step_done(&mut self) {
        self.done += 1;
        if self.after == Some(self.done) {
            // As kill -9 would: nothing is flushed, nothing is told.
            std::process::abort();
        }
    }
}

/// A step failed; the steps before it are done.
#[derive(Debug, thiserror::Error)]
#[error("step {step} failed ({done} done)", done = count(*done, "step"))]
pub struct StepError {
    /// The id of the step.
    pub step: String,
    /// How many steps had been done before it in this run.
    pub done: usize,
    /// Why.
    pub source: Failure,
}

/// Carries out a plan. Returns how many steps were done.
pub async fn run(
    context: Arc<Context>,
    plan: Plan,
    options: Options,
    journal: &mut Journal,
    progress: &Arc<dyn Progress>,
) -> Result<usize, StepError> {
    // One at a time when a test counts them.
    let parallel = if options.fault_after.is_some() { 1 } else { options.parallel };
    let mut waiting = plan.steps;
    let mut under_way: JoinSet<(Step, Instant, Result<(), Failure>)> = JoinSet::new();
    let mut finished = BTreeSet::new();
    let mut counter = FaultCounter::new(options.fault_after);
    let mut failure: Option<(String, Failure)> = None;
    loop {
        while failure.is_none() && under_way.len() < parallel {
            let ready = waiting
                .iter()
                .position(|step| step.depends_on.iter().all(|id| finished.contains(id)));
            let Some(ready) = ready else { break };
            let step = waiting.remove(ready);
            if let Err(error) = journal.note(&step.id, State::Begun).await {
                failure = Some((step.id, Failure::Journal(error)));
                break;
            }
            let (context, progress) = (Arc::clone(&context), Arc::clone(progress));
            under_way.spawn(async move {
                let began = Instant::now();
                let result = perform(&context, &step.action, &*progress).await;
                (step, began, result)
            });
        }
        let Some(joined) = under_way.join_next().await else { break };
        let (step, began, result) = joined.expect("steps don't panic and are never aborted");
        match result {
            Ok(()) => {
                counter.step_done();
                // The step is done whether or not that can be noted; the next step's note will fail
                // and say so.
                let _ = journal.note(&step.id, State::Done).await;
                progress.done(
                    &format!("{} {}", step.kind, short(&step.resource)),
                    past(step.op),
                    began.elapsed(),
                );
                finished.insert(step.id);
            }
            Err(error) => {
                let _ = journal.note(&step.id, State::Failed).await;
                // The first failure is the cause; others may follow from it.
                failure.get_or_insert((step.id, error));
            }
        }
    }
    if failure.is_none()
        && let Some(step) = waiting.pop()
    {
        let why = format!(
            "it waits for steps that the plan does not have: {}",
            step.depends_on.join(", ")
        );
        failure = Some((step.id.clone(), Failure::Refused { what: step.resource, why }));
    }
    match failure {
        Some((step, source)) => Err(StepError { step, done: counter.done(), source }),
        None => Ok(counter.done()),
    }
}

/// The name at the end of an ARN.
fn short(resource: &str) -> &str {
    if resource.starts_with("arn:") {
        resource.rsplit('/').next().unwrap_or(resource)
    } else {
        resource
    }
}

fn past(op: Op) -> &'static str {
    match op {
        Op::Create => "created",
        Op::Update => "updated",
        Op::Tag => "tagged",
        Op::Delete => "removed",
        Op::Adopt => "adopted",
    }
}

/// Carries out one step. Each may be repeated; each that meets a thing it thought missing looks
/// whose it is before it touches it.
pub async fn perform(
    context: &Context,
    action: &Action,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    match action {
        Action::EnsureRole { role, changes } => iam::ensure_role(context, role, changes).await,
        Action::DeleteRole { name } => {
            iam::delete_role(&context.aws, &context.install_id, name).await
        }
        Action::EnsureProfile { profile, create, replaces } => {
            iam::ensure_profile(context, profile, *create, replaces.as_deref()).await
        }
        Action::CreateSpotRole => iam::create_spot_role(context).await,
        Action::EnsureProvider { provider, create } => {
            iam::ensure_provider(context, provider, *create).await
        }
        Action::MapRole(mapping) => aws_auth::map(context, mapping).await,
        Action::UnmapRole => aws_auth::unmap(context).await,
        Action::CreateFargate { profile, replace } => {
            eks::create_fargate(context, profile, *replace).await
        }
        Action::DeleteFargate { name } => eks::delete_fargate(context, name).await,
        Action::InstallAgent => eks::install_agent(context).await,
        Action::CreateAssociation(association) => {
            eks::create_association(context, association).await
        }
        Action::UpdateAssociation { id, arn, association } => {
            eks::update_association(context, id, arn, association).await
        }
        Action::DeleteAssociation { id } => eks::delete_association(context, id).await,
        Action::DeleteAccessEntry { arn } => eks::delete_access_entry(context, arn).await,
        Action::CreateAccessEntry { entry, replace } => {
            eks::create_access_entry(context, entry, *replace).await
        }
        Action::TagEks { arn, tags } => eks::tag_eks(context, arn, tags).await,
        Action::CreateQueue(queue) => messaging::create_queue(context, queue).await,
        Action::UpdateQueue { url, queue } => messaging::update_queue(context, url, queue).await,
        Action::DeleteQueue { url, name } => messaging::delete_queue(&context.aws, url, name).await,
        Action::EnsureRule { rule, create } => messaging::ensure_rule(context, rule, *create).await,
        Action::DeleteRule { name, targets } => {
            messaging::delete_rule(&context.aws, name, targets).await
        }
        Action::Tag { id, tags } => ec2::tag(context, id, tags).await,
        Action::Untag { id, tags } => ec2::untag(context, id, tags).await,
        Action::ProveCanary { canary, seconds } => {
            rollout::prove_canary(context, canary, *seconds, progress).await
        }
        Action::AwaitRollout { deployment, seconds } => {
            rollout::await_rollout(context, deployment, *seconds, progress).await
        }
        Action::RemoveCanary { canary } => rollout::remove_canary(context, canary).await,
        Action::Adopt { what, install_id } => adopt::mark(context, what, install_id).await,
        Action::Release { what } => adopt::unmark(context, what).await,
        Action::AddPolicy { role, name, document } => {
            adopt::add_policy(context, role, name, document).await
        }
        Action::RemovePolicy { role, name } => adopt::remove_policy(context, role, name).await,
        Action::HandOver { deployment, replicas, install_id, seconds } => {
            let seconds = (*seconds, progress);
            adopt::hand_over(context, deployment, *replicas, install_id, seconds).await
        }
        Action::HandBack { deployment, replicas, seconds } => {
            adopt::hand_back(context, deployment, *replicas, (*seconds, progress)).await
        }
        Action::ForgetHandOver { deployment, replicas } => {
            adopt::forget(context, deployment, *replicas).await
        }
        Action::StopDaemonSet { daemon_set, install_id, seconds } => {
            handler::stop(context, daemon_set, install_id, (*seconds, progress)).await
        }
        Action::StartDaemonSet { daemon_set } => handler::start(context, daemon_set).await,
        Action::RemoveTargets { rule, targets } => {
            messaging::remove_targets(&context.aws, rule, targets).await
        }
        Action::DeleteHook { group, name } => handler::delete_hook(&context.aws, group, name).await,
        Action::MoveMessages { from, to, seconds, fed } => {
            let queues = (from.as_str(), to.as_str());
            handler::move_messages(&context.aws, queues, *fed, (*seconds, progress)).await
        }
        Action::Annotate { object, annotations } => {
            patch(context, object, &serde_json::json!({"metadata": {"annotations": annotations}}))
                .await
        }
        Action::AwaitReady { object, seconds } => await_ready(context, object, *seconds).await,
        Action::Cordon { nodes, install_id } => drain::cordon(context, nodes, install_id).await,
        Action::Uncordon { nodes } => drain::uncordon(context, nodes).await,
        Action::SetRebalance { group, is_suspended } => {
            groups::set_rebalance(&context.aws, group, *is_suspended).await
        }
        Action::ResizeGroup(size) => groups::resize(context, size).await,
        Action::EmptyNode(asked) => drain::empty(context, asked, progress).await,
        Action::AwaitLeader { lease, deployment, seconds } => {
            adopt::await_leader(context, lease, deployment, *seconds).await.map(drop)
        }
        Action::Delete(object) => adopt::delete(context, object).await,
        Action::Apply(object) => apply(context, object).await,
        Action::Restart(object) => restart(context, object).await,
        Action::WriteRelease { record, revision, deployed, old } => {
            release::write(context, record, *revision, deployed, old).await
        }
        Action::DeleteRelease { namespace, secrets } => {
            release::delete(context, namespace, secrets).await
        }
    }
}

fn check_owner(context: &Context, what: &str, tags: &Tags) -> Result<(), Failure> {
    check_owner_id(&context.install_id, what, tags)
}

fn check_owner_id(install_id: &str, what: &str, tags: &Tags) -> Result<(), Failure> {
    if tags.get(INSTALL_ID).is_some_and(|id| id == install_id) {
        Ok(())
    } else {
        Err(Failure::Foreign { what: what.to_owned() })
    }
}

/// Changes fields of an object that may be somebody else's.
async fn patch(
    context: &Context,
    object: &Object,
    patch: &serde_json::Value,
) -> Result<(), Failure> {
    let key = object.key();
    let tries = wait::Tries::seconds(60);
    Ok(wait::transient(tries, || context.cluster.merge(&object.resource, &key, patch)).await?)
}

async fn await_ready(context: &Context, object: &Object, seconds: u64) -> Result<(), Failure> {
    let what = format!("{} to be ready", object.key());
    let (at_most, every) = (Duration::from_secs(seconds), Duration::from_secs(1));
    wait::until(&what, at_most, every, || async {
        let live = context.cluster.get(&object.resource, &object.key()).await?;
        Ok(wait::readiness_lacks(live.as_ref()).map_or(Ok(()), Err))
    })
    .await
}

async fn restart(context: &Context, object: &Object) -> Result<(), Failure> {
    apply(context, object).await?;
    let at = crate::clock::now().to_string();
    let patch = serde_json::json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": at}}}}});
    Ok(context.cluster.merge(&object.resource, &object.key(), &patch).await?)
}

/// Applies an object, and waits for what follows from it: a CRD must be served before its objects
/// can be written.
async fn apply(context: &Context, object: &Object) -> Result<(), Failure> {
    let tries = wait::Tries::seconds(60);
    if label(&object.body, "app.kubernetes.io/managed-by") == Some(helm::MANAGED_BY) {
        let (of_chart, marks) = object.by_owner();
        let owner = helm::FIELD_MANAGER;
        wait::transient(tries, || context.cluster.apply_as(&of_chart, owner)).await?;
        wait::transient(tries, || context.cluster.apply(&marks)).await?;
    } else {
        wait::transient(tries, || context.cluster.apply(object)).await?;
    }
    if object.resource.kind == "CustomResourceDefinition" {
        wait::established(&context.cluster, object).await?;
    }
    Ok(())
}

/// Checks that a plan can be carried out: every dependency is a step of it, and there is no cycle.
#[cfg(any(test, feature = "testing"))]
pub fn is_runnable(plan: &Plan) -> bool {
    use std::collections::BTreeMap;

    let mut waiting: BTreeMap<&str, &[String]> =
        plan.steps.iter().map(|step| (step.id.as_str(), step.depends_on.as_slice())).collect();
    loop {
        let done: Vec<&str> = waiting
            .iter()
            .filter(|(_, after)| after.iter().all(|id| !waiting.contains_key(id.as_str())))
            .map(|(id, _)| *id)
            .collect();
        if done.is_empty() {
            return waiting.is_empty()
                && plan.steps.iter().all(|step| {
                    step.depends_on.iter().all(|id| plan.steps.iter().any(|other| other.id == *id))
                });
        }
        for id in done {
            waiting.remove(id);
        }
    }
}
