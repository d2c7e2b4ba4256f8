//! What a machine's bootstrap makes of its user data: the settings with which the kubelet would
//! join.
//!
//! Each image family reads user data in its own way, and what it can't read it does not guess: then
//! the machine boots and never joins. The parsers here follow what the images' own programs accept
//! (nodeadm, bootstrap.sh, Bottlerocket's settings, EC2Launch), not what our operator happens to
//! write.

use std::collections::BTreeMap;

use base64::Engine as _;
use k8s_openapi::api::core::v1::Taint;

mod bottlerocket;
mod mime;
mod nodeadm;
mod powershell;
mod script;
#[cfg(test)]
mod tests;

/// Which program reads the user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Amazon Linux 2023: nodeadm.
    Al2023,
    /// Amazon Linux 2: cloud-init runs `/etc/eks/bootstrap.sh`.
    Al2,
    /// Bottlerocket: TOML settings.
    Bottlerocket,
    /// Ubuntu: cloud-init runs the user data, here as the script of kOps.
    Ubuntu,
    /// Windows Server: EC2Launch runs a script that calls `Start-EKSBootstrap.ps1`.
    Windows(WindowsServer),
}

/// A release of Windows Server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowsServer {
    /// Year of the release.
    pub year: u16,
    /// What the kubelet puts into the label `node.kubernetes.io/windows-build`.
    pub build: &'static str,
}

/// The settings with which the kubelet joins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bootstrap {
    /// Name of the EKS cluster.
    pub cluster_name: String,
    /// URL of the API server.
    pub endpoint: String,
    /// Its CA bundle, base64 as written.
    pub certificate_authority: String,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// `--register-with-taints`.
    pub taints: Vec<Taint>,
    /// `maxPods`; `None` leaves the family's default (by network interfaces).
    pub max_pods: Option<u32>,
    /// `clusterDNS`.
    pub cluster_dns: Vec<String>,
    /// `kubeReserved`, as written; absent keys get the family's defaults.
    pub kube_reserved: BTreeMap<String, String>,
    /// `systemReserved`, as written.
    pub system_reserved: BTreeMap<String, String>,
    /// `evictionHard`, as written.
    pub eviction_hard: BTreeMap<String, String>,
}

/// Why a machine's bootstrap gives up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// The user data is not base64 or not UTF-8.
    #[error("the user data is not base64-encoded text: {0}")]
    Encoding(String),
    /// The MIME structure is broken.
    #[error("the user data is not a well-formed MIME archive: {0}")]
    Mime(String),
    /// A document in it can't be parsed.
    #[error("{program} can't read the user data: {problem}")]
    Syntax {
        /// Which program would have read it.
        program: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Something without which the kubelet can't join.
    #[error("the user data says nothing about {0}, so the kubelet can't join")]
    Missing(&'static str),
}

impl Bootstrap {
    /// Reads user data as a machine of the family would. `user_data` is base64, as the launch
    /// template holds it.
    pub fn read(family: Family, user_data: &str) -> Result<Self, BootstrapError> {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(user_data.trim())
            .map_err(|error| BootstrapError::Encoding(error.to_string()))?;
        let text = String::from_utf8(bytes)
            .map_err(|error| BootstrapError::Encoding(error.to_string()))?;
        let bootstrap = match family {
            Family::Al2023 => nodeadm::read(&text)?,
            Family::Al2 => script::read(&text)?,
            Family::Bottlerocket => bottlerocket::read(&text)?,
            Family::Ubuntu => return Err(BootstrapError::Missing("an EKS cluster")),
            Family::Windows(_) => powershell::read(&text)?,
        };
        bootstrap.complete()
    }

    fn complete(self) -> Result<Self, BootstrapError> {
        if self.cluster_name.is_empty() {
            return Err(BootstrapError::Missing("the cluster's name"));
        }
        if self.endpoint.is_empty() {
            return Err(BootstrapError::Missing("the API server's endpoint"));
        }
        if self.certificate_authority.is_empty() {
            return Err(BootstrapError::Missing("the cluster's certificate authority"));
        }
        Ok(self)
    }
}

/// `a=b,c=d`, with or without quotes around it.
fn read_labels(text: &str) -> BTreeMap<String, String> {
    read_pairs(text, '=')
}

/// `key<separator>value` pairs between commas.
pub(super) fn read_pairs(text: &str, separator: char) -> BTreeMap<String, String> {
    text.trim_matches('"')
        .split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once(separator).unwrap_or((pair, ""));
            (key.trim().to_owned(), value.trim().to_owned())
        })
        .collect()
}

/// `key=value:Effect` or `key:Effect`, between commas.
pub(super) fn read_taints(text: &str) -> Result<Vec<Taint>, BootstrapError> {
    text.trim_matches('"').split(',').filter(|taint| !taint.is_empty()).map(read_taint).collect()
}

fn read_taint(text: &str) -> Result<Taint, BootstrapError> {
    let (left, effect) = text.rsplit_once(':').ok_or_else(|| BootstrapError::Syntax {
        program: "the kubelet",
        problem: format!("taint {text:?} has no effect, expected key=value:Effect"),
    })?;
    let (key, value) = match left.split_once('=') {
        Some((key, value)) => (key, (!value.is_empty()).then(|| value.to_owned())),
        None => (left, None),
    };
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
}
