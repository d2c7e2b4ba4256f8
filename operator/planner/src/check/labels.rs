//! Label rules of Kubernetes, over plain maps.

use std::collections::BTreeMap;

use crate::snapshot::{Node, NodePhase, Operator, PodShape, Requirement};

/// The labels that a machine has; of one that is not chosen yet, the values that it may get.
pub(super) struct Labels {
    pub(super) certain: BTreeMap<String, String>,
    pub(super) possible: BTreeMap<String, Vec<String>>,
}

impl Labels {
    /// Of a machine of the snapshot.
    pub(super) fn of(node: &Node) -> Self {
        let mut certain = node.labels.clone();
        let name = node.name.as_ref().unwrap_or(&node.key);
        certain.entry("kubernetes.io/hostname".to_owned()).or_insert_with(|| name.clone());
        let mut possible = BTreeMap::new();
        if node.phase == NodePhase::Pending {
            for requirement in node.requirements.iter().filter(|need| need.operator == Operator::In)
            {
                possible.insert(requirement.key.clone(), requirement.values.clone());
            }
        }
        Self { certain, possible }
    }

    /// Whether a requirement holds whatever value the machine gets.
    pub(super) fn meet(&self, requirement: &Requirement) -> bool {
        match (self.certain.get(&requirement.key), self.possible.get(&requirement.key)) {
            (Some(value), _) => holds(requirement, Some(value)),
            (None, Some(values)) => values.iter().all(|value| holds(requirement, Some(value))),
            (None, None) => holds(requirement, None),
        }
    }

    fn meet_all(&self, requirements: &[Requirement]) -> bool {
        requirements.iter().all(|requirement| self.meet(requirement))
    }

    /// Whether a pod's node selector, one of its required terms and one of its volumes' alternatives hold.
    pub(super) fn suit(&self, shape: &PodShape) -> bool {
        let selector = shape.node_selector.iter().all(|(key, value)| {
            self.meet(&Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.clone()],
                min_values: None,
            })
        });
        let any = |terms: &[Vec<Requirement>]| {
            terms.is_empty() || terms.iter().any(|term| self.meet_all(term))
        };
        selector && any(&shape.required_affinity) && any(&shape.volume_topology)
    }
}

/// One expression against one value.
pub(super) fn holds(requirement: &Requirement, value: Option<&String>) -> bool {
    let compare = |holds: fn(i64, i64) -> bool| {
        let bound = requirement.values.first().and_then(|bound| bound.parse::<i64>().ok());
        let value = value.and_then(|value| value.parse::<i64>().ok());
        matches!((value, bound), (Some(value), Some(bound)) if holds(value, bound))
    };
    match requirement.operator {
        Operator::In => value.is_some_and(|value| requirement.values.contains(value)),
        Operator::NotIn => value.is_none_or(|value| !requirement.values.contains(value)),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compare(|value, bound| value > bound),
        Operator::Lt => compare(|value, bound| value < bound),
        Operator::Gte => compare(|value, bound| value >= bound),
        Operator::Lte => compare(|value, bound| value <= bound),
    }
}
