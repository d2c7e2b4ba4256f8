//! Steps of a move from one version to another: the canary, and the pods that follow it.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::{PostParams, PropagationPolicy};

use super::{Context, Progress, wait};
use crate::failure::Failure;
use crate::kubernetes::client::failed;
use crate::kubernetes::lease::Place;
use crate::kubernetes::object::Object;

/// How long a pod may take to end: longer than any grace period of the chart.
const END: Duration = Duration::from_mins(5);

/// Starts the canary and waits until it could take over. If it can't, it goes, and the error says
/// why.
pub(super) async fn prove_canary(
    context: &Context,
    canary: &Object,
    seconds: u64,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    may_lead(context, canary).await?;
    wait::transient(wait::Tries::seconds(60), || context.cluster.apply(canary)).await?;
    let Err(error) = await_rollout(context, canary, seconds, progress).await else { return Ok(()) };
    remove_canary(context, canary).await?;
    match error {
        Failure::Wait { last, .. } => Err(Failure::Canary { why: last }),
        error => Err(error),
    }
}

/// Waits until all pods of a Deployment are new and serve, and tells what is missing whenever that
/// changes.
pub(super) async fn await_rollout(
    context: &Context,
    deployment: &Object,
    seconds: u64,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    let what = format!("{} to be ready", deployment.key());
    let told = wait::LastReport::default();
    let at_most = Duration::from_secs(seconds);
    let waited = wait::until(&what, at_most, Duration::from_millis(500), || async {
        let live = context.cluster.get(&deployment.resource, &deployment.key()).await?;
        let Some(lacks) = wait::deployment_lacks(live.as_ref()) else { return Ok(Ok(())) };
        if told.is_new(&lacks) {
            progress.note(&format!("   {}: {lacks}", deployment.key()));
        }
        // A pod that ends again and again does not get better by waiting.
        match wait::pods_that_crash(&context.cluster, deployment).await {
            Some(last) => Err(Failure::Wait { what: what.clone(), last }),
            None => Ok(Err(lacks)),
        }
    });
    match waited.await {
        Err(Failure::Wait { what, last }) => {
            let trouble = wait::pods_in_trouble(&context.cluster, deployment).await;
            Err(Failure::Wait { what, last: trouble.unwrap_or(last) })
        }
        other => other,
    }
}

/// Removes the canary and waits for its end: whoever led has given the Lease up then.
pub(super) async fn remove_canary(context: &Context, canary: &Object) -> Result<(), Failure> {
    let key = canary.key();
    wait::transient(wait::Tries::seconds(60), || {
        context.cluster.delete(&canary.resource, &key, PropagationPolicy::Foreground)
    })
    .await?;
    wait::until(&format!("{key} to be gone"), END, Duration::from_millis(200), || async {
        let live = context.cluster.get(&canary.resource, &key).await?;
        Ok(if live.is_none() { Ok(()) } else { Err("its pod is still there".to_owned()) })
    })
    .await
}

/// Whether the canary's service account may take the Lease. A caller who may not ask finds out by
/// the canary itself.
async fn may_lead(context: &Context, canary: &Object) -> Result<(), Failure> {
    let pointer = "/spec/template/spec/serviceAccountName";
    let account = canary.body.pointer(pointer).and_then(serde_json::Value::as_str);
    let namespace = canary.namespace.as_deref().unwrap_or_default();
    let lease = Place::of(&canary.body);
    let user = format!("system:serviceaccount:{namespace}:{}", account.unwrap_or("default"));
    let reviews: Api<SubjectAccessReview> = Api::all(context.cluster.client());
    let question = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.clone()),
            resource_attributes: Some(ResourceAttributes {
                group: Some("coordination.k8s.io".to_owned()),
                resource: Some("leases".to_owned()),
                name: Some(lease.name.clone()),
                namespace: Some(lease.namespace.clone()),
                verb: Some("patch".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = reviews.create(&PostParams::default(), &question).await;
    match answer.map_err(|source| failed("create", "subjectaccessreviews".to_owned(), source)) {
        Ok(answer) if answer.status.as_ref().is_some_and(|status| !status.allowed) => {
            Err(Failure::Canary {
                why: format!(
                    "{user} has no permission to patch the Lease {lease}, so it could \
                     never lead"
                ),
            })
        }
        Ok(_) => Ok(()),
        Err(error) if error.is_denied() => Ok(()),
        Err(error) => Err(error.into()),
    }
}
