//! Devices, and the claims of pods to them.

use std::borrow::Cow;

use k8s_openapi::api::resource::v1::{
    DeviceClassSpec, ResourceClaimSpec, ResourceClaimStatus, ResourceClaimTemplateSpec,
    ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};

use super::{Cluster, Namespaced};

wire!(DeviceClass, Cluster, "resource.k8s.io", "v1", "deviceclasses");
wire!(ResourceClaim, Namespaced, "resource.k8s.io", "v1", "resourceclaims");
wire!(ResourceClaimTemplate, Namespaced, "resource.k8s.io", "v1", "resourceclaimtemplates");
wire!(ResourceSlice, Cluster, "resource.k8s.io", "v1", "resourceslices");

/// A DeviceClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceClass {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Which devices it has.
    pub spec: DeviceClassSpec,
}

/// A ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: ResourceClaimSpec,
    /// What is allocated, and who uses it.
    pub status: ResourceClaimStatus,
}

/// A ResourceClaimTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The claims that are made from it.
    pub spec: ResourceClaimTemplateSpec,
}

/// A ResourceSlice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceSlice {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What a driver has published.
    pub spec: ResourceSliceSpec,
}
