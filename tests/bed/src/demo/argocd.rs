//! The story of Argo CD: `tenon` makes the AWS resources, and everything in the cluster comes from
//! a git repository with what `tenon export argocd` wrote.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::chapters::run_tenon;
use super::gitops::{
    self, Delivery, FOLDER, MINUTE, POOL, READY, applied, aws, delivery, in_order, pool_file,
    settings, unchanged,
};
use super::inventory::Inventory;
use super::{Chapter, Scene, StoryError, bed, user};
use crate::argocd::{self, ArgoCd, NAMESPACE};
use crate::failure::Failure;
use crate::guide;
use crate::kubectl::kubectl;
use crate::wait::{NotYet, eventually};

pub(super) const START: Chapter = Chapter {
    title: "Argo CD",
    shows: "Argo CD starts with an Application for an empty folder of a git server, and Tenon's charts are in a registry.",
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
        shows: "The files of `tenon export argocd` are pushed. Argo CD installs CRDs, operator and NodePool, until all Applications are synced and healthy.",
        tell: |scene| Box::pin(push(scene)),
    },
    Chapter {
        title: "Nodes",
        shows: "Pods get nodes, and Argo CD finds nothing to change when it compares again.",
        tell: |scene| Box::pin(nodes(scene)),
    },
    Chapter {
        title: "Change",
        shows: "A label is added to the NodePool in git. Tenon replaces the drifted nodes one at a time, as the budget says.",
        tell: |scene| Box::pin(change(scene)),
    },
    Chapter {
        title: "Freeze",
        shows: "Argo CD ends a `tenon freeze`, except while the Application of the NodePools is not reconciled; `tenon unfreeze` returns to what git says.",
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
        shows: "The files of `tenon export argocd` are pushed. Argo CD takes over what is there, and no node is replaced.",
        tell: |scene| Box::pin(take_over(scene)),
    },
    OWNER,
    REMOVE,
];

const GUIDE: &str = include_str!("../../../../docs/src/guides/gitops.md");
/// The Application that a platform team has: it applies the others.
const ROOT: &str = "platform";
/// The file of the guide with the health check of Applications.
const PATCH: &str = "argocd-cm.yaml";
/// In the order in which they are needed.
const APPLICATIONS: [&str; 3] = ["tenon-crds", "tenon", "tenon-nodepools"];
const NODE_POOLS: &str = "tenon-nodepools";

async fn start(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let delivery = Delivery::start(scene.bed).await?;
    delivery.copy.write(&format!("{FOLDER}/README.md"), "").map_err(bed("write a file"))?;
    delivery.copy.push("a place for Tenon").await.map_err(bed("push"))?;
    let started = Instant::now();
    let argocd = ArgoCd::start(scene.bed, &delivery.certificate, &scene.narrator.progress).await;
    scene.argocd = Some(argocd.map_err(bed("start Argo CD"))?);
    let patch = scene.bed.dir().join(PATCH).display().to_string();
    std::fs::write(&patch, guide::file(GUIDE, PATCH)).map_err(bed("write the health check"))?;
    let target = ["patch", "configmap", "argocd-cm", "--namespace", NAMESPACE];
    let how = ["--type", "merge", "--patch-file", &patch];
    let patched = kubectl(scene.bed, &[target.as_slice(), &how].concat()).await;
    patched.map_err(bed("add the health check"))?;
    let root = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": { "name": ROOT, "namespace": NAMESPACE },
        "spec": {
            "project": "default",
            "destination": { "server": "https://kubernetes.default.svc", "namespace": NAMESPACE },
            "source": { "repoURL": delivery.url, "path": FOLDER, "targetRevision": "HEAD" },
            "syncPolicy": {
                "automated": { "prune": true, "selfHeal": true, "allowEmpty": true },
                "syncOptions": ["ServerSideApply=true"],
            },
        },
    });
    let api = argocd::applications(&scene.client);
    let parameters = PatchParams::apply("user");
    api.patch(ROOT, &parameters, &Patch::Apply(root)).await.map_err(bed("create it"))?;
    scene.delivery = Some(delivery);
    settled(scene, &[ROOT]).await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("Argo CD runs, and has synced an empty folder, after {seconds:.1} s"));
    scene.before = Some(Inventory::take(scene.bed).await?);
    Ok(())
}

/// Why an Application is not done; `None` if it is synced and healthy.
fn waits(application: &DynamicObject) -> Option<String> {
    let status = &application.data["status"];
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let (sync, health) = (text(&status["sync"]["status"]), text(&status["health"]["status"]));
    let refreshing = application.annotations().contains_key(argocd::REFRESH);
    if sync == "Synced" && health == "Healthy" && !refreshing {
        return None;
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let messages =
        conditions.map(|it| &it["message"]).chain([&status["operationState"]["message"]]);
    let why: Vec<&str> = messages.filter_map(Value::as_str).collect();
    Some(format!("{}: {sync}, {health}: {}", application.name_any(), why.join("; ")))
}

/// Waits until these Applications have been compared, and are synced and healthy; answers how long
/// each took.
async fn settled(
    scene: &Scene<'_>,
    names: &[&'static str],
) -> Result<BTreeMap<&'static str, f64>, NotYet> {
    let api = argocd::applications(&scene.client);
    let started = Instant::now();
    let ready = Mutex::new(BTreeMap::new());
    eventually("all Applications are synced and healthy", READY, async || {
        let mut all = Vec::new();
        for name in names {
            match api.get_opt(name).await?.map(|it| waits(&it)) {
                None => all.push(format!("{name} does not exist")),
                Some(Some(why)) => all.push(why),
                Some(None) => {
                    ready.lock().entry(*name).or_insert_with(|| started.elapsed().as_secs_f64());
                }
            }
        }
        if all.is_empty() { Ok(true) } else { Err(all.join("; ").into()) }
    })
    .await?;
    Ok(ready.into_inner())
}

/// Lets Argo CD compare all Applications that there are with git now.
async fn refresh(scene: &Scene<'_>) -> Result<(), kube::Error> {
    let api = argocd::applications(&scene.client);
    for application in api.list(&ListParams::default()).await?.items {
        argocd::refresh(&api, &application.name_any()).await?;
    }
    Ok(())
}

/// Lets Argo CD compare what the repository's root holds, and waits until it is as in git.
pub(super) async fn compare(scene: &Scene<'_>) -> Result<(), StoryError> {
    refresh(scene).await.map_err(bed("notify Argo CD"))?;
    settled(scene, &[ROOT]).await?;
    Ok(())
}

async fn push(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    push_files(scene).await?;
    in_order(scene).await?;
    user(scene).ready("NodePool", POOL).await?;
    Ok(())
}

/// Argo CD finds the objects that `tenon install` has made.
async fn take_over(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let before = gitops::claims(scene).await?;
    let file = gitops::write_settings(scene, &json!({ "operator": "skip" }))?;
    push_files(scene).await?;
    run_tenon(scene.bed, &["install", "-f", &file, "--yes"]).await?;
    refresh(scene).await.map_err(bed("notify Argo CD"))?;
    settled(scene, &APPLICATIONS).await?;
    user(scene).ready("NodePool", POOL).await?;
    run_from_guide(scene, "kubectl delete secrets").await?;
    gitops::stayed(scene, &before).await
}

/// Runs the command of the guide that begins like this.
async fn run_from_guide(scene: &Scene<'_>, beginning: &str) -> Result<(), StoryError> {
    let command = GUIDE.lines().map(str::trim).find(|line| line.starts_with(beginning));
    let command = command.expect("the guide has the command");
    let args: Vec<&str> = command.split(' ').skip(1).collect();
    kubectl(scene.bed, &args).await.map_err(bed(&format!("run `{command}`")))
}

/// Exports the files, pushes them, and waits until Argo CD has applied them.
async fn push_files(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let Delivery { charts, copy, url, .. } = delivery(scene);
    let out = copy.dir().join(FOLDER).display().to_string();
    let export = ["export", "argocd", "-f", &settings(scene), "--charts", charts];
    let to = ["--repository", url, "--path", FOLDER, "--out", &out];
    run_tenon(scene.bed, &[export.as_slice(), &to].concat()).await?;
    copy.push("Tenon").await.map_err(bed("push"))?;
    refresh(scene).await.map_err(bed("notify Argo CD"))?;
    let ready = settled(scene, &APPLICATIONS).await?;
    for name in APPLICATIONS {
        scene.note(format!("Application {name} is synced and healthy after {:.1} s", ready[name]));
    }
    Ok(())
}

/// What Argo CD would change if it found a difference: by name, the generations of what it applied,
/// and how often it synced each Application.
async fn generations(scene: &Scene<'_>) -> Result<BTreeMap<String, i64>, Failure> {
    let mut all = applied(scene).await?;
    for application in argocd::applications(&scene.client).list(&ListParams::default()).await?.items
    {
        let history = application.data["status"]["history"].as_array();
        let newest = history.and_then(|all| all.last()).and_then(|it| it["id"].as_i64());
        all.insert(format!("syncs of {}", application.name_any()), newest.unwrap_or(-1) + 1);
    }
    Ok(all)
}

async fn nodes(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    gitops::nodes(scene).await?;
    let before = generations(scene).await.map_err(bed("read what Argo CD applied"))?;
    for _ in 0..2 {
        refresh(scene).await.map_err(bed("notify Argo CD"))?;
        settled(scene, &APPLICATIONS).await?;
    }
    let after = generations(scene).await.map_err(bed("read what Argo CD applied"))?;
    unchanged(&before, &after)?;
    let names: Vec<&str> = after.keys().map(String::as_str).collect();
    scene.note(format!("unchanged: {}", names.join(", ")));
    Ok(())
}

/// Pushes another NodePool, and notifies Argo CD.
async fn push_pool(scene: &Scene<'_>, pool: &Value, message: &str) -> Result<(), StoryError> {
    gitops::push_pool(scene, pool, message).await?;
    refresh(scene).await.map_err(bed("notify Argo CD"))
}

async fn change(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let pool = gitops::labelled(pool_file(scene)?);
    let drift = gitops::Drift::begin(scene).await?;
    push_pool(scene, &pool, "label the nodes").await?;
    drift.end(scene).await
}

/// Sets or removes the annotation that keeps Argo CD from an Application.
async fn skip(scene: &Scene<'_>, name: &str, value: Value) -> Result<(), StoryError> {
    let marked = json!({ "metadata": { "annotations": { argocd::SKIP: value } } });
    let api = argocd::applications(&scene.client);
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(marked)).await;
    patched.map_err(bed("annotate an Application"))?;
    Ok(())
}

async fn freeze(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let before = gitops::pool(scene).await?;
    let file = settings(scene);
    let unfreeze = ["unfreeze", "-f", &file];
    let is_as_before = async || Ok(gitops::pool(scene).await? == before);
    gitops::freeze(scene).await?;
    eventually("Argo CD ends a freeze that it may end", MINUTE, is_as_before).await?;
    run_tenon(scene.bed, &unfreeze).await?;
    settled(scene, &APPLICATIONS).await?;

    skip(scene, NODE_POOLS, "true".into()).await?;
    let frozen = gitops::freeze(scene).await?;
    refresh(scene).await.map_err(bed("notify Argo CD"))?;
    settled(scene, &[ROOT, "tenon"]).await?;
    let skipped = argocd::applications(&scene.client).get(NODE_POOLS).await;
    let skipped = skipped.map_err(bed("read an Application"))?;
    if !skipped.annotations().contains_key(argocd::REFRESH) {
        return Err(StoryError::Unexpected("Argo CD did not skip the NodePools".to_owned()));
    }
    if gitops::pool(scene).await? != frozen {
        return Err(StoryError::Unexpected("Argo CD ended the freeze".to_owned()));
    }
    run_tenon(scene.bed, &unfreeze).await?;
    skip(scene, NODE_POOLS, Value::Null).await?;
    refresh(scene).await.map_err(bed("notify Argo CD"))?;
    settled(scene, &APPLICATIONS).await?;
    if gitops::pool(scene).await? != before {
        return Err(StoryError::Unexpected("the NodePool is not as before".to_owned()));
    }
    // Argo CD is in charge again.
    push_pool(scene, &gitops::limited(pool_file(scene)?), "limit the NodePool").await?;
    gitops::has_limit(scene).await
}

async fn owner(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let before = generations(scene).await.map_err(bed("read what Argo CD applied"))?;
    let version = "spec.source.targetRevision of Application tenon";
    let changes = [
        ("install", "spec.source.helm of Application tenon"),
        ("upgrade", version),
        ("rollback", version),
        ("uninstall", "Argo CD"),
    ];
    gitops::one_owner(scene, "Argo CD", &changes).await?;
    let after = generations(scene).await.map_err(bed("read what Argo CD applied"))?;
    unchanged(&before, &after)
}

async fn remove(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    gitops::remove_files(scene).await?;
    refresh(scene).await.map_err(bed("notify Argo CD"))?;
    let api = argocd::applications(&scene.client);
    eventually("Argo CD has seen that the folder is gone", MINUTE, async || {
        let root = api.get(ROOT).await?;
        Ok(!root.annotations().contains_key(argocd::REFRESH))
    })
    .await?;
    let delete = async |name: &str| {
        let deleted = api.delete(name, &DeleteParams::default()).await;
        deleted.map_err(bed(&format!("delete Application {name}")))?;
        let gone = async || Ok(api.get_opt(name).await?.is_none());
        eventually(&format!("Application {name} is gone"), MINUTE, gone).await?;
        Ok::<_, StoryError>(())
    };
    delete(NODE_POOLS).await?;
    gitops::delete_nodes(scene).await?;
    for name in ["tenon", "tenon-crds"] {
        let cascade =
            json!({ "metadata": { "finalizers": ["resources-finalizer.argocd.argoproj.io"] } });
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(cascade)).await;
        patched.map_err(bed("set the finalizer"))?;
        delete(name).await?;
    }
    // Argo CD never deletes CRDs.
    run_from_guide(scene, "kubectl delete crds").await?;
    gitops::nothing_is_left(scene, &[]).await?;
    scene.argocd.take().expect("it is there").stop().await;
    scene.delivery.take().expect("it is there").stop().await;
    Ok(())
}
