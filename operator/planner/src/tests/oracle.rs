//! The planner and the checker before a judge that shares nothing with either: what
//! kube-scheduler's filters are documented to do, asked pod by pod, node by node, in every order.
//! The clusters are small enough to try everything.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use proptest::prelude::*;

use super::behaviour::{HOSTNAME, ZONE};
use super::fixtures::*;
use crate::plan::{Nomination, PLAN_VERSION, Plan};
use crate::policy::Policy;
use crate::snapshot::{
    Node, Operator, Placement, PodAffinityTerm, PodShape, Requirement, Snapshot, TopologySpread,
};
use crate::testing::{Builder, apply};
use crate::{check, provision};

const RACK: &str = "example.com/rack";

type Labels = BTreeMap<String, String>;

/// A cluster as kube-scheduler sees it: nodes, and the pods that are bound to each.
struct Cluster<'a> {
    nodes: Vec<&'a Node>,
    bound: Vec<Vec<&'a PodShape>>,
    namespaces: &'a BTreeMap<String, BTreeMap<String, String>>,
}

impl<'a> Cluster<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let mut bound = vec![Vec::new(); snapshot.nodes.len()];
        for pod in &snapshot.pods {
            if let Placement::Bound(node) = pod.placement {
                bound[node.0 as usize].push(&*snapshot.shapes[pod.shape.0 as usize]);
            }
        }
        let nodes = snapshot.nodes.iter().collect();
        Self { nodes, bound, namespaces: &snapshot.namespaces }
    }

    /// Whether every filter passes a node for a pod.
    fn admits(&self, pod: &PodShape, node: usize) -> bool {
        self.has_room(pod, node)
            && required(pod, &self.nodes[node].labels)
            && tolerated(pod, self.nodes[node])
            && self.near(pod, node)
            && self.apart(pod, node)
            && self.even(pod, node)
    }

    fn has_room(&self, pod: &PodShape, node: usize) -> bool {
        let all = || self.bound[node].iter().copied().chain([pod]);
        let cpu: i64 = all().map(|pod| pod.requests.cpu).sum();
        let memory: i64 = all().map(|pod| pod.requests.memory).sum();
        let room = &self.nodes[node].allocatable;
        cpu <= room.cpu
            && memory <= room.memory
            && i64::try_from(all().count()).is_ok_and(|n| n <= room.pods)
    }

    /// Every pod that is bound, with the labels of its node.
    fn everywhere(&self) -> impl Iterator<Item = (&'a PodShape, &'a Labels)> {
        let nodes = self.nodes.iter().zip(&self.bound);
        nodes.flat_map(|(node, pods)| pods.iter().map(|&pod| (pod, &node.labels)))
    }

    fn matches(&self, carrier: &PodShape, term: &PodAffinityTerm, pod: &PodShape) -> bool {
        let own = term.namespaces.is_empty() && term.namespace_selector.is_none();
        let listed = term.namespaces.contains(&pod.namespace);
        let selected = || {
            let labels = self.namespaces.get(&pod.namespace).cloned().unwrap_or_default();
            term.namespace_selector.as_ref().is_some_and(|wanted| selects(wanted, &labels))
        };
        (listed || selected() || own && carrier.namespace == pod.namespace)
            && term.selector.as_ref().is_some_and(|wanted| selects(wanted, &pod.labels))
    }

    /// InterPodAffinity: the pod's own affinity.
    fn near(&self, pod: &PodShape, node: usize) -> bool {
        let terms: Vec<_> =
            pod.pod_affinity.iter().filter(|term| !term.anti && term.weight.is_none()).collect();
        if terms.is_empty() {
            return true;
        }
        // Pairs of topology key and value, each with how many pods that match all terms.
        let mut counted: BTreeSet<(&str, &str)> = BTreeSet::new();
        for (other, labels) in self.everywhere() {
            if terms.iter().all(|term| self.matches(pod, term, other)) {
                for term in &terms {
                    let value = labels.get(&term.topology_key);
                    counted.extend(value.map(|value| (term.topology_key.as_str(), value.as_str())));
                }
            }
        }
        let labels = &self.nodes[node].labels;
        let Some(values) = terms
            .iter()
            .map(|term| {
                Some((term.topology_key.as_str(), labels.get(&term.topology_key)?.as_str()))
            })
            .collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        values.iter().all(|pair| counted.contains(pair))
            || counted.is_empty() && terms.iter().all(|term| self.matches(pod, term, pod))
    }

    /// InterPodAffinity: anti-affinity of the pod and of those that are there.
    fn apart(&self, pod: &PodShape, node: usize) -> bool {
        let mine = &self.nodes[node].labels;
        let same = |key: &String, theirs: &Labels| {
            mine.get(key).is_some_and(|value| theirs.get(key) == Some(value))
        };
        let clash = |carrier: &PodShape, other: &PodShape, theirs: &Labels| {
            let terms = carrier.pod_affinity.iter();
            let mut terms = terms.filter(|term| term.anti && term.weight.is_none());
            terms.any(|term| same(&term.topology_key, theirs) && self.matches(carrier, term, other))
        };
        !self
            .everywhere()
            .any(|(other, theirs)| clash(pod, other, theirs) || clash(other, pod, theirs))
    }

    /// PodTopologySpread.
    fn even(&self, pod: &PodShape, node: usize) -> bool {
        let hard: Vec<_> = pod.topology_spread.iter().filter(|spread| spread.required).collect();
        let has_keys =
            |labels: &Labels| hard.iter().all(|it| labels.contains_key(&it.topology_key));
        hard.iter().all(|spread| {
            let selected = |other: &PodShape| {
                spread.selector.as_ref().is_some_and(|wanted| selects(wanted, &other.labels))
            };
            let nothing = spread.selector.as_ref().is_some_and(|wanted| {
                wanted.match_labels.iter().flatten().count() == 0
                    && wanted.match_expressions.iter().flatten().count() == 0
            });
            let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
            for (other, pods) in self.nodes.iter().zip(&self.bound) {
                if !has_keys(&other.labels)
                    || spread.honor_affinity && !required(pod, &other.labels)
                    || spread.honor_taints && !tolerated(pod, other)
                {
                    continue;
                }
                let count = counts.entry(&other.labels[&spread.topology_key]).or_default();
                for other in pods {
                    let counted = !nothing && other.namespace == pod.namespace && selected(other);
                    *count += i32::from(counted);
                }
            }
            let Some(value) = self.nodes[node].labels.get(&spread.topology_key) else {
                return false;
            };
            let few = spread
                .min_domains
                .is_some_and(|least| i32::try_from(counts.len()).is_ok_and(|n| n < least));
            let least = if few { 0 } else { counts.values().copied().min().unwrap_or(i32::MAX) };
            let here = counts.get(value.as_str()).copied().unwrap_or_default();
            here.saturating_add(i32::from(selected(pod))).saturating_sub(least) <= spread.max_skew
        })
    }
}

/// NodeAffinity: selector and required terms.
fn required(pod: &PodShape, labels: &Labels) -> bool {
    let meets = |need: &Requirement| match need.operator {
        Operator::In => labels.get(&need.key).is_some_and(|value| need.values.contains(value)),
        Operator::NotIn => labels.get(&need.key).is_none_or(|value| !need.values.contains(value)),
        Operator::Exists => labels.contains_key(&need.key),
        Operator::DoesNotExist => !labels.contains_key(&need.key),
        other => panic!("operator {other:?} is not generated"),
    };
    pod.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        && (pod.required_affinity.is_empty()
            || pod.required_affinity.iter().any(|term| term.iter().all(meets)))
}

/// TaintToleration: of the only kind that is generated.
fn tolerated(pod: &PodShape, node: &Node) -> bool {
    let by = |key: &str| pod.tolerations.iter().any(|it| it.key.as_deref() == Some(key));
    node.taints.iter().all(|taint| taint.effect == "PreferNoSchedule" || by(&taint.key))
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

/// Whether there is an order in which kube-scheduler binds pods to the nodes given.
fn is_reachable(snapshot: &Snapshot, places: &[(usize, usize)]) -> bool {
    let shape = |pod: usize| &*snapshot.shapes[snapshot.pods[pod].shape.0 as usize];
    let mut reached = vec![false; 1 << places.len()];
    reached[0] = true;
    for done in 0..reached.len() {
        if !reached[done] {
            continue;
        }
        let mut cluster = Cluster::of(snapshot);
        for (at, &(pod, node)) in places.iter().enumerate() {
            if done & (1 << at) != 0 {
                cluster.bound[node].push(shape(pod));
            }
        }
        for (at, &(pod, node)) in places.iter().enumerate() {
            if done & (1 << at) == 0 && cluster.admits(shape(pod), node) {
                reached[done | (1 << at)] = true;
            }
        }
    }
    reached.last().copied().unwrap_or(true)
}

fn any_selector() -> impl Strategy<Value = LabelSelector> {
    let label = |key: &str, value: &str| LabelSelector {
        match_labels: Some([(key.to_owned(), value.to_owned())].into()),
        ..LabelSelector::default()
    };
    let expression = |operator: &str, values: &[&str]| LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "app".to_owned(),
            operator: operator.to_owned(),
            values: Some(values.iter().map(|&value| value.to_owned()).collect()),
        }]),
        ..LabelSelector::default()
    };
    prop::sample::select(vec![
        label("app", "x"),
        label("app", "x"),
        label("app", "y"),
        label("tier", "1"),
        expression("In", &["x", "y"]),
        expression("NotIn", &["x"]),
        LabelSelector::default(),
    ])
}

#[derive(Clone, Debug)]
enum Rule {
    Pods(PodAffinityTerm),
    Spread(TopologySpread),
}

fn any_rule() -> impl Strategy<Value = Rule> {
    (
        prop::sample::select(vec![ZONE, ZONE, HOSTNAME, RACK]),
        any_selector(),
        0..6_u8,
        prop::option::weighted(0.2, 1..4_i32),
        (0..4_u8, 0..6_u8, any::<bool>(), any::<bool>()),
    )
        .prop_map(|(key, selector, kind, number, (soft, namespaces, affinity, taints))| {
            if kind < 4 {
                return Rule::Pods(PodAffinityTerm {
                    anti: kind < 2,
                    weight: (soft == 0).then(|| number.unwrap_or(1)),
                    topology_key: key.to_owned(),
                    selector: Some(selector),
                    namespaces: if namespaces == 0 { vec!["other".to_owned()] } else { vec![] },
                    namespace_selector: (namespaces == 1).then(LabelSelector::default),
                });
            }
            Rule::Spread(TopologySpread {
                topology_key: key.to_owned(),
                max_skew: i32::from(kind) - 3,
                min_domains: number.filter(|_| soft > 0),
                required: soft > 0,
                selector: Some(selector),
                honor_affinity: affinity,
                honor_taints: taints,
            })
        })
}

fn any_shape() -> impl Strategy<Value = PodShape> {
    (
        prop::sample::select(vec!["x", "y", "z"]),
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::collection::vec(any_rule(), 0..4),
        prop::option::weighted(0.3, prop::sample::select(vec!["zone-a", "zone-b"])),
        prop::option::weighted(0.2, prop::sample::select(vec!["r1", "r2"])),
        any::<bool>(),
    )
        .prop_map(|(app, tier, elsewhere, rules, zone, not_rack, tolerates)| {
            let mut shape = shape(600, GI / 4);
            if elsewhere {
                "other".clone_into(&mut shape.namespace);
            }
            shape.labels.insert("app".to_owned(), app.to_owned());
            if tier {
                shape.labels.insert("tier".to_owned(), "1".to_owned());
            }
            for rule in rules {
                match rule {
                    Rule::Pods(term) => shape.pod_affinity.push(term),
                    // The API server refuses two with the same key.
                    Rule::Spread(spread)
                        if shape.topology_spread.iter().all(|known| {
                            (&known.topology_key, known.required)
                                != (&spread.topology_key, spread.required)
                        }) =>
                    {
                        shape.topology_spread.push(spread);
                    }
                    Rule::Spread(_) => {}
                }
            }
            shape.node_selector.extend(zone.map(|zone| (ZONE.to_owned(), zone.to_owned())));
            shape
                .required_affinity
                .extend(not_rack.map(|rack| vec![need(RACK, Operator::NotIn, &[rack])]));
            shape.tolerations.extend(tolerates.then(|| tolerate("dedicated")));
            shape
        })
}

fn any_node(name: &'static str) -> impl Strategy<Value = Node> {
    (
        prop::sample::select(vec!["zone-a", "zone-b"]),
        prop::option::of(prop::sample::select(vec!["r1", "r2"])),
        prop::option::weighted(0.3, prop::sample::select(vec!["NoSchedule", "PreferNoSchedule"])),
    )
        .prop_map(move |(zone, rack, effect)| {
            let mut node = node(name, "default", "m.large", zone);
            node.labels.extend(rack.map(|rack| (RACK.to_owned(), rack.to_owned())));
            node.taints.extend(effect.map(|effect| taint("dedicated", effect)));
            node
        })
}

/// Three nodes, a few pods on them, up to four that wait; some NodePools to launch from.
fn any_cluster(launching: bool) -> impl Strategy<Value = Snapshot> {
    (
        (any_node("n1"), any_node("n2"), any_node("n3")),
        prop::collection::vec((any_shape(), 0..3_usize), 0..4),
        prop::collection::vec(any_shape(), 1..5),
        prop::option::of(prop::sample::select(vec!["r1", "r3"])),
    )
        .prop_map(move |((n1, n2, n3), bound, waiting, rack)| {
            let names = ["n1", "n2", "n3"];
            let mut world = Builder::new(catalog(kinds())).node(n1).node(n2).node(n3);
            if launching {
                let mut racks = pool("racks");
                racks.template.labels.extend(rack.map(|rack| (RACK.to_owned(), rack.to_owned())));
                world = world.pool(racks);
            }
            for (number, (shape, on)) in bound.into_iter().enumerate() {
                world = world.pod(&format!("old-{number}"), shape, Some(names[on]));
            }
            for (number, shape) in waiting.into_iter().enumerate() {
                world = world.pending(&format!("new-{number}"), shape);
            }
            let mut snapshot = world.build();
            for namespace in ["default", "other"] {
                snapshot.namespaces.insert(namespace.to_owned(), BTreeMap::new());
            }
            snapshot
        })
}

fn waiting(snapshot: &Snapshot) -> Vec<usize> {
    let pods = 0..snapshot.pods.len();
    pods.filter(|&pod| snapshot.pods[pod].placement == Placement::Unschedulable).collect()
}

/// Where pods have come that waited before.
fn arrived(before: &Snapshot, after: &Snapshot) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for pod in waiting(before) {
        if let Placement::Bound(node) = after.pods[pod].placement {
            places.push((pod, node.0 as usize));
        }
    }
    places
}

proptest! {
    #[test]
    fn kube_scheduler_binds_what_is_planned_and_leaves_what_waits(snapshot in any_cluster(false)) {
        let plan = provision(&snapshot, &Policy::default(), now(), 1, &());
        prop_assert_eq!(check(&snapshot, &plan), vec![]);
        let after = apply(&snapshot, &plan);
        let places = arrived(&snapshot, &after);
        prop_assert!(is_reachable(&snapshot, &places), "{:?}", plan.nominations);
        let cluster = Cluster::of(&after);
        for pod in waiting(&after) {
            let shape = &after.shapes[after.pods[pod].shape.0 as usize];
            // Hosts are planned for as if one more could always come.
            if shape.topology_spread.iter().any(|spread| spread.topology_key == HOSTNAME) {
                continue;
            }
            let open = (0..after.nodes.len()).find(|&node| cluster.admits(shape, node));
            prop_assert_eq!(open, None, "{} has a place: {:?}", &after.pods[pod].name, plan.report.pods);
        }
    }

    #[test]
    fn kube_scheduler_binds_pods_to_machines_as_launched(snapshot in any_cluster(true)) {
        let plan = provision(&snapshot, &Policy::default(), now(), 1, &());
        prop_assert_eq!(check(&snapshot, &plan), vec![]);
        let after = apply(&snapshot, &plan);
        // The machines are there before the pods.
        let mut before = after.clone();
        for pod in waiting(&snapshot) {
            before.pods[pod].placement = Placement::Unschedulable;
        }
        prop_assert!(is_reachable(&before, &arrived(&snapshot, &after)), "{:?}", plan);
    }

    #[test]
    fn the_checker_accepts_what_kube_scheduler_can_do_and_finds_what_it_would_not(snapshot in any_cluster(false)) {
        let pods = waiting(&snapshot);
        let choices = snapshot.nodes.len() + 1;
        for choice in 0..choices.pow(u32::try_from(pods.len()).unwrap()) {
            let mut rest = choice;
            let mut places = Vec::new();
            for &pod in &pods {
                if !rest.is_multiple_of(choices) {
                    places.push((pod, rest % choices - 1));
                }
                rest /= choices;
            }
            let nominations = places.iter().map(|&(pod, node)| Nomination {
                pod: crate::launch::pod_ref(&snapshot.pods[pod]),
                node: snapshot.nodes[node].key.clone(),
            });
            let plan = Plan { version: PLAN_VERSION, nominations: nominations.collect(), ..Plan::default() };
            let found = check(&snapshot, &plan);
            let reachable = is_reachable(&snapshot, &places);
            prop_assert!(found.is_empty() || !reachable, "{:?} for {:?}", found, places);
            // In what order several come is not in a plan; the checker allows each the order that
            // suits it.
            prop_assert!(reachable || places.len() > 1 || !found.is_empty(), "accepted: {:?}", places);
        }
    }
}
