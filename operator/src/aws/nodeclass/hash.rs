//! The hash of a NodeClass, in annotations of it and of its NodeClaims: what drift is told by.
//!
//! When the version of the algorithm changed, claims get the new version and, unless something has
//! already drifted them, the new hash. So an upgrade of the operator never replaces a machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use tenon_crds::hash::{EC2_NODE_CLASS_HASH_VERSION, ec2_node_class};
use tenon_crds::labels::aws::{EC2NODECLASS_HASH, EC2NODECLASS_HASH_VERSION};
use tenon_crds::{EC2NodeClass, conditions};

use super::ReconcileError;
use crate::aws::AwsProvider;
use crate::aws::objects::{self, ClaimUse};
use crate::context::Context;
use crate::write::Writer;

/// Brings the annotations of a class, and those of its claims after a change of the version, up to
/// date. Answers the class as the API server has it then.
pub(crate) async fn annotate(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    class: &Arc<EC2NodeClass>,
) -> Result<Arc<EC2NodeClass>, ReconcileError> {
    let hash = ec2_node_class(&class.spec, provider.cluster.ca_bundle().as_deref());
    let stored = class.metadata.annotations.as_ref();
    let stored = |key: &str| stored.and_then(|all| all.get(key)).map(String::as_str);
    let version = stored(EC2NODECLASS_HASH_VERSION);
    if version == Some(EC2_NODE_CLASS_HASH_VERSION)
        && stored(EC2NODECLASS_HASH) == Some(hash.as_str())
    {
        return Ok(Arc::clone(class));
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    if version != Some(EC2_NODE_CLASS_HASH_VERSION) {
        migrate_claims(context, write, name, &hash).await?;
    }
    let annotations = BTreeMap::from([
        (EC2NODECLASS_HASH, hash.as_str()),
        (EC2NODECLASS_HASH_VERSION, EC2_NODE_CLASS_HASH_VERSION),
    ]);
    let body = json!({ "metadata": { "annotations": annotations } });
    Ok(provider.classes.written(write.patch_class(&**class, body).await?))
}

async fn migrate_claims(
    context: &Context,
    write: &Writer,
    class: &str,
    hash: &str,
) -> Result<(), ReconcileError> {
    let claims = objects::claims(&context.client).await.map_err(ReconcileError::Claims)?;
    for claim in claims.iter().filter(|claim| claim.class() == Some(class)) {
        let annotations = migrated(claim, hash);
        if !annotations.is_empty() {
            match write.annotate_claim(&claim.metadata, &annotations).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenon_crds::ec2nodeclass::EC2NodeClassSpec;

    use super::super::add_finalizer;
    use super::*;
    use crate::aws::tests::mk_provider;
    use crate::testing::bench::Bench;

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

    #[tokio::test(start_paused = true)]
    async fn a_class_gets_its_finalizer_and_its_hash_one_after_the_other_as_the_store_knows_at_once()
     {
        let bench = Bench::new().await;
        let provider = mk_provider(&[]);
        let class = EC2NodeClass::new("default", EC2NodeClassSpec::default());
        let stored = bench.api.put::<EC2NodeClass>(serde_json::to_value(class).unwrap());
        let class: EC2NodeClass = serde_json::from_value(stored).unwrap();
        provider.classes.apply(class.clone());
        let held = add_finalizer(&provider, &bench.write, &Arc::new(class)).await.unwrap();
        let hashed = annotate(&provider, &bench.context, &bench.write, &held).await.unwrap();
        assert!(hashed.metadata.annotations.as_ref().unwrap().contains_key(EC2NODECLASS_HASH));
        assert_eq!(provider.classes.get("default").as_ref(), Some(&hashed));
        bench.api.take_requests();
        let again = annotate(&provider, &bench.context, &bench.write, &hashed).await.unwrap();
        assert_eq!(again, hashed);
        assert!(bench.api.take_requests().is_empty(), "nothing is left to write");
    }
}
