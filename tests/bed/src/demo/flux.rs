//! The story of Flux: `tenon` makes the AWS resources, and everything in the cluster comes from a
//! git repository with what `tenon export flux` wrote.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::chapters::run_tenon;
use super::gitops::{
    self, CLUSTER, Delivery, FOLDER, MINUTE, OPERATOR, POOL, READY, applied, aws, delivery,
    in_order, pool_file, settings, unchanged,
};
use super::inventory::Inventory;
use super::{Chapter, Scene, StoryError, bed, user};
use crate::failure::Failure;
use crate::flux::{self, Flux, ROOT};
use crate::objects;
use crate::wait::eventually;
use crate::words::count;

pub(super) const START: Chapter = Chapter {
    title: "Flux",
    shows: "Flux starts with an empty repository on a git server, and Tenon's charts are in a registry.",
    tell: |scene| Box::pin(start(scene)),
};

const OWNER: Chapter = Chapter {
    title: "One owner",
    shows: "`tenon install`, `upgrade`, `rollback` and `uninstall` change nothing, and say what to change in git.",
    tell: |scene| Box::pin(owner(scene)),
};

const REMOVE: Chapter = Chapter {
    title: "Remove",
    shows: "The files leave the repository; then the NodePools go, the operator, and with `tenon uninstall --aws-only` the AWS resources. Nothing is left.",
    tell: |scene| Box::pin(remove(scene)),
};

pub(super) const CHAPTERS: &[Chapter] = &[
    START,
    Chapter {
        title: "AWS",
        shows: "`tenon install` with `deploy.operator: skip` creates roles, queue, rules and access entry, and nothing in the cluster but its record.",
        tell: |scene| Box::pin(aws(scene)),
    },
    Chapter {
        title: "Push",
        shows: "The files of `tenon export flux` are pushed. Flux installs CRDs, operator and NodePool, in this order.",
        tell: |scene| Box::pin(push(scene)),
    },
    Chapter {
        title: "Nodes",
        shows: "Pods get nodes, and Flux finds nothing to change when it reconciles again.",
        tell: |scene| Box::pin(nodes(scene)),
    },
    Chapter {
        title: "Change",
        shows: "A label is added to the NodePool in git. Tenon replaces the drifted nodes one at a time, as the budget says.",
        tell: |scene| Box::pin(change(scene)),
    },
    Chapter {
        title: "Freeze",
        shows: "`tenon freeze` holds although Flux reconciles; `tenon unfreeze` returns to what git says.",
        tell: |scene| Box::pin(freeze(scene)),
    },
    OWNER,
    REMOVE,
];

/// Tenon is there before its files are in git.
pub(super) const TAKE_OVER: &[Chapter] = &[
    START,
    Chapter {
        title: "Install",
        shows: "`tenon install` installs everything, and pods get nodes.",
        tell: |scene| Box::pin(gitops::install(scene)),
    },
    Chapter {
        title: "Take over",
        shows: "The files of `tenon export flux` are pushed. Flux takes over what is there, and no node is replaced.",
        tell: |scene| Box::pin(take_over(scene)),
    },
    OWNER,
    REMOVE,
];

/// In the order in which they depend on each other.
const KUSTOMIZATIONS: [&str; 3] = ["tenon-crds", "tenon", "tenon-nodepools"];
const RELEASES: [&str; 2] = ["tenon-crds", "tenon"];

async fn start(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let delivery = Delivery::start(scene.bed).await?;
    let started = Instant::now();
    let flux = Flux::start(scene.bed, &delivery.certificate, &scene.narrator.progress).await;
    let flux = flux.map_err(bed("start Flux"))?;
    flux.bootstrap(scene.bed, &delivery.url, CLUSTER).await.map_err(bed("bootstrap Flux"))?;
    let roots = flux::kustomizations(&scene.client);
    eventually("Flux has applied the repository", MINUTE, async || {
        let root = roots.get(ROOT).await?;
        if objects::holds(&root, "Ready") { Ok(true) } else { Err(objects::blockers(&root).into()) }
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("Flux runs, and has applied an empty folder, after {seconds:.1} s"));
    scene.flux = Some(flux);
    scene.delivery = Some(delivery);
    scene.before = Some(Inventory::take(scene.bed).await?);
    Ok(())
}

/// Lets Flux fetch the repository and reconcile all of it now, as its webhooks do.
async fn reconcile(scene: &Scene<'_>, at: &str) -> Result<(), kube::Error> {
    flux::reconcile(&flux::repositories(&scene.client), ROOT, at).await?;
    let kustomizations = flux::kustomizations(&scene.client);
    for kustomization in kustomizations.list(&ListParams::default()).await?.items {
        flux::reconcile(&kustomizations, &kustomization.name_any(), at).await?;
    }
    let releases = flux::releases(&scene.client, OPERATOR);
    for release in releases.list(&ListParams::default()).await?.items {
        flux::reconcile(&releases, &release.name_any(), at).await?;
    }
    Ok(())
}

/// Waits until Flux has done what [`reconcile`] asked for.
async fn reconciled(scene: &Scene<'_>, at: &str) -> Result<(), StoryError> {
    let (kustomizations, releases) =
        (flux::kustomizations(&scene.client), flux::releases(&scene.client, OPERATOR));
    eventually("Flux has reconciled everything", READY, async || {
        let mut all = kustomizations.list(&ListParams::default()).await?.items;
        all.extend(releases.list(&ListParams::default()).await?.items);
        let waiting = all.iter().find(|object| {
            object.data["status"]["lastHandledReconcileAt"] != at
                || !objects::holds(object, "Ready")
        });
        match waiting {
            None => Ok(true),
            Some(object) => {
                Err(format!("{}: {}", object.name_any(), objects::blockers(object)).into())
            }
        }
    })
    .await?;
    Ok(())
}

/// Lets Flux fetch and apply this commit, once more if it has, and waits until it has.
pub(super) async fn compare(scene: &Scene<'_>, commit: &str) -> Result<(), StoryError> {
    let roots = flux::kustomizations(&scene.client);
    let root = roots.get(ROOT).await.map_err(bed("read the Kustomization"))?;
    // Another request than the last one, also for the same commit.
    let at = format!("{commit} at {}", root.resource_version().unwrap_or_default());
    reconcile(scene, &at).await.map_err(bed("notify Flux"))?;
    eventually("Flux has fetched the commit", READY, async || {
        let root = roots.get(ROOT).await?;
        let applied = root.data["status"]["lastAppliedRevision"].as_str().unwrap_or_default();
        if applied.ends_with(commit) { Ok(true) } else { Err(objects::blockers(&root).into()) }
    })
    .await?;
    reconciled(scene, &at).await
}

async fn push(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    push_files(scene).await?;
    in_order(scene).await?;
    user(scene).ready("NodePool", POOL).await?;
    Ok(())
}

/// Flux finds the Helm releases and the objects that `tenon install` has made.
async fn take_over(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let before = gitops::claims(scene).await?;
    let file = gitops::write_settings(scene, &json!({ "operator": "skip" }))?;
    push_files(scene).await?;
    run_tenon(scene.bed, &["install", "-f", &file, "--yes"]).await?;
    reconcile(scene, "once more").await.map_err(bed("notify Flux"))?;
    reconciled(scene, "once more").await?;
    user(scene).ready("NodePool", POOL).await?;
    gitops::stayed(scene, &before).await
}

/// Exports the files, pushes them, and waits until Flux has applied them.
async fn push_files(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let Delivery { charts, copy, .. } = delivery(scene);
    let out = copy.dir().join(FOLDER).display().to_string();
    let export = ["export", "flux", "-f", &settings(scene), "--charts", charts];
    let to = ["--path", FOLDER, "--out", &out];
    run_tenon(scene.bed, &[export.as_slice(), &to].concat()).await?;
    copy.push("Tenon").await.map_err(bed("push"))?;
    let started = Instant::now();
    reconcile(scene, "push").await.map_err(bed("notify Flux"))?;
    let kustomizations = flux::kustomizations(&scene.client);
    let ready = Mutex::new(BTreeMap::new());
    eventually("all Kustomizations are ready", READY, async || {
        let mut waits = Vec::new();
        for name in KUSTOMIZATIONS {
            match kustomizations.get_opt(name).await? {
                Some(one) if objects::holds(&one, "Ready") => {
                    ready.lock().entry(name).or_insert_with(|| started.elapsed());
                }
                Some(one) => waits.push(format!("{name}: {}", objects::blockers(&one))),
                None => waits.push(format!("{name} does not exist")),
            }
        }
        if waits.is_empty() { Ok(true) } else { Err(waits.join("; ").into()) }
    })
    .await?;
    let ready = ready.into_inner();
    for (name, after) in KUSTOMIZATIONS.iter().filter_map(|name| ready.get_key_value(name)) {
        scene.note(format!("Kustomization {name} is ready after {:.1} s", after.as_secs_f64()));
    }
    Ok(())
}

/// What Flux would change if it found a difference: by name, the generations of what it applied,
/// and how often it installed the charts.
async fn generations(scene: &Scene<'_>) -> Result<BTreeMap<String, i64>, Failure> {
    let mut all = applied(scene).await?;
    for release in flux::releases(&scene.client, OPERATOR).list(&ListParams::default()).await?.items
    {
        let newest = release.data["status"]["history"][0]["version"].as_i64();
        all.insert(format!("revision of {}", release.name_any()), newest.unwrap_or(0));
    }
    Ok(all)
}

async fn nodes(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    gitops::nodes(scene).await?;
    let before = generations(scene).await.map_err(bed("read what Flux applied"))?;
    for at in ["again", "and again"] {
        reconcile(scene, at).await.map_err(bed("notify Flux"))?;
        reconciled(scene, at).await?;
    }
    let after = generations(scene).await.map_err(bed("read what Flux applied"))?;
    unchanged(&before, &after)?;
    let names: Vec<&str> = after.keys().map(String::as_str).collect();
    scene.note(format!("unchanged: {}", names.join(", ")));
    Ok(())
}

/// Pushes another NodePool, and notifies Flux.
async fn push_pool(scene: &Scene<'_>, pool: &Value, message: &str) -> Result<(), StoryError> {
    gitops::push_pool(scene, pool, message).await?;
    reconcile(scene, message).await.map_err(bed("notify Flux"))
}

async fn change(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let pool = gitops::labelled(pool_file(scene)?);
    let drift = gitops::Drift::begin(scene).await?;
    push_pool(scene, &pool, "label the nodes").await?;
    drift.end(scene).await
}

async fn freeze(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let before = gitops::pool(scene).await?;
    let file = settings(scene);
    let frozen = gitops::freeze(scene).await?;
    reconcile(scene, "frozen").await.map_err(bed("notify Flux"))?;
    reconciled(scene, "frozen").await?;
    if gitops::pool(scene).await? != frozen {
        return Err(StoryError::Unexpected("Flux ended the freeze".to_owned()));
    }
    run_tenon(scene.bed, &["unfreeze", "-f", &file]).await?;
    reconcile(scene, "thawed").await.map_err(bed("notify Flux"))?;
    reconciled(scene, "thawed").await?;
    if gitops::pool(scene).await? != before {
        return Err(StoryError::Unexpected("the NodePool is not as before".to_owned()));
    }
    // Flux is in charge again.
    push_pool(scene, &gitops::limited(pool_file(scene)?), "limit the NodePool").await?;
    gitops::has_limit(scene).await
}

async fn owner(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let before = generations(scene).await.map_err(bed("read what Flux applied"))?;
    let version = "spec.chart.spec.version";
    let changes = [
        ("install", "HelmRelease kube-system/tenon"),
        ("upgrade", version),
        ("rollback", version),
        ("uninstall", "Flux"),
    ];
    gitops::one_owner(scene, "Flux", &changes).await?;
    let after = generations(scene).await.map_err(bed("read what Flux applied"))?;
    unchanged(&before, &after)
}

async fn remove(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    gitops::remove_files(scene).await?;
    reconcile(scene, "removed").await.map_err(bed("notify Flux"))?;
    let kustomizations = flux::kustomizations(&scene.client);
    eventually("Flux has removed the Kustomizations", MINUTE, async || {
        let left = kustomizations.list(&ListParams::default()).await?.items.len();
        if left == 1 { Ok(true) } else { Err(count(left - 1, "Kustomization").into()) }
    })
    .await?;
    gitops::delete_nodes(scene).await?;
    let releases = flux::releases(&scene.client, OPERATOR);
    for release in RELEASES.iter().rev() {
        releases
            .delete(release, &DeleteParams::default())
            .await
            .map_err(bed("delete a release"))?;
        eventually("Flux has uninstalled it", MINUTE, async || {
            Ok(releases.get_opt(release).await?.is_none())
        })
        .await?;
    }
    gitops::nothing_is_left(scene, &["helmrepository/tenon"]).await?;
    scene.flux.take().expect("it is there").stop().await;
    scene.delivery.take().expect("it is there").stop().await;
    Ok(())
}
