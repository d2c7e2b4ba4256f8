//! What was found out from inside the cluster.

use serde::{Deserialize, Serialize};
use tenon_state::probe::ProbeReport;

/// What a pod reaches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InsideView {
    /// The pod had the operator's service account; before an installation there is none.
    pub as_operator: bool,
    /// What it reported.
    pub report: ProbeReport,
}
