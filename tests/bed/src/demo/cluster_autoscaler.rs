//! The story of Cluster Autoscaler: `tenon migrate cas` moves its groups to NodePools, pod by pod
//! and within the PodDisruptionBudgets, and `--abort` moves them back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::{DeleteParams, ListParams};
use serde_json::Value;
use tokio::time::Instant;

use super::chapters::{INSTALL, run_tenon};
use super::{Chapter, Scene, StoryError, bed, user};
use crate::cluster_autoscaler::{Groups, LABELS, MANAGED, NAME, OWN, SMALL};
use crate::wait::eventually;
use crate::words::count;

pub(super) const CHAPTERS: &[Chapter] = &[
    INSTALL,
    Chapter {
        title: "Cluster Autoscaler",
        shows: "It scales a managed node group and a self-managed Auto Scaling group, on whose nodes pods run. A PodDisruptionBudget allows one pod of the first group to be missing.",
        tell: |scene| Box::pin(start(scene)),
    },
    Chapter {
        title: "Plan",
        shows: "`tenon migrate cas --dry-run` proposes NodePools, proves that every pod fits, and compares the prices.",
        tell: |scene| Box::pin(plan(scene)),
    },
    Chapter {
        title: "Move",
        shows: "`tenon migrate cas` stops Cluster Autoscaler, drains the groups' nodes one by one, and terminates them. Pods that are missing are counted four times a second.",
        tell: |scene| Box::pin(migrate(scene)),
    },
    Chapter {
        title: "And back",
        shows: "`tenon migrate cas --abort` restores the sizes of the groups and starts Cluster Autoscaler. Without the NodePools, the pods return.",
        tell: |scene| Box::pin(back(scene)),
    },
];

const MINUTE: Duration = Duration::from_mins(1);

fn groups<'a>(scene: &'a Scene<'_>) -> &'a Groups<'a> {
    scene.groups.as_ref().expect("an earlier chapter starts Cluster Autoscaler")
}

/// Runs `tenon migrate cas`.
async fn tenon(scene: &Scene<'_>, args: &[&str]) -> Result<Value, StoryError> {
    let target = ["--cluster", scene.bed.cluster(), "--region", scene.bed.region()];
    let args = [&["migrate", "cas", "-o", "json"], args, &target].concat();
    let finished = run_tenon(scene.bed, &args).await?;
    serde_json::from_str(&finished.stdout).map_err(bed("read the report"))
}

/// Notes the sizes of both groups.
async fn note_sizes(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    for group in [MANAGED, OWN] {
        let size = groups(scene).size(group).await.map_err(bed("describe the groups"))?;
        scene.note(format!("group {group}: {}", count_of(size.desired, "node")));
    }
    Ok(())
}

fn count_of(n: i32, noun: &str) -> String {
    count(usize::try_from(n).unwrap_or_default(), noun)
}

async fn start(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let groups = Groups::start(scene.bed, &user, &SMALL).await;
    scene.groups = Some(groups.map_err(bed("start Cluster Autoscaler"))?);
    scene.note(format!("{} run", count(SMALL.pods(), "pod")));
    note_sizes(scene).await
}

async fn plan(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let plan = tenon(scene, &["--dry-run"]).await?;
    let simulation = &plan["simulation"];
    let totals = &simulation["totals"];
    for (when, nodes, price) in [
        ("before", "nodesBefore", "pricePerHourBefore"),
        ("afterwards", "nodesAfter", "pricePerHourAfter"),
    ] {
        let nodes = totals[nodes].as_u64().and_then(|n| usize::try_from(n).ok());
        let price = totals[price].as_f64();
        let (Some(nodes), Some(price)) = (nodes, price) else {
            return Err(StoryError::Unexpected(format!("no figures in {totals}")));
        };
        scene.note(format!("{when}: {} for ${price:.3} per hour", count(nodes, "node")));
    }
    let pending = simulation["unschedulable"].as_array().into_iter().flatten();
    let pending: Vec<&str> = pending.filter_map(|pod| pod["name"].as_str()).collect();
    scene.note(format!("no place for: {}", pending.join(", ")));
    if pending.iter().any(|pod| !pod.contains(NAME)) {
        return Err(StoryError::Unexpected("the workloads have no place".to_owned()));
    }
    Ok(())
}

async fn migrate(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let started = Instant::now();
    let has_ended = AtomicBool::new(false);
    let (groups, scene_) = (groups(scene), &*scene);
    let moved = async {
        let moved = tenon(scene_, &["--yes"]).await;
        let all_run = groups.all_run().await;
        has_ended.store(true, Ordering::Relaxed);
        moved?;
        Ok::<_, StoryError>(all_run?)
    };
    let (moved, most) = tokio::join!(moved, groups.most_missing(&has_ended));
    moved?;
    let most = most.map_err(bed("list the pods"))?;
    let (too_many, replicas) = (groups.too_many(&most), groups.replicas().await);
    let seconds = started.elapsed().as_secs_f64();
    scene
        .note(format!("moved after {seconds:.1} s; at most {most:?} pods of a Deployment missing"));
    if !too_many.is_empty() {
        return Err(StoryError::Unexpected(too_many.join("; ")));
    }
    if replicas.map_err(bed("read the Deployment"))?.0 != 0 {
        return Err(StoryError::Unexpected("Cluster Autoscaler runs".to_owned()));
    }
    for (group, label) in [MANAGED, OWN].into_iter().zip(LABELS) {
        let left = self::groups(scene).nodes(label).await.map_err(bed("list the nodes"))?;
        if !left.is_empty() {
            return Err(StoryError::Unexpected(format!("{group} has {left:?}")));
        }
        let launched = user(scene).nodes(group).await.map_err(bed("list the nodes"))?;
        scene.note(format!("NodePool {group}: {}", count(launched.len(), "node")));
    }
    note_sizes(scene).await
}

async fn back(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let started = Instant::now();
    let back = tenon(scene, &["--abort", "--yes"]).await?;
    let steps = back["actions"].as_array().into_iter().flatten();
    if let Some(step) = steps.into_iter().find(|step| step["id"] == "uncordon") {
        let text = format!("nodes without instances were uncordoned: {}", step["resource"]);
        return Err(StoryError::Unexpected(text));
    }
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("the groups have their sizes again after {seconds:.1} s"));
    let (pools, claims) = (user(scene).objects("NodePool"), user(scene).objects("NodeClaim"));
    for pool in [MANAGED, OWN] {
        let delete = pools.delete(pool, &DeleteParams::foreground()).await;
        delete.map_err(bed("delete a NodePool"))?;
    }
    eventually("the nodes of the NodePools are gone", 2 * MINUTE, async || {
        let left = claims.list(&ListParams::default()).await?.items.len();
        if left == 0 { Ok(true) } else { Err(format!("{} left", count(left, "node")).into()) }
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("the nodes of the NodePools are gone after {seconds:.1} s"));
    for (label, nodes) in LABELS.into_iter().zip(SMALL.nodes) {
        groups(scene).has_nodes(label, nodes).await?;
    }
    groups(scene).all_run().await?;
    let (wanted, _) = groups(scene).replicas().await.map_err(bed("read the Deployment"))?;
    if wanted != 1 {
        return Err(StoryError::Unexpected("Cluster Autoscaler does not run".to_owned()));
    }
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("the pods run on nodes of the groups after {seconds:.1} s"));
    note_sizes(scene).await
}
