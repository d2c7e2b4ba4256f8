//! The ConfigMap `kube-system/aws-auth`: roles and users mapped to names and groups.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use parking_lot::RwLock;
use serde::Deserialize;

/// The mappings as last seen.
#[derive(Debug, Default)]
pub struct AwsAuth {
    mappings: RwLock<Vec<(String, Mapping)>>,
}

/// Whom a role or user stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The user name, with variables in double braces.
    pub username: String,
    /// Groups in Kubernetes, such as `system:nodes`.
    pub groups: Vec<String>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(alias = "userarn")]
    rolearn: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

impl AwsAuth {
    /// The mapping of an ARN. Roles are mapped without their paths; one that is written with a path
    /// never matches, as in EKS.
    pub(crate) fn mapping(&self, arn: &str) -> Option<Mapping> {
        let mappings = self.mappings.read();
        let found = mappings.iter().find(|(of, _)| of.eq_ignore_ascii_case(arn));
        found.map(|(_, mapping)| mapping.clone())
    }

    /// Follows the ConfigMap until the future is dropped.
    pub async fn follow(&self, client: kube::Client) {
        let maps: Api<ConfigMap> = Api::namespaced(client, "kube-system");
        let config = watcher::Config::default().fields("metadata.name=aws-auth");
        let mut events = std::pin::pin!(watch(maps, config).default_backoff());
        let mut seen = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => seen = false,
                Ok(Event::InitApply(map) | Event::Apply(map)) => {
                    seen = true;
                    self.set(&map);
                }
                Ok(Event::InitDone) if !seen => self.mappings.write().clear(),
                Ok(Event::Delete(_)) => self.mappings.write().clear(),
                Ok(Event::InitDone) => {}
                Err(error) => tracing::debug!(%error, "can't follow aws-auth"),
            }
        }
    }

    /// Takes the mappings of a ConfigMap. A list that does not parse maps nobody, as in EKS.
    pub fn set(&self, map: &ConfigMap) {
        let mut mappings = Vec::new();
        for (key, text) in map
            .data
            .iter()
            .flatten()
            .filter(|(key, _)| matches!(key.as_str(), "mapRoles" | "mapUsers"))
        {
            match serde_saphyr::from_str::<Vec<Item>>(text) {
                Ok(items) => mappings.extend(items.into_iter().map(|item| {
                    let username =
                        if item.username.is_empty() { item.rolearn.clone() } else { item.username };
                    (item.rolearn, Mapping { username, groups: item.groups })
                })),
                Err(error) => tracing::warn!(%error, key, "aws-auth does not parse"),
            }
        }
        *self.mappings.write() = mappings;
    }
}
