//! The chapters.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenon_aws_double::process::tail_of;
use tenon_aws_double::progress::Progress;
use tokio::time::Instant;

use super::cluster::{self, Launched};
use super::inventory::Inventory;
use super::{Chapter, Scene, StoryError, pools};
use crate::bed::{Bed, Finished};
use crate::objects;
use crate::wait::{Polled, eventually};
use crate::words::count;

/// Every story begins with it.
pub(super) const INSTALL: Chapter = Chapter {
    title: "Install",
    shows: "`tenon install` creates roles, queue, rules, access entry and CRDs, and deploys the operator, which runs with its role.",
    tell: |scene| Box::pin(install_chapter(scene)),
};

pub(super) const ALL: &[Chapter] = &[
    INSTALL,
    Chapter {
        title: "Pools",
        shows: "The NodePool and EC2NodeClass of the guide are accepted and become Ready.",
        tell: |scene| Box::pin(pools_chapter(scene)),
    },
    Chapter {
        title: "Launch",
        shows: "Twelve pods are unschedulable; Tenon launches instances, these become nodes, and the pods run.",
        tell: |scene| Box::pin(launch(scene)),
    },
    Chapter {
        title: "Consolidate",
        shows: "Most pods are deleted; Tenon removes the nodes that are no longer needed.",
        tell: |scene| Box::pin(consolidate(scene)),
    },
    Chapter {
        title: "Interrupt",
        shows: "AWS interrupts a spot instance; its pods move in time.",
        tell: |scene| Box::pin(interrupt(scene)),
    },
    Chapter {
        title: "Drift",
        shows: "The EC2NodeClass changes; Tenon replaces the drifted nodes.",
        tell: |scene| Box::pin(drift(scene)),
    },
    Chapter {
        title: "Uninstall",
        shows: "`tenon uninstall` drains the nodes and deletes everything that was created. The result is compared with the state before.",
        tell: |scene| Box::pin(uninstall(scene)),
    },
];

const MINUTE: Duration = Duration::from_mins(1);
const MANY: usize = 12;
const FEW: usize = 3;

fn kubernetes(doing: &str) -> impl FnOnce(kube::Error) -> StoryError + use<> {
    let doing = doing.to_owned();
    move |source| StoryError::Kubernetes { doing, source }
}

/// Installs Tenon on a bed with the real installer and waits until the operator is available.
///
/// # Errors
/// When the installer fails, or the operator does not become available.
pub async fn install(bed: &Bed, progress: &Progress) -> Result<(), StoryError> {
    install_with(bed, &json!({}), progress).await
}

/// The same with values of the chart.
pub(super) async fn install_with(
    bed: &Bed,
    values: &Value,
    progress: &Progress,
) -> Result<(), StoryError> {
    let step = progress.step("installing Tenon");
    let config = bed.dir().join("tenon.yaml");
    let text = json!({
        "apiVersion": "tenon.sh/v1alpha1",
        "kind": "Installation",
        "cluster": { "name": bed.cluster(), "region": bed.region() },
        "deploy": { "values": values },
    });
    // JSON is YAML.
    std::fs::write(&config, format!("{text:#}\n")).map_err(|source| StoryError::Bed {
        doing: format!("write {}", config.display()),
        source: source.into(),
    })?;
    let file = config.display().to_string();
    run_tenon(bed, &["install", "-f", &file, "--yes", "--timeout", "2m"]).await?;
    let deployments: Api<Deployment> = Api::all(bed.client());
    eventually("the operator's Deployment is available", MINUTE, async || {
        let all = deployments.list(&ListParams::default()).await?;
        let operator = all
            .items
            .iter()
            .find(|it| runs_operator(it))
            .ok_or("there is no Deployment of the operator")?;
        let status = operator.status.clone().unwrap_or_default();
        let wanted = operator.spec.replicas.unwrap_or(1);
        let available = status.available_replicas.unwrap_or(0);
        if available == wanted {
            Ok(true)
        } else {
            Err(format!("{available} of {wanted} replicas are available").into())
        }
    })
    .await?;
    step.done();
    Ok(())
}

fn runs_operator(deployment: &Deployment) -> bool {
    let pod = deployment.spec.template.spec.as_ref();
    let images = pod
        .into_iter()
        .flat_map(|pod| &pod.containers)
        .filter_map(|container| container.image.as_deref());
    images.into_iter().any(|image| image.contains("tenon-operator"))
}

pub(super) async fn run_tenon(bed: &Bed, args: &[&str]) -> Result<Finished, StoryError> {
    let finished = bed.run_tenon(args).await.map_err(|source| StoryError::Bed {
        doing: format!("run `tenon {}`", args.join(" ")),
        source: source.into(),
    })?;
    if finished.code == 0 {
        return Ok(finished);
    }
    Err(StoryError::Tenon {
        args: args.join(" "),
        code: finished.code,
        said: tail_of(&finished.stderr, 30),
    })
}

async fn install_chapter(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    scene.before = Some(Inventory::take(scene.bed).await?);
    install(scene.bed, &scene.narrator.progress).await?;
    let running = scene.bed.kubelet().map(crate::kubelet::Kubelet::running).unwrap_or_default();
    for operator in running {
        scene.note(format!(
            "{} runs on {} (process {})",
            operator.pod,
            operator.address,
            operator.pid()
        ));
    }
    note_created(scene).await
}

/// Notes how much more there is than before.
pub(super) async fn note_created(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let after = Inventory::take(scene.bed).await?;
    let made = after.beyond(scene.before.as_ref().expect("an installing chapter takes it"));
    scene.note(format!(
        "{} objects were created, {} of them in AWS",
        made.len(),
        made.iter().filter(|it| it.is_aws()).count()
    ));
    Ok(())
}

/// The role of the nodes, as the installer's own EC2NodeClass names it.
async fn node_role(scene: &Scene<'_>) -> Result<String, StoryError> {
    let classes = objects::node_classes(&scene.client);
    let class = classes
        .get("default")
        .await
        .map_err(kubernetes("read the EC2NodeClass that the installer created"))?;
    let role = class.data["spec"]["role"].as_str().map(str::to_owned);
    role.ok_or_else(|| {
        StoryError::Unexpected(
            "the EC2NodeClass that the installer created names no role".to_owned(),
        )
    })
}

async fn pools_chapter(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let role = node_role(scene).await?;
    let pair = pools::pair(scene.bed.cluster(), &scene.bed.zones(), &role);
    let (classes, pools) =
        (objects::node_classes(&scene.client), objects::node_pools(&scene.client));
    for (api, object) in [(&classes, &pair.node_class), (&pools, &pair.node_pool)] {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let parameters = PatchParams::apply("demo").force();
        api.patch(name, &parameters, &Patch::Apply(object))
            .await
            .map_err(kubernetes("apply the guide's pair"))?;
    }
    for (api, kind) in [(&classes, "EC2NodeClass"), (&pools, "NodePool")] {
        eventually(&format!("the {kind} is Ready"), MINUTE, async || {
            let object = api.get("default").await?;
            if objects::holds(&object, "Ready") {
                Ok(true)
            } else {
                Err(objects::blockers(&object).into())
            }
        })
        .await?;
    }
    let class = classes.get("default").await.map_err(kubernetes("read the EC2NodeClass"))?;
    let n = |key: &str| class.data["status"][key].as_array().map_or(0, Vec::len);
    scene.note(format!(
        "the EC2NodeClass found {}, {} and {}",
        count(n("subnets"), "subnet"),
        count(n("securityGroups"), "security group"),
        count(n("amis"), "image")
    ));
    Ok(())
}

async fn launch(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let (started, at) = (Instant::now(), scene.bed.clock().now());
    cluster::scale(&scene.client, 12).await?;
    eventually("NodeClaims appear", MINUTE, async || {
        Ok(!cluster::claim_names(&scene.client).await?.is_empty())
    })
    .await?;
    scene.note(format!("the first NodeClaim after {:.1} s", started.elapsed().as_secs_f64()));
    eventually("all pods run", 2 * MINUTE, async || cluster::all_ready(&scene.client, MANY).await)
        .await?;
    if let Some(sent) = first_launch(scene.bed, at) {
        scene.note(format!("CreateFleet was sent after {:.1} s", sent.as_secs_f64()));
    }
    scene.note(format!("all {MANY} pods run after {:.1} s", started.elapsed().as_secs_f64()));
    note_nodes(scene).await?;
    Ok(())
}

/// How long after `since` the first machines were asked for. Dry runs don't count.
fn first_launch(bed: &Bed, since: Timestamp) -> Option<SignedDuration> {
    let calls = bed.aws().ok()?.gateway().control().calls().of("ec2:CreateFleet");
    let first = calls.iter().find(|call| !call.dry_run && call.time >= since)?;
    Some(first.time.duration_since(since))
}

async fn note_nodes(scene: &mut Scene<'_>) -> Result<Vec<Launched>, StoryError> {
    let launched = cluster::launched(&scene.client).await.map_err(kubernetes("list the nodes"))?;
    for node in &launched {
        scene.note(node.summary());
    }
    Ok(launched)
}

async fn consolidate(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let before = cluster::launched(&scene.client).await.map_err(kubernetes("list the nodes"))?;
    cluster::scale(&scene.client, 3).await?;
    let old: Vec<&str> = before.iter().map(|node| node.claim.as_str()).collect();
    eventually(
        "a node that is no longer needed is gone, and the pods run",
        2 * MINUTE,
        async || {
            let claims = cluster::claim_names(&scene.client).await?;
            let gone = old.iter().any(|name| !claims.iter().any(|claim| claim == name));
            Ok(gone && cluster::all_ready(&scene.client, FEW).await?)
        },
    )
    .await?;
    settled(scene).await?;
    let after = note_nodes(scene).await?;
    scene.note(format!("{} became {}", count(before.len(), "node"), after.len()));
    Ok(())
}

/// Waits until nothing is on its way: every claim is a node that is ready and stays.
async fn settled(scene: &Scene<'_>) -> Result<(), StoryError> {
    let calm: Mutex<Option<(Instant, Vec<String>)>> = Mutex::new(None);
    eventually("the nodes settle", 2 * MINUTE, async || {
        let claims = objects::node_claims(&scene.client).list(&ListParams::default()).await?.items;
        let moves = |it: &&DynamicObject| {
            !objects::holds(it, "Initialized") || it.metadata.deletion_timestamp.is_some()
        };
        if let Some(claim) = claims.iter().find(moves) {
            *calm.lock() = None;
            return Err(format!(
                "{} is on its way: {}",
                claim.name_any(),
                objects::blockers(claim)
            )
            .into());
        }
        cluster::all_ready(&scene.client, FEW).await?;
        let names: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
        let mut calm = calm.lock();
        match &*calm {
            Some((since, same)) if *same == names => Ok(since.elapsed() >= Duration::from_secs(5)),
            _ => {
                *calm = Some((Instant::now(), names));
                Ok(false)
            }
        }
    })
    .await?;
    Ok(())
}

async fn interrupt(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let nodes = cluster::launched(&scene.client).await.map_err(kubernetes("list the nodes"))?;
    let spot = nodes.iter().find(|node| node.capacity_type == "spot" && node.pods > 0);
    let node = spot.ok_or_else(|| {
        let all: Vec<String> = nodes.iter().map(Launched::summary).collect();
        StoryError::Unexpected(format!("no spot node runs pods: {}", all.join("; ")))
    })?;
    let started = Instant::now();
    scene.bed.interrupt(&node.instance).await.map_err(|source| StoryError::Bed {
        doing: format!("interrupt instance {}", node.instance),
        source: source.into(),
    })?;
    scene.note(format!("AWS takes back {} ({})", node.instance, node.summary()));
    eventually("the interrupted node's pods run elsewhere", 2 * MINUTE, async || {
        let pods = cluster::pods(&scene.client).await?;
        let on_it = |pod: &&k8s_openapi::api::core::v1::Pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node.name.as_str())
        };
        let left = pods.iter().filter(on_it).count();
        if left > 0 {
            Err(format!("{left} pods are still on it").into())
        } else {
            cluster::all_ready(&scene.client, FEW).await
        }
    })
    .await?;
    scene.note(format!(
        "its {} elsewhere after {:.1} s",
        if node.pods == 1 { "pod runs".to_owned() } else { format!("{} pods run", node.pods) },
        started.elapsed().as_secs_f64()
    ));
    eventually("the interrupted node is gone", MINUTE, || claim_gone(scene, &node.claim)).await?;
    settled(scene).await?;
    note_nodes(scene).await?;
    Ok(())
}

async fn claim_gone(scene: &Scene<'_>, name: &str) -> Polled {
    Ok(objects::node_claims(&scene.client).get_opt(name).await?.is_none())
}

async fn drift(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let old =
        cluster::claim_names(&scene.client).await.map_err(kubernetes("list the NodeClaims"))?;
    let classes = objects::node_classes(&scene.client);
    cluster::merge(
        &classes,
        "default",
        &json!({ "spec": { "tags": { "Environment": "drifted" } } }),
    )
    .await?;
    eventually("every old node is replaced, and the pods run", 3 * MINUTE, async || {
        let names = cluster::claim_names(&scene.client).await?;
        let left = names.iter().filter(|name| old.contains(name)).count();
        if left > 0 {
            Err(format!("{left} of {} old NodeClaims are left", old.len()).into())
        } else {
            cluster::all_ready(&scene.client, FEW).await
        }
    })
    .await?;
    note_nodes(scene).await?;
    Ok(())
}

async fn uninstall(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    // The workload goes with its nodes: nothing else in this cluster could hold it.
    let uninstall = ["uninstall", "--yes", "--force-capacity", "--timeout", "5m"];
    let finished = run_tenon(scene.bed, &uninstall).await?;
    if let Some(last) = finished.stderr.lines().rev().find(|line| !line.trim().is_empty()) {
        scene.note(last.trim().to_owned());
    }
    cluster::remove_workload(&scene.client).await?;
    as_before(scene).await
}

/// There is what there was before Tenon came, no more and no less.
pub(super) async fn as_before(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let before = scene.before.take().unwrap_or_default();
    eventually("nothing of Tenon is left", MINUTE, async || {
        let left = Inventory::take(scene.bed).await?.beyond(&before);
        if left.is_empty() {
            return Ok(true);
        }
        let names: Vec<String> = left.iter().map(ToString::to_string).collect();
        Err(format!("{} are left: {}", left.len(), names.join(", ")).into())
    })
    .await?;
    let missing = before.beyond(&Inventory::take(scene.bed).await?);
    if !missing.is_empty() {
        let names: Vec<Value> = missing.iter().map(|it| it.to_string().into()).collect();
        return Err(StoryError::Unexpected(format!(
            "it removed objects of others: {}",
            Value::from(names)
        )));
    }
    scene.note("no instance, role, profile, queue, rule, launch template, tag, access entry or Kubernetes object is left");
    Ok(())
}
