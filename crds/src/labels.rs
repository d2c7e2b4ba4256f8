//! Names of labels, annotations, taints and finalizers, and the rules about which labels users may
//! set.

use std::collections::BTreeSet;

/// API group of NodePool and NodeClaim.
pub const GROUP: &str = "karpenter.sh";

// Labels.

/// Name of the NodePool of a node.
pub const NODEPOOL: &str = "karpenter.sh/nodepool";
/// Capacity type of a node: [`SPOT`], [`ON_DEMAND`] or `reserved`.
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
/// `true` on a node that is initialised.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// `true` on a node that is registered.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// `true` on a node whose taints are not to be synchronised from its NodeClaim.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
/// Availability zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Region.
pub const REGION: &str = "topology.kubernetes.io/region";
/// Instance type.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// Processor architecture: [`ARCH_AMD64`] or [`ARCH_ARM64`].
pub const ARCH: &str = "kubernetes.io/arch";
/// Operating system.
pub const OS: &str = "kubernetes.io/os";
/// Host name of a node; users cannot require it.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Build of Windows.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";

// Values of labels.

/// Capacity type: spare capacity that EC2 may take back.
pub const SPOT: &str = "spot";
/// Capacity type: on demand.
pub const ON_DEMAND: &str = "on-demand";
/// Capacity type: out of a capacity reservation.
pub(crate) const RESERVED: &str = "reserved";
/// Architecture x86-64.
pub const ARCH_AMD64: &str = "amd64";
/// Architecture 64-bit Arm.
pub const ARCH_ARM64: &str = "arm64";

// Annotations.

/// `true` on a pod, node, NodeClaim or NodePool template keeps it from voluntary disruption.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// `true` on a node keeps it from being repaired.
pub const DO_NOT_REPAIR: &str = "karpenter.sh/do-not-repair";
/// What it costs to evict a pod for consolidation, an integer.
pub const DISRUPTION_COST: &str = "karpenter.sh/disruption-cost";
/// Hash of the NodePool's template, on the NodePool and on its NodeClaims.
pub const NODEPOOL_HASH: &str = "karpenter.sh/nodepool-hash";
/// Version of the algorithm behind [`NODEPOOL_HASH`].
pub const NODEPOOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
/// When what is left on a terminating node will be deleted, RFC 3339.
pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// Whether `minValues` was relaxed for a NodeClaim: `true` or `false`.
pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
/// DRA drivers that the pods of a NodeClaim need, sorted, separated by commas.
pub const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
/// Annotation of a NodeClaim: `true` if a NodeOverlay set the price of one of its instance types.
pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
/// Annotation of a NodeClaim: `true` if a NodeOverlay changed the capacity of one of its instance
/// types.
pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
/// Boot ID of a node before its reboot, on the NodeClaim.
pub const REBOOT_PRE_BOOT_ID: &str = "karpenter.sh/reboot-pre-boot-id";
/// How long a node may drain before its reboot, on the NodeClaim.
pub const REBOOT_TERMINATION_GRACE_PERIOD: &str = "karpenter.sh/reboot-termination-grace-period";

/// What a NodePool that `tenon freeze` has paused was like before; ours.
pub const FROZEN: &str = "tenon.sh/frozen";

// Finalizers and taints.

/// Finalizer of NodeClaims and nodes.
pub const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";
/// Taint (`NoSchedule`) of nodes that are being disrupted.
pub const DISRUPTED_TAINT: &str = "karpenter.sh/disrupted";
/// Taint (`NoExecute`) of nodes that are not registered yet.
pub const UNREGISTERED_TAINT: &str = "karpenter.sh/unregistered";
/// Taint (`NoSchedule`) of nodes whose pods are not nominated yet; ours.
pub const NOT_NOMINATED_TAINT: &str = "tenon.sh/not-nominated";
/// Taint (`NoSchedule`) of nodes that are being rebooted.
pub const REBOOTING_TAINT: &str = "karpenter.sh/rebooting";

/// Names of the AWS provider.
pub mod aws {
    /// API group of EC2NodeClass.
    pub const GROUP: &str = "karpenter.k8s.aws";
    /// Name of the EC2NodeClass of a node.
    pub const EC2NODECLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
    /// Finalizer of EC2NodeClasses.
    pub const TERMINATION_FINALIZER: &str = "karpenter.k8s.aws/termination";
    /// Hash of the EC2NodeClass, on it and on NodeClaims.
    pub const EC2NODECLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
    /// Version of the algorithm behind [`EC2NODECLASS_HASH`].
    pub const EC2NODECLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
    /// Name of the instance profile of a NodeClaim's instance (annotation).
    pub const INSTANCE_PROFILE_NAME: &str = "karpenter.k8s.aws/instance-profile-name";
    /// `true` on a NodeClaim whose instance has its late tags (annotation).
    pub const TAGGED: &str = "karpenter.k8s.aws/tagged";
    /// `true` on a NodeClaim whose instance has the tag with the cluster's name (annotation).
    pub const CLUSTER_NAME_TAGGED: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";

    /// EC2 tag: name of the NodeClaim of an instance.
    pub const NODECLAIM_TAG: &str = "karpenter.sh/nodeclaim";
    /// EC2 tag: name of the cluster of an instance.
    pub const EKS_CLUSTER_NAME_TAG: &str = "eks:eks-cluster-name";
    /// Prefix of the EC2 tag that says that the cluster owns something; the cluster's name follows.
    pub const CLUSTER_TAG_PREFIX: &str = "kubernetes.io/cluster/";
    /// EC2 tag that people read.
    pub const NAME_TAG: &str = "Name";

    /// Tenancy of an instance: `default` or `dedicated`.
    pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
    /// Kind of the capacity reservation of an instance.
    pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
    /// ID of the capacity reservation of an instance.
    pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
    /// Whether EC2 may take the capacity reservation of an instance back.
    pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str =
        "karpenter.k8s.aws/capacity-reservation-interruptible";
    /// Whether the instance type encrypts traffic between instances.
    pub const INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: &str =
        "karpenter.k8s.aws/instance-encryption-in-transit-supported";
    /// Category of the instance type, such as `m`.
    pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
    /// Hypervisor of the instance type.
    pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
    /// Family of the instance type, such as `m7g`.
    pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
    /// Generation of the instance type, such as `7`.
    pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
    /// Size of the local NVMe disks in GB.
    pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
    /// Size of the instance type, such as `xlarge`.
    pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
    /// Count of virtual CPUs.
    pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
    /// Manufacturer of the processor.
    pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
    /// Sustained clock speed of the processor in MHz.
    pub const INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: &str =
        "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
    /// Memory in MiB.
    pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
    /// Greatest EBS bandwidth in Mbit/s.
    pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
    /// Baseline network bandwidth in Mbit/s.
    pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
    /// Name of the GPU.
    pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
    /// Manufacturer of the GPU.
    pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
    /// Count of GPUs.
    pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
    /// Memory of a GPU in MiB.
    pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
    /// Name of the accelerator.
    pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
    /// Manufacturer of the accelerator.
    pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str =
        "karpenter.k8s.aws/instance-accelerator-manufacturer";
    /// Count of accelerators.
    pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
    /// Whether it is a flex instance type.
    pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
    /// ID of the placement group.
    pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
    /// Partition of the placement group.
    pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";
    /// ID of the availability zone.
    pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
    /// The zone as the EBS CSI driver labels it; an alias of [`super::ZONE`].
    pub(crate) const EBS_CSI_ZONE: &str = "topology.ebs.csi.aws.com/zone";

    /// Labels of the domain `karpenter.k8s.aws` that users may require and set.
    pub(crate) const ALLOWED: &[&str] = &[
        INSTANCE_TENANCY,
        CAPACITY_RESERVATION_TYPE,
        CAPACITY_RESERVATION_ID,
        CAPACITY_RESERVATION_INTERRUPTIBLE,
        EC2NODECLASS,
        INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
        INSTANCE_CATEGORY,
        INSTANCE_HYPERVISOR,
        INSTANCE_FAMILY,
        INSTANCE_GENERATION,
        INSTANCE_LOCAL_NVME,
        INSTANCE_SIZE,
        INSTANCE_CPU,
        INSTANCE_CPU_MANUFACTURER,
        INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
        INSTANCE_MEMORY,
        INSTANCE_EBS_BANDWIDTH,
        INSTANCE_NETWORK_BANDWIDTH,
        INSTANCE_GPU_NAME,
        INSTANCE_GPU_MANUFACTURER,
        INSTANCE_GPU_COUNT,
        INSTANCE_GPU_MEMORY,
        INSTANCE_ACCELERATOR_NAME,
        INSTANCE_ACCELERATOR_MANUFACTURER,
        INSTANCE_ACCELERATOR_COUNT,
        INSTANCE_CAPABILITY_FLEX,
        PLACEMENT_GROUP_ID,
        PLACEMENT_GROUP_PARTITION,
    ];
}

/// Names of the kwok provider.
pub mod kwok {
    /// API group of KWOKNodeClass.
    pub const GROUP: &str = "karpenter.kwok.sh";
    /// Name of the KWOKNodeClass of a node.
    pub const KWOKNODECLASS: &str = "karpenter.kwok.sh/kwoknodeclass";
    /// Size of the pretended instance type.
    pub const INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";
    /// Family of the pretended instance type.
    pub const INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
    /// CPUs of the pretended instance type.
    pub const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
    /// Memory of the pretended instance type.
    pub const INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";
    /// Label that spreads nodes over kwok controllers.
    pub const PARTITION: &str = "kwok-partition";
    /// Label and annotation of nodes that kwok plays; its value is `fake`.
    pub const NODE: &str = "kwok.x-k8s.io/node";
    /// Price of the instance type for people's tools.
    pub const INSTANCE_PRICE: &str = "eks-node-viewer/instance-price";
}

/// Labels of the core that instance types and nodes always define.
const WELL_KNOWN: &[&str] =
    &[NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD];

/// Older names of labels, with the names that count.
const ALIASES: &[(&str, &str)] = &[
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
    ("beta.kubernetes.io/arch", ARCH),
    ("beta.kubernetes.io/os", OS),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
];

/// What a cloud provider knows about labels. A value, handed to whoever decides about labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRules {
    well_known: BTreeSet<String>,
    restricted_domains: Vec<&'static str>,
    aliases: Vec<(&'static str, &'static str)>,
    known_values: Vec<(&'static str, &'static [&'static str])>,
}

/// Why a label cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Restriction {
    /// The label itself is not for users.
    #[error("label {key} is restricted")]
    Label {
        /// Key of the label.
        key: String,
    },
    /// The domain of the label belongs to the operator.
    #[error(
        "label {key} is restricted: in the domain \"{domain}\" only well-known labels may be used"
    )]
    Domain {
        /// Key of the label.
        key: String,
        /// The restricted domain of the key, such as `karpenter.sh`.
        domain: &'static str,
    },
}

impl LabelRules {
    /// The rules that hold for every provider.
    pub fn core() -> Self {
        Self {
            well_known: WELL_KNOWN.iter().map(|&key| key.to_owned()).collect(),
            restricted_domains: vec![GROUP],
            aliases: ALIASES.to_vec(),
            known_values: vec![(CAPACITY_TYPE, &[ON_DEMAND, SPOT, RESERVED])],
        }
    }

    /// The rules of the AWS provider.
    pub fn aws() -> Self {
        let mut rules = Self::core();
        rules.well_known.extend(
            aws::ALLOWED.iter().filter(|&&key| key != aws::EC2NODECLASS).map(|&key| key.to_owned()),
        );
        rules.well_known.insert(aws::ZONE_ID.to_owned());
        rules.restricted_domains.push(aws::GROUP);
        rules.aliases.push((aws::EBS_CSI_ZONE, ZONE));
        rules.known_values.push((aws::INSTANCE_TENANCY, &["dedicated", "default"]));
        rules
    }

    /// The rules of the kwok provider; `extra` are further label keys of its instance types.
    pub fn kwok(extra: impl IntoIterator<Item = String>) -> Self {
        let mut rules = Self::core();
        rules.well_known.extend(
            [kwok::INSTANCE_SIZE, kwok::INSTANCE_FAMILY, kwok::INSTANCE_CPU, kwok::INSTANCE_MEMORY]
                .map(str::to_owned),
        );
        rules.well_known.extend(extra);
        rules.restricted_domains.push(kwok::GROUP);
        rules
    }

    /// The labels that every instance type defines.
    pub fn well_known(&self) -> &BTreeSet<String> {
        &self.well_known
    }

    /// Whether every instance type defines the label.
    pub fn is_well_known(&self, key: &str) -> bool {
        self.well_known.contains(key)
    }

    /// The name that counts for a label: the canonical one for an alias, the label itself
    /// otherwise.
    pub fn normalize<'k>(&self, key: &'k str) -> &'k str {
        self.aliases
            .iter()
            .find(|(alias, _)| *alias == key)
            .map_or(key, |&(_, canonical)| canonical)
    }

    /// The only values that a label can have, if they are known.
    pub fn known_values(&self, key: &str) -> Option<&'static [&'static str]> {
        self.known_values.iter().find(|(known, _)| *known == key).map(|&(_, values)| values)
    }

    /// Why users may not set or require the label, or nothing if they may.
    pub(crate) fn restriction(&self, key: &str) -> Option<Restriction> {
        if self.is_well_known(key) {
            return None;
        }
        if key == HOSTNAME {
            return Some(Restriction::Label { key: key.to_owned() });
        }
        let domain = key.split_once('/')?.0;
        let within = |restricted: &str| {
            domain
                .strip_suffix(restricted)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let domain =
            self.restricted_domains.iter().copied().find(|restricted| within(restricted))?;
        Some(Restriction::Domain { key: key.to_owned(), domain })
    }
}

#[cfg(test)]
mod tests;
