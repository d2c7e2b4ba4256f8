//! Amazon Linux 2: a MIME archive with a script that calls bootstrap.sh.

use super::mime::{self, Part};
use super::{Bootstrap, UserDataError, kubelet_flags};

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
    let extra = kubelet_flags::of(bootstrap);
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
