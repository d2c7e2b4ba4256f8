//! What the name of an EC2 instance type tells.

use std::collections::BTreeMap;

use tenon_crds::labels::{self, LabelRules, aws};
use tenon_planner::snapshot::{InstanceType, Operator, Requirement};

/// The labels that follow from a name: category, generation, family, size, and whether its CPU is
/// shared (`flex`). Where the name doesn't tell one, it is left out.
pub(crate) fn labels_of_name(name: &str) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if let Some((category, generation)) = category_and_generation(name) {
        found.push((aws::INSTANCE_CATEGORY, category.to_owned()));
        found.push((aws::INSTANCE_GENERATION, generation.to_owned()));
    }
    let parts = name.split_once('.').filter(|(_, size)| !size.contains('.'));
    if let Some((family, size)) = parts {
        found.push((aws::INSTANCE_FAMILY, family.to_owned()));
        found.push((aws::INSTANCE_SIZE, size.to_owned()));
    }
    let flex = parts.is_some_and(|(family, _)| family.contains("-flex"));
    found.push((aws::INSTANCE_CAPABILITY_FLEX, flex.to_string()));
    found
}

/// `m5.large` → (`m`, `5`); `u-6tb1.56xlarge` → (`u`, `1`); `inf2.xlarge` → (`inf`, `2`).
fn category_and_generation(name: &str) -> Option<(&str, &str)> {
    let family = &name[..name.rfind('.')?];
    let letters = family.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(family.len());
    let (category, mut rest) = family.split_at(letters);
    if category.is_empty() {
        return None;
    }
    if let Some(high_memory) = rest.strip_prefix('-') {
        let digits = high_memory.find(|c: char| !c.is_ascii_digit())?;
        rest = high_memory[digits..].strip_prefix("tb").filter(|_| digits > 0)?;
    }
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (digits > 0).then(|| (category, &rest[..digits]))
}

/// Adds EC2's labels to types of a file, as far as name, CPUs and memory tell them; the others are
/// said not to exist. A well-known label that a type does not define would let it pass for anything
/// that a NodePool asks of that label.
pub fn define_ec2_labels(types: &mut [InstanceType]) {
    let rules = LabelRules::aws();
    for kind in types {
        let mut known: BTreeMap<&str, String> = labels_of_name(&kind.name).into_iter().collect();
        if known.contains_key(aws::INSTANCE_FAMILY) {
            known.insert(aws::INSTANCE_CPU, (kind.capacity.cpu / 1000).to_string());
            known.insert(aws::INSTANCE_MEMORY, (kind.capacity.memory >> 20).to_string());
        }
        let undefined = |key: &&String| {
            *key != labels::NODEPOOL && !kind.requirements.iter().any(|it| it.key == **key)
        };
        let more: Vec<Requirement> = rules
            .well_known()
            .iter()
            .filter(undefined)
            .map(|key| {
                let values: Vec<String> = known.remove(key.as_str()).into_iter().collect();
                let operator =
                    if values.is_empty() { Operator::DoesNotExist } else { Operator::In };
                Requirement { key: key.clone(), operator, values, min_values: None }
            })
            .collect();
        kind.requirements.extend(more);
        kind.requirements.sort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn category_and_generation_come_from_the_family() {
        let table = [
            ("m5.large", Some(("m", "5"))),
            ("c7i-flex.large", Some(("c", "7"))),
            ("u-6tb1.112xlarge", Some(("u", "1"))),
            ("u7i-12tb.224xlarge", Some(("u", "7"))),
            ("inf2.xlarge", Some(("inf", "2"))),
            ("trn1n.32xlarge", Some(("trn", "1"))),
            ("x2iedn.metal", Some(("x", "2"))),
            ("mac", None),
            ("hpc7g.4xlarge", Some(("hpc", "7"))),
        ];
        for (name, expected) in table {
            assert_eq!(category_and_generation(name), expected, "{name}");
        }
    }
}
