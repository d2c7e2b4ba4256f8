//! Amazon Linux 2: a MIME archive with a script that calls bootstrap.sh.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::mime::{self, Part};
use super::{Bootstrap, UserDataError, go_duration, node_labels_flag};

pub(super) fn render(bootstrap: &Bootstrap) -> Result<String, UserDataError> {
    let mut parts = match bootstrap.custom.as_deref().filter(|custom| !custom.is_empty()) {
        Some(custom) if mime::is_archive(custom) => mime::read(custom)?,
        Some(custom) => vec![Part::new(mime::SHELL, custom)],
        None => Vec::new(),
    };
    parts.push(Part::new(mime::SHELL, script(bootstrap)));
    Ok(mime::write(&parts))
}

fn script(bootstrap: &Bootstrap) -> String {
    let cluster = &bootstrap.cluster;
    let dns = bootstrap.kubelet.cluster_dns.iter().flatten().next();
    let mut options = Vec::new();
    if dns.is_some_and(|ip| ip.contains(':')) {
        options.push("--ip-family ipv6".to_owned());
    }
    if let Some(ip) = dns {
        options.push(format!("--dns-cluster-ip '{ip}'"));
    }
    if bootstrap.kubelet.max_pods.is_some() {
        options.push("--use-max-pods false".to_owned());
    }
    let extra = kubelet_arguments(bootstrap);
    if !extra.is_empty() {
        options.push(format!("--kubelet-extra-args '{}'", extra.join(" ")));
    }
    if bootstrap.raid0 {
        options.push("--local-disks raid0".to_owned());
    }
    let ca = cluster.ca_bundle.as_ref().map(|ca| format!("--b64-cluster-ca '{ca}'"));
    let mut script = format!(
        "#!/bin/bash -xe\n\
         exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n\
         /etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}' {}",
        cluster.name,
        cluster.endpoint,
        ca.unwrap_or_default(),
    );
    for option in options {
        script.push_str(" \\\n");
        script.push_str(&option);
    }
    script
}

/// Flags of the kubelet, in the order of the contract.
fn kubelet_arguments(bootstrap: &Bootstrap) -> Vec<String> {
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
