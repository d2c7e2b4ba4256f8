//! A cluster that Cluster Autoscaler scales: a managed node group and a self-managed Auto Scaling
//! group, whose instances launch from their templates and join as nodes, with workloads on them.
//! Cluster Autoscaler itself is played by its Deployment alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::bed::{ACCOUNT, Bed};
use crate::failure::Failure;
use crate::objects::is_ready;
use crate::user::{LIMIT, User};
use crate::wait::{NotYet, eventually};

/// The managed node group; its Auto Scaling group has another name.
pub const MANAGED: &str = "apps";
/// The self-managed Auto Scaling group.
pub const OWN: &str = "workers";
/// The Deployment of Cluster Autoscaler, in the namespace `kube-system`.
pub const NAME: &str = "cluster-autoscaler";
/// Labels of the nodes of each group.
pub const LABELS: [&str; 2] = ["team=red", "tier=back"];
const PROFILE: &str = "workers";

/// How large the groups are, and what runs on them.
#[derive(Debug)]
pub struct Shape {
    instance_type: &'static str,
    /// Nodes of the managed group and of the other one.
    pub nodes: [usize; 2],
    /// Pods on the managed group that a PodDisruptionBudget protects, and how many may be missing.
    red: (usize, usize),
    /// Deployments without a budget on the other group, and their pods.
    back: (usize, usize),
}

/// 5 nodes with 9 pods.
pub const SMALL: Shape =
    Shape { instance_type: "m5.large", nodes: [3, 2], red: (6, 1), back: (1, 3) };
/// 30 nodes with 200 pods.
pub const LARGE: Shape =
    Shape { instance_type: "m5.xlarge", nodes: [18, 12], red: (120, 12), back: (8, 10) };

/// A Deployment, and how many of its pods may be missing at once.
struct Workload {
    app: String,
    pods: usize,
    may_miss: usize,
}

impl Shape {
    /// The first has the budget.
    fn workloads(&self) -> Vec<Workload> {
        let workload = |app: String, pods, may_miss| Workload { app, pods, may_miss };
        let red = workload("red".to_owned(), self.red.0, self.red.1);
        let back = (0..self.back.0).map(|n| workload(format!("back-{n}"), self.back.1, 1));
        [red].into_iter().chain(back).collect()
    }

    /// Pods of all workloads.
    pub fn pods(&self) -> usize {
        self.workloads().iter().map(|workload| workload.pods).sum()
    }
}

/// The groups and their workloads.
#[derive(Debug)]
pub struct Groups<'a> {
    bed: &'a Bed,
    user: User,
    shape: &'static Shape,
}

/// An Auto Scaling group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size {
    /// `MinSize`.
    pub least: i32,
    /// `DesiredCapacity`.
    pub desired: i32,
    /// Whether a process such as `AZRebalance` is suspended.
    pub is_suspended: bool,
}

impl<'a> Groups<'a> {
    /// Creates them on a bed with Tenon, whose node role their nodes take, and waits until all pods
    /// run. Then Cluster Autoscaler starts.
    ///
    /// # Errors
    /// When AWS or the API server refuses something, or nodes or pods are not there in time.
    pub async fn start(bed: &'a Bed, user: &User, shape: &'static Shape) -> Result<Self, Failure> {
        let this = Self { bed, user: user.clone(), shape };
        let templates = this.templates().await?;
        this.create(&templates).await?;
        for (label, nodes) in LABELS.into_iter().zip(shape.nodes) {
            this.has_nodes(label, nodes).await?;
        }
        this.run().await?;
        this.deploy().await?;
        Ok(this)
    }

    /// What a node of a group is configured with at its start.
    fn user_data(&self, label: &str) -> Result<String, Failure> {
        let cluster =
            self.bed.aws()?.gateway().state().cluster().ok_or("no cluster is announced")?;
        let config = json!({
            "apiVersion": "node.eks.aws/v1alpha1",
            "kind": "NodeConfig",
            "spec": {
                "cluster": {
                    "apiServerEndpoint": cluster.endpoint,
                    "certificateAuthority": STANDARD.encode(&cluster.ca_pem),
                    "cidr": cluster.service_cidr,
                    "name": cluster.name,
                },
                "kubelet": {
                    "config": { "maxPods": 29 },
                    "flags": [format!("--node-labels={label}")],
                },
            },
        });
        let text = format!(
            "MIME-Version: 1.0\nContent-Type: multipart/mixed; \
             boundary=\"//\"\n\n--//\nContent-Type: application/node.eks.aws\n\n{config}\n--//--"
        );
        Ok(STANDARD.encode(text))
    }

    /// An instance profile with the node role that Tenon made, and the ids of a launch template for
    /// each group.
    async fn templates(&self) -> Result<[String; 2], Failure> {
        let aws = self.bed.aws()?;
        let class = self.user.objects("EC2NodeClass").get("default").await?;
        let role = class.data["spec"]["role"].as_str().ok_or("an EC2NodeClass without a role")?;
        let caller = aws.caller();
        let profile = [("InstanceProfileName", PROFILE)];
        caller.query("iam", "CreateInstanceProfile", &profile).await?;
        let with_role = [profile[0], ("RoleName", role)];
        caller.query("iam", "AddRoleToInstanceProfile", &with_role).await?;
        let state = aws.gateway().state();
        let cluster = state.cluster().ok_or("no cluster is announced")?;
        let kind = format!("amazon-eks-node-al2023-x86_64-standard-{}-", cluster.version);
        let image = state.amis().iter().find(|ami| ami.recommended && ami.name.starts_with(&kind));
        let image = image.ok_or("no image for nodes")?.id.clone();
        let mut ids = Vec::new();
        let of_managed = format!("{},eks.amazonaws.com/nodegroup={MANAGED}", LABELS[0]);
        for (name, label) in [(MANAGED, of_managed.as_str()), (OWN, LABELS[1])] {
            let data = self.user_data(label)?;
            let template = [
                ("LaunchTemplateName", name),
                ("LaunchTemplateData.ImageId", &image),
                ("LaunchTemplateData.InstanceType", self.shape.instance_type),
                ("LaunchTemplateData.IamInstanceProfile.Name", PROFILE),
                ("LaunchTemplateData.SecurityGroupId.1", &cluster.cluster_security_group_id),
                ("LaunchTemplateData.UserData", &data),
            ];
            let made = caller.query("ec2", "CreateLaunchTemplate", &template).await?;
            let id = made.at(&["launchTemplate", "launchTemplateId"]);
            ids.push(id.ok_or("a launch template without an id")?.text.clone());
        }
        ids.try_into().map_err(|_| "a launch template for each group".into())
    }

    async fn create(&self, templates: &[String; 2]) -> Result<(), Failure> {
        let [managed, own] = self.shape.nodes;
        let aws = self.bed.aws()?;
        let caller = aws.caller();
        let subnets = aws.seed().subnet_ids.clone();
        let node_group = json!({
            "nodegroupName": MANAGED,
            "nodeRole": format!("arn:aws:iam::{ACCOUNT}:role/nodes"),
            "subnets": subnets,
            "instanceTypes": [self.shape.instance_type],
            "capacityType": "ON_DEMAND",
            "labels": { "team": "red" },
            "launchTemplate": { "id": templates[0], "version": "1" },
            "scalingConfig": { "minSize": 2, "maxSize": managed + 2, "desiredSize": managed },
        });
        let path = format!("/clusters/{}/node-groups", self.bed.cluster());
        caller.rest("eks", Method::POST, &path, &node_group).await?;
        let subnets = subnets.join(",");
        let (max, own) = ((own + 2).to_string(), own.to_string());
        let group = [
            ("AutoScalingGroupName", OWN),
            ("MinSize", "1"),
            ("MaxSize", &max),
            ("DesiredCapacity", &own),
            ("VPCZoneIdentifier", &subnets),
            ("LaunchTemplate.LaunchTemplateId", &templates[1]),
            ("LaunchTemplate.Version", "$Latest"),
            ("Tags.member.1.Key", "k8s.io/cluster-autoscaler/enabled"),
            ("Tags.member.1.Value", "true"),
        ];
        caller.query("autoscaling", "CreateAutoScalingGroup", &group).await?;
        Ok(())
    }

    async fn run(&self) -> Result<(), Failure> {
        let workloads = self.shape.workloads();
        for (n, Workload { app, pods, .. }) in workloads.iter().enumerate() {
            let selector =
                if n == 0 { json!({ "team": "red" }) } else { json!({ "tier": "back" }) };
            self.user.scale(app, *pods, &selector).await?;
        }
        let Workload { app, may_miss, .. } = &workloads[0];
        let budget = json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": { "name": app },
            "spec": { "maxUnavailable": may_miss, "selector": { "matchLabels": { "app": app } } },
        });
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.bed.client(), "default");
        budgets.patch(app, &PatchParams::apply("user"), &Patch::Apply(budget)).await?;
        Ok(self.all_run().await?)
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.bed.client(), "kube-system")
    }

    async fn deploy(&self) -> Result<(), kube::Error> {
        let labels = json!({ "app": NAME });
        let container = json!({
            "name": NAME,
            "image": "registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0",
            "command": [
                "./cluster-autoscaler",
                "--cloud-provider=aws",
                "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled",
            ],
        });
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": NAME },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": {
                        "containers": [container],
                        // No NodePool can have such nodes, and none has to: it ends.
                        "nodeSelector": { "eks.amazonaws.com/nodegroup": MANAGED },
                    },
                },
            },
        });
        let parameters = PatchParams::apply("helm");
        self.deployments().patch(NAME, &parameters, &Patch::Apply(deployment)).await.map(drop)
    }

    /// How many replicas Cluster Autoscaler should have, and how many it has.
    ///
    /// # Errors
    /// When the API server can't be asked.
    pub async fn replicas(&self) -> Result<(i32, i32), kube::Error> {
        let found = self.deployments().get(NAME).await?;
        let wanted = found.spec.replicas.unwrap_or(1);
        Ok((wanted, found.status.and_then(|status| status.replicas).unwrap_or(0)))
    }

    /// Nodes of a group, by the label that its template gives them: name, and whether they are
    /// cordoned. One whose instance is gone does not count.
    ///
    /// # Errors
    /// When the API server can't be asked, or the bed has no AWS.
    pub async fn nodes(&self, label: &str) -> Result<Vec<(String, bool)>, Failure> {
        let nodes: Api<Node> = Api::all(self.bed.client());
        let of_group = format!("{label},!karpenter.sh/nodepool");
        let found = nodes.list(&ListParams::default().labels(&of_group)).await?;
        let running = self.bed.aws()?.gateway().state().instances().all();
        let runs = |node: &Node| {
            let id =
                node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
            let instance = running.get(id.rsplit('/').next().unwrap_or_default());
            instance.is_some_and(|instance| instance.state.is_alive())
        };
        let is_cordoned =
            |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
        let found = found.items.into_iter().filter(runs);
        Ok(found.map(|node| (node.name_any(), is_cordoned(&node))).collect())
    }

    /// Waits until a group has so many nodes, none of them cordoned.
    ///
    /// # Errors
    /// When it has not in time.
    pub async fn has_nodes(&self, label: &str, n: usize) -> Result<(), NotYet> {
        eventually(&format!("{n} nodes with {label}"), LIMIT, async || {
            let nodes = self.nodes(label).await?;
            Ok(nodes.len() == n && nodes.iter().all(|(_, is_cordoned)| !is_cordoned))
        })
        .await
    }

    /// Waits until all pods of all workloads run.
    ///
    /// # Errors
    /// When they do not in time.
    pub async fn all_run(&self) -> Result<(), NotYet> {
        for Workload { app, pods, .. } in self.shape.workloads() {
            self.user.runs(&app, pods).await?;
        }
        Ok(())
    }

    /// The sizes of the Auto Scaling group whose name contains this.
    ///
    /// # Errors
    /// When AWS can't be asked, or has no such group.
    pub async fn size(&self, name: &str) -> Result<Size, Failure> {
        let caller = self.bed.aws()?.caller();
        let all = caller.query("autoscaling", "DescribeAutoScalingGroups", &[]).await?;
        let path = ["DescribeAutoScalingGroupsResult", "AutoScalingGroups"];
        let groups = all.at(&path).ok_or("no list of groups")?.children.clone();
        let group = groups
            .iter()
            .find(|group| group.get("AutoScalingGroupName").is_some_and(|it| it.contains(name)));
        let group = group.ok_or_else(|| format!("no Auto Scaling group {name}"))?;
        let number = |key: &str| group.get(key).and_then(|it| it.parse().ok()).ok_or("no number");
        let suspended = group.child("SuspendedProcesses");
        Ok(Size {
            least: number("MinSize")?,
            desired: number("DesiredCapacity")?,
            is_suspended: suspended.is_some_and(|it| !it.children.is_empty()),
        })
    }

    /// The most pods of each workload that were missing at once until something has ended.
    ///
    /// # Errors
    /// When the API server can't be asked.
    pub async fn most_missing(&self, has_ended: &AtomicBool) -> Result<Vec<usize>, kube::Error> {
        let workloads = self.shape.workloads();
        let mut most = vec![0; workloads.len()];
        while !has_ended.load(Ordering::Relaxed) {
            for (most, Workload { app, pods, .. }) in most.iter_mut().zip(&workloads) {
                let ready = self.user.pods(app).await?.iter().filter(|pod| is_ready(pod)).count();
                *most = pods.saturating_sub(ready).max(*most);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        Ok(most)
    }

    /// Which workloads missed more pods at once than they may, of [`Self::most_missing`].
    pub fn too_many(&self, most: &[usize]) -> Vec<String> {
        let workloads = self.shape.workloads();
        let too_many = workloads.iter().zip(most).filter(|(one, most)| **most > one.may_miss);
        too_many
            .map(|(Workload { app, may_miss, .. }, most)| {
                format!("{most} pods of {app} were missing at once, and {may_miss} may be")
            })
            .collect()
    }
}
