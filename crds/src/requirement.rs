//! Requirements on node labels, as NodePools and NodeClaims write them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;

text_enum! {
    /// How a requirement relates a label to its values.
    pub enum Operator {
        /// The label has one of the values.
        In = "In",
        /// The label is absent or has none of the values.
        NotIn = "NotIn",
        /// The label is present.
        Exists = "Exists",
        /// The label is absent.
        DoesNotExist = "DoesNotExist",
        /// The label is an integer greater than the value.
        Gt = "Gt",
        /// The label is an integer less than the value.
        Lt = "Lt",
        /// The label is an integer greater than or equal to the value.
        Gte = "Gte",
        /// The label is an integer less than or equal to the value.
        Lte = "Lte",
    }
}

/// Requirement on a label of the nodes, with a minimum number of distinct values that each launch
/// must admit.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// Relation between the label and the values.
    pub operator: Operator,
    /// Values: at least one for `In`, exactly one integer for `Gt`, `Lt`, `Gte` and `Lte`, none for
    /// `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Minimum number of distinct values of the key among the instance types of a launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i32>,
}

impl Requirement {
    /// A requirement without `minValues`.
    pub fn new<V: Into<String>>(
        key: impl Into<String>,
        operator: Operator,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self {
            key: key.into(),
            operator,
            values: values.into_iter().map(Into::into).collect(),
            min_values: None,
        }
    }
}
