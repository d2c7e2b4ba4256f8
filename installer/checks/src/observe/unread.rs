//! Why a part could not be read.

use std::fmt;

use tenon_installer_core::aws::AwsError;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::KubeError;
use tenon_installer_core::target::TargetError;

/// Why the cluster can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum Unreached {
    /// It is not known how: caller and cluster can't be read.
    #[error(transparent)]
    Facts(#[from] AwsError),
    /// There is no connection.
    #[error("{}", .0.in_one_line())]
    Target(TargetError),
}

/// A part could not be read. The report says so in words, as
/// [`Seen::Unknown`](crate::observed::Seen::Unknown).
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Failure),
    /// A service of AWS that there is no client for answered with an error.
    #[error("{code} {message} ({status})")]
    Refused {
        /// AWS's code.
        code: String,
        /// AWS's message.
        message: String,
        /// The status of HTTP.
        status: u16,
    },
    /// Something that it depends on could not be read, or an answer is not what it should be.
    #[error("{0}")]
    Other(String),
}

impl Unread {
    /// Of any other error.
    pub(super) fn of(error: impl fmt::Display) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<AwsError> for Unread {
    fn from(error: AwsError) -> Self {
        Self::Call(error.into())
    }
}

impl From<&AwsError> for Unread {
    fn from(error: &AwsError) -> Self {
        error.clone().into()
    }
}

impl From<&Unreached> for Unread {
    fn from(error: &Unreached) -> Self {
        match error {
            Unreached::Facts(error) => error.into(),
            Unreached::Target(_) => Self::of(error),
        }
    }
}

impl From<KubeError> for Unread {
    fn from(error: KubeError) -> Self {
        Self::Call(error.into())
    }
}

impl From<String> for Unread {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl From<&str> for Unread {
    fn from(why: &str) -> Self {
        Self::Other(why.to_owned())
    }
}
