//! Flags of the kubelet, for the bootstrap scripts that take them (AL2, Windows).

use std::collections::BTreeMap;
use std::fmt::Display;

use super::{Bootstrap, go_duration, node_labels_flag};

/// Flags of the kubelet, in the order of the contract.
pub(super) fn of(bootstrap: &Bootstrap) -> Vec<String> {
    let kubelet = &bootstrap.kubelet;
    let mut arguments: Vec<String> = node_labels_flag(&bootstrap.labels).into_iter().collect();
    if !bootstrap.taints.is_empty() {
        let taints: Vec<String> = bootstrap
            .taints
            .iter()
            .map(|taint| match taint.value() {
                "" => format!("{}:{}", taint.key, taint.effect),
                value => format!("{}={value}:{}", taint.key, taint.effect),
            })
            .collect();
        arguments.push(format!("--register-with-taints=\"{}\"", taints.join(",")));
    }
    let mut number = |flag: &str, value: Option<i32>| {
        arguments.extend(value.map(|value| format!("--{flag}={value}")));
    };
    number("max-pods", kubelet.max_pods);
    number("pods-per-core", kubelet.pods_per_core);
    let periods: Option<BTreeMap<String, String>> =
        kubelet.eviction_soft_grace_period.as_ref().map(|periods| {
            periods.iter().map(|(signal, period)| (signal.clone(), go_duration(period))).collect()
        });
    arguments.extend(map("system-reserved", "=", kubelet.system_reserved.as_ref()));
    arguments.extend(map("kube-reserved", "=", kubelet.kube_reserved.as_ref()));
    arguments.extend(map("eviction-hard", "<", kubelet.eviction_hard.as_ref()));
    arguments.extend(map("eviction-soft", "<", kubelet.eviction_soft.as_ref()));
    arguments.extend(map("eviction-soft-grace-period", "=", periods.as_ref()));
    let mut number = |flag: &str, value: Option<i32>| {
        arguments.extend(value.map(|value| format!("--{flag}={value}")));
    };
    number("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period);
    number("image-gc-high-threshold", kubelet.image_gc_high_threshold_percent);
    number("image-gc-low-threshold", kubelet.image_gc_low_threshold_percent);
    arguments.extend(kubelet.cpu_cfs_quota.map(|quota| format!("--cpu-cfs-quota={quota}")));
    arguments
}

fn map(
    flag: &str,
    relation: &str,
    entries: Option<&BTreeMap<String, impl Display>>,
) -> Option<String> {
    let entries = entries.filter(|entries| !entries.is_empty())?;
    let pairs: Vec<String> =
        entries.iter().map(|(key, value)| format!("{key}{relation}{value}")).collect();
    Some(format!("--{flag}=\"{}\"", pairs.join(",")))
}
