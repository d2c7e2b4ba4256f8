//! Which ports Tenon's pods use. Where Karpenter's pods are on the network of their nodes, both operators' pods stand beside each other on the same nodes for a
//! while, and a port of a node belongs to one of them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tenon_iam_policies::identity::ServiceAccount;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::{Cluster, failed};
use tenon_installer_core::settings::values::Values;

use super::settings::{Carried, put};
use super::{Found, NAME};

/// How many pods are listed at once.
const PAGE: u32 = 500;

/// Karpenter's ports for metrics and probes.
pub(super) fn of_karpenter(found: &Found) -> [u16; 2] {
    let port = |variable: &str, default: u16| {
        let told = found.operator.options.value(variable);
        told.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    [port("METRICS_PORT", 8080), port("HEALTH_PROBE_PORT", 8081)]
}

/// Tenon's.
pub(super) fn of_tenon(values: &Values) -> [u16; 2] {
    [values.controller.metrics.port, values.controller.health_probe.port]
        .map(|port| u16::try_from(port).unwrap_or_default())
}

/// Two ports that no pod uses on any node, where both operators use the nodes'.
pub(super) fn carry(found: &Found, carried: &mut Carried) {
    if !found.operator.is_on_host_network() {
        return;
    }
    let theirs = of_karpenter(found);
    let from = theirs.into_iter().max().unwrap_or(8081).saturating_add(1);
    let is_free = |port: &u16| !found.host_ports.contains(port);
    let mut free = (from..=u16::MAX).chain(1024..from).filter(is_free);
    let (Some(metrics), Some(probes)) = (free.next(), free.next()) else { return };
    put(&mut carried.values, "/controller/metrics/port", metrics.into());
    put(&mut carried.values, "/controller/healthProbe/port", probes.into());
    let annotation = carried.values.pointer_mut("/podAnnotations/prometheus.io~1port");
    if let Some(annotation) = annotation.filter(|it| it.as_str() == Some(&theirs[0].to_string())) {
        *annotation = metrics.to_string().into();
    }
    carried.told.push(format!(
        "Karpenter's pods use their nodes' ports {} and {}, and Tenon's pods will run next to \
         them: they use {metrics} for metrics and {probes} for probes. Update firewalls and scrape \
         configurations, or choose other ports with --set controller.metrics.port=… --set \
         controller.healthProbe.port=…",
        theirs[0], theirs[1]
    ));
}

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
