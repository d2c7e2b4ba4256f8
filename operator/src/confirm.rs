//! What the API server itself says, where the state's silence is not proof enough.
//!
//! A watch may lag behind, and an object may not parse: what is not in the state may be in the
//! cluster. Before a machine is terminated or a finalizer is removed because something is gone, the
//! API server is asked. These are reads of a few objects at the end of a node's life, not of every
//! look at it.

use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use tenon_crds::{NodeClaim, labels};

use crate::claims::pool_of;
use crate::watch::wire::{Node, Pod};
use crate::work_queue::{Concern, Failure};

/// The API server could not be asked. Nothing may be concluded from that.
#[derive(Debug, thiserror::Error)]
#[error("asking the API server for {what}")]
pub(crate) struct ReadError {
    what: String,
    #[source]
    source: Box<kube::Error>,
}

impl Failure for ReadError {
    fn category(&self) -> &'static str {
        "read"
    }

    fn is_conflict(&self) -> bool {
        false
    }

    fn concern(&self) -> Concern {
        match &*self.source {
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => Concern::Administrator,
            _ => Concern::Passing,
        }
    }
}

fn failed(what: String) -> impl FnOnce(kube::Error) -> ReadError {
    |source| ReadError { what, source: Box::new(source) }
}

/// The Nodes that are the machine of a NodeClaim, which has registered.
pub(crate) async fn nodes_of(client: &Client, claim: &NodeClaim) -> Result<Vec<Node>, ReadError> {
    let Some(id) = claim.provider_id() else { return Ok(Vec::new()) };
    let api: Api<Node> = Api::all(client.clone());
    let name = claim.status.as_ref().and_then(|status| status.node_name.as_deref());
    let nodes = if let Some(name) = name.filter(|name| !name.is_empty()) {
        let node = api.get_opt(name).await.map_err(failed(format!("node {name}")))?;
        node.into_iter().collect()
    } else {
        // Registration gives a Node this label in the same write as its finalizer.
        let pool = pool_of(claim);
        let params = ListParams::default().labels(&format!("{}={pool}", labels::NODEPOOL));
        api.list(&params).await.map_err(failed(format!("the nodes of nodepool {pool}")))?.items
    };
    Ok(nodes.into_iter().filter(|node| node.provider_id() == Some(id)).collect())
}

/// The pods that are bound to a Node.
pub(crate) async fn pods_on(client: &Client, node: &str) -> Result<Vec<Pod>, ReadError> {
    let api: Api<Pod> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = api.list(&params).await.map_err(failed(format!("the pods on node {node}")))?;
    Ok(pods.items)
}

/// How many NodeClaims say that a Node is their machine, also those that don't parse.
pub(crate) async fn n_claims_of(client: &Client, node: &Node) -> Result<usize, ReadError> {
    let Some(id) = node.provider_id() else { return Ok(0) };
    let api: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::erase::<NodeClaim>(&()));
    let what = || format!("the nodeclaims of node {}", node.name());
    let claims = api.list(&ListParams::default()).await.map_err(failed(what()))?;
    Ok(claims.items.iter().filter(|claim| claim.data["status"]["providerID"] == id).count())
}
