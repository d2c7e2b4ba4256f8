//! IAM's limits on policy documents, to be checked at plan time: the first call that fails on one
//! leaves a half-made role behind.

use crate::document::Document;

/// All inline policies of one role together, in characters without white space. Can't be raised.
pub const INLINE_LIMIT: usize = 10_240;

/// One managed policy, in characters without white space. Can't be raised.
pub const MANAGED_LIMIT: usize = 6_144;

/// A trust policy, in characters. Can be raised to 4,096 by a quota request.
pub(crate) const TRUST_LIMIT: usize = 2_048;

/// A document that IAM would not store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The inline policies of one role are too large together.
    #[error(
        "the inline policies have {size} characters together, and IAM takes {INLINE_LIMIT} for one role: \
         use a shorter cluster name, fewer node roles or KMS keys, or managed policies"
    )]
    Inline {
        /// Characters of all documents together.
        size: usize,
    },
    /// One managed policy is too large.
    #[error(
        "the policy {name} has {size} characters, and IAM takes {MANAGED_LIMIT}: use fewer node roles or KMS keys"
    )]
    Managed {
        /// Name of the policy.
        name: String,
        /// Characters of its document.
        size: usize,
    },
    /// A trust policy is too large.
    #[error("the trust policy has {size} characters, and IAM takes {TRUST_LIMIT}")]
    Trust {
        /// Characters of the document.
        size: usize,
    },
}

/// Checks documents that are to be inline policies of one role.
pub fn check_inline<'a>(
    documents: impl IntoIterator<Item = &'a Document>,
) -> Result<(), SizeError> {
    let size = documents.into_iter().map(Document::size).sum();
    if size > INLINE_LIMIT { Err(SizeError::Inline { size }) } else { Ok(()) }
}

/// Checks a trust policy.
pub fn check_trust(document: &Document) -> Result<(), SizeError> {
    let size = document.to_json().chars().count();
    if size > TRUST_LIMIT { Err(SizeError::Trust { size }) } else { Ok(()) }
}
