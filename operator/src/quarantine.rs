//! Pods and NodePools that the planner can't cope with: which of them make it panic, and planning
//! without them for a while.
//!
//! Whoever may create a pod or change a NodePool must not be able to keep everybody else's from
//! being planned for. Pods are told apart by their shapes, as the planner does it: a Deployment of
//! a thousand pods is found as fast as a single pod, and pods that replace others are known
//! already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tenon_planner::Snapshot;
use tenon_planner::snapshot::{Placement, Pod, PodShape};

/// So long they are left out before they are tried again: what makes the planner panic may be
/// something else that has gone meanwhile.
pub(crate) const PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// Shapes of pods, and NodePools, that are not planned for now. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quarantine {
    shapes: Arc<Mutex<Vec<LeftOut>>>,
    node_pools: Arc<Mutex<BTreeMap<(Work, String), Timestamp>>>,
}

/// What a NodePool is left out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Everything: nothing is launched for it, and its nodes are left alone.
    All,
    /// Its nodes are left alone, and pods still get machines of it.
    Disruption,
    /// It keeps the machines that it has, more or fewer than `spec.replicas` says.
    Replicas,
}

/// A shape, and until when it is left out.
type LeftOut = (Arc<PodShape>, Timestamp);

impl Quarantine {
    /// Leaves pods of a shape out until then.
    pub(crate) fn add(&self, shape: Arc<PodShape>, until: Timestamp) {
        self.shapes.lock().push((shape, until));
    }

    /// Leaves a NodePool out until then.
    pub(crate) fn add_node_pool(&self, work: Work, name: String, until: Timestamp) {
        self.node_pools.lock().insert((work, name), until);
    }

    /// The NodePools that are left out of this, and those that are left out of everything.
    pub(crate) fn node_pools(&self, work: Work, now: Timestamp) -> BTreeSet<String> {
        let mut left_out = self.node_pools.lock();
        left_out.retain(|_, until| *until > now);
        let matching = left_out.keys().filter(|(of, _)| *of == Work::All || *of == work);
        matching.map(|(_, name)| name.clone()).collect()
    }

    /// Until when pods are left out; `None` when none are.
    pub(crate) fn until(&self, now: Timestamp) -> Option<Timestamp> {
        self.shapes.lock().iter().map(|&(_, until)| until).filter(|until| *until > now).max()
    }

    /// Takes the pods that are left out from those that wait for a place.
    pub(crate) fn apply(&self, snapshot: &mut Snapshot, now: Timestamp) {
        let mut bad = self.shapes.lock();
        bad.retain(|(_, until)| *until > now);
        if bad.is_empty() {
            return;
        }
        let shapes = (0..).zip(&snapshot.shapes);
        let is_bad = |shape: &Arc<PodShape>| bad.iter().any(|(bad, _)| bad == shape);
        let hidden: BTreeSet<u32> =
            shapes.filter(|(_, shape)| is_bad(shape)).map(|(index, _)| index).collect();
        hide(snapshot, |shape| hidden.contains(&shape));
    }
}

/// Pods of these shapes are taken for some that kube-scheduler has not looked at yet.
fn hide(snapshot: &mut Snapshot, is_hidden: impl Fn(u32) -> bool) {
    for pod in &mut snapshot.pods {
        if waits(pod) && is_hidden(pod.shape.0) {
            pod.placement = Placement::Waiting;
        }
    }
}

/// Whether a pod waits for a place.
pub(crate) fn waits(pod: &Pod) -> bool {
    pod.placement == Placement::Unschedulable
}

/// The shapes of waiting pods, as indices into [`Snapshot::shapes`], without which planning gets
/// through. `None` when it does not even without any.
pub(crate) fn culprits(
    snapshot: &Snapshot,
    gets_through: impl Fn(&Snapshot) -> bool,
    give_up: impl Fn() -> bool,
) -> Option<Vec<u32>> {
    let with = |shapes: &BTreeSet<u32>| {
        let mut some = snapshot.clone();
        hide(&mut some, |shape| !shapes.contains(&shape));
        gets_through(&some)
    };
    let waiting = snapshot.pods.iter().filter(|pod| waits(pod));
    search(waiting.map(|pod| pod.shape.0).collect(), with, give_up)
}

/// Which of these have to go, so that work with the others gets through; `None` when it does not
/// even without any.
///
/// Halves what fails until single ones are left, each tried together with all that was found good,
/// so that what is left is known to get through as a whole: `2 k log n` attempts for `k` bad ones
/// of `n`. When `give_up` says so the rest counts as bad.
pub(crate) fn search<T: Ord + Clone>(
    all: BTreeSet<T>,
    gets_through: impl Fn(&BTreeSet<T>) -> bool,
    give_up: impl Fn() -> bool,
) -> Option<Vec<T>> {
    let mut good = BTreeSet::new();
    if !gets_through(&good) {
        return None;
    }
    let mut bad = Vec::new();
    let mut suspects = vec![all.into_iter().collect::<Vec<_>>()];
    while let Some(some) = suspects.pop() {
        let both: BTreeSet<T> = good.iter().chain(&some).cloned().collect();
        let fine = gets_through(&both);
        if give_up() {
            bad.extend(some);
            bad.extend(suspects.into_iter().flatten());
            break;
        }
        match some.as_slice() {
            _ if fine => good.extend(some),
            [one] => bad.push(one.clone()),
            _ => {
                let (first, second) = some.split_at(some.len() / 2);
                suspects.push(second.to_vec());
                suspects.push(first.to_vec());
            }
        }
    }
    bad.sort_unstable();
    Some(bad)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tenon_planner::snapshot::ShapeId;

    use super::*;

    /// Two pods that wait of each of `n` shapes, which are told apart by their namespaces; and one
    /// of each that runs.
    fn snapshot(n: u32) -> Snapshot {
        let shapes = (0..n).map(|index| {
            Arc::new(PodShape { namespace: format!("team-{index}"), ..PodShape::default() })
        });
        let pod = |shape, name: &str, placement| Pod {
            name: format!("{name}-{shape:03}").into(),
            shape: ShapeId(shape),
            placement,
            ..Pod::default()
        };
        let waiting = Placement::Unschedulable;
        let bound = Placement::Bound(tenon_planner::snapshot::NodeId(0));
        let pods = (0..n).flat_map(|shape| {
            [pod(shape, "a", waiting), pod(shape, "b", waiting), pod(shape, "c", bound)]
        });
        Snapshot {
            version: tenon_planner::snapshot::SNAPSHOT_VERSION,
            node_pools: Vec::new(),
            catalogs: Vec::new(),
            nodes: Vec::new(),
            shapes: shapes.collect(),
            pods: pods.collect(),
            daemon_sets: Vec::new(),
            namespaces: BTreeMap::new(),
            overlays: Vec::new(),
            devices: None,
            pod_budgets: Vec::new(),
            repair_policies: Vec::new(),
        }
    }

    fn waiting(snapshot: &Snapshot) -> BTreeSet<u32> {
        snapshot.pods.iter().filter(|pod| waits(pod)).map(|pod| pod.shape.0).collect()
    }

    #[test]
    fn the_shapes_that_make_planning_fail_are_found_among_many_in_few_attempts() {
        let snapshot = snapshot(200);
        let attempts = Cell::new(0);
        let plan = |some: &Snapshot| {
            attempts.set(attempts.get() + 1);
            let waiting = waiting(some);
            !(waiting.contains(&17) || waiting.contains(&101))
        };
        assert_eq!(culprits(&snapshot, plan, || false), Some(vec![17, 101]));
        assert!(attempts.get() < 40, "{} attempts", attempts.get());
    }

    #[test]
    fn of_shapes_that_fail_only_together_enough_are_left_out() {
        let plan = |some: &Snapshot| {
            let waiting = waiting(some);
            !(waiting.contains(&2) && waiting.contains(&7))
        };
        assert_eq!(culprits(&snapshot(10), plan, || false), Some(vec![7]));
    }

    #[test]
    fn where_the_waiting_pods_are_not_to_blame_none_is_left_out() {
        assert_eq!(culprits(&snapshot(4), |_| false, || false), None);
        assert_eq!(culprits(&snapshot(4), |_| true, || false), Some(vec![]));
    }

    #[test]
    fn when_the_time_is_over_only_what_was_found_good_is_kept() {
        let attempts = Cell::new(0);
        let plan = |some: &Snapshot| {
            attempts.set(attempts.get() + 1);
            !waiting(some).contains(&0)
        };
        // Without any, all eight, the first four, the first two, the first, the second, and then it
        // is over.
        let bad = culprits(&snapshot(8), plan, || attempts.get() == 7);
        assert_eq!(bad, Some(vec![0, 2, 3, 4, 5, 6, 7]));
    }

    #[test]
    fn a_shape_is_left_out_for_its_time_whatever_its_number_is_and_pods_that_run_are_not_touched() {
        let now = Timestamp::UNIX_EPOCH;
        let quarantine = Quarantine::default();
        let mut first = snapshot(3);
        quarantine.add(Arc::clone(&first.shapes[1]), now + PERIOD);
        quarantine.apply(&mut first, now);
        assert_eq!(waiting(&first), BTreeSet::from([0, 2]));
        let runs = |pod: &&Pod| matches!(pod.placement, Placement::Bound(_));
        assert_eq!(first.pods.iter().filter(runs).count(), 3);
        let mut reordered = snapshot(3);
        reordered.shapes.reverse();
        reordered.shapes.rotate_left(1);
        quarantine.apply(&mut reordered, now);
        assert_eq!(waiting(&reordered), BTreeSet::from([1, 2]));
        let mut later = snapshot(3);
        quarantine.apply(&mut later, now + PERIOD);
        assert_eq!(waiting(&later), BTreeSet::from([0, 1, 2]));
    }
}
