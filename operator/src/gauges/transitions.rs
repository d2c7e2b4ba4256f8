//! Follows the conditions of NodeClaims, NodePools and Nodes, as the state sees them change, and
//! those of NodeClasses, as the provider does; those of CapacityBuffers are told by who writes
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use parking_lot::Mutex;
use tenon_crds::{EC2NodeClass, NodeClaim, NodePool, labels};

use super::conditions::{label_name, of_node};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::transitions::{ConditionState, Kind, Labels};
use crate::state::State;
use crate::state::change::Touched;
use tenon_state::node_class::NodeClassKind;
use tenon_state::wire::{Node, created_at};

/// Observes objects from now on. Of those that are there already, what they say now is not new.
pub fn observe(
    state: &State,
    metrics: Metrics,
    clock: Clock,
    node_classes: &'static [NodeClassKind],
) {
    let (observer, cluster) = (Observer::new(metrics, clock, node_classes), state.clone());
    let claims = Mutex::new(BTreeMap::new());
    let pools = Mutex::new(BTreeMap::new());
    let nodes = Mutex::new(BTreeMap::new());
    state.subscribe(move |touched| match touched {
        Touched::NodeClaim(name) => {
            let claim = cluster.read().claim(name).cloned();
            observer.observe(&mut claims.lock(), name, claim);
        }
        Touched::NodePool(name) => {
            let pool = cluster.read().pool(name).cloned();
            observer.observe(&mut pools.lock(), name, pool);
        }
        Touched::Node(name) => {
            let state = cluster.read();
            let node = state.node(name).filter(|node| state.is_managed_node(node)).cloned();
            observer.observe(&mut nodes.lock(), name, node);
        }
        Touched::Pod(..) | Touched::Other(_) => {}
    });
}

/// An object with conditions.
pub trait Subject: Resource<DynamicType = ()> {
    /// The kind whose name is part of the metrics' names.
    const KIND: Kind;

    /// The conditions in its status.
    fn states(&self) -> Vec<ConditionState<'_>>;
}

impl Subject for NodeClaim {
    const KIND: Kind = Kind::NodeClaim;

    fn states(&self) -> Vec<ConditionState<'_>> {
        self.status.iter().flat_map(|status| &status.conditions).map(ConditionState::from).collect()
    }
}

impl Subject for NodePool {
    const KIND: Kind = Kind::NodePool;

    fn states(&self) -> Vec<ConditionState<'_>> {
        self.status.iter().flat_map(|status| &status.conditions).map(ConditionState::from).collect()
    }
}

impl Subject for EC2NodeClass {
    const KIND: Kind = Kind::EC2NodeClass;

    fn states(&self) -> Vec<ConditionState<'_>> {
        self.status.iter().flat_map(|status| &status.conditions).map(ConditionState::from).collect()
    }
}

impl Subject for Node {
    const KIND: Kind = Kind::Node;

    fn states(&self) -> Vec<ConditionState<'_>> {
        of_node(self).collect()
    }
}

/// Compares each version of an object with the one before.
#[derive(Debug)]
pub struct Observer {
    metrics: Metrics,
    clock: Clock,
    node_classes: &'static [NodeClassKind],
    began: Timestamp,
}

impl Observer {
    /// From now on: of what is there already, what it says now is not new.
    pub fn new(metrics: Metrics, clock: Clock, node_classes: &'static [NodeClassKind]) -> Self {
        Self { metrics, clock, node_classes, began: clock.now() }
    }

    /// Looks at an object that was touched; it is gone when there is none. `known` has the versions
    /// that were seen last: those of the state itself.
    pub fn observe<K: Subject>(
        &self,
        known: &mut BTreeMap<String, Arc<K>>,
        name: &str,
        object: Option<Arc<K>>,
    ) {
        let before = match &object {
            Some(object) => known.insert(name.to_owned(), Arc::clone(object)),
            None => known.remove(name),
        };
        let uid = |object: &Arc<K>| object.meta().uid.clone();
        if let Some(before) = &before
            && object.as_ref().map(uid) != Some(uid(before))
            && let Some(deleted) = &before.meta().deletion_timestamp
        {
            let took = self.clock.now().duration_since(deleted.0).as_secs_f64().max(0.0);
            let placed = self.placed::<K>(before);
            self.metrics.transitions.ended(K::KIND, &placed, took);
        }
        let Some(object) = object else { return };
        let before = before.filter(|before| uid(before) == uid(&object));
        // What came before the operator did may have said this for long.
        if before.is_none() && created_at(object.meta()) < self.began {
            return;
        }
        let before_states = before.as_ref().map(|before| before.states()).unwrap_or_default();
        let placed = self.placed::<K>(&object);
        self.metrics.transitions.changed(K::KIND, &placed, &before_states, &object.states());
    }

    /// Where a NodeClaim or a Node belongs, by its labels.
    fn placed<K: Subject>(&self, object: &K) -> Labels {
        let label = |key: &str| {
            let value = object.meta().labels.as_ref().and_then(|labels| labels.get(key));
            (label_name(key), value.cloned().unwrap_or_default())
        };
        let mut placed = Labels::new();
        if matches!(K::KIND, Kind::NodeClaim | Kind::Node) {
            placed.push(label(labels::NODEPOOL));
            placed.extend(self.node_classes.iter().map(|kind| label(kind.label)));
        }
        if K::KIND == Kind::Node {
            placed.push(label(labels::INITIALIZED));
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenon_state::node_class;

    use super::*;

    const CLASSES: &[NodeClassKind] = &[node_class::KWOK];

    fn claim(created: &str, deleted: Option<&str>, conditions: &[(&str, &str, &str)]) -> NodeClaim {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(type_, status, since)| {
                json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": since})
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "a", "uid": created, "creationTimestamp": created, "deletionTimestamp": deleted,
                "labels": {"karpenter.sh/nodepool": "default", "karpenter.kwok.sh/kwoknodeclass": "small"}},
            "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "small"}, "requirements": []},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    /// What is told about these versions of a NodeClaim, one after the other, the operator having
    /// begun at noon and looking at one.
    async fn told(versions: Vec<Option<NodeClaim>>) -> Vec<String> {
        let metrics = Metrics::new();
        let clock = Clock::anchored("2026-11-20T12:00:00Z".parse().unwrap());
        let observer = Observer::new(metrics.clone(), clock, CLASSES);
        tokio::time::advance(std::time::Duration::from_hours(1)).await;
        let mut known = BTreeMap::new();
        for version in versions {
            observer.observe(&mut known, "a", version.map(Arc::new));
        }
        let text = metrics.encode().unwrap();
        let lines = text.lines().filter(|line| line.starts_with("operator_nodeclaim_"));
        let lines = lines.filter(|line| !line.contains("_bucket"));
        let placed = r#"karpenter_sh_nodepool="default",karpenter_kwok_sh_kwoknodeclass="small""#;
        let mut lines: Vec<String> = lines.map(|line| line.replace(placed, "…")).collect();
        lines.sort();
        lines
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_changes_is_counted_and_its_former_status_measured() {
        let at = "2026-11-20T12:00:01Z";
        let first = claim(at, None, &[("Ready", "Unknown", at)]);
        let again = claim(at, None, &[("Ready", "Unknown", at)]);
        let ready = claim(at, None, &[("Ready", "True", "2026-11-20T12:00:11Z")]);
        assert_eq!(
            told(vec![Some(first), Some(again), Some(ready)]).await,
            [
                r#"operator_nodeclaim_status_condition_transition_seconds_count{type="Ready",status="Unknown",…} 1"#,
                r#"operator_nodeclaim_status_condition_transition_seconds_sum{type="Ready",status="Unknown",…} 10.0"#,
                r#"operator_nodeclaim_status_condition_transitions_total{type="Ready",status="True",reason="R",…} 1"#,
                r#"operator_nodeclaim_status_condition_transitions_total{type="Ready",status="Unknown",reason="R",…} 1"#,
            ]
            .map(str::to_owned)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_there_before_the_operator_is_not_counted_until_it_changes() {
        let (old, at) = ("2026-11-20T11:00:00Z", "2026-11-20T12:00:10Z");
        let first = claim(old, None, &[("Ready", "True", old)]);
        assert_eq!(told(vec![Some(first.clone())]).await, Vec::<String>::new());
        let drifted = claim(old, None, &[("Ready", "True", old), ("Drifted", "True", at)]);
        assert_eq!(
            told(vec![Some(first), Some(drifted)]).await,
            [
                r#"operator_nodeclaim_status_condition_transitions_total{type="Drifted",status="True",reason="R",…} 1"#
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_an_object_is_measured_from_its_deletion() {
        let (old, deleted) = ("2026-11-20T11:00:00Z", "2026-11-20T12:59:00Z");
        let going = || Some(claim(old, Some(deleted), &[]));
        let expected = [
            "operator_nodeclaim_termination_duration_seconds_count{…} 1",
            "operator_nodeclaim_termination_duration_seconds_sum{…} 60.0",
        ];
        assert_eq!(told(vec![going(), None, None]).await, expected);
        // Another one of the same name has come meanwhile.
        let next = claim("2026-11-20T11:30:00Z", None, &[]);
        assert_eq!(told(vec![going(), Some(next), None]).await, expected);
        assert_eq!(told(vec![Some(claim(old, None, &[])), None]).await, Vec::<String>::new());
    }
}
