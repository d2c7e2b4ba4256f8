//! Whether requirements hold: for one value of a label, for an instance type, for an offering.

use tenon_crds::labels::{self, aws};
use tenon_planner::snapshot::{CapacityType, InstanceType, Offering, Operator, Requirement};

/// A conjunction of requirements, e.g. a NodeClaim's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requirements(Vec<Requirement>);

impl Requirements {
    /// From the API's form. Keys are taken as they are: NodeClaims carry normalised keys.
    pub(super) fn from_api(requirements: &[tenon_crds::Requirement]) -> Self {
        Self(requirements.iter().map(from_api).collect())
    }

    /// Whether a label with this value (or its absence) is allowed.
    pub(super) fn allow(&self, key: &str, value: Option<&str>) -> bool {
        self.0.iter().filter(|requirement| requirement.key == key).all(|r| holds(r, value))
    }

    /// Whether anything is said about the label.
    pub(super) fn mention(&self, key: &str) -> bool {
        self.0.iter().any(|requirement| requirement.key == key)
    }

    /// Whether some requirement asks for several distinct values.
    pub(super) fn have_min_values(&self) -> bool {
        self.0.iter().any(|requirement| requirement.min_values.is_some())
    }

    /// The requirements that ask for several distinct values.
    pub(super) fn min_values(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().filter_map(|r| Some((r.key.as_str(), r.min_values?)))
    }

    /// Whether what a type or an offering defines about its labels leaves a value for each of them.
    pub(super) fn meet(&self, defined: &[Requirement]) -> bool {
        self.0.iter().all(|wanted| {
            let Some(defined) = find(defined, &wanted.key) else { return true };
            match defined.operator {
                Operator::DoesNotExist => holds(wanted, None),
                _ => defined.values.iter().any(|value| self.allow(&wanted.key, Some(value))),
            }
        })
    }

    /// Whether an instance type can have the labels.
    pub(super) fn meet_type(&self, instance_type: &InstanceType) -> bool {
        self.meet(&instance_type.requirements)
    }

    /// Whether an offering has the labels.
    pub(super) fn meet_offering(&self, offering: &Offering) -> bool {
        self.allow(labels::ZONE, Some(&offering.zone))
            && self.allow(labels::CAPACITY_TYPE, Some(offering.capacity_type.as_str()))
            && self.meet(&offering.requirements)
    }

    /// Whether machines of this capacity type are allowed.
    pub(super) fn allow_capacity_type(&self, capacity_type: CapacityType) -> bool {
        self.allow(labels::CAPACITY_TYPE, Some(capacity_type.as_str()))
    }

    /// `default` where it is allowed, else `dedicated`.
    pub(super) fn tenancy(&self) -> &'static str {
        if self.allow(aws::INSTANCE_TENANCY, Some("default")) { "default" } else { "dedicated" }
    }
}

/// Whether an image with these requirements fits an instance type.
pub(super) fn image_fits(image: &[tenon_crds::Requirement], instance_type: &[Requirement]) -> bool {
    Requirements::from_api(image).meet(instance_type)
}

/// From the API's form.
pub(super) fn from_api(requirement: &tenon_crds::Requirement) -> Requirement {
    Requirement {
        key: requirement.key.clone(),
        operator: requirement.operator,
        values: requirement.values.clone(),
        min_values: requirement.min_values.and_then(|count| u32::try_from(count).ok()),
    }
}

/// The only value of a label that a type defines, if there is exactly one.
pub(super) fn single_value<'r>(defined: &'r [Requirement], key: &str) -> Option<&'r str> {
    match find(defined, key)? {
        Requirement { operator: Operator::In, values, .. } => match values.as_slice() {
            [value] => Some(value),
            _ => None,
        },
        _ => None,
    }
}

/// The values of a label that a type or an offering defines; none where it does not have the label.
pub(super) fn values_of<'r>(defined: &'r [Requirement], key: &str) -> &'r [String] {
    let found = find(defined, key).filter(|requirement| requirement.operator == Operator::In);
    found.map(|requirement| requirement.values.as_slice()).unwrap_or_default()
}

fn find<'r>(defined: &'r [Requirement], key: &str) -> Option<&'r Requirement> {
    let index = defined.binary_search_by(|requirement| requirement.key.as_str().cmp(key)).ok()?;
    defined.get(index)
}

fn holds(requirement: &Requirement, value: Option<&str>) -> bool {
    requirement.operator.admits(&requirement.values, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|&value| value.to_owned()).collect(),
            min_values: None,
        }
    }

    #[test]
    fn operators_hold_for_values_and_absence() {
        let table = [
            (Operator::In, &["a", "b"][..], Some("a"), true),
            (Operator::In, &["a"], Some("c"), false),
            (Operator::In, &["a"], None, false),
            (Operator::NotIn, &["a"], Some("a"), false),
            (Operator::NotIn, &["a"], None, true),
            (Operator::Exists, &[], Some(""), true),
            (Operator::Exists, &[], None, false),
            (Operator::DoesNotExist, &[], None, true),
            (Operator::DoesNotExist, &[], Some("a"), false),
            (Operator::Gt, &["4"], Some("5"), true),
            (Operator::Gt, &["4"], Some("4"), false),
            (Operator::Gt, &["4"], None, false),
            (Operator::Gt, &["4"], Some("x"), false),
            (Operator::Lt, &["4"], Some("3"), true),
            (Operator::Gte, &["4"], Some("4"), true),
            (Operator::Lte, &["4"], Some("5"), false),
        ];
        for (operator, values, value, expected) in table {
            assert_eq!(
                holds(&requirement("k", operator, values), value),
                expected,
                "{operator:?} {values:?} {value:?}"
            );
        }
    }

    #[test]
    fn a_type_is_met_when_one_value_of_each_label_satisfies_all_requirements() {
        let defined = [
            requirement("a", Operator::In, &["1", "5"]),
            requirement("b", Operator::DoesNotExist, &[]),
        ];
        let meet = |wanted: &[Requirement]| Requirements(wanted.to_vec()).meet(&defined);
        assert!(meet(&[requirement("a", Operator::Gt, &["4"])]));
        assert!(!meet(&[
            requirement("a", Operator::Gt, &["4"]),
            requirement("a", Operator::Lt, &["5"]),
        ]));
        assert!(!meet(&[requirement("b", Operator::Exists, &[])]));
        assert!(meet(&[requirement("b", Operator::NotIn, &["x"])]));
        assert!(meet(&[requirement("custom", Operator::In, &["x"])]), "undefined by the type");
    }
}
