//! Requirements as the planner takes them.

use tenon_crds::Operator as Api;
use tenon_crds::labels::LabelRules;
use tenon_planner::snapshot::{Operator, Requirement};

/// Requirements as the planner takes them: keys normalised, values sorted.
pub fn requirements(list: &[tenon_crds::Requirement], rules: &LabelRules) -> Vec<Requirement> {
    list.iter().map(|requirement| self::requirement(requirement, rules)).collect()
}

fn requirement(requirement: &tenon_crds::Requirement, rules: &LabelRules) -> Requirement {
    let mut values = requirement.values.clone();
    values.sort();
    values.dedup();
    Requirement {
        key: rules.normalize(&requirement.key).to_owned(),
        operator: match requirement.operator {
            Api::In => Operator::In,
            Api::NotIn => Operator::NotIn,
            Api::Exists => Operator::Exists,
            Api::DoesNotExist => Operator::DoesNotExist,
            Api::Gt => Operator::Gt,
            Api::Lt => Operator::Lt,
            Api::Gte => Operator::Gte,
            Api::Lte => Operator::Lte,
        },
        values,
        min_values: requirement.min_values.and_then(|n| u32::try_from(n).ok()),
    }
}
