//! Why a call to the API server failed, in words and as kinds.

use std::io;

use kube::Error;

use super::SILENCE;
use crate::plugin::PluginError;
use crate::words::{chain, root, without_types};

/// A call to Kubernetes failed.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {resource}: {message}", message = short(.cause))]
pub struct KubeError {
    /// `get`, `patch`, ….
    pub verb: &'static str,
    /// What it was tried on.
    pub resource: String,
    /// Why it failed. Not the error's source: its text says everything that is worth saying, and
    /// the client's own texts say it twice more.
    pub cause: Box<Error>,
}

fn short(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other if let Some(plugin) = PluginError::behind(other) => plugin.to_string(),
        silent if is_silence(silent) => {
            format!("the API server did not answer within {} s", SILENCE.as_secs())
        }
        Error::HyperError(_) | Error::Service(_) => {
            format!("the API server can't be reached: {}", root(error))
        }
        other => without_types(&chain(other)),
    }
}

/// Whether the connection was given up because nothing came over it, or because there never was
/// one.
fn is_silence(error: &Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        source = error.source();
    }
    false
}

impl KubeError {
    /// The API server stayed silent for as long as it may.
    pub fn is_silence(&self) -> bool {
        is_silence(&self.cause)
    }

    /// The kubeconfig's credential plugin gave no credential, so that nothing was sent.
    pub fn plugin(&self) -> Option<&PluginError> {
        PluginError::behind(&self.cause)
    }

    /// Why it failed, without what was tried.
    pub(crate) fn reason(&self) -> String {
        short(&self.cause)
    }

    /// There was no connection, or it broke.
    pub fn is_unreached(&self) -> bool {
        matches!(&*self.cause, Error::HyperError(_) | Error::Service(_)) && self.plugin().is_none()
    }

    /// The API server does not take the object: a field's value is not allowed.
    pub fn is_invalid(&self) -> bool {
        matches!(self.code(), Some(400 | 422))
    }

    pub(super) fn code(&self) -> Option<u16> {
        match &*self.cause {
            Error::Api(status) => Some(status.code),
            _ => None,
        }
    }

    /// The caller may not do it.
    pub fn is_denied(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// There is no such object, or no such type.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Somebody changed the object in between, or it exists already.
    pub(crate) fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The server is overloaded, starting, or not reached.
    pub(crate) fn is_overload(&self) -> bool {
        match self.code() {
            Some(code) => matches!(code, 429 | 500..=599),
            None => self.is_unreached(),
        }
    }

    /// Trying again may help: conflicts, overload, a server that is starting.
    pub fn is_transient(&self) -> bool {
        self.is_conflict() || self.is_overload()
    }
}

/// What failed, of a call that was made without this client.
pub fn failed(verb: &'static str, resource: String, cause: Error) -> KubeError {
    KubeError { verb, resource, cause: Box::new(cause) }
}
