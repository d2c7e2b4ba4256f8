//! CapacityBuffers, what they refer to, and how much room that comes to.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::ObjectMeta;
use tenon_crds::CapacityBuffer;
use tenon_crds::capacitybuffer::{ACTIVE_CAPACITY, ScalableReference};
use tenon_planner::snapshot::PodShape;

use super::Cluster;
use super::apply::{is_newer, key};
use crate::change::{Kind, ObjectKey, Touched};
use crate::{resources, shape, wire};

/// How many pods a CapacityBuffer comes to at most. Each is planned for on its own, and limits without `replicas` over a pod that requests next to nothing come
/// to millions: more than this is a mistake sooner than a wish, and costs memory and money before anybody notices.
const MOST_PODS: i64 = 10_000;

/// CapacityBuffers, and of what they may refer to only what counts for them: with thousands of ReplicaSets whole templates would be too much.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    objects: BTreeMap<ObjectKey, Arc<CapacityBuffer>>,
    templates: BTreeMap<ObjectKey, Template>,
    workloads: BTreeMap<(Kind, ObjectKey), Workload>,
}

/// The pods of a PodTemplate or a workload.
#[derive(Clone, Debug, PartialEq)]
struct Template {
    generation: Option<i64>,
    shape: Arc<PodShape>,
    has_match_fields: bool,
}

/// A Deployment, StatefulSet or ReplicaSet.
#[derive(Clone, Debug, PartialEq)]
struct Workload {
    /// Its uid and generation: while these stay, so does all that counts here.
    version: Option<(String, i64)>,
    replicas: i32,
    template: Template,
}

/// What a CapacityBuffer comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    /// What scheduling sees of its pods.
    pub shape: Arc<PodShape>,
    /// How many there are, 10,000 at most.
    pub replicas: u32,
    /// The PodTemplate, when it refers to one, with its generation.
    pub template: Option<(String, Option<i64>)>,
    /// Why its pods can't be planned for.
    pub problem: Option<String>,
}

/// Why nothing is known about the pods of a CapacityBuffer, with what is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The workload does not exist.
    ScalableRefNotFound(String),
    /// The PodTemplate does not exist.
    PodTemplateNotFound(String),
    /// The buffer does not say what its pods are.
    ResolutionFailed(String),
}

impl Unresolved {
    /// Reason and message of the condition `ReadyForProvisioning`.
    pub fn told(&self) -> (&'static str, &str) {
        match self {
            Self::ScalableRefNotFound(message) => ("ScalableRefNotFound", message),
            Self::PodTemplateNotFound(message) => ("PodTemplateNotFound", message),
            Self::ResolutionFailed(message) => ("ResolutionFailed", message),
        }
    }
}

impl Buffers {
    pub(super) fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::CapacityBuffer => self.objects.keys().cloned().collect(),
            Kind::PodTemplate => self.templates.keys().cloned().collect(),
            _ => {
                let keys = self.workloads.keys().filter(|(of, _)| *of == kind);
                keys.map(|(_, key)| key.clone()).collect()
            }
        }
    }

    /// Whether a buffer is about the pods of a PodTemplate or a workload.
    fn refer_to(&self, kind: Kind, key: &ObjectKey) -> bool {
        let in_namespace = self.objects.iter().filter(|(of, _)| of.namespace == key.namespace);
        let mut specs = in_namespace.map(|(_, buffer)| &buffer.spec);
        specs.any(|spec| match kind {
            Kind::PodTemplate => {
                spec.pod_template_ref.as_ref().is_some_and(|it| it.name == key.name)
            }
            _ => spec.scalable_ref.as_ref().is_some_and(|it| {
                it.name == key.name && workload_kind(it).is_ok_and(|found| found == kind)
            }),
        })
    }

    pub(super) fn remove(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::CapacityBuffer => drop(self.objects.remove(key)),
            Kind::PodTemplate => drop(self.templates.remove(key)),
            _ => drop(self.workloads.remove(&(kind, key.clone()))),
        }
    }
}

impl Cluster {
    /// The CapacityBuffers that Tenon keeps room for, by namespace and name.
    pub fn buffers(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<CapacityBuffer>)> {
        self.buffers.objects.iter().filter(|(_, buffer)| {
            let strategy = buffer.spec.provisioning_strategy.as_deref();
            strategy.is_none_or(|strategy| strategy == ACTIVE_CAPACITY)
        })
    }

    /// What a CapacityBuffer comes to.
    pub fn room(&self, buffer: &CapacityBuffer) -> Result<Room, Unresolved> {
        let namespace = buffer.metadata.namespace.as_deref().unwrap_or_default();
        let spec = &buffer.spec;
        let (template, name, of_workload) = match (&spec.pod_template_ref, &spec.scalable_ref) {
            (Some(reference), None) => {
                let key = ObjectKey::new(namespace, reference.name.as_str());
                let template = self.buffers.templates.get(&key).ok_or_else(|| {
                    let name = &reference.name;
                    Unresolved::PodTemplateNotFound(format!("PodTemplate {name} does not exist"))
                })?;
                (template, Some(reference.name.clone()), None)
            }
            (None, Some(reference)) => {
                let workload = self.workload(namespace, reference)?;
                let share = spec.percentage.map(|percent| share(workload.replicas, percent));
                (&workload.template, None, share)
            }
            _ => {
                let message = "exactly one of podTemplateRef and scalableRef is needed";
                return Err(Unresolved::ResolutionFailed(message.to_owned()));
            }
        };
        let wanted = spec.replicas.map(i64::from).max(of_workload);
        let limit = limit(buffer, &template.shape);
        let replicas = match (wanted, limit) {
            (Some(wanted), Some(limit)) => wanted.min(limit),
            (wanted, limit) => wanted.or(limit).unwrap_or(0),
        };
        let replicas = replicas.max(0);
        let problem = if template.has_match_fields {
            Some("node selector term with matchFields is not supported".to_owned())
        } else if replicas > MOST_PODS {
            Some(format!(
                "the buffer comes to {replicas} pods: no room is kept for more than {MOST_PODS}, use lower limits, replicas or percentage"
            ))
        } else if template.shape.resource_claims.is_empty() {
            None
        } else {
            Some("no room can be kept for pods with resource claims".to_owned())
        };
        Ok(Room {
            shape: Arc::clone(&template.shape),
            replicas: u32::try_from(replicas.min(MOST_PODS)).unwrap_or(0),
            template: name.map(|name| (name, template.generation)),
            problem,
        })
    }

    fn workload(
        &self,
        namespace: &str,
        reference: &ScalableReference,
    ) -> Result<&Workload, Unresolved> {
        let kind = workload_kind(reference)?;
        let key = ObjectKey::new(namespace, reference.name.as_str());
        self.buffers.workloads.get(&(kind, key)).ok_or_else(|| {
            let (kind, name) = (&reference.kind, &reference.name);
            Unresolved::ScalableRefNotFound(format!("{kind} {name} does not exist"))
        })
    }

    pub(super) fn put_buffer(
        &mut self,
        buffer: CapacityBuffer,
        known_only: bool,
        touched: &mut Vec<Touched>,
    ) {
        let key = key(&buffer.metadata);
        let known = self.buffers.objects.get(&key);
        let newer = known.is_none_or(|known| is_newer(&buffer.metadata, &known.metadata));
        if newer && (known.is_some() || !known_only) {
            let is_other = known.is_none_or(|known| {
                known.spec != buffer.spec || known.metadata.uid != buffer.metadata.uid
            });
            self.buffers.objects.insert(key, Arc::new(buffer));
            // Its status is written all the time, and by us.
            if is_other {
                touched.push(Touched::Other(Kind::CapacityBuffer));
            }
        }
    }

    pub(super) fn put_template(&mut self, object: &wire::PodTemplate, touched: &mut Vec<Touched>) {
        let key = key(&object.metadata);
        let template = self.template(&object.metadata, &object.template);
        if self.buffers.templates.get(&key) != Some(&template) {
            if self.buffers.refer_to(Kind::PodTemplate, &key) {
                touched.push(Touched::Other(Kind::PodTemplate));
            }
            self.buffers.templates.insert(key, template);
        }
    }

    /// The status of workloads changes all the time, and most of them have no buffer; only what changes a buffer is told.
    pub(super) fn put_workload(
        &mut self,
        kind: Kind,
        metadata: &ObjectMeta,
        spec: &wire::WorkloadSpec,
        touched: &mut Vec<Touched>,
    ) {
        let key = (kind, key(metadata));
        let version = metadata.uid.clone().zip(metadata.generation);
        let known = self.buffers.workloads.get(&key);
        if version.is_some() && known.is_some_and(|known| known.version == version) {
            return;
        }
        let replicas = spec.replicas.unwrap_or(1);
        let template = Template { generation: None, ..self.template(metadata, &spec.template) };
        let workload = Workload { version, replicas, template };
        let known = self.buffers.workloads.get(&key);
        let is_same = known.is_some_and(|known| {
            (known.replicas, &known.template) == (workload.replicas, &workload.template)
        });
        if !is_same && self.buffers.refer_to(kind, &key.1) {
            touched.push(Touched::Other(kind));
        }
        self.buffers.workloads.insert(key, workload);
    }

    fn template(&mut self, owner: &ObjectMeta, template: &wire::PodTemplateSpec) -> Template {
        let namespace = owner.namespace.as_deref().unwrap_or_default();
        let labels = template.metadata.labels.clone().unwrap_or_default();
        let shape = shape::shape(namespace, &labels, &template.spec, &self.rules);
        Template {
            generation: owner.generation,
            shape: self.shapes.intern(shape),
            has_match_fields: shape::has_match_fields(&template.spec),
        }
    }
}

/// What kind of workload a buffer refers to.
fn workload_kind(reference: &ScalableReference) -> Result<Kind, Unresolved> {
    match (reference.api_group.as_str(), reference.kind.as_str()) {
        ("" | "apps", "Deployment") => Ok(Kind::Deployment),
        ("" | "apps", "StatefulSet") => Ok(Kind::StatefulSet),
        ("" | "apps", "ReplicaSet") => Ok(Kind::ReplicaSet),
        (group, kind) => Err(Unresolved::ResolutionFailed(format!(
            "scalableRef is a Deployment, a StatefulSet or a ReplicaSet of the group apps, not a {kind} of the group {group:?}"
        ))),
    }
}

/// So many hundredths of the pods of a workload, rounded up.
fn share(replicas: i32, percent: i32) -> i64 {
    ((i64::from(replicas) * i64::from(percent)).max(0) + 99) / 100
}

/// How many pods the buffer's limits have room for; `None` when the limits are about nothing that the pods request.
fn limit(buffer: &CapacityBuffer, shape: &PodShape) -> Option<i64> {
    let limits = buffer.spec.limits.iter().flatten();
    let counts = limits.filter_map(|(name, &limit)| {
        let requested = shape.requests.get(name);
        (requested > 0).then(|| resources::amount(name, limit).max(0) / requested)
    });
    counts.min()
}

#[cfg(test)]
mod tests {
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
            let (reason, message) = unresolved.told();
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
        let names: Vec<&str> = cluster.buffers().map(|(key, _)| key.name.as_str()).collect();
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
}
