//! What was planned for pods that wait: the machine that each is expected on, until it is bound or
//! the plan has not come true in time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_crds::conditions::nodeclaim as condition;
use tenon_planner::snapshot::PodShape;

use super::pods::BACKLOG;
use super::{Cluster, condition_of, is_true};
use crate::change::ObjectKey;
use crate::pod::Pod;

/// So long kube-scheduler has to put a pod on a machine that is up. Then it is planned for anew:
/// something must be in its way that the plan did not know of.
pub(crate) const SETTLING: SignedDuration = SignedDuration::from_secs(15);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plans {
    by_pod: BTreeMap<ObjectKey, Planned>,
    by_machine: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// How many pods of each shape were planned for, by its address: shapes are shared, and
    /// `by_pod` holds them.
    by_shape: BTreeMap<usize, usize>,
    /// Pods are nominated to the Nodes that they are planned onto.
    pub(super) nominating: bool,
}

/// What was planned for a pod.
#[derive(Clone, Debug)]
struct Planned {
    /// The machine's [key](tenon_planner::snapshot::Node::key).
    machine: String,
    at: Timestamp,
    /// The pod's shape then.
    shape: Arc<PodShape>,
}

impl Planned {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.shape).addr()
    }
}

impl Plans {
    /// Whether a pod is expected on a machine, or was until lately.
    pub(super) fn nominates(&self, pod: &ObjectKey) -> bool {
        self.nominating && self.by_pod.contains_key(pod)
    }

    pub(super) fn insert(
        &mut self,
        pod: ObjectKey,
        machine: String,
        shape: Arc<PodShape>,
        at: Timestamp,
    ) {
        self.forget_pod(&pod);
        self.by_machine.entry(machine.clone()).or_default().insert(pod.clone());
        let planned = Planned { machine, at, shape };
        *self.by_shape.entry(planned.address()).or_default() += 1;
        self.by_pod.insert(pod, planned);
    }

    pub(super) fn forget_pod(&mut self, pod: &ObjectKey) {
        let Some(planned) = self.remove(pod) else { return };
        if let Some(pods) = self.by_machine.get_mut(&planned.machine) {
            pods.remove(pod);
            if pods.is_empty() {
                self.by_machine.remove(&planned.machine);
            }
        }
    }

    fn remove(&mut self, pod: &ObjectKey) -> Option<Planned> {
        let planned = self.by_pod.remove(pod)?;
        if let Some(count) = self.by_shape.get_mut(&planned.address()) {
            *count -= 1;
            if *count == 0 {
                self.by_shape.remove(&planned.address());
            }
        }
        Some(planned)
    }

    /// Plans one pod onto the machine that another was planned onto, which needs it no more. Both
    /// have the same shape.
    fn hand_over(&mut self, from: &ObjectKey, to: ObjectKey) {
        let Some(Planned { machine, at, shape }) = self.by_pod.get(from).cloned() else { return };
        self.forget_pod(from);
        self.insert(to, machine, shape, at);
    }

    pub(super) fn forget_machine(&mut self, machine: &str) {
        for pod in self.by_machine.remove(machine).into_iter().flatten() {
            self.remove(&pod);
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_pod.clear();
        self.by_machine.clear();
        self.by_shape.clear();
    }
}

impl Cluster {
    /// The pods that were last planned onto a machine and are not bound yet.
    pub fn planned_onto<'a>(
        &'a self,
        machine: &str,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Pod)> + use<'a> {
        let keys = self.plans.by_machine.get(machine).into_iter().flatten();
        keys.filter_map(|key| self.pods.get_key_value(key))
            .map(|(key, pod)| (key, &**pod))
            .filter(|(_, pod)| pod.node.is_none() && !pod.is_terminating())
    }

    /// Whether a pod was planned onto a machine that it is not bound to yet.
    pub fn is_planned(&self, pod: &ObjectKey) -> bool {
        self.plans.by_pod.contains_key(pod)
    }

    /// Whether a pod was planned onto the machine of this Node; `None` where it was not planned
    /// for.
    pub(super) fn is_as_planned(&self, pod: &ObjectKey, node: &str) -> Option<bool> {
        let machine = self.plans.by_pod.get(pod)?.machine.as_str();
        let planned = match self.claim(machine) {
            Some(claim) => self.node_of(claim).map(|node| node.name()),
            None => Some(machine),
        };
        Some(planned == Some(node))
    }

    /// Where a pod was bound in the place of another one of its shape, that one gets its place: for
    /// kube-scheduler, and for the plan, they are the same. Answers the other one.
    pub(super) fn swap_places(&mut self, pod: &ObjectKey, node: &str) -> Option<ObjectKey> {
        let shape = &self.pods.get(pod)?.shape;
        let machine = match self.node(node).and_then(|node| self.claim_of(node)) {
            Some(claim) => claim.metadata.name.as_deref()?,
            None => node,
        };
        let same = |other: &&Pod| Arc::ptr_eq(&other.shape, shape);
        let mut others = self.planned_onto(machine);
        let other = others.find(|(key, other)| *key != pod && same(other))?.0.clone();
        drop(others);
        self.plans.hand_over(pod, other.clone());
        Some(other)
    }

    /// Whether many pods were planned for that are not bound yet, and all of them are alike:
    /// whichever kube-scheduler puts on a machine, the plan comes true.
    pub fn are_planned_pods_alike(&self) -> bool {
        self.plans.by_shape.len() == 1 && self.plans.by_pod.len() > BACKLOG
    }

    /// Until when pods that wait are expected on a machine, as far as can be told now.
    pub(crate) fn settling_until(&self, machine: &str, now: Timestamp) -> Option<Timestamp> {
        let mut pods = self.plans.by_machine.get(machine)?.iter();
        pods.any(|pod| self.expected_on(pod, now).is_some())
            .then(|| now.checked_add(SETTLING).unwrap_or(Timestamp::MAX))
    }

    /// The machines that pods were planned onto which are not bound yet.
    pub fn planned_machines(&self) -> impl Iterator<Item = &str> {
        self.plans.by_machine.keys().map(String::as_str)
    }

    /// The machine (by [`tenon_planner::snapshot::Node::key`]) that a pod which waits is nominated
    /// to, or will be as soon as the machine's Node is there. It counts as if it were bound to it:
    /// no other plan is made for it, and its room is nobody else's.
    ///
    /// `None` for pods that were not planned for, that another scheduler places, that ask for
    /// devices (DRA), and where it took too long.
    pub fn expected_on(&self, pod: &ObjectKey, now: Timestamp) -> Option<&str> {
        if !self.plans.nominating {
            return None;
        }
        let Planned { machine, at, .. } = self.plans.by_pod.get(pod)?;
        let pod = self.pods.get(pod)?;
        // Devices are taken when kube-scheduler allocates them, not before.
        if !pod.awaits_node() || pod.other_scheduler || !pod.claims.is_empty() {
            return None;
        }
        let up_since = match self.claim(machine) {
            Some(claim) if self.is_going(claim) => return None,
            Some(claim) if !is_true(claim, condition::INITIALIZED) => return Some(machine),
            Some(claim) => condition_of(claim, condition::INITIALIZED).map(|(_, since)| since),
            None if self.node(machine)?.is_deleting() => return None,
            None => None,
        };
        let since = up_since.map_or(*at, |up| up.max(*at));
        (now.duration_since(since) < SETTLING).then_some(machine)
    }
}
