//! InstanceGroups of kOps as NodePools: the state store in a bucket, nodes that boot with kOps'
//! script and ask kops-controller for their configuration, and `kops update cluster`, which changes
//! both. kOps is played by its files and kops-controller by its rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::conditions;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenon_aws_double::calls::Call;
use tenon_aws_double::control::Selection;
use tenon_bed::bed::{Bed, BedConfig, Finished, Parts};
use tenon_bed::installation::Installation;
use tenon_bed::machine::KopsController;
use tenon_bed::user::{LIMIT, NodeClass, User, instance_of};
use tenon_bed::wait::{eventually, must};

use super::calls::{denied, restrict, unrestrict};
use super::command::tenon;
use super::install::{assert_unchanged, inventory};

mod follow;

/// Its name in kOps; that of the bed is another one.
const CLUSTER: &str = "shop.example.com";
const STATE: &str = "s3://states";
const BUCKET: &str = "states";
/// Of the state store; clusters in other regions are usual.
const STORE_REGION: &str = "us-east-1";
/// The tag of instances that the operator has launched.
const NODE_POOL: &str = "karpenter.sh/nodepool";
const NODES: &str = "nodes.shop.example.com";
const IMAGE: &str =
    "099720109477/ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261112";

/// What kOps wrote last of an InstanceGroup.
struct Written {
    script: String,
    node_config: String,
}

/// What `kops update cluster` writes; `max_pods` changes the configuration, and so the script.
fn written(group: &str, max_pods: u32) -> Written {
    let node_config = format!(
        "ClusterName: {CLUSTER}\nKubeletConfig:\n  evictionHard: \
         memory.available<100Mi,nodefs.available<10%\n  maxPods: {max_pods}\n  nodeLabels:\n    \
         node-role.kubernetes.io/node: \"\"\n  taints:\n  - \
         karpenter.sh/unregistered=:NoExecute\n"
    );
    let hash = STANDARD.encode(Sha256::digest(&node_config));
    let script = format!(
        "#!/bin/bash\nset -o errexit\n\ncat > conf/kube_env.yaml << \
         '__EOF_KUBE_ENV'\nCloudProvider: aws\nClusterName: {CLUSTER}\nConfigServer:\n  servers:\n  \
         - https://kops-controller.internal.{CLUSTER}:3988/\nInstanceGroupName: \
         {group}\nInstanceGroupRole: Node\nNodeupConfigHash: {hash}\n\n__EOF_KUBE_ENV\n\n\
         download-release\n"
    );
    Written { script, node_config }
}

fn instance_group(name: &str, fields: &Value) -> String {
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

fn cluster(has_addon: bool) -> String {
    let subnet = |zone: &str| json!({ "name": zone, "zone": zone, "type": "Private" });
    json!({
        "apiVersion": "kops.k8s.io/v1alpha2",
        "kind": "Cluster",
        "metadata": { "name": CLUSTER },
        "spec": {
            "cloudProvider": "aws",
            "configBase": format!("{STATE}/{CLUSTER}"),
            "karpenter": { "enabled": has_addon },
            "subnets": [subnet("eu-central-1a"), subnet("eu-central-1b")],
        },
    })
    .to_string()
}

struct Kops {
    bed: Arc<Bed>,
}

impl Kops {
    async fn put(&self, file: &str, text: &str) {
        let moto = must(self.bed.aws()).gateway().state().moto().in_region(STORE_REGION);
        must(moto.put_object(BUCKET, &format!("{CLUSTER}/{file}"), text).await);
    }

    async fn remove(&self, file: &str) {
        let moto = must(self.bed.aws()).gateway().state().moto().in_region(STORE_REGION);
        must(moto.delete_object(BUCKET, &format!("{CLUSTER}/{file}")).await);
    }

    /// `kops update cluster --yes`, as far as nodes depend on it.
    async fn update(&self, groups: &[&str], max_pods: u32) {
        let mut node_configs = BTreeMap::new();
        for group in groups {
            let Written { script, node_config } = written(group, max_pods);
            let folder = format!("igconfig/node/{group}");
            self.put(&format!("{folder}/nodeupconfig.yaml"), &node_config).await;
            self.put(&format!("{folder}/nodeupscript.sh"), &script).await;
            node_configs.insert((*group).to_owned(), node_config);
        }
        let controller = KopsController {
            cluster: CLUSTER.to_owned(),
            node_role: NODES.to_owned(),
            node_configs,
        };
        let machines = must(self.bed.aws()).machines();
        machines.configure(|config| config.kops = Some(controller));
    }

    /// What kOps makes in AWS: the role of nodes in a profile, and tags.
    async fn create_nodes(&self) {
        let aws = must(self.bed.aws());
        let caller = aws.caller();
        let trust = json!({
            "Version": "2012-10-17",
            "Statement": [{
                "Effect": "Allow",
                "Principal": { "Service": "ec2.amazonaws.com" },
                "Action": "sts:AssumeRole",
            }],
        });
        let trust = trust.to_string();
        let role = [("RoleName", NODES), ("AssumeRolePolicyDocument", &trust)];
        must(caller.query("iam", "CreateRole", &role).await);
        let profile = [("InstanceProfileName", NODES)];
        must(caller.query("iam", "CreateInstanceProfile", &profile).await);
        let with_role = [profile[0], ("RoleName", NODES)];
        must(caller.query("iam", "AddRoleToInstanceProfile", &with_role).await);
        let group = &aws.seed().node_security_group_id;
        let subnets = &aws.seed().subnet_ids[..2];
        self.tag(group, "KubernetesCluster", CLUSTER).await;
        self.tag(group, "Name", NODES).await;
        for subnet in subnets {
            self.tag(subnet, "KubernetesCluster", CLUSTER).await;
            for name in ["web", "batch"] {
                self.tag(subnet, &format!("kops.k8s.io/instance-group/{name}"), "true").await;
            }
        }
    }

    /// The operator that `tenon install` installed for EKS may pass the role of kOps' nodes, too.
    async fn allow(&self) {
        let aws = must(self.bed.aws());
        let caller = aws.caller();
        let account = aws.gateway().state().account();
        let policy = json!({
            "Version": "2012-10-17",
            "Statement": [{
                "Effect": "Allow",
                "Action": "iam:PassRole",
                "Resource": format!("arn:aws:iam::{account}:role/{NODES}"),
                "Condition": { "StringEquals": { "iam:PassedToService": "ec2.amazonaws.com" } },
            }],
        });
        let policy = policy.to_string();
        let operator = format!("tenon-{}-controller", self.bed.cluster());
        let put = [
            ("RoleName", operator.as_str()),
            ("PolicyName", "kops-nodes"),
            ("PolicyDocument", &policy),
        ];
        must(caller.query("iam", "PutRolePolicy", &put).await);
    }

    async fn tag(&self, id: &str, key: &str, value: &str) {
        let caller = must(self.bed.aws()).caller();
        let tag = [("ResourceId.1", id), ("Tag.1.Key", key), ("Tag.1.Value", value)];
        must(caller.query("ec2", "CreateTags", &tag).await);
    }

    /// kops-controller's configuration, as far as it says which cluster it is.
    async fn controller(&self, cluster: &str) {
        let maps: Api<ConfigMap> = Api::namespaced(self.bed.client(), "kube-system");
        let config = json!({ "clusterName": cluster, "cloud": "aws" }).to_string();
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": "kops-controller" },
            "data": { "config.yaml": config },
        });
        let as_kops = PatchParams::apply("kops").force();
        must(maps.patch("kops-controller", &as_kops, &Patch::Apply(map)).await);
    }

    /// Runs `tenon kops`.
    async fn tenon(&self, args: &[&str]) -> Finished {
        let state = ["--state", STATE, "--region", self.bed.region()];
        tenon(&self.bed, &[&["kops"][..], args, &state].concat(), None).await
    }

    /// From now on `tenon` has the rights that `tenon kops export` prints, and no others.
    async fn restrict(&self, policy: &str) {
        let printed = self.tenon(&["export", policy, "-o", "json"]).await;
        assert_eq!(printed.code, 0, "{}{}", printed.stdout, printed.stderr);
        restrict(&self.bed, [must(serde_json::from_str(&printed.stdout))]);
    }

    async fn refused(&self, args: &[&str], why: &str) {
        let finished = self.tenon(args).await;
        assert_eq!(finished.code, 6, "{}{}", finished.stdout, finished.stderr);
        let said = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(why), "{why}: {said}");
    }
}

/// Nodes of a pool, by name.
async fn nodes(user: &User, pool: &str) -> BTreeSet<String> {
    must(user.nodes(pool).await).iter().map(ResourceExt::name_any).collect()
}

/// kOps' own tags are on the instance, and the node has what kops-controller gave it.
async fn check_node(bed: &Bed, user: &User) {
    let node = must(user.nodes("web").await).remove(0);
    let claim = must(user.claims("web").await).remove(0);
    let aws = must(bed.aws());
    let instance = aws.gateway().state().instances().get(&instance_of(&claim)).expect("it runs");
    for (key, value) in [
        ("kops.k8s.io/instancegroup", "web"),
        ("KubernetesCluster", CLUSTER),
        ("Name", "web.shop.example.com"),
        ("team", "shop"),
    ] {
        assert_eq!(instance.tags.get(key).map(String::as_str), Some(value), "{:?}", instance.tags);
    }
    assert_eq!(instance.profile.as_ref().map(|profile| profile.name.as_str()), Some(NODES));
    assert_eq!(instance.instance_type, "m6i.large");
    assert_eq!(instance.volumes.first().map(|volume| volume.size_gib), Some(64));
    assert_eq!(node.labels().get("tier").map(String::as_str), Some("web"));
    let status = node.status.as_ref().expect("a status");
    let pods = status.capacity.as_ref().and_then(|all| all.get("pods")).expect("pods");
    assert_eq!(pods.0, "58");
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(!taints.iter().any(|taint| taint.key == "karpenter.sh/unregistered"), "{taints:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_groups_of_kops_become_node_pools_that_follow_kops_update() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let installed = must(Installation::ensure(&bed, &json!({})).await);
    let user = installed.user();
    let kops = Kops { bed: Arc::clone(&bed) };

    // A store that is not complete.
    kops.refused(&["generate", "--name", CLUSTER], "there is no bucket states").await;
    kops.put("config", &cluster(true)).await;
    kops.refused(&["generate", "--name", "other"], "it has shop.example.com").await;
    kops.refused(&["generate"], "holds no InstanceGroup").await;
    let web = json!({
        "nodeLabels": { "tier": "web" },
        "cloudLabels": { "team": "shop" },
        "rootVolumeSize": 64,
        "maxSize": 6,
        "cpuCredits": "standard",
    });
    kops.put("instancegroup/web", &instance_group("web", &web)).await;
    kops.put("instancegroup/old", &instance_group("old", &json!({ "manager": "CloudGroup" })))
        .await;
    kops.refused(&["generate"], "nodeupscript.sh is missing: run `kops update cluster --yes`")
        .await;
    kops.update(&["web"], 58).await;
    kops.put("igconfig/node/web/nodeupconfig.yaml", &written("web", 59).node_config).await;
    kops.refused(&["generate"], "`kops update cluster --yes` is running or was interrupted").await;
    kops.update(&["web"], 58).await;
    let broken = json!({ "minSize": 0, "tenancy": "host", "taints": ["a"] });
    kops.put("instancegroup/batch", &instance_group("batch", &broken)).await;
    kops.update(&["web", "batch"], 58).await;
    let refused = kops.tenon(&["diff"]).await;
    for field in ["spec.minSize", "spec.tenancy", "spec.taints"] {
        assert!(refused.stderr.contains(&format!("InstanceGroup batch: {field}: ")), "{field}");
    }
    kops.remove("instancegroup/batch").await;

    // What there is, and what differs.
    let printed = kops.tenon(&["generate"]).await;
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    assert!(printed.stdout.contains("# spec.cpuCredits: an EC2NodeClass cannot set it"));
    assert!(printed.stderr.contains("Auto Scaling groups, which are left out: old"));
    kops.create_nodes().await;
    kops.allow().await;

    // Another cluster than that of the kubeconfig.
    kops.refused(&["diff"], "a cluster without kops-controller").await;
    kops.controller(CLUSTER).await;
    let differs = kops.tenon(&["diff"]).await;
    assert_eq!(differs.code, 5, "{}{}", differs.stdout, differs.stderr);
    assert!(differs.stdout.contains("Plan: 2 create"), "{}", differs.stdout);
    kops.refused(&["sync", "--yes"], "the Cluster has spec.karpenter.enabled").await;
    kops.put("config", &cluster(false)).await;
    kops.controller("other.example.com").await;
    let sync = ["sync", "--prune", "--yes"];
    kops.refused(&sync, "the kubeconfig is for cluster other.example.com").await;
    kops.controller(CLUSTER).await;
    let dry = kops.tenon(&["sync", "--dry-run"]).await;
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert!(must(user.objects("NodePool").get_opt("web").await).is_none(), "it was a dry run");
    let synced = kops.tenon(&["sync", "--yes"]).await;
    assert_eq!(synced.code, 0, "{}{}", synced.stdout, synced.stderr);
    must(user.ready("EC2NodeClass", "web").await);
    must(user.ready("NodePool", "web").await);
    assert_eq!(kops.tenon(&["diff"]).await.code, 0, "it was applied");

    // Nodes join by kops-controller.
    must(user.scale("shop", 2, &json!({ "tier": "web" })).await);
    must(user.runs("shop", 2).await);
    check_node(&bed, user).await;

    // What a person sets is theirs.
    let own = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "web" },
        "spec": { "disruption": { "consolidateAfter": "7m", "consolidationPolicy": "WhenEmpty" } },
    });
    must(user.apply(&own).await);
    assert_eq!(kops.tenon(&["diff"]).await.code, 0, "only a field of a person differs");

    // kOps has changed: new nodes boot with the old script until the next sync.
    let before = nodes(user, "web").await;
    kops.update(&["web"], 110).await;
    let differs = kops.tenon(&["diff"]).await;
    assert_eq!(differs.code, 5, "{}", differs.stderr);
    assert!(differs.stdout.contains("nodeup config"), "{}", differs.stdout);
    assert!(!differs.stdout.contains("changed outside"), "{}", differs.stdout);
    let drifts = format!("{} NodeClaim", before.len());
    assert!(differs.stdout.contains(&drifts), "{}", differs.stdout);
    let synced = kops.tenon(&["sync", "--yes", "-o", "json"]).await;
    assert_eq!(synced.code, 0, "{}{}", synced.stdout, synced.stderr);
    let report: Value = serde_json::from_str(&synced.stdout).expect("one document");
    let paths = report["actions"].as_array().into_iter().flatten();
    let paths = paths.flat_map(|action| action["changes"].as_array().into_iter().flatten());
    let paths = paths.map(|change| change["path"].clone()).collect::<Vec<_>>();
    assert_eq!(paths, [json!("spec.kubelet.maxPods"), json!("spec.userData")]);
    must(
        eventually("every node has booted with the new script", LIMIT * 2, async || {
            let now = nodes(user, "web").await;
            Ok(!now.is_empty() && now.is_disjoint(&before))
        })
        .await,
    );
    must(user.runs("shop", 2).await);
    let pool = must(user.objects("NodePool").get("web").await);
    assert_eq!(pool.data["spec"]["disruption"]["consolidateAfter"], "7m", "it was overwritten");

    // A part of an InstanceGroup goes: its nodes on demand.
    let mut mixed = web.clone();
    mixed["mixedInstancesPolicy"] = json!({ "onDemandBase": 1, "onDemandAboveBase": 0 });
    kops.put("instancegroup/web", &instance_group("web", &mixed)).await;
    assert_eq!(kops.tenon(&["sync", "--yes"]).await.code, 0);
    let base = must(user.objects("NodePool").get("web-base").await);
    assert_eq!(base.data["spec"]["replicas"], 1);
    kops.put("instancegroup/web", &instance_group("web", &web)).await;
    let synced = kops.tenon(&["sync", "--yes", "--prune"]).await;
    assert_eq!(synced.code, 0, "{}{}", synced.stdout, synced.stderr);
    assert!(synced.stdout.contains("1 delete"), "{}", synced.stdout);
    let gone = async || Ok(user.objects("NodePool").get_opt("web-base").await?.is_none());
    must(eventually("the pool of the base is gone", LIMIT, gone).await);
    assert!(must(user.objects("NodePool").get_opt("web").await).is_some(), "it was removed");

    // An InstanceGroup goes.
    must(user.remove("shop").await);
    kops.remove("instancegroup/web").await;
    let left = kops.tenon(&["diff"]).await;
    assert_eq!(left.code, 5, "{}", left.stderr);
    assert!(left.stdout.contains("`tenon kops sync --prune` deletes them"), "{}", left.stdout);
    let pruned = kops.tenon(&["sync", "--prune", "--yes"]).await;
    assert_eq!(pruned.code, 0, "{}{}", pruned.stdout, pruned.stderr);
    must(
        eventually("nothing of it is left", LIMIT * 2, async || {
            let pool = user.objects("NodePool").get_opt("web").await?;
            let class = user.objects("EC2NodeClass").get_opt("web").await?;
            Ok(pool.is_none() && class.is_none())
        })
        .await,
    );
}

const ADDON_ROLE: &str = "karpenter.kube-system.sa.shop.example.com";
const QUEUE: &str = "shop-example-com-tenon";

/// What kOps applies for its Karpenter add-on, as far as anything of ours lies beside it.
async fn apply_addon(bed: &Bed, queue: Option<&str>) {
    let labels = json!({ "app.kubernetes.io/name": "karpenter" });
    let mut env = vec![
        json!({ "name": "CLUSTER_NAME", "value": CLUSTER }),
        json!({
            "name": "AWS_ROLE_ARN",
            "value": format!("arn:aws:iam::123456789012:role/{ADDON_ROLE}"),
        }),
    ];
    env.extend(queue.map(|queue| json!({ "name": "INTERRUPTION_QUEUE", "value": queue })));
    let image = "public.ecr.aws/karpenter/controller:1.13.0";
    let container = json!({ "name": "controller", "image": image, "env": env });
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "karpenter",
            "labels": { "addon.kops.k8s.io/name": "karpenter.sh", "k8s-addon": "karpenter.sh" },
        },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    });
    let as_kops = PatchParams::apply("kops").force();
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    must(deployments.patch("karpenter", &as_kops, &Patch::Apply(deployment)).await);
    let pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "web", "labels": { "addon.kops.k8s.io/name": "karpenter.sh" } },
        "spec": {
            "limits": { "nodes": "6" },
            "template": {
                "spec": {
                    "nodeClassRef": {
                        "group": "karpenter.k8s.aws",
                        "kind": "EC2NodeClass",
                        "name": "web",
                    },
                    "requirements": [
                        { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
                    ],
                },
            },
        },
    });
    let pools = User::new(bed.client(), NodeClass::Ec2).objects("NodePool");
    must(pools.patch("web", &as_kops, &Patch::Apply(pool)).await);
}

/// Variables of the add-on.
async fn variables(bed: &Bed) -> BTreeMap<String, String> {
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let found = must(deployments.get("karpenter").await);
    let pod = found.spec.template.spec.expect("a pod");
    let env = pod.containers[0].env.clone().unwrap_or_default();
    env.into_iter().map(|one| (one.name, one.value.unwrap_or_default())).collect()
}

/// Names of what there is in AWS: queues and rules as kOps looks for them before it deletes them,
/// and inline policies of the role.
async fn in_aws(bed: &Bed) -> (usize, usize, Vec<String>) {
    let aws = must(bed.aws());
    let moto = aws.gateway().state().moto();
    let by_name = json!({ "QueueNamePrefix": "shop-example-com" });
    let queues = must(moto.json("sqs", "AmazonSQS.ListQueues", &by_name).await);
    let by_name = json!({ "NamePrefix": CLUSTER });
    let rules = must(moto.json("events", "AWSEvents.ListRules", &by_name).await);
    let role = [("RoleName", ADDON_ROLE)];
    let policies = must(aws.caller().query("iam", "ListRolePolicies", &role).await);
    let policies = policies.at(&["ListRolePoliciesResult", "PolicyNames"]).expect("a list");
    let mut policies =
        policies.children.iter().map(|policy| policy.text.clone()).collect::<Vec<_>>();
    policies.sort();
    let count = |answer: &Value, list: &str| answer[list].as_array().map_or(0, Vec::len);
    (count(&queues, "QueueUrls"), count(&rules, "Rules"), policies)
}

#[tokio::test(flavor = "multi_thread")]
async fn kops_own_karpenter_gets_a_queue_that_kops_keeps() {
    let parts = Parts { kubelet: false, ..Parts::all() };
    let bed = Arc::new(must(Bed::start(BedConfig { parts, ..BedConfig::default() }).await));
    let kops = Kops { bed: Arc::clone(&bed) };
    let crds: Api<CustomResourceDefinition> = Api::all(bed.client());
    for crd in tenon_crds::manifests::all() {
        let name = crd.name_any();
        must(crds.patch(&name, &PatchParams::apply("kops"), &Patch::Apply(&crd)).await);
        let is_served = conditions::is_crd_established();
        must(await_condition(crds.clone(), &name, is_served).await);
    }
    kops.put("config", &cluster(true)).await;
    kops.put("instancegroup/web", &instance_group("web", &json!({ "maxSize": 6 }))).await;
    kops.update(&["web"], 58).await;
    kops.controller(CLUSTER).await;
    kops.refused(&["augment", "--yes"], "add-on does not run").await;
    apply_addon(&bed, None).await;
    kops.refused(&["augment", "--yes"], &format!("the role {ADDON_ROLE} of")).await;
    let caller = must(bed.aws()).caller();
    let trust = r#"{"Version":"2012-10-17","Statement":[]}"#;
    let role = [("RoleName", ADDON_ROLE), ("AssumeRolePolicyDocument", trust)];
    must(caller.query("iam", "CreateRole", &role).await);
    let own = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:DescribeImages","Resource":"*"}]}"#;
    let put = [role[0], ("PolicyName", ADDON_ROLE), ("PolicyDocument", own)];
    must(caller.query("iam", "PutRolePolicy", &put).await);

    // What kOps sets itself is not for a patch.
    let file = bed.dir().join("patch.yaml");
    let path = file.display().to_string();
    let patch = |spec: &str| {
        must(std::fs::write(&file, format!("kind: NodePool\nmetadata: {{name: web}}\n{spec}\n")));
    };
    patch("spec: {limits: {nodes: 3}}");
    kops.refused(
        &["augment", "--yes", "--patch", &path],
        "patch for NodePool web: spec.limits.nodes: kOps sets this field itself",
    )
    .await;
    patch("spec: {limits: {cpu: 64}, disruption: {consolidateAfter: 5m}}");
    let augment = ["augment", "--yes", "--patch", &path];
    assert_eq!(in_aws(&bed).await, (0, 0, vec![ADDON_ROLE.to_owned()]), "it was touched");

    // Killed after each step; the next run goes on.
    kops.restrict("augment-caller").await;
    for steps in 1..=3 {
        let state = ["--state", STATE, "--region", bed.region()];
        let args = [&["kops"][..], &augment, &state].concat();
        let killed = tenon(&bed, &args, Some(steps)).await;
        assert_ne!(killed.code, 0, "{}", killed.stdout);
    }
    let done = kops.tenon(&augment).await;
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    unrestrict(&bed);
    let ours = vec![ADDON_ROLE.to_owned(), "tenon-interruption".to_owned()];
    assert_eq!(in_aws(&bed).await, (1, 5, ours.clone()));
    let user = User::new(bed.client(), NodeClass::Ec2);
    let pool = must(user.objects("NodePool").get("web").await);
    assert_eq!(pool.data["spec"]["disruption"]["consolidateAfter"], "5m");
    assert_eq!(pool.data["spec"]["limits"], json!({ "cpu": 64, "nodes": "6" }));

    // It is not Tenon's to uninstall, and neither are its NodePools and its queue.
    let refused = refusal(&uninstall(&kops, &["--yes", "--force-capacity"], None).await);
    assert!(refused.contains("Deployment kube-system/karpenter is kOps' Karpenter"), "{refused}");
    assert_eq!(in_aws(&bed).await, (1, 5, ours.clone()));
    must(user.objects("NodePool").get("web").await);

    // Its role may read what EC2's events put into the queue.
    let arn = format!("arn:aws:iam::123456789012:role/{ADDON_ROLE}");
    let queue = format!("arn:aws:sqs:{}:123456789012:{QUEUE}", bed.region());
    for action in ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueUrl"] {
        let ask = [
            ("PolicySourceArn", arn.as_str()),
            ("ActionNames.member.1", action),
            ("ResourceArns.member.1", &queue),
        ];
        let answer = must(caller.query("iam", "SimulatePrincipalPolicy", &ask).await);
        assert!(format!("{answer:?}").contains("\"allowed\""), "{action}: {answer:?}");
    }

    // kOps applies its manifest again, as `kops update cluster` does.
    apply_addon(&bed, None).await;
    assert_eq!(variables(&bed).await.get("INTERRUPTION_QUEUE").map(String::as_str), Some(QUEUE));
    let again = kops.tenon(&augment).await;
    assert!(again.stdout.contains("Nothing to do"), "{}{}", again.stdout, again.stderr);

    // And takes it away again.
    kops.restrict("augment-caller").await;
    let removed = kops.tenon(&["augment", "--remove", "--yes"]).await;
    assert_eq!(removed.code, 0, "{}{}", removed.stdout, removed.stderr);
    assert_eq!(denied(&bed), Vec::<String>::new());
    unrestrict(&bed);
    assert_eq!(in_aws(&bed).await, (0, 0, vec![ADDON_ROLE.to_owned()]));
    let left = variables(&bed).await.into_keys().collect::<Vec<_>>();
    assert_eq!(left, ["AWS_ROLE_ARN", "CLUSTER_NAME"]);
    let pool = must(user.objects("NodePool").get("web").await);
    assert_eq!(pool.data["spec"]["limits"], json!({ "nodes": "6" }));
    let again = kops.tenon(&["augment", "--remove", "--yes"]).await;
    assert!(again.stdout.contains("Nothing to do"), "{}{}", again.stdout, again.stderr);

    // A later kOps has a queue of its own.
    apply_addon(&bed, Some("shop-example-com-karpenter")).await;
    kops.refused(&augment, "reads the queue shop-example-com-karpenter already").await;
}

/// As a kOps cluster has it: nodes of the control plane, an OIDC provider that takes tokens for
/// `amazonaws.com`, and the operator's role as kOps makes it from the Cluster.
async fn control_plane(bed: &Bed, cluster_spec: &Value) {
    let nodes: Api<Node> = Api::all(bed.client());
    for node in must(nodes.list(&ListParams::default()).await) {
        let key = "node-role.kubernetes.io/control-plane";
        let patch = json!({
            "metadata": { "labels": { key: "" } },
            "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] },
        });
        let parameters = PatchParams::default();
        must(nodes.patch(&node.name_any(), &parameters, &Patch::Strategic(patch)).await);
    }
    let aws = must(bed.aws());
    let caller = aws.caller();
    let issuer = aws.gateway().state().cluster().expect("a cluster").issuer;
    let provider = [("Url", issuer.as_str()), ("ClientIDList.member.1", "amazonaws.com")];
    must(caller.query("iam", "CreateOpenIDConnectProvider", &provider).await);
    let host = issuer.trim_start_matches("https://");
    let account = &cluster_spec["spec"]["iam"]["serviceAccountExternalPermissions"][0];
    let (name, namespace) = (&account["name"], &account["namespace"]);
    let (name, namespace) = (name.as_str().expect("a name"), namespace.as_str().expect("one"));
    let trust = json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": {
                "Federated": format!("arn:aws:iam::123456789012:oidc-provider/{host}"),
            },
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": { "StringEquals": {
                format!("{host}:sub"): format!("system:serviceaccount:{namespace}:{name}"),
            } },
        }],
    });
    let trust = trust.to_string();
    let role = format!("{name}.{namespace}.sa.{CLUSTER}");
    let create = [("RoleName", role.as_str()), ("AssumeRolePolicyDocument", &trust)];
    must(caller.query("iam", "CreateRole", &create).await);
    give_role(bed, cluster_spec).await;
}

/// The permissions of the operator's role, as kOps writes them.
async fn give_role(bed: &Bed, cluster_spec: &Value) {
    let account = &cluster_spec["spec"]["iam"]["serviceAccountExternalPermissions"][0];
    let statements = account["aws"]["inlinePolicy"].as_str().expect("statements");
    let statements: Value = must(serde_json::from_str(statements));
    let policy = json!({ "Version": "2012-10-17", "Statement": statements }).to_string();
    let role = format!("karpenter.kube-system.sa.{CLUSTER}");
    let put = [("RoleName", role.as_str()), ("PolicyName", &role), ("PolicyDocument", &policy)];
    must(must(bed.aws()).caller().query("iam", "PutRolePolicy", &put).await);
}

/// `tenon kops install` on the bed, where kOps' name of the API server does not exist.
async fn install(kops: &Kops, args: &[&str], steps: Option<usize>) -> Finished {
    let endpoint = format!("settings.clusterEndpoint={}", kops.bed.control_plane().url());
    let fixed = ["kops", "install", "--image", "tenon-operator", "--set", &endpoint];
    let state = ["--state", STATE, "--region", kops.bed.region()];
    tenon(&kops.bed, &[&fixed[..], args, &state].concat(), steps).await
}

async fn uninstall(kops: &Kops, args: &[&str], steps: Option<usize>) -> Finished {
    let fixed = ["kops", "uninstall", "--cluster", CLUSTER];
    tenon(&kops.bed, &[&fixed[..], args].concat(), steps).await
}

/// What the command refused to do, on one line.
fn refusal(finished: &Finished) -> String {
    assert_eq!(finished.code, 6, "{}{}", finished.stdout, finished.stderr);
    finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_installs_into_a_kops_cluster_and_one_removes_all_of_it() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let kops = Kops { bed: Arc::clone(&bed) };
    let user = User::new(bed.client(), NodeClass::Ec2);
    kops.put("config", &cluster(false)).await;
    let web = json!({ "nodeLabels": { "tier": "web" } });
    kops.put("instancegroup/web", &instance_group("web", &web)).await;
    kops.update(&["web"], 58).await;
    kops.create_nodes().await;
    let absent = uninstall(&kops, &["--yes"], None).await;
    assert!(refusal(&absent).contains("without kops-controller"), "{}", absent.stderr);
    kops.controller(CLUSTER).await;
    let nothing = uninstall(&kops, &["--yes"], None).await;
    assert!(nothing.stdout.contains("Nothing to do"), "{}{}", nothing.stdout, nothing.stderr);

    // Without the role, and with one that allows too little.
    let no_role = refusal(&install(&kops, &["--yes"], None).await);
    let role = format!("karpenter.kube-system.sa.{CLUSTER}");
    assert!(no_role.contains(&format!("role {role} does not exist: add the output")), "{no_role}");
    let spec = kops.tenon(&["export", "cluster", "-o", "json"]).await;
    assert_eq!(spec.code, 0, "{}", spec.stderr);
    let spec: Value = must(serde_json::from_str(&spec.stdout));
    control_plane(&bed, &spec).await;
    let part = spec.to_string().replace("ec2:CreateFleet", "ec2:DescribeFleets");
    give_role(&bed, &must(serde_json::from_str(&part))).await;
    let lacks = refusal(&install(&kops, &["--yes"], None).await);
    assert!(lacks.contains("lacks permissions (ec2:CreateFleet on"), "{lacks}");
    give_role(&bed, &spec).await;

    // What would be done, by who may do no more than that.
    kops.restrict("caller").await;
    let preflight = ["preflight", "--cluster", CLUSTER, "--image", "tenon-operator", "-o", "json"];
    let checked = tenon(&bed, &preflight, None).await;
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    let checked: Value = must(serde_json::from_str(&checked.stdout));
    assert!(checked["counts"]["passed"].as_u64() >= Some(10), "{checked}");
    let wrong = install(&kops, &["--set", "replica=1", "--dry-run"], None).await;
    assert_eq!(wrong.code, 2, "{}{}", wrong.stdout, wrong.stderr);
    assert!(wrong.stderr.contains("deploy.values.replica"), "{}", wrong.stderr);
    let dry = install(&kops, &["--dry-run"], None).await;
    assert_eq!(dry.code, 0, "{}{}", dry.stdout, dry.stderr);
    assert!(dry.stdout.contains(" + NodePool "), "{}", dry.stdout);
    must(user.scale("shop", 0, &json!({ "tier": "web" })).await);
    let before = inventory(&bed).await;

    // Killed on the way; the next run goes on.
    for steps in [1, 4, 9] {
        let killed = install(&kops, &["--yes"], Some(steps)).await;
        assert_ne!(killed.code, 0, "{}", killed.stdout);
    }
    let done = install(&kops, &["--yes"], None).await;
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let again = install(&kops, &["--yes", "-o", "json"], None).await;
    let again: Value = must(serde_json::from_str(&again.stdout));
    assert_eq!((&again["changed"], &again["ready"]), (&json!(0), &json!(true)), "{again}");
    must(user.scale("shop", 2, &json!({ "tier": "web" })).await);
    must(user.runs("shop", 2).await);
    let status = ["status", "--exit-code", "--non-interactive", "--cluster", CLUSTER];
    let status = tenon(&bed, &status, None).await;
    assert_eq!(status.code, 0, "{}{}", status.stdout, status.stderr);

    // Another value is one update.
    let other = ["--set", "logLevel=debug", "-o", "json"];
    let dry = install(&kops, &[&other[..], &["--dry-run"]].concat(), None).await;
    let dry: Value = must(serde_json::from_str(&dry.stdout));
    let changed = dry["actions"].as_array().expect("a list");
    let changed = changed.iter().map(|step| step["type"].as_str().expect("a type"));
    assert_eq!(changed.collect::<Vec<_>>(), ["Deployment"], "{dry}");

    // No other node has room for its pods.
    let no_room = refusal(&uninstall(&kops, &["--yes"], None).await);
    assert!(no_room.contains("have no room for 2 pods"), "{no_room}");
    must(user.scale("shop", 0, &json!({ "tier": "web" })).await);
    let killed = uninstall(&kops, &["--yes", "--force-capacity"], Some(3)).await;
    assert_ne!(killed.code, 0, "{}", killed.stdout);
    let removed = uninstall(&kops, &["--yes"], None).await;
    assert_eq!(removed.code, 0, "{}{}", removed.stdout, removed.stderr);
    assert_unchanged(&before, &inventory(&bed).await);
    let instances = must(bed.aws()).gateway().state().instances().all();
    let mut of_pools = instances.values().filter(|one| one.tags.contains_key(NODE_POOL));
    assert!(of_pools.all(|one| !one.state.is_alive()), "{instances:?}");
    assert_eq!(denied(&bed), Vec::<String>::new());
    unrestrict(&bed);
    let calls = must(bed.aws()).gateway().control().calls().all();
    assert_eq!(calls.iter().filter(|call| call.action.starts_with("eks:")).count(), 0);
}

async fn helm(bed: &Bed, args: &[&str]) {
    let output = must(bed.command(Path::new("helm")).args(args).output().await);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm {}: {said}", args.join(" "));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_runs_in_a_kops_cluster_without_eks() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let kops = Kops { bed: Arc::clone(&bed) };
    let user = User::new(bed.client(), NodeClass::Ec2);
    kops.put("config", &cluster(false)).await;
    let web = json!({ "nodeLabels": { "tier": "web" }, "mixedInstancesPolicy": {
        "instances": ["m6i.large", "m6i.xlarge"], "onDemandAboveBase": 0,
    } });
    kops.put("instancegroup/web", &instance_group("web", &web)).await;
    let masters = json!({ "manager": "CloudGroup", "role": "ControlPlane", "minSize": 1 });
    for zone in ["a", "b", "c"] {
        let name = format!("control-plane-{zone}");
        kops.put(&format!("instancegroup/{name}"), &instance_group(&name, &masters)).await;
    }
    kops.update(&["web"], 58).await;
    kops.refused(&["export", "cluster"], &format!("the instance profile {NODES} does not")).await;
    kops.create_nodes().await;
    kops.controller(CLUSTER).await;

    // What kOps and Helm are given.
    let spec = kops.tenon(&["export", "cluster", "-o", "json"]).await;
    assert_eq!(spec.code, 0, "{}", spec.stderr);
    control_plane(&bed, &must(serde_json::from_str(&spec.stdout))).await;
    kops.restrict("caller").await;
    let queue = kops.tenon(&["queue", "--yes"]).await;
    assert_eq!(queue.code, 0, "{}{}", queue.stdout, queue.stderr);
    let printed = kops.tenon(&["export", "values"]).await;
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let mut values: Value = must(serde_saphyr::from_str(&printed.stdout));
    assert_eq!(values["replicas"], 2);
    assert_eq!(values["settings"]["clusterEndpoint"], "https://api.internal.shop.example.com");
    // The bed has no such name, and its kubelet runs the image by its name.
    values["settings"]["clusterEndpoint"] = bed.control_plane().url().into();
    values["controller"]["image"] = json!({ "repository": "tenon-operator" });
    let file = bed.dir().join("values.yaml");
    must(std::fs::write(&file, values.to_string()));
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts");
    let chart = |name: &str| charts.join(name).display().to_string();
    let (crds, operator, file) = (chart("tenon-crds"), chart("tenon"), file.display().to_string());
    helm(&bed, &["install", "tenon-crds", &crds, "-n", "kube-system"]).await;
    let install = ["install", "karpenter", &operator, "-n", "kube-system", "-f", &file];
    helm(&bed, &[&install[..], &["--wait", "--timeout", "2m"]].concat()).await;

    let patch = bed.dir().join("patch.yaml");
    let one_by_one = json!({
        "kind": "NodePool",
        "metadata": { "name": "web" },
        "spec": { "disruption": { "budgets": [{ "nodes": "1" }] }, "weight": 7 },
    });
    must(std::fs::write(&patch, one_by_one.to_string()));
    let patch = patch.display().to_string();
    let synced = kops.tenon(&["sync", "--patch", &patch, "--yes"]).await;
    assert_eq!(synced.code, 0, "{}{}", synced.stdout, synced.stderr);
    must(user.ready("EC2NodeClass", "web").await);
    must(user.scale("shop", 2, &json!({ "tier": "web" })).await);
    must(user.runs("shop", 2).await);
    follow::follows(&kops, &user).await;

    // An interruption reaches it by the queue.
    let claim = must(user.claims("web").await).remove(0);
    let instance = instance_of(&claim);
    let aws = must(bed.aws());
    aws.gateway().state().instances().get(&instance).expect("it runs");
    let chosen = Selection::Instances(vec![instance.clone()]);
    must(aws.gateway().control().interrupt(chosen, None).await);
    must(
        eventually("the interrupted node is replaced", LIMIT, async || {
            let claims = user.claims("web").await?;
            Ok(!claims.is_empty() && claims.iter().all(|one| instance_of(one) != instance))
        })
        .await,
    );
    must(user.runs("shop", 2).await);

    // Nobody has asked EKS, nor been refused anything.
    assert_eq!(denied(&bed), Vec::<String>::new());
    let calls = aws.gateway().control().calls().all();
    let of_eks = calls.iter().filter(|call| call.action.starts_with("eks:")).count();
    assert_eq!(of_eks, 0, "EKS was asked");
    let read = |call: &&Call| call.action == "s3:GetObject" && call.status == 200;
    let read = calls.iter().find(read);
    assert_eq!(read.map(|call| call.region.as_str()), Some(STORE_REGION));
    assert_ne!(bed.region(), STORE_REGION);
    let removed = kops.tenon(&["queue", "--remove", "--yes"]).await;
    assert_eq!(removed.code, 0, "{}{}", removed.stdout, removed.stderr);
    let again = kops.tenon(&["queue", "--remove", "--yes"]).await;
    assert!(again.stdout.contains("Nothing to do"), "{}", again.stdout);
    let status = ["status", "--exit-code", "--non-interactive", "--cluster", CLUSTER];
    let status = tenon(&bed, &status, None).await;
    assert_eq!(status.code, 1, "{}{}", status.stdout, status.stderr);
    let missing = format!("{QUEUE} does not exist: run `tenon kops queue`");
    assert!(status.stdout.contains(&missing), "{}", status.stdout);
}
