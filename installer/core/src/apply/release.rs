//! Steps on the record by which Helm knows the installation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PropagationPolicy;
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{Context, wait};
use crate::clock;
use crate::failure::Failure;
use crate::kubernetes::helm::{self, Record};
use crate::kubernetes::object::{Key, annotation};
use crate::ownership::SPEC_HASH;

fn place(namespace: &str, name: &str) -> (ApiResource, Key) {
    let resource = ApiResource::erase::<Secret>(&());
    let key = Key {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    };
    (resource, key)
}

/// Writes a revision: those that were deployed before are superseded, and the oldest go.
pub(super) async fn write(
    context: &Context,
    record: &Record,
    revision: u32,
    deployed: &[String],
    old: &[String],
) -> Result<(), Failure> {
    let now = clock::now();
    let mut first_deployed = now;
    for secret in deployed {
        if let Some(since) = supersede(context, &record.namespace, secret).await? {
            first_deployed = first_deployed.min(since);
        }
    }
    let secret = record.secret(revision, first_deployed, now);
    let (resource, key) = place(&record.namespace, &helm::secret_name(revision));
    let mut body = serde_json::to_value(&secret).expect("Kubernetes objects always serialise");
    body["apiVersion"] = resource.api_version.clone().into();
    body["kind"] = resource.kind.clone().into();
    match context.cluster.create(&resource, &key, &body).await {
        Ok(()) => {}
        Err(error) if error.is_conflict() => {
            // An interrupted run wrote it; or Helm did in this moment, and the next run comes after
            // it.
            let live = context.cluster.get(&resource, &key).await?.unwrap_or_default();
            if annotation(&live, SPEC_HASH) != Some(record.hash.as_str()) {
                return Err(Failure::Foreign { what: key.to_string() });
            }
        }
        Err(error) => return Err(error.into()),
    }
    delete(context, &record.namespace, old).await
}

/// When the release was deployed first, as the revision says it.
async fn supersede(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<Timestamp>, Failure> {
    let (resource, key) = place(namespace, name);
    let Some(live) = context.cluster.get(&resource, &key).await? else { return Ok(None) };
    let Ok(secret) = serde_json::from_value::<Secret>(live) else { return Ok(None) };
    let since = helm::decode(&secret)
        .and_then(|release| release["info"]["first_deployed"].as_str()?.parse().ok());
    let Some(superseded) = helm::superseded(&secret) else { return Ok(since) };
    let release = superseded.data.as_ref().and_then(|data| data.get("release"));
    let patch: Value = json!({
        "metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "labels": {"status": "superseded"},
        },
        "data": {"release": release.map(|bytes| STANDARD.encode(&bytes.0))},
    });
    context.cluster.merge(&resource, &key, &patch).await?;
    Ok(since)
}

/// Removes revisions; those that are gone are no error.
pub async fn delete(context: &Context, namespace: &str, secrets: &[String]) -> Result<(), Failure> {
    for name in secrets {
        let (resource, key) = place(namespace, name);
        wait::transient(wait::Tries::seconds(30), || {
            context.cluster.delete(&resource, &key, PropagationPolicy::Background)
        })
        .await?;
    }
    Ok(())
}
