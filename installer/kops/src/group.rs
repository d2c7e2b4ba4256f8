//! An InstanceGroup.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tenon_crds::quantity::Quantity;

use crate::document;
use crate::fields::{self, Unmapped};
use crate::names;
use crate::problem::Problem;

/// An InstanceGroup, as its file has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// As in `metadata.name`, and of its file in the state store.
    pub name: String,
    /// What launches its instances.
    pub manager: Manager,
    pub(crate) spec: Spec,
    pub(crate) unmapped: Vec<Unmapped>,
}

/// What launches the instances of an InstanceGroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Manager {
    /// An Auto Scaling group.
    #[default]
    CloudGroup,
    /// A NodePool.
    Karpenter,
}

/// `spec`, in both versions of the API: `v1alpha2` has the root volume in flat fields.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    manager: Manager,
    role: String,
    pub image: String,
    pub min_size: Option<i64>,
    pub max_size: Option<i64>,
    pub autoscale_priority: i64,
    pub machine_type: String,
    pub root_volume: RootVolume,
    root_volume_size: Option<i64>,
    root_volume_type: Option<String>,
    root_volume_iops: Option<i64>,
    root_volume_throughput: Option<i64>,
    root_volume_encryption: Option<bool>,
    root_volume_encryption_key: Option<String>,
    pub volumes: Vec<Volume>,
    pub subnets: Vec<String>,
    pub max_price: Option<Value>,
    pub spot_duration_in_minutes: Option<i64>,
    #[serde(alias = "associatePublicIP")]
    pub associate_public_ip: Option<bool>,
    pub additional_security_groups: Vec<String>,
    pub cloud_labels: BTreeMap<String, String>,
    pub node_labels: BTreeMap<String, String>,
    pub tenancy: String,
    pub taints: Vec<String>,
    pub mixed_instances_policy: Option<MixedInstancesPolicy>,
    pub detailed_instance_monitoring: Option<bool>,
    pub iam: Option<Profile>,
    pub security_group_override: Option<String>,
    pub instance_metadata: InstanceMetadata,
    pub max_instance_lifetime: Option<String>,
    pub rolling_update: RollingUpdate,
}

/// A disk, either the root volume or another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RootVolume {
    pub size: Option<i64>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub iops: Option<i64>,
    pub throughput: Option<i64>,
    pub encryption: Option<bool>,
    pub encryption_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Volume {
    pub delete_on_termination: Option<bool>,
    pub device: String,
    pub encrypted: Option<bool>,
    pub iops: Option<i64>,
    pub throughput: Option<i64>,
    pub key: Option<String>,
    pub size: i64,
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MixedInstancesPolicy {
    pub instances: Vec<String>,
    pub instance_requirements: Option<InstanceRequirements>,
    pub on_demand_base: Option<i64>,
    pub on_demand_above_base: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InstanceRequirements {
    pub cpu: MinMax,
    pub memory: MinMax,
    pub excluded_instance_types: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MinMax {
    pub min: Option<Quantity>,
    pub max: Option<Quantity>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Profile {
    pub profile: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InstanceMetadata {
    pub http_put_response_hop_limit: Option<i64>,
    pub http_tokens: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RollingUpdate {
    pub drain_and_terminate: Option<bool>,
    pub max_unavailable: Option<Value>,
}

impl Group {
    /// Reads the file of an InstanceGroup. `name` is that of the file.
    ///
    /// # Errors
    /// If it is no InstanceGroup, or has another name than its file.
    pub fn parse(name: &str, text: &str) -> Result<Self, Problem> {
        let what = document_name(name);
        let document = document::parse(text, "InstanceGroup", &what)?;
        if document["metadata"]["name"] != name {
            let message = format!("the file {name} holds {}", document["metadata"]["name"]);
            return Err(Problem::new(&what, "metadata.name", message));
        }
        let mut spec: Spec = document::typed(&document["spec"], "spec", &what)?;
        let flat = RootVolume {
            size: spec.root_volume_size.take(),
            kind: spec.root_volume_type.take(),
            iops: spec.root_volume_iops.take(),
            throughput: spec.root_volume_throughput.take(),
            encryption: spec.root_volume_encryption.take(),
            encryption_key: spec.root_volume_encryption_key.take(),
        };
        if flat != RootVolume::default() {
            spec.root_volume = flat;
        }
        let manager = spec.manager;
        let unmapped = fields::unmapped(&document["spec"]);
        Ok(Self { name: name.to_owned(), manager, spec, unmapped })
    }

    /// It holds nodes that run pods, and neither the control plane nor a bastion.
    pub fn is_of_nodes(&self) -> bool {
        self.spec.role == "Node"
    }

    /// How it names its image, as [`crate::ImageSource::parse`] reads it.
    pub fn image(&self) -> &str {
        &self.spec.image
    }

    /// It holds nodes of the control plane.
    pub(crate) fn is_of_control_plane(&self) -> bool {
        ["Master", "ControlPlane"].contains(&self.spec.role.as_str())
    }

    /// Name of the instance profile of its nodes.
    pub fn profile(&self, cluster: &str) -> String {
        let own = self.spec.iam.as_ref().and_then(|iam| iam.profile.as_deref());
        match own.filter(|profile| !profile.is_empty()) {
            Some(profile) => profile.rsplit('/').next().unwrap_or_default().to_owned(),
            None if self.is_of_control_plane() => names::control_plane_profile_name(cluster),
            None => names::profile_name(cluster),
        }
    }

    /// How many nodes of the control plane it has.
    pub fn control_planes(&self) -> i64 {
        if self.is_of_control_plane() { self.spec.min_size.unwrap_or(1).max(0) } else { 0 }
    }

    /// It excludes instance types by patterns, which only the list of all types resolves.
    pub fn has_patterns(&self) -> bool {
        let policy = self.spec.mixed_instances_policy.as_ref();
        let wanted = policy.and_then(|policy| policy.instance_requirements.as_ref());
        let excluded = wanted.map(|wanted| wanted.excluded_instance_types.as_slice());
        excluded.unwrap_or_default().iter().any(|pattern| pattern.contains('*'))
    }

    /// What errors call it.
    pub(crate) fn document(&self) -> String {
        document_name(&self.name)
    }
}

fn document_name(name: &str) -> String {
    format!("InstanceGroup {name}")
}
