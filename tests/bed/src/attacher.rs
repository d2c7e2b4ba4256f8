//! Plays the attacher of every CSI driver: the program that attaches and detaches volumes when
//! kube-controller-manager asks for it by a VolumeAttachment.
//!
//! kube-controller-manager makes a VolumeAttachment for each CSI volume of a pod on a node that
//! says that it has volumes attached for it ([`MANAGED_ANNOTATION`]), and deletes it after the pod.
//! As a real attacher does, this one says that the volume is attached and keeps a finalizer until
//! it is detached. That takes no time, unless the PersistentVolume carries
//! [`DETACHES_AFTER_ANNOTATION`].

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenon_aws_double::clock::Clock;
use tenon_crds::duration::ParseDurationError;
use tokio::task::JoinSet;

/// On a Node, as its kubelet sets it: kube-controller-manager attaches volumes for it.
pub(crate) const MANAGED_ANNOTATION: &str =
    "volumes.kubernetes.io/controller-managed-attach-detach";
/// On a PersistentVolume: for how long it stays attached once its detachment is asked for (a Go
/// duration, `30s`).
pub const DETACHES_AFTER_ANNOTATION: &str = "bed.tenon.dev/detaches-after";

/// The annotation can be changed while a volume is waited for, so it is read again this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The running attacher; it ends when dropped.
#[derive(Debug)]
pub struct Attacher {
    _task: JoinSet<()>,
}

struct Context {
    client: Client,
    clock: Clock,
}

/// A volume can't be attached or detached.
#[derive(Debug, thiserror::Error)]
enum AttachError {
    #[error("the API server does not take what the attacher does")]
    Kube(#[from] kube::Error),
    #[error("the annotation {DETACHES_AFTER_ANNOTATION} of PersistentVolume {volume} is not valid")]
    Annotation { volume: String, source: ParseDurationError },
}

impl Attacher {
    /// Starts to attach and detach; `client` must have an administrator's rights.
    pub fn start(client: Client, clock: Clock) -> Self {
        let attachments: Api<VolumeAttachment> = Api::all(client.clone());
        let context = Arc::new(Context { client, clock });
        let mut task = JoinSet::new();
        let run = Controller::new(attachments, watcher::Config::default())
            .run(reconcile, |object, error, _| retry(&object, error), context)
            .for_each(|_| std::future::ready(()));
        task.spawn(run);
        Self { _task: task }
    }
}

fn retry(object: &VolumeAttachment, error: &AttachError) -> Action {
    let name = object.name_any();
    tracing::warn!(name, error = error as &dyn std::error::Error, "a volume waits");
    Action::requeue(LOOK_AGAIN)
}

async fn reconcile(
    object: Arc<VolumeAttachment>,
    context: Arc<Context>,
) -> Result<Action, AttachError> {
    match &object.metadata.deletion_timestamp {
        None => attach(&object, &context).await,
        Some(asked) => detach(&object, asked.0, &context).await,
    }
}

/// Keeps the object and says that the volume is there.
async fn attach(object: &VolumeAttachment, context: &Context) -> Result<Action, AttachError> {
    let attachments: Api<VolumeAttachment> = Api::all(context.client.clone());
    let (name, finalizer) = (object.name_any(), finalizer(object));
    if !object.finalizers().contains(&finalizer) {
        let finalizers: Vec<_> = object.finalizers().iter().chain([&finalizer]).collect();
        set_finalizers(&attachments, object, &finalizers).await?;
    }
    if !object.status.as_ref().is_some_and(|status| status.attached) {
        let status = json!({ "status": { "attached": true } });
        attachments.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(Action::await_change())
}

/// Lets the object go once the volume has had its time, counted from when its detachment was
/// `asked` for.
async fn detach(
    object: &VolumeAttachment,
    asked: Timestamp,
    context: &Context,
) -> Result<Action, AttachError> {
    let finalizer = finalizer(object);
    if !object.finalizers().contains(&finalizer) {
        return Ok(Action::await_change());
    }
    let after = detaches_after(object, &context.client).await?;
    let left = context.clock.until(asked.saturating_add(after).unwrap_or(Timestamp::MAX));
    if !left.is_zero() {
        return Ok(Action::requeue(left.min(LOOK_AGAIN)));
    }
    let others: Vec<_> = object.finalizers().iter().filter(|it| **it != finalizer).collect();
    set_finalizers(&Api::all(context.client.clone()), object, &others).await?;
    Ok(Action::await_change())
}

async fn detaches_after(
    object: &VolumeAttachment,
    client: &Client,
) -> Result<Duration, AttachError> {
    let Some(name) = &object.spec.source.persistent_volume_name else { return Ok(Duration::ZERO) };
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = volumes.get_opt(name).await?;
    let annotations = volume.as_ref().map(ResourceExt::annotations);
    let Some(text) = annotations.and_then(|it| it.get(DETACHES_AFTER_ANNOTATION)) else {
        return Ok(Duration::ZERO);
    };
    let after: tenon_crds::Duration =
        text.parse().map_err(|source| AttachError::Annotation { volume: name.clone(), source })?;
    Ok(after.as_std())
}

/// As real attachers call theirs.
fn finalizer(object: &VolumeAttachment) -> String {
    format!("external-attacher/{}", object.spec.attacher.replace('/', "-"))
}

async fn set_finalizers(
    attachments: &Api<VolumeAttachment>,
    object: &VolumeAttachment,
    finalizers: &[&String],
) -> Result<(), kube::Error> {
    // With the version, so that what others set in the meantime is not lost.
    let patch = json!({ "metadata": {
        "resourceVersion": object.metadata.resource_version, "finalizers": finalizers,
    } });
    let name = object.name_any();
    attachments.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}
