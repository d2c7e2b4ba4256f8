//! What the controllers that write are made of.

use std::sync::Arc;

use super::AwsProvider;
use crate::context::Context;
use crate::write::Writer;

/// What a controller of the leader is handed.
#[derive(Clone)]
pub(super) struct Leader {
    pub(super) provider: Arc<AwsProvider>,
    pub(super) context: Context,
    pub(super) write: Writer,
}
