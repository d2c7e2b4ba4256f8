//! Nodes that stay when their operator goes. Their finalizers and owners are taken off, or the
//! first deletion of a Node would hang, and the garbage collector would remove it with its
//! NodeClaim. Nothing is proven gone here, because nothing goes: the user asked for it.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{DynamicObject, PropagationPolicy};
use kube::core::ApiResource;
use serde_json::{Value, json};
use tenon_installer_core::apply::{Context, wait};
use tenon_installer_core::desired::Desired;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::resources;

use super::abandoned::Abandoned;
use super::objects::{delete_all, key};
use super::stranded::{self, CLAIM_FINALIZER, CLASS_FINALIZER};
use super::{Inventory, Remover};
use crate::errors::ExpectedError;

impl Remover<'_> {
    /// Lets go of the nodes, then removes what their operator worked by. The operator must be gone:
    /// it would take a deleted NodeClaim for a command.
    pub(super) async fn release_nodes(
        &mut self,
        inventory: &Inventory,
    ) -> Result<(), ExpectedError> {
        let context = &self.context.clone();
        let desired = self.desired;
        let names = |objects: &[DynamicObject]| {
            objects.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
        };
        let (evict_for, timeout) = (self.options.evict_for(), self.options.timeout);
        // Listed anew: until it was stopped, the operator may have made some.
        let claims = context.cluster.list(&resources::node_claims()).await;
        let claims = claims.map_err(|error| self.failed("nodeclaims", error.into()))?;
        if !claims.is_empty() {
            let release = release_claims(context, desired, claims, evict_for, timeout);
            self.step("nodeclaims", "NodeClaims, without their nodes", release).await?;
        }
        let pools = names(&inventory.nodes.pools);
        if !pools.is_empty() {
            let delete = delete_all(&context.cluster, resources::node_pools(), &pools);
            self.step("nodepools", &format!("NodePools {}", pools.join(", ")), delete).await?;
        }
        let classes = names(&inventory.nodes.classes);
        if !classes.is_empty() {
            let release = async {
                let resource = resources::node_classes();
                delete_all(&context.cluster, resource.clone(), &classes).await?;
                for name in &classes {
                    let key = key(&resource, name);
                    context.cluster.remove_finalizer(&resource, &key, CLASS_FINALIZER).await?;
                }
                Ok(())
            };
            self.step("nodeclasses", &format!("EC2NodeClasses {}", classes.join(", ")), release)
                .await?;
        }
        Ok(())
    }
}

async fn release_claims(
    context: &Context,
    desired: &Desired,
    claims: Vec<DynamicObject>,
    evict_for: std::time::Duration,
    timeout: std::time::Duration,
) -> Result<(), Failure> {
    let resource = resources::node_claims();
    // A node that its operator was about to remove is half drained: that is brought to its end.
    let (going, staying): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|claim| claim.metadata.deletion_timestamp.is_some());
    let abandoned = Abandoned::new(false);
    let removal = stranded::ClaimRemoval { context, evict_for, timeout, abandoned: &abandoned };
    removal.claims(&desired.scope, &going).await?;
    for claim in &staying {
        let node = claim.data.pointer("/status/nodeName").and_then(Value::as_str);
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            release_node(context, node).await?;
        }
        let key = key(&resource, &claim.name_any());
        context.cluster.delete(&resource, &key, PropagationPolicy::Background).await?;
        context.cluster.remove_finalizer(&resource, &key, CLAIM_FINALIZER).await?;
    }
    Ok(())
}

async fn release_node(context: &Context, name: &str) -> Result<(), Failure> {
    let resource = ApiResource::erase::<Node>(&());
    let key = key(&resource, name);
    let released = wait::transient(wait::Tries::seconds(30), || async {
        match context.cluster.get(&resource, &key).await? {
            Some(live) => context.cluster.merge(&resource, &key, &without_owner(&live)).await,
            None => Ok(()),
        }
    });
    released.await?;
    Ok(context.cluster.remove_finalizer(&resource, &key, CLAIM_FINALIZER).await?)
}

/// A patch that takes Karpenter's owner off a Node and leaves all others, if nobody has changed it
/// since.
fn without_owner(node: &Value) -> Value {
    let owners = node.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let stays = |owner: &&Value| {
        let group = owner["apiVersion"].as_str().and_then(|version| version.split('/').next());
        (group, owner["kind"].as_str()) != (Some("karpenter.sh"), Some("NodeClaim"))
    };
    json!({"metadata": {
        "resourceVersion": node.pointer("/metadata/resourceVersion"),
        "ownerReferences": owners.into_iter().flatten().filter(stays).collect::<Vec<_>>(),
    }})
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_installer_core::aws::Aws;
    use tenon_installer_core::testing::Double;

    #[tokio::test]
    async fn a_node_loses_karpenter_s_finalizer_and_owner_and_keeps_the_others() {
        const NODE: &str = "/api/v1/nodes/one";
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "one",
                "finalizers": ["example.com/mine", CLAIM_FINALIZER],
                "ownerReferences": [
                    {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "default-1", "uid": "1"},
                    {"apiVersion": "example.com/v1", "kind": "NodeClaim", "name": "other", "uid": "2"},
                ],
            },
        });
        let server = Double::start(&[(NODE, node)]).await;
        let context = Context {
            aws: Aws::nowhere(),
            cluster: server.cluster(),
            cluster_name: "prod".to_owned(),
            install_id: "abcd0123".to_owned(),
        };
        release_node(&context, "one").await.expect("it is released");
        let nodes = context.cluster.all::<Node>().await.expect("it answers");
        assert_eq!(nodes[0].finalizers(), ["example.com/mine"]);
        let owners = nodes[0].owner_references().iter().map(|owner| owner.name.as_str());
        assert_eq!(owners.collect::<Vec<_>>(), ["other"]);
    }
}
