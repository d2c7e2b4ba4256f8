//! Which pods a rule is about: a label selector and namespaces.
//!
//! A tenant may write selectors with thousands of values, and thousands of selectors. So names are
//! numbers here, sets of them are sorted, and nothing is copied.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::id_set::IdSet;
use crate::snapshot::{PodAffinityTerm, PodShape, Snapshot, TopologySpread};

/// Namespaces, label keys and values of pods and selectors as numbers, in the order of first use.
#[derive(Debug, Default)]
pub(super) struct Names<'s> {
    ids: FxHashMap<&'s str, u32>,
    /// Namespaces of which labels are known.
    namespaces: Vec<(u32, Labels)>,
    /// All namespaces, also those that the snapshot says nothing about.
    everywhere: Vec<u32>,
}

/// Keys and values, sorted.
type Labels = SmallVec<[(u32, u32); 4]>;

impl<'s> Names<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let mut names = Self::default();
        for (name, of_namespace) in &snapshot.namespaces {
            let namespace = (names.id(name), labels(of_namespace, &mut names));
            names.namespaces.push(namespace);
        }
        let known: Vec<u32> = names.namespaces.iter().map(|&(name, _)| name).collect();
        let of_pods = snapshot.shapes.iter().map(|shape| names.id(&shape.namespace));
        let mut everywhere: Vec<u32> = of_pods.chain(known).collect();
        everywhere.sort_unstable();
        everywhere.dedup();
        names.everywhere = everywhere;
        names
    }

    fn id(&mut self, name: &'s str) -> u32 {
        let next = u32::try_from(self.ids.len()).expect("fewer names than fit into memory");
        *self.ids.entry(name).or_insert(next)
    }
}

/// What selectors see of a pod.
#[derive(Debug)]
pub(super) struct Selectable {
    namespace: u32,
    labels: Labels,
}

impl Selectable {
    pub(super) fn new<'s>(shape: &'s PodShape, names: &mut Names<'s>) -> Self {
        Self { namespace: names.id(&shape.namespace), labels: labels(&shape.labels, names) }
    }
}

/// Pods by their namespace and labels.
#[derive(Debug, Default)]
pub(super) struct ByLabel {
    n: usize,
    namespaces: FxHashMap<u32, IdSet>,
    /// By key: those that have the label.
    having: FxHashMap<u32, IdSet>,
    /// By key and value.
    labelled: FxHashMap<(u32, u32), IdSet>,
}

impl ByLabel {
    pub(super) fn new(pods: &[Selectable]) -> Self {
        let mut found = Self { n: pods.len(), ..Self::default() };
        for (index, pod) in pods.iter().enumerate() {
            found.namespaces.entry(pod.namespace).or_default().insert(index);
            for &(key, value) in &pod.labels {
                found.having.entry(key).or_default().insert(index);
                found.labelled.entry((key, value)).or_default().insert(index);
            }
        }
        found
    }

    /// The pods among `pods` that are in a scope. One that asks for a label's value is compared
    /// only with the pods that have it; else it is sets that are compared, not pods.
    pub(super) fn selected(&self, pods: &[Selectable], scope: &Scope) -> IdSet {
        if let Some(label) = scope.label() {
            let labelled = self.labelled.get(&label).into_iter().flat_map(IdSet::iter);
            return labelled.filter(|&index| scope.selects(&pods[index])).collect();
        }
        let Some(expressions) = &scope.expressions else { return IdSet::default() };
        let mut selected = FixedBitSet::with_capacity(self.n);
        for namespace in scope.namespaces.iter().filter_map(|name| self.namespaces.get(name)) {
            namespace.add_to(&mut selected);
        }
        for expression in expressions {
            if expression.values.len() > self.n {
                for index in selected.ones().collect::<Vec<_>>() {
                    selected.set(index, expression.holds(&pods[index].labels));
                }
            } else {
                self.keep(expression, &mut selected);
            }
        }
        selected.into()
    }

    /// Takes out the pods for which an expression does not hold.
    fn keep(&self, expression: &Expression, pods: &mut FixedBitSet) {
        let having = self.having.get(&expression.key);
        let values = expression.values.iter().map(|&value| (expression.key, value));
        let listed = values.filter_map(|label| self.labelled.get(&label));
        match expression.operator {
            Operator::NotIn => listed.for_each(|labelled| labelled.take_from(pods)),
            Operator::DoesNotExist => {
                if let Some(having) = having {
                    having.take_from(pods);
                }
            }
            Operator::In => {
                let mut admitted = FixedBitSet::with_capacity(self.n);
                listed.for_each(|labelled| labelled.add_to(&mut admitted));
                pods.intersect_with(&admitted);
            }
            Operator::Exists => {
                let mut admitted = FixedBitSet::with_capacity(self.n);
                if let Some(having) = having {
                    having.add_to(&mut admitted);
                }
                pods.intersect_with(&admitted);
            }
            Operator::Unknown => pods.clear(),
        }
    }
}

fn labels<'s>(labels: &'s BTreeMap<String, String>, names: &mut Names<'s>) -> Labels {
    let mut ids: Labels =
        labels.iter().map(|(key, value)| (names.id(key), names.id(value))).collect();
    ids.sort_unstable();
    ids
}

/// Pods by namespace and labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    /// Sorted.
    namespaces: Vec<u32>,
    /// Sorted; `None` selects nothing.
    expressions: Option<Vec<Expression>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Expression {
    operator: Operator,
    key: u32,
    /// Sorted.
    values: SmallVec<[u32; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operator {
    DoesNotExist,
    Exists,
    In,
    NotIn,
    /// None that Kubernetes knows: nothing meets it.
    Unknown,
}

impl Expression {
    fn new<'s>(
        operator: Operator,
        key: &'s str,
        values: impl Iterator<Item = &'s String>,
        names: &mut Names<'s>,
    ) -> Self {
        let key = names.id(key);
        let mut values: SmallVec<[u32; 2]> = values.map(|value| names.id(value)).collect();
        values.sort_unstable();
        values.dedup();
        Self { operator, key, values }
    }

    fn holds(&self, labels: &[(u32, u32)]) -> bool {
        let at = labels.binary_search_by_key(&self.key, |&(key, _)| key);
        let value = at.ok().map(|at| labels[at].1);
        let listed = |value: u32| self.values.binary_search(&value).is_ok();
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => value.is_none_or(|value| !listed(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Unknown => false,
        }
    }
}

impl Scope {
    /// The pods that a spread constraint counts: of the pod's own namespace. For an empty selector
    /// kube-scheduler counts none.
    pub(super) fn of_spread<'s>(
        shape: &'s PodShape,
        spread: &'s TopologySpread,
        names: &mut Names<'s>,
    ) -> Self {
        let expressions = expressions(spread.selector.as_ref(), names);
        Self {
            namespaces: vec![names.id(&shape.namespace)],
            expressions: expressions.filter(|list| !list.is_empty()),
        }
    }

    /// The pods that an affinity term is about.
    pub(super) fn of_term<'s>(
        shape: &'s PodShape,
        term: &'s PodAffinityTerm,
        names: &mut Names<'s>,
    ) -> Self {
        let mut namespaces: Vec<u32> = term.namespaces.iter().map(|name| names.id(name)).collect();
        if let Some(selector) = &term.namespace_selector {
            let wanted = expressions(Some(selector), names).unwrap_or_default();
            // An empty selector means all, also namespaces that the snapshot says nothing about.
            if wanted.is_empty() {
                namespaces.extend(&names.everywhere);
            } else {
                let known = names.namespaces.iter();
                let met = known.filter(|(_, labels)| selects(Some(&wanted), labels));
                namespaces.extend(met.map(|&(name, _)| name));
            }
        } else if namespaces.is_empty() {
            namespaces.push(names.id(&shape.namespace));
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        Self { namespaces, expressions: expressions(term.selector.as_ref(), names) }
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
    fn label(&self) -> Option<(u32, u32)> {
        self.expressions.iter().flatten().find_map(|expression| match expression.values[..] {
            [only] if expression.operator == Operator::In => Some((expression.key, only)),
            _ => None,
        })
    }

    /// Whether a pod is among them.
    fn selects(&self, pod: &Selectable) -> bool {
        self.namespaces.binary_search(&pod.namespace).is_ok()
            && selects(self.expressions.as_deref(), &pod.labels)
    }
}

/// A selector's expressions, `matchLabels` included, sorted.
fn expressions<'s>(
    selector: Option<&'s LabelSelector>,
    names: &mut Names<'s>,
) -> Option<Vec<Expression>> {
    let selector = selector?;
    let mut list: Vec<_> = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| Expression::new(Operator::In, key, std::iter::once(value), names))
        .collect();
    for expression in selector.match_expressions.iter().flatten() {
        let operator = match expression.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => Operator::Unknown,
        };
        let values = expression.values.iter().flatten();
        list.push(Expression::new(operator, &expression.key, values, names));
    }
    list.sort_unstable();
    list.dedup();
    Some(list)
}

fn selects(expressions: Option<&[Expression]>, labels: &[(u32, u32)]) -> bool {
    expressions.is_some_and(|all| all.iter().all(|expression| expression.holds(labels)))
}
