//! Deleting Kubernetes objects.

use std::time::Duration;

use kube::api::PropagationPolicy;
use kube::core::ApiResource;
use tenon_installer_core::apply::{Context, wait};
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::object::{Key, Object, label};
use tenon_installer_core::ownership::INSTALL_ID;

/// Where an object without a namespace is.
pub(super) fn key(resource: &ApiResource, name: &str) -> Key {
    Key {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: None,
        name: name.to_owned(),
    }
}

/// Deletes all of these, without waiting for their finalizers.
pub(crate) async fn delete_all(
    cluster: &Cluster,
    resource: ApiResource,
    names: &[String],
) -> Result<(), Failure> {
    futures::future::try_join_all(names.iter().map(|name| {
        let key = key(&resource, name);
        let resource = &resource;
        async move {
            wait::transient(wait::Tries::seconds(30), || {
                cluster.delete(resource, &key, PropagationPolicy::Background)
            })
            .await
        }
    }))
    .await?;
    Ok(())
}

/// Deletes an object of ours, and waits until it is gone.
pub(super) async fn delete_and_wait(
    context: &Context,
    object: &Object,
    propagation: PropagationPolicy,
    timeout: Duration,
) -> Result<(), Failure> {
    let key = object.key();
    wait::transient(wait::Tries::seconds(60), || {
        context.cluster.delete(&object.resource, &key, propagation.clone())
    })
    .await?;
    let gone = || async {
        Ok(match context.cluster.get(&object.resource, &object.key()).await? {
            None => Ok(()),
            // Deleted and made anew by somebody else is gone, too.
            Some(live)
                if live.pointer("/metadata/deletionTimestamp").is_none()
                    && label(&live, INSTALL_ID).is_none()
                    && object.resource.kind != "Lease" =>
            {
                Ok(())
            }
            Some(live) => {
                let finalizers = live
                    .pointer("/metadata/finalizers")
                    .map(ToString::to_string)
                    .unwrap_or_default();
                Err(format!("it is still there, with finalizers {finalizers}"))
            }
        })
    };
    wait::until(&format!("{key} to be gone"), timeout, Duration::from_millis(200), gone).await
}
