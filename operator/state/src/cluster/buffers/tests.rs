use serde_json::{Value, json};
use tenon_crds::labels::LabelRules;

use super::*;
use crate::change::{Change, Object};

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[], LabelRules::core());
    let pod = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]}});
    let template = json!({"metadata": {"name": "unit", "namespace": "default", "generation": 3},
        "template": pod});
    let deployment = json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 11, "template": pod}});
    let template = serde_json::from_value(template).unwrap();
    cluster.apply(Change::Applied(Object::PodTemplate(Box::new(template))));
    let deployment = serde_json::from_value(deployment).unwrap();
    cluster.apply(Change::Applied(Object::Deployment(Box::new(deployment))));
    cluster
}

fn buffer(spec: &Value) -> CapacityBuffer {
    serde_json::from_value(json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": "default", "uid": "4711"}, "spec": spec,
    }))
    .unwrap()
}

fn replicas(spec: &Value) -> u32 {
    cluster().room(&buffer(spec)).unwrap().replicas
}

#[test]
fn room_is_for_the_larger_of_replicas_and_percentage_within_the_limits() {
    let template = json!({"name": "unit"});
    let web = json!({"apiGroup": "apps", "kind": "Deployment", "name": "web"});
    for (spec, expected) in [
        (json!({"podTemplateRef": template, "replicas": 3}), 3),
        (json!({"podTemplateRef": template, "replicas": 3, "limits": {"cpu": "1"}}), 2),
        (json!({"podTemplateRef": template, "limits": {"cpu": "10", "memory": "4Gi"}}), 4),
        (json!({"podTemplateRef": template, "limits": {"example.com/gpu": "4"}}), 0),
        (json!({"scalableRef": web, "percentage": 10}), 2),
        (json!({"scalableRef": web, "percentage": 1}), 1),
        (json!({"scalableRef": web, "percentage": 0}), 0),
        (json!({"scalableRef": web, "percentage": 10, "replicas": 5}), 5),
        (json!({"scalableRef": {"kind": "Deployment", "name": "web"}, "replicas": 1}), 1),
        (json!({"scalableRef": web}), 0),
    ] {
        assert_eq!(replicas(&spec), expected, "{spec}");
    }
}

#[test]
fn no_room_is_kept_for_more_pods_than_anybody_wants() {
    let room = |spec: Value| {
        let room = cluster().room(&buffer(&spec)).unwrap();
        (room.replicas, room.problem)
    };
    let unit = json!({"name": "unit"});
    let most = json!({"podTemplateRef": unit, "replicas": 10_000});
    assert_eq!(room(most), (10_000, None));
    for (spec, pods) in [
        (json!({"podTemplateRef": unit, "limits": {"memory": "1Ei"}}), 1 << 30),
        (json!({"podTemplateRef": unit, "replicas": 10_001}), 10_001),
    ] {
        let (replicas, problem) = room(spec);
        assert_eq!(replicas, 10_000);
        let start = format!("the buffer comes to {pods} pods: no room is kept");
        assert!(problem.unwrap().starts_with(&start));
    }
    let within = json!({"podTemplateRef": unit, "replicas": i32::MAX, "limits": {"cpu": "1"}});
    assert_eq!(room(within), (2, None));
}

#[test]
fn what_is_missing_is_said() {
    let why = |spec: Value| {
        let unresolved = cluster().room(&buffer(&spec)).unwrap_err();
        let (reason, message) = unresolved.condition();
        format!("{reason}: {message}")
    };
    assert_eq!(
        why(json!({"podTemplateRef": {"name": "gone"}, "replicas": 1})),
        "PodTemplateNotFound: PodTemplate gone does not exist"
    );
    assert_eq!(
        why(json!({"scalableRef": {"kind": "StatefulSet", "name": "web"}, "replicas": 1})),
        "ScalableRefNotFound: StatefulSet web does not exist"
    );
    assert!(
        why(json!({"scalableRef": {"apiGroup": "batch", "kind": "Job", "name": "web"}}))
            .starts_with("ResolutionFailed: scalableRef is a Deployment")
    );
    assert!(why(json!({"replicas": 1})).starts_with("ResolutionFailed: exactly one"));
}

#[test]
fn buffers_of_another_strategy_are_somebody_elses() {
    let mut cluster = cluster();
    let spec = json!({"podTemplateRef": {"name": "unit"}, "replicas": 1});
    let mut other = buffer(&spec);
    other.spec.provisioning_strategy = Some("example.com/standby".to_owned());
    for (name, object) in [("mine", buffer(&spec)), ("others", other)] {
        let mut object = object;
        object.metadata.name = Some(name.to_owned());
        cluster.apply(Change::Applied(Object::CapacityBuffer(Box::new(object))));
    }
    let names: Vec<&str> = cluster.buffers().map(|(key, _)| &*key.name).collect();
    assert_eq!(names, ["mine"]);
}

fn put_buffer(cluster: &mut Cluster, object: CapacityBuffer) -> Vec<Touched> {
    cluster.apply(Change::Applied(Object::CapacityBuffer(Box::new(object))))
}

fn of_web() -> CapacityBuffer {
    let web = json!({"apiGroup": "apps", "kind": "Deployment", "name": "web"});
    buffer(&json!({"scalableRef": web, "percentage": 10}))
}

#[test]
fn a_workload_whose_status_changed_touches_nothing() {
    let mut cluster = cluster();
    put_buffer(&mut cluster, of_web());
    let deployment = json!({"metadata": {"name": "web", "namespace": "default", "resourceVersion": "9"},
        "spec": {"replicas": 11, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]}}}});
    let mut put = |replicas: i32| {
        let mut deployment = deployment.clone();
        deployment["spec"]["replicas"] = json!(replicas);
        let deployment = serde_json::from_value(deployment).unwrap();
        cluster.apply(Change::Applied(Object::Deployment(Box::new(deployment))))
    };
    assert_eq!(put(11), []);
    assert_eq!(put(12), [Touched::Other(Kind::Deployment)]);
}

#[test]
fn of_one_generation_a_workload_is_looked_at_once() {
    let mut cluster = cluster();
    put_buffer(&mut cluster, of_web());
    let mut put = |uid: &str, generation: i64, cpu: &str| {
        let deployment = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": uid, "generation": generation},
            "spec": {"replicas": 10, "template": {"spec": {
                "containers": [{"resources": {"requests": {"cpu": cpu}}}]}}},
        });
        let deployment = serde_json::from_value(deployment).unwrap();
        let touched = cluster.apply(Change::Applied(Object::Deployment(Box::new(deployment))));
        (touched.len(), cluster.room(&of_web()).unwrap().shape.requests.cpu)
    };
    assert_eq!(put("1", 1, "1"), (1, 1000));
    // No API server shows such a thing: it only tells that nobody looked.
    assert_eq!(put("1", 1, "2"), (0, 1000));
    assert_eq!(put("1", 2, "2"), (1, 2000));
    // Another one of the same name has generations of its own.
    assert_eq!(put("2", 2, "3"), (1, 3000));
}

#[test]
fn what_no_buffer_refers_to_touches_nothing_and_nor_does_a_buffers_status() {
    let mut cluster = cluster();
    let mut put = |object: &Value| {
        let object = serde_json::from_value(object.clone()).unwrap();
        cluster.apply(Change::Applied(Object::PodTemplate(Box::new(object))))
    };
    let unit = json!({"metadata": {"name": "unit", "namespace": "default", "generation": 4},
        "template": {"spec": {"containers": []}}});
    assert_eq!(put(&unit), []);
    let spec = json!({"podTemplateRef": {"name": "unit"}, "replicas": 1});
    let touched = [Touched::Other(Kind::CapacityBuffer)];
    assert_eq!(put_buffer(&mut cluster, buffer(&spec)), touched);
    let mut judged = buffer(&spec);
    judged.status = Some(tenon_crds::CapacityBufferStatus::default());
    assert_eq!(put_buffer(&mut cluster, judged.clone()), []);
    let stored = cluster.buffers().next().unwrap().1;
    assert_eq!(stored.status, judged.status);
    judged.spec.replicas = Some(2);
    assert_eq!(put_buffer(&mut cluster, judged.clone()), touched);
    judged.metadata.uid = Some("4712".to_owned());
    assert_eq!(put_buffer(&mut cluster, judged), touched);
    let mut put = |generation: i64| {
        let mut unit = unit.clone();
        unit["metadata"]["generation"] = json!(generation);
        let object = serde_json::from_value(unit).unwrap();
        cluster.apply(Change::Applied(Object::PodTemplate(Box::new(object))))
    };
    assert_eq!(put(4), []);
    assert_eq!(put(5), [Touched::Other(Kind::PodTemplate)]);
}

fn put_quota(cluster: &mut Cluster, hard: &Value, used: &Value) -> Vec<Touched> {
    let quota = json!({"metadata": {"name": "compute", "namespace": "default"},
        "status": {"hard": hard, "used": used}});
    let quota = serde_json::from_value(quota).unwrap();
    cluster.apply(Change::Applied(Object::ResourceQuota(Box::new(quota))))
}

#[test]
fn quotas_bound_buffers_one_after_the_other_by_name() {
    let mut cluster = cluster();
    let named = |name: &str, replicas: u32| {
        let spec = json!({"podTemplateRef": {"name": "unit"}, "replicas": replicas});
        let mut object = buffer(&spec);
        object.metadata.name = Some(name.to_owned());
        object
    };
    let buffers = [named("a", 3), named("b", 4), named("c", 1)];
    for object in buffers.clone() {
        put_buffer(&mut cluster, object);
    }
    let rooms = |cluster: &Cluster| {
        let rooms = buffers.each_ref().map(|buffer| cluster.room(buffer).unwrap());
        rooms.map(|room| (room.replicas, room.limited.map(|limited| limited.wanted)))
    };
    assert_eq!(rooms(&cluster), [(3, None), (4, None), (1, None)]);
    // Half a core each: ten more fit, then five.
    let hard = json!({"requests.cpu": "8"});
    assert_eq!(put_quota(&mut cluster, &hard, &json!({"requests.cpu": "3"})), []);
    assert_eq!(rooms(&cluster), [(3, None), (4, None), (1, None)]);
    let touched = [Touched::Other(Kind::ResourceQuota)];
    assert_eq!(put_quota(&mut cluster, &hard, &json!({"requests.cpu": "5500m"})), touched);
    assert_eq!(rooms(&cluster), [(3, None), (2, Some(4)), (0, Some(1))]);
    let limited = cluster.room(&buffers[1]).unwrap().limited.unwrap();
    assert_eq!(limited.quotas, ["compute"]);
    let gone = Change::Deleted(Kind::ResourceQuota, ObjectKey::new("default", "compute"), 0);
    assert_eq!(cluster.apply(gone), touched);
    assert_eq!(rooms(&cluster), [(3, None), (4, None), (1, None)]);
}
