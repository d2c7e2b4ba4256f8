//! The topology spread that pods get which have no constraints of their own: theirs come with their
//! shapes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_planner::snapshot::PodShape;

use crate::cluster::{Cluster, Spread};
use crate::pod::Controller;

/// Shapes with their default constraints. Pods of one shape and one controller get the same, so it
/// is found out once for all of them.
#[derive(Default)]
pub(super) struct Defaults<'c> {
    spread: Option<&'c Spread>,
    /// By the address of the shape without, and the controller. They are kept as long as this, so
    /// that no other shape gets the address of one of them.
    known: BTreeMap<(usize, Option<&'c Controller>), Arc<PodShape>>,
}

impl<'c> Defaults<'c> {
    pub(super) fn of(cluster: &'c Cluster) -> Self {
        Self { spread: cluster.spread.as_deref(), known: BTreeMap::new() }
    }

    /// The shape with the constraints that pods of it get by default; the shape itself where they
    /// have their own, or get none.
    pub(super) fn shape(
        &mut self,
        shape: &Arc<PodShape>,
        controller: Option<&'c Controller>,
    ) -> Arc<PodShape> {
        let Some(spread) = self.spread.filter(|_| shape.topology_spread.is_empty()) else {
            return Arc::clone(shape);
        };
        let known =
            self.known.entry((Arc::as_ptr(shape).addr(), controller)).or_insert_with(|| {
                let constraints = spread.constraints(&shape.namespace, &shape.labels, controller);
                if constraints.is_empty() {
                    Arc::clone(shape)
                } else {
                    Arc::new(PodShape { topology_spread: constraints, ..(**shape).clone() })
                }
            });
        Arc::clone(known)
    }
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    clippy::unnecessary_box_returns,
    clippy::unnecessary_wraps,
    reason = "objects are written down where they are used"
)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use tenon_crds::labels::LabelRules;
    use tenon_planner::snapshot::{NodeClassRef, TopologySpread};

    use super::*;
    use crate::change::{Change, Kind, Object, ObjectKey};

    const CONFIG: &str = "{podTopologySpread: {defaultConstraints: [
        {maxSkew: 1, topologyKey: failure-domain.beta.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor},
        {maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}]}}";

    fn spreading() -> Cluster {
        let mut cluster = Cluster::new(&[], LabelRules::core());
        cluster.spread_by(&CONFIG.parse().unwrap());
        cluster
    }

    fn put(cluster: &mut Cluster, object: fn(Box<Value>) -> Object, value: Value) {
        cluster.apply(Change::Applied(object(Box::new(value))));
    }

    fn parse<T: DeserializeOwned>(value: Value) -> Box<T> {
        Box::new(serde_json::from_value(value).unwrap())
    }

    fn metadata(name: &str) -> Value {
        json!({"namespace": "default", "name": name})
    }

    fn service(cluster: &mut Cluster, name: &str, spec: Value) {
        let object = |value: Box<Value>| Object::Service(parse(*value));
        put(cluster, object, json!({"metadata": metadata(name), "spec": spec}));
    }

    fn replica_set(cluster: &mut Cluster, name: &str, selector: Value) {
        let object = |value: Box<Value>| Object::ReplicaSet(parse(*value));
        put(cluster, object, json!({"metadata": metadata(name), "spec": {"selector": selector}}));
    }

    fn pod(cluster: &mut Cluster, owner: Option<(&str, &str, &str)>, labels: Value, spec: Value) {
        let mut metadata = metadata("web-0");
        metadata["labels"] = labels;
        if let Some((api, kind, name)) = owner {
            metadata["ownerReferences"] = json!([{"apiVersion": api, "kind": kind, "name": name, "uid": "u", "controller": true}]);
        }
        let object = |value: Box<Value>| Object::Pod(parse(*value));
        put(cluster, object, json!({"metadata": metadata, "spec": spec}));
    }

    fn constraints(cluster: &Cluster) -> Vec<TopologySpread> {
        let snapshot = cluster.snapshot(&|_: &NodeClassRef| None, Timestamp::UNIX_EPOCH);
        let [pod] = snapshot.pods.as_slice() else { panic!("one pod") };
        snapshot.shapes[pod.shape.0 as usize].topology_spread.clone()
    }

    fn selector(cluster: &Cluster) -> Option<Value> {
        let constraints = constraints(cluster);
        let selector: Vec<&LabelSelector> =
            constraints.iter().filter_map(|it| it.selector.as_ref()).collect();
        assert!(selector.windows(2).all(|pair| pair[0] == pair[1]), "{selector:?}");
        selector.first().map(|selector| serde_json::to_value(selector).unwrap())
    }

    fn of_service(labels: Value) -> Option<Value> {
        Some(json!({ "matchLabels": labels }))
    }

    const OF_RS: Option<(&str, &str, &str)> = Some(("apps/v1", "ReplicaSet", "web"));

    #[test]
    fn a_pod_without_constraints_of_its_own_gets_all_of_the_schedulers() {
        let mut cluster = spreading();
        service(&mut cluster, "web", json!({"selector": {"app": "web"}}));
        pod(&mut cluster, None, json!({"app": "web", "tier": "front"}), json!({}));
        let [zone, host] = constraints(&cluster).try_into().expect("both constraints");
        assert_eq!((&*zone.topology_key, zone.max_skew), ("topology.kubernetes.io/zone", 1));
        assert!(zone.required && zone.honor_affinity && zone.honor_taints);
        assert_eq!((&*host.topology_key, host.max_skew), ("kubernetes.io/hostname", 2));
        assert!(!host.required && host.honor_affinity && !host.honor_taints);
        assert_eq!(selector(&cluster), of_service(json!({"app": "web"})));
    }

    #[test]
    fn a_pod_with_a_constraint_of_its_own_gets_none_of_them() {
        let mut cluster = spreading();
        service(&mut cluster, "web", json!({"selector": {"app": "web"}}));
        let own =
            json!([{"maxSkew": 7, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}]);
        let spec = json!({"topologySpreadConstraints": own});
        pod(&mut cluster, None, json!({"app": "web"}), spec);
        let constraints = constraints(&cluster);
        assert_eq!(constraints.len(), 1, "{constraints:?}");
        assert_eq!(constraints[0].max_skew, 7);
    }

    #[test]
    fn pods_that_nothing_selects_and_clusters_without_a_default_are_left_alone() {
        let mut cluster = spreading();
        service(&mut cluster, "none", json!({}));
        service(&mut cluster, "empty", json!({"selector": {}}));
        service(&mut cluster, "other", json!({"selector": {"app": "db"}}));
        replica_set(&mut cluster, "web", json!({}));
        let other = json!({"metadata": {"namespace": "other", "name": "web"}, "spec": {"selector": {"app": "web"}}});
        put(&mut cluster, |value| Object::Service(parse(*value)), other);
        pod(&mut cluster, OF_RS, json!({"app": "web"}), json!({}));
        assert_eq!(constraints(&cluster), []);
        let mut cluster = Cluster::new(&[], LabelRules::core());
        cluster.spread_by(&"".parse().unwrap());
        service(&mut cluster, "web", json!({"selector": {"app": "web"}}));
        pod(&mut cluster, OF_RS, json!({"app": "web"}), json!({}));
        assert_eq!(constraints(&cluster), []);
        assert!(!cluster.watched().any(|kind| Kind::SPREAD.contains(&kind)));
        assert_eq!(cluster.pods().next().unwrap().1.controller, None, "it is not needed");
    }

    #[test]
    fn the_selector_is_that_of_all_services_and_of_the_controller_together() {
        let mut cluster = spreading();
        service(&mut cluster, "a", json!({"selector": {"app": "web"}}));
        service(&mut cluster, "b", json!({"selector": {"tier": "front"}}));
        let own = json!({"matchLabels": {"hash": "1"}, "matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]});
        replica_set(&mut cluster, "web", own);
        let labels = json!({"app": "web", "tier": "front", "hash": "1"});
        let expressions = json!([
            {"key": "hash", "operator": "In", "values": ["1"]},
            {"key": "canary", "operator": "DoesNotExist"},
        ]);
        let services = json!({"app": "web", "tier": "front"});
        pod(&mut cluster, OF_RS, labels.clone(), json!({}));
        let both = json!({"matchLabels": services, "matchExpressions": expressions});
        assert_eq!(selector(&cluster), Some(both));
        // Jobs, DaemonSets and what is not known add nothing.
        for owner in [
            ("batch/v1", "Job", "web"),
            ("example.com/v1", "ReplicaSet", "web"),
            ("apps/v1", "ReplicaSet", "gone"),
        ] {
            pod(&mut cluster, Some(owner), labels.clone(), json!({}));
            assert_eq!(selector(&cluster), of_service(services.clone()), "{owner:?}");
        }
    }

    #[test]
    fn a_replication_controllers_labels_take_the_place_of_a_services() {
        let mut cluster = spreading();
        service(&mut cluster, "a", json!({"selector": {"app": "web"}}));
        let controller =
            json!({"metadata": metadata("web"), "spec": {"selector": {"app": "old", "rc": "1"}}});
        put(&mut cluster, |value| Object::ReplicationController(parse(*value)), controller);
        let owner = Some(("v1", "ReplicationController", "web"));
        pod(&mut cluster, owner, json!({"app": "web"}), json!({}));
        assert_eq!(selector(&cluster), of_service(json!({"app": "old", "rc": "1"})));
    }

    #[test]
    fn pods_of_a_stateful_set_are_counted_together_whatever_their_own_labels() {
        let mut cluster = spreading();
        let set = json!({"metadata": metadata("db"), "spec": {"selector": {"matchLabels": {"app": "db"}}}});
        put(&mut cluster, |value| Object::StatefulSet(parse(*value)), set);
        let labels = json!({"app": "db", "apps.kubernetes.io/pod-index": "0"});
        pod(&mut cluster, Some(("apps/v1", "StatefulSet", "db")), labels, json!({}));
        let expression = json!({"key": "app", "operator": "In", "values": ["db"]});
        assert_eq!(selector(&cluster), Some(json!({"matchExpressions": [expression]})));
    }

    #[test]
    fn what_is_gone_selects_nothing_any_more() {
        let mut cluster = spreading();
        service(&mut cluster, "a", json!({"selector": {"app": "web"}}));
        replica_set(&mut cluster, "web", json!({"matchLabels": {"hash": "1"}}));
        pod(&mut cluster, OF_RS, json!({"app": "web", "hash": "1"}), json!({}));
        cluster.apply(Change::Listed(Kind::Service, BTreeSet::new()));
        let expression = json!({"key": "hash", "operator": "In", "values": ["1"]});
        assert_eq!(selector(&cluster), Some(json!({"matchExpressions": [expression]})));
        cluster.apply(Change::Deleted(Kind::ReplicaSet, ObjectKey::new("default", "web"), 0));
        assert_eq!(constraints(&cluster), []);
        service(&mut cluster, "a", json!({"selector": {"app": "web"}}));
        assert_eq!(constraints(&cluster).len(), 2);
        service(&mut cluster, "a", json!({}));
        assert_eq!(constraints(&cluster), []);
    }

    #[test]
    fn daemons_are_not_spread_and_the_room_of_buffers_is() {
        let mut cluster = spreading();
        cluster.expect(Kind::CapacityBuffer);
        service(&mut cluster, "web", json!({"selector": {"app": "web"}}));
        pod(&mut cluster, Some(("apps/v1", "DaemonSet", "web")), json!({"app": "web"}), json!({}));
        assert_eq!(constraints(&cluster), []);
        cluster.apply(Change::Deleted(Kind::Pod, ObjectKey::new("default", "web-0"), 0));
        let set = json!({"metadata": metadata("web"), "spec": {"replicas": 1, "template": {"metadata": {"labels": {"app": "web"}}}}});
        put(&mut cluster, |value| Object::ReplicaSet(parse(*value)), set);
        let buffer = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": metadata("spare"),
            "spec": {"scalableRef": {"apiGroup": "apps", "kind": "ReplicaSet", "name": "web"}, "percentage": 100}});
        put(&mut cluster, |value| Object::CapacityBuffer(parse(*value)), buffer);
        assert_eq!(selector(&cluster), of_service(json!({"app": "web"})));
    }
}
