//! The operator's namespace, which may have become home to things of others: it goes only when
//! nothing of theirs is in it.

use futures::stream::{StreamExt, iter};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, PartialObjectMeta};
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use tenon_installer_core::apply::wait;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::journal;
use tenon_installer_core::kubernetes::client::{Cluster, failed};
use tenon_installer_core::ownership::INSTALL_ID;

/// How many lists are asked for at once.
const AT_ONCE: usize = 16;

/// What somebody else has in a namespace, as `Kind name`, of every type that the API server knows.
pub(super) async fn of_others(
    cluster: &Cluster,
    namespace: &str,
    install_id: &str,
) -> Result<Vec<String>, Failure> {
    let client = cluster.client();
    let discovery = Discovery::new(client.clone()).run_aggregated().await;
    let discovery =
        discovery.map_err(|source| failed("get", "the API's groups".to_owned(), source))?;
    let types = discovery.groups().flat_map(ApiGroup::recommended_resources);
    let types = types.filter(|(resource, capabilities)| {
        capabilities.scope == Scope::Namespaced
            && capabilities.supports_operation(verbs::LIST)
            && !is_derived(resource)
    });
    let lists = types.map(|(resource, _)| {
        let client = client.clone();
        async move {
            let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
            let listed = wait::transient(wait::Tries::seconds(20), || async {
                let listed = api.list_metadata(&ListParams::default()).await;
                let what = format!("{} in {namespace}", resource.plural);
                match listed.map_err(|source| failed("list", what, source)) {
                    Ok(list) => Ok(list.items),
                    // A type whose definition has gone meanwhile has no objects.
                    Err(error) if error.is_not_found() => Ok(Vec::new()),
                    Err(error) => Err(error),
                }
            });
            let items = listed.await?.into_iter();
            let others = items.filter(|item| is_of_others(&resource, item, install_id));
            let names = others.map(|item| format!("{} {}", resource.kind, item.name_any()));
            Ok::<_, Failure>(names.collect::<Vec<_>>())
        }
    });
    let mut lists = iter(lists.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
    let mut names = Vec::new();
    while let Some(listed) = lists.next().await {
        names.extend(listed?);
    }
    names.sort_unstable();
    Ok(names)
}

/// What the API server or a controller makes of other objects, and what says nothing about who
/// lives there.
fn is_derived(resource: &ApiResource) -> bool {
    matches!(
        resource.kind.as_str(),
        "Event" | "Endpoints" | "EndpointSlice" | "PodMetrics" | "ControllerRevision" | "Lease"
    )
}

fn is_of_others(
    resource: &ApiResource,
    item: &PartialObjectMeta<DynamicObject>,
    install_id: &str,
) -> bool {
    let name = item.name_any();
    let is_every_namespace_s = matches!(
        (resource.kind.as_str(), name.as_str()),
        ("ConfigMap", "kube-root-ca.crt" | journal::CONFIG_MAP) | ("ServiceAccount", "default")
    );
    let is_ours = item.labels().get(INSTALL_ID).is_some_and(|id| id == install_id);
    // What goes already, and what goes with its owner.
    let is_going =
        item.metadata.deletion_timestamp.is_some() || !item.owner_references().is_empty();
    !(is_every_namespace_s || is_ours || is_going)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_every_namespace_has_and_what_is_ours_or_going_keeps_nobody() {
        let config_map = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
        let of_others = |metadata: serde_json::Value| {
            let item = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
            is_of_others(&config_map, &serde_json::from_value(item).expect("metadata"), "abcd0123")
        };
        assert!(of_others(json!({"name": "theirs"})));
        assert!(of_others(json!({"name": "theirs", "labels": {(INSTALL_ID): "other"}})));
        assert!(!of_others(json!({"name": "kube-root-ca.crt"})));
        assert!(!of_others(json!({"name": "tenon-install"})));
        assert!(!of_others(json!({"name": "x", "labels": {(INSTALL_ID): "abcd0123"}})));
        assert!(!of_others(json!({"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"})));
        let owner = json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1"}]);
        assert!(!of_others(json!({"name": "x", "ownerReferences": owner})));
    }
}
