//! Steps of an adoption: marks on what is somebody else's, and the hand-over of the Lease.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_eventbridge::types::Tag as RuleTag;
use aws_sdk_iam::types::Tag as RoleTag;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PropagationPolicy};
use serde_json::{Value, json};
use tenon_iam_policies::Document;

use super::{Context, Progress, patch, rollout, wait};
use crate::aws::{Calling, IfThere};
use crate::failure::Failure;
use crate::kubernetes::client::failed;
use crate::kubernetes::lease::{self, Place};
use crate::kubernetes::object::Object;
use crate::ownership::{ADOPTED_BY, REPLICAS};
use crate::plan::Adoptee;
use crate::words::count;

/// How long an object may take to be gone.
const GONE: Duration = Duration::from_mins(5);

/// Marks a thing as used.
pub(super) async fn mark(
    context: &Context,
    what: &Adoptee,
    install_id: &str,
) -> Result<(), Failure> {
    let aws = &context.aws;
    match what {
        Adoptee::Role { name } => {
            let tag = RoleTag::builder().key(ADOPTED_BY).value(install_id).build();
            let tag = tag.expect("key and value are set");
            let call = aws.iam.tag_role().role_name(name).tags(tag).send().await;
            call.calling("iam:TagRole", format!("role {name}"))?;
        }
        Adoptee::Queue { name, url } => {
            let call = aws.sqs.tag_queue().queue_url(url).tags(ADOPTED_BY, install_id).send().await;
            call.calling("sqs:TagQueue", format!("queue {name}"))?;
        }
        Adoptee::Rule { name, arn } => {
            let tag = RuleTag::builder().key(ADOPTED_BY).value(install_id).build();
            let tag = tag.expect("key and value are set");
            let call = aws.events.tag_resource().resource_arn(arn).tags(tag).send().await;
            call.calling("events:TagResource", format!("rule {name}"))?;
        }
    }
    Ok(())
}

/// Takes the mark off; a thing that is gone is no error.
pub(super) async fn unmark(context: &Context, what: &Adoptee) -> Result<(), Failure> {
    let aws = &context.aws;
    match what {
        Adoptee::Role { name } => {
            let call = aws.iam.untag_role().role_name(name).tag_keys(ADOPTED_BY).send().await;
            call.calling("iam:UntagRole", format!("role {name}")).if_there()?;
        }
        Adoptee::Queue { name, url } => {
            let call = aws.sqs.untag_queue().queue_url(url).tag_keys(ADOPTED_BY).send().await;
            call.calling("sqs:UntagQueue", format!("queue {name}")).if_there()?;
        }
        Adoptee::Rule { name, arn } => {
            let call = aws.events.untag_resource().resource_arn(arn).tag_keys(ADOPTED_BY);
            let call = call.send().await;
            call.calling("events:UntagResource", format!("rule {name}")).if_there()?;
        }
    }
    Ok(())
}

/// Adds one inline policy to a role that stays what it is otherwise.
pub(super) async fn add_policy(
    context: &Context,
    role: &str,
    name: &str,
    document: &Document,
) -> Result<(), Failure> {
    let call = context
        .aws
        .iam
        .put_role_policy()
        .role_name(role)
        .policy_name(name)
        .policy_document(document.to_json())
        .send()
        .await;
    call.calling("iam:PutRolePolicy", format!("role {role}"))?;
    Ok(())
}

/// Takes it away again.
pub(super) async fn remove_policy(
    context: &Context,
    role: &str,
    name: &str,
) -> Result<(), Failure> {
    let call = context.aws.iam.delete_role_policy().role_name(role).policy_name(name).send().await;
    call.calling("iam:DeleteRolePolicy", format!("role {role}")).if_there()?;
    Ok(())
}

/// Remembers the replicas and takes them away in one write, and waits until the pods are gone.
pub(super) async fn hand_over(
    context: &Context,
    deployment: &Object,
    replicas: i64,
    install_id: &str,
    (seconds, progress): (u64, &dyn Progress),
) -> Result<(), Failure> {
    let body = json!({
        "metadata": {"annotations": {REPLICAS: replicas.to_string(), ADOPTED_BY: install_id}},
        "spec": {"replicas": 0},
    });
    patch(context, deployment, &body).await?;
    rollout::await_rollout(context, deployment, seconds, progress).await?;
    // A rollout is complete with any number of replicas, also if somebody has restored them.
    let key = deployment.key();
    let live = context.cluster.get(&deployment.resource, &key).await?;
    let now = live.as_ref().and_then(|live| live.pointer("/spec/replicas")?.as_i64());
    match now.filter(|replicas| *replicas > 0) {
        Some(replicas) => Err(Failure::Restored {
            what: key.to_string(),
            replicas: count(usize::try_from(replicas).unwrap_or(usize::MAX), "replica"),
        }),
        None => Ok(()),
    }
}

/// Gives the replicas back and waits until the pods stand by.
pub(super) async fn hand_back(
    context: &Context,
    deployment: &Object,
    replicas: i64,
    (seconds, progress): (u64, &dyn Progress),
) -> Result<(), Failure> {
    patch(context, deployment, &json!({"spec": {"replicas": replicas}})).await?;
    rollout::await_rollout(context, deployment, seconds, progress).await
}

/// Takes our annotations off, and gives the replicas back in the same write where they are still
/// away.
pub(super) async fn forget(
    context: &Context,
    deployment: &Object,
    replicas: Option<i64>,
) -> Result<(), Failure> {
    let mut body = json!({"metadata": {"annotations": {REPLICAS: null, ADOPTED_BY: null}}});
    if let Some(replicas) = replicas {
        body["spec"]["replicas"] = replicas.into();
    }
    patch(context, deployment, &body).await
}

/// Waits until a pod of the Deployment provably leads, and answers who.
pub async fn await_leader(
    context: &Context,
    place: &Place,
    deployment: &Object,
    seconds: u64,
) -> Result<String, Failure> {
    let leases: Api<Lease> = Api::namespaced(context.cluster.client(), &place.namespace);
    let what = format!("a pod of {} to hold the Lease {place}", deployment.name);
    let at_most = Duration::from_secs(seconds);
    // What was seen of the Lease before: a leader renews it every two seconds.
    let before = Mutex::new(None);
    let leader = Mutex::new(String::new());
    wait::until(&what, at_most, Duration::from_millis(500), || async {
        let lease = leases.get_opt(&place.name).await;
        let lease = lease.map_err(|source| failed("get", format!("Lease {place}"), source))?;
        let pods = pods_of(context, deployment).await?;
        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(lease::leader(lease.as_ref(), &pods, &mut before).map(|holder| {
            *leader.lock().unwrap_or_else(PoisonError::into_inner) = holder;
        }))
    })
    .await?;
    Ok(leader.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The pods that a Deployment selects; none if it does not exist.
async fn pods_of(context: &Context, deployment: &Object) -> Result<Vec<Pod>, Failure> {
    let key = deployment.key();
    let Some(live) = context.cluster.get(&deployment.resource, &key).await? else {
        return Ok(Vec::new());
    };
    let labels = live.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let selector = ListParams::default().labels(&labels.collect::<Vec<_>>().join(","));
    let namespace = deployment.namespace.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(context.cluster.client(), namespace);
    let found = pods.list(&selector).await;
    let found = found.map_err(|source| failed("list", format!("pods of {key}"), source))?;
    Ok(found.items)
}

/// Deletes an object of ours with what hangs on it, and waits until it is gone.
pub(super) async fn delete(context: &Context, object: &Object) -> Result<(), Failure> {
    let key = object.key();
    let (cluster, tries) = (&context.cluster, wait::Tries::seconds(60));
    let foreground = || PropagationPolicy::Foreground;
    wait::transient(tries, || cluster.delete(&object.resource, &key, foreground())).await?;
    wait::until(&format!("{key} to be gone"), GONE, Duration::from_millis(200), || async {
        let live = cluster.get(&object.resource, &key).await?;
        Ok(if live.is_none() { Ok(()) } else { Err("it is still there".to_owned()) })
    })
    .await
}
