//! What the API server says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Seen;

/// What the API server says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubernetesView {
    /// Version of the API server, such as `1.34`.
    pub version: Seen<String>,
    /// Nodes.
    pub nodes: Seen<Vec<NodeView>>,
    /// Deployments.
    pub deployments: Seen<Vec<WorkloadView>>,
    /// DaemonSets.
    pub daemon_sets: Seen<Vec<WorkloadView>>,
    /// Ready endpoints of the cluster's DNS.
    pub dns_endpoints: Seen<usize>,
    /// Labels of the operator's namespace; none if it does not exist.
    pub namespace: Seen<Option<BTreeMap<String, String>>>,
    /// Resource quotas of the operator's namespace that limit priority classes.
    pub priority_quotas: Seen<Vec<String>>,
    /// Names of the flow schemas.
    pub flow_schemas: Seen<Vec<String>>,
    /// Admission webhooks that matter.
    pub webhooks: Seen<Vec<WebhookView>>,
    /// CRDs of Karpenter's API groups, and whether others that matter exist.
    pub crds: Seen<Vec<CrdView>>,
    /// Helm releases by their records.
    pub releases: Seen<Vec<ReleaseView>>,
    /// The role that an annotation of the operator's service account names; outer none if there is
    /// no account.
    pub service_account_role: Seen<Option<String>>,
    /// The ConfigMap `aws-auth`: its `mapRoles`.
    pub aws_auth: Seen<Option<String>>,
    /// NodePools.
    pub node_pools: Seen<Vec<Value>>,
    /// EC2NodeClasses.
    pub node_classes: Seen<Vec<Value>>,
    /// NodeClaims.
    pub node_claims: Seen<Vec<Value>>,
    /// KEDA's ScaledObjects and ScaledJobs.
    pub scalers: Seen<Vec<ScalerView>>,
}

/// What KEDA scales a workload by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalerView {
    /// Kind, namespace and name.
    pub name: String,
    /// Status of its condition `Ready`; none if it has no such condition.
    pub ready: Option<String>,
    /// What the condition says.
    pub message: String,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is shown by a label, taint or condition of its own"
)]
pub struct NodeView {
    /// Name in Kubernetes.
    pub name: String,
    /// Value of the label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// It is ready and takes pods.
    pub ready: bool,
    /// A NodePool's.
    pub from_node_pool: bool,
    /// It runs on Fargate.
    pub fargate: bool,
    /// kOps made it.
    pub kops: bool,
    /// Its architecture, as Kubernetes names it.
    pub architecture: String,
    /// Names of the images that it has.
    pub images: Vec<String>,
    /// Free CPU by requests, in thousandths of a core.
    pub free_cpu: i64,
    /// Free memory by requests, in bytes.
    pub free_memory: i64,
}

/// A Deployment or DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadView {
    /// Namespace in Kubernetes.
    pub namespace: String,
    /// Name in its namespace.
    pub name: String,
    /// Images of its containers.
    pub images: Vec<String>,
    /// Names of its containers' environment variables.
    pub env: Vec<String>,
    /// Value of `INTERRUPTION_QUEUE`, if it has that variable.
    pub interruption_queue: Option<String>,
    /// The instance tag that it asks for before it drains a node, if it is a Node Termination
    /// Handler that reads a queue.
    pub managed_tag: Option<String>,
    /// Its pods stay off nodes of NodePools.
    pub avoids_pools: bool,
    /// How many pods are wanted.
    pub wanted: i64,
    /// How many are ready.
    pub ready: i64,
    /// It tolerates every taint.
    pub tolerates_all: bool,
    /// Its labels and annotations.
    pub marks: BTreeMap<String, String>,
}

/// An admission webhook.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WebhookView {
    /// Configuration and webhook.
    pub name: String,
    /// What it cannot judge is refused.
    pub fails_closed: bool,
    /// Resources that it judges, such as `pods`.
    pub resources: Vec<String>,
    /// The Service that judges; none for an address outside.
    pub service: Option<String>,
    /// Its ready endpoints.
    pub endpoints: usize,
}

/// A CRD.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CrdView {
    /// Plural and group, such as `nodepools.karpenter.sh`.
    pub name: String,
    /// Versions in which objects may still be stored.
    pub stored_versions: Vec<String>,
    /// Objects are converted by a webhook.
    pub conversion_webhook: bool,
    /// Its labels and annotations.
    pub marks: BTreeMap<String, String>,
}

/// A Helm release.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReleaseView {
    /// Name as Helm lists it.
    pub name: String,
    /// Namespace that holds Helm's record.
    pub namespace: String,
    /// `deployed`, `pending-upgrade`, ….
    pub status: String,
    /// Tenon's installer wrote it.
    pub ours: bool,
}
