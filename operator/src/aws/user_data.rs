//! User data: what makes a fresh machine join the cluster, per AMI family, merged with what the
//! user wrote.
//!
//! Pure. The formats are contracts with programs on the machine: nodeadm (AL2023), bootstrap.sh
//! (AL2), Bottlerocket's settings, Start-EKSBootstrap.ps1 (Windows).

use std::collections::BTreeMap;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tenon_crds::ec2nodeclass::{AmiFamily, KubeletConfiguration};
use tenon_crds::labels;
use tenon_crds::{Taint, TaintEffect};

mod bootstrap_sh;
mod bottlerocket;
mod kubelet_flags;
mod mime;
mod nodeadm;
mod powershell;
mod yaml;

/// EC2 takes this many bytes of user data before base64.
pub const LIMIT: usize = 16_384;

/// What the machine has to know about its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Name.
    pub name: String,
    /// URL of the API server.
    pub endpoint: String,
    /// CA certificates, base64 of PEM.
    pub ca_bundle: Option<String>,
    /// Address range of Services; nodeadm needs it.
    pub service_cidr: Option<String>,
    /// Cluster IP of the DNS service.
    pub dns_ip: Option<IpAddr>,
}

/// Everything that user data is made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bootstrap {
    /// Name, endpoint, CA and addresses that the node's agent is given.
    pub cluster: ClusterFacts,
    /// Labels that the kubelet registers with; see [`kubelet_labels`].
    pub labels: BTreeMap<String, String>,
    /// Taints that the kubelet registers with; see [`kubelet_taints`].
    pub taints: Vec<Taint>,
    /// Kubelet settings of the NodeClass, with `maxPods` and `clusterDNS` filled in.
    pub kubelet: KubeletConfiguration,
    /// Local disks become the ephemeral storage.
    pub raid0: bool,
    /// Bottlerocket before 1.46 has to be told which directories go to local disks.
    pub names_local_storage_dirs: bool,
    /// What the user wrote.
    pub custom: Option<String>,
}

/// The user's part can't be used.
#[derive(Debug, thiserror::Error)]
pub enum UserDataError {
    /// It starts like a MIME archive, but is none.
    #[error("invalid UserData: spec.userData is not a valid MIME multipart archive: {0}")]
    Mime(&'static str),
    /// Bottlerocket's settings do not parse.
    #[error("invalid UserData: spec.userData is not valid TOML: {0}")]
    Toml(String),
    /// The address range of Services is not known yet.
    #[error("the cluster's service CIDR is not known yet")]
    NoServiceCidr,
}

/// User data for a family, base64.
pub fn render(family: AmiFamily, bootstrap: &Bootstrap) -> Result<String, UserDataError> {
    Ok(BASE64.encode(plain(family, bootstrap)?))
}

/// User data before base64.
pub fn plain(family: AmiFamily, bootstrap: &Bootstrap) -> Result<String, UserDataError> {
    match family {
        AmiFamily::Al2023 => nodeadm::render(bootstrap),
        AmiFamily::Bottlerocket => bottlerocket::render(bootstrap),
        AmiFamily::Custom => Ok(bootstrap.custom.clone().unwrap_or_default()),
        AmiFamily::Al2 => bootstrap_sh::render(bootstrap),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            Ok(powershell::render(bootstrap))
        }
    }
}

/// The labels of a NodeClaim that the kubelet may set on its own node. The rest is synchronised at
/// registration.
pub(crate) fn kubelet_labels(
    family: AmiFamily,
    claim: &BTreeMap<String, String>,
    capacity_type: &str,
) -> BTreeMap<String, String> {
    if family == AmiFamily::Custom {
        return BTreeMap::new();
    }
    let mut all = claim.clone();
    all.insert(labels::CAPACITY_TYPE.to_owned(), capacity_type.to_owned());
    all.insert(labels::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
    all.retain(|key, _| !is_restricted_to_kubelet(key));
    all
}

/// The API server's NodeRestriction refuses these from a kubelet, which then would not start.
fn is_restricted_to_kubelet(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    ["kubernetes.io", "k8s.io"].iter().any(|restricted| {
        domain.strip_suffix(restricted).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// The taints that a node registers with: the claim's, and the one that holds pods off until
/// registration.
pub(crate) fn kubelet_taints(taints: &[Taint], startup_taints: &[Taint]) -> Vec<Taint> {
    let unregistered = Taint::new(labels::UNREGISTERED_TAINT, TaintEffect::NoExecute);
    let mut all: Vec<Taint> = taints.iter().chain(startup_taints).cloned().collect();
    if !all.iter().any(|taint| taint.matches(&unregistered)) {
        all.push(unregistered);
    }
    all
}

/// `--node-labels="a=b,c=d"`, or nothing.
fn node_labels_flag(labels: &BTreeMap<String, String>) -> Option<String> {
    if labels.is_empty() {
        return None;
    }
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(format!("--node-labels=\"{}\"", pairs.join(",")))
}

/// Go's notation (`1m0s`), whatever the user wrote; the API server has checked that it is a
/// duration.
fn go_duration(text: &str) -> String {
    text.parse::<tenon_crds::Duration>().map_or_else(
        |_| text.to_owned(),
        |duration| tenon_crds::Duration::from_nanos(duration.as_nanos()).as_str().to_owned(),
    )
}

#[cfg(test)]
mod tests;
