//! kube-scheduler's filters about other pods: InterPodAffinity and PodTopologySpread.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{Machine, is_tolerated, is_wanted};
use crate::snapshot::{Node, PodAffinityTerm, PodShape, Snapshot};

type Labels = BTreeMap<String, String>;

/// Whom the required terms and constraints of each shape select, by shape.
pub(super) struct Rules {
    shapes: Vec<std::sync::Arc<PodShape>>,
    /// By carrier: required terms, each with the shapes that it selects.
    affinity: Vec<Vec<(PodAffinityTerm, BTreeSet<usize>)>>,
    /// By carrier and required constraint.
    spread: Vec<Vec<BTreeSet<usize>>>,
    any: bool,
}

/// What the rules leave one pod.
#[derive(Default)]
pub(super) struct View {
    /// Topology keys and the values that are open; without a value for its key a node is not.
    open: Vec<(String, BTreeSet<String>)>,
    closed: Vec<(String, String)>,
}

impl View {
    pub(super) fn admits(&self, node: &Node) -> bool {
        let at = |key: &String| node.labels.get(key);
        self.open.iter().all(|(key, values)| at(key).is_some_and(|value| values.contains(value)))
            && !self.closed.iter().any(|(key, value)| at(key) == Some(value))
    }
}

impl Rules {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let shapes = snapshot.shapes.clone();
        let among = |wanted: &dyn Fn(&PodShape) -> bool| -> BTreeSet<usize> {
            (0..shapes.len()).filter(|&other| wanted(&shapes[other])).collect()
        };
        let affinity: Vec<Vec<_>> = shapes
            .iter()
            .map(|carrier| {
                let terms = carrier.pod_affinity.iter().filter(|term| term.weight.is_none());
                let select = |term: &PodAffinityTerm| {
                    among(&|other| is_selected(snapshot, carrier, term, other))
                };
                terms.map(|term| (term.clone(), select(term))).collect()
            })
            .collect();
        let spread: Vec<Vec<_>> = shapes
            .iter()
            .map(|carrier| {
                let hard = carrier.topology_spread.iter().filter(|it| it.required);
                hard.map(|it| {
                    let selector = it.selector.as_ref().filter(|it| !is_empty(it));
                    among(&|other| {
                        other.namespace == carrier.namespace
                            && selector.is_some_and(|it| selects(it, &other.labels))
                    })
                })
                .collect()
            })
            .collect();
        let any =
            affinity.iter().any(|it| !it.is_empty()) || spread.iter().any(|it| !it.is_empty());
        Self { shapes, affinity, spread, any }
    }

    pub(super) fn view(&self, pod: &PodShape, shape: usize, machines: &[Machine]) -> View {
        let mut view = View::default();
        if self.any {
            self.affinity(shape, machines, &mut view);
            self.spread(pod, shape, machines, &mut view);
        }
        view
    }

    fn affinity(&self, shape: usize, machines: &[Machine], view: &mut View) {
        let mine = &self.affinity[shape];
        let near: Vec<_> = mine.iter().filter(|(term, _)| !term.anti).collect();
        let mut met: Vec<BTreeSet<String>> = vec![BTreeSet::new(); near.len()];
        let mut alone = true;
        for machine in machines {
            let value = |key: &String| machine.node.labels.get(key);
            for &other in machine.pods.keys() {
                let theirs = self.affinity[other].iter();
                let apart = mine.iter().filter(|it| it.1.contains(&other));
                let apart = apart.chain(theirs.filter(|it| it.1.contains(&shape)));
                for (term, _) in apart.filter(|(term, _)| term.anti) {
                    let closed = value(&term.topology_key);
                    view.closed.extend(closed.map(|it| (term.topology_key.clone(), it.clone())));
                }
                if near.iter().all(|it| it.1.contains(&other)) {
                    for ((term, _), met) in near.iter().zip(&mut met) {
                        let here = value(&term.topology_key).cloned();
                        alone &= here.is_none();
                        met.extend(here);
                    }
                }
            }
        }
        // The first of its kind may go anywhere.
        let first = alone && near.iter().all(|it| it.1.contains(&shape));
        for ((term, _), met) in near.into_iter().zip(met) {
            let key = &term.topology_key;
            let all = || machines.iter().filter_map(|it| it.node.labels.get(key).cloned());
            view.open.push((key.clone(), if first { all().collect() } else { met }));
        }
        view.closed.sort_unstable();
        view.closed.dedup();
    }

    fn spread(&self, pod: &PodShape, shape: usize, machines: &[Machine], view: &mut View) {
        let hard: Vec<_> = pod.topology_spread.iter().filter(|it| it.required).collect();
        for (constraint, selected) in hard.iter().zip(&self.spread[shape]) {
            let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
            for Machine { node, pods, .. } in machines {
                let has_keys = hard.iter().all(|it| node.labels.contains_key(&it.topology_key));
                if !has_keys
                    || constraint.honor_affinity && !is_wanted(pod, node)
                    || constraint.honor_taints && !is_tolerated(pod, node)
                {
                    continue;
                }
                let count = counts.entry(&node.labels[&constraint.topology_key]).or_default();
                *count +=
                    pods.iter().filter(|it| selected.contains(it.0)).map(|it| it.1).sum::<usize>();
            }
            let wanted = constraint.min_domains.and_then(|it| usize::try_from(it).ok());
            let few = wanted.is_some_and(|least| counts.len() < least);
            let least = if few { 0 } else { counts.values().copied().min().unwrap_or(0) };
            let skew = usize::try_from(constraint.max_skew).unwrap_or(1);
            let own = constraint.selector.as_ref().filter(|it| !is_empty(it));
            let own = usize::from(own.is_some_and(|it| selects(it, &self.shapes[shape].labels)));
            let open = counts.into_iter().filter(|it| it.1 + own <= least + skew);
            view.open
                .push((constraint.topology_key.clone(), open.map(|it| it.0.clone()).collect()));
        }
    }
}

/// Whether a term of a carrier selects pods of a shape.
pub(crate) fn is_selected(
    snapshot: &Snapshot,
    carrier: &PodShape,
    term: &PodAffinityTerm,
    other: &PodShape,
) -> bool {
    let own = term.namespaces.is_empty() && term.namespace_selector.is_none();
    let by_label = || {
        let none = Labels::new();
        let labels = snapshot.namespaces.get(&other.namespace).unwrap_or(&none);
        term.namespace_selector.as_ref().is_some_and(|wanted| selects(wanted, labels))
    };
    let namespace = term.namespaces.contains(&other.namespace)
        || by_label()
        || own && carrier.namespace == other.namespace;
    namespace && term.selector.as_ref().is_some_and(|wanted| selects(wanted, &other.labels))
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.iter().flatten().next().is_none()
        && selector.match_expressions.iter().flatten().next().is_none()
}

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let listed = |need: &LabelSelectorRequirement, value: &String| {
        need.values.iter().flatten().any(|listed| listed == value)
    };
    selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().flatten().all(|need| {
            let value = labels.get(&need.key);
            match need.operator.as_str() {
                "In" => value.is_some_and(|value| listed(need, value)),
                "NotIn" => value.is_none_or(|value| !listed(need, value)),
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}
