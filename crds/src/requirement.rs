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

impl Operator {
    /// Parses the operator of a node selector. `None` for one that Kubernetes does not know, such
    /// as `Gte`, which only NodePools have.
    pub fn of_node_selector(text: &str) -> Option<Self> {
        text.parse().ok().filter(|operator| !matches!(operator, Self::Gte | Self::Lte))
    }

    /// Whether the operator with these `values` admits a label's value, or its absence (`None`).
    /// Comparisons admit only integers of 64 bits, and nothing if the first of `values` is none.
    pub fn admits(self, values: &[String], value: Option<&str>) -> bool {
        let listed = || value.is_some_and(|value| values.iter().any(|listed| listed == value));
        let compare = |holds: fn(&i64, &i64) -> bool| {
            let value = value.and_then(|value| value.parse().ok());
            let bound = values.first().and_then(|bound| bound.parse().ok());
            value.zip(bound).is_some_and(|(value, bound)| holds(&value, &bound))
        };
        match self {
            Self::In => listed(),
            Self::NotIn => !listed(),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Gt => compare(i64::gt),
            Self::Lt => compare(i64::lt),
            Self::Gte => compare(i64::ge),
            Self::Lte => compare(i64::le),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_admit_values_and_absence() {
        use Operator::{DoesNotExist, Exists, Gt, Gte, In, Lt, Lte, NotIn};
        for (operator, values, admitted, refused) in [
            (In, &["a", "b"][..], &[Some("a"), Some("b")][..], &[Some("c"), None][..]),
            (NotIn, &["a"], &[Some("b"), None], &[Some("a")]),
            (Exists, &[], &[Some(""), Some("a")], &[None]),
            (DoesNotExist, &[], &[None], &[Some("a")]),
            (Gt, &["4"], &[Some("5")], &[Some("4"), Some("five"), None]),
            (Lt, &["4"], &[Some("3"), Some("-5")], &[Some("4"), None]),
            (Gte, &["4"], &[Some("4")], &[Some("3"), None]),
            (Lte, &["4"], &[Some("4")], &[Some("5"), Some("9223372036854775808"), None]),
            (Gt, &["four"], &[], &[Some("5")]),
        ] {
            let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
            for value in admitted {
                assert!(operator.admits(&values, *value), "{operator} {values:?}: {value:?}");
            }
            for value in refused {
                assert!(!operator.admits(&values, *value), "{operator} {values:?}: {value:?}");
            }
        }
    }
}
