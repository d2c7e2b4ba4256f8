//! A machine of a kOps cluster: cloud-init runs kOps' script, and kops-controller gives nodeup its
//! configuration if it knows the machine.
//!
//! kops-controller looks the instance up in EC2, takes the InstanceGroup from a tag, accepts only
//! roles of nodes, and answers only if the script asks for the configuration that it has.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tenon_aws_double::instance::Instance;

use super::bootstrap::{Bootstrap, BootstrapError, read_pairs, read_taints};

/// The tag with the InstanceGroup.
const GROUP_TAG: &str = "kops.k8s.io/instancegroup";

/// The tag with the cluster.
const CLUSTER_TAG: &str = "KubernetesCluster";

/// Tags that become labels of the Node.
const LABEL_TAG: &str = "k8s.io/cluster-autoscaler/node-template/label/";

/// What kops-controller knows.
#[derive(Clone, Debug, Default)]
pub struct KopsController {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the role of nodes.
    pub node_role: String,
    /// `nodeupconfig.yaml` by InstanceGroup.
    pub node_configs: BTreeMap<String, String>,
}

/// Why a machine gets no configuration.
#[derive(Debug, thiserror::Error)]
pub enum KopsError {
    /// cloud-init finds nothing that it could run.
    #[error("the user data is not a script of kOps: {0}")]
    Script(String),
    /// EC2 does not say what it is.
    #[error("kops-controller does not know the instance: its tag {tag} is {found:?}")]
    Tag {
        /// Its key.
        tag: &'static str,
        /// Its value, empty if there is none.
        found: String,
    },
    /// Its role is none of nodes.
    #[error("kops-controller does not accept the role {0:?}")]
    Role(String),
    /// The script is older or newer than what kops-controller has.
    #[error("nodeup asks for the configuration {asked}, and kops-controller has {there}")]
    Hash {
        /// What the script says.
        asked: String,
        /// What there is.
        there: String,
    },
    /// The configuration can't be used.
    #[error("nodeup can't read its configuration: {0}")]
    Config(String),
    /// A part of it.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Environment {
    cluster_name: String,
    nodeup_config_hash: String,
    config_server: ConfigServer,
}

#[derive(Deserialize)]
struct ConfigServer {
    servers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NodeConfig {
    kubelet_config: KubeletConfig,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct KubeletConfig {
    max_pods: Option<u32>,
    kube_reserved: BTreeMap<String, String>,
    system_reserved: BTreeMap<String, String>,
    eviction_hard: String,
    taints: Vec<String>,
}

impl KopsController {
    /// What the machine's kubelet is told.
    pub(super) fn bootstrap(&self, instance: &Instance) -> Result<Bootstrap, KopsError> {
        let environment = environment(instance.user_data.as_deref().unwrap_or_default())?;
        let tag = |tag: &'static str| {
            let found = instance.tags.get(tag).cloned();
            found.ok_or(KopsError::Tag { tag, found: String::new() })
        };
        let cluster = tag(CLUSTER_TAG)?;
        if cluster != self.cluster || environment.cluster_name != self.cluster {
            return Err(KopsError::Tag { tag: CLUSTER_TAG, found: cluster });
        }
        let group = tag(GROUP_TAG)?;
        let config = self.node_configs.get(&group);
        let config = config.ok_or(KopsError::Tag { tag: GROUP_TAG, found: group })?;
        let role = instance.profile.as_ref().map(|profile| profile.role_arn.as_str());
        let role = role.and_then(|arn| arn.rsplit('/').next()).unwrap_or_default();
        if role != self.node_role {
            return Err(KopsError::Role(role.to_owned()));
        }
        let there = STANDARD.encode(Sha256::digest(config));
        if there != environment.nodeup_config_hash {
            return Err(KopsError::Hash { asked: environment.nodeup_config_hash, there });
        }
        let NodeConfig { kubelet_config: kubelet } =
            serde_saphyr::from_str(config).map_err(|error| KopsError::Config(error.to_string()))?;
        let labels = instance.tags.iter();
        let labels = labels.filter_map(|(key, value)| {
            Some((key.strip_prefix(LABEL_TAG)?.to_owned(), value.clone()))
        });
        Ok(Bootstrap {
            cluster_name: self.cluster.clone(),
            endpoint: environment.config_server.servers.first().cloned().unwrap_or_default(),
            labels: labels.collect(),
            taints: read_taints(&kubelet.taints.join(","))?,
            max_pods: kubelet.max_pods,
            kube_reserved: kubelet.kube_reserved,
            system_reserved: kubelet.system_reserved,
            eviction_hard: read_pairs(&kubelet.eviction_hard, '<'),
            ..Bootstrap::default()
        })
    }
}

/// What kOps' script writes for nodeup. `user_data` is base64.
fn environment(user_data: &str) -> Result<Environment, KopsError> {
    let wrong = |why: &str| KopsError::Script(why.to_owned());
    let bytes = STANDARD.decode(user_data.trim()).map_err(|_| wrong("it is not base64"))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not text"))?;
    if !text.starts_with("#!/bin/bash\n") {
        return Err(wrong("its first line names no shell"));
    }
    let inside = text.split("conf/kube_env.yaml << '__EOF_KUBE_ENV'\n").nth(1);
    let inside = inside.and_then(|rest| rest.split("\n__EOF_KUBE_ENV\n").next());
    let inside = inside.ok_or_else(|| wrong("it writes no conf/kube_env.yaml"))?;
    serde_saphyr::from_str(inside).map_err(|error| KopsError::Script(error.to_string()))
}
