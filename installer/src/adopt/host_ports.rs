//! Which ports of nodes pods use.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tenon_iam_policies::identity::ServiceAccount;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::{Cluster, failed};

use super::NAME;

/// How many pods are listed at once.
const PAGE: u32 = 500;

/// Ports of nodes that pods use, but those of Tenon's own pods.
///
/// # Errors
/// What the API server says.
pub(super) async fn in_use(
    kube: &Cluster,
    account: &ServiceAccount,
) -> Result<BTreeSet<u16>, Failure> {
    let api: Api<Pod> = Api::all(kube.client());
    let mut ports = BTreeSet::new();
    let mut parameters = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&parameters).await;
        let page = page.map_err(|source| failed("list", "pods".to_owned(), source))?;
        for pod in page.items.iter().filter(|pod| !is_ours(pod, &account.namespace)) {
            ports.extend(of_pod(pod));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(ports),
        }
    }
}

fn is_ours(pod: &Pod, namespace: &str) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let instance = labels.and_then(|labels| labels.get("app.kubernetes.io/instance"));
    pod.metadata.namespace.as_deref() == Some(namespace)
        && instance.is_some_and(|instance| instance == NAME)
}

fn of_pod(pod: &Pod) -> impl Iterator<Item = u16> {
    let spec = pod.spec.as_ref();
    let on_host = spec.is_some_and(|spec| spec.host_network == Some(true));
    let containers = spec
        .into_iter()
        .flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let ports = ports.filter_map(move |port| {
        let number = port.host_port.or(on_host.then_some(port.container_port))?;
        u16::try_from(number).ok()
    });
    ports.collect::<Vec<_>>().into_iter()
}
