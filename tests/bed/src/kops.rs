//! kOps, as far as Tenon sees it: its files in a bucket, what it makes in AWS for nodes and for the
//! operator, and kops-controller, by whose rules machines join. kOps itself cannot run here: it
//! creates whole clusters.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::bed::{ACCOUNT, Bed};
use crate::failure::Failure;
use crate::machine::KopsController;

/// The cluster's name in kOps; that of the bed is another one.
pub const CLUSTER: &str = "shop.example.com";
/// The state store.
pub const STATE: &str = "s3://states";
const BUCKET: &str = "states";
/// The region of the state store; clusters in other regions are usual.
pub const STORE_REGION: &str = "us-east-1";
/// The role of nodes, its instance profile, and the name of their security group.
pub const NODES: &str = "nodes.shop.example.com";
/// The role of the control plane, and its instance profile.
pub const CONTROL_PLANE: &str = "masters.shop.example.com";
const IMAGE: &str =
    "099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261112";
/// The InstanceGroups that the subnets are tagged for.
const GROUPS: [&str; 2] = ["web", "batch"];

/// What kOps writes of an InstanceGroup for its nodes.
#[derive(Clone, Debug)]
pub struct Written {
    /// `nodeupscript.sh`, which contains the hash of the other one.
    pub script: String,
    /// `nodeupconfig.yaml`.
    pub node_config: String,
}

impl Written {
    /// Of this InstanceGroup; `max_pods` changes the configuration, and so the script.
    pub fn new(group: &str, max_pods: u32) -> Self {
        Self::with_taints(group, max_pods, "  taints:\n  - karpenter.sh/unregistered=:NoExecute\n")
    }

    /// Of an InstanceGroup that Karpenter does not manage.
    fn of_auto_scaling_group(group: &str) -> Self {
        Self::with_taints(group, 58, "")
    }

    fn with_taints(group: &str, max_pods: u32, taints: &str) -> Self {
        let node_config = format!(
            "ClusterName: {CLUSTER}\nKubeletConfig:\n  evictionHard: \
             memory.available<100Mi,nodefs.available<10%\n  maxPods: {max_pods}\n  \
             nodeLabels:\n    node-role.kubernetes.io/node: \"\"\n{taints}"
        );
        let hash = STANDARD.encode(Sha256::digest(&node_config));
        let script = format!(
            "#!/bin/bash\nset -o errexit\n\ncat > conf/kube_env.yaml << \
             '__EOF_KUBE_ENV'\nCloudProvider: aws\nClusterName: \
             {CLUSTER}\nConfigServer:\n  servers:\n  - \
             https://kops-controller.internal.{CLUSTER}:3988/\nInstanceGroupName: \
             {group}\nInstanceGroupRole: Node\nNodeupConfigHash: \
             {hash}\n\n__EOF_KUBE_ENV\n\ndownload-release\n"
        );
        Self { script, node_config }
    }
}

/// An InstanceGroup with `manager: Karpenter`, and these fields of its `spec` over the usual ones.
pub fn instance_group(name: &str, fields: &Value) -> String {
    let mut spec = json!({
        "manager": "Karpenter",
        "role": "Node",
        "image": IMAGE,
        "machineType": "m6i.large",
        "subnets": ["eu-central-1a", "eu-central-1b"],
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    // JSON is YAML.
    json!({
        "apiVersion": "kops.k8s.io/v1alpha2",
        "kind": "InstanceGroup",
        "metadata": { "name": name, "labels": { "kops.k8s.io/cluster": CLUSTER } },
        "spec": spec,
    })
    .to_string()
}

/// The Cluster, with or without kOps' own Karpenter.
pub fn cluster(has_addon: bool) -> String {
    cluster_with(json!({
        "karpenter": { "enabled": has_addon },
        "serviceAccountIssuerDiscovery": {
            "discoveryStore": format!("{STATE}/discovery"),
            "enableAWSOIDCProvider": true,
        },
    }))
}

/// The Cluster, if AWS does not trust its tokens; it adds these statements to the role of the
/// control plane.
pub fn cluster_without_oidc_provider(statements: &str) -> String {
    cluster_with(json!({ "additionalPolicies": { "master": statements } }))
}

fn cluster_with(mut fields: Value) -> String {
    let subnet = |zone: &str| json!({ "name": zone, "zone": zone, "type": "Private" });
    fields["cloudProvider"] = "aws".into();
    fields["configBase"] = format!("{STATE}/{CLUSTER}").into();
    fields["subnets"] = json!([subnet("eu-central-1a"), subnet("eu-central-1b")]);
    json!({
        "apiVersion": "kops.k8s.io/v1alpha2",
        "kind": "Cluster",
        "metadata": { "name": CLUSTER },
        "spec": fields,
    })
    .to_string()
}

/// What kOps does on a bed.
#[derive(Clone, Copy, Debug)]
pub struct Kops<'a> {
    bed: &'a Bed,
}

impl<'a> Kops<'a> {
    /// For the cluster of a bed.
    pub const fn new(bed: &'a Bed) -> Self {
        Self { bed }
    }

    /// Writes a file of the cluster.
    ///
    /// # Errors
    /// When the bed has no AWS, or the double refuses it.
    pub async fn put(self, file: &str, text: &str) -> Result<(), Failure> {
        let moto = self.bed.aws()?.gateway().state().moto().in_region(STORE_REGION);
        Ok(moto.put_object(BUCKET, &format!("{CLUSTER}/{file}"), text).await?)
    }

    /// Deletes a file of the cluster.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn remove(self, file: &str) -> Result<(), Failure> {
        let moto = self.bed.aws()?.gateway().state().moto().in_region(STORE_REGION);
        Ok(moto.delete_object(BUCKET, &format!("{CLUSTER}/{file}")).await?)
    }

    /// `kops update cluster --yes`, as far as nodes depend on it.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn update(self, groups: &[&str], max_pods: u32) -> Result<(), Failure> {
        let mut node_configs = BTreeMap::new();
        for group in groups {
            let Written { script, node_config } = Written::new(group, max_pods);
            let folder = format!("igconfig/node/{group}");
            self.put(&format!("{folder}/nodeupconfig.yaml"), &node_config).await?;
            self.put(&format!("{folder}/nodeupscript.sh"), &script).await?;
            node_configs.insert((*group).to_owned(), node_config);
        }
        let controller = KopsController {
            cluster: CLUSTER.to_owned(),
            node_role: NODES.to_owned(),
            node_configs,
        };
        self.bed.aws()?.machines().configure(|config| config.kops = Some(controller));
        Ok(())
    }

    /// Creates the Auto Scaling group of an InstanceGroup without `manager: Karpenter`, with one
    /// instance, whose node has this label.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn create_group(self, group: &str, label: (&str, &str)) -> Result<(), Failure> {
        let Written { script, node_config } = Written::of_auto_scaling_group(group);
        let aws = self.bed.aws()?;
        aws.machines().configure(|config| {
            if let Some(controller) = &mut config.kops {
                controller.node_configs.insert(group.to_owned(), node_config);
            }
        });
        let mut images = aws.gateway().state().amis().iter();
        let image =
            images.find(|image| IMAGE.ends_with(&image.name)).ok_or("no image of Ubuntu")?;
        let name = format!("{group}.{CLUSTER}");
        let caller = aws.caller();
        let template = [
            ("LaunchTemplateName", name.as_str()),
            ("LaunchTemplateData.ImageId", &image.id),
            ("LaunchTemplateData.InstanceType", "m6i.large"),
            ("LaunchTemplateData.IamInstanceProfile.Name", NODES),
            ("LaunchTemplateData.SecurityGroupId.1", &aws.seed().node_security_group_id),
            ("LaunchTemplateData.UserData", &STANDARD.encode(script)),
        ];
        caller.query("ec2", "CreateLaunchTemplate", &template).await?;
        let label_tag = format!("k8s.io/cluster-autoscaler/node-template/label/{}", label.0);
        let subnets = aws.seed().subnet_ids[..2].join(",");
        let scaling = [
            ("AutoScalingGroupName", name.as_str()),
            ("MinSize", "1"),
            ("MaxSize", "1"),
            ("DesiredCapacity", "1"),
            ("VPCZoneIdentifier", &subnets),
            ("LaunchTemplate.LaunchTemplateName", &name),
            ("LaunchTemplate.Version", "$Latest"),
            ("Tags.member.1.Key", "KubernetesCluster"),
            ("Tags.member.1.Value", CLUSTER),
            ("Tags.member.2.Key", "kops.k8s.io/instancegroup"),
            ("Tags.member.2.Value", group),
            ("Tags.member.3.Key", &label_tag),
            ("Tags.member.3.Value", label.1),
        ];
        caller.query("autoscaling", "CreateAutoScalingGroup", &scaling).await?;
        Ok(())
    }

    /// `kops delete instancegroup`, of such an InstanceGroup whose Node is this.
    ///
    /// # Errors
    /// When AWS or the API server refuses.
    pub async fn delete_group(self, group: &str, node: &str) -> Result<(), Failure> {
        let name = format!("{group}.{CLUSTER}");
        let caller = self.bed.aws()?.caller();
        let scaling = [("AutoScalingGroupName", name.as_str()), ("ForceDelete", "true")];
        caller.query("autoscaling", "DeleteAutoScalingGroup", &scaling).await?;
        let template = [("LaunchTemplateName", name.as_str())];
        caller.query("ec2", "DeleteLaunchTemplate", &template).await?;
        let nodes: Api<Node> = Api::all(self.bed.client());
        nodes.delete(node, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Creates in AWS what nodes need: their role in an instance profile, and tags of subnets and
    /// of the security group.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn create_nodes(self) -> Result<(), Failure> {
        self.create_profile(NODES).await?;
        let aws = self.bed.aws()?;
        let group = &aws.seed().node_security_group_id;
        self.tag(group, "KubernetesCluster", CLUSTER).await?;
        self.tag(group, "Name", NODES).await?;
        for subnet in &aws.seed().subnet_ids[..2] {
            self.tag(subnet, "KubernetesCluster", CLUSTER).await?;
            for name in GROUPS {
                self.tag(subnet, &format!("kops.k8s.io/instance-group/{name}"), "true").await?;
            }
        }
        Ok(())
    }

    /// An instance profile with a role of the same name.
    async fn create_profile(self, name: &str) -> Result<(), Failure> {
        let caller = self.bed.aws()?.caller();
        let trust = json!({
            "Version": "2012-10-17",
            "Statement": [{
                "Effect": "Allow",
                "Principal": { "Service": "ec2.amazonaws.com" },
                "Action": "sts:AssumeRole",
            }],
        });
        let trust = trust.to_string();
        let role = [("RoleName", name), ("AssumeRolePolicyDocument", &trust)];
        caller.query("iam", "CreateRole", &role).await?;
        let profile = [("InstanceProfileName", name)];
        caller.query("iam", "CreateInstanceProfile", &profile).await?;
        let with_role = [profile[0], ("RoleName", name)];
        caller.query("iam", "AddRoleToInstanceProfile", &with_role).await?;
        Ok(())
    }

    async fn tag(self, id: &str, key: &str, value: &str) -> Result<(), Failure> {
        let tag = [("ResourceId.1", id), ("Tag.1.Key", key), ("Tag.1.Value", value)];
        self.bed.aws()?.caller().query("ec2", "CreateTags", &tag).await?;
        Ok(())
    }

    /// Applies kops-controller's configuration, as far as it says which cluster it is.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn controller(self, cluster: &str) -> Result<(), Failure> {
        let maps: Api<ConfigMap> = Api::namespaced(self.bed.client(), "kube-system");
        let config = json!({ "clusterName": cluster, "cloud": "aws" }).to_string();
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "kops-controller" },
            "data": { "config.yaml": config },
        });
        let as_kops = PatchParams::apply("kops").force();
        maps.patch("kops-controller", &as_kops, &Patch::Apply(map)).await?;
        Ok(())
    }

    /// Makes the bed's system nodes those of a control plane, and creates in AWS what kOps makes of
    /// the fields that `tenon kops export cluster` prints: an OIDC provider that takes tokens for
    /// `amazonaws.com`, and the operator's role.
    ///
    /// # Errors
    /// When the API server or the double refuses, or the fields name no permissions.
    pub async fn control_plane(self, cluster_spec: &Value) -> Result<(), Failure> {
        self.take_system_nodes().await?;
        let aws = self.bed.aws()?;
        let caller = aws.caller();
        let issuer = aws.gateway().state().cluster().ok_or("no cluster is announced")?.issuer;
        let provider = [("Url", issuer.as_str()), ("ClientIDList.member.1", "amazonaws.com")];
        caller.query("iam", "CreateOpenIDConnectProvider", &provider).await?;
        let host = issuer.trim_start_matches("https://");
        let (name, namespace, _) = operator_permissions(cluster_spec)?;
        let trust = json!({
            "Version": "2012-10-17",
            "Statement": [{
                "Effect": "Allow",
                "Principal": { "Federated": format!("arn:aws:iam::{ACCOUNT}:oidc-provider/{host}") },
                "Action": "sts:AssumeRoleWithWebIdentity",
                "Condition": { "StringEquals": {
                    format!("{host}:sub"): format!("system:serviceaccount:{namespace}:{name}"),
                } },
            }],
        });
        let trust = trust.to_string();
        let role = format!("{name}.{namespace}.sa.{CLUSTER}");
        let create = [("RoleName", role.as_str()), ("AssumeRolePolicyDocument", &trust)];
        caller.query("iam", "CreateRole", &create).await?;
        self.give_role(cluster_spec).await
    }

    /// Makes the bed's system nodes those of a control plane; returns ids of their instances.
    async fn take_system_nodes(self) -> Result<Vec<String>, Failure> {
        let nodes: Api<Node> = Api::all(self.bed.client());
        let mut instances = Vec::new();
        for node in nodes.list(&ListParams::default()).await? {
            let key = "node-role.kubernetes.io/control-plane";
            let patch = json!({
                "metadata": { "labels": { key: "" } },
                "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] },
            });
            let parameters = PatchParams::default();
            nodes.patch(&node.name_any(), &parameters, &Patch::Strategic(patch)).await?;
            let provider = node.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
            instances.extend(provider.rsplit('/').next().map(str::to_owned));
        }
        Ok(instances)
    }

    /// Makes the bed's system nodes those of a control plane, which have the role of their
    /// instances and no other, with a policy of kOps' own of so many characters.
    ///
    /// # Errors
    /// When the API server or the double refuses.
    pub async fn control_plane_with_role(self, policy_size: usize) -> Result<(), Failure> {
        self.create_profile(CONTROL_PLANE).await?;
        let metadata = &self.bed.aws()?.guard().metadata;
        for instance in self.take_system_nodes().await? {
            metadata.give_profile(&instance, CONTROL_PLANE);
        }
        self.put_own_policy(policy_size).await
    }

    /// Gives the control plane's role a policy of kOps' own with so many characters.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn put_own_policy(self, size: usize) -> Result<(), Failure> {
        let statement = |bucket: &str| {
            let arn = format!("arn:aws:s3:::{bucket}");
            json!([{ "Effect": "Allow", "Action": "s3:Get*", "Resource": arn }])
        };
        let rest = size.saturating_sub(policy(&statement("")).len());
        self.put_policy(CONTROL_PLANE, CONTROL_PLANE, &statement(&"a".repeat(rest))).await
    }

    /// What `kops update cluster` makes of the statements that the Cluster adds to the control
    /// plane's role: it leaves ids out.
    ///
    /// # Errors
    /// As [`put`](Self::put), or when the text is no list of statements.
    pub async fn add_policy(self, statements: &str) -> Result<(), Failure> {
        let mut statements: Value = serde_json::from_str(statements)?;
        for statement in statements.as_array_mut().into_iter().flatten() {
            statement.as_object_mut().map(|statement| statement.remove("Sid"));
        }
        let name = format!("additional.{CONTROL_PLANE}");
        self.put_policy(CONTROL_PLANE, &name, &statements).await
    }

    async fn put_policy(self, role: &str, name: &str, statements: &Value) -> Result<(), Failure> {
        let text = policy(statements);
        let put = [("RoleName", role), ("PolicyName", name), ("PolicyDocument", &text)];
        self.bed.aws()?.caller().query("iam", "PutRolePolicy", &put).await?;
        Ok(())
    }

    /// Gives the operator's role the permissions in the fields of the Cluster.
    ///
    /// # Errors
    /// As [`control_plane`](Self::control_plane).
    pub async fn give_role(self, cluster_spec: &Value) -> Result<(), Failure> {
        let (name, namespace, statements) = operator_permissions(cluster_spec)?;
        let statements: Value = serde_json::from_str(statements)?;
        let role = format!("{name}.{namespace}.sa.{CLUSTER}");
        self.put_policy(&role, &role, &statements).await
    }
}

fn policy(statements: &Value) -> String {
    json!({ "Version": "2012-10-17", "Statement": statements }).to_string()
}

/// Name and namespace of the operator's ServiceAccount, and its statements.
fn operator_permissions(cluster_spec: &Value) -> Result<(&str, &str, &str), Failure> {
    let account = &cluster_spec["spec"]["iam"]["serviceAccountExternalPermissions"][0];
    let fields = [&account["name"], &account["namespace"], &account["aws"]["inlinePolicy"]];
    match fields.map(Value::as_str) {
        [Some(name), Some(namespace), Some(statements)] => Ok((name, namespace, statements)),
        _ => Err("these fields of the Cluster give no ServiceAccount permissions".into()),
    }
}
