//! How nodes of an InstanceGroup boot: kOps' script, and the configuration that it fetches.

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tenon_crds::Taint;

use crate::problem::Problem;
use crate::taint;

/// Longest user data that EC2 takes, in bytes.
pub const USER_DATA_LIMIT: usize = 16 * 1024;

/// Where the script writes which node it is.
const ENVIRONMENT: &str = "__EOF_KUBE_ENV";

/// Longest environment that is unpacked, in bytes; it holds names and certificates.
const LONGEST_ENVIRONMENT: u64 = 1024 * 1024;

/// How nodes boot, and what kubelet is given there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The script, as it goes into user data.
    pub user_data: String,
    pub(crate) kubelet: Kubelet,
    pub(crate) taints: Vec<Taint>,
}

/// Kubelet's settings on these nodes, as far as they change what fits on one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Kubelet {
    pub max_pods: Option<i64>,
    pub system_reserved: BTreeMap<String, String>,
    pub kube_reserved: BTreeMap<String, String>,
    pub eviction_hard: Option<String>,
    pub node_labels: BTreeMap<String, String>,
    pub taints: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct NodeConfig {
    kubelet_config: Kubelet,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Environment {
    cluster_name: String,
    instance_group_name: String,
    nodeup_config_hash: String,
}

impl Boot {
    /// Reads script and configuration of an InstanceGroup.
    ///
    /// # Errors
    /// If the script is not of this cluster and group, if it asks for another configuration than
    /// the one that is there (`kops update cluster` is running or was interrupted), or if EC2 would
    /// not take it.
    pub fn parse(
        (cluster, group): (&str, &str),
        script: &str,
        node_config: &str,
    ) -> Result<Self, Problem> {
        let what = format!("nodeupscript.sh of InstanceGroup {group}");
        let wrong = |message: String| Problem::new(&what, "", message);
        let environment = environment(script)
            .ok_or_else(|| wrong("it does not say which node it boots".to_owned()))?;
        let environment: Environment = serde_saphyr::from_str(&environment)
            .map_err(|error| wrong(format!("its environment is no YAML document: {error}")))?;
        let Environment { cluster_name, instance_group_name, nodeup_config_hash } = environment;
        if cluster_name != cluster || instance_group_name != group {
            return Err(wrong(format!(
                "it boots nodes of InstanceGroup {instance_group_name} of cluster {cluster_name}"
            )));
        }
        let hash = STANDARD.encode(Sha256::digest(node_config));
        if hash != nodeup_config_hash {
            return Err(wrong(format!(
                "it asks for the configuration {nodeup_config_hash}, and nodeupconfig.yaml is \
                 {hash}: `kops update cluster --yes` is running or was interrupted; run it again"
            )));
        }
        let user_data = script.trim_end().to_owned();
        if user_data.len() > USER_DATA_LIMIT {
            return Err(wrong(format!(
                "it has {} bytes; EC2 takes user data of at most {USER_DATA_LIMIT} bytes",
                user_data.len()
            )));
        }
        let what = format!("nodeupconfig.yaml of InstanceGroup {group}");
        let wrong = |message: String| Problem::new(&what, "", message);
        let config: Value = serde_saphyr::from_str(node_config)
            .map_err(|error| wrong(format!("the file is no YAML document: {error}")))?;
        let NodeConfig { kubelet_config: kubelet } = crate::document::typed(&config, "", &what)?;
        let read = |text: &String| {
            taint::parse(text).ok_or_else(|| {
                let message = format!("{text:?} is no taint: write KEY[=VALUE]:EFFECT");
                Problem::new(&what, "KubeletConfig.taints", message)
            })
        };
        let taints = kubelet.taints.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { user_data, kubelet, taints })
    }
}

/// Hash of the configuration that a script asks kops-controller for, if it is one of kOps.
pub fn config_hash(script: &str) -> Option<String> {
    let environment: Environment = serde_saphyr::from_str(&environment(script)?).ok()?;
    Some(environment.nodeup_config_hash).filter(|hash| !hash.is_empty())
}

/// The part of the script that says which node it boots, compressed or not.
fn environment(script: &str) -> Option<String> {
    let begin = format!("<< '{ENVIRONMENT}'\n");
    if let Some((_, rest)) = script.split_once(&begin) {
        let (inside, _) = rest.split_once(&format!("\n{ENVIRONMENT}"))?;
        return Some(inside.to_owned());
    }
    let (before, _) = script.split_once("\" | base64 -d | gzip -d > conf/kube_env.yaml")?;
    let (_, packed) = before.rsplit_once("echo \"")?;
    let packed = STANDARD.decode(packed).ok()?;
    let mut inside = String::new();
    GzDecoder::new(&*packed).take(LONGEST_ENVIRONMENT).read_to_string(&mut inside).ok()?;
    Some(inside)
}
