//! What the stories of Flux and Argo CD have in common: `tenon` makes the AWS resources, and
//! everything in the cluster comes from a git repository with what `tenon export` wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenon_release::charts::{self, CHARTS};
use tokio::time::Instant;

use super::chapters::run_tenon;
use super::inventory::Inventory;
use super::{Scene, StoryError, bed, user};
use crate::bed::Bed;
use crate::control_plane::credentials::self_signed;
use crate::failure::Failure;
use crate::git::{GitServer, WorkingCopy};
use crate::kubectl::kubectl;
use crate::objects;
use crate::registry::{Registry, Tls};
use crate::wait::eventually;
use crate::words::count;

/// Longer than a tool takes for one thing.
pub(super) const MINUTE: Duration = Duration::from_mins(1);
/// Longer than a tool takes to install everything, or Tenon to replace all nodes.
pub(super) const READY: Duration = Duration::from_mins(4);
/// What the tool reads first.
pub(super) const CLUSTER: &str = "clusters/bed";
/// Where the files of `tenon export` are.
pub(super) const FOLDER: &str = "clusters/bed/tenon";
const POOL_FILE: &str = "clusters/bed/tenon/nodepools/nodepool-default.yaml";
const APP: &str = "web";
const PODS: usize = 4;
/// A limit of CPUs that is nobody's default.
const LIMIT: &str = "77";
/// The NodePool.
pub(super) const POOL: &str = "default";
/// The namespace of the operator.
pub(super) const OPERATOR: &str = "kube-system";

/// What a GitOps tool reads: charts in a registry, and a repository on a git server.
#[derive(Debug)]
pub(super) struct Delivery {
    registry: Registry,
    /// The registry's certificate.
    pub(super) certificate: PathBuf,
    /// Where the charts are.
    pub(super) charts: String,
    /// Where the repository is.
    pub(super) url: String,
    /// From where files are pushed.
    pub(super) copy: WorkingCopy,
    _git: GitServer,
}

impl Delivery {
    /// Pushes the charts of this checkout, and a commit without Tenon.
    pub(super) async fn start(on: &Bed) -> Result<Self, StoryError> {
        let dir = on.dir().join("delivery");
        let (certificate, key) = (dir.join("tls.crt"), dir.join("tls.key"));
        let pair = self_signed(&["127.0.0.1"]).map_err(bed("make a certificate"))?;
        std::fs::create_dir_all(&dir)
            .and_then(|()| std::fs::write(&certificate, pair.0))
            .and_then(|()| std::fs::write(&key, pair.1))
            .map_err(bed("write a certificate"))?;
        let tls = Tls { certificate: &certificate, key: &key };
        let registry = Registry::start(on, Some(tls)).await.map_err(bed("start a registry"))?;
        let charts = format!("oci://{}/tenon/charts", registry.host());
        push_charts(on, &charts, &certificate).await.map_err(bed("push the charts"))?;
        let git = GitServer::start(&dir.join("repositories")).await.map_err(bed("serve git"))?;
        let copy = git.create("platform", &dir.join("platform")).await;
        let copy = copy.map_err(bed("make a repository"))?;
        copy.write(&format!("{CLUSTER}/.gitkeep"), "").map_err(bed("write a file"))?;
        copy.push("an empty cluster").await.map_err(bed("push"))?;
        let url = git.url("platform");
        Ok(Self { registry, certificate, charts, url, copy, _git: git })
    }

    /// Ends it.
    pub(super) async fn stop(self) {
        self.registry.stop().await;
    }
}

pub(super) fn delivery<'a>(scene: &'a Scene<'_>) -> &'a Delivery {
    scene.delivery.as_ref().expect("an earlier chapter starts it")
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

/// The file of the settings.
pub(super) fn settings(scene: &Scene<'_>) -> String {
    scene.bed.dir().join("tenon.yaml").display().to_string()
}

/// Writes the settings, with this `deploy`; answers the file.
pub(super) fn write_settings(scene: &Scene<'_>, deploy: &Value) -> Result<String, StoryError> {
    let config = json!({
        "apiVersion": "tenon.sh/v1alpha1", "kind": "Installation",
        "cluster": { "name": scene.bed.cluster(), "region": scene.bed.region() },
        "deploy": deploy,
    });
    // JSON is YAML.
    let file = settings(scene);
    std::fs::write(&file, config.to_string()).map_err(bed("write the settings"))?;
    Ok(file)
}

/// Names of the NodeClaims.
pub(super) async fn claims(scene: &Scene<'_>) -> Result<BTreeSet<String>, StoryError> {
    let claims = user(scene).claims(POOL).await.map_err(bed("list the NodeClaims"))?;
    Ok(claims.iter().map(ResourceExt::name_any).collect())
}

/// No node was replaced.
pub(super) async fn stayed(
    scene: &mut Scene<'_>,
    before: &BTreeSet<String>,
) -> Result<(), StoryError> {
    let after = claims(scene).await?;
    if *before != after {
        return Err(StoryError::Unexpected(format!("NodeClaims {before:?} became {after:?}")));
    }
    scene.note(format!("{} stayed", count(after.len(), "node")));
    Ok(())
}

/// `tenon install` with `deploy.operator: skip`.
pub(super) async fn aws(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let file = write_settings(scene, &json!({ "operator": "skip" }))?;
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

/// `tenon install` with everything, and pods get nodes.
pub(super) async fn install(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let file = write_settings(scene, &json!({}))?;
    run_tenon(scene.bed, &["install", "-f", &file, "--yes"]).await?;
    nodes(scene).await
}

/// CRDs first, then the operator, and NodePools once it is available.
pub(super) async fn in_order(scene: &Scene<'_>) -> Result<(), StoryError> {
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

/// The NodePool in git.
pub(super) fn pool_file(scene: &Scene<'_>) -> Result<Value, StoryError> {
    let text = std::fs::read_to_string(delivery(scene).copy.dir().join(POOL_FILE));
    let text = text.map_err(bed("read the NodePool's file"))?;
    serde_saphyr::from_str(&text).map_err(bed("parse the NodePool's file"))
}

/// Runs a command that has to be refused, and answers what it says to do.
pub(super) async fn refused(scene: &Scene<'_>, args: &[&str]) -> Result<String, StoryError> {
    const REFUSED: i32 = 6;
    let finished = scene.bed.run_tenon(args).await.map_err(bed("run tenon"))?;
    if finished.code == REFUSED {
        return Ok(finished.stderr);
    }
    let (code, said) = (finished.code, finished.stderr);
    Err(StoryError::Tenon { args: args.join(" "), code, said })
}

/// What a tool would change if it found a difference: by name, the generations of what it applied.
pub(super) async fn applied(scene: &Scene<'_>) -> Result<BTreeMap<String, i64>, Failure> {
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
    Ok(all)
}

/// Whether a tool left everything as it was.
pub(super) fn unchanged(
    before: &BTreeMap<String, i64>,
    after: &BTreeMap<String, i64>,
) -> Result<(), StoryError> {
    if before == after {
        Ok(())
    } else {
        Err(StoryError::Unexpected(format!("{before:?} became {after:?}")))
    }
}

/// Pods get nodes, one for each, so that there is something to replace.
pub(super) async fn nodes(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let started = Instant::now();
    let user = user(scene);
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
    Ok(())
}

/// Pushes another NodePool.
pub(super) async fn push_pool(
    scene: &Scene<'_>,
    pool: &Value,
    message: &str,
) -> Result<String, StoryError> {
    let copy = &delivery(scene).copy;
    // JSON is YAML.
    copy.write(POOL_FILE, &format!("{pool:#}\n")).map_err(bed("write the NodePool's file"))?;
    copy.push(message).await.map_err(bed("push"))
}

/// A NodePool whose nodes get another label, one at a time.
pub(super) fn labelled(mut pool: Value) -> Value {
    pool["spec"]["template"]["metadata"]["labels"]["team"] = "platform".into();
    pool["spec"]["disruption"]["budgets"] = json!([{ "nodes": "1" }]);
    pool
}

/// A NodePool with another limit.
pub(super) fn limited(mut pool: Value) -> Value {
    pool["spec"]["limits"]["cpu"] = LIMIT.into();
    pool
}

/// Waits until the NodePool has the limit that git says.
pub(super) async fn has_limit(scene: &Scene<'_>) -> Result<(), StoryError> {
    let pools = objects::node_pools(&scene.client);
    eventually("the NodePool has the limit that git says", READY, async || {
        Ok(pools.get(POOL).await?.data["spec"]["limits"]["cpu"] == LIMIT)
    })
    .await?;
    Ok(())
}

/// The spec of the NodePool.
pub(super) async fn pool(scene: &Scene<'_>) -> Result<Value, StoryError> {
    let pool = objects::node_pools(&scene.client).get(POOL).await;
    Ok(pool.map_err(bed("read the NodePool"))?.data["spec"].take())
}

/// `tenon freeze`; answers the NodePool's spec.
pub(super) async fn freeze(scene: &Scene<'_>) -> Result<Value, StoryError> {
    run_tenon(scene.bed, &["freeze", "-f", &settings(scene)]).await?;
    let frozen = pool(scene).await?;
    if frozen["limits"]["cpu"] == "0" {
        Ok(frozen)
    } else {
        Err(StoryError::Unexpected(format!("not frozen: {}", frozen["limits"])))
    }
}

/// The nodes that drift.
pub(super) struct Drift {
    old: Vec<String>,
    started: Instant,
}

impl Drift {
    /// Before the change.
    pub(super) async fn begin(scene: &Scene<'_>) -> Result<Self, StoryError> {
        let old = user(scene).claims(POOL).await.map_err(bed("list the NodeClaims"))?;
        Ok(Self { old: old.iter().map(ResourceExt::name_any).collect(), started: Instant::now() })
    }

    /// Waits until all are replaced, one at a time.
    pub(super) async fn end(self, scene: &mut Scene<'_>) -> Result<(), StoryError> {
        let user = user(scene);
        let at_a_time = Mutex::new(BTreeSet::new());
        eventually("all nodes are replaced, and the pods run", READY, async || {
            let claims = user.claims(POOL).await?;
            let going = |it: &&DynamicObject| it.metadata.deletion_timestamp.is_some();
            let n_going = claims.iter().filter(going).count();
            at_a_time.lock().insert(n_going);
            let left = claims.iter().filter(|it| self.old.contains(&it.name_any())).count();
            if left == 0 {
                user.all_run(APP, PODS).await
            } else {
                Err(format!("{} left", count(left, "old node")).into())
            }
        })
        .await?;
        let most = at_a_time.into_inner().last().copied().unwrap_or_default();
        scene.note(format!(
            "{} replaced after {:.0} s, at most {most} at a time",
            count(self.old.len(), "node"),
            self.started.elapsed().as_secs_f64()
        ));
        if most > 1 {
            return Err(StoryError::Unexpected("the budget allows one at a time".to_owned()));
        }
        Ok(())
    }
}

/// `tenon` knows that the operator is a tool's: of each command, what it says has to contain this.
pub(super) async fn one_owner(
    scene: &mut Scene<'_>,
    tool: &str,
    changes: &[(&str, &str)],
) -> Result<(), StoryError> {
    let file = settings(scene);
    let (cluster, region) = (scene.bed.cluster(), scene.bed.region());
    let own = scene.bed.dir().join("own.yaml").display().to_string();
    let config = json!({
        "apiVersion": "tenon.sh/v1alpha1", "kind": "Installation",
        "cluster": { "name": cluster, "region": region },
    });
    std::fs::write(&own, config.to_string()).map_err(bed("write settings"))?;
    for (command, change) in changes {
        // Of these settings, the operator is not managed.
        let file = if *command == "install" { &own } else { &file };
        let said = refused(scene, &[command, "-f", file, "--yes"]).await?;
        let Some(hint) = said.lines().find(|line| line.contains(change)) else {
            let what = format!("tenon {command} does not say `{change}`: {said}");
            return Err(StoryError::Unexpected(what));
        };
        scene.note(format!("tenon {command}: {}", hint.trim()));
    }
    let status = run_tenon(scene.bed, &["status", "-f", &file]).await?;
    if !status.stdout.contains(&format!("managed by {tool}")) {
        return Err(StoryError::Unexpected(format!("status does not say so: {}", status.stdout)));
    }
    run_tenon(scene.bed, &["doctor", "-f", &file]).await?;
    run_tenon(scene.bed, &["install", "-f", &file, "--yes"]).await?;
    Ok(())
}

/// Removes the workload, and pushes a commit without Tenon.
pub(super) async fn remove_files(scene: &Scene<'_>) -> Result<(), StoryError> {
    user(scene).remove(APP).await.map_err(bed("delete the Deployment"))?;
    let copy = &delivery(scene).copy;
    std::fs::remove_dir_all(copy.dir().join(FOLDER)).map_err(bed("remove the files"))?;
    copy.push("without Tenon").await.map_err(bed("push"))?;
    Ok(())
}

/// Deletes the NodePools while the operator runs.
pub(super) async fn delete_nodes(scene: &Scene<'_>) -> Result<(), StoryError> {
    let of_tenon = ["delete", "nodepools,ec2nodeclasses", "--all", "--timeout=180s"];
    kubectl(scene.bed, &of_tenon).await.map_err(bed("delete the NodePools"))
}

/// Deletes what a tool leaves of the operator and, with `tenon uninstall --aws-only`, the AWS
/// resources; then there is what there was before.
pub(super) async fn nothing_is_left(scene: &Scene<'_>, more: &[&str]) -> Result<(), StoryError> {
    for object in more.iter().chain(&["lease/karpenter-leader-election"]) {
        kubectl(scene.bed, &["delete", object, "--namespace", OPERATOR])
            .await
            .map_err(bed(&format!("delete {object}")))?;
    }
    let api: Api<Deployment> = Api::namespaced(scene.client.clone(), OPERATOR);
    let left = api.list(&ListParams::default()).await.map_err(bed("list the Deployments"))?;
    if !left.items.is_empty() {
        let names: Vec<String> = left.items.iter().map(ResourceExt::name_any).collect();
        return Err(StoryError::Unexpected(format!("left: {}", names.join(", "))));
    }
    run_tenon(scene.bed, &["uninstall", "-f", &settings(scene), "--aws-only", "--yes"]).await?;
    let after = Inventory::take(scene.bed).await?;
    let left = after.beyond(scene.before.as_ref().expect("taken before"));
    if left.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = left.iter().map(ToString::to_string).collect();
    Err(StoryError::Unexpected(format!("left: {}", names.join(", "))))
}
