//! A cluster moves from Cluster Autoscaler to Tenon, and back: a managed node group and a
//! self-managed one, with instances that launch from their templates and join as nodes. Cluster
//! Autoscaler is played by its Deployment alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::{LIMIT, User};
use tenon_bed::wait::{eventually, must};

use super::calls::{denied, grant};
use super::command::{check, tenon};

const PROFILE: &str = "workers";
/// The managed node group; its Auto Scaling group has another name.
const MANAGED: &str = "apps";
/// The Auto Scaling group that nobody manages.
const OWN: &str = "workers";
/// How large the groups are, and what runs on them.
struct Shape {
    instance_type: &'static str,
    /// Nodes of the managed group and of the other one.
    nodes: [usize; 2],
    /// Pods on the managed group that a PodDisruptionBudget protects, and how many may be missing.
    red: (usize, usize),
    /// Deployments without a budget on the other group, and their pods.
    back: (usize, usize),
}

const SMALL: Shape = Shape { instance_type: "m5.large", nodes: [3, 2], red: (6, 1), back: (1, 3) };
const LARGE: Shape =
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
}

/// What a node of a group is told at its start.
fn user_data(bed: &Bed, label: &str) -> String {
    let cluster = must(bed.aws()).gateway().state().cluster().expect("the cluster is announced");
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
        "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: \
         application/node.eks.aws\n\n{config}\n--//--"
    );
    STANDARD.encode(text)
}

/// An instance profile with the node role that Tenon made, and a launch template for each group.
async fn templates(bed: &Bed, user: &User, shape: &Shape) -> [String; 2] {
    let aws = must(bed.aws());
    let class = must(user.objects("EC2NodeClass").get("default").await);
    let role = class.data["spec"]["role"].as_str().expect("a role").to_owned();
    let caller = aws.caller();
    let profile = [("InstanceProfileName", PROFILE)];
    must(caller.query("iam", "CreateInstanceProfile", &profile).await);
    let with_role = [profile[0], ("RoleName", &role)];
    must(caller.query("iam", "AddRoleToInstanceProfile", &with_role).await);
    let state = aws.gateway().state();
    let cluster = state.cluster().expect("the cluster is announced");
    let minor = cluster.version.clone();
    let kind = format!("amazon-eks-node-al2023-x86_64-standard-{minor}-");
    let image = state.amis().iter().find(|ami| ami.recommended && ami.name.starts_with(&kind));
    let image = image.expect("an image").id.clone();
    let mut ids = Vec::new();
    for (name, label) in
        [(MANAGED, "team=red,eks.amazonaws.com/nodegroup=apps"), (OWN, "tier=back")]
    {
        let data = user_data(bed, label);
        let template = [
            ("LaunchTemplateName", name),
            ("LaunchTemplateData.ImageId", &image),
            ("LaunchTemplateData.InstanceType", shape.instance_type),
            ("LaunchTemplateData.IamInstanceProfile.Name", PROFILE),
            ("LaunchTemplateData.SecurityGroupId.1", &cluster.cluster_security_group_id),
            ("LaunchTemplateData.UserData", &data),
        ];
        let made = must(caller.query("ec2", "CreateLaunchTemplate", &template).await);
        let id = made.at(&["launchTemplate", "launchTemplateId"]).expect("an id");
        ids.push(id.text.clone());
    }
    ids.try_into().expect("two groups")
}

async fn groups(bed: &Bed, templates: &[String; 2], shape: &Shape) {
    let [managed, own] = shape.nodes;
    let aws = must(bed.aws());
    let caller = aws.caller();
    let subnets = aws.seed().subnet_ids.clone();
    let node_group = json!({
        "nodegroupName": MANAGED,
        "nodeRole": "arn:aws:iam::123456789012:role/nodes",
        "subnets": subnets,
        "instanceTypes": [shape.instance_type],
        "capacityType": "ON_DEMAND",
        "labels": { "team": "red" },
        "launchTemplate": { "id": templates[0], "version": "1" },
        "scalingConfig": { "minSize": 2, "maxSize": managed + 2, "desiredSize": managed },
    });
    let path = format!("/clusters/{}/node-groups", bed.cluster());
    must(caller.rest("eks", Method::POST, &path, &node_group).await);
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
    must(caller.query("autoscaling", "CreateAutoScalingGroup", &group).await);
}

async fn cluster_autoscaler(bed: &Bed) {
    let labels = json!({ "app": "cluster-autoscaler" });
    let container = json!({
        "name": "cluster-autoscaler",
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
        "metadata": { "name": "cluster-autoscaler" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "containers": [container],
                    "tolerations": [{ "operator": "Exists" }],
                    // No NodePool can have such nodes, and none has to: it ends.
                    "nodeSelector": { "eks.amazonaws.com/nodegroup": MANAGED },
                },
            },
        },
    });
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let parameters = PatchParams::apply("helm");
    let patch = Patch::Apply(deployment);
    must(deployments.patch("cluster-autoscaler", &parameters, &patch).await);
}

/// How many replicas it should have, and how many it has.
async fn replicas(bed: &Bed) -> (i32, i32) {
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let found = must(deployments.get("cluster-autoscaler").await);
    let wanted = found.spec.replicas.unwrap_or(1);
    (wanted, found.status.and_then(|status| status.replicas).unwrap_or(0))
}

/// Nodes of a group, by the label that its template gives them: name, and whether pods are kept
/// off. One whose instance is gone does not count.
async fn nodes(bed: &Bed, label: &str) -> Vec<(String, bool)> {
    let nodes: Api<Node> = Api::all(bed.client());
    let of_group = format!("{label},!karpenter.sh/nodepool");
    let found = must(nodes.list(&ListParams::default().labels(&of_group)).await);
    let running = must(bed.aws()).gateway().state().instances().all();
    let runs = |node: &Node| {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
        let instance = running.get(id.rsplit('/').next().unwrap_or_default());
        instance.is_some_and(|instance| instance.state.is_alive())
    };
    let cordoned =
        |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let found = found.items.into_iter().filter(runs);
    found.map(|node| (node.name_any(), cordoned(&node))).collect()
}

async fn has_nodes(bed: &Bed, label: &str, n: usize) {
    let open = async || {
        let nodes = nodes(bed, label).await;
        Ok(nodes.len() == n && nodes.iter().all(|(_, cordoned)| !cordoned))
    };
    must(eventually(&format!("{n} nodes with {label}"), LIMIT, open).await);
}

async fn run(bed: &Bed, user: &User, shape: &Shape) {
    let workloads = shape.workloads();
    for (n, Workload { app, pods, .. }) in workloads.iter().enumerate() {
        let selector = if n == 0 { json!({ "team": "red" }) } else { json!({ "tier": "back" }) };
        must(user.scale(app, *pods, &selector).await);
    }
    let Workload { app, may_miss, .. } = &workloads[0];
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": app },
        "spec": { "maxUnavailable": may_miss, "selector": { "matchLabels": { "app": app } } },
    });
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(bed.client(), "default");
    must(budgets.patch(app, &PatchParams::apply("user"), &Patch::Apply(budget)).await);
    all_run(user, shape).await;
}

async fn all_run(user: &User, shape: &Shape) {
    for Workload { app, pods, .. } in shape.workloads() {
        must(user.runs(&app, pods).await);
    }
}

/// Sizes of a group: least, wanted, and whether AZRebalance is suspended.
async fn sizes(bed: &Bed, name: &str) -> (i32, i32, bool) {
    let caller = must(bed.aws()).caller();
    let all = must(caller.query("autoscaling", "DescribeAutoScalingGroups", &[]).await);
    let path = ["DescribeAutoScalingGroupsResult", "AutoScalingGroups"];
    let groups = all.at(&path).expect("groups").children.clone();
    let group = groups
        .iter()
        .find(|group| group.get("AutoScalingGroupName").is_some_and(|it| it.contains(name)));
    let group = group.expect("the group");
    let number = |key: &str| group.get(key).and_then(|it| it.parse().ok()).expect("a number");
    let suspended = group.child("SuspendedProcesses").is_some_and(|it| !it.children.is_empty());
    (number("MinSize"), number("DesiredCapacity"), suspended)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let is_going = pod.metadata.deletion_timestamp.is_some();
    !is_going && conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// The most pods of each workload that were missing at once until something has ended.
async fn most_missing(user: &User, shape: &Shape, has_ended: &AtomicBool) -> Vec<usize> {
    let workloads = shape.workloads();
    let mut most = vec![0; workloads.len()];
    while !has_ended.load(Ordering::Relaxed) {
        for (most, Workload { app, pods, .. }) in most.iter_mut().zip(&workloads) {
            let ready = must(user.pods(app).await).iter().filter(|pod| is_ready(pod)).count();
            *most = pods.saturating_sub(ready).max(*most);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    most
}

fn check_missing(shape: &Shape, most: &[usize]) {
    for (Workload { app, may_miss, .. }, most) in shape.workloads().iter().zip(most) {
        assert!(most <= may_miss, "{most} pods of {app} were missing at once");
    }
}

/// Groups with nodes, workloads that run on them, and Cluster Autoscaler.
async fn start(bed: &Bed, user: &User, shape: &Shape) {
    let templates = templates(bed, user, shape).await;
    groups(bed, &templates, shape).await;
    has_nodes(bed, "team=red", shape.nodes[0]).await;
    has_nodes(bed, "tier=back", shape.nodes[1]).await;
    run(bed, user, shape).await;
    cluster_autoscaler(bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_autoscaler_s_groups_become_node_pools_and_back() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let installed = must(Installation::ensure(&bed, &json!({})).await);
    let user = installed.user();
    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let with = |args: &[&'static str]| [&["migrate", "cas"][..], args, &target].concat();

    let nothing = tenon(&bed, &with(&["--yes"]), None).await;
    assert_eq!(nothing.code, 0, "{}", nothing.stderr);
    assert!(nothing.stdout.contains("there is no Cluster Autoscaler"), "{}", nothing.stdout);

    start(&bed, user, &SMALL).await;
    // From now on with the permissions that `tenon iam caller` prints.
    grant(&bed, "migrate-cas", &target).await;
    assert_eq!(check(&bed, "EX-03").await["outcome"], "fail");

    // Refused, while a pod would have no place.
    let proposed = tenon(&bed, &with(&["--propose"]), None).await;
    assert_eq!(proposed.code, 0, "{}", proposed.stderr);
    let file = bed.dir().join("pools.yaml");
    let pools = proposed.stdout.replace("tier: back", "tier: front");
    assert_ne!(pools, proposed.stdout, "{pools}");
    must(std::fs::write(&file, pools));
    let file = file.display().to_string();
    let other = [&with(&["--yes"])[..], &["--node-pools", &file]].concat();
    let refused = tenon(&bed, &other, None).await;
    assert_eq!(refused.code, 6, "{}{}", refused.stdout, refused.stderr);
    assert!(refused.stderr.contains("would stay pending"), "{}", refused.stderr);
    assert_eq!(replicas(&bed).await.0, 1, "it was touched");

    // What would happen.
    let shown = tenon(&bed, &with(&["--dry-run", "-o", "json"]), None).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let shown: Value = must(serde_json::from_str(&shown.stdout));
    let pending = shown["simulation"]["unschedulable"].as_array().expect("pods");
    assert_eq!(pending.len(), 1, "only Cluster Autoscaler, which ends: {pending:?}");
    assert_eq!(shown["simulation"]["drained"]["pods"], 10);
    assert_eq!(shown["nodesThatStay"], json!({}));
    assert_eq!(shown["changed"], 0);

    // Stopped by a kill, by a pause between the groups, and called off.
    let killed = tenon(&bed, &with(&["--yes"]), Some(5)).await;
    assert_ne!(killed.code, 0, "{}", killed.stdout);
    let paused = tenon(&bed, &with(&["--yes", "--pause-between"]), None).await;
    assert_eq!(paused.code, 0, "{}{}", paused.stdout, paused.stderr);
    assert!(paused.stdout.contains("Stopped before group"), "{}", paused.stdout);
    assert_eq!(replicas(&bed).await, (0, 0));
    let aborted = tenon(&bed, &with(&["--abort", "--yes"]), None).await;
    assert_eq!(aborted.code, 0, "{}{}", aborted.stdout, aborted.stderr);
    assert_eq!(replicas(&bed).await.0, 1);
    assert_eq!(sizes(&bed, "eks-apps").await, (2, 3, false));
    assert_eq!(sizes(&bed, OWN).await, (1, 2, false));
    has_nodes(&bed, "team=red", 3).await;
    has_nodes(&bed, "tier=back", 2).await;

    // The pods return once the NodePools are gone.
    for pool in [MANAGED, OWN] {
        must(user.objects("NodePool").delete(pool, &DeleteParams::foreground()).await);
    }
    let are_gone = async || {
        let all = ListParams::default();
        let claims = must(user.objects("NodeClaim").list(&all).await);
        let pools = must(user.objects("NodePool").list(&all).await);
        Ok(claims.items.is_empty() && pools.items.len() == 1)
    };
    must(eventually("the NodePools and their nodes are gone", LIMIT, are_gone).await);
    all_run(user, &SMALL).await;

    // All the way, with a kill in a group.
    let has_ended = AtomicBool::new(false);
    let moved = async {
        let killed = tenon(&bed, &with(&["--yes", "--parallel", "2"]), Some(4)).await;
        assert_ne!(killed.code, 0, "{}", killed.stdout);
        let done = tenon(&bed, &with(&["--yes", "--parallel", "2"]), None).await;
        assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
        all_run(user, &SMALL).await;
        has_ended.store(true, Ordering::Relaxed);
        done
    };
    let (done, most) = tokio::join!(moved, most_missing(user, &SMALL, &has_ended));
    check_missing(&SMALL, &most);
    assert_eq!(sizes(&bed, "eks-apps").await, (0, 0, false));
    assert_eq!(sizes(&bed, OWN).await, (0, 0, false));
    assert_eq!(nodes(&bed, "team=red").await, []);
    assert_eq!(nodes(&bed, "tier=back").await, []);
    assert_eq!(check(&bed, "EX-03").await["outcome"], "pass");
    assert!(done.stdout.contains("aws eks delete-nodegroup"), "{}", done.stdout);
    let again = tenon(&bed, &with(&["--yes"]), None).await;
    assert!(again.stdout.contains("Nothing to do"), "{}{}", again.stdout, again.stderr);
    let diff = tenon(&bed, &[&["diff"][..], &target].concat(), None).await;
    assert_eq!(diff.code, 0, "the installation is as it was: {}", diff.stdout);

    assert_eq!(denied(&bed), [""; 0]);

    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    must(deployments.delete("cluster-autoscaler", &DeleteParams::default()).await);
}

/// What `docs/src/reference/measurements.md` says of such a move.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and prints figures"]
async fn measure_a_move_from_cluster_autoscaler() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let installed = must(Installation::ensure(&bed, &json!({})).await);
    let user = installed.user();
    start(&bed, user, &LARGE).await;
    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let has_ended = AtomicBool::new(false);
    let began = Instant::now();
    let moved = async {
        let args = [&["migrate", "cas", "--yes", "-o", "json"][..], &target].concat();
        let done = tenon(&bed, &args, None).await;
        assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
        let seconds = began.elapsed().as_secs_f64();
        all_run(user, &LARGE).await;
        has_ended.store(true, Ordering::Relaxed);
        (seconds, done)
    };
    let ((seconds, done), most) = tokio::join!(moved, most_missing(user, &LARGE, &has_ended));
    check_missing(&LARGE, &most);
    let report: Value = must(serde_json::from_str(&done.stdout));
    println!("{seconds:.0} s, missing at most {most:?}");
    println!("plan: {}", report["simulation"]["totals"]);
    println!("moved: {}", price(&bed).await);
    // What is left to do is consolidation's, which waits as long as Cluster Autoscaler did.
    for pool in [MANAGED, OWN] {
        let soon = json!({ "spec": { "disruption": { "consolidateAfter": "5s" } } });
        let pools = user.objects("NodePool");
        must(pools.patch(pool, &PatchParams::default(), &Patch::Merge(soon)).await);
    }
    let (mut seen, mut since) = (Vec::new(), Instant::now());
    while since.elapsed() < Duration::from_secs(60) {
        let claims = must(user.objects("NodeClaim").list(&ListParams::default()).await).items;
        let now = claims.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let seconds = began.elapsed().as_secs_f64() - 60.0;
    println!("consolidated after {seconds:.0} s: {}", price(&bed).await);
}

/// Nodes and what they cost, in USD per hour.
async fn price(bed: &Bed) -> String {
    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let status = tenon(bed, &[&["status", "-o", "json"][..], &target].concat(), None).await;
    let status: Value = must(serde_json::from_str(&status.stdout));
    status["fleet"]["total"].to_string()
}
