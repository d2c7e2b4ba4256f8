//! Windows: a script for EC2Launch that calls Start-EKSBootstrap.ps1.

use super::{Bootstrap, kubelet_flags};

/// EC2Launch runs what is between these.
const TAGS: (&str, &str) = ("<powershell>", "</powershell>");

/// The path of the script on EKS' images.
const SCRIPT: &str =
    r#"[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1""#;

pub(super) fn render(bootstrap: &Bootstrap) -> String {
    let mut lines = vec![TAGS.0.to_owned()];
    let custom = bootstrap.custom.as_deref().map(without_tags);
    lines.extend(custom.filter(|custom| !custom.is_empty()).map(str::to_owned));
    lines.extend([SCRIPT.to_owned(), call(bootstrap), TAGS.1.to_owned()]);
    lines.join("\n")
}

/// EC2Launch does not understand tags within tags. Users who bring their user data from elsewhere
/// have them around it.
fn without_tags(custom: &str) -> &str {
    let trimmed = custom.trim();
    let inner = trimmed.strip_prefix(TAGS.0).and_then(|rest| rest.strip_suffix(TAGS.1));
    inner.map_or(custom, str::trim).trim_end_matches(['\r', '\n'])
}

fn call(bootstrap: &Bootstrap) -> String {
    let cluster = &bootstrap.cluster;
    let mut words = vec![
        "& $EKSBootstrapScriptFile".to_owned(),
        format!("-EKSClusterName {}", quoted(&cluster.name)),
        format!("-APIServerEndpoint {}", quoted(&cluster.endpoint)),
    ];
    words.extend(cluster.ca_bundle.as_ref().map(|ca| format!("-Base64ClusterCA {}", quoted(ca))));
    let flags = kubelet_flags::of(bootstrap);
    if !flags.is_empty() {
        words.push(format!("-KubeletExtraArgs {}", quoted(&flags.join(" "))));
    }
    let dns = bootstrap.kubelet.cluster_dns.iter().flatten().next();
    words.extend(dns.map(|ip| format!("-DNSClusterIP {}", quoted(ip))));
    words.join(" ")
}

/// A string that PowerShell takes as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
