//! Whether pods that are expected on a machine can still get there.
//!
//! Pods that are on their way to a machine count as if they were bound to it. A plan brings pods
//! with affinity to each other into one domain; when kube-scheduler binds the first of them
//! elsewhere, the machine that the others are expected on is out of their reach. They must not
//! vouch for each other then: whichever is planned anew would find the others still expected in the
//! first domain and join them there, and so would they, again and again.
//!
//! So a pod with required affinity counts only where what is bound lets it in, or others that
//! count.

use fixedbitset::FixedBitSet;
use indexmap::{IndexMap, IndexSet};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use super::selectors::{ByLabel, Names, Scope, Selectable};
use crate::id_set::{IdSet, inverse};
use crate::label;
use crate::snapshot::{Node, Operator, Placement, Snapshot};

/// So many kinds of affinity are looked at, the first ones. Each compares all pods.
const KINDS: usize = 256;

/// So many rounds are made, each of which may let in pods that follow those of the one before.
const ROUNDS: usize = 16;

/// What pods follow that have the same terms of required affinity: other pods, into their domains.
struct Leaders {
    /// The shapes of the pods that match all terms.
    selects: IdSet,
    /// Where some of them are, by topology key.
    found: SmallVec<[(usize, FixedBitSet); 1]>,
    /// Whether there are any.
    exist: bool,
}

/// The pods among `expected` that can't get to the machine that they are bound to in the snapshot,
/// because of their required affinity to other pods. `expected` are the pods, as indices, that are
/// not bound to it in the cluster. So are the answers, ascending.
#[must_use]
pub fn out_of_reach(snapshot: &Snapshot, expected: &[usize]) -> Vec<usize> {
    let follows = |pod: &usize| {
        let shape = &snapshot.shapes[snapshot.pods[*pod].shape.0 as usize];
        shape.required_pod_affinity().next().is_some()
    };
    let mut followers: Vec<usize> = expected.iter().copied().filter(follows).collect();
    if followers.is_empty() {
        return followers;
    }
    let mut known = Followed::new(snapshot, &followers);
    followers.retain(|pod| known.by_shape.contains_key(&snapshot.pods[*pod].shape.0));
    followers.sort_unstable();
    let mut follows = FixedBitSet::with_capacity(snapshot.pods.len());
    follows.extend(followers.iter().copied());
    for pod in (0..snapshot.pods.len()).filter(|pod| !follows.contains(*pod)) {
        known.count(pod);
    }
    for _ in 0..ROUNDS {
        let before = followers.len();
        followers.retain(|&pod| {
            let comes = known.lets_in(pod);
            if comes {
                known.count(pod);
            }
            !comes
        });
        if followers.is_empty() || followers.len() == before {
            break;
        }
    }
    followers
}

/// What pods follow.
struct Followed<'s> {
    snapshot: &'s Snapshot,
    leaders: Vec<Leaders>,
    /// By the shape that follows.
    by_shape: FxHashMap<u32, usize>,
    /// The leaders that a shape is among.
    among: Vec<IdSet>,
    /// The machines' domains by topology key; `None` where it is open.
    domains: Vec<Vec<Option<usize>>>,
}

impl<'s> Followed<'s> {
    fn new(snapshot: &'s Snapshot, followers: &[usize]) -> Self {
        let mut names = Names::new(snapshot);
        let mut keys: IndexSet<&str, FxBuildHasher> = IndexSet::default();
        let mut kinds: IndexMap<(Scope, Vec<usize>), (), FxBuildHasher> = IndexMap::default();
        let mut by_shape = FxHashMap::default();
        for shape in followers.iter().map(|&pod| snapshot.pods[pod].shape.0) {
            if by_shape.contains_key(&shape) || kinds.len() == KINDS {
                continue;
            }
            let of = &snapshot.shapes[shape as usize];
            let scopes =
                of.required_pod_affinity().map(|term| Scope::of_term(of, term, &mut names));
            let Some(scope) = scopes.reduce(Scope::and) else { continue };
            let mut about: Vec<usize> = of
                .required_pod_affinity()
                .map(|term| keys.insert_full(&term.topology_key).0)
                .collect();
            about.sort_unstable();
            about.dedup();
            by_shape.insert(shape, kinds.insert_full((scope, about), ()).0);
        }
        let shapes = snapshot.shapes.iter();
        let pods: Vec<_> = shapes.map(|shape| Selectable::new(shape, &mut names)).collect();
        let by_label = ByLabel::new(&pods);
        let leaders: Vec<Leaders> = kinds
            .into_keys()
            .map(|(scope, about)| Leaders {
                selects: by_label.selected(&pods, &scope),
                found: about.into_iter().map(|key| (key, FixedBitSet::new())).collect(),
                exist: false,
            })
            .collect();
        let sets = leaders.iter().map(|leaders| &leaders.selects).enumerate();
        let among = inverse(sets, snapshot.shapes.len());
        let domains = keys.iter().map(|key| domains(&snapshot.nodes, key)).collect();
        Self { snapshot, leaders, by_shape, among, domains }
    }

    /// Counts a pod where it is bound.
    fn count(&mut self, pod: usize) {
        let pod = &self.snapshot.pods[pod];
        let Placement::Bound(node) = pod.placement else { return };
        for id in self.among[pod.shape.0 as usize].iter() {
            let leaders = &mut self.leaders[id];
            leaders.exist = true;
            for (key, found) in &mut leaders.found {
                if let Some(domain) = self.domains[*key][node.0 as usize] {
                    found.grow_and_insert(domain);
                }
            }
        }
    }

    /// Whether a pod can get to its machine as far as those that are counted go: next to some that
    /// it follows, or as the first one of its own kind. Nothing is held against a machine of which
    /// it is open where it will be.
    fn lets_in(&self, pod: usize) -> bool {
        let pod = &self.snapshot.pods[pod];
        let Placement::Bound(node) = pod.placement else { return true };
        let leaders = &self.leaders[self.by_shape[&pod.shape.0]];
        if !leaders.exist {
            return leaders.selects.contains(pod.shape.0 as usize);
        }
        leaders.found.iter().all(|(key, found)| {
            let domain = self.domains[*key][node.0 as usize];
            domain.is_none_or(|domain| found.contains(domain))
        })
    }
}

/// In which domain of a topology key each machine is; a machine is a host of its own also before
/// its Node says so.
fn domains(nodes: &[Node], key: &str) -> Vec<Option<usize>> {
    if key == label::HOSTNAME {
        return (0..nodes.len()).map(Some).collect();
    }
    let mut values: IndexSet<&str, FxBuildHasher> = IndexSet::default();
    nodes
        .iter()
        .map(|node| node.labels.get(key).or_else(|| planned(node, key)))
        .map(|value| value.map(|value| values.insert_full(value).0))
        .collect()
}

/// The only value that a machine to come may have for a label.
fn planned<'n>(node: &'n Node, key: &str) -> Option<&'n String> {
    let mut asked = node.requirements.iter().filter(|it| it.key == key);
    asked.find_map(|it| match (it.operator, &it.values[..]) {
        (Operator::In, [only]) => Some(only),
        _ => None,
    })
}
