//! Topology rules on where all pods are once a plan has been carried out.
//!
//! Only rules that kube-scheduler asks of a pod that the plan places are looked at, and the
//! anti-affinity of those that are there already.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Violation;
use super::labels::Labels;
use super::places::{possible_labels, untolerated};
use super::pods::{reference, shape};
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
    /// Whether the pod only keeps room for others.
    is_virtual: bool,
}

impl Place {
    /// Whether kube-scheduler knows of another pod when it binds this one. It knows no virtual
    /// pods; these come last.
    fn knows(&self, other: &Self) -> bool {
        self.is_virtual || !other.is_virtual
    }
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
    let place = |pod: usize, new: bool, machine: usize| {
        let is_virtual = snapshot.pods[pod].buffer.is_some();
        Place { pod, new, machine, is_virtual }
    };
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
        places.extend(there.map(|(pod, _)| place(pod, false, machine)));
        let more = on_machine.get(&node.key).into_iter().flatten();
        places.extend(more.map(|&pod| place(pod, true, machine)));
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
        places.extend(pods.iter().map(|&pod| place(pod, true, machine)));
    }
    let placed: BTreeSet<usize> = places.iter().map(|place: &Place| place.pod).collect();
    leaving.retain(|pod| !placed.contains(pod));
    let all = Placements { snapshot, machines, places, leaving };
    for (place, key) in all.lonely() {
        found.insert(all.violation(place, &format!("pod affinity over {key}")));
    }
    for place in &all.places {
        let carrier = shape(snapshot, place.pod);
        for term in carrier.pod_affinity.iter().filter(|term| term.anti && term.weight.is_none()) {
            if !all.keeps_apart(place, carrier, term) {
                let rule = format!("pod anti-affinity over {}", term.topology_key);
                found.insert(all.violation(place, &rule));
            }
        }
        for spread in carrier.topology_spread.iter().filter(|spread| spread.required && place.new) {
            if !all.is_spread(place, carrier, spread) {
                found.insert(all.violation(place, &format!("spread over {}", spread.topology_key)));
            }
        }
    }
}

struct Placements<'a> {
    snapshot: &'a Snapshot,
    machines: Vec<Machine<'a>>,
    places: Vec<Place>,
    /// Pods on machines that go, for which the plan has no place.
    leaving: Vec<usize>,
}

/// In so many orders pods are let come, one of which may suit all of them.
const ORDERS: u64 = 64;

/// With more pods than this that ask for others there is one order.
const FEW: usize = 500;

/// Pods that come one after the other.
#[derive(Clone, Default)]
struct Arrivals<'w> {
    there: Vec<&'w Place>,
    /// Those of `there` that were there before any that may be the first of its kind.
    before: Vec<&'w Place>,
    /// Those that have not come, with their required terms of affinity.
    left: Vec<(&'w Place, Vec<&'w PodAffinityTerm>)>,
}

impl Placements<'_> {
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

    /// Whether a pod may be where it is in some order in which pods come. So those that come with
    /// it are taken to come after it where that helps, unless the same rule binds them; and those
    /// elsewhere are taken to be there already.
    fn is_spread(&self, place: &Place, carrier: &PodShape, spread: &TopologySpread) -> bool {
        let key = &spread.topology_key;
        let Some(mine) = self.machines[place.machine].certain(key) else {
            return self.spreads_anywhere(place, carrier, spread);
        };
        // Unknown while it depends on the labels that a machine to come gets.
        let hard = || carrier.topology_spread.iter().filter(|spread| spread.required);
        let eligible: Vec<Option<bool>> = self
            .machines
            .iter()
            .map(|machine| {
                if hard().any(|spread| machine.values(&spread.topology_key).is_empty())
                    || spread.honor_taints
                        && untolerated(machine.taints, &carrier.tolerations).is_some()
                {
                    Some(false)
                } else if spread.honor_affinity {
                    machine.labels.may_meet_affinity(carrier)
                } else {
                    Some(true)
                }
            })
            .collect();
        // A domain counts when a machine in it certainly does: one that exists, or one that comes
        // with pods.
        let certain = |machine: usize| {
            let domain = self.machines[machine].certain(key);
            domain.filter(|_| eligible[machine] == Some(true))
        };
        let there = (0..self.machines.len()).filter(|&machine| !self.machines[machine].to_come);
        let selects = |pod: &PodShape| spreads(carrier, spread, pod);
        let counted = |other: &Place| {
            let pod = shape(self.snapshot, other.pod);
            eligible[other.machine] != Some(false) && selects(pod) && place.knows(other)
        };
        let others: Vec<&Place> = self.places.iter().filter(|other| counted(other)).collect();
        let mut counts: BTreeMap<String, i64> = there
            .chain(others.iter().map(|other| other.machine))
            .filter_map(certain)
            .chain([mine.clone()])
            .map(|domain| (domain, 0))
            .collect();
        let possible = self.machines.iter().zip(&eligible);
        let possible = possible.filter(|(_, eligible)| **eligible != Some(false));
        let domains: BTreeSet<String> =
            possible.flat_map(|(machine, _)| machine.values(key)).collect();
        // Bound by the same rule, which sees the same nodes.
        let alike = |pod: &PodShape| {
            pod.topology_spread == carrier.topology_spread
                && pod.node_selector == carrier.node_selector
                && pod.required_affinity == carrier.required_affinity
                && pod.tolerations == carrier.tolerations
        };
        let mut here = 0;
        for other in others {
            let bound = !other.new || alike(shape(self.snapshot, other.pod));
            here += i64::from(bound && certain(other.machine).as_ref() == Some(&mine));
            for value in self.machines[other.machine].values(key) {
                if let Some(count) = counts.get_mut(&value) {
                    *count += 1;
                }
            }
        }
        let few = spread
            .min_domains
            .is_some_and(|least| i64::try_from(domains.len()).is_ok_and(|n| n < i64::from(least)));
        // Where these will be is not said; at best in the domain that has the fewest.
        let leaving = self.leaving.iter().filter(|&&pod| selects(shape(self.snapshot, pod)));
        let leaving = i64::try_from(leaving.count()).unwrap_or(i64::MAX);
        let least = if few { 0 } else { counts.values().copied().min().unwrap_or(0) + leaving };
        here - least <= i64::from(spread.max_skew)
    }

    /// Whether a pod is within the skew in whichever domain its machine will be: there are no more
    /// pods that count, wherever they are.
    fn spreads_anywhere(&self, place: &Place, carrier: &PodShape, spread: &TopologySpread) -> bool {
        let others = self.places.iter().filter(|other| place.knows(other));
        let pods = others.map(|place| place.pod).chain(self.leaving.iter().copied());
        let counted = pods.filter(|&pod| spreads(carrier, spread, shape(self.snapshot, pod)));
        let counted = i64::try_from(counted.count()).unwrap_or(i64::MAX);
        !self.machines[place.machine].values(&spread.topology_key).is_empty()
            && counted <= i64::from(spread.max_skew)
    }

    /// Pods that the plan places and that are not near enough to others, whatever the order in
    /// which pods come, with a topology key.
    ///
    /// kube-scheduler counts a pod only if it matches all required terms, and lets a pod that
    /// matches its own go anywhere as long as no pod is counted.
    fn lonely(&self) -> Vec<(&Place, &str)> {
        let wanted = |place: &Place| -> Vec<&PodAffinityTerm> {
            let terms = shape(self.snapshot, place.pod).pod_affinity.iter();
            terms.filter(|term| !term.anti && term.weight.is_none()).collect()
        };
        // Those without such terms may come before or after, as it suits the others.
        let (mut flexible, mut arrivals) = (Vec::new(), Arrivals::default());
        for place in &self.places {
            match wanted(place) {
                _ if !place.new => {
                    arrivals.there.push(place);
                    arrivals.before.push(place);
                }
                terms if terms.is_empty() => flexible.push(place),
                terms => arrivals.left.push((place, terms)),
            }
        }
        let orders = if arrivals.left.len() > FEW { 1 } else { ORDERS };
        let mut best: Option<Arrivals<'_>> = None;
        for order in 0..orders {
            let end = self.arrive(arrivals.clone(), &flexible, order);
            if best.as_ref().is_none_or(|best| end.left.len() < best.left.len()) {
                best = Some(end);
            }
            if best.as_ref().is_some_and(|best| best.left.is_empty()) {
                break;
            }
        }
        let Arrivals { there, left, .. } = best.unwrap_or_default();
        let all = there.iter().chain(&flexible);
        let key = |place: &Place, terms: &[_]| self.far_from(place, terms, &all);
        left.iter().map(|(place, terms)| (*place, key(place, terms).unwrap_or_default())).collect()
    }

    /// Lets pods come one after the other as long as any may. Of those that may be the first of
    /// their kind, that comes first which the fewest others ask for; in all orders but the first
    /// one, one of them at random.
    fn arrive<'w>(
        &'w self,
        arrivals: Arrivals<'w>,
        flexible: &[&'w Place],
        order: u64,
    ) -> Arrivals<'w> {
        let Arrivals { mut there, mut before, mut left } = arrivals;
        let mut random = order;
        loop {
            let waiting = left.len();
            left.retain(|(place, terms)| {
                let far = self.far_from(place, terms, &there.iter().chain(flexible)).is_some();
                if !far {
                    there.push(*place);
                }
                far
            });
            if left.len() < waiting {
                continue;
            }
            let first = |(place, terms): &(&Place, Vec<&PodAffinityTerm>)| {
                self.matches(place, place, terms)
                    && terms.iter().all(|term| self.certain(place, term).is_some())
                    && !before
                        .iter()
                        .any(|other| place.knows(other) && self.counts(place, other, terms))
            };
            let asked = |place: &Place| {
                left.iter().filter(|(by, terms)| self.matches(by, place, terms)).count()
            };
            let may: Vec<usize> = (0..left.len()).filter(|&at| first(&left[at])).collect();
            let next = if order == 0 {
                may.iter().copied().min_by_key(|&at| asked(left[at].0))
            } else {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(order | 1);
                let among = u64::try_from(may.len().max(1)).unwrap_or(1);
                may.get(usize::try_from((random >> 33) % among).unwrap_or(0)).copied()
            };
            let Some(at) = next else { return Arrivals { there, before, left } };
            let (place, _) = left.remove(at);
            there.push(place);
            before.push(place);
        }
    }

    /// The topology key of a term of which a pod has none of some others in its domain.
    fn far_from<'t, 'o>(
        &self,
        place: &Place,
        terms: &[&'t PodAffinityTerm],
        others: &(impl Iterator<Item = &'o &'o Place> + Clone),
    ) -> Option<&'t str> {
        let far = terms.iter().find(|term| {
            let mine = self.certain(place, term);
            mine.is_none()
                || !others.clone().any(|other| {
                    other.pod != place.pod
                        && place.knows(other)
                        && self.certain(other, term) == mine
                        && self.matches(place, other, terms)
                })
        });
        far.map(|term| &*term.topology_key)
    }

    fn certain(&self, place: &Place, term: &PodAffinityTerm) -> Option<String> {
        self.machines[place.machine].certain(&term.topology_key)
    }

    /// Whether a pod matches all terms of another.
    fn matches(&self, by: &Place, place: &Place, terms: &[&PodAffinityTerm]) -> bool {
        let (carrier, other) = (shape(self.snapshot, by.pod), shape(self.snapshot, place.pod));
        terms.iter().all(|term| {
            self.in_namespaces(carrier, term, &other.namespace)
                && selected(term.selector.as_ref(), &other.labels)
        })
    }

    /// Whether a pod counts for the terms of another: it matches them all, and its machine has one
    /// of their labels.
    fn counts(&self, by: &Place, place: &Place, terms: &[&PodAffinityTerm]) -> bool {
        let labelled = |term: &&PodAffinityTerm| {
            !self.machines[place.machine].values(&term.topology_key).is_empty()
        };
        terms.iter().any(labelled) && self.matches(by, place, terms)
    }
}

/// Whether a spread constraint counts a pod.
fn spreads(carrier: &PodShape, spread: &TopologySpread, pod: &PodShape) -> bool {
    let empty = |selector: &LabelSelector| {
        selector.match_labels.iter().flatten().count() == 0
            && selector.match_expressions.iter().flatten().count() == 0
    };
    pod.namespace == carrier.namespace
        && selected(spread.selector.as_ref().filter(|it| !empty(it)), &pod.labels)
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
