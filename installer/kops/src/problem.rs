//! What is wrong with a document, and where.

use std::fmt;

/// Something in kOps' documents that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Which document, such as `InstanceGroup nodes-a`.
    pub document: String,
    /// The field's path, such as `spec.image`; empty if it is about the whole document.
    pub field: String,
    /// What is wrong and what to do, without a full stop.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(document: &str, field: &str, message: impl Into<String>) -> Self {
        Self { document: document.to_owned(), field: field.to_owned(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { document, field, message } = self;
        if field.is_empty() {
            write!(f, "{document}: {message}")
        } else {
            write!(f, "{document}: {field}: {message}")
        }
    }
}

impl std::error::Error for Problem {}
