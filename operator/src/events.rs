//! Kubernetes events, published without repeating themselves.

/// Publishes Kubernetes events; clones share their memory of what was said.
#[derive(Clone, Debug)]
pub struct Recorder {}
