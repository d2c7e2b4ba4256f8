//! Counters and histograms of the operator, under upstream's names.

/// Handle to the registry; clones share it.
#[derive(Clone, Debug)]
pub struct Metrics {}
