//! The story of Flux: `tenon` makes the AWS resources, and everything in the cluster comes from a
//! git repository with what `tenon export flux` wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenon_release::charts::{self, CHARTS};
use tokio::time::Instant;

use super::chapters::run_tenon;
use super::inventory::Inventory;
use super::{Chapter, Scene, StoryError, bed, user};
use crate::bed::Bed;
use crate::control_plane::credentials::self_signed;
use crate::failure::Failure;
use crate::flux::{self, Flux, ROOT};
use crate::git::{GitServer, WorkingCopy};
use crate::kubectl::kubectl;
use crate::objects;
use crate::registry::{Registry, Tls};
use crate::wait::eventually;
use crate::words::count;

pub(super) const CHAPTERS: &[Chapter] = &[
    Chapter {
        title: "Flux",
        shows: "Flux starts with an empty repository on a git server, and Tenon's charts are in a registry.",
        tell: |scene| Box::pin(start(scene)),
    },
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
    Chapter {
        title: "One owner",
        shows: "`tenon install`, `upgrade`, `rollback` and `uninstall` change nothing, and say what to change in git.",
        tell: |scene| Box::pin(owner(scene)),
    },
    Chapter {
        title: "Remove",
        shows: "The files leave the repository; then the NodePools go, the operator, and with `tenon uninstall --aws-only` the AWS resources. Nothing is left.",
        tell: |scene| Box::pin(remove(scene)),
    },
];

const MINUTE: Duration = Duration::from_mins(1);
/// Long enough for a chain of Kustomizations, each of which checks every 30 s whether what it
/// depends on is ready.
const READY: Duration = Duration::from_mins(4);
const FOLDER: &str = "clusters/bed/tenon";
const APP: &str = "web";
const PODS: usize = 4;
const POOL: &str = "default";
const OPERATOR: &str = "kube-system";
/// In the order in which they depend on each other.
const KUSTOMIZATIONS: [&str; 3] = ["tenon-crds", "tenon", "tenon-nodepools"];
const RELEASES: [&str; 2] = ["tenon-crds", "tenon"];

/// Flux, and what it reads.
#[derive(Debug)]
pub(super) struct Delivery {
    /// Ends with the story.
    flux: Flux,
    registry: Registry,
    charts: String,
    copy: WorkingCopy,
    _git: GitServer,
}

fn delivery<'a>(scene: &'a Scene<'_>) -> &'a Delivery {
    scene.flux.as_ref().expect("an earlier chapter starts Flux")
}

/// Packages the charts of this checkout, and pushes them to a registry.
async fn push_charts(bed: &Bed, to: &str, certificate: &Path) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    for chart in CHARTS {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts").join(chart);
        let file = charts::package(&dir, version, None, 0, bed.dir())?;
        let mut helm = bed.command("helm".as_ref());
        helm.arg("push").arg(bed.dir().join(file)).arg(to).arg("--ca-file").arg(certificate);
        let output = helm.output().await?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
    }
    Ok(())
}

async fn start(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let dir = scene.bed.dir().join("delivery");
    let (certificate, key) = (dir.join("tls.crt"), dir.join("tls.key"));
    let pair = self_signed(&["127.0.0.1"]).map_err(bed("make a certificate"))?;
    std::fs::create_dir_all(&dir)
        .and_then(|()| std::fs::write(&certificate, pair.0))
        .and_then(|()| std::fs::write(&key, pair.1))
        .map_err(bed("write a certificate"))?;
    let tls = Tls { certificate: &certificate, key: &key };
    let registry = Registry::start(scene.bed, Some(tls)).await.map_err(bed("start a registry"))?;
    let charts = format!("oci://{}/tenon/charts", registry.host());
    push_charts(scene.bed, &charts, &certificate).await.map_err(bed("push the charts"))?;
    let git = GitServer::start(&dir.join("repositories")).await.map_err(bed("serve git"))?;
    let copy = git.create("platform", &dir.join("platform")).await;
    let copy = copy.map_err(bed("make a repository"))?;
    copy.write("clusters/bed/.gitkeep", "").map_err(bed("write a file"))?;
    copy.push("an empty cluster").await.map_err(bed("push"))?;
    let started = Instant::now();
    let flux = Flux::start(scene.bed, &certificate, &scene.narrator.progress).await;
    let flux = flux.map_err(bed("start Flux"))?;
    let url = git.url("platform");
    flux.bootstrap(scene.bed, &url, "clusters/bed").await.map_err(bed("bootstrap Flux"))?;
    let roots = flux::kustomizations(&scene.client);
    eventually("Flux has applied the repository", MINUTE, async || {
        let root = roots.get(ROOT).await?;
        if objects::holds(&root, "Ready") { Ok(true) } else { Err(objects::blockers(&root).into()) }
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("Flux runs, and has applied an empty folder, after {seconds:.1} s"));
    scene.flux = Some(Delivery { flux, registry, charts, copy, _git: git });
    scene.before = Some(Inventory::take(scene.bed).await?);
    Ok(())
}

fn settings(scene: &Scene<'_>) -> String {
    scene.bed.dir().join("tenon.yaml").display().to_string()
}

async fn deployments(scene: &Scene<'_>) -> Result<Vec<String>, StoryError> {
    let api: Api<Deployment> = Api::namespaced(scene.client.clone(), OPERATOR);
    let all = api.list(&ListParams::default()).await.map_err(bed("list the Deployments"))?;
    Ok(all.items.iter().map(ResourceExt::name_any).collect())
}

async fn aws(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let config = json!({
        "apiVersion": "tenon.sh/v1alpha1", "kind": "Installation",
        "cluster": { "name": scene.bed.cluster(), "region": scene.bed.region() },
        "deploy": { "operator": "skip" },
    });
    // JSON is YAML.
    let file = settings(scene);
    std::fs::write(&file, config.to_string()).map_err(bed("write the settings"))?;
    run_tenon(scene.bed, &["install", "-f", &file, "--yes"]).await?;
    let made = Inventory::take(scene.bed).await?;
    let made = made.beyond(scene.before.as_ref().expect("taken above"));
    let in_cluster: Vec<String> =
        made.iter().filter(|it| !it.is_aws()).map(ToString::to_string).collect();
    scene.note(format!(
        "{} in AWS; in the cluster: {}",
        count(made.len() - in_cluster.len(), "resource"),
        in_cluster.join(", ")
    ));
    if in_cluster.iter().any(|it| !it.starts_with("ConfigMap") && !it.starts_with("Lease")) {
        return Err(StoryError::Unexpected("more than the record is in the cluster".to_owned()));
    }
    let again = run_tenon(scene.bed, &["plan", "-f", &file, "-o", "json"]).await?;
    let plan: Value = serde_json::from_str(&again.stdout).map_err(bed("read the plan"))?;
    match plan["actions"].as_array().map(Vec::len) {
        Some(0) => Ok(()),
        _ => Err(StoryError::Unexpected(format!("not all is done: {}", plan["actions"]))),
    }
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

async fn push(scene: &mut Scene<'_>) -> Result<(), StoryError> {
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
    in_order(scene).await?;
    user(scene).ready("NodePool", POOL).await?;
    Ok(())
}

/// CRDs first, then the operator, and NodePools once it is available.
async fn in_order(scene: &Scene<'_>) -> Result<(), StoryError> {
    let crds: Api<CustomResourceDefinition> = Api::all(scene.client.clone());
    let api: Api<Deployment> = Api::namespaced(scene.client.clone(), OPERATOR);
    let crd = crds.get("nodepools.karpenter.sh").await.map_err(bed("read a CRD"))?;
    let all = api.list(&ListParams::default()).await.map_err(bed("list the Deployments"))?;
    let operator = all.items.first().ok_or_else(|| bed("find the operator")("there is none"))?;
    let pool = objects::node_pools(&scene.client).get(POOL).await;
    let pool = pool.map_err(bed("read the NodePool"))?;
    let conditions = operator.status.as_ref().and_then(|status| status.conditions.as_ref());
    let available =
        conditions.into_iter().flatten().find(|it| it.type_.as_deref() == Some("Available"));
    let times = [
        crd.creation_timestamp(),
        operator.creation_timestamp(),
        available.and_then(|it| it.last_transition_time.clone()),
        pool.creation_timestamp(),
    ];
    if times.iter().all(Option::is_some) && times.is_sorted() {
        Ok(())
    } else {
        Err(StoryError::Unexpected(format!(
            "CRD, Deployment, its availability and the NodePool are not in this order: {times:?}"
        )))
    }
}

/// What Flux would change if it found a difference: by name, the generations of what it applied,
/// and how often it installed the charts.
async fn generations(scene: &Scene<'_>) -> Result<BTreeMap<String, i64>, Failure> {
    let mut all = BTreeMap::new();
    let api: Api<Deployment> = Api::namespaced(scene.client.clone(), OPERATOR);
    for one in api.list(&ListParams::default()).await?.items {
        all.insert(format!("Deployment {}", one.name_any()), one.metadata.generation.unwrap_or(0));
    }
    let (pools, classes) =
        (objects::node_pools(&scene.client), objects::node_classes(&scene.client));
    for api in [pools, classes] {
        for one in api.list(&ListParams::default()).await?.items {
            let kind = one.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
            let name = format!("{kind} {}", one.name_any());
            all.insert(name, one.metadata.generation.unwrap_or(0));
        }
    }
    for release in flux::releases(&scene.client, OPERATOR).list(&ListParams::default()).await?.items
    {
        let newest = release.data["status"]["history"][0]["version"].as_i64();
        all.insert(format!("revision of {}", release.name_any()), newest.unwrap_or(0));
    }
    Ok(all)
}

async fn nodes(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let started = Instant::now();
    let user = user(scene);
    // One pod for each node, so that there is something to replace.
    let apart = json!({ "spec": {
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": { "app": APP } },
        }],
        "nodeSelector": { "karpenter.sh/nodepool": POOL },
    }});
    user.deploy(APP, PODS, &apart).await.map_err(bed("create a Deployment"))?;
    user.runs(APP, PODS).await?;
    let claims = user.claims(POOL).await.map_err(bed("list the NodeClaims"))?;
    scene.note(format!(
        "{} on {} after {:.1} s",
        count(PODS, "pod"),
        count(claims.len(), "node"),
        started.elapsed().as_secs_f64()
    ));
    let before = generations(scene).await.map_err(bed("read what Flux applied"))?;
    for at in ["again", "and again"] {
        reconcile(scene, at).await.map_err(bed("notify Flux"))?;
        reconciled(scene, at).await?;
    }
    let after = generations(scene).await.map_err(bed("read what Flux applied"))?;
    if before != after {
        let what = format!("Flux changed something: {before:?} became {after:?}");
        return Err(StoryError::Unexpected(what));
    }
    let names: Vec<&str> = after.keys().map(String::as_str).collect();
    scene.note(format!("unchanged: {}", names.join(", ")));
    Ok(())
}

/// The file of the NodePool, and what is in it.
fn pool_file(scene: &Scene<'_>) -> Result<(String, Value), StoryError> {
    let name = format!("{FOLDER}/nodepools/nodepool-{POOL}.yaml");
    let text = std::fs::read_to_string(delivery(scene).copy.dir().join(&name));
    let text = text.map_err(bed("read the NodePool's file"))?;
    let pool = serde_saphyr::from_str(&text).map_err(bed("parse the NodePool's file"))?;
    Ok((name, pool))
}

/// Pushes another NodePool, and notifies Flux.
async fn push_pool(
    scene: &Scene<'_>,
    name: &str,
    pool: &Value,
    message: &str,
) -> Result<(), StoryError> {
    let copy = &delivery(scene).copy;
    // JSON is YAML.
    copy.write(name, &format!("{pool:#}\n")).map_err(bed("write the NodePool's file"))?;
    copy.push(message).await.map_err(bed("push"))?;
    reconcile(scene, message).await.map_err(bed("notify Flux"))
}

async fn change(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let old = user.claims(POOL).await.map_err(bed("list the NodeClaims"))?;
    let (name, mut pool) = pool_file(scene)?;
    pool["spec"]["template"]["metadata"]["labels"]["team"] = "platform".into();
    pool["spec"]["disruption"]["budgets"] = json!([{ "nodes": "1" }]);
    let started = Instant::now();
    push_pool(scene, &name, &pool, "label the nodes").await?;
    let at_a_time = Mutex::new(BTreeSet::new());
    let known: Vec<String> = old.iter().map(ResourceExt::name_any).collect();
    eventually("all nodes are replaced, and the pods run", READY, async || {
        let claims = user.claims(POOL).await?;
        let going = |it: &&DynamicObject| it.metadata.deletion_timestamp.is_some();
        let n_going = claims.iter().filter(going).count();
        at_a_time.lock().insert(n_going);
        let left = claims.iter().filter(|it| known.contains(&it.name_any())).count();
        if left == 0 {
            user.all_run(APP, PODS).await
        } else {
            Err(format!("{} left", count(left, "old node")).into())
        }
    })
    .await?;
    let n = known.len();
    let most = at_a_time.into_inner().last().copied().unwrap_or_default();
    scene.note(format!(
        "{} replaced after {:.0} s, at most {most} at a time",
        count(n, "node"),
        started.elapsed().as_secs_f64()
    ));
    if most > 1 {
        return Err(StoryError::Unexpected("the budget allows one at a time".to_owned()));
    }
    Ok(())
}

async fn freeze(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let pools = objects::node_pools(&scene.client);
    let spec = async || {
        let pool = pools.get(POOL).await.map_err(bed("read the NodePool"))?;
        Ok::<_, StoryError>(pool.data["spec"].clone())
    };
    let before = spec().await?;
    let file = settings(scene);
    run_tenon(scene.bed, &["freeze", "-f", &file]).await?;
    let frozen = spec().await?;
    if frozen["limits"]["cpu"] != "0" {
        return Err(StoryError::Unexpected(format!("not frozen: {}", frozen["limits"])));
    }
    reconcile(scene, "frozen").await.map_err(bed("notify Flux"))?;
    reconciled(scene, "frozen").await?;
    if spec().await? != frozen {
        return Err(StoryError::Unexpected("Flux ended the freeze".to_owned()));
    }
    run_tenon(scene.bed, &["unfreeze", "-f", &file]).await?;
    reconcile(scene, "thawed").await.map_err(bed("notify Flux"))?;
    reconciled(scene, "thawed").await?;
    if spec().await? != before {
        return Err(StoryError::Unexpected("the NodePool is not as before".to_owned()));
    }
    // Flux is in charge again.
    let (name, mut pool) = pool_file(scene)?;
    pool["spec"]["limits"]["cpu"] = "77".into();
    push_pool(scene, &name, &pool, "limit the NodePool").await?;
    eventually("the NodePool has the limit that git says", READY, async || {
        Ok(pools.get(POOL).await?.data["spec"]["limits"]["cpu"] == "77")
    })
    .await?;
    Ok(())
}

/// Runs a command that has to be refused, and answers what it says to do.
async fn refused(scene: &Scene<'_>, args: &[&str]) -> Result<String, StoryError> {
    const REFUSED: i32 = 6;
    let finished = scene.bed.run_tenon(args).await.map_err(bed("run tenon"))?;
    if finished.code == REFUSED {
        return Ok(finished.stderr);
    }
    let (code, said) = (finished.code, finished.stderr);
    Err(StoryError::Tenon { args: args.join(" "), code, said })
}

async fn owner(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let before = generations(scene).await.map_err(bed("read what Flux applied"))?;
    let file = settings(scene);
    let (cluster, region) = (scene.bed.cluster(), scene.bed.region());
    let own = scene.bed.dir().join("own.yaml").display().to_string();
    let config = json!({
        "apiVersion": "tenon.sh/v1alpha1", "kind": "Installation",
        "cluster": { "name": cluster, "region": region },
    });
    std::fs::write(&own, config.to_string()).map_err(bed("write settings"))?;
    for (args, change) in [
        (vec!["install", "-f", &own, "--yes"], "HelmRelease kube-system/tenon"),
        (vec!["upgrade", "-f", &file, "--yes"], "spec.chart.spec.version"),
        (vec!["rollback", "-f", &file, "--yes"], "spec.chart.spec.version"),
        (vec!["uninstall", "-f", &file, "--yes"], "Flux"),
    ] {
        let said = refused(scene, &args).await?;
        if !said.contains(change) {
            return Err(StoryError::Unexpected(format!("{args:?} does not say so: {said}")));
        }
        let hint = said.lines().find(|line| line.contains(change)).unwrap_or_default();
        scene.note(format!("tenon {}: {}", args[0], hint.trim()));
    }
    let status = run_tenon(scene.bed, &["status", "-f", &file]).await?;
    if !status.stdout.contains("managed by Flux") {
        return Err(StoryError::Unexpected(format!("status does not say so: {}", status.stdout)));
    }
    run_tenon(scene.bed, &["doctor", "-f", &file]).await?;
    run_tenon(scene.bed, &["install", "-f", &file, "--yes"]).await?;
    let after = generations(scene).await.map_err(bed("read what Flux applied"))?;
    if before == after {
        Ok(())
    } else {
        Err(StoryError::Unexpected(format!("{before:?} became {after:?}")))
    }
}

async fn remove(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    user.remove(APP).await.map_err(bed("delete the Deployment"))?;
    let copy = delivery(scene).copy.clone();
    std::fs::remove_dir_all(copy.dir().join(FOLDER)).map_err(bed("remove the files"))?;
    copy.push("without Tenon").await.map_err(bed("push"))?;
    reconcile(scene, "removed").await.map_err(bed("notify Flux"))?;
    let kustomizations = flux::kustomizations(&scene.client);
    eventually("Flux has removed the Kustomizations", MINUTE, async || {
        let left = kustomizations.list(&ListParams::default()).await?.items.len();
        if left == 1 { Ok(true) } else { Err(count(left - 1, "Kustomization").into()) }
    })
    .await?;
    let of_tenon = ["nodepools,ec2nodeclasses", "--all", "--timeout=180s"];
    let deleted = kubectl(scene.bed, &[["delete"].as_slice(), &of_tenon].concat()).await;
    deleted.map_err(bed("delete the NodePools"))?;
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
    for object in ["helmrepository/tenon", "lease/karpenter-leader-election"] {
        kubectl(scene.bed, &["delete", object, "--namespace", OPERATOR])
            .await
            .map_err(bed(&format!("delete {object}")))?;
    }
    let left = deployments(scene).await?;
    if !left.is_empty() {
        return Err(StoryError::Unexpected(format!("left: {left:?}")));
    }
    run_tenon(scene.bed, &["uninstall", "-f", &settings(scene), "--aws-only", "--yes"]).await?;
    let after = Inventory::take(scene.bed).await?;
    let left = after.beyond(scene.before.as_ref().expect("taken before"));
    if !left.is_empty() {
        let names: Vec<String> = left.iter().map(ToString::to_string).collect();
        return Err(StoryError::Unexpected(format!("left: {}", names.join(", "))));
    }
    let Delivery { flux, registry, .. } = scene.flux.take().expect("it is there");
    flux.stop().await;
    registry.stop().await;
    Ok(())
}
