//! Which ports Tenon's pods use. Where Karpenter's pods are on the network of their nodes, both
//! operators' pods stand beside each other on the same nodes for a while, and a port of a node
//! belongs to one of them.

use tenon_installer_core::settings::values::Values;

use super::Karpenter;
use super::carried::{Carried, put};

/// Karpenter's ports for metrics and probes.
pub(super) fn of_karpenter(found: &Karpenter) -> [u16; 2] {
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
pub(super) fn carry(found: &Karpenter, carried: &mut Carried) {
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
