//! Label keys with a meaning for the planner.

pub(crate) const NODE_POOL: &str = "karpenter.sh/nodepool";
pub(crate) const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
pub(crate) const REGISTERED: &str = "karpenter.sh/registered";
pub(crate) const INITIALIZED: &str = "karpenter.sh/initialized";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
pub(crate) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub(crate) const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
pub(crate) const ARCH: &str = "kubernetes.io/arch";
pub(crate) const OS: &str = "kubernetes.io/os";
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
