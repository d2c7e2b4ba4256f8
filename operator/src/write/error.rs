//! Writes that failed, and what the API server's answer means.

use crate::work_queue::{Concern, Failure};

/// A write that failed.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {kind} {name}")]
pub struct WriteError {
    /// What was tried, e.g. `patching the status of`.
    verb: &'static str,
    /// Kind of the object.
    kind: String,
    /// Name of the object.
    name: String,
    /// It was a patch that tests what it replaces: the API server answers 422 when that has
    /// changed.
    tested: bool,
    // Boxed: it is ten times as large as what is usually returned instead.
    source: Box<kube::Error>,
}

impl WriteError {
    /// The same of a patch that tests what it replaces.
    pub(super) fn tested(self) -> Self {
        Self { tested: true, ..self }
    }

    /// HTTP status of the API server's answer, if there was one.
    pub fn code(&self) -> Option<u16> {
        match &*self.source {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }

    /// The object does not exist, or is another one that was made under the same name meanwhile.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404) || self.is_of_another()
    }

    /// A patch with another uid than the object's is refused as an attempt to change the uid.
    fn is_of_another(&self) -> bool {
        match &*self.source {
            kube::Error::Api(status) if status.code == 422 => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                causes.into_iter().any(|cause| cause.field == "metadata.uid")
            }
            _ => false,
        }
    }

    /// What a patch replaces is not what it was computed from. An object that is not valid is told
    /// with its causes.
    fn has_failed_test(&self) -> bool {
        let refused = |error: &kube::Error| match error {
            kube::Error::Api(status) => {
                status.code == 422 && status.details.iter().all(|it| it.causes.is_empty())
            }
            _ => false,
        };
        self.tested && refused(&self.source)
    }

    /// It may pass by itself: somebody was faster, or the API server can't be reached, is
    /// overloaded or has a fault.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_conflict() || self.code().is_none_or(|code| matches!(code, 429 | 500..))
    }

    /// The API server has understood and does not want to, as when an admission webhook denies it
    /// or a permission is missing. It will not change its mind for being asked again at once.
    pub(crate) fn is_refused(&self) -> bool {
        // A webhook that can't be reached is an error 500.
        let webhook = || self.code() == Some(500) && self.message().contains("webhook");
        let refused =
            matches!(self.code(), Some(400..=499)) && !matches!(self.code(), Some(404 | 429));
        refused && !self.is_conflict() || webhook()
    }

    /// The API server's message.
    pub fn message(&self) -> String {
        match &*self.source {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        }
    }
}

impl Failure for WriteError {
    fn category(&self) -> &'static str {
        match self.code() {
            _ if self.is_not_found() => "not_found",
            _ if self.is_conflict() => "conflict",
            Some(403) => "forbidden",
            Some(422) => "invalid",
            Some(429) => "too_many_requests",
            Some(_) => "api",
            None => "transport",
        }
    }

    fn is_conflict(&self) -> bool {
        self.code() == Some(409) || self.has_failed_test()
    }

    fn concern(&self) -> Concern {
        match self.code() {
            _ if self.is_conflict() => Concern::Nobody,
            Some(404) => Concern::Nobody,
            Some(408 | 429 | 500..) | None => Concern::Passing,
            Some(_) => Concern::Administrator,
        }
    }
}

/// A write that failed, and tested nothing.
pub(super) fn error(verb: &'static str, kind: &str, name: &str, source: kube::Error) -> WriteError {
    WriteError {
        verb,
        kind: kind.to_owned(),
        name: name.to_owned(),
        tested: false,
        source: Box::new(source),
    }
}
