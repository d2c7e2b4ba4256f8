//! Which pods a rule is about: a label selector and namespaces.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::snapshot::{PodAffinityTerm, PodShape, Snapshot, TopologySpread};

/// Pods by namespace and labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    /// Sorted.
    namespaces: Vec<String>,
    /// Operator, key and values; `None` selects nothing.
    expressions: Option<Vec<(String, String, Vec<String>)>>,
}

impl Scope {
    /// The pods that a spread constraint counts: of the pod's own namespace. For an empty selector kube-scheduler counts none.
    pub(super) fn of_spread(shape: &PodShape, spread: &TopologySpread) -> Self {
        let expressions = expressions(spread.selector.as_ref());
        Self {
            namespaces: vec![shape.namespace.clone()],
            expressions: expressions.filter(|list| !list.is_empty()),
        }
    }

    /// The pods that an affinity term is about.
    pub(super) fn of_term(snapshot: &Snapshot, shape: &PodShape, term: &PodAffinityTerm) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().cloned().collect();
        if let Some(selector) = &term.namespace_selector {
            let wanted = expressions(Some(selector));
            let known = snapshot.namespaces.iter();
            namespaces.extend(
                known
                    .filter(|(_, labels)| selects(wanted.as_deref(), labels))
                    .map(|(name, _)| name.clone()),
            );
            // An empty selector means all, also namespaces that the snapshot says nothing about.
            if wanted.is_some_and(|wanted| wanted.is_empty()) {
                namespaces.extend(snapshot.shapes.iter().map(|shape| shape.namespace.clone()));
            }
        } else if namespaces.is_empty() {
            namespaces.insert(shape.namespace.clone());
        }
        Self {
            namespaces: namespaces.into_iter().collect(),
            expressions: expressions(term.selector.as_ref()),
        }
    }

    /// The pods that are in both.
    pub(super) fn and(self, other: Self) -> Self {
        let mut namespaces = self.namespaces;
        namespaces.retain(|name| other.namespaces.binary_search(name).is_ok());
        let expressions = self.expressions.zip(other.expressions).map(|(mut all, more)| {
            all.extend(more);
            all.sort_unstable();
            all.dedup();
            all
        });
        Self { namespaces, expressions }
    }

    /// A label that pods have to have, if the selector says so.
    pub(super) fn label(&self) -> Option<(&str, &str)> {
        self.expressions.iter().flatten().find_map(|(operator, key, values)| {
            let only = values.first().filter(|_| operator == "In" && values.len() == 1)?;
            Some((key.as_str(), only.as_str()))
        })
    }

    /// Whether pods of a shape are among them.
    pub(super) fn selects(&self, shape: &PodShape) -> bool {
        self.namespaces.binary_search(&shape.namespace).is_ok()
            && selects(self.expressions.as_deref(), &shape.labels)
    }
}

/// A selector's expressions, `matchLabels` included, sorted.
fn expressions(selector: Option<&LabelSelector>) -> Option<Vec<(String, String, Vec<String>)>> {
    let selector = selector?;
    let mut list: Vec<_> = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| ("In".to_owned(), key.clone(), vec![value.clone()]))
        .collect();
    for expression in selector.match_expressions.iter().flatten() {
        let mut values = expression.values.clone().unwrap_or_default();
        values.sort_unstable();
        list.push((expression.operator.clone(), expression.key.clone(), values));
    }
    list.sort_unstable();
    list.dedup();
    Some(list)
}

fn selects(
    expressions: Option<&[(String, String, Vec<String>)]>,
    labels: &BTreeMap<String, String>,
) -> bool {
    expressions.is_some_and(|expressions| {
        expressions.iter().all(|(operator, key, values)| {
            let value = labels.get(key);
            match operator.as_str() {
                "In" => value.is_some_and(|value| values.contains(value)),
                "NotIn" => value.is_none_or(|value| !values.contains(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
    })
}
