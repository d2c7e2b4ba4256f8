//! What CapacityBuffers refer to: pod templates, and workloads that have pods; and what bounds
//! them. What says which pods belong together: Services, and the workloads' selectors.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ScopeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Serialize};
use tenon_crds::ResourceList;

use super::{Namespaced, PodTemplateSpec};

wire!(PodTemplate, Namespaced, "", "v1", "podtemplates");
wire!(Deployment, Namespaced, "apps", "v1", "deployments");
wire!(StatefulSet, Namespaced, "apps", "v1", "statefulsets");
wire!(ReplicaSet, Namespaced, "apps", "v1", "replicasets");
wire!(ResourceQuota, Namespaced, "", "v1", "resourcequotas");
wire!(Service, Namespaced, "", "v1", "services");
wire!(ReplicationController, Namespaced, "", "v1", "replicationcontrollers");

/// A PodTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Template of its pods; CapacityBuffers plan virtual pods from it.
    pub template: PodTemplateSpec,
}

/// A Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deployment {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: WorkloadSpec,
}

/// A StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: WorkloadSpec,
}

/// A ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: WorkloadSpec,
}

/// `spec` of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkloadSpec {
    /// Number of pods; absent means 1.
    pub replicas: Option<i32>,
    /// Selector of its pods.
    pub selector: Option<LabelSelector>,
    /// Template of its pods; CapacityBuffers plan virtual pods from it.
    pub template: PodTemplateSpec,
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: SelectingSpec,
}

/// A ReplicationController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicationController {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: SelectingSpec,
}

/// `spec` of a Service or a ReplicationController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectingSpec {
    /// Labels that select pods; absent selects none.
    pub selector: Option<BTreeMap<String, String>>,
}

/// A ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceQuota {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it is about.
    pub spec: ResourceQuotaSpec,
    /// What it allows, and what is used of that.
    pub status: ResourceQuotaStatus,
}

/// `spec` of a ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceQuotaSpec {
    /// `scopes`.
    pub scopes: Vec<String>,
    /// `scopeSelector`.
    pub scope_selector: Option<ScopeSelector>,
}

/// `status` of a ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceQuotaStatus {
    /// `hard`: the limits that are in force.
    pub hard: ResourceList,
    /// `used`.
    pub used: ResourceList,
}
