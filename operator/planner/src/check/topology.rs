//! Topology rules on where all pods are once a plan has been carried out.
//!
//! Only rules that kube-scheduler asks of a pod that the plan places are looked at, and the anti-affinity of those that are there already.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Violation;
use super::labels::Labels;
use super::places::{possible_labels, reference, shape, untolerated};
use crate::plan::Launch;
use crate::snapshot::{Placement, PodAffinityTerm, PodShape, Snapshot, TopologySpread};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Where a pod ends up.
struct Place {
    pod: usize,
    /// Whether the plan puts it there.
    new: bool,
    /// Index into the machines.
    machine: usize,
}

/// Machines that exist and stay, then launches.
struct Machine<'a> {
    labels: Labels,
    to_come: bool,
    taints: &'a [k8s_openapi::api::core::v1::Taint],
    name: String,
}

impl Machine<'_> {
    /// The values that a label may have; none when it is missing.
    fn values(&self, key: &str) -> BTreeSet<String> {
        if let Some(value) = self.labels.certain.get(key) {
            return BTreeSet::from([value.clone()]);
        }
        self.labels.possible.get(key).into_iter().flatten().cloned().collect()
    }

    fn certain(&self, key: &str) -> Option<String> {
        let values = self.values(key);
        (values.len() == 1).then(|| values.into_iter().next()).flatten()
    }
}

pub(super) fn check_topology(
    snapshot: &Snapshot,
    going: &BTreeSet<&str>,
    on_machine: &BTreeMap<String, Vec<usize>>,
    launches: &[&Launch],
    in_launch: &[Vec<usize>],
    found: &mut BTreeSet<Violation>,
) {
    let has_rules = |shape: &PodShape| {
        shape.topology_spread.iter().any(|spread| spread.required)
            || shape.pod_affinity.iter().any(|term| term.weight.is_none())
    };
    if !snapshot.shapes.iter().any(|shape| has_rules(shape)) {
        return;
    }
    let mut machines = Vec::new();
    let mut places = Vec::new();
    let mut leaving: Vec<usize> = Vec::new();
    for (index, node) in snapshot.nodes.iter().enumerate() {
        if node.deleting {
            let on_it = snapshot.pods.iter().enumerate().filter(|(_, pod)| {
                matches!(pod.placement, Placement::Bound(on) if on.0 as usize == index)
                    && !pod.terminating
            });
            leaving.extend(on_it.map(|(pod, _)| pod));
        }
        if node.deleting || going.contains(node.key.as_str()) {
            continue;
        }
        let machine = machines.len();
        machines.push(Machine {
            labels: Labels::of(node),
            to_come: false,
            taints: &node.taints,
            name: node.key.clone(),
        });
        let there = snapshot.pods.iter().enumerate().filter(|(_, pod)| {
            matches!(pod.placement, Placement::Bound(on) if on.0 as usize == index)
                && !pod.terminating
        });
        places.extend(there.map(|(pod, _)| Place { pod, new: false, machine }));
        let more = on_machine.get(&node.key).into_iter().flatten();
        places.extend(more.map(|&pod| Place { pod, new: true, machine }));
    }
    for (number, (launch, pods)) in launches.iter().zip(in_launch).enumerate() {
        let name = format!("launch {number}");
        let mut values = possible_labels(snapshot, launch);
        values.insert(HOSTNAME.to_owned(), BTreeSet::from([format!("\0{name}")]));
        let machine = machines.len();
        machines.push(Machine {
            labels: Labels::of_values(&values),
            to_come: true,
            taints: &launch.taints,
            name,
        });
        places.extend(pods.iter().map(|&pod| Place { pod, new: true, machine }));
    }
    leaving.retain(|pod| places.iter().all(|place: &Place| place.pod != *pod));
    let all = World { snapshot, machines, places, leaving };
    for place in &all.places {
        let carrier = shape(snapshot, place.pod);
        for term in carrier.pod_affinity.iter().filter(|term| term.weight.is_none()) {
            let kept = if term.anti {
                all.keeps_apart(place, carrier, term)
            } else {
                !place.new || all.is_near(place, carrier, term)
            };
            if !kept {
                let kind = if term.anti { "anti-affinity" } else { "affinity" };
                found.insert(
                    all.violation(place, &format!("pod {kind} over {}", term.topology_key)),
                );
            }
        }
        for spread in carrier.topology_spread.iter().filter(|spread| spread.required && place.new) {
            if !all.is_spread(place, carrier, spread) {
                found.insert(all.violation(place, &format!("spread over {}", spread.topology_key)));
            }
        }
    }
}

struct World<'a> {
    snapshot: &'a Snapshot,
    machines: Vec<Machine<'a>>,
    places: Vec<Place>,
    /// Pods on machines that go, for which the plan has no place.
    leaving: Vec<usize>,
}

impl World<'_> {
    fn violation(&self, place: &Place, rule: &str) -> Violation {
        let rule = format!("{rule} on {}", self.machines[place.machine].name);
        Violation::Topology { pod: reference(self.snapshot, place.pod), rule }
    }

    fn matching<'w>(
        &'w self,
        carrier: &'w PodShape,
        term: &'w PodAffinityTerm,
    ) -> impl Iterator<Item = &'w Place> {
        self.places.iter().filter(move |place| {
            let other = shape(self.snapshot, place.pod);
            self.in_namespaces(carrier, term, &other.namespace)
                && selected(term.selector.as_ref(), &other.labels)
        })
    }

    fn in_namespaces(
        &self,
        carrier: &PodShape,
        term: &PodAffinityTerm,
        namespace: &String,
    ) -> bool {
        if term.namespaces.contains(namespace) {
            return true;
        }
        match &term.namespace_selector {
            None => term.namespaces.is_empty() && carrier.namespace == *namespace,
            Some(selector) => {
                let none = BTreeMap::new();
                let labels = self.snapshot.namespaces.get(namespace).unwrap_or(&none);
                selected(Some(selector), labels)
            }
        }
    }

    fn keeps_apart(&self, place: &Place, carrier: &PodShape, term: &PodAffinityTerm) -> bool {
        let mine = self.machines[place.machine].values(&term.topology_key);
        let clashes = |other: &&Place| {
            other.pod != place.pod
                && (other.new || place.new)
                && !self.machines[other.machine].values(&term.topology_key).is_disjoint(&mine)
        };
        !self.matching(carrier, term).any(|other| clashes(&other))
    }

    fn is_near(&self, place: &Place, carrier: &PodShape, term: &PodAffinityTerm) -> bool {
        let mine = self.machines[place.machine].certain(&term.topology_key);
        if mine.is_none() {
            return false;
        }
        let near = self.matching(carrier, term).any(|other| {
            other.pod != place.pod
                && self.machines[other.machine].certain(&term.topology_key) == mine
        });
        let first = || {
            let itself = self.matching(carrier, term).any(|other| other.pod == place.pod);
            itself && self.matching(carrier, term).all(|other| other.pod == place.pod)
        };
        near || first()
    }

    fn is_spread(&self, place: &Place, carrier: &PodShape, spread: &TopologySpread) -> bool {
        let Some(mine) = self.machines[place.machine].certain(&spread.topology_key) else {
            return false;
        };
        // Unknown while it depends on the labels that a machine to come gets.
        let eligible = |machine: &Machine<'_>| {
            if spread.honor_taints && untolerated(machine.taints, &carrier.tolerations).is_some() {
                return Some(false);
            }
            if spread.honor_affinity { machine.labels.may_suit(carrier) } else { Some(true) }
        };
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        let existing = self.machines.iter().filter(|machine| !machine.to_come);
        for machine in existing.filter(|machine| eligible(machine) == Some(true)) {
            if let Some(value) = machine.certain(&spread.topology_key) {
                counts.entry(value).or_default();
            }
        }
        counts.entry(mine.clone()).or_default();
        let selects = |pod: &PodShape| {
            pod.namespace == carrier.namespace && selected(spread.selector.as_ref(), &pod.labels)
        };
        // Where these will be is not said.
        if self.leaving.iter().any(|&pod| selects(shape(self.snapshot, pod))) {
            return true;
        }
        for other in &self.places {
            let pod = shape(self.snapshot, other.pod);
            if !selects(pod) {
                continue;
            }
            // Pods with other rules may come after this one and need not care for it.
            if other.new && !pod.topology_spread.contains(spread) {
                return true;
            }
            let machine = &self.machines[other.machine];
            let counted = match eligible(machine) {
                Some(counted) => counted,
                None if machine.to_come => return true,
                None => false,
            };
            if let Some(value) = machine.certain(&spread.topology_key).filter(|_| counted) {
                *counts.entry(value).or_default() += 1;
            }
        }
        let few = spread
            .min_domains
            .is_some_and(|least| i64::try_from(counts.len()).is_ok_and(|n| n < i64::from(least)));
        let least = if few { 0 } else { counts.values().copied().min().unwrap_or(0) };
        counts[&mine] - least <= i64::from(spread.max_skew)
    }
}

fn selected(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else { return false };
    let exact = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    exact.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|expression| {
            let value = labels.get(&expression.key);
            let listed =
                |value: &String| expression.values.iter().flatten().any(|known| known == value);
            match expression.operator.as_str() {
                "In" => value.is_some_and(listed),
                "NotIn" => value.is_none_or(|value| !listed(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
