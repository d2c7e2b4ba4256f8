//! Requirements on labels, as the API writes them.

use serde::{Deserialize, Serialize};
pub use tenon_crds::Operator;

/// `key operator values` with Karpenter's operators.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key, already normalised (no `beta.kubernetes.io/…` aliases).
    pub key: String,
    /// How `values` are compared.
    pub operator: Operator,
    /// Values; sorted, unique. One integer for the four comparisons, none for Exists and
    /// DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// `minValues`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<u32>,
}
