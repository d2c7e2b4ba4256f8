//! Fields of an InstanceGroup that are not in its NodePool and EC2NodeClass: why not, and what
//! there is instead.

use serde_json::Value;

/// A field that is set and has no equivalent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unmapped {
    pub field: String,
    pub why: &'static str,
}

/// What becomes of a field.
enum Fate {
    /// It is in the objects.
    Mapped,
    /// kOps' script and what it fetches see to it.
    ByScript,
    /// It has no equivalent.
    Without(&'static str),
}

use Fate::{ByScript, Mapped, Without};

/// Why no volume has to ask for it.
const EBS_OPTIMIZED: &str = "current instance types are always EBS-optimized";

/// All fields of `spec`.
const FIELDS: &[(&str, Fate)] = &[
    ("additionalSecurityGroups", Mapped),
    (
        "additionalUserData",
        Without(
            "kOps' script for these groups does not contain it: put it into the image, or into \
             userData with --patch",
        ),
    ),
    ("associatePublicIP", Mapped),
    ("associatePublicIp", Mapped),
    ("autoscale", Without("it is about Cluster Autoscaler; minSize alone makes the pool static")),
    ("autoscalePriority", Mapped),
    (
        "capacityRebalance",
        Without("the operator handles rebalance recommendations by its own option"),
    ),
    ("cloudLabels", Mapped),
    ("compressUserData", ByScript),
    ("containerd", ByScript),
    (
        "cpuCredits",
        Without("an EC2NodeClass cannot set it: the default of the instance type applies"),
    ),
    ("detailedInstanceMonitoring", Mapped),
    (
        "externalLoadBalancers",
        Without("nodes are not registered: use the AWS Load Balancer Controller"),
    ),
    ("fileAssets", ByScript),
    ("gcpProvisioningModel", Without("it is about another cloud")),
    ("guestAccelerators", Without("it is about another cloud")),
    ("hooks", ByScript),
    ("iam", Mapped),
    ("image", Mapped),
    ("instanceInterruptionBehavior", Without("interrupted nodes are always replaced")),
    ("instanceMetadata", Mapped),
    (
        "instanceProtection",
        Without("it is about Auto Scaling groups: use the annotation karpenter.sh/do-not-disrupt"),
    ),
    ("kubelet", ByScript),
    ("machineType", Mapped),
    ("manager", Mapped),
    ("maxInstanceLifetime", Mapped),
    ("maxPrice", Mapped),
    ("maxSize", Mapped),
    ("minSize", Mapped),
    ("mixedInstancesPolicy", Mapped),
    ("nodeLabels", Mapped),
    ("packages", ByScript),
    ("role", Mapped),
    ("rollingUpdate", Mapped),
    ("rootVolume", Mapped),
    ("rootVolumeDeleteOnTermination", ByScript),
    ("rootVolumeEncryption", Mapped),
    ("rootVolumeEncryptionKey", Mapped),
    ("rootVolumeIops", Mapped),
    ("rootVolumeOptimization", Without(EBS_OPTIMIZED)),
    ("rootVolumeSize", Mapped),
    ("rootVolumeThroughput", Mapped),
    ("rootVolumeType", Mapped),
    ("securityGroupOverride", Mapped),
    ("spotDurationInMinutes", Mapped),
    ("subnets", Mapped),
    ("suspendProcesses", Without("it is about Auto Scaling groups")),
    ("sysctlParameters", ByScript),
    ("taints", Mapped),
    ("tenancy", Mapped),
    ("updatePolicy", ByScript),
    ("volumeMounts", ByScript),
    ("volumes", Mapped),
    ("warmPool", Without("keep room ready with a CapacityBuffer instead")),
    ("zones", Without("it is about another cloud; the subnets decide")),
];

/// Fields of the policy for mixed instances that only an Auto Scaling group needs.
const OF_POLICY: [&str; 3] =
    ["onDemandAllocationStrategy", "spotAllocationStrategy", "spotInstancePools"];

/// Those that are set, in the order of their names.
pub(crate) fn unmapped(spec: &Value) -> Vec<Unmapped> {
    let mut unmapped = Vec::new();
    let set = spec.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    for (field, _) in set {
        let fate = FIELDS.iter().find(|(name, _)| name == field);
        let why = match fate.map(|(_, fate)| fate) {
            Some(Mapped | ByScript) => continue,
            Some(Without(why)) => why,
            None => "this version of Tenon does not know it",
        };
        unmapped.push(Unmapped { field: format!("spec.{field}"), why });
    }
    let policy = &spec["mixedInstancesPolicy"];
    unmapped.extend(OF_POLICY.iter().filter(|field| !policy[**field].is_null()).map(|field| {
        Unmapped {
            field: format!("spec.mixedInstancesPolicy.{field}"),
            why: "EC2 Fleet chooses by price and capacity",
        }
    }));
    if !spec["rootVolume"]["optimization"].is_null() {
        unmapped.push(Unmapped {
            field: "spec.rootVolume.optimization".to_owned(),
            why: EBS_OPTIMIZED,
        });
    }
    if !spec["rollingUpdate"]["maxSurge"].is_null() {
        unmapped.push(Unmapped {
            field: "spec.rollingUpdate.maxSurge".to_owned(),
            why: "a replacement is always launched before its node is drained",
        });
    }
    unmapped.sort_by(|a, b| a.field.cmp(&b.field));
    unmapped
}
