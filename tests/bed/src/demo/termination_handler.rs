//! The story of Node Termination Handler: `tenon migrate nth` ends it while an instance is being
//! interrupted, and the interruption is not lost.

use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

use super::chapters::{INSTALL, run_tenon};
use super::{Chapter, Scene, StoryError, bed, user};
use crate::termination_handler::{AUDIT, HOOKS, QUEUE, RULES, TerminationHandler};
use crate::user::{LIMIT, instance_of, one_of};
use crate::wait::eventually;

pub(super) const CHAPTERS: &[Chapter] = &[
    INSTALL,
    Chapter {
        title: "Node Termination Handler",
        shows: "It runs in both modes: a Deployment that reads a queue, and a DaemonSet that reads instance metadata. A rule and a lifecycle hook are its own; others feed a second queue, too. Pods run on a spot instance of Tenon's.",
        tell: |scene| Box::pin(start(scene)),
    },
    Chapter {
        title: "Switch",
        shows: "Node Termination Handler receives an interruption, and `tenon migrate nth` ends it before it does anything. Tenon gets the message and replaces the node.",
        tell: |scene| Box::pin(switch(scene)),
    },
];

const APP: &str = "worker";
const PODS: usize = 2;

/// Notes what is in AWS.
async fn note_aws(scene: &mut Scene<'_>) -> Result<Vec<String>, StoryError> {
    let handler = scene.handler.expect("an earlier chapter starts it");
    let all = handler.in_aws().await.map_err(bed("list what is in AWS"))?;
    scene.note(format!("in AWS: {}", all.join(", ")));
    Ok(all)
}

async fn start(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let requirements = json!([
        one_of("node.kubernetes.io/instance-type", &["m5.large"]),
        one_of("karpenter.sh/capacity-type", &["spot"]),
    ]);
    user.pool(APP, &requirements, &json!({})).await.map_err(bed("create the NodePool"))?;
    user.scale(APP, PODS, &json!({ "scenario": APP })).await.map_err(bed("create the pods"))?;
    user.runs(APP, PODS).await?;
    let handler = TerminationHandler::start(scene.bed).await;
    scene.handler = Some(handler.map_err(bed("start Node Termination Handler"))?);
    note_aws(scene).await.map(drop)
}

async fn switch(scene: &mut Scene<'_>) -> Result<(), StoryError> {
    let user = user(scene);
    let handler = scene.handler.expect("an earlier chapter starts it");
    let claims = user.claims(APP).await.map_err(bed("list the NodeClaims"))?;
    let claim = claims.first().ok_or_else(|| StoryError::Unexpected("no nodes".to_owned()))?;
    let (name, instance) = (claim.name_any(), instance_of(claim));
    let received = handler.receives_interruption(&instance).await;
    received.map_err(bed("interrupt an instance"))?;
    scene.note(format!("Node Termination Handler has received the interruption of {instance}"));
    let started = Instant::now();
    let target = ["--cluster", scene.bed.cluster(), "--region", scene.bed.region()];
    run_tenon(scene.bed, &[&["migrate", "nth", "--yes"][..], &target].concat()).await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("Tenon alone handles interruptions after {seconds:.1} s"));
    eventually("Tenon replaces the interrupted node", LIMIT, async || {
        let claims = user.claims(APP).await?;
        if claims.iter().any(|claim| claim.name_any() == name) {
            return Err(format!("{name} is there").into());
        }
        user.all_run(APP, PODS).await
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    scene.note(format!("the pods run on another node after {seconds:.1} s"));
    if handler.running().await.map_err(bed("read its workloads"))? != (0, 0) {
        return Err(StoryError::Unexpected("Node Termination Handler runs".to_owned()));
    }
    let left = note_aws(scene).await?;
    let of_others = [
        format!("queue {AUDIT}"),
        format!("rule {} for {AUDIT}", RULES[1]),
        format!("hook {}", HOOKS[1]),
    ];
    if left != of_others {
        let text = format!("{QUEUE} and what fed it should be gone, and all else should be there");
        return Err(StoryError::Unexpected(text));
    }
    Ok(())
}
