//! The nodes: drained and terminated by the operator while it lives, by ourselves when it is gone, and in both cases proven gone before anything else goes.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;
use tenon_crds::labels::TERMINATION_TIMESTAMP;
use tokio::time::Instant;

use super::objects::{delete_all, key};
use super::{Inventory, Remover, resources, stranded};
use crate::apply::{Context, wait};
use crate::errors::{ExpectedError, Failure};
use crate::kubernetes::client::Cluster;
use crate::kubernetes::object::Object;
use crate::observe;
use crate::printer::Printer;

/// An operator that is unavailable for so long won't come back by itself: longer than a rolling update or a lost lease takes.
const GIVEN_UP_AFTER: Duration = Duration::from_mins(1);

/// How often the slow things are asked about.
const POLL: Duration = Duration::from_secs(1);

impl Remover<'_> {
    pub(super) async fn remove_nodes(
        &mut self,
        inventory: &Inventory,
    ) -> Result<(), ExpectedError> {
        let context = self.context.clone();
        let deployment = self.desired.deployment().cloned();
        let timeout = self.options.timeout;
        let pools = inventory.node_pools.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        // All at once: a pool that is left would replace the nodes of the others.
        if !pools.is_empty() {
            self.step(
                "nodepools",
                &format!("NodePools {}", pools.join(", ")),
                delete_all(&context.cluster, resources::node_pools(), &pools),
            )
            .await?;
        }
        let claims = inventory.node_claims.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        if !claims.is_empty() || !pools.is_empty() {
            let drain = Drain {
                context: &context,
                deployment: deployment.as_ref(),
                timeout,
                evict_for: self.options.evict_for(),
                forced_after: self.options.drain_timeout,
                printer: self.printer,
            };
            self.step("nodeclaims", "NodeClaims and their nodes", drain.run(self.desired)).await?;
        }
        if !inventory.instances.is_empty() || !claims.is_empty() {
            let desired = self.desired;
            let lives = operator_lives(&context.cluster, deployment.as_ref()).await;
            let evict_for = (!lives).then(|| self.options.evict_for());
            let prove = no_instances(&context, desired, evict_for, timeout);
            self.step("instances", "EC2 instances", prove).await?;
        }
        let classes = inventory.node_classes.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        if !classes.is_empty() {
            let desired = self.desired;
            let run = remove_classes(&context, desired, deployment.as_ref(), &classes, timeout);
            self.step("nodeclasses", &format!("EC2NodeClasses {}", classes.join(", ")), run)
                .await?;
        }
        Ok(())
    }
}

/// Whether an operator is there to drain nodes and to take its finalizers off.
pub(super) async fn operator_lives(cluster: &Cluster, deployment: Option<&Object>) -> bool {
    let Some(deployment) = deployment else { return false };
    match cluster.get(&deployment.resource, &deployment.key()).await {
        Ok(Some(live)) => {
            live.pointer("/status/availableReplicas")
                .and_then(serde_json::Value::as_i64)
                .unwrap_or(0)
                > 0
        }
        // Not knowing is no proof that it is gone.
        Err(_) => true,
        Ok(None) => false,
    }
}

/// Gets rid of all NodeClaims.
struct Drain<'a> {
    context: &'a Context,
    deployment: Option<&'a Object>,
    timeout: Duration,
    evict_for: Duration,
    /// When the operator is to stop waiting for budgets.
    forced_after: Option<Duration>,
    printer: Printer,
}

impl Drain<'_> {
    async fn run(&self, desired: &crate::desired::Desired) -> Result<(), Failure> {
        let cluster = &self.context.cluster;
        let resource = resources::node_claims();
        let end = Instant::now() + self.timeout;
        let mut alive_at = Instant::now();
        let was_there = match self.deployment {
            Some(deployment) => {
                cluster.get(&deployment.resource, &deployment.key()).await?.is_some()
            }
            None => false,
        };
        let mut told = String::new();
        loop {
            let claims = cluster.list(&resource).await?;
            if claims.is_empty() {
                return Ok(());
            }
            let doomed = claims
                .iter()
                .filter(|claim| claim.metadata.deletion_timestamp.is_none())
                .map(ResourceExt::name_any)
                .collect::<Vec<_>>();
            if let Some(at_most) = self.forced_after {
                set_deadline(cluster, &claims, at_most).await?;
            }
            delete_all(cluster, resource.clone(), &doomed).await?;
            if operator_lives(cluster, self.deployment).await {
                alive_at = Instant::now();
            } else if !was_there || alive_at.elapsed() >= GIVEN_UP_AFTER {
                self.printer.warn(
                    "the operator is not running: draining and terminating its nodes from here",
                );
                stranded::remove_claims(
                    self.context,
                    desired,
                    &claims,
                    self.evict_for,
                    self.timeout,
                )
                .await?;
                continue;
            }
            let waiting = waiting_for(&claims);
            if waiting != told {
                self.printer.note(&format!("   {waiting}"));
                told.clone_from(&waiting);
            }
            if Instant::now() >= end {
                return Err(Failure::Wait {
                    what: "NodeClaims to be gone".to_owned(),
                    last: waiting,
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Tells the operator until when it may wait for budgets. A claim that has a time already keeps it: it is its owner's, or was set here before.
async fn set_deadline(
    cluster: &Cluster,
    claims: &[kube::api::DynamicObject],
    at_most: Duration,
) -> Result<(), Failure> {
    let resource = resources::node_claims();
    let until = crate::clock::now() + at_most;
    let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for claim in claims {
        if claim.annotations().contains_key(TERMINATION_TIMESTAMP) {
            continue;
        }
        let patch = json!({"metadata": {"annotations": {TERMINATION_TIMESTAMP: until}}});
        match cluster.merge(&resource, &key(&resource, &claim.name_any()), &patch).await {
            Err(error) if error.is_not_found() => {}
            result => result?,
        }
    }
    Ok(())
}

/// What holds the claims up, as their conditions say it.
fn waiting_for(claims: &[kube::api::DynamicObject]) -> String {
    let reasons = claims.iter().take(3).map(|claim| {
        let body = serde_json::to_value(claim).unwrap_or_default();
        let of = |kind: &str| match wait::condition(&body, kind) {
            Some((status, _, message)) if status != "True" && !message.is_empty() => {
                Some(message.to_owned())
            }
            _ => None,
        };
        let why =
            of("Drained").or_else(|| of("VolumesDetached")).or_else(|| of("InstanceTerminating"));
        match why {
            Some(why) => format!("{} ({why})", claim.name_any()),
            None => claim.name_any(),
        }
    });
    format!(
        "{} to go: {}",
        crate::errors::count(claims.len(), "NodeClaim"),
        reasons.collect::<Vec<_>>().join(", ")
    )
}

/// Proves that no instance is left. The operator's garbage collection takes those without a claim; `evict_for` is given when there is no operator, and then they
/// are drained and terminated here.
async fn no_instances(
    context: &Context,
    desired: &crate::desired::Desired,
    evict_for: Option<Duration>,
    timeout: Duration,
) -> Result<(), Failure> {
    let mut empty = 0;
    let end = Instant::now() + timeout;
    if let Some(evict_for) = evict_for {
        let left = observe::ec2::instances(&context.aws, &desired.scope).await?;
        stranded::remove_instances(context, &left, evict_for, timeout).await?;
    }
    loop {
        let left = observe::ec2::instances(&context.aws, &desired.scope).await?;
        // EC2's lists lag behind: once empty is no proof.
        empty = if left.is_empty() { empty + 1 } else { 0 };
        if empty == 2 {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(Failure::Wait {
                what: "EC2 instances to be gone".to_owned(),
                last: format!("still there: {}", left.join(", ")),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn remove_classes(
    context: &Context,
    desired: &crate::desired::Desired,
    deployment: Option<&Object>,
    names: &[String],
    timeout: Duration,
) -> Result<(), Failure> {
    let cluster = &context.cluster;
    let resource = resources::node_classes();
    delete_all(cluster, resource.clone(), names).await?;
    let end = Instant::now() + timeout;
    let mut alive_at = Instant::now();
    let was_there = operator_lives(cluster, deployment).await;
    loop {
        let left = cluster.list(&resource).await?;
        if left.is_empty() {
            return Ok(());
        }
        if operator_lives(cluster, deployment).await {
            alive_at = Instant::now();
        } else if !was_there || alive_at.elapsed() >= GIVEN_UP_AFTER {
            stranded::remove_classes(context, desired, &left).await?;
            continue;
        }
        if Instant::now() >= end {
            let names = left.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(", ");
            return Err(Failure::Wait {
                what: "EC2NodeClasses to be gone".to_owned(),
                last: format!("still there: {names}"),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}
