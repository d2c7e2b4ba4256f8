//! What the simulator knows about an instance beside its own record: the hardware of its type, the
//! family of its image, and whether it may join.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tenon_aws_double::amis;
use tenon_aws_double::catalog::Catalog;
use tenon_aws_double::instance::Instance;
use tenon_aws_double::token_review::NotAdmitted;

use super::bootstrap::{BootstrapError, Family, WindowsServer};
use super::kops::KopsError;
use super::node::{AmountError, Hardware};

/// Says whether an IAM role (its ARN) may join the cluster as a node.
pub type Admission = Box<dyn Fn(&str) -> Result<(), NotAdmitted> + Send + Sync>;

/// Why an instance does not become a node.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Its image is for something else.
    #[error("image {0} is no image for EKS nodes: nothing on it joins a cluster")]
    Image(String),
    /// Its type is not known.
    #[error("instance type {0} is not in the region's catalog")]
    InstanceType(String),
    /// It has no role.
    #[error("it has no instance profile, so its kubelet has no identity")]
    NoProfile,
    /// Its role may not join.
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    /// It is nowhere.
    #[error("it is in no subnet")]
    NoSubnet,
    /// Nothing reaches it.
    #[error("it has no security group, so nothing lets it reach the API server")]
    NoSecurityGroup,
    /// It can't ask for its user data.
    #[error("its metadata service is disabled, so its bootstrap can't read the user data")]
    NoMetadata,
    /// Its user data can't be used.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// kOps does not let it in.
    #[error(transparent)]
    Kops(#[from] KopsError),
    /// An amount in its kubelet's configuration is none.
    #[error(transparent)]
    Amount(#[from] AmountError),
}

/// Facts about instances.
pub struct Facts {
    /// Instance types of the region.
    pub catalog: Arc<Catalog>,
    /// Region of all instances.
    pub region: String,
    /// Zone ids by zone.
    pub zone_ids: BTreeMap<String, String>,
    /// Images by id.
    pub images: BTreeMap<String, amis::Family>,
    /// Who may join.
    pub admission: Admission,
}

impl fmt::Debug for Facts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Facts").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Facts {
    /// Which program reads the user data of the instance's image.
    pub fn family(&self, instance: &Instance) -> Result<Family, JoinError> {
        match self.images.get(&instance.image_id) {
            Some(amis::Family::Al2023) => Ok(Family::Al2023),
            Some(amis::Family::Al2) => Ok(Family::Al2),
            Some(amis::Family::Bottlerocket) => Ok(Family::Bottlerocket),
            Some(amis::Family::Ubuntu) => Ok(Family::Ubuntu),
            Some(amis::Family::Windows2019) => Ok(windows(2019, "10.0.17763")),
            Some(amis::Family::Windows2022) => Ok(windows(2022, "10.0.20348")),
            Some(amis::Family::Windows2025) => Ok(windows(2025, "10.0.26100")),
            None => Err(JoinError::Image(instance.image_id.clone())),
        }
    }

    /// What the machine is.
    pub fn hardware(&self, instance: &Instance) -> Result<Hardware, JoinError> {
        let type_name = &instance.instance_type;
        let kind = self.catalog.get(type_name);
        let kind = kind.ok_or_else(|| JoinError::InstanceType(type_name.clone()))?;
        let interface_pods = kind.max_interfaces * kind.ipv4_per_interface.saturating_sub(1) + 2;
        let root = instance.volumes.first().map_or(20, |volume| u64::from(volume.size_gib));
        Ok(Hardware {
            instance_id: instance.id.clone(),
            instance_type: instance.instance_type.clone(),
            zone: instance.zone.clone(),
            zone_id: self.zone_ids.get(&instance.zone).cloned().unwrap_or_default(),
            region: self.region.clone(),
            private_dns_name: instance.private_dns_name.clone(),
            private_ip: instance.private_ip.to_string(),
            architecture: if instance.architecture == "arm64" {
                "arm64".into()
            } else {
                "amd64".into()
            },
            vcpus: kind.vcpus,
            memory_mib: kind.memory_mib,
            interface_pods,
            secondary_addresses: kind.ipv4_per_interface.saturating_sub(1),
            root_volume_gib: root,
            // The device plugins of accelerators run as pods; the bed has none, so machines show no
            // devices.
            devices: BTreeMap::new(),
        })
    }

    /// Whether the instance's role may join.
    pub fn admission(&self, instance: &Instance) -> Result<(), JoinError> {
        let profile = instance.profile.as_ref().ok_or(JoinError::NoProfile)?;
        Ok((self.admission)(&profile.role_arn)?)
    }

    /// Whether the instance can reach the cluster and read its own metadata.
    pub fn network(&self, instance: &Instance) -> Result<(), JoinError> {
        if instance.subnet_id.is_empty() {
            return Err(JoinError::NoSubnet);
        }
        if instance.security_groups.is_empty() {
            return Err(JoinError::NoSecurityGroup);
        }
        if instance.metadata_options.http_endpoint == "disabled" {
            return Err(JoinError::NoMetadata);
        }
        Ok(())
    }
}

fn windows(year: u16, build: &'static str) -> Family {
    Family::Windows(WindowsServer { year, build })
}
