//! What the checks look at: one value, read once, kept as data so that a support bundle holds it
//! and a test can make it.
//!
//! Every part is [`Seen`]: known, or not, with the reason. A check on a part that is not known
//! answers "unknown", never "fine".

use serde::{Deserialize, Serialize};

mod billing;
mod cloud;
mod inside;
mod kubernetes;

pub use billing::*;
pub use cloud::*;
pub use inside::*;
pub use kubernetes::*;

/// Why a part is not known that nothing tried to read.
pub(crate) const NOT_CHECKED: &str = "not checked";

/// A part of the observations that could be read, or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Seen<T> {
    /// It was read.
    Known(T),
    /// It was not, for this reason, such as a denied call.
    Unknown(String),
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self::Unknown(NOT_CHECKED.to_owned())
    }
}

impl<T> Seen<T> {
    /// What was read, if it was.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for Seen<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(error) => Self::Unknown(error.to_string()),
        }
    }
}

/// Everything that the checks look at.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Observed {
    /// Unix seconds when this was read.
    pub now: i64,
    /// What was asked for.
    pub asked: Asked,
    /// Who calls and how.
    pub caller: CallerView,
    /// What EKS says of the cluster.
    pub cluster: Seen<ClusterView>,
    /// What the API server says.
    pub kubernetes: KubernetesView,
    /// Where nodes would be attached.
    pub network: NetworkView,
    /// Roles and who may take them.
    pub iam: IamView,
    /// Quotas, machine images, what is left of earlier installations.
    pub compute: ComputeView,
    /// What the registry says of the operator's image; none where the image names no registry.
    pub image: Seen<Option<RegistryView>>,
    /// The interruption queue.
    pub queue: Seen<Option<QueueView>>,
    /// The key of that queue, whether it is there already or not; none where SQS has keys of its
    /// own.
    pub queue_key: Seen<Option<KeyView>>,
    /// When a queue of its name was deleted from this machine, Unix seconds; none if that is not
    /// known to have happened.
    pub queue_deleted: Seen<Option<i64>>,
    /// The rules that feed it.
    pub rules: Seen<Vec<RuleView>>,
    /// The operator at work. Only the doctor looks at it.
    pub operator: OperatorView,
    /// What the bill can be split by. Only where it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_tags: Option<CostTags>,
    /// What a pod reaches. Only where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<Seen<InsideView>>,
}

impl Observed {
    /// Puts the names of this installation into a command.
    pub(crate) fn fill(&self, command: &str) -> String {
        let or = |value: &str, placeholder: &str| {
            if value.is_empty() { placeholder.to_owned() } else { value.to_owned() }
        };
        let caller = self.caller.identity.known();
        let account = caller.map_or("", |identity| identity.account.as_str());
        let caller = caller.map_or("", |identity| identity.arn.as_str());
        let vpc = self.cluster.known().map_or("", |cluster| cluster.vpc.as_str());
        let operator = self.operator.deployment.as_ref();
        let namespace = operator.map_or(&self.asked.namespace, |it| &it.namespace);
        let deployment = operator.map_or("karpenter", |it| &it.name);
        command
            .replace("<cluster>", &or(&self.asked.cluster, "<cluster>"))
            .replace("<region>", &or(&self.asked.region, "<region>"))
            .replace("<namespace>", &or(namespace, "<namespace>"))
            .replace("<deployment>", deployment)
            .replace("<account>", &or(account, "<account>"))
            .replace("<caller>", &or(caller, "<caller>"))
            .replace("<vpc>", &or(vpc, "<vpc>"))
    }
}

/// What was asked for, as far as checks depend on it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own in the settings")]
pub struct Asked {
    /// Name of the cluster.
    pub cluster: String,
    /// AWS region, from the settings.
    pub region: String,
    /// It is a kOps cluster, of which EKS knows nothing.
    pub kops: bool,
    /// The only account to work in.
    pub account: Option<String>,
    /// The operator's namespace.
    pub namespace: String,
    /// The operator's service account.
    pub service_account: String,
    /// How many operators run.
    pub replicas: i32,
    /// The operator gets its role by EKS Pod Identity; otherwise by IRSA.
    pub pod_identity: bool,
    /// The operator runs on Fargate.
    pub fargate: bool,
    /// Value of the operator's setting for the interruption queue.
    pub interruption_queue: String,
    /// NodeClasses find subnets by tag.
    pub discovery_by_tag: bool,
    /// Nodes may be spot instances.
    pub spot: bool,
    /// Architectures of nodes, as Kubernetes names them.
    pub architectures: Vec<String>,
    /// Cores that the default NodePool may have; none without one.
    pub cpu_limit: Option<u32>,
    /// AMI alias of the default EC2NodeClass.
    pub ami_alias: Option<String>,
    /// The operator's image.
    pub image: String,
    /// The operator's image is named by digest.
    pub image_digest: bool,
    /// The operator watches zonal shifts.
    pub zonal_shift: bool,
    /// The operator knows that it can't reach services without a VPC endpoint.
    pub isolated_vpc: bool,
    /// The operator, its CRDs and NodePools are ours to write.
    pub manage_operator: bool,
    /// The CRDs are ours to write.
    pub manage_crds: bool,
    /// Proxies that the operator is given.
    pub operator_no_proxy: Option<String>,
    /// Names in AWS and how long they may be.
    pub names: Vec<NameView>,
    /// Why the documents can't be stored.
    pub document_problems: Vec<String>,
    /// Why the cluster is not fit for what was asked.
    pub unfit: Seen<Vec<String>>,
    /// Things under our names that are not ours.
    pub conflicts: Vec<String>,
}

/// A name in AWS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NameView {
    /// What kind of thing.
    pub kind: String,
    /// Name as planned, which may be longer than AWS allows.
    pub name: String,
    /// Characters at most.
    pub limit: usize,
}

/// Who calls and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallerView {
    /// Account and ARN, by STS.
    pub identity: Seen<IdentityView>,
    /// Seconds that this machine's clock is ahead of AWS.
    pub clock_skew: Seen<i64>,
    /// What the kubeconfig or token leads to: the API server's address.
    pub endpoint: Seen<String>,
    /// An HTTPS proxy is set for this program.
    pub https_proxy: Option<String>,
    /// What goes past the proxy.
    pub no_proxy: Option<String>,
    /// Calls of the plan that a simulation denies.
    pub denied: Seen<Vec<DeniedView>>,
    /// What Kubernetes would not let the caller do, as `verb resource`.
    pub rbac: Seen<Vec<String>>,
}

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IdentityView {
    /// 12 digits.
    pub account: String,
    /// The caller's ARN.
    pub arn: String,
}

/// A call that a simulation denies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeniedView {
    /// IAM action, such as `ec2:CreateFleet`.
    pub action: String,
    /// On what.
    pub resource: String,
    /// A service control policy of the organisation denies it.
    pub by_organization: bool,
}

/// What EKS says of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own in EKS")]
pub struct ClusterView {
    /// `ACTIVE`, `UPDATING`, ….
    pub status: String,
    /// Kubernetes' version, such as `1.34`.
    pub version: String,
    /// The API server's address.
    pub endpoint: String,
    /// The API server is reachable from the VPC without leaving it.
    pub private_endpoint: bool,
    /// EKS Auto Mode runs nodes.
    pub auto_mode: bool,
    /// `API`, `API_AND_CONFIG_MAP` or `CONFIG_MAP`.
    pub authentication_mode: String,
    /// The network is IPv6.
    pub ipv6: bool,
    /// EKS charges for extended support when the version gets old.
    pub extended_support: bool,
    /// The control plane runs on an Outpost.
    pub outpost: bool,
    /// Zonal shift is registered.
    pub zonal_shift: bool,
    /// The VPC.
    pub vpc: String,
    /// Subnets of the control plane.
    pub subnets: Vec<String>,
    /// The cluster's security group.
    pub security_group: Option<String>,
    /// OIDC issuer.
    pub issuer: Option<String>,
}

/// The operator at work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperatorView {
    /// Its Deployment, if one was found.
    pub deployment: Option<OperatorDeploymentView>,
    /// Known and empty without a Deployment.
    pub pods: Seen<Vec<PodView>>,
    /// The last lines that it logged.
    pub log: Seen<Vec<String>>,
    /// Who leads; none if nobody ever did.
    pub leader: Seen<Option<LeaderView>>,
    /// Warnings of the last hour about what the operator is responsible for.
    pub events: Seen<Vec<EventView>>,
}

/// The operator's Deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorDeploymentView {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The tool that manages it, where that is not `tenon`.
    pub managed_by: Option<String>,
}

impl OperatorView {
    /// The tool that manages the operator, where that is not `tenon`.
    pub(crate) fn managed_by(&self) -> Option<&str> {
        self.deployment.as_ref()?.managed_by.as_deref()
    }
}

/// A pod of the operator.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodView {
    /// Name in the operator's namespace.
    pub name: String,
    /// It is ready.
    pub ready: bool,
    /// How often its container was started again.
    pub restarts: i64,
    /// Why its container does not run, such as `ImagePullBackOff`.
    pub waiting: Option<String>,
    /// Kubernetes' or the container's last words.
    pub message: Option<String>,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderView {
    /// The pod.
    pub holder: String,
    /// Seconds since it said so last.
    pub renewed_seconds_ago: i64,
}

/// A warning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventView {
    /// Kind and name of what it is about.
    pub object: String,
    /// Reason of the Event, such as `FailedScheduling`.
    pub reason: String,
    /// What it says.
    pub message: String,
}
