//! The hash of a NodePool's template. Requirements are left out: they are compared by value.

use super::structure::{Bytes, Hash, Structure};
use crate::duration::{Duration, NillableDuration};
use crate::nodepool::{NodeClaimTemplateSpec, NodeClassReference, NodePoolSpec, TemplateMetadata};
use crate::taint::Taint;
use crate::timestamp::Timestamp;

/// Version of the algorithm behind [`node_pool`].
pub const NODE_POOL_HASH_VERSION: &str = "v3";

/// The value of the annotation `karpenter.sh/nodepool-hash`.
pub fn node_pool(pool: &NodePoolSpec) -> String {
    let template = &pool.template;
    Structure::new("NodeClaimTemplate")
        .field("ObjectMeta", metadata(&template.metadata).as_ref())
        .field("Spec", Some(&spec(&template.spec)))
        .hash()
        .to_string()
}

fn metadata(metadata: &TemplateMetadata) -> Option<Structure> {
    (metadata.labels.is_some() || metadata.annotations.is_some()).then(|| {
        Structure::new("ObjectMeta")
            .field("Labels", metadata.labels.as_ref())
            .field("Annotations", metadata.annotations.as_ref())
    })
}

fn spec(spec: &NodeClaimTemplateSpec) -> Structure {
    Structure::new("NodeClaimTemplateSpec")
        .field("Taints", taints(spec.taints.as_deref()).as_ref())
        .field("StartupTaints", taints(spec.startup_taints.as_deref()).as_ref())
        .field("NodeClassRef", Some(&node_class_ref(&spec.node_class_ref)))
        .field(
            "TerminationGracePeriod",
            spec.termination_grace_period.as_ref().map(duration).as_ref(),
        )
        .field("ExpireAfter", nillable_duration(&spec.expire_after).as_ref())
}

fn taints(taints: Option<&[Taint]>) -> Option<Vec<Structure>> {
    Some(taints?.iter().map(taint).collect())
}

fn taint(taint: &Taint) -> Structure {
    Structure::new("Taint")
        .text("Key", &taint.key)
        .text("Value", taint.value())
        .text("Effect", taint.effect.as_str())
        .field("TimeAdded", taint.time_added.map(time).as_ref())
}

fn node_class_ref(reference: &NodeClassReference) -> Structure {
    Structure::new("NodeClassReference")
        .text("Kind", &reference.kind)
        .text("Name", &reference.name)
        .text("Group", &reference.group)
}

/// Unlike the nillable one, a zero length is a zero value and left out.
fn duration(duration: &Duration) -> Structure {
    let nanos = duration.as_nanos();
    Structure::new("Duration").field("Duration", (nanos != 0).then_some(&nanos))
}

fn nillable_duration(duration: &NillableDuration) -> Option<Structure> {
    let nanos = duration.duration()?.as_nanos();
    Some(Structure::new("NillableDuration").field("Duration", Some(&nanos)))
}

/// Go's binary form of a time: version, seconds since the year 1, nanoseconds, minutes east of UTC
/// (0 in the operator's container).
fn time(time: Timestamp) -> Structure {
    const SECONDS_FROM_YEAR_1_TO_1970: i64 = 62_135_596_800;
    let mut bytes = vec![1];
    bytes.extend((time.0.as_second() + SECONDS_FROM_YEAR_1_TO_1970).to_be_bytes());
    bytes.extend(time.0.subsec_nanosecond().to_be_bytes());
    bytes.extend(0_i16.to_be_bytes());
    Structure::new("Time").field("Time", Some(&Bytes(bytes)))
}
