//! Requirements as the planner takes them.

use tenon_crds::labels::LabelRules;
use tenon_planner::snapshot::Requirement;

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
        operator: requirement.operator,
        values,
        min_values: requirement.min_values.and_then(|n| u32::try_from(n).ok()),
    }
}
