//! Volumes, and who attaches them where.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{NodeSelector, TopologySelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};

use super::{Cluster, Namespaced};

wire!(PersistentVolume, Cluster, "", "v1", "persistentvolumes");
wire!(PersistentVolumeClaim, Namespaced, "", "v1", "persistentvolumeclaims");
wire!(StorageClass, Cluster, "storage.k8s.io", "v1", "storageclasses");
wire!(VolumeAttachment, Cluster, "storage.k8s.io", "v1", "volumeattachments");
wire!(CSINode, Cluster, "storage.k8s.io", "v1", "csinodes");

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it is.
    pub spec: PersistentVolumeSpec,
}

/// `spec` of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// Where it can be attached.
    pub node_affinity: Option<VolumeNodeAffinity>,
    /// Present on volumes of a CSI driver.
    pub csi: Option<CsiVolume>,
    /// Present on volumes of EBS that are older than its CSI driver.
    pub aws_elastic_block_store: Option<Present>,
    /// Present on local volumes.
    pub local: Option<Present>,
    /// Present on volumes that are a path of one machine.
    pub host_path: Option<Present>,
}

/// `spec.csi` of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiVolume {
    /// Who attaches it.
    pub driver: String,
}

/// Something whose content is of no interest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Present;

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// `spec.nodeAffinity` of a PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    /// Terms of which one must hold.
    pub required: Option<NodeSelector>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: PersistentVolumeClaimSpec,
    /// What is.
    pub status: PersistentVolumeClaimStatus,
}

/// `spec` of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// The volume that it is bound to.
    pub volume_name: Option<String>,
    /// The class that a volume would come from.
    pub storage_class_name: Option<String>,
}

/// `status` of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    pub phase: Option<String>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Who makes its volumes: a CSI driver, or a plugin of Kubernetes' own that is older.
    pub provisioner: String,
    /// `WaitForFirstConsumer` or `Immediate`.
    pub volume_binding_mode: Option<String>,
    /// Where its volumes can be made.
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is attached where.
    pub spec: VolumeAttachmentSpec,
}

/// `spec` of a VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// `metadata.name` of the Node.
    pub node_name: String,
    /// The volume that is attached.
    pub source: VolumeAttachmentSource,
}

/// What a VolumeAttachment attaches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    /// The PersistentVolume; inline volumes have none.
    pub persistent_volume_name: Option<String>,
}

/// The CSI drivers of a Node, with their limits. It has the name of the Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CSINode {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Drivers and limits, as the kubelet registered them.
    pub spec: CsiNodeSpec,
}

/// `spec` of a CSINode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// Those that run on the Node.
    pub drivers: Vec<CsiNodeDriver>,
}

/// A CSI driver on a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNodeDriver {
    /// Name of the driver, such as `ebs.csi.aws.com`.
    pub name: String,
    /// Attachable volumes; absent without a limit.
    pub allocatable: Option<CsiNodeAllocatable>,
}

/// `allocatable` of a CSI driver on a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiNodeAllocatable {
    /// How many volumes; absent where it has no limit.
    pub count: Option<u32>,
}
