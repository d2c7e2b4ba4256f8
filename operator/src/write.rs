//! Writes to the Kubernetes API: patches that touch only what they mean, and their results taken
//! into the state at once, so that the next look sees them.
//!
//! Patches of lists (finalizers, taints, conditions) carry the resource version that they were
//! computed from: when somebody was faster the API server refuses them, and the caller looks again.

pub(crate) mod create;
mod error;
mod narrow;

use std::collections::BTreeMap;
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::Pod as KubePod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenon_crds::{CapacityBuffer, CapacityBufferStatus, NodeClaim, NodeOverlay, NodePool, labels};
use tenon_state::guarded::Guarded;

use self::Precondition::{SameUid, Unchanged};
pub(crate) use self::error::WriteError;
use self::error::error;
use crate::state::State;
use crate::state::change::{Change, ObjectKey, version};
use crate::state::cluster::{annotation, name};
use crate::state::pod::{DELETION_COST, DELETION_COST_MANAGER, NOMINATION_MANAGER};
use crate::watch::Watched;
use crate::watch::wire::Node;
use crate::work_queue::Failure as _;

/// Field manager of all writes but one.
const MANAGER: &str = "tenon";

/// What has to hold of the stored object for a patch to be accepted; otherwise it is a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// It is the object that was read, not one that was created later with the same name.
    SameUid,
    /// Nothing has changed it since it was read, either.
    Unchanged,
}

/// The endpoint that a patch is sent to.
#[derive(Clone, Copy)]
enum Endpoint {
    Object,
    Status,
}

/// A kind without namespaces that the state does not hold.
pub(crate) trait Unwatched:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned
{
}

impl Unwatched for tenon_crds::EC2NodeClass {}

/// Writes objects, and tells the state.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    state: State,
}

impl Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer.
    pub fn new(client: Client, state: State) -> Self {
        Self { client, state }
    }

    /// The state that is told of what is written.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Deletes a NodeClaim, unless it is gone or was made again: then it answers false. Its
    /// finalizer keeps it until its machine is gone.
    pub(crate) async fn delete_claim(&self, claim: &NodeClaim) -> Result<bool, WriteError> {
        let api: Api<NodeClaim> = Api::all(self.client.clone());
        let name = name(&claim.metadata);
        let params = only_uid(claim.metadata.uid.clone());
        let answer = match api.delete(&name, &params).await {
            Ok(answer) => answer,
            Err(source) => {
                let error = error("deleting", "NodeClaim", &name, source);
                if error.is_not_found() {
                    self.claim_is_gone(&claim.metadata).await;
                } else if !error.is_conflict() {
                    return Err(error);
                }
                return Ok(false);
            }
        };
        // Without finalizers it is gone at once, and the answer says no more than that.
        match answer.left() {
            Some(object) => self.state.apply(Change::Written(object.into_object())).await,
            None => self.claim_is_gone(&claim.metadata).await,
        }
        Ok(true)
    }

    /// Patches a NodeClaim's metadata or spec; `body` is merged.
    pub(crate) async fn patch_claim(
        &self,
        claim: &NodeClaim,
        body: Value,
        precondition: Precondition,
    ) -> Result<NodeClaim, WriteError> {
        self.patch(self.all(), "patching", claim, body, precondition, Endpoint::Object).await
    }

    /// Sets the time by which everything has to be gone from a NodeClaim's machine, unless an
    /// earlier one is set; false when the NodeClaim is gone.
    pub(crate) async fn bound_drain(
        &self,
        claim: &NodeClaim,
        by: Timestamp,
        precondition: Precondition,
    ) -> Result<bool, WriteError> {
        let set = annotation(claim, labels::TERMINATION_TIMESTAMP);
        let Some(text) = tightened(set, by) else { return Ok(true) };
        let body =
            json!({ "metadata": { "annotations": { labels::TERMINATION_TIMESTAMP: text } } });
        match self.patch_claim(claim, body, precondition).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Merges annotations into a NodeClaim of which only its metadata is at hand, because the rest
    /// of it may not parse.
    pub(crate) async fn annotate_claim(
        &self,
        metadata: &ObjectMeta,
        annotations: &BTreeMap<&'static str, &str>,
    ) -> Result<(), WriteError> {
        let body = json!({ "metadata": { "annotations": annotations } });
        let api: Api<Guarded<NodeClaim>> = self.all();
        match send(api, "annotating", metadata, body, SameUid, Endpoint::Object).await {
            Ok(written) => {
                if let Ok(claim) = written.into_result() {
                    self.state.apply(Change::Written(claim.into_object())).await;
                }
                Ok(())
            }
            Err(error) => {
                if error.is_not_found() {
                    self.claim_is_gone(metadata).await;
                }
                Err(error)
            }
        }
    }

    /// Patches a NodeClaim's status to that of `claim`, from which it was computed.
    pub(crate) async fn patch_claim_status(
        &self,
        claim: &NodeClaim,
    ) -> Result<NodeClaim, WriteError> {
        self.patch(
            self.all(),
            "patching the status of",
            claim,
            json!({ "status": claim.status }),
            Unchanged,
            Endpoint::Status,
        )
        .await
    }

    /// Deletes a NodeClaim that is as `claim` was read; refused as a conflict when it has changed
    /// since, and done when it is gone.
    pub(crate) async fn delete_claim_unchanged(&self, claim: &NodeClaim) -> Result<(), WriteError> {
        let api: Api<NodeClaim> = Api::all(self.client.clone());
        let name = name(&claim.metadata);
        let mut params = only_uid(claim.metadata.uid.clone());
        if let Some(preconditions) = &mut params.preconditions {
            preconditions.resource_version.clone_from(&claim.metadata.resource_version);
        }
        let answer = match api.delete(&name, &params).await {
            Ok(answer) => answer,
            Err(source) => {
                let error = error("deleting", "NodeClaim", &name, source);
                return if error.is_not_found() { Ok(()) } else { Err(error) };
            }
        };
        if let Some(object) = answer.left() {
            self.state.apply(Change::Written(object.into_object())).await;
        }
        Ok(())
    }

    /// Takes the finalizer off a NodeClaim, so that it goes.
    pub(crate) async fn release_claim(&self, claim: &NodeClaim) -> Result<(), WriteError> {
        let body = json!({"metadata": {"finalizers": without_ours(&claim.metadata)}});
        let (api, metadata) = (self.all(), &claim.metadata);
        match send::<NodeClaim>(api, "releasing", metadata, body, Unchanged, Endpoint::Object).await
        {
            Ok(left) if left.metadata.finalizers.as_ref().is_none_or(Vec::is_empty) => {
                self.claim_is_gone(&claim.metadata).await;
            }
            Ok(left) => self.state.apply(Change::Written(left.into_object())).await,
            Err(error) if error.is_not_found() => self.claim_is_gone(&claim.metadata).await,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Patches a NodePool; `body` is merged.
    pub(crate) async fn patch_pool(
        &self,
        pool: &NodePool,
        body: Value,
    ) -> Result<NodePool, WriteError> {
        self.patch(self.all(), "patching", pool, body, SameUid, Endpoint::Object).await
    }

    /// Patches a NodePool's status with the fields of `status`.
    pub(crate) async fn patch_pool_status(
        &self,
        pool: &NodePool,
        status: Value,
        precondition: Precondition,
    ) -> Result<NodePool, WriteError> {
        let body = json!({ "status": status });
        let verb = "patching the status of";
        self.patch(self.all(), verb, pool, body, precondition, Endpoint::Status).await
    }

    /// Patches a NodeOverlay's status; `status` is merged, and refused when the overlay has changed
    /// since it was read.
    pub(crate) async fn patch_overlay_status(
        &self,
        overlay: &NodeOverlay,
        status: Value,
    ) -> Result<NodeOverlay, WriteError> {
        let body = json!({ "status": status });
        let verb = "patching the status of";
        self.patch(self.all(), verb, overlay, body, Unchanged, Endpoint::Status).await
    }

    /// Writes a CapacityBuffer's status, unless the buffer has changed since it was read.
    pub(crate) async fn patch_buffer_status(
        &self,
        buffer: &CapacityBuffer,
        status: &CapacityBufferStatus,
    ) -> Result<CapacityBuffer, WriteError> {
        // What is not set any more has to be said: a merge keeps what is left out.
        let body = json!({
            "status": {
                "conditions": status.conditions,
                "podTemplateGeneration": status.pod_template_generation,
                "podTemplateRef": status.pod_template_ref,
                "provisioningStrategy": status.provisioning_strategy,
                "replicas": status.replicas,
            },
        });
        let namespace = buffer.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::namespaced(self.client.clone(), namespace);
        let verb = "patching the status of";
        self.patch(api, verb, buffer, body, Unchanged, Endpoint::Status).await
    }

    /// Patches a Node; `body` is merged, and refused as a conflict when the lists that it replaces
    /// have changed since `node` was read. Nothing is sent if it would change nothing.
    pub(crate) async fn patch_node(&self, node: &Node, body: &Value) -> Result<Node, WriteError> {
        let Some(patched) = self.send_narrow("patching", node, body).await? else {
            return Ok(node.clone());
        };
        self.state.apply(Change::Written(patched.clone().into_object())).await;
        Ok(patched)
    }

    /// `None` if there was nothing to be sent.
    async fn send_narrow(
        &self,
        verb: &'static str,
        node: &Node,
        body: &Value,
    ) -> Result<Option<Node>, WriteError> {
        let failed = |source| error(verb, "Node", node.name(), source);
        let known = serde_json::to_value(node).map_err(|it| failed(kube::Error::SerdeError(it)))?;
        let operations = narrow::operations(&known, body);
        if operations.is_empty() {
            return Ok(None);
        }
        let patch = json_patch(operations).map_err(failed)?;
        let api: Api<Node> = self.all();
        let patched = api.patch(node.name(), &by(MANAGER), &patch).await;
        patched.map(Some).map_err(|source| failed(source).tested())
    }

    /// Merges labels into a Node; those that are `null` are taken away. Unlike lists they are
    /// nobody else's, so that it is not refused when the Node has changed meanwhile.
    pub(crate) async fn label_node(&self, node: &Node, labels: Value) -> Result<Node, WriteError> {
        let body = json!({ "metadata": { "labels": labels } });
        self.patch(self.all(), "labelling", node, body, SameUid, Endpoint::Object).await
    }

    /// Patches a NodeClass, a kind that the state does not hold: its provider has to take in the
    /// answer. `body` is merged, and refused when the NodeClass has changed since it was read.
    pub(crate) async fn patch_class<K: Unwatched>(
        &self,
        class: &K,
        body: Value,
    ) -> Result<K, WriteError> {
        send(self.all(), "patching", class.meta(), body, Unchanged, Endpoint::Object).await
    }

    /// The same with the fields of its status.
    pub(crate) async fn patch_class_status<K: Unwatched>(
        &self,
        class: &K,
        status: Value,
    ) -> Result<K, WriteError> {
        let body = json!({ "status": status });
        let verb = "patching the status of";
        send(self.all(), verb, class.meta(), body, Unchanged, Endpoint::Status).await
    }

    /// Applies fields of a NodeClass by server-side apply: those that were applied before and are
    /// not in `body` are removed, those of others stay.
    pub(crate) async fn apply_class<K: Unwatched>(
        &self,
        class: &K,
        body: Value,
    ) -> Result<K, WriteError> {
        apply(self.all(), class.meta(), body).await
    }

    /// The same for a NodePool.
    pub(crate) async fn apply_pool(
        &self,
        pool: &NodePool,
        body: Value,
    ) -> Result<NodePool, WriteError> {
        let applied: NodePool = apply(self.all(), &pool.metadata, body).await?;
        self.state.apply(Change::Written(applied.clone().into_object())).await;
        Ok(applied)
    }

    /// Takes the finalizer off a Node, so that it goes.
    pub async fn release_node(&self, node: &Node) -> Result<(), WriteError> {
        let body = json!({"metadata": {"finalizers": without_ours(&node.metadata)}});
        // The answer is not taken in: the Node may be gone with it, and the watch will say so.
        match self.send_narrow("releasing", node, &body).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes a Node, unless it is gone or was made again. Its finalizer keeps it until it is
    /// drained.
    pub(crate) async fn delete_node(&self, node: &Node) -> Result<(), WriteError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let params = only_uid(node.metadata.uid.clone());
        match api.delete(node.name(), &params).await {
            Ok(_) => Ok(()),
            Err(source) => {
                let error = error("deleting", "Node", node.name(), source);
                if error.is_not_found() || error.is_conflict() { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Asks a pod to go, as its PodDisruptionBudgets allow.
    pub(crate) async fn evict_pod(&self, key: &ObjectKey, uid: &str) -> Result<(), WriteError> {
        let api: Api<KubePod> = Api::namespaced(self.client.clone(), &key.namespace);
        // Not `Api::evict`: it spells the delete options in a way that the API server does not
        // read, and the precondition would be lost.
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": key.namespace, "name": key.name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let params = PostParams::default();
        let evicted: Result<Value, _> =
            api.create_subresource("eviction", &key.name, &params, &eviction).await;
        evicted.map(drop).map_err(|source| error("evicting", "Pod", &key.to_string(), source))
    }

    /// Gives a pod a deletion cost, or takes back what it was given. Refused as a conflict where
    /// somebody else has set one, and when the pod was made again.
    pub(crate) async fn apply_deletion_cost(
        &self,
        key: &ObjectKey,
        uid: &str,
        value: Option<i32>,
    ) -> Result<(), WriteError> {
        let api: Api<KubePod> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "uid": uid } });
        if let Some(value) = value {
            pod["metadata"]["annotations"] = json!({ DELETION_COST: value.to_string() });
        }
        let params = PatchParams::apply(DELETION_COST_MANAGER);
        let applied = api.patch_metadata(&key.name, &params, &Patch::Apply(pod)).await;
        let verb = "applying the deletion cost of";
        applied.map(drop).map_err(|source| error(verb, "Pod", &key.to_string(), source))
    }

    /// Nominates a Node for a pod that waits, or takes the nomination back: `from` is what it is
    /// nominated to now. Refused as a conflict where somebody else, such as a preemption, has
    /// changed that, when the pod is bound, and when it was made again. The state hears of it from
    /// the watch, as kube-scheduler does: until it has the resource version that this answers, it
    /// has an older nomination.
    pub async fn nominate(
        &self,
        key: &ObjectKey,
        uid: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<u64, WriteError> {
        const NOMINATED: &str = "/status/nominatedNodeName";
        let shown = key.to_string();
        let failed = |source| error("nominating a node for", "Pod", &shown, source);
        let api: Api<PartialObjectMeta<KubePod>> =
            Api::namespaced(self.client.clone(), &key.namespace);
        let change = match to {
            Some(node) => json!({"op": "add", "path": NOMINATED, "value": node}),
            None => json!({"op": "remove", "path": NOMINATED}),
        };
        // Server-side apply would know whose nomination it is, but costs the API server more than
        // twice as much, a thousand times in a burst.
        let patch = json_patch(vec![
            json!({"op": "test", "path": "/metadata/uid", "value": uid}),
            json!({"op": "test", "path": "/spec/nodeName", "value": null}),
            json!({"op": "test", "path": NOMINATED, "value": from}),
            change,
        ]);
        let patch = patch.map_err(failed)?;
        // Of the answer, which is the whole pod, only metadata is read.
        let patched = api.patch_status(&key.name, &by(NOMINATION_MANAGER), &patch).await;
        let patched = patched.map_err(|source| failed(source).tested())?;
        Ok(version(patched.metadata.resource_version.as_deref()))
    }

    /// Deletes a pod with this grace period, whatever protects it.
    pub(crate) async fn delete_pod(
        &self,
        key: &ObjectKey,
        uid: &str,
        grace_period: u32,
    ) -> Result<(), WriteError> {
        let api: Api<KubePod> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = only_uid(Some(uid.to_owned())).grace_period(grace_period);
        let deleted = api.delete(&key.name, &params).await;
        deleted.map(drop).map_err(|source| error("deleting", "Pod", &key.to_string(), source))
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    async fn claim_is_gone(&self, metadata: &ObjectMeta) {
        let uid = metadata.uid.clone().unwrap_or_default();
        self.state.apply(Change::ClaimGone(name(metadata), uid)).await;
    }

    async fn patch<K: Watched>(
        &self,
        api: Api<K>,
        verb: &'static str,
        object: &K,
        body: Value,
        precondition: Precondition,
        endpoint: Endpoint,
    ) -> Result<K, WriteError> {
        let patched = send(api, verb, object.meta(), body, precondition, endpoint).await;
        match patched {
            Ok(patched) => {
                self.state.apply(Change::Written(patched.clone().into_object())).await;
                Ok(patched)
            }
            Err(error) => {
                if error.is_not_found() && K::KIND == NodeClaim::KIND {
                    self.claim_is_gone(object.meta()).await;
                }
                Err(error)
            }
        }
    }
}

/// Applies fields to the object that was read, and creates none.
async fn apply<K>(api: Api<K>, metadata: &ObjectMeta, mut body: Value) -> Result<K, WriteError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    body["metadata"]["uid"] = json!(metadata.uid);
    let name = name(metadata);
    let params = PatchParams::apply(MANAGER).force();
    let answer = api.patch(&name, &params, &Patch::Apply(body)).await;
    answer.map_err(|source| error("applying", &K::kind(&()), &name, source))
}

/// Merges `body` into an object or its status.
async fn send<K>(
    api: Api<K>,
    verb: &'static str,
    metadata: &ObjectMeta,
    mut body: Value,
    precondition: Precondition,
    endpoint: Endpoint,
) -> Result<K, WriteError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let required = match precondition {
        SameUid => json!({ "uid": metadata.uid }),
        Unchanged => {
            json!({ "uid": metadata.uid, "resourceVersion": metadata.resource_version })
        }
    };
    json_patch::merge(&mut body, &json!({ "metadata": required }));
    let name = name(metadata);
    let params = by(MANAGER);
    let patch = Patch::Merge(body);
    let answer = match endpoint {
        Endpoint::Object => api.patch(&name, &params, &patch).await,
        Endpoint::Status => api.patch_status(&name, &params, &patch).await,
    };
    let shown = metadata.namespace.as_ref().map(|namespace| format!("{namespace}/{name}"));
    answer.map_err(|source| error(verb, &K::kind(&()), &shown.unwrap_or(name), source))
}

fn by(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

fn json_patch(operations: Vec<Value>) -> Result<Patch<()>, kube::Error> {
    let patch = serde_json::from_value(Value::Array(operations));
    patch.map(Patch::Json).map_err(kube::Error::SerdeError)
}

fn only_uid(uid: Option<String>) -> DeleteParams {
    let preconditions = Preconditions { uid, resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

fn without_ours(metadata: &ObjectMeta) -> Vec<&String> {
    let ours = labels::TERMINATION_FINALIZER;
    metadata.finalizers.iter().flatten().filter(|finalizer| *finalizer != ours).collect()
}

/// What to write for the end of a drain that has to be over `by`, `None` when what is `set` is no
/// later. What can't be read counts as not set.
fn tightened(set: Option<&str>, by: Timestamp) -> Option<String> {
    let text = tenon_crds::Timestamp(by).to_string();
    // Both as they are written, in whole seconds.
    let by: Timestamp = text.parse().unwrap_or(by);
    let earlier = set.and_then(|set| set.parse::<Timestamp>().ok()).is_some_and(|set| set <= by);
    (!earlier).then_some(text)
}

#[cfg(test)]
mod tests;
