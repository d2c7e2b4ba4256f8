//! CapacityBuffers, what they refer to, and how much room that comes to.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::ObjectMeta;
use tenon_crds::CapacityBuffer;
use tenon_crds::capacitybuffer::{ACTIVE_CAPACITY, ScalableReference};
use tenon_planner::snapshot::PodShape;

use super::Cluster;
use super::apply::key;
use super::quotas::{Pods, Quota, Quotas, Shares};
use super::versions::Source;
use crate::change::{Kind, ObjectKey, Touched};
use crate::pod::{PodClaim, pod_claim};
use crate::{resources, shape, wire};

/// How many pods a CapacityBuffer comes to at most. Each is planned for on its own, and limits
/// without `replicas` over a pod that requests next to nothing come to millions: more than this is
/// a mistake sooner than a wish, and costs memory and money before anybody notices.
const MOST_PODS: i64 = 10_000;

/// CapacityBuffers, and of what they may refer to only what counts for them: with thousands of
/// ReplicaSets whole templates would be too much.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers {
    objects: BTreeMap<ObjectKey, Arc<CapacityBuffer>>,
    templates: BTreeMap<ObjectKey, Template>,
    workloads: BTreeMap<(Kind, ObjectKey), Workload>,
    quotas: Quotas,
}

/// The pods of a PodTemplate or a workload.
#[derive(Clone, Debug, PartialEq)]
struct Template {
    generation: Option<i64>,
    shape: Arc<PodShape>,
    priority_class: Option<String>,
    has_match_fields: bool,
    claims: Vec<PodClaim>,
}

impl Template {
    fn pods(&self) -> Pods<'_> {
        Pods { shape: &self.shape, priority_class: self.priority_class.as_deref() }
    }
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
    /// Where ResourceQuotas leave less than it asks for.
    pub limited: Option<Limited>,
    /// The resource claims of each of its pods.
    pub claims: Vec<PodClaim>,
    /// Why its pods can't be planned for.
    pub problem: Option<String>,
}

/// What ResourceQuotas forbid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// How many pods there would be without them, 10,000 at most.
    pub wanted: u32,
    /// The names of those that forbid more.
    pub quotas: Vec<String>,
}

/// What a CapacityBuffer asks for.
struct Asked<'a> {
    template: &'a Template,
    /// The PodTemplate's name, when it refers to one.
    name: Option<&'a str>,
    replicas: i64,
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
    pub fn condition(&self) -> (&'static str, &str) {
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
            Kind::ResourceQuota => self.quotas.keys().cloned().collect(),
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
                spec.pod_template_ref.as_ref().is_some_and(|it| *it.name == *key.name)
            }
            _ => spec.scalable_ref.as_ref().is_some_and(|it| {
                *it.name == *key.name && workload_kind(it).is_ok_and(|found| found == kind)
            }),
        })
    }

    pub(super) fn remove(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::CapacityBuffer => drop(self.objects.remove(key)),
            Kind::PodTemplate => drop(self.templates.remove(key)),
            Kind::ResourceQuota => drop(self.quotas.remove(key)),
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

    /// What a CapacityBuffer comes to: what it asks for, within what the ResourceQuotas of its
    /// namespace leave to it. Buffers whose names come earlier in the alphabet have their share
    /// first.
    pub fn room(&self, buffer: &CapacityBuffer) -> Result<Room, Unresolved> {
        let Asked { template, name, replicas: wanted } = self.asked(buffer)?;
        let namespace = buffer.metadata.namespace.as_deref().unwrap_or_default();
        let mut shares = Shares::of(&self.buffers.quotas, namespace);
        let (replicas, quotas) = if shares.is_unlimited() {
            (wanted, Vec::new())
        } else {
            let earlier = self.buffers_in(namespace).take_while(|other| {
                other.metadata.name.as_deref() < buffer.metadata.name.as_deref()
            });
            for Asked { template, replicas, .. } in earlier.filter_map(|it| self.asked(it).ok()) {
                shares.take(template.pods(), replicas);
            }
            shares.take(template.pods(), wanted)
        };
        let at_most = |pods: i64| u32::try_from(pods.min(MOST_PODS)).unwrap_or(0);
        let problem = if template.has_match_fields {
            Some("node selector term with matchFields is not supported".to_owned())
        } else if replicas > MOST_PODS {
            Some(format!(
                "the buffer comes to {replicas} pods: no room is kept for more than {MOST_PODS}, use lower limits, replicas or percentage"
            ))
        } else if template.claims.is_empty() || self.plans_for_claims() {
            None
        } else {
            Some("no room can be kept for pods with resource claims".to_owned())
        };
        Ok(Room {
            shape: Arc::clone(&template.shape),
            replicas: at_most(replicas),
            template: name.map(|name| (name.to_owned(), template.generation)),
            limited: (replicas < wanted).then(|| Limited { wanted: at_most(wanted), quotas }),
            claims: template.claims.clone(),
            problem,
        })
    }

    /// What a buffer asks for, whatever quotas say.
    fn asked<'a>(&'a self, buffer: &'a CapacityBuffer) -> Result<Asked<'a>, Unresolved> {
        let namespace = buffer.metadata.namespace.as_deref().unwrap_or_default();
        let spec = &buffer.spec;
        let (template, name, of_workload) = match (&spec.pod_template_ref, &spec.scalable_ref) {
            (Some(reference), None) => {
                let key = ObjectKey::new(namespace, reference.name.as_str());
                let template = self.buffers.templates.get(&key).ok_or_else(|| {
                    let name = &reference.name;
                    Unresolved::PodTemplateNotFound(format!("PodTemplate {name} does not exist"))
                })?;
                (template, Some(reference.name.as_str()), None)
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
        Ok(Asked { template, name, replicas: replicas.max(0) })
    }

    fn buffers_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a CapacityBuffer> {
        let of_namespace = self.buffers().filter(move |(key, _)| *key.namespace == *namespace);
        of_namespace.map(|(_, buffer)| &**buffer)
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
        source: Source,
        touched: &mut Vec<Touched>,
    ) {
        let key = key(&buffer.metadata);
        let known = self.buffers.objects.get(&key);
        let metadata = known.map(|known| &known.metadata);
        if self.takes(source, Kind::CapacityBuffer, &key, &buffer.metadata, metadata) {
            let is_other = known.is_none_or(|known| {
                known.spec != buffer.spec || known.metadata.uid != buffer.metadata.uid
            });
            self.note(source, Kind::CapacityBuffer, &key);
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

    /// What is used of a quota changes all the time; only what changes a buffer is told.
    pub(super) fn put_quota(&mut self, object: &wire::ResourceQuota, touched: &mut Vec<Touched>) {
        let (key, quota) = (key(&object.metadata), Quota::of(object));
        if self.buffers.quotas.get(&key) == Some(&quota) {
            return;
        }
        let replicas = |cluster: &Self| -> Vec<Option<u32>> {
            let rooms = cluster.buffers_in(&key.namespace).map(|buffer| cluster.room(buffer));
            rooms.map(|room| room.ok().map(|room| room.replicas)).collect()
        };
        let before = replicas(self);
        self.buffers.quotas.insert(key.clone(), quota);
        if replicas(self) != before {
            touched.push(Touched::Other(Kind::ResourceQuota));
        }
    }

    /// The status of workloads changes all the time, and most of them have no buffer; only what
    /// changes a buffer is told.
    pub(super) fn put_workload(
        &mut self,
        kind: Kind,
        metadata: &ObjectMeta,
        spec: &wire::WorkloadSpec,
        touched: &mut Vec<Touched>,
    ) {
        if self.spread.is_some() && !self.expected.contains(&Kind::CapacityBuffer) {
            // It is watched for its selector only.
            return;
        }
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
        let claims = template.spec.resource_claims.iter();
        let claims = claims.map(|claim| pod_claim(claim, &wire::PodStatus::default())).collect();
        Template {
            generation: owner.generation,
            shape: self.shapes.intern(shape),
            priority_class: template.spec.priority_class_name.clone(),
            has_match_fields: shape::has_match_fields(&template.spec),
            claims,
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

/// How many pods the buffer's limits have room for; `None` when the limits are about nothing that
/// the pods request.
fn limit(buffer: &CapacityBuffer, shape: &PodShape) -> Option<i64> {
    let limits = buffer.spec.limits.iter().flatten();
    let counts = limits.filter_map(|(name, &limit)| {
        let requested = shape.requests.get(name);
        (requested > 0).then(|| resources::amount(name, limit).max(0) / requested)
    });
    counts.min()
}

#[cfg(test)]
mod tests;
