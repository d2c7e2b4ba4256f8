//! Where a state store is, and which of its files are read.
//!
//! `pki/` and `secrets/` hold the cluster's keys. No function here names them.

use std::fmt;
use std::path::PathBuf;

/// The Cluster, in the folder of the cluster.
pub const CLUSTER_FILE: &str = "config";

/// The folder of the InstanceGroups, a file each, in the folder of the cluster.
pub const GROUPS_FOLDER: &str = "instancegroup/";

/// The script that boots nodes of an InstanceGroup, below the cluster's config store.
pub fn script_file(group: &str) -> String {
    format!("igconfig/node/{group}/nodeupscript.sh")
}

/// What that script fetches from kops-controller, below the cluster's config store.
pub fn node_config_file(group: &str) -> String {
    format!("igconfig/node/{group}/nodeupconfig.yaml")
}

/// A state store, or a folder of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A part of a bucket.
    Bucket {
        /// Name of the bucket.
        bucket: String,
        /// Where the keys begin, without a slash at either end; may be empty.
        prefix: String,
    },
}

/// Not the address of a state store that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// kOps knows more kinds of stores than are read here.
    #[error("{scheme}:// state stores are not supported; Tenon reads s3:// and file://")]
    Scheme {
        /// Such as `gs`.
        scheme: String,
    },
    /// A bucket or folder is missing.
    #[error("{0:?} is not the address of a state store, such as s3://BUCKET or file:///PATH")]
    Incomplete(String),
}

impl Location {
    /// Reads an address as kOps does: `s3://BUCKET[/PREFIX]`, `file:///PATH`, or an absolute path.
    ///
    /// # Errors
    /// If it names another kind of store, or no bucket or folder.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        let incomplete = || LocationError::Incomplete(text.to_owned());
        let (scheme, rest) = text.split_once("://").unwrap_or(("file", text));
        match scheme {
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() {
                    return Err(incomplete());
                }
                let prefix = prefix.trim_matches('/').to_owned();
                Ok(Self::Bucket { bucket: bucket.to_owned(), prefix })
            }
            "file" if rest.starts_with('/') => Ok(Self::Folder(PathBuf::from(rest))),
            "file" => Err(incomplete()),
            other => Err(LocationError::Scheme { scheme: other.to_owned() }),
        }
    }

    /// The folder of this name within it.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        match self {
            Self::Folder(path) => Self::Folder(path.join(name)),
            Self::Bucket { bucket, prefix } => {
                let prefix = match prefix.as_str() {
                    "" => name.to_owned(),
                    prefix => format!("{prefix}/{name}"),
                };
                Self::Bucket { bucket: bucket.clone(), prefix }
            }
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "file://{}", path.display()),
            Self::Bucket { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::Bucket { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}
