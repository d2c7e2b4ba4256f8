//! What the operator checks about requirements and NodePools beyond the schema. All problems are
//! returned, not only the first.
//!
//! The schema of the API server cannot say everything, and an object may have been stored under an
//! older schema. The same requirement rules hold for NodePools and for the node selectors and
//! affinities of pods.

use std::collections::BTreeSet;

use crate::labels::{self, LabelRules, Restriction};
use crate::nodepool::NodePoolSpec;
use crate::requirement::{Operator, Requirement};
use crate::taint::Taint;

/// Something that is wrong with an object, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct Problem {
    /// The field, such as `spec.template.spec.taints[0].key`.
    pub path: String,
    /// What is wrong with it.
    pub problem: Violation,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The label may not be used.
    #[error(transparent)]
    Restricted(#[from] Restriction),
    /// The label is set by the operator.
    #[error("label {key} is set by the operator and cannot be given")]
    OwnLabel {
        /// Key of the label.
        key: String,
    },
    /// Not a qualified name.
    #[error("`{text}` is not a qualified name: {reason}")]
    NotQualifiedName {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Not a label value.
    #[error("`{text}` is not a label value: {reason}")]
    NotLabelValue {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An operator that needs values has none.
    #[error("operator In needs at least one value")]
    NoValues,
    /// Fewer values than `minValues`.
    #[error("minValues is {min_values}, but only {count} values are given")]
    TooFewValues {
        /// `minValues`.
        min_values: i32,
        /// How many values count.
        count: usize,
    },
    /// A comparison without exactly one integer.
    #[error("operator {operator} needs exactly one value, an integer that is not negative")]
    NotOneInteger {
        /// Operator of the requirement.
        operator: Operator,
    },
    /// None of the values exists.
    #[error("none of the values {} exists; {key} can be {}", values.join(", "), known.join(", "))]
    NoKnownValue {
        /// Key of the label.
        key: String,
        /// The values that were given.
        values: Vec<String>,
        /// The values that exist.
        known: Vec<&'static str>,
    },
    /// The same key and effect twice.
    #[error("taint {key}:{effect} is given twice")]
    DuplicateTaint {
        /// Key.
        key: String,
        /// Effect.
        effect: &'static str,
    },
    /// A taint without key.
    #[error("a taint needs a key")]
    NoKey,
}

/// Checks a NodePool.
pub fn node_pool(spec: &NodePoolSpec, rules: &LabelRules) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |path: String, problem: Violation| problems.push(Problem { path, problem });
    let template = &spec.template;

    for (key, value) in template.labels() {
        let path = || format!("spec.template.metadata.labels[{key}]");
        if key == labels::NODEPOOL {
            add(path(), Violation::OwnLabel { key: key.to_owned() });
        } else if let Some(restriction) = rules.restriction(key) {
            add(path(), restriction.into());
        }
        if let Err(violation) = qualified_name(key) {
            add(path(), violation);
        }
        if let Err(violation) = label_value(value) {
            add(path(), violation);
        }
    }

    let taints =
        template.spec.taints().iter().enumerate().map(|(index, taint)| ("taints", index, taint));
    let startup_taints = template
        .spec
        .startup_taints()
        .iter()
        .enumerate()
        .map(|(index, taint)| ("startupTaints", index, taint));
    let mut seen = BTreeSet::new();
    for (list, index, taint) in taints.chain(startup_taints) {
        let path = format!("spec.template.spec.{list}[{index}]");
        for problem in taint_problems(taint) {
            add(path.clone(), problem);
        }
        if !seen.insert((&taint.key, taint.effect)) {
            add(
                path,
                Violation::DuplicateTaint { key: taint.key.clone(), effect: taint.effect.as_str() },
            );
        }
    }

    for (index, item) in template.spec.requirements.iter().enumerate() {
        let path = format!("spec.template.spec.requirements[{index}]");
        if rules.normalize(&item.key) == labels::NODEPOOL {
            add(path.clone(), Violation::OwnLabel { key: item.key.clone() });
        }
        for problem in requirement(item, rules) {
            add(path.clone(), problem);
        }
    }
    problems
}

/// Checks a requirement of a NodePool or of a pod.
pub fn requirement(requirement: &Requirement, rules: &LabelRules) -> Vec<Violation> {
    let Requirement { key, operator, values, min_values } = requirement;
    let key = rules.normalize(key);
    let mut violations = Vec::new();

    if let Some(restriction) = rules.restriction(key) {
        violations.push(restriction.into());
    }
    if *operator == Operator::In
        && !values.is_empty()
        && let Some(known) = rules.known_values(key)
    {
        let count = values.iter().filter(|value| known.contains(&value.as_str())).count();
        if count == 0 {
            violations.push(Violation::NoKnownValue {
                key: key.to_owned(),
                values: values.clone(),
                known: known.to_vec(),
            });
        } else if let Some(min_values) = too_few(*min_values, count) {
            violations.push(Violation::TooFewValues { min_values, count });
        }
    }
    violations.extend(qualified_name(key).err());
    violations.extend(values.iter().filter_map(|value| label_value(value).err()));
    match operator {
        Operator::In if values.is_empty() => violations.push(Violation::NoValues),
        Operator::In => {
            if let Some(min_values) = too_few(*min_values, values.len()) {
                violations.push(Violation::TooFewValues { min_values, count: values.len() });
            }
        }
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
            let is_count = |value: &String| value.parse::<i64>().is_ok_and(|value| value >= 0);
            if values.len() != 1 || !values.iter().all(is_count) {
                violations.push(Violation::NotOneInteger { operator: *operator });
            }
        }
        Operator::NotIn | Operator::Exists | Operator::DoesNotExist => {}
    }
    violations.dedup();
    violations
}

fn too_few(min_values: Option<i32>, count: usize) -> Option<i32> {
    min_values.filter(|min_values| {
        usize::try_from(*min_values).is_ok_and(|min_values| count < min_values)
    })
}

fn taint_problems(taint: &Taint) -> Vec<Violation> {
    let key = if taint.key.is_empty() {
        Some(Violation::NoKey)
    } else {
        qualified_name(&taint.key).err()
    };
    let value = (!taint.value().is_empty()).then(|| qualified_name(taint.value()).err()).flatten();
    key.into_iter().chain(value).collect()
}

/// Checks a qualified name: an optional DNS subdomain and `/`, then up to 63 letters, digits, `-`,
/// `_` and `.`.
pub fn qualified_name(text: &str) -> Result<(), Violation> {
    let not = |reason| Err(Violation::NotQualifiedName { text: text.to_owned(), reason });
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => return not("it has more than one `/`"),
        Some(("", _)) => return not("the part before `/` is empty"),
        Some((prefix, _)) if !is_dns_subdomain(prefix) => {
            return not(
                "the part before `/` is not a DNS subdomain (lower case letters, digits, `-` and `.`)",
            );
        }
        Some((_, name)) => name,
    };
    if name.is_empty() {
        not("the name is empty")
    } else if name.len() > 63 {
        not("the name has more than 63 characters")
    } else if !is_name(name) {
        not(
            "the name must be letters, digits, `-`, `_` and `.`, and begin and end with a letter or digit",
        )
    } else {
        Ok(())
    }
}

/// Checks a label value: empty, or up to 63 letters, digits, `-`, `_` and `.`.
fn label_value(text: &str) -> Result<(), Violation> {
    let not = |reason| Err(Violation::NotLabelValue { text: text.to_owned(), reason });
    if text.len() > 63 {
        not("it has more than 63 characters")
    } else if !text.is_empty() && !is_name(text) {
        not(
            "it must be letters, digits, `-`, `_` and `.`, and begin and end with a letter or digit",
        )
    } else {
        Ok(())
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn is_dns_subdomain(text: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|part| {
            part.starts_with(is_edge)
                && part.ends_with(is_edge)
                && part.chars().all(|c| is_edge(c) || c == '-')
        })
}

#[cfg(test)]
mod tests;
