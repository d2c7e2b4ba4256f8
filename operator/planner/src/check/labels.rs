//! Label rules of Kubernetes, over plain maps.

use std::collections::{BTreeMap, BTreeSet};

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

    /// Of a machine to come, of which these are the values that labels may get.
    pub(super) fn of_values(values: &BTreeMap<String, BTreeSet<String>>) -> Self {
        let mut labels = Self { certain: BTreeMap::new(), possible: BTreeMap::new() };
        for (key, values) in values {
            match values.iter().collect::<Vec<_>>()[..] {
                [only] => drop(labels.certain.insert(key.clone(), only.clone())),
                _ => drop(labels.possible.insert(key.clone(), values.iter().cloned().collect())),
            }
        }
        labels
    }

    /// Whether a requirement holds whatever value the machine gets.
    pub(super) fn meet(&self, requirement: &Requirement) -> bool {
        self.may_meet(requirement) == Some(true)
    }

    /// Whether a requirement holds; unknown while that depends on the value that the machine gets.
    fn may_meet(&self, requirement: &Requirement) -> Option<bool> {
        match (self.certain.get(&requirement.key), self.possible.get(&requirement.key)) {
            (Some(value), _) => Some(holds(requirement, Some(value))),
            (None, Some(values)) => {
                let holding = values.iter().filter(|value| holds(requirement, Some(value))).count();
                match holding {
                    0 => Some(false),
                    all if all == values.len() => Some(true),
                    _ => None,
                }
            }
            (None, None) => Some(holds(requirement, None)),
        }
    }

    /// Whether a pod's node selector, one of its required terms and one of its volumes'
    /// alternatives hold, whatever values the machine gets.
    pub(super) fn suit(&self, shape: &PodShape) -> bool {
        self.may_suit(shape) == Some(true)
    }

    /// The same; unknown while that depends on the values that the machine gets.
    fn may_suit(&self, shape: &PodShape) -> Option<bool> {
        worst([self.may_meet_affinity(shape), self.may_meet_any(&shape.volume_topology)])
    }

    /// Whether a pod's node selector and one of its required terms hold, as far as that is known:
    /// what a spread constraint's `nodeAffinityPolicy` is about. Where volumes are is none of its
    /// business.
    pub(super) fn may_meet_affinity(&self, shape: &PodShape) -> Option<bool> {
        let selector: Vec<Requirement> = shape
            .node_selector
            .iter()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.clone()],
                min_values: None,
            })
            .collect();
        worst([self.may_meet_all(&selector), self.may_meet_any(&shape.required_affinity)])
    }

    fn may_meet_all(&self, requirements: &[Requirement]) -> Option<bool> {
        worst(requirements.iter().map(|requirement| self.may_meet(requirement)))
    }

    fn may_meet_any(&self, terms: &[Vec<Requirement>]) -> Option<bool> {
        if terms.is_empty() {
            return Some(true);
        }
        best(terms.iter().map(|term| self.may_meet_all(term)))
    }
}

/// Whether all hold.
fn worst(found: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut all = Some(true);
    for one in found {
        match one {
            Some(false) => return Some(false),
            Some(true) => {}
            None => all = None,
        }
    }
    all
}

/// Whether any holds.
fn best(found: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    worst(found.into_iter().map(|one| one.map(|holds| !holds))).map(|none| !none)
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
