//! A failed call, to AWS, Kubernetes or the journal: what a step fails with. What a user reads of
//! it is decided by the program.

use crate::aws::AwsError;
use crate::journal::JournalError;
use crate::kubernetes::client::KubeError;

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// To AWS.
    #[error(transparent)]
    Aws(#[from] AwsError),
    /// To Kubernetes.
    #[error(transparent)]
    Kubernetes(#[from] KubeError),
    /// The journal could not be written, so the step was not begun.
    #[error("the journal can't be written: {0}")]
    Journal(JournalError),
    /// What was waited for did not happen.
    #[error("timed out waiting for {what}: {last}")]
    Wait {
        /// What was waited for.
        what: String,
        /// What was seen last.
        last: String,
    },
    /// One pod of another version was tried, and could not take over.
    #[error(
        "the new version can't take over: {why}; its pod was removed, and the previous version \
         keeps running"
    )]
    Canary {
        /// What its pod said.
        why: String,
    },
    /// A Deployment was scaled to 0, and somebody scaled it up again.
    #[error("{what} was scaled to 0 and has {replicas} again")]
    Restored {
        /// Which one it is.
        what: String,
        /// How many it has.
        replicas: String,
    },
    /// What is there can't be changed without harm.
    #[error("{what} is left as it is: {why}")]
    Refused {
        /// What it is.
        what: String,
        /// Why.
        why: String,
    },
    /// Something with this name exists that Tenon did not make; it appeared after the plan was
    /// made.
    #[error("{what} exists and does not belong to this installation")]
    Foreign {
        /// What it is.
        what: String,
    },
}

impl Failure {
    /// There are no AWS credentials, or none that AWS accepts.
    pub fn lacks_credentials(&self) -> bool {
        matches!(self, Self::Aws(error) if error.lacks_credentials() || error.is_unknown_caller())
    }

    /// What is missing when the call was denied: the action and what it was tried on.
    pub fn denied(&self) -> Option<(String, String)> {
        match self {
            Self::Aws(error) if error.is_denied() => {
                Some((error.action.to_owned(), error.resource.clone()))
            }
            Self::Kubernetes(error) if error.is_denied() => {
                Some((error.verb.to_owned(), error.resource.clone()))
            }
            _ => None,
        }
    }
}
