//! The story of kOps: a cluster without the EKS API gets Tenon by one command. Nodes boot with the
//! script that kOps writes and join by the rules of kops-controller; when kOps changes the script,
//! the operator follows.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::chapters::{as_before, note_created, run_tenon};
use super::inventory::Inventory;
use super::{Chapter, Scene, StoryError, bed, user};
use crate::bed::Finished;
use crate::guide;
use crate::kops::{CLUSTER, Kops, STATE, cluster, instance_group};
use crate::objects::is_ready_node;
use crate::user::{LIMIT, instance_of};
use crate::wait::eventually;
use crate::words::count;

pub(super) const CHAPTERS: &[Chapter] = &[
    Chapter {
        title: "kOps",
        shows: "kOps has a state store with an InstanceGroup of `manager: Karpenter`, the role of its nodes, and kops-controller. It creates the operator's role from the fields that `tenon kops export cluster` prints.",
        tell: |scene| Box::pin(kops(scene)),
    },
    Chapter {
        title: "Install",
        shows: "`tenon kops install` creates queue, rules and CRDs, deploys the operator to the control plane, and makes a NodePool and an EC2NodeClass of the InstanceGroup.",
        tell: |scene| Box::pin(install(scene)),
    },
    Chapter {
        title: "Launch",
        shows: "Six pods are unschedulable. Tenon launches instances, these boot with kOps' script, and kops-controller lets them join.",
        tell: |scene| Box::pin(launch(scene)),
    },
    Chapter {
        title: "Move",
        shows: "An InstanceGroup with an Auto Scaling group has a pod, too. Its node is drained with kubectl; the pod gets a node of the NodePool, and the InstanceGroup is deleted.",
        tell: |scene| Box::pin(move_pods(scene)),
    },
    Chapter {
        title: "Update",
        shows: "`kops update cluster` changes the script. The operator finds it in the state store, and replaces the nodes that have booted with the old one.",
        tell: |scene| Box::pin(update(scene)),
    },
    Chapter {
        title: "Interrupt",
        shows: "AWS interrupts a spot instance; its pods move in time.",
        tell: |scene| Box::pin(interrupt(scene)),
    },
    Chapter {
        title: "Uninstall",
        shows: "`tenon kops uninstall` drains the nodes and deletes everything that was created. The result is compared with the state before.",
        tell: |scene| Box::pin(uninstall(scene)),
    },
];

/// The page whose commands are typed.
const GUIDE: &str = include_str!("../../../../docs/src/guides/kops.md");
/// The InstanceGroup, and its NodePool.
const GROUP: &str = "web";
/// The InstanceGroup that has an Auto Scaling group, and what runs there.
const OLD: &str = "nodes";
const OLD_APP: &str = "site";
const APP: &str = "shop";
const PODS: usize = 6;
/// Pods of a node: before and after `kops update cluster`.
const MAX_PODS: [u32; 2] = [58, 110];

/// Runs a command of `tenon kops` that reads the state store.
async fn tenon(scene: &Scene<'_>, args: &[&str]) -> Result<Finished, StoryError> {
    let state = ["--state", STATE, "--region", scene.bed.region()];
    run_tenon(scene.bed, &[&["kops"], args, &state].concat()).await
}

async fn kops(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let kops = Kops::new(scene.bed);
    let store = async {
        let group = json!({
            "nodeLabels": { "tier": GROUP, "site": "yes" },
            "mixedInstancesPolicy": {
                "instances": ["m6i.large", "m6i.xlarge"], "onDemandAboveBase": 0,
            },
        });
        kops.put("config", &cluster(false)).await?;
        kops.put(&format!("instancegroup/{GROUP}"), &instance_group(GROUP, &group)).await?;
        kops.update(&[GROUP], MAX_PODS[0]).await
    };
    store.await.map_err(bed("write the state store"))?;
    kops.create_nodes().await.map_err(bed("create what nodes need"))?;
    kops.controller(CLUSTER).await.map_err(bed("configure kops-controller"))?;
    let printed = tenon(scene, &["export", "cluster", "-o", "json"]).await?;
    let spec: Value = serde_json::from_str(&printed.stdout).map_err(bed("read the permissions"))?;
    kops.control_plane(&spec).await.map_err(bed("create the operator's role"))?;
    scene.note(format!("cluster {CLUSTER} in {STATE}, with InstanceGroup {GROUP}"));
    Ok(())
}

async fn install(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    scene.before = Some(Inventory::take(scene.bed).await?);
    // The bed has no DNS for kOps' name of the API server, and runs the image by its name.
    let endpoint = format!("settings.clusterEndpoint={}", scene.bed.control_plane().url());
    let started = Instant::now();
    let install = ["install", "--image", "tenon-operator", "--set", &endpoint, "--yes"];
    tenon(scene, &install).await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("installed and ready after {seconds:.1} s"));
    note_created(scene).await
}

async fn launch(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let started = Instant::now();
    let selector = json!({ "tier": GROUP });
    user.scale(APP, PODS, &selector).await.map_err(bed("create the workload"))?;
    user.runs(APP, PODS).await?;
    let seconds = started.elapsed().as_secs_f64();
    let nodes = user.nodes(GROUP).await.map_err(bed("list the nodes"))?;
    scene.note(format!(
        "all {PODS} pods run after {seconds:.1} s, on {}",
        count(nodes.len(), "node")
    ));
    for claim in user.claims(GROUP).await.map_err(bed("list the NodeClaims"))? {
        let id = instance_of(&claim);
        let aws = scene.bed.aws().map_err(bed("use AWS"))?;
        let instance = aws.gateway().state().instances().get(&id);
        let tags = instance.map(|instance| instance.tags.clone()).unwrap_or_default();
        let tag = "kops.k8s.io/instancegroup";
        if tags.get(tag).map(String::as_str) != Some(GROUP) {
            return Err(StoryError::Unexpected(format!("{id} has no tag {tag}={GROUP}")));
        }
        scene.note(format!("{id} has the tag {tag}={GROUP}, as kops-controller requires"));
    }
    Ok(())
}

async fn move_pods(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let kops = Kops::new(scene.bed);
    kops.create_group(OLD, ("site", "yes")).await.map_err(bed("create an Auto Scaling group"))?;
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let of_group = ListParams::default().labels("site=yes,!karpenter.sh/nodepool");
    eventually("a node of the Auto Scaling group", LIMIT, async || {
        let found = nodes.list(&of_group).await?.items;
        Ok(found.iter().any(is_ready_node))
    })
    .await?;
    let old = nodes.list(&of_group).await.map_err(bed("list the nodes"))?;
    let old = old.items.first().map(ResourceExt::name_any).unwrap_or_default();
    // Other nodes have no room for it.
    let large = json!({ "spec": {
        "nodeSelector": { "site": "yes" },
        "containers": [{
            "name": "main",
            "image": "registry.example/site:1",
            "resources": { "requests": { "cpu": "1500m" } },
        }],
    } });
    user.deploy(OLD_APP, 1, &large).await.map_err(bed("create the workload"))?;
    user.runs(OLD_APP, 1).await?;
    let on = node_of(scene).await?;
    if on != old {
        return Err(StoryError::Unexpected(format!("the pod runs on {on}, not on {old}")));
    }
    let drain = guide::command(GUIDE, "kubectl drain").replace("i-0123456789abcdef0", &old);
    scene.note(format!("$ {drain}"));
    let started = Instant::now();
    let mut kubectl = scene.bed.command("kubectl".as_ref());
    let drained =
        kubectl.args(drain.split(' ').skip(1)).output().await.map_err(bed("run kubectl"))?;
    if !drained.status.success() {
        let why = String::from_utf8_lossy(&drained.stderr).into_owned();
        return Err(StoryError::Unexpected(format!("kubectl drain: {why}")));
    }
    user.runs(OLD_APP, 1).await?;
    let seconds = started.elapsed().as_secs_f64();
    let on = node_of(scene).await?;
    let claims = user.nodes(GROUP).await.map_err(bed("list the nodes"))?;
    if !claims.iter().any(|node| node.name_any() == on) {
        return Err(StoryError::Unexpected(format!("the pod runs on {on}, not in {GROUP}")));
    }
    scene.note(format!("the pod of {old} runs on {on} after {seconds:.1} s"));
    kops.delete_group(OLD, &old).await.map_err(bed("delete the InstanceGroup"))?;
    user.remove(OLD_APP).await.map_err(bed("delete the workload"))
}

/// Where the pod of the other InstanceGroup runs.
async fn node_of(scene: &Scene<'_>) -> Result<String, StoryError> {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "default");
    let of_app = ListParams::default().labels(&format!("app={OLD_APP}"));
    let pods = pods.list(&of_app).await.map_err(bed("list the pods"))?;
    let mut alive = pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let node = alive.find_map(|pod| pod.spec?.node_name);
    node.ok_or_else(|| StoryError::Unexpected("the pod runs nowhere".to_owned()))
}

/// The names of the InstanceGroup's nodes.
async fn nodes(scene: &Scene<'_>) -> Result<BTreeSet<String>, kube::Error> {
    let nodes = user(scene).nodes(GROUP).await?;
    Ok(nodes.iter().map(ResourceExt::name_any).collect())
}

async fn update(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let before = nodes(scene).await.map_err(bed("list the nodes"))?;
    let started = Instant::now();
    let kops = Kops::new(scene.bed);
    kops.update(&[GROUP], MAX_PODS[1]).await.map_err(bed("write the state store"))?;
    eventually("the operator follows", LIMIT, async || {
        let class = user.objects("EC2NodeClass").get(GROUP).await?;
        Ok(class.data["spec"]["kubelet"]["maxPods"] == MAX_PODS[1])
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("the EC2NodeClass has the new script after {seconds:.1} s"));
    eventually("every node has booted with the new script", 2 * LIMIT, async || {
        let now = nodes(scene).await?;
        let left = now.intersection(&before).count();
        if left > 0 {
            return Err(format!("{} left", count(left, "old node")).into());
        }
        user.all_run(APP, PODS).await
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("{} replaced after {seconds:.1} s", count(before.len(), "node")));
    Ok(())
}

async fn interrupt(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let claims = user.claims(GROUP).await.map_err(bed("list the NodeClaims"))?;
    let claim = claims.first().ok_or_else(|| StoryError::Unexpected("no nodes".to_owned()))?;
    let (name, instance) = (claim.name_any(), instance_of(claim));
    let started = Instant::now();
    scene.bed.interrupt(&instance).await.map_err(bed("interrupt an instance"))?;
    eventually("the interrupted node is gone, and the pods run", LIMIT, async || {
        let claims = user.claims(GROUP).await?;
        if claims.iter().any(|claim| claim.name_any() == name) {
            return Err(format!("{name} is there").into());
        }
        user.all_run(APP, PODS).await
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("{instance} is gone and its pods run elsewhere after {seconds:.1} s"));
    Ok(())
}

async fn uninstall(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    user(scene).remove(APP).await.map_err(bed("delete the workload"))?;
    let started = Instant::now();
    let uninstall = ["kops", "uninstall", "--cluster", CLUSTER, "--force-capacity", "--yes"];
    run_tenon(scene.bed, &uninstall).await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("uninstalled after {seconds:.1} s"));
    as_before(scene).await?;
    let aws = scene.bed.aws().map_err(bed("use AWS"))?;
    let calls = aws.gateway().control().calls().all();
    let of_eks = calls.iter().filter(|call| call.action.starts_with("eks:")).count();
    if of_eks > 0 {
        let text = format!("EKS was asked {of_eks} times, and kOps clusters are not in it");
        return Err(StoryError::Unexpected(text));
    }
    scene.note("EKS was never asked");
    Ok(())
}
