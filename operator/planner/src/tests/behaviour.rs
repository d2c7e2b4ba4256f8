//! Behaviours of Karpenter that a naive implementation misses, and those where this planner does
//! better on purpose.

mod checking;
mod following;
mod missing_labels;
mod provisioning;
mod replacing;
mod retrying;
mod several_rules;
mod table;
mod topology;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::fixtures::*;
use crate::plan::Exclusion;
use crate::policy::{MinValuesPolicy, Policy, PreferencePolicy};
use crate::snapshot::{
    CapacityType, Eviction, NodePhase, NodePool, Operator, PodAffinityTerm, PodShape,
    TopologySpread,
};
use crate::testing::{Builder, usd};

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
const TYPE: &str = "node.kubernetes.io/instance-type";

fn select(app: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some([("app".to_owned(), app.to_owned())].into()),
        ..LabelSelector::default()
    }
}

pub(super) fn app(name: &str, cpu: i64) -> PodShape {
    let mut shape = shape(cpu, GI / 4);
    shape.labels.insert("app".to_owned(), name.to_owned());
    shape
}

pub(super) fn spread(mut shape: PodShape, key: &str, max_skew: i32) -> PodShape {
    let name = shape.labels["app"].clone();
    shape.topology_spread.push(TopologySpread {
        topology_key: key.to_owned(),
        max_skew,
        min_domains: None,
        required: true,
        selector: Some(select(&name)),
        honor_affinity: true,
        honor_taints: false,
    });
    shape
}

pub(super) fn near(mut shape: PodShape, key: &str, app: &str, anti: bool) -> PodShape {
    shape.pod_affinity.push(PodAffinityTerm {
        anti,
        weight: None,
        topology_key: key.to_owned(),
        selector: Some(select(app)),
        namespaces: Vec::new(),
        namespace_selector: None,
    });
    shape
}
