//! How the installer recognises what it made: by tags in AWS and by a label in Kubernetes that hold
//! the installation's id.
//!
//! The id is derived from the cluster itself, so that it is known before anything is written, is
//! the same when an interrupted run is repeated, and differs for a cluster that was deleted and
//! made again under the same name.

use std::collections::BTreeMap;

use crate::names;

/// Tag and label: the installation's id. The proof of ownership.
pub const INSTALL_ID: &str = "tenon.sh/install-id";
/// Tag: made by this program.
pub(crate) const MANAGED_BY: &str = "tenon.sh/managed-by";
/// Tag: name of the cluster.
pub const CLUSTER: &str = "tenon.sh/cluster";
/// Tag: which part of the installation it is, such as `node-role`.
pub(crate) const COMPONENT: &str = "tenon.sh/component";

/// The component of the installation's record.
pub(crate) const RECORD: &str = "record";
/// Tag and annotation: hash of what was asked for, so that a change is seen without comparing
/// everything.
pub const SPEC_HASH: &str = "tenon.sh/spec-hash";
/// Tag and annotation: version of the installer that wrote it last.
pub const VERSION: &str = "tenon.sh/version";
/// Tag on subnets and security groups whose discovery tag we added; its value is the installation's
/// id.
pub const DISCOVERY_MARK: &str = "tenon.sh/discovery";
/// The tag by which NodeClasses find subnets and security groups.
pub const DISCOVERY: &str = "karpenter.sh/discovery";
/// Annotation of Karpenter's Deployment: how many replicas it had before the Lease was handed over.
pub const REPLICAS: &str = "tenon.sh/replicas-before";
/// Tag of what is adopted in AWS, and annotation of Karpenter's Deployment: the id of the
/// installation.
pub const ADOPTED_BY: &str = "tenon.sh/adopted-by";
/// Annotation of Cluster Autoscaler's Deployment: the sizes that its groups had before they were
/// emptied.
pub const SIZES: &str = "tenon.sh/sizes-before";
/// Annotation of a Node: the id of the installation that cordoned it.
pub const CORDONED_BY: &str = "tenon.sh/cordoned-by";

/// Tags by key.
pub type Tags = BTreeMap<String, String>;

/// Which installation this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// Eight hex digits.
    pub id: String,
    /// Name of the cluster.
    pub cluster: String,
    /// What the user wants on everything.
    pub user_tags: Tags,
}

impl Installation {
    /// The installation in a cluster. `created_at` (Unix seconds) tells clusters of the same name
    /// apart.
    pub fn new(cluster_arn: &str, created_at: i64, cluster: &str, user_tags: Tags) -> Self {
        Self {
            id: names::hash(&format!("{cluster_arn}@{created_at}"), 8),
            cluster: cluster.to_owned(),
            user_tags,
        }
    }

    /// All tags of one part.
    pub fn tags(&self, component: &str, spec: &str) -> Tags {
        let mut tags = self.user_tags.clone();
        for (key, value) in [
            (MANAGED_BY, "tenon"),
            (CLUSTER, &self.cluster),
            (INSTALL_ID, &self.id),
            (COMPONENT, component),
            (SPEC_HASH, &names::hash(spec, 12)),
            (VERSION, env!("CARGO_PKG_VERSION")),
        ] {
            tags.insert(key.to_owned(), value.to_owned());
        }
        tags
    }

    /// Whether tags prove that this installation made the thing.
    pub fn owns(&self, tags: &Tags) -> bool {
        tags.get(INSTALL_ID) == Some(&self.id)
    }

    /// Whose thing it is, in words, for a refusal.
    pub(crate) fn owner_in_words(tags: &Tags) -> String {
        match (tags.get(INSTALL_ID), tags.get(CLUSTER)) {
            (Some(id), Some(cluster)) => {
                format!("it belongs to installation {id} of cluster {cluster}")
            }
            (Some(id), None) => format!("it belongs to installation {id}"),
            (None, _) => format!("it has no tag {INSTALL_ID}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_made_again_under_its_name_is_another_installation() {
        let of = |created_at| {
            Installation::new(
                "arn:aws:eks:eu-central-1:111122223333:cluster/a",
                created_at,
                "a",
                Tags::new(),
            )
            .id
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_eq!(of(1).len(), 8);
    }

    #[test]
    fn only_the_id_proves_ownership() {
        let ours =
            Installation::new("arn", 1, "a", Tags::from([("team".to_owned(), "x".to_owned())]));
        let tags = ours.tags("queue", "{}");
        assert!(ours.owns(&tags));
        assert_eq!(tags["team"], "x");
        let mut stranger = tags.clone();
        stranger.insert(INSTALL_ID.into(), "00000000".into());
        assert!(!ours.owns(&stranger));
        stranger.remove(INSTALL_ID);
        assert!(!ours.owns(&stranger));
    }
}
