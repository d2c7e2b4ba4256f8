//! The stories of a cluster whose Karpenter comes from a git repository: `tenon adopt` takes it
//! over, and gives it back, although Flux or Argo CD restores what is changed.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::Value;

use super::chapters::run_tenon;
use super::gitops::{self, CLUSTER, FOLDER, MINUTE, OPERATOR, POOL, READY, delivery, refused};
use super::inventory::Inventory;
use super::{Chapter, Scene, StoryError, argocd, bed, flux, user};
use crate::karpenter;
use crate::kubectl::kubectl;
use crate::wait::eventually;

/// Karpenter's Deployment.
const DEPLOYMENT: &str = "karpenter";
/// Replicas that it has in git.
const REPLICAS: i32 = 2;

/// What applies the repository.
#[derive(Clone, Copy)]
enum Tool {
    Flux,
    ArgoCd,
}

impl Tool {
    /// That of this story.
    fn of(scene: &Scene<'_>) -> Self {
        if scene.flux.is_some() { Self::Flux } else { Self::ArgoCd }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Flux => "Flux",
            Self::ArgoCd => "Argo CD",
        }
    }

    /// Where Karpenter is in the repository: what the tool's first object applies.
    fn file(self) -> String {
        match self {
            Self::Flux => format!("{CLUSTER}/karpenter.yaml"),
            Self::ArgoCd => format!("{FOLDER}/karpenter.yaml"),
        }
    }

    /// Lets the tool compare all that there is with this commit, and waits until it has.
    async fn compare(self, scene: &Scene<'_>, commit: &str) -> Result<(), StoryError> {
        match self {
            Self::Flux => flux::compare(scene, commit).await,
            Self::ArgoCd => argocd::compare(scene).await,
        }
    }
}

pub(super) const FLUX: &[Chapter] = &[flux::START, KARPENTER, REFUSED, ADOPT, BACK];
pub(super) const ARGO_CD: &[Chapter] = &[argocd::START, KARPENTER, REFUSED, ADOPT, BACK];

const KARPENTER: Chapter = Chapter {
    title: "Karpenter",
    shows: "Karpenter is installed from the repository, and pods get nodes.",
    tell: |scene| Box::pin(install(scene)),
};
const REFUSED: Chapter = Chapter {
    title: "Refused",
    shows: "Karpenter would be started again: `tenon adopt` changes nothing, and says how to pause the tool.",
    tell: |scene| Box::pin(refuse(scene)),
};
const ADOPT: Chapter = Chapter {
    title: "Adopt",
    shows: "While the tool is paused, `tenon adopt` takes over. Then git has no replicas either, and the tool resumes. No node is replaced.",
    tell: |scene| Box::pin(adopt(scene)),
};
const BACK: Chapter = Chapter {
    title: "Back",
    shows: "The replicas return in git; `tenon adopt --undo` gives the cluster back to Karpenter, and leaves nothing.",
    tell: |scene| Box::pin(undo(scene)),
};

/// Pushes Karpenter with so many replicas; answers the commit.
async fn push(scene: &Scene<'_>, tool: Tool, replicas: i32) -> Result<String, StoryError> {
    let manifests = karpenter::manifests(scene.bed, &[]).await;
    let mut manifests = manifests.map_err(bed("write Karpenter's manifests"))?;
    for body in &mut manifests {
        match body["kind"].as_str() {
            Some("Deployment") => body["spec"]["replicas"] = replicas.into(),
            // Argo CD applies them in the same sync as their CRDs, but not before those.
            Some("NodePool" | "EC2NodeClass") => {
                body["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"] = "1".into();
            }
            _ => {}
        }
    }
    // JSON is YAML.
    let documents: Vec<String> = manifests.iter().map(Value::to_string).collect();
    let copy = &delivery(scene).copy;
    let written = copy.write(&tool.file(), &documents.join("\n---\n"));
    written.map_err(bed("write Karpenter's manifests"))?;
    copy.push(&format!("{replicas} replicas")).await.map_err(bed("push"))
}

async fn install(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let tool = Tool::of(scene);
    karpenter::in_aws(scene.bed).await.map_err(bed("make what Karpenter uses in AWS"))?;
    let commit = push(scene, tool, REPLICAS).await?;
    tool.compare(scene, &commit).await?;
    user(scene).ready("NodePool", POOL).await?;
    gitops::nodes(scene).await?;
    leads(scene, DEPLOYMENT).await?;
    // What Karpenter records after its first plan is none of what an adoption changes.
    scene.before = Some(Inventory::take(scene.bed).await?);
    Ok(())
}

/// `tenon adopt` with these flags.
fn command<'a>(scene: &'a Scene<'_>, flags: &[&'a str]) -> Vec<&'a str> {
    let target = ["--cluster", scene.bed.cluster(), "--region", scene.bed.region(), "--yes"];
    [&["adopt"], flags, &target].concat()
}

/// The commands of kubectl in an answer of `tenon`.
fn commands(said: &str) -> Vec<String> {
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let quoted = said.split('`').filter(|part| part.starts_with("kubectl "));
    quoted.map(str::to_owned).collect()
}

async fn refuse(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let tool = Tool::of(scene);
    let said = refused(scene, &command(scene, &[])).await?;
    if !said.contains(&format!("{} restores the replicas", tool.name())) {
        return Err(StoryError::Unexpected(format!("adopt does not say why: {said}")));
    }
    let after = Inventory::take(scene.bed).await?;
    let made = after.beyond(scene.before.as_ref().expect("taken above"));
    // Whoever runs a command first becomes known by the Lease that locks it.
    let made: Vec<String> = made.iter().map(ToString::to_string).collect();
    if made.iter().any(|it| !it.starts_with("Lease")) {
        return Err(StoryError::Unexpected(format!("something was changed: {}", made.join(", "))));
    }
    for command in commands(&said) {
        scene.note(command);
    }
    Ok(())
}

async fn adopt(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let tool = Tool::of(scene);
    let before = gitops::claims(scene).await?;
    let said = refused(scene, &command(scene, &[])).await?;
    let [pause, resume] = commands(&said).try_into().map_err(|found| {
        StoryError::Unexpected(format!("not one command to pause and one to resume: {found:?}"))
    })?;
    run(scene, &pause).await?;
    let adopted = run_tenon(scene.bed, &command(scene, &[])).await?;
    scene.note(adopted.stdout.lines().last().unwrap_or_default().to_owned());
    leads(scene, "tenon").await?;
    let commit = push(scene, tool, 0).await?;
    // Flux compares what else there is; Argo CD compares nothing that is paused.
    if let Tool::Flux = tool {
        tool.compare(scene, &commit).await?;
    }
    run(scene, &resume).await?;
    tool.compare(scene, &commit).await?;
    has_replicas(scene, 0).await?;
    let again = run_tenon(scene.bed, &command(scene, &[])).await?;
    if !again.stdout.contains("Nothing to do") {
        return Err(StoryError::Unexpected(format!("something is left to do: {}", again.stdout)));
    }
    gitops::stayed(scene, &before).await
}

async fn undo(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let tool = Tool::of(scene);
    let before = gitops::claims(scene).await?;
    let said = refused(scene, &command(scene, &["--undo"])).await?;
    if !said.contains("set them to 2") {
        return Err(StoryError::Unexpected(format!("adopt does not say what to do: {said}")));
    }
    let commit = push(scene, tool, REPLICAS).await?;
    tool.compare(scene, &commit).await?;
    has_replicas(scene, REPLICAS).await?;
    // Both are there, and one of them leads.
    leads(scene, "tenon").await?;
    let undone = run_tenon(scene.bed, &command(scene, &["--undo"])).await?;
    scene.note(undone.stdout.lines().last().unwrap_or_default().to_owned());
    leads(scene, DEPLOYMENT).await?;
    tool.compare(scene, &commit).await?;
    has_replicas(scene, REPLICAS).await?;
    gitops::stayed(scene, &before).await?;
    let after = Inventory::take(scene.bed).await?;
    let left = after.beyond(scene.before.as_ref().expect("taken above"));
    if !left.is_empty() {
        let names: Vec<String> = left.iter().map(ToString::to_string).collect();
        return Err(StoryError::Unexpected(format!("left: {}", names.join(", "))));
    }
    match tool {
        Tool::Flux => scene.flux.take().expect("it is there").stop().await,
        Tool::ArgoCd => scene.argocd.take().expect("it is there").stop().await,
    }
    scene.delivery.take().expect("it is there").stop().await;
    Ok(())
}

/// Runs a command as it is written.
async fn run(scene: &Scene<'_>, command: &str) -> Result<(), StoryError> {
    let args: Vec<&str> = command.split(' ').skip(1).collect();
    kubectl(scene.bed, &args).await.map_err(bed(&format!("run `{command}`")))
}

/// Waits until a pod of this Deployment holds the Lease.
async fn leads(scene: &Scene<'_>, deployment: &str) -> Result<(), StoryError> {
    let leases: Api<Lease> = Api::namespaced(scene.client.clone(), OPERATOR);
    eventually(&format!("{deployment} leads"), MINUTE, async || {
        let lease = leases.get_opt("karpenter-leader-election").await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        if holder.starts_with(&format!("{deployment}-")) { Ok(true) } else { Err(holder.into()) }
    })
    .await?;
    Ok(())
}

/// Waits until Karpenter has so many ready replicas.
async fn has_replicas(scene: &Scene<'_>, replicas: i32) -> Result<(), StoryError> {
    let api: Api<Deployment> = Api::namespaced(scene.client.clone(), OPERATOR);
    eventually(&format!("Karpenter has {replicas} replicas"), READY, async || {
        let karpenter = api.get(DEPLOYMENT).await?;
        let ready = karpenter.status.as_ref().and_then(|status| status.ready_replicas);
        let asked = karpenter.spec.replicas;
        if asked == Some(replicas) && ready.unwrap_or(0) == replicas {
            Ok(true)
        } else {
            Err(format!("{ready:?} of {asked:?} are ready").into())
        }
    })
    .await?;
    Ok(())
}
