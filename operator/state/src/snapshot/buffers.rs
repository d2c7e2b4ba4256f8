//! The pods that CapacityBuffers keep room for: they don't exist, and are planned for as if they
//! did.

use std::sync::Arc;

use tenon_planner::snapshot as plan;

use super::claims::Claims;
use super::shape_table::ShapeTable;
use super::virtual_pods::{Kept, keys};
use crate::cluster::name;
use crate::wire::created_at;

/// Adds the virtual pods. The list stays sorted; a real pod of the same name comes before a virtual
/// one.
pub(super) fn add_pods(
    buffers: &[Kept<'_>],
    claims: Option<&Claims>,
    pods: &mut Vec<plan::Pod>,
    shapes: &mut ShapeTable<'_>,
) {
    let real = pods.len();
    for kept in buffers {
        let (buffer, room) = kept;
        // They have no controller yet; Services know them by their labels.
        let shape = shapes.defaults.shape(&room.shape, None);
        let shape = shapes.shared(&shape);
        let uid = buffer.metadata.uid.as_deref().unwrap_or_default();
        for (index, key) in keys(kept).enumerate() {
            let mut pod = plan::Pod {
                namespace: Arc::clone(&key.namespace),
                name: Arc::clone(&key.name),
                uid: format!("{uid}-{index}").into(),
                shape,
                placement: plan::Placement::Unschedulable,
                created_at: created_at(&buffer.metadata),
                priority: i32::MIN,
                problem: room.problem.clone(),
                buffer: Some(name(&buffer.metadata)),
                ..plan::Pod::default()
            };
            if let Some(claims) = claims {
                claims.add_to(&key, &mut pod, shapes);
            }
            pods.push(pod);
        }
    }
    if pods.len() > real {
        // Stable: virtual pods were added behind the real ones.
        pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        pods.dedup_by(|b, a| a.namespace == b.namespace && a.name == b.name);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use tenon_crds::labels::LabelRules;
    use tenon_planner::snapshot::NodeClassRef;

    use super::*;
    use crate::change::{Change, Object};
    use crate::cluster::Cluster;

    #[test]
    fn a_buffer_becomes_pods_that_wait_after_all_others() {
        let mut cluster = Cluster::new(&[], LabelRules::core());
        let template = json!({"metadata": {"name": "unit", "namespace": "b"}, "template": {"spec": {
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}}});
        let template = serde_json::from_value(template).unwrap();
        cluster.apply(Change::Applied(Object::PodTemplate(Box::new(template))));
        let buffer = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
            "metadata": {"name": "spare", "namespace": "b", "uid": "4711", "creationTimestamp": "2026-11-20T00:00:00Z"},
            "spec": {"podTemplateRef": {"name": "unit"}, "replicas": 11}});
        let buffer = serde_json::from_value(buffer).unwrap();
        cluster.apply(Change::Applied(Object::CapacityBuffer(Box::new(buffer))));
        for (namespace, name) in [("a", "real"), ("b", "capacity-buffer-spare-3"), ("c", "real")] {
            let pod = json!({"metadata": {"name": name, "namespace": namespace, "uid": name}});
            let pod = serde_json::from_value(pod).unwrap();
            cluster.apply(Change::Applied(Object::Pod(Box::new(pod))));
        }
        let snapshot = cluster.snapshot(&|_: &NodeClassRef| None, Timestamp::UNIX_EPOCH);
        assert_eq!(snapshot.validate(), Ok(()));
        let virtual_pods = snapshot.pods.iter().filter(|pod| pod.buffer.is_some());
        let virtual_pods: Vec<&plan::Pod> = virtual_pods.collect();
        // Number 3 has the name of a pod that exists.
        assert_eq!((virtual_pods.len(), snapshot.pods.len()), (10, 13));
        let pod = virtual_pods[1];
        assert_eq!((&*pod.name, &*pod.uid), ("capacity-buffer-spare-1", "4711-1"));
        assert_eq!((pod.buffer.as_deref(), pod.priority), (Some("spare"), i32::MIN));
        assert_eq!(pod.placement, plan::Placement::Unschedulable);
        let shape = &snapshot.shapes[pod.shape.0 as usize];
        assert_eq!(shape.requests.cpu, 1000);
        assert!(shape.volumes.is_empty() && shape.shared_volumes.is_empty());
    }
}
