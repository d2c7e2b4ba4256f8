//! How pods come, change and go, and what is bound to each Node follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_planner::resources::Resources;

use super::versions::Source;
use super::{Cluster, Usage};
use crate::change::{ObjectKey, PodEvent, Touched, version};
use crate::pod::{self, Pod};
use crate::{shape, wire};

/// More pods than this that kube-scheduler has not tried to place yet are a backlog.
pub const BACKLOG: usize = 200;

impl Cluster {
    pub(super) fn put_pod(&mut self, pod: &wire::Pod, source: Source, touched: &mut Vec<Touched>) {
        let mut key = pod::key(pod);
        // One name in memory for all that refer to the pod.
        match self.pods.get_key_value(&key) {
            Some((known, _)) => key = known.clone(),
            None => self.texts.share(&mut key.namespace),
        }
        let version = version(pod.metadata.resource_version.as_deref());
        let before = self.pods.get(&key);
        let older = before.is_some_and(|before| version != 0 && version < before.version);
        // The operator writes nothing of pods that the state has: a list is newer than whatever is
        // known.
        if older && source != Source::List {
            return;
        }
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let shape = shape::shape(&key.namespace, &labels, &pod.spec, &self.rules);
        // Most updates change nothing that scheduling sees.
        let shape = match before {
            Some(before) if *before.shape == shape => Arc::clone(&before.shape),
            _ => self.shapes.intern(shape),
        };
        let mut after = Pod::from_wire(pod, version, shape);
        if let Some(after) = &mut after {
            after.share(&mut self.texts);
            // With many pods their controllers' names are much, and only the spread asks for them.
            if self.spread.is_none() {
                after.controller = None;
            }
        }
        self.replace_pod(key, after, touched);
    }

    pub(super) fn replace_pod(
        &mut self,
        key: ObjectKey,
        after: Option<Pod>,
        touched: &mut Vec<Touched>,
    ) {
        // What may go wrong goes first: until the end of it the pod is what it was.
        let mut event = pod::event(self.pod(&key), after.as_ref());
        // What kube-scheduler says of a pod while it is on its way to a machine is no news.
        event.provisionable &= !self.plans.nominates(&key);
        event.as_planned =
            event.bound.and_then(|_| self.is_as_planned(&key, event.node.as_deref()?));
        let moved = match (event.as_planned, event.node.as_deref()) {
            (Some(false), Some(node)) => self.swap_places(&key, node),
            _ => None,
        };
        if moved.is_some() {
            event.as_planned = Some(true);
        }
        let is_bound = after.as_ref().is_none_or(|after| after.node.is_some());
        let before = match after {
            Some(after) => self.pods.insert(key.clone(), Box::new(after)),
            None => self.pods.remove(&key),
        };
        if let Some(before) = &before {
            self.untried -= usize::from(before.untried);
            self.release(&key, before);
        }
        if let Some(after) = self.pods.get(&key) {
            self.untried += usize::from(after.untried);
            occupy(&mut self.usage, &key, after);
        }
        if is_bound {
            self.plans.forget_pod(&key);
        }
        if event != PodEvent::default() || before.is_some() {
            touched.push(Touched::Pod(key, event));
        }
        // Its nomination follows.
        touched.extend(moved.map(|pod| Touched::Pod(pod, PodEvent::default())));
    }

    /// Whether kube-scheduler has more than [`BACKLOG`] pods to try first: one that it has tried
    /// comes after all of them.
    pub fn is_backlogged(&self) -> bool {
        self.untried > BACKLOG
    }

    /// Whether more than [`BACKLOG`] pods wait that were not planned for yet, besides as many as
    /// the last plan had no place for, and nine in ten of them are alike.
    pub fn are_waiting_pods_alike(&self, without_place: usize) -> bool {
        let (mut waiting, mut alike) = (0, BTreeMap::new());
        let unplanned =
            |(key, pod): &(&ObjectKey, &Pod)| pod.awaits_node() && !self.is_planned(key);
        for (_, pod) in self.pods().filter(unplanned) {
            waiting += 1;
            *alike.entry(Arc::as_ptr(&pod.shape)).or_insert(0_usize) += 1;
        }
        waiting > without_place + BACKLOG && alike.values().any(|count| count * 10 >= waiting * 9)
    }

    fn release(&mut self, key: &ObjectKey, pod: &Pod) {
        let Some(node) = &pod.node else { return };
        let Some(usage) = self.usage.get_mut(&**node) else { return };
        usage.pods.remove(key);
        let take = |sum: &mut Resources, amounts: &Resources| {
            sum.subtract(amounts);
            sum.extended.retain(|_, amount| *amount != 0);
        };
        take(&mut usage.requests, &pod.shape.requests);
        if pod.is_daemon() {
            take(&mut usage.daemon_requests, &pod.shape.requests);
        }
        if let Some(limits) = &pod.limits {
            take(&mut usage.limits, limits);
            if pod.is_daemon() {
                take(&mut usage.daemon_limits, limits);
            }
        }
        if usage.pods.is_empty() {
            self.usage.remove(&**node);
        }
    }
}

/// Adds a pod to what is bound to its Node.
pub(super) fn occupy(usage: &mut BTreeMap<String, Usage>, key: &ObjectKey, pod: &Pod) {
    let Some(node) = &pod.node else { return };
    let usage = usage.entry(node.to_string()).or_default();
    usage.pods.insert(key.clone());
    usage.requests.add(&pod.shape.requests);
    if pod.is_daemon() {
        usage.daemon_requests.add(&pod.shape.requests);
    }
    let Some(limits) = &pod.limits else { return };
    usage.limits.add(limits);
    if pod.is_daemon() {
        usage.daemon_limits.add(limits);
    }
}
