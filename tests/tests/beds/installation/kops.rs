//! InstanceGroups of kOps as NodePools: the state store in a bucket, nodes that boot with kOps'
//! script and ask kops-controller for their configuration, and `kops update cluster`, which changes
//! both. kOps is played by its files and kops-controller by its rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::conditions;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::calls::Call;
use tenon_aws_double::control::Selection;
use tenon_bed::bed::{Bed, BedConfig, Finished, Parts};
use tenon_bed::installation::Installation;
use tenon_bed::kops::{
    self, CLUSTER, NODES, STATE, STORE_REGION, Written, cluster, instance_group,
};
use tenon_bed::registry::Registry;
use tenon_bed::user::{LIMIT, NodeClass, User, instance_of};
use tenon_bed::wait::{eventually, must};
use tenon_terminal::Terminal;

use super::calls::{denied, restrict, unrestrict};
use super::command::tenon;
use super::install::{assert_unchanged, inventory};
use crate::guide::Guide;
use crate::terminal::converse;

mod canary;
mod follow;
mod no_provider;

const GUIDE: &str = include_str!("../../../../docs/src/guides/kops.md");
/// The commands of the page that a story types, and those of kOps itself.
const TYPED_ELSEWHERE: [&str; 4] = [
    "kubectl drain",
    "kops get instancegroup nodes",
    "kops create -f nodes-tenon.yaml",
    "kops update cluster",
];
/// Those that are typed where Karpenter, as kOps installs it, stays.
const TYPED_BESIDE_KARPENTER: [&str; 1] = ["tenon kops augment"];
/// Those that are typed where Helm installs the operator.
const TYPED_WITH_HELM: [&str; 4] =
    ["tenon kops queue", "tenon kops export values", "helm install", "helm test"];
/// Those that are typed, there, before the cluster is deleted.
const TYPED_AT_THE_END: [&str; 2] = ["tenon freeze", "kubectl delete nodepools"];

/// The tag of instances that the operator has launched.
const NODE_POOL: &str = "karpenter.sh/nodepool";

/// kOps, and who runs `tenon kops` beside it.
struct Kops {
    bed: Arc<Bed>,
}

/// The page about kOps, with the names of the bed.
fn guide() -> Guide {
    let charts = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts");
    Guide::new(
        GUIDE,
        [
            ("s3://my-state-store", STATE),
            ("my.example.com", CLUSTER),
            ("ec2nodeclass nodes", "ec2nodeclass web"),
            ("oci://registry.example/tenon/charts", charts),
        ],
    )
}

impl Kops {
    fn world(&self) -> kops::Kops<'_> {
        kops::Kops::new(&self.bed)
    }

    async fn put(&self, file: &str, text: &str) {
        must(self.world().put(file, text).await);
    }

    async fn remove(&self, file: &str) {
        must(self.world().remove(file).await);
    }

    async fn update(&self, groups: &[&str], max_pods: u32) {
        must(self.world().update(groups, max_pods).await);
    }

    async fn create_nodes(&self) {
        must(self.world().create_nodes().await);
    }

    async fn controller(&self, cluster: &str) {
        must(self.world().controller(cluster).await);
    }

    async fn control_plane(&self, cluster_spec: &Value) {
        must(self.world().control_plane(cluster_spec).await);
    }

    async fn give_role(&self, cluster_spec: &Value) {
        must(self.world().give_role(cluster_spec).await);
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
    kops.put("igconfig/node/web/nodeupconfig.yaml", &Written::new("web", 59).node_config).await;
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
    let section = "Keep Karpenter as kOps installs it";
    let added = format!("--region {} {}", bed.region(), augment[1..].join(" "));
    let mut guide = guide();
    let done = guide.enter(&bed, section, TYPED_BESIDE_KARPENTER[0], &added).await;
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    guide.has_typed_only(&TYPED_BESIDE_KARPENTER);
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

/// `tenon kops install` on the bed, where kOps' name of the API server does not exist.
async fn install(kops: &Kops, args: &[&str], steps: Option<usize>) -> Finished {
    let endpoint = format!("settings.clusterEndpoint={}", kops.bed.control_plane().url());
    let image = ["--image", "tenon-operator"];
    let image = if args.contains(&"--image") { &[][..] } else { &image };
    let fixed = ["kops", "install", "--set", &endpoint];
    let state = ["--state", STATE, "--region", kops.bed.region()];
    tenon(&kops.bed, &[&fixed[..], image, args, &state].concat(), steps).await
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

/// A launch template of the operator's whose EC2NodeClass is gone.
async fn launch_template(bed: &Bed) {
    let owned = format!("kubernetes.io/cluster/{CLUSTER}");
    let template = [
        ("LaunchTemplateName", "left"),
        ("LaunchTemplateData.InstanceType", "m6i.large"),
        ("TagSpecification.1.ResourceType", "launch-template"),
        ("TagSpecification.1.Tag.1.Key", &owned),
        ("TagSpecification.1.Tag.1.Value", "owned"),
        ("TagSpecification.1.Tag.2.Key", "eks:eks-cluster-name"),
        ("TagSpecification.1.Tag.2.Value", CLUSTER),
    ];
    must(must(bed.aws()).caller().query("ec2", "CreateLaunchTemplate", &template).await);
}

/// A flag that names a kubeconfig of who may read what Tenon consists of but its roles, and objects
/// of other API groups.
async fn reader(bed: &Bed, others: &[&str]) -> String {
    let groups = [
        "",
        "apiextensions.k8s.io",
        "apps",
        "coordination.k8s.io",
        "karpenter.k8s.aws",
        "karpenter.sh",
        "monitoring.coreos.com",
        "policy",
    ];
    let groups = [&groups, others].concat();
    let rules = json!([{ "apiGroups": groups, "resources": ["*"], "verbs": ["get", "list"] }]);
    let version = "rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": version, "kind": "ClusterRole",
        "metadata": { "name": "reader" }, "rules": rules,
    });
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": "reader" },
        "subjects": [{ "kind": "User", "name": "reader" }],
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader" },
    });
    let as_test = PatchParams::apply("test").force();
    let roles: Api<ClusterRole> = Api::all(bed.client());
    must(roles.patch("reader", &as_test, &Patch::Apply(role)).await);
    let bindings: Api<ClusterRoleBinding> = Api::all(bed.client());
    must(bindings.patch("reader", &as_test, &Patch::Apply(binding)).await);
    let text = must(std::fs::read_to_string(bed.control_plane().kubeconfig()));
    let mut kubeconfig: Value = must(serde_saphyr::from_str(&text));
    kubeconfig["users"][0]["user"]["as"] = "reader".into();
    let file = bed.dir().join("reader.yaml");
    must(std::fs::write(&file, kubeconfig.to_string()));
    format!("--kubeconfig={}", file.display())
}

async fn remove_reader(bed: &Bed) {
    let roles: Api<ClusterRole> = Api::all(bed.client());
    must(roles.delete("reader", &DeleteParams::default()).await);
    let bindings: Api<ClusterRoleBinding> = Api::all(bed.client());
    must(bindings.delete("reader", &DeleteParams::default()).await);
}

async fn stop_operator(bed: &Bed) {
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let none = json!({ "spec": { "replicas": 0 } });
    let by_user = PatchParams::default();
    must(deployments.patch("karpenter", &by_user, &Patch::Merge(none)).await);
    let stopped = async || {
        let live = deployments.get("karpenter").await?;
        Ok(live.status.and_then(|status| status.replicas).unwrap_or_default() == 0)
    };
    must(eventually("the operator has stopped", LIMIT, stopped).await);
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
    let mut guide = guide();
    let section = "Install the operator";
    let spec = guide.enter(&bed, section, "tenon kops export cluster", "-o json").await;
    assert_eq!(spec.code, 0, "{}", spec.stderr);
    let spec: Value = must(serde_json::from_str(&spec.stdout));
    kops.control_plane(&spec).await;
    let part = spec.to_string().replace("ec2:CreateFleet", "ec2:DescribeFleets");
    kops.give_role(&must(serde_json::from_str(&part))).await;
    let lacks = refusal(&install(&kops, &["--yes"], None).await);
    assert!(lacks.contains("lacks permissions (ec2:CreateFleet on"), "{lacks}");
    kops.give_role(&spec).await;

    must(user.scale("shop", 0, &json!({ "tier": "web" })).await);
    let before = inventory(&bed).await;
    launch_template(&bed).await;

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

    // The registry has no such image.
    let registry = must(Registry::start(&bed, None).await);
    let image = format!("{}/tenon/none", registry.host());
    let missing = install(&kops, &["--yes", "--image", &image], None).await;
    assert_eq!(missing.code, 3, "{}{}", missing.stdout, missing.stderr);
    let said = missing.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&format!("IM-01 the registry has no image {image}:")), "{said}");
    registry.stop().await;

    // Killed on the way; the next run goes on.
    for steps in [1, 4, 9] {
        let killed = install(&kops, &["--yes"], Some(steps)).await;
        assert_ne!(killed.code, 0, "{}", killed.stdout);
    }
    let only_here = format!(
        "--image tenon-operator --set settings.clusterEndpoint={} --yes",
        bed.control_plane().url()
    );
    let done = guide.enter(&bed, section, "tenon kops install", &only_here).await;
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let again = install(&kops, &["--yes", "--canary", "-o", "json"], None).await;
    let again: Value = must(serde_json::from_str(&again.stdout));
    assert_eq!((&again["changed"], &again["ready"]), (&json!(0), &json!(true)), "{again}");
    assert!(again["canary"]["joinedSeconds"].is_u64(), "{again}");
    assert!(again["canary"]["messageSeconds"].is_u64(), "{again}");
    must(user.scale("shop", 2, &json!({ "tier": "web" })).await);
    must(user.runs("shop", 2).await);
    let status = ["status", "--exit-code", "--non-interactive", "--cluster", CLUSTER];
    let status = tenon(&bed, &status, None).await;
    assert_eq!(status.code, 0, "{}{}", status.stdout, status.stderr);

    // What the page says of a running installation.
    for (section, begin, added, says) in [
        ("See what the InstanceGroups become", "tenon kops generate", "", ""),
        ("Apply", "tenon kops diff", "", "what its InstanceGroups ask for"),
        ("Apply", "tenon kops sync", "--yes", "Nothing to do"),
        ("Look at it", "tenon status", "", "web"),
        ("Look at it", "tenon doctor", "", "passed"),
        ("Update the cluster", "kubectl describe", "", "Max Pods"),
        ("Permissions", "tenon kops export caller", "", "AllowTerminatingNodes"),
        ("Permissions", "tenon kops export augment-caller", "", "iam:PutRolePolicy"),
    ] {
        let done = guide.enter(&bed, section, begin, added).await;
        assert_eq!(done.code, 0, "{begin}: {}{}", done.stdout, done.stderr);
        assert!(done.stdout.contains(says), "{begin}: {}", done.stdout);
    }
    let generated = must(std::fs::read_to_string(bed.dir().join("nodepools.yaml")));
    assert!(generated.contains("kind: NodePool"), "{generated}");

    // Another value is one update, for which one of the new pods has to become ready.
    let applied = "Deployment/kube-system/karpenter";
    let through = ["canary", applied, "rollout", "canary-goes"];
    for (other, path, steps) in [
        (["--set", "logLevel=debug"], "env[name=LOG_LEVEL].value", &through[..]),
        (["--replicas", "2"], "spec.replicas", &[applied]),
    ] {
        let dry = install(&kops, &[&other[..], &["--dry-run", "-o", "json"]].concat(), None).await;
        let dry: Value = must(serde_json::from_str(&dry.stdout));
        let changed = dry["actions"].as_array().expect("a list");
        let ids = changed.iter().map(|step| step["id"].as_str().expect("an id"));
        assert_eq!(ids.collect::<Vec<_>>(), steps, "{dry}");
        let changes = changed.iter().find(|step| step["id"] == applied).map(|it| &it["changes"]);
        assert!(changes.is_some_and(|all| all.to_string().contains(path)), "{dry}");
    }
    canary::changes_pods(&kops).await;

    // Who may not list roles does not know whether one is left.
    let half = reader(&bed, &[]).await;
    let half = uninstall(&kops, &[&half, "--dry-run"], None).await;
    assert_ne!(half.code, 0, "{}", half.stdout);
    assert!(half.stderr.contains("rbac.authorization.k8s.io is forbidden"), "{}", half.stderr);
    let whole = reader(&bed, &["rbac.authorization.k8s.io"]).await;
    let whole = uninstall(&kops, &[&whole, "--dry-run"], None).await;
    assert_eq!(whole.code, 0, "{}{}", whole.stdout, whole.stderr);
    assert!(whole.stdout.contains("launch template"), "{}", whole.stdout);

    // No other node has room for its pods.
    let no_room = refusal(&uninstall(&kops, &["--yes"], None).await);
    assert!(no_room.contains("have no room for 2 pods"), "{no_room}");
    // Without the operator, which would remove the empty nodes.
    stop_operator(&bed).await;
    must(user.scale("shop", 0, &json!({ "tier": "web" })).await);
    assert!(!must(user.claims("web").await).is_empty(), "no nodes");
    let killed = uninstall(&kops, &["--yes", "--force-capacity"], Some(3)).await;
    assert_ne!(killed.code, 0, "{}", killed.stdout);
    assert!(killed.stderr.contains("the operator does not run"), "{}", killed.stderr);
    assert_eq!(must(user.claims("web").await).len(), 0, "nodes go first");
    remove_reader(&bed).await;
    // Only by the cluster's name.
    let removal = guide.command("Uninstall", "tenon kops uninstall");
    let by_name = |name: &str| {
        let turns = [("Type the cluster's name (shop.example.com) to continue", name)];
        converse(Terminal::default(), &bed, removal.trim_start_matches("tenon "), &turns)
    };
    let screen = by_name("shop\r");
    assert!(screen.contains("the name does not match"), "{screen}");
    assert!(screen.contains("exit code 6"), "{screen}");
    let screen = by_name(&format!("{CLUSTER}\r"));
    assert!(screen.contains("Tenon is removed, and nothing of it is left."), "{screen}");
    assert!(screen.contains("exit code 0"), "{screen}");
    assert_unchanged(&before, &inventory(&bed).await);
    let instances = must(bed.aws()).gateway().state().instances().all();
    let mut of_pools = instances.values().filter(|one| one.tags.contains_key(NODE_POOL));
    assert!(of_pools.all(|one| !one.state.is_alive()), "{instances:?}");
    assert_eq!(denied(&bed), Vec::<String>::new());
    unrestrict(&bed);
    let calls = must(bed.aws()).gateway().control().calls().all();
    assert_eq!(calls.iter().filter(|call| call.action.starts_with("eks:")).count(), 0);
    let elsewhere =
        [&TYPED_ELSEWHERE[..], &TYPED_BESIDE_KARPENTER, &TYPED_WITH_HELM, &TYPED_AT_THE_END];
    guide.has_typed_all_but(&elsewhere.concat());
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
    kops.control_plane(&must(serde_json::from_str(&spec.stdout))).await;
    kops.restrict("caller").await;
    let mut guide = guide();
    let section = "Install the operator";
    for [begin, added] in [["tenon kops queue", "--yes"], ["tenon kops export values", ""]] {
        let done = guide.enter(&bed, section, begin, added).await;
        assert_eq!(done.code, 0, "{begin}: {}{}", done.stdout, done.stderr);
    }
    let file = bed.dir().join("values.yaml");
    let printed = must(std::fs::read_to_string(&file));
    let mut values: Value = must(serde_saphyr::from_str(&printed));
    assert_eq!(values["replicas"], 2);
    assert_eq!(values["settings"]["clusterEndpoint"], "https://api.internal.shop.example.com");
    // The bed has no such name, and its kubelet runs the image by its name.
    values["settings"]["clusterEndpoint"] = bed.control_plane().url().into();
    values["controller"]["image"] = json!({ "repository": "tenon-operator" });
    must(std::fs::write(&file, values.to_string()));
    for begin in ["helm install tenon-crds", "helm install karpenter"] {
        let done = guide.enter(&bed, section, begin, "").await;
        assert_eq!(done.code, 0, "{begin}: {}{}", done.stdout, done.stderr);
    }

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
    let checked = guide.enter(&bed, "Look at it", "helm test", "").await;
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    assert!(checked.stdout.contains(" 0 not applicable"), "{}", checked.stdout);
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

    // Before `kops delete cluster`, nothing is launched any more.
    for begin in TYPED_AT_THE_END {
        let done = guide.enter(&bed, "Delete the cluster", begin, "").await;
        assert_eq!(done.code, 0, "{begin}: {}{}", done.stdout, done.stderr);
    }
    let instances = aws.gateway().state().instances().all();
    let mut of_pools = instances.values().filter(|one| one.tags.contains_key(NODE_POOL));
    assert!(of_pools.all(|one| !one.state.is_alive()), "{instances:?}");
    assert!(must(user.claims("web").await).is_empty(), "NodeClaims are left");
    guide.has_typed_only(&[&TYPED_WITH_HELM[..], &TYPED_AT_THE_END].concat());
}
