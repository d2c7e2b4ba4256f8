//! The hash of a NodeClass, in annotations of it and of its NodeClaims: what drift is told by.
//!
//! When the version of the algorithm changed, claims get the new version and, unless something has already drifted them, the new hash. So an upgrade of
//! the operator never replaces a machine.

use std::collections::BTreeMap;

use kube::api::{Api, Patch, PatchParams};
use tenon_crds::hash::{EC2_NODE_CLASS_HASH_VERSION, ec2_node_class};
use tenon_crds::labels::aws::{EC2NODECLASS_HASH, EC2NODECLASS_HASH_VERSION};
use tenon_crds::{EC2NodeClass, NodeClaim, conditions};

use super::{FIELD_MANAGER, ReconcileError};
use crate::aws::AwsProvider;
use crate::aws::objects::{self, ClaimUse};
use crate::cloud_provider::Context;

/// Brings the annotations of a class, and those of its claims after a change of the version, up to date. Returns the class' new resource version if it was
/// written.
pub async fn annotate(
    provider: &AwsProvider,
    context: &Context,
    class: &EC2NodeClass,
) -> Result<Option<String>, ReconcileError> {
    let hash = ec2_node_class(&class.spec, provider.cluster.ca_bundle().as_deref());
    let stored = class.metadata.annotations.as_ref();
    let stored = |key: &str| stored.and_then(|all| all.get(key)).map(String::as_str);
    let version = stored(EC2NODECLASS_HASH_VERSION);
    if version == Some(EC2_NODE_CLASS_HASH_VERSION)
        && stored(EC2NODECLASS_HASH) == Some(hash.as_str())
    {
        return Ok(None);
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    if version != Some(EC2_NODE_CLASS_HASH_VERSION) {
        migrate_claims(context, name, &hash).await?;
    }
    let annotations = BTreeMap::from([
        (EC2NODECLASS_HASH, hash.as_str()),
        (EC2NODECLASS_HASH_VERSION, EC2_NODE_CLASS_HASH_VERSION),
    ]);
    let api: Api<EC2NodeClass> = Api::all(context.client.clone());
    patch_annotations(&api, name, &annotations).await
}

async fn migrate_claims(context: &Context, class: &str, hash: &str) -> Result<(), ReconcileError> {
    let claims = objects::claims(&context.client)
        .await
        .map_err(|error| ReconcileError::Kubernetes("list the NodeClaims", error))?;
    let api: Api<NodeClaim> = Api::all(context.client.clone());
    for claim in claims.iter().filter(|claim| claim.class() == Some(class)) {
        let annotations = migrated(claim, hash);
        if !annotations.is_empty() {
            patch_annotations(&api, claim.name(), &annotations).await?;
        }
    }
    Ok(())
}

/// The annotations that a claim gets when the version changed.
fn migrated<'a>(claim: &ClaimUse, hash: &'a str) -> BTreeMap<&'static str, &'a str> {
    if claim.annotation(EC2NODECLASS_HASH_VERSION) == Some(EC2_NODE_CLASS_HASH_VERSION) {
        return BTreeMap::new();
    }
    let mut annotations =
        BTreeMap::from([(EC2NODECLASS_HASH_VERSION, EC2_NODE_CLASS_HASH_VERSION)]);
    let drifted = claim.has_condition(conditions::nodeclaim::DRIFTED);
    // A claim that drifted keeps its old hash, so that it stays drifted.
    if !drifted {
        annotations.insert(EC2NODECLASS_HASH, hash);
    }
    annotations
}

async fn patch_annotations<K>(
    api: &Api<K>,
    name: &str,
    annotations: &BTreeMap<&'static str, &str>,
) -> Result<Option<String>, ReconcileError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let patch = serde_json::json!({ "metadata": { "annotations": annotations } });
    match api.patch_metadata(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Ok(patched) => Ok(patched.metadata.resource_version),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(ReconcileError::Kubernetes("patch the annotations", error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(version: Option<&str>, drifted: bool) -> ClaimUse {
        let drift = json!({"type": "Drifted", "status": "True"});
        serde_json::from_value(json!({
            "metadata": {"annotations": {EC2NODECLASS_HASH_VERSION: version.unwrap_or_default()}},
            "status": {"conditions": if drifted { vec![drift] } else { vec![] }},
        }))
        .unwrap()
    }

    #[test]
    fn claims_of_an_older_version_get_the_new_hash_unless_they_have_drifted() {
        let both = BTreeMap::from([
            (EC2NODECLASS_HASH, "1"),
            (EC2NODECLASS_HASH_VERSION, EC2_NODE_CLASS_HASH_VERSION),
        ]);
        let version_only =
            BTreeMap::from([(EC2NODECLASS_HASH_VERSION, EC2_NODE_CLASS_HASH_VERSION)]);
        assert_eq!(migrated(&claim(Some("v4"), false), "1"), both);
        assert_eq!(migrated(&claim(None, false), "1"), both);
        assert_eq!(migrated(&claim(Some("v4"), true), "1"), version_only);
        assert_eq!(
            migrated(&claim(Some(EC2_NODE_CLASS_HASH_VERSION), false), "1"),
            BTreeMap::new()
        );
    }
}
