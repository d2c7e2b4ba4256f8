//! What an AMI family implies: disks, how many pods, what is reserved.

use tenon_crds::ec2nodeclass::{AmiFamily, BlockDevice, BlockDeviceMapping, VolumeType};

/// Properties of AMI families.
pub trait Family {
    /// Disks when the NodeClass says nothing.
    fn default_disks(self) -> Vec<BlockDeviceMapping>;
    /// The disk that is the node's ephemeral storage.
    fn ephemeral_device(self) -> Option<&'static str>;
    /// The kubelet's memory is reserved for as many pods as the network interfaces allow, whatever
    /// the kubelet's own limit says.
    fn reserves_for_eni_pods(self) -> bool;
    /// `podsPerCore` has an effect.
    fn honours_pods_per_core(self) -> bool;
    /// Pods are limited by addresses of network interfaces; else 110 is the limit.
    fn limits_pods_by_eni(self) -> bool;
    /// The value of `node.kubernetes.io/windows-build`.
    fn windows_build(self) -> Option<&'static str>;
    /// Local disks can become the ephemeral storage: on Windows nothing does that.
    fn can_use_local_disks(self) -> bool;
}

impl Family for AmiFamily {
    fn default_disks(self) -> Vec<BlockDeviceMapping> {
        match self {
            Self::Al2 | Self::Al2023 => vec![disk("/dev/xvda", "20Gi")],
            Self::Bottlerocket => vec![disk("/dev/xvda", "4Gi"), disk("/dev/xvdb", "20Gi")],
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => {
                vec![disk("/dev/sda1", "50Gi")]
            }
            Self::Custom => Vec::new(),
        }
    }

    fn ephemeral_device(self) -> Option<&'static str> {
        match self {
            Self::Al2 | Self::Al2023 => Some("/dev/xvda"),
            Self::Bottlerocket => Some("/dev/xvdb"),
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => Some("/dev/sda1"),
            Self::Custom => None,
        }
    }

    fn reserves_for_eni_pods(self) -> bool {
        matches!(self, Self::Al2 | Self::Al2023 | Self::Custom)
    }

    fn honours_pods_per_core(self) -> bool {
        self != Self::Bottlerocket
    }

    fn limits_pods_by_eni(self) -> bool {
        self.windows_build().is_none()
    }

    fn windows_build(self) -> Option<&'static str> {
        match self {
            Self::Windows2019 => Some("10.0.17763"),
            Self::Windows2022 => Some("10.0.20348"),
            Self::Windows2025 => Some("10.0.26100"),
            Self::Al2 | Self::Al2023 | Self::Bottlerocket | Self::Custom => None,
        }
    }

    fn can_use_local_disks(self) -> bool {
        self.windows_build().is_none()
    }
}

fn disk(device: &str, size: &str) -> BlockDeviceMapping {
    BlockDeviceMapping {
        device_name: Some(device.to_owned()),
        ebs: Some(BlockDevice {
            encrypted: Some(true),
            volume_size: Some(size.to_owned()),
            volume_type: Some(VolumeType::Gp3),
            ..BlockDevice::default()
        }),
        root_volume: None,
    }
}
